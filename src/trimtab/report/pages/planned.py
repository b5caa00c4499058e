"""Self-contained HTML pages of `trimtab plan`: an answer with its parts, or runs checked.

Both take what the command writes as JSON, so a page can be made of it later.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from trimtab.arrays import Array
from trimtab.files import write_whole
from trimtab.report.colours import FAINT, INK, PALETTE
from trimtab.report.drawing import LETTER_IN, STYLE, blank, short, svg
from trimtab.report.markup import bullets, facts, figure, plain_table, shell, version

# Parts of a step and of a GPU's memory, in the order in which they are drawn.
TIME_PARTS = {
    "compute_s": "compute", "again_s": "recomputation", "tp_s": "tensor parallel",
    "cp_s": "context parallel", "ep_s": "expert parallel", "pp_s": "messages of stages",
    "bubble_s": "bubble", "dp_s": "data parallel", "optimiser_s": "optimiser",
    "overhead_s": "host and stragglers",
}  # fmt: skip
MEMORY_PARTS = {
    "weights_b": "weights", "gradients_b": "gradients", "optimiser_b": "optimiser",
    "activations_b": "activations", "logits_b": "logits", "working_b": "working",
    "overhead_b": "overhead",
}  # fmt: skip
RUN_UNITS = {
    "step_s": "seconds a step",
    "tokens_per_s_per_gpu": "tokens a second and GPU",
    "tflops_per_gpu": "TFLOP/s a GPU",
    "mem_gb": "GB a GPU",
}
UNITS = {"_b": ("GB", 1e9), "energy_j": ("MJ", 1e6)}  # by the end of a name
LEGEND = 6  # parts in a row
LEAST_PART = 0.002  # of a bar: less cannot be seen
PRE = "pre{background:var(--soft);padding:10px;overflow-x:auto;font-size:12.5px}"
LEFT = "td,th{text-align:left;white-space:normal}td:first-child{white-space:nowrap}"
# What the name of a plan says already, or all plans share.
NAMED = {"gpus", "per_node", "tp", "pp", "dp", "cp", "ep", "interleave", "micro_batch", "zero",
         "global_batch", "seq", "replicas", "gpu_memory_b"}  # fmt: skip


def write_planned(
    path: Path, answer: Mapping[str, Any], names: Sequence[str], command: str
) -> None:
    """Write the page of an answer; `names` say its plans in short, one each."""
    rows = answer["plans"]
    title = f"{answer['model']}: plans to {answer['mode']}"
    about = {"Best": escape(answer["headline"]), "Command": f"<code>{escape(command)}</code>"}
    parts = [f"<header><div><h1>{escape(title)}</h1>{facts(about)}</div></header><main>"]
    if answer["notes"]:
        parts += ["<h2>Taken for granted</h2>", bullets(answer["notes"])]
    if all("time_parts_s" in row for row in rows):
        parts += _parts_figures(rows, names)
    parts += ["<h2>Plans</h2>", plain_table(*_plan_table(rows, names))]
    if answer["why_not"]:
        reasons = [(reason["plan"], reason["why"]) for reason in answer["why_not"]]
        parts += ["<h2>Why not something else</h2>", plain_table(("plan", "why not"), reasons)]
    for name, text in answer["launch"].items():
        parts.append(f"<h3>{escape(name)}</h3><pre>{escape(text)}</pre>")
    write_whole(path, shell(title, "\n".join([*parts, _foot()]), PRE + LEFT))


def _parts_figures(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[str]:
    times = [row["time_parts_s"] for row in rows]
    bytes_b = [{k: v / 1e9 for k, v in row["memory_parts_b"].items()} for row in rows]
    ends = [(row["step_s_low"], row["step_s_high"]) for row in rows]
    room_gb = rows[0]["gpu_memory_b"] / 1e9
    time = stacked(times, TIME_PARTS, names, "seconds a step", ends=ends, name="time")
    memory = stacked(bytes_b, MEMORY_PARTS, names, "GB a GPU", limit=room_gb, name="memory")
    return [
        "<h2>What a step is made of</h2>",
        figure(time, "Parts of a step", "The line spans nine in ten runs."),
        "<h2>What a GPU holds</h2>",
        figure(memory, "Parts of the memory", "Of the fullest stage. Dashed: what the GPU lists."),
    ]


def _plan_table(
    rows: Sequence[Mapping[str, Any]], names: Sequence[str]
) -> tuple[list[str], list[list[str]]]:
    """Head and lines of the numbers of each plan."""
    wanted = [k for k, v in rows[0].items() if type(v) in (int, float) and k not in NAMED]
    units = {k: next((u for end, u in UNITS.items() if k.endswith(end)), ("", 1.0)) for k in wanted}
    head = [k if not word else f"{k.rpartition('_')[0]}, {word}" for k, (word, _) in units.items()]
    lines = [
        [name, *(f"{row[k] / size:,.4g}" for k, (_, size) in units.items())]
        for row, name in zip(rows, names)
    ]
    return ["plan", *head], lines


def stacked(
    bars: Sequence[Mapping[str, float]],
    parts: Mapping[str, str],
    names: Sequence[str],
    label: str,
    *,
    ends: Sequence[tuple[float, float]] = (),
    limit: float = 0.0,
    name: str,
) -> str:
    """A bar a plan, made of its parts; `ends` are drawn as a line across its end."""
    most = max(sum(bar.values()) for bar in bars)
    shown = [part for part in parts if any(bar[part] > LEAST_PART * most for bar in bars)]
    with matplotlib.rc_context(STYLE):
        head_in = 0.16 + 0.25 * math.ceil(len(shown) / LEGEND)
        told = [short(one, 46) for one in names]
        left_in = 0.2 + 0.9 * LETTER_IN * max(map(len, told))
        drawn, axes = blank(0.34 * len(bars) + 0.7 + head_in, left_in=left_in, head_in=head_in)
        ax, at = axes[0, 0], np.arange(len(bars))[::-1]
        left = np.zeros(len(bars))
        for place, part in enumerate(shown):
            width = np.array([bar[part] for bar in bars])
            colour = PALETTE[place % len(PALETTE)]
            ax.barh(at, width, 0.62, left=left, color=colour, label=parts[part])
            left += width
        for y, (low, high) in zip(at, ends):
            ax.plot([low, high], [y, y], color=INK, linewidth=1.1, marker="|", markersize=6)
        if limit:
            ax.axvline(limit, color=FAINT, linestyle="--", linewidth=1.2)
        ax.set_yticks(at, told)
        ax.set_xlabel(label)
        ax.grid(axis="y", visible=False)
        drawn.legend(ncols=LEGEND, loc="upper left", bbox_to_anchor=(0.0, 1.0))
        return svg(drawn, name)


def write_checked(
    path: Path, rows: Sequence[Mapping[str, Any]], words: str, source: str, command: str
) -> None:
    """Write the page of a table of runs: predicted beside measured, with intervals."""
    title = f"{source}: predicted beside measured"
    about = {"Summary": escape(words), "Command": f"<code>{escape(command)}</code>"}
    parts = [f"<header><div><h1>{escape(title)}</h1>{facts(about)}</div></header><main>"]
    good = [row for row in rows if "error" not in row]
    drawn = [name for name in RUN_UNITS if any(f"measured_{name}" in row for row in good)]
    for name in drawn:
        seen = [row for row in good if f"measured_{name}" in row]
        told, guess, low, high = (np.array([r[k] for r in seen], float) for k in _columns(name))
        plot = beside(told, guess, low, high, name)
        caption = (
            "A point a run; lines span nine in ten. On the dashed line the prediction is right."
        )
        parts += [f"<h2>{RUN_UNITS[name]}</h2>", figure(plot, RUN_UNITS[name], caption)]
    head = ["line", "gpus", "tp", "pp", "dp", "framework", *drawn, "P(fit)", "note"]
    lines = [_checked_line(row, drawn) for row in rows]
    parts += ["<h2>Runs</h2>", plain_table(head, lines), _foot()]
    write_whole(path, shell(title, "\n".join(parts), LEFT))


def _columns(name: str) -> tuple[str, str, str, str]:
    return f"measured_{name}", name, f"{name}_low", f"{name}_high"


def _checked_line(row: Mapping[str, Any], drawn: Sequence[str]) -> list[str]:
    if "error" in row:
        return [str(row["line"]), *[""] * (len(drawn) + 6), str(row["error"])]
    cells = [str(row["line"]), *(f"{row[k]:g}" for k in ("gpus", "tp", "pp", "dp"))]
    cells.append(row["framework"])
    for name in drawn:
        seen = f"measured_{name}" in row
        beside = f" of {row[f'measured_{name}']:.4g} ({row[f'error_{name}']:+.1%})" if seen else ""
        cells.append(f"{row[name]:.4g}{beside}")
    return [*cells, f"{row['p_fit']:.2f}", row["note"]]


def beside(measured: Array, predicted: Array, low: Array, high: Array, name: str) -> str:
    """Predictions over measurements, both on a logarithmic scale."""
    with matplotlib.rc_context(STYLE):
        drawn, axes = blank(4.6, left_in=2.9, right_in=2.6)
        ax = axes[0, 0]
        ends = np.array([min(measured.min(), low.min()), max(measured.max(), high.max())])
        ends *= 0.9, 1.1
        ax.plot(ends, ends, "--", color=FAINT, linewidth=1.2)
        for x, bottom, top in zip(measured, low, high):
            ax.plot([x, x], [bottom, top], color=PALETTE[5], linewidth=1.0)
        ax.plot(measured, predicted, "o", color=PALETTE[0], markersize=4)
        for axis, scale in ((ax.xaxis, ax.set_xscale), (ax.yaxis, ax.set_yscale)):
            scale("log")
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axis.set_minor_locator(NullLocator())
        ax.set_xlim(*ends)
        ax.set_ylim(*ends)
        ax.set_xlabel(f"measured, {RUN_UNITS[name]}")
        ax.set_ylabel("predicted")
        return svg(drawn, name)


def _foot() -> str:
    return f"<footer>Made by trimtab {escape(version('trimtab'))}.</footer></main>"
