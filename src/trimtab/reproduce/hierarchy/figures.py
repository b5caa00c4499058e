"""Figures 1 and 3 of hierarchy-hmarl as series and rows; `report` draws them.

Figure 1 is of a prepared trace, where one is given with its load, else of the first run: drawn use
has no bad rows, so that only the averaging shows there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.claims import Claim, listed
from trimtab.reproduce.hierarchy.coupling import (
    MOST_LAG_S,
    PROMPT_S,
    TITLES,
    WINDOW_S,
    Coupling,
)
from trimtab.reproduce.tables import Row, row
from trimtab.traces import is_prepared
from trimtab.traces.prepare.result import (
    Line,
    before_and_after,
    manifest_of,
    roughness,
    span_s,
)

FOLLOWS = (
    "Figure 3 (queuing pressure is promptly transmitted to resource release): what is released "
    "follows the queue within a minute, beyond chance"
)
SMOOTHER = (
    "Figure 1 (the curves are significantly smoother): preparing makes all four smoother than "
    "averaging alone does"
)
BY_CLEANING = "after / averaged"
JUMPS = ("before", "averaged", "after", BY_CLEANING)
DRAWN = (
    ("CPU use (%)", "cpu", 100.0),
    ("Memory use (%)", "mem", 100.0),
    ("Mean wait of batch jobs that start (s)", "wait_s", 1.0),
    ("CPU use: standard deviation between machines (%)", "cpu_sd", 100.0),
)


class Prepared(NamedTuple):
    """Figure 1: series as recorded and as prepared, by title."""

    panels: Mapping[str, Sequence[Line]]
    span_s: tuple[float, float]
    source: str
    cleaned: bool  # False = nothing but averaging happened


class Coupled(NamedTuple):
    """Figure 3: one run, and the correlations of all."""

    run: Mapping[str, Any]
    found: Sequence[tuple[str, str, int, Coupling | None]]


def prepared(data: str, run: Mapping[str, Any]) -> Prepared:
    """Of the folder that `work=` names in the settings of the scene, else of a run."""
    for part in data.split(","):
        name, _, value = part.partition("=")
        folder = Path(value)
        if name.strip() == "work" and value and is_prepared(folder):
            panels = before_and_after(folder)
            if panels:
                return Prepared(panels, span_s(manifest_of(folder)), str(folder), True)
    step_s, first_s = float(run["step_s"]), float(run["first_s"])
    width = round(WINDOW_S / step_s)
    panels = {}
    for title, name, scale in DRAWN:
        values = scale * np.array(run["series"][name], float)
        before = Line("before", first_s, step_s, values)
        panels[title] = [before, Line("after", first_s, WINDOW_S, window_means(values, width))]
    ends = (first_s, first_s + step_s * len(run["series"]["cpu"]))
    return Prepared(panels, ends, "the drawn scene", False)


def window_means(values: Array, width: int) -> Array:
    """Means of what is known in each window; NaN where nothing is."""
    parts = values[: len(values) // width * width].reshape(-1, width)
    known = np.isfinite(parts)
    total = np.where(known, parts, 0.0).sum(1)
    return np.where(known.any(1), total / np.maximum(known.sum(1), 1), np.nan)


def rows_of_prepared(of: Prepared) -> list[Row]:
    """How far neighbouring points of each series are from each other, before and after."""
    found = []
    for title, lines in of.panels.items():
        known = dict.fromkeys(JUMPS, np.nan)
        known["after"] = roughness(lines[-1].value)
        if len(lines) == 2:
            known["before"] = roughness(lines[0].value)
            known["averaged"] = roughness(averaged_alike(*lines))
            known[BY_CLEANING] = known["after"] / (known["averaged"] or np.nan)
        found += [row(title, name, value, arm=of.source) for name, value in known.items()]
    return found


def averaged_alike(before: Line, after: Line) -> Array:
    """What was recorded, dirt and all, averaged over the windows of what was prepared."""
    width = round(after.step_s / before.step_s)
    late = round((after.first_s - before.first_s) / before.step_s)
    values = np.pad(before.value, (max(-late, 0), 0), constant_values=np.nan)[max(late, 0) :]
    return window_means(values, max(width, 1))


def rows_of_coupled(of: Coupled) -> list[Row]:
    """The peak of each pair, its lag, and what chance would give."""
    found = []
    for load, answer, sign, one in of.found:
        told = f"{TITLES[load]} -> {TITLES[answer]}"
        if one is None:
            found += [row(told, name, None) for name in ("peak r", "lag s", "chance")]
            continue
        at = one.lags_s == one.lag_s
        ends = float(one.low[at][0]), float(one.high[at][0])
        found += [
            row(told, "peak r", one.peak, *ends, wanted=sign),
            row(told, "lag s", one.lag_s, one.lag_low_s, one.lag_high_s),
            row(told, "chance", one.chance),
        ]
    return found


def claims_of(first: Prepared, third: Coupled) -> list[Claim]:
    return [_smoother(first), _follows(third)]


def _smoother(of: Prepared) -> Claim:
    if not of.cleaned:
        return Claim(SMOOTHER, None, "drawn use has no bad rows; give --data work=PREPARED")
    known = [one for one in rows_of_prepared(of) if one["metric"] == BY_CLEANING and one["ours"]]
    told = listed([f"{one['policy']}: {one['ours']:.3f} of it" for one in known])
    return Claim(SMOOTHER, all(one["ours"] < 1 for one in known) if known else None, told)


def _follows(of: Coupled) -> Claim:
    for load, answer, _, one in of.found:
        if (load, answer) == ("waiting", "released") and one is not None:
            told = (
                f"r {one.peak:.2f} at {one.lag_s:g} s [{one.lag_low_s:g}, {one.lag_high_s:g}] of "
                f"lags to {MOST_LAG_S:g} s either way; peaks of chance stay below {one.chance:.2f}"
            )
            if abs(one.peak) <= one.chance:
                return Claim(FOLLOWS, None, told)
            return Claim(FOLLOWS, one.peak > 0 and 0 <= one.lag_s <= PROMPT_S, told)
    return Claim(FOLLOWS)
