"""Plots of a comparison as SVG text. A policy keeps its colour through all plots of a page.

Figures are made without pyplot: no window, no global figure. Text stays text in the SVG, so that
the page's fonts apply and labels can be searched; the `id`s begin with the plot's name, so that
many plots fit in one page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator, PercentFormatter

from trimtab.arrays import Array
from trimtab.report.compare import series
from trimtab.report.compare.series import Steps
from trimtab.report.compare.table import COLUMNS, Row
from trimtab.report.drawing import (
    FAINT,
    FOOT_IN,
    HEAD_IN,
    INK,
    LETTER_IN,
    PALETTE,
    STYLE,
    beside_in,
    blank,
    colours,
    short,
    svg,
)
from trimtab.units import axis_unit, figures, unit

BINS = 360  # of time: about two points a pixel column in print, one on a screen
POINTS = 500  # of a distribution
DURATIONS = (
    *(
        (1e-3, "1 ms"),
        (1e-2, "10 ms"),
        (0.1, "0.1 s"),
        (1.0, "1 s"),
        (10.0, "10 s"),
        (60.0, "1 min"),
    ),
    *((600.0, "10 min"), (3600.0, "1 h"), (36000.0, "10 h"), (86400.0, "1 d"), (864000.0, "10 d")),
    *((8640000.0, "100 d"),),
)


def waits(pooled: Mapping[str, Array], name: str = "waits") -> str:
    """Distribution of wait, a line a policy. Waits too short for the axis count at its left end."""
    above = np.concatenate([values[values > 0] for values in pooled.values()] or [np.zeros(0)])
    least_s = float(np.percentile(above, 2)) if len(above) else 1.0
    low_s = max((s for s, _ in DURATIONS if s <= min(least_s, 1.0)), default=DURATIONS[0][0])
    with matplotlib.rc_context(STYLE):
        figure, axes = blank(3.4, right_in=beside_in(list(pooled)))
        ax = axes[0, 0]
        _distributions(ax, {key: np.maximum(values, low_s) for key, values in pooled.items()})
        high_s = max(float(above.max(initial=low_s)), 10 * low_s)
        ticks = [(s, text) for s, text in DURATIONS if low_s <= s <= high_s]
        ax.set_xlim(low_s, high_s * 1.1)
        ax.set_xticks(
            [s for s, _ in ticks], [("≤ " if s == low_s else "") + text for s, text in ticks]
        )
        ax.set_xlabel("wait from submit to first start (log scale)")
        return svg(figure, name)


def slowdowns(pooled: Mapping[str, Array], name: str = "slowdowns") -> str:
    """Distribution of bounded slow-down, a line a policy."""
    with matplotlib.rc_context(STYLE):
        figure, axes = blank(3.4, right_in=beside_in(list(pooled)))
        ax = axes[0, 0]
        _distributions(ax, pooled)
        high = max((float(values.max(initial=1.0)) for values in pooled.values()), default=1.0)
        ax.set_xlim(1.0, max(high * 1.1, 2.0))
        if high < 20:
            ax.set_xticks([x for x in (1, 1.5, 2, 3, 5, 10, 20) if x <= max(high * 1.1, 2.0)])
        ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,g}"))
        ax.set_xlabel("bounded slow-down: (wait + run) / max(run, 10 s), at least 1 (log scale)")
        return svg(figure, name)


def _distributions(ax: Axes, pooled: Mapping[str, Array]) -> None:
    ax.set_xscale("log")
    for key, colour in colours(list(pooled)).items():
        x, share = series.ecdf(pooled[key])
        if (
            len(x) > POINTS
        ):  # the same shape from points at even steps of the share, and of the values
            even = np.searchsorted(share, np.linspace(0, 1, POINTS // 2))
            wide = np.searchsorted(x, np.geomspace(max(x[0], 1e-9), x[-1], POINTS // 2))
            keep = np.unique(np.clip(np.concatenate((even, wide, [0])), 0, len(x) - 1))
            x, share = x[keep], share[keep]
        start = np.concatenate((x[:1], x)), np.concatenate((np.zeros(len(x[:1])), share))
        ax.step(*start, where="post", color=colour, label=short(key))
    ax.set_ylim(0, 1.01)
    ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    ax.set_ylabel("share of jobs")
    ax.xaxis.set_minor_locator(NullLocator())
    _legend(ax)


def _legend(ax: Axes) -> None:
    ax.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))


def queue(lines: Mapping[str, Steps], span_s: tuple[float, float], name: str = "queue") -> str:
    """Queue length over time, a line a policy: time means of equal bins.

    Where the peaks of policies lie far apart the axis is linear to 1 and logarithmic above.
    """
    edges_s = np.linspace(*span_s, BINS + 1)
    means = {key: series.averaged(of, edges_s) for key, of in lines.items()}
    peaks = [float(values.max(initial=0.0)) for values in means.values()]
    with matplotlib.rc_context(STYLE):
        figure, axes = blank(3.2, right_in=beside_in(list(lines)))
        ax = axes[0, 0]
        far_apart = max(peaks, default=0.0) > 10 * max(min(peaks, default=0.0), 1.0)
        if far_apart:
            ax.set_yscale("symlog", linthresh=1.0, linscale=0.5)
            ax.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:,g}"))
        size_s = _time_axis(ax, span_s)
        for key, colour in colours(list(lines)).items():
            x = (edges_s - span_s[0]) / size_s
            ax.stairs(means[key], x, baseline=None, color=colour, label=short(key), linewidth=1.3)
        ax.set_ylim(0, None)
        ax.set_ylabel("jobs waiting" + (" (log scale above 1)" if far_apart else ""))
        _legend(ax)
        return svg(figure, name)


def panels(
    lines: Mapping[str, Steps],
    span_s: tuple[float, float],
    name: str,
    *,
    label: str,
    share: bool = True,
    size: float = 1.0,
    one_colour: bool = False,
    over: str = "",
    ends_s: Mapping[str, float] | None = None,
) -> str:
    """Series over time, one small panel each: time means of equal bins, and the mean.

    `size` is the unit of the values. A series is shown and averaged until its own end. `over` names
    the axis where it does not count time.
    """
    edges_s = np.linspace(*span_s, BINS + 1)
    paint = colours(list(lines))
    with matplotlib.rc_context(STYLE):
        height_in = 0.66 * len(lines) + FOOT_IN + HEAD_IN
        beside = beside_in(list(lines))
        figure, axes = blank(height_in, len(lines), right_in=beside, sharex=True, sharey=True)
        figure.subplots_adjust(hspace=0.35)
        for ax, (key, of) in zip(axes[:, 0], lines.items()):
            end_s = max(ends_s[key], span_s[0] + 1e-9) if ends_s else span_s[1]
            values = np.where(edges_s[:-1] < end_s, series.averaged(of, edges_s) / size, 0.0)
            mean = float(series.averaged(of, np.array([span_s[0], end_s]))[0]) / size
            colour = PALETTE[0] if one_colour else paint[key]
            size_s = _time_axis(ax, span_s, over)
            x, last = (edges_s - span_s[0]) / size_s, (end_s - span_s[0]) / size_s
            ax.stairs(values, x, fill=True, color=colour, alpha=0.75, linewidth=0)
            ax.plot([0, last], [mean, mean], color=INK, linewidth=0.9, dashes=(4, 3))
            _panel_axis(ax, share)
            _panel_name(ax, short(key), f"mean {mean:.1%}" if share else f"mean {figures(mean)}")
        _time_axis(axes[-1, 0], span_s, over)
        figure.text(
            0.012, 0.5 + 0.5 * (FOOT_IN - HEAD_IN) / height_in, label, rotation=90, va="center"
        )
        return svg(figure, name)


def _panel_axis(ax: Axes, share: bool) -> None:
    ax.set_ylim(0, 1.0 if share else None)
    if share:
        ax.set_yticks([0, 0.5, 1.0])
        ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    else:
        ax.yaxis.set_major_locator(MaxNLocator(2))
    ax.tick_params(axis="y", labelsize=8)
    ax.set_xlabel("")


def _panel_name(ax: Axes, name: str, mean: str) -> None:
    beside: dict[str, Any] = {"transform": ax.transAxes, "va": "center"}
    ax.text(1.012, 0.66, name, fontweight="bold", **beside)
    ax.text(1.012, 0.27, mean, color=FAINT, fontsize=8.5, **beside)


def _time_axis(ax: Axes, span_s: tuple[float, float], over: str = "") -> float:
    length_s = max(span_s[1] - span_s[0], 1e-9)
    size_s, named = (1.0, "") if over else axis_unit(length_s)
    ax.set_xlim(0, length_s / size_s)
    ax.set_xlabel(over or f"time since the first submit ({named})")
    return size_s


def bars(rows: Sequence[Row], name: str = "bars") -> str:
    """Mean metrics a policy with 95 % intervals where there are several seeds."""
    keys = [key for key in COLUMNS if all(key in row.mean for row in rows)]
    keys = [key for key in keys if COLUMNS[key][2] != "count" and key != "wait_p95_s"]
    keys = [key for key in keys if any(row.mean[key] for row in rows)]
    if "utilization" in keys and "gpu_allocation" in keys:
        keys.remove("gpu_allocation")
    paint = list(colours([row.policy for row in rows]).values())
    place = np.arange(len(rows))
    with matplotlib.rc_context(STYLE):
        left_in = 0.2 + LETTER_IN * max(len(short(row.policy)) for row in rows)
        height_in = 0.3 * len(rows) + 1.05
        figure, axes = blank(height_in, 1, len(keys), left_in=left_in, head_in=0.5, sharey=True)
        figure.subplots_adjust(wspace=0.16)
        for ax, key in zip(axes[0], keys):
            title, _, dimension, _ = COLUMNS[key]
            size, named = unit(dimension, [row.mean[key] for row in rows])
            values = np.array([row.mean[key] / size for row in rows])
            halves = np.array([(row.half[key] or 0.0) / size for row in rows])
            ax.barh(place, values, height=0.62, color=paint, alpha=0.85)
            if halves.any():
                low = np.minimum(halves, values)  # none of these can be below 0
                ax.errorbar(
                    values,
                    place,
                    xerr=[low, halves],
                    fmt="none",
                    ecolor=INK,
                    elinewidth=1.0,
                    capsize=2.5,
                )
            top = float((values + halves).max()) or 1.0
            for at, value, half in zip(place, values, halves):
                ax.text(
                    value + half + 0.04 * top, at, figures(float(value)), va="center", fontsize=8
                )
            ax.set_xlim(0, top * 1.38)
            ax.xaxis.set_major_locator(MaxNLocator(3))
            ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,g}"))
            ax.tick_params(axis="x", labelsize=8)
            ax.grid(False, axis="y")
            ax.set_title(title.replace(" bounded", "\nbounded"), fontsize=9, loc="left")
            ax.set_xlabel(named, fontsize=8.5)
        axes[0, 0].set_yticks(place, [short(row.policy) for row in rows])
        axes[0, 0].invert_yaxis()
        return svg(figure, name)
