"""The fitted numbers of constants.json: one row of laws an architecture, each with its source.

`trimtab plan fit FOLDER` writes the file; sections are replaced one by one.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.files import write_whole
from trimtab.llm.cost.kernels import LAW

PATH = Path(__file__).with_name("constants.json")
ARCHS = (
    "Kepler", "Maxwell", "Pascal", "Volta", "Turing", "Ampere", "Ada", "Hopper", "Blackwell",
    "Vega20", "CDNA1", "CDNA2", "CDNA3", "CDNA4", "RDNA2", "RDNA3", "other",
)  # fmt: skip
OTHER = "other"  # stands for every architecture that the file does not name


class Law(NamedTuple):
    """Kernel and link constants of one architecture."""

    values: Array  # (len(LAW),) in the order of kernels.LAW
    spread: float  # relative error (1 sigma) beyond that of measured ones; 0 = measured
    note: str  # what stands in for the architecture; empty where it was measured
    arch: str  # whose server constants go with it


@cache
def read(path: Path = PATH) -> dict[str, Any]:
    """All sections of the file; treat them as read-only."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def replace_section(name: str, section: dict[str, Any], path: Path = PATH) -> None:
    """Write one section and leave the others as they stand; equal numbers give equal bytes."""
    found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    found[name] = section
    text = json.dumps(found, indent=1, sort_keys=True, allow_nan=False)
    write_whole(path, text + "\n")
    read.cache_clear()


# Laws measured on one machine, by name: `gpu_profile.adopt` adds them behind ARCHS.
ADOPTED: dict[str, Law] = {}


def law_names() -> tuple[str, ...]:
    """Names of all laws in the order of their rows: architectures, then what was adopted."""
    return (*ARCHS, *ADOPTED)


def law_archs() -> tuple[str, ...]:
    """The architecture of each of them."""
    return (*ARCHS, *(law.arch for law in ADOPTED.values()))


def law_of(arch: str, constants: dict[str, Any] | None = None) -> Law:
    """Kernel and link constants of an architecture, or those of the nearest that was measured."""
    if arch in ADOPTED:
        return ADOPTED[arch]
    found = constants if constants is not None else read()
    merged: dict[str, float] = {}
    spread, notes = 0.0, []
    for section in (found["kernels"], found["links"]):
        entry = section["archs"].get(arch, section["archs"][OTHER])
        merged.update(section["laws"][entry["like"]])
        merged.update(entry.get("own", {}))
        spread = max(spread, float(entry["spread"]))
        if entry["note"]:
            notes.append(str(entry["note"]))
    values = np.array([float(merged[name]) for name in LAW])
    return Law(values, spread, "; ".join(dict.fromkeys(notes)), arch)
