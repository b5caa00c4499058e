"""The queue of the pool kernel: a tree of bits that finds the next job that fits.

The small functions are inlined: to pass a tuple of arrays counts a reference to each at every call.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload

from trimtab.compiled import compiled

FREQUENT = 10  # widths that have a band of their own in the queue's index


class Queue(NamedTuple):
    """Queued ranks as a 64-ary tree of bits, with the shortest requested times below each node.

    Node n of level 0 holds ranks 64 n .. 64 n + 63, node n of level 1 the nodes 64 n .. of level 0,
    and so on up to one root; `first[level] + n` is its row. After a drop `shortest_s` may be too
    low (stale), never too high: a search that it turns away would have found nothing.
    """

    width: np.ndarray  # (J,) units one instance takes
    request_s: np.ndarray  # (J,)
    band: np.ndarray  # (J,) of width
    band_low: np.ndarray  # (bands,) narrowest width of each band, ascending
    first: np.ndarray  # (levels + 1,) row of each level's node 0
    bits: np.ndarray  # (nodes,)
    shortest_s: np.ndarray  # (nodes, bands) request in this band of width or a narrower one, or inf
    stale: np.ndarray  # (nodes,) bool


def lowest_bit(word: int) -> int:
    """Index of the lowest set bit of a word that is not 0."""
    word = int(word)
    return (word & -word).bit_length() - 1


@intrinsic
def _count_trailing_zeros(typing_context: Any, word: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], cgutils.true_bit)

    return types.int64(types.int64), codegen


@overload(lowest_bit)
def _compiled_lowest_bit(word: Any) -> Any:
    # numba wants the implementation's signature to be this one, types included
    def counted(word: Any) -> Any:
        return _count_trailing_zeros(word)

    return counted


@compiled(inline="always")
def first_at_least(ascending, n, value):
    """Index of the first of n ascending numbers that is not below the value."""
    low, high = 0, n
    while low < high:
        middle = (low + high) >> 1
        if ascending[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low


@compiled(inline="always")
def add(queue, rank):
    """Queues a rank."""
    request_s, band, bands = queue.request_s[rank], queue.band[rank], len(queue.band_low)
    node = rank
    for level in range(len(queue.first) - 1):
        row = queue.first[level] + (node >> 6)
        queue.bits[row] |= np.int64(1) << (node & 63)
        b = band
        while b < bands and queue.shortest_s[row, b] > request_s:
            queue.shortest_s[row, b] = request_s
            b += 1
        if b == band:
            break  # the nodes above are as short, and this one was not empty
        node >>= 6


@compiled(inline="always")
def drop(queue, rank):
    """Takes a rank off the queue."""
    node = rank
    for level in range(len(queue.first) - 1):
        row = queue.first[level] + (node >> 6)
        queue.stale[row] = True
        queue.bits[row] &= ~(np.int64(1) << (node & 63))
        if queue.bits[row] != 0:
            break
        for b in range(len(queue.band_low)):
            queue.shortest_s[row, b] = np.inf
        node >>= 6


@compiled(inline="always")
def next_queued(queue, rank):
    """The first queued rank from `rank` on, or -1."""
    level, node = 0, rank
    while level < len(queue.first) - 1:
        row = queue.first[level] + (node >> 6)
        if row < queue.first[level + 1]:
            word = queue.bits[row] & (np.int64(-1) << (node & 63))
            if word != 0:
                node = (node >> 6 << 6) + lowest_bit(word)
                if level == 0:
                    return node
                level -= 1
                node <<= 6
                continue
        level += 1
        node = (node >> 6) + 1
    return -1


@compiled(inline="always")
def next_fit(queue, rank, now, free, shadow_s, extra):
    """The first queued rank from `rank` on that EASY lets start now, or -1.

    It fits in free, and its requested time is over by shadow_s or it takes no more than extra.
    """
    bands = len(queue.band_low)
    band = first_at_least(queue.band_low, bands, free + 1) - 1
    spare_band = first_at_least(queue.band_low, bands, min(free, extra) + 1) - 1
    if band < 0:
        return -1
    level, node, reached = 0, rank, 0
    while level < len(queue.first) - 1:
        row = queue.first[level] + (node >> 6)
        if row < queue.first[level + 1]:
            word = queue.bits[row] & (np.int64(-1) << (node & 63))
            base = node >> 6 << 6
            found = -1
            while word != 0:
                bit = lowest_bit(word)
                word ^= np.int64(1) << bit
                child = base + bit
                if level == 0:
                    width = queue.width[child]
                    if width <= free and (
                        width <= extra or now + queue.request_s[child] <= shadow_s
                    ):
                        return child
                else:
                    below = queue.first[level - 1] + child
                    if now + queue.shortest_s[below, band] <= shadow_s or (
                        spare_band >= 0 and queue.shortest_s[below, spare_band] < np.inf
                    ):
                        found = child
                        break
            if found >= 0:
                level -= 1
                node = found << 6
                continue
            if level < reached and queue.stale[row]:
                tighten(queue, level, node >> 6)  # its summary led here in vain
        level += 1
        reached = max(reached, level)
        node = (node >> 6) + 1
    return -1


@compiled
def tighten(queue, level, node):
    """Recomputes the shortest requests of one node from what is queued below it."""
    row, bands = queue.first[level] + node, len(queue.band_low)
    shortest_s = queue.shortest_s
    for b in range(bands):
        shortest_s[row, b] = np.inf
    word = queue.bits[row]
    while word != 0:
        bit = lowest_bit(word)
        word ^= np.int64(1) << bit
        child = (node << 6) + bit
        if level == 0:
            band = queue.band[child]
            shortest_s[row, band] = min(shortest_s[row, band], queue.request_s[child])
        else:
            below = queue.first[level - 1] + child
            for b in range(bands):
                shortest_s[row, b] = min(shortest_s[row, b], shortest_s[below, b])
    if level == 0:
        for b in range(1, bands):
            shortest_s[row, b] = min(shortest_s[row, b], shortest_s[row, b - 1])
    queue.stale[row] = False
    if level + 2 < len(queue.first):
        queue.stale[queue.first[level + 1] + (node >> 6)] = True


def empty_queue(width: np.ndarray, request_s: np.ndarray, frequent: int) -> Queue:
    """An empty queue."""
    nodes = [-(-max(len(width), 1) // 64)]
    while nodes[-1] > 1:
        nodes.append(-(-nodes[-1] // 64))
    # a frequent width has a band of its own, so that a search for narrower jobs does not stop at it
    widths, count = np.unique(width[:: 1 + len(width) // 4096], return_counts=True)
    often = widths[np.argsort(-count, kind="stable")[:frequent]]
    band_low = np.unique(np.concatenate(([1], often, often + 1)))
    band = (np.searchsorted(band_low, width, side="right") - 1).astype(np.int8)
    return Queue(
        width, request_s, band, band_low, np.cumsum([0, *nodes]), np.zeros(sum(nodes), np.int64),
        np.full((sum(nodes), len(band_low)), np.inf), np.zeros(sum(nodes), np.bool_),
    )  # fmt: skip
