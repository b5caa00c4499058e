"""Integrals over windows from single steps: what begins or ends now, without knowing the rest.

A step of `count` at a time t adds count x (end of its window - t) to that window and count to the
level that the next window begins with. When a window is over, the level it began with is added for
all of its length. Over an interval these are the same integers as `sums.spread` writes.
"""

import numpy as np

from trimtab.arrays import Array
from trimtab.compiled import compiled
from trimtab.load.sums import fixed_share

# columns of `level` and `change` of machines: number, CPU and memory of each
RUNNING, SERVICES = 0, 3
LEVELS = 6
QUEUE_LEVELS = 3


@compiled
def move(
    sums: Array,  # (W, rows, columns)
    change: Array,  # (W, rows, LEVELS) what steps in each window add to the next one's level
    level: Array,  # (rows, LEVELS) at the beginning of the block
    column: int,  # of the integrals in `sums`
    kind: int,  # RUNNING, SERVICES, or 0 for the queue
    first_window: int,
    window_ms: int,
    at_ms: Array,  # (E,) as the rest: a row an event
    row: Array,
    count: Array,  # below zero for what leaves
    cpu: Array,
    mem: Array,
) -> None:
    """Step levels up or down; a time before the block counts from the beginning of the block."""
    for i in range(len(at_ms)):
        each = np.int64(count[i])
        step = (each, each * fixed_share(cpu[i]), each * fixed_share(mem[i]))
        window = at_ms[i] // window_ms - first_window
        if window < 0:
            for k in range(3):
                level[row[i], kind + k] += step[k]
        else:
            left_ms = (first_window + window + 1) * window_ms - at_ms[i]
            for k in range(3):
                sums[window, row[i], column + k] += step[k] * left_ms
                change[window, row[i], kind + k] += step[k]


@compiled
def tally(
    sums: Array,
    column: int,
    first_window: int,
    window_ms: int,
    at_ms: Array,  # (E,) as the rest
    row: Array,
    amount: Array,
) -> None:
    """Add amounts to the windows that have the times; what is before the block is left out."""
    for i in range(len(at_ms)):
        window = at_ms[i] // window_ms - first_window
        if window >= 0:
            sums[window, row[i], column] += amount[i]


@compiled
def settle(
    sums: Array, change: Array, level: Array, column: int, kind: int, window_ms: int
) -> None:
    """Finish the windows of `sums`: add the level each began with, and pass the level on."""
    for window in range(sums.shape[0]):
        for row in range(sums.shape[1]):
            for k in range(3):
                sums[window, row, column + k] += level[row, kind + k] * window_ms
                level[row, kind + k] += change[window, row, kind + k]


@compiled
def take(have: Array, row: Array, amount: Array) -> int:
    """Take amounts from what rows have; return the first that is too much, with nothing taken.

    -1 = all were taken. One row may be taken from more than once.
    """
    for i in range(len(row)):
        have[row[i]] -= amount[i]
        if have[row[i]] < 0:
            for k in range(i + 1):
                have[row[k]] += amount[k]
            return i
    return -1
