"""Whole traces inside compiled code: advance, plan, apply, until nothing is left."""

import numpy as np

from trimtab.compiled import compiled, inner
from trimtab.rules import bits
from trimtab.rules.greedy import plan_settled
from trimtab.rules.order import FIRST_DYNAMIC, static_key
from trimtab.rules.plan import GREEDY, line_up, plan, plan_arrivals, plan_conservative
from trimtab.rules.sort import sort_turn
from trimtab.sim.choice import start, stop
from trimtab.sim.kernel import advance

DONE, GROW, MORE, ALARM = 0, 1, 2, 3


@compiled
def queue_of(w, c):
    """Write the waiting jobs in line order to World.queue; returns how many."""
    count = 0
    rank = bits.next_from(w.words, w.heads, c, 0)
    while rank >= 0:
        w.queue[c, count] = w.line[c, rank]
        count += 1
        rank = bits.next_from(w.words, w.heads, c, rank + 1)
    return count


@inner
def plan_pass(w, c, order, backfill, place, seed):
    """Plan on the queue in its static order, or lined up anew where the order moves with time."""
    now_s = w.head[c].now_s
    if order < FIRST_DYNAMIC:
        if backfill == GREEDY and plan_settled(place, seed, w, c, w.line, w.rank, w.words, w.heads):
            return
        if plan_arrivals(backfill, place, seed, w, c, now_s, w.rank):
            return
        plan(order, backfill, place, seed, w, c, now_s, w.line, w.words, w.heads)
        return
    line_up(order, w, c, now_s, queue_of(w, c))
    plan(order, backfill, place, seed, w, c, now_s, w.turn, w.turn_words, w.turn_heads)


@inner
def apply_plan(w, c):
    """Carry out what the scratch decided. True when a stop put jobs back in the queue."""
    stops = w.head[c].stops
    for i in range(stops):
        w.stop[c, i] = w.runs[c, w.stop[c, i]].job
    for i in range(stops):
        if i == 0 or w.stop[c, i] != w.stop[c, i - 1]:
            stop(w, c, w.stop[c, i])
    i = 0
    while i < w.head[c].starts:
        job = w.entry[c, i].job
        end = i + 1
        while end < w.head[c].starts and w.entry[c, end].job == job:
            end += 1
        start(w, c, job, 0, i, end - i)
        i = end
    return stops > 0


@inner
def has_room(w, c):
    """Whether the pools can take what was planned, and the log whatever the next instant brings."""
    starts = w.head[c].starts
    head = w.head[c]
    if w.head[c].full == 1:
        return False
    if starts + head.pinned > head.free_runs or starts + head.pinned > head.free_pieces:
        return False
    return w.conf[0].log == 0 or log_needs(w, c) <= w.log.shape[1]


@compiled
def log_needs(w, c):
    """Rows that one more instant could fill at the very most."""
    return w.head[c].log + 2 * w.head[c].jobs + 2 * w.pieces.shape[1] + 2 * w.outage.shape[1]


@compiled
def run_rule(w, c, order, backfill, place, seed, limit):
    """Run at most `limit` instants: DONE, GROW (make room and call again), MORE to do, or ALARM,
    where the instant is the one that an alarm was set for.

    The pass of the present instant is planned first, so that a call after GROW takes up where it
    stopped.
    """
    for _ in range(limit):
        if w.conf[0].halt == 1:
            return MORE
        again = True
        while again:
            plan_pass(w, c, order, backfill, place, seed)
            if not has_room(w, c):
                w.head[c].calm = w.head[c].settled = 0
                return GROW
            again = apply_plan(w, c)
        alarm_s = w.head[c].alarm_s
        if not advance(w, c):
            return DONE
        if alarm_s <= w.head[c].now_s:
            return ALARM
    return MORE


@compiled
def run_conservative(w, c, order, place, seed, limit):
    """The same with conservative backfilling."""
    for _ in range(limit):
        if w.conf[0].halt == 1:
            return MORE
        line_up(order, w, c, w.head[c].now_s, queue_of(w, c))
        plan_conservative(place, seed, w, c, w.head[c].now_s, w.turn, w.turn_words, w.turn_heads)
        if not has_room(w, c):
            return GROW
        apply_plan(w, c)
        alarm_s = w.head[c].alarm_s
        if not advance(w, c):
            return DONE
        if alarm_s <= w.head[c].now_s:
            return ALARM
    return MORE


@compiled
def set_rank(w, c, order):
    """Index the queue by this order, ties by row; each pass lines up orders that move with time."""
    jobs = w.jobs.shape[1]
    keys = np.empty(jobs)
    for job in range(jobs):
        keys[job] = (
            static_key(order, w, c, job)
            if order < FIRST_DYNAMIC and job < w.head[c].jobs
            else np.inf
        )
    turn = np.empty(jobs, np.int64)
    sort_turn(keys, turn, jobs)
    for rank in range(jobs):
        w.line[c, rank] = turn[rank]
        w.rank[c, turn[rank]] = rank
