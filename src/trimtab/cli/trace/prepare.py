"""`trimtab trace prepare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE
from rich.table import Table

from trimtab.cli.outputs import FOLDER
from trimtab.cli.shown import (
    JsonOption,
    LenientOption,
    named,
    out,
    resumable,
    say,
    steps_bar,
    write_json,
)
from trimtab.errors import TrimtabError
from trimtab.units import size_bytes, three_digits

EPILOG = """
**Examples**

`trimtab trace prepare cluster-trace-v2018 --out prepared` — the folder as downloaded

`trimtab trace prepare alibaba2018-like --out prepared --window 60 --memory 1GB`

`trimtab trace prepare FOLDER --out prepared --table batch_task=part.csv.gz --lenient`

`trimtab trace prepare /shared/trace --out /shared/prepared --ray auto` — on a Ray cluster

`trimtab trace prepare load.parquet --out prepared` — samples of any machines

`trimtab compare fcfs sjf+best --trace prepared --load 0.9`
"""


def trace_prepare(
    source: Annotated[
        str, typer.Argument(help="The folder of the trace, or a file of samples of load.")
    ],
    to: Annotated[Path, typer.Option("--out", help="A new folder for the result."), FOLDER],
    window: Annotated[float, typer.Option(help="Seconds of a window.")] = 300.0,
    history: Annotated[int, typer.Option(help="Windows that recent features look back.")] = 12,
    segment: Annotated[float, typer.Option(help="Seconds of a decision segment.")] = 3600.0,
    train: Annotated[float, typer.Option(help="Share of the time to train on.")] = 0.7,
    validation: Annotated[float, typer.Option(help="Share after that; the rest is test.")] = 0.15,
    services: Annotated[
        str, typer.Option(help="What services take from batch: used, reserved or none.")
    ] = "used",
    machine_mem_gb: Annotated[
        float, typer.Option(help="Memory that the trace's size of 100 stands for.")
    ] = 512.0,
    memory: Annotated[str, typer.Option(help="Most that it may use, such as 2GB.")] = "2GB",
    table: Annotated[
        list[str] | None, typer.Option(help="TABLE=FILE where several files would fit.")
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="First check the sha256 of published archives.")
    ] = False,
    ray: Annotated[
        str | None, typer.Option(help="Run on Ray: an address, `auto`, or `local`.")
    ] = None,
    lenient: LenientOption = False,
    json_file: JsonOption = None,
) -> None:
    """Clean, join and window a trace: work to schedule, load to learn from, and a report.

    Stopped or killed, it goes on where it was when the same command is given again.
    """
    from trimtab.report.prepare.prepared import write_prepared_report
    from trimtab.traces.prepare import Options, prepare, prepare_samples

    options = Options(
        window_s=window,
        history=history,
        segment_s=segment,
        train=train,
        validation=validation,
        services=services,
        machine_mem_gb=machine_mem_gb,
        lenient=lenient,
    )
    try:
        memory_bytes = size_bytes(memory)
    except ValueError as problem:
        raise TrimtabError(f"--memory {problem}") from None
    with resumable():
        if Path(source).is_dir() and not is_load(source):
            tables = dict(named("--table", text, "batch_task=part.csv") for text in table or ())
            with steps_bar() as progress:
                manifest = prepare(
                    source, to, options=options, memory_bytes=memory_bytes, tables=tables,
                    verified=verify,
                    workers=on_ray(ray) if ray else None, progress=progress,
                )  # fmt: skip
        else:
            from trimtab.traces.load.samples_file import read_samples

            manifest = prepare_samples(read_samples(source), to, options=options)
        page = write_prepared_report(to)
    if json_file:
        write_json(json_file, manifest)
    if json_file != "-":
        show(manifest, to)
    for note in manifest["notes"]:
        say(f"note: {note}")
    say(f"report: {page}")


def is_load(source: str) -> bool:
    """Whether a folder holds samples of load and none of the trace's tables."""
    from trimtab.traces.load.samples_file import samples_kind

    try:
        return samples_kind(source) in ("planetlab", "bitbrains")
    except TrimtabError:
        return False


def on_ray(address: str) -> Any:
    try:
        from trimtab.traces.prepare.on_ray import OnRay
    except ImportError:
        raise TrimtabError("--ray needs Ray; install it with: pip install trimtab[ray]") from None
    return OnRay(None if address == "local" else address)


def show(manifest: dict[str, Any], to: Path) -> None:
    """Rows in and out a table, then the figures beside the published ones."""
    from trimtab.report.prepare.prepared import quantile_rows

    cleaned = Table(title="rows", box=SIMPLE, pad_edge=False, collapse_padding=True)
    tables = manifest["tables"].values()
    wide = max(len(f"{n:,}") for counts in tables for n in (0, *counts["removed"].values()))
    for column in ("table", "in", "kept", "removed", "by rule"):
        left = column in ("table", "by rule")
        cleaned.add_column(column, justify="left" if left else "right", no_wrap=True)
    for name, counts in manifest["tables"].items():
        why = [f"{n:>{wide},} {rule}" for rule, n in counts["removed"].items() if n]
        if counts.get("narrow"):
            why.append(f"{counts['narrow']:>{wide},} of a wrong width")
        removed = counts["in"] - counts["kept"]
        numbers = (f"{n:,}" for n in (counts["in"], counts["kept"], removed))
        cleaned.add_row(name, *numbers, "\n".join(why))
    out.print(cleaned)
    rows = quantile_rows(to)
    if rows:
        figures = Table(title="figures of Alibaba 2018: published, and here", box=SIMPLE)
        for column in ("figure", "published", "here"):
            figures.add_column(column, justify="left" if column == "figure" else "right")
        for figure, published, here in rows:
            figures.add_row(figure, three_digits(published), three_digits(here))
        out.print(figures)
