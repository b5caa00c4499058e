"""Mean metrics a policy, as bars."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from trimtab.arrays import Array
from trimtab.metrics import RECORDED
from trimtab.report.colours import INK
from trimtab.report.compare.plots import paint
from trimtab.report.compare.table import COLUMNS, Row, unit_of
from trimtab.report.drawing import DESK, LETTER_IN, STYLE, Sheet, blank, short, svg
from trimtab.units import figures, plain

LARGE = 20.0  # a ratio between bars from which they are drawn on a logarithmic scale
ROOM = 0.38  # of the axis, beyond the longest bar, for its number


def bars(rows: Sequence[Row], every: Sequence[Row], on: Sheet = DESK, name: str = "bars") -> str:
    """Mean metrics a policy with 95 % intervals where there are several seeds.

    `every` holds all rows of the page, whose units are these. Side by side on a desk, one under
    another on a phone.
    """
    keys = drawn_metrics(rows)
    with matplotlib.rc_context(STYLE):
        left_in = 0.2 + LETTER_IN * max(len(short(row.policy, 22)) for row in rows)
        if on.narrow:
            each_in = 0.24 * len(rows) + 0.72
            figure, axes = blank(each_in * len(keys), len(keys), on=on, left_in=left_in,
                                 foot_in=0.42, head_in=0.26, sharey=True)  # fmt: skip
            figure.subplots_adjust(hspace=0.72 / (0.24 * len(rows)))
        else:
            figure, axes = blank(0.3 * len(rows) + 1.05, 1, len(keys), left_in=left_in,
                                 head_in=0.5, sharey=True)  # fmt: skip
            figure.subplots_adjust(wspace=0.16)
        for ax, key in zip(axes.flat, keys):
            _metric(ax, rows, key, unit_of(key, every), on)
        place = np.arange(len(rows))
        for ax in axes[:, 0]:
            ax.set_yticks(place, [short(row.policy, 22) for row in rows])
        axes[0, 0].invert_yaxis()
        return svg(figure, name + on.mark)


def drawn_metrics(rows: Sequence[Row]) -> list[str]:
    """The metrics that are worth a plot: all but counts, and those that are zero for all."""
    told = [row for row in rows if row.policy != RECORDED] or rows
    keys = [key for key in COLUMNS if all(key in row.mean for row in told)]
    keys = [key for key in keys if COLUMNS[key][2] != "count" and key != "wait_p95_s"]
    keys = [key for key in keys if any(row.mean.get(key) for row in rows)]
    if "utilization" in keys and "gpu_allocation" in keys:
        keys.remove("gpu_allocation")
    return keys


def _metric(ax: Axes, rows: Sequence[Row], key: str, unit: tuple[float, str], on: Sheet) -> None:
    """One metric's bars, with their numbers behind them."""
    size, named = unit
    has = [i for i, row in enumerate(rows) if key in row.mean]
    place = np.array(has, float)
    values = np.array([rows[i].mean[key] for i in has]) / size
    halves = np.array([rows[i].half[key] or 0.0 for i in has]) / size
    left, far, logarithmic = _scale(ax, values, halves)
    tint = paint([row.policy for row in rows])
    for i, at, value in zip(has, place, values):
        hollow = rows[i].policy == RECORDED
        fill: dict[str, Any] = {"facecolor": "none", "edgecolor": INK} if hollow else {
            "color": tint[rows[i].policy], "alpha": 0.85}  # fmt: skip
        ax.barh(at, max(value - left, 0.0), height=0.62, left=left, **fill)
    if halves.any():
        low = np.minimum(halves, np.maximum(values - left, 0.0))  # none of these can be below 0
        known = halves > 0
        ax.errorbar(values[known], place[known], xerr=[low[known], halves[known]], fmt="none",
                    ecolor=INK, elinewidth=1.0, capsize=2.5)  # fmt: skip
    for at, value, end in zip(place, values, np.maximum(values + halves, left)):
        ax.text(far(end), at, figures(float(value)), va="center", fontsize=8)
    end = 0.95 * ax.get_xlim()[1]  # a number at the very end would touch the next plot's first
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: plain(x) if x < end else ""))
    ax.tick_params(axis="x", labelsize=8)
    ax.grid(False, axis="y")
    title = COLUMNS[key][0]
    ax.set_title(title if on.narrow else title.replace(" bounded", "\nbounded"), fontsize=9,
                 loc="left")  # fmt: skip
    ax.set_xlabel(", ".join(filter(None, (named, "log scale" if logarithmic else ""))),
                  fontsize=8.5)  # fmt: skip


def _scale(ax: Axes, values: Array, halves: Array) -> tuple[float, Any, bool]:
    """(left end of the bars, where a number stands behind a bar's end, whether it is a log)."""
    top, above = float((values + halves).max(initial=0.0)) or 1.0, values[values > 0]
    if len(above) < 2 or above.max() <= LARGE * above.min():
        ax.set_xlim(0, top * (1 + ROOM))
        ax.xaxis.set_major_locator(MaxNLocator(3))
        return 0.0, lambda end: end + 0.04 * top, False
    left = 10.0 ** math.floor(math.log10(above.min() / 2))  # the least has a bar too
    decades = math.log10(top / left)
    ax.set_xscale("log")
    ax.set_xlim(left, left * 10 ** (decades * (1 + ROOM)))
    ax.xaxis.set_major_locator(LogLocator(10, numticks=4))
    ax.xaxis.set_minor_locator(NullLocator())
    return left, lambda end: end * 10 ** (0.04 * decades), True
