"""Find packer's weights by evolution, on lists drawn anew each generation.

A candidate's gain on a list is what it fills of the GPUs above what FGD fills, in points: a third
of it when the pods that arrived have just asked for all GPUs, a third in the mean since, a third at
the end; for what is turned away early may be made up for later. What is negative counts twice, and
above two points no more than two: better than FGD everywhere goes before much better somewhere.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.errors import PolicyError
from trimtab.policies.packer.lists import Ground, List, ground
from trimtab.policies.packer.policy import FILE
from trimtab.rules.worth import CLASSES, FEATURES, write_weights
from trimtab.sim.packing import FGD, PACKER, Packing
from trimtab.training.evolution import Evolution
from trimtab.training.kept import read_kept, write_kept

HELD_OUT = 1_000_000  # added to the seed: the lists that choose among generations
FREE = ("steps", "every", "workers")  # may differ when a training goes on
MOST_GAIN = 2.0
# FGD's gradient; of equals the fuller node, and none that others need
START = {"relief": 1.0, "gpu_left": -0.1, "wanted": -0.3}


@dataclass(frozen=True)
class Settings:
    """How long and on what; the trace is `openb`, or a pod list whose mix is drawn from."""

    steps: int = 60  # generations
    lists: int = 4  # a generation
    held: int = 12  # lists that validate
    every: int = 10  # generations between two validations
    population: int = 16
    sigma: float = 0.1
    nodes: int = 600  # of openb's mix; a list's own cluster is taken as it is
    load: float = 1.3
    classes: float = 0.7
    demands: float = 0.5
    workers: int = 0  # threads; 0 = one a processor

    def check(self) -> Settings:
        for name in ("steps", "lists", "held", "every", "nodes"):
            if getattr(self, name) < 1:
                raise PolicyError(f"{name}={getattr(self, name)} leaves nothing; give 1 or more")
        for name, least in (("population", 4), ("sigma", 1e-9), ("load", 1e-9), ("workers", 0),
                            ("classes", 0), ("demands", 0)):  # fmt: skip
            if not getattr(self, name) >= least:
                raise PolicyError(f"{name}={getattr(self, name)} is below {least:g}; give more")
        return self


class Progress(NamedTuple):
    """How far a training is; `loss` and what follows are of the held-out lists."""

    step: int
    steps: int
    loss: float  # NaN between validations
    gain: float  # points above FGD, mean
    worst: float  # the same on the list with the least
    best_loss: float  # of the generations so far: the one in packer.json
    sigma: float
    wall_s: float


def train_packer(
    out: str | Path,
    *,
    trace: str = "openb",
    cluster: str | None = None,
    seed: int = 0,
    command: str = "",
    **settings: Any,
) -> Iterator[Progress]:
    """Train into the folder `out`; goes on where a checkpoint of the same settings lies there.

    `out` gets packer.json, the weights that were best on the held-out lists, and checkpoint.npz.
    """
    out, on = Path(out), Settings(**settings).check()
    made = {"trace": trace, "cluster": cluster, "seed": seed, **asdict(on)}
    of = ground(trace, cluster, on.nodes, on.load, on.classes, on.demands)
    search = Evolution(first_weights().ravel(), on.sigma, population=on.population, seed=seed)
    best, spent_s = _resumed(out, made, search)
    held = [of.drawn(np.random.default_rng([seed + HELD_OUT, i])) for i in range(on.held)]
    began_s = time.perf_counter() - spent_s
    with _threads(on.workers) as pool:
        by_fgd = _filled(pool, held, [None])[0]
        while search.generation < on.steps:
            _generation(pool, search, of, on.lists)
            loss, gains = float("nan"), np.full(1, np.nan)
            if search.generation % on.every == 0 or search.generation == on.steps:
                gains = _filled(pool, held, [search.mean])[0] - by_fgd
                loss = float(losses(gains[None])[0])
                if loss < best:
                    best = loss
                    about = {"generation": search.generation, "settings": made}
                    of_held = {"gain": _points(gains.mean()), "worst": _points(gains.min())}
                    write_weights(
                        out / FILE, _table(search.mean), command=command, **about, held_out=of_held
                    )
            wall_s = time.perf_counter() - began_s
            write_kept(out, made, {**search.state(), "best": best, "spent_s": wall_s})
            yield Progress(
                search.generation, on.steps, loss, float(gains.mean()), float(gains.min()), best,
                search.sigma, wall_s,
            )  # fmt: skip


def _points(value: float) -> float:
    return round(float(value), 3)


def first_weights() -> Array:
    """(classes, features) where the search begins."""
    return np.tile([START.get(name, 0.0) for name in FEATURES], (len(CLASSES), 1))


def losses(gains: Array) -> Array:
    """(candidates,) of gains (candidates, lists)."""
    mean: Array = -(np.minimum(gains, MOST_GAIN) + np.minimum(gains, 0.0)).mean(1)
    return mean


def _generation(pool: ThreadPoolExecutor, search: Evolution, of: Ground, lists: int) -> None:
    rng = np.random.default_rng([search.seed, search.generation, 1])
    drawn = [of.drawn(rng) for _ in range(lists)]
    candidates = search.ask()
    filled = _filled(pool, drawn, [None, *candidates])
    search.tell(candidates, losses(filled[1:] - filled[0]))


def _filled(
    pool: ThreadPoolExecutor, lists: Sequence[List], candidates: Sequence[Array | None]
) -> Array:
    """(candidates, lists) scores; None is FGD."""

    def one(at: tuple[Array | None, List]) -> float:
        weights, todo = at
        if weights is None:
            return score(todo.filled(FGD))
        return score(todo.filled(PACKER, _table(weights)))

    pairs = [(weights, todo) for weights in candidates for todo in lists]
    return np.array(list(pool.map(one, pairs))).reshape(len(candidates), len(lists))


def score(done: Packing) -> float:
    """Points of GPU allocation: a third each as all GPUs were asked for, since then, at the end."""
    used = done.used_gpu_milli[done.arrived_gpu_milli >= done.capacity_gpu_milli]
    if not len(used):
        return 100 * done.gpu_allocation
    return 100 * float(used[0] + used.mean() + used[-1]) / (3 * done.capacity_gpu_milli)


def _table(weights: Array) -> Array:
    return weights.reshape(len(CLASSES), len(FEATURES))


class _threads(ThreadPoolExecutor):
    """Threads that drop what has not begun when the block is left: by Ctrl-C within a second."""

    def __init__(self, workers: int) -> None:
        super().__init__(workers or os.cpu_count() or 1)

    def __exit__(self, *_: object) -> None:
        self.shutdown(cancel_futures=True)


def _resumed(out: Path, made: dict[str, Any], search: Evolution) -> tuple[float, float]:
    """Load the checkpoint of `out`, where there is one: the best loss so far, seconds spent."""
    held = read_kept(out, made, FREE, (*search.state(), "best", "spent_s"))
    if held is None:
        return float("inf"), 0.0
    search.load(held)
    return float(held["best"]), float(held["spent_s"])
