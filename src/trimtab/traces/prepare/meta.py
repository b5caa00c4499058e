"""The three tables that describe: machines, services and tasks, each cleaned whole by DuckDB."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from trimtab.errors import TraceError
from trimtab.files import whole, write_whole
from trimtab.traces.alibaba2018.rows import parquet_rows, pieces, readable, text_rows
from trimtab.traces.alibaba2018.source import TableFiles
from trimtab.traces.alibaba2018.tables import MOST_S, TABLES
from trimtab.traces.prepare.plan import Plan
from trimtab.traces.prepare.rules import RULES, number_of, verdict

CORES, MEMORY = 96.0, 100.0  # of every machine of the trace: what a task is held against without
UNITS_SHARE = 1e-3  # of the rows whose time is beyond a year: more is another unit of time
FEW = 3  # such rows, though they may be a larger share of a small file
STRAY_SHARE = 1e-2  # of the rows that lie a day or more from the rest: more is another unit too
A_DAY_S = 86_400
SPAN = "span.json"  # in the work folder: the first and last second of the trace, by its tasks

# `own` numbers the rule that a row breaks by itself: only among rows that break none is one the
# first, so that a dirty row does not take the good ones after it along.
MACHINES = """
SELECT *, cpu_num IS DISTINCT FROM first(cpu_num) OVER one
        OR mem_size IS DISTINCT FROM first(mem_size) OVER one AS changed,
    row_number() OVER one > 1 AS again
FROM (SELECT *, {own} AS own FROM rows)
WINDOW one AS (PARTITION BY machine_id, own ORDER BY time_stamp, number)
"""
SERVICES = """
SELECT *, row_number() OVER one > 1 AS again, first(time_stamp) OVER one AS deploy_s
FROM (
    SELECT *, {own} AS own FROM (
        SELECT r.*, m.node, m.cores, m.memory FROM rows r LEFT JOIN machines m USING (machine_id)
    )
)
WINDOW one AS (PARTITION BY container_id, own ORDER BY time_stamp, number)
"""
TASKS = """
SELECT *, row_number() OVER (
        PARTITION BY job_name, task_name, own ORDER BY start_time, end_time, number
    ) > 1 AS again
FROM (
    SELECT *, {own} AS own FROM (
        SELECT *, ({cores}) AS cores, ({memory}) AS memory,
            start_time < {first_s} OR start_time > {last_s} OR end_time > {last_s} AS stray
        FROM rows
    )
)
"""
# Tasks in the order of the workload: jobs as they arrive, the tasks of a job by number.
ORDERED = """
CREATE TEMP TABLE tasks AS
SELECT row_number() OVER (
        ORDER BY arrival_s, job_number, job_name, task_number, task_name
    ) - 1 AS task, *
FROM (
    SELECT job_name, task_name, hash(job_name, task_name) AS key,
        min(start_time) OVER (PARTITION BY job_name) AS arrival_s,
        try_cast(regexp_extract(job_name, '[0-9]+') AS BIGINT) AS job_number,
        try_cast(regexp_extract(task_name, '{name}', 2) AS INTEGER) AS task_number,
        regexp_extract(task_name, '{name}', 1) AS letter,
        string_split(regexp_extract(task_name, '{name}', 3)[2:], '_') AS parents,
        start_time::BIGINT AS start_s, end_time::BIGINT AS end_s,
        greatest(instance_num, 1)::BIGINT AS instances, plan_cpu, plan_mem
    FROM judged WHERE rule = 0
)
"""
TASK_NAME = "^([A-Za-z]+)([0-9]+)((?:_[0-9]+)*)$"
EDGES = """
CREATE TEMP TABLE edges AS
SELECT c.task AS child, min(p.task) AS parent, max(p.end_s) AS end_s
FROM (
    SELECT task, job_name, try_cast(unnest(parents) AS INTEGER) AS number, task_number
    FROM tasks WHERE task_number IS NOT NULL
) c LEFT JOIN tasks p ON p.job_name = c.job_name AND p.task_number = c.number
WHERE c.number IS NOT NULL AND c.number <> c.task_number
GROUP BY c.task, c.number
"""
# A task's recorded start is often its job's: it could run once its parents had ended.
WRITTEN = """
SELECT t.task, t.key, t.job_name, t.task_name, t.letter, t.arrival_s, t.start_s, t.end_s,
    greatest(t.start_s, coalesce(e.ready_s, t.start_s)) AS runnable_s,
    t.instances, t.plan_cpu, t.plan_mem, coalesce(e.after, []) AS after
FROM tasks t LEFT JOIN (
    SELECT child, max(end_s) AS ready_s, list(parent ORDER BY parent) AS after
    FROM edges WHERE parent IS NOT NULL GROUP BY child
) e ON e.child = t.task
ORDER BY t.task
"""


def staged(plan: Plan, table: str) -> tuple[str, int]:
    """SQL for the rows with their line numbers, and how many lines of a wrong width were left out.

    Text is written as Parquet first, so that the engine can pass over it as often as it needs.
    """
    found = plan.tables[table]
    if found.paths[0].suffix == ".parquet":
        return _of_parquet(table, found), 0
    path, told = plan.work / f"{table}.staged", plan.work / f"{table}.narrow.json"
    if not told.exists():
        number = count = narrow = 0
        writer = None
        for piece in pieces(table, found, plan.piece_bytes, frozenset()):
            rows, skipped = text_rows(piece, plan.options.lenient)
            number += 1 if piece.header and piece.first == 0 else 0
            numbers = pa.array(np.arange(number, number + rows.num_rows))
            rows = rows.append_column("number", numbers)
            writer = writer or pq.ParquetWriter(path, rows.schema, compression="zstd")
            writer.write_table(rows)
            number, narrow = number + rows.num_rows + skipped, narrow + skipped
            count += rows.num_rows
        if writer is None or not count:
            raise TraceError(f"{found.paths[0]}: holds no rows; download it again")
        writer.close()
        write_whole(told, json.dumps(narrow))
    return f"SELECT * FROM read_parquet('{quoted(path)}')", json.loads(told.read_text())


def _of_parquet(table: str, found: TableFiles) -> str:
    """SQL for the rows of all files, numbered through."""
    parts, number = [], 0
    for path in found.paths:
        source = parquet_rows(table, path)
        parts.append(f"SELECT * REPLACE (number + {number} AS number) FROM ({source})")
        number += pq.read_metadata(path).num_rows
    return " UNION ALL ".join(parts)


def describe_tables(plan: Plan) -> Iterator[str]:
    """Write machines, services and tasks; yields the name of each when it is done."""
    for table, make in (
        ("machine_meta", _machines),
        ("container_meta", _services),
        ("batch_task", _tasks),
    ):
        path = plan.work / f"{table}.parquet"
        if table in plan.tables and not path.exists():
            with plan.connect() as db, readable(plan.tables[table].paths[0]):
                source, narrow = staged(plan, table)
                db.execute(f"CREATE VIEW rows AS {source}")
                _check_units(db, plan, table)
                machines = plan.work / "machine_meta.parquet"
                if machines.exists():
                    db.execute(
                        f"CREATE VIEW machines AS SELECT * FROM read_parquet('{quoted(machines)}')"
                    )
                with whole(path) as place:  # last: where the table is, its counts are too
                    counts = make(db, plan, place)
                    counts["narrow"] = narrow
                    write_whole(plan.work / f"{table}.json", json.dumps(counts))
        yield table


def quoted(path: Path) -> str:
    return str(path).replace("'", "''")


def _check_units(db: duckdb.DuckDBPyConnection, plan: Plan, table: str) -> None:
    """Refuse times in another unit: seconds beyond a year in more than a few rows."""
    for column in TABLES[table].times:
        total, beyond, number, value = db.execute(
            f"SELECT (SELECT count(*) FROM rows), count(*), min(number), arg_min({column}, number) "
            f"FROM rows WHERE {column} > {MOST_S}"
        ).fetchone() or (0, 0, 0, 0)
        refuse_units(plan.tables[table].paths[0], column, total, beyond, number, value)


def refuse_units(path: Path, column: str, total: int, beyond: int, number: Any, value: Any) -> None:
    """A few times beyond a year are dirt, many another unit; `number` is the first row, from 0."""
    if _too_many(beyond, total, UNITS_SHARE):
        where = f" row {int(number) + 1}" if path.suffix == ".parquet" else int(number) + 1
        raise TraceError(
            f"{path}:{where}: {column}={value:.0f} s is beyond a year, as are {beyond:,} "
            f"of {total:,} rows: the times are not all in seconds; divide milliseconds by 1,000 "
            f"and microseconds by 1,000,000"
        )


def refuse_strays(path: Path, counts: dict[str, Any], line: str = "") -> None:
    """A few rows far from the rest of the trace are dirt, many have times in another unit."""
    stray, total = counts["removed"]["stray-time"], counts["in"]
    if _too_many(stray, total, STRAY_SHARE):
        raise TraceError(
            f"{path}{line}: {stray:,} of {total:,} rows lie more than a day from the rest of the "
            f"trace: their times are in another unit or of another trace; divide milliseconds by "
            f"1,000, or leave those rows out"
        )


def _too_many(rows: int, total: int, share: float) -> bool:
    return 2 * rows >= max(total, 1) or rows > max(share * total, FEW)


def _judge(db: duckdb.DuckDBPyConnection, plan: Plan, table: str, select: str) -> dict[str, Any]:
    """Make the table `judged` with the rule each row breaks; returns how many broke which."""
    without = frozenset() if "machine_meta" in plan.tables else frozenset({"unknown-machine"})
    own = verdict(table, without | {"changed", "repeated"})
    db.execute(
        f"CREATE TEMP TABLE judged AS SELECT *, ({verdict(table, without)})::UTINYINT AS rule "
        f"FROM ({select.replace('{own}', own)})"
    )
    found = dict(db.execute("SELECT rule, count(*) FROM judged GROUP BY rule").fetchall())
    removed = {rule.name: int(found.get(n, 0)) for n, rule in enumerate(RULES[table], 1)}
    counts = {"in": int(sum(found.values())), "kept": int(found.get(0, 0)), "removed": removed}
    if not counts["kept"]:
        refuse_empty(plan, table, counts)
    return counts


def refuse_empty(plan: Plan, table: str, counts: dict[str, Any]) -> None:
    """Nothing is left of a table: say what removed the rows."""
    if not counts["in"]:
        raise TraceError(f"{plan.tables[table].paths[0]}: holds no rows; download it again")
    most = sorted(counts["removed"].items(), key=lambda one: -one[1])[:3]
    why = ", ".join(f"{n:,} {name}" for name, n in most if n)
    raise TraceError(
        f"{plan.tables[table].paths[0]}: none of its {counts['in']:,} rows is left after cleaning "
        f"({why}); is it the whole table, and the right one?"
    )


def _copy(db: duckdb.DuckDBPyConnection, select: str, path: Path) -> None:
    db.execute(
        f"COPY ({select}) TO '{quoted(path)}' (FORMAT parquet, PRESERVE_ORDER true, "
        f"ROW_GROUP_SIZE 122880)"
    )


def _machines(db: duckdb.DuckDBPyConnection, plan: Plan, path: Path) -> dict[str, Any]:
    counts = _judge(db, plan, "machine_meta", MACHINES)
    region = "coalesce(failure_domain_2, failure_domain_1, 'unknown')"
    _copy(
        db,
        f"SELECT row_number() OVER (ORDER BY region_number, region_name, machine_number, "
        f"machine_id) - 1 AS node, *, "
        f"dense_rank() OVER (ORDER BY region_number, region_name) - 1 AS region FROM ("
        f"SELECT machine_id, {region} AS region_name, failure_domain_1 AS rack_name, "
        f"try_cast({region} AS BIGINT) AS region_number, "
        f"try_cast(regexp_extract(machine_id, '[0-9]+') AS BIGINT) AS machine_number, "
        f"cpu_num AS cores, mem_size AS memory, time_stamp AS first_s "
        f"FROM judged WHERE rule = 0) ORDER BY node",
        path,
    )
    return counts


def _services(db: duckdb.DuckDBPyConnection, plan: Plan, path: Path) -> dict[str, Any]:
    if "machine_meta" not in plan.tables:
        raise TraceError(
            f"{plan.tables['container_meta'].paths[0]}: says on which machines services run, but "
            f"machine_meta is missing; download machine_meta.tar.gz (92 KB) beside it"
        )
    counts = _judge(db, plan, "container_meta", SERVICES)
    _copy(
        db,
        "SELECT row_number() OVER (ORDER BY deploy_s, container_number, container_id) - 1 "
        "AS service, * FROM (SELECT container_id, node, app_du AS app, "
        "deploy_s::BIGINT AS deploy_s, cpu_request, mem_size, "
        "cpu_request / (100 * cores) AS cpu, mem_size / memory AS mem, "
        "try_cast(regexp_extract(container_id, '[0-9]+') AS BIGINT) AS container_number "
        "FROM judged WHERE rule = 0) ORDER BY service",
        path,
    )
    return counts


def _span(db: duckdb.DuckDBPyConnection) -> tuple[int, int]:
    """The seconds of the trace, a day more at both ends: most tasks start without a day's break."""
    hours = db.execute(
        f"SELECT floor(start_time / 3600)::BIGINT AS hour, count(*) FROM rows "
        f"WHERE start_time BETWEEN 0 AND {MOST_S} GROUP BY hour ORDER BY hour"
    ).fetchall()
    most = best = (0, 0, 0)  # (tasks, first hour, last hour)
    for hour, tasks in hours:
        if most[0] and hour - most[2] <= A_DAY_S // 3600:
            most = (most[0] + tasks, most[1], hour)
        else:
            most = (tasks, hour, hour)
        best = max(best, most)
    return best[1] * 3600 - A_DAY_S, (best[2] + 1) * 3600 + A_DAY_S


def _tasks(db: duckdb.DuckDBPyConnection, plan: Plan, path: Path) -> dict[str, Any]:
    known = "machine_meta" in plan.tables
    first_s, last_s = _span(db)
    write_whole(plan.work / SPAN, json.dumps([first_s, last_s]))
    select = TASKS.format(
        cores="SELECT max(cores) FROM machines" if known else CORES,
        memory="SELECT max(memory) FROM machines" if known else MEMORY,
        first_s=first_s, last_s=last_s, own="{own}",
    )  # fmt: skip
    counts = _judge(db, plan, "batch_task", select)
    stray = number_of("batch_task", "stray-time")
    first = db.execute(f"SELECT min(number) FROM judged WHERE rule = {stray}").fetchone()
    line = f":{first[0] + 1}" if first and first[0] is not None else ""
    refuse_strays(plan.tables["batch_task"].paths[0], counts, line)
    db.execute(ORDERED.replace("{name}", TASK_NAME))
    db.execute("DROP TABLE judged")
    same = db.execute("SELECT count(*) - count(DISTINCT key) FROM tasks").fetchone()
    if same and same[0]:
        raise TraceError(
            f"{plan.tables['batch_task'].paths[0]}: {same[0]} task names cannot be told apart by "
            f"their 64-bit hash; rename one of the jobs"
        )
    db.execute(EDGES)
    edges = db.execute("SELECT count(parent), count(*) - count(parent) FROM edges").fetchone()
    counts["edges"], counts["edges_lost"] = edges or (0, 0)
    _copy(db, WRITTEN, path)
    return counts
