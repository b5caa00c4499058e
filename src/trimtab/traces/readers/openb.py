"""Read Alibaba's openb trace (GPU cluster of 2023): nodes, pods, and a given order of arrival.

Columns keep their names and units: cpu_milli, memory_mib, gpu and num_gpu in devices, gpu_milli of
each GPU, times in seconds from the first pod. Files may be compressed (.gz, .xz).
"""

import csv
import gzip
import json
import lzma
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from trimtab.build import cluster, workload
from trimtab.core import Cluster, Workload
from trimtab.errors import TraceError

GPU_MILLI = 1000
RESOURCES = ("cpu", "mem_gb", "gpu")
# GPU models of the trace as node kinds; nodes without GPUs are kind 0
KINDS = ("cpu", "A10", "G1", "G2", "G3", "P100", "T4", "V100M16", "V100M32")
POD_PREFIX = "openb-pod-"
TUNED = re.compile(r"-tuned-\d+$")  # a copy that brings the list up to a load
DAMAGED = (OSError, EOFError, lzma.LZMAError, UnicodeDecodeError, csv.Error)

NODE_COLUMNS = {"sn": str, "cpu_milli": int, "memory_mib": int, "gpu": int, "model": str}
POD_COLUMNS = {
    "name": str,
    "cpu_milli": int,
    "memory_mib": int,
    "num_gpu": int,
    "gpu_milli": int,
    "gpu_spec": str,
    "qos": str,
    "pod_phase": str,
    "creation_time": float,
    "deletion_time": float,
    "scheduled_time": float,  # NaN: never scheduled
}
POD_NEEDS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")  # some lists stop here


class Order(NamedTuple):
    """An order of arrival and the tie-break that belongs to it."""

    pods: list[str]  # names, a pod may come again
    node_prefix: np.ndarray | None  # (N,) of the i-th node by name; the smallest wins a tie


def read_nodes(path: str | Path) -> dict[str, np.ndarray]:
    """The columns of a node list; model is "" for a node without GPUs."""
    table, lines = _columns(path, NODE_COLUMNS, tuple(NODE_COLUMNS))
    _refuse_repeats(path, "sn", table["sn"], lines)
    for i in np.flatnonzero((table["gpu"] > 0) & (table["model"] == "")):
        raise TraceError(f"{path}:{lines[i]}: model= is empty on a node with GPUs; name its model")
    return table


def read_pods(path: str | Path) -> dict[str, np.ndarray]:
    """The columns of a pod list; gpu_spec is "" everywhere where the file has none."""
    table, lines = _columns(path, POD_COLUMNS, POD_NEEDS)
    _refuse_repeats(path, "name", table["name"], lines)
    num_gpu, gpu_milli = table["num_gpu"], table["gpu_milli"]
    low = np.where(num_gpu == 0, 0, np.where(num_gpu == 1, 1, GPU_MILLI))
    high = np.where(num_gpu == 0, 0, GPU_MILLI)
    for i in np.flatnonzero((gpu_milli < low) | (gpu_milli > high)):
        allowed = f"{low[i]}..{high[i]}" if low[i] < high[i] else f"{low[i]}"
        raise TraceError(
            f"{path}:{lines[i]}: gpu_milli={gpu_milli[i]} with num_gpu={num_gpu[i]} cannot be "
            f"placed; make it {allowed} (only one GPU can be shared)"
        )
    table.setdefault("gpu_spec", np.full(len(lines), ""))
    return table


def read_workload(path: str | Path, *, lenient: bool = False) -> Workload:
    """The pods of a list as jobs that come and leave as they did; undeleted ones run to the end.

    `lenient` drops and counts pods that end before they begin; the columns are checked either way.
    """
    pods = read_pods(path)
    if "creation_time" not in pods:
        raise TraceError(
            f"{path}: has no creation_time, so the pods cannot be replayed in time; "
            f"pack them in a given order instead (compare fgd ... --order ORDER.json)"
        )
    begin_s = pods["creation_time"]
    run_s = pods["deletion_time"] - np.fmax(pods["scheduled_time"], begin_s)
    run_s = np.where(np.isnan(run_s), pods["deletion_time"] - begin_s, run_s)
    bad = ~(run_s > 0)
    if bad.any() and not lenient:
        row = int(np.flatnonzero(bad)[0])
        raise TraceError(
            f"{path}: pod {pods['name'][row]}: deletion_time={pods['deletion_time'][row]:g} is "
            f"not after creation_time={begin_s[row]:g}; drop the row or read with --lenient "
            f"({int(bad.sum())} such rows)"
        )
    rows = np.flatnonzero(~bad)
    rows = rows[np.argsort(begin_s[rows], kind="stable")]
    gpus = pods["num_gpu"][rows]
    share = np.where(gpus == 1, pods["gpu_milli"][rows] / GPU_MILLI, 1.0)
    return workload(
        begin_s[rows],
        run_s[rows],
        np.stack(
            (pods["cpu_milli"][rows] / 1000, pods["memory_mib"][rows] / 1024, gpus * share), 1
        ),
        resources=RESOURCES,
        gpus=gpus,
        gpu_share=share,
        node_kinds=[_accepted(spec) for spec in pods["gpu_spec"][rows]],
        job_id=pods["name"][rows],
        source=str(path),
        meta={"dropped": {"not after its creation": int(bad.sum())}} if bad.any() else {},
    )


def read_cluster(path: str | Path) -> Cluster:
    """The nodes of a list as a cluster; a GPU model is a node kind."""
    return cluster_of(read_nodes(path), str(path))


def cluster_of(nodes: dict[str, np.ndarray], source: str) -> Cluster:
    """The same of a list's columns."""
    kind = [_model(source, name) if name else 0 for name in nodes["model"]]
    return cluster(
        np.stack((nodes["cpu_milli"] / 1000, nodes["memory_mib"] / 1024, nodes["gpu"]), 1),
        resources=RESOURCES,
        kind=kind,
        kinds=KINDS,
        names=nodes["sn"],
        source=source,
    )


def _model(where: object, name: str) -> int:
    if name not in KINDS:
        raise TraceError(f"{where}: model={name} is unknown; known models: {', '.join(KINDS[1:])}")
    return KINDS.index(name)


def _accepted(spec: str) -> int:
    """Bit mask of the node kinds a gpu_spec such as `V100M16|V100M32` allows; empty allows all."""
    if not spec:
        return (1 << 64) - 1
    return sum(1 << _model("gpu_spec", name) for name in set(spec.split("|")))


def read_order(path: str | Path, entry: str | None = None) -> Order:
    """An order of arrival: a JSON object with `pod_order` and, optionally, `node_prefix`.

    entry names one of several such objects in one file.
    """
    try:
        with _open(path) as file:
            found = json.load(file)
    except json.JSONDecodeError as error:
        raise TraceError(f"{path}:{error.lineno}: not JSON ({error.msg}); give an order") from None
    except DAMAGED as error:
        raise TraceError(f"{path}: {error}; fetch the file again, it is damaged") from None
    if isinstance(found, dict) and "pod_order" not in found and found:
        if entry is None and len(found) == 1:
            entry = next(iter(found))
        if entry not in found:
            names = ", ".join(found)
            raise TraceError(f"{path}: entry={entry} is not in the file; choose one of {names}")
        found = found[entry]
    pods = found.get("pod_order") if isinstance(found, dict) else None
    if not isinstance(pods, list) or not all(isinstance(name, str) for name in pods):
        raise TraceError(f"{path}: pod_order is not a list of pod names; give one")
    prefix = found.get("node_prefix")
    if prefix is None:
        return Order(pods, None)
    if not isinstance(prefix, list) or not all(type(p) is int for p in prefix):
        raise TraceError(f"{path}: node_prefix is not a list of whole numbers; give one a node")
    if len(set(prefix)) < len(prefix):
        twice = next(p for i, p in enumerate(prefix) if p in prefix[:i])
        raise TraceError(f"{path}: node_prefix={twice} comes twice; ties need different numbers")
    return Order(pods, np.array(prefix, np.int64))


def order_rows(order: Order, names: np.ndarray) -> np.ndarray:
    """Rows of the pods in order of arrival. A name may lack its prefix or end in `-tuned-k`."""
    row = {str(name): i for i, name in enumerate(names)}
    rows = np.empty(len(order.pods), np.int64)
    for i, name in enumerate(order.pods):
        pod = name if name in row else TUNED.sub("", name)
        found = row.get(pod, row.get(POD_PREFIX + pod))
        if found is None:
            raise TraceError(
                f"pod_order[{i}]={name} is not in the pod list; give the list the order was made of"
            )
        rows[i] = found
    return rows


def _open(path: str | Path) -> IO[str]:
    openers: dict[str, Callable[..., IO[str]]] = {".gz": gzip.open, ".xz": lzma.open}
    opener = openers.get(Path(path).suffix, open)
    try:
        return opener(path, "rt", encoding="utf-8", newline="")
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror}; give a file that can be read") from None


def _columns(
    path: str | Path, types: dict[str, type], needed: Sequence[str]
) -> tuple[dict[str, np.ndarray], list[int]]:
    """The file's columns and each row's line in the file; unknown columns stay strings."""
    try:
        with _open(path) as file:
            reader = csv.reader(file)
            header = next(reader, [])
            table = [(reader.line_num, row) for row in reader if row]
    except DAMAGED as error:
        raise TraceError(f"{path}: {error}; fetch the file again, it is damaged") from None
    for name in needed:
        if name not in header:
            raise TraceError(f"{path}:1: column {name} is missing; give an openb list")
    if not table:
        raise TraceError(f"{path}:1: the list has no rows; give at least one")
    for line, row in table:
        if len(row) != len(header):
            raise TraceError(f"{path}:{line}: {len(row)} fields; write {len(header)}, one a column")
    lines = [line for line, _ in table]
    columns = {}
    for c, name in enumerate(header):
        texts = [row[c] for _, row in table]
        columns[name] = _parse(path, name, texts, lines, types.get(name, str))
    return columns, lines


def _parse(
    path: str | Path, name: str, texts: list[str], lines: list[int], kind: type
) -> np.ndarray:
    if kind is str:
        return np.array(texts, dtype=np.str_)
    values = np.empty(len(texts), np.int64 if kind is int else np.float64)
    for i, text in enumerate(texts):
        try:
            values[i] = np.nan if kind is float and text == "" else kind(text)
        except (ValueError, OverflowError):
            raise TraceError(
                f"{path}:{lines[i]}: {name}={text} is not a number; correct or drop the row"
            ) from None
        if text and not 0 <= values[i] < np.inf:
            raise TraceError(
                f"{path}:{lines[i]}: {name}={text} is negative or endless; correct or drop the row"
            )
    return values


def _refuse_repeats(path: str | Path, name: str, texts: np.ndarray, lines: list[int]) -> None:
    first: dict[str, int] = {}
    for text, line in zip(texts.tolist(), lines):
        if text in first:
            raise TraceError(
                f"{path}:{line}: {name}={text} is also in line {first[text]}; drop one"
            )
        first[text] = line
