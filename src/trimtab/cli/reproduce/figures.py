"""A paper's figures as pictures in the folder of its runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from trimtab.files import write_whole
from trimtab.report.drawing import png, svg
from trimtab.report.pages.coupled import Lags, Track, coupled
from trimtab.report.prepare.prepared_plots import before_and_after_figure
from trimtab.reproduce.hierarchy.coupling import TITLES, Coupling
from trimtab.reproduce.hierarchy.figures import Coupled, Prepared

# what stands beside what, load to the left
ROWS = (("waiting", "released"), ("services", "lent"), ("admitted", "evicted"))
A_MINUTE = ("released", "admitted", "evicted")
SHARES = ("services", "lent")
AVERAGED_S = 30.0  # of a series over time


def write_figures(figures: Mapping[str, Any], folder: Path) -> list[Path]:
    """Each as PNG and as SVG."""
    made = []
    for name, figure in figures.items():
        made.append(png(DRAWN[name](figure), folder / f"{name}.png"))
        made.append(folder / f"{name}.svg")
        write_whole(made[-1], svg(DRAWN[name](figure), name) + "\n")
    return made


def on_page(figures: Mapping[str, Any]) -> dict[str, str]:
    """The same by title, as SVG."""
    return {
        name.replace("-", " ").capitalize(): svg(DRAWN[name](figure), name)
        for name, figure in figures.items()
    }


def figure_1(of: Prepared) -> Figure:
    return before_and_after_figure(of.panels, of.span_s)


def figure_3(of: Coupled) -> Figure:
    step_s = float(of.run["step_s"])
    width = round(AVERAGED_S / step_s)
    rows = [
        (_track(of.run["series"], a, step_s, width), _track(of.run["series"], b, step_s, width))
        for a, b in ROWS
    ]
    return coupled(rows, AVERAGED_S, [_lags(one) for _, _, _, one in of.found if one])


def _track(series: Mapping[str, Any], name: str, step_s: float, width: int) -> Track:
    values = np.array(series[name], float)
    values = values[: len(values) // width * width].reshape(-1, width).mean(1)
    if name in A_MINUTE:
        return Track(TITLES[name], values * 60.0 / step_s)
    if name in SHARES:
        return Track(f"{TITLES[name]} (%)", 100 * values)
    return Track(TITLES[name], values)


def _lags(one: Coupling) -> Lags:
    title = f"{one.load} \N{RIGHTWARDS ARROW} {one.answer}"
    return Lags(title, one.lags_s, one.r, one.low, one.high, one.chance, one.lag_s)


DRAWN: dict[str, Callable[[Any], Figure]] = {"figure-1": figure_1, "figure-3": figure_3}
