"""The one-hour extract that the package `spar` ships, as tables of the trace.

It has every job of the hour from second 203,040 on, but no start of a task or an instance, and no
machine: a task's duration counts from its job's arrival. A task's run is taken to be as long as its
longest instance and to end when the task does; its instances start together.
"""

from pathlib import Path

import duckdb

from trimtab.errors import TraceError
from trimtab.files import whole
from trimtab.traces.alibaba2018.source import TableFiles
from trimtab.traces.readers.packed import read_bytes

FIRST_S = 203_040
TASKS = f"""
COPY (
    SELECT task_name, instance_num, job_name, NULL::VARCHAR AS task_type, 'Terminated' AS status,
        {FIRST_S} + arrival AS start_time, {FIRST_S} + arrival + duration AS end_time,
        plan_cpu, plan_mem
    FROM read_csv($tasks)
) TO '{{to}}' (FORMAT parquet)
"""
INSTANCES = f"""
COPY (
    WITH run AS (
        SELECT job_name, task_name, max(duration) AS longest
        FROM read_parquet($instances) GROUP BY ALL
    )
    SELECT 'row_' || i.file_row_number AS instance_name, i.task_name, i.job_name,
        NULL::VARCHAR AS task_type, 'Terminated' AS status,
        {FIRST_S} + t.arrival + greatest(t.duration - run.longest, 0) AS start_time,
        {FIRST_S} + t.arrival + greatest(t.duration - run.longest, 0) + i.duration AS end_time,
        NULL::VARCHAR AS machine_id, 1 AS seq_no, 1 AS total_seq_no,
        i.cpu_avg, NULL::DOUBLE AS cpu_max, i.mem_avg, NULL::DOUBLE AS mem_max
    FROM read_parquet($instances, file_row_number = true) i
    JOIN run USING (job_name, task_name)
    JOIN read_csv($tasks) t USING (job_name, task_name)
    ORDER BY i.file_row_number
) TO '{{to}}' (FORMAT parquet, ROW_GROUP_SIZE 1000000)
"""


def as_tables(
    hour: tuple[Path, ...], work: Path, db: duckdb.DuckDBPyConnection
) -> dict[str, TableFiles]:
    """Write both batch tables of the extract in the official columns, once."""
    tasks, instances = hour
    work.mkdir(exist_ok=True)
    plain = work / "hour_tasks.csv"
    plain.write_bytes(read_bytes(tasks))
    given = {"tasks": str(plain), "instances": str(instances)}
    found = {}
    for table, statement in (("batch_task", TASKS), ("batch_instance", INSTANCES)):
        path = work / f"{table}.parquet"
        if not path.exists():
            named = {name: value for name, value in given.items() if f"${name}" in statement}
            try:
                with whole(path) as place:
                    db.execute(statement.format(to=str(place).replace("'", "''")), named)
            except duckdb.Error as error:
                first = str(error).splitlines()[0]
                raise TraceError(
                    f"{tasks}: cannot be read with {instances.name} as the one-hour extract "
                    f"({first}); name other files with --table"
                ) from None
        found[table] = TableFiles((path,))
    plain.unlink()
    return found
