"""A run that is asked at every look what each region shall follow; nothing else stands between.

One who chooses is given the world itself: copies of it tell the future.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from trimtab.metrics import HARM, cost
from trimtab.policies.hierarchy.goals import KEEP
from trimtab.policies.hierarchy.rollouts import follow, until
from trimtab.policies.hierarchy.stage import WORST, Stage
from trimtab.policies.hierarchy.weights import Orders
from trimtab.rules.world import World

MINUTE_S = 60.0  # a stop on it leaves a run as it is
Chooses = Callable[[World], Sequence[int]]


def span_of(stage: Stage) -> tuple[float, float]:
    """When the first and the last batch job come."""
    submit_s = stage.work.jobs["submit_s"][stage.work.truth["service"] == 0]
    return float(submit_s.min()), float(submit_s.max())


def walked(
    stage: Stage, orders: Orders, every_s: float, chooses: Chooses, shift: float = 0.0
) -> World:
    """Played to its end; goals are chosen, and the limit is shifted, while jobs come. After that
    all do as the orders say: harm is not counted any more, and to cause it would be rewarded.
    """
    world = stage.world(replace(orders, limit=orders.limit + shift))
    first_s, last_s = span_of(stage)
    now_s = every_s * (math.floor(first_s / every_s) + 1) if math.isfinite(every_s) else last_s
    while now_s < last_s:
        world = until(world, now_s)
        told(world, orders, chooses(world))
        now_s += every_s
    world = until(world, MINUTE_S * (math.floor(last_s / MINUTE_S) + 1))
    told(world, orders, [KEEP] * len(stage.cluster.regions))
    return until(world, math.inf)


def told(world: World, orders: Orders, goals: Sequence[int]) -> None:
    """Give every region the orders of its goal."""
    for region, goal in enumerate(goals):
        follow(world, region, orders, orders.goals[goal])


def outcome(stage: Stage, world: World) -> tuple[float, float]:
    """The log of the cost and the share of added harm of a world that has run to its end."""
    if int(world.head[0]["waiting"]):
        return WORST
    found = stage.measured(world)
    return cost(found), found[HARM]
