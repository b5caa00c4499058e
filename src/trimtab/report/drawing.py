"""How every plot looks, and a figure as SVG text.

Figures are made without pyplot: no window, no global figure. Text stays text in the SVG, so that
the page's fonts apply and labels can be searched; the `id`s begin with the plot's name, so that
many plots fit in one page.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import Any

import matplotlib
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from trimtab.arrays import Array

# Okabe and Ito's colours that stand out on white, then Tol's muted: safe for colour-blind eyes.
PALETTE = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00"),
    *("#56B4E9", "#332288", "#882255", "#999933", "#555555"),
)
INK, FAINT, GRID, DOWN = "#24292f", "#6e7781", "#e4e7eb", "#b8bec6"
STYLE: dict[Any, object] = {  # rc_context wants keys of a closed list of names
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # for the layout; the page names its own
    "font.size": 9.5,
    "text.color": INK,
    "axes.edgecolor": "#aab1ba",
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.major.size": 3,
    "ytick.major.size": 0,
    "legend.frameon": False,
    "legend.handlelength": 1.6,
    "lines.linewidth": 1.7,
    "lines.solid_capstyle": "round",
    "text.parse_math": False,  # a name may hold a dollar sign
    "savefig.transparent": True,
}
WIDTH_IN, LEFT_IN, FOOT_IN, HEAD_IN = 10.2, 0.72, 0.52, 0.1
PANEL_LETTERS = len("mean 00.0%")
LETTER_IN = 0.083  # of the legend, rather too much
MOST_SERIES = len(PALETTE)


def svg(figure: Figure, name: str) -> str:
    """The figure as one <svg> element. The same figure gives the same text."""
    FigureCanvasSVG(figure)
    out = io.StringIO()
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": name}):
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    text = (
        text[text.index("<svg") :]
        .replace("xlink:href", "href")
        .replace(' xmlns:xlink="http://www.w3.org/1999/xlink"', "")
    )
    text = re.sub(r"\s*<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\b(id|href)="(#?)', rf'\1="\2{name}-', text)
    return re.sub(r"url\(#", f"url(#{name}-", text).strip()


def blank(
    height_in: float,
    rows: int = 1,
    columns: int = 1,
    *,
    left_in: float = LEFT_IN,
    right_in: float = 0.15,
    foot_in: float = FOOT_IN,
    head_in: float = HEAD_IN,
    **subplots: Any,
) -> tuple[Figure, Array]:
    """A figure and its axes, (rows, columns), inside fixed margins: the axes of a page line up."""
    figure = Figure(figsize=(WIDTH_IN, height_in))
    axes = figure.subplots(rows, columns, squeeze=False, **subplots)
    figure.subplots_adjust(
        left=left_in / WIDTH_IN,
        right=1 - right_in / WIDTH_IN,
        bottom=foot_in / height_in,
        top=1 - head_in / height_in,
    )
    return figure, axes


def beside_in(names: Sequence[str]) -> float:
    """Room to the right of the axes for a legend of these names."""
    return 0.6 + LETTER_IN * max([PANEL_LETTERS, *(len(short(name)) for name in names)])


def short(name: str, most: int = 30) -> str:
    """A name that fits a legend; a long one keeps its beginning and its end."""
    return name if len(name) <= most else f"{name[: most // 2 - 1]}…{name[-(most // 2) :]}"


def colours(names: Sequence[str]) -> dict[str, str]:
    return {name: PALETTE[i % len(PALETTE)] for i, name in enumerate(names)}
