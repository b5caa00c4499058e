"""The folder of a twin: its options, and Parquet files that are whole or not there.

A file has its counts of rows and dirt in the footer, and the next run keeps it. Nothing in a file
tells when it was written.
"""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from trimtab.errors import TraceError
from trimtab.files import whole, write_whole
from trimtab.traces.twin.columns import Chunk, arrow, rows_of, schema_of
from trimtab.traces.twin.dirt import KINDS
from trimtab.traces.twin.plan import Options

SINGLE = ("machine_meta", "container_meta", "batch_task")  # tables of one file
PARTED = ("machine_usage", "container_usage", "batch_instance")  # a folder, a file an hour
ROW_GROUP_ROWS = 1_000_000
COUNTS_KEY = b"trimtab.twin"
OPTIONS_FILE = "twin.json"


def opened(out: Path, options: Options) -> None:
    """Make the folder, or check that it holds the same twin and clear what was cut short."""
    path = out / OPTIONS_FILE
    wanted = options._asdict()
    if not path.exists():
        foreign = [name for name in (*SINGLE, *PARTED) if _place(out, name).exists()]
        if foreign:
            raise TraceError(
                f"{out}: holds {foreign[0]} but no {OPTIONS_FILE}, so it is no twin of ours;"
                " give an empty folder"
            )
        out.mkdir(parents=True, exist_ok=True)
        _written(path, wanted)
        return
    found = _read(path)
    for name, value in wanted.items():
        if found.get(name) != value:
            raise TraceError(
                f"{path}: {name} is {found.get(name)!r} there and {value!r} here;"
                " give the same options to go on with that twin, or another folder"
            )
    for unfinished in out.rglob(".*.part"):
        unfinished.unlink()


def closed(out: Path, options: Options, made: dict[str, Any]) -> None:
    """Add what was made to the options, so that a cleaner can be checked against it."""
    _written(out / OPTIONS_FILE, {**options._asdict(), "made": made})


def path_of(out: Path, table: str, period: int | None = None) -> Path:
    """The file of a table, or of one hour of it."""
    place = _place(out, table)
    return place if period is None else place / f"part-{period:05d}.parquet"


def write(path: Path, table: str, chunks: Iterator[tuple[Chunk, dict[str, int]]]) -> None:
    """Write a file of the table unless it is there. Small chunks share a row group."""
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    schema = schema_of(table)
    rows, dirt = 0, Counter(dict.fromkeys(KINDS[table], 0))
    waiting: list[pa.Table] = []
    with (
        whole(path) as place,
        pq.ParquetWriter(place, schema, **_writing(schema)) as writer,
    ):
        for chunk, spoilt in chunks:
            rows += rows_of(chunk)
            dirt.update(spoilt)
            if waiting and sum(one.num_rows for one in waiting) + rows_of(chunk) > ROW_GROUP_ROWS:
                _flush(writer, waiting)
            waiting.append(arrow(table, chunk))
        _flush(writer, waiting)
        counts = json.dumps({"rows": rows, "dirt": dict(dirt)}, sort_keys=True)
        writer.add_key_value_metadata({COUNTS_KEY: counts})


def counts(path: Path) -> dict[str, Any]:
    """Rows and dirt of a file, from its footer."""
    metadata = pq.read_metadata(path).metadata or {}
    if COUNTS_KEY not in metadata:
        raise TraceError(f"{path}: has no counts in its footer; delete it and make the twin again")
    return json.loads(metadata[COUNTS_KEY])


def _flush(writer: pq.ParquetWriter, waiting: list[pa.Table]) -> None:
    """Write the tables as one row group, and forget them."""
    if waiting:
        one = waiting[0]
        if len(waiting) > 1:
            one = pa.concat_tables(waiting).unify_dictionaries().combine_chunks()
        writer.write_table(one, row_group_size=ROW_GROUP_ROWS + ROW_GROUP_ROWS // 10)
    waiting.clear()


def _writing(schema: pa.Schema) -> dict[str, Any]:
    return {
        "compression": "zstd",
        "compression_level": 1,
        "use_dictionary": [name for name in schema.names if name != "instance_name"],
        "write_statistics": ["start_time", "end_time", "time_stamp"],
        "store_schema": False,  # plain strings to any reader, not Arrow's dictionaries
        "version": "2.6",
    }


def _place(out: Path, table: str) -> Path:
    return out / (f"{table}.parquet" if table in SINGLE else table)


def _written(path: Path, content: dict[str, Any]) -> None:
    write_whole(path, json.dumps(content, indent=1) + "\n")


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise TraceError(f"{path}: is not JSON ({error}); delete it and its folder") from error
    if not isinstance(found, dict):
        raise TraceError(f"{path}: holds no options; delete it and its folder")
    return found
