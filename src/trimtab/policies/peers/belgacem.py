"""Belgacem, Mahmoudi and Kihl, "Intelligent multi-agent reinforcement learning model for resources
allocation in cloud computing" (JKSUCIS, 2022): tabular Q-learning, an agent a region, over levels
of load: refuse a task, or accept it on one of the region's kinds of machine.
"""

from __future__ import annotations

import numpy as np

from trimtab.arrays import Array
from trimtab.compiled import inner
from trimtab.policies.peers.groups import (
    LOAD,
    MACHINES,
    cores_of,
    fastest,
    long_share,
    speed_on,
)
from trimtab.policies.peers.played import Played
from trimtab.rules.world import World

LEVELS, SPEEDS, SIZES = 6, 3, 4
STATES = LEVELS * SIZES  # of an agent: its region's load, and the size of the task
ACTIONS = 1 + LEVELS * SPEEDS  # refuse, or a machine of such a load and speed
CELLS = STATES * ACTIONS
FEATURES = 2  # of a row: the cell of accepting there, and that of the agent's refusal
ENERGY, BALANCE, FAULT = 0.3, 0.4, 0.3  # what the reward weighs
REFUSAL = -0.6  # of a refusal


@inner
def level(load: float) -> int:
    """0 below .5, then a step every .1."""
    return min(max(int((load - 0.4) * 10.0), 0), LEVELS - 1)


@inner
def describe(
    w: World, c: int, job: int, g: Array, i: int, node: int, best: float, row: Array
) -> None:
    """The cells of the agent of the region of group i."""
    kinds = w.rate.shape[1]
    first = i - i % kinds
    total = machines = 0.0
    for k in range(first, first + kinds):
        total += g[k, LOAD]
        machines += g[k, MACHINES]
    size = 2 if long_share(w, c, job) > 0.6 else 0
    size += 1 if cores_of(w, c, job, node) > 0.25 else 0
    state = (level(total / machines) * SIZES + size) * ACTIONS
    ratio = speed_on(w, c, job, i) / fastest(w, c, job)
    quick = 2 if ratio > 0.95 else (1 if ratio > 0.75 else 0)
    row[0] = state + 1 + level(-best) * SPEEDS + quick
    row[1] = state


@inner
def score(theta: Array, row: Array) -> float:
    """What accepting is worth to the agent; minus infinity where it would rather refuse."""
    accept, refuse = theta[int(row[0])], theta[int(row[1])]
    return accept if accept >= refuse else -np.inf


def rewards(played: Played) -> Array:
    """Of each decision: energy, the load of the machine, and whether the task was pushed off it."""
    cell = (played.chosen()[:, 0] - 1).astype(np.int64) % ACTIONS
    load = (cell // SPEEDS) / (LEVELS - 1)
    paid = ENERGY * (played.run_over_request() - 1) + BALANCE * load + FAULT * played.evicted()
    return np.where(played.waits(), REFUSAL - 0.2 * played.slowdown(), -paid)
