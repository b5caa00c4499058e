"""What a folder with the six tables is like, under the names of PUBLISHED.

Reads `table.parquet` or the files of the folder `table`, of a twin or of the real trace; figures of
tables that are empty or not there are left out. Rows with a status other than Terminated, an end
before the start or a plan above a machine do not count; repeated rows are not looked for.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from trimtab.errors import TraceError
from trimtab.traces.alibaba2018.published import CORES
from trimtab.traces.alibaba2018.tables import TABLES

PARTS = 24  # of batch_instance that are read, evenly spaced: each has all instances of its jobs
JOBS = 400_000  # about so many have their shape read
STEADY_S = 86400  # day 0 is nearly empty; rates are of the time after it
QUANTILES = (25, 50, 75, 90, 95, 99)
LARGE = 6000
DAG_NAME = re.compile(r"[A-Z](\d+)((?:_\d+)*)")


def statistics(folder: Path) -> dict[str, float]:
    """Figures of the trace in `folder`, comparable with PUBLISHED whatever its size."""
    folder = Path(folder)
    with duckdb.connect() as db:
        # one thread adds floats up in one order, so that two runs print the same digits
        db.execute("set threads = 1; set preserve_insertion_order = false")
        found = {table for table in TABLES if _opened(db, folder, table)}
        if not found:
            raise TraceError(
                f"{folder}: holds none of {', '.join(TABLES)} as .parquet or folder of parts;"
                " give the folder of a trace or write one with write_twin"
            )
        figures: dict[str, float] = {}
        for needed, part in _PARTS.items():
            if found.issuperset(needed.split()):
                figures |= part(db)
    return {name: float(value) for name, value in figures.items() if value is not None}


def _opened(db: duckdb.DuckDBPyConnection, folder: Path, table: str) -> bool:
    """Make the table known to the database, if it is in the folder."""
    single, parts = folder / f"{table}.parquet", sorted((folder / table).glob("*.parquet"))
    paths = [single] if single.is_file() else parts
    if table == "batch_instance" and len(paths) > PARTS:
        # day 0 has hardly any: the parts are spaced over what comes after it
        later = paths[24:] if len(paths) >= 24 + PARTS else paths
        paths = [later[round(k * (len(later) - 1) / (PARTS - 1))] for k in range(PARTS)]
    if not paths:
        return False
    names = ", ".join("'" + str(path).replace("'", "''") + "'" for path in paths)
    db.execute(f"create view {table} as select * from read_parquet([{names}])")
    return db.execute(f"select 1 from {table} limit 1").fetchone() is not None


def _row(db: duckdb.DuckDBPyConnection, query: str, *names: str) -> dict[str, float]:
    """The one row of a query under these names."""
    return dict(zip(names, db.execute(query).fetchone() or ()))


def _one(db: duckdb.DuckDBPyConnection, query: str) -> Any:
    """The one value of a query."""
    return (db.execute(query).fetchone() or (None,))[0]


def quantiles(name: str, values: np.ndarray, *percents: int) -> dict[str, float]:
    """Quantiles of what is finite, each a value that occurs."""
    values = values[np.isfinite(values)]
    if not len(values):
        return {}
    found = np.percentile(values, percents, method="inverted_cdf")
    return {f"{name}.p{percent}": float(value) for percent, value in zip(percents, found)}


def _machines(db: duckdb.DuckDBPyConnection) -> dict[str, float]:
    whole = _row(
        db,
        "select count(distinct machine_id), avg(cpu_num), avg(mem_size),"
        " count(distinct failure_domain_1), count(distinct failure_domain_2) from machine_meta",
        *("machines", "machine.cpu_num", "machine.mem_size"),
        *("failure_domains_1", "failure_domains_2"),
    )
    return whole | _row(
        db,
        "select avg(n) from (select count(distinct failure_domain_2) n from machine_meta"
        " group by failure_domain_1)",
        "failure_domains_2_of_one_1.mean",
    )


def _machine_use(db: duckdb.DuckDBPyConnection) -> dict[str, float]:
    db.execute(
        "create temp table cluster as select time_stamp::bigint // 300 as step,"
        " avg(cpu_util_percent) as cpu, avg(mem_util_percent) as mem from machine_usage"
        " where cpu_util_percent <= 100 group by 1"
    )
    cpu = [f"cluster_cpu_percent.{name}" for name in ("mean", "sd", "min", "max")]
    mem = [f"cluster_mem_percent.{name}" for name in ("mean", "min", "max")]
    return {
        **_row(
            db,
            "select avg(cpu), stddev_pop(cpu), min(cpu), max(cpu), avg(mem), min(mem), max(mem)"
            " from cluster",
            *(cpu + mem),
        ),
        **_row(
            db,
            "select min(cpu), max(cpu) from"
            " (select avg(cpu) as cpu from cluster group by step // 12 % 24)",
            *("cluster_cpu_percent.hour_min", "cluster_cpu_percent.hour_max"),
        ),
        **_row(
            db,
            "select avg(sd) from (select stddev_pop(cpu_util_percent) as sd from machine_usage"
            " where cpu_util_percent <= 100 and machine_id is not null group by machine_id)",
            "machine_cpu_percent.own_sd",
        ),
    }


def _containers(db: duckdb.DuckDBPyConnection) -> dict[str, float]:
    return _row(
        db,
        "with one as (select container_id, any_value(machine_id) as machine_id,"
        f" median(cpu_request) as request from container_meta where cpu_request <= {CORES * 100}"
        " and container_id is not null group by container_id), machines as (select"
        " count(distinct machine_id) as n, any_value(cpu_num) as cores from machine_meta)"
        " select count(*) / any_value(n), count(distinct machine_id) / any_value(n),"
        " sum(request) / 100 / any_value(n * cores) from one, machines",
        *("containers_a_machine", "containers.machine_share", "containers.cores_reserved"),
    )


def _container_use(db: duckdb.DuckDBPyConnection) -> dict[str, float]:
    query = "select quantile_disc(cpu_util_percent, 0.5) from container_usage"
    return _row(db, query, "container_cpu_percent.p50")


def _rates(db: duckdb.DuckDBPyConnection) -> dict[str, float]:
    """Task starts an hour, over whole days after day 0, and how jobs come in a second."""
    starts = db.execute(
        "select start_time // 3600 as hour, count(*) as n from batch_task where start_time > 0"
        " group by 1 order by 1"
    ).fetchnumpy()
    counts = np.bincount(starts["hour"].astype(int), starts["n"], minlength=48)
    figures = {"tasks.day_0_share": counts[:24].sum() / counts.sum()}
    # the tasks that run on after the end do not make another day
    last_s = _one(db, "select quantile_disc(start_time, 0.999) from batch_task")
    days = max(1, round(last_s / 86400 - 1))
    steady = counts[24 : 24 * (1 + days)]
    if len(steady) == 24 * days and steady.sum():
        by_hour = steady.reshape(days, 24).mean(axis=0)
        figures |= {
            f"task_rate.hour_{hour:02d}": rate for hour, rate in enumerate(by_hour / by_hour.mean())
        }
        machines = _one(db, "select count(distinct machine_id) from machine_meta")
        figures["tasks_a_machine_hour"] = steady.mean() / machines
    seconds = db.execute(
        "select first // 3600 as hour, n from (select first, count(*) as n from (select"
        " min(start_time) as first from batch_task where job_name is not null and"
        f" status = 'Terminated' group by job_name) where first >= {STEADY_S} group by first)"
    ).fetchnumpy()
    hours, counts = seconds["hour"].astype(int), seconds["n"].astype(float)
    if len(hours):
        # within each hour, so that the day's shape does not count as burstiness
        mean = np.bincount(hours, counts) / 3600
        square = np.bincount(hours, counts**2) / 3600
        jobs = mean > 0
        figures["jobs_a_second.dispersion"] = (square - mean**2)[jobs].sum() / mean[jobs].sum()
    return figures


def _tasks(db: duckdb.DuckDBPyConnection) -> dict[str, float]:
    rows = db.execute(
        "select end_time - start_time as run_s, instance_num, plan_cpu, plan_mem,"
        " starts_with(task_name, 'task_') as alone from batch_task where status = 'Terminated'"
        " and end_time >= start_time and job_name is not null and start_time > 0"
        f" and plan_cpu <= {CORES * 100}"
    ).fetchnumpy()
    run_s, instances = rows["run_s"], rows["instance_num"]
    return {
        **quantiles("task_duration_s", run_s, *QUANTILES),
        "task_duration_s.mean": run_s.mean(),
        **quantiles("task_instances", instances, *QUANTILES[1:]),
        "task_instances.mean": instances.mean(),
        "task_instances.mean_under_6000": instances[instances < LARGE].mean(),
        "plan_cpu.share_100": (rows["plan_cpu"] == 100).mean(),
        "plan_cpu.share_50": (rows["plan_cpu"] == 50).mean(),
        **quantiles("plan_mem", rows["plan_mem"], 50, 90),
        "tasks.independent_share": rows["alone"].mean(),
    }


def _jobs(db: duckdb.DuckDBPyConnection) -> dict[str, float]:
    """Tasks, depth and form of the jobs, of a sample where there are many."""
    jobs = _one(db, "select approx_count_distinct(job_name) from batch_task")
    rows = db.execute(
        "select names, count(*) from (select string_agg(distinct task_name, ' ') as names"
        " from batch_task where job_name is not null and task_name is not null"
        f" and hash(job_name) % {max(1, jobs // JOBS)} = 0 group by job_name) group by names"
    ).fetchall()
    size = np.array([names.count(" ") + 1 for names, _ in rows])
    depth = np.array([_depth(names.split()) for names, _ in rows])
    weight = np.array([count for _, count in rows])
    size, depth = np.repeat(size, weight), np.repeat(depth, weight)
    return job_shape(size, depth)


def job_shape(size: np.ndarray, depth: np.ndarray) -> dict[str, float]:
    """Figures of jobs with so many tasks, and so many of them on their longest path."""
    several = size > 1
    return {
        "tasks_a_job.mean": size.mean(),
        **quantiles("tasks_a_job", size, 50, 75, 90, 99),
        "jobs.single_share": 1 - several.mean(),
        "jobs.chain_share": (depth == size)[several].mean() if several.any() else np.nan,
        "job_depth.mean": depth.mean(),
        **quantiles("job_depth", depth, 90, 99),
    }


def _depth(names: list[str]) -> int:
    """Tasks on the longest path of a job."""
    parents: dict[int, list[int]] = {}
    for name in names:
        match = DAG_NAME.fullmatch(name)
        if match:
            parents[int(match[1])] = [int(number) for number in match[2].split("_") if number]
    depth: dict[int, int] = {}
    # parents may have the higher number, so levels are settled in rounds, at most one a task
    for _ in parents:
        for task, own in parents.items():
            depth[task] = 1 + max((depth.get(one, 0) for one in own if one in parents), default=0)
    return max(depth.values(), default=1)


def _instances(db: duckdb.DuckDBPyConnection) -> dict[str, float]:
    """Use against plan, and stragglers, a task each; of the jobs that the read parts hold."""
    rows = db.execute(
        "with one as (select job_name, task_name, count(*) as n,"
        " avg(end_time - start_time) as mean_s, max(end_time - start_time) as longest_s,"
        " avg(cpu_avg) as cpu, avg(mem_avg) as mem from batch_instance where"
        " status = 'Terminated' and end_time >= start_time and job_name is not null group by 1, 2)"
        " select n, mean_s, longest_s, cpu / plan_cpu as cpu, mem / plan_mem as mem from one"
        f" join batch_task using (job_name, task_name) where plan_cpu <= {CORES * 100}"
    ).fetchnumpy()
    wide = (rows["n"] >= 10) & (rows["mean_s"] > 0)
    return {
        **quantiles("cpu_used_of_planned", np.asarray(rows["cpu"]), 50, 90),
        **quantiles("mem_used_of_planned", np.asarray(rows["mem"]), 50, 90),
        **quantiles("straggler", rows["longest_s"][wide] / rows["mean_s"][wide], 50, 90, 99),
    }


_PARTS: dict[str, Callable[[duckdb.DuckDBPyConnection], dict[str, float]]] = {
    # tables that are needed: what reads them
    "machine_meta": _machines,
    "machine_usage": _machine_use,
    "container_meta machine_meta": _containers,
    "container_usage": _container_use,
    "batch_task machine_meta": _rates,
    "batch_task": _tasks,
    "batch_task ": _jobs,
    "batch_task batch_instance": _instances,
}
