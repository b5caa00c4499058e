"""Search for a small manager by policy gradients (REINFORCE, Williams 1992).

Goals are drawn from a softmax; each scene is played several times, and what followed a look is
compared with what followed it in the other plays of that scene. A region answers for its own harm
and for what the whole cluster waited, was unbalanced, took and was late.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.policies.hierarchy.manager import Manager
from trimtab.policies.hierarchy.managers.evolving import SHAPE
from trimtab.policies.hierarchy.managers.linear import Scale, Seeing, linear
from trimtab.policies.hierarchy.managers.walk import walked
from trimtab.policies.hierarchy.rollouts import WATCHED_S, counted, scales_of, until
from trimtab.policies.hierarchy.stage import Drawn, Stage
from trimtab.policies.hierarchy.weights import Orders
from trimtab.rules.world import World
from trimtab.training.spread import Spread

RATE, KEPT_RATE = 0.1, 0.8  # of a step, and of the one before
BOUND = 3.0  # spreads from the mean, of what is seen


class Play(NamedTuple):
    """Looks T of G regions."""

    x: Array  # (T, G, 1 + SEEN)
    goal: Array  # (T, G)
    cost: Array  # (T, G) what followed, as a change of the log of the cost


class Gradient:
    """The state of a search; `step` takes it one update on."""

    def __init__(
        self, orders: Orders, scale: Scale, *, plays: int, price: float, seed: int
    ) -> None:
        self.orders, self.scale, self.plays, self.price, self.seed = (
            orders,
            scale,
            plays,
            price,
            seed,
        )
        self.weights, self.moved, self.done = np.zeros(SHAPE), np.zeros(SHAPE), 0

    def state(self) -> dict[str, Array]:
        return {"weights": self.weights, "moved": self.moved, "updates": np.array(self.done)}

    def load(self, kept: dict[str, Any]) -> None:
        self.weights, self.moved = kept["weights"], kept["moved"]
        self.done = int(kept["updates"])

    def manager(self, margin: float, made: dict[str, Any]) -> Manager:
        """What the search has come to: what is likelier than `keep` promises more."""
        return linear(-self.weights, self.scale, margin, made)

    def step(self, pool: Spread, scenes: Sequence[Drawn], every_s: float) -> float:
        """Learn from plays of these scenes; the mean cost of a look in them."""
        draws = [
            (one, (self.seed, self.done, turn)) for one in scenes for turn in range(self.plays)
        ]
        play = partial(
            played, orders=self.orders, scale=self.scale, weights=self.weights, price=self.price,
            every_s=every_s,
        )  # fmt: skip
        found = list(pool.map(play, draws))
        groups = [found[at : at + self.plays] for at in range(0, len(found), self.plays)]
        slope = np.mean([slope_of(one, self.weights) for one in groups], axis=0)
        length = float(np.sqrt((slope**2).mean()))
        self.moved = KEPT_RATE * self.moved - RATE * slope / max(length, 1e-12)
        self.weights, self.done = self.weights + self.moved, self.done + 1
        return float(np.mean([one.cost.mean() for one in found]))


def chances(x: Array, weights: Array) -> Array:
    """(.., GOALS) of the goals, `keep` first, of (.., 1 + SEEN)."""
    said = x @ weights
    said = np.concatenate((np.zeros((*said.shape[:-1], 1)), said), -1)
    said = np.exp(said - said.max(-1, keepdims=True))
    return np.asarray(said / said.sum(-1, keepdims=True))


def played(
    asked: tuple[Drawn, tuple[int, ...]], orders: Orders, scale: Scale, weights: Array,
    price: float, every_s: float,
) -> Play:  # fmt: skip
    """One play of a scene under goals that are drawn."""
    drawn, turn = asked
    stage, rng = drawn.stage(), np.random.default_rng([*turn, drawn.seed])
    scales = np.array(scales_of(stage, until(stage.world(orders), math.inf), price))
    seeing = Seeing(stage, stage.world(orders))
    xs: list[Array] = []
    goals: list[Array] = []
    sums: list[Array] = []

    def chooses(world: World) -> list[int]:
        rows = np.clip((seeing.rows(world) - scale.mean) / scale.spread, -BOUND, BOUND)
        xs.append(np.concatenate((np.ones((len(rows), 1)), rows), 1))
        chance = chances(xs[-1], weights).cumsum(1)
        goals.append((rng.random((len(rows), 1)) > chance[:, :-1]).sum(1))
        sums.append(so_far(world, stage, scales))
        return goals[-1].tolist()

    end = walked(stage, orders, every_s, chooses)
    sums.append(so_far(end, stage, scales))
    cost, ahead = np.array(sums), max(round(WATCHED_S / every_s), 1)
    last = np.minimum(np.arange(len(xs)) + ahead, len(xs))
    return Play(np.array(xs), np.array(goals), cost[last] - cost[:-1])


def so_far(world: World, stage: Stage, scales: Array) -> Array:
    """(G,) the cluster's share of the cost, and a region's own harm."""
    of = stage.cluster.nodes["region"]
    harm_s = np.bincount(of, world.node_state[0]["harm_s"], len(stage.cluster.regions))
    return np.asarray(counted(world, stage)[:-1] @ scales[:-1] + harm_s * scales[-1])


def slope_of(plays: Sequence[Play], weights: Array) -> Array:
    """How the expected cost of one scene rises with the weights."""
    cost = np.array([one.cost for one in plays])
    others = (cost.sum(0) - cost) / max(len(plays) - 1, 1)
    slope = np.zeros_like(weights)
    for one, beyond in zip(plays, cost - others):
        chosen = np.eye(weights.shape[1] + 1)[one.goal]
        off = (chosen - chances(one.x, weights))[..., 1:]
        slope += np.einsum("tg,tgi,tgk->ik", beyond, one.x, off) / beyond.size
    return slope / len(plays)
