"""How good a peer is on held-out scenes: its cost where it adds one per cent of harm."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from trimtab.errors import PolicyError
from trimtab.metrics import cost, measure
from trimtab.play import play
from trimtab.policies.peers.files import Weights
from trimtab.policies.peers.policy import PeerPolicy
from trimtab.traces.scenes.scene import Scene

TRIED = (0.8, 0.87, 0.94)
HARM = 0.01
ESTIMATE = "peak"


def at_harm(name: str, weights: Weights, held: Sequence[Scene]) -> float:
    """The mean cost at `HARM`, in proportion between the limits tried.

    A limit under which some job never fitted is left out.
    """
    harms: list[float] = []
    costs: list[float] = []
    for limit in TRIED:
        policy = PeerPolicy(name, borrow=f"{ESTIMATE}@{limit:g}", weights=weights)
        try:
            told = [measure(play(policy, scene)) for scene in held]
        except PolicyError:
            continue
        harms.append(float(np.mean([one["harm_added"] for one in told])))
        costs.append(float(np.mean([cost(one) for one in told])))
    if not harms:
        return math.inf
    return float(np.interp(HARM, np.maximum.accumulate(harms), costs))
