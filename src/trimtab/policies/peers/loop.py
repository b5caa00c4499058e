"""Peers inside compiled code: one pass, whole traces, and a pass over a snapshot's world.

A pass books greedily, as the backfill of that name. Order choosers say which job goes next, and a
rule where it goes; node choosers are asked for each instance of each job in line which group of
machines gets it. A gang, whose instances start together, is placed by the rule.
"""

from __future__ import annotations

import numpy as np

from trimtab.arrays import Array
from trimtab.compiled import compiled, inner
from trimtab.policies.peers import belgacem, cheng, deeprm, ghasemi, islam, rjoub, rlscheduler
from trimtab.policies.peers.groups import (
    STATS,
    add_node,
    count_groups,
    find_best,
    lay_groups,
    seek_in_group,
)
from trimtab.policies.peers.mind import (
    BELGACEM,
    CHENG,
    DEEPRM,
    GHASEMI,
    ISLAM,
    NOWHERE,
    RJOUB,
    RLSCHEDULER,
    Mind,
    Tape,
    choose,
    keep_place,
    remember,
    take_back,
    write,
)
from trimtab.policies.peers.nets import lstm, mlp
from trimtab.rules import bits
from trimtab.rules.fit import (
    book_quotas,
    fits,
    forget_freed,
    hopeless,
    is_refused,
    refuse_like,
    request_left,
    within,
)
from trimtab.rules.greedy import find_most_freed, fits_freed, lower_least, try_start, undo
from trimtab.rules.nodes.choose import book_instance
from trimtab.rules.place import CALM
from trimtab.rules.plan import begin_pass, line_up
from trimtab.rules.world import World
from trimtab.sim.kernel import advance
from trimtab.sim.loop import ALARM, DONE, GROW, MORE, apply_plan, has_room

MOST_WIDE = 128  # numbers a row has at most
PATIENCE_S = 60.0  # a job that has waited so long is put off no more


@inner
def plan_peer(
    peer: int, place: int, mind: Mind, tape: Tape, w: World, c: int, line: Array, words: Array,
    heads: Array,
) -> None:  # fmt: skip
    """Decide one pass; the world is as before when it returns, and its entries say what starts.

    What the last pass left waiting because it fits nowhere is looked at again only where room was
    made since.
    """
    head = w.head[c]
    keep_place(mind, tape)
    narrow = head.settled == 1
    head.calm = 0
    if narrow and head.freed == 0 and head.fresh == 0:
        head.starts = head.stops = head.full = 0
        return
    begin_pass(w, c)
    if narrow:
        if not find_most_freed(w, c) and head.fresh == 0:
            forget_freed(w, c)
            return
    else:
        for r in range(w.least.shape[1]):
            w.least[c, r] = np.inf
    if peer in (DEEPRM, RLSCHEDULER):
        declined = order_pass(peer, place, mind, tape, narrow, w, c, line, words, heads)
    else:
        declined = place_pass(peer, mind, tape, narrow, w, c, line, words, heads)
    undo(w, c)
    forget_freed(w, c)
    head.fresh = 0
    plain = w.gate.shape[1] == 0 and w.quota_cap.shape[1] == 0
    head.settled = 1 if plain and not declined and w.conf[0].halt == 0 else 0


@inner
def may_fit(narrow: bool, w: World, c: int, job: int) -> bool:
    """Whether it is worth while to look at nodes for the job."""
    if is_refused(w, c, job) or hopeless(w, c, job):
        return False
    return not narrow or fits_freed(w, c, job) or is_fresh(w, c, job)


@inner
def is_fresh(w: World, c: int, job: int) -> bool:
    for i in range(w.head[c].fresh):
        if w.fresh[c, i] == job:
            return True
    return False


@inner
def is_gang(w: World, c: int, job: int) -> bool:
    return w.jobs[c, job].gang == 1 and w.state[c, job].left > 1


@inner
def count_waiting(w: World, c: int, words: Array, heads: Array) -> int:
    count = 0
    rank = bits.next_from(words, heads, c, 0)
    while rank >= 0:
        count += 1
        rank = bits.next_from(words, heads, c, rank + 1)
    return count


@inner
def may_wait(w: World, c: int, job: int) -> bool:
    """Whether a job that fits may be put off: not for ever, nor where nothing runs that will end,
    for then nothing may ever happen.
    """
    if w.head[c].now_s - w.state[c, job].queued_s >= PATIENCE_S:
        return False
    if w.head[c].starts > 0:
        return True
    for run in range(w.runs.shape[1]):
        other = w.runs[c, run].job
        if other >= 0 and np.isfinite(w.jobs[c, other].request_s):
            return True
    return False


# order choosers


@inner
def order_pass(
    peer: int, place: int, mind: Mind, tape: Tape, narrow: bool, w: World, c: int, line: Array,
    words: Array, heads: Array,
) -> bool:  # fmt: skip
    """Start the job that is chosen of the first in line that fit, until none does or it moves on.

    Returns whether some job that fits was left.
    """
    most = deeprm.JOBS if peer == DEEPRM else rlscheduler.WINDOW
    features = deeprm.FEATURES + deeprm.JOBS if peer == DEEPRM else rlscheduler.FEATURES
    jobs, score = np.empty(most, np.int64), np.empty(most + 1)
    rows = np.zeros((1 if peer == DEEPRM else most, features))
    held, lendable = np.zeros((deeprm.SLOTS, w.free.shape[2])), np.zeros(w.free.shape[2])
    waiting = drawn = count = 0
    rank = bits.next_from(words, heads, c, 0)
    while w.conf[0].halt == 0 and w.head[c].full == 0:
        known = count
        while count < most and rank >= 0:
            job = line[c, rank]
            if may_fit(narrow, w, c, job):
                if has_place(w, c, job):
                    jobs[count] = job
                    count += 1
                else:
                    refuse_like(w, c, job)
            lower_least(w, c, job)
            rank = bits.next_from(words, heads, c, rank + 1)
        if count == 0:
            return False
        if peer == DEEPRM:
            if drawn == 0:
                waiting = count_waiting(w, c, words, heads)
                deeprm.image(w, c, held, lendable)
                drawn = 1
            at = ask_deeprm(mind, tape, w, c, jobs, count, waiting, held, lendable, rows, score)
            if at == count:
                return True
        else:
            for i in range(known, count):
                rlscheduler.describe(w, c, jobs[i], rows[i])
                score[i] = mlp(mind.theta, 0, mind.sizes, rows[i])[0]
            at = choose(mind, score, count)
            write(mind, tape, rows, count, at, jobs[at], w.head[c].now_s)
        job, starts = jobs[at], w.head[c].starts
        try_start(place, mind.seed, w, c, job)
        if peer == DEEPRM:
            begun = w.head[c].starts - starts
            deeprm.hold(w, c, job, begun, request_left(w, c, job), held)
        count = drop_unfit(w, c, jobs, count, at, rows, score, peer == RLSCHEDULER)
    return True


@inner
def has_place(w: World, c: int, job: int) -> bool:
    for node in range(w.head[c].nodes):
        if fits(w, c, node, job, 0):
            return True
    return False


@inner
def drop_unfit(
    w: World, c: int, jobs: Array, count: int, gone: int, rows: Array, score: Array, scored: bool
) -> int:
    """Close the ranks: without the job that has started, and what fits no longer."""
    kept = 0
    for i in range(count):
        if i == gone or is_refused(w, c, jobs[i]):
            continue
        if not has_place(w, c, jobs[i]):
            refuse_like(w, c, jobs[i])
            continue
        jobs[kept] = jobs[i]
        if scored:
            score[kept] = score[i]
            rows[kept] = rows[i]
        kept += 1
    return kept


@inner
def ask_deeprm(
    mind: Mind, tape: Tape, w: World, c: int, jobs: Array, count: int, waiting: int, held: Array,
    lendable: Array, rows: Array, score: Array,
) -> int:  # fmt: skip
    """The slot to start, or `count` to move on, which may be no choice."""
    deeprm.describe(w, c, jobs, count, waiting, held, lendable, rows[0])
    free = True
    for slot in range(count):
        free = free and may_wait(w, c, jobs[slot])
    out = mlp(mind.theta, 0, mind.sizes, rows[0, : deeprm.FEATURES])
    for slot in range(count):
        score[slot] = out[slot]
    score[count] = out[deeprm.JOBS] if free else NOWHERE
    at = choose(mind, score, count + 1)
    act = deeprm.JOBS if at == count else at
    job = -1 if at == count else jobs[at]
    if free:
        write(mind, tape, rows, 1, act, job, w.head[c].now_s)
    return at


# node choosers


@inner
def place_pass(
    peer: int, mind: Mind, tape: Tape, narrow: bool, w: World, c: int, line: Array, words: Array,
    heads: Array,
) -> bool:  # fmt: skip
    """Offer every job in line that may fit. Returns whether some job that fits was left."""
    count = count_groups(w)
    g, value, score = np.zeros((count, STATS)), np.zeros(count), np.zeros(count + 1)
    best, which = np.zeros(count, np.int64), np.zeros(count + 1, np.int64)
    rows = np.zeros((count + 1, MOST_WIDE))
    waiting, declined = 0, False
    rank = bits.next_from(words, heads, c, 0)
    while rank >= 0 and w.conf[0].halt == 0 and w.head[c].full == 0:
        job = line[c, rank]
        if may_fit(narrow, w, c, job):
            if waiting == 0:
                waiting = count_waiting(w, c, words, heads)
                lay_groups(w, c, g)
            if is_gang(w, c, job):
                try_start(CALM, mind.seed, w, c, job)
                lay_groups(w, c, g)
            elif place_instances(
                peer, mind, tape, w, c, job, waiting, g, best, value, which, rows, score
            ):
                declined = True
        lower_least(w, c, job)
        rank = bits.next_from(words, heads, c, rank + 1)
    return declined


@inner
def place_instances(
    peer: int, mind: Mind, tape: Tape, w: World, c: int, job: int, waiting: int, g: Array,
    best: Array, value: Array, which: Array, rows: Array, score: Array,
) -> bool:  # fmt: skip
    """Place the job's instances one by one; True where it was decided to let the rest wait."""
    left = within(w, c, job, 0, w.state[c, job].left)
    room = find_best(w, c, job, best, value) if left > 0 else 0
    while left > 0 and room > 0:
        if w.head[c].starts >= w.entry.shape[1]:
            w.head[c].full = 1
            return False
        count = 0
        for i in range(g.shape[0]):
            if best[i] >= 0:
                which[count] = i
                count += 1
        some = best[which[0]]
        waits = peer in (ISLAM, BELGACEM) and may_wait(w, c, job)
        if peer == RJOUB:
            step = np.empty(rjoub.INPUTS)
            rjoub.step(w, c, job, g, waiting, step)
            remember(mind, step)
        for k in range(count):
            i = which[k]
            describe(peer, w, c, job, g, i, best[i], value[i], waiting, rows[k])
        if waits:
            wait_row(peer, w, c, job, g, some, waiting, rows, count)
        total = count + 1 if waits else count
        score_rows(peer, mind, rows, count, total, score)
        at = choose(mind, score, total)
        write(mind, tape, rows, total, at, job, w.head[c].now_s)
        if at == count:
            return True
        i, node = which[at], best[which[at]]
        add_node(w, c, node, g, -1.0)
        book_instance(w, c, node, job, 0, w.head[c].starts)
        book_quotas(w, c, job, 0, 1, 1)
        w.head[c].starts += 1
        add_node(w, c, node, g, 1.0)
        left -= 1
        if left > 0 and not seek_in_group(w, c, job, i, best, value):
            room -= 1
    if left > 0:
        refuse_like(w, c, job)
    return False


@inner
def describe(
    peer: int, w: World, c: int, job: int, g: Array, i: int, node: int, best: float, waiting: int,
    row: Array,
) -> None:  # fmt: skip
    if peer == CHENG:
        cheng.describe(w, c, job, g, i, node, best, row)
    elif peer == RJOUB:
        rjoub.describe(w, c, job, g, i, node, best, row)
    elif peer == ISLAM:
        islam.describe(w, c, job, g, i, node, best, waiting, row)
    elif peer == BELGACEM:
        belgacem.describe(w, c, job, g, i, node, best, row)
    elif peer == GHASEMI:
        ghasemi.describe(w, c, job, g, i, node, best, row)


@inner
def wait_row(
    peer: int, w: World, c: int, job: int, g: Array, node: int, waiting: int, rows: Array, at: int
) -> None:
    """The row of waiting, behind those of the groups."""
    if peer == ISLAM:
        islam.describe_wait(w, c, job, g, node, waiting, rows[at])
    else:  # the refusal of the agent that is asked first
        rows[at, 0] = rows[at, 1] = rows[0, 1]


@inner
def score_rows(peer: int, mind: Mind, rows: Array, count: int, total: int, score: Array) -> None:
    """What each row is worth; those behind `count` are rows of waiting."""
    theta, sizes = mind.theta, mind.sizes
    if peer == BELGACEM:
        for k in range(count):
            score[k] = belgacem.score(theta, rows[k])
        if total > count:
            score[count] = -1e9  # where every agent refuses
    elif peer == GHASEMI:
        for k in range(total):
            score[k] = theta[int(rows[k, 0])]
    elif peer == RJOUB:
        x = np.empty(rjoub.UNITS + rjoub.FEATURES)
        x[: rjoub.UNITS] = lstm(theta, 0, rjoub.UNITS, mind.memory[0])
        at = (rjoub.INPUTS + rjoub.UNITS + 1) * 4 * rjoub.UNITS
        for k in range(total):
            x[rjoub.UNITS :] = rows[k, : rjoub.FEATURES]
            score[k] = mlp(theta, at, sizes, x)[0]
    else:
        for k in range(total):
            score[k] = mlp(theta, 0, sizes, rows[k, : sizes[0]])[0]


# whole traces and snapshots


@compiled
def run_peer(w: World, c: int, peer: int, place: int, mind: Mind, tape: Tape, limit: int) -> int:
    """Run at most `limit` instants, as `sim.loop.run_rule` does."""
    for _ in range(limit):
        if w.conf[0].halt == 1:
            return MORE
        plan_peer(peer, place, mind, tape, w, c, w.line, w.words, w.heads)
        if not has_room(w, c):
            w.head[c].calm = w.head[c].settled = 0
            take_back(mind, tape)
            return GROW
        apply_plan(w, c)
        alarm_s = w.head[c].alarm_s
        if not advance(w, c):
            return DONE
        if alarm_s <= w.head[c].now_s:
            return ALARM
    return MORE


@compiled
def decide_peer(
    w: World, peer: int, order: int, place: int, mind: Mind, tape: Tape, waiting: int
) -> None:
    """One pass over a world of one cluster whose queue is in World.queue."""
    line_up(order, w, 0, w.head[0].now_s, waiting)
    plan_peer(peer, place, mind, tape, w, 0, w.turn, w.turn_words, w.turn_heads)
    if w.head[0].full == 1:
        take_back(mind, tape)
