"""Run times guessed from what users asked for and what their last jobs took.

    request      what the user asks for
    own          mean of the last two jobs of that user with the same request, or of any two where
                 there is none such; at most the request
    both         the request x the mean share of their requests that the last two took

For each user the one counts whose logarithm was nearest so far, old jobs counting less and less.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.compiled import compiled, inner
from trimtab.policies.rollout.playout import SHORT_S

REQUEST, OWN, BOTH = range(3)
FADES = 0.97  # of an error at every further job of the user
LEAST_S = 1.0  # no guess is below


class Memory(NamedTuple):
    """What is known of users (U) and of users' requests (K)."""

    jobs: Array  # (U,) that ended
    last_s: Array  # (U, 2) run times, the older first
    share: Array  # (U, 2) of the request that they took
    error: Array  # (U, 3) faded sum by kind of guess
    alike: Array  # (K,) jobs that ended
    alike_s: Array  # (K, 2) run times


def memory(users: int, requests: int) -> Memory:
    return Memory(
        np.zeros(users, np.int64), np.zeros((users, 2)), np.zeros((users, 2)),
        np.zeros((users, 3)), np.zeros(requests, np.int64), np.zeros((requests, 2)),
    )  # fmt: skip


def grown(seen: Memory, users: int, requests: int) -> Memory:
    """The same with room for so many."""
    room = memory(users, requests)
    for old, new in zip(seen, room):
        new[: len(old)] = old
    return room


@inner
def mean_of_last(values: Array, count: int) -> float:
    return values[1] if count == 1 else (values[0] + values[1]) / 2


@inner
def guess_by(kind: int, seen: Memory, user: int, alike: int, request_s: float) -> float:
    """One kind of guess; the request where the user has no job that ended."""
    count = seen.jobs[user]
    if kind == REQUEST or count == 0:
        return max(request_s, LEAST_S)
    if kind == BOTH:
        return max(request_s * mean_of_last(seen.share[user], count), LEAST_S)
    own_s = mean_of_last(seen.last_s[user], count)
    if seen.alike[alike] > 0:
        own_s = mean_of_last(seen.alike_s[alike], seen.alike[alike])
    return max(min(own_s, request_s), LEAST_S)


@inner
def best_kind(seen: Memory, user: int) -> int:
    """The kind that was nearest so far; own where nothing can tell yet."""
    if seen.jobs[user] < 2:
        return OWN
    kind = REQUEST
    for other in (OWN, BOTH):
        if seen.error[user, other] < seen.error[user, kind]:
            kind = other
    return kind


@inner
def push(values: Array, value: float) -> None:
    values[0], values[1] = values[1], value


@compiled
def learn(seen: Memory, user: int, alike: int, request_s: float, run_s: float) -> None:
    """A job of the user has ended after `run_s`."""
    if seen.jobs[user] > 0:
        for kind in range(3):
            guess_s = guess_by(kind, seen, user, alike, request_s)
            miss = abs(np.log(max(guess_s, SHORT_S) / max(run_s, SHORT_S)))
            seen.error[user, kind] = FADES * seen.error[user, kind] + miss
    push(seen.last_s[user], run_s)
    push(seen.share[user], max(run_s, SHORT_S) / max(request_s, SHORT_S))
    push(seen.alike_s[alike], run_s)
    seen.jobs[user] += 1
    seen.alike[alike] += 1


@compiled
def guesses(seen: Memory, user: Array, alike: Array, request_s: Array) -> Array:
    """(Q,) guessed run times."""
    found = np.empty(len(user))
    for i in range(len(user)):
        found[i] = guess_by(best_kind(seen, user[i]), seen, user[i], alike[i], request_s[i])
    return found


@compiled
def left(guess_s: Array, request_s: Array, since_s: Array) -> Array:
    """(M,) what runs is guessed to need still.

    What has passed its guess is taken to need as much again as it has had, within the request.
    """
    found = np.empty(len(guess_s))
    for i in range(len(found)):
        whole_s = guess_s[i]
        if whole_s <= since_s[i]:
            whole_s = min(2 * since_s[i], max(request_s[i], since_s[i]))
        found[i] = max(whole_s - since_s[i], LEAST_S)
    return found


class History:
    """The memory, by rows of jobs: which user and request each is."""

    def __init__(self) -> None:
        self.seen = memory(16, 16)
        self._alike: dict[tuple[int, float], int] = {}
        self._of_job: dict[int, int] = {}

    def guess_s(self, jobs: Array, tenant: Array, request_s: Array) -> Array:
        """(Q,) guessed run times of rows of jobs."""
        alike = self._rows(jobs, tenant, request_s)
        found: Array = guesses(self.seen, tenant, alike, request_s)
        return found

    def learn(self, job: int, tenant: int, request_s: float, run_s: float) -> None:
        alike = self._rows(np.array([job]), np.array([tenant]), np.array([request_s]))
        learn(self.seen, tenant, int(alike[0]), request_s, run_s)

    def _rows(self, jobs: Array, tenant: Array, request_s: Array) -> Array:
        known = self._of_job
        if not all(job in known for job in jobs.tolist()):
            for job, user, asked_s in zip(jobs.tolist(), tenant.tolist(), request_s.tolist()):
                known[job] = self._alike.setdefault((user, asked_s), len(self._alike))
            users, requests = len(self.seen.jobs), len(self.seen.alike)
            while users <= tenant.max():
                users *= 2
            while requests < len(self._alike):
                requests *= 2
            if (users, requests) != (len(self.seen.jobs), len(self.seen.alike)):
                self.seen = grown(self.seen, users, requests)
        return np.array([known[job] for job in jobs.tolist()], np.int64)
