"""Greedy energy: every job goes where it adds the fewest watts."""

import numpy as np

from trimtab.core import Decision, Snapshot
from trimtab.rules.room import Room


class GreedyEnergy:
    """Oldest first, on the nodes that draw the least more; what does not fit is passed over."""

    name = "greedy-energy"

    def __init__(self, seed: int = 0) -> None:
        """Nothing here is random; the seed is part of how policies are made."""

    def decide(self, snapshot: Snapshot) -> list[Decision]:
        room = Room.of(snapshot)
        decisions: list[Decision] = []
        for job in snapshot.queue:
            nodes = room.pick(job, score=-extra_watts(snapshot, job))
            if nodes:
                decisions.append(room.start(job, nodes))
        return decisions


def extra_watts(snapshot: Snapshot, job: int) -> np.ndarray:
    """(N,) more watts for one instance: dynamic power x its share of the driving resource."""
    nodes = snapshot.nodes
    rows = np.arange(len(nodes))
    has = snapshot.capacity[rows, nodes["driver"]]
    share = snapshot.demand[job, nodes["driver"]] / np.maximum(has, 1e-9)
    draw = snapshot.profile.draw[snapshot.jobs["kind"][job], nodes["kind"]]
    return (nodes["peak_w"] - nodes["idle_w"]) * np.minimum(share, 1.0) * draw
