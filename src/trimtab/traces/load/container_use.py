"""Read more of Alibaba's use of 2018: containers, and the mean of the whole cluster."""

from pathlib import Path

import numpy as np
import pyarrow as pa

from trimtab.errors import TraceError
from trimtab.load.samples import Samples
from trimtab.traces.load.cpu_use import csv_table, floats, members, of_measures

CONTAINER_COLUMNS = (
    "container_id",
    "machine_id",
    "time_stamp",
    "cpu_util_percent",
    "mem_util_percent",
    "cpi",
    "mem_gps",
    "mpki",
    "net_in",
    "net_out",
    "disk_io_percent",
)
CONTAINER_MEASURES = {
    "cpu": "cpu_util_percent",
    "mem": "mem_util_percent",
    "net_in": "net_in",
    "net_out": "net_out",
    "disk": "disk_io_percent",
}
CLUSTER_COLUMNS = (
    "cpu_util_percent",
    "mem_util_percent",
    "net_in",
    "net_out",
    "disk_io_percent",
)
DAYS = 8  # that the trace has
LEAST_S = 30.0  # the published means are of 30 s or of a multiple of it


def read_container_usage(path: str | Path) -> Samples:
    """Load of Alibaba's containers (container_usage of 2018), in seconds from the trace's start.

    A container without an id is known by its machine. Percents outside 0..100 become NaN.
    """
    path = Path(path)
    data = next(members(path), ("", b""))[1]
    table = csv_table(
        data,
        f"{path}",
        ",",
        dict.fromkeys(CONTAINER_COLUMNS[:2], pa.string())
        | dict.fromkeys(CONTAINER_COLUMNS[2:], pa.float64()),
        column_names=CONTAINER_COLUMNS,
        skip_rows=int(data.startswith(b"container_id")),
    )
    given, machine = (table[name].to_pylist() for name in CONTAINER_COLUMNS[:2])
    names = np.array([one or f"on {there}" for one, there in zip(given, machine)])
    time_s = floats(table, "time_stamp")
    if not np.isfinite(time_s).any():
        raise TraceError(f"{path}: no row has a time_stamp; give container_usage as published")
    kept = np.isfinite(time_s)
    used, node = np.unique(names[kept], return_inverse=True)
    measured = {}
    for name, column in CONTAINER_MEASURES.items():
        percent = floats(table, column)[kept]
        measured[name] = np.where((percent < 0) | (percent > 100), np.nan, percent) / 100
    source = f"Alibaba 2018: {path.name}"
    return of_measures(time_s[kept], node, measured, used.tolist(), source)


def read_cluster_usage(path: str | Path) -> Samples:
    """The mean of all machines of Alibaba 2018, one row a step and no time: one machine `cluster`.

    The step is what makes eight days of so many rows, a multiple of 30 s.
    """
    path = Path(path)
    data = next(members(path), ("", b""))[1]
    table = csv_table(data, f"{path}", ",", dict.fromkeys(CLUSTER_COLUMNS, pa.float64()))
    rows = table.num_rows
    if rows < DAYS:
        raise TraceError(f"{path}: has {rows} rows; give the means of all {DAYS} days")
    step_s = max(np.rint(DAYS * 86400.0 / rows / LEAST_S), 1.0) * LEAST_S
    names = ("cpu", "mem", "net_in", "net_out", "disk")
    measured = {name: floats(table, column) / 100 for name, column in zip(names, CLUSTER_COLUMNS)}
    return of_measures(
        step_s * np.arange(rows), np.zeros(rows), measured, ["cluster"],
        f"Alibaba 2018: {path.name}",
    )  # fmt: skip
