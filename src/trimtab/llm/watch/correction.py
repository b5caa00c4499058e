"""What step times seen so far say about the cost model, for plans that ran and for all others.

    correction = Correction()
    correction.observe(row, observed_s, predicted_s, now_s)
    mean, spread = correction.against(rows, row)      # ln(step / predicted), rows less row

ln(observed / predicted) of all plans is one normal distribution. Part of it is common to all, which
is what a machine with slow kernels does to every plan; of the rest, plans share the more the more
they are alike, so a plan that never ran is expected to be off much like its neighbours. A reading
far out moves nothing; only when several in a row lie out on one side has something changed, and the
belief is opened again.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.errors import PlanError
from trimtab.llm.cost.intervals import step_spread
from trimtab.llm.plan.legal import PLAN_FIELDS

SAME = (*PLAN_FIELDS, "seq", "global_batch")  # fields that tell plans of one job apart
SHARED = 0.4  # of the variance of the cost model's error: what all plans of a job have in common
# How far apart plans are: of the rest of the variance they share exp(-distance). A doubling of a
# way moves other messages over other links; the others change less.
DOUBLINGS = {
    "tp": 0.5, "pp": 0.5, "dp": 0.5, "cp": 0.5, "ep": 0.5, "interleave": 0.15, "micro_batch": 0.15,
    "seq": 0.5, "global_batch": 0.15,
}  # fmt: skip
STEPS = {"zero": 0.15, "recompute": 0.15, "framework": 2.0}
NOISE = 0.03  # of ln(step time) from reading to reading
FORGET_S = 30 * 86400.0  # a belief fades towards the cost model within a month
FAR = 3.0  # standard deviations: what lies farther out was a hiccup, or something has changed
JUMP_AFTER = 3  # readings far out in a row


class Belief(NamedTuple):
    """A normal distribution of ln(step / predicted)."""

    mean: Array  # (rows,)
    spread: Array  # (rows,) standard deviation


class Correction:
    """The belief about the P plans that were seen, from which that about any plan follows."""

    def __init__(self) -> None:
        self.plans: list[dict[str, int]] = []  # by SAME
        self.spread = np.zeros(0)  # (P,) of the cost model, for each
        self.mean = np.zeros(0)  # (P,)
        self.cov = np.zeros((0, 0))  # (P, P)
        self.time_s = -math.inf  # of the last observation
        self.far: list[float] = []  # surprises beyond FAR, in a row and to one side

    def observe(self, row: Any, observed_s: float, predicted_s: float, now_s: float) -> None:
        """Take in what a step of a plan took, beside what the cost model says of it now."""
        if not (0 < observed_s < math.inf and 0 < predicted_s < math.inf):
            raise PlanError(
                f"step of {observed_s} s beside a predicted {predicted_s} s; both must be above 0"
            )
        self._forget(now_s)
        at = self._place(row)
        surprise = math.log(observed_s / predicted_s) - float(self.mean[at])
        if abs(surprise) > FAR * math.sqrt(self.cov[at, at] + NOISE**2):
            self.far = [*(past for past in self.far if past * surprise > 0), surprise]
            if len(self.far) < JUMP_AFTER:
                return
            # whether the machine or the plan has changed is as open as it was at first
            self.cov = self.cov + self._prior()
            surprise = float(np.median(self.far))
        self.far = []
        gain = self.cov[:, at] / (self.cov[at, at] + NOISE**2)
        self.mean = self.mean + gain * surprise
        self.cov = self.cov - np.outer(gain, self.cov[at])

    def expected(self, rows: Array) -> Belief:
        """The belief about each plan: (rows,)."""
        spread = step_spread(rows)
        return self._belief(self._alike(rows, spread), spread**2)

    def against(self, rows: Array, row: Any) -> Belief:
        """The belief about each plan less that about one plan: what both share cancels."""
        one = np.asarray(row).reshape(1)
        spread, spread_one = step_spread(rows), step_spread(one)
        both = covariance(features(rows), spread, features(one), spread_one)[:, 0]
        apart = spread**2 + spread_one**2 - 2.0 * both
        return self._belief(self._alike(rows, spread) - self._alike(one, spread_one), apart)

    def _belief(self, alike: Array, variance: Array) -> Belief:
        """Mean and spread of what has these covariances with the plans seen, (rows, P)."""
        if not self.plans:
            return Belief(np.zeros(len(variance)), np.sqrt(np.maximum(variance, 0.0)))
        weight = np.linalg.solve(self._prior(), alike.T).T  # (rows, P)
        left = (
            variance - np.sum(weight * alike, axis=1) + np.sum(weight @ self.cov * weight, axis=1)
        )
        return Belief(weight @ self.mean, np.sqrt(np.maximum(left, 0.0)))

    def _alike(self, rows: Array, spread: Array) -> Array:
        """Prior covariance of rows with the plans seen: (rows, P)."""
        return covariance(features(rows), spread, self._features(), self.spread)

    def _prior(self) -> Array:
        """Prior covariance of the plans seen, (P, P); a trace more keeps it solvable."""
        seen = self._features()
        made = covariance(seen, self.spread, seen, self.spread)
        return np.asarray(made + 1e-9 * np.eye(len(made)))

    def _features(self) -> Array:
        return features({name: np.array([plan[name] for plan in self.plans]) for name in SAME})

    def _place(self, row: Any) -> int:
        """Place of a plan, which is made where it is new."""
        plan = {name: int(row[name]) for name in SAME}
        if plan in self.plans:
            return self.plans.index(plan)
        one = np.asarray(row).reshape(1)
        spread = step_spread(one)
        alike = self._alike(one, spread)
        found = self._belief(alike, spread**2)
        across = np.zeros(0)
        if self.plans:
            across = self.cov @ np.linalg.solve(self._prior(), alike[0])
        self.plans.append(plan)
        self.spread = np.append(self.spread, spread)
        self.mean = np.append(self.mean, found.mean)
        self.cov = np.block([[self.cov, across[:, None]], [across[None], found.spread**2]])
        self.far = []
        return len(self.plans) - 1

    def _forget(self, now_s: float) -> None:
        """Let the belief fade towards the prior for the time that passed."""
        past_s = max(now_s - self.time_s, 0.0) if math.isfinite(self.time_s) else 0.0
        keep = math.exp(-past_s / FORGET_S)
        self.time_s = now_s
        self.mean = keep * self.mean
        self.cov = keep**2 * self.cov + (1.0 - keep**2) * self._prior()

    def saved(self) -> dict[str, Any]:
        """The belief for JSON."""
        return {
            "plans": self.plans,
            "spread": self.spread.tolist(),
            "mean": self.mean.tolist(),
            "cov": self.cov.tolist(),
            "time_s": self.time_s if math.isfinite(self.time_s) else None,
            "far": self.far,
        }


def loaded(content: dict[str, Any]) -> Correction:
    """The belief as it was saved; KeyError, TypeError or ValueError for what was not."""
    made = Correction()
    made.plans = [{name: int(plan[name]) for name in SAME} for plan in content["plans"]]
    count = len(made.plans)
    made.spread, made.mean = np.array(content["spread"], float), np.array(content["mean"], float)
    made.cov = np.array(content["cov"], float).reshape(count, count)
    made.time_s = -math.inf if content["time_s"] is None else float(content["time_s"])
    made.far = [float(surprise) for surprise in content["far"]]
    finite = all(np.isfinite(part).all() for part in (made.spread, made.mean, made.cov))
    if made.spread.shape != (count,) or made.mean.shape != (count,) or not finite:
        raise ValueError(f"correction has {count} plans and not as many numbers")
    return made


def features(rows: Any) -> Array:
    """Coordinates of plans, between which steps add up to their distance: (rows, fields)."""
    columns = [weight * np.log2(rows[name]) for name, weight in DOUBLINGS.items()]
    return np.stack([*columns, *(weight * rows[name] for name, weight in STEPS.items())], axis=1)


def covariance(one: Array, spread_one: Array, other: Array, spread_other: Array) -> Array:
    """Prior covariance of ln(step / predicted) of plans with others, by their features."""
    apart = np.abs(one[:, None] - other[None]).sum(axis=2)
    share = SHARED + (1.0 - SHARED) * np.exp(-apart)
    return np.asarray(spread_one[:, None] * spread_other[None] * share)


def same(rows: Array, plan: Any) -> Array:
    """Which rows are that plan (a row, or a dictionary by SAME): (rows,) bool."""
    found = np.ones(len(rows), bool)
    for name in SAME:
        found &= rows[name] == plan[name]
    return found
