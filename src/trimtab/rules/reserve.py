"""Conservative backfilling: every job in line gets the earliest start that delays none before it."""

import numpy as np

from trimtab.rules import bits
from trimtab.rules.fit import expected_end, request_left, take
from trimtab.rules.place import could_host, eligible, place_job, rate_on
from trimtab.rules.world import compiled

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


@compiled
def reserve(place, seed, w, c, now_s, line, words, heads):
    """Walk the line, reserve for each job and start those whose reservation is now.

    A job whose request cannot be met by what is up and expected to end gets none, and delays nobody.
    """
    most = w.pieces.shape[1]
    rank = bits.next_from(words, heads, c, 0)
    while rank >= 0:
        most += w.state[c, line[c, rank]].left
        rank = bits.next_from(words, heads, c, rank + 1)
    hold = np.empty(most, HOLD)
    first = np.full(w.nodes.shape[1], -1)
    holds = 0
    for run in range(w.runs.shape[1]):
        if w.runs[c, run].job < 0:
            continue
        end_s = expected_end(w, c, run, now_s)
        piece = w.runs[c, run].piece
        while piece >= 0:
            rec = w.pieces[c, piece]
            job, shape = w.runs[c, run].job, w.runs[c, run].shape
            holds = add(hold, first, holds, -np.inf, end_s, job, shape, rec.node, rec.count, rec.devices)
            piece = rec.next
    rank = bits.next_from(words, heads, c, 0)
    while rank >= 0:
        job = line[c, rank]
        step = w.state[c, job].left if w.jobs[c, job].gang == 1 else 1
        for _ in range(w.state[c, job].left // step):
            at = w.head[c].starts
            start_s = earliest(place, seed, w, c, now_s, job, step, hold, first, holds)
            if start_s == np.inf:
                break
            run_s = w.conf[0].startup_s + request_left(w, c, job) / rate_on(w, c, job, 0, at, step)
            for i in range(at, at + step):
                node, mask = w.entry[c, i].node, w.entry[c, i].devices
                holds = add(hold, first, holds, start_s, start_s + run_s, job, 0, node, 1, mask)
                if start_s == now_s:
                    take(w, c, node, job, 0, 1, mask, w.free, w.gpu_free, w.gpu_mem)
            if start_s == now_s:
                w.head[c].starts += step
        rank = bits.next_from(words, heads, c, rank + 1)


@compiled
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


@compiled
def earliest(place, seed, w, c, now_s, job, step, hold, first, holds):
    """The first instant at which the job could run undisturbed to its expected end; places it there."""
    times = np.empty(holds + 1)
    times[0] = now_s
    for h in range(holds):
        times[h + 1] = max(hold[h].to_s, now_s)
    times = np.unique(times)
    for amounts, saved in ((w.free, w.later_free), (w.gpu_free, w.later_gpu_free), (w.gpu_mem, w.later_gpu_mem)):
        saved[c] = amounts[c]
    slowest = np.inf
    for node in range(w.nodes.shape[1]):
        if could_host(w, c, node, job, 0):
            slowest = min(slowest, w.rate[w.jobs[c, job].kind, w.nodes[c, node].kind, 0])
    found = np.inf
    for time_s in times:
        for node in range(w.nodes.shape[1]):
            if eligible(place, w, c, node, job, 0):
                rate = w.rate[w.jobs[c, job].kind, w.nodes[c, node].kind, 0] if step == 1 else slowest
                run_s = w.conf[0].startup_s + request_left(w, c, job) / rate
                free_throughout(w, c, node, time_s, time_s + run_s, hold, first)
        if place_job(place, w, c, job, 0, step, False, seed, w.head[c].starts) == step:
            found = time_s
            break
    for amounts, saved in ((w.free, w.later_free), (w.gpu_free, w.later_gpu_free), (w.gpu_mem, w.later_gpu_mem)):
        amounts[c] = saved[c]
    return found


@compiled
def free_throughout(w, c, node, from_s, to_s, hold, first):
    """Write to the w the amounts of a node that stay free from `from_s` to `to_s`."""
    resources, devices = w.free.shape[2], w.nodes[c, node].gpus
    for r in range(resources):
        w.free[c, node, r] = np.inf
    for d in range(devices):
        w.gpu_free[c, node, d] = np.inf
        w.gpu_mem[c, node, d] = np.inf
    mark = first[node]
    at_s = from_s  # usage can peak only here and where a hold begins inside the span
    while True:
        free_at(w, c, node, at_s, hold, first)
        while mark >= 0 and not (from_s < hold[mark].from_s < to_s):
            mark = hold[mark].next
        if mark < 0:
            return
        at_s = hold[mark].from_s
        mark = hold[mark].next


@compiled
def free_at(w, c, node, at_s, hold, first):
    """Lower the node's amounts in the w to what is free at one instant."""
    resources, devices = w.free.shape[2], w.nodes[c, node].gpus
    free = w.capacity[c, node].copy()
    share = np.ones(devices)
    mem = np.full(devices, w.nodes[c, node].gpu_mem_gb)
    h = first[node]
    while h >= 0:
        rec = hold[h]
        if rec.from_s <= at_s < rec.to_s:
            for r in range(resources):
                free[r] -= rec.count * (w.demand[c, rec.job, r] * w.scale[rec.shape])
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
