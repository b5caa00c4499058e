"""`trimtab bench faults`: the tables."""

from __future__ import annotations

import math
import os
import platform
import sys
from importlib.metadata import version
from typing import Any

from rich.box import SIMPLE
from rich.table import Table

from trimtab.cli.shown import command_line, out, say, went_through, write_json
from trimtab.errors import TrimtabError

HOLDS = {True: "yes", False: "NO", None: "-"}
SECONDS = 30.0
SHOWN_S = 2.0  # before the kill
QUIET_CORES = 0.2  # that others may use before the figures are theirs, too


def bench_faults(
    only: list[str] | None, quick: bool, seconds: float | None, json_file: str | None
) -> None:
    """Measure and show, and what is finished also after Ctrl-C."""
    from trimtab.bench.chosen import chosen_of
    from trimtab.bench.fault_claims import as_json
    from trimtab.bench.faults import CASES, Plan, Session

    seconds = SECONDS if seconds is None else seconds
    if not 0 < seconds <= 600:
        raise TrimtabError(f"--seconds {seconds:g}: give more than 0, and 600 s at most")
    plan = Plan(chosen_of(only, CASES, "case"), seconds)
    if quick:
        plan = plan._replace(seconds=min(seconds, 2.0), ladder=(0.7, 1.0), before_s=2, after_s=4)
    session = Session(plan)
    finished = went_through(session.run(), len(session.names))
    if json_file:
        write_json(json_file, as_json(session))
    if json_file != "-":
        show(session)
    if not finished:
        say(f"stopped after {len(session.steps)} rates; what is finished is above")
        sys.exit(130)


def show(session: Any) -> None:
    """The tables on the terminal, and what they show."""
    from trimtab.bench.fault_claims import claims

    line(header())
    if session.steps:
        line(legend(session.plan.seconds))
        out.print(rates(session))
    if session.killed is not None:
        line(f"one of two servers killed at 0 s, {session.killed.asked_hz:,.0f} requests a second")
        out.print(windows(session.killed))
    for each in claims(session):
        line(f"{HOLDS[each.holds]:>3}  {each.text}: {each.evidence}")
    others = max((step.others for step in session.steps), default=0.0)
    if others > QUIET_CORES:
        line(f"other programs kept up to {others:.1f} cores busy: measure again without them")


def line(text: str) -> None:
    out.print(text, highlight=False, soft_wrap=True, markup=False)


def header() -> str:
    """With what command it was measured, and on what."""
    machine = f"{platform.machine()}, {os.cpu_count()} cores; Python {platform.python_version()}"
    return f"{command_line()}\n{machine}; trimtab {version('trimtab')}"


def legend(seconds: float) -> str:
    return (
        f"Poisson arrivals, {seconds:g} s a flood; in time: within 100 ms of the planned moment;"
        " front, servers and clients share the cores\n"
        "refused: p50 and p99 from the planned moment, sending late included; beside: a client in"
        " a process of its own at 50/s, from sending; other cores: kept busy by other programs"
    )


def rates(session: Any) -> Table:
    """A line a rate."""
    shown = Table(box=SIMPLE, padding=0, pad_edge=False)  # fits 80 characters
    shown.add_column("", no_wrap=True)
    heads = ("asked\n/s", "in\ntime/s", "of\npeak", "refused", "p50 p99\nms", "late\nms")
    for head in (*heads, "beside\np50 p99", "MB\nstart end", "other\ncores"):
        shown.add_column(head, justify="right", no_wrap=True)
    peak = session.peak
    for step in session.steps:
        start_mb, end_mb, _ = step.memory_mb
        shown.add_row(
            step.name,
            f"{step.asked_hz:,.0f}",
            f"{step.in_time_hz:,.0f}",
            f"{step.in_time_hz / peak.in_time_hz:.0%}" if peak and peak.in_time_hz else "-",
            f"{step.refused:,}",
            two(step.refused_ms),
            f"{step.late_ms:.1f}",
            two(step.quiet_ms),
            f"{start_mb:.0f} {end_mb:.0f}",
            f"{step.others:.1f}",
        )
    return shown


def windows(killed: Any) -> Table:
    """A line a window."""
    shown = Table(box=SIMPLE, collapse_padding=True, pad_edge=False)
    for head in ("from s", "asked", "refused", "lost", "p99 ms"):
        shown.add_column(head, justify="right", no_wrap=True)
    for each in killed.windows:
        if each.from_s < -SHOWN_S:
            continue
        counts = [str(count) for count in each[1:4]]
        shown.add_row(f"{each.from_s:.1f}", *counts, f"{each.p99_ms:.0f}")
    return shown


def two(times_ms: tuple[float, float]) -> str:
    return "-" if math.isnan(times_ms[1]) else f"{times_ms[0]:.1f} {times_ms[1]:.1f}"
