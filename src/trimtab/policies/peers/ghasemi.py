"""Ghasemi and Toroghi Haghighat, "A multi-objective load balancing algorithm for virtual machine
placement in cloud data centers based on machine learning" (Computing, 2020): Q-learning over levels
of load of processor and memory, rewarded for balance among hosts.
"""

from __future__ import annotations

import numpy as np

from trimtab.arrays import Array
from trimtab.compiled import inner
from trimtab.policies.peers.groups import (
    OTHER,
    cluster_load,
    fastest,
    mean_of,
    speed_on,
)
from trimtab.policies.peers.played import Played
from trimtab.rules.world import World

CPU, MEMORY, SPREAD, SPEEDS = 10, 5, 4, 3  # levels
CELLS = CPU * MEMORY * SPREAD * SPEEDS
FEATURES = 2  # of a row: the cell, and the load the machine would have
IDLE = 0.3  # what a slow machine's time weighs beside balance


@inner
def describe(
    w: World, c: int, job: int, g: Array, i: int, node: int, best: float, row: Array
) -> None:
    """The levels that the machine would have with the new one on it."""
    load = -best
    cpu = min(max(int((load - 0.3) * CPU / 0.8), 0), CPU - 1)
    memory = min(int(mean_of(g, i, OTHER) * MEMORY), MEMORY - 1)
    above = load - cluster_load(g)
    spread = 0 if above < -0.15 else (1 if above < 0.0 else (2 if above < 0.15 else 3))
    ratio = speed_on(w, c, job, i) / fastest(w, c, job)
    quick = 2 if ratio > 0.95 else (1 if ratio > 0.75 else 0)
    row[0] = ((cpu * MEMORY + memory) * SPREAD + spread) * SPEEDS + quick
    row[1] = above


def rewards(played: Played) -> Array:
    """Of each decision: how little the machine stands out afterwards, and how long it is held."""
    above = played.chosen()[:, 1].astype(np.float64)
    return np.asarray(-np.abs(above) - above - IDLE * (played.run_over_request() - 1))
