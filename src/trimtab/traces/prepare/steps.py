"""The steps of a preparation in order, each of which can be stopped and taken up again."""

import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from trimtab.build import cluster
from trimtab.errors import TraceError
from trimtab.files import write_whole
from trimtab.load import sums as load
from trimtab.traces import MADE_BY
from trimtab.traces.alibaba2018.hour import as_tables
from trimtab.traces.alibaba2018.rows import Piece, is_stream, pieces
from trimtab.traces.alibaba2018.source import Progress, find_tables, verify
from trimtab.traces.prepare.join import (
    Machines,
    Routed,
    join_period,
    read_machines,
    read_numbers,
    routed,
    rows_of,
)
from trimtab.traces.prepare.levels import CODEC, cut, left_out, write_levels, write_segments
from trimtab.traces.prepare.meta import describe_tables, refuse_empty, refuse_strays
from trimtab.traces.prepare.plan import (
    MOVING,
    SCHEMA_VERSION,
    Options,
    Plan,
    claim,
    fingerprint,
    finished,
    period_of,
    piece_of,
    source_bytes,
)
from trimtab.traces.prepare.route import BEFORE_S, LARGE, RAW, described, route_piece
from trimtab.traces.prepare.rules import RULES
from trimtab.traces.prepare.workload import write_workload
from trimtab.traces.scenes.cluster_file import save_cluster

APART_S = 86_400  # rows further than this from the bulk of the trace are strays
DEFAULT_MEMORY, LEAST_MEMORY = 2_000_000_000, 256_000_000


class Workers(Protocol):
    """Runs pieces and periods, here or on other machines."""

    def route(self, plan: Plan, todo: Iterable[Piece]) -> Iterator[str]: ...

    def join(self, plan: Plan, todo: list[tuple[int, dict[str, Routed]]]) -> Iterator[int]: ...


class Threads:
    """This machine's cores: the engine, the parser and the sums all run without Python's lock."""

    def __init__(self, count: int | None = None) -> None:
        self.count = count or os.cpu_count() or 1

    def route(self, plan: Plan, todo: Iterable[Piece]) -> Iterator[str]:
        with plan.connect() as db:
            described(db, plan)
            yield from self._each(lambda piece: route_piece(plan, piece, db), todo)

    def join(self, plan: Plan, todo: list[tuple[int, dict[str, Routed]]]) -> Iterator[int]:
        with plan.connect() as db:
            yield from self._each(lambda one: join_period(plan, one[0], one[1], db), todo)

    def _each(self, work: Callable[[Any], Any], todo: Iterable[Any]) -> Iterator[Any]:
        """Results as they come; no more is read ahead than there are threads."""
        with ThreadPoolExecutor(self.count) as pool:
            going: set[Future[Any]] = set()
            try:
                for item in todo:
                    going.add(pool.submit(work, item))
                    if len(going) >= self.count:
                        done, going = wait(going, return_when=FIRST_COMPLETED)
                        yield from (one.result() for one in done)
                while going:
                    done, going = wait(going, return_when=FIRST_COMPLETED)
                    yield from (one.result() for one in done)
            except BaseException:
                for one in going:
                    one.cancel()
                raise


def prepare(
    folder: str | Path,
    out: str | Path,
    *,
    options: Options | None = None,
    memory_bytes: int = DEFAULT_MEMORY,
    tables: dict[str, str] | None = None,
    verified: bool = False,
    workers: Workers | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Clean, join and window the trace in a folder; returns the manifest that it writes last.

    `verified` first compares published archives with their published sha256. Run again after a
    stop, it goes on; finished, it returns what is there.
    """
    say: Progress = progress or (lambda step, done, total: None)
    options = options or Options()
    folder, out = Path(folder), Path(out)
    workers = workers or Threads()
    plan = planned(folder, out, options, memory_bytes, tables)
    manifest = finished(plan)
    if manifest is not None:
        return manifest
    if verified and not verify(plan.tables, say):
        raise TraceError(
            f"--verify: {folder} has none of the published .tar.gz files; leave --verify out"
        )
    plan = claim(plan)
    if plan.hour:
        with plan.connect() as db:
            plan.tables.update(as_tables(plan.hour, plan.work / "hour", db))
    for n, table in enumerate(describe_tables(plan)):
        say(f"describing {table}", n + 1, 3)
    _route_all(plan, workers, say)
    _join_all(plan, workers, say)
    return _finish(plan, say)


def planned(
    folder: Path, out: Path, options: Options, memory_bytes: int, tables: dict[str, str] | None
) -> Plan:
    """What there is to do, from what the folder holds."""
    if memory_bytes < LEAST_MEMORY:
        raise TraceError(f"--memory {memory_bytes / 1e6:.0f}MB is too little; give at least 256MB")
    found = find_tables(folder, tables)
    known = dict(found.tables)
    notes = [f"left aside: {', '.join(found.aside)}"] if found.aside else []
    if "machine_usage" in known and "machine_meta" not in known:
        raise TraceError(
            f"{known['machine_usage'].paths[0]}: cannot be placed without machine_meta; download "
            f"machine_meta.tar.gz (92 KB) beside it"
        )
    if "container_usage" in known and "container_meta" not in known:
        notes.append("container_usage without container_meta: cleaned and counted, not summed")
    if "batch_instance" not in known and not found.hour:
        notes.append("no batch_instance: run times and waiting come from the tasks alone")
    sources = {table: one.as_text() for table, one in known.items()}
    if found.hour:
        sources |= dict(zip(("batch_task", "batch_instance"), (path.name for path in found.hour)))
    return Plan(
        known, out, options, memory_bytes, period_of(known, int(options.window_s)),
        piece_of(memory_bytes),
        found.hour or (), notes, sources,
    )  # fmt: skip


def _done(plan: Plan) -> frozenset[str]:
    return frozenset(path.stem for path in (plan.work / "rows").glob("*.json"))


def _route_all(plan: Plan, workers: Workers, say: Progress) -> None:
    """Route what is not routed yet. Streams are read here, in order; the rest anywhere."""
    (plan.work / "rows").mkdir(exist_ok=True)
    marker = plan.work / "routed.json"
    if marker.exists():
        return
    done = _done(plan)
    streams, plain = [], []
    for table in LARGE:
        if table in plan.tables:
            found = plan.tables[table]
            if any(is_stream(path) for path in found.paths if path.suffix != ".parquet"):
                streams.append(table)
            else:
                plain += list(pieces(table, found, plan.piece_bytes, done))
    count, total = len(done), len(done) + len(plain)
    for name in workers.route(plan, plain):
        count += 1
        say(f"routing {name.rsplit('-', 1)[0]}", count, total if not streams else 0)
    for table in streams:
        todo = pieces(table, plan.tables[table], plan.piece_bytes, done)
        for _ in Threads().route(plan, todo):
            count += 1
            say(f"routing {table}", count, 0)
    write_whole(marker, json.dumps(sorted(_done(plan))))


def bulk(plan: Plan, held: dict[str, dict[int, Routed]]) -> range:
    """The periods from the first to the last one of the trace, strays left out."""
    rows: dict[int, int] = {}
    for by_period in held.values():
        for period, found in by_period.items():
            rows[period] = rows.get(period, 0) + found.rows
    if not rows:
        tasks = pq.read_table(plan.work / "batch_task.parquet", columns=["start_s", "end_s"])
        first, last = tasks["start_s"].to_numpy().min(), tasks["end_s"].to_numpy().max()
        return range(int(first // plan.period_s), int(last // plan.period_s) + 1)
    periods = sorted(rows)
    islands = [[periods[0]]]
    for before, period in zip(periods, periods[1:]):
        if (period - before) * plan.period_s > APART_S + plan.period_s:
            islands.append([])
        islands[-1].append(period)
    largest = max(islands, key=lambda island: sum(rows[period] for period in island))
    return range(largest[0], largest[-1] + 1)


def _join_all(plan: Plan, workers: Workers, say: Progress) -> None:
    folder = plan.work / "sums"
    folder.mkdir(exist_ok=True)
    held = routed(plan)
    todo, count, periods = [], 0, bulk(plan, held)
    for period in periods:
        if (folder / f"{period:06d}.json").exists():
            count += 1
            continue
        rows = {table: held[table][period] for table in LARGE if period in held[table]}
        todo.append((period, rows))
    for _ in workers.join(plan, todo):
        count += 1
        say("joining periods", count, len(periods))


def _finish(plan: Plan, say: Progress) -> dict[str, Any]:
    """Write the result beside the work, then move it into place, the manifest last."""
    ready = plan.work / "out"
    shutil.rmtree(ready, ignore_errors=True)
    ready.mkdir()
    held = routed(plan)
    periods, machines = bulk(plan, held), read_machines(plan)
    windows_a_period = plan.period_s // plan.window_s
    first, last = _ends(plan, periods, len(machines.names))
    segments = cut(first, last - first, plan.options)
    counts = _counts(plan, periods, held)
    for table in LARGE:
        if table in counts:
            if not counts[table]["kept"]:
                refuse_empty(plan, table, counts[table])
            refuse_strays(plan.tables[table].paths[0], counts[table])
    if machines.names:
        done = 0

        def stepped(_: str) -> None:
            nonlocal done
            done += 1
            say("writing the load", done, len(periods))

        write_levels(
            ready, plan.work / "sums", periods, windows_a_period, machines, plan.options,
            segments, stepped,
        )  # fmt: skip
        _write_machines(plan, ready, machines)
        _write_raw(plan, ready / "raw.parquet", periods)
    write_segments(ready / "segments.parquet", segments, plan.options.window_s)
    say("writing the workload", 0, 1)
    made = write_workload(ready / "workload.parquet", plan, periods, segments)
    say("writing the workload", 1, 1)
    manifest = {
        "made_by": MADE_BY,
        "schema_version": SCHEMA_VERSION,
        "options": json.loads(json.dumps(fingerprint(plan)["options"])),
        "sources": plan.sources,
        "source_bytes": source_bytes(plan),
        "notes": [*plan.notes, *left_out(segments)],
        "tables": counts,
        "workload": made,
        "windows": {"first": first, "count": last - first, "machines": len(machines.names)},
    }
    write_whole(ready / "manifest.json", json.dumps(manifest, indent=1) + "\n")
    write_whole(plan.work / MOVING, json.dumps(sorted(path.name for path in ready.iterdir())))
    for path in sorted(ready.iterdir(), key=lambda path: path.name == "manifest.json"):
        os.replace(path, plan.out / path.name)
    shutil.rmtree(plan.work)
    return manifest


def _ends(plan: Plan, periods: range, machines: int) -> tuple[int, int]:
    """The first window in which anything was measured, started or ran, and one past the last."""
    if not set(LARGE) & set(plan.tables):
        tasks = pq.read_table(plan.work / "batch_task.parquet", columns=["start_s", "end_s"])
        first_s, last_s = tasks["start_s"].to_numpy().min(), tasks["end_s"].to_numpy().max()
        return int(first_s // plan.window_s), int(last_s // plan.window_s) + 1
    per = plan.period_s // plan.window_s
    moving = [load.AT.samples, load.AT.started, load.AT.running_ms]
    found = []
    for order in (periods, periods[::-1]):
        for period in order:  # rows at the ends may be of no known machine, service or task
            path = plan.work / "sums" / f"{period:06d}.node"
            held = read_numbers(path).reshape(-1, machines + 1, len(load.SUMS))
            live = np.flatnonzero(held[:, :, moving].any(axis=(1, 2)))
            if len(live):
                break
        found.append(period * per + live if len(live) else np.array([period * per]))
    return int(found[0][0]), int(found[-1][-1]) + 1


def _counts(plan: Plan, periods: range, held: dict[str, dict[int, Routed]]) -> dict[str, Any]:
    """Rows in, kept and removed by rule, of each table."""
    counts: dict[str, Any] = {}
    for table in plan.tables:
        if table not in LARGE:
            counts[table] = json.loads((plan.work / f"{table}.json").read_text())
            continue
        removed = {rule.name: 0 for rule in RULES[table]}
        rows = narrow = 0
        for path in (plan.work / "rows").glob(f"{table}-*.json"):
            told = json.loads(path.read_text())
            rows, narrow = rows + told["in"], narrow + told["narrow"]
            for name, count in told["removed"].items():
                removed[name] += count
        for period in periods:
            told = json.loads((plan.work / "sums" / f"{period:06d}.json").read_text())
            for name, count in told.get(table, {}).items():
                removed[name] += count
        removed["stray-time"] += _strays(plan, held[table], periods)
        kept = rows - sum(removed.values())
        counts[table] = {"in": rows, "kept": kept, "removed": removed, "narrow": narrow}
    return counts


def _strays(plan: Plan, routed_rows: dict[int, Routed], periods: range) -> int:
    """Rows that begin in a period outside of the trace."""
    count = 0
    for period, held in routed_rows.items():
        if period not in periods:
            for batch in rows_of(held):
                names = batch.schema.names
                time_s = (
                    batch["start_s"].to_numpy()
                    if "start_s" in names
                    else batch["time_ms"].to_numpy() // 1000
                )
                count += int((time_s // plan.period_s == period).sum())
    return count


def _write_raw(plan: Plan, path: Path, periods: range) -> None:
    """What was recorded, dirt and all, every half minute: samples of machines and waits."""
    sums: dict[int, Any] = {}

    def add(points: Any, table: Any, columns: slice) -> None:
        for point, row in zip(points, table):
            sums.setdefault(int(point), np.zeros(len(RAW) + 2, np.int64))[columns] += row

    for told in sorted((plan.work / "rows").glob("machine_usage-*.json")):
        found = json.loads(told.read_text())["before"]
        table = np.array([found[name] for name in RAW], np.int64).T.reshape(-1, len(RAW))
        add(found["point"], table, slice(0, len(RAW)))
    for period in periods:
        held = read_numbers(plan.work / "sums" / f"{period:06d}.raw")
        add(held[:, 0], held[:, 1:], slice(len(RAW), None))
    points = np.array(sorted(sums), np.int64)
    table = np.array([sums[p] for p in points]).reshape(-1, len(RAW) + 2)
    n, cpu, square, mem, starts, wait_s = table.T.astype(np.float64)
    with np.errstate(invalid="ignore"):
        mean = cpu / n / 1e4
        columns = {"time_s": points * float(BEFORE_S), "samples": table[:, 0], "cpu": mean}
        columns["cpu_sd"] = np.sqrt(np.maximum(square / n / 1e8 - mean**2, 0))
        columns |= {"mem": mem / n / 1e4, "starts": table[:, 4], "wait_s": wait_s / starts}
    arrays = {name: pa.array(column, from_pandas=True) for name, column in columns.items()}
    pq.write_table(pa.table(arrays), path, **CODEC)


def _write_machines(plan: Plan, folder: Path, machines: Machines) -> None:
    pq.write_table(
        pq.read_table(plan.work / "machine_meta.parquet").replace_schema_metadata(None),
        folder / "machines.parquet",
        compression="zstd",
    )
    capacity = machines.capacity * [1.0, plan.options.machine_mem_gb / 100]
    save_cluster(
        cluster(
            capacity, resources=("cpu", "mem_gb"), kinds=("machine",), region=machines.region,
            regions=machines.regions, names=machines.names,
            source="Alibaba 2018: machine_meta",
        ),
        folder / "cluster.yaml",
    )  # fmt: skip
