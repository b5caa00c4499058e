"""The encoder's calibration and the limits learn on from what the cluster shows, a step a day.

A region's residuals, how far the use of its nodes rose less what the encoder foresaw, are kept for
a day. At its end one bounded step is proposed from half of its hours and taken only where the other
half bears it out: bias and spread a horizon by the pinball loss of both quantiles, the limit by the
share of crowded use that the residuals say it would have led to. Where Page-Hinkley says that a day
is unlike those before, what was learned is taken back and that day teaches nothing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.core import Limit
from trimtab.errors import PolicyError
from trimtab.files import write_whole
from trimtab.policies.hierarchy.sight import CROWDED
from trimtab.policies.hierarchy.steering import Steering
from trimtab.rules.encoder import HIGH_Z
from trimtab.rules.forecast import HORIZON_S
from trimtab.rules.held import held_in, made_by
from trimtab.rules.names import MOST_LIMIT

FILE, MADE = "online.json", "online"
DAY_S = 86_400.0  # where the cluster knows no usual day
EVERY_S = 5.0  # between two readings
APART = 6  # readings between two examples
NODES = 32  # of a region that are followed
HOURS = 24  # of a day, however long it is
MOST_BIAS, BIAS_STEP = 0.1, 0.03  # of a node: at all, and a day
MOST_SPREAD, SPREAD_STEP = math.log(3.0), math.log(1.5)  # of the logarithm of the factor
MOST_SHIFT, SHIFT_STEP = 0.06, 0.02  # of a limit
RATE = 0.5  # of the way that a day points to: days differ
GAIN = 0.01  # of the loss: what promises less is not taken
TARGET = 0.01  # share of services' use that may be harmed
NEAR = math.log(1.25)  # of the target: a limit is not moved
TRIED = 9  # limits of a step
QUANTILES = (0.5, 0.9)
AT = 2  # the horizon, 60 s, by which days and limits are judged
LEAST_ROWS = 100  # of a region and day
H = len(HORIZON_S)
NONE = np.repeat([0.0, 1.0], H)  # nothing learned: biases, then factors


class Event(NamedTuple):
    """What became of a region's day."""

    now_s: float
    region: int
    what: str  # updated, refused, rolled back or limit
    why: str


class Residuals(NamedTuple):
    """Examples of one region and day."""

    rise: Array  # (E, H) that came, in shares of a node
    median: Array  # (E, H) that the encoder said, and deviation
    deviation: Array
    hour: Array  # (E,) of the day
    used: Array  # (E,) by services then, of a node

    def part(self, rows: Array) -> Residuals:
        return Residuals(*(column[rows] for column in self))

    def halves(self) -> tuple[Residuals, Residuals]:
        """Even hours, and odd ones."""
        return self.part(self.hour % 2 == 0), self.part(self.hour % 2 == 1)


def losses(seen: Residuals, learned: Array) -> Array:
    """(H,) pinball loss of median and 90th percentile under a correction."""
    low = seen.median + learned[:H]
    high = low + HIGH_Z * seen.deviation * learned[H:]
    off = [seen.rise - np.maximum(one, 0.0) for one in (low, high)]
    parts = [np.maximum(q * one, (q - 1) * one) for q, one in zip(QUANTILES, off)]
    return np.asarray(np.mean(parts, axis=(0, 1)))


def proposed(seen: Residuals, learned: Array) -> Array:
    """One bounded step towards what would have been right on these examples."""
    made = learned.copy()
    wanted = np.median(seen.rise - seen.median, axis=0)
    made[:H] += np.clip(RATE * (wanted - made[:H]), -BIAS_STEP, BIAS_STEP)
    made[:H] = np.clip(made[:H], -MOST_BIAS, MOST_BIAS)
    apart = (seen.rise - seen.median - made[:H]) / np.maximum(seen.deviation, 1e-6)
    factor = np.log(np.maximum(np.quantile(apart, QUANTILES[1], axis=0) / HIGH_Z, 1e-3))
    held = np.log(made[H:])
    step = np.clip(RATE * (factor - held), -SPREAD_STEP, SPREAD_STEP)
    made[H:] = np.exp(np.clip(held + step, -MOST_SPREAD, MOST_SPREAD))
    return made


def borne_out(seen: Residuals, learned: Array, update: Array) -> Array:
    """(H,) at which horizons an update is a step that may be made, and better on these examples."""
    with np.errstate(invalid="ignore"):
        small = np.abs(update[:H] - learned[:H]) <= BIAS_STEP + 1e-9
        small &= np.abs(update[:H]) <= MOST_BIAS + 1e-9
        factor = np.log(np.where(update[H:] > 0, update[H:], np.nan))
        small &= np.abs(factor - np.log(learned[H:])) <= SPREAD_STEP + 1e-9
        small &= np.abs(factor) <= MOST_SPREAD + 1e-9
        return np.asarray(small & (losses(seen, update) < (1 - GAIN) * losses(seen, learned)))


def crowding(seen: Residuals, learned: Array, limit: float, margin: float) -> float:
    """Share of services' use on nodes that would be crowded, were they booked up to the limit."""
    foreseen = seen.median[:, AT] + learned[AT]
    foreseen = foreseen + margin * seen.deviation[:, AT] * learned[H + AT]
    load = limit + seen.rise[:, AT] - np.maximum(foreseen, 0.0)
    return float((seen.used * (load > CROWDED)).sum() / max(float(seen.used.sum()), 1e-9))


def moved_limit(
    seen: Residuals, learned: Array, orders: tuple[float, float], shift: float, harmed: float,
    target: float,
) -> float:  # fmt: skip
    """The shift of a limit after a day in which this share of services' use was harmed.

    `orders` are limit and margin. What the residuals say of another limit is scaled by how the
    day itself came out.
    """
    limit, margin = orders
    fit, check = seen.halves()
    far = abs(math.log(max(harmed, 1e-5) / target))
    if far <= NEAR:
        return shift
    tried = np.clip(shift + np.linspace(-SHIFT_STEP, SHIFT_STEP, TRIED), -MOST_SHIFT, MOST_SHIFT)

    def off(half: Residuals, by: float) -> float:
        now = crowding(half, learned, limit + shift, margin)
        then = crowding(half, learned, limit + by, margin)
        expected = harmed * (then + 1e-4) / (now + 1e-4)
        return abs(math.log(max(expected, 1e-5) / target))

    best = min(tried.tolist(), key=lambda by: (round(off(fit, by), 9), abs(by - shift)))
    return best if off(check, best) < off(check, shift) else shift


class State(NamedTuple):
    """What was learned so far, a row a region."""

    learned: Array  # (G, 2 H)
    shift: Array  # (G,)
    hours: list[
        list[float]
    ]  # of each region since the last change: standardised rises, hour by hour

    @staticmethod
    def fresh(regions: int) -> State:
        return State(np.tile(NONE, (regions, 1)), np.zeros(regions), [[] for _ in range(regions)])


def write_state(path: Path, state: State) -> None:
    held = {
        "made_by": made_by(MADE), "horizon_s": list(HORIZON_S),
        "learned": np.round(state.learned, 9).tolist(), "shift": np.round(state.shift, 9).tolist(),
        "hours": [[round(value, 6) for value in of] for of in state.hours],
    }  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(held) + "\n")


def read_state(path: Path, regions: int) -> State:
    """What a file holds; nothing learned where there is none."""
    if not path.is_file():
        return State.fresh(regions)
    held = held_in(path, MADE)
    try:
        learned = np.array(held["learned"], float).reshape(-1, 2 * H)
        shift = np.array(held["shift"], float)
        hours = [[float(value) for value in of] for of in held["hours"]]
    except (KeyError, ValueError, TypeError):
        raise PolicyError(f"{path}: not what the hierarchy learned online; delete it") from None
    known = np.isfinite(learned).all() and np.isfinite(shift).all() and (learned[:, H:] > 0).all()
    if not known or {len(learned), len(shift), len(hours)} != {regions}:
        raise PolicyError(
            f"{path}: learned and shift are not finite numbers of {regions} regions, as this "
            "cluster has; delete it"
        )
    return State(learned, shift, hours)


class Day:
    """What was read and foreseen of a region's nodes since the day began."""

    def __init__(self, began_s: float) -> None:
        self.began_s = began_s
        self.time_s: list[float] = []
        self.read: list[Array] = []  # (n,) each, in shares of the node, NaN = unknown
        self.said: list[Array] = []  # (n, 2 H) of every APART-th of them

    def add(self, now_s: float, read: Array, said: Array) -> None:
        if len(self.time_s) % APART == 0:
            self.said.append(said.astype(np.float32))
        self.time_s.append(now_s)
        self.read.append(read.astype(np.float32))

    def residuals(self, day_s: float) -> Residuals:
        """Examples of all nodes whose horizons had ended."""
        time_s, read = np.array(self.time_s), np.array(self.read, float)
        rows = np.arange(0, len(time_s), APART)
        rows = rows[time_s[rows] + HORIZON_S[-1] <= time_s[-1]]
        rises = []
        for horizon_s in HORIZON_S:
            ends = np.searchsorted(time_s, time_s[rows] + horizon_s + 1e-6)
            most = [read[row:end].max(0) for row, end in zip(rows, ends)]
            rises.append(np.reshape(most, (len(rows), read.shape[1])) - read[rows])
        rise = np.stack(rises, -1).reshape(-1, H)
        said = np.array(self.said[: len(rows)], float).reshape(-1, 2 * H)
        hour = ((time_s[rows] - self.began_s) / day_s * HOURS).astype(np.int64)
        found = Residuals(
            rise, said[:, :H], said[:, H:], np.repeat(hour, read.shape[1]), read[rows].ravel()
        )
        return found.part(np.isfinite(rise).all(1) & (found.deviation > 0).all(1))


class Online:
    """Steers as the hierarchy does, with what was learned; `path` = a file that keeps it."""

    def __init__(
        self, inner: Steering, *, day_s: float = DAY_S, every_s: float = EVERY_S,
        target: float = TARGET, path: Path | None = None, keep: bool = True,
    ) -> None:  # fmt: skip
        if find_spec("river") is None:
            raise PolicyError(
                "hierarchy-online needs river to detect; pip install 'trimtab[train]'"
            )
        if not (day_s >= 2 * HORIZON_S[-1] and every_s > 0 and 0 < target < 1):
            raise PolicyError(
                f"day_s={day_s:g}, every_s={every_s:g}, target={target:g}: give a day of "
                f"{2 * HORIZON_S[-1]:g} s or more, seconds above 0 and a share"
            )
        self.inner, self.day_s, self.every_s, self.target = inner, day_s, every_s, target
        self.path, self.keep = path, keep
        self.due_s = -math.inf
        self.worker: Array | None = None
        self.events: list[Event] = []
        self.state: State | None = None
        self._days: list[Day] = []
        self._nodes: list[Array] = []
        self._harm_s: Array = np.zeros(0)  # (N,) when the day began
        self._served_s: Array = np.zeros(0)  # (G,)

    def began(self, now_s: float) -> bool:
        """Whether it has looked at this run before: a clock that went back is another's."""
        return now_s >= self.due_s - self.every_s > -math.inf

    def decisions(self, view: Any) -> list[Limit] | None:
        """What changes now; nothing, but still a look, where only a reading was due."""
        now_s = float(view.now_s)
        if self.began(now_s) and now_s < self.due_s:
            return None
        if not self.began(now_s):
            self._begin(view)
        made = self.inner.decisions(view)
        self.worker = self.inner.worker
        self._read(view)
        if now_s >= self._days[0].began_s + self.day_s:
            self._learn(view)
        turn_s = (math.floor(now_s / self.every_s) + 1) * self.every_s
        self.due_s = min(self.inner.due_s, turn_s)
        return [self._learned(one) for one in made or ()]

    def _learned(self, order: Limit) -> Limit:
        """An order with what was learned of its region; the best rule's, which the guard has
        given, as it is.
        """
        if self.state is None or (self.inner.looks and self.inner.looks[-1].guard):
            return order
        share = min(max(order.share + float(self.state.shift[order.region]), 0.0), MOST_LIMIT)
        return replace(order, share=share, learned=tuple(self.state.learned[order.region].tolist()))

    def _begin(self, view: Any) -> None:
        regions = len(view.limit)
        fresh = State.fresh(regions)
        self.state = fresh if self.path is None else read_state(self.path, regions)
        self.events.clear()
        of = view.nodes["region"]
        self._nodes = []
        for g in range(regions):
            mine = np.flatnonzero(of == g)
            self._nodes.append(mine[:: max(len(mine) // NODES, 1)][:NODES])
        self._new_day(view)

    def _new_day(self, view: Any) -> None:
        regions = len(view.limit)
        self._days = [Day(float(view.now_s)) for _ in range(regions)]
        self._harm_s = np.array(view.node_state["harm_s"])
        self._served_s = np.zeros(regions)

    def _read(self, view: Any) -> None:
        """Keep readings and what the encoder said of them, unless another estimate stands."""
        now_s, state = float(view.now_s), view.node_state
        if (self.inner.looks and self.inner.looks[-1].guard) or not np.asarray(view.said).size:
            return
        known = np.where(state["read"] >= 0, state["read"], 0.0)
        regions = len(view.limit)
        since_s = now_s - (self._days[0].time_s[-1] if self._days[0].time_s else now_s)
        self._served_s += since_s * np.bincount(view.nodes["region"], known, regions)
        for day, nodes in zip(self._days, self._nodes):
            cap = np.maximum(view.capacity[nodes, view.nodes["driver"][nodes]], 1e-9)
            read = np.where(state["read"][nodes] >= 0, state["read"][nodes] / cap, np.nan)
            day.add(now_s, read, np.asarray(view.said)[nodes])

    def _learn(self, view: Any) -> None:
        """One step a region from the day that is over."""
        assert self.state is not None
        harm_s = np.array(view.node_state["harm_s"]) - self._harm_s
        regions = len(view.limit)
        lost_s = np.bincount(view.nodes["region"], harm_s, regions)
        harmed = lost_s / np.maximum(self._served_s, 1e-9)
        for g, day in enumerate(self._days):
            seen = day.residuals(self.day_s) if len(day.time_s) else None
            if seen is None or len(seen.rise) < LEAST_ROWS:
                self._tell(view, g, "refused", "too few readings in this day")
            elif self._unlike(g, seen):
                self.state.learned[g], self.state.shift[g] = NONE, 0.0
                self._tell(view, g, "rolled back", "the day is unlike those before")
            else:
                self._step(view, g, seen, float(harmed[g]))
        self._new_day(view)
        if self.path is not None and self.keep:
            write_state(self.path, self.state)

    def _unlike(self, g: int, seen: Residuals) -> bool:
        """Whether the hours of the day are unlike those before; then they begin a new past."""
        assert self.state is not None
        off = (seen.rise[:, AT] - seen.median[:, AT]) / seen.deviation[:, AT]
        hours = [float(off[seen.hour == hour].mean()) for hour in np.unique(seen.hour)]
        before = self.state.hours[g]
        changed = bool(before) and drifted(before, hours)
        before[:] = hours if changed else [*before, *hours][-28 * HOURS :]
        return changed

    def _step(self, view: Any, g: int, seen: Residuals, harmed: float) -> None:
        assert self.state is not None
        learned = self.state.learned[g]
        fit, check = seen.halves()
        update = proposed(fit, learned)
        good = borne_out(check, learned, update)
        before = float(losses(check, learned).mean())
        both = np.tile(good, 2)
        made = np.where(both, update, learned)
        after = float(losses(check, made).mean())
        told = f"{int(good.sum())} of {H} horizons, loss {before:.4f} -> {after:.4f} of a node"
        self._tell(view, g, "updated" if good.any() else "refused", told)
        self.state.learned[g] = made
        orders, shift = self.inner.orders, float(self.state.shift[g])
        share = orders.limit - AT * orders.taper  # at that horizon
        by = moved_limit(seen, made, (share, orders.margin), shift, harmed, self.target)
        if by != shift:
            self.state.shift[g] = by
            self._tell(view, g, "limit", f"{by - shift:+.3f} after {100 * harmed:.2f} % of harm")

    def _tell(self, view: Any, region: int, what: str, why: str) -> None:
        self.events.append(Event(float(view.now_s), region, what, why))


def drifted(before: Sequence[float], hours: Sequence[float]) -> bool:
    """Whether Page-Hinkley says so within these hours, after those before."""
    from trimtab.policies.adlro.drift import Stream

    stream = Stream()
    for value in before:
        if stream.changed(value):
            stream = Stream()
    return any([stream.changed(value) for value in hours])
