"""A played scene as a learner sees it: the decisions on the tape, and what became of their jobs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.core import Workload
from trimtab.policies.peers.mind import Tape

SHORT_S = 15.0  # added to requests: the shortest jobs do not decide alone
MOST = 10.0  # of a slow-down
GRID_S = 2.0


class Played(NamedTuple):
    """Decisions in order, and the scene as it ended."""

    rows: Array  # (R, F)
    more: Array  # (T, M)
    ptr: Array  # (T + 1,)
    act: Array  # (T,)
    job: Array  # (T,)
    time_s: Array  # (T,)
    state: Array  # (J,) STATE
    ready_s: Array  # (J,) when it could first run
    request_s: Array  # (J,)
    instances: Array  # (J,)

    @classmethod
    def of(cls, tape: Tape, work: Workload, state: Array) -> Played:
        count = int(tape.length[0])
        rows = int(tape.ptr[count])
        return cls(
            tape.rows[:rows], tape.more[:count], tape.ptr[: count + 1], tape.act[:count],
            tape.job[:count], tape.time_s[:count], state, ready(work, state),
            work.jobs["request_s"], work.jobs["instances"],
        )  # fmt: skip

    def chosen(self) -> Array:
        """(T, F) the row of each decision."""
        return self.rows[self.ptr[:-1] + self.act]

    def waits(self) -> Array:
        """(T,) whether it was to wait: there both numbers of a row are one cell."""
        chosen = self.chosen()
        return np.asarray(chosen[:, 0] == chosen[:, 1])

    def slowdown(self) -> Array:
        """(T,) seconds until the job of each decision ended, from when it could run, over what it
        asks.
        """
        took_s = np.nan_to_num(self.state["end_s"] - self.ready_s)[self.job]
        return np.minimum(took_s / (self.request_s[self.job] + SHORT_S), MOST)

    def run_over_request(self) -> Array:
        """(T,) seconds that the instances of its job ran, with those lost, over what they asked."""
        asked_s = self.request_s[self.job] * self.instances[self.job]
        ran_s = self.state["attained_s"][self.job]
        return np.minimum(ran_s / np.maximum(asked_s, 1e-9), MOST)

    def evicted(self) -> Array:
        """(T,) share of the instances of its job that services pushed off."""
        return np.minimum(self.state["evicted"][self.job] / self.instances[self.job], 1.0)

    def slowdown_from_now(self, until: str, memory_s: float) -> Array:
        """(T,) minus the slow-down that jobs gather from each decision on, from when they could run
        until they start or end; what comes `memory_s` later counts 1 / e.
        """
        from scipy.signal import lfilter  # slow to load, and choosing needs none

        first_s, level = self._levels(until)
        kept = np.exp(-GRID_S / memory_s)
        ahead = lfilter([GRID_S], [1.0, -kept], level[::-1])[::-1]
        return -np.interp(self.time_s, first_s + GRID_S * np.arange(len(level)), ahead)

    def standing(self) -> Array:
        """(T,) the slow-down a second of the jobs that wait at each decision."""
        first_s, level = self._levels("start_s")
        return np.interp(self.time_s, first_s + GRID_S * np.arange(len(level)), level)

    def _levels(self, until: str) -> tuple[float, Array]:
        """The slow-down a second of all jobs then, every so many seconds from a first one on."""
        known = np.isfinite(self.request_s) & np.isfinite(self.state[until])
        weight = 1.0 / (self.request_s[known] + SHORT_S)
        begin_s, end_s = self.ready_s[known], self.state[until][known]
        first_s = float(begin_s.min(initial=0.0))
        steps = int((float(end_s.max(initial=first_s)) - first_s) / GRID_S) + 3
        change = np.zeros(steps)
        for time_s, sign in ((begin_s, 1.0), (end_s, -1.0)):
            at = (time_s - first_s) / GRID_S
            low = at.astype(np.int64)
            part = at - low  # the step in which it changes counts in part
            np.add.at(change, low, sign * weight * (1 - part))
            np.add.at(change, low + 1, sign * weight * part)
        return first_s, np.cumsum(change)


def ready(work: Workload, state: Array) -> Array:
    """(J,) when each job could first run: submitted, and all that it waits for over."""
    time_s = work.jobs["submit_s"].copy()
    if work.after_ptr is not None and work.after_idx is not None:
        owner = np.repeat(np.arange(len(work)), np.diff(work.after_ptr))
        np.maximum.at(time_s, owner, state["end_s"][work.after_idx])
    return time_s
