"""`trimtab trace validate`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from trimtab.cli.shown import JsonOption, MachineOption, NodesOption, out, say, write_json
from trimtab.units import duration

EPILOG = """
**Examples**

`trimtab trace validate SDSC-SP2-1998-4.2-cln.swf.xz CTC-SP2-1996-3.1-cln.swf.xz`

`trimtab trace validate log.swf.gz --policy fcfs+conservative --json -`
"""


def trace_validate(
    traces: Annotated[list[str], typer.Argument(help="Logs with recorded starts.")],
    policy: Annotated[
        str | None, typer.Option(help="Instead of the rule that the site is known to have run.")
    ] = None,
    nodes: NodesOption = None,
    machine: MachineOption = None,
    json_file: JsonOption = None,
) -> None:
    """Hold simulated waits against the recorded ones, and name reasons of the gaps."""
    from trimtab.reproduce.logs import beside

    rows = [beside(trace, policy, nodes=nodes, machine=machine) for trace in traces]
    if json_file:
        write_json(json_file, rows)
        return
    table = Table(title="recorded beside simulated waits")
    for column in ("log", "rule", "mean", "ours", "gap", "p95", "ours", "gap"):
        table.add_column(column, justify="left" if column in ("log", "rule") else "right")
    for row in rows:
        cells = [row["trace"], row["policy"]]
        for name in ("wait_mean_s", "wait_p95_s"):
            wait = row[name]
            cells += [duration(wait["recorded"]), duration(wait["simulated"])]
            cells.append(f"{wait['gap']:+.0%}")
        table.add_row(*cells)
    out.print(table)
    for row in rows:
        for told in (row["because"], *row["notes"], *([] if row["near"] else row["reasons"])):
            say(f"{row['trace']}: {told}")
