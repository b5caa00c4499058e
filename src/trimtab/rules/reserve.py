"""Conservative backfilling: each job in line gets the earliest start that delays none before it."""

import numpy as np

from trimtab.compiled import inner
from trimtab.rules import bits
from trimtab.rules.fit import (
    GRACE_S,
    amount,
    book_quotas,
    expected_end,
    next_edge,
    request_left,
    take,
    within,
)
from trimtab.rules.nodes.choose import place_job, rate_on
from trimtab.rules.place import eligible
from trimtab.rules.sort import sort_turn

HOLD = np.dtype(
    [
        ("from_s", "f8"),
        ("to_s", "f8"),
        ("job", "i8"),
        ("shape", "i8"),
        ("node", "i8"),
        ("count", "i8"),
        ("devices", "u8"),
        ("next", "i8"),  # on the same node
    ]
)


@inner
def reserve(place, seed, w, c, now_s, line, words, heads):
    """Walk the line, reserve for each job and start those whose reservation is now.

    A job whose request cannot be met by what is up and expected to end gets none, and delays
    nobody; nor does one that a quota holds back now.
    """
    most = w.pieces.shape[1]
    rank = bits.next_from(words, heads, c, 0)
    while rank >= 0:
        most += w.state[c, line[c, rank]].left
        rank = bits.next_from(words, heads, c, rank + 1)
    hold = np.empty(most, HOLD)
    first = np.empty(w.nodes.shape[1], np.int64)
    for node in range(w.nodes.shape[1]):
        first[node] = -1
    holds = 0
    for run in range(w.runs.shape[1]):
        if w.runs[c, run].job < 0:
            continue
        end_s = expected_end(w, c, run, now_s)
        piece = w.runs[c, run].piece
        while piece >= 0:
            rec = w.pieces[c, piece]
            job, shape = w.runs[c, run].job, w.runs[c, run].shape
            holds = add(
                hold, first, holds, -np.inf, end_s, job, shape, rec.node, rec.count, rec.devices
            )
            piece = rec.next
    lent = lent_now(w, c, hold, first)
    rank = bits.next_from(words, heads, c, 0)
    while rank >= 0 and w.conf[0].halt == 0:
        job = line[c, rank]
        step = w.state[c, job].left if w.jobs[c, job].gang == 1 else 1
        for _ in range(w.state[c, job].left // step):
            if within(w, c, job, 0, step) < step:
                break
            at = w.head[c].starts
            start_s = earliest(place, seed, w, c, now_s, job, step, hold, first, holds, lent)
            if start_s == np.inf:
                break
            run_s = w.conf[0].startup_s + request_left(w, c, job) / rate_on(w, c, job, 0, at, step)
            run_s = max(run_s, GRACE_S)
            for i in range(at, at + step):
                node, mask = w.entry[c, i].node, w.entry[c, i].devices
                holds = add(hold, first, holds, start_s, start_s + run_s, job, 0, node, 1, mask)
                if start_s == now_s:
                    take(w, c, node, job, 0, 1, mask, w.free, w.gpu_free, w.gpu_mem)
            if start_s == now_s:
                w.head[c].starts += step
                book_quotas(w, c, job, 0, step, 1)
        rank = bits.next_from(words, heads, c, rank + 1)


@inner
def add(hold, first, holds, from_s, to_s, job, shape, node, count, devices):
    hold[holds].from_s = from_s
    hold[holds].to_s = to_s
    hold[holds].job = job
    hold[holds].shape = shape
    hold[holds].node = node
    hold[holds].count = count
    hold[holds].devices = devices
    hold[holds].next = first[node]
    first[node] = holds
    return holds + 1


@inner
def lent_now(w, c, hold, first):
    """(N,) of the driving resource, beyond what runs leave: what services reserve, do not use and
    so lend, less what a limit keeps. It is taken to stay as it is. No rows where nobody lends.
    """
    nodes = w.nodes.shape[1] if w.limit.shape[1] > 0 else 0
    lent = np.empty(nodes)
    for node in range(nodes):
        driver = w.nodes[c, node].driver
        lent[node] = w.free[c, node, driver] - w.capacity[c, node, driver]
        h = first[node]
        while h >= 0:
            held = amount(w.demand[c, hold[h].job, driver], w.scale[hold[h].shape])
            lent[node] += hold[h].count * held
            h = hold[h].next
    return lent


@inner
def earliest(place, seed, w, c, now_s, job, step, hold, first, holds, lent):
    """The first instant the job could run undisturbed to its expected end; places it there."""
    count = holds + 1 + 2 * w.gate.shape[1]
    times, turn = np.empty(count), np.empty(count, np.int64)
    times[0] = now_s
    for h in range(holds):
        times[h + 1] = max(hold[h].to_s, now_s)
    edge_s = now_s
    for i in range(holds + 1, count):
        edge_s = next_edge(w, c, edge_s)
        times[i] = edge_s
    sort_turn(times, turn, count)
    copy_amounts(w, c, True)
    found = np.inf
    for i in range(count):
        if w.conf[0].halt == 1:
            break
        time_s = times[turn[i]]
        if i > 0 and time_s == times[turn[i - 1]]:
            continue
        if time_s == np.inf:
            break
        if placed_at(place, seed, w, c, time_s, job, step, hold, first, lent):
            found = time_s
            break
    w.head[c].later_s = 0.0
    copy_amounts(w, c, False)
    return found


@inner
def placed_at(place, seed, w, c, time_s, job, step, hold, first, lent):
    """Whether the job finds places then that stay free until its expected end on them."""
    w.head[c].later_s = time_s
    least_s = 0.0  # a gang is as slow as its slowest node and worst link: known once it is placed
    while True:
        for node in range(w.nodes.shape[1]):
            if w.conf[0].halt == 1:
                return False
            if eligible(place, w, c, node, job, 0):
                rate = w.rate[w.jobs[c, job].kind, w.nodes[c, node].kind, 0]
                run_s = w.conf[0].startup_s + request_left(w, c, job) / rate
                span_s = max(run_s, least_s, GRACE_S)
                free_throughout(w, c, node, time_s, time_s + span_s, hold, first, lent)
        if place_job(place, w, c, job, 0, step, False, seed, w.head[c].starts) < step:
            return False
        rate = rate_on(w, c, job, 0, w.head[c].starts, step)
        run_s = w.conf[0].startup_s + request_left(w, c, job) / rate
        if step == 1 or run_s <= least_s or one_speed(w, c, job, w.head[c].starts, step, rate):
            return True
        least_s = run_s


@inner
def one_speed(w, c, job, at, count, rate):
    """Whether every node in entries at .. at + count alone would run the job at this rate."""
    for i in range(at, at + count):
        if w.rate[w.jobs[c, job].kind, w.nodes[c, w.entry[c, i].node].kind, 0] != rate:
            return False
    return True


@inner
def copy_amounts(w, c, save):
    """Save the free amounts aside, or bring them back."""
    for node in range(w.nodes.shape[1]):
        for r in range(w.free.shape[2]):
            if save:
                w.later_free[c, node, r] = w.free[c, node, r]
            else:
                w.free[c, node, r] = w.later_free[c, node, r]
        for d in range(w.gpu_free.shape[2]):
            if save:
                w.later_gpu_free[c, node, d] = w.gpu_free[c, node, d]
                w.later_gpu_mem[c, node, d] = w.gpu_mem[c, node, d]
            else:
                w.gpu_free[c, node, d] = w.later_gpu_free[c, node, d]
                w.gpu_mem[c, node, d] = w.later_gpu_mem[c, node, d]


@inner
def free_throughout(w, c, node, from_s, to_s, hold, first, lent):
    """Write to the w the amounts of a node that stay free from `from_s` to `to_s`."""
    resources, devices = w.free.shape[2], w.nodes[c, node].gpus
    for r in range(resources):
        w.free[c, node, r] = np.inf
    for d in range(devices):
        w.gpu_free[c, node, d] = np.inf
        w.gpu_mem[c, node, d] = np.inf
    mark = first[node]
    at_s = from_s  # usage can peak only here and where a hold begins inside the span
    while w.conf[0].halt == 0:  # holds by holds, which may be tens of thousands
        free_at(w, c, node, at_s, hold, first, lent)
        while mark >= 0 and not (from_s < hold[mark].from_s < to_s):
            mark = hold[mark].next
        if mark < 0:
            return
        at_s = hold[mark].from_s
        mark = hold[mark].next


@inner
def free_at(w, c, node, at_s, hold, first, lent):
    """Lower the node's amounts in the w to what is free at one instant."""
    resources, devices = w.free.shape[2], w.nodes[c, node].gpus
    free = np.empty(resources)
    for r in range(resources):
        free[r] = w.capacity[c, node, r]
    if lent.shape[0] > 0:
        free[w.nodes[c, node].driver] += lent[node]
    share, mem = np.empty(devices), np.empty(devices)
    for d in range(devices):
        share[d] = 1.0
        mem[d] = w.nodes[c, node].gpu_mem_gb
    h = first[node]
    while h >= 0:
        rec = hold[h]
        if rec.from_s <= at_s < rec.to_s:
            for r in range(resources):
                free[r] -= rec.count * amount(w.demand[c, rec.job, r], w.scale[rec.shape])
            for d in range(devices):
                if (rec.devices >> np.uint64(d)) & np.uint64(1) != np.uint64(0):
                    share[d] -= rec.count * w.jobs[c, rec.job].gpu_share
                    mem[d] -= rec.count * w.jobs[c, rec.job].gpu_mem_gb
        h = rec.next
    for r in range(resources):
        w.free[c, node, r] = min(w.free[c, node, r], free[r])
    for d in range(devices):
        w.gpu_free[c, node, d] = min(w.gpu_free[c, node, d], share[d])
        w.gpu_mem[c, node, d] = min(w.gpu_mem[c, node, d], mem[d])
