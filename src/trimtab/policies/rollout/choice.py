"""Which order of the queue to follow: some are played out, and the best of them is taken.

First each of the named orders, by guessed run times; then the best of them with another job at its
head, which may be the first of another order. Nothing here looks at a true run time: what ended is
all that is learned from.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.policies.rollout.history import History, left
from trimtab.policies.rollout.options import Options
from trimtab.policies.rollout.playout import OBJECTIVES, Scene
from trimtab.policies.rollout.ranks import CODES, ranked

Clock = Callable[[], float]  # seconds
# scene, order of its rows, objective, and the value from which on it is of no interest -> value
PlayOut = Callable[[Scene, Array, int, float], float]


class Asks(NamedTuple):
    """What some jobs ask for, as everybody may see it."""

    job: Array  # (Q,)
    submit_s: Array  # (Q,)
    request_s: Array  # (Q,)
    tenant: Array  # (Q,)
    width: Array  # (Q, R)

    @property
    def size(self) -> Array:
        """(Q,) as orders weigh it: the largest of the demands."""
        return self.width.max(axis=1, initial=0.0)

    def only(self, rows: Array) -> Asks:
        return Asks(*(column[rows] for column in self))


class Going(NamedTuple):
    """What runs."""

    asks: Asks
    start_s: Array  # (M,)
    due_s: Array  # (M,) by the requests


class Chooser:
    """Learns from what ends, and orders the queue. `clock` is what the budget is measured by."""

    def __init__(self, options: Options, clock: Clock = time.perf_counter) -> None:
        self.options, self.clock = options, clock
        self.history = History()
        self.decisions = self.cut = 0  # and how many of them the budget ended
        self._followed = CODES[options.orders[0]]
        self._came: deque[Asks] = deque(maxlen=options.arrivals + 1)
        self._run_s: dict[int, float] = {}  # of what came and has ended

    def warm(self, play: PlayOut) -> None:
        """Compile what a decision calls, before a budget counts."""
        one = np.ones(1)
        asks = Asks(np.zeros(1, np.int64), one, one, np.zeros(1, np.int64), np.ones((1, 1)))
        history = History()
        history.learn(0, 0, 1.0, 1.0)
        left(history.guess_s(asks.job, asks.tenant, one), one, one)
        for code in CODES.values():
            order = ranked(code, 0.0, one, one, one)
        play(Scene(0.0, one, one, one, np.ones((1, 1)), one, one, one, asks.width), order, 0, 1.0)

    def came(self, asks: Asks) -> None:
        """Remember arrivals, oldest first."""
        if self.options.arrivals:
            self._came.extend(asks.only(np.array([row])) for row in range(len(asks.job)))

    def ended(self, job: int, tenant: int, request_s: float, run_s: float) -> None:
        self.history.learn(job, tenant, request_s, run_s)
        if self.options.arrivals:
            self._run_s[job] = run_s

    def order(self, now_s: float, free: Array, queue: Asks, going: Going, play: PlayOut) -> Array:
        """(Q,) rows of the queue, which comes by submit time, best first."""
        self.decisions += 1
        began_s = self.clock()
        whole = queue
        chosen = self._deep(now_s, queue)
        queue = queue.only(chosen)
        scene, size = self._scene(now_s, free, queue, going)
        best = self._best(began_s, scene, size, len(chosen), play)
        front = chosen[best[best < len(chosen)]]
        if len(chosen) == len(whole.job):
            return front
        behind = np.setdiff1d(np.arange(len(whole.job)), chosen)
        rest = whole.only(behind)
        return np.concatenate((front, behind[self._ranked(self._followed, now_s, rest)]))

    def guess_s(self, asks: Asks) -> Array:
        return self.history.guess_s(asks.job, asks.tenant, asks.request_s)

    def _ranked(self, code: int, now_s: float, asks: Asks) -> Array:
        rows: Array = ranked(code, now_s, asks.submit_s, self.guess_s(asks), asks.size)
        return rows

    def _deep(self, now_s: float, queue: Asks) -> Array:
        """The rows that are played out: of a long queue the first of every order."""
        depth = self.options.depth
        if len(queue.job) <= depth:
            return np.arange(len(queue.job))
        orders = [self._ranked(CODES[name], now_s, queue) for name in self.options.orders]
        turns = np.stack(orders, axis=1).ravel()
        _, first = np.unique(turns, return_index=True)
        return np.sort(turns[np.sort(first)[:depth]])

    def _scene(self, now_s: float, free: Array, queue: Asks, going: Going) -> tuple[Scene, Array]:
        """What is played out, and the sizes of its rows: the queue, then what is to come."""
        guess_s = self.guess_s(going.asks)
        left_s = left(guess_s, going.asks.request_s, now_s - going.start_s)
        rows, run_s = queue, self.guess_s(queue)
        if len(self._came) > self.options.arrivals > 0:
            seen = Asks(*(np.concatenate(column) for column in zip(*self._came)))
            past = seen.only(np.arange(1, len(seen.job)))
            took_s = [self._run_s.get(job, np.nan) for job in past.job.tolist()]
            past_s = np.where(np.isnan(took_s), self.guess_s(past), np.maximum(took_s, 1.0))
            again_s = now_s + np.maximum(past.submit_s - seen.submit_s[0], 1e-9)
            past = past._replace(submit_s=np.maximum.accumulate(again_s))
            rows = Asks(*(np.concatenate(columns) for columns in zip(queue, past)))
            run_s = np.concatenate((run_s, past_s))
        scene = Scene(
            now_s, free, left_s, going.due_s, going.asks.width, rows.submit_s, run_s,
            rows.request_s, rows.width,
        )  # fmt: skip
        return scene, rows.size

    def _best(
        self, began_s: float, scene: Scene, size: Array, present: int, play: PlayOut
    ) -> Array:
        """(Q,) rows of the scene in the best order that the budget lets us find."""
        options, objective = self.options, OBJECTIVES[self.options.objective]
        codes = [CODES[name] for name in options.orders]
        codes.sort(key=lambda code: code != self._followed)  # what is followed is tried first
        until_s = began_s + options.budget_ms / 1000
        best, value, followed = np.empty(0, np.int64), np.inf, codes[0]
        heads: list[int] = []
        for code in codes:
            if len(best) and self.clock() >= until_s:
                self.cut += 1
                self._followed = followed
                return best
            order = ranked(code, scene.now_s, scene.submit_s, scene.run_s, size)
            now = play(scene, order, objective, value)
            heads.append(int(order[order < present][0]))
            if not len(best) or now < value * (1 - options.margin):
                best, value, followed = order, now, code
        self._followed = followed
        line = best[best < present]
        for head in dict.fromkeys([*line[1 : options.firsts].tolist(), *heads]):
            if options.firsts == 0 or head == line[0]:
                continue
            if self.clock() >= until_s:
                self.cut += 1
                break
            order = first_in(best, head)
            now = play(scene, order, objective, value)
            if now < value * (1 - options.margin):
                best, value = order, now
        return best


def first_in(order: Array, head: int) -> Array:
    """The order with one row brought to its head."""
    return np.concatenate(([head], order[order != head]))
