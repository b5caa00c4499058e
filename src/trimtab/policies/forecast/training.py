"""Fit the estimate `forecast` on training days: ridge regression, a horizon at a time.

What is fitted is how far the use of a node's services rises above the last reading within the
horizon. Sums over scenes are all that is kept, so a training goes on where it stopped, and the
weights do not depend on where that was.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.errors import PolicyError, TraceError
from trimtab.rules.forecast import FEATURES, HORIZON_S, LONG, SHIPPED, described, write_weights
from trimtab.sim.lending import ahead_max, service_use
from trimtab.traces.scenes.scene import Scene, open_scene
from trimtab.training.kept import read_kept, write_kept

VALIDATE = 10  # scenes between two validations
FREE = ("steps", "held")  # may differ when a training goes on
# what scenes differ in, in turn: the estimate shall not hang on one
VARIANTS = ("", "swing=0.6", "reserved=0.6,swing=0.8", "phase=0", "swing=0.9,uneven=0.35")
FIRST_SEED, HELD_SEED = 500_000, 600_000
AFTER_S = HORIZON_S[-1]


@dataclass(frozen=True)
class Settings:
    """How many scenes; the trace is `colocated`, or the same with files of yours."""

    steps: int = 60  # scenes
    held: int = 10  # scenes that validate
    machines: int = 24  # of each
    every: int = 3  # steps of use between two examples of a node
    ridge: float = 1e-4  # times the mean square of the features

    def check(self) -> Settings:
        for name in ("steps", "held", "machines", "every"):
            if getattr(self, name) < 1:
                raise PolicyError(f"{name}={getattr(self, name)} leaves nothing; give 1 or more")
        if not self.ridge >= 0:
            raise PolicyError(f"ridge={self.ridge} is below 0; give 0 or more")
        return self


class Progress(NamedTuple):
    """How far a training is; errors are means of absolute ones in points of a node, over horizons,
    on validation days.
    """

    step: int
    steps: int
    loss: float  # of the forecast; NaN between validations
    p95: float  # of the 95th percentile of the readings
    peak: float  # of the largest
    wall_s: float


class Sums(NamedTuple):
    """Of all examples so far."""

    square: Array  # (F, F)
    product: Array  # (F, H)
    rise: Array  # (H,) of squares
    seen: Array  # (1,) how many

    @classmethod
    def none(cls) -> Sums:
        horizons = len(HORIZON_S)
        return cls(
            np.zeros((FEATURES, FEATURES)), np.zeros((FEATURES, horizons)), np.zeros(horizons),
            np.zeros(1),
        )  # fmt: skip

    def add(self, x: Array, y: Array) -> None:
        self.square[:] += x.T @ x
        self.product[:] += x.T @ y
        self.rise[:] += (y**2).sum(0)
        self.seen[:] += len(x)

    def weights(self, ridge: float) -> Array:
        """(H, F + 1) the fit, and the deviation of what it leaves."""
        scale = ridge * np.diag(self.square).mean() * np.eye(FEATURES)
        fit = np.linalg.solve(self.square + scale, self.product)
        left = self.rise - 2 * (fit * self.product).sum(0) + (fit * (self.square @ fit)).sum(0)
        deviation = np.sqrt(np.maximum(left, 0.0) / self.seen)
        return np.ascontiguousarray(np.column_stack((fit.T, deviation)))


def train_forecast(
    out: str | Path,
    *,
    trace: str = "colocated",
    seed: int = 0,
    command: str = "",
    **settings: Any,
) -> Iterator[Progress]:
    """Train into the folder `out`; goes on where a checkpoint of the same settings lies there.

    `out` gets forecast.json, the weights after the scenes so far, and checkpoint.npz.
    """
    out, on = Path(out), Settings(**settings).check()
    made = {"trace": trace, "seed": seed, **asdict(on)}
    sums, done, spent_s = _resumed(out, made)
    began_s = time.perf_counter() - spent_s
    held = [
        examples(scene_of(trace, "validation", HELD_SEED + seed + n, on.machines), on.every)
        for n in range(on.held)
    ]
    for step in range(done, on.steps):
        scene = scene_of(trace, "train", FIRST_SEED + 1000 * seed + step, on.machines)
        x, y, _ = examples(scene, on.every)
        sums.add(x, y)
        weights = sums.weights(on.ridge)
        errors = np.full(3, np.nan)
        if (step + 1) % VALIDATE == 0 or step + 1 == on.steps:
            errors = np.array([errors_of(weights, *one) for one in held]).mean(0)
        out.mkdir(parents=True, exist_ok=True)
        about = {"settings": made, "scenes": step + 1, "examples": int(sums.seen[0])}
        write_weights(out / SHIPPED.name, weights, command=command, **about)
        wall_s = time.perf_counter() - began_s
        write_kept(out, made, {**sums._asdict(), "done": step + 1, "spent_s": wall_s})
        loss, p95, peak = (float(error) for error in errors)
        yield Progress(step + 1, on.steps, loss, p95, peak, wall_s)


def scene_of(trace: str, split: str, seed: int, machines: int) -> Scene:
    """A scene of that split; variants in turn."""
    return lent_scene(trace, split, seed, machines, VARIANTS[seed % len(VARIANTS)])


def lent_scene(trace: str, split: str, seed: int, machines: int, settings: str = "") -> Scene:
    """A scene of that split, with hardly any batch work."""
    more = ",".join(part for part in (settings, f"machines={machines},split={split}") if part)
    scene = open_scene(f"{trace}{',' if ':' in trace else ':'}{more}", seed=seed, load=0.01)
    if scene.cluster.lending is None:
        raise TraceError(f"{trace}: no services lend anything there; give a co-located scene")
    return scene


class Used(NamedTuple):
    """Of one scene: what services used of every node, and how far that rose after some steps."""

    used: Array  # (T, N) in cores
    share: Array  # (T, G) mean share of each region's nodes
    region: Array  # (N,)
    held: Array  # (N,) reserved
    cap: Array  # (N,)
    steps: Array  # (S,) of examples
    rises: Array  # (S, N, H) in shares of a node


def used_in(scene: Scene, every: int) -> Used:
    """What there is to learn from, an example of each node every so many steps of use."""
    work, rack = scene.workload, scene.cluster
    cap = rack.capacity[np.arange(len(rack)), rack.nodes["driver"]]
    used = service_use(work, rack)
    region = rack.nodes["region"].astype(np.int64)
    count = np.maximum(np.bincount(region, minlength=len(rack.regions)), 1)
    share = np.stack([
        np.bincount(region, row, len(rack.regions)) / count for row in used / cap
    ])  # fmt: skip
    ahead = int(np.ceil(AFTER_S / work.pattern_step_s)) + 1
    steps = np.arange(LONG, len(used) - ahead, every)
    rows = work.truth["service"] == 1
    held = np.bincount(work.truth["pinned"][rows] - 1, work.demand[rows, 0], len(rack))
    rises = [
        ahead_max(used, int(np.ceil(horizon_s / work.pattern_step_s)) + 1)[steps] - used[steps]
        for horizon_s in HORIZON_S
    ]
    return Used(used, share, region, held, cap, steps, np.stack(rises, -1) / cap[:, None])


def examples(scene: Scene, every: int) -> tuple[Array, Array, Array]:
    """Features (E, F), rises (E, H), and what the percentile and the peak of the readings say of
    them (2, E).
    """
    used, share, region, held, cap, steps, rises = used_in(scene, every)
    x = np.empty((len(steps), len(cap), FEATURES))
    described(used, share, region, held, cap, steps, x)
    past = np.stack([used[steps - k] for k in range(LONG)])
    simple = [np.percentile(past, 95, axis=0), past.max(0)]
    others = np.stack([(one - used[steps]) / cap for one in simple])
    return x.reshape(-1, FEATURES), rises.reshape(-1, len(HORIZON_S)), others.reshape(2, -1)


def errors_of(weights: Array, x: Array, y: Array, others: Array) -> tuple[float, float, float]:
    """Mean absolute errors in points: of the fit, the percentile, the peak."""
    said = np.maximum(x @ weights[:, :-1].T, 0.0)
    simple = [np.maximum(one, 0.0)[:, None] for one in others]
    mine, p95, peak = (100 * float(np.abs(one - y).mean()) for one in (said, *simple))
    return mine, p95, peak


def _resumed(out: Path, made: dict[str, Any]) -> tuple[Sums, int, float]:
    """The sums of the checkpoint in `out`, scenes done and seconds spent; none without one."""
    held = read_kept(out, made, FREE, (*Sums._fields, "done", "spent_s"))
    if held is None:
        return Sums.none(), 0, 0.0
    sums = Sums(*(held[name] for name in Sums._fields))
    return sums, int(held["done"]), float(held["spent_s"])
