"""Train a small manager by evolution or by policy gradients, on scenes drawn as workers' are."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import numpy as np

from trimtab.policies.hierarchy.manager import FILE, write_manager
from trimtab.policies.hierarchy.managers.choosing import NONE, chosen
from trimtab.policies.hierarchy.managers.evolving import Evolving
from trimtab.policies.hierarchy.managers.gradient import Gradient
from trimtab.policies.hierarchy.managers.linear import scale_of
from trimtab.policies.hierarchy.managers.settings import (
    CHECKPOINT,
    FIRST_SEED,
    FREE,
    Progress,
    Settings,
    going_on,
)
from trimtab.policies.hierarchy.training import drawn
from trimtab.policies.hierarchy.weights import read_orders
from trimtab.training.kept import read_kept, write_kept
from trimtab.training.spread import spread

SCALED = 4  # scenes that say how far what is seen moves


def searched(out: Path, on: Settings, trace: str, seed: int, command: str) -> Iterator[Progress]:
    """Search into the folder `out`; goes on where a checkpoint of the same settings lies there."""
    made, orders = {"trace": trace, "seed": seed, **asdict(on)}, read_orders(on.orders)
    began_s = time.perf_counter()
    with spread(on.on, lambda: ThreadPoolExecutor(on.workers or os.cpu_count() or 1)) as pool:
        first = FIRST_SEED + 10_000 * seed
        scenes = drawn(pool, trace, "train", first, [on.machines] * on.scenes)
        scale = scale_of(scenes[:SCALED], orders, on.every_s)
        search: Evolving | Gradient = (
            Evolving(orders, scale, population=on.population, seed=seed)
            if on.how == "evolution"
            else Gradient(orders, scale, plays=on.plays, price=on.price, seed=seed)
        )
        kept = read_kept(out, made, FREE, (*search.state(), "spent_s"), CHECKPOINT)
        if kept is not None:
            search.load(kept)
            began_s -= float(kept["spent_s"])
        while search.done < on.steps:
            rng = np.random.default_rng([seed, search.done, 6])
            turn = rng.choice(len(scenes), min(on.of, len(scenes)), False)
            loss = search.step(pool, [scenes[i] for i in turn], on.every_s)
            wall_s = time.perf_counter() - began_s
            write_kept(out, made, {**search.state(), "spent_s": wall_s}, CHECKPOINT)
            if search.done < on.steps:
                yield going_on(search.done, on.steps, wall_s, loss)
    about = {"settings": made, "command": command, "every_s": on.every_s}
    best = chosen(search.manager(NONE, about), trace, on, seed)
    write_manager(out / FILE, search.manager(best.margin, {**about, "change": best.change}))
    wall_s = time.perf_counter() - began_s
    yield best.of(going_on(on.steps, on.steps, wall_s))
