"""Batch jobs beside services: a trace by a rule, a round of decisions, a window's refresh, and what
they cost on up to 100,000 machines.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import NamedTuple

from trimtab.bench import inputs
from trimtab.bench.cases import Measured, Setup, best_s
from trimtab.rules.names import parse
from trimtab.rules.nodes.index import indexed
from trimtab.rules.plan import decide
from trimtab.rules.world import World
from trimtab.sim import kernel, loop
from trimtab.sim.lending import lending_of, set_lending
from trimtab.sim.whole import simulate
from trimtab.sim.world import grown, make_world
from trimtab.traces.scenes.scene import Scene, open_scene

RULE = "smallest-area+greedy+swift+p95@0.85"
WAITING = 1000  # tasks of a round
WINDOWS = 40  # 5 s each
FEW = 1000  # machines that others are set beside


def colocated(machines: int) -> Measured:
    """An hour of batch jobs beside three services a machine, and without them: pods a second."""
    scene = open_scene(f"colocated:machines={machines},services=3/3", seed=inputs.SEED)
    work, rack, profile = scene.workload, scene.cluster, scene.profile
    batch = work.truth["service"] == 0
    alone = work.only(batch)
    plain = replace(rack, lending=None)
    pods = int(work.jobs["instances"][batch].sum())
    bare = RULE.rpartition("+")[0].replace("swift", "fastest")
    with_s = best_s(lambda: simulate(work, rack, RULE, profile=profile), 1)
    without_s = best_s(lambda: simulate(alone, plain, bare, profile=profile), 1)
    return Measured(pods / with_s, "pods/s", {"without services": pods / without_s})


def growth_colocated(setup: Setup) -> Measured:
    """Cost of a pod on ten times the machines, services and jobs."""
    few, many = (colocated(setup.of(n, n // 20)).value for n in (400, 4000))
    return Measured(few / many, "x")


def half_way(scene: Scene) -> World:
    """The scene when half of the time is over in which jobs come."""
    work, rule = scene.workload, parse(RULE)
    world = make_world([work], [scene.cluster], scene.profile)
    loop.set_rank(world, 0, rule.order)
    kernel.reset(world, 0)
    world = set_lending(world, work, scene.cluster, **lending_of(rule))
    world = indexed(world, rule.place)
    world.head["alarm_s"] = world.head["first_s"] + inputs.SPAN_S / 2
    code = loop.MORE
    while code != loop.ALARM:
        code = loop.run_rule(world, 0, rule.order, rule.backfill, rule.place, rule.seed, 1_000_000)
        if code == loop.GROW:
            runs, pieces = 2 * world.runs.shape[1], 2 * world.pieces.shape[1]
            world = grown(world, runs=runs, pieces=pieces)
    return world


def round_s(machines: int) -> tuple[float, float]:
    """Seconds of one round that decides on 1,000 waiting tasks, by an index made anew and by scans
    of all machines.
    """
    world, rule = half_way(inputs.colocated_like(machines)), parse(RULE)
    while world.head[0]["waiting"] < WAITING:
        kernel.advance(world, 0)

    def ask() -> None:
        world.tree_seen[:] = -1
        loop.queue_of(world, 0)
        decide(world, rule.order, rule.backfill, rule.place, rule.seed, WAITING)

    ask()
    while world.head[0]["full"]:
        world = grown(world, pieces=2 * world.pieces.shape[1])
        ask()
    index_s = best_s(ask)
    world.head["indexed"] = 0
    return index_s, best_s(ask)


def decision_round(setup: Setup) -> Measured:
    index_s, scan_s = round_s(setup.of(4, 1) * inputs.COPIED)
    return Measured(1e3 * index_s, "ms", {"by scans": 1e3 * scan_s})


def window_s(scene: Scene) -> float:
    """Seconds in which services' use changes and all that hangs on it, the mean of some windows."""
    world, took_s, windows = half_way(scene), 0.0, 0
    while windows < WINDOWS:
        step, began_s = int(world.head[0]["step"]), time.perf_counter()
        kernel.advance(world, 0)
        if world.head[0]["step"] > step:
            took_s += time.perf_counter() - began_s
            windows += 1
    return took_s / WINDOWS


def window(setup: Setup) -> Measured:
    scene = inputs.colocated_like(setup.of(4, 1) * inputs.COPIED)
    return Measured(1e3 * min(window_s(scene) for _ in range(3)), "ms")


class Cost(NamedTuple):
    pod_s: float  # of a whole run
    machine_s: float  # of a window


@cache
def cost(machines: int) -> Cost:
    scene = inputs.colocated_like(machines)
    work = scene.workload
    pods = int(work.jobs["instances"][work.truth["service"] == 0].sum())
    simulate(work.window(0, 2), scene.cluster, RULE, profile=scene.profile)
    began_s = time.perf_counter()
    simulate(work, scene.cluster, RULE, profile=scene.profile)
    return Cost((time.perf_counter() - began_s) / pods, window_s(scene) / machines)


def growth(setup: Setup, machines: int, of: str) -> Measured:
    """The cost of a pod, or of a machine's window, beside that on 1,000 machines."""
    many = setup.of(machines, max(machines // 10, 2 * FEW))
    return Measured(getattr(cost(many), of) / getattr(cost(FEW), of), "x")


BY_NAME: dict[str, Callable[[Setup], Measured]] = {
    "colocated": lambda setup: colocated(setup.of(4000, 200)),
    "round-1000-on-4000": decision_round,
    "window-4000": window,
    "growth-colocated-10x": growth_colocated,
    "growth-pods-4000": lambda setup: growth(setup, 4_000, "pod_s"),
    "growth-pods-20000": lambda setup: growth(setup, 20_000, "pod_s"),
    "growth-pods-100000": lambda setup: growth(setup, 100_000, "pod_s"),
    "growth-window-4000": lambda setup: growth(setup, 4_000, "machine_s"),
    "growth-window-20000": lambda setup: growth(setup, 20_000, "machine_s"),
    "growth-window-100000": lambda setup: growth(setup, 100_000, "machine_s"),
}
