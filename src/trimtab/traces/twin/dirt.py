"""Dirty rows of the kinds the real trace has, in known numbers.

A row has one kind of dirt at most. Rows that are repeated, and in the tables that others refer to
those without an id, are further rows at the end of their chunk; all others are spoilt in place.
What a dirty row refers to stays clean: the instances of a Failed task are there and Terminated.
Tasks and instances that are Running or Waiting have end 0; Waiting ones miss plan and use too.
"""

import numpy as np

from trimtab.traces.alibaba2018.published import CORES
from trimtab.traces.twin.columns import Chunk, joined, plain, rows_of, taken, text
from trimtab.traces.twin.instances import UNKNOWN_MACHINES
from trimtab.traces.twin.plan import STREAMS, Plan, stream

# Of the dirty rows of a table, the share of each kind. Shares are ours, kinds the trace's.
KINDS: dict[str, dict[str, float]] = {
    "machine_meta": {"repeated": 0.5, "empty_id": 0.5},
    "container_meta": {"repeated": 0.4, "empty_id": 0.4, "cpu_request_above_machine": 0.2},
    "machine_usage": {
        **{"repeated": 0.2, "empty_id": 0.2},
        **{"disk_io_below": 0.2, "disk_io_above": 0.2, "cpu_util_above": 0.2},
    },
    "container_usage": {
        **{"repeated": 0.2, "empty_id": 0.2},
        **{"disk_io_below": 0.2, "disk_io_above": 0.2, "cpu_util_above": 0.2},
    },
    "batch_task": {
        **{"repeated": 0.15, "empty_id": 0.05, "end_before_start": 0.3},
        **{"running": 0.25, "waiting": 0.1, "failed": 0.1, "plan_cpu_above_machine": 0.05},
    },
    "batch_instance": {
        **{"repeated": 0.15, "empty_id": 0.05, "end_before_start": 0.2},
        **{"running": 0.15, "waiting": 0.05, "failed": 0.2},
        **{"unknown_machine": 0.1, "unknown_task": 0.1},
    },
}  # fmt: skip
ID = {
    "machine_meta": "machine_id",
    "machine_usage": "machine_id",
    "container_meta": "container_id",
    "container_usage": "container_id",
    "batch_task": "job_name",
    "batch_instance": "job_name",
}
# Here a row without an id is a further one: no machine, container or task goes missing by it.
REFERRED_TO = ("machine_meta", "container_meta", "batch_task")
STATUSES = {"running": 1, "waiting": 2, "failed": 3}  # into the words of the status column
UNKNOWN_OF_WAITING = ("plan_cpu", "plan_mem", "cpu_avg", "cpu_max", "mem_avg", "mem_max")
SPOILT_VALUES = {  # kind: column and the value it gets
    "plan_cpu_above_machine": ("plan_cpu", 100 * CORES + 100),
    "cpu_request_above_machine": ("cpu_request", 100 * CORES + 100),
    "disk_io_below": ("disk_io_percent", -1),
    "disk_io_above": ("disk_io_percent", 101),
    "cpu_util_above": ("cpu_util_percent", 101),
}
MOST_BEFORE_S = 600


def soiled(plan: Plan, table: str, chunk: Chunk, *place: int) -> tuple[Chunk, dict[str, int]]:
    """The chunk with its share of dirty rows, and how many of each kind."""
    if plan.options.dirt == 0:
        return chunk, {}
    # its own stream: the clean rows are those of a twin without dirt
    rng = stream(plan, "dirt", STREAMS[table], *place)
    marked = _marked(table, rows_of(chunk), plan.options.dirt, rng)
    for kind in ("repeated", "empty_id") if table in REFERRED_TO else ("repeated",):
        before = rows_of(chunk)
        chunk = {name: joined(one, taken(one, marked[kind])) for name, one in chunk.items()}
        marked[kind] = np.arange(before, rows_of(chunk))
    for kind, rows in marked.items():
        _spoil(table, chunk, kind, rows, rng)
    return chunk, {kind: len(rows) for kind, rows in marked.items()}


def _marked(table: str, rows: int, dirt: float, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Numbers of the rows that get each kind, none twice."""
    kinds = KINDS[table]
    counts = rng.multinomial(rng.binomial(rows, dirt), list(kinds.values()))
    chosen = rng.choice(rows, counts.sum(), replace=False)
    return dict(zip(kinds, np.split(chosen, np.cumsum(counts)[:-1])))


def _spoil(table: str, chunk: Chunk, kind: str, rows: np.ndarray, rng: np.random.Generator) -> None:
    """Make rows of the chunk dirty in place."""
    some = rng.integers(1, MOST_BEFORE_S, len(rows))
    if kind == "empty_id":
        text(chunk[ID[table]]).place[rows] = -1
    elif kind == "end_before_start":
        plain(chunk["end_time"])[rows] = plain(chunk["start_time"])[rows] - some
    elif kind in STATUSES:
        text(chunk["status"]).place[rows] = STATUSES[kind]
        if kind != "failed":
            plain(chunk["end_time"])[rows] = 0
        for name in UNKNOWN_OF_WAITING if kind == "waiting" else ():
            if name in chunk:
                plain(chunk[name])[rows] = np.nan
    elif kind == "unknown_machine":
        machines = text(chunk["machine_id"])
        machines.place[rows] = len(machines.words) - 1 - some % UNKNOWN_MACHINES
    elif kind == "unknown_task":
        jobs = text(chunk["job_name"])
        jobs.place[rows] = len(jobs.words) - 1
    elif kind in SPOILT_VALUES:
        name, value = SPOILT_VALUES[kind]
        plain(chunk[name])[rows] = value
