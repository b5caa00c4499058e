"""How every plot looks, and a figure as SVG text.

Figures are made without pyplot: no window, no global figure. Text stays text in the SVG, so that
the page's fonts apply and labels can be searched; the `id`s begin with the plot's name, so that
many plots fit in one page.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from trimtab.arrays import Array
from trimtab.files import whole
from trimtab.report.colours import EDGE, FAINT, GRID, INK, PALETTE, PAPER

STYLE: dict[Any, object] = {  # rc_context wants keys of a closed list of names
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # for the layout; the page names its own
    "font.size": 9.5,
    "text.color": INK,
    "axes.edgecolor": EDGE,
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
PHONE_IN = 4.5  # of width: letters stay as large as on a desk
ROW_IN = 0.2  # of a legend under the axes
PANEL_LETTERS = len("mean 00.0%")
DPI = 150  # of a picture
LETTER_IN = 0.083  # of the legend, rather too much
MOST_SERIES = len(PALETTE)


def svg(figure: Figure, name: str) -> str:
    """The figure as one <svg> element. The same figure gives the same text."""
    FigureCanvasSVG(figure)
    out = io.StringIO()
    with (
        matplotlib.rc_context({**STYLE, "svg.hashsalt": name}),
        warnings.catch_warnings(action="ignore", category=UserWarning),  # letters its font lacks
    ):
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


def png(figure: Figure, path: Path) -> Path:
    """Write the figure as a picture on white."""
    FigureCanvasAgg(figure)
    with (
        matplotlib.rc_context(STYLE),
        warnings.catch_warnings(action="ignore", category=UserWarning),
        whole(path) as place,
    ):
        figure.savefig(place, dpi=DPI, transparent=False, facecolor=PAPER, format="png")
    return path


class Sheet(NamedTuple):
    """What a plot is drawn on. `mark` ends its name, so that two sheets of it fit in one page."""

    width_in: float
    mark: str

    @property
    def narrow(self) -> bool:
        return self.width_in < WIDTH_IN


DESK, PHONE = Sheet(WIDTH_IN, ""), Sheet(PHONE_IN, "-phone")


def both(draw: Callable[[Sheet], str]) -> tuple[str, str]:
    """A plot for a desk and for a phone; the page shows the one that suits."""
    return draw(DESK), draw(PHONE)


def blank(
    height_in: float,
    rows: int = 1,
    columns: int = 1,
    *,
    on: Sheet = DESK,
    left_in: float = LEFT_IN,
    right_in: float = 0.15,
    foot_in: float = FOOT_IN,
    head_in: float = HEAD_IN,
    **subplots: Any,
) -> tuple[Figure, Array]:
    """A figure and its axes, (rows, columns), inside fixed margins: the axes of a page line up."""
    figure = Figure(figsize=(on.width_in, height_in))
    axes = figure.subplots(rows, columns, squeeze=False, **subplots)
    figure.subplots_adjust(
        left=left_in / on.width_in,
        right=1 - right_in / on.width_in,
        bottom=foot_in / height_in,
        top=1 - head_in / height_in,
    )
    return figure, axes


def with_legend(height_in: float, names: Sequence[str], on: Sheet = DESK) -> tuple[Figure, Axes]:
    """A figure of one plot with room for a legend of these names: beside it, or under it."""
    under_in = 0.08 + ROW_IN * len(names) if on.narrow else 0.0
    figure, axes = blank(
        height_in + under_in,
        on=on,
        foot_in=FOOT_IN + under_in,
        right_in=0.15 if on.narrow else beside_in(names),
    )
    return figure, axes[0, 0]


def legend(ax: Axes, on: Sheet) -> None:
    if not on.narrow:
        ax.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
        return
    handles, names = ax.get_legend_handles_labels()
    ax.figure.legend(handles, names, loc="lower left", borderaxespad=0.2)


def beside_in(names: Sequence[str]) -> float:
    """Room to the right of the axes for a legend of these names."""
    return 0.6 + LETTER_IN * max([PANEL_LETTERS, *(len(short(name)) for name in names)])


def short(name: str, most: int = 30) -> str:
    """A name that fits a legend; a long one keeps its beginning and its end."""
    return name if len(name) <= most else f"{name[: most // 2 - 1]}…{name[-(most // 2) :]}"
