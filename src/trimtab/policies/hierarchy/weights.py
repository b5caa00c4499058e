"""The orders of the hierarchy as numbers in a file: what workers weigh and how much they borrow."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from trimtab.arrays import Array
from trimtab.errors import PolicyError, UnknownName
from trimtab.files import write_whole
from trimtab.policies.hierarchy.goals import GOALS, Goal, goals_in
from trimtab.policies.hierarchy.goals import told as told_goals
from trimtab.rules import compat
from trimtab.rules.compat import SHIPPED, WEIGHTS, weights_in
from trimtab.rules.held import held_in, made_by, remedy
from trimtab.rules.names import MOST_LIMIT, parse

LEARNER = compat.LEARNER
FILE = SHIPPED.name
BOUNDS = {  # of what is set for a region
    **{"limit": (0.0, MOST_LIMIT), "margin": (-10.0, 10.0), "patience_s": (-1.0, math.inf)},
    **{"overstay": (0.0, 10.0), "taper": (-0.1, 0.1)},
}
WITHOUT = ("encoder", "manager", "compatibility", "alignment")  # the ablations
# what is searched for, and how far a step of it goes; log_patience is of its decimal logarithm
WIDTHS = {
    **{"limit": 0.03, "margin": 0.4, "log_patience": 0.5, "overstay": 0.25, "taper": 0.005},
    **{"cosine": 0.1, "now": 0.2, "peak": 0.2, "speed": 0.2, "general": 0.2, "memory": 0.1},
}
MATCHING = ("cosine", "speed", "neighbours", "general", "memory")  # terms of compatibility
LONGEST_S = 1e4  # patience
BLIND = "peak"  # the estimate without encoding: as the best rule has it


@dataclass(frozen=True)
class Orders:
    """What a region's workers go by where its manager says nothing else."""

    limit: float
    margin: float
    patience_s: float
    overstay: float
    taper: float
    worker: Array  # (1, weights) of rules.compat
    estimate: str = "encoder"  # how services' use is foreseen
    off: str = ""  # of WITHOUT
    goals: tuple[Goal, ...] = GOALS

    def without(self, part: str) -> Orders:
        """The ablation that lacks a part."""
        if part not in ("", *WITHOUT):
            raise UnknownName(f"without={part!r} is unknown; known: {', '.join(WITHOUT)}")
        worker = self.worker.copy()
        if part == "compatibility":
            worker[:, [list(WEIGHTS).index(name) for name in MATCHING]] = 0.0
        estimate = BLIND if part == "encoder" else self.estimate
        return replace(self, worker=worker, estimate=estimate, off=part)

    def borrowing(self, borrow: str) -> Orders:
        """The same with an estimate, and a limit behind it, as rules write them: encoder@0.9."""
        if not borrow:
            return self
        rule = parse(f"fcfs+{borrow}")
        limit = self.limit if math.isnan(rule.limit) else rule.limit
        patience_s = self.patience_s if math.isnan(rule.patience_s) else rule.patience_s
        estimate = rule.estimate or self.estimate
        return replace(self, estimate=estimate, limit=limit, patience_s=patience_s)

    def free(self) -> tuple[tuple[str, ...], Array]:
        """What a search may move, and by how much in a step."""
        fixed: tuple[str, ...] = MATCHING if self.off == "compatibility" else ()
        fixed = ("margin", "overstay", "taper") if self.off == "encoder" else fixed
        names = tuple(name for name in WIDTHS if name not in fixed)
        return names, np.array([WIDTHS[name] for name in names])

    def moved(self, names: tuple[str, ...], by: Array) -> Orders:
        """The same with these numbers changed by so much, each within its bounds."""
        worker, care = self.worker.copy(), {name: getattr(self, name) for name in BOUNDS}
        for name, step in zip(names, by.tolist()):
            if name == "log_patience":
                longer = 10.0 ** min(max(step, -6.0), 6.0)
                care["patience_s"] = min(max(care["patience_s"] * longer, 0.1), LONGEST_S)
            elif name in BOUNDS:
                care[name] += step
            else:
                worker[:, list(WEIGHTS).index(name)] += step
        care["limit"] = min(max(care["limit"], 0.3), 1.2)
        care["margin"] = min(max(care["margin"], -2.0), 6.0)
        care["overstay"] = min(max(care["overstay"], 0.25), 4.0)
        care["taper"] = min(max(care["taper"], -0.03), 0.03)
        return replace(self, worker=worker, **care)


def read_orders(path: str | Path = "", without: str = "") -> Orders:
    """The orders of a file, or of the folder of a training; "" = the shipped ones. An ablation has
    its own where the file holds some for it.
    """
    place = Path(path) if path else SHIPPED
    place = place / FILE if place.is_dir() else place
    held = held_in(place, LEARNER)
    apart = held.get("without", {}).get(without) if without else held
    return _orders(apart or held, place).without(without)


def from_rule(without: str = "") -> Orders:
    """Where a training from nothing begins: as `swift+forecast+relieve@40`."""
    care = {"limit": 0.88, "margin": 0.5, "patience_s": 40.0, "overstay": 1.0, "taper": 0.0}
    return _orders(
        {"care": care, "worker": dict(zip(WEIGHTS, compat.SWIFT.tolist()))}, SHIPPED
    ).without(without)


def _orders(held: dict[str, Any], place: Path) -> Orders:
    given = held.get("care")
    if not isinstance(given, dict) or list(given) != list(BOUNDS):
        raise PolicyError(f"{place}: care is not {', '.join(BOUNDS)} in turn; {remedy(LEARNER)}")
    for name, (low, high) in BOUNDS.items():
        value = given[name]
        if type(value) not in (int, float) or not low <= value <= high:
            raise PolicyError(f"{place}: care.{name}={value!r} is not in {low:g}..{high:g}; "
                              f"{remedy(LEARNER)}")  # fmt: skip
    goals = goals_in(held, str(place), remedy(LEARNER))
    return Orders(**given, worker=weights_in(held, str(place)), goals=goals)


def write_orders(path: str | Path, orders: Orders, **about: Any) -> None:
    """Write orders, with what else is to be known of them, beside what the file holds already: an
    ablation's beside the whole's, which are the shipped ones where there is no file yet.
    """
    place = Path(path)
    held = held_in(place if place.is_file() else SHIPPED, LEARNER)
    if orders.off:
        held["without"] = {**held.get("without", {}), orders.off: {**about, **_told(orders)}}
    else:
        apart = {"without": held["without"]} if place.is_file() and "without" in held else {}
        held = {"made_by": made_by(LEARNER), **about, **_told(orders), **apart}
    write_whole(path, json.dumps(held, indent=1) + "\n")


def write_goals(path: Path, orders: Orders, **about: Any) -> None:
    """Write the goals of orders into the file of the hierarchy, beside all else that it holds."""
    held = (
        held_in(path, LEARNER) if path.is_file() else {"made_by": made_by(LEARNER), **_told(orders)}
    )
    held |= {"goals": told_goals(orders.goals), "goals_made": about}
    write_whole(path, json.dumps(held, indent=1) + "\n")


def _told(orders: Orders) -> dict[str, Any]:
    care = {name: round(float(getattr(orders, name)), 6) for name in BOUNDS}
    worker = {name: round(float(v), 6) for name, v in zip(WEIGHTS, orders.worker[0])}
    return {"care": care, "worker": worker, "goals": told_goals(orders.goals)}
