"""Samples of load as one Parquet file, and one door to every file that holds load.

Columns are `time_s`, `node_name` and the measures of `Samples` (ratios 0..1, empty or NaN = not
measured). A file made elsewhere needs the first two and one measure.
"""

import json
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from trimtab.arrays import Array
from trimtab.errors import TraceError
from trimtab.load.samples import Samples
from trimtab.traces.load.container_use import (
    CLUSTER_COLUMNS,
    CONTAINER_COLUMNS,
    read_cluster_usage,
    read_container_usage,
)
from trimtab.traces.load.cpu_use import (
    ALIBABA_COLUMNS,
    BITBRAINS_COLUMNS,
    MEASURES,
    members,
    read_bitbrains,
    read_machine_usage,
    read_planetlab,
)
from trimtab.traces.readers.parquet import write_table

SCHEMA_VERSION = 1
KEY = b"trimtab.samples"
KNOWN = (
    "samples that trimtab saved (.parquet), Alibaba's machine_usage, container_usage or the mean "
    "of its cluster (.csv, also packed), "
    "PlanetLab (a folder of days or its archive), Bitbrains (a folder of .csv files or its "
    "archive, or OpenDC's fragments and tasks .parquet)"
)
SNIFFED_FILES = 20  # an archive may begin with notes on the trace
SNIFFED_BYTES = 65536


def save_samples(samples: Samples, path: str | Path) -> None:
    """Write samples whole: the file appears under its name only when it is complete."""
    path = Path(path)
    if len(set(samples.names)) < len(samples.names):
        twice = next(name for name in samples.names if samples.names.count(name) > 1)
        raise TraceError(f"{path}: names has {twice!r} twice; give each machine its own name")
    node = np.asarray(samples.node, np.int32)
    if len(node) and not 0 <= node.min() <= node.max() < len(samples.names):
        raise TraceError(
            f"{path}: node={node.max() if node.min() >= 0 else node.min()} is no row of the "
            f"{len(samples.names)} names; name every machine"
        )
    columns = {
        "time_s": pa.array(np.asarray(samples.time_s, np.float64)),
        "node_name": pa.DictionaryArray.from_arrays(
            pa.array(node), pa.array(samples.names, pa.string())
        ),
    }
    for name in MEASURES:
        columns[name] = pa.array(np.asarray(getattr(samples, name), np.float64))
    rest = {
        "schema_version": SCHEMA_VERSION,
        "names": samples.names,
        "source": samples.source,
    }
    table = pa.table(columns).replace_schema_metadata({KEY: json.dumps(rest).encode()})
    write_table(table, path)


def load_samples(path: str | Path) -> Samples:
    """The samples in a Parquet file."""
    path = Path(path)
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        problem = f"cannot be read as Parquet ({error})"
        raise TraceError(f"{path}: {problem}; give a file that trimtab saved") from None
    stored = (table.schema.metadata or {}).get(KEY)
    rest = json.loads(stored) if stored else {}
    if rest.get("schema_version", SCHEMA_VERSION) > SCHEMA_VERSION:
        raise TraceError(
            f"{path}: schema_version={rest['schema_version']} is newer than {SCHEMA_VERSION}, "
            f"which this trimtab reads; upgrade trimtab"
        )
    _require(table, path)
    time_s = _numbers(table, "time_s", path)
    if not np.isfinite(time_s).all():
        row = int(np.flatnonzero(~np.isfinite(time_s))[0])
        raise TraceError(f"{path}: row {row}: time_s is empty; fill it or drop the row")
    node, names = _nodes(table, rest.get("names", []), path)
    columns = {
        name: _numbers(table, name, path)
        if name in table.column_names
        else np.full(len(time_s), np.nan)
        for name in MEASURES
    }
    source = rest.get("source", path.name)
    return Samples(time_s, node, **columns, names=names, source=source)


READERS = {  # kind of load: its reader
    "saved": load_samples,
    "alibaba": read_machine_usage,
    "containers": read_container_usage,
    "cluster": read_cluster_usage,
    "planetlab": read_planetlab,
    "bitbrains": read_bitbrains,
}


def read_samples(source: str | Path) -> Samples:
    """The load in a file or folder, whose kind its content tells."""
    path = Path(source)
    if str(source).startswith(("http://", "https://")):
        raise TraceError(
            f"{source}: is an address; ask a Prometheus server with prometheus.query_range, which "
            f"needs start_s and end_s"
        )
    kind = samples_kind(path)
    if kind not in READERS:
        raise TraceError(f"{path}: the kind of load is unknown ({kind}); give {KNOWN}")
    return READERS[kind](path)


def samples_kind(path: str | Path) -> str:
    """A key of READERS, or in words what the file looks like."""
    path = Path(path)
    if path.is_dir() and sorted(path.glob("*fragments.parquet")):
        return "bitbrains"
    if path.suffix == ".parquet" and path.is_file():
        return _parquet_kind(path)
    looks = "it holds no files"
    for name, data in islice(members(path), SNIFFED_FILES):
        kind = _text_kind(data[:SNIFFED_BYTES])
        if kind in READERS:
            return kind
        looks = f"{name}: {kind}"
    return looks


def _parquet_kind(path: Path) -> str:
    try:
        names = pq.read_schema(path).names
    except (OSError, pa.ArrowException) as error:
        return f"it cannot be read as Parquet: {error}"
    if "node_name" in names:
        return "saved"
    if {"id", "cpu_usage"} <= set(names) or {"id", "cpu_capacity"} <= set(names):
        return "bitbrains"
    return f"its columns are {', '.join(names)}"


def _text_kind(data: bytes) -> str:
    line = data.split(b"\n", 1)[0].decode("utf-8", "replace").strip()
    if line.startswith(BITBRAINS_COLUMNS["time"]):
        return "bitbrains"
    fields = line.split(",")
    if tuple(fields) == CLUSTER_COLUMNS:
        return "cluster"
    if len(fields) == len(CONTAINER_COLUMNS) and (
        fields[0] == CONTAINER_COLUMNS[0] or _is_number(fields[2])
    ):
        return "containers"
    if len(fields) == len(ALIBABA_COLUMNS) and (
        fields[0] == ALIBABA_COLUMNS[0] or _is_number(fields[1])
    ):
        return "alibaba"
    if line.isdigit() and all(word.isdigit() for word in data.split()[:100]):
        return "planetlab"
    return f"its first line is {line[:60]!r}" if line else "it is empty"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _require(table: pa.Table, path: Path) -> None:
    have = table.column_names
    lacks = [name for name in ("time_s", "node_name") if name not in have]
    if not set(MEASURES) & set(have):
        lacks.append(f"one of {', '.join(MEASURES)}")
    if lacks:
        raise TraceError(
            f"{path}: lacks the column {', '.join(lacks)}; samples need time_s, node_name and a "
            f"measure; the file has: {', '.join(have)}"
        )


def _numbers(table: pa.Table, name: str, path: Path) -> Array:
    """A column with NaN where it is empty."""
    try:
        return table[name].cast(pa.float64()).to_numpy().copy()
    except pa.ArrowException as error:
        raise TraceError(f"{path}: column {name!r}: {error}; store numbers") from None


def _nodes(table: pa.Table, stored: list[str], path: Path) -> tuple[Array, tuple[str, ...]]:
    """Row of each sample's machine in the names: those stored, then those new to the column."""
    column = table["node_name"]
    if column.null_count:
        row = column.is_null().to_pylist().index(True)
        raise TraceError(f"{path}: row {row}: node_name is empty; fill it or drop the row")
    if not len(column):
        return np.zeros(0, np.int64), tuple(stored)
    coded = column.cast(pa.string()).combine_chunks().dictionary_encode()
    held = coded.dictionary.to_pylist()
    names = list(dict.fromkeys((*stored, *held)))
    row_of = {name: row for row, name in enumerate(names)}
    return np.array([row_of[name] for name in held])[coded.indices.to_numpy()], tuple(names)
