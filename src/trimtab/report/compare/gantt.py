"""What ran where: a row a node, or the units of a pool; with a sentence on what was left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, PathPatch
from matplotlib.path import Path

from trimtab.arrays import Array
from trimtab.metrics import Result
from trimtab.report.colours import DOWN, FAINT, GRID, PALETTE
from trimtab.report.compare import series
from trimtab.report.compare.series import Span
from trimtab.report.drawing import (
    FOOT_IN,
    LEFT_IN,
    STYLE,
    blank,
    short,
    svg,
)
from trimtab.units import figures

MOST_NODES = 48
MOST_PIECES = 1200
LEAST_SHOWN = 0.0012  # of the width: a shorter run is drawn this long, or it would not be seen
GAP = 0.08  # between rows
PLAIN_COLOURS = 6
STRIP = 0.14  # of a node's row: jobs that hold none of its GPUs


def gantt(
    result: Result,
    name: str = "gantt",
    within_s: tuple[float, float] | None = None,
    span: Span | None = None,
) -> tuple[str, str]:
    """(svg, caption) of what ran where in a stretch of time, by default `window_s`.

    Times are those of `span`, the page's; None = the result's own.

    A bar is as high as the job's share of the node (its GPUs where it has some), and stands where
    there is room: not at the number of a device. The caption says what is left out.
    """
    ran, span = series.pieces(result), span or series.span_of([result])
    node_rows = _drawn_nodes(result, ran)
    within_s = within_s or window_s(result)
    inside = np.isin(ran["node"], node_rows)
    inside &= (ran["start_s"] < within_s[1]) & (ran["end_s"] >= within_s[0])
    parts = _parts(result, ran[inside], node_rows)
    down = series.downtime(result)
    seen = (down["start_s"] < within_s[1]) & (down["end_s"] > within_s[0])
    down = down[seen & np.isin(down["node"], node_rows)]
    with matplotlib.rc_context({**STYLE, "axes.grid": False}):
        text = svg(_drawn(result, parts, down, node_rows, within_s, span), name)
    drawn = len(np.unique(ran["job"][inside]))
    return text, _caption(result, ran, drawn, node_rows, within_s, span)


def _drawn(
    result: Result,
    parts: Array,
    down: Array,
    node_rows: Array,
    within_s: tuple[float, float],
    span: Span,
) -> Figure:
    """Grey where a node is down, jobs by kind, and a legend where colours mean something."""
    first_s, (size_s, unit) = span.first_s, span.unit
    kind_of, names = _kinds(result)
    boxes = [(parts[kind_of[parts["job"]] == k], PALETTE[k], kind) for k, kind in enumerate(names)]
    grey: Array = np.zeros(len(down), parts.dtype)
    grey["start_s"], grey["end_s"] = down["start_s"], down["end_s"]
    grey["low"] = np.searchsorted(node_rows, down["node"]) + GAP
    grey["high"] = grey["low"] + 1 - GAP
    boxes = [box for box in [*boxes, (grey, DOWN, "node down")] if len(box[0])]
    key = [Patch(color=colour, label=kind) for _, colour, kind in boxes if kind]
    head_in = 0.2 + 0.19 * -(-len(key) // 4) if key else 0.12
    height_in = min(max(0.155 * len(node_rows), 3.0), 8.0) + FOOT_IN + head_in
    figure, axes = blank(height_in, head_in=head_in, left_in=_label_in(result, node_rows))
    ax = axes[0, 0]
    for mine, colour, _ in reversed(boxes):
        _boxes(ax, mine, colour, within_s, first_s, size_s)
    ax.set_xlim((within_s[0] - first_s) / size_s, (within_s[1] - first_s) / size_s)
    ax.set_xlabel(f"time since the first submit ({unit})")
    ax.ticklabel_format(axis="x", useOffset=False)
    _node_axis(ax, result, node_rows)
    if key:
        place: dict[str, Any] = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0), "ncols": 4}
        ax.legend(handles=key, handlelength=0.9, fontsize=8.5, **place)
    return figure


def _label_in(result: Result, node_rows: Array) -> float:
    """Room for the nodes' names, in small letters."""
    longest = max(len(short(result.cluster.name(node))) for node in node_rows.tolist())
    return max(LEFT_IN, 0.15 + 0.065 * longest)


def window_s(result: Result) -> tuple[float, float]:
    """All of the time, or around the longest queue as much as holds a readable number of pieces."""
    first_s, last_s = series.span_s(result)
    ran = series.pieces(result)
    ran = ran[np.isin(ran["node"], _drawn_nodes(result, ran))]
    if len(ran) <= MOST_PIECES:
        return first_s, max(last_s, first_s + 1e-9)
    queue = series.queue_length(result)
    peak_s = float(queue.time_s[np.argmax(queue.value)])
    start_s = np.sort(ran["start_s"])
    at = int(np.searchsorted(start_s, peak_s))
    low = min(max(at - MOST_PIECES // 2, 0), len(start_s) - MOST_PIECES)
    return float(start_s[low]), max(
        float(start_s[low + MOST_PIECES - 1]), float(start_s[low]) + 1e-9
    )


def _drawn_nodes(result: Result, ran: Array) -> Array:
    """The rows of the nodes to draw: all, or those of each kind in turn that ran most."""
    nodes = len(result.cluster)
    if nodes <= MOST_NODES:
        return np.arange(nodes)
    busy_s = np.bincount(ran["node"], ran["end_s"] - ran["start_s"], minlength=nodes)
    kind = result.cluster.nodes["kind"]
    turn = np.lexsort((-busy_s, kind))
    rank = np.empty(nodes, np.int64)
    rank[turn] = np.arange(nodes) - np.searchsorted(kind[turn], kind[turn])  # place within its kind
    share = np.bincount(kind)[kind]  # kinds keep their share of the rows
    return np.sort(np.argsort((rank + 0.5) / share, kind="stable")[:MOST_NODES])


def _kinds(result: Result) -> tuple[Array, list[str]]:
    """(J,) colour of each job, and what the colours mean: kinds, the rarest of many as one.

    Where all jobs are of one kind the colours tell neighbours apart, and mean nothing.
    """
    work = result.workload
    if len(work.kinds) == 1:
        return np.arange(len(work)) % PLAIN_COLOURS, [""] * PLAIN_COLOURS
    count = np.bincount(work.jobs["kind"], minlength=len(work.kinds))
    turn = np.argsort(-count, kind="stable")
    most = len(PALETTE) - 1
    place = np.empty(len(turn), np.int64)
    place[turn] = np.minimum(np.arange(len(turn)), most if len(turn) > most + 1 else len(turn))
    names = [work.kinds[k] for k in turn[: most + 1]]
    if len(turn) > most + 1:
        names[most] = f"{len(turn) - most} other kinds"
    return place[work.jobs["kind"]], names


def _parts(result: Result, ran: Array, node_rows: Array) -> Array:
    """Boxes in rows of height 1 a node: one a piece, or several where no gap holds it whole."""
    dtype = [("start_s", "f8"), ("end_s", "f8"), ("low", "f8"), ("high", "f8"), ("job", "i8")]
    made = [np.zeros(0, dtype)]
    each, capacity = _driver(result)
    for row, node in enumerate(node_rows.tolist()):
        mine = ran[ran["node"] == node]
        width = each(node)[mine["job"]] * mine["count"]
        has = width > 0
        base = STRIP if (~has).any() else 0.0
        gap = GAP if len(node_rows) > 1 else 0.0
        part, low, high = series.lanes(
            mine["start_s"][has], mine["end_s"][has], width[has], capacity[node]
        )
        rows = np.concatenate((np.flatnonzero(has)[part], np.flatnonzero(~has)))
        out = np.zeros(len(rows), dtype)
        for name in ("start_s", "end_s", "job"):
            out[name] = mine[name][rows]
        beside = np.zeros((~has).sum())
        # rows grow downwards: bars stand on the strip at the row's foot
        scale = (1.0 - base - gap) / max(capacity[node], 1e-300)
        out["high"] = row + 1 - np.concatenate((base + low * scale, beside))
        out["low"] = row + 1 - np.concatenate((base + high * scale, beside + STRIP))
        made.append(out)
    return np.concatenate(made)


def _driver(result: Result) -> tuple[Callable[[int], Array], Array]:
    """What an instance of each job takes of a node's driving resource, and (N,) the capacity."""
    work, machine = result.workload, result.cluster
    driver = machine.nodes["driver"]

    def each(node: int) -> Array:
        name = machine.resources[driver[node]]
        return (
            work.demand[:, work.resources.index(name)]
            if name in work.resources
            else np.zeros(len(work))
        )

    return each, machine.capacity[np.arange(len(machine)), driver]


def _boxes(
    ax: Axes,
    boxes: Array,
    colour: str,
    within_s: tuple[float, float],
    first_s: float,
    size_s: float,
) -> None:
    """All boxes of a colour as one path: a tenth of the size of as many patches."""
    seen = (boxes["end_s"] >= within_s[0]) & (boxes["start_s"] < within_s[1])
    low, high = boxes["low"][seen], boxes["high"][seen]
    start_s = np.maximum(boxes["start_s"][seen], within_s[0])
    least_s = LEAST_SHOWN * (within_s[1] - within_s[0])
    end_s = np.maximum(np.minimum(boxes["end_s"][seen], within_s[1]), start_s + least_s)
    left, right = ((side_s - first_s) / size_s for side_s in (start_s, end_s))
    if not len(left):
        return
    corners = np.stack((left, low, right, low, right, high, left, high, left, low), axis=1).reshape(
        -1, 2
    )
    codes = np.tile([Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY], len(left))
    path = PathPatch(Path(corners, codes), facecolor=colour, edgecolor="white", linewidth=0.25)
    path.set_snap(False)
    ax.add_artist(path)  # add_patch would walk every corner for limits that are set anyway


def _node_axis(ax: Axes, result: Result, node_rows: Array) -> None:
    machine = result.cluster
    ax.set_ylim(len(node_rows), 0)
    if len(node_rows) == 1:
        name = machine.resources[machine.nodes["driver"][node_rows[0]]]
        total = float(machine.capacity[node_rows[0], machine.nodes["driver"][node_rows[0]]])
        ticks = np.linspace(0, 1, 5)
        ax.set_yticks(1 - ticks, [f"{total * t:,.0f}" for t in ticks])
        ax.set_ylabel(f"units of {name} in use (placed where there is room)")
        return
    ax.set_yticks(
        np.arange(len(node_rows)) + 0.5, [short(machine.name(node)) for node in node_rows.tolist()]
    )
    ax.tick_params(axis="y", labelsize=6.5 if len(node_rows) > 24 else 8, pad=2)
    ax.hlines(np.arange(1, len(node_rows)), *ax.get_xlim(), color=GRID, linewidth=0.5, zorder=0)
    kind = machine.nodes["kind"][node_rows]
    for row in (np.flatnonzero(np.diff(kind)) + 1).tolist():
        ax.axhline(row, color=FAINT, linewidth=0.6, zorder=0)


def _caption(
    result: Result,
    ran: Array,
    drawn: int,
    node_rows: Array,
    within_s: tuple[float, float],
    span: Span,
) -> str:
    jobs, nodes = len(np.unique(ran["job"])), len(result.cluster)
    first_s, last_s = series.span_s(result)
    told = f"{drawn:,} of the {jobs:,} jobs that ran"
    if len(node_rows) < nodes:
        told += f", on {len(node_rows)} of {nodes:,} nodes (of each kind those that ran most)"
    if within_s[0] > first_s or within_s[1] < last_s:
        size_s, unit = span.unit
        low, high = (figures((t - span.first_s) / size_s) for t in within_s)
        told += f", {low} to {high} {unit} after the first submit, around the longest queue"
    told += "; the rest is left out. " if (drawn < jobs or len(node_rows) < nodes) else ". "
    return told[0].upper() + told[1:]
