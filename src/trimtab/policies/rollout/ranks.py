"""The orders that a rollout tries, by guessed run times, compiled."""

import math

import numpy as np

from trimtab.arrays import Array
from trimtab.compiled import compiled, inner
from trimtab.rules.names import ORDERS
from trimtab.rules.order import F1, SJF, SMALLEST, SMALLEST_AREA, TINY, UNICEP, WFP3

CODES = {
    name: ORDERS[name]
    for name in ("fcfs", "sjf", "smallest", "smallest-area", "f1", "wfp3", "unicep")
}


@inner
def key(code: int, now_s: float, submit_s: float, run_s: float, size: float) -> float:
    """As `rules.order` has it, of a run time that is guessed; smaller first."""
    wait_s = max(now_s - submit_s, 0.0)  # what has yet to come has not waited
    if code == SJF:
        return run_s
    if code == SMALLEST:
        return size
    if code == SMALLEST_AREA:
        return run_s * size
    if code == F1:
        return math.log10(max(run_s, 0.1)) * size + 870.0 * math.log10(max(submit_s, 0.1))
    if code == WFP3:
        return -((wait_s / run_s) ** 3) * size
    if code == UNICEP:
        return -(wait_s + TINY) / (math.log2(size + TINY) * run_s)
    return submit_s


@compiled
def ranked(code: int, now_s: float, submit_s: Array, run_s: Array, size: Array) -> Array:
    """(Q,) rows in that order, ties by row."""
    keys = np.empty(len(submit_s))
    for i in range(len(keys)):
        keys[i] = key(code, now_s, submit_s[i], run_s[i], size[i])
    return np.argsort(keys, kind="mergesort")
