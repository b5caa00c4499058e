"""What a node is worth to a pod: a weighted sum of what the placement would leave (policy packer).

One table of weights, a row a class of pod, a column a feature; compiled, one copy for the packing
of lists and for the engine. All features are shares or counts of devices: clusters of any size and
make are scored alike. `docs/policies/packer.md` has the facts. Weights stand in a file, the shipped
ones and yours:

{"made_by": "trimtab packer", "features": [..], "weights": {"cpu": [..], "shared": [..], ..}, ..}
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from trimtab.arrays import Array
from trimtab.compiled import compiled
from trimtab.errors import PolicyError
from trimtab.files import write_whole
from trimtab.rules.held import held_in, made_by, remedy

CLASSES = {
    "cpu": "wants no GPU",
    "shared": "wants part of one GPU",
    "one": "wants one whole GPU",
    "several": "wants two GPUs or more",
}
FEATURES = {
    "relief": "devices' worth of fragmentation that goes (FGD's gradient); 0 without GPUs",
    "gpu_left": "devices' worth of GPU left free, over 8",
    "gpu_share_left": "the same as a share of the node's",
    "left": "share left free of the other resources, their mean",
    "tightest": "the same of the one that is most used",
    "gap": "how far `tightest` is from `gpu_share_left`",
    "device_left": "share left free on the device that a part is taken of",
    "opened": "1 = that device was whole",
    "whole": "whole devices left, over 8",
    "devices": "devices of the node, over 8",
    "spent": "1 = no GPU is left free",
    "fresh": "1 = the node was empty",
    "wanted": "ten times the share of the expected pods that accept some models alone, this one "
    "among them; 0 for a pod that is one of those",
}
CPU, SHARED, ONE, SEVERAL = range(4)
EIGHT = 8.0  # devices of a usual large node
TEN = 10.0  # brings a share of a tenth, usual for a model that is wanted, to 1
SHIPPED = Path(__file__).with_name("packer.json")
REMEDY = remedy("packer")


@compiled
def class_of(gpus: int, share: float) -> int:
    """The row of weights for a pod that takes `share` of each of so many devices."""
    if gpus == 0:
        return CPU
    if gpus > 1:
        return SEVERAL
    return SHARED if share < 1.0 else ONE


@compiled
def worth(
    weights: Array,
    row: int,
    relief: float,
    gpu_left: float,
    whole: int,
    devices: int,
    left: float,
    tightest: float,
    device_left: float,
    opened: bool,
    fresh: bool,
    wanted: float,
) -> float:
    """The weighted sum of the features of one placement; larger is better."""
    at = weights[row]
    share = gpu_left / devices if devices > 0 else 0.0
    total = at[0] * relief + at[1] * gpu_left / EIGHT + at[2] * share
    total += at[3] * left + at[4] * tightest + at[5] * abs(tightest - share)
    total += at[8] * whole / EIGHT + at[9] * devices / EIGHT + at[12] * TEN * wanted
    if row == SHARED:
        total += at[6] * device_left
        if opened:
            total += at[7]
    if gpu_left <= 0.0:
        total += at[10]
    if fresh:
        total += at[11]
    return total


@cache
def shipped() -> Array:
    """(classes, features) what comes with the package."""
    return read_weights(SHIPPED)


def read_weights(path: str | Path) -> Array:
    """(classes, features) of a file; PolicyError says what is wrong with another."""
    held = held_in(path, "packer")
    if held.get("features") != list(FEATURES):
        raise PolicyError(f"{path}: made for other features than this version's; {REMEDY}")
    rows = held.get("weights")
    if not isinstance(rows, dict) or list(rows) != list(CLASSES):
        raise PolicyError(f"{path}: weights are not of {', '.join(CLASSES)} in turn; {REMEDY}")
    for name, row in rows.items():
        if not isinstance(row, list) or len(row) != len(FEATURES):
            raise PolicyError(
                f"{path}: weights.{name} are not {len(FEATURES)} numbers, one a feature; {REMEDY}"
            )
        for feature, value in zip(FEATURES, row):
            if type(value) not in (int, float) or not abs(value) < 1e9:
                raise PolicyError(
                    f"{path}: weights.{name}.{feature}={value!r} is no weight; {REMEDY}"
                )
    return np.array(list(rows.values()), np.float64)


def write_weights(path: str | Path, weights: Array, **about: Any) -> None:
    """Write the weights, with what else is to be known of them."""
    rows = {name: [round(float(v), 6) for v in row] for name, row in zip(CLASSES, weights)}
    held = {"made_by": made_by("packer"), **about, "features": list(FEATURES), "weights": rows}
    write_whole(path, json.dumps(held, indent=1) + "\n")
