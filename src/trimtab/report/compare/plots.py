"""Plots of a comparison as SVG text. A policy keeps its colour through all plots of a page.

What a log recorded is no policy: it is drawn in ink, dashed or hollow, and takes no colour.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator, PercentFormatter

from trimtab.arrays import Array
from trimtab.metrics import RECORDED
from trimtab.report.colours import DRAIN, FAINT, INK, PALETTE, colours
from trimtab.report.compare import series
from trimtab.report.compare.series import Span, Steps
from trimtab.report.drawing import (
    DESK,
    FOOT_IN,
    HEAD_IN,
    MOST_SERIES,
    STYLE,
    Sheet,
    beside_in,
    blank,
    legend,
    short,
    svg,
    with_legend,
)
from trimtab.units import figures, plain

BINS = {False: 360, True: 150}  # of time, by whether the sheet is narrow: a point a pixel or two
POINTS = 500  # of a distribution
DECADES = 7  # at most, of an axis of waits


def drawn(names: Sequence[str]) -> list[str]:
    """The first names for which there are colours, and what was recorded."""
    policies = [name for name in names if name != RECORDED][:MOST_SERIES]
    return [name for name in names if name in policies or name == RECORDED]


def paint(names: Sequence[str]) -> dict[str, str]:
    """A colour a name, ink for what was recorded."""
    own = colours([name for name in names if name != RECORDED])
    return {name: own.get(name, INK) for name in names}


def _stroke(name: str) -> dict[str, Any]:
    return {"linestyle": (0, (4, 2))} if name == RECORDED else {}


def waits(
    pooled: Mapping[str, Array], unit: tuple[float, str], on: Sheet = DESK, name: str = "waits"
) -> str:
    """Distribution of wait, a line a policy. Waits too short for the axis count at its left end."""
    size_s, named = unit
    scaled = {key: values / size_s for key, values in pooled.items()}
    above = np.concatenate([values[values > 0] for values in scaled.values()])
    high = float(above.max())
    least = max(float(np.percentile(above, 2)), high / 10**DECADES)
    low = min(10.0 ** math.floor(math.log10(least)), high / 10)
    with matplotlib.rc_context(STYLE):
        figure, ax = with_legend(3.4, list(pooled), on)
        _distributions(ax, {key: np.maximum(values, low) for key, values in scaled.items()})
        ax.set_xlim(low, high * 1.1)
        ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: _from(x, low)))
        ax.set_xlabel(f"wait from submit to first start ({named}, log scale)")
        legend(ax, on)
        return svg(figure, name + on.mark)


def _from(x: float, low: float) -> str:
    return ("≤ " if math.isclose(x, low) else "") + plain(x)


def slowdowns(pooled: Mapping[str, Array], on: Sheet = DESK, name: str = "slowdowns") -> str:
    """Distribution of bounded slow-down, a line a policy."""
    with matplotlib.rc_context(STYLE):
        figure, ax = with_legend(3.4, list(pooled), on)
        _distributions(ax, pooled)
        high = max(float(values.max(initial=1.0)) for values in pooled.values())
        ax.set_xlim(1.0, max(high * 1.1, 2.0))
        if high < 20:
            ax.set_xticks([x for x in (1, 1.5, 2, 3, 5, 10, 20) if x <= max(high * 1.1, 2.0)])
        ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: plain(x)))
        ax.set_xlabel(
            "bounded slow-down (log scale)"
            if on.narrow
            else "bounded slow-down: (wait + run) / max(run, 10 s), at least 1 (log scale)"
        )
        legend(ax, on)
        return svg(figure, name + on.mark)


def _distributions(ax: Axes, pooled: Mapping[str, Array]) -> None:
    ax.set_xscale("log")
    least = 1.0  # share at the left end
    for key, colour in paint(list(pooled)).items():
        x, share = series.ecdf(pooled[key])
        least = min(least, float(share[0]) if len(share) else 1.0)
        if (
            len(x) > POINTS
        ):  # the same shape from points at even steps of the share, and of the values
            even = np.searchsorted(share, np.linspace(0, 1, POINTS // 2))
            wide = np.searchsorted(x, np.geomspace(max(x[0], 1e-9), x[-1], POINTS // 2))
            keep = np.unique(np.clip(np.concatenate((even, wide, [0])), 0, len(x) - 1))
            x, share = x[keep], share[keep]
        start = np.concatenate((x[:1], x)), np.concatenate((np.zeros(len(x[:1])), share))
        ax.step(*start, where="post", color=colour, label=short(key), **_stroke(key))
    # where most do not wait, the differences are all in the upper part
    ax.set_ylim(max(math.floor(10 * least - 1) / 10, 0.0) if least > 0.5 else 0.0, 1.01)
    ax.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    ax.set_ylabel("share of jobs")
    ax.xaxis.set_minor_locator(NullLocator())


def queue(lines: Mapping[str, Steps], span: Span, on: Sheet = DESK, name: str = "queue") -> str:
    """Queue length over time, a line a policy: time means of equal bins.

    Where the peaks of policies lie far apart the axis is linear to 1 and logarithmic above.
    """
    edges_s = np.linspace(span.first_s, span.last_s, BINS[on.narrow] + 1)
    means = {key: series.averaged(of, edges_s) for key, of in lines.items()}
    peaks = [float(values.max(initial=0.0)) for values in means.values()]
    with matplotlib.rc_context(STYLE):
        figure, ax = with_legend(3.2, list(lines), on)
        far_apart = max(peaks, default=0.0) > 10 * max(min(peaks, default=0.0), 1.0)
        if far_apart:
            ax.set_yscale("symlog", linthresh=1.0, linscale=0.5)
            ax.yaxis.set_major_formatter(FuncFormatter(lambda y, _: plain(y)))
        size_s = _time_axis(ax, span)
        for key, colour in paint(list(lines)).items():
            x = (edges_s - span.first_s) / size_s
            ax.stairs(means[key], x, baseline=None, color=colour, label=short(key), linewidth=1.3,
                      **_stroke(key))  # fmt: skip
        ax.set_ylim(0, None)
        _drain(ax, span, named=True)
        ax.set_ylabel("jobs waiting" + (" (log scale above 1)" if far_apart else ""))
        legend(ax, on)
        return svg(figure, name + on.mark)


def panels(
    lines: Mapping[str, Steps],
    span: Span,
    name: str,
    *,
    label: str,
    share: bool = True,
    size: float = 1.0,
    one_colour: bool = False,
    over: str = "",
    ends_s: Mapping[str, float] | None = None,
    on: Sheet = DESK,
) -> str:
    """Series over time, one small panel each: time means of equal bins, and the mean.

    `size` is the unit of the values. A series is shown until its own end, and averaged while jobs
    arrive. `over` names the axis where it does not count time.
    """
    edges_s = np.linspace(span.first_s, span.last_s, BINS[on.narrow] + 1)
    tint = dict.fromkeys(lines, PALETTE[0]) if one_colour else paint(list(lines))
    each_in = 0.92 if on.narrow else 0.66
    with matplotlib.rc_context(STYLE):
        head_in = 0.36 if on.narrow else 0.26 if span.drains else HEAD_IN
        height_in = each_in * len(lines) + FOOT_IN + head_in
        right_in = 0.15 if on.narrow else beside_in(list(lines))
        figure, axes = blank(height_in, len(lines), on=on, right_in=right_in, head_in=head_in,
                             sharex=True, sharey=True)  # fmt: skip
        figure.subplots_adjust(hspace=0.75 if on.narrow else 0.35)
        for ax, (key, of) in zip(axes[:, 0], lines.items()):
            end_s = max(ends_s[key], span.first_s + 1e-9) if ends_s else span.last_s
            until_s = min(end_s, span.arrived_s) if span.arrived_s > span.first_s else end_s
            values = np.where(edges_s[:-1] < end_s, series.averaged(of, edges_s) / size, 0.0)
            mean = float(series.averaged(of, np.array([span.first_s, until_s]))[0]) / size
            size_s = _time_axis(ax, span, over)
            x, last = (edges_s - span.first_s) / size_s, (until_s - span.first_s) / size_s
            ax.stairs(values, x, fill=True, color=tint[key], alpha=0.75, linewidth=0)
            ax.plot([0, last], [mean, mean], color=INK, linewidth=0.9, dashes=(4, 3))
            _panel_axis(ax, share)
            _drain(ax, span, named=ax is axes[0, 0] and not on.narrow)
            _panel_name(ax, key, f"mean {mean:.1%}" if share else f"mean {figures(mean)}", on)
        _time_axis(axes[-1, 0], span, over)
        middle = 0.5 + 0.5 * (FOOT_IN - HEAD_IN) / height_in
        figure.text(0.012, middle, label, rotation=90, va="center")
        return svg(figure, name + on.mark)


def _panel_axis(ax: Axes, share: bool) -> None:
    ax.set_ylim(0, 1.0 if share else None)
    if share:
        ax.set_yticks([0, 0.5, 1.0])
        ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    else:
        ax.yaxis.set_major_locator(MaxNLocator(2))
    ax.tick_params(axis="y", labelsize=8)
    ax.set_xlabel("")


def _panel_name(ax: Axes, name: str, mean: str, on: Sheet) -> None:
    if on.narrow:
        ax.set_title(short(name), fontsize=9, fontweight="bold", loc="left", pad=3)
        ax.set_title(mean, fontsize=8.5, color=FAINT, loc="right", pad=3)
        return
    beside: dict[str, Any] = {"transform": ax.transAxes, "va": "center"}
    ax.text(1.012, 0.66, short(name), fontweight="bold", **beside)
    ax.text(1.012, 0.27, mean, color=FAINT, fontsize=8.5, **beside)


def _drain(ax: Axes, span: Span, named: bool) -> None:
    """Shade what comes after the last arrival."""
    if not span.drains:
        return
    size_s = span.unit[0]
    left, right = ((s - span.first_s) / size_s for s in (span.arrived_s, span.last_s))
    ax.axvspan(left, right, facecolor=DRAIN, linewidth=0, zorder=-2)
    ax.axvline(left, color=FAINT, linewidth=0.8, linestyle=":", zorder=1.5)
    if named:
        beside: dict[str, Any] = {"transform": ax.get_xaxis_transform(), "va": "bottom"}
        late = span.arrived_s - span.first_s > 0.75 * (span.last_s - span.first_s)
        ax.text(right if late else left, 1.02, "drain: no more arrivals", color=FAINT, fontsize=8,
                ha="right" if late else "left", **beside)  # fmt: skip


def _time_axis(ax: Axes, span: Span, over: str = "") -> float:
    size_s, named = (1.0, "") if over else span.unit
    ax.set_xlim(0, (span.last_s - span.first_s) / size_s)
    ax.set_xlabel(over or f"time since the first submit ({named})")
    return size_s
