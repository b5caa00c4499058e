"""An index of many nodes: the best for a job without a look at each, the same as a scan finds.

Nodes of one kind, capacity and region make a bucket. The score of a node there is its ease at the
job's horizon and what the bucket adds for the job, so the order of a bucket's nodes hangs on no
job, but for a rest that has a known bound. A tree a bucket and horizon has the largest ease of
every part of it, and beside it the most that a node there has free of each resource: parts that
cannot hold the job, or hold nothing better than what was found, are passed over. What changes on a
node is noted (`fit.touch`), and a tree takes it in when it is next asked.
"""

from __future__ import annotations

import numpy as np

from trimtab.arrays import Array
from trimtab.compiled import inner
from trimtab.rules import bits
from trimtab.rules.fit import (
    amount,
    closed,
    fits,
    has_amounts,
    horizon_now,
    kept_ahead,
    runs_on,
    slots,
)
from trimtab.rules.names import PLACES
from trimtab.rules.place import NOWHERE, bonus, ease, eligible, rest, score
from trimtab.rules.world import BUCKET, World

BLOCK = 8  # nodes of a leaf
LEAST = 256  # nodes: a scan of fewer costs less
MEAN = 16  # nodes a bucket, at least
LOOKS = 100_000  # at a node by scans: fewer cost less than to make an index
NOTED = 0.25  # changes a node: where there are more, trees are made anew
KEYED = (PLACES["calm"], PLACES["swift"], PLACES["worker"])


def index_of(
    nodes: Array, capacity: Array, horizons: int, place: int, jobs: float = np.inf
) -> dict[str, Array]:
    """The arrays of an index of these nodes (N,) for a place, from which so many jobs are to be
    placed; none where scans cost less.
    """
    count, resources = capacity.shape
    if place not in KEYED or count < LEAST or jobs * count < LOOKS:
        return {}
    table = np.column_stack((nodes["region"], nodes["kind"], nodes["driver"], capacity))
    _, bucket, size = np.unique(table, axis=0, return_inverse=True, return_counts=True)
    if count < MEAN * len(size):
        return {}
    made = np.zeros(len(size), BUCKET)
    made["count"] = size
    made["first"] = np.cumsum(size) - size
    made["leaves"] = [1 << (-(-int(many) // BLOCK) - 1).bit_length() for many in size]
    rows = 2 * made["leaves"]
    made["base"] = np.cumsum(rows) - rows
    order = np.argsort(bucket.ravel(), kind="stable")
    at = np.empty(count, np.int64)
    at[order] = np.arange(count)
    trees = max(horizons, 1)
    return {
        "bucket": made[None],
        "bucket_node": order[None],
        "bucket_at": at[None],
        "bucket_of": bucket.reshape(1, -1).astype(np.int64),
        "tree": np.full((1, trees, int(rows.sum()) * (resources + 1)), -np.inf),
        "tree_seen": np.full((1, trees), -1),
        "tree_path": np.zeros((1, 128), np.int64),
        "touched": np.zeros((1, int(NOTED * count) + 1), np.int64),
    }


def indexed(world: World, place: int) -> World:
    """The world of one cluster with an index for the place, where that pays."""
    arrays = index_of(world.nodes[0], world.capacity[0], len(world.horizon), place)
    world.head["indexed"] = place
    return world.replaced(**arrays) if arrays else world


@inner
def is_indexed(place: int, w: World, c: int, job: int) -> bool:
    """Whether the index has the nodes in this place's order, and knows all that the job asks."""
    return w.tree.shape[2] > 0 and w.head[c].indexed == place and w.jobs[c, job].gpus == 0


@inner
def sum_up(place: int, w: World, c: int, h: int, b: int, leaf: int) -> None:
    """Write the row of a leaf: the largest ease of its nodes, the most free of each resource."""
    rec, width = w.bucket[c, b], w.free.shape[2] + 1
    row = (rec.base + rec.leaves + leaf) * width
    for k in range(width):
        w.tree[c, h, row + k] = NOWHERE
    first = rec.first + leaf * BLOCK
    for i in range(first, min(first + BLOCK, rec.first + rec.count)):
        node = w.bucket_node[c, i]
        if w.node_state[c, node].up == 1:
            w.tree[c, h, row] = max(w.tree[c, h, row], ease(place, w, c, node, h))
            for r in range(width - 1):
                room = w.free[c, node, r]
                if r == w.nodes[c, node].driver:
                    room -= kept_ahead(w, c, node, h)
                w.tree[c, h, row + 1 + r] = max(w.tree[c, h, row + 1 + r], room)


@inner
def combine(w: World, c: int, h: int, base: int, i: int) -> bool:
    """Write the row of an inner node of a tree; whether that changes it."""
    width = w.free.shape[2] + 1
    row, left = (base + i) * width, (base + 2 * i) * width
    changes = False
    for k in range(width):
        most = max(w.tree[c, h, left + k], w.tree[c, h, left + width + k])
        changes |= most != w.tree[c, h, row + k]
        w.tree[c, h, row + k] = most
    return changes


@inner
def take_in(place: int, w: World, c: int, h: int) -> None:
    """Bring the trees of a horizon up to date."""
    touches, seen, ring = w.head[c].touches, w.tree_seen[c, h], w.touched.shape[1]
    if seen == touches:
        return
    w.tree_seen[c, h] = touches
    if seen < 0 or touches - seen > ring:
        for b in range(w.bucket.shape[1]):
            rec = w.bucket[c, b]
            for leaf in range((rec.count + BLOCK - 1) // BLOCK):
                sum_up(place, w, c, h, b, leaf)
            for i in range(rec.leaves - 1, 0, -1):
                combine(w, c, h, rec.base, i)
        return
    last = -1
    for t in range(seen, touches):
        node = w.touched[c, t % ring]
        if node == last:
            continue
        last = node
        b = w.bucket_of[c, node]
        rec = w.bucket[c, b]
        leaf = (w.bucket_at[c, node] - rec.first) // BLOCK
        sum_up(place, w, c, h, b, leaf)
        i = (rec.leaves + leaf) >> 1
        while i > 0 and combine(w, c, h, rec.base, i):
            i >>= 1


@inner
def may_hold(w: World, c: int, h: int, at: int, job: int, shape: int) -> bool:
    """Whether a part of a tree may have a node with room for one instance."""
    row = at * (w.free.shape[2] + 1) + 1
    for r in range(w.free.shape[2]):
        wants = amount(w.demand[c, job, r], w.scale[shape])
        if wants > 0.0 and w.tree[c, h, row + r] < wants:
            return False
    return True


@inner
def best_of(
    freed: bool, alone: bool, place: int, w: World, c: int, job: int, shape: int, seed: int
) -> int:
    """The best node for one instance, of a job that wants no more if `alone`, or -1."""
    h, width = horizon_now(w, c, job), w.free.shape[2] + 1
    take_in(place, w, c, h)
    first, most = -1, NOWHERE
    for b in range(w.bucket.shape[1]):
        bound = promise(place, w, c, h, b, job, shape)
        if bound > most:
            first, most = b, bound
    best, value = -1, NOWHERE
    for turn in range(w.bucket.shape[1] if first >= 0 else 0):
        b = first if turn == 0 else turn - (turn <= first)  # the most promising, then the others
        if turn > 0 and promise(place, w, c, h, b, job, shape) < value:
            continue
        rec = w.bucket[c, b]
        node = w.bucket_node[c, rec.first]
        more, beside = bonus(place, w, c, node, job, shape), rest(place, w, c, node)
        path, depth = w.tree_path, 1
        path[c, 0] = 1
        while depth > 0:
            depth -= 1
            i = path[c, depth]
            bound = w.tree[c, h, (rec.base + i) * width] + more + beside
            if bound < value or not may_hold(w, c, h, rec.base + i, job, shape):
                continue
            if bound == value and first_node(w, c, b, i) > best:
                continue
            if i < rec.leaves:
                # the better half first, the left one of two alike
                right = (
                    w.tree[c, h, (rec.base + 2 * i + 1) * width]
                    > w.tree[c, h, (rec.base + 2 * i) * width]
                )
                path[c, depth] = 2 * i + (not right)
                path[c, depth + 1] = 2 * i + right
                depth += 2
                continue
            start = rec.first + (i - rec.leaves) * BLOCK
            for k in range(start, min(start + BLOCK, rec.first + rec.count)):
                node = w.bucket_node[c, k]
                if freed and not bits.has(w.freed_words, c, node):
                    continue
                if not hosts(alone, place, w, c, node, job, shape):
                    continue
                worth = score(place, w, c, node, job, shape, seed)
                if worth > value or (worth == value and node < best):
                    best, value = node, worth
    return best


@inner
def promise(place: int, w: World, c: int, h: int, b: int, job: int, shape: int) -> float:
    """No less than the score of the bucket's best node for the job; NOWHERE if it holds none."""
    rec = w.bucket[c, b]
    node = w.bucket_node[c, rec.first]
    if not runs_on(w, c, node, job, shape) or not may_hold(w, c, h, rec.base + 1, job, shape):
        return NOWHERE
    if w.gate.shape[1] > 0 and closed(w, c, node, job, shape):
        return NOWHERE
    root = (rec.base + 1) * (w.free.shape[2] + 1)
    return w.tree[c, h, root] + bonus(place, w, c, node, job, shape) + rest(place, w, c, node)


@inner
def first_node(w: World, c: int, b: int, i: int) -> int:
    """The lowest number under inner node or leaf i of a bucket's tree."""
    leaves = w.bucket[c, b].leaves
    while i < leaves:
        i *= 2
    return w.bucket_node[c, w.bucket[c, b].first + (i - leaves) * BLOCK]


@inner
def hosts(alone: bool, place: int, w: World, c: int, node: int, job: int, shape: int) -> bool:
    """Whether one instance fits there, as the scan asks it."""
    if alone:
        return fits(w, c, node, job, shape) and eligible(place, w, c, node, job, shape)
    if not has_amounts(w, c, node, job, shape) or not eligible(place, w, c, node, job, shape):
        return False
    return slots(w, c, node, job, shape, w.free, w.gpu_free, w.gpu_mem, 1) > 0
