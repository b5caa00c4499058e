"""What a node is worth to a batch instance by the hierarchy's workers (hierarchy-hmarl, eq. 6).

    cosine - lambda_1 pressure - lambda_2 loss + residual

a row of weights a region, so that a manager can want other things of each. Pressure is the load of
the node with the instance there, now and at its foreseen peak; the loss is what this class of work
loses on that kind of node and among those neighbours; the residual is learned. Weights stand in a
file, the shipped ones and yours: {"made_by": "trimtab hierarchy", "worker": {"cosine": .., ..}, ..}
"""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from trimtab.arrays import Array
from trimtab.compiled import inner
from trimtab.errors import PolicyError
from trimtab.rules.fit import held_ahead, horizon_now, kept_ahead
from trimtab.rules.held import held_in, remedy
from trimtab.rules.world import World

WEIGHTS = {
    "cosine": "of demand and free room, in shares of the node",
    "now": "load with the instance there, services as they are now",
    "peak": "the same at the services' foreseen peak while it runs",
    "speed": "of this class of work on this kind of node",
    "neighbours": "extra time a second that those who run there cost it",
    "general": "speed of all classes of work on this kind of node, their mean",
    "memory": "share of the node's memory that is left",
    "pull": "of the region",
    "least": "an instance is admitted from this score on",
}
COSINE, NOW, PEAK, SPEED, NEIGHBOURS, GENERAL, MEMORY, PULL, LEAST = range(len(WEIGHTS))
SIGN = np.array([1.0, -1.0, -1.0, 1.0, -1.0, -1.0, 1.0, 1.0])
# as the place `swift`: load counts half as it is and half as it is foreseen, and a speed of 1 half
SWIFT = np.array([0.0, 0.5, 0.5, 0.5, 0.0, 0.0, 0.0, 0.0, -1e9])
SHIPPED = Path(__file__).with_name("hierarchy.json")
LEARNER = "hierarchy"


@inner
def terms(w: World, c: int, node: int, job: int, shape: int, out: Array) -> None:
    """Write the terms of the score, before their weights, to `out` (LEAST,)."""
    rec, state, driver = w.nodes[c, node], w.node_state[c, node], w.nodes[c, node].driver
    product = wants = has = 0.0
    for r in range(w.free.shape[2]):
        cap = w.capacity[c, node, r]
        if cap > 0.0:
            d, f = w.demand[c, job, r] / cap, max(w.free[c, node, r], 0.0) / cap
            product += d * f
            wants += d * d
            has += f * f
            if r != driver:
                out[MEMORY] = f - d
    out[COSINE] = product / math.sqrt(wants * has) if wants * has > 0.0 else 0.0
    cap = max(w.capacity[c, node, driver], 1e-12)
    # not by `used`: of what this very pass books, only the free amounts tell
    booked = cap - state.kept - w.free[c, node, driver] + w.demand[c, job, driver]
    foreseen = now = 0.0
    if w.limit.shape[1] > 0:
        foreseen = state.kept - (1.0 - w.limit[c, rec.region]) * cap + held_ahead(w, c, node, job)
        now = state.reserved if state.read < 0.0 else state.read
    out[NOW], out[PEAK] = (booked + now) / cap, (booked + foreseen) / cap
    kind = w.jobs[c, job].kind
    out[SPEED] = w.rate[kind, rec.kind, shape]
    general = 0.0
    for k in range(w.rate.shape[0]):
        general += w.rate[k, rec.kind, shape]
    out[GENERAL] = general / w.rate.shape[0]
    crowd = 0.0
    piece = state.piece if w.conf[0].interference == 1 else -1
    while piece >= 0:
        other = w.jobs[c, w.runs[c, w.pieces[c, piece].run].job].kind
        crowd += w.slow[kind, other] * w.pieces[c, piece].count
        piece = w.pieces[c, piece].after
    out[NEIGHBOURS] = crowd
    out[PULL] = 1.0


@inner
def compatibility(w: World, c: int, node: int, job: int, shape: int) -> float:
    """The weighted sum; below the least that is admitted, minus infinity.

    In three parts, so that an index can order nodes by the first.
    """
    weights = weights_of(w, c, node)
    h = horizon_now(w, c, job)
    total = worker_ease(w, c, node, h) + worker_bonus(w, c, node, job, shape)
    if weights[COSINE] != 0.0 or (weights[NEIGHBOURS] != 0.0 and w.conf[0].interference == 1):
        out = np.zeros(LEAST)
        terms(w, c, node, job, shape, out)
        total += weights[COSINE] * out[COSINE] - weights[NEIGHBOURS] * out[NEIGHBOURS]
    return total if total >= weights[LEAST] else -np.inf


@inner
def weights_of(w: World, c: int, node: int) -> Array:
    """Those of the node's region."""
    return w.worker[c, min(w.nodes[c, node].region, w.worker.shape[1] - 1)]


@inner
def worker_ease(w: World, c: int, node: int, h: int) -> float:
    """The part of the score that hangs on the node alone, and on a job's horizon h."""
    state, driver, weights = w.node_state[c, node], w.nodes[c, node].driver, weights_of(w, c, node)
    cap = max(w.capacity[c, node, driver], 1e-12)
    # not by `used`: of what this very pass books, only the free amounts tell
    booked = cap - state.kept - w.free[c, node, driver]
    foreseen = now = memory = 0.0
    if w.limit.shape[1] > 0:
        share = w.limit[c, w.nodes[c, node].region]
        foreseen = state.kept - (1.0 - share) * cap + kept_ahead(w, c, node, h)
        now = state.reserved if state.read < 0.0 else state.read
    for r in range(w.free.shape[2]):
        if r != driver and w.capacity[c, node, r] > 0.0:
            memory = max(w.free[c, node, r], 0.0) / w.capacity[c, node, r]
    load = weights[NOW] * (booked + now) + weights[PEAK] * (booked + foreseen)
    return weights[MEMORY] * memory - load / cap


@inner
def worker_bonus(w: World, c: int, node: int, job: int, shape: int) -> float:
    """The part that hangs on the job, and on the node's kind, capacity and region."""
    rec, driver, weights = w.nodes[c, node], w.nodes[c, node].driver, weights_of(w, c, node)
    wants = w.demand[c, job, driver] / max(w.capacity[c, node, driver], 1e-12)
    memory = general = 0.0
    for r in range(w.free.shape[2]):
        if r != driver and w.capacity[c, node, r] > 0.0:
            memory = w.demand[c, job, r] / w.capacity[c, node, r]
    for k in range(w.rate.shape[0]):
        general += w.rate[k, rec.kind, shape]
    speed = weights[SPEED] * w.rate[w.jobs[c, job].kind, rec.kind, shape]
    speed -= weights[GENERAL] * general / w.rate.shape[0]
    return speed + weights[PULL] - weights[MEMORY] * memory - (weights[NOW] + weights[PEAK]) * wants


@inner
def worker_rest(w: World, c: int, node: int) -> float:
    """The most that the other parts can add on nodes of this region."""
    weights = weights_of(w, c, node)
    if weights[NEIGHBOURS] < 0.0 and w.conf[0].interference == 1:
        return np.inf
    return max(weights[COSINE], 0.0) * (1.0 + 1e-9)  # a cosine may be rounded up


@cache
def shipped() -> Array:
    """(1, weights) what comes with the package."""
    return read_weights(SHIPPED)


def read_weights(path: str | Path) -> Array:
    """(1, weights) of a file; PolicyError says what is wrong with another."""
    return weights_in(held_in(path, LEARNER), str(path))


def weights_in(held: dict[str, Any], told: str) -> Array:
    """The same of what a file holds."""
    given = held.get("worker")
    if not isinstance(given, dict) or list(given) != list(WEIGHTS):
        raise PolicyError(f"{told}: worker has not the weights {', '.join(WEIGHTS)} in turn; "
                          f"{remedy(LEARNER)}")  # fmt: skip
    for name, value in given.items():
        if type(value) not in (int, float) or not abs(value) <= 1e9:
            raise PolicyError(f"{told}: worker.{name}={value!r} is no weight; {remedy(LEARNER)}")
    return np.array([list(given.values())], np.float64)
