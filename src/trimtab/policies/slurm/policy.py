"""Slurm as a policy: what a cluster run by Slurm does today, to compare others with.

named("slurm")
SlurmPolicy({"PriorityWeightAge": "1000", "SchedulerParameters": "bf_interval=60"})

Settings come from the cluster's `slurm` section where it has one. A cluster that says nothing of
its Slurm gets `settings.USUAL`; one whose section names no weights gets Slurm's own default, which
is first come, first served. Where it differs from Slurm stands in docs/policies/slurm.md.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from trimtab.arrays import Array
from trimtab.core import Decision, Reject, Snapshot, Stop, Wait
from trimtab.policies.slurm.books import Books
from trimtab.policies.slurm.fill_pass import Most, backfill
from trimtab.policies.slurm.queue_pass import run_queue
from trimtab.policies.slurm.settings import USUAL, Settings, settings_of
from trimtab.policies.slurm.table import Table
from trimtab.rules.seen import decisions_of, world_of

CHANGES = ("submitted", "started", "finished", "stopped", "failed", "rejected")
GANG_ROOM = 64  # entries beside one for every job that waits


class SlurmPolicy:
    """Multifactor priority, the main scheduler at every event, and backfill at its interval."""

    name = "slurm"

    def __init__(self, settings: Mapping[str, str] | None = None, seed: int = 0) -> None:
        del seed  # nothing is drawn
        self._given = settings
        self._room = 256
        self._begin(None)

    def _begin(self, snapshot: Snapshot | None) -> None:
        """Forget everything: another run begins."""
        self._now_s = -np.inf
        self._jobs = -1
        self._filled_s = self._walked_s = self._full_s = -np.inf
        self._seen_fill: tuple[int, ...] = ()
        self._seen_walk: tuple[int, ...] = ()
        if snapshot is not None:
            self._jobs = len(snapshot.jobs)
            self.settings = self._settings(snapshot)
            self._books = Books(snapshot, self.settings)

    def _settings(self, snapshot: Snapshot) -> Settings:
        if self._given is not None:
            return settings_of(self._given)
        site = snapshot.site
        return settings_of(site.slurm if site is not None and site.slurm else USUAL)

    def decide(self, snapshot: Snapshot) -> list[Decision]:
        if snapshot.now_s < self._now_s or len(snapshot.jobs) != self._jobs:
            self._begin(snapshot)
        self._now_s = now_s = snapshot.now_s
        ticked = self._books.look(snapshot)
        if not len(snapshot.queue):
            return []
        seen = changes(snapshot)
        walk = ticked or seen != self._seen_walk
        walk = walk and now_s >= self._walked_s + self.settings.min_gap_s
        fill = self.settings.backfill and (ticked or seen != self._seen_fill)
        fill = fill and now_s >= self._filled_s + self.settings.fill_interval_s
        made: list[Decision] = []
        if walk or fill:
            made = self._passes(snapshot, walk, fill)
        if walk:
            self._walked_s, self._seen_walk = now_s, seen
        if fill:
            self._filled_s, self._seen_fill = now_s, seen
        until_s = self._next_s(snapshot, bool(made))
        return [*made, Wait(until_s)] if np.isfinite(until_s) else made

    def _passes(self, snapshot: Snapshot, walk: bool, fill: bool) -> list[Decision]:
        """Both schedulers over the queue as it stands, or one of them."""
        settings, now_s = self.settings, snapshot.now_s
        full = now_s >= self._full_s + settings.full_s
        if walk and full:
            self._full_s = now_s
        while True:
            table, rank = self._books.table(snapshot)
            closes = self._closes(snapshot, table, rank)
            world = world_of(snapshot, self._room + len(snapshot.queue))
            began = np.zeros(len(snapshot.jobs), np.int64)
            done = 0
            if walk and settings.full_s >= 0:
                done = run_queue(
                    world, table, 0 if full else settings.depth, settings.part_depth,
                    settings.most_main_starts, settings.limit_stop, closes, began,
                )  # fmt: skip
            if fill and done >= 0:
                most = Most(
                    settings.most_tests, settings.most_starts, settings.most_user,
                    settings.most_part, settings.most_account, settings.most_user_part,
                )  # fmt: skip
                done = backfill(world, table, settings.window_s, settings.resolution_s, most, began)
            if done >= 0:
                break
            self._room *= 2
        self._books.begun(table, began)
        made = decisions_of(world)
        stops = [step for step in made if isinstance(step, Stop)]
        gone = [Reject(step.job) for step in stops if self._books.cancels(snapshot, step.job)]
        return [*stops, *gone, *made[len(stops) :]]

    def _closes(self, snapshot: Snapshot, table: Table, rank: Array) -> Array:
        """(E,) 0 for entries that hold nobody back: bf_min_age_reserve, bf_min_prio_reserve."""
        settings = self.settings
        closes = np.ones(len(table.job), np.int64)
        if settings.min_age_reserve_s > 0:
            waited_s = snapshot.now_s - snapshot.jobs["submit_s"][table.job]
            closes[waited_s < settings.min_age_reserve_s] = 0
        if settings.min_prio_reserve > 0:
            closes[rank < settings.min_prio_reserve] = 0
        table.now_only[:] = 1 - closes
        return closes

    def _next_s(self, snapshot: Snapshot, acted: bool) -> float:
        """When to decide again even if nothing happens; inf where that could change nothing."""
        settings, now_s = self.settings, snapshot.now_s
        times = [float(edge_s) for edge in ("from_s", "to_s") for edge_s in snapshot.gates[edge]]
        if len(snapshot.running) or acted:
            times.append(self._books.next_tick_s)
        changed = changes(snapshot)
        if settings.backfill and (acted or changed != self._seen_fill):
            times.append(self._filled_s + settings.fill_interval_s)
        if changed != self._seen_walk:
            times.append(self._walked_s + settings.min_gap_s)
        return min((time_s for time_s in times if time_s > now_s), default=np.inf)


def changes(snapshot: Snapshot) -> tuple[int, ...]:
    """What differs once anything has happened to a job, or a reservation has begun or ended."""
    edges = sum(int((snapshot.gates[edge] <= snapshot.now_s).sum()) for edge in ("from_s", "to_s"))
    return (*(int(snapshot.totals[name]) for name in CHANGES), edges)
