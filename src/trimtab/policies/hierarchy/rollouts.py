"""What a goal is worth to a region: it is followed there for a while on a copy of the world.

Another copy follows the orders that stand, and the difference between the two a while later, in
what the cost is made of, is the goal's worth. A rollout knows the future; the manager that learns
from many of them sees only the present, and so learns what is to be expected.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from trimtab.arrays import Array
from trimtab.metrics import COSTS, HARM
from trimtab.policies.hierarchy import graph
from trimtab.policies.hierarchy.goals import AT, GOALS, KEEP, MOVES, Goal
from trimtab.policies.hierarchy.manager import EVERY_S
from trimtab.policies.hierarchy.sight import Memory, Sight, look
from trimtab.policies.hierarchy.stage import FLOOR, RULE, Stage
from trimtab.policies.hierarchy.weights import Orders
from trimtab.rules.names import parse
from trimtab.rules.world import World
from trimtab.sim import loop
from trimtab.sim.lend import set_care, set_limit
from trimtab.sim.lending import SAME
from trimtab.sim.whole import CHUNK, view_of
from trimtab.sim.world import copied, grown

FOLLOWED, WATCHED_S = 2, 480.0  # looks that a goal is followed; seconds it is watched at least


class Example(NamedTuple):
    sight: Sight
    region: int
    goal: int
    worth: float  # change of the log of the cost, were it like this always and everywhere


class Scales(NamedTuple):
    """What turns counts into changes of the log of the cost."""

    wait_s: float
    imbalance_s: float
    system_s: float
    late: float
    harm_s: float

    def change(self, mine: Array, other: Array) -> float:
        return float((mine - other) @ np.array(self))


def examples(
    stage: Stage,
    orders: Orders,
    rng: Generator,
    price: float,
    regions: int = 2,
    every_s: float = EVERY_S,
) -> Iterator[Example]:
    """Of one scene: at each look all goals of so many regions."""
    world = stage.world(orders)
    end = stage.world(orders)
    end = until(end, math.inf)
    scales = scales_of(stage, end, price)
    work = stage.work
    batch = work.truth["service"] == 0
    first_s, last_s = (float(one(work.jobs["submit_s"][batch])) for one in (np.min, np.max))
    count = len(stage.cluster.regions)
    followed_s = FOLLOWED * every_s
    watched_s = max(WATCHED_S, followed_s)
    looks = (last_s - first_s) / followed_s
    known = graph.empty(world.runs.shape[1], len(stage.cluster), len(work), count)
    memory: Memory | None = None
    now_s = first_s
    while now_s + watched_s < last_s:
        world = until(world, now_s)
        view = view_of(world, stage.scene.profile)
        known = graph.seen(known, view)
        sight, memory = look(view, known, memory)
        plain = counted(until(copied(world), now_s + watched_s), stage)
        for g in rng.choice(count, min(regions, count), replace=False).tolist():
            for number, goal in enumerate(orders.goals):
                if number == KEEP:
                    continue
                branch = copied(world)
                follow(branch, g, orders, goal)
                branch = until(branch, now_s + followed_s)
                follow(branch, g, orders, GOALS[KEEP])
                branch = until(branch, now_s + watched_s)
                worth = scales.change(counted(branch, stage), plain) * looks * count
                yield Example(sight, g, number, worth)
        now_s += followed_s


def follow(world: World, region: int, orders: Orders, goal: Goal) -> None:
    """Give a region the orders of a goal."""
    set_limit(world, 0, region, orders.limit + goal.limit, SAME)
    patience_s = orders.patience_s if math.isnan(goal.patience_s) else goal.patience_s
    set_care(
        world, 0, region, orders.margin + goal.margin, patience_s, orders.overstay, orders.taper
    )
    world.worker[0, region] = orders.worker[0]
    for at, name in zip(AT, MOVES):
        world.worker[0, region, at] += getattr(goal, name)


def until(world: World, time_s: float) -> World:
    """Run on until that second, or the end."""
    rule = parse(RULE)
    world.head[0]["alarm_s"] = time_s
    while True:
        code = loop.run_rule(world, 0, rule.order, rule.backfill, rule.place, 0, CHUNK)
        if code in (loop.DONE, loop.ALARM):
            return world
        if code == loop.GROW:
            world = grown(world, runs=2 * world.runs.shape[1], pieces=2 * world.pieces.shape[1])


def counted(world: World, stage: Stage) -> Array:
    """Waiting, imbalance, time in the system, tasks that are late, harm: so far."""
    totals, state = world.totals[0], world.state[0]
    jobs, now_s = stage.work.jobs, float(world.head[0]["now_s"])
    plans, spare_s = stage.work.in_time
    ends_s = np.fmax(jobs["submit_s"], state["queued_s"]) + plans * jobs["request_s"] + spare_s
    ended = np.isfinite(state["end_s"]) & (state["end_s"] > 0)
    late = np.where(ended, state["end_s"], now_s) > ends_s
    late |= (state["evicted"] > 0) | (state["tries"] > 0)
    late &= (jobs["submit_s"] <= now_s) & (stage.work.truth["service"] == 0)
    return np.array([
        totals["waiting_s"], totals["imbalance_s"], totals["system_s"], float(late.sum()),
        totals["harmed_s"] - totals["own_harm_s"],
    ])  # fmt: skip


def scales_of(stage: Stage, end: World, price: float) -> Scales:
    """By how much the log of the cost changes with each count, about where the scene ended."""
    found, arrived, parts = stage.measured(end), end.arrived[0], len(COSTS)
    batch = int((stage.work.truth["service"] == 0).sum())
    served_s, time_s = (max(float(arrived[name]), 1e-9) for name in ("service_s", "time_s"))
    return Scales(
        1 / (parts * batch * (found["awt_s"] + COSTS["awt_s"])),
        1 / (parts * time_s * max(found["ldi"], 1e-9)),
        1 / (parts * max(float(end.totals[0]["system_s"]), 1e-9)),
        1 / (parts * batch * (1 - found["tsr"] + COSTS["late"])),
        price / (served_s * (max(found[HARM], 0.0) + FLOOR)),
    )
