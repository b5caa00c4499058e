"""`trimtab trace validate`."""

from __future__ import annotations

from typing import Annotated, Any

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
    first: Annotated[
        float, typer.Option(help="Share of the jobs off which limits are read.")
    ] = 0.5,
    nodes: NodesOption = None,
    machine: MachineOption = None,
    json_file: JsonOption = None,
) -> None:
    """Hold simulated waits against the recorded ones, and name reasons of the gaps."""
    from trimtab.reproduce.logs import beside

    rows = [beside(trace, policy, first=first, nodes=nodes, machine=machine) for trace in traces]
    if json_file:
        write_json(json_file, rows)
        return
    out.print(waits_table(rows))
    if any(row["later"] for row in rows):
        out.print(later_table(rows))
    for row in rows:
        for told in (row["because"], *row["notes"], *([] if row["near"] else row["reasons"])):
            say(f"{row['trace']}: {told}")
        if row["later"]:
            for told in limits_said(row["later"]):
                say(f"{row['trace']}: {told}")


def waits_table(rows: list[dict[str, Any]]) -> Table:
    """Whole logs."""
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
    return table


def later_table(rows: list[dict[str, Any]]) -> Table:
    """Later jobs, on as much of the machine as the first ones had."""
    table = Table(title="later jobs, on as much of the machine as the first ones had")
    for column in ("log", "usable", "mean", "all", "usable", "gap", "p95", "ours", "gap"):
        table.add_column(column, justify="left" if column == "log" else "right")
    for row in rows:
        half = row["later"]
        if half is None:
            table.add_row(row["trace"], "not known")
            continue
        mean, p95 = half["wait_mean_s"], half["wait_p95_s"]
        cells = [row["trace"], f"{half['share']:.1%}", duration(mean["recorded"])]
        cells += [duration(mean["plain"]), duration(mean["simulated"]), f"{mean['gap']:+.0%}"]
        cells += [duration(p95["recorded"]), duration(p95["simulated"]), f"{p95['gap']:+.0%}"]
        table.add_row(*cells)
    return table


def limits_said(half: dict[str, Any]) -> list[str]:
    """What was read off the first part, in words."""
    from trimtab.reproduce.limits import evidence_text

    told = [evidence_text(half["evidence"])] if half["evidence"] else []
    (early, then), (before, late) = half["users"]
    told.append(
        f"the user who waited most in the first part has {early:.0%} of its waiting and {then:.0%} "
        f"of the later, who waited most later {before:.0%} and {late:.0%}"
    )
    if half["share"] == 1:
        return [*told, "the first part waited as on the whole machine"]
    wider = f"; {half['wider']:,} wider jobs take all of it" if half["wider"] else ""
    return [
        *told,
        f"the first part waited as on {half['share']:.1%} of the machine, as --machine "
        f"{half['machine']} makes it{wider}",
    ]
