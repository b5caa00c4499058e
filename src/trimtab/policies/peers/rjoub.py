"""Rjoub et al., "Deep and reinforcement learning for automated task scheduling in large-scale cloud
computing systems" (Concurrency and Computation, 2021), its best method, DRL-LSTM: a deep Q-network
with a long short-term memory over the tasks and loads just before says where the next task goes.
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
    imbalance,
    log_share,
    long_share,
    mean_of,
    other_of,
    speed_on,
)
from trimtab.policies.peers.played import Played
from trimtab.rules.world import World

STEPS, INPUTS, UNITS = 8, 6, 16  # of the memory
FEATURES, HIDDEN = 9, 32


@inner
def describe(
    w: World, c: int, job: int, g: Array, i: int, node: int, best: float, row: Array
) -> None:
    """The task, and the machines of group i."""
    row[0] = long_share(w, c, job)
    row[1] = cores_of(w, c, job, node)
    row[2] = other_of(w, c, job, node)
    row[3] = free_units(w, c, job, g, i, node)
    row[4] = mean_of(g, i, LOAD)
    row[5] = mean_of(g, i, OTHER)
    row[6] = -best
    row[7] = speed_on(w, c, job, i)
    row[8] = cost_on(w, c, job, g, i)


@inner
def step(w: World, c: int, job: int, g: Array, waiting: int, into: Array) -> None:
    """What the memory is fed before each decision: the task, and how loaded the cluster is."""
    into[0] = long_share(w, c, job)
    into[1] = cores_of(w, c, job, 0)
    into[2] = other_of(w, c, job, 0)
    into[3] = cluster_load(g)
    into[4] = imbalance(g)
    into[5] = log_share(waiting, MANY)


def rewards(played: Played) -> Array:
    """Of each decision: minus what processor and memory cost for as long as the task holds them."""
    chosen = played.chosen()
    held = played.run_over_request()  # what eviction and load lengthen is paid for
    share = chosen[:, 1] + 8 * chosen[:, 2]  # cores and memory, of like size
    return np.asarray(-(0.5 + 0.5 * share) * held - 0.2 * chosen[:, 8])
