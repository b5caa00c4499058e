"""The map of the future in Slurm's backfill: slices of time, each with the nodes nobody planned.

A planned job takes whole nodes out of every slice that it spans. Nodes are bits of 64-bit words.
"""

from typing import NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.compiled import inner

ONE = np.uint64(1)
NONE = np.uint64(0)


class Slices(NamedTuple):
    """A list linked by `next`; slice 0 is the first, and a next of 0 ends the list."""

    from_s: Array  # (K,)
    to_s: Array  # (K,)
    next: Array  # (K,)
    open: Array  # (K, W) bits of the nodes that no planned job has
    used: Array  # (1,) slices in use


@inner
def make_slices(most: int, words: int, now_s: float, window_s: float, step_s: float) -> Slices:
    """One slice from now to the end of the window, both on the grid, with every node open."""
    slices = Slices(
        np.zeros(most), np.zeros(most), np.zeros(most, np.int64),
        np.zeros((most, words), np.uint64), np.ones(1, np.int64),
    )  # fmt: skip
    slices.from_s[0] = np.floor(now_s / step_s) * step_s
    slices.to_s[0] = np.floor((now_s + window_s) / step_s) * step_s
    slices.open[0, :] = ~NONE
    return slices


@inner
def set_bits(ok: Array, bits: Array) -> None:
    for i in range(bits.shape[0]):
        bits[i] = NONE
    for node in range(ok.shape[0]):
        if ok[node]:
            bits[node >> 6] |= ONE << np.uint64(node & 63)


@inner
def keep_bits(ok: Array, bits: Array) -> int:
    """Clear in `ok` what is not in the bits; returns how many are left."""
    count = 0
    for node in range(ok.shape[0]):
        ok[node] &= (bits[node >> 6] >> np.uint64(node & 63)) & ONE != NONE
        count += ok[node]
    return count


@inner
def narrow(slices: Slices, from_s: float, to_s: float, base: Array, bits: Array) -> float:
    """Keep in `bits` the nodes open over the whole span. `base` is what the job may use at all.

    Returns when to look again if the job finds no place then: the end of the first slice after
    which other nodes are open, or inf.
    """
    later_s = np.inf
    j = 0
    while True:
        after = slices.next[j]
        if slices.to_s[j] > from_s and after != 0 and later_s == np.inf:
            for i in range(bits.shape[0]):
                if base[i] & slices.open[after, i] & ~(bits[i] & slices.open[j, i]) != NONE:
                    later_s = slices.to_s[j]
                    break
        if slices.to_s[j] > from_s:
            if slices.from_s[j] > to_s:
                break
            for i in range(bits.shape[0]):
                bits[i] &= slices.open[j, i]
        j = after
        if j == 0:
            break
    return later_s


@inner
def overlaps(slices: Slices, bits: Array, from_s: float, to_s: float) -> bool:
    """Whether some planned job has one of these nodes in the span."""
    j = 0
    while True:
        if slices.to_s[j] > from_s and slices.from_s[j] < to_s:
            for i in range(bits.shape[0]):
                if bits[i] & ~slices.open[j, i] != NONE:
                    return True
        j = slices.next[j]
        if j == 0:
            return False


@inner
def split(slices: Slices, j: int, at_s: float) -> int:
    """Cut slice j in two at that time; returns the later one."""
    new = slices.used[0]
    slices.used[0] += 1
    slices.from_s[new], slices.to_s[new] = at_s, slices.to_s[j]
    slices.to_s[j] = at_s
    slices.open[new, :] = slices.open[j, :]
    slices.next[new] = slices.next[j]
    slices.next[j] = new
    return new


@inner
def plan(slices: Slices, bits: Array, from_s: float, to_s: float, step_s: float) -> bool:
    """Take the nodes out of the slices of the span, at least one step; false if no room is left."""
    if slices.used[0] + 2 > slices.from_s.shape[0]:
        return False
    from_s = max(from_s, slices.from_s[0])
    to_s = max(to_s, from_s + step_s)
    j = 0
    while slices.to_s[j] < from_s:
        j = slices.next[j]
        if j == 0:
            return True  # it begins behind the window
    if slices.to_s[j] > from_s:
        split(slices, j, from_s)
    j = slices.next[j]
    while j != 0 and slices.from_s[j] < to_s:
        if to_s < slices.to_s[j]:
            split(slices, j, to_s)
        for i in range(bits.shape[0]):
            slices.open[j, i] &= ~bits[i]
        j = slices.next[j]
    return True
