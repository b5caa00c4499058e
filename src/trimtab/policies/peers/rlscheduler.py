"""Zhang et al., "RLScheduler: an automated HPC batch job scheduler using reinforcement learning"
(SC'20): one small network scores each job of a window, whatever its place there, and proximal
policy optimisation teaches it.
"""

from __future__ import annotations

from trimtab.arrays import Array
from trimtab.compiled import inner
from trimtab.policies.peers.groups import (
    LONG_S,
    MANY,
    cores_of,
    fastest,
    log_share,
    long_share,
    other_of,
    wait_share,
)
from trimtab.policies.peers.played import Played
from trimtab.rules.fit import request_left
from trimtab.rules.world import World

WINDOW = 128
FEATURES = 8
HIDDEN = (32, 16, 8)
MEMORY_S = 20.0  # what comes so much later counts 1 / e


@inner
def describe(w: World, c: int, job: int, row: Array) -> None:
    """A waiting job: how long it has waited, and what it asks."""
    state = w.state[c, job]
    row[0] = wait_share(w, c, job)
    row[1] = long_share(w, c, job)
    row[2] = cores_of(w, c, job, 0)
    row[3] = other_of(w, c, job, 0)
    row[4] = log_share(state.left, 50.0)
    area = request_left(w, c, job) * row[2] * state.left
    row[5] = log_share(area, LONG_S * MANY)
    row[6] = fastest(w, c, job)
    row[7] = 1.0 if state.evicted > 0 else 0.0


def returns(played: Played) -> Array:
    """Of each decision: minus the slow-down that waiting jobs gather from then on."""
    return played.slowdown_from_now("start_s", MEMORY_S)
