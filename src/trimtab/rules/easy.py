"""EASY backfilling: what starts behind a blocked head without delaying it."""

import numpy as np

from trimtab.compiled import inner
from trimtab.rules import bits
from trimtab.rules.fit import (
    GRACE_S,
    book_quotas,
    expected_end,
    hopeless,
    is_refused,
    next_edge,
    refuse_like,
    request_left,
    slots,
    take,
    within,
)
from trimtab.rules.nodes.choose import place_job, rate_on
from trimtab.rules.order import DRF
from trimtab.rules.place import eligible
from trimtab.rules.sort import heap_up, pop


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
    while rank >= 0 and w.conf[0].halt == 0:
        job = line[c, rank]
        passed = rank == head or (order == DRF and planned(w, c, job))
        if not passed and not is_refused(w, c, job):
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
    left = within(w, c, job, 0, w.state[c, job].left)
    step = left if w.jobs[c, job].gang == 1 else 1
    while left > 0:
        at = head.starts
        if hopeless(w, c, job) or place_job(place, w, c, job, 0, step, False, seed, at) == 0:
            refuse_like(w, c, job)
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
            head.later_s = head.shadow_s
            for i in range(at, at + step):
                after += occupy(place, w, c, job, blocked, head.need, i, 1)
            if after < head.need:
                for i in range(at, at + step):
                    occupy(place, w, c, job, blocked, head.need, i, -1)
            head.later_s = 0.0
            if after < head.need:
                rebook(w, c, job, at, step, -1)
                return
            head.room = after
        head.starts += step
        book_quotas(w, c, job, 0, step, 1)
        left -= step


@inner
def rebook(w, c, job, at, count, sign):
    """Book entries at .. at + count once more (sign 1), or give them back (sign -1)."""
    for i in range(at, at + count):
        node, mask = w.entry[c, i].node, w.entry[c, i].devices
        take(w, c, node, job, 0, sign, mask, w.free, w.gpu_free, w.gpu_mem)


@inner
def occupy(place, w, c, job, blocked, need, i, count):
    """Take or give back an entry at the shadow time; returns how the head's room there changes."""
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
    for node in range(w.nodes.shape[1]):
        for r in range(w.free.shape[2]):
            w.later_free[c, node, r] = w.free[c, node, r]
        for d in range(w.gpu_free.shape[2]):
            w.later_gpu_free[c, node, d] = w.gpu_free[c, node, d]
            w.later_gpu_mem[c, node, d] = w.gpu_mem[c, node, d]
    room = head_room(place, w, c, blocked, need)
    most = w.runs.shape[1] + w.head[c].starts
    ends, which, turn = np.empty(most), np.empty(most, np.int64), np.empty(most, np.int64)
    count = expected_ends(w, c, now_s, ends, which)
    for i in range(count):
        ends[i] = -ends[i]  # the earliest first, and no more of them in order than are needed
    heap_up(ends, turn, count)
    if w.gate.shape[1] > 0:
        return shadow_by_gates(place, w, c, now_s, blocked, need, ends, which, turn, count)
    while count > 0:
        time_s = -ends[turn[0]]
        while count > 0 and -ends[turn[0]] == time_s:
            room += end_at_shadow(place, w, c, which[pop(ends, turn, count)], blocked, need)
            count -= 1
        if room >= need:
            return time_s, room
    return np.inf, room


@inner
def head_room(place, w, c, blocked, need):
    """How many instances of the head fit in the scratch at the time that is looked at."""
    room = 0
    for node in range(w.nodes.shape[1]):
        room += head_slots(place, w, c, node, blocked, need)
    return room


@inner
def shadow_by_gates(place, w, c, now_s, blocked, need, ends, which, turn, count):
    """The same where nodes open and close meanwhile: every end and every edge is looked at anew."""
    head = w.head[c]
    edge_s = next_edge(w, c, now_s)
    room = 0
    while count > 0 or edge_s < np.inf:
        time_s = min(-ends[turn[0]] if count > 0 else np.inf, edge_s)
        while count > 0 and -ends[turn[0]] == time_s:
            end_at_shadow(place, w, c, which[pop(ends, turn, count)], blocked, need)
            count -= 1
        head.later_s = time_s
        room = head_room(place, w, c, blocked, need)
        head.later_s = 0.0
        if room >= need:
            return time_s, room
        edge_s = next_edge(w, c, time_s)
    return np.inf, room


@inner
def expected_ends(w, c, now_s, ends, which):
    """Write expected ends and whose they are: runs by number, this pass's starts by -1 - entry."""
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
