"""A scene laid out once and played many times, under one set of orders after another."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np

from trimtab.core import Cluster, Workload
from trimtab.errors import TraceError
from trimtab.metrics import HARM, Result, cost, measure
from trimtab.policies.hierarchy.manager import Manager
from trimtab.policies.hierarchy.steering import Steering
from trimtab.policies.hierarchy.weights import Orders
from trimtab.rules.names import parse
from trimtab.rules.world import World
from trimtab.sim import kernel, loop
from trimtab.sim.lend import set_care, set_limit
from trimtab.sim.lending import estimate_of
from trimtab.sim.whole import left_in, run_world
from trimtab.sim.world import Models, fitted, make_world, outages
from trimtab.traces.scenes.scene import Scene, open_scene

AND = ";"  # between traces
FLOOR = 1e-3  # share of harm below which less is worth nothing
RULE = "smallest-area+greedy+worker"  # what workers are, orders aside
LOADS = (0.5, 1.1)
REGIONS = (3, 8)
MTBF_S, MTTR_S = 100_000.0, 600.0  # of a node: one failure an hour and 28 machines
WORST = (5.0, 1.0)  # cost and harm of orders under which some job never fits


@dataclass(frozen=True)
class Stage:
    scene: Scene
    work: Workload
    cluster: Cluster
    models: Models

    def world(self, orders: Orders, log: int = 0) -> World:
        """Laid out at its beginning, under these orders in every region; `log` = rows of it."""
        worker = np.tile(orders.worker, (len(self.cluster.regions), 1))
        world = make_world(
            [self.work], [self.cluster], self.scene.profile, self.models, log=log, worker=worker
        )
        loop.set_rank(world, 0, parse(RULE).order)
        kernel.reset(world, 0)
        set_limit(world, 0, -1, orders.limit, estimate_of(orders.estimate))
        care = (orders.margin, orders.patience_s, orders.overstay, orders.taper)
        set_care(world, 0, -1, *care)
        return world

    def played(self, orders: Orders, manager: Manager | None = None) -> tuple[float, float]:
        """The log of the cost and the share of added harm under these orders."""
        world = self.world(orders)
        if manager is None:  # nobody looks, which saves time, unless some job never fits
            world = run_world(world, parse(RULE))
        if manager is not None or int(world.head[0]["waiting"]):
            steering = Steering(orders, manager, clock=lambda: 0.0)  # no look is too slow here
            world = run_world(self.world(orders), parse(RULE), None, steering, self.scene.profile)
        if int(world.head[0]["waiting"]):
            return WORST
        found = self.measured(world)
        return cost(found), found[HARM]

    def measured(self, world: World) -> dict[str, float]:
        """The metrics of a world that has run to its end."""
        left = left_in(world, None, 0.0)
        return measure(
            Result(
                "hierarchy", 0, self.work, self.cluster, left.state, left.totals,
                profile=self.scene.profile, arrived=left.arrived, so_far=left.so_far,
            )
        )  # fmt: skip


def staged(trace: str, split: str, seed: int, machines: int) -> Stage:
    """A scene of that split; its load, its regions and which nodes fail are drawn by the seed."""
    rng = np.random.default_rng(seed)
    regions = int(rng.integers(REGIONS[0], REGIONS[1] + 1))
    settings = f"machines={machines},regions={regions},split={split}"
    scene = open_scene(
        f"{trace}{',' if ':' in trace else ':'}{settings}", seed=seed, load=rng.uniform(*LOADS)
    )
    if scene.cluster.lending is None:
        raise TraceError(f"{trace}: no services lend anything there; give a co-located scene")
    work, cluster = fitted(scene.workload, scene.cluster)
    until_s = 2.0 * float(work.jobs["submit_s"].max())
    fail = outages(cluster, until_s, rng, mtbf_s=MTBF_S, mttr_s=MTTR_S)
    return Stage(scene, work, cluster, Models(outages=fail))


class Drawn(NamedTuple):
    """What a stage is drawn from: little to send to another process, which lays it out again."""

    trace: str
    split: str
    seed: int
    machines: int

    def laid(self) -> Drawn:
        """The same, once this process has laid it out."""
        self.stage()
        return self

    def stage(self) -> Stage:
        """The scene, laid out once in each process."""
        return _laid_out(self)

    def played(self, orders: Orders, manager: Manager | None = None) -> tuple[float, float]:
        """As of `Stage`."""
        return self.stage().played(orders, manager)


@cache
def _laid_out(drawn: Drawn) -> Stage:
    return staged(*drawn)
