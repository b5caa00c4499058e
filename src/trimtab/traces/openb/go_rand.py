"""The generator behind Go's math/rand, so that what a Go program drew by a seed is drawn again.

An additive lagged Fibonacci generator: x[n] = x[n - 607] + x[n - 273]. Go starts it from 607
numbers, the state of the same generator after 7.8e12 steps from seed 1; here they are not a table
but found again, by jumping there with powers of its polynomial.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np

from trimtab.arrays import Array

LENGTH, TAP = 607, 273
COOKED_STEPS = 780 * 10**10
MODULUS, FACTOR, ZERO_SEED, SKIPPED = (1 << 31) - 1, 48271, 89482311, 20
MASK = (1 << 63) - 1


class GoRand:
    """What `rand.Seed(seed)` leaves behind; the methods draw as Go's functions of that name do."""

    def __init__(self, seed: int) -> None:
        self._draws = drawn(_history(_seeded(seed, 40, 20) ^ _cooked()))

    def int63(self) -> int:
        return next(self._draws)

    def intn(self, n: int) -> int:
        """A number below n, by the remainder (Go's Int31n)."""
        draw = self.int63() >> 32
        if n & (n - 1) == 0:
            return draw & (n - 1)
        most = (1 << 31) - 1 - (1 << 31) % n
        while draw > most:
            draw = self.int63() >> 32
        return draw % n

    def _below(self, n: int) -> int:
        """A number below n, by Lemire's product (Go's int31n, which Shuffle takes)."""
        product = (self.int63() >> 31) * n
        if product % (1 << 32) < n:
            least = ((1 << 32) - n) % n
            while product % (1 << 32) < least:
                product = (self.int63() >> 31) * n
        return product >> 32

    def shuffled(self, n: int) -> Array:
        """(n,) where Shuffle puts 0 .. n - 1."""
        row = list(range(n))
        for i in range(n - 1, 0, -1):
            j = self._below(i + 1)
            row[i], row[j] = row[j], row[i]
        return np.array(row, np.int64)

    def perm(self, n: int) -> Array:
        """(n,) what Perm gives."""
        row = [0] * n
        for i in range(n):
            j = self.intn(i + 1)
            row[i], row[j] = row[j], i
        return np.array(row, np.int64)


def drawn(history: Array) -> Iterator[int]:
    """The numbers that follow these 607, of 63 bits each."""
    held = [int(one) for one in history]
    at = 0
    while True:
        held[at] = (held[at] + held[(at + LENGTH - TAP) % LENGTH]) & MASK
        yield held[at]
        at = (at + 1) % LENGTH


def _seeded(seed: int, first: int, second: int) -> Array:
    """(607,) the register after a seed, each number of three draws of a linear generator."""
    x = seed % MODULUS or ZERO_SEED
    for _ in range(SKIPPED):
        x = FACTOR * x % MODULUS
    parts = []
    for _ in range(3 * LENGTH):
        x = FACTOR * x % MODULUS
        parts.append(x)
    a, b, c = np.array(parts, np.uint64).reshape(LENGTH, 3).T
    return (a << np.uint64(first)) ^ (b << np.uint64(second)) ^ c


def _places(steps: int = 0) -> Array:
    """(607,) places of the register in the order in which they are written after so many steps."""
    return (LENGTH - TAP - 1 - steps - np.arange(LENGTH)) % LENGTH


def _history(register: Array) -> Array:
    """The register as the last 607 numbers drawn, oldest first."""
    return register[_places()]


@cache
def _cooked() -> Array:
    """(607,) the register after `COOKED_STEPS` steps from seed 1."""
    register = np.empty(LENGTH, np.uint64)
    register[_places(COOKED_STEPS)] = _jumped(_history(_seeded(1, 20, 10)), COOKED_STEPS)
    return register


def _jumped(history: Array, steps: int) -> Array:
    """The last 607 numbers so many steps later, from x^steps modulo x^607 - x^334 - 1, mod 2^64."""
    power, square = np.zeros((2, LENGTH), np.uint64)
    power[0] = square[1] = 1
    while steps:
        if steps & 1:
            power = _product(power, square)
        square = _product(square, square)
        steps >>= 1
    longer = np.concatenate((history, np.zeros(LENGTH, np.uint64)))
    for n in range(LENGTH, 2 * LENGTH):
        longer[n : n + 1] = longer[n - LENGTH : n - LENGTH + 1] + longer[n - TAP : n - TAP + 1]
    windows = np.lib.stride_tricks.sliding_window_view(longer, LENGTH)[:LENGTH]
    return (windows * power).sum(1, dtype=np.uint64)


def _product(a: Array, b: Array) -> Array:
    full = np.zeros(2 * LENGTH - 1, np.uint64)
    for i in range(LENGTH):
        full[i : i + LENGTH] += a[i] * b
    # TAP terms at a time: what is folded down never lands among those of the same step
    for stop in range(2 * LENGTH - 1, LENGTH, -TAP):
        start = max(stop - TAP, LENGTH)
        high = full[start:stop].copy()
        full[start:stop] = 0
        full[start - LENGTH : stop - LENGTH] += high
        full[start - TAP : stop - TAP] += high
    return full[:LENGTH]
