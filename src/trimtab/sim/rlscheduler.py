"""The scheduling semantics of RLScheduler (Zhang et al., SC'20), compiled; they fit its tables.

They differ from textbook EASY (`pool.py`). The policy picks one job; if that does not fit it is the
pivot, and time moves on event by event (an arrival before an end at the same instant, ends one at a
time) until it fits: nothing else is picked meanwhile. Jobs are admitted only while a pivot blocks,
or one alone when the queue is empty. Backfilling tries the queue by submit time when the pivot
blocks and after every event: a job starts if it fits and its requested time is over before the
moment at which the pivot, when it blocked, was expected to fit.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from trimtab.compiled import compiled, interruptible
from trimtab.errors import TraceError

FCFS, SJF, SMALLEST, F1, WFP3_PUBLISHED, UNICEP_PUBLISHED, WFP3, UNICEP = range(8)
ASKED = -1  # in place of a policy: whoever calls says which job is picked
POLICIES = {
    "fcfs": FCFS,
    "sjf": SJF,
    "smallest": SMALLEST,
    "f1": F1,
    "wfp3-published": WFP3_PUBLISHED,
    "unicep-published": UNICEP_PUBLISHED,
    "wfp3": WFP3,
    "unicep": UNICEP,
}


class Running(NamedTuple):
    """Running jobs, twice: by end and by requested end."""

    end_s: np.ndarray  # (R,) descending, so that the next to end is the last
    job: np.ndarray  # (R,) of end_s
    due_s: np.ndarray  # (R,) ascending start + requested time
    due_units: np.ndarray  # (R,)


class Turn(NamedTuple):
    """Where a run stands between two picks."""

    running: Running
    queue: np.ndarray  # (J,) in order of arrival, or of submission while a pivot blocks
    start_s: np.ndarray  # (J,) NaN before
    due_of_s: np.ndarray  # (J,) start + requested time
    order: np.ndarray  # (J,) jobs in the order in which they start
    counts: np.ndarray  # (5,) queued, running, arrived, started, units free
    pick: np.ndarray  # (1,) the job that is to start next, -1 = it has to be picked
    now_s: np.ndarray  # (1,)


QUEUED, GOING, ARRIVED, STARTED, FREE = range(5)  # of Turn.counts


def first_turn(submit_s: np.ndarray, capacity: int) -> Turn:
    """Before anything has come."""
    jobs, slots = len(submit_s), min(int(capacity), len(submit_s))
    running = Running(
        np.empty(slots), np.empty(slots, np.int64), np.empty(slots), np.empty(slots, np.int64)
    )
    return Turn(
        running,
        np.empty(jobs, np.int64),
        np.full(jobs, np.nan),
        np.empty(jobs),
        np.empty(jobs, np.int64),
        np.array([0, 0, 0, 0, capacity]),
        np.full(1, -1),
        submit_s[:1].copy(),
    )


def static_score(
    submit_s: np.ndarray, request_s: np.ndarray, procs: np.ndarray, policy: int
) -> np.ndarray:
    """Scores (J,) of which the lowest is picked; zeros where they change with time.

    As published, WFP3 and UNICEP take the waiting time from the start time of a job that has not
    started, which is -1: the later a job comes the less it seems to wait, whatever the time is.
    """
    wait_s = -1 - submit_s
    keys: tuple[np.ndarray, ...] = (submit_s,)
    if policy == SJF:
        keys = (submit_s, request_s)
    elif policy == SMALLEST:
        keys = (submit_s, procs)
    elif policy == F1:
        request_log, submit_log = (np.log10(np.where(a > 0, a, 0.1)) for a in (request_s, submit_s))
        keys = (request_log * procs + 870 * submit_log,)
    elif policy == WFP3_PUBLISHED:
        keys = (-np.power(wait_s / request_s, 3) * procs,)
    elif policy == UNICEP_PUBLISHED:
        keys = (-(wait_s + 1e-15) / (np.log2(procs + 1e-15) * request_s),)
    elif policy in (WFP3, UNICEP):
        return np.zeros(len(submit_s))
    rank = np.empty(len(submit_s))
    rank[np.lexsort(keys)] = np.arange(len(submit_s))
    return rank


@compiled
def rescore(queue, queued, now, submit_s, request_s, procs, procs_log2, policy, scores):
    """WFP3 and UNICEP as meant: the waiting time up to now."""
    for i in range(queued):
        job = queue[i]
        wait_s = now - submit_s[job]
        if policy == WFP3:
            scores[job] = -((wait_s / request_s[job]) ** 3.0) * procs[job]
        else:
            scores[job] = -(wait_s + 1e-15) / (procs_log2[job] * request_s[job])


@compiled
def before(job, other, scores):
    """Whether the policy prefers a job to another; ties go by row."""
    return scores[job] < scores[other] or (scores[job] == scores[other] and job < other)


@compiled
def sort_by_submit(queue, queued, submit_s, scores, halt):
    """Puts the queue in order of submission, ties as the policy prefers.

    By insertion: the queue is in order of arrival, so that only ties and unsorted rows move.
    """
    for i in range(1, queued):
        if halt[0] == 1:
            return
        job, at = queue[i], i
        while at > 0 and (
            submit_s[queue[at - 1]] > submit_s[job]
            or (submit_s[queue[at - 1]] == submit_s[job] and before(job, queue[at - 1], scores))
        ):
            queue[at] = queue[at - 1]
            at -= 1
        queue[at] = job


@compiled
def expected_fit(running, n, free, width, due_of_s):
    """When `width` units are expected to be free, by requested ends.

    Jobs that will end together come off in the order of their requested ends from here on: the
    authors sort one list by both, and who comes off first decides who fits.
    """
    for i in range(1, n):
        job, end_s, at = running.job[i], running.end_s[i], i
        while (
            at > 0
            and running.end_s[at - 1] == end_s
            and due_of_s[running.job[at - 1]] < due_of_s[job]
        ):
            running.job[at] = running.job[at - 1]
            at -= 1
        running.job[at] = job
    i = 0
    while i < n:
        free += running.due_units[i]
        if free >= width:
            break
        i += 1
    return running.due_s[min(i, n - 1)]


@compiled
def begin(running, n, job, end_s, due_s, units):
    """Adds a job to the n that run."""
    at = n
    while at > 0 and running.end_s[at - 1] <= end_s:
        running.end_s[at] = running.end_s[at - 1]
        running.job[at] = running.job[at - 1]
        at -= 1
    running.end_s[at] = end_s
    running.job[at] = job
    at = n
    while at > 0 and running.due_s[at - 1] > due_s:
        running.due_s[at] = running.due_s[at - 1]
        running.due_units[at] = running.due_units[at - 1]
        at -= 1
    running.due_s[at] = due_s
    running.due_units[at] = units


@compiled
def finish(running, n, due_s, units):
    """Takes the last job, the next of n to end, off the lists."""
    at = 0
    while running.due_s[at] != due_s or running.due_units[at] != units:
        at += 1
    for i in range(at, n - 1):
        running.due_s[i] = running.due_s[i + 1]
        running.due_units[i] = running.due_units[i + 1]


@compiled
def simulate(
    turn,
    submit_s,
    run_s,
    request_s,
    procs,
    procs_log2,
    width,
    scores,
    policy,
    backfill,
    halt,
):
    """Play on to the end, or where the policy is ASKED up to the next pick; the turn is kept."""
    jobs = len(submit_s)
    running, start_s, due_of_s, order = turn.running, turn.start_s, turn.due_of_s, turn.order
    queue, count = turn.queue, turn.counts
    queued, n, arrived, started = count[QUEUED], count[GOING], count[ARRIVED], count[STARTED]
    free, now, picked = count[FREE], turn.now_s[0], turn.pick[0]
    pivot, expected_s = -1, -np.inf
    while (queued > 0 or arrived < jobs) and halt[0] == 0:
        tried = queued  # from here on in the queue jobs may start beside the pivot
        if pivot < 0 and queued > 0:
            if policy == ASKED and picked < 0:
                break
            if policy >= WFP3:
                rescore(queue, queued, now, submit_s, request_s, procs, procs_log2, policy, scores)
            pivot = queue[0]
            for i in range(1, queued):
                if before(queue[i], pivot, scores):
                    pivot = queue[i]
            if policy == ASKED:
                pivot, picked = picked, -1
            if width[pivot] > free and backfill:
                expected_s = expected_fit(running, n, free, width[pivot], due_of_s)
                sort_by_submit(queue, queued, submit_s, scores, halt)
                tried = 0
        elif arrived < jobs and (n == 0 or submit_s[arrived] <= running.end_s[n - 1]):
            now = max(now, submit_s[arrived])
            at = queued
            while backfill and at > 0 and submit_s[queue[at - 1]] > submit_s[arrived]:
                queue[at] = queue[at - 1]
                at -= 1
            queue[at] = arrived
            tried = at  # the rest was refused when no less was free and no more time had passed
            arrived += 1
            queued += 1
        else:
            n -= 1
            done = running.job[n]
            now = max(now, running.end_s[n])
            finish(running, n + 1, due_of_s[done], width[done])
            free += width[done]
            tried = 0
        if pivot < 0:
            continue

        kept = tried
        fits = width[pivot] <= free
        for i in range(tried if not fits and backfill else queued, queued):
            job = queue[i]
            if width[job] <= free and now + request_s[job] < expected_s:
                start_s[job], due_of_s[job] = now, now + request_s[job]
                order[started] = job
                started += 1
                begin(running, n, job, now + run_s[job], due_of_s[job], width[job])
                n += 1
                free -= width[job]
            else:
                queue[kept] = job
                kept += 1
        if not fits:
            queued = kept if backfill else queued
            continue
        at = 0
        while queue[at] != pivot:
            at += 1
        for i in range(at, queued - 1):
            queue[i] = queue[i + 1]
        queued -= 1
        start_s[pivot], due_of_s[pivot] = now, now + request_s[pivot]
        order[started] = pivot
        started += 1
        begin(running, n, pivot, now + run_s[pivot], due_of_s[pivot], width[pivot])
        n += 1
        free -= width[pivot]
        pivot = -1
    count[QUEUED], count[GOING], count[ARRIVED], count[STARTED] = queued, n, arrived, started
    count[FREE], turn.now_s[0], turn.pick[0] = free, now, -1


def schedule(
    submit_s: ArrayLike,
    run_s: ArrayLike,
    request_s: ArrayLike,
    procs: ArrayLike,
    capacity: int,
    policy: int,
    backfill: bool,
    width: ArrayLike | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Start of every job, (J,) in seconds, and the rows in the order in which they start, (J,).

    The authors add up in that order, which the last digits of their means depend on. Rows arrive in
    their order, as in the authors' program, also where a submit time goes back. policy: one of
    POLICIES. The policies weigh procs; what a job takes of capacity is width, procs unless given
    (whole nodes, where a node has several processors).
    """
    submit_s, run_s, request_s = (np.asarray(a, np.float64) for a in (submit_s, run_s, request_s))
    procs = np.asarray(procs, np.int64)
    width = procs if width is None else np.asarray(width, np.int64)
    if not len(submit_s):
        return np.empty(0), np.empty(0, np.int64)
    fits = (width >= 1) & (width <= capacity)
    if not fits.all():
        row = int(np.argmin(fits))
        raise TraceError(
            f"row {row}: width={width[row]}, but the pool has {capacity}; drop the row"
        )
    turn, halt = first_turn(submit_s, capacity), np.zeros(1, np.int64)
    interruptible(
        simulate, turn, submit_s, run_s, request_s, procs, np.log2(procs + 1e-15), width,
        static_score(submit_s, request_s, procs, policy), int(policy),
        bool(backfill), halt, halt=lambda: halt.fill(1),
    )  # fmt: skip
    return turn.start_s, turn.order
