"""How well a region's goal can be read off what its workers do (hierarchy-hmarl, eq. 8).

Scenes are played under goals drawn at random, a region and a look. What the workers of a region do
until the next look is put into a few numbers, beside how the region stood, and a softmax is fitted
that tells the goal from them. On scenes that it has not seen, its cross-entropy is the alignment
loss: a goal that changes nothing cannot be told, and the loss is what guessing costs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator

from trimtab.arrays import Array
from trimtab.core import Limit
from trimtab.metrics import HARM, cost
from trimtab.policies.hierarchy.goals import NAMES
from trimtab.policies.hierarchy.sight import CROWDED, Sight
from trimtab.policies.hierarchy.stage import AND, RULE, WORST, Stage, staged
from trimtab.policies.hierarchy.steering import Steering
from trimtab.policies.hierarchy.weights import Orders
from trimtab.rules.names import parse
from trimtab.sim.log import E_STARTED, E_STOPPED, EVICTED
from trimtab.sim.whole import run_world

FIRST_SEED, HELD_SEED = 740_000, 840_000
STATE = {
    "load": "of the region's nodes, their mean",
    "room": "that batch jobs may still book, over capacity",
    "waiting": "cores that wait / cores of the cluster, x / (1 + x)",
    "crowding": "share of the region's nodes that are crowded",
}
ACTION = {
    "admitted": "cores begun here until the next look, over all that waited or began",
    "drawn": "of all cores begun, the share begun here less the region's share of the cluster",
    "none": "1 = nothing began here",
    "packed": "load of the chosen nodes less the region's",
    "roomy": "room of the chosen nodes less the region's",
    "speed": "of the chosen nodes for what they were given, less the region's for the same",
    "size": "log of cores of an instance begun, less that of the waiting",
    "length": "log of seconds asked by what began, less that of the waiting",
    "evicted": "cores of batch, over capacity",
    "filled": "change of load until the next look",
    "left": "room under the limit at the next look",
    "crowded": "share of nodes that are crowded then",
}
LOG_ROWS = 4096
RIDGE = 1e-2  # of the weights' squares, a row
ROUNDS = 25
DIGITS = 4


class Acts(NamedTuple):
    """What regions did under goals that are known, a row a region and look."""

    feature: Array  # (E, F) STATE, then ACTION
    goal: Array  # (E,) of GOALS


class Play(NamedTuple):
    """A scene under goals drawn at random."""

    cost: float  # its logarithm
    harm: float
    acts: Acts


class Reading(NamedTuple):
    """How well goals were told on scenes that were not fitted to."""

    accuracy: float
    majority: float  # share of the commonest goal: what always guessing it gets right
    chance: float
    cross_entropy: float  # nats; log of the number of goals = nothing is told
    table: Array  # (GOALS, GOALS) rows are true, columns told

    def told(self) -> dict[str, Any]:
        """As JSON has it."""
        numbers = {name: round(getattr(self, name), DIGITS) for name in self._fields[:-1]}
        rows = {goal: dict(zip(NAMES, row)) for goal, row in zip(NAMES, self.table.tolist())}
        return {**numbers, "table": rows}

    def line(self) -> str:
        """One line of it."""
        right, chance, common = (100 * x for x in (self.accuracy, self.chance, self.majority))
        return (
            f"a region's goal is read off its workers' acts in {right:.0f} % of looks (chance "
            f"{chance:.0f} %, always the commonest {common:.0f} %), cross-entropy "
            f"{self.cross_entropy:.3f} of {math.log(len(NAMES)):.3f}"
        )


class Drawn:
    """A manager that wants something at random of each region at each look."""

    def __init__(self, rng: Generator) -> None:
        self.rng = rng

    def goals(self, sight: Sight) -> tuple[Array, Array]:
        regions = len(sight.region)
        return self.rng.integers(0, len(NAMES), regions), np.zeros((regions, len(NAMES)))


class Look(NamedTuple):
    """How a region's nodes and the queue stood at a look."""

    now_s: float
    load: Array  # (N,)
    room: Array  # (N,) over capacity
    waiting: float  # cores
    size: float  # mean log of the waiting instances' cores
    length: float  # and of the seconds they ask


class Watcher:
    """Steers as another does and keeps what its looks saw."""

    def __init__(self, inner: Steering) -> None:
        self.inner, self.due_s = inner, -math.inf
        self.worker: Array | None = None
        self.looks: list[Look] = []

    def began(self, now_s: float) -> bool:
        return self.inner.began(now_s)

    def decisions(self, view: Any) -> list[Limit] | None:
        made = self.inner.decisions(view)
        if made is not None:
            self.looks.append(seen(view))
        self.worker, self.due_s = self.inner.worker, self.inner.due_s
        return made


def seen(view: Any) -> Look:
    row, driver = np.arange(len(view.nodes)), view.nodes["driver"]
    cap = np.maximum(view.capacity[row, driver], 1e-9)
    queue = np.asarray(view.queue)
    queue = queue[np.isfinite(view.jobs["request_s"][queue])]
    cores = view.demand[queue, int(np.bincount(driver).argmax())]
    waiting = cores * np.maximum(view.state["left"][queue], 0)
    return Look(
        float(view.now_s), np.array(view.node_state["load"]),
        np.maximum(view.free[row, driver], 0.0) / cap, float(waiting.sum()),
        mean_log(cores, waiting), mean_log(view.jobs["request_s"][queue], waiting),
    )  # fmt: skip


def mean_log(values: Array, weight: Array) -> float:
    """Mean logarithm, by weight; NaN of nothing."""
    total = float(weight.sum())
    return float((np.log(np.maximum(values, 1e-3)) * weight).sum() / total) if total else math.nan


def play(stage: Stage, orders: Orders, rng: Generator) -> Play:
    """A scene from end to end under goals drawn at random."""
    steering = Steering(orders, Drawn(rng), clock=lambda: 0.0)  # no look is too slow here
    watcher = Watcher(steering)
    world = stage.world(orders, log=LOG_ROWS)
    world = run_world(world, parse(RULE), None, watcher, stage.scene.profile)
    log = world.log[0, : int(world.head[0]["log"])]
    acts = acts_of(stage, log, watcher.looks, [look.goals for look in steering.looks])
    if int(world.head[0]["waiting"]):
        return Play(*WORST, acts)
    found = stage.measured(world)
    return Play(cost(found), found[HARM], acts)


class Ground(NamedTuple):
    """What of a scene its acts are measured against."""

    of: Array  # (N,) region of each node
    kind: Array  # (N,)
    cap: Array  # (N,) of the driving resource
    size: Array  # (G,) of all nodes of a region
    rate: Array  # (K, kinds of node)
    usual: Array  # (K, G) its mean over a region's nodes
    cores: Array  # (J,) of an instance
    asked_s: Array  # (J,)
    work: Array  # (J,) its kind

    def mean(self, values: Array) -> Array:
        """(G,) of values of nodes, by their cores."""
        return np.bincount(self.of, values * self.cap, len(self.size)) / self.size

    def share(self, chosen: Array) -> Array:
        """(G,) share of nodes."""
        count = np.bincount(self.of, minlength=len(self.size))
        return np.bincount(self.of, chosen.astype(float), len(self.size)) / np.maximum(count, 1)


def ground_of(stage: Stage) -> Ground:
    work, nodes = stage.work, stage.cluster.nodes
    driver, kind = int(np.bincount(nodes["driver"]).argmax()), nodes["kind"]
    of, regions = nodes["region"].astype(np.int64), len(stage.cluster.regions)
    cap = np.maximum(stage.cluster.capacity[:, driver], 1e-9)
    rate = stage.scene.profile.rate[:, :, 0]
    usual = np.stack([np.bincount(of, one[kind], regions) for one in rate])
    count = np.maximum(np.bincount(of, minlength=regions), 1)
    return Ground(
        of, kind, cap, np.bincount(of, cap, regions), rate, usual / count, work.demand[:, driver],
        work.jobs["request_s"], work.jobs["kind"],
    )  # fmt: skip


def acts_of(stage: Stage, log: Array, looks: Sequence[Look], goals: Sequence[Array]) -> Acts:
    """What began and was evicted between two looks, region by region, while anything waited."""
    ground = ground_of(stage)
    log = log[(log["job"] >= 0) & (log["node"] >= 0)]
    log = log[stage.work.truth["service"][log["job"]] == 0]
    starts = log[log["what"] == E_STARTED]
    lost = log[(log["what"] == E_STOPPED) & (log["reason"] == EVICTED)]
    rows, told = [], []
    for before, after, wanted in zip(looks[:-1], looks[1:], goals):
        new, gone = (within(one, before.now_s, after.now_s) for one in (starts, lost))
        if before.waiting or len(new):
            rows.append(np.stack([*stood(ground, before), *done(ground, before, after, new, gone)]))
            told.append(wanted)
    if not rows:
        return Acts(np.zeros((0, len(STATE) + len(ACTION))), np.zeros(0, np.int64))
    return Acts(np.concatenate(rows, axis=1).T, np.concatenate(told).astype(np.int64))


def within(log: Array, from_s: float, to_s: float) -> Array:
    """The rows of that time; a log is in the order of time."""
    low, high = np.searchsorted(log["time_s"], (from_s, to_s))
    return log[low:high]


def stood(ground: Ground, look: Look) -> list[Array]:
    """STATE of the regions, (G,) each."""
    share = look.waiting / ground.cap.sum()
    waiting = np.full(len(ground.size), share / (1 + share))
    crowded = ground.share(look.load > CROWDED)
    return [ground.mean(look.load), ground.mean(look.room), waiting, crowded]


def done(ground: Ground, before: Look, after: Look, new: Array, gone: Array) -> list[Array]:
    """ACTION of the regions, (G,) each."""
    node, job, regions = new["node"], new["job"], len(ground.size)
    at, cores = ground.of[node], ground.cores[job] * new["count"]
    begun, whole = np.bincount(at, cores, regions), max(float(cores.sum()), 1e-9)

    def mean(values: Array) -> Array:
        """(G,) of what began, by its cores; 0 where nothing did."""
        total = np.bincount(at, values * cores, regions)
        return np.where(begun > 0, total / np.maximum(begun, 1e-9), 0.0)

    load, room, kind = ground.mean(before.load), ground.mean(before.room), ground.work[job]
    size, length = (
        beside(ground.cores[job], before.size),
        beside(ground.asked_s[job], before.length),
    )
    lost = ground.cores[gone["job"]] * gone["count"]
    return [
        begun / (before.waiting + whole), begun / whole - ground.size / ground.size.sum(),
        (begun == 0).astype(float), mean(before.load[node] - load[at]),
        mean(before.room[node] - room[at]),
        mean(ground.rate[kind, ground.kind[node]] - ground.usual[kind, at]), mean(size),
        mean(length), np.bincount(ground.of[gone["node"]], lost, regions) / ground.size,
        ground.mean(after.load) - load, ground.mean(after.room), ground.share(after.load > CROWDED),
    ]  # fmt: skip


def beside(values: Array, waiting: float) -> Array:
    """Logarithms less that of the waiting; where nothing waited, less their own mean."""
    logs = np.log(np.maximum(values, 1e-3))
    if len(logs) and math.isnan(waiting):
        return np.asarray(logs - logs.mean())
    return np.asarray(logs - waiting)


def joined(parts: Sequence[Acts]) -> Acts:
    return Acts(*(np.concatenate(column) for column in zip(*parts)))


class Softmax(NamedTuple):
    """The inverse model: a goal's chances by features."""

    mean: Array  # (F,)
    scale: Array  # (F,)
    weight: Array  # (F + 1, GOALS), biases last

    def chances(self, feature: Array) -> Array:
        """(E, GOALS)."""
        said = inputs(feature, self.mean, self.scale) @ self.weight
        grown = np.exp(said - said.max(1, keepdims=True))
        return np.asarray(grown / grown.sum(1, keepdims=True))


def inputs(feature: Array, mean: Array, scale: Array) -> Array:
    return np.concatenate(((feature - mean) / scale, np.ones((len(feature), 1))), axis=1)


def fitted(acts: Acts) -> Softmax:
    """The weights of least cross-entropy and ridge, by Newton's steps."""
    count, goals = acts.feature.shape[1] + 1, len(NAMES)
    if not len(acts.goal):
        return Softmax(np.zeros(count - 1), np.ones(count - 1), np.zeros((count, goals)))
    scale = np.maximum(acts.feature.std(0), 1e-6)
    model = Softmax(acts.feature.mean(0), scale, np.zeros((count, goals)))
    x, y = inputs(acts.feature, model.mean, scale), np.eye(goals)[acts.goal]
    for _ in range(ROUNDS):
        p = model.chances(acts.feature)
        slope = (x.T @ (p - y) / len(x) + RIDGE * model.weight).ravel()
        bend = np.empty((count, goals, count, goals))
        for a in range(goals):
            for b in range(goals):
                spread = p[:, a] * ((a == b) - p[:, b])
                bend[:, a, :, b] = (x * spread[:, None]).T @ x / len(x)
        square = bend.reshape(count * goals, -1) + RIDGE * np.eye(count * goals)
        step = np.linalg.solve(square, slope)
        model = model._replace(weight=model.weight - step.reshape(count, goals))
        if float(np.abs(step).max()) < 1e-6:
            break
    return model


def judged(model: Softmax, acts: Acts) -> Reading:
    """What it tells of acts that it was not fitted to."""
    goals = len(NAMES)
    if not len(acts.goal):
        return Reading(1 / goals, 1 / goals, 1 / goals, math.log(goals), np.zeros((goals, goals)))
    p = model.chances(acts.feature)
    told = p.argmax(1)
    table = np.zeros((goals, goals), np.int64)
    np.add.at(table, (acts.goal, told), 1)
    right = np.maximum(p[np.arange(len(p)), acts.goal], 1e-12)
    return Reading(
        float((told == acts.goal).mean()), float(np.bincount(acts.goal).max() / len(acts.goal)),
        1 / goals, float(-np.log(right).mean()), table,
    )  # fmt: skip


def crossed(parts: Sequence[Acts]) -> float:
    """Cross-entropy on either half of the scenes of what was fitted to the other."""
    halves = [joined(parts[::2]), joined(parts[1::2] or parts[::2])]
    found = [judged(fitted(a), b) for a, b in (halves, halves[::-1])]
    return float(np.mean([one.cross_entropy for one in found]))


def reading(
    trace: str, orders: Orders, *, scenes: int = 8, held: int = 4, machines: int = 48,
    seed: int = 0, workers: int = 1,
) -> Reading:  # fmt: skip
    """Fit to training scenes, judge on validation scenes."""
    traces = trace.split(AND)
    asked = [("train", FIRST_SEED + 1000 * seed + n) for n in range(scenes)]
    asked += [("validation", HELD_SEED + 1000 * seed + n) for n in range(held)]

    def one(pair: tuple[str, int]) -> Acts:
        split, number = pair
        stage = staged(traces[number % len(traces)], split, number, machines)
        return play(stage, orders, np.random.default_rng([number, 3])).acts

    with ThreadPoolExecutor(workers) as pool:
        found = list(pool.map(one, asked))
    return judged(fitted(joined(found[:scenes])), joined(found[scenes:]))
