"""A small manager: what each goal is worth is a straight line of what is seen of a region.

It is written as the network's own weights: the layers below the head hand what they are given on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.policies.hierarchy import graph
from trimtab.policies.hierarchy.goals import GOALS, KEEP
from trimtab.policies.hierarchy.manager import Manager
from trimtab.policies.hierarchy.managers.walk import walked
from trimtab.policies.hierarchy.sight import MACHINE, REGION, Memory, Sight, look
from trimtab.policies.hierarchy.stage import Drawn, Stage
from trimtab.policies.hierarchy.weights import Orders
from trimtab.rules.world import World
from trimtab.sim.whole import view_of

# of a region's machines the mean, and of the region
SEEN = ("load", "late", "room", "batch", "ends", "crowded", "harm", "evicted", "waiting", "long",
        "started")  # fmt: skip
COLUMNS = (*MACHINE, *REGION)
AT = tuple(COLUMNS.index(name) for name in SEEN)
LEAST = 1e-3  # spread of what hardly moves


class Scale(NamedTuple):
    """Of SEEN on plain runs."""

    mean: Array
    spread: Array


class Seeing:
    """What a run is seen as, look by look."""

    def __init__(self, stage: Stage, world: World) -> None:
        self.stage = stage
        regions = len(stage.cluster.regions)
        self._graph = graph.empty(world.runs.shape[1], len(stage.cluster), len(stage.work), regions)
        self._memory: Memory | None = None

    def rows(self, world: World) -> Array:
        """(G, len(SEEN)) of now."""
        return rows(self.sight(world))

    def sight(self, world: World) -> Sight:
        """What a manager sees of now."""
        view = view_of(world, self.stage.scene.profile)
        self._graph = graph.seen(self._graph, view)
        sight, self._memory = look(view, self._graph, self._memory)
        return sight


def rows(sight: Sight) -> Array:
    """(G, len(SEEN)) as the manager made by `linear` has them."""
    regions = len(sight.region)
    count = np.maximum(np.bincount(sight.of, minlength=regions), 1)[:, None]
    mean = np.zeros((regions, len(MACHINE)))
    np.add.at(mean, sight.of, np.maximum(sight.machine, 0.0))
    return np.asarray(np.maximum(np.concatenate((mean / count, sight.region), 1), 0.0)[:, AT])


def scale_of(drawn: Sequence[Drawn], orders: Orders, every_s: float) -> Scale:
    """Of plain runs of these scenes."""
    found: list[Array] = []
    for stage in (one.stage() for one in drawn):
        seeing = Seeing(stage, stage.world(orders))

        def chooses(world: World, seeing: Seeing = seeing) -> list[int]:
            found.append(seeing.rows(world))
            return [KEEP] * len(found[-1])

        walked(stage, orders, every_s, chooses)
    every = np.concatenate(found)
    return Scale(every.mean(0), every.std(0) + LEAST)


def linear(weights: Array, scale: Scale, margin: float, made: dict[str, Any]) -> Manager:
    """The manager that says (1, rows / scale) @ weights of the goals but `keep`.

    `weights` is (1 + len(SEEN), GOALS - 1), first what a goal is worth in the mean.
    """
    below, wide = len(MACHINE), len(COLUMNS)
    machine = np.zeros((below + 1, wide))
    machine[:below, :below] = np.eye(below)
    region = np.zeros((2 * wide + len(REGION) + 1, wide))
    region[:below, :below] = np.eye(below)
    region[2 * wide : -1, below:] = np.eye(len(REGION))
    head = np.zeros((wide + 1, len(GOALS)))
    slopes = weights[1:] / scale.spread[:, None]
    head[list(AT), KEEP + 1 :] = slopes
    head[-1, KEEP + 1 :] = weights[0] - scale.mean @ slopes
    square = np.zeros((wide, wide))
    return Manager(machine, region, square, square, head, margin, made)


def steady(goal: int, every_s: float = math.nan) -> Manager:
    """The manager that follows one goal everywhere."""
    weights = np.zeros((1 + len(SEEN), len(GOALS) - 1))
    if goal != KEEP:
        weights[0, goal - 1] = -1.0
    plain = Scale(np.zeros(len(SEEN)), np.ones(len(SEEN)))
    return linear(weights, plain, 0.0, {} if math.isnan(every_s) else {"every_s": every_s})
