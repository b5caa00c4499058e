"""`trimtab bench`."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from rich.box import SIMPLE
from rich.table import Table

from trimtab.cli.bench.bench_faults import bench_faults
from trimtab.cli.bench.bench_serve import bench_serve
from trimtab.cli.shown import JsonOption, bar, out, say, write_json
from trimtab.units import three_digits

app = typer.Typer()


@app.command(
    epilog="""
**Examples**

`trimtab bench --quick`

`trimtab bench traces` — 1M, 10M and 100M rows: some minutes, 15 GB of disk

`trimtab bench traces --only prepare-10m --only memory-10m`

`trimtab bench learning` — the learned scheduler and its training

`trimtab bench plan` — plans of language models priced, answers for thousands of GPUs

`trimtab bench serve` — inference servers, about 15 minutes

`trimtab bench serve --peers-python ~/peers/bin/python --server trimtab --server litserve`

`trimtab bench serve --processes 2 --only net-json` — every server computes on two cores

`trimtab bench faults` — a fleet flooded, and a server killed: about 3 minutes

`trimtab bench faults --only killed`, `trimtab bench faults --only overload --seconds 10`

`trimtab bench --only swf-fcfs --only swf-fcfs-easy --swf log.swf.gz --json -`
"""
)
def bench(
    group: Annotated[
        str, typer.Argument(help="engine, traces, learning, plan, serve or faults.")
    ] = "engine",
    only: Annotated[list[str] | None, typer.Option(help="One row; may be repeated.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Smaller inputs, about 20 s.")] = False,
    swf: Annotated[str | None, typer.Option(help="A log in place of the made one.")] = None,
    pods: Annotated[str | None, typer.Option(help="An openb pod list in place of ours.")] = None,
    nodes: Annotated[str | None, typer.Option(help="The openb node list to it.")] = None,
    order: Annotated[str | None, typer.Option(help="JSON with pod_order and node_prefix.")] = None,
    server: Annotated[
        list[str] | None, typer.Option(help="serve: one server; may be repeated.")
    ] = None,
    peers_python: Annotated[
        list[str] | None,
        typer.Option(help="serve: a Python that has the peers, or SERVER=PATH; may be repeated."),
    ] = None,
    rounds: Annotated[int, typer.Option(help="serve: turns of every server.")] = 3,
    seconds: Annotated[
        float | None, typer.Option(help="serve: length of one run, 3; faults: of a flood, 30.")
    ] = None,
    processes: Annotated[
        int, typer.Option(help="serve: processes that compute, of every server.")
    ] = 1,
    json_file: JsonOption = None,
) -> None:
    """Measure the speed of the engine on this machine, beside peers that are installed."""
    if group == "serve":
        words = server or [], peers_python or []
        bench_serve(
            only, quick, *words, rounds, 3.0 if seconds is None else seconds, processes, json_file
        )
        return
    if group == "faults":
        bench_faults(only, quick, seconds, json_file)
        return
    from trimtab.bench.cases import Setup

    setup = Setup(quick=quick, swf=swf, pods=pods, nodes=nodes, order=order)
    bench_rows(group, only, setup, json_file)


def bench_rows(group: str, only: list[str] | None, setup: Any, json_file: str | None) -> None:
    """Measure one row after the other, and show what is finished also after Ctrl-C."""
    from trimtab.bench.rows import chosen, header, measured

    names = chosen(only, group)
    rows: list[Any] = []
    interrupted = False
    try:
        with bar("measuring", len(names)) as step:
            for row in measured(setup, names, lambda name: step(name, 0), group):
                rows.append(row)
                step(row.name, 1)
    except KeyboardInterrupt:
        interrupted = True
    if json_file:
        write_json(json_file, [row.as_json() for row in rows])
    if rows and json_file != "-":
        show_speeds(rows, header(setup))
    if interrupted:
        say(f"stopped after {len(rows)} of {len(names)} rows; what is finished is above")
        sys.exit(130)  # outside standalone mode typer.Exit would become a return value


def show_speeds(rows: list[Any], header: str) -> None:
    """The table of a benchmark on the terminal."""
    out.print(header, highlight=False, soft_wrap=True, markup=False, style="dim")
    table = Table(box=SIMPLE, collapse_padding=True, pad_edge=False)  # fits 80 characters
    for column in ("name", "value", "unit", "peer", "its value", "ratio"):
        left = column in ("name", "unit", "peer")
        table.add_column(column, justify="left" if left else "right", no_wrap=True)
    for row in rows:
        peer = ("", "", "")
        if row.peer is not None:
            peer = (row.peer, three_digits(row.peers[row.peer]), f"{three_digits(row.ratio)} x")
        table.add_row(row.name, three_digits(row.value), row.unit, *peer)
    out.print(table)
