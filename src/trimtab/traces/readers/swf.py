"""Read logs in the Standard Workload Format of the Parallel Workloads Archive.

The row rules are those of RLScheduler (SC 2020), so that results compare: rows in the order of
their job number; run time 0 dropped, negative becomes 10 s; processors = the larger of allocated
and requested; requested time -1 becomes the run time; where jobs take whole nodes, nodes =
processors / (MaxProcs / MaxNodes), rounded up. Differs: a row that lacks both times asks for the
10 s it runs, not for -1 s. Whether jobs take whole nodes or share them, `machine.py` decides.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np

from trimtab import site
from trimtab.arrays import Array
from trimtab.build import likeness, workload
from trimtab.columns import quantised
from trimtab.core import Cluster, Workload
from trimtab.errors import TraceError
from trimtab.site import Labels
from trimtab.traces.readers.bad_rows import REMEDY, BadRows
from trimtab.traces.readers.machine import (
    KB_A_GB,
    Machine,
    asks,
    gang_asks,
    machine_cluster,
    machine_of,
    most_in_use,
    sharing,
    too_large,
)
from trimtab.traces.readers.packed import read_bytes
from trimtab.traces.readers.swf_text import COLUMN, message, names_of, read_log, stated

NUMBERS_OF = (
    "job_number",
    "status",
    "user",
    "group",
    "executable",
    "queue",
    "partition",
    "preceding_job",
)
SCHEDULED_BY = {"submit_s", "request_s"}  # columns of the workload itself; the rest goes to meta
UNKNOWN_RUN_S = 10.0  # stands in for a negative run time
PARTIAL = (2, 3, 4)  # status of the pieces of a job that was swapped out; one more line sums them
LARGE = "correct MaxNodes and MaxProcs by --machine"
UNIX_S = 5e8  # no log runs for sixteen years: times above are counted from 1970


class Rows(NamedTuple):
    """The rows that are still kept."""

    table: Array  # (J, 18)
    line: Array  # (J,)

    def only(self, keep: Array) -> Rows:
        return Rows(self.table[keep], self.line[keep])

    def column(self, name: str) -> Array:
        return self.table[:, COLUMN[name]]


def read_swf(
    path: str | Path,
    *,
    lenient: bool | None = None,
    nodes: str | None = None,
    machine: str | None = None,
) -> Workload:
    """Jobs of a log (plain, .gz, .xz or .bz2) that ask for nodes or processors of its machine.

    `nodes` is "whole" or "shared" (None: by the log), `machine` such as "nodes=151,procs=2004,
    mem-gb=48" (None: the header's). `meta` holds: `header` (label: text), `swf` (the columns that
    nothing is scheduled by), `procs`, `max_procs`, `max_nodes`, `machine` (where those come from),
    `nodes`, `nodes_because`, `recorded`, `epoch_s` (seconds since 1970 of time 0), `notes` (what
    was guessed or left out) and `dropped` (reason: rows). Bad lines: see `bad_rows.py`; late rows
    are sorted unless `lenient` is False.
    """
    path = Path(path)
    log, bad = read_log(path, read_bytes(path), lenient)
    rows = _kept(Rows(log.table, log.line), path, bad)
    procs, (start_s, end_s) = _processors(rows), _recorded(rows)
    peak = most_in_use(start_s, end_s, procs) if (~np.isnan(start_s)).mean() > 0.5 else 0
    size = machine_of(log.header, machine, procs, peak)
    held = np.where(rows.column("procs_allocated") > 0, rows.column("procs_allocated"), procs)
    form, because = sharing(size, held, nodes)
    rows = _within(size, form, rows, path, bad)
    rows = rows.only(_order(rows, path, bad))
    return _workload(path, rows, size, (form, because), log.header, bad.dropped)


def swf_cluster(work: Workload) -> Cluster:
    """The machine of a workload that `read_swf` made, without reading the file again."""
    meta = work.meta
    if "max_nodes" not in meta:
        raise TraceError(
            f"{work.source}: meta lacks max_nodes; only a workload from read_swf names its machine"
        )
    memory = meta.get("node_mem_gb", 0.0)  # files of older versions lack it
    machine = Machine(meta["max_nodes"], meta["max_procs"], memory, meta["machine"])
    return machine_cluster(machine, work.resources, meta["file"])


def on_nodes(work: Workload, cluster: Cluster) -> Workload:
    """A log of processors for nodes with `cpu`: each job a gang with one instance a processor.

    Memory is asked for where the nodes have it and the log names it. All else stays as it is.
    """
    if "procs" not in work.meta or "cpu" not in cluster.resources or "node" in cluster.resources:
        return work
    mem_gb = work.meta["swf"]["mem_requested_kb"] / KB_A_GB
    known = "mem_gb" in cluster.resources and (mem_gb > 0).any()
    given = gang_asks(work.meta["procs"], np.maximum(mem_gb, 0.0) if known else None)
    given["demand"] = quantised(given["demand"])
    jobs = work.jobs.copy()
    jobs["instances"] = given.pop("instances")
    meta = {key: value for key, value in work.meta.items() if key not in ("procs", "max_procs")}
    told = "a job is a gang of one instance a processor, placed on any nodes that have room"
    if not known:
        told += "; memory is not modelled: the nodes or the log do not say"
    meta |= {"nodes": "shared", "notes": [told]}
    placed = replace(work, jobs=jobs, **given, meta=meta)
    placed.jobs["like"] = likeness(placed)
    return placed


def _kept(rows: Rows, path: Path, bad: BadRows) -> Rows:
    """Rows that can be scheduled. What the archive holds by custom is dropped also when strict."""

    def drop(gone: Array, reason: str) -> None:
        nonlocal rows
        bad.usual(int(gone.sum()), reason)
        rows = rows.only(~gone)

    def refuse(gone: Array, reason: str, name: str, values: Array, problem: str) -> None:
        nonlocal rows
        if gone.any():
            row = int(np.flatnonzero(gone)[0])
            told = message(path, rows.line[row], COLUMN[name], f"{values[row]:.10g} {problem}")
            bad.refuse(int(gone.sum()), reason, told)
            rows = rows.only(~gone)

    number = rows.column("job_number")
    repeat = np.ones(len(number), bool)
    repeat[np.unique(number, return_index=True)[1]] = False
    partial = repeat & np.isin(rows.column("status"), PARTIAL)
    repeat = repeat[~partial]
    drop(partial, "part of a job that was swapped out")
    number = rows.column("job_number")
    refuse(repeat, "job number twice", "job_number", number, "stands on an earlier line too")
    drop(rows.column("run_s") == 0, "run time 0")
    submit = rows.column("submit_s")
    refuse(submit < 0, "negative submit time", "submit_s", submit, "is negative")
    procs = _processors(rows)
    problem = "is not positive, nor are those allocated"
    refuse(procs <= 0, "no processors", "procs_requested", procs, problem)
    if not len(rows.line):
        raise TraceError(f"{path}: all jobs were dropped: {bad.dropped}; give another log")
    return rows


def _within(size: Machine, form: str, rows: Rows, path: Path, bad: BadRows) -> Rows:
    """Rows that an empty machine can run."""
    procs = _processors(rows)
    large = too_large(procs, _memory_gb(rows), size, form)
    if large.any():
        row = int(np.flatnonzero(large)[0])
        asked = rows.column("procs_requested")[row] == procs[row]
        column = COLUMN["procs_requested" if asked else "procs_allocated"]
        memory = f" with {_memory_gb(rows)[row]:.3g} GB each" if procs[row] <= size.procs else ""
        problem = f"{procs[row]:g}{memory} is more than the machine's {size.procs}"
        told = message(path, rows.line[row], column, problem)
        remedy = f"{LARGE}, or {REMEDY}"
        bad.refuse(int(large.sum()), "asks more than the machine has", told, remedy)
    if large.all():
        raise TraceError(f"{path}: all jobs were dropped: {bad.dropped}; give another log")
    return rows.only(~large)


def _order(rows: Rows, path: Path, bad: BadRows) -> Array:
    order = np.argsort(rows.column("job_number"), kind="stable")
    submit = rows.column("submit_s")[order]
    late = np.flatnonzero(np.diff(submit) < 0)
    if not len(late):
        return order
    if bad.strict:
        row = int(late[0]) + 1
        problem = f"{submit[row]:.10g} is before {submit[row - 1]:.10g} of the job number above it"
        told = message(path, rows.line[order[row]], COLUMN["submit_s"], problem)
        bad.refuse(len(late), "submit time out of order", told)
    bad.usual(len(late), "submit time out of order (sorted, not dropped)")
    return order[np.argsort(submit, kind="stable")]


def _processors(rows: Rows) -> Array:
    return np.maximum(rows.column("procs_allocated"), rows.column("procs_requested"))


def _memory_gb(rows: Rows) -> Array:
    """Requested memory of a processor, 0 where the log does not say."""
    return np.maximum(rows.column("mem_requested_kb"), 0.0) / KB_A_GB


def _recorded(rows: Rows) -> tuple[Array, Array]:
    """When each job started and ended, NaN where the log does not say."""
    wait_s, run_s = rows.column("wait_s"), rows.column("run_s")
    known = (wait_s >= 0) & (run_s >= 0)
    start_s = np.where(known, rows.column("submit_s") + wait_s, np.nan)
    return start_s, start_s + np.where(known, run_s, 0.0)


def _workload(
    path: Path,
    rows: Rows,
    size: Machine,
    form: tuple[str, str],
    header: dict[str, str],
    dropped: dict[str, int],
) -> Workload:
    procs, memory_gb = _processors(rows), _memory_gb(rows)
    run_s, request_s = rows.column("run_s"), rows.column("request_s")
    work_s = np.where(run_s < 0, UNKNOWN_RUN_S, run_s)
    columns: dict[str, Any] = {
        name: rows.column(name).astype(np.int64) if name in NUMBERS_OF else rows.column(name).copy()
        for name in COLUMN
        if name not in SCHEDULED_BY
    }
    users, tenant = np.unique(columns["user"], return_inverse=True)
    given = asks(procs, memory_gb, size, form[0])
    start_s, end_s = _recorded(rows)
    notes = [f"nodes are {'taken whole' if form[0] == 'whole' else 'shared'}: {form[1]}"]
    notes += [f"guessed: {size.told}"] if size.guessed else []
    if memory_gb.any() and "mem_gb" not in given["resources"]:
        notes.append(
            "memory is not modelled: the log says what jobs ask for, not what a node has "
            "(--machine mem-gb=N --nodes shared)"
        )
    meta: dict[str, Any] = {
        "file": path.name,
        "header": header,
        "swf": columns,
        "procs": procs,
        # RLScheduler fills a missing request before it mends the run time, so -1 may stay
        "request_logged_s": np.where(request_s < 0, run_s, request_s),
        "max_procs": size.procs,
        "max_nodes": size.nodes,
        "node_mem_gb": size.node_mem_gb,
        "machine": size.told,
        "nodes": form[0],
        "nodes_because": form[1],
        "notes": notes,
        "dropped": dropped,
    }
    if not np.isnan(start_s).all():
        meta["recorded"] = {"start_s": start_s, "end_s": end_s}
    return workload(
        rows.column("submit_s"),
        work_s,
        given.pop("demand"),
        request_s=np.where(request_s < 0, work_s, request_s),
        tenant=tenant,
        tenants=[str(user) if user >= 0 else "unknown" for user in users],
        job_id=columns["job_number"].astype(str),
        source=f"{path.name} ({size.told})" if size.guessed else path.name,
        meta=meta | _dates(header, rows.column("submit_s")),
        labels=_labels(header, columns),
        **given,
    )


def _labels(header: dict[str, str], columns: dict[str, Array]) -> dict[str, Labels]:
    """What the jobs name of a site; a column that says nothing is left out."""
    parts = "queue" if (columns["queue"] >= 0).any() else "partition"
    names = names_of(header, parts.title())
    found = {
        site.PARTITION: (columns[parts], names),
        site.USER: (columns["user"], names_of(header, "User")),
        site.ACCOUNT: (columns["group"], names_of(header, "Group")),
    }
    labels = {}
    for label, (numbers, known) in found.items():
        if (numbers >= 0).any():
            each, row = np.unique(numbers, return_inverse=True)
            texts = tuple(known.get(int(n), str(n)) if n >= 0 else "" for n in each)
            labels[label] = Labels(texts, row)
    return labels


def _dates(header: dict[str, str], submit_s: Array) -> dict[str, float]:
    """Seconds since 1970 of the log's time 0, and those that its clocks were ahead of UTC."""
    epoch_s = float(stated(header, "UnixStartTime"))
    if not epoch_s:
        return {"epoch_s": 0.0} if submit_s.min() > UNIX_S else {}
    ahead = header.get("TimeZone", "").strip()
    zone = header.get("TimeZoneString", "").strip()
    if zone:
        try:
            at = np.datetime64(int(epoch_s), "s").item()
            offset = ZoneInfo(zone).utcoffset(at)
            ahead = str(offset.total_seconds()) if offset is not None else ahead
        except (ZoneInfoNotFoundError, ValueError, OSError):
            pass  # a zone of long ago, or a machine without the tables: the number stands
    try:
        return {"epoch_s": epoch_s, "utc_offset_s": float(ahead)}
    except ValueError:
        return {"epoch_s": epoch_s}
