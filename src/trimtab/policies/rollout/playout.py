"""A queue played out in one order on what is free, compiled.

Resources are pooled over the nodes. Jobs start from the head of the order while they fit. With
backfilling, as EASY has it, a later job starts beside a head that blocks if it fits and either ends
by the time at which the head is expected to fit, by the requests, or leaves it the room there.
Everything ends as it is guessed to, and nothing arrives but what the scene says.
"""

from typing import NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.compiled import compiled, inner
from trimtab.rules.sort import heap_up, pop

SLOWDOWN, WAIT = 0, 1
OBJECTIVES = {"slowdown": SLOWDOWN, "wait": WAIT}
SHORT_S = 10.0  # run times below count as this in the bounded slow-down
GRACE_S = 1.0  # what should have ended is expected to end that much later


class Scene(NamedTuple):
    """What runs and what waits at one moment. Rows of the queue come by submit time."""

    now_s: float
    free: Array  # (R,)
    left_s: Array  # (M,) guessed, of the jobs that run
    due_s: Array  # (M,) by the requests, absolute
    held: Array  # (M, R)
    submit_s: Array  # (Q,) after now: has yet to come
    run_s: Array  # (Q,) guessed
    request_s: Array  # (Q,)
    width: Array  # (Q, R)


class Course(NamedTuple):
    """How far a play-out is. A slot is a job that ran at first, or M + a row of the queue."""

    free: Array  # (R,)
    room: Array  # (R,) beside the head when it is expected to start
    end_s: Array  # (slots,) as guessed
    due_s: Array  # (slots,) by the requests
    going: Array  # (slots,) in order of their ends, the next is last
    key: Array  # (slots,) scratch
    turn: Array  # (slots,) scratch
    line: Array  # (Q,) rows that wait, in order
    rank: Array  # (Q,) of a row in the order


@inner
def fits(width: Array, job: int, free: Array) -> bool:
    for r in range(len(free)):
        if width[job, r] > free[r]:
            return False
    return True


@inner
def cost(objective: int, wait_s: float, run_s: float) -> float:
    """What a job adds to the objective."""
    if objective == WAIT:
        return wait_s
    return max(1.0, (wait_s + run_s) / max(run_s, SHORT_S))


@inner
def first_course(scene: Scene, order: Array) -> Course:
    running, waiting, resources = len(scene.left_s), len(scene.submit_s), len(scene.free)
    slots = running + waiting
    course = Course(
        scene.free.copy(), np.empty(resources), np.empty(slots), np.empty(slots),
        np.empty(slots, np.int64), np.empty(slots), np.empty(slots, np.int64),
        np.empty(waiting, np.int64), np.empty(waiting, np.int64),
    )  # fmt: skip
    for i in range(running):
        course.end_s[i], course.due_s[i] = scene.now_s + scene.left_s[i], scene.due_s[i]
    course.going[:running] = np.argsort(-scene.left_s)
    for i in range(waiting):
        course.rank[order[i]] = i
    return course


@inner
def book(scene: Scene, slot: int, amounts: Array, sign: float) -> None:
    """Add what a slot holds to amounts (R,), or take it off."""
    running = len(scene.left_s)
    for r in range(len(amounts)):
        if slot < running:
            amounts[r] += sign * scene.held[slot, r]
        else:
            amounts[r] += sign * scene.width[slot - running, r]


@inner
def begin(scene: Scene, course: Course, count: int, now_s: float, job: int) -> None:
    """Start a job of the queue beside `count` that run."""
    slot = len(scene.left_s) + job
    end_s, at = now_s + scene.run_s[job], count
    course.end_s[slot], course.due_s[slot] = end_s, now_s + scene.request_s[job]
    while at > 0 and course.end_s[course.going[at - 1]] <= end_s:
        course.going[at] = course.going[at - 1]
        at -= 1
    course.going[at] = slot
    book(scene, slot, course.free, -1.0)


@inner
def shadow(scene: Scene, course: Course, count: int, now_s: float, head: int) -> float:
    """When the head is expected to fit, by the requests; Course.room is what it leaves then."""
    course.room[:] = course.free
    for i in range(count):
        course.key[i] = -max(course.due_s[course.going[i]], now_s + GRACE_S)
    heap_up(course.key, course.turn, count)
    while count > 0:
        time_s = -course.key[course.turn[0]]
        while count > 0 and -course.key[course.turn[0]] == time_s:
            slot = course.going[pop(course.key, course.turn, count)]
            book(scene, slot, course.room, 1.0)
            count -= 1
        if fits(scene.width, head, course.room):
            book(scene, len(scene.left_s) + head, course.room, -1.0)
            return time_s
    return np.inf


@inner
def arrive(course: Course, head: int, waiting: int, job: int) -> None:
    """Put a job into the line, behind all that go before it in the order."""
    at = waiting
    while at > head and course.rank[course.line[at - 1]] > course.rank[job]:
        course.line[at] = course.line[at - 1]
        at -= 1
    course.line[at] = job


@compiled
def play_out(scene: Scene, order: Array, backfill: bool, objective: int, enough: float) -> float:
    """Sum of the objective over the queue in `order` (Q,), rows; inf once it is `enough`.

    inf also where a job fits nowhere when all else has ended.
    """
    course, count, now_s, total = first_course(scene, order), len(scene.left_s), scene.now_s, 0.0
    head, waiting, jobs = 0, 0, len(order)  # the line is head .. waiting
    for i in range(jobs):
        if scene.submit_s[order[i]] <= now_s:
            course.line[waiting] = order[i]
            waiting += 1
    came = waiting
    while True:
        while head < waiting and fits(scene.width, course.line[head], course.free):
            job = course.line[head]
            total += cost(objective, now_s - scene.submit_s[job], scene.run_s[job])
            begin(scene, course, count, now_s, job)
            count += 1
            head += 1
        if head == waiting and came == jobs:
            return total
        kept = head + 1
        while backfill and kept < waiting and not fits(scene.width, course.line[kept], course.free):
            kept += 1
        if backfill and kept < waiting:
            shadow_s = shadow(scene, course, count, now_s, course.line[head])
            for i in range(kept, waiting):
                job = course.line[i]
                early = now_s + scene.request_s[job] <= shadow_s
                if fits(scene.width, job, course.free) and (
                    early or fits(scene.width, job, course.room)
                ):
                    total += cost(objective, now_s - scene.submit_s[job], scene.run_s[job])
                    begin(scene, course, count, now_s, job)
                    count += 1
                    if not early:
                        book(scene, len(scene.left_s) + job, course.room, -1.0)
                else:
                    course.line[kept] = job
                    kept += 1
            waiting = kept
        if total >= enough or (count == 0 and came == jobs):
            return np.inf
        end_s = course.end_s[course.going[count - 1]] if count > 0 else np.inf
        now_s = max(now_s, min(end_s, scene.submit_s[came] if came < jobs else np.inf))
        while count > 0 and course.end_s[course.going[count - 1]] <= now_s:
            count -= 1
            book(scene, course.going[count], course.free, 1.0)
        while came < jobs and scene.submit_s[came] <= now_s:
            arrive(course, head, waiting, came)
            waiting += 1
            came += 1
