"""CMA-ES: a normal distribution of candidates that learns where the good ones lie.

Hansen, "The CMA Evolution Strategy: A Tutorial" (arXiv:1604.00772), with its default settings. It
only ranks the candidates, so any loss will do. The whole state is arrays: a search that stops is
taken up again to the last bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trimtab.arrays import Array

LEAST_VARIANCE = 1e-20
STATE = ("mean", "path", "sigma_path", "covariance", "sigma", "generation")


class Evolution:
    """Looks for the arguments of the least loss: `ask` for candidates, `tell` their losses."""

    def __init__(self, start: Array, sigma: float, *, population: int = 0, seed: int = 0) -> None:
        n = len(start)
        self.seed = seed
        self.population = population or 4 + int(3 * np.log(n))
        best = self.population // 2
        if best < 1 or sigma <= 0:
            raise ValueError(f"population={population} and sigma={sigma} leave nothing to choose")
        rank_weight = np.log(best + 0.5) - np.log(np.arange(1, best + 1))
        self.rank_weight = rank_weight / rank_weight.sum()
        mass = 1 / (self.rank_weight**2).sum()
        self.path_rate = (4 + mass / n) / (n + 4 + 2 * mass / n)
        self.sigma_rate = (mass + 2) / (n + mass + 5)
        self.one_rate = 2 / ((n + 1.3) ** 2 + mass)
        self.many_rate = min(1 - self.one_rate, 2 * (mass - 2 + 1 / mass) / ((n + 2) ** 2 + mass))
        self.damping = 1 + 2 * max(0.0, np.sqrt((mass - 1) / (n + 1)) - 1) + self.sigma_rate
        self.mass = mass
        self.usual_length = np.sqrt(n) * (1 - 1 / (4 * n) + 1 / (21 * n * n))
        self.mean = np.array(start, float)
        self.path, self.sigma_path = np.zeros(n), np.zeros(n)
        self.covariance = np.eye(n)
        self.sigma, self.generation = float(sigma), 0

    def _axes(self) -> tuple[Array, Array]:
        """Standard deviations and directions of the distribution."""
        values, directions = np.linalg.eigh((self.covariance + self.covariance.T) / 2)
        return np.sqrt(np.maximum(values, LEAST_VARIANCE)), directions

    def ask(self) -> Array:
        """(population, n) candidates of this generation: the same whenever it is asked."""
        lengths, directions = self._axes()
        rng = np.random.default_rng([self.seed, self.generation])
        drawn = rng.standard_normal((self.population, len(self.mean)))
        return self.mean + self.sigma * (drawn * lengths) @ directions.T

    def tell(self, candidates: Array, losses: Array) -> None:
        """Learn from the losses of the candidates that `ask` gave."""
        n, order = len(self.mean), np.argsort(losses, kind="stable")
        steps = (candidates[order[: len(self.rank_weight)]] - self.mean) / self.sigma
        step = self.rank_weight @ steps
        lengths, directions = self._axes()
        self.mean = self.mean + self.sigma * step
        self.generation += 1
        rate = self.sigma_rate
        self.sigma_path = (1 - rate) * self.sigma_path + np.sqrt(rate * (2 - rate) * self.mass) * (
            directions @ (directions.T @ step / lengths)
        )
        length = np.linalg.norm(self.sigma_path)
        settled = np.sqrt(1 - (1 - rate) ** (2 * self.generation))
        calm = bool(length / settled < (1.4 + 2 / (n + 1)) * self.usual_length)
        rate = self.path_rate
        self.path = (1 - rate) * self.path + calm * np.sqrt(rate * (2 - rate) * self.mass) * step
        kept = 1 - self.one_rate - self.many_rate
        kept += (1 - calm) * self.one_rate * rate * (2 - rate)
        self.covariance = (
            kept * self.covariance
            + self.one_rate * np.outer(self.path, self.path)
            + self.many_rate * (steps.T * self.rank_weight) @ steps
        )
        self.sigma *= float(
            np.exp(self.sigma_rate / self.damping * (length / self.usual_length - 1))
        )

    def state(self) -> dict[str, Array]:
        """All that it has learned, as arrays."""
        return {name: np.array(getattr(self, name)) for name in STATE}

    def load(self, state: dict[str, Any]) -> None:
        for name in STATE:
            setattr(self, name, np.array(state[name], float))
        self.sigma, self.generation = float(self.sigma), int(self.generation)
