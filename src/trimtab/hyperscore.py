"""HyperScore: how a policy stands to a named reference, as one number from 100 to 200 (ADLRO
sec. 7).

The paper gives the curve and leaves its argument V open. Here V is the geometric mean of the ratios
to the reference on the same seed, each turned so that more is better: V = 1 is the reference. The
curve rises everywhere, so it cannot reorder policies by V; print both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trimtab.errors import TraceError, UnknownName
from trimtab.metrics import interval

BETA, GAMMA, KAPPA = 5.0, -math.log(2.0), 2.1  # the paper's
BETTER: dict[str, Callable[..., Any]] = {  # what V is made of, and which way it is better
    "jct_mean_s": min,
    "throughput_per_h": max,
    "useful_utilization": max,
    "energy_j": min,
}
Found = Mapping[str, Mapping[int, Mapping[str, float]]]  # policy: seed: metric: value


@dataclass(frozen=True)
class Scores:
    """V of every policy and seed that the reference ran too, over the same metrics throughout."""

    reference: str
    metrics: tuple[str, ...]  # that V is made of
    left_out: dict[str, str]  # metric: why V does without it
    v: dict[str, dict[int, float]]  # policy: seed: V; 0 where a policy got nothing done

    def of(self, policy: str, seed: int) -> dict[str, float]:
        """`v` and `hyperscore` as metrics; empty where the reference has no run of that seed."""
        found = self.v.get(policy, {}).get(seed)
        return {} if found is None else {"v": found, "hyperscore": hyperscore(found)}

    def told(self) -> str:
        """One sentence on what V is here."""
        out = "; ".join(f"{name} left out: {why}" for name, why in self.left_out.items())
        made = f"V: geometric mean of the ratios to {self.reference} in {', '.join(self.metrics)}"
        return f"{made}; {out}" if out else made


def hyperscore(v: float) -> float:
    """100 [1 + sigmoid(5 ln v - ln 2)^2.1]: 100 at v = 0, 110 at 1, below 200 for any v."""
    if not v >= 0:
        raise ValueError(f"hyperscore: v={v} is not a number >= 0; v is a mean of ratios")
    if v == 0:
        return 100.0
    x = BETA * math.log(v) + GAMMA
    # each form where its exponential cannot overflow
    sigmoid = 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))
    return 100 * (1 + sigmoid**KAPPA)


def value(
    ours: Mapping[str, float], reference: Mapping[str, float], metrics: Sequence[str]
) -> float:
    """V: the geometric mean of our ratios to the reference, 0 where we got nothing done."""
    if any(ours[name] == 0 for name in metrics if BETTER[name] is max):
        return 0.0
    logs = [
        math.log(ours[name] / reference[name]) * (1 if BETTER[name] is max else -1)
        for name in metrics
    ]
    return math.exp(math.fsum(logs) / len(logs))


def scores(found: Found, reference: str) -> Scores:
    """V of every policy, seed by seed.

    Raises UnknownName where the reference has no result, TraceError where it got nothing done.
    """
    if not found.get(reference):
        raise UnknownName(
            f"hyperscore reference {reference!r} has no result; known: {', '.join(found)}"
        )
    base = found[reference]
    paired = {
        policy: {seed: ours for seed, ours in by_seed.items() if seed in base}
        for policy, by_seed in found.items()
    }
    rows = [(ours, base[seed]) for by_seed in paired.values() for seed, ours in by_seed.items()]
    reasons = {name: _unusable(name, rows) for name in BETTER}
    used = tuple(name for name in BETTER if not reasons[name])
    for seed, theirs in base.items():
        if not used or theirs.get("throughput_per_h", 1.0) == 0:
            raise TraceError(
                f"hyperscore reference {reference} finished no job with seed {seed}, "
                "so nothing can be a ratio to it; choose another reference"
            )
    return Scores(
        reference=reference,
        metrics=used,
        left_out={name: why for name, why in reasons.items() if why},
        v={
            policy: {seed: value(ours, base[seed], used) for seed, ours in by_seed.items()}
            for policy, by_seed in paired.items()
        },
    )


def _unusable(name: str, rows: Sequence[tuple[Mapping[str, float], Mapping[str, float]]]) -> str:
    """Why no ratio of this metric can be taken, "" where it can; one answer for all policies, since
    two V over different metrics do not compare.
    """
    ours, theirs = [[side.get(name, 0.0) for side in sides] for sides in zip(*rows)]
    if not any(ours) and not any(theirs):
        return "zero or not measured"
    if not all(theirs):
        return "zero for the reference"
    # least is best of these, but 0 where nothing was done is not
    working = [mine for mine, (row, _) in zip(ours, rows) if row.get("throughput_per_h", 1.0) > 0]
    return "zero for a policy" if BETTER[name] is min and not all(working) else ""


def mean_v(values: Sequence[float]) -> tuple[float, float | None, float | None]:
    """Geometric mean of V over seeds, and the ends of its 95 % interval, which is one of ln V.

    None for the ends with one seed, or where some V is 0 and has no logarithm.
    """
    if min(values) == 0:
        return 0.0, None, None
    middle, half = interval([math.log(v) for v in values])
    if half is None:
        return math.exp(middle), None, None
    return math.exp(middle), math.exp(middle - half), _exp(middle + half)


def _exp(x: float) -> float:
    """exp, held below infinity: two seeds far apart have an interval of any width."""
    return math.exp(min(x, 700.0))
