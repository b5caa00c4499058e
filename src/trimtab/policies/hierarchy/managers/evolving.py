"""Search for a small manager by evolution: candidates are ranked by whole runs under them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from trimtab.arrays import Array
from trimtab.policies.hierarchy.goals import GOALS
from trimtab.policies.hierarchy.manager import Manager
from trimtab.policies.hierarchy.managers.linear import SEEN, Scale, linear
from trimtab.policies.hierarchy.managers.priced import frontier, managed
from trimtab.policies.hierarchy.stage import Drawn
from trimtab.policies.hierarchy.weights import Orders
from trimtab.training.evolution import Evolution
from trimtab.training.spread import Spread

SHAPE = (1 + len(SEEN), len(GOALS) - 1)
RELUCTANT = 1.0  # of the spread of what a candidate says: the search begins where few are followed
SIGMA = 0.5


class Evolving:
    """The state of a search; `step` takes it a generation on."""

    def __init__(self, orders: Orders, scale: Scale, *, population: int, seed: int) -> None:
        self.orders, self.scale, self.seed = orders, scale, seed
        start = np.zeros(SHAPE)
        start[0] = RELUCTANT
        self.search = Evolution(start.ravel(), SIGMA, population=population, seed=seed)

    @property
    def done(self) -> int:
        return self.search.generation

    def state(self) -> dict[str, Array]:
        return self.search.state()

    def load(self, kept: dict[str, Any]) -> None:
        self.search.load(kept)

    def manager(self, margin: float, made: dict[str, Any]) -> Manager:
        """What the search has come to."""
        return self._of(self.search.mean, margin, made)

    def step(self, pool: Spread, scenes: Sequence[Drawn], every_s: float) -> float:
        """Learn from these scenes; the mean gain of the better half of the candidates. Harm is
        priced by what a limit would have gained by as much of it.
        """
        beside, made = frontier(pool, scenes, self.orders), {"every_s": every_s}
        candidates = self.search.ask()
        losses = np.array([
            beside.gains(managed(pool, scenes, self.orders, self._of(one, 0.0, made))).mean()
            for one in candidates
        ])  # fmt: skip
        self.search.tell(candidates, losses)
        return float(np.sort(losses)[: math.ceil(len(losses) / 2)].mean())

    def _of(self, weights: Array, margin: float, made: dict[str, Any]) -> Manager:
        return linear(weights.reshape(SHAPE), self.scale, margin, made)
