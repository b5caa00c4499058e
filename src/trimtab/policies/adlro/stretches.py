"""How fast jobs ran, read from one snapshot after the other.

A stretch is a job on one node from a start or a move to the next stop, move or end. What a stretch
did is known from the request where it was the whole job (ASKED: as good as the user's estimate),
and from the progress that was kept where it ended in a stop or a move (KEPT: measured). The latter
needs a backend that tells: kept_s of a stopped job, the expected end of a moved one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.core import Decision, Move, Snapshot, Status

ASKED, KEPT = range(2)
LEAST_S = 1.0  # a shorter stretch says nothing
LEAST_SIDE = 3  # runs on either side of a change


class Ran(NamedTuple):
    """How a stretch went: `off` is the logarithm of its seconds over those by the told speed."""

    end_s: float
    kind: int  # of the job
    gpu: int  # kind of the node
    source: int  # ASKED or KEPT
    off: float


class Stretch(NamedTuple):
    gpu: int
    resume_s: float  # work begins
    done_s: float  # work at rate 1 that was done before
    stops: int
    whole: bool  # it began with nothing done


class Stretches:
    """Keeps the stretches of jobs of one instance that have begun; gives out those that ended."""

    def __init__(self, progress: bool = True) -> None:
        self._progress = progress
        self._open: dict[int, Stretch] = {}
        self._moved_s: dict[int, float] = {}
        self._work_s: dict[int, float] = {}

    def decided(self, decisions: Sequence[Decision], now_s: float) -> None:
        """Keep the second of every move, which no snapshot tells."""
        for decision in decisions:
            if isinstance(decision, Move):
                self._moved_s[decision.job] = now_s

    def work_s(self, job: int, request_s: float) -> float:
        """Work that an ended job was, by the believed speeds; else at least what it asks for."""
        if job in self._work_s:
            return self._work_s[job]
        done_s = self._open[job].done_s if job in self._open else 0.0
        return max(request_s, done_s)

    def seen(self, snapshot: Snapshot, rate: Array) -> list[Ran]:
        """The stretches that ended since the last call; `rate` (K, G, S) is believed."""
        found: list[Ran] = []
        runs = snapshot.runs[snapshot.running]
        runs = runs[snapshot.jobs["instances"][runs["job"]] == 1]
        node = snapshot.pieces["node"][runs["piece"]]
        gpu = snapshot.nodes["kind"][node].tolist()
        resume_s, expected_s = runs["resume_s"].tolist(), runs["expected_end_s"].tolist()
        now_on = set()
        for row, job in enumerate(runs["job"].tolist()):
            now_on.add(job)
            past = self._open.get(job)
            if past is not None and past.resume_s == resume_s[row]:
                continue
            kept_s = float(snapshot.state["kept_s"][job])
            stops = int(snapshot.state["stops"][job])
            if past is not None and past.stops == stops:
                told = float(snapshot.profile.rate[snapshot.jobs["kind"][job], gpu[row], 0])
                left_s = (expected_s[row] - resume_s[row]) * told
                asked_s = float(snapshot.jobs["request_s"][job])
                kept_s = asked_s - left_s if left_s > 0 else math.nan
                moved_s = self._moved_s.pop(job, math.nan)
                found += self._measured(snapshot, job, past, moved_s, kept_s)
            elif past is not None:
                self._moved_s.pop(job, None)  # a move that was a stop and a start
                queued_s = float(snapshot.state["queued_s"][job])
                found += self._measured(snapshot, job, past, queued_s, kept_s)
            whole = kept_s == 0.0
            self._open[job] = Stretch(gpu[row], resume_s[row], kept_s, stops, whole)
        for job in [job for job in self._open if job not in now_on]:
            found += self._ended(snapshot, job, self._open.pop(job), rate)
        return found

    def _ended(self, snapshot: Snapshot, job: int, past: Stretch, rate: Array) -> list[Ran]:
        state, kind = snapshot.state[job], int(snapshot.jobs["kind"][job])
        if state["status"] == Status.QUEUED:
            kept_s = float(state["kept_s"])
            return self._measured(snapshot, job, past, float(state["queued_s"]), kept_s)
        if state["status"] != Status.FINISHED:
            return []
        end_s, asked_s = float(state["end_s"]), float(snapshot.jobs["request_s"][job])
        ran_s = end_s - past.resume_s
        done_s = 0.0 if math.isnan(past.done_s) else past.done_s
        self._work_s[job] = done_s + max(ran_s, 0.0) * float(rate[kind, past.gpu, 0])
        if not past.whole or ran_s < LEAST_S or not 0 < asked_s < math.inf:
            return []
        told_s = asked_s / float(snapshot.profile.rate[kind, past.gpu, 0])
        return [Ran(end_s, kind, past.gpu, ASKED, math.log(ran_s / told_s))]

    def _measured(
        self, snapshot: Snapshot, job: int, past: Stretch, end_s: float, kept_s: float
    ) -> list[Ran]:
        """A stretch whose progress is known; none where it is not."""
        ran_s, work_s = end_s - past.resume_s, kept_s - past.done_s
        if not self._progress or not ran_s >= LEAST_S or not 0 < work_s < math.inf:
            return []
        kind = int(snapshot.jobs["kind"][job])
        told_s = work_s / float(snapshot.profile.rate[kind, past.gpu, 0])
        return [Ran(end_s, kind, past.gpu, KEPT, math.log(ran_s / told_s))]


def revised(snapshot: Snapshot, rate: Array) -> Snapshot:
    """The snapshot by other speeds (K, G, S), expected ends included."""
    told = snapshot.profile.rate
    if rate is told:
        return snapshot
    runs, on = snapshot.runs.copy(), snapshot.running
    node = snapshot.pieces["node"][runs["piece"][on]]
    place = (
        snapshot.jobs["kind"][runs["job"][on]],
        snapshot.nodes["kind"][node],
        runs["shape"][on],
    )
    resume_s = runs["resume_s"][on]
    ahead_s = runs["expected_end_s"][on] - resume_s
    runs["expected_end_s"][on] = resume_s + ahead_s * (told[place] / rate[place])
    runs["rate"][on] = rate[place]
    believed = replace(snapshot.profile, rate=rate, source="believed")
    return snapshot._replace(runs=runs, profile=believed)


def change_at(values: Sequence[float]) -> int:
    """Where a sequence is best cut in two levels, by least squares: the first of the new one."""
    x = np.asarray(values, dtype=np.float64)
    if len(x) < 2 * LEAST_SIDE:
        return max(len(x) - LEAST_SIDE, 0)
    cut = np.arange(LEAST_SIDE, len(x) - LEAST_SIDE + 1)
    head = np.cumsum(x)[cut - 1] / cut
    tail = (x.sum() - np.cumsum(x)[cut - 1]) / (len(x) - cut)
    return int(cut[np.argmax((head - tail) ** 2 * cut * (len(x) - cut))])
