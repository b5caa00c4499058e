"""Episodes on the event kernel: one compiled call acts, advances and writes what is seen next.

An episode is a window of consecutive jobs of a workload on its cluster, submit times counted from
the first job's. Services that are pinned to their nodes are in every episode, and its times are
those of the workload then, by which their use changes. The single, the batched and the regional
env all step it through the functions here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import literal_unroll, prange, types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from trimtab.codecs.grid import encode_grid, mask_grid, place_led
from trimtab.codecs.queue import (
    encode_rows,
    mask_queue,
    place_now,
)
from trimtab.columns import TOTALS
from trimtab.compiled import compiled, inner
from trimtab.rules import bits
from trimtab.rules.place import mixed
from trimtab.rules.world import world_at
from trimtab.sim import kernel
from trimtab.sim.choice import OK, start
from trimtab.sim.kernel import advance

TOTAL_NAMES = tuple(TOTALS.names or ())
QUEUE, GRID = 0, 1  # codecs, as compiled code knows them
EPISODE = np.dtype(
    [
        ("score", "f8"),  # weights . totals so far: the sum of the episode's rewards
        ("reward", "f8"),  # of the last step
        ("start", "i8"),  # row of the workload that is job 0
        ("number", "i8"),  # episodes begun
        ("steps", "i8"),
        ("refused", "i8"),
        ("rows", "i8"),  # of the queue window that are not empty
        ("done", "i8"),
    ]
)
SETTINGS = np.dtype(
    [
        ("world", "i8"),  # address of the World of all clusters
        ("source", "i8"),  # address of the World that holds the whole workload
        ("codec", "i8"),
        ("window", "i8"),
        ("place", "i8"),
        ("seed", "i8"),  # of the place rule
        ("draw", "i8"),  # seed of the windows drawn
        ("first", "i8"),  # row of the first of them
        ("windows", "i8"),  # how many there are
        ("fixed", "i8"),  # rows that every episode begins with: pinned services
    ]
)


@intrinsic
def touch(typing_context: Any, array: Any, place: Any, byte: Any) -> Any:
    """Ask for the cache line `byte` bytes behind an array's place, numbered in memory order."""

    def ask(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = make_array(signature.args[0])(context, builder, args[0]).data
        at = builder.gep(builder.bitcast(builder.gep(data, [args[1]]), byte_pointer), [args[2]])
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte_pointer, number, number, number])
        prefetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(prefetch, [at, number(0), number(3), number(1)])
        return context.get_dummy_value()

    byte_pointer = ir.IntType(8).as_pointer()
    return types.void(array, types.int64, types.int64), ask


@inner
def weighed(w, c, weights):
    """weights . totals, in the order of core.TOTALS."""
    score = 0.0
    i = 0  # numba unrolls the names, but cannot count them
    for name in literal_unroll(TOTAL_NAMES):
        score += weights[i] * w.totals[c][name]
        i += 1  # noqa: SIM113
    return score


@inner
def load_window(w, c, source, first, fixed):
    """Copy the `fixed` rows that every episode has, and rows from `first` on, into cluster c.

    Times are counted from the first one's submission; where there are fixed rows, as they are.
    """
    zero_s = source.jobs[0, first].submit_s if fixed == 0 else 0.0
    shift = first - fixed
    edges = cancels = members = 0
    for g in range(w.gate.shape[1]):
        w.gate[c, g].from_s = source.gate[0, g].from_s - zero_s
        w.gate[c, g].to_s = source.gate[0, g].to_s - zero_s
    for job in range(w.head[c].jobs):
        row = shift + job if job >= fixed else job
        w.jobs[c, job] = source.jobs[0, row]
        w.jobs[c, job].submit_s -= zero_s
        w.jobs[c, job].deadline_s -= zero_s
        w.truth[c, job] = source.truth[0, row]
        w.truth[c, job].cancel_s -= zero_s
        for r in range(w.demand.shape[2]):
            w.demand[c, job, r] = source.demand[0, row, r]
        if w.gate.shape[1] > 0:
            w.reserved[c, job] = source.reserved[0, row]
        if w.quota_cap.shape[1] > 0:
            w.quota_nodes[c, job] = source.quota_nodes[0, row]
            for i in range(source.quota_ptr[0, row], source.quota_ptr[0, row + 1]):
                w.quota_idx[c, members] = source.quota_idx[0, i]
                members += 1
            w.quota_ptr[c, job + 1] = members
        w.child_ptr[c, job] = edges
        for i in range(source.child_ptr[0, row], source.child_ptr[0, row + 1]):
            child = source.child_idx[0, i] - shift
            if fixed <= child < w.head[c].jobs:
                w.child_idx[c, edges] = child
                edges += 1
        if w.truth[c, job].cancel_s < np.inf:
            i = cancels
            while i > 0 and w.truth[c, w.cancel[c, i - 1]].cancel_s > w.truth[c, job].cancel_s:
                w.cancel[c, i] = w.cancel[c, i - 1]
                i -= 1
            w.cancel[c, i] = job
            cancels += 1
    w.child_ptr[c, w.head[c].jobs] = edges
    for i in range(cancels, w.cancel.shape[1]):
        w.cancel[c, i] = -1


@inner
def line_window(w, c, window, kept):
    """Write the first waiting jobs to World.queue, of which the first `kept` stand there.

    Returns how many stand there then.
    """
    most = min(w.head[c].waiting, window)
    if kept >= most:
        return most
    rank = w.rank[c, w.queue[c, kept - 1]] + 1 if kept > 0 else 0
    i = rank >> 6
    word = (
        w.words[c, i] & (bits.ALL << (np.uint64(rank) & bits.LOW))
        if i < w.words.shape[1]
        else bits.ZERO
    )
    rows = kept
    while True:
        while word != bits.ZERO:
            w.queue[c, rows] = w.line[c, (i << 6) + bits.lowest(word)]
            word &= word - bits.ONE
            rows += 1
            if rows == most:
                return most
        i += 1
        if i >= w.words.shape[1]:
            return rows  # the others back off after an eviction
        word = w.words[c, i]


@inner
def settle(w, c, on, episode, weights, table, total, mask, fits_now, out):
    """Advance to the next instant at which some job can start, or to the end, and show it."""
    head = w.head[c]
    first, before, skip = episode[c].start - on.fixed, episode[c].rows, 0
    while True:
        rows = line_window(w, c, on.window, skip)
        if on.codec == GRID:
            startable = mask_grid(w, c, rows, on.window, mask, before)
        else:
            place = on.place
            startable = mask_queue(w, c, rows, on.window, place, table, first, mask, skip, before)
        before = rows
        done = head.batch_left == 0
        if done or startable > 0:
            break
        runs, outage, cancel = head.heap, head.outage, head.cancel
        if not advance(w, c):
            done = True  # jobs are left that can never run: their nodes failed for good
            break
        # where jobs only arrived, those that could not start still cannot
        skip = rows if head.heap == runs and head.outage == outage and head.cancel == cancel else 0
        if w.gate.shape[1] > 0 or w.conf[0].lends == 1:
            skip = 0  # a gate may have ended, or services use less
    if on.codec == GRID:
        encode_grid(
            w, c, rows, on.window, table, first, total, mask, fits_now, out, episode[c].rows
        )
    else:
        encode_rows(w, c, rows, table, first, total, mask, out, 0, episode[c].rows)
    score = weighed(w, c, weights)
    episode[c].reward = score - episode[c].score
    episode[c].score = score
    episode[c].rows = rows
    episode[c].done = done


@inner
def begin(w, c, source, on, first, episode, weights, table, total, mask, fits_now, out):
    """Start an episode at a row of the workload and show its first decision."""
    load_window(w, c, source, first, on.fixed)
    kernel.reset(w, c)
    episode[c].start = first
    episode[c].number += 1
    episode[c].steps = episode[c].refused = 0
    settle(w, c, on, episode, weights, table, total, mask, fits_now, out)
    episode[c].score = 0.0  # what happens before the first decision is paid with its reward


@inner
def do_start(w, c, on, action):
    """Start what the action means. False if that is nothing."""
    if on.codec == GRID:
        nodes = w.nodes.shape[1]
        job = w.queue[c, action // nodes]
        placed = place_led(w, c, job, action % nodes, on.place, on.seed)
    else:
        job = w.queue[c, action]
        placed = place_now(w, c, job, on.place, on.seed)
    return placed > 0 and start(w, c, job, 0, 0, placed) == OK


@inner
def act(w, c, on, action, episode, mask):
    """Start a job, or wait for the next instant. What the mask forbids is refused, and waits.

    Where nothing would ever happen again, waiting starts the first job that can: episodes always
    end.
    """
    wait = mask.shape[1] - 1
    episode[c].steps += 1
    legal = 0 <= action <= wait and mask[c, action] != 0
    if not legal:
        episode[c].refused += 1
    if legal and action < wait:
        if do_start(w, c, on, action):
            return
        episode[c].refused += 1
    if not advance(w, c):
        for other in range(wait):
            if mask[c, other] != 0:
                do_start(w, c, on, other)
                return


@compiled
def begin_one(settings, c, first, episode, weights, table, total, mask, fits_now, out):
    on = settings[0]
    w, source = world_at(on.world), world_at(on.source)
    begin(w, c, source, on, first, episode, weights, table, total, mask, fits_now, out)


@compiled
def step_one(settings, action, episode, weights, table, total, mask, fits_now, out):
    """One step of cluster 0."""
    on = settings[0]
    w = world_at(on.world)
    act(w, 0, on, action, episode, mask)
    settle(w, 0, on, episode, weights, table, total, mask, fits_now, out)
    return episode[0].reward, episode[0].done != 0


@inner
def draw_window(on, c, number):
    """The row where a cluster's next episode begins: by seed, the same on any number of threads."""
    return on.first + int(mixed(on.draw, c, number) * on.windows)


@inner
def step_cluster(
    settings, c, action, episode, weights, table, total, mask, fits_now, out, reward, done, final,
    ended, totals,
):  # fmt: skip
    """Step one cluster of many; an episode that ends is followed by the next at once.

    What it ended with goes to `final`, `ended` and `totals`.
    """
    on = settings[0]
    w = world_at(on.world)
    act(w, c, on, action, episode, mask)
    settle(w, c, on, episode, weights, table, total, mask, fits_now, out)
    reward[c] = episode[c].reward
    done[c] = episode[c].done != 0
    if done[c]:
        for k in range(out.shape[1]):
            final[c, k] = out[c, k]
        ended[c] = episode[c]
        totals[c] = w.totals[c]
        first = draw_window(on, c, episode[c].number)
        source = world_at(on.source)
        begin(w, c, source, on, first, episode, weights, table, total, mask, fits_now, out)


@inner
def warm(w, c, stage, action, episode, mask, out):
    """Ask for what a step of cluster c reads first: thousands of clusters do not fit in the cache.

    The second stage follows what the first one brought.
    """
    jobs, runs = w.jobs.shape[1], w.runs.shape[1]
    if stage == 1:
        for line in range(0, 320, 64):
            touch(w.head, c, line)
        for line in range(0, 192, 64):
            touch(w.totals, c, line)
            touch(w.queue, c * jobs, line)
        touch(episode, c, 0)
        touch(w.node_state, c * w.nodes.shape[1], 0)
        touch(w.node_state, c * w.nodes.shape[1], 64)
        touch(w.nodes, c * w.nodes.shape[1], 0)
        touch(w.free, c * w.nodes.shape[1] * w.free.shape[2], 0)
        touch(w.capacity, c * w.nodes.shape[1] * w.free.shape[2], 0)
        touch(w.words, c * w.words.shape[1], 0)
        touch(w.heap, c * runs, 0)
        touch(w.heap, c * runs, 64)
        touch(w.entry, c * w.entry.shape[1], 0)
        touch(mask, c * mask.shape[1], 0)
        for line in range(0, 512, 64):
            touch(out, c * out.shape[1], line)
        return
    head = w.head[c]
    touch(w.runs, c * runs + head.free_run, 0)
    touch(w.runs, c * runs + head.free_run, 64)
    touch(w.pieces, c * w.pieces.shape[1] + head.free_piece, 0)
    if head.heap > 0:
        touch(w.runs, c * runs + w.heap[c, 0], 0)
        touch(w.runs, c * runs + w.heap[c, 0], 64)
    for i in range(1, min(head.heap, 5)):
        touch(w.runs, c * runs + w.heap[c, i], 0)
    for i in range(min(episode[c].rows, 16)):
        touch(w.state, c * jobs + w.queue[c, i], 0)
    if 0 <= action < episode[c].rows:
        job = c * jobs + w.queue[c, action]
        touch(w.state, job, 64)
        touch(w.jobs, job, 0)
        touch(w.jobs, job, 64)
        touch(w.truth, job, 0)
        touch(w.demand, job * w.demand.shape[2], 0)
    if head.submitted < head.jobs:
        touch(w.jobs, c * jobs + head.submitted, 0)
        touch(w.state, c * jobs + head.submitted, 0)
        touch(w.state, c * jobs + head.submitted, 64)
        touch(w.truth, c * jobs + head.submitted, 0)
        touch(w.demand, (c * jobs + head.submitted) * w.demand.shape[2], 0)


@compiled(parallel=True)
def step_all(
    settings, actions, episode, weights, table, total, mask, fits_now, out, reward, done, final,
    ended, totals,
):  # fmt: skip
    """One step of every cluster, in parallel."""
    for c in prange(actions.shape[0]):
        if c + 2 < actions.shape[0]:
            warm(world_at(settings[0].world), c + 2, 1, 0, episode, mask, out)
            warm(world_at(settings[0].world), c + 1, 2, actions[c + 1], episode, mask, out)
        step_cluster(
            settings, c, actions[c], episode, weights, table, total, mask, fits_now, out,
            reward, done, final, ended, totals,
        )  # fmt: skip


@compiled(parallel=True)
def begin_all(settings, firsts, episode, weights, table, total, mask, fits_now, out):
    """Begin an episode in every cluster, at the given rows; -1 draws one."""
    for c in prange(firsts.shape[0]):
        on = settings[0]
        first = firsts[c] if firsts[c] >= 0 else draw_window(on, c, episode[c].number)
        w, source = world_at(on.world), world_at(on.source)
        begin(w, c, source, on, first, episode, weights, table, total, mask, fits_now, out)
