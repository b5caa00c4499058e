"""The learned estimate: how far services' use of a node rises within so many seconds, from its last
readings and those of its region. One linear model a horizon (hierarchy-hmarl, eq. 2: its load
encoder; docs/policies/forecast.md has the facts). Weights stand in a file, the shipped ones and
yours:

{"made_by": "trimtab forecast", "horizon_s": [..], "weights": [[..], ..], "deviation": [..], ..}

Everything is in shares of a node's capacity. A reading here is one of every 5 s.
"""

from __future__ import annotations

import json
import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from trimtab.arrays import Array
from trimtab.compiled import compiled
from trimtab.errors import PolicyError
from trimtab.files import write_whole
from trimtab.rules.held import held_in, made_by, remedy

OWN_LAGS = (0, 1, 2, 3, 6, 9, 12, 18, 24, 36, 48, 71)  # readings before the last
REGION_LAGS = (0, 3, 6, 12, 18, 24, 36, 48, 71)
SHORT, LONG = 12, 72  # readings of the two windows
AT_OWN = np.array(OWN_LAGS)
AT_REGION = np.array(REGION_LAGS)
FEATURES = len(OWN_LAGS) + 6 + len(REGION_LAGS) + 6
LEAST = 0.05  # of a node: a region below it says nothing of a ratio
HORIZON_S = (10.0, 30.0, 60.0, 120.0, 240.0, 480.0)
MARGIN = 0.5  # deviations of what is left unexplained that an estimate adds
SHIPPED = Path(__file__).with_name("forecast.json")
REMEDY = remedy("forecast")


@compiled
def describe(
    own: Array,
    newest: int,
    count: int,
    region: Array,
    region_newest: int,
    reserved: float,
    cap: float,
    x: Array,
) -> None:
    """Write the features of a node to x (F,): `own` (P,) is a ring of readings in cores, so many of
    which are known, `region` (Q,) one of its region's mean share, -1 where that is unknown.
    """
    ring, shared = own.shape[0], region.shape[0]
    at = 0
    for lag in AT_OWN:
        x[at] = own[(newest - min(lag, count - 1)) % ring] / cap
        at += 1
    for width in (SHORT, LONG):
        seen = min(width, count)
        mean = square = most = 0.0
        i = newest % ring
        for _ in range(seen):
            value = own[i] / cap
            mean += value
            square += value * value
            most = max(most, value)
            i = i - 1 if i > 0 else ring - 1
        mean /= seen
        x[at], x[at + 1] = mean, math.sqrt(max(square / seen - mean * mean, 0.0))
        x[at + 2] = most
        at += 3
    long_mean, first = x[at - 3], at
    for lag in AT_REGION:
        there = region[(region_newest - lag) % shared]
        x[at] = there if there >= 0.0 else region[region_newest % shared]
        at += 1
    now = max(x[first], LEAST)
    # a node that uses more of the region's day rises more with it
    x[at] = (x[first] - x[first + 5]) * long_mean / now
    x[at + 1] = (x[first] - x[at - 1]) * x[0] / now
    x[at + 2] = reserved / cap
    x[at + 3] = reserved / cap * x[first]
    x[at + 4] = reserved / cap - x[0]
    x[at + 5] = 1.0


@compiled
def described(
    used: Array, share: Array, region: Array, reserved: Array, cap: Array, steps: Array, x: Array
) -> None:
    """Features x (S, N, F) of nodes at these steps, of their use (T, N) in cores and that of their
    regions (T, G) as shares: as the engine has them that reads every step. Steps from LONG on.
    """
    for s in range(steps.shape[0]):
        for node in range(used.shape[1]):
            t = steps[s]
            describe(
                used[:, node], t, min(t + 1, LONG), share[:, region[node]], t, reserved[node],
                cap[node], x[s, node],
            )  # fmt: skip


@cache
def shipped() -> Array:
    """(H, F + 1) what comes with the package: weights, and the deviation of what they leave."""
    return read_weights(SHIPPED)


def weights_at(path: str) -> Array:
    """Those of a file, or of the folder that a training wrote; the shipped ones for ""."""
    if not path:
        return shipped()
    place = Path(path)
    return read_weights(place / SHIPPED.name if place.is_dir() else place)


def read_weights(path: str | Path) -> Array:
    """(H, F + 1) of a file; PolicyError says what is wrong with another."""
    held = held_in(path, "forecast")
    if held.get("horizon_s") != list(HORIZON_S):
        raise PolicyError(f"{path}: made for other horizons than this version's; {REMEDY}")
    rows, deviation = held.get("weights"), held.get("deviation")
    try:
        made = np.column_stack((np.array(rows, np.float64), np.array(deviation, np.float64)))
    except (TypeError, ValueError):
        made = np.zeros((0, 0))
    if made.shape != (len(HORIZON_S), FEATURES + 1) or not np.isfinite(made).all():
        raise PolicyError(
            f"{path}: weights and deviation are not {len(HORIZON_S)} rows of {FEATURES} numbers "
            f"and one each; {REMEDY}"
        )
    return np.ascontiguousarray(made)


def write_weights(path: str | Path, weights: Array, **about: Any) -> None:
    """Write weights (H, F + 1), with what else is to be known of them."""
    held = {
        "made_by": made_by("forecast"),
        **about,
        "horizon_s": list(HORIZON_S),
        "deviation": [round(float(v), 7) for v in weights[:, -1]],
        "weights": [[round(float(v), 7) for v in row] for row in weights[:, :-1]],
    }
    write_whole(path, json.dumps(held, indent=1) + "\n")
