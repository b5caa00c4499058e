"""Reads a piece of a large table, cleans its rows and routes them to the periods they fall in.

A piece becomes one file in `.work/rows`: record batches, each of one period, and beside it a JSON
file with the periods in order and what was removed. A row that spans periods goes to each of them.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from trimtab.arrays import Array
from trimtab.compiled import compiled
from trimtab.files import whole, write_whole
from trimtab.traces.alibaba2018.rows import Piece, lines_before, parquet_rows, readable, text_rows
from trimtab.traces.alibaba2018.tables import MOST_S, TABLES
from trimtab.traces.prepare.meta import SPAN, quoted, refuse_units
from trimtab.traces.prepare.plan import Plan
from trimtab.traces.prepare.rules import RULES, number_of, verdict

BEFORE_S = 30  # the raw series that a report draws beside the clean one has a point so often
RAW = ("n", "cpu", "cpu_square", "mem")  # of machine samples a point
LARGE = ("machine_usage", "container_usage", "batch_instance")
COMPRESSION = pa.ipc.IpcWriteOptions(compression="lz4")

SELECT = {
    "machine_usage": """
        SELECT machine_id, time_stamp, cpu_util_percent AS cpu, mem_util_percent AS mem,
            net_in, net_out, disk_io_percent AS disk, machines.node
        FROM rows LEFT JOIN machines USING (machine_id)
    """,
    "container_usage": """
        SELECT container_id, time_stamp, cpu_util_percent AS cpu, mem_util_percent AS mem,
            services.service, services.share_cpu, services.share_mem
        FROM rows LEFT JOIN services USING (container_id)
    """,
    "batch_instance": """
        SELECT rows.*, hash(job_name, task_name) AS key,
            machines.node, machines.cores, machines.memory
        FROM rows LEFT JOIN machines USING (machine_id)
    """,
}
NAN = "'NaN'::DOUBLE"
MASKED = f"(CASE WHEN {{0}} BETWEEN 0 AND 100 THEN {{0}} / 100 ELSE {NAN} END)::FLOAT AS {{0}}"
NUMBER = f"coalesce({{0}}, {NAN})::FLOAT"
SECOND = f"coalesce(least(greatest({{0}}, 0), {MOST_S}), 0)"
COLUMNS = {
    "machine_usage": f"""
        coalesce(node, -1)::INTEGER AS node,
        round({SECOND.format("time_stamp")} * 1000)::BIGINT AS time_ms,
        {NUMBER.format("cpu / 100")} AS cpu, {NUMBER.format("mem / 100")} AS mem,
        {MASKED.format("net_in")}, {MASKED.format("net_out")}, {MASKED.format("disk")}
    """,
    "container_usage": f"""
        coalesce(service, -1)::INTEGER AS service,
        round({SECOND.format("time_stamp")} * 1000)::BIGINT AS time_ms,
        {NUMBER.format("cpu / 100 * share_cpu")} AS cpu,
        {NUMBER.format("mem / 100 * share_mem")} AS mem
    """,
    "batch_instance": f"""
        hash(key, instance_name, seq_no, start_time, end_time, machine_id, cpu_avg, mem_avg)
            AS row_hash,
        key, coalesce(node, -1)::INTEGER AS node,
        {SECOND.format("start_time")}::INTEGER AS start_s,
        {SECOND.format("end_time")}::INTEGER AS end_s,
        {NUMBER.format("cpu_avg")} AS cpu, {NUMBER.format("mem_avg")} AS mem
    """,
}


def described(db: duckdb.DuckDBPyConnection, plan: Plan) -> None:
    """The small tables that rows are joined with, in memory for all pieces of this process."""
    for view, table, columns in (
        ("machines", "machine_meta", "machine_id, node, cores, memory"),
        ("services", "container_meta", "container_id, service, cpu AS share_cpu, mem AS share_mem"),
    ):
        path = plan.work / f"{table}.parquet"
        if path.exists():
            source = f"SELECT {columns} FROM read_parquet('{quoted(path)}')"
        else:  # the columns alone: nothing will be found there
            empty = ", ".join(
                f"NULL::{'VARCHAR' if name.endswith('_id') else 'DOUBLE'} AS {name.split()[0]}"
                for name in columns.split(", ")
            )
            source = f"SELECT {columns} FROM (SELECT {empty}) WHERE false"
        db.execute(f"CREATE TABLE {view} AS {source}")


def statement(plan: Plan, table: str) -> str:
    """SQL that judges the rows of a piece and keeps the few columns the join needs."""
    without = set()
    if "machine_meta" not in plan.tables:
        without |= {"unknown-machine"}
    if "container_meta" not in plan.tables:
        without |= {"unknown-container"}
    if plan.hour and table == "batch_instance":
        without |= {"no-machine", "unknown-machine"}
    rule = verdict(table, frozenset(without))
    source = SELECT[table]
    if table == "batch_instance":
        last_s = json.loads((plan.work / SPAN).read_text())[1]
        source = f"SELECT *, {last_s} AS last_s FROM ({source})"
    return f"SELECT ({rule})::UTINYINT AS rule, {COLUMNS[table]} FROM ({source})"


def route_piece(plan: Plan, piece: Piece, db: duckdb.DuckDBPyConnection) -> str:
    """Write the rows of a piece by period; returns its name. Safe to repeat, and in any order."""
    path = plan.work / "rows" / f"{piece.name}.arrow"
    found, narrow = judged(plan, piece, db)
    names = [rule.name for rule in RULES[piece.table]]
    broken = np.bincount(found["rule"], minlength=len(names) + 1)
    told: dict[str, Any] = {"in": len(found["rule"]), "narrow": narrow, "parts": [], "rows": []}
    told["removed"] = {name: int(broken[n]) for n, name in enumerate(names, 1)}
    told["before"] = as_recorded(found) if piece.table == "machine_usage" else None
    writer = None
    with ExitStack() as writing:  # nothing is written of a piece without a sound row
        for period, batch in by_period(found, plan.period_s):
            if writer is None:
                place = writing.enter_context(whole(path))
                file = pa.ipc.new_file(place, batch.schema, options=COMPRESSION)
                writer = writing.enter_context(file)
            writer.write_batch(batch)
            told["parts"].append(int(period))
            told["rows"].append(batch.num_rows)
    write_whole(path.with_suffix(".json"), json.dumps(told))
    return piece.name


def judged(plan: Plan, piece: Piece, db: duckdb.DuckDBPyConnection) -> tuple[dict[str, Array], int]:
    """The columns of a piece with the rule that each row breaks, and lines of a wrong width."""
    narrow = 0
    with db.cursor() as cursor:
        if piece.path.suffix == ".parquet":
            source = parquet_rows(piece.table, piece.path, piece.first, piece.last)
            cursor.execute(f"CREATE OR REPLACE TEMP VIEW rows AS {source}")
        else:
            rows, narrow = text_rows(piece, plan.options.lenient)
            numbers = pa.array(np.arange(rows.num_rows))
            cursor.register("rows", rows.append_column("number", numbers))
        with readable(piece.path):
            found = cursor.execute(statement(plan, piece.table)).fetchnumpy()
        if (found["rule"] == number_of(piece.table, "bad-time")).any():
            _check_units(cursor, piece, len(found["rule"]))
    return found, narrow


def _check_units(cursor: duckdb.DuckDBPyConnection, piece: Piece, total: int) -> None:
    """A few times beyond a year are dirt; many are another unit."""
    above = 0 if piece.path.suffix == ".parquet" else lines_before(piece)
    for column in TABLES[piece.table].times:
        count, number, value = cursor.execute(
            f"SELECT count(*), min(number), arg_min({column}, number) FROM rows "
            f"WHERE {column} > {MOST_S}"
        ).fetchall()[0]
        if count:
            refuse_units(piece.path, column, total, count, above + number, value)


@compiled
def places(rule: Array, first: Array, last: Array, low: int, count: int) -> tuple[Array, Array]:
    """Rows a period in order: (ptr, idx). A row that breaks a rule is in none."""
    ptr = np.zeros(count + 1, np.int64)
    for i in range(len(rule)):
        if rule[i] == 0:
            for period in range(first[i] - low, last[i] - low + 1):
                ptr[period + 1] += 1
    ptr = np.cumsum(ptr)
    at = ptr[:-1].copy()
    idx = np.empty(ptr[-1], np.int64)
    for i in range(len(rule)):
        if rule[i] == 0:
            for period in range(first[i] - low, last[i] - low + 1):
                idx[at[period]] = i
                at[period] += 1
    return ptr, idx


def by_period(found: dict[str, Array], period_s: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The clean rows of each period that has any."""
    if "start_s" in found:
        first, last = found["start_s"] // period_s, found["end_s"] // period_s
    else:
        first = last = found["time_ms"] // (1000 * period_s)
    clean = found["rule"] == 0
    if not clean.any():
        return
    low, high = int(first[clean].min()), int(last[clean].max())
    columns = [name for name in found if name != "rule"]
    if low == high and clean.all():
        yield low, pa.RecordBatch.from_arrays([pa.array(found[name]) for name in columns], columns)
        return
    ptr, idx = places(found["rule"], first, last, low, high - low + 1)
    taken = [found[name][idx] for name in columns]
    for period in np.flatnonzero(np.diff(ptr)):
        rows = slice(ptr[period], ptr[period + 1])
        arrays = [pa.array(column[rows]) for column in taken]
        yield low + int(period), pa.RecordBatch.from_arrays(arrays, columns)


def as_recorded(found: dict[str, Array]) -> dict[str, list[int]]:
    """The samples of machines, dirt and all, summed every half minute as whole numbers."""
    cpu, mem = np.rint(found["cpu"] * 1e4), np.rint(found["mem"] * 1e4)
    seen = np.isfinite(cpu) & np.isfinite(mem)
    seen &= (found["time_ms"] > 0) & (found["time_ms"] < MOST_S * 1000)  # not what was no time
    point = found["time_ms"][seen] // (1000 * BEFORE_S)
    columns = (np.ones(len(point)), cpu[seen], cpu[seen] ** 2, mem[seen])
    sums = [np.bincount(point, column).astype(np.int64) for column in columns]
    at = np.flatnonzero(sums[0])
    told = {name: column[at].tolist() for name, column in zip(RAW, sums)}
    return {"point": at.tolist(), **told}
