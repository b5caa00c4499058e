"""A run of the hierarchy that stops at every look, to be told goals or orders from outside.

The reward is the paper's (hierarchy-hmarl, eq. 7), of what the engine counted between two looks:

    r = utilisation U - waiting D - imbalance B - cost C
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.policies.hierarchy import graph
from trimtab.policies.hierarchy.goals import GOALS, KEEP
from trimtab.policies.hierarchy.sight import MACHINE, REGION, Memory, Sight, look
from trimtab.policies.hierarchy.stage import RULE, Stage
from trimtab.policies.hierarchy.steering import Manages, Steering
from trimtab.policies.hierarchy.weights import Orders
from trimtab.rules.names import parse
from trimtab.rules.nodes.index import indexed
from trimtab.rules.world import World
from trimtab.sim import loop
from trimtab.sim.whole import CHUNK, steer, view_of
from trimtab.sim.world import copied, grown

DAY_S = 86_400.0  # after the last job came: what has not begun by then never will
TERMS = {
    "utilisation": "U: load of the machines, their mean, while jobs come",
    "waiting": "D: batch jobs in the system, those that wait and those that run, a machine",
    "imbalance": "B: standard deviation of the machines' load, while jobs come",
    "cost": "C: percentage points of the cluster's cores whose services batch jobs harm, and "
    "evicted instances a machine",
}
SIGNS = (1.0, -1.0, -1.0, -1.0)
OF_REGION = (
    *(f"mean {name}" for name in MACHINE), *(f"most {name}" for name in MACHINE), *REGION,
)  # fmt: skip
# what is seen of a region: of its own, of its neighbours by their links, of all in the mean
COLUMNS = tuple(f"{whose} {name}" for whose in ("own", "near", "all") for name in OF_REGION)
BOUND = 4.0  # of what is seen: most of it are shares


class Weights(NamedTuple):
    """Of the terms of the reward, in the turn of TERMS."""

    utilisation: float
    waiting: float
    imbalance: float
    cost: float

    def of(self, terms: Array) -> float:
        """What the change of the terms (4,) is worth."""
        return float(terms @ (np.array(self) * SIGNS))


class Chosen:
    """The goals that agents chose, in the place of a manager."""

    def __init__(self, regions: int) -> None:
        self.said = np.full(regions, KEEP)

    def goals(self, sight: Sight) -> tuple[Array, Array]:
        return self.said, np.zeros((len(self.said), len(GOALS)))


class Told(Steering):
    """Steering whose regions may have orders of their own, and whose looks take no time."""

    def __init__(self, orders: Orders, manager: Manages | None, every_s: float) -> None:
        super().__init__(orders, manager, every_s, clock=lambda: 0.0)
        self.said: dict[int, Orders] = {}

    def orders_of(self, region: int) -> Orders:
        return self.said.get(region, self.orders)


class Course:
    """One run over a stage; `world` is laid out at its beginning, and is left as it is."""

    def __init__(self, stage: Stage, world: World, steering: Steering) -> None:
        self.stage, self.steering = stage, steering
        self.world = indexed(copied(world), parse(RULE).place)
        nodes, work = stage.cluster.nodes, stage.work
        self.cores = float(stage.cluster.capacity[np.arange(len(nodes)), nodes["driver"]].sum())
        self.services = int((work.truth["service"] == 1).sum())
        self.last_s = float(work.jobs["submit_s"].max())
        self.over = self.cut = False
        regions = len(stage.cluster.regions)
        self._graph = graph.empty(world.runs.shape[1], len(nodes), len(work), regions)
        self._memory: Memory | None = None
        self.sight = self._seen()
        while self._due_s() <= float(world.head[0]["first_s"]):
            self.go()  # nothing can be placed yet

    def go(self) -> Array:
        """Follow what was said until the next look, or to the end; (4,) what the terms grew by."""
        before = self._terms()
        steer(self.world, self.steering, self.stage.scene.profile)
        rule, code = parse(RULE), loop.MORE
        while code in (loop.MORE, loop.GROW):
            if code == loop.GROW:
                more = (2 * self.world.runs.shape[1], 2 * self.world.pieces.shape[1])
                self.world = grown(self.world, runs=more[0], pieces=more[1])
            code = loop.run_rule(
                self.world, 0, rule.order, rule.backfill, rule.place, rule.seed, CHUNK
            )
        self.over = code == loop.DONE
        self.cut = not self.over and self.now_s > self.last_s + DAY_S
        self.sight = self._seen()
        return self._terms() - before

    @property
    def now_s(self) -> float:
        return float(self.world.head[0]["now_s"])

    @property
    def guard(self) -> str:
        """Why the best rule acted at the last look in place of what was said, "" = it did not."""
        looks = self.steering.looks
        return looks[-1].guard if looks else ""

    def _due_s(self) -> float:
        """When the look after this one is due."""
        every_s = self.steering.every_s
        return (math.floor(self.now_s / every_s) + 1) * every_s

    def _seen(self) -> Sight:
        view = view_of(self.world, self.stage.scene.profile)
        self._graph = graph.seen(self._graph, view)
        sight, self._memory = look(view, self._graph, self._memory)
        return sight

    def _terms(self) -> Array:
        """(4,) the terms so far: integrals over the looks' interval, counts as they are."""
        total, arrived = self.world.totals[0], self.world.arrived[0]
        came = arrived if arrived["time_s"] > 0 else total  # the drain gains and costs no balance
        machines, every_s = len(self.stage.cluster), self.steering.every_s
        jobs_s = total["system_s"] - self.services * total["time_s"]
        harmed_s = total["harmed_s"] - total["own_harm_s"]
        return np.array([
            came["busy_s"] / machines / every_s, jobs_s / machines / every_s,
            came["imbalance_s"] / every_s,
            100.0 * harmed_s / self.cores / every_s + total["evicted"] / machines,
        ])  # fmt: skip


def rows(sight: Sight) -> Array:
    """(G, len(COLUMNS)) what is seen of each region, pooled as a manager's readout pools it."""
    regions, wide = len(sight.region), sight.machine.shape[1]
    mean, most = np.zeros((regions, wide)), np.full((regions, wide), -np.inf)
    np.add.at(mean, sight.of, sight.machine)
    np.maximum.at(most, sight.of, sight.machine)
    count = np.maximum(np.bincount(sight.of, minlength=regions), 1)[:, None]
    most[np.isneginf(most)] = 0.0
    own = np.concatenate((mean / count, most, sight.region), axis=1)
    seen = np.concatenate((own, sight.link @ own, np.tile(own.mean(0), (regions, 1))), axis=1)
    return np.clip(seen, -BOUND, BOUND).astype(np.float32)
