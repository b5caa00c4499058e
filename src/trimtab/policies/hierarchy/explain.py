"""Why the hierarchy decided as it did: goals of regions, the terms of a score, what came next.

for why in explained(HierarchyPolicy(), backend, from_s=600.0, most=3): ...
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.compiled import compiled
from trimtab.core import Backend, Snapshot, Start, Wait
from trimtab.policies.hierarchy.goals import GOALS
from trimtab.policies.hierarchy.policy import HierarchyPolicy
from trimtab.rules.compat import LEAST, SIGN, WEIGHTS, compatibility, terms, weights_of
from trimtab.rules.fit import fits
from trimtab.rules.seen import world_of
from trimtab.rules.world import World
from trimtab.run import MOST_ROUNDS

NAMES = tuple(WEIGHTS)[:LEAST]
RESIDUAL = ("general", "memory", "pull")  # beside the terms of eq. 6
SHOWN = 3  # alternatives


class Place(NamedTuple):
    """One node for an instance, and what it was worth."""

    node: int
    score: float
    parts: dict[str, float]  # of each term, times its weight; they sum to the score

    @property
    def residual(self) -> float:
        """What was learned beside the terms of eq. 6."""
        return sum(self.parts[name] for name in RESIDUAL)


class Why(NamedTuple):
    """One instance that began."""

    time_s: float
    job: int
    waited_s: float
    chosen: Place
    others: list[Place]  # the best alternatives
    fitting: int  # nodes that had room
    region: int
    goal: str
    goal_why: str
    worth: dict[str, float]  # of each goal there, as the manager sees it; below 0 is better
    limit: float
    margin: float
    patience_s: float
    overstay: float
    taper: float
    estimate: str
    guard: str  # why the best rule acted instead, "" = it did not


@compiled
def scored(w: World, job: int, out: Array) -> None:
    """Write each node's parts, their sum and whether an instance fits (N, LEAST + 2)."""
    found = np.zeros(LEAST)
    for node in range(w.head[0].nodes):
        terms(w, 0, node, job, 0, found)
        weights = weights_of(w, 0, node)
        for i in range(LEAST):
            out[node, i] = SIGN[i] * weights[i] * found[i]
        out[node, LEAST] = compatibility(w, 0, node, job, 0)
        out[node, LEAST + 1] = 1.0 if fits(w, 0, node, job, 0) else 0.0


def explained(
    policy: HierarchyPolicy, backend: Backend, *, from_s: float = 0.0, job: int = -1, most: int = 3
) -> Iterator[Why]:
    """Run the policy and say why of its first decisions from that second on, or of one job's."""
    told = 0
    while told < most and backend.wait() is not None:
        for _ in range(MOST_ROUNDS):
            snapshot = backend.snapshot()
            decisions = policy.decide(snapshot)
            starts = [one for one in decisions if isinstance(one, Start)]
            if starts and snapshot.now_s >= from_s:
                for why in _of_pass(policy, snapshot, starts):
                    if told < most and job in (-1, why.job):
                        told += 1
                        yield why
            again = Wait(snapshot.now_s)
            for decision in decisions:
                if decision != again:
                    backend.apply(decision)
            if again not in decisions:
                break


def _of_pass(policy: HierarchyPolicy, snapshot: Snapshot, starts: list[Start]) -> Iterator[Why]:
    """Every first instance of the pass; the others book what they took before the next is asked."""
    workers = policy.orders.worker if policy.workers is None else policy.workers
    world = world_of(snapshot, worker=workers)
    out = np.empty((len(snapshot.nodes), LEAST + 2))
    for start in starts:
        scored(world, start.job, out)
        node = start.nodes[0]
        places = [_place(out, n) for n in _best(out, SHOWN + 1) if n != node][:SHOWN]
        yield _why(policy, snapshot, start, _place(out, node), places, int(out[:, -1].sum()))
        for taken in start.nodes:
            world.free[0, taken] -= snapshot.demand[start.job]


def _best(out: Array, count: int) -> list[int]:
    score = np.where(out[:, LEAST + 1] > 0, out[:, LEAST], -np.inf)
    turn = np.argsort(-score, kind="stable")[:count]
    return [int(node) for node in turn if np.isfinite(score[node])]


def _place(out: Array, node: int) -> Place:
    parts = {name: float(value) for name, value in zip(NAMES, out[node])}
    return Place(node, float(out[node, LEAST]), parts)


def _why(
    policy: HierarchyPolicy, snapshot: Snapshot, start: Start, chosen: Place, others: list[Place],
    fitting: int,
) -> Why:  # fmt: skip
    lends = len(snapshot.limit) > 0
    region = int(snapshot.nodes["region"][chosen.node])
    look = policy.looks[-1] if policy.looks else None
    goal = GOALS[int(look.goals[region])] if look else GOALS[0]
    worth = look.worth[region] if look else np.zeros(len(GOALS))
    return Why(
        snapshot.now_s, start.job,
        snapshot.now_s - float(snapshot.state["queued_s"][start.job]), chosen, others, fitting,
        region, goal.name, goal.why,
        {one.name: float(value) for one, value in zip(GOALS, worth)},
        float(snapshot.limit[region]) if lends else 1.0,
        float(snapshot.margin[region]) if lends else 0.0,
        float(snapshot.patience_s[region]) if lends else -1.0,
        float(snapshot.overstay[region]) if lends else 0.0,
        float(snapshot.taper[region]) if lends else 0.0,
        snapshot.estimate, look.guard if look else "",
    )  # fmt: skip
