"""Policies at equal harm: what each gets done when none may harm services more than another.

A limit that is too high wins every metric but the harm it does, so each policy's limit is swept
and policies are set beside each other where they add the same share of harm. Between two limits
that were tried figures are taken in proportion.

found = {trial.key: outcome for trial, outcome in finished(sweeps(trace, names, seeds))}
standings({name: at_harm(points(..), 0.01) for name in names})
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from trimtab.claims import finite
from trimtab.errors import PolicyError, TraceError
from trimtab.metrics import HARM, cost, interval, measure
from trimtab.play import check_suits, play
from trimtab.policies import named, trained
from trimtab.reproduce.tables import Row, mean_row, row
from trimtab.reproduce.trials import Trial
from trimtab.rules.names import FEEDBACK, at_limit, foretells, learned, turned
from trimtab.sim.world import Models, outages
from trimtab.traces.scenes.scene import Scene, open_scene

RUNS = "trimtab.reproduce.frontier:measured"
LIMITS = (0.6, 0.66, 0.72, 0.78, 0.84, 0.9, 0.96, 1.02)
TARGETS = (0.001, 0.002, 0.004, 0.008, 0.015, 0.03, 0.06)  # that feedback aims at
MTTR_S, FAIL_SPANS = 600.0, 2.0  # seconds a failure lasts; spans of arrivals in which some happen
# what a table shows: its name there, and per cent of what is a share
SHOWN = {
    "awt_s": ("wait s", 1.0),
    "ldi": ("ldi", 1.0),
    "dag_jct_mean_s": ("jct s", 1.0),
    "tsr": ("in time %", 100.0),
    "uti": ("uti %", 100.0),
    "harm_added": ("harm %", 100.0),
    "evictions": ("evicted %", 100.0),
    "lost_work": ("lost %", 100.0),
}
Metrics = Mapping[str, float]
Outcomes = Mapping[str, Any]  # key of a trial: what `measured` gave


class Point(NamedTuple):
    """One policy at one limit: metrics by seed."""

    limit: float  # nan = it has none
    by_seed: Mapping[int, Metrics]

    def harm(self) -> float:
        return _mean([one[HARM] for one in self.by_seed.values()])

    def cost(self) -> float:
        return _mean([cost(one) for one in self.by_seed.values()])


def swept(policy: str, limits: Sequence[float] = LIMITS) -> dict[str, float]:
    """The names under which a policy has to run, and the limit of each.

    A rule that says its own limit keeps it; one that names no estimate has the cluster's.
    """
    part = turned(policy)
    if not part or f"{part}@" in policy:
        return {policy: math.nan}
    return {at_limit(policy, limit): limit for limit in (TARGETS if part == FEEDBACK else limits)}


def sweeps(
    trace: str,
    policies: Sequence[str],
    seeds: Sequence[int],
    load: float | None = None,
    mtbf_s: float | None = None,
    limits: Sequence[float] = LIMITS,
) -> list[Trial]:
    """What has to run: a trial a policy and seed, the policies of one seed together."""
    return [tried(trace, policy, list(swept(policy, limits)), seed, load, mtbf_s)
            for seed in seeds for policy in policies]  # fmt: skip


def tried(
    trace: str, policy: str, names: Sequence[str], seed: int, load: float | None = None,
    mtbf_s: float | None = None,
) -> Trial:  # fmt: skip
    """One policy under several names, one a limit; `mtbf_s`: machines fail that often."""
    return Trial(RUNS, {"policy": policy, "trace": trace, "names": list(names), "seed": seed,
                        "load": load, "mtbf_s": mtbf_s})  # fmt: skip


def measured(
    policy: str, trace: str, names: Sequence[str], seed: int, load: float | None = None,
    mtbf_s: float | None = None,
) -> dict[str, dict[str, float] | None]:  # fmt: skip
    """Metrics by name; None where some job never fitted, under so low a limit."""
    scene = _scene(trace, seed, load)
    models = Models() if mtbf_s is None else failing(scene, seed, mtbf_s)
    found: dict[str, dict[str, float] | None] = {}
    for name in names:
        made = named(name, seed)
        check_suits(made, scene)
        try:
            found[name] = measure(play(made, scene, models, seed=seed))
        except PolicyError:
            found[name] = None
    return found


def failing(scene: Scene, seed: int, mtbf_s: float) -> Models:
    """Machines that fail that often, alike for every policy."""
    until_s = FAIL_SPANS * float(scene.workload.jobs["submit_s"].max())
    rng = np.random.default_rng([seed, 77])
    drawn = outages(scene.cluster, until_s, rng, mtbf_s=mtbf_s, mttr_s=MTTR_S)
    return Models(outages=drawn)


@lru_cache(maxsize=2)
def _scene(trace: str, seed: int, load: float | None) -> Scene:
    scene = open_scene(trace, seed=seed, load=load)
    if scene.cluster.lending is None:
        raise TraceError(
            f"{trace}: no services lend anything there, so none can be harmed; give a co-located "
            "scene, such as colocated:load=0.6"
        )
    return scene


def points(
    found: Outcomes,
    trace: str,
    policy: str,
    seeds: Sequence[int],
    load: float | None = None,
    names: Mapping[str, float] | None = None,
    mtbf_s: float | None = None,
) -> list[Point]:
    """The points of a policy by rising limit; a limit that left a job of some seed is left out."""
    names = swept(policy) if names is None else names
    runs = {
        seed: found[tried(trace, policy, list(names), seed, load, mtbf_s).key] for seed in seeds
    }
    return [
        Point(limit, {seed: run[name] for seed, run in runs.items()})
        for name, limit in names.items()
        if all(run[name] is not None for run in runs.values())
    ]


def at_harm(tried_at: Sequence[Point], target: float) -> Point | None:
    """The cheapest point that adds no more harm than the target in the mean; None if all add more.

    Points by rising limit, all of the same seeds.
    """
    allowed = [point for point in tried_at if point.harm() <= target]
    for low, high in zip(tried_at, tried_at[1:]):
        begin, end = low.harm(), high.harm()
        if min(begin, end) <= target < max(begin, end):
            allowed.append(between(low, high, (target - begin) / (end - begin)))
    return min(allowed, key=Point.cost, default=None)


def between(low: Point, high: Point, part: float) -> Point:
    """The point this part of the way from one to the other."""
    by_seed = {
        seed: {
            name: value + part * (high.by_seed[seed][name] - value)
            for name, value in of.items()
            if name in high.by_seed[seed]
        }
        for seed, of in low.by_seed.items()
    }
    return Point(low.limit + part * (high.limit - low.limit), by_seed)


def best_of(at: Mapping[str, Point]) -> str:
    """The cheapest that neither foretells nor was learned; "" = none."""
    rules = [name for name in at if not (foretells(name) or learned(name) or trained(name))]
    return min(rules, key=lambda name: at[name].cost(), default="")


def beside(at: Mapping[str, Point], **where: Any) -> list[Row]:
    """Rows of every policy, cheapest first; costs are ratios to the best rule, paired by seed."""
    best = best_of(at)
    short = shortened(list(at))
    rows: list[Row] = []
    for name in sorted(at, key=lambda name: at[name].cost()):
        limit, by_seed = at[name]
        rows.append(row(short[name], "limit", limit, **where))
        if best:
            rows.append(cost_row(short[name], at[name], at[best], beside=short[best], **where))
        for metric, (title, size) in SHOWN.items():
            values = [size * one.get(metric, one["jct_mean_s"]) for one in by_seed.values()]
            rows.append(mean_row(short[name], title, values, **where))
    return rows


def curve(at: Mapping[str, Sequence[Point]], **where: Any) -> list[Row]:
    """Rows for a drawing: harm and cost of every policy at every limit tried."""
    short = shortened(list(at))
    return [
        row(short[name], "curve", math.exp(point.cost()), limit=finite(point.limit),
            harm=point.harm(), **where)
        for name, tried_at in at.items()
        for point in tried_at
    ]  # fmt: skip


def shortened(names: Sequence[str]) -> dict[str, str]:
    """Names without the parts that all of several begin with."""
    parts = [name.split("+") for name in names]
    shared = 0
    while len(names) > 1 and all(len(part) > shared + 1 for part in parts):
        if len({part[shared] for part in parts}) > 1:
            break
        shared += 1
    return {name: "+".join(part[shared:]) for name, part in zip(names, parts)}


def cost_row(name: str, mine: Point, other: Point, **where: Any) -> Row:
    """The ratio of two costs with its interval, which is one of the logs."""
    change = [cost(one) - cost(other.by_seed[seed]) for seed, one in mine.by_seed.items()]
    middle, half = interval(change)
    ends = (None, None) if half is None else (math.exp(middle - half), math.exp(middle + half))
    return row(name, "cost", math.exp(middle), *ends, **where)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
