"""What a manager gains at equal harm: beside the same orders at the limit that harms as much.

To harm less and wait longer, or the other way round, needs no manager: a limit does it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from trimtab.arrays import Array
from trimtab.metrics import interval
from trimtab.policies.hierarchy.manager import Manager
from trimtab.policies.hierarchy.managers.linear import Seeing
from trimtab.policies.hierarchy.managers.walk import outcome, walked
from trimtab.policies.hierarchy.stage import FLOOR, Drawn
from trimtab.policies.hierarchy.weights import Orders
from trimtab.rules.world import World
from trimtab.training.spread import Spread

SHIFTS = (-0.16, -0.08, -0.04, 0.0, 0.04)  # of the limit
APART = 0.02  # of the log of harm, at least, between two limits
BEYOND = 1.0  # of the last step, at most, past the limits that were played


@dataclass(frozen=True)
class Frontier:
    """Plain runs of some scenes, limit by limit, from what harms least on."""

    cost: Array  # (limits, scenes) log of it
    harm: Array  # (limits, scenes) share

    @property
    def level(self) -> Array:
        """(limits,) log of the mean harm, rising."""
        level = np.log(np.maximum(self.harm.mean(1), 0.0) + FLOOR)
        for at in range(1, len(level)):
            level[at] = max(level[at], level[at - 1] + APART)
        return np.asarray(level)

    @property
    def own(self) -> Array:
        """(scenes, 2) log of the cost and harm at the limit of the orders."""
        at = SHIFTS.index(0.0)
        return np.stack((self.cost[at], self.harm[at]), 1)

    def gains(self, played: Array) -> Array:
        """(scenes,) of (scenes, 2), log of the cost and harm: the change of the cost at equal harm.

        Below 0 is better. The mean is the change itself; how far scenes lie apart in harm is priced
        by the slope of the frontier there, so that the spread is that of the mean's estimate.
        """
        harm = np.maximum(played[:, 1].mean(), 0.0) + FLOOR
        level, at = self.level, math.log(harm)
        low = int(np.clip(np.searchsorted(level, at) - 1, 0, len(level) - 2))
        width = float(level[low + 1] - level[low])
        share = min(max((at - level[low]) / width, -BEYOND), 1 + BEYOND)

        def between(values: Array) -> Array:
            return np.asarray(values[low] + share * (values[low + 1] - values[low]))

        slope = float((self.cost[low + 1] - self.cost[low]).mean()) / width
        own = (played[:, 1] - between(self.harm)) / harm
        return np.asarray(played[:, 0] - between(self.cost) - slope * (own - own.mean()))


def frontier(pool: Spread, scenes: Sequence[Drawn], orders: Orders) -> Frontier:
    """Play these scenes without a manager at limits around that of the orders."""
    asked = [(scene, shift) for shift in SHIFTS for scene in scenes]
    found = np.array(list(pool.map(partial(plain, orders=orders), asked))).reshape(
        len(SHIFTS), len(scenes), 2
    )
    return Frontier(found[..., 0], found[..., 1])


def plain(asked: tuple[Drawn, float], orders: Orders) -> tuple[float, float]:
    """Log of the cost and harm of a scene at a limit that is shifted while jobs come."""
    stage = asked[0].stage()
    return outcome(stage, walked(stage, orders, math.inf, nobody, asked[1]))


def nobody(world: World) -> list[int]:
    """Chooses nothing: the orders go on."""
    return []


def under(scene: Drawn, orders: Orders, manager: Manager) -> tuple[float, float]:
    """Log of the cost and harm of a scene under a manager."""
    stage = scene.stage()
    seeing = Seeing(stage, stage.world(orders))

    def chooses(world: World) -> list[int]:
        goals: list[int] = manager.goals(seeing.sight(world))[0].tolist()
        return goals

    return outcome(stage, walked(stage, orders, manager.every_s, chooses))


def managed(pool: Spread, scenes: Sequence[Drawn], orders: Orders, manager: Manager) -> Array:
    """(scenes, 2) log of the cost and harm under a manager."""
    return np.array(list(pool.map(partial(under, orders=orders, manager=manager), scenes)))


def mean_half(values: Array) -> tuple[float, float]:
    """The mean, and half the width of its 95 % interval; infinite for one value."""
    mean, half = interval(values.tolist())
    return mean, math.inf if half is None else half
