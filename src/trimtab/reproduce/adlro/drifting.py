"""A simulated cluster whose true speeds leave the ones that policies are told, and the scenarios.

The engine keeps the told table, so that all a policy is shown (rates, expected ends) follows from
it; what runs is set to its true speed whenever something starts, moves or changes. A run in
progress at the change goes on at its new speed from that second: what it did before stays done.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from trimtab.arrays import Array
from trimtab.compiled import compiled
from trimtab.core import Cluster, Decision, Event, Profile, Snapshot, Workload
from trimtab.rules.world import World
from trimtab.sim import heap
from trimtab.sim.backend import SimBackend, frozen
from trimtab.sim.runs import set_end, settle_run
from trimtab.sim.world import Models
from trimtab.traces.scenes.adlro import (
    DRAWN,
    JOB_KINDS,
    NODE_KINDS,
    adlro_cluster,
    adlro_jobs,
    adlro_profile,
    offered_load,
)

SLOWER = 0.7  # of the told speed, after the new driver
NEW_KIND = "inference"
NEW_SHARE = 0.3  # of the jobs from the change on
NEW_SPEED = (1.0, 0.2, 0.3)  # on each make, unlike any other kind; work is in seconds on a V100
SCENARIOS = {
    "none": "nothing changes",
    "turing": "every Turing is 30 % slower from the middle of the trace on",
    "radeon": "every Radeon is 30 % slower from the middle of the trace on",
    "new-class": "from the middle on, 3 of 10 jobs are of a new kind; its told speeds are the mean "
    "of the others'",
}


@compiled
def set_speeds(w: World, c: int, true: Array) -> None:
    """Let all that runs go on at its true speed (K, G); work done until now stays as it was."""
    for run in range(w.runs.shape[1]):
        rec = w.runs[c, run]
        if rec.job < 0:
            continue
        node = w.pieces[c, rec.piece].node
        rate = true[w.jobs[c, rec.job].kind, w.nodes[c, node].kind]
        if rate != rec.rate:
            settle_run(w, c, run)
            rec.rate = rate
            set_end(w, c, run)
            heap.moved(w.heap, w.runs, c, run, w.head[c].heap)


class DriftingBackend(SimBackend):
    """Runs jobs of one piece at `told` speeds until `change_s`, then at `true`; shows `told`."""

    def __init__(
        self,
        workload: Workload,
        cluster: Cluster,
        told: Profile,
        true: Profile,
        change_s: float,
        models: Models | None = None,
    ) -> None:
        super().__init__(workload, cluster, told, models)
        self.change_s = change_s
        self._true = np.ascontiguousarray(true.rate[:, :, 0])  # (K, G)
        self._now = np.ascontiguousarray(told.rate[:, :, 0])

    def wait(self) -> list[Event] | None:
        if self.world.head[0]["now_s"] < self.change_s:
            head = self.world.head[0]
            head["alarm_s"] = min(float(head["alarm_s"]), self.change_s)
        events = super().wait()
        if self._now is not self._true and self.world.head[0]["now_s"] >= self.change_s:
            self._now = self._true
            set_speeds(self.world, 0, self._now)
        return events

    def apply(self, decision: Decision) -> Event:
        answer = super().apply(decision)
        set_speeds(self.world, 0, self._now)
        return answer

    def snapshot(self) -> Snapshot:
        seen = super().snapshot()
        runs, on = np.array(seen.runs), seen.running
        kind = self.workload.jobs["kind"][runs["job"][on]]
        node = seen.nodes["kind"][seen.pieces["node"][runs["piece"][on]]]
        runs["rate"][on] = self.profile.rate[kind, node, runs["shape"][on]]  # as told
        return seen._replace(runs=frozen(runs))


@dataclass(frozen=True)
class Scenario:
    """One of SCENARIOS with its jobs."""

    name: str
    workload: Workload
    cluster: Cluster
    told: Profile
    true: Profile  # from change_s on
    change_s: float
    change_job: int  # the first that is submitted from then on


def scenario(name: str, *, seed: int, jobs: int, load: float, estimate: str) -> Scenario:
    """Half of the jobs before the change and half after it, at one load by the true speeds."""
    rng = np.random.default_rng([seed, 7])
    machine, told, half = adlro_cluster(), adlro_profile(), jobs // 2
    work = adlro_jobs(rng=rng, jobs=jobs, load=load, estimate=estimate)
    true = told
    if name in NODE_KINDS:
        rate = told.rate.copy()
        rate[:, NODE_KINDS.index(name)] *= SLOWER
        true = replace(told, rate=rate, source=f"{name} at {SLOWER:g} of its told speed")
    if name == "new-class":
        work, told, true = with_new_kind(work, half, rng)
    work = at_load(work, machine, told, true, half, load)
    change_s = float(work.jobs["submit_s"][half])
    return Scenario(name, work, machine, told, true, change_s, half)


def with_new_kind(
    work: Workload, half: int, rng: np.random.Generator
) -> tuple[Workload, Profile, Profile]:
    """The jobs with some of the second half of a new kind, the told profile and the true one."""
    known = adlro_profile()
    jobs, rows = work.jobs.copy(), np.arange(half, len(work))
    rows = rows[rng.random(len(rows)) < NEW_SHARE]
    drawn, new = DRAWN["machine-learning"], len(JOB_KINDS)
    estimate = jobs["request_s"][rows] / work.truth["work_s"][rows]
    truth = work.truth.copy()
    truth["work_s"][rows] = drawn.median_s * np.exp(drawn.sigma * rng.standard_normal(len(rows)))
    jobs["request_s"][rows] = truth["work_s"][rows] * estimate
    jobs["kind"][rows], jobs["checkpoint_s"][rows] = new, 0.0
    made = replace(work, jobs=jobs, truth=truth, kinds=(*JOB_KINDS, NEW_KIND))
    return made, wider(known, known.rate.mean(0)), wider(known, np.array(NEW_SPEED)[:, None])


def wider(profile: Profile, rate: Array) -> Profile:
    """The profile with one more job kind, whose speeds are `rate` (G, S)."""
    kinds = len(profile.rate) + 1
    return replace(
        profile,
        rate=np.concatenate((profile.rate, rate[None])),
        slow=np.zeros((kinds, kinds)),
        draw=np.concatenate((profile.draw, profile.draw[:1])),
        quality=np.concatenate((profile.quality, profile.quality[:1])),
    )


def at_load(
    work: Workload, machine: Cluster, told: Profile, true: Profile, half: int, load: float
) -> Workload:
    """The same jobs, each half with its gaps scaled so that its offered load is as asked."""
    jobs = work.jobs.copy()
    for part, profile in ((slice(0, half), told), (slice(half, len(work)), true)):
        begin_s = jobs["submit_s"][part.start - 1] if part.start else 0.0
        was_s = work.jobs["submit_s"][part.start - 1] if part.start else 0.0
        keep = np.zeros(len(work), bool)
        keep[part] = True
        scale = offered_load(work.only(keep), machine, profile) / load
        jobs["submit_s"][part] = begin_s + (work.jobs["submit_s"][part] - was_s) * scale
    return replace(work, jobs=jobs)
