"""Eq. 8 of hierarchy-hmarl: whether a region's goal shows in what its workers do."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from trimtab.claims import Claim
from trimtab.policies.hierarchy.alignment import Reading, reading
from trimtab.policies.hierarchy.goals import NAMES
from trimtab.policies.hierarchy.weights import read_orders
from trimtab.reproduce.tables import Row, row

CALL = "trimtab.reproduce.hierarchy.alignment:measured"
READ = "eq. 8: goals can be told from what workers do, beyond the commonest"
SURE = 1.96


def measured(*, trace: str, scenes: int, held: int, machines: int) -> dict[str, Any]:
    """How well goals at random are told on scenes of other days."""
    return reading(trace, read_orders(), scenes=scenes, held=held, machines=machines).told()


def rows_of(found: Mapping[str, Any]) -> list[Row]:
    names = ("accuracy", "chance", "majority", "cross_entropy")
    rows = [row("all goals", name, float(found[name])) for name in names]
    for goal in NAMES:
        told = found["table"][goal]
        right = told[goal] / max(sum(told.values()), 1)
        rows.append(row(goal, "accuracy", right))
    return rows


def claim_of(found: Mapping[str, Any]) -> Claim:
    """Holds where the accuracy is above the commonest goal's share by more than its own error."""
    table = np.array([[found["table"][a][b] for b in NAMES] for a in NAMES])
    right, count = float(found["accuracy"]), max(int(table.sum()), 1)
    error = SURE * math.sqrt(right * (1 - right) / count)
    told = Reading(
        right,
        float(found["majority"]),
        float(found["chance"]),
        float(found["cross_entropy"]),
        table,
    )
    return Claim(READ, right - error > found["majority"], told.line())
