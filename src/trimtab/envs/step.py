"""One step of an environment, compiled: apply the action, advance to the next choice, write what is
seen.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from trimtab.codecs.grid import write_nodes, write_pairs
from trimtab.codecs.queue import can_start, place_choice, write_rows
from trimtab.core import TOTALS
from trimtab.rules import bits
from trimtab.rules.place import mixed
from trimtab.rules.world import compiled, inner, world_at
from trimtab.sim.kernel import advance, reset, start

QUEUE, GRID = 0, 1
GOING, ENDED, STUCK = 0, 1, 2
REWARDS = tuple(TOTALS.names or ())  # what a reward may weigh


@inner
def worth(w, c, weight):
    """Weights . running totals, in the order of REWARDS."""
    t = w.totals[c]
    real = (
        weight[0] * t.time_s + weight[1] * t.waiting_s + weight[2] * t.system_s + weight[3] *
        t.busy_s
        + weight[4] * t.idle_s + weight[5] * t.imbalance_s + weight[6] * t.contended_s + weight[7] * t.held_s
        + weight[8] * t.energy_j + weight[9] * t.work_s + weight[10] * t.lost_s + weight[11] * t.quality
    )  # fmt: skip
    whole = (
        weight[12] * t.submitted + weight[13] * t.started + weight[14] * t.finished + weight[15] *
        t.stopped
        + weight[16] * t.failed + weight[17] * t.rejected + weight[18] * t.refused + weight[19] * t.late
    )  # fmt: skip
    return real + whole


@inner
def first_waiting(w, c, most):
    """Write the oldest waiting jobs to World.queue; returns how many."""
    count = 0
    rank = bits.next_from(w.words, w.heads, c, 0)
    while rank >= 0 and count < most:
        w.queue[c, count] = w.line[c, rank]
        count += 1
        rank = bits.next_from(w.words, w.heads, c, rank + 1)
    return count


@inner
def to_choice(w, c, place, window):
    """Advance until a job in the window may start: GOING, or ENDED or STUCK where none ever
    will.
    """
    while True:
        waiting = first_waiting(w, c, window)
        for i in range(waiting):
            if can_start(w, c, w.queue[c, i], place):
                return GOING
        if not advance(w, c):
            return ENDED if w.head[c].batch_left == 0 else STUCK


@inner
def show(w, c, codec, place, rows, cells, speed, legal, may, shown):
    """Write the observation and the mask."""
    before = shown[c]
    waiting = first_waiting(w, c, rows.shape[1])
    if codec == QUEUE:
        shown[c], _ = write_rows(w, c, place, waiting, before, rows, legal)
    else:
        shown[c], _ = write_rows(w, c, place, waiting, before, rows, may)
        write_nodes(w, c, cells)
        write_pairs(w, c, shown[c], before, rows, speed, legal)
    legal[c, legal.shape[1] - 1] = 1


@inner
def act(w, c, codec, place, seed, action, rows, legal):
    """Start what the action stands for; True if it was a start and was accepted."""
    if action < 0 or action >= legal.shape[1] - 1 or legal[c, action] == 0:
        return False
    nodes = w.nodes.shape[1]
    i = action if codec == QUEUE else action // nodes
    node = -1 if codec == QUEUE else action % nodes
    job = w.queue[c, i]
    count = place_choice(w, c, job, node, place, seed)
    return count > 0 and start(w, c, job, 0, 0, count) == 0


@inner
def step_one(
    w, c, codec, place, seed, weight, action, rows, cells, speed, legal, may, shown, reward
):
    """One action of one cluster; writes reward and what is seen next. GOING, ENDED or STUCK."""
    before = worth(w, c, weight)
    over = GOING
    if not act(w, c, codec, place, seed, action, rows, legal):
        if action != legal.shape[1] - 1:
            w.totals[c].refused += 1
        if not advance(w, c):
            over = ENDED if w.head[c].batch_left == 0 else STUCK
    if over == GOING:
        over = to_choice(w, c, place, rows.shape[1])
    reward[c] = worth(w, c, weight) - before
    return over


@inner
def load(w, c, source, first, count):
    """Copy rows first .. first + count of the source to cluster c, from time 0 on, and begin
    there.
    """
    begin_s = source.jobs[0, first].submit_s
    edges = 0
    cancels = 0
    for j in range(count):
        w.jobs[c, j] = source.jobs[0, first + j]
        w.truth[c, j] = source.truth[0, first + j]
        w.jobs[c, j].submit_s -= begin_s
        w.jobs[c, j].deadline_s -= begin_s
        w.truth[c, j].cancel_s -= begin_s
        for r in range(w.demand.shape[2]):
            w.demand[c, j, r] = source.demand[0, first + j, r]
        w.child_ptr[c, j] = edges
        for k in range(source.child_ptr[0, first + j], source.child_ptr[0, first + j + 1]):
            child = source.child_idx[0, k] - first
            if 0 <= child < count:
                w.child_idx[c, edges] = child
                edges += 1
        if w.truth[c, j].cancel_s < np.inf:
            k = cancels
            while k > 0 and w.truth[c, w.cancel[c, k - 1]].cancel_s > w.truth[c, j].cancel_s:
                w.cancel[c, k] = w.cancel[c, k - 1]
                k -= 1
            w.cancel[c, k] = j
            cancels += 1
    w.child_ptr[c, count] = edges
    for k in range(cancels, w.cancel.shape[1]):
        w.cancel[c, k] = -1
    w.head[c].jobs = count
    reset(w, c)


@inner
def begin(w, c, source, first, count, codec, place, rows, cells, speed, legal, may, shown):
    load(w, c, source, first, count)
    to_choice(w, c, place, rows.shape[1])
    show(w, c, codec, place, rows, cells, speed, legal, may, shown)


@compiled
def reset_single(
    address, source, first, count, codec, place, rows, cells, speed, legal, may, shown
):
    begin(
        world_at(address),
        0,
        world_at(source),
        first,
        count,
        codec,
        place,
        rows,
        cells,
        speed,
        legal,
        may,
        shown,
    )


@compiled
def step_single(
    address, codec, place, seed, weight, action, rows, cells, speed, legal, may, shown, reward
):
    w = world_at(address)
    over = step_one(
        w, 0, codec, place, seed, weight, action, rows, cells, speed, legal, may, shown, reward
    )
    show(w, 0, codec, place, rows, cells, speed, legal, may, shown)
    return over


@inner
def drawn(seed, c, episode, most):
    """The first row of an episode: a hash of seed, cluster and episode, the same in any order of
    stepping.
    """
    return min(int(mixed(seed, c, episode) * most), most - 1)


@compiled(parallel=True)
def reset_batch(
    address,
    source,
    count,
    most,
    seed,
    first,
    episode,
    codec,
    place,
    rows,
    cells,
    speed,
    legal,
    may,
    shown,
):
    for c in prange(rows.shape[0]):
        w = world_at(address)
        episode[c] = 0
        first[c] = drawn(seed, c, 0, most)
        begin(
            w,
            c,
            world_at(source),
            first[c],
            count,
            codec,
            place,
            rows,
            cells,
            speed,
            legal,
            may,
            shown,
        )


@compiled(parallel=True)
def step_batch(
    address, source, count, most, seed, first, episode, codec, place, weight, action,
    rows, cells, speed, legal, may, shown, reward, over,
):  # fmt: skip
    for c in prange(rows.shape[0]):
        w = world_at(address)
        over[c] = step_one(
            w,
            c,
            codec,
            place,
            seed,
            weight,
            action[c],
            rows,
            cells,
            speed,
            legal,
            may,
            shown,
            reward,
        )
        if over[c] == GOING:
            show(w, c, codec, place, rows, cells, speed, legal, may, shown)
        else:
            episode[c] += 1
            first[c] = drawn(seed, c, episode[c], most)
            begin(
                w,
                c,
                world_at(source),
                first[c],
                count,
                codec,
                place,
                rows,
                cells,
                speed,
                legal,
                may,
                shown,
            )
