"""Islam et al., "Performance and cost-efficient Spark job scheduling based on deep reinforcement
learning in cloud computing environments" (TPDS, 2021): the executors of the job at the head are
placed one by one, or wait, by a deep Q-network or by a policy gradient.
"""

from __future__ import annotations

import numpy as np

from trimtab.arrays import Array
from trimtab.compiled import inner
from trimtab.policies.peers.groups import (
    LOAD,
    MANY,
    OTHER,
    cluster_load,
    cores_of,
    cost_on,
    free_units,
    log_share,
    long_share,
    mean_of,
    other_of,
    speed_on,
    wait_share,
)
from trimtab.policies.peers.played import Played
from trimtab.rules.world import World

FEATURES, HIDDEN = 14, 32
COST = 0.3  # beta: what cost weighs beside the time of completion
WAITS = 0.02  # what it costs to wait once


@inner
def describe(
    w: World, c: int, job: int, g: Array, i: int, node: int, best: float, waiting: int, row: Array
) -> None:
    """The executor, the job that it is of, and the machines of group i."""
    about(w, c, job, g, node, waiting, row)
    row[7] = 0.0
    row[8] = free_units(w, c, job, g, i, node)
    row[9] = mean_of(g, i, LOAD)
    row[10] = mean_of(g, i, OTHER)
    row[11] = -best
    row[12] = speed_on(w, c, job, i)
    row[13] = cost_on(w, c, job, g, i)


@inner
def describe_wait(
    w: World, c: int, job: int, g: Array, node: int, waiting: int, row: Array
) -> None:
    """The row of waiting."""
    about(w, c, job, g, node, waiting, row)
    row[7] = 1.0
    for f in range(8, FEATURES):
        row[f] = 0.0


@inner
def about(w: World, c: int, job: int, g: Array, node: int, waiting: int, row: Array) -> None:
    row[0] = long_share(w, c, job)
    row[1] = cores_of(w, c, job, node)
    row[2] = other_of(w, c, job, node)
    row[3] = wait_share(w, c, job)
    row[4] = log_share(w.state[c, job].left, 50.0)
    row[5] = cluster_load(g)
    row[6] = log_share(waiting, MANY)


def rewards(played: Played) -> Array:
    """Of each decision: minus what the executors of its job cost in the mean and the time the job
    took, both of which are known when it ends; and a little for each wait.
    """
    chosen = played.chosen()
    waits = chosen[:, 7] > 0
    many = np.bincount(played.job, ~waits)
    cost = np.bincount(played.job, np.where(waits, 0.0, chosen[:, 13])) / np.maximum(many, 1)
    return np.asarray(-COST * cost[played.job] - (1 - COST) * played.slowdown() / 2 - WAITS * waits)
