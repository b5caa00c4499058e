"""Speed and memory of preparing a trace, beside what DuckDB needs for the bare scan and join.

The input is a synthetic twin of Alibaba's trace of 2018: eight days, a machine for every 25,000
rows (4,000 for 100M), the tables of machines, tasks and instances, the last as text, as the trace
is published. Every measurement runs in a process of its own, limited to 2 GB, and counts from the
folder of files to the finished result. 100M rows take 15 GB of disk for a while.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from trimtab.bench.cases import Measured, Setup, best_s, output_of
from trimtab.bench.peers import installed
from trimtab.load.samples import Samples
from trimtab.load.window import LoadWindow
from trimtab.traces.twin import write_twin

ROWS_A_MACHINE, DAYS = 25_000, 8.0
TABLES = ("machine_meta", "batch_task", "batch_instance")
SIZES = {"1m": 1_000_000, "10m": 10_000_000, "100m": 100_000_000}
PEAK = """
import json, resource, sys, time
def told(began_s, **more):
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    peak_mb = most / 1e6 if sys.platform == "darwin" else most * 1024 / 1e6
    print(json.dumps({"wall_s": time.perf_counter() - began_s, "peak_mb": peak_mb, **more}))
"""
OURS = """
from trimtab.traces.prepare import prepare
began_s = time.perf_counter()
manifest = prepare(FOLDER, OUT, memory_bytes=2_000_000_000)
told(began_s, rows=manifest["tables"]["batch_instance"]["in"])
"""
DUCKDB = """
import duckdb
db = duckdb.connect(config={"memory_limit": "2GB", "preserve_insertion_order": False,
    "temp_directory": OUT + ".spill"})
db.execute("SET enable_progress_bar = false")
began_s = time.perf_counter()
db.execute(f'''
    SELECT count(*), sum(i.cpu_avg / m.cpu_num), sum(i.mem_avg), sum(t.plan_cpu), sum(t.plan_mem),
        sum(i.end_time - i.start_time)
    FROM INSTANCES i JOIN read_parquet('{FOLDER}/batch_task.parquet') t USING (job_name, task_name)
    JOIN (SELECT DISTINCT machine_id, cpu_num FROM read_parquet('{FOLDER}/machine_meta.parquet')) m
    USING (machine_id)
''').fetchall()
told(began_s)
"""
POLARS = """
import polars as pl
began_s = time.perf_counter()
i = pl.scan_parquet(f"{FOLDER}/batch_instance/*.parquet")
t = pl.scan_parquet(f"{FOLDER}/batch_task.parquet")
m = pl.scan_parquet(f"{FOLDER}/machine_meta.parquet").select("machine_id", "cpu_num").unique()
joined = i.join(t, on=["job_name", "task_name"], suffix="_t").join(m, on="machine_id")
joined.select(pl.len(), (pl.col("cpu_avg") / pl.col("cpu_num")).sum(), pl.col("mem_avg").sum(),
    pl.col("plan_cpu").sum(), pl.col("plan_mem").sum(),
    (pl.col("end_time") - pl.col("start_time")).sum()).collect(engine="streaming")
told(began_s)
"""
CSV_COLUMNS = {
    "instance_name": "VARCHAR", "task_name": "VARCHAR", "job_name": "VARCHAR",
    "task_type": "VARCHAR", "status": "VARCHAR", "start_time": "BIGINT", "end_time": "BIGINT",
    "machine_id": "VARCHAR", "seq_no": "BIGINT", "total_seq_no": "BIGINT", "cpu_avg": "DOUBLE",
    "cpu_max": "DOUBLE", "mem_avg": "DOUBLE", "mem_max": "DOUBLE",
}  # fmt: skip
FROM_PARQUET = "read_parquet('{FOLDER}/batch_instance/*.parquet')"
FROM_CSV = (
    "read_csv('{FOLDER}/batch_instance.csv', header = false, auto_detect = false, "
    f"columns = {{{CSV_COLUMNS}}})"
)


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder that is gone afterwards, whatever happens."""
    folder = Path(tempfile.mkdtemp(prefix="trimtab-bench-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def timed(code: str, folder: Path, source: str = FROM_PARQUET) -> dict[str, Any] | None:
    """What a fresh process printed; None where it did not fit into the memory."""
    out = folder.with_name(folder.name + "-out")
    shutil.rmtree(out, ignore_errors=True)
    text = code.replace("INSTANCES", source)
    given = f"FOLDER, OUT = {str(folder)!r}, {str(out)!r}\n"
    try:
        found: dict[str, Any] = json.loads(output_of(PEAK + given + text))
        return found
    except Exception:
        if code is OURS:
            raise
        return None
    finally:
        shutil.rmtree(out, ignore_errors=True)
        shutil.rmtree(f"{out}.spill", ignore_errors=True)


@cache
def compile_all() -> None:
    """Prepare a little trace, so that the compiler's cache is full."""
    with scratch() as folder:
        write_twin(folder / "twin", machines=10, days=1.2, instances=2_000, tables=TABLES)
        timed(OURS, folder / "twin")


@cache
def run(rows: int, form: str) -> dict[str, dict[str, Any] | None]:
    """Ours and the engines alone on a twin of so many rows of instances."""
    compile_all()
    with scratch() as folder:
        twin = folder / "twin"
        write_twin(
            twin, machines=rows // ROWS_A_MACHINE, days=DAYS, seed=1, instances=rows, tables=TABLES
        )
        source = FROM_PARQUET
        if form == "csv":
            source = FROM_CSV
            as_csv(twin)
        found = {"ours": timed(OURS, twin), "DuckDB": timed(DUCKDB, twin, source)}
        if form == "parquet" and installed("polars"):
            found["Polars"] = timed(POLARS, twin)
        return found


def as_csv(folder: Path) -> None:
    """The instances as one file of text without a header, as the trace is published."""
    import duckdb

    parts = folder / "batch_instance"
    with duckdb.connect(config={"memory_limit": "2GB", "preserve_insertion_order": False}) as db:
        db.execute(f"COPY (FROM read_parquet('{parts}/*.parquet')) TO '{parts}.csv' (HEADER false)")
    shutil.rmtree(parts)


def prepared(setup: Setup, size: str, form: str = "csv") -> Measured:
    """Rows a second from files to the finished result; the peers only scan and join."""
    found = run(SIZES[size], form)
    ours = found["ours"]
    assert ours is not None
    rows = ours["rows"]
    peers = {f"{name} alone": rows / told["wall_s"] for name, told in found.items()
             if told and name != "ours"}  # fmt: skip
    return Measured(rows / ours["wall_s"], "rows/s", peers)


def memory(setup: Setup, size: str, form: str = "csv") -> Measured:
    """Peak resident memory of the same."""
    found = run(SIZES[size], form)
    ours = found["ours"]
    assert ours is not None
    peers = {f"{name} alone": told["peak_mb"] for name, told in found.items()
             if told and name != "ours"}  # fmt: skip
    return Measured(ours["peak_mb"], "MB", peers)


def growth(setup: Setup) -> Measured:
    """Cost of a row at 100M over that at 10M; 1 = linear."""
    few, many = ("1m", "10m") if setup.quick else ("10m", "100m")
    return Measured(prepared(setup, few).value / prepared(setup, many).value, "x")


def twin(setup: Setup) -> Measured:
    """Rows of instances that the generator writes a second."""
    rows = setup.of(3_000_000, 300_000)

    def make() -> None:
        with scratch() as folder:
            write_twin(folder / "twin", machines=400, days=2.0, instances=rows, tables=TABLES)

    return Measured(rows / best_s(make, setup.of(3, 1)), "rows/s")


def load_window(setup: Setup) -> Measured:
    """Microseconds a machine and window to add its samples live and turn them into features."""
    nodes, windows, samples_a_window = 4000, setup.of(48, 6), 10
    rng = np.random.default_rng(0)
    node = np.tile(np.arange(nodes), samples_a_window)
    use = [rng.random(len(node)) for _ in range(6)]
    names = tuple(map(str, range(nodes)))
    beat_s = np.repeat(np.arange(samples_a_window) * 30.0, nodes)

    def play() -> None:
        live = LoadWindow(np.ones((nodes, 2)), np.arange(nodes) % 20)
        for window in range(windows):
            time_s = 300.0 * window + beat_s
            live.use(Samples._make([time_s, node, *use, names, "drawn"]))
            live.close(300.0 * (window + 1))

    return Measured(1e6 * best_s(play, setup.of(3, 1)) / (nodes * windows), "us")


BY_NAME: dict[str, Callable[[Setup], Measured]] = {
    "prepare-1m": lambda setup: prepared(setup, "1m"),
    "prepare-10m": lambda setup: prepared(setup, "10m"),
    "prepare-100m": lambda setup: prepared(setup, "100m"),
    "prepare-parquet-10m": lambda setup: prepared(setup, "10m", "parquet"),
    "memory-1m": lambda setup: memory(setup, "1m"),
    "memory-10m": lambda setup: memory(setup, "10m"),
    "memory-100m": lambda setup: memory(setup, "100m"),
    "growth-10x": growth,
    "twin": twin,
    "load-window": load_window,
}
