"""Train the workers of the hierarchy: what they weigh, and how much they borrow, by evolution.

The loss is the metric itself: the mean log of waiting, imbalance, completion time and late tasks
(`frontier.cost`), and beside it what harm costs, at the rate at which the frontier trades one for
the other, so that the search settles where services are harmed as much as it was told.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.errors import PolicyError
from trimtab.policies.hierarchy.stage import AND, FLOOR, Drawn
from trimtab.policies.hierarchy.weights import FILE, Orders, from_rule, read_orders, write_orders
from trimtab.training.evolution import Evolution
from trimtab.training.kept import CHECKPOINT as KEPT_AS
from trimtab.training.kept import read_kept, write_kept
from trimtab.training.spread import Spread, check_place, spread

FIRST_SEED, HELD_SEED = 700_000, 800_000
RULE = "rule"
FREE = ("steps", "every", "held", "workers", "on")  # may differ when a training goes on


@dataclass(frozen=True)
class Settings:
    """`trace` are co-located scenes, several with ; between them, drawn in turn."""

    steps: int = 60  # generations
    scenes: int = 48  # that are drawn from
    of: int = 8  # of them a generation
    held: int = 12  # that validate
    machines: int = 48  # of each, and of those that validate
    most: int = 0  # of the largest, which come last; 0 = all are alike
    first: str = ""  # orders to begin with: of a folder, rule = the best rule, "" = what ships
    population: int = 16
    sigma: float = 0.7  # of each number's own width
    every: int = 10  # generations between two validations
    harm: float = 0.01  # share of services' use that may be harmed
    price: float = 0.1  # of a harm e times as large, in the log of the cost
    without: str = ""  # encoder, compatibility, manager or alignment: an ablation
    workers: int = 0  # threads; 0 = one a processor
    on: str = ""  # where scenes are played: "" = here, ray, or ray:ADDRESS of a cluster

    def check(self) -> Settings:
        check_place(self.on)
        for name in ("steps", "scenes", "of", "held", "machines", "population", "every"):
            if getattr(self, name) < 1:
                raise PolicyError(f"{name}={getattr(self, name)} leaves nothing; give 1 or more")
        if self.most and self.most < self.machines:
            raise PolicyError(f"most={self.most} is below machines={self.machines}; give as many")
        if not (0 < self.harm < 1 and self.price >= 0):
            raise PolicyError(f"harm={self.harm}, price={self.price}; give a share and 0 or more")
        return self


class Progress(NamedTuple):
    """How far a training is; what follows wall_s is of the validation days."""

    step: int
    steps: int
    loss: float  # NaN between validations
    wall_s: float
    harm: float
    best_loss: float
    sigma: float


def train_hierarchy(
    out: str | Path,
    *,
    trace: str = "colocated",
    seed: int = 0,
    command: str = "",
    **settings: Any,
) -> Iterator[Progress]:
    """Train into the folder `out`; goes on where a checkpoint of the same settings lies there.

    `out` gets hierarchy.json, the orders that were best on validation days, and checkpoint.npz.
    """
    out, on = Path(out), Settings(**settings).check()
    made = {"trace": trace, "seed": seed, **asdict(on)}
    begins = from_rule if on.first == RULE else partial(read_orders, on.first)
    first, kept_as = begins(without=on.without), f"no-{on.without}.npz" if on.without else KEPT_AS
    names, widths = first.free()
    search = Evolution(np.zeros(len(names)), on.sigma, population=on.population, seed=seed)
    kept = read_kept(out, made, FREE, (*search.state(), "best", "spent_s"), kept_as)
    best, spent_s = math.inf, 0.0
    if kept is not None:
        search.load(kept)
        best, spent_s = float(kept["best"]), float(kept["spent_s"])
    began_s = time.perf_counter() - spent_s
    with spread(on.on, lambda: ThreadPoolExecutor(on.workers or os.cpu_count() or 1)) as pool:
        stages = drawn(pool, trace, "train", FIRST_SEED + 1000 * seed, sizes(on))
        sizes_held = [on.machines] * on.held
        judges = drawn(pool, trace, "validation", HELD_SEED + 1000 * seed, sizes_held)

        def orders(at: Array) -> Orders:
            return first.moved(names, at * widths)

        while search.generation < on.steps:
            rng = np.random.default_rng([seed, search.generation, 2])
            ripe = len(stages)
            if on.most:  # a larger share of them in every generation
                ripe = max(ripe * (search.generation + 1) // on.steps, min(on.of, ripe))
            chosen = [stages[i] for i in rng.choice(ripe, min(on.of, ripe), False)]
            candidates = search.ask()
            played = outcomes(pool, chosen, [orders(one) for one in candidates])
            search.tell(candidates, np.array([loss_of(one, on) for one in played]))
            loss = harm = math.nan
            if search.generation % on.every == 0 or search.generation == on.steps:
                judged = outcomes(pool, judges, [orders(search.mean)])[0]
                loss, harm = loss_of(judged, on), float(judged[:, 1].mean())
                if loss < best:
                    best = loss
                    about = {"settings": made, "generation": search.generation, "loss": loss}
                    write_orders(out / FILE, orders(search.mean), command=command, **about)
            wall_s = time.perf_counter() - began_s
            write_kept(out, made, {**search.state(), "best": best, "spent_s": wall_s}, kept_as)
            yield Progress(search.generation, on.steps, loss, wall_s, harm, best, search.sigma)


def sizes(on: Settings) -> list[int]:
    """Machines of each scene: growing by the same ratio, where they grow."""
    return np.geomspace(on.machines, on.most or on.machines, on.scenes).round().astype(int).tolist()


def drawn(pool: Spread, trace: str, split: str, first: int, machines: Sequence[int]) -> list[Drawn]:
    """Scenes of a split with so many machines, of several loads and with failures, laid out."""
    traces = trace.split(AND)
    asked = [Drawn(traces[n % len(traces)], split, first + n, of) for n, of in enumerate(machines)]
    return list(pool.map(Drawn.laid, asked))


def outcomes(pool: Spread, stages: Sequence[Drawn], orders: Sequence[Orders]) -> Array:
    """(candidates, scenes, 2) log of the cost, and the share of harm."""
    pairs = [(one, stage) for one in orders for stage in stages]
    played = list(pool.map(lambda pair: pair[1].played(pair[0]), pairs))
    return np.array(played).reshape(len(orders), len(stages), 2)


def loss_of(played: Array, on: Settings) -> float:
    """Of (scenes, 2): the mean cost, and what its harm costs."""
    harm = max(float(played[:, 1].mean()), 0.0) + FLOOR
    return float(played[:, 0].mean()) + on.price * math.log(harm / (on.harm + FLOOR))
