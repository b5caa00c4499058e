"""Cheng et al., "Cost-aware job scheduling for cloud instances using deep reinforcement learning"
(Cluster Computing, 2022): a deep Q-network that sends each job to an instance by the instances'
waiting times and prices and the type of the job.
"""

from __future__ import annotations

import numpy as np

from trimtab.arrays import Array
from trimtab.compiled import inner
from trimtab.policies.peers.groups import (
    BOOKED,
    LOAD,
    OTHER,
    cluster_load,
    cores_of,
    cost_on,
    free_units,
    log_share,
    long_share,
    mean_of,
    other_of,
    share_of,
    speed_on,
    wait_share,
)
from trimtab.policies.peers.played import Played
from trimtab.rules.world import World

FEATURES, HIDDEN, TYPES = 17, 32, 4
COST = 0.3  # what an instance's price weighs beside its job's response time


@inner
def describe(
    w: World, c: int, job: int, g: Array, i: int, node: int, best: float, row: Array
) -> None:
    """The job, its type, and what an instance in group i would find."""
    row[0] = long_share(w, c, job)
    row[1] = cores_of(w, c, job, node)
    row[2] = other_of(w, c, job, node)
    row[3] = wait_share(w, c, job)
    row[4] = log_share(w.state[c, job].left, 50.0)
    for kind in range(TYPES):
        row[5 + kind] = 1.0 if w.jobs[c, job].kind % TYPES == kind else 0.0
    row[9] = free_units(w, c, job, g, i, node)
    row[10] = mean_of(g, i, LOAD)
    row[11] = share_of(g, i, BOOKED)
    row[12] = mean_of(g, i, OTHER)
    row[13] = -best
    row[14] = speed_on(w, c, job, i)
    row[15] = cost_on(w, c, job, g, i)
    row[16] = cluster_load(g)


def rewards(played: Played) -> Array:
    """Of each decision: minus the price paid, minus the job's response time over its request."""
    chosen = played.chosen()
    return np.asarray(-COST * chosen[:, 15] - (1 - COST) * played.slowdown() / 2)
