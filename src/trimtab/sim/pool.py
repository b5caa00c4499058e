"""Whole traces on a pool of identical units, compiled: no, EASY or conservative backfilling.

Inside, a job is its rank: its place in the static queue order. At an instant all ends come first,
then all arrivals (a child whose last parent ended there is one), then one pass. An instant at which
nothing ends and nothing is queued has no pass.

The small functions are inlined: to pass a tuple of arrays counts a reference to each at every call.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from trimtab.compiled import compiled, interruptible
from trimtab.errors import TraceError
from trimtab.sim.pool_queue import (
    FREQUENT,
    add,
    drop,
    empty_queue,
    first_at_least,
    next_fit,
    next_queued,
)

NO_BACKFILL, EASY, CONSERVATIVE = 0, 1, 2
HALT, ARRIVED = 0, 1  # of what is watched while a run goes on
FRESH = 64  # arrivals at one instant that are tested on their own; more take a whole pass
NEVER_S = np.finfo(
    np.float64
).max  # a shadow time that every job meets, but not an empty node's inf


class Running(NamedTuple):
    """Chunks of instances that started together: a heap by end, a list by expected end."""

    end_s: np.ndarray  # (R,) heap
    end_slot: np.ndarray  # (R,)
    due_s: np.ndarray  # (R,) ascending start + requested time; empty without backfilling
    due_units: np.ndarray  # (R,)
    spare: np.ndarray  # (R,) slots; the first n are taken
    job: np.ndarray  # (R,) by slot
    units: np.ndarray  # (R,) by slot
    slot_due_s: np.ndarray  # (R,) by slot
    run_s: np.ndarray  # (J,)
    left: np.ndarray  # (J,) instances not started yet
    going: np.ndarray  # (J,) chunks that run
    start_s: np.ndarray  # (J,) of the first instance
    end_of_s: np.ndarray  # (J,) of the last instance


@compiled(inline="always")
def begin(queue, running, n, now, job, count):
    """Starts instances of a queued job as chunk n; the caller counts chunks and free units."""
    slot = running.spare[n]
    running.job[slot] = job
    running.units[slot] = count * queue.width[job]
    at, end_s = n, now + running.run_s[job]
    while at > 0 and running.end_s[(at - 1) >> 1] > end_s:
        above = (at - 1) >> 1
        running.end_s[at] = running.end_s[above]
        running.end_slot[at] = running.end_slot[above]
        at = above
    running.end_s[at] = end_s
    running.end_slot[at] = slot
    if len(running.due_s):
        at, due_s = n, now + queue.request_s[job]
        while at > 0 and running.due_s[at - 1] > due_s:
            running.due_s[at] = running.due_s[at - 1]
            running.due_units[at] = running.due_units[at - 1]
            at -= 1
        running.due_s[at] = due_s
        running.due_units[at] = running.units[slot]
        running.slot_due_s[slot] = due_s
    if np.isnan(running.start_s[job]):
        running.start_s[job] = now
    running.going[job] += 1
    running.left[job] -= count
    if running.left[job] == 0:
        drop(queue, job)


@compiled(inline="always")
def finish(running, n):
    """Takes the first of n chunks to end off the lists and returns its slot, which is spare now."""
    slot = running.end_slot[0]
    n -= 1
    end_s, moved = running.end_s[n], running.end_slot[n]
    at = 0
    while 2 * at + 1 < n:
        below = 2 * at + 1
        if below + 1 < n and running.end_s[below + 1] < running.end_s[below]:
            below += 1
        if running.end_s[below] >= end_s:
            break
        running.end_s[at] = running.end_s[below]
        running.end_slot[at] = running.end_slot[below]
        at = below
    running.end_s[at] = end_s
    running.end_slot[at] = moved
    if len(running.due_s):
        at = first_at_least(running.due_s, n + 1, running.slot_due_s[slot])
        while running.due_units[at] != running.units[slot]:
            at += 1  # of those due at one time any with as many units is the same
        for i in range(at, n):
            running.due_s[i] = running.due_s[i + 1]
            running.due_units[i] = running.due_units[i + 1]
    running.spare[n] = slot
    running.going[running.job[slot]] -= 1
    return slot


@compiled(inline="always")
def shadow(running, n, now, free, width):
    """When `width` units are expected to be free, and how many more than that will be."""
    soonest_s = now + 1.0  # a job past its estimate is expected to end next second
    i = 0
    while free < width:
        free += running.due_units[i]
        i += 1
    shadow_s = max(running.due_s[i - 1], soonest_s)
    while i < n and running.due_s[i] <= shadow_s:
        free += running.due_units[i]
        i += 1
    return shadow_s, free - width


@compiled(inline="always")
def allowed(queue, job, left, now, free, shadow_s, extra):
    """How many instances EASY lets start, and the extra units they use up."""
    width = queue.width[job]
    if now + queue.request_s[job] <= shadow_s:
        return min(left, free // width), 0
    count = min(left, min(free, extra) // width)
    return count, count * width


@compiled
def twice_as_long(values):
    """A copy with room for as many again."""
    longer = np.empty(2 * len(values), values.dtype)
    for i in range(len(values)):
        longer[i] = values[i]
    return longer


@compiled
def reserve(queue, running, n, now, free, head, job, count, watch):
    """Conservative pass: writes the jobs that start now and their instances, returns how many jobs.

    Every queued job takes the earliest room for its requested time (a second at least, as running
    jobs are expected to last) on the profile of free units that those before it left.
    """
    time_s, room = np.empty(2 * n + 64), np.empty(2 * n + 64, np.int64)
    time_s[0], room[0], steps = now, free, 1
    for i in range(n):
        due_s = max(running.due_s[i], now + 1.0)
        if due_s > time_s[steps - 1]:
            time_s[steps], room[steps] = due_s, room[steps - 1]
            steps += 1
        room[steps - 1] += running.due_units[i]
    found, rank = 0, head
    while rank >= 0 and room[0] > 0 and watch[HALT] == 0:
        width, length_s, left = (
            queue.width[rank],
            max(queue.request_s[rank], 1.0),
            running.left[rank],
        )
        at, upto = 0, 0
        while left > 0:
            # the first step from which the room lasts; a step too narrow rules out all before it
            least = room[at]
            upto = at
            while upto < steps and time_s[upto] < time_s[at] + length_s:
                least = min(least, room[upto])
                if least < width:
                    at, least = upto + 1, room[upto + 1]
                upto += 1
            fit = min(left, least // width)
            if steps == len(time_s):
                time_s, room = twice_as_long(time_s), twice_as_long(room)
            over_s = time_s[at] + length_s
            if upto == steps or time_s[upto] > over_s:
                for i in range(steps, upto, -1):
                    time_s[i], room[i] = time_s[i - 1], room[i - 1]
                time_s[upto], room[upto] = over_s, room[upto - 1]
                steps += 1
            for i in range(at, upto):
                room[i] -= fit * width
            left -= fit
            if at == 0:
                job[found], count[found] = rank, fit
                found += 1
        rank = next_queued(queue, rank + 1)
    return found


@compiled
def simulate(
    queue, running, arrive_s, arrive_job, pending, child_ptr, child, capacity, backfill, watch
):
    """Runs every job; fills running.start_s and running.end_of_s, and counts arrivals in `watch`.

    watch: (2,) HALT, set from outside to break off, and ARRIVED.
    """
    width, left, jobs = queue.width, running.left, len(arrive_s)
    fresh = np.empty(FRESH, np.int64)  # queued at this instant, ascending
    slots = len(running.spare)
    chosen, chosen_count = np.empty(slots, np.int64), np.empty(slots, np.int64)
    free, n, arrived = capacity, 0, 0
    head = -1  # the job that blocks after the last pass
    shadow_s, extra = np.inf, 0  # of that pass; inf: no queued job fits in free, none was computed
    while (arrived < jobs or n > 0) and watch[HALT] == 0:
        watch[ARRIVED] = arrived
        now = np.inf
        if n > 0:
            now = running.end_s[0]
        if arrived < jobs:
            now = min(now, arrive_s[arrived])
        ended, queued = False, 0
        while n > 0 and running.end_s[0] <= now:
            slot = finish(running, n)
            n -= 1
            free += running.units[slot]
            ended = True
            job = running.job[slot]
            if left[job] == 0 and running.going[job] == 0:
                running.end_of_s[job] = now
                for i in range(child_ptr[job], child_ptr[job + 1]):
                    pending[child[i]] -= 1
                    if pending[child[i]] == 0:
                        add(queue, child[i])
        while arrived < jobs and arrive_s[arrived] <= now:
            job = arrive_job[arrived]
            arrived += 1
            pending[job] -= 1
            if pending[job] == 0:
                add(queue, job)
                at = queued
                queued += 1
                while 0 < at < FRESH and fresh[at - 1] > job:
                    fresh[at] = fresh[at - 1]
                    at -= 1
                if at < FRESH:
                    fresh[at] = job
        if not ended and queued == 0:
            continue

        if not ended and head >= 0 and queued < FRESH and fresh[0] > head:
            # The head stays blocked. The shadow time and the extra units stay too, unless a job is
            # late, so what the last pass refused stays refused: only the new ones can start.
            if backfill == NO_BACKFILL:
                continue
            fits = False
            for i in range(queued):
                fits = fits or width[fresh[i]] <= free
            if shadow_s == np.inf and not fits:
                continue
            if backfill == EASY and now + 1.0 <= shadow_s < np.inf:
                for i in range(queued):
                    job = fresh[i]
                    count, used = allowed(queue, job, left[job], now, free, shadow_s, extra)
                    if count > 0:
                        begin(queue, running, n, now, job, count)
                        n += 1
                        free -= count * width[job]
                        extra -= used
                continue

        head = next_queued(queue, 0)
        while head >= 0 and width[head] <= free:
            count = min(left[head], free // width[head])
            begin(queue, running, n, now, head, count)
            n += 1
            free -= count * width[head]
            if left[head] == 0:
                head = next_queued(queue, head + 1)
        shadow_s = np.inf
        if head < 0 or backfill == NO_BACKFILL:
            continue
        if backfill == EASY:
            job = next_fit(queue, head + 1, now, free, NEVER_S, 0)
            if job >= 0:
                shadow_s, extra = shadow(running, n, now, free, width[head])
                job = next_fit(queue, job, now, free, shadow_s, extra)
            while job >= 0:
                count, used = allowed(queue, job, left[job], now, free, shadow_s, extra)
                begin(queue, running, n, now, job, count)
                n += 1
                free -= count * width[job]
                extra -= used
                job = next_fit(queue, job + 1, now, free, shadow_s, extra)
        elif free > 0:
            found = reserve(queue, running, n, now, free, head, chosen, chosen_count, watch)
            for i in range(found):
                begin(queue, running, n, now, chosen[i], chosen_count[i])
                n += 1
                free -= chosen_count[i] * width[chosen[i]]
            shadow_s = now  # a later pass may find room for any


def run_pool(
    submit_s: ArrayLike,
    run_s: ArrayLike,
    request_s: ArrayLike,
    width: ArrayLike,
    rank: ArrayLike,
    capacity: int,
    backfill: int,
    instances: ArrayLike,
    after_ptr: ArrayLike,
    after_idx: ArrayLike,
    progress: Callable[[int], None] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Start of the first and end of the last instance of every job, (J,) each, in seconds.

    width: units an instance takes. rank: a permutation, the static queue order, 0 first. backfill:
    NO_BACKFILL, EASY or CONSERVATIVE. after_idx[after_ptr[j]:after_ptr[j + 1]] are row j's parents:
    it is queued once they have ended and its submit time has passed. Instances of a job need
    not start together: as many start as may, and the job keeps its place in the queue until the
    last has started. `progress` is told how many jobs have arrived.
    """
    submit_s, run_s, request_s = (np.asarray(a, np.float64) for a in (submit_s, run_s, request_s))
    width, rank, instances, after_ptr, after_idx = (
        np.asarray(a, np.int64) for a in (width, rank, instances, after_ptr, after_idx)
    )
    jobs = len(submit_s)
    _check(submit_s, run_s, request_s, width, rank, capacity, instances)
    by_rank = np.empty(jobs, np.int64)
    by_rank[rank] = np.arange(jobs)
    request_s = request_s[by_rank]
    queue = empty_queue(width[by_rank], request_s, FREQUENT if backfill == EASY else 0)
    slots = min(int(capacity), int(instances.sum()))
    running = _running(run_s[by_rank], instances[by_rank], slots, backfill != NO_BACKFILL)
    arrival = np.argsort(submit_s, kind="stable")
    parents = np.diff(after_ptr)
    child_ptr, child = np.zeros(jobs + 1, np.int64), np.empty(0, np.int64)
    if len(after_idx):
        child_ptr[1:] = np.cumsum(np.bincount(rank[after_idx], minlength=jobs))
        child = rank[np.repeat(np.arange(jobs), parents)][
            np.argsort(rank[after_idx], kind="stable")
        ]
    watch = np.zeros(2, np.int64)
    interruptible(
        simulate, queue, running, submit_s[arrival], rank[arrival], parents[by_rank] + 1,
        child_ptr, child, int(capacity), int(backfill), watch,
        halt=lambda: watch.__setitem__(HALT, 1),
        look=None if progress is None else lambda: progress(int(watch[ARRIVED])),
    )  # fmt: skip
    start_s, end_s = running.start_s[rank], running.end_of_s[rank]
    if len(after_idx) and np.isnan(end_s).any():
        row = int(np.flatnonzero(np.isnan(start_s))[0])
        raise TraceError(
            f"row {row}: after={after_idx[after_ptr[row] : after_ptr[row + 1]].tolist()} "
            "waits for itself in a circle; drop one of the parents"
        )
    return start_s, end_s


def _check(
    submit_s: np.ndarray,
    run_s: np.ndarray,
    request_s: np.ndarray,
    width: np.ndarray,
    rank: np.ndarray,
    capacity: int,
    instances: np.ndarray,
) -> None:
    """Raises TraceError for the first row that could never run or has no place in the order."""
    fine = {
        "submit_s": (submit_s, np.isfinite(submit_s), "give a finite time"),
        "run_s": (run_s, (run_s >= 0) & np.isfinite(run_s), "give a finite time from 0 up"),
        "request_s": (request_s, np.isfinite(request_s), "use run_s instead"),
        "width": (
            width,
            (width >= 1) & (width <= capacity),
            f"the pool has {capacity} units; drop the row",
        ),
        "instances": (instances, instances >= 1, "drop the row"),
    }
    for field, (values, ok, remedy) in fine.items():
        if not ok.all():
            row = int(np.argmin(ok))
            raise TraceError(f"row {row}: {field}={values[row]} cannot run; {remedy}")
    if not np.array_equal(np.bincount(rank, minlength=len(rank)), np.ones(len(rank), np.int64)):
        raise TraceError("rank is no permutation of the rows; give np.argsort(np.lexsort(keys))")


def _running(run_s: np.ndarray, instances: np.ndarray, slots: int, keep_due: bool) -> Running:
    """Room for as many chunks as the pool can run at once."""
    jobs, due = len(run_s), slots if keep_due else 0
    return Running(
        np.empty(slots), np.empty(slots, np.int64), np.empty(due), np.empty(due, np.int64),
        np.arange(slots), np.empty(slots, np.int64), np.empty(slots, np.int64), np.empty(slots),
        run_s, instances.copy(), np.zeros(jobs, np.int64), np.full(jobs, np.nan),
        np.full(jobs, np.nan),
    )  # fmt: skip
