"""`trimtab bench serve`: the tables."""

from __future__ import annotations

import os
import platform
import statistics
import sys
from typing import Any

from rich.box import SIMPLE
from rich.table import Table

from trimtab.cli.shown import command_line, out, say, went_through, write_json
from trimtab.errors import TrimtabError
from trimtab.units import three_digits

QUICK_SERVERS = ("trimtab", "trimtab-front", "bare-app")
PROCESSES_MOST = 64
HEADS = {
    "closed-1-p50": "1 client\np50 ms",
    "closed-16": "16 clients\nreq/s",
    "closed-16-p99": "\np99 ms",
    "rate": "rate at p99\n<= 50 ms",
    "cpu": "CPU\nms/req",
    "memory": "MB",
    "idle": "idle\ncores",
}


def bench_serve(
    only: list[str] | None,
    quick: bool,
    servers: list[str],
    pythons: list[str],
    rounds: int,
    seconds: float,
    processes: int,
    json_file: str | None,
) -> None:
    """Measure and show, and what is finished also after Ctrl-C."""
    from trimtab.bench.chosen import chosen_of
    from trimtab.bench.serve import CASES, Plan, Session
    from trimtab.bench.serve_hosts import interpreters, named

    if rounds < 1 or not 0 < seconds <= 60 or not 0 < processes <= PROCESSES_MOST:
        raise TrimtabError(
            f"--rounds {rounds} --seconds {seconds} --processes {processes}: give 1 round or more,"
            f" 60 s at most, and 1..{PROCESSES_MOST} processes"
        )
    words = servers or (list(QUICK_SERVERS) if quick else [])
    cases = chosen_of(only, CASES, "case")
    plan = Plan(tuple(named(words)), interpreters(pythons), cases, rounds, seconds)
    plan = plan._replace(processes=processes)
    if quick:
        plan = plan._replace(rounds=1, seconds=min(seconds, 0.3), refine=0)
    session = Session(plan)
    finished = went_through(session.run(), len(session.turns))
    if json_file:
        write_json(json_file, as_json(session))
    if json_file == "-":
        for text in closing(session):
            say(text)
    else:
        show(session)
    if not finished:
        say(f"stopped after {len(session.points)} points; what is finished is above")
        sys.exit(130)


def as_json(session: Any) -> list[dict[str, Any]]:
    """The rows, then what concerns the measurement itself."""
    rows = [row.as_json() for row in session.rows()]
    blank = {"peer": None, "peer_value": None}
    if session.points:
        used_us = statistics.median(point.generator_us for point in session.points)
        rows.append({"name": "generator-cpu", "value": used_us, "unit": "us/req", **blank})
    left = sum(session.orphans.values())
    rows.append({"name": "processes", "value": session.plan.processes, "unit": "each", **blank})
    rows.append(
        {"name": "orphans", "value": left, "unit": "processes", **blank, "servers": session.orphans}
    )
    return rows


def show(session: Any) -> None:
    """The tables on the terminal."""
    line(header(session))
    rows = session.rows()
    for case in session.plan.cases:
        found = [row for row in rows if row.case == case]
        if found:
            line(f"\n{case}")
            out.print(table(found))
            for text in ratios(found, case):
                line(text)
    line("")
    for text in closing(session):
        line(text)


def line(text: str) -> None:
    out.print(text, highlight=False, soft_wrap=True, markup=False)


def header(session: Any) -> str:
    """How it was measured and on what."""
    plan = session.plan
    versions = ", ".join(text for text in session.versions().values() if text)
    machine = f"{platform.machine()}, {os.cpu_count()} cores; Python {platform.python_version()}"
    return (
        f"{command_line()}\n{machine}; {versions}\n"
        f"medians of {plan.rounds} rounds (lowest..highest), {plan.seconds:g} s a run, one server"
        f" at a time, computing processes each: {plan.processes}; net = the shipped network at"
        " width 0.25, peers batch up to 8"
    )


def table(found: list[Any]) -> Table:
    """One case: a line a server."""
    shown = Table(box=SIMPLE, collapse_padding=True, pad_edge=False)
    shown.add_column("", no_wrap=True)
    for row in found:
        shown.add_column(HEADS[row.metric], justify="right", no_wrap=True)
    for name in found[0].servers:
        cells = []
        for row in found:
            median, low, high = row.servers[name]
            several = low != high and row.metric in ("closed-16", "rate")
            span = f"\n({three_digits(low)}..{three_digits(high)})" if several else ""
            cells.append(three_digits(median) + span)
        shown.add_row(name, *cells)
    return shown


def ratios(found: list[Any], case: str) -> list[str]:
    """What Trimtab is beside the best peer and the bare app, one line each."""
    from trimtab.bench.serve import floor_cpu

    texts = []
    for row in found:
        times = row.times(row.peer)
        if times is not None and row.metric in ("closed-1-p50", "closed-16", "rate", "cpu"):
            name = HEADS[row.metric].replace("\n", " ").strip()
            texts.append(f"  {name}: {times:.2f} times as good as {row.peer}")
    over = floor_cpu(found, case)
    if over is not None:
        texts.append(f"  CPU time a request: {over:.2f} times that of the bare app")
    return texts


def closing(session: Any) -> list[str]:
    """What concerns the measurement itself."""
    texts = [f"{name}: {why}" for name, why in session.notes.items()]
    if session.points:
        used_us = statistics.median(point.generator_us for point in session.points)
        late_ms = statistics.median(point.late_ms for point in session.points)
        texts.append(
            f"load generator: {used_us:.0f} us of CPU a request; sent {late_ms:.2f} ms late at the"
            " 99th percentile"
        )
    left = {name: count for name, count in session.orphans.items() if count}
    killed = ", ".join(f"{name} {count}" for name, count in left.items())
    texts.append(f"processes left behind after SIGTERM and killed: {killed or 'none'}")
    for point in session.points:
        if point.errors:
            kinds = ", ".join(f"{count} {kind}" for kind, count in point.errors.items())
            texts.append(f"errors of {point.server}, {point.case}: {kinds}")
    return texts
