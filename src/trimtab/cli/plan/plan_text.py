"""What `trimtab plan` prints: tables of plans, reasons, launch scripts, and errors beside runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from rich.box import SIMPLE
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from trimtab.cli.shown import out, say
from trimtab.files import write_whole
from trimtab.units import three_digits

MOST_WIDE = 1000  # characters
RUN_TIMES = ("step_s", "tokens_per_s_per_gpu", "tflops_per_gpu")
UNITS = {"step_s": "s", "tokens_per_s_per_gpu": "tokens/s", "tflops_per_gpu": "TFLOP/s"}
WAYS = ("gpus", "tp", "pp", "dp", "cp", "ep", "interleave", "micro_batch", "zero")


def line(text: str, style: str = "") -> None:
    """One line on standard output, whatever brackets it has."""
    out.print(text, highlight=False, soft_wrap=True, markup=False, style=style)


def show_plans(rows: list[dict[str, Any]]) -> None:
    """The best plans, one a line."""
    many = len({row["framework"] for row in rows}) > 1
    table = _table("", "plan", "step", "9 of 10", "MFU", "GB", "P(fit)", "energy")
    for place, row in enumerate(rows, 1):
        low, high = three_digits(row["step_s_low"]), three_digits(row["step_s_high"])
        table.add_row(
            str(place),
            plan_words(row) + (f", {row['framework']}" if many else ""),
            f"{three_digits(row['step_s'])} s",
            f"{low}-{high}",
            f"{100 * row['mfu']:.0f} %",
            f"{row['memory_b'] / 1e9:.0f}",
            f"{row['p_fit']:.2f}",
            f"{three_digits(row['energy_j'] / 1e6)} MJ",
        )
    _show(table)


def plan_words(row: dict[str, Any]) -> str:
    """A plan in short, without the ways that are 1: `64: TP4 PP2 DP8 x5, micro 1, ZeRO-1`."""
    names = (("tp", "TP"), ("pp", "PP"), ("dp", "DP"), ("cp", "CP"), ("ep", "EP"))
    ways = [f"{word}{row[name]}" for name, word in names if row[name] > 1]
    if row["interleave"] > 1:
        ways.append(f"x{row['interleave']}")
    words = [f"{row['gpus']}: {' '.join(ways) or 'alone'}", f"micro {row['micro_batch']}"]
    words += [f"ZeRO-{row['zero']}"] if row["zero"] else []
    words += [f"{row['recompute']} recompute"] if row["recompute"] != "none" else []
    return ", ".join(words)


def short_names(answer: dict[str, Any]) -> list[str]:
    """The plans of an answer, one short name each."""
    rows = answer["plans"]
    if answer["mode"] == "serve":
        return [_way(row) for row in rows]
    return [f"{plan_words(row)}, {row['framework']}" for row in rows]


def _way(row: dict[str, Any]) -> str:
    return f"{row['replicas']}x TP{row['tp']} PP{row['pp']}"


def show_ways(rows: list[dict[str, Any]]) -> None:
    """The best ways to serve, one a line; milliseconds and joules are a token's."""
    table = _table("", "layout", "batch", "tokens/s", "9 of 10", "first ms", "ms", "P(fit)", "J")
    for place, row in enumerate(rows, 1):
        low, high = three_digits(row["tokens_s_low"]), three_digits(row["tokens_s_high"])
        table.add_row(
            str(place),
            _way(row),
            str(row["batch"]),
            three_digits(row["tokens_s"]),
            f"{low}-{high}",
            three_digits(1e3 * row["ttft_s"]),
            three_digits(1e3 * row["token_s"]),
            f"{row['p_fit']:.2f}",
            three_digits(row["energy_token_j"]),
        )
    _show(table)


def show_reasons(reasons: list[dict[str, str]]) -> None:
    """Why not something else."""
    if not reasons:
        return
    line("why not", style="bold")
    for reason in reasons:
        line(f"  {reason['plan']}: {reason['why']}")


def show_notes(notes: tuple[str, ...]) -> None:
    """What was filled in or stands in for something."""
    for note in notes:
        line(f"  {note}", style="dim")


def show_launch(files: dict[str, str]) -> None:
    """The launcher's files as they are, to copy."""
    for name, text in files.items():
        line(f"\n{name}", style="bold")
        line(text.rstrip())


def write_files(folder: Path, files: dict[str, str]) -> None:
    """Put the launcher's files into a folder."""
    for name, text in files.items():
        path = folder / name
        write_whole(path, text)
        if path.suffix == ".sh":
            path.chmod(0o755)
    say(f"wrote {', '.join(str(folder / name) for name in files)}")


def show_checked(rows: list[dict[str, Any]]) -> None:
    """Predictions beside what was measured, one run a line: its time, then its memory."""
    memory = any("measured_mem_gb" in row for row in rows)
    oom = any("measured_oom" in row for row in rows)
    more = ["GB", "measured", "error"] if memory else []
    titles = ["line", "run", "predicted", "9 of 10", "measured", "error", "unit", *more]
    table = _table(*titles, "P(fit)", *(["ran out"] if oom else []))
    for row in rows:
        if "error" in row:
            table.add_row(str(row["line"]), row["error"])
            continue
        name = next((name for name in RUN_TIMES if f"measured_{name}" in row), "step_s")
        low, high = three_digits(row[f"{name}_low"]), three_digits(row[f"{name}_high"])
        cells = [str(row["line"]), run_words(row), three_digits(row[name]), f"{low}-{high}"]
        cells += [*_beside(row, name), UNITS[name]]
        cells += [three_digits(row["mem_gb"]), *_beside(row, "mem_gb")] if memory else []
        words = {True: "yes", False: "no", None: ""}
        cells += [f"{row['p_fit']:.2f}", *([words[row.get("measured_oom")]] if oom else [])]
        table.add_row(*cells)
    _show(table)


def run_words(row: dict[str, Any]) -> str:
    """A run of a table in short."""
    whole = {name: int(value) for name, value in row.items() if name in WAYS}
    return plan_words(row | whole).replace(", micro ", " micro ")


def _beside(row: dict[str, Any], name: str) -> list[str]:
    """What was measured and how far off the prediction is; empty where it was not."""
    if f"measured_{name}" not in row:
        return ["", ""]
    return [three_digits(row[f"measured_{name}"]), f"{100 * row[f'error_{name}']:+.1f} %"]


def checked_words(summary: dict[str, Any]) -> str:
    """The summary of a check in one sentence."""
    parts = [f"{summary['rows']} runs"]
    if summary["refused"]:
        parts.append(f"{summary['refused']} lines cannot be predicted, see their sentences")
    for name in (*RUN_TIMES, "mem_gb"):
        if name in summary:
            one = summary[name]
            parts.append(
                f"{name}: mean error {100 * one['mean_error']:.1f} % of {one['rows']},"
                f" interval covers {100 * one['coverage']:.0f} %"
            )
    oom = summary["oom"]
    if oom["rows"] or oom["fitting_rows"]:
        parts.append(
            f"out of memory: {oom['flagged']} of {oom['rows']} flagged,"
            f" {oom['false_alarms']} false alarms of {oom['fitting_rows']}"
        )
    return "; ".join(parts)


def show_fits(rows: list[dict[str, Any]]) -> None:
    """How well the fitted constants explain each source."""
    table = _table("source", "what", "rows", "mean error", "held out")
    for row in rows:
        unseen = row.get("held_out_error")
        table.add_row(
            row["source"],
            row["what"],
            str(row["rows"]),
            f"{100 * row['mean_error']:.1f} %",
            f"{100 * unseen:.1f} %" if unseen is not None and unseen == unseen else "",
        )
    _show(table)


def _table(*titles: str) -> Table:
    table = Table(box=SIMPLE, collapse_padding=True, pad_edge=False)
    left = ("plan", "run", "layout", "source", "what", "unit", "ran out")
    for title in titles:
        justify: Literal["left", "right"] = "left" if title in left else "right"
        table.add_column(title, justify=justify, no_wrap=justify == "right")  # words fold
    return table


def _show(table: Table) -> None:
    """The table in the terminal's width; whole where a file or a pipe has none."""
    if out.is_terminal:
        out.print(table)
        return
    wide = Console(width=MOST_WIDE)
    needed = Measurement.get(wide, wide.options, table).maximum
    Console(width=needed, emoji=False).print(table)
