"""A learned policy on a cluster that changes: it notices, corrects its speeds, learns, reverts.

DriftPolicy()                                   corrects speeds only
DriftPolicy(tuner=at_once(cluster, models))     and fine-tunes (training.adapt)

It sees what every policy sees. How fast jobs ran (policies.stretches) goes into Page-Hinkley
detectors, the kinds of new jobs into ADWIN: why these two, docs/policies/drift.md. Future work of
ADLRO (sec. 8: correction of model drift), which says no more about it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.core import Decision, Profile, Snapshot
from trimtab.errors import PolicyError
from trimtab.policies.adlro.memory import RuntimeMemory
from trimtab.policies.adlro.net import Net
from trimtab.policies.adlro.policy import SHIPPED, AdlroPolicy
from trimtab.policies.adlro.stretches import ASKED, KEPT, Ran, Stretches, change_at, revised

WARM = 16  # runs that tell the spread of a stream before it is tested
LEAST_SPREAD = 0.05  # of the logarithm: smaller changes are none
FAR = 4.0  # standard deviations: one run counts for no more
SLACK, LIMIT = 0.25, 20.0  # of Page-Hinkley, in standard deviations
MIX_DELTA = 0.002  # odds of a false cut that ADWIN allows
KNOWN_AFTER = 50  # submitted jobs: a kind not seen among them is new
SETTLED = 8  # runs after which a pair whose speed is learned anew may raise alarms again
ENOUGH = 5  # jobs whose requests are believed together; one alone may be far off
PACE_VARIANCE = 0.1  # of the logarithm of true / told speed, before anything was seen
KEPT_RUNS = 1024
DEVIATIONS = 3.0  # of the held-out windows: worse than this is worse than expected


class Alarm(NamedTuple):
    time_s: float
    what: str  # gpu-kind, job-kind, new-kind or mix
    kind: int  # of node or job
    submitted: int  # jobs so far


class Change(NamedTuple):
    """What became of a tuned network."""

    time_s: float
    what: str  # adopted, not better, rolled back, or tuning failed
    ratio: float = (
        math.nan
    )  # of its mean completion time to the old one's, where they were compared


class Recent(NamedTuple):
    """The last jobs, as far as they are known: what a network is tuned on."""

    jobs: Array  # (W,) JOB
    demand: Array  # (W, R)
    work_s: Array  # (W,) at rate 1, by the believed speeds; by request where it still runs


class Tuned(NamedTuple):
    """A network, and how it did against the old one on windows that it was not tuned on."""

    net: Net
    ratio: float  # of mean completion times, new / old; `high` is the end of its 95 % interval
    high: float
    completion_s: Array  # (windows,) mean completion times by the new one


Tuner = Callable[[Net, Profile, Recent, int], Future[Tuned]]


class Stream:
    """Tells when the mean of what it is fed changes: Page-Hinkley, in units of its own spread."""

    def __init__(self) -> None:
        self._first: list[float] = []
        self._middle = self._scale = 0.0
        self._test: Any = None

    @property
    def warm(self) -> bool:
        return self._test is not None

    def changed(self, value: float) -> bool:
        if self._test is None:
            self._first.append(value)
            if len(self._first) < WARM:
                return False
            self._scale = max(float(np.std(self._first)), LEAST_SPREAD)
            self._test = self._fresh()
            self._middle = float(np.median(self._first))
            return any([self._update(one) for one in self._first])
        return self._update(value)

    def _fresh(self) -> Any:
        from river.drift import PageHinkley

        return PageHinkley(min_instances=WARM, delta=SLACK, threshold=LIMIT)

    def _update(self, value: float) -> bool:
        self._test.update(min(max((value - self._middle) / self._scale, -FAR), FAR))
        return bool(self._test.drift_detected)


class Trial(NamedTuple):
    """A network in use for the first time."""

    before: Net
    since: int  # the first job that it is judged by
    bound_s: float  # mean completion time of the window that it must not pass


class DriftPolicy:
    """Wraps the learned policy; `alarms` and `changes` tell what happened.

    `progress` = also learn speeds from what stopped and moved jobs kept, where the backend tells;
    without, only run times of jobs that ran in one piece count, against their requests. A tuning
    starts when `gather` more jobs were submitted after an alarm and its network is looked at
    `ready_after_s` later at the earliest. `window` jobs are resampled to tune on, and as many judge
    the new network.
    """

    def __init__(
        self,
        policy: AdlroPolicy | None = None,
        memory: RuntimeMemory | None = None,
        tuner: Tuner | None = None,
        *,
        progress: bool = True,
        window: int = 200,
        gather: int = 100,
        ready_after_s: float = 600.0,
        seed: int = 0,
    ) -> None:
        _check(window, gather, ready_after_s)
        self.name = "adlro-drift"
        self.policy, self.memory, self.tuner = policy or AdlroPolicy(), memory, tuner
        self.window, self.gather, self.ready_after_s = window, gather, ready_after_s
        self.seed = seed
        self.alarms: list[Alarm] = []
        self.changes: list[Change] = []
        self._stretches = Stretches(progress)
        self._runs: deque[Ran] = deque(maxlen=KEPT_RUNS)
        self._streams: dict[tuple[str, int, int], Stream] = {}
        self._mix: dict[int, Any] = {}
        self._submitted = 0
        self._told: Array = np.zeros((0, 0, 1))  # (K, G, S)
        self._rate: Array | None = None  # (K, G, S) believed, None = as told
        self._since: dict[tuple[int, int], float] = {}  # pair: learned anew from runs ended since
        self._fresh: dict[tuple[int, int], int] = {}  # pair: runs since then
        self._tune_at: int | None = None  # submitted jobs
        self._tuning: Future[Tuned] | None = None
        self._ready_s = 0.0
        self._trial: Trial | None = None

    def decide(self, snapshot: Snapshot) -> Sequence[Decision]:
        self._told = snapshot.profile.rate
        self._look_at_mix(snapshot)
        for ran in self._stretches.seen(snapshot, self.rate):
            self._look_at_run(ran, snapshot)
        if self.tuner is not None:
            self._judge(snapshot)
            self._tune(snapshot, self.tuner)
        decisions = self.policy.decide(revised(snapshot, self.rate))
        self._stretches.decided(decisions, snapshot.now_s)
        return decisions

    @property
    def rate(self) -> Array:
        """(K, G, S) the speeds that it believes now; empty before the first decision."""
        return self._told if self._rate is None else self._rate

    def _look_at_mix(self, snapshot: Snapshot) -> None:
        submitted = int(snapshot.totals["submitted"])
        for job in range(self._submitted, submitted):
            self._look_at_kind(int(snapshot.jobs["kind"][job]), job, snapshot)
        self._submitted = submitted

    def _look_at_kind(self, kind: int, job: int, snapshot: Snapshot) -> None:
        from river.drift import ADWIN

        if kind not in self._mix:
            self._mix[kind] = ADWIN(delta=MIX_DELTA)
            if job >= KNOWN_AFTER:
                for other in range(snapshot.profile.rate.shape[1]):
                    self._anew(kind, other, 0.0)
                self._alarm(snapshot, "new-kind", kind)
        for other, test in self._mix.items():
            test.update(float(other == kind))
            if test.drift_detected:
                self._alarm(snapshot, "mix", other)

    def _look_at_run(self, ran: Ran, snapshot: Snapshot) -> None:
        """Learn from a run, or raise an alarm if it is one too many that is off."""
        self._runs.append(ran)
        pair = ran.kind, ran.gpu
        if pair in self._since:
            self._fresh[pair] += 1
            self._observe(ran)
            self._believe()
            if self._fresh[pair] <= SETTLED:
                return
        for what, kind in (("gpu-kind", ran.gpu), ("job-kind", ran.kind)):
            measured = self._streams.get((what, kind, KEPT))
            if ran.source == ASKED and measured is not None and measured.warm:
                continue  # what users guess adds false alarms to what is measured, and little else
            stream = self._streams.setdefault((what, kind, ran.source), Stream())
            biased = what == "gpu-kind" and ran.source == ASKED
            off = ran.off + math.log(self._ratio(ran)) - (self._bias(ran.kind) if biased else 0.0)
            if stream.changed(off):
                self._relearn(what, kind, ran.source)
                self._alarm(snapshot, what, kind)
                return

    def _ratio(self, ran: Ran) -> float:
        """Believed speed / told speed of a run's pair."""
        return float(self.rate[ran.kind, ran.gpu, 0] / self._told[ran.kind, ran.gpu, 0])

    def _bias(self, kind: int) -> float:
        """How far requests of a job kind are off on the whole: users' doing, not the GPUs'."""
        off = [
            ran.off + math.log(self._ratio(ran))
            for ran in self._runs
            if ran.kind == kind and ran.source == ASKED
        ]
        return float(np.median(off)) if len(off) >= ENOUGH else 0.0

    def _relearn(self, what: str, kind: int, source: int) -> None:
        """Forget the speeds of a GPU kind or a job kind from before the change."""
        mine = [
            ran
            for ran in self._runs
            if (ran.gpu if what == "gpu-kind" else ran.kind) == kind and ran.source == source
        ]
        since_s = mine[change_at([ran.off for ran in mine])].end_s
        kinds, gpus = self._told.shape[:2]
        pairs = [(k, kind) for k in range(kinds)] if what == "gpu-kind" else []
        pairs += [(kind, g) for g in range(gpus)] if what == "job-kind" else []
        for pair in pairs:
            self._anew(*pair, since_s)
        for key in [key for key in self._streams if what != key[0] or kind == key[1]]:
            del self._streams[key]  # what they held is of before, in part

    def _anew(self, kind: int, gpu: int, since_s: float) -> None:
        self._since[kind, gpu] = since_s
        self._fresh[kind, gpu] = 0

    def _alarm(self, snapshot: Snapshot, what: str, kind: int) -> None:
        self.alarms.append(Alarm(snapshot.now_s, what, kind, int(snapshot.totals["submitted"])))
        self._tune_at = int(snapshot.totals["submitted"]) + self.gather
        if what != "mix":
            self._refit()

    def _refit(self) -> None:
        """Empty the memory; give it the speeds that stay, and the runs since the change."""
        kinds, gpus = self._told.shape[:2]
        if self.memory is None:
            self.memory = RuntimeMemory([str(gpu) for gpu in range(gpus)], seed=self.seed)
        self.memory.refit(keep=0.0)
        for kind in range(kinds):
            for gpu in range(gpus):
                if (kind, gpu) not in self._since and kind in self._mix:
                    self.memory.observe({"job_type": str(kind)}, str(gpu), 1.0)
        self._fresh = dict.fromkeys(self._since, 0)
        for ran in self._runs:
            if self._since.get((ran.kind, ran.gpu), math.inf) <= ran.end_s:
                self._fresh[ran.kind, ran.gpu] += 1
                self._observe(ran)
        self._believe()

    def _observe(self, ran: Ran) -> None:
        """Tell the memory of a run whose pair is learned anew; requests speak as a mean of many,
        and only where no progress was measured.
        """
        assert self.memory is not None
        off = ran.off
        if ran.source == ASKED:
            alike = [
                one
                for one in self._runs
                if (one.kind, one.gpu) == (ran.kind, ran.gpu)
                and self._since[ran.kind, ran.gpu] <= one.end_s <= ran.end_s
            ]
            if len(alike) < ENOUGH or any(one.source == KEPT for one in alike):
                return
            offs = [one.off for one in alike]
            doubt = float(np.var(offs)) / PACE_VARIANCE  # runs that outweigh the told speed
            sure = len(offs) / (len(offs) + doubt)
            off = sure * (float(np.mean(offs)) - self._bias(ran.kind))
        self.memory.observe({"job_type": str(ran.kind)}, str(ran.gpu), math.exp(-off))

    def _believe(self) -> None:
        """Take the memory's word for every pair that is learned anew and of which it has heard."""
        assert self.memory is not None
        rate = self._told.copy()
        for kind, gpu in self._since:
            said = self.memory.predict({"job_type": str(kind)})
            if said.observations.any():
                rate[kind, gpu] *= said.mean[gpu]
        self._rate = rate

    def _recent(self, snapshot: Snapshot) -> Recent:
        rows = np.arange(max(self._submitted - self.window, 0), self._submitted)
        jobs = snapshot.jobs[rows].copy()
        work_s = [self._stretches.work_s(int(job), float(snapshot.jobs["request_s"][job]))
                  for job in rows]  # fmt: skip
        return Recent(jobs, snapshot.demand[rows].copy(), np.array(work_s))

    def _tune(self, snapshot: Snapshot, tuner: Tuner) -> None:
        """Begin a tuning that is due; take up one that is done, if its network is better."""
        if self._tune_at is not None and self._submitted >= self._tune_at and not self._trial:
            self._tune_at = None
            believed = replace(snapshot.profile, rate=self.rate, source="believed")
            seed = self.seed + len(self.alarms)
            self._tuning = tuner(self.policy.net, believed, self._recent(snapshot), seed)
            self._ready_s = snapshot.now_s + self.ready_after_s
        if self._tuning is None or snapshot.now_s < self._ready_s or not self._tuning.done():
            return
        done, self._tuning = self._tuning, None
        if problem := done.exception():
            # the cluster has to be steered all the same
            self.changes.append(Change(snapshot.now_s, f"tuning failed: {problem}"))
            return
        tuned = done.result()
        if not tuned.high < 1:
            self.changes.append(Change(snapshot.now_s, "not better", tuned.ratio))
            return
        spread_s = float(np.std(tuned.completion_s, ddof=1))
        bound_s = float(np.mean(tuned.completion_s)) + DEVIATIONS * spread_s
        self._trial = Trial(self.policy.net, self._submitted, bound_s)
        self.policy.net = tuned.net
        self.changes.append(Change(snapshot.now_s, "adopted", tuned.ratio))

    def _judge(self, snapshot: Snapshot) -> None:
        """Roll back as soon as the jobs since the new network came must exceed what it promised."""
        if self._trial is None:
            return
        rows = slice(self._trial.since, min(self._submitted, self._trial.since + self.window))
        end_s = snapshot.state["end_s"][rows]
        over = np.isfinite(end_s)
        spent_s = np.where(over, end_s, snapshot.now_s) - snapshot.jobs["submit_s"][rows]
        # jobs that still run or come have yet more to add: the sum so far is the least it can be
        if spent_s.sum() / self.window > self._trial.bound_s:
            self.policy.net = self._trial.before
            self._trial = None
            self.changes.append(Change(snapshot.now_s, "rolled back"))
        elif len(end_s) == self.window and over.all():
            self._trial = None


def watched(path: str | Path = SHIPPED, seed: int = 0) -> DriftPolicy:
    """The policy around a network, as `adlro-drift` and `adlro-drift:PATH` name it."""
    return DriftPolicy(AdlroPolicy(path), seed=seed)


def _check(window: int, gather: int, ready_after_s: float) -> None:
    if find_spec("river") is None:
        raise PolicyError("adlro-drift needs river to detect; pip install 'trimtab[train]'")
    if window < 2 or gather < 0 or not ready_after_s >= 0:
        raise PolicyError(
            f"window={window}, gather={gather}, ready_after_s={ready_after_s}: give a window of 2 "
            "jobs or more, and 0 or more of the others"
        )
