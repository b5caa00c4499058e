"""Load and what answers it: series of a run over time, and their correlation by lag."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from trimtab.arrays import Array
from trimtab.report.colours import DRAIN, FAINT, PALETTE
from trimtab.report.drawing import STYLE, blank

LAGS_IN, ROW_IN = 2.4, 1.75
MINUTE_S = 60.0


class Track(NamedTuple):
    """A series of a run."""

    title: str
    value: Array  # (T,)


class Lags(NamedTuple):
    """A correlation by lag."""

    title: str
    lags_s: Array  # (L,)
    r: Array  # (L,)
    low: Array  # (L,)
    high: Array
    chance: float  # what peaks of unrelated series stay below
    peak_s: float


def coupled(rows: Sequence[tuple[Track, Track]], step_s: float, lags: Sequence[Lags]) -> Figure:
    """A row a pair of series, load to the left and the answer to the right; below, lag by lag."""
    columns = max(len(lags), 1)
    height_in = ROW_IN * len(rows) + LAGS_IN + 0.3
    with matplotlib.rc_context(STYLE):
        figure, _ = blank(height_in, head_in=0.3)
        figure.clear()
        grid = figure.add_gridspec(
            len(rows) + 1, columns, height_ratios=[*(ROW_IN for _ in rows), LAGS_IN - 0.4],
            hspace=0.62, wspace=0.12, left=0.075, right=0.925, bottom=0.55 / height_in,
            top=1 - 0.35 / height_in,
        )  # fmt: skip
        for i, pair in enumerate(rows):
            ax = figure.add_subplot(grid[i, :])
            _over_time(ax, pair, step_s)
            if i == len(rows) - 1:
                ax.set_xlabel("minutes since the first arrival")
        first: Axes | None = None
        for i, one in enumerate(lags):
            ax = figure.add_subplot(grid[len(rows), i], sharey=first)
            _by_lag(ax, one)
            if first is None:
                first = ax
                ax.set_ylabel("correlation")
            else:
                ax.tick_params(labelleft=False)
        return figure


def _over_time(ax: Axes, pair: tuple[Track, Track], step_s: float) -> None:
    beside = ax.twinx()
    sides: tuple[Literal["left", "right"], ...] = ("left", "right")
    for axes, track, colour, side in zip((ax, beside), pair, PALETTE, sides):
        minutes = np.arange(len(track.value)) * step_s / MINUTE_S
        axes.plot(minutes, track.value, color=colour, linewidth=1.2)
        axes.set_title(track.title, loc=side, color=colour, fontsize=9.5)
        axes.yaxis.set_major_locator(MaxNLocator(4))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        axes.tick_params(axis="y", labelcolor=colour, labelsize=8)
        axes.set_xlim(0.0, float(minutes[-1]) if len(minutes) else 1.0)
    beside.grid(False)


def _by_lag(ax: Axes, one: Lags) -> None:
    ax.axhspan(-one.chance, one.chance, color=DRAIN, zorder=0)
    ax.fill_between(one.lags_s, one.low, one.high, color=PALETTE[0], alpha=0.25, linewidth=0)
    ax.plot(one.lags_s, one.r, color=PALETTE[0], linewidth=1.4)
    ax.axhline(0.0, color=FAINT, linewidth=0.8)
    at = int(np.argmin(np.abs(one.lags_s - one.peak_s)))
    ax.plot(one.peak_s, one.r[at], "o", color=PALETTE[1], markersize=5)
    ax.set_title(one.title, fontsize=8.5)
    ax.set_xlabel("lag (s)")
    ax.tick_params(labelsize=8)
    ax.xaxis.set_major_locator(MaxNLocator(4))
