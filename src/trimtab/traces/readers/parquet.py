"""One Parquet file a workload: one column a quantity, the names in the schema's metadata.

Columns are the fields of JOB and TRUTH, `demand.<resource>`, `job_id`, `after` (the rows a job
waits for), `label.<name>` for what jobs name of a site (texts) and `meta.<key>` for what meta holds
of each job. A file made elsewhere needs only `submit_s`, `work_s` and one `demand.` column; the
rest takes the defaults of `build.workload`.
"""

import base64
import io
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from trimtab.arrays import Array
from trimtab.build import workload
from trimtab.columns import JOB, TRUTH
from trimtab.core import Workload
from trimtab.errors import TraceError
from trimtab.files import refusal, whole
from trimtab.site import ASKS, Labels, labelled

SCHEMA_VERSION = 1
KEY = b"trimtab"
DEMAND, META, LABEL = "demand.", "meta.", "label."
MASKS = ("node_kinds", "shapes")
NEEDED = ("submit_s", "work_s")
COLUMNS = (*(JOB.names or ()), *(TRUTH.names or ()))


def save(work: Workload, path: str | Path) -> None:
    """Write a workload whole: the file appears under its name only when it is complete."""
    path = Path(path)
    columns: dict[str, Any] = {name: work.jobs[name] for name in JOB.names or ()}
    columns |= {name: work.truth[name] for name in TRUTH.names or ()}
    columns |= {f"{DEMAND}{name}": work.demand[:, r] for r, name in enumerate(work.resources)}
    if work.job_id is not None:
        columns["job_id"] = pa.array([str(name) for name in work.job_id], pa.string())
    if work.after_ptr is not None and work.after_idx is not None:
        columns["after"] = pa.ListArray.from_arrays(
            pa.array(work.after_ptr, pa.int32()), pa.array(work.after_idx, pa.int64())
        )
    for name, given in work.labels.items():
        columns[f"{LABEL}{name}"] = pa.DictionaryArray.from_arrays(
            pa.array(given.row, pa.int32()), pa.array(given.names, pa.string())
        )
    rest = {
        "schema_version": SCHEMA_VERSION,
        "resources": work.resources,
        "kinds": work.kinds,
        "tenants": work.tenants,
        "source": work.source,
        "pattern_step_s": work.pattern_step_s,
        "patterns": _packed(work.patterns),
        "meta": _plain(work.meta, "", len(work), columns, work.source),
    }
    columns = {
        name: column if isinstance(column, pa.Array) else pa.array(np.ascontiguousarray(column))
        for name, column in columns.items()
    }
    table = pa.table(columns).replace_schema_metadata({KEY: json.dumps(rest).encode()})
    write_table(table, path)


def write_table(table: pa.Table, path: Path) -> None:
    """Write a table; the file appears under its name only when it is complete."""
    try:
        with whole(path) as place:
            pq.write_table(table, place, compression="zstd")
    except OSError as error:
        raise TraceError(f"{path}: cannot be written: {refusal(error)}") from None


def load(path: str | Path, *, lenient: bool = False) -> Workload:
    """The workload in a Parquet file, checked as when it was made.

    What was saved is sound, so `lenient`, which every reader takes, has nothing to drop.
    """
    path = Path(path)
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        problem = f"cannot be read as Parquet ({error})"
        raise TraceError(f"{path}: {problem}; give a file that trimtab saved") from None
    rest = _rest(table, path)
    resources = rest.get("resources") or [
        name.removeprefix(DEMAND) for name in table.column_names if name.startswith(DEMAND)
    ]
    for name in (*NEEDED, *(f"{DEMAND}{resource}" for resource in resources or ["cpu"])):
        if name not in table.column_names:
            raise TraceError(
                f"{path}: column {name!r} is missing; a workload needs {', '.join(NEEDED)} and a "
                f"column {DEMAND}<resource>; the file has: {', '.join(table.column_names)}"
            )
    try:
        given = {name: _column(table, name) for name in COLUMNS if name in table.column_names}
        like = given.pop("like", None)
        made = _made(table, given, resources, rest, path)
    except TraceError as error:
        raise TraceError(f"{path}: {error}") from None
    if like is not None and _agrees(like, made.jobs["like"]):
        made.jobs["like"] = like
    return made


def _made(
    table: pa.Table,
    given: dict[str, Array],
    resources: list[str],
    rest: dict[str, Any],
    path: Path,
) -> Workload:
    return workload(
        given.pop("submit_s"),
        given.pop("work_s"),
        np.stack([_column(table, f"{DEMAND}{name}") for name in resources], axis=1),
        resources=resources,
        source=rest.get("source", path.name),
        kinds=rest.get("kinds", ("job",)),
        tenants=rest.get("tenants", ("all",)),
        job_id=table["job_id"].to_pylist() if "job_id" in table.column_names else None,
        after=_parents(table) if "after" in table.column_names else None,
        patterns=_unpacked(rest["patterns"]) if "patterns" in rest else None,
        pattern_step_s=rest.get("pattern_step_s", 300.0),
        meta=_rich(rest.get("meta", {}), table),
        labels=_labels(table),
        **given,
    )


def _labels(table: pa.Table) -> dict[str, Labels]:
    """What the jobs name, of the columns that are there; an empty field names nothing."""
    held = [name for name in ASKS if f"{LABEL}{name}" in table.column_names]
    texts = {name: table[f"{LABEL}{name}"].to_pylist() for name in held}
    return {name: labelled([text or "" for text in texts[name]]) for name in held}


def _rest(table: pa.Table, path: Path) -> dict[str, Any]:
    stored = (table.schema.metadata or {}).get(KEY)
    rest: dict[str, Any] = json.loads(stored) if stored else {}
    version = rest.get("schema_version", SCHEMA_VERSION)
    if version > SCHEMA_VERSION:
        raise TraceError(
            f"{path}: schema_version={version} is newer than {SCHEMA_VERSION}, which this trimtab "
            f"reads; upgrade trimtab"
        )
    return rest


def _column(table: pa.Table, name: str) -> Array:
    column = table[name]
    if column.null_count:
        row = column.is_null().to_pylist().index(True)
        raise TraceError(f"row {row}: {name} is empty; fill it or drop the row")
    try:
        wanted = pa.uint64() if name in MASKS else pa.float64()
        if name not in MASKS and name in COLUMNS:
            dtype = (JOB if name in (JOB.names or ()) else TRUTH)[name]
            wanted = pa.from_numpy_dtype(dtype)
        return column.cast(wanted).to_numpy()
    except pa.ArrowException as error:
        raise TraceError(f"column {name!r}: {error}; store it as {wanted}") from None


def _parents(table: pa.Table) -> tuple[Array, Array]:
    after = table["after"].combine_chunks()
    if isinstance(after, pa.ChunkedArray):  # an empty table has no chunk to combine
        after = pa.array([], pa.list_(pa.int64()))
    ptr = np.asarray(after.offsets, dtype=np.int64)
    return ptr - ptr[0], np.asarray(after.flatten(), dtype=np.int64)


def _agrees(like: Array, computed: Array) -> bool:
    """Whether jobs that the file calls alike are alike: not so after a column was edited."""
    pairs = np.unique(np.stack((like, computed)), axis=1).shape[1]
    return pairs == len(np.unique(like))


def _plain(value: Any, name: str, jobs: int, columns: dict[str, Any], source: str) -> Any:
    """What JSON can hold of meta; an array with a number a job becomes a column of the file."""
    if isinstance(value, dict):
        wrong = [key for key in value if not isinstance(key, str)]
        if wrong:
            raise TraceError(f"{source}: meta{name}: key {wrong[0]!r} is not a string; name it")
        return {k: _plain(v, f"{name}.{k}", jobs, columns, source) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v, f"{name}.{i}", jobs, columns, source) for i, v in enumerate(value)]
    if isinstance(value, np.ndarray):
        if value.shape == (jobs,) and value.dtype.kind in "biuf":
            columns[f"{META}{name[1:]}"] = value
            return {"__column__": f"{META}{name[1:]}"}
        if value.dtype.kind in "biufU":
            return {"__array__": _packed(value)}
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TraceError(
        f"{source}: meta{name}={value!r} cannot be stored; keep numbers, strings, lists, arrays"
    )


def _rich(value: Any, table: pa.Table) -> Any:
    if isinstance(value, list):
        return [_rich(item, table) for item in value]
    if not isinstance(value, dict):
        return value
    if "__array__" in value:
        return _unpacked(value["__array__"])
    if "__column__" in value:
        return table[value["__column__"]].to_numpy()
    return {key: _rich(item, table) for key, item in value.items()}


def _packed(array: Array) -> str:
    """An array as text, exact to the bit."""
    held = io.BytesIO()
    np.save(held, array, allow_pickle=False)
    return base64.b64encode(zlib.compress(held.getvalue())).decode()


def _unpacked(text: str) -> Array:
    return np.load(io.BytesIO(zlib.decompress(base64.b64decode(text))), allow_pickle=False)
