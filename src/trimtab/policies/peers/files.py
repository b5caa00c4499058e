"""Files of peers' weights: one .npz each, read with NumPy alone."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.errors import PolicyError
from trimtab.files import whole
from trimtab.policies.peers.kinds import BETTER, peer_of
from trimtab.rules.names import ORDERS, PLACES


class Weights(NamedTuple):
    """What training leaves."""

    theta: Array
    order: str
    place: str
    facts: dict[str, Any]


def shipped(name: str) -> Path:
    return Path(__file__).with_name(f"{BETTER.get(name, name)}.npz")


def write_weights(path: Path, theta: Array, order: str, place: str, facts: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole(path) as spot, spot.open("wb") as file:
        np.savez_compressed(
            file, theta=np.asarray(theta, np.float32), way=np.array([order, place]),
            facts=np.array(json.dumps(facts)),
        )  # fmt: skip


def read_weights(path: Path, name: str) -> Weights:
    """PolicyError where the file is none of this peer."""
    return _read(path, name, path.stat().st_mtime_ns if path.is_file() else 0)


@cache
def _read(path: Path, name: str, _: int) -> Weights:
    peer, remedy = peer_of(name), f"train one with `trimtab train {name} --out DIR`"
    if not path.is_file():
        raise PolicyError(f"{path}: no such file; {remedy}")
    try:
        with np.load(path, allow_pickle=False) as kept:
            theta, (order, place) = np.array(kept["theta"], np.float64), kept["way"].tolist()
            facts = json.loads(str(kept["facts"]))
    except Exception as problem:  # numpy's, zip's and JSON's own kinds
        raise PolicyError(
            f"{path}: not a file of weights ({type(problem).__name__}); {remedy}"
        ) from problem
    if theta.shape != (peer.weights,) or order not in ORDERS or place not in PLACES:
        raise PolicyError(f"{path}: not the weights of {name}; {remedy}")
    if not np.isfinite(theta).all():
        raise PolicyError(f"{path}: weights that are not finite; {remedy}")
    return Weights(theta, order, place, facts)
