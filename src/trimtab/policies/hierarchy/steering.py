"""The hierarchy at work: every so often the manager looks, and regions get their orders.

The same object steers a whole trace in compiled code and, by snapshots, any other backend. Where a
look fails - numbers that are none, readings that are stale, a look that took too long - the orders
that stand without a manager hold for that round, and `events` says so.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from trimtab.arrays import Array
from trimtab.core import Limit
from trimtab.policies.hierarchy import graph
from trimtab.policies.hierarchy.goals import AT, GOALS, KEEP, MOVES
from trimtab.policies.hierarchy.manager import EVERY_S, Manager
from trimtab.policies.hierarchy.sight import Memory, Sight, look
from trimtab.policies.hierarchy.weights import Orders
from trimtab.rules.compat import SWIFT

SLOW_S = 1.0  # of a look
STALE = 0.5  # share of nodes whose use is unknown
STARVED_S = 900.0  # nothing began for so long while jobs wait
LENIENT = 0.02  # of a node, a look, that limits rise then
MOST = 1.2
# the best rule, which acts where the manager must not: as `swift+peak`
RULE_ESTIMATE, RULE_LIMIT = "peak", 0.88


class Look(NamedTuple):
    """One look of the manager, kept for those who ask why."""

    now_s: float
    goals: Array  # (G,) of GOALS
    worth: Array  # (G, GOALS)
    guard: str  # why the manager was not followed, "" = it was


class Manages(Protocol):
    """What chooses goals: a trained manager, or whoever takes its place."""

    def goals(self, sight: Sight) -> tuple[Array, Array]: ...


class Steering:
    """The looks of one run."""

    def __init__(
        self,
        orders: Orders,
        manager: Manages | None,
        every_s: float | None = None,  # None = as often as the manager was made for
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.orders, self.manager = orders, manager
        own_s = manager.every_s if isinstance(manager, Manager) else EVERY_S
        self.every_s = own_s if every_s is None else every_s
        self.due_s = -math.inf
        self.worker: Array | None = None  # (G, weights) from the last look on
        self.looks: list[Look] = []
        self._clock, self._lenient = clock, 0.0
        self._graph: graph.Graph | None = None
        self._memory: Memory | None = None

    def began(self, now_s: float) -> bool:
        """Whether it has looked at this run before: a clock that went back is another's."""
        return now_s >= self.due_s - self.every_s > -math.inf

    def decisions(self, view: Any) -> list[Limit] | None:
        """What changes now; None where it is not time yet."""
        now_s, regions = float(view.now_s), len(view.limit)
        if self.began(now_s) and now_s < self.due_s:
            return None
        if not self.began(now_s):
            self._graph = self._memory = None
            self._lenient = 0.0
            self.looks.clear()
        self.due_s = (math.floor(now_s / self.every_s) + 1) * self.every_s
        goals, worth, guard = self._goals(view)
        self.looks.append(Look(now_s, goals, worth, guard))
        self._lenient = self._lenience(view)
        if guard:
            self.worker = np.tile(SWIFT, (regions, 1))
            return [
                Limit(RULE_LIMIT, g, RULE_ESTIMATE, 0.0, -1.0, 0.0, 0.0) for g in range(regions)
            ]
        return self._orders(goals, regions)

    def _goals(self, view: Any) -> tuple[Array, Array, str]:
        """The manager's goals, or none of them and why."""
        regions = len(view.limit)
        keep, none = np.full(regions, KEEP), np.zeros((regions, len(GOALS)))
        if self.manager is None:
            return keep, none, ""
        began_s = self._clock()
        if self._graph is None or len(self._graph.sums) != len(view.nodes):
            self._graph = graph.empty(len(view.runs), len(view.nodes), len(view.jobs), regions)
        self._graph = graph.seen(self._graph, view)
        sight, self._memory = look(view, self._graph, self._memory)
        state = view.node_state
        if float(((state["read"] < 0) & (state["reads"] > 0)).mean()) > STALE:
            return keep, none, "stale: more than half of the machines have no reading any more"
        goals, worth = self.manager.goals(sight)
        if not np.isfinite(worth).all():
            return keep, none, "nan: the manager's answer is no number"
        took_s = self._clock() - began_s
        if took_s > SLOW_S and self.looks:  # the first may have compiled
            return keep, worth, f"slow: the look took {took_s:.1f} s"
        return goals, worth, ""

    def _lenience(self, view: Any) -> float:
        """How far limits rise above their orders so that what never fitted does at last."""
        if not len(view.queue):
            return 0.0
        jobs = view.runs["job"][view.running]
        batch = np.isfinite(view.jobs["request_s"][jobs])
        last_s = float(view.runs["start_s"][view.running][batch].max(initial=-math.inf))
        since_s = float(view.state["queued_s"][view.queue].min())
        if view.now_s - max(last_s, since_s) < STARVED_S:
            return 0.0
        return self._lenient + LENIENT

    def orders_of(self, region: int) -> Orders:
        """What a region's workers go by before its goal moves them: all by the same."""
        return self.orders

    def _orders(self, goals: Array, regions: int) -> list[Limit]:
        orders = [self.orders_of(g) for g in range(regions)]
        self.worker = np.vstack([mine.worker for mine in orders])
        back = len(self.looks) > 1 and self.looks[-2].guard != ""  # the rule acted before
        made = []
        for g, mine in enumerate(orders):
            goal = mine.goals[int(goals[g])]
            for at, name in zip(AT, MOVES):
                self.worker[g, at] += getattr(goal, name)
            patience_s = mine.patience_s if math.isnan(goal.patience_s) else goal.patience_s
            share = min(mine.limit + goal.limit + self._lenient, MOST)
            margin = mine.margin + goal.margin
            estimate, rest = mine.estimate if back else "", (mine.overstay, mine.taper)
            made.append(Limit(share, g, estimate, margin, patience_s, *rest))
        return made
