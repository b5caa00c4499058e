"""A policy that plays a few orders of the queue out before it follows one.

named("rollout")                                   jobs start from the head of the best order
named("rollout+easy")                              and behind a head that blocks, as EASY has it
named("rollout+easy:budget_ms=5,objective=wait")   with options of its own

It needs snapshots only: the run times that it learns from are of jobs that it saw run and end.
"""

from __future__ import annotations

import time

import numpy as np

from trimtab.arrays import Array
from trimtab.core import Decision, Snapshot, Start, Status
from trimtab.policies.rollout.choice import Asks, Chooser, Clock, Going
from trimtab.policies.rollout.options import Options, parsed
from trimtab.policies.rollout.playout import Scene, play_out
from trimtab.rules.names import BACKFILLS, ORDERS, PLACES
from trimtab.rules.plan import decide
from trimtab.rules.seen import decisions_of, world_of

ROOM = 256  # starts of a pass, at first


class RolloutPolicy:
    """Follows the order whose play-out is best; starts are the compiled pass's, to the node."""

    backfill = "none"

    def __init__(
        self,
        settings: str = "",
        seed: int = 0,
        options: Options | None = None,
        clock: Clock = time.perf_counter,
    ) -> None:
        self.name = "rollout" if self.backfill == "none" else f"rollout+{self.backfill}"
        self.options, self.seed = options or parsed(settings), seed
        self.chooser = Chooser(self.options, clock)
        self.chooser.warm(self._play_out)
        self._rate: dict[int, float] = {}  # of jobs that run, work seconds a second
        self._met = np.zeros(0, bool)  # (J,) that were in the queue once
        self._room = ROOM

    def decide(self, snapshot: Snapshot) -> list[Decision]:
        self._learn(snapshot)
        queue = snapshot.queue[np.argsort(snapshot.jobs["submit_s"][snapshot.queue], kind="stable")]
        asks = asks_of(snapshot, queue)
        self._meet(asks)
        free = snapshot.free[snapshot.node_state["up"] == 1].sum(axis=0)
        if not (asks.width <= free).all(axis=1).any():
            return []
        best = np.arange(len(queue))
        if len(queue) > 1:
            best = self.chooser.order(
                snapshot.now_s, free, asks, going_of(snapshot), self._play_out
            )
        decisions = self._start(snapshot, queue[best])
        for decision in decisions:
            if isinstance(decision, Start):
                self._rate.setdefault(decision.job, 1.0)  # it may have ended when we look again
        return decisions

    def footnote(self) -> str:
        """How often the budget ended a search."""
        chooser = self.chooser
        return (
            f"hit the budget of {self.options.budget_ms:g} ms in {chooser.cut:,} of "
            f"{chooser.decisions:,} decisions"
        )

    def counters(self) -> dict[str, float]:
        return {
            "decisions": float(self.chooser.decisions),
            "budget_hits": float(self.chooser.cut),
        }

    def _play_out(self, scene: Scene, order: Array, objective: int, enough: float) -> float:
        value: float = play_out(scene, order, self.backfill == "easy", objective, enough)
        return value

    def _learn(self, snapshot: Snapshot) -> None:
        """What ended since the last look, undisturbed, and at which rate the rest runs."""
        state, runs = snapshot.state, snapshot.runs
        for job in [job for job in self._rate if state["run"][job] < 0]:
            rate, end = self._rate.pop(job), state[job]
            whole = end["status"] == Status.FINISHED and not (end["tries"] or end["stops"])
            if whole and not end["evicted"]:
                run_s = (end["end_s"] - end["start_s"] - snapshot.startup_s) * rate
                asked = snapshot.jobs[job]
                self.chooser.ended(
                    int(job), int(asked["tenant"]), float(asked["request_s"]), max(run_s, 0.0)
                )
        for run in snapshot.running.tolist():
            self._rate[int(runs["job"][run])] = float(runs["rate"][run])

    def _meet(self, asks: Asks) -> None:
        """Remember who came, once."""
        if len(asks.job) and len(self._met) <= asks.job.max():
            self._met = np.append(self._met, np.zeros(int(asks.job.max()) + 1, bool))
        new = ~self._met[asks.job]
        self._met[asks.job] = True
        self.chooser.came(asks.only(np.flatnonzero(new)))

    def _start(self, snapshot: Snapshot, line: Array) -> list[Decision]:
        """The compiled pass over the queue in the order of the line."""
        jobs = snapshot.jobs.copy()
        jobs["priority"][line] = -np.arange(len(line))
        seen = snapshot._replace(jobs=jobs)
        order, backfill = ORDERS["priority"], BACKFILLS[self.backfill]
        while True:
            world = world_of(seen, self._room)
            decide(world, order, backfill, PLACES[self.options.place], self.seed, len(line))
            if not world.head[0]["full"]:
                return decisions_of(world)
            self._room *= 2


class RolloutEasyPolicy(RolloutPolicy):
    """The same with EASY backfilling."""

    backfill = "easy"


def asks_of(snapshot: Snapshot, jobs: Array) -> Asks:
    """What these jobs ask for, all instances that are left to start."""
    asked = snapshot.jobs[jobs]
    width = snapshot.demand[jobs] * snapshot.state["left"][jobs][:, None]
    return Asks(
        jobs, asked["submit_s"], np.maximum(asked["request_s"], 1.0), asked["tenant"], width
    )


def going_of(snapshot: Snapshot) -> Going:
    """What runs, a row a run: an array has several."""
    runs = snapshot.runs[snapshot.running]
    asks = asks_of(snapshot, runs["job"])
    held = snapshot.demand[runs["job"]] * runs["instances"][:, None]
    return Going(asks._replace(width=held), runs["start_s"].copy(), runs["expected_end_s"].copy())
