"""Plots of a prepared trace as SVG text: load before and after cleaning, by region, and the work.

Series lie on an even grid of times on which a gap is NaN, so that a line breaks there. A series
with more points than the plot has columns is drawn by the lowest and highest value of each column.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator, PercentFormatter

from trimtab.arrays import Array
from trimtab.report.colours import DOWN, FAINT, PALETTE
from trimtab.report.drawing import STYLE, WIDTH_IN, blank, svg
from trimtab.traces.prepare.result import Line
from trimtab.units import axis_unit

COLUMNS = 400  # of a plot over time
SPLIT_COLOURS = {"train": PALETTE[0], "validation": PALETTE[4], "test": PALETTE[2], "purged": DOWN}
LEFT_IN, RIGHT_IN, ROW_IN = 0.95, 0.75, 0.135  # of the plots of the load, which line up
SHARES = np.concatenate((np.linspace(0, 0.98, 99), np.linspace(0.981, 1.0, 20)))


def binned(values: Array, columns: int = COLUMNS) -> tuple[Array, int]:
    """((..., bins, width), width) of values (..., T), the last bin filled up with NaN."""
    width = max(-(-values.shape[-1] // columns), 1)
    bins = -(-values.shape[-1] // width)
    held = np.full((*values.shape[:-1], bins * width), np.nan)
    held[..., : values.shape[-1]] = values
    return held.reshape(*values.shape[:-1], bins, width), width


def averaged(values: Array, columns: int = COLUMNS) -> tuple[Array, int]:
    """((..., bins), width): means of what is not a gap; NaN where all is."""
    held, width = binned(values, columns)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a bin of gaps has no mean: NaN is meant
        return np.nanmean(held, axis=-1), width


def thinned(of: Line, columns: int = COLUMNS) -> tuple[Array, Array]:
    """(time_s, value), two points a column: its extremes, in the order in which they came.

    A lone point comes twice: a line of no length is drawn as a dot, one point would not be.
    """
    held, width = binned(of.value, columns)
    gap = np.all(np.isnan(held), axis=1)
    low = np.where(np.isnan(held), np.inf, held).argmin(axis=1)
    high = np.where(np.isnan(held), -np.inf, held).argmax(axis=1)
    at = np.sort(np.stack((low, high), axis=1), axis=1)  # (bins, 2)
    value = np.where(gap[:, None], np.nan, np.take_along_axis(held, at, axis=1))
    time_s = of.first_s + (np.arange(len(held))[:, None] * width + at) * of.step_s
    return time_s.ravel(), value.ravel()


def before_and_after(
    panels: Mapping[str, Sequence[Line]], span_s: tuple[float, float], name: str = "before"
) -> str:
    return svg(before_and_after_figure(panels, span_s), name)


def before_and_after_figure(
    panels: Mapping[str, Sequence[Line]], span_s: tuple[float, float]
) -> Figure:
    """Two panels a row, the recorded series in grey beneath the clean one."""
    rows = -(-len(panels) // 2)
    with matplotlib.rc_context(STYLE | {"path.simplify": False}):
        figure, axes = blank(2.25 * rows + 0.35, rows, 2, head_in=0.62, sharex=True)
        figure.subplots_adjust(hspace=0.28, wspace=0.13)
        for ax, (title, lines) in zip(axes.flat, panels.items()):
            ax.set_title(title, fontsize=9.5, loc="left", fontweight="bold")
            for one in lines:
                recorded = one.name == "before"
                style: dict[str, Any] = {"color": DOWN if recorded else PALETTE[0]}
                style["linewidth"] = 0.8 if recorded else 1.2
                _draw(ax, one, span_s, columns=COLUMNS // 2 if recorded else COLUMNS, **style)
            _number_axis(ax, [one.value for one in lines])
        for ax in axes[-1]:
            _time_axis(ax, span_s)
        for label, colour in (("before", DOWN), ("after", PALETTE[0])):
            axes[0, 0].plot([], [], color=colour, label=label, linewidth=2.2)
        figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="upper left", ncols=2,
                      bbox_to_anchor=(0.06, 1.0))  # fmt: skip
        return figure


def stacked(lines: Mapping[str, Line], span_s: tuple[float, float], name: str) -> str:
    """One low panel a series under another, its name above it."""
    height_in = 1.15 * len(lines) + 0.75
    with matplotlib.rc_context(STYLE | {"path.simplify": False}):
        figure, axes = blank(
            height_in, len(lines), left_in=LEFT_IN, right_in=RIGHT_IN, head_in=0.28, sharex=True
        )
        figure.subplots_adjust(hspace=0.62)
        for ax, (title, one) in zip(axes[:, 0], lines.items()):
            ax.set_title(title, fontsize=9.5, loc="left")
            _draw(ax, one, span_s, color=PALETTE[0], linewidth=1.1)
            _number_axis(ax, [one.value], most=5, floor=0.0)
        _time_axis(axes[-1, 0], span_s)
        return svg(figure, name)


def heat(
    values: Array, names: Sequence[str], span_s: tuple[float, float], step_s: float, name: str
) -> str:
    """Shares, (members, columns of `step_s`), from light to dark; a gap is left grey."""
    height_in = max(ROW_IN * len(values), 0.5) + 0.62
    size_s, _ = axis_unit(span_s[1] - span_s[0])
    colours = matplotlib.colormaps["YlGnBu"].with_extremes(bad=DOWN)
    with matplotlib.rc_context(STYLE | {"axes.grid": False}):
        figure, axes = blank(height_in, left_in=LEFT_IN, right_in=RIGHT_IN)
        ax = axes[0, 0]
        end_s = span_s[0] + values.shape[1] * step_s
        extent = (span_s[0] / size_s, end_s / size_s, len(values) - 0.5, -0.5)
        top = float(np.nanmax(values)) if np.isfinite(values).any() else 1.0
        image = ax.imshow(
            np.ma.masked_invalid(values), aspect="auto", interpolation="none", cmap=colours,
            vmin=0.0, vmax=max(top, 0.01), extent=extent,
        )  # fmt: skip
        ax.set_yticks(np.arange(len(values)), names, fontsize=7)
        beside = figure.add_axes((1 - 0.6 / WIDTH_IN, ax.get_position().y0, 0.012,
                                  ax.get_position().height))  # fmt: skip
        bar = figure.colorbar(image, cax=beside, format=PercentFormatter(1.0, decimals=0))
        bar.outline.set_visible(False)
        _time_axis(ax, span_s)
        drawn = svg(figure, name)
    # the name that `svg` sets before every reference would spoil those that hold the image itself
    return drawn.replace(f'href="{name}-data:', 'href="data:')


def strip(segments: Sequence[tuple[str, float, float]], name: str = "segments") -> str:
    """(split, start_s, end_s) in a row over time; white lines part the segments."""
    span_s = min(start for _, start, _ in segments), max(end for _, _, end in segments)
    with matplotlib.rc_context(STYLE | {"axes.grid": False}):
        figure, axes = blank(1.15, head_in=0.36)
        ax = axes[0, 0]
        size_s = _time_axis(ax, span_s)
        edge = 0.6 if len(segments) <= COLUMNS else 0.0
        for split, colour in SPLIT_COLOURS.items():
            own = [(a / size_s, (b - a) / size_s) for kind, a, b in segments if kind == split]
            if own:
                ax.broken_barh(own, (0, 1), color=colour, label=split, ec="white", lw=edge)
        ax.set_ylim(0, 1)
        ax.set_yticks([])
        ax.spines["left"].set_visible(False)
        ax.legend(loc="lower left", bbox_to_anchor=(-0.01, 0.95), ncols=4, borderaxespad=0.2)
        return svg(figure, name)


def distributions(told: Mapping[str, tuple[Array, Mapping[int, float]]], name: str = "work") -> str:
    """Panels of (values, published quantiles by percent): the share of values up to each."""
    with matplotlib.rc_context(STYLE):
        figure, axes = blank(2.6, 1, len(told), head_in=0.62, foot_in=0.3, sharey=True)
        figure.subplots_adjust(wspace=0.09)
        for ax, (title, (values, published)) in zip(axes[0], told.items()):
            ax.set_xscale("log")
            x = np.quantile(values, SHARES, method="inverted_cdf") if len(values) else SHARES * 0
            keep = np.concatenate(([True], np.diff(x) > 0)) | np.concatenate((np.diff(x) > 0, [1]))
            ax.step(np.maximum(x, 0.5)[keep > 0], SHARES[keep > 0], where="post", color=PALETTE[0])
            points = [max(value, 0.5) for value in published.values()]
            ax.plot(points, [p / 100 for p in published], "o", color=PALETTE[1], markersize=4.5)
            ax.set_title(title, fontsize=9.5, loc="left")
            ax.set_ylim(0, 1.03)
            ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
            ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
            ax.xaxis.set_minor_locator(NullLocator())
        axes[0, 0].plot([], [], color=PALETTE[0], label="here")
        axes[0, 0].plot([], [], "o", color=PALETTE[1], markersize=4.5, label="published")
        figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="upper left", ncols=2,
                      bbox_to_anchor=(0.06, 1.0))  # fmt: skip
        return svg(figure, name)


def by_hour(here: Array, published: Array, name: str = "hours") -> str:
    """(24,) rates against their mean, bars, and the published ones as dots."""
    with matplotlib.rc_context(STYLE):
        figure, axes = blank(2.4, head_in=0.4)
        ax = axes[0, 0]
        ax.bar(np.arange(24), here, width=0.7, color=PALETTE[0], alpha=0.8, label="here")
        ax.plot(np.arange(24), published, "o", color=PALETTE[1], markersize=4.5, label="published")
        ax.set_xticks(np.arange(0, 24, 2))
        ax.set_xlim(-0.6, 23.6)
        ax.grid(False, axis="x")
        ax.set_xlabel("hour of the day")
        ax.set_ylabel("times the mean")
        ax.legend(loc="lower left", bbox_to_anchor=(-0.01, 0.98), ncols=2, borderaxespad=0.2)
        return svg(figure, name)


def _draw(
    ax: Axes, of: Line, span_s: tuple[float, float], *, columns: int = COLUMNS, **style: Any
) -> None:
    if not np.isfinite(of.value).any():
        ax.text(0.5, 0.5, "nothing recorded", transform=ax.transAxes, ha="center", color=FAINT)
        return
    time_s, value = thinned(of, columns)
    ax.plot(time_s / axis_unit(span_s[1] - span_s[0])[0], value, **style)


def _number_axis(
    ax: Axes, values: Sequence[Array], *, most: int = 5, floor: float | None = None
) -> None:
    """Limits that hold all values; from `floor` where it is given."""
    known = np.concatenate([value[np.isfinite(value)] for value in values] or [np.zeros(0)])
    if not len(known):
        ax.set_yticks([])
        return
    low, high = float(known.min()) if floor is None else floor, float(known.max())
    room = 0.06 * (high - low) or 0.05 * abs(high) or 1.0
    ax.set_ylim(low - (room if floor is None else 0.0), high + room)
    ax.yaxis.set_major_locator(MaxNLocator(most - 1))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    ax.tick_params(axis="y", labelsize=8)


def _time_axis(ax: Axes, span_s: tuple[float, float]) -> float:
    """Time of the trace itself, so that plots and tables can be read together."""
    size_s, named = axis_unit(span_s[1] - span_s[0])
    ax.set_xlim(span_s[0] / size_s, max(span_s[1], span_s[0] + 1e-9) / size_s)
    ax.set_xlabel(f"time in the trace ({named})")
    return size_s
