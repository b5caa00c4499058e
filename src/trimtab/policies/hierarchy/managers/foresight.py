"""What a manager that knows the future gains: each region follows what turns out best.

Each choice is played out on a copy of the world, what comes to it later included. It is
greedy, region by region and look by look, so that it bounds managers that choose alike, not all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from trimtab.policies.hierarchy.goals import KEEP
from trimtab.policies.hierarchy.managers.walk import outcome, told, walked
from trimtab.policies.hierarchy.rollouts import WATCHED_S, counted, scales_of, until
from trimtab.policies.hierarchy.stage import Stage
from trimtab.policies.hierarchy.weights import Orders
from trimtab.rules.world import World
from trimtab.sim.world import copied


class Foreseen(NamedTuple):
    plain: tuple[float, float]  # log of the cost and harm where no goal is followed
    best: tuple[float, float]  # the same where the best is
    share: list[float]  # of regions and looks, that each of GOALS was followed


def foreseen(stage: Stage, orders: Orders, every_s: float, price: float) -> Foreseen:
    """One scene, both ways."""
    end = until(stage.world(orders), math.inf)
    scales = np.array(scales_of(stage, end, price))
    regions = len(stage.cluster.regions)
    count = np.zeros(len(orders.goals))

    def claim(world: World, goals: Sequence[int]) -> float:
        """What it comes to where these are followed for two looks."""
        now_s, branch = float(world.head[0]["now_s"]), copied(world)
        told(branch, orders, goals)
        branch = until(branch, now_s + 2 * every_s)
        told(branch, orders, [KEEP] * regions)
        branch = until(branch, now_s + max(WATCHED_S, 2 * every_s))
        return float(counted(branch, stage) @ scales)

    def best(world: World) -> list[int]:
        goals = [KEEP] * regions
        least = claim(world, goals)
        for region in range(regions):
            for goal in range(len(orders.goals)):
                other = [*goals[:region], goal, *goals[region + 1 :]]
                if goal != KEEP and (said := claim(world, other)) < least:
                    goals, least = other, said
        count[:] += np.bincount(goals, minlength=len(count))
        return goals

    found = outcome(stage, walked(stage, orders, every_s, best))
    return Foreseen(outcome(stage, end), found, (count / max(count.sum(), 1.0)).tolist())
