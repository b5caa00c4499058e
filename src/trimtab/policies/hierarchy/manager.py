"""The upper level: a graph network over machines and regions that chooses a goal for each region.

z = readout(GNN(graph)) (hierarchy-hmarl, eq. 3 and 4): machines are encoded one by one, pooled by
region, regions tell each other over their edges, and the mean over regions is the readout. Of each
region and goal it says what following the goal for a while is worth, as a change of the log of the
cost; the goal that promises most is chosen, where that is more than a margin, else none.
"""

from __future__ import annotations

import json
import math
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trimtab.arrays import Array
from trimtab.errors import PolicyError
from trimtab.files import whole
from trimtab.policies.hierarchy.goals import GOALS, KEEP, NAMES
from trimtab.policies.hierarchy.sight import MACHINE, REGION, Sight
from trimtab.rules.held import made_by, remedy

FILE = "manager.npz"
SHIPPED = Path(__file__).with_name(FILE)
EVERY_S = 60.0  # between two looks, where a manager says nothing else
LEAST_S = 1.0
LAYERS = ("machine", "region", "neighbour", "cluster", "head")


@dataclass(frozen=True)
class Manager:
    """Weights, each with its biases in the last row, and the margin that a goal must promise."""

    machine: Array  # (MACHINE + 1, H)
    region: Array  # (2 H + REGION + 1, H)
    neighbour: Array  # (H, H)
    cluster: Array  # (H, H)
    head: Array  # (H + 1, GOALS)
    margin: float
    made: dict[str, Any]

    @property
    def every_s(self) -> float:
        """Between two looks."""
        return float(self.made.get("every_s", EVERY_S))

    def worth(self, sight: Sight) -> Array:
        """(G, GOALS) what each goal is worth there, below 0 is better."""
        seen = np.maximum(sight.machine @ self.machine[:-1] + self.machine[-1], 0.0)  # (N, H)
        regions = len(sight.region)
        count = np.maximum(np.bincount(sight.of, minlength=regions), 1)[:, None]
        mean, most = np.zeros((regions, seen.shape[1])), np.zeros((regions, seen.shape[1]))
        np.add.at(mean, sight.of, seen)
        np.maximum.at(most, sight.of, seen)
        all_of = np.concatenate((mean / count, most, sight.region), axis=1)
        first = np.maximum(all_of @ self.region[:-1] + self.region[-1], 0.0)  # (G, H)
        readout = first.mean(0)
        told = first + sight.link @ first @ self.neighbour + readout @ self.cluster
        said = np.maximum(told, 0.0) @ self.head[:-1] + self.head[-1]
        said[:, KEEP] = 0.0
        return np.asarray(said)

    def goals(self, sight: Sight) -> tuple[Array, Array]:
        """(G,) the goal of each region, and (G, GOALS) what each was said to be worth."""
        said = self.worth(sight)
        best = said.argmin(1)
        sure = said[np.arange(len(said)), best] < -self.margin
        return np.where(sure, best, KEEP), said


def read_manager(path: str | Path = "") -> Manager | None:
    """The manager of a file or folder, None where a folder has none; "" = the shipped one."""
    place = Path(path) if path else SHIPPED
    place = place / FILE if place.is_dir() else place
    if not place.is_file() and path:
        return None
    try:
        with np.load(place, allow_pickle=False) as held:
            made = json.loads(str(held["made"]))
            layers = {name: np.ascontiguousarray(held[name], np.float64) for name in LAYERS}
            margin = float(held["margin"])
    except (OSError, ValueError, KeyError, zipfile.BadZipFile, EOFError):
        raise PolicyError(f"{place}: no weights of a manager; {remedy('hierarchy')}") from None
    hidden = layers["machine"].shape[-1]
    shapes = {
        "machine": (len(MACHINE) + 1, hidden), "region": (2 * hidden + len(REGION) + 1, hidden),
        "neighbour": (hidden, hidden), "cluster": (hidden, hidden),
        "head": (hidden + 1, len(GOALS)),
    }  # fmt: skip
    wrong = [name for name in LAYERS if layers[name].shape != shapes[name]]
    if made.get("made_by") != made_by("manager") or made.get("goals") != list(NAMES) or wrong:
        raise PolicyError(
            f"{place}: made for another manager than this version's; {remedy('hierarchy')}"
        )
    if why := check_every(made.get("every_s", EVERY_S)):
        raise PolicyError(f"{place}: made.{why}; {remedy('manager')}")
    return Manager(**layers, margin=margin, made=made)


def check_every(every_s: Any) -> str:
    """Why this is no time between two looks, "" = it is."""
    if type(every_s) in (int, float) and math.isfinite(every_s) and every_s >= LEAST_S:
        return ""
    return f"every_s={every_s!r}; give {LEAST_S:g} seconds or more"


def write_manager(path: str | Path, manager: Manager) -> None:
    made = json.dumps({**manager.made, "made_by": made_by("manager"), "goals": list(NAMES)})
    layers = {name: getattr(manager, name).astype(np.float32) for name in LAYERS}
    with whole(Path(path)) as place, place.open("wb") as file:
        np.savez_compressed(file, made=made, margin=manager.margin, **layers)
