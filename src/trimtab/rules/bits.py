"""A set of small integers as two levels of 64-bit words: insert, remove and find-next in a few ns.

The queue is one of these over ranks in queue order, so that a long queue costs no more to step
through than the jobs that are looked at.
"""

from typing import Any

import numpy as np
from numba.extending import overload

from trimtab.arrays import Array
from trimtab.compiled import compiled, inner

ZERO = np.uint64(0)
ONE = np.uint64(1)
LOW = np.uint64(63)
ALL = np.uint64(0xFFFFFFFFFFFFFFFF)


def lowest(word: Any) -> int:
    """Index of the lowest set bit of a non-zero word."""
    value = int(word)
    return (value & -value).bit_length() - 1


@overload(lowest)
def _lowest(word: Any) -> Any:
    from numba.cpython.unsafe.numbers import trailing_zeros

    def compiled(word: Any) -> Any:
        return np.int64(trailing_zeros(word))

    return compiled


@compiled
def put(words: Array, heads: Array, c: int, i: int) -> None:
    words[c, i >> 6] |= ONE << (np.uint64(i) & LOW)
    heads[c, i >> 12] |= ONE << (np.uint64(i >> 6) & LOW)


@compiled
def drop(words: Array, heads: Array, c: int, i: int) -> None:
    words[c, i >> 6] &= ~(ONE << (np.uint64(i) & LOW))
    if words[c, i >> 6] == ZERO:
        heads[c, i >> 12] &= ~(ONE << (np.uint64(i >> 6) & LOW))


@inner
def has(words: Array, c: int, i: int) -> bool:
    return (words[c, i >> 6] >> (np.uint64(i) & LOW)) & ONE != ZERO


@compiled
def next_from(words: Array, heads: Array, c: int, i: int) -> int:
    """The smallest member >= i, or -1."""
    w = i >> 6
    if w >= words.shape[1]:
        return -1
    rest = words[c, w] & (ALL << (np.uint64(i) & LOW))
    if rest != ZERO:
        return (w << 6) + lowest(rest)
    w += 1
    h = w >> 6
    if h >= heads.shape[1]:
        return -1
    rest = heads[c, h] & (ALL << (np.uint64(w) & LOW))
    while rest == ZERO:
        h += 1
        if h >= heads.shape[1]:
            return -1
        rest = heads[c, h]
    w = (h << 6) + lowest(rest)
    return (w << 6) + lowest(words[c, w])
