"""A ridge regression in which every job type has its own level and all share the other effects.

The types' levels are eliminated in closed form, so that a fit costs a small matrix whatever the
number of types: a memory of many job types refits it after every finished run.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from trimtab.arrays import Array


class Sums(NamedTuple):
    """All that a fit needs of one type's rows: sums over them, weighted."""

    weight: float
    x: Array  # (q,)
    y: float
    xx: Array  # (q, q)
    xy: Array  # (q,)
    yy: float


class FactorisedPrior:
    """y = level + effect of the type + x . effects, each but the level drawn to 0 by `ridge`."""

    def __init__(self, columns: int, *, ridge: float, noise: float) -> None:
        self.ridge, self.noise = ridge, noise
        self._sums: dict[str, Sums] = {}
        self._stale = False
        self._level, self._misfit = 0.0, math.inf  # misfit: variance that the fit leaves
        self._effect = np.zeros(columns)  # (q,)
        self._doubt = np.eye(columns) / ridge  # (q, q) covariance of the effects a unit of misfit

    def put(self, job_type: str, x: Array, y: Array, weight: Array) -> None:
        """Take these rows (n, q), (n,), (n,) for the type's, in place of those it had."""
        if len(y):
            xw = x.T * weight
            of_y, of_yy = float(weight @ y), float(weight @ (y * y))
            self._sums[job_type] = Sums(float(weight.sum()), xw.sum(1), of_y, xw @ x, xw @ y, of_yy)
        else:
            self._sums.pop(job_type, None)
        self._stale = True

    def expected(self, job_type: str, x: Array) -> tuple[Array, Array]:
        """y of rows x (n, q) of a type, and its variance; infinite while nothing was put."""
        if self._stale:
            self._fit()
        own, offset, centre = self.ridge, 0.0, np.zeros(x.shape[1])
        if job_type in self._sums:
            sums = self._sums[job_type]
            own = sums.weight + self.ridge
            offset = (sums.y - self._level * sums.weight - float(sums.x @ self._effect)) / own
            centre = sums.x / own
        off = x - centre
        variance = 1 / own + ((off @ self._doubt) * off).sum(1)
        return self._level + offset + x @ self._effect, self._misfit * variance

    def _fit(self) -> None:
        self._stale = False
        if not self._sums:
            self._level, self._misfit = 0.0, math.inf
            self._effect = np.zeros(len(self._effect))
            return
        weight, x, y, xx, xy, yy = (np.array(column) for column in zip(*self._sums.values()))
        self._level = level = float(y.sum() / weight.sum())
        yy, xy = yy - 2 * level * y + level**2 * weight, xy - level * x
        y = y - level * weight
        sure = 1 / (weight + self.ridge)  # (types,)
        matrix = xx.sum(0) - (x.T * sure) @ x + self.ridge * np.eye(len(self._effect))
        right = xy.sum(0) - (sure * y) @ x
        self._doubt = np.linalg.inv(matrix)
        self._effect = self._doubt @ right
        left = float(yy.sum() - (sure * y) @ y - right @ self._effect)
        # at least the noise: a few rows are fitted exactly, which proves nothing
        self._misfit = max(left / max(float(weight.sum()) - len(weight), 1.0), self.noise)
