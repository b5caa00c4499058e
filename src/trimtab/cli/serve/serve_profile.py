"""`trimtab serve profile`."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.box import SIMPLE
from rich.table import Table

from trimtab.cli.outputs import FOLDER, NPZ
from trimtab.cli.shown import JsonOption, bar, out, say, write_json
from trimtab.errors import ServeError
from trimtab.units import three_digits

EPILOG = """
**Examples**

`trimtab serve profile --out profile.npz` — the shipped network on one core

`trimtab serve profile --device cuda --out h200.npz --plots figures`

`trimtab serve profile --way onnx --way torch-last --repeats 9 --all`

`trimtab serve profile --weights slim.npz --buckets 1,8,64 --json -`
"""


def profile(
    weights: Annotated[
        Path | None, typer.Option(help="A .npz of `trimtab train slim`; else the shipped one.")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:1.")] = "cpu",
    threads: Annotated[int, typer.Option(help="Of one worker, on a CPU.")] = 1,
    buckets: Annotated[
        str | None, typer.Option(help="Batch sizes such as 1,8,64; else a doubling row of them.")
    ] = None,
    repeats: Annotated[int, typer.Option(help="Rounds over all segments; the median counts.")] = 5,
    way: Annotated[
        list[str] | None, typer.Option(help="How to run segments; may be repeated.")
    ] = None,
    cache: Annotated[
        Path | None,
        typer.Option(help="Folder that remembers the fastest ways; else ~/.cache."),
        FOLDER,
    ] = None,
    idle_w: Annotated[float, typer.Option(help="Watts at rest, where there is no meter.")] = 20.0,
    busy_w: Annotated[float, typer.Option(help="Watts at work, where there is no meter.")] = 65.0,
    to: Annotated[
        Path | None, typer.Option("--out", help="Write the profile, a .npz."), NPZ
    ] = None,
    plots: Annotated[
        Path | None, typer.Option(help="A folder for three figures, as PNG."), FOLDER
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Show all 256 tuples of widths.")] = False,
    json_file: JsonOption = None,
) -> None:
    """Measure what a batch of every segment costs on this machine, for routers and plans."""
    from trimtab.serving.net import serve_profile, slim_weights
    from trimtab.serving.nouns import TUPLES
    from trimtab.serving.server.power import meter

    network = slim_weights.load(weights or slim_weights.SHIPPED)
    sizes = bucket_sizes(buckets) if buckets else None
    watts = meter(device, idle_w=idle_w, busy_w=busy_w)
    found, rows = measure_all(network, device, threads, sizes, repeats, way, cache, watts)
    if to is not None:
        serve_profile.save(found, to)
    if plots is not None:
        from trimtab.report.pages.serve_plots import write_serve_plots

        for file in write_serve_plots(found, network.form, plots):
            say(f"figure: {file}")
    shown = range(len(TUPLES)) if every else serve_profile.front(found, middle(found))
    summary = facts(found, network.form, [int(row) for row in shown], rows)
    if json_file:
        write_json(json_file, summary)
    if json_file != "-":
        show(summary, every)
    if to is not None:
        say(f"profile: {to}")


def bucket_sizes(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ServeError(f"--buckets {text!r}: give batch sizes such as 1,2,4,8") from None


def measure_all(
    network: Any,
    device: str,
    threads: int,
    sizes: tuple[int, ...] | None,
    repeats: int,
    ways: list[str] | None,
    cache: Path | None,
    watts: Any,
) -> tuple[Any, list[Any]]:
    """The profile with ways, accuracy and power, and whole networks beside their segments."""
    from trimtab.serving.net.serve_profile import modelled
    from trimtab.serving.server.measure import measured, steps, wholes, with_power
    from trimtab.serving.server.runners import cache_folder, keys, tuned

    with bar("measuring", len(keys()) + steps(repeats)) as step:
        runners = tuned(
            network, device, ways=ways, buckets=sizes, threads=threads,
            cache=cache or cache_folder(), told=step,
        )  # fmt: skip
        if runners.tuning.cached or len(runners.tuning.ways) == 1:
            step("", len(keys()))
        accuracy, note = network.accuracy, ""
        if not np.isfinite(accuracy).all():
            accuracy, note = modelled(network.form).accuracy, "; accuracy from published tables"
        found = measured(runners, runners.tuning.buckets, repeats, accuracy=accuracy, progress=step)
        found = with_power(found, runners, watts)
        rows = wholes(runners, found, (1, middle(found)), repeats)
    ratio = float(np.median([row.whole_s / row.sum_s for row in rows]))
    machine = found.machine | {"threads": threads, "whole_ratio": round(ratio, 4)}
    return replace(found, source=found.source + note, machine=machine), rows


def middle(profile: Any) -> int:
    """The batch size at which tuples are compared: 16, or the largest there is."""
    return min(16, profile.buckets[-1])


def facts(profile: Any, form: Any, rows: list[int], wholes: list[Any]) -> dict[str, Any]:
    """What is shown, as plain numbers."""
    from trimtab.serving.net.serve_profile import tuple_s
    from trimtab.serving.net.slim_form import macs, row_of
    from trimtab.serving.nouns import TUPLES, WIDTHS

    time_s = {count: tuple_s(profile, count) for count in {*profile.buckets, middle(profile)}}
    uniform = [row_of((width,) * 4) for width in range(len(WIDTHS))]
    return {
        "source": profile.source,
        "machine": profile.machine,
        "idle_w": profile.idle_w,
        "busy_w": profile.busy_w,
        "hand_over_s_mb": profile.hand_over_s,
        "compared_at": middle(profile),
        "ways": dict(Counter(profile.way.ravel().tolist())),
        "slow_over_median": float(np.median(profile.slow_s / profile.time_s)),
        "uniform_s": {
            str(count): [float(time_s[count][row]) for row in uniform] for count in profile.buckets
        },
        "tuples": [
            {
                "widths": [WIDTHS[width] for width in TUPLES[row]],
                "accuracy": float(profile.accuracy[row]),
                "one_s": float(time_s[1][row]),
                "batch_s": float(time_s[middle(profile)][row]),
                "mmac": macs(form, TUPLES[row]) / 1e6,
            }
            for row in rows
        ],
        "whole": [
            {"widths": list(row.widths), "count": row.rows, "ratio": row.whole_s / row.sum_s}
            for row in wholes
        ],
    }


def show(summary: dict[str, Any], every: bool) -> None:
    """The profile on the terminal."""
    machine = summary["machine"]
    head = f"{machine['device']}, {machine['processor']}, {machine['threads']} thread a worker"
    for line in (head, summary["source"]):
        out.print(line, highlight=False, soft_wrap=True, markup=False, style="dim")
    out.print(uniform_table(summary["uniform_s"]))
    out.print(tuples_table(summary, "all tuples" if every else "tuples that none beats"))
    ratios = [row["ratio"] for row in summary["whole"]]
    cells = sum(summary["ways"].values())
    say("ways: " + ", ".join(f"{way} {n / cells:.0%}" for way, n in summary["ways"].items()))
    say(
        f"a whole network in one call takes {machine['whole_ratio']:.2f} x the sum of its segments "
        f"({min(ratios):.2f}..{max(ratios):.2f}); 9 of 10 batches stay below "
        f"{summary['slow_over_median']:.2f} x the time shown"
    )


def uniform_table(uniform_s: dict[str, list[float]]) -> Table:
    from trimtab.serving.nouns import WIDTHS

    table = Table(title="one width for all segments", box=SIMPLE, pad_edge=False)
    table.add_column("batch", justify="right")
    for width in WIDTHS:
        table.add_column(f"{width:g}\nms", justify="right", no_wrap=True)
        table.add_column("\nimages/s", justify="right", no_wrap=True)
    for count, times_s in uniform_s.items():
        cells = [(three_digits(1e3 * t), three_digits(int(count) / t)) for t in times_s]
        table.add_row(count, *(cell for pair in cells for cell in pair))
    return table


def tuples_table(summary: dict[str, Any], title: str) -> Table:
    table = Table(title=title, box=SIMPLE, pad_edge=False)
    names = ("widths", "accuracy", "ms, batch 1", f"ms, batch {summary['compared_at']}", "MMAC")
    for name in names:
        table.add_column(name, justify="left" if name == "widths" else "right", no_wrap=True)
    for row in summary["tuples"]:
        table.add_row(
            " ".join(f"{width:4g}" for width in row["widths"]),
            f"{row['accuracy']:.2%}",
            three_digits(1e3 * row["one_s"]),
            three_digits(1e3 * row["batch_s"]),
            three_digits(row["mmac"]),
        )
    return table
