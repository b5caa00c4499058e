"""Checkpoints of trainings that need no torch: named arrays, and the settings they belong to."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from trimtab.errors import PolicyError
from trimtab.files import whole

CHECKPOINT = "checkpoint.npz"


def write_kept(
    out: Path, settings: Mapping[str, Any], held: Mapping[str, Any], name: str = CHECKPOINT
) -> None:
    """Write the checkpoint of these settings into `out`, whole or not at all; makes the folder."""
    out.mkdir(parents=True, exist_ok=True)
    state: dict[str, Any] = {"made": json.dumps(settings), **held}
    with whole(out / name) as place, place.open("wb") as file:
        np.savez(file, **state)


def read_kept(
    out: Path,
    settings: Mapping[str, Any],
    free: Collection[str],
    names: Collection[str],
    name: str = CHECKPOINT,
) -> dict[str, Any] | None:
    """What is held under these names in the checkpoint of `out`, or None where there is none.

    All settings but the `free` ones must be those that it was made with.
    """
    path = out / name
    if not path.is_file():
        return None
    try:
        with np.load(path, allow_pickle=False) as kept:
            before = json.loads(str(kept["made"]))
            held = {one: np.array(kept[one]) for one in names}
    except Exception as problem:  # numpy's, zip's and JSON's own kinds
        raise PolicyError(
            f"{path}: not a checkpoint of ours ({type(problem).__name__}); give another --out"
        ) from problem
    for one, value in settings.items():
        if one not in free and before.get(one) != value:
            raise PolicyError(
                f"{path}: made with {one}={before.get(one)!r}, and now {one}={value!r}; "
                "give another --out, or the same settings to go on"
            )
    return held
