"""Tools of the fits: tables in, a simplex search, and figures of how well a law fits."""

from __future__ import annotations

import csv
import lzma
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize

from trimtab.arrays import Array
from trimtab.errors import PlanError
from trimtab.llm.cost import priors
from trimtab.llm.cost.kernels import LAW

COMMAND = "trimtab plan fit FOLDER"
GPUS = {"a100": "A100-SXM-80GB", "h100": "H100-SXM5"}  # what the tables call them: ours
MEASURED = ("Ampere", "Hopper")  # their architectures
KERNEL_FIELDS = frozenset(LAW[: LAW.index("link_share")])
LINK_FIELDS = frozenset(LAW) - KERNEL_FIELDS
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


class Figure(NamedTuple):
    """How well one law fits one table."""

    source: str
    what: str
    rows: int
    constants: int  # fitted on these rows
    mean_error: float
    p90_error: float
    held_out_error: float  # of rows that the fit did not see; NaN = nothing was held out
    held_out: str  # what was left out


def figure(
    source: str, what: str, wrong: Array, constants: int, unseen: Array | None = None, out: str = ""
) -> Figure:
    """The figure of relative errors `wrong` as fitted and `unseen` with rows left out."""
    mean, p90 = float(wrong.mean()), float(np.quantile(wrong, 0.9))
    other = np.nan if unseen is None else float(unseen.mean())
    return Figure(source, what, len(wrong), constants, mean, p90, other, out)


def table(path: Path) -> list[dict[str, str]]:
    """Rows of a CSV file, compressed or not."""
    if not path.is_file():
        raise PlanError(f"{path} is missing; name the folder that holds the reference tables")
    raw = path.read_bytes()
    text = (lzma.decompress(raw) if path.suffix == ".xz" else raw).decode("utf-8")
    return list(csv.DictReader(text.splitlines()))


def column(rows: Sequence[dict[str, str]], name: str) -> Array:
    """One numeric column."""
    if rows and name not in rows[0]:
        raise PlanError(f"column {name!r} is missing; the table has {', '.join(rows[0])}")
    return np.array([float(row[name]) for row in rows])


def search(loss: Callable[[Array], float], start: Sequence[float]) -> Array:
    """Positive constants with the least loss, by a simplex in their logarithms, started twice."""
    best = np.log(np.asarray(start))
    for _ in range(2):
        # a corner a constant, a fifth away: the default would not move what starts at ln 1 = 0
        corners = np.vstack([best, best + 0.2 * np.eye(len(best))])
        found = minimize(
            lambda logs: loss(np.exp(logs)),
            best,
            method="Nelder-Mead",
            options={
                "initial_simplex": corners,
                "maxfev": 400 * len(best),
                "xatol": 1e-3,
                "fatol": 1e-6,
            },
        )
        best = found.x
    return np.exp(best)


def errors(predicted: Array, measured: Array) -> Array:
    """Relative errors, a value a row."""
    return np.abs(predicted / measured - 1.0)


def log_quantiles(predicted: Array, measured: Array) -> list[float]:
    """Quantiles of ln(predicted / measured), at QUANTILES."""
    return [rounded(q) for q in np.quantile(np.log(predicted / measured), QUANTILES)]


def rounded(value: float) -> float:
    """Four digits, and 0 below a tenth of a picosecond: more would be noise."""
    return float(f"{value:.4g}") if abs(value) > 1e-13 else 0.0


def law_row(known: dict[str, float]) -> Array:
    """A law with 1 where nothing is known."""
    return np.array([known.get(name, 1.0) for name in LAW])


def law_section(
    laws: dict[str, dict[str, float]],
    fields: frozenset[str],
    fitted: Sequence[str],
    spreads: dict[str, list[float]],
    figures: Sequence[Figure],
) -> dict[str, Any]:
    """One section of constants.json: laws, stand-ins, what was fitted on what, and how well."""
    return {
        "archs": priors.arch_table(fields, MEASURED),
        "command": COMMAND,
        "figures": [plain(one) for one in figures],
        "fitted": sorted(fitted),
        "laws": laws,
        "log_error_quantiles": {"at": list(QUANTILES), "by": spreads},
        "priors": sorted(fields - set(fitted)),
        "units": {name: unit_of(name) for name in sorted(fields)},
    }


def unit_of(name: str) -> str:
    """Unit of a constant by its name."""
    if name == "cool":
        return "FLOP/s a W"
    if name.endswith("_s"):
        return "s"
    return "B" if name.endswith("_b") else "count" if name in ("sms", "flash_half") else "ratio"


def plain(one: Figure) -> dict[str, Any]:
    """A figure as JSON: numbers of four digits, no NaN."""
    made: dict[str, Any] = {}
    for name, value in one._asdict().items():
        if isinstance(value, float):
            made[name] = None if np.isnan(value) else rounded(value)
        else:
            made[name] = value
    return made


def lines(figures: Sequence[Figure]) -> list[str]:
    """The figures as a table for the terminal."""
    wide = max(len(one.source) for one in figures)
    made = [
        f"{'source':{wide}} {'what':44} {'rows':>6} {'fitted':>6} {'mean':>7} {'p90':>7}"
        f" {'held out':>9}"
    ]
    for one in figures:
        unseen = "" if np.isnan(one.held_out_error) else f"{one.held_out_error:.1%}"
        made.append(
            f"{one.source:{wide}} {one.what:44} {one.rows:6d} {one.constants:6d}"
            f" {one.mean_error:7.1%} {one.p90_error:7.1%} {unseen:>9} {one.held_out}".rstrip()
        )
    return made
