"""The weights of the placement `packer`: the file that ships, and files of yours.

{"made_by": "trimtab packer", "features": [..], "weights": {"cpu": [..], "shared": [..], ..}, ..}
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from trimtab.arrays import Array
from trimtab.errors import PolicyError
from trimtab.files import write_whole
from trimtab.rules.worth import CLASSES, FEATURES

SHIPPED = Path(__file__).with_name("packer.json")
MADE_BY = "trimtab packer"
REMEDY = "train some with `trimtab train packer --out DIR`"


@cache
def shipped() -> Array:
    """(classes, features) what comes with the package."""
    return read_weights(SHIPPED)


def read_weights(path: str | Path) -> Array:
    """(classes, features) of a file; PolicyError says what is wrong with another."""
    try:
        held = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as problem:
        why = problem.strerror if isinstance(problem, OSError) else "not JSON"
        raise PolicyError(f"{path}: {why}; {REMEDY}") from None
    if not isinstance(held, dict) or held.get("made_by") != MADE_BY:
        raise PolicyError(f"{path}: no weights of packer (made_by is not {MADE_BY!r}); {REMEDY}")
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
    held = {"made_by": MADE_BY, **about, "features": list(FEATURES), "weights": rows}
    write_whole(path, json.dumps(held, indent=1) + "\n")
