"""The load encoder: quantiles of the peak of services' use, by a network (hierarchy-hmarl, eq. 2).

It sees what `rules.forecast` describes of a node, its region and its capacity, and how the region's
use usually goes on at this time of the day. docs/policies/hierarchy.md has the facts. Weights stand
in a file, the shipped ones and yours: encoder.npz with arrays `first`, `middle`, `last`, each with
its biases in the last row, and `made`, a JSON text that says of what.
"""

from __future__ import annotations

import json
import math
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from trimtab.arrays import Array
from trimtab.compiled import compiled, inner
from trimtab.errors import PolicyError
from trimtab.files import whole
from trimtab.rules.forecast import FEATURES as PLAIN
from trimtab.rules.forecast import HORIZON_S, LEAST, LONG, OWN_LAGS, describe
from trimtab.rules.held import made_by, remedy

NOW, BEFORE = 0, 1
BACK_S = 180.0  # the usual change since then
OUTLOOK = 2 + len(HORIZON_S)
FEATURES = PLAIN + 2 * OUTLOOK + 1
POINTS = 8  # instants of a horizon at which the usual use is looked up
REGION = len(OWN_LAGS) + 6  # the column of a region's share now
HIGH_Z = 1.2816  # deviations of a normal distribution to its 90th percentile
SHIPPED = Path(__file__).with_name("encoder.npz")
LAYERS = ("first", "middle", "last")
REMEDY = remedy("encoder")


@inner
def usual_at(usual: Array, step_s: float, time_s: float) -> float:
    """Of a row (K,) that goes round, on straight lines between its samples."""
    at = time_s / step_s
    low = math.floor(at)
    part = at - low
    size = usual.shape[0]
    return usual[low % size] * (1.0 - part) + usual[(low + 1) % size] * part


@compiled
def look_ahead(usual: Array, step_s: float, now_s: float, out: Array) -> None:
    """Write to `out` (OUTLOOK,) what is usual now, its change up to now, and by how much at most it
    rises within each horizon.
    """
    now = usual_at(usual, step_s, now_s)
    out[NOW] = now
    out[BEFORE] = now - usual_at(usual, step_s, now_s - BACK_S)
    for h in range(len(HORIZON_S)):
        most = 0.0
        for i in range(1, POINTS + 1):
            most = max(most, usual_at(usual, step_s, now_s + HORIZON_S[h] * i / POINTS) - now)
        out[2 + h] = most


@inner
def look_on(outlook: Array, known: bool, x: Array) -> None:
    """Write the rest of the features behind those of `forecast`: the outlook of the region, and the
    same by how much of the region's day the node takes.
    """
    ratio = x[0] / max(x[REGION], LEAST)
    for i in range(OUTLOOK):
        x[PLAIN + i] = outlook[i] if known else 0.0
        x[PLAIN + OUTLOOK + i] = outlook[i] * ratio if known else 0.0
    x[FEATURES - 1] = 1.0 if known else 0.0


@inner
def layer(weights: Array, x: Array, y: Array) -> None:
    """y = weights' x with the biases of the last row; row by row, which processors do at once."""
    size = weights.shape[0] - 1
    for j in range(weights.shape[1]):
        y[j] = weights[size, j]
    for i in range(size):
        value = x[i]
        if value != 0.0:
            for j in range(weights.shape[1]):
                y[j] += value * weights[i, j]


@inner
def rectify(y: Array) -> None:
    for j in range(y.shape[0]):
        y[j] = max(y[j], 0.0)


@compiled
def encode(
    first: Array, middle: Array, last: Array, x: Array, a: Array, b: Array, y: Array
) -> None:
    """The network's answer y (2 H,) to features x: median rises by horizon, then deviations.

    `a` and `b` are room for its hidden layers; `b` is the node's embedding afterwards.
    """
    layer(first, x, a)
    rectify(a)
    layer(middle, a, b)
    rectify(b)
    layer(last, b, y)
    horizons = y.shape[0] // 2
    for h in range(horizons, 2 * horizons):
        y[h] = (max(y[h], 0.0) + math.log1p(math.exp(-abs(y[h])))) / HIGH_Z


@compiled
def described(
    used: Array, share: Array, region: Array, reserved: Array, cap: Array, steps: Array,
    usual: Array, usual_step_s: float, step_s: float, x: Array,
) -> None:  # fmt: skip
    """Features x (S, N, F) of nodes at these steps, of their use (T, N) in cores and that of their
    regions (T, G) as shares: as the engine has them that reads every step. Steps from LONG on;
    `usual` (G, K) without columns = unknown.
    """
    regions = share.shape[1]
    outlook = np.zeros((regions, OUTLOOK))
    for s in range(steps.shape[0]):
        t = steps[s]
        if usual.shape[1] > 0:
            for g in range(regions):
                look_ahead(usual[g], usual_step_s, t * step_s, outlook[g])
        for node in range(used.shape[1]):
            describe(
                used[:, node], t, min(t + 1, LONG), share[:, region[node]], t, reserved[node],
                cap[node], x[s, node, :PLAIN],
            )  # fmt: skip
            look_on(outlook[region[node]], usual.shape[1] > 0, x[s, node])


@cache
def shipped() -> tuple[Array, Array, Array]:
    """What comes with the package."""
    return read_weights(SHIPPED)


def weights_at(path: str) -> tuple[Array, Array, Array]:
    """The weights of a file, or of the folder of a training; "" = the shipped ones."""
    if not path:
        return shipped()
    place = Path(path)
    return read_weights(place / SHIPPED.name if place.is_dir() else place)


def read_weights(path: str | Path) -> tuple[Array, Array, Array]:
    """(first, middle, last) of a file; PolicyError says what is wrong with another."""
    try:
        with np.load(path, allow_pickle=False) as held:
            made = json.loads(str(held["made"]))
            first, middle, last = (np.ascontiguousarray(held[name], np.float64) for name in LAYERS)
    except OSError as problem:
        raise PolicyError(f"{path}: {problem.strerror or 'no file'}; {REMEDY}") from None
    except (ValueError, KeyError, zipfile.BadZipFile, EOFError):
        raise PolicyError(f"{path}: no weights of an encoder; {REMEDY}") from None
    if made.get("made_by") != made_by("encoder") or made.get("horizon_s") != list(HORIZON_S):
        raise PolicyError(f"{path}: made for another encoder than this version's; {REMEDY}")
    hidden = first.shape[-1]
    shapes = ((FEATURES + 1, hidden), (hidden + 1, hidden), (hidden + 1, 2 * len(HORIZON_S)))
    for name, layer_, shape in zip(LAYERS, (first, middle, last), shapes):
        if layer_.shape != shape or not np.isfinite(layer_).all():
            raise PolicyError(f"{path}: {name} is not {shape[0]} x {shape[1]} numbers; {REMEDY}")
    return first, middle, last


def write_weights(path: str | Path, layers: tuple[Array, Array, Array], **about: Any) -> None:
    """Write the layers, with what else is to be known of them."""
    made = json.dumps({"made_by": made_by("encoder"), **about, "horizon_s": list(HORIZON_S)})
    small = {name: array.astype(np.float32) for name, array in zip(LAYERS, layers)}
    with whole(Path(path)) as place, place.open("wb") as file:
        np.savez_compressed(file, made=made, **small)  # type: ignore[arg-type]
