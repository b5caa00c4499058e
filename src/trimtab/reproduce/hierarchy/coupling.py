"""Figure 3 of hierarchy-hmarl: how load, and what the hierarchy does about it, go over time.

A run is recorded every few seconds. Series are set beside each other less their own mean of a
quarter of an hour around, so that two that only share a day do not count as coupled, and correlated
at every lag over all runs together. An interval comes from drawing the quarters of an hour anew
(block bootstrap), and what chance would give from series of the same spectrum with other phases.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator

from trimtab.arrays import Array
from trimtab.core import Limit
from trimtab.policies.hierarchy.manager import read_manager
from trimtab.policies.hierarchy.stage import MTTR_S, RULE, Stage
from trimtab.policies.hierarchy.steering import Steering
from trimtab.policies.hierarchy.weights import read_orders
from trimtab.rules.names import parse
from trimtab.sim.log import E_STARTED, E_STOPPED, EVICTED
from trimtab.sim.whole import run_world
from trimtab.sim.world import Models, fitted, outages
from trimtab.traces.scenes.scene import open_scene

RUNS = "trimtab.reproduce.hierarchy.coupling:recorded"
STEP_S = 5.0  # between two looks of the recorder
BIN_S = 15.0
WINDOW_S = 60.0  # of the drawn series after preparation
SLOW_S = 900.0  # a swing as slow is the day's, and a block of the bootstrap is as long
MOST_LAG_S = 300.0
DRAWS = 400
PROMPT_S = 60.0
DIGITS = 5
LOG_ROWS = 4096
# each pair: load, what answers it, and whether that should rise with it
PAIRS = (
    ("waiting", "released", 1),
    ("waiting", "admitted", 1),
    ("services", "lent", -1),
    ("services", "admitted", -1),
    ("services", "evicted", 1),
    ("services", "limit", -1),
)
TITLES = {
    "waiting": "cores that wait",
    "released": "cores released a minute",
    "admitted": "cores admitted a minute",
    "evicted": "cores evicted a minute",
    "services": "services' use",
    "lent": "room lent to batch jobs",
    "limit": "limit",
}


class Recorder:
    """Steers as another does and writes down what it sees on the way."""

    def __init__(self, inner: Steering) -> None:
        self.inner = inner
        self.due_s = -math.inf
        self.worker: Array | None = None
        self.rows: list[tuple[float, ...]] = []

    def began(self, now_s: float) -> bool:
        return self.inner.began(now_s)

    def decisions(self, view: Any) -> list[Limit] | None:
        made = self.inner.decisions(view)
        self.worker = self.inner.worker
        self.rows.append(seen(view))
        turn_s = (math.floor(view.now_s / STEP_S) + 1) * STEP_S
        self.due_s = min(self.inner.due_s, turn_s)
        return made


COLUMNS = ("time_s", "waiting", "booked", "services", "lent", "limit", "cpu", "mem", "cpu_sd")


def seen(view: Any) -> tuple[float, ...]:
    """A row of COLUMNS; cores of the driving resource, and shares of the cluster."""
    nodes, state = view.nodes, view.node_state
    row, driver = np.arange(len(nodes)), nodes["driver"]
    cap = view.capacity[row, driver]
    queue = np.asarray(view.queue)
    queue = queue[np.isfinite(view.jobs["request_s"][queue])]
    cores = view.demand[queue, int(np.bincount(driver).argmax())]
    waiting = float((cores * np.maximum(view.state["left"][queue], 0)).sum())
    booked = float((cap - state["kept"] - view.free[row, driver]).sum())
    others = [r for r in range(view.capacity.shape[1]) if (driver != r).all()]
    size = max(float(view.capacity[:, others].sum()), 1e-9)
    return (
        float(view.now_s), waiting, booked, float(state["service"].sum() / cap.sum()),
        float(np.maximum(cap - state["kept"], 0.0).sum() / cap.sum()), float(view.limit.mean()),
        float(state["used"].sum() / cap.sum()), 1 - float(view.free[:, others].sum()) / size,
        float(state["load"].std()),
    )  # fmt: skip


def recorded(*, trace: str, seed: int, mtbf_s: float, policy: str = "") -> dict[str, Any]:
    """One run of the hierarchy as series by name, every STEP_S; `policy` is a folder of a training,
    "" = what ships.
    """
    scene = open_scene(trace, seed=seed)
    work, cluster = fitted(scene.workload, scene.cluster)
    until_s = 2.0 * float(work.jobs["submit_s"].max())
    rng = np.random.default_rng(seed)
    fail = outages(cluster, until_s, rng, mtbf_s=mtbf_s, mttr_s=MTTR_S)
    stage, orders = Stage(scene, work, cluster, Models(outages=fail)), read_orders(policy)
    recorder = Recorder(Steering(orders, read_manager(policy)))
    world = stage.world(orders, log=LOG_ROWS)
    world = run_world(world, parse(RULE), None, recorder, scene.profile)
    log, state = world.log[0, : int(world.head[0]["log"])], world.state[0]
    batch = work.truth["service"] == 0
    first_s = float(work.jobs["submit_s"][batch].min())
    count = int((float(work.jobs["submit_s"][batch].max()) - first_s) / STEP_S)
    edges = first_s + STEP_S * np.arange(count + 1)
    found = on_grid(recorder.rows, edges)
    driver = int(np.bincount(cluster.nodes["driver"]).argmax())
    mine = np.isin(log["job"], np.flatnonzero(batch))
    cores = work.demand[log["job"], driver] * log["count"]
    for name, what in (
        ("admitted", log["what"] == E_STARTED),
        ("evicted", (log["what"] == E_STOPPED) & (log["reason"] == EVICTED)),
    ):
        own = mine & what
        found[name] = np.histogram(log["time_s"][own], edges, weights=cores[own])[0]
    # what is booked no more though it was, or was admitted since
    found["released"] = found["admitted"] - np.diff(found.pop("booked"))
    steady = batch & (state["evicted"] == 0) & (state["tries"] == 0)
    waits = (state["start_s"] - np.fmax(work.jobs["submit_s"], state["queued_s"]))[steady]
    began = state["start_s"][steady]
    many = np.histogram(began, edges)[0]
    total = np.histogram(began, edges, weights=waits)[0]
    found["wait_s"] = np.where(many > 0, total / np.maximum(many, 1), np.nan)
    series = {
        name: [round(float(v), DIGITS) if math.isfinite(v) else None for v in values[:count]]
        for name, values in found.items()
    }
    return {"first_s": first_s, "step_s": STEP_S, "series": series}


def on_grid(rows: Sequence[tuple[float, ...]], edges: Array) -> dict[str, Array]:
    """Each column but the time as it last was at these instants."""
    table = np.array(rows)
    at = np.maximum(np.searchsorted(table[:, 0], edges, side="right") - 1, 0)
    return {name: table[at, i] for i, name in enumerate(COLUMNS) if i}


class Coupling(NamedTuple):
    """Of one pair: correlation by lag, and what is to be thought of its peak."""

    load: str
    answer: str
    lags_s: Array  # (L,) above 0 = the answer comes later
    r: Array  # (L,)
    low: Array  # (L,) 95 % interval of each
    high: Array
    lag_s: float  # of the peak
    lag_low_s: float
    lag_high_s: float
    chance: float  # peaks of series that have nothing to do with each other stay below, 95 of 100

    @property
    def peak(self) -> float:
        return float(self.r[self.lags_s == self.lag_s][0])


def coupling(runs: Sequence[Mapping[str, Any]], load: str, answer: str) -> Coupling | None:
    """Over all runs; None where one of the two never changes."""
    pairs = [(binned(one, load), binned(one, answer)) for one in runs]
    if not all(float(np.ptp(x)) > 0 and float(np.ptp(y)) > 0 for x, y in pairs):
        return None
    swift = [(quick(x), quick(y)) for x, y in pairs]
    most = round(MOST_LAG_S / BIN_S)
    lags = np.arange(-most, most + 1)
    blocks = np.concatenate([sums(x, y, lags) for x, y in swift])
    rng = np.random.default_rng(0)
    drawn = rng.integers(0, len(blocks), (DRAWS, len(blocks)))
    tried = np.array([correlation(blocks[rows]) for rows in drawn])
    r = correlation(blocks)
    low, high = np.quantile(tried, (0.025, 0.975), axis=0)
    tops = lags[np.abs(tried).argmax(1)] * BIN_S
    strange = []
    for _ in range(DRAWS):
        parts = [sums(x, surrogate(y, rng), lags) for x, y in swift]
        strange.append(np.abs(correlation(np.concatenate(parts))).max())
    best = int(np.abs(r).argmax())
    ends = np.quantile(tops, (0.025, 0.975), method="inverted_cdf")
    return Coupling(
        load, answer, lags * BIN_S, r, low, high, float(lags[best] * BIN_S), float(ends[0]),
        float(ends[1]), float(np.quantile(strange, 0.95)),
    )  # fmt: skip


def binned(run: Mapping[str, Any], name: str) -> Array:
    """Means over BIN_S of a series that has no gap."""
    values, width = np.array(run["series"][name], float), round(BIN_S / run["step_s"])
    return np.asarray(values[: len(values) // width * width].reshape(-1, width).mean(1))


def quick(values: Array) -> Array:
    """The series less its own mean of SLOW_S around."""
    half = min(round(SLOW_S / BIN_S / 2), max((len(values) - 1) // 2, 1))
    total = np.concatenate(([0.0], np.cumsum(values)))
    at = np.arange(len(values))
    low, high = np.maximum(at - half, 0), np.minimum(at + half + 1, len(values))
    return np.asarray(values - (total[high] - total[low]) / (high - low))


def surrogate(values: Array, rng: Generator) -> Array:
    """A series of the same spectrum that knows nothing of the other: its phases are drawn anew."""
    waves = np.fft.rfft(values)
    waves[1:] = np.abs(waves[1:]) * np.exp(2j * np.pi * rng.random(len(waves) - 1))
    return np.fft.irfft(waves, len(values))


def sums(x: Array, y: Array, lags: Array) -> Array:
    """(blocks, 3, L) sums of xx, yy and xy, y later by each lag, a block SLOW_S of x."""
    found = np.empty((len(x), 3, len(lags)))
    at = np.arange(len(x))
    for i, lag in enumerate(lags):
        there = at + lag
        inside = (there >= 0) & (there < len(y))
        z = np.where(inside, y[np.clip(there, 0, len(y) - 1)], 0.0)
        found[:, 0, i], found[:, 1, i], found[:, 2, i] = x * x * inside, z * z, x * z
    width = round(SLOW_S / BIN_S)
    firsts = np.arange(0, len(x), width)
    return np.add.reduceat(found, firsts, axis=0)


def correlation(blocks: Array) -> Array:
    """(L,) of blocks of `sums`."""
    xx, yy, xy = blocks.sum(0)
    return np.asarray(xy / np.sqrt(np.maximum(xx * yy, 1e-300)))


def couplings(runs: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, int, Coupling | None]]:
    return [(load, answer, sign, coupling(runs, load, answer)) for load, answer, sign in PAIRS]
