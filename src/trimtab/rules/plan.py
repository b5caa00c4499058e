"""One scheduling pass: order x backfill x place, from a world to a list of starts and stops.

Semantics, named `easy`. Jobs start from the head of the queue while they fit; the first that does
not is the blocked head. *EASY*: running jobs are expected to end at start + request, but never
earlier than a second from now; the shadow time is the first at which the head fits, counting all
that end at that very time; a later job starts if it fits now and either ends by the shadow time or
leaves the head room there. *Conservative*: every job in order gets the earliest reservation that
delays none before it. *Greedy*: later jobs start if they fit. An array counts instance by
instance: it starts as many as fit, and blocks with the rest. A job that a quota holds back is
passed over: it blocks and delays nobody.
"""

import numpy as np

from trimtab.compiled import compiled, inner
from trimtab.rules import bits
from trimtab.rules.easy import fill, fill_one
from trimtab.rules.fit import GRACE_S, find_most, is_refused, put_off
from trimtab.rules.greedy import fill_greedily, sort_fresh, try_start, undo
from trimtab.rules.names import BACKFILLS
from trimtab.rules.order import (
    DRF,
    FIRST_DYNAMIC,
    LAS,
    SRTF,
    add_share,
    dynamic_key,
    static_key,
    tenant_shares,
)
from trimtab.rules.reserve import reserve
from trimtab.rules.sort import sort_turn

EASY, GREEDY = BACKFILLS["easy"], BACKFILLS["greedy"]


@inner
def line_up(order, w, c, now_s, waiting):
    """Write World.queue in the rule's order to World.turn, as a line of ranks that all wait."""
    if order == DRF:
        tenant_shares(w, c)
    keys = np.empty(waiting)
    for i in range(waiting):
        if order < FIRST_DYNAMIC:
            keys[i] = static_key(order, w, c, w.queue[c, i])
        else:
            keys[i] = dynamic_key(order, w, c, w.queue[c, i], now_s)
    turn = np.empty(waiting, np.int64)
    sort_turn(keys, turn, waiting)
    for i in range(w.turn_words.shape[1]):
        w.turn_words[c, i] = bits.ZERO
    for i in range(w.turn_heads.shape[1]):
        w.turn_heads[c, i] = bits.ZERO
    for i in range(waiting):
        w.turn[c, i] = w.queue[c, turn[i]]
        bits.put(w.turn_words, w.turn_heads, c, i)


@inner
def plan(order, backfill, place, seed, w, c, now_s, line, words, heads):
    """Decide one pass over a line of ranks; the world is as before when it returns.

    `line[c, rank]` is a job, the bit set of ranks says which of them wait. Decisions go to
    World.stop and World.entry: stops first, then starts in order.
    """
    begin_pass(w, c)
    head = start_from_head(order, place, seed, w, c, line, words, heads)
    if head >= 0 and (order in (SRTF, LAS)):
        head = preempt(order, place, seed, w, c, now_s, line, words, heads, head)
    before = w.head[c].starts
    if head >= 0 and backfill == EASY:
        fill(order, place, seed, w, c, now_s, line, words, heads, head)
    if backfill == GREEDY:
        fill_greedily(order, place, seed, w, c, line, words, heads, head)
    undo(w, c)
    w.head[c].blocked = head
    w.head[c].fresh = 0
    w.head[c].calm = 0
    if w.gate.shape[1] > 0:
        return  # as a gate comes nearer other nodes are chosen, and what was refused may fit there
    if head >= 0 and (w.head[c].starts == before or w.head[c].nodes == 1):
        w.head[c].calm = 1


@inner
def plan_arrivals(backfill, place, seed, w, c, now_s, rank):
    """An EASY pass if only jobs arrived since the last and its head still blocks; else False.

    What was refused stays refused: nothing was freed, the time to the shadow only shrinks, and each
    would choose the same nodes again. That holds while no run counted there is late, which is while
    the shadow is at least a grace away, and as long as nothing starts where there are nodes to
    choose from.
    """
    head = w.head[c]
    if head.calm == 0 or backfill == GREEDY:
        return False
    if backfill == EASY and head.known == 1 and now_s + GRACE_S > head.shadow_s:
        return False
    for i in range(head.fresh):
        if rank[c, w.fresh[c, i]] < head.blocked:
            return False
    head.starts = head.stops = head.full = 0
    if backfill == EASY:
        sort_fresh(w, c, rank)
        blocked = w.line[c, head.blocked]
        for i in range(head.fresh):
            job = w.fresh[c, i]
            if not is_refused(w, c, job):
                fill_one(place, seed, w, c, now_s, job, blocked)
        undo(w, c)
    if head.starts > 0 and head.nodes > 1:
        return False  # who comes behind may now choose other nodes, and so fit
    head.fresh = 0
    return True


@inner
def plan_conservative(place, seed, w, c, now_s, line, words, heads):
    """The same for conservative backfilling, apart so that only its users compile it."""
    begin_pass(w, c)
    reserve(place, seed, w, c, now_s, line, words, heads)
    undo(w, c)


@inner
def begin_pass(w, c):
    w.head[c].starts = 0
    w.head[c].stops = 0
    w.head[c].full = 0
    w.head[c].pass_no += 1
    find_most(w, c)


@inner
def start_from_head(order, place, seed, w, c, line, words, heads):
    """Start jobs in line while they fit. Returns the rank of the one that blocks, or -1."""
    rank = bits.next_from(words, heads, c, 0)
    if order == DRF:
        return start_fairly(place, seed, w, c, line, words, heads)
    while rank >= 0 and w.conf[0].halt == 0:
        if not try_start(place, seed, w, c, line[c, rank]):
            return rank
        rank = bits.next_from(words, heads, c, rank + 1)
    return -1


@inner
def start_fairly(place, seed, w, c, line, words, heads):
    """DRF: after each start the tenant's share grows, so the next job is chosen anew."""
    tenant_shares(w, c)
    begun = np.zeros(line.shape[1], np.bool_)
    while w.conf[0].halt == 0:
        best = -1
        rank = bits.next_from(words, heads, c, 0)
        while rank >= 0:
            job = line[c, rank]
            if not begun[rank]:
                mine = w.share[c, w.jobs[c, job].tenant]
                if best < 0:
                    best = rank
                else:
                    other = line[c, best]
                    theirs = w.share[c, w.jobs[c, other].tenant]
                    if mine < theirs or (mine == theirs and job < other):
                        best = rank
            rank = bits.next_from(words, heads, c, rank + 1)
        if best < 0:
            return -1
        job, starts = line[c, best], w.head[c].starts
        if not try_start(place, seed, w, c, job):
            return best
        begun[best] = True
        add_share(w, c, job, w.head[c].starts - starts)
    return -1


@inner
def preempt(order, place, seed, w, c, now_s, line, words, heads, head):
    """Stop runs of jobs strictly later in the order, worst first, while that starts the head.

    Returns the rank of the job that still blocks, or -1.
    """
    keys = np.empty(w.runs.shape[1])
    for run in range(len(keys)):
        job = w.runs[c, run].job
        keys[run] = -np.inf
        if job >= 0 and w.state[c, job].left == 0:
            keys[run] = dynamic_key(order, w, c, job, now_s)
    while head >= 0 and w.conf[0].halt == 0:
        job = line[c, head]
        begun, useful = make_way(order, place, seed, w, c, now_s, job, keys)
        if not begun:
            for i in range(w.head[c].stops - 1, useful - 1, -1):
                put_off(w, c, w.stop[c, i], -1)
            w.head[c].stops = useful
            return head
        w.head[c].pass_no += 1  # more is free now: what was refused may fit
        head = bits.next_from(words, heads, c, head + 1)
        while head >= 0 and try_start(place, seed, w, c, line[c, head]):
            head = bits.next_from(words, heads, c, head + 1)
    return -1


@inner
def make_way(order, place, seed, w, c, now_s, job, keys):
    """Stop the worst jobs one by one until this one starts.

    Returns whether it does, and how many stops are of use: the others are to be taken back.
    """
    mine = dynamic_key(order, w, c, job, now_s)
    useful = w.head[c].stops
    while True:
        worst = -1
        for run in range(len(keys)):
            if keys[run] > mine and (worst < 0 or keys[run] >= keys[worst]):
                later = worst < 0 or keys[run] > keys[worst]
                if later or w.runs[c, run].job > w.runs[c, worst].job:
                    worst = run
        if worst < 0:
            return False, useful
        run = w.state[c, w.runs[c, worst].job].run
        while run >= 0:
            w.stop[c, w.head[c].stops] = run
            w.head[c].stops += 1
            keys[run] = -np.inf
            put_off(w, c, run, 1)
            run = w.runs[c, run].sibling
        find_most(w, c)
        starts = w.head[c].starts
        begun = try_start(place, seed, w, c, job)
        if w.head[c].starts > starts:
            useful = w.head[c].stops  # if only to a part of an array
        if begun:
            return True, useful


@compiled
def decide(w, order, backfill, place, seed, waiting):
    """One pass of a rule over a world of one cluster whose queue is in World.queue."""
    line_up(order, w, 0, w.head[0].now_s, waiting)
    plan(order, backfill, place, seed, w, 0, w.head[0].now_s, w.turn, w.turn_words, w.turn_heads)


@compiled
def decide_conservative(w, order, place, seed, waiting):
    line_up(order, w, 0, w.head[0].now_s, waiting)
    plan_conservative(place, seed, w, 0, w.head[0].now_s, w.turn, w.turn_words, w.turn_heads)
