"""One scheduling pass: order x backfill x place, from what a w holds to a list of starts and stops.

Semantics, named `easy`. Jobs start from the head of the queue while they fit; the first that does
not is
the blocked head. *EASY*: running jobs are expected to end at start + request, but never earlier
than a
second from now; the shadow time is the first at which the head fits, counting all that end at that
very
time; a later job starts if it fits now and either ends by the shadow time or leaves the head room
there.
*Conservative*: every job in order gets the earliest reservation that delays none before it.
An array counts instance by instance: it starts as many as fit, and blocks with the rest.
"""

import numpy as np

from trimtab.compiled import compiled, inner
from trimtab.rules import bits
from trimtab.rules.fit import GRACE_S, expected_end, request_left, slots, take
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
from trimtab.rules.place import eligible, place_job, rate_on
from trimtab.rules.reserve import reserve
from trimtab.rules.sort import heap_up, pop, sort_turn

EASY = BACKFILLS["easy"]


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
    undo(w, c)
    w.head[c].blocked = head
    w.head[c].fresh = 0
    w.head[c].calm = 0
    if head >= 0 and (w.head[c].starts == before or w.head[c].nodes == 1):
        w.head[c].calm = 1


@inner
def plan_arrivals(backfill, place, seed, w, c, now_s, rank):
    """The same pass where only jobs arrived since the last one and its head still blocks; False if
    not.

    What was refused stays refused: nothing was freed, the time to the shadow only shrinks, and each
    would choose the same nodes again. That holds while no run counted there is late, which is while
    the shadow is at least a grace away, and as long as nothing starts where there are nodes to
    choose from.
    """
    head = w.head[c]
    if head.calm == 0:
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
            if w.refused[c, w.jobs[c, job].like] != head.pass_no:
                fill_one(place, seed, w, c, now_s, job, blocked)
        undo(w, c)
    if head.starts > 0 and head.nodes > 1:
        return False  # who comes behind may now choose other nodes, and so fit
    head.fresh = 0
    return True


@inner
def sort_fresh(w, c, rank):
    """Arrivals in queue order, by insertion: there are few."""
    for i in range(1, w.head[c].fresh):
        job = w.fresh[c, i]
        j = i
        while j > 0 and rank[c, w.fresh[c, j - 1]] > rank[c, job]:
            w.fresh[c, j] = w.fresh[c, j - 1]
            j -= 1
        w.fresh[c, j] = job


@inner
def plan_conservative(place, seed, w, c, now_s, line, words, heads):
    """The same for conservative backfilling, apart so that who does not use it does not
    compile it.
    """
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
def find_most(w, c):
    """The most that any node has free of anything: who asks for more need not ask node by node.

    Starts only lower it, so it holds for the rest of a pass; whatever frees places must find it
    anew.
    """
    head = w.head[c]
    for r in range(w.free.shape[2]):
        w.most[c, r] = 0.0
    head.most_whole, head.most_share = 0, 0.0
    for node in range(w.nodes.shape[1]):
        if w.node_state[c, node].up == 0:
            continue
        for r in range(w.free.shape[2]):
            w.most[c, r] = max(w.most[c, r], w.free[c, node, r])
        whole = 0
        for d in range(w.nodes[c, node].gpus):
            head.most_share = max(head.most_share, w.gpu_free[c, node, d])
            if w.gpu_free[c, node, d] == 1.0:
                whole += 1
        head.most_whole = max(head.most_whole, whole)


@inner
def hopeless(w, c, job):
    """Whether no node has enough free of some one thing for an instance."""
    rec, head = w.jobs[c, job], w.head[c]
    for r in range(w.most.shape[1]):
        if w.demand[c, job, r] > w.most[c, r]:
            return True
    if rec.gpus == 0:
        return False
    return rec.gpu_share > head.most_share or (rec.gpu_share == 1.0 and rec.gpus > head.most_whole)


@inner
def undo(w, c):
    """Give back what the pass booked: applying its decisions books it for good."""
    for i in range(w.head[c].starts - 1, -1, -1):
        job, node, mask = w.entry[c, i].job, w.entry[c, i].node, w.entry[c, i].devices
        take(w, c, node, job, 0, -1, mask, w.free, w.gpu_free, w.gpu_mem)
    for i in range(w.head[c].stops - 1, -1, -1):
        release(w, c, w.stop[c, i], -1, w.free, w.gpu_free, w.gpu_mem)


@inner
def try_start(place, seed, w, c, job):
    """Book as much of the job as may start now; True when nothing of it is left to start."""
    at = w.head[c].starts
    left = w.state[c, job].left
    i = at - 1
    while i >= 0 and w.entry[c, i].job == job:  # an array, booked in part before
        left -= 1
        i -= 1
    placed = 0
    if not hopeless(w, c, job):
        placed = place_job(place, w, c, job, 0, left, w.jobs[c, job].gang == 0, seed, at)
    w.head[c].starts += placed
    if placed < left:
        w.refused[c, w.jobs[c, job].like] = w.head[c].pass_no
    return placed == left


@inner
def start_from_head(order, place, seed, w, c, line, words, heads):
    """Start jobs in line while they fit. Returns the rank of the one that blocks, or -1."""
    rank = bits.next_from(words, heads, c, 0)
    if order == DRF:
        return start_fairly(place, seed, w, c, line, words, heads)
    while rank >= 0:
        if not try_start(place, seed, w, c, line[c, rank]):
            return rank
        rank = bits.next_from(words, heads, c, rank + 1)
    return -1


@inner
def start_fairly(place, seed, w, c, line, words, heads):
    """DRF: after each start the tenant's share grows, so the next job is chosen anew."""
    tenant_shares(w, c)
    begun = np.zeros(line.shape[1], np.bool_)
    while True:
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
        job = line[c, best]
        if not try_start(place, seed, w, c, job):
            return best
        begun[best] = True
        add_share(w, c, job, w.state[c, job].left)


@inner
def release(w, c, run, sign, free, gpu_free, gpu_mem):
    """Give a run's places back to the given amounts (sign 1), or take them again (sign -1)."""
    piece = w.runs[c, run].piece
    job, shape = w.runs[c, run].job, w.runs[c, run].shape
    while piece >= 0:
        rec = w.pieces[c, piece]
        take(w, c, rec.node, job, shape, -sign * rec.count, rec.devices, free, gpu_free, gpu_mem)
        piece = rec.next


@inner
def preempt(order, place, seed, w, c, now_s, line, words, heads, head):
    """Stop runs of jobs that come strictly later in the order, worst first, while that starts the
    head.

    Returns the rank of the job that still blocks, or -1.
    """
    keys = np.empty(w.runs.shape[1])
    for run in range(len(keys)):
        job = w.runs[c, run].job
        keys[run] = -np.inf
        if job >= 0 and w.state[c, job].left == 0:
            keys[run] = dynamic_key(order, w, c, job, now_s)
    while head >= 0:
        job = line[c, head]
        begun, useful = make_way(order, place, seed, w, c, now_s, job, keys)
        if not begun:
            for i in range(w.head[c].stops - 1, useful - 1, -1):
                release(w, c, w.stop[c, i], -1, w.free, w.gpu_free, w.gpu_mem)
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
            release(w, c, run, 1, w.free, w.gpu_free, w.gpu_mem)
            run = w.runs[c, run].sibling
        find_most(w, c)
        starts = w.head[c].starts
        begun = try_start(place, seed, w, c, job)
        if w.head[c].starts > starts:
            useful = w.head[c].stops  # if only to a part of an array
        if begun:
            return True, useful


@inner
def fill(order, place, seed, w, c, now_s, line, words, heads, head):
    """EASY: start later jobs that do not delay the blocked head."""
    blocked = line[c, head]
    left = w.state[c, blocked].left
    for i in range(w.head[c].starts):
        if w.entry[c, i].job == blocked:
            left -= 1
    w.head[c].need = left if w.jobs[c, blocked].gang == 1 else 1
    w.head[c].known = 0
    # by DRF jobs have started past the head and some before it have not
    rank = bits.next_from(words, heads, c, 0 if order == DRF else head + 1)
    while rank >= 0:
        job = line[c, rank]
        passed = rank == head or (order == DRF and planned(w, c, job))
        if not passed and w.refused[c, w.jobs[c, job].like] != w.head[c].pass_no:
            fill_one(place, seed, w, c, now_s, job, blocked)
        rank = bits.next_from(words, heads, c, rank + 1)


@inner
def planned(w, c, job):
    for i in range(w.head[c].starts):
        if w.entry[c, i].job == job:
            return True
    return False


@inner
def fill_one(place, seed, w, c, now_s, job, blocked):
    """Start what of the job harms the head in no way."""
    head = w.head[c]
    left = w.state[c, job].left
    step = left if w.jobs[c, job].gang == 1 else 1
    while left > 0:
        at = head.starts
        if hopeless(w, c, job) or place_job(place, w, c, job, 0, step, False, seed, at) == 0:
            w.refused[c, w.jobs[c, job].like] = head.pass_no
            return
        if head.known == 0:
            # as it is without this job, which is the first that fits behind the head
            rebook(w, c, job, at, step, -1)
            head.shadow_s, head.room = shadow(place, w, c, now_s, blocked, head.need)
            head.known = 1
            rebook(w, c, job, at, step, 1)
        run_s = w.conf[0].startup_s + request_left(w, c, job) / rate_on(w, c, job, 0, at, step)
        if now_s + run_s > head.shadow_s:
            after = head.room
            for i in range(at, at + step):
                after += occupy(place, w, c, job, blocked, head.need, i, 1)
            if after < head.need:
                for i in range(at, at + step):
                    occupy(place, w, c, job, blocked, head.need, i, -1)
                rebook(w, c, job, at, step, -1)
                return
            head.room = after
        head.starts += step
        left -= step


@inner
def rebook(w, c, job, at, count, sign):
    """Book entries at .. at + count once more (sign 1), or give them back (sign -1)."""
    for i in range(at, at + count):
        node, mask = w.entry[c, i].node, w.entry[c, i].devices
        take(w, c, node, job, 0, sign, mask, w.free, w.gpu_free, w.gpu_mem)


@inner
def occupy(place, w, c, job, blocked, need, i, count):
    """Take (or give back) one entry at the shadow time; returns how the head's room there
    changes.
    """
    node, mask = w.entry[c, i].node, w.entry[c, i].devices
    before = head_slots(place, w, c, node, blocked, need)
    take(w, c, node, job, 0, count, mask, w.later_free, w.later_gpu_free, w.later_gpu_mem)
    return head_slots(place, w, c, node, blocked, need) - before


@inner
def head_slots(place, w, c, node, blocked, need):
    if not eligible(place, w, c, node, blocked, 0):
        return 0
    return slots(w, c, node, blocked, 0, w.later_free, w.later_gpu_free, w.later_gpu_mem, need)


@inner
def shadow(place, w, c, now_s, blocked, need):
    """When the head fits if all goes as requested, and how many of its instances fit there.

    Leaves the amounts that are free at that time in the scratch.
    """
    room = 0
    for node in range(w.nodes.shape[1]):
        for r in range(w.free.shape[2]):
            w.later_free[c, node, r] = w.free[c, node, r]
        for d in range(w.gpu_free.shape[2]):
            w.later_gpu_free[c, node, d] = w.gpu_free[c, node, d]
            w.later_gpu_mem[c, node, d] = w.gpu_mem[c, node, d]
    for node in range(w.nodes.shape[1]):
        room += head_slots(place, w, c, node, blocked, need)
    most = w.runs.shape[1] + w.head[c].starts
    ends, which, turn = np.empty(most), np.empty(most, np.int64), np.empty(most, np.int64)
    count = expected_ends(w, c, now_s, ends, which)
    for i in range(count):
        ends[i] = -ends[i]  # the earliest first, and no more of them in order than are needed
    heap_up(ends, turn, count)
    while count > 0:
        time_s = -ends[turn[0]]
        while count > 0 and -ends[turn[0]] == time_s:
            room += end_at_shadow(place, w, c, which[pop(ends, turn, count)], blocked, need)
            count -= 1
        if room >= need:
            return time_s, room
    return np.inf, room


@inner
def expected_ends(w, c, now_s, ends, which):
    """Write expected ends and whose they are: runs by number, this pass's own starts by -1 -
    entry.
    """
    count = 0
    for run in range(w.runs.shape[1]):
        if w.runs[c, run].job >= 0 and not is_stopped(w, c, run):
            ends[count] = expected_end(w, c, run, now_s)
            which[count] = run
            count += 1
    i = 0
    while i < w.head[c].starts:
        job = w.entry[c, i].job
        stop = i + 1
        if w.jobs[c, job].gang == 1:
            stop = i + w.state[c, job].left
        run_s = w.conf[0].startup_s + request_left(w, c, job) / rate_on(w, c, job, 0, i, stop - i)
        while i < stop:
            ends[count] = now_s + max(run_s, GRACE_S)
            which[count] = -1 - i
            count += 1
            i += 1
    return count


@inner
def is_stopped(w, c, run):
    for i in range(w.head[c].stops):
        if w.stop[c, i] == run:
            return True
    return False


@inner
def end_at_shadow(place, w, c, which, blocked, need):
    """Free what ends; returns how many more instances of the head fit."""
    gained = 0
    if which < 0:
        return occupy(place, w, c, w.entry[c, -1 - which].job, blocked, need, -1 - which, -1)
    piece = w.runs[c, which].piece
    job, shape = w.runs[c, which].job, w.runs[c, which].shape
    while piece >= 0:
        rec = w.pieces[c, piece]
        gained -= head_slots(place, w, c, rec.node, blocked, need)
        take(
            w,
            c,
            rec.node,
            job,
            shape,
            -rec.count,
            rec.devices,
            w.later_free,
            w.later_gpu_free,
            w.later_gpu_mem,
        )
        gained += head_slots(place, w, c, rec.node, blocked, need)
        piece = rec.next
    return gained


@compiled
def decide(w, order, backfill, place, seed, waiting):
    """One pass of a rule over a world of one cluster whose queue is in World.queue."""
    line_up(order, w, 0, w.head[0].now_s, waiting)
    plan(order, backfill, place, seed, w, 0, w.head[0].now_s, w.turn, w.turn_words, w.turn_heads)


@compiled
def decide_conservative(w, order, place, seed, waiting):
    line_up(order, w, 0, w.head[0].now_s, waiting)
    plan_conservative(place, seed, w, 0, w.head[0].now_s, w.turn, w.turn_words, w.turn_heads)
