"""Train the goals: what each changes of a region's orders, by evolution over their numbers.

Scenes are played under goals drawn at random, a region and a look, so that each goal is paid for by
what it costs wherever it may be wanted. Beside that cost stands `align` times the cross-entropy of
the inverse model (`alignment`; hierarchy-hmarl, eq. 8): without it the cheapest goals are those
that change nothing. The orders themselves stay as they are.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.errors import PolicyError
from trimtab.policies.hierarchy.alignment import Play, crossed, fitted, joined, judged, play
from trimtab.policies.hierarchy.goals import GOALS, free, moved
from trimtab.policies.hierarchy.stage import FLOOR, Drawn
from trimtab.policies.hierarchy.training import drawn
from trimtab.policies.hierarchy.weights import FILE, Orders, read_orders, write_goals
from trimtab.training.evolution import Evolution
from trimtab.training.kept import read_kept, write_kept

FIRST_SEED, HELD_SEED = 760_000, 860_000
FREE = ("steps", "every", "held", "workers")
CHECKPOINT = "checkpoint-goals.npz"  # the orders' own lies in the same folder


@dataclass(frozen=True)
class Settings:
    """`orders` is a folder of `trimtab train hierarchy`; "" = that of --out, or what ships."""

    steps: int = 30  # generations
    scenes: int = 32  # that are drawn from
    of: int = 6  # of them a generation
    held: int = 8  # that validate
    machines: int = 48  # of each
    population: int = 16
    sigma: float = 0.7  # of each number's own width
    every: int = 5  # generations between two validations
    align: float = 0.1  # of the cross-entropy, in the log of the cost; 0 = without alignment
    harm: float = 0.01
    price: float = 0.1
    orders: str = ""
    workers: int = 0  # threads; 0 = one a processor

    def check(self) -> Settings:
        for name in ("steps", "scenes", "of", "held", "machines", "population", "every"):
            if getattr(self, name) < 1:
                raise PolicyError(f"{name}={getattr(self, name)} leaves nothing; give 1 or more")
        if min(self.of, self.held) < 2:
            raise PolicyError(
                f"of={self.of}, held={self.held}: goals are read off scenes that were not fitted "
                "to; give 2 or more"
            )
        if not (0 < self.harm < 1 and self.price >= 0 and self.align >= 0):
            raise PolicyError(
                f"harm={self.harm}, price={self.price}, align={self.align}; give a share, and 0 or "
                "more"
            )
        return self


class Progress(NamedTuple):
    """How far a training is; what follows wall_s is of the validation days, NaN between two."""

    step: int
    steps: int
    loss: float
    wall_s: float
    cost: float  # of goals at random, harm priced
    cross_entropy: float
    accuracy: float
    best_loss: float
    sigma: float


def train_goals(
    out: str | Path,
    *,
    trace: str = "colocated",
    seed: int = 0,
    command: str = "",
    **settings: Any,
) -> Iterator[Progress]:
    """Train into the file of the hierarchy in `out`; goes on where a checkpoint lies there."""
    out, on = Path(out), Settings(**settings).check()
    made = {"trace": trace, "seed": seed, **asdict(on)}
    own = str(out) if (out / FILE).is_file() else ""
    first = replace(read_orders(on.orders or own), goals=GOALS)
    places, widths = free(GOALS)
    search = Evolution(np.zeros(len(places)), on.sigma, population=on.population, seed=seed)
    kept = read_kept(out, made, FREE, (*search.state(), "best", "spent_s"), CHECKPOINT)
    best, spent_s = math.inf, 0.0
    if kept is not None:
        search.load(kept)
        best, spent_s = float(kept["best"]), float(kept["spent_s"])
    began_s = time.perf_counter() - spent_s

    def orders(at: Array) -> Orders:
        return replace(first, goals=moved(GOALS, places, at * widths))

    with ThreadPoolExecutor(on.workers or os.cpu_count() or 1) as pool:
        stages = drawn(pool, trace, "train", FIRST_SEED + 1000 * seed, [on.machines] * on.scenes)
        judges = drawn(pool, trace, "validation", HELD_SEED + 1000 * seed, [on.machines] * on.held)
        while search.generation < on.steps:
            turn = [seed, search.generation, 4]
            rng = np.random.default_rng(turn)
            chosen = [stages[i] for i in rng.choice(len(stages), min(on.of, len(stages)), False)]
            candidates = search.ask()
            plays = [played(pool, chosen, orders(one), turn) for one in candidates]
            search.tell(candidates, np.array([loss_of(one, on)[0] for one in plays]))
            found = (math.nan,) * 4
            if search.generation % on.every == 0 or search.generation == on.steps:
                judged_plays = played(pool, judges, orders(search.mean), [seed, 5])
                found = (*loss_of(judged_plays, on), accuracy(judged_plays))
                if found[0] < best:
                    best = found[0]
                    numbers = dict(zip(("loss", "cost", "cross_entropy", "accuracy"), found))
                    about = {"command": command, "settings": made, **numbers}
                    mine = orders(search.mean)
                    write_goals(out / FILE, mine, generation=search.generation, **about)
            wall_s = time.perf_counter() - began_s
            state = {**search.state(), "best": best, "spent_s": wall_s}
            write_kept(out, made, state, CHECKPOINT)
            yield Progress(
                search.generation, on.steps, found[0], wall_s, *found[1:], best, search.sigma
            )


def played(
    pool: ThreadPoolExecutor, stages: Sequence[Drawn], orders: Orders, turn: Sequence[int]
) -> list[Play]:
    """Every scene under goals drawn at random, the same for all candidates of a turn."""

    def one(number: int) -> Play:
        return play(stages[number].stage(), orders, np.random.default_rng([*turn, number]))

    return list(pool.map(one, range(len(stages))))


def loss_of(plays: Sequence[Play], on: Settings) -> tuple[float, float, float]:
    """The loss, and its parts: the cost with harm priced, and the cross-entropy."""
    harm = max(float(np.mean([one.harm for one in plays])), 0.0) + FLOOR
    cost = float(np.mean([one.cost for one in plays]))
    cost += on.price * math.log(harm / (on.harm + FLOOR))
    unread = crossed([one.acts for one in plays])
    return cost + on.align * unread, cost, unread


def accuracy(plays: Sequence[Play]) -> float:
    """Share of goals told right, of the second half of the scenes by the first."""
    half = max(len(plays) // 2, 1)
    first, rest = (joined([one.acts for one in part]) for part in (plays[:half], plays[half:]))
    return judged(fitted(first), rest).accuracy
