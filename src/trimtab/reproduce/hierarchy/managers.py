"""Whether a manager pays: what can be gained by choosing goals, and what was learned of it.

All are set beside the same orders at the limit that harms services as much, so that to harm less
and wait longer counts for nothing. Scenes are of test days; no training saw them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from trimtab.arrays import Array
from trimtab.claims import Claim, listed
from trimtab.errors import PolicyError
from trimtab.policies.hierarchy.goals import KEEP, NAMES
from trimtab.policies.hierarchy.manager import Manager, read_manager
from trimtab.policies.hierarchy.managers import foresight
from trimtab.policies.hierarchy.managers.choosing import NONE
from trimtab.policies.hierarchy.managers.linear import steady
from trimtab.policies.hierarchy.managers.priced import Frontier, frontier, managed
from trimtab.policies.hierarchy.managers.settings import HOW, Settings
from trimtab.policies.hierarchy.managing import train_manager
from trimtab.policies.hierarchy.stage import Drawn
from trimtab.policies.hierarchy.weights import read_orders
from trimtab.reproduce.tables import Row, mean_row, measured_text
from trimtab.reproduce.trials import Trial

HERE = "trimtab.reproduce.hierarchy.managers"
EVERY_S = (30.0, 60.0, 120.0, 300.0)
MACHINES = 24
SCENES = 6
SPLIT = "test"
PRICE = Settings().price
BRIEF: dict[str, dict[str, Any]] = {
    "rollouts": {"steps": 6, "held": 2},
    "evolution": {"steps": 6, "of": 4},
    "gradient": {"steps": 8, "of": 3},
}
BRIEF_JUDGES = 8
FORESIGHT = "foresight"
PAYS = "a learned manager gains at equal harm, beyond chance, on days that it did not see"


def plain(*, trace: str, seed: int, machines: int) -> dict[str, Any]:
    """One scene without a manager, limit by limit, and under each goal everywhere."""
    scene, orders = [Drawn(trace, SPLIT, seed, machines)], read_orders()
    with ThreadPoolExecutor(1) as pool:
        found = frontier(pool, scene, orders)
        goals = {
            name: managed(pool, scene, orders, steady(goal))[0].tolist()
            for goal, name in enumerate(NAMES)
            if goal != KEEP
        }
    return {name: value[:, 0].tolist() for name, value in asdict(found).items()} | {"goals": goals}


def foreseen(*, trace: str, seed: int, machines: int, every_s: float) -> list[float]:
    """One scene under whatever turns out best."""
    stage = Drawn(trace, SPLIT, seed, machines).stage()
    return list(foresight.foreseen(stage, read_orders(), every_s, PRICE).best)


def learned(
    *, trace: str, seeds: Sequence[int], machines: int, how: str, every_s: float, folder: str
) -> dict[str, Any]:
    """These scenes under a manager of a folder, or one that is trained for a minute or two: as
    validation left it, and where it may follow whatever promises anything.
    """
    manager = read_manager(folder) if folder else trained(trace, machines, how, every_s)
    if manager is None:
        raise PolicyError(f"{folder}: no manager.npz; `trimtab train manager --out {folder}`")
    scenes, orders = [Drawn(trace, SPLIT, seed, machines) for seed in seeds], read_orders()
    with ThreadPoolExecutor(1) as pool:
        free = managed(pool, scenes, orders, replace(manager, margin=0.0))
        held = managed(pool, scenes, orders, manager)
    return {"free": free.tolist(), "held": held.tolist(), "follows": manager.margin < NONE}


def trained(trace: str, machines: int, how: str, every_s: float) -> Manager | None:
    settings = {"judges": BRIEF_JUDGES, "machines": machines, "workers": 1, **BRIEF[how]}
    with TemporaryDirectory() as place:
        list(train_manager(place, trace=trace, how=how, every_s=every_s, **settings))
        return read_manager(place)


def planned(trace: str, seeds: Sequence[int], folder: str) -> list[Trial]:
    """`folder` has a folder a training, such as evolution-60; "" = all are trained here."""
    of = {"trace": trace, "machines": MACHINES}
    alone = [Trial(f"{HERE}:plain", {**of, "seed": seed}) for seed in seeds]
    ahead = [
        Trial(f"{HERE}:foreseen", {**of, "seed": seed, "every_s": every_s})
        for every_s in EVERY_S
        for seed in seeds
    ]
    return alone + ahead + [
        Trial(
            f"{HERE}:learned",
            {**of, "seeds": list(seeds), "how": how, "every_s": every_s,
             "folder": str(Path(folder) / f"{how}-{every_s:g}") if folder else ""},
        )
        for how in HOW
        for every_s in EVERY_S
    ]  # fmt: skip


def rows_of(trials: Sequence[Trial], found: Mapping[str, Any]) -> list[Row]:
    """A row each of who chooses, a column each: the gain, and the cost and harm it is made of."""

    def of(name: str, **where: Any) -> list[Any]:
        return [
            found[trial.key] for trial in trials
            if trial.call == f"{HERE}:{name}"
            and all(trial.settings[key] == value for key, value in where.items())
        ]  # fmt: skip

    alone = of("plain")
    beside = Frontier(*(np.array([one[part] for one in alone]).T for part in ("cost", "harm")))
    rows: list[Row] = []
    for name in alone[0]["goals"]:
        rows += told(f"{name}, always", beside, [one["goals"][name] for one in alone])
    for every_s in EVERY_S:
        at = f"{every_s:g} s"
        rows += told(f"{FORESIGHT}, {at}", beside, of("foreseen", every_s=every_s))
        for how in HOW:
            one = of("learned", how=how, every_s=every_s)[0]
            rows += told(f"{how}, {at}, unchecked", beside, one["free"])
            rows += told(f"{how}, {at}", beside, one["held"], follows=one["follows"])
    return rows


def told(name: str, beside: Frontier, played: Sequence[Any], **where: Any) -> list[Row]:
    values = np.array(played)
    own = beside.own
    return [
        mean_row(name, "at equal harm, %", percent(beside.gains(values)), **where),
        mean_row(name, "cost, %", percent(values[:, 0] - own[:, 0]), **where),
        mean_row(name, "harm, points", (100 * (values[:, 1] - own[:, 1])).tolist(), **where),
    ]


def percent(change: Array) -> list[float]:
    return [float(value) for value in 100 * change]


def claim_of(rows: Sequence[Row]) -> Claim:
    """Holds where one that validation let follow goals gains beyond chance on test days too."""
    mine = [one for one in rows if one["metric"] == "at equal harm, %" and "follows" in one]
    sure = [one for one in mine if one["follows"]]
    if not sure:
        return Claim(PAYS, False, f"validation lets none of {len(mine)} follow a goal")
    paying = [one for one in sure if one["high"] is not None and one["high"] < 0]
    return Claim(PAYS, bool(paying), listed([f"{x['policy']}: {measured_text(x)} %" for x in sure]))
