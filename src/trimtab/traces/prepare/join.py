"""Joins what happened in one period: rows of all large tables, without repeats, into its sums.

A period becomes one file in `.work/sums`: the sums of its windows, and of its tasks what their
instances used. All are whole numbers, so that neither the order of the rows, nor the number of
threads or machines, changes a bit of them.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from trimtab.arrays import Array
from trimtab.compiled import compiled
from trimtab.files import whole, write_whole
from trimtab.load import sums as load
from trimtab.traces.prepare.meta import CORES, MEMORY, quoted
from trimtab.traces.prepare.plan import Plan
from trimtab.traces.prepare.route import BEFORE_S, COMPRESSION, LARGE

KEYS = {  # what tells a row from its repeats
    "machine_usage": ("node", "time_ms"),
    "container_usage": ("service", "time_ms"),
    "batch_instance": ("row_hash",),
}
# cpu, mem: 1e-2 and 1e-4 of a unit x s, over the seconds of the instances that recorded them
TASK_SUMS = ("n", "run_s", "run_max_s", "cpu_s", "cpu", "mem_s", "mem")
TASK_COLUMNS = ("task", *TASK_SUMS)
WAIT_COLUMNS = ("window", *load.QUEUE)
RAW_COLUMNS = ("point", "starts", "wait_s")
SUSPECT_BITS = 1 << 26  # 8 MB: one bit in a dozen is set by a few million rows
JOINED = """
    SELECT i.* EXCLUDE (key), coalesce(t.task, -1)::INTEGER AS task,
        coalesce(t.runnable_s, 0)::INTEGER AS runnable_s, coalesce(t.start_s, 0)::INTEGER AS task_s,
        coalesce(t.plan_cpu, 0)::FLOAT AS plan_cpu, coalesce(t.plan_mem, 0)::FLOAT AS plan_mem
    FROM instances i LEFT JOIN read_parquet('{tasks}') t ON t.key = i.key
"""


class Machines(NamedTuple):
    """Capacity and place of what the trace ran on."""

    names: list[str]
    capacity: Array  # (N, 2) cores, memory in the trace's unit
    region: Array  # (N,)
    regions: list[str]


class Services(NamedTuple):
    """Containers: long-running and bound to a machine."""

    names: list[str]
    node: Array  # (S,)
    deploy_ms: Array  # (S,)
    cpu: Array  # (S,) share of the machine that is reserved
    mem: Array  # (S,)


def read_machines(plan: Plan) -> Machines:
    path = plan.work / "machine_meta.parquet"
    if not path.exists():
        return Machines([], np.zeros((0, 2)), np.zeros(0, np.int64), [])
    table = pq.read_table(path)
    region = table["region"].to_numpy()
    names = dict(zip(region.tolist(), table["region_name"].to_pylist()))
    capacity = np.stack((table["cores"].to_numpy(), table["memory"].to_numpy()), axis=1)
    regions = [f"domain-{names[g]}" for g in range(len(names))]
    return Machines(table["machine_id"].to_pylist(), capacity, region.astype(np.int64), regions)


def read_services(plan: Plan) -> Services:
    path = plan.work / "container_meta.parquet"
    none = np.zeros(0)
    if not path.exists():
        return Services([], none.astype(np.int64), none.astype(np.int64), none, none)
    table = pq.read_table(path)
    return Services(
        table["container_id"].to_pylist(),
        table["node"].to_numpy().astype(np.int64),
        table["deploy_s"].to_numpy().astype(np.int64) * 1000,
        table["cpu"].to_numpy(),
        table["mem"].to_numpy(),
    )


class Routed(NamedTuple):
    """Where the rows of a table and period are: (file, record batch) pairs, and how many rows."""

    places: list[tuple[Path, int]]
    rows: int


def routed(plan: Plan) -> dict[str, dict[int, Routed]]:
    """By table and period, from the JSON files beside the routed pieces."""
    found: dict[str, dict[int, Routed]] = {table: {} for table in LARGE}
    for told in sorted((plan.work / "rows").glob("*.json")):
        table = told.stem.rsplit("-", 1)[0]
        content = json.loads(told.read_text())
        path = told.with_suffix(".arrow")
        for batch, (period, rows) in enumerate(zip(content["parts"], content["rows"])):
            held = found[table].setdefault(period, Routed([], 0))
            held.places.append((path, batch))
            found[table][period] = held._replace(rows=held.rows + rows)
    return found


def rows_of(held: Routed, columns: tuple[str, ...] | None = None) -> Iterator[pa.RecordBatch]:
    """The batches of a period, one in memory at a time."""
    at: Path | None = None
    reader: Any = None
    for path, batch in held.places:
        if path != at:
            reader, at = pa.ipc.open_file(pa.memory_map(str(path))), path
        found = reader.get_batch(batch)
        yield found if columns is None else found.select(list(columns))


def buckets(held: Routed, table: str, most_rows: int) -> Iterator[pa.Table]:
    """Rows in as many parts as keep each small; repeats of a row are in the same part."""
    count = -(-held.rows // most_rows)
    if count <= 1:
        yield pa.Table.from_batches(list(rows_of(held)))
        return
    for bucket in range(count):
        parts = []
        for batch in rows_of(held):
            key = batch[KEYS[table][-1]].to_numpy()
            if table == "batch_instance":
                parts.append(batch.take(pa.array(np.flatnonzero(key % np.uint64(count) == bucket))))
            else:
                parts.append(batch.take(pa.array(np.flatnonzero(key // 1000 % count == bucket))))
        yield pa.Table.from_batches(parts)


def repeats(key: Array, *values: Array) -> Array:
    """(rows,) whether a row has the key of another; few do, so most are dismissed by one bit.

    Of rows with one key that with the smallest values is not marked: no order of the rows matters.
    """
    doubtful = suspects(key, np.zeros(SUSPECT_BITS // 64, np.uint64))
    again = np.zeros(len(key), bool)
    if len(doubtful):
        columns = [column[doubtful] for column in (*values[::-1], key)]
        order = doubtful[np.lexsort(columns)]
        again[order[1:]] = key[order[1:]] == key[order[:-1]]
    return again


@compiled
def suspects(key: Array, bits: Array) -> Array:
    """Rows whose key may stand more than once: all that share a bit with a key that came twice."""
    twice = np.zeros_like(bits)
    size = np.uint64(len(bits) * 64)
    for i in range(len(key)):
        place = mixed(key[i]) % size
        word, bit = place >> np.uint64(6), np.uint64(1) << (place & np.uint64(63))
        if bits[word] & bit:
            twice[word] |= bit
        bits[word] |= bit
    count = 0
    found = np.empty(len(key), np.int64)
    for i in range(len(key)):
        place = mixed(key[i]) % size
        if twice[place >> np.uint64(6)] & (np.uint64(1) << (place & np.uint64(63))):
            found[count] = i
            count += 1
    return found[:count].copy()


@compiled
def mixed(key: int) -> np.uint64:
    """A key with its bits stirred: those of times and machines sit in the middle (splitmix64)."""
    k = np.uint64(key)
    k = (k ^ (k >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    k = (k ^ (k >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return k ^ (k >> np.uint64(31))


def paired(first: Array, time_ms: Array) -> Array:
    """One key for a machine or service and a time: below 2**22 and 2**41."""
    return ((first.astype(np.int64) + 1) << 41) | time_ms


class Period:
    """The sums of one period while its rows are added."""

    def __init__(self, plan: Plan, period: int, machines: Machines) -> None:
        self.plan, self.period, self.machines = plan, period, machines
        self.window_ms = plan.window_s * 1000
        self.windows = plan.period_s // plan.window_s
        self.first = period * self.windows
        self.sums = load.empty_sums(self.windows, len(machines.names))
        self.removed: dict[str, dict[str, int]] = {}
        self.use: Array | None = None  # (windows, services, USE)
        self.waits: list[Array] = []  # rows of WAIT_COLUMNS
        self.tasks = np.zeros((0, len(TASK_COLUMNS)), np.int64)
        self.raw = np.zeros((plan.period_s // BEFORE_S + 2, 2), np.int64)  # starts, their waits

    def count(self, table: str, name: str, rows: int) -> None:
        held = self.removed.setdefault(table, {})
        held[name] = held.get(name, 0) + int(rows)

    def add_machine_usage(self, rows: pa.Table) -> None:
        found = {name: rows[name].to_numpy() for name in rows.column_names}
        order = ("node", "cpu", "mem", "net_in", "net_out", "disk")
        values = [found[name] for name in order[1:]]
        again = repeats(paired(found["node"], found["time_ms"]), *values)
        self.count("machine_usage", "repeated", again.sum())
        keep = ~again
        nothing = np.full(int(keep.sum()), np.nan, np.float32)
        load.add_samples(
            self.sums, self.first, self.window_ms, found["time_ms"][keep] / 1000,
            *(found[name][keep] for name in order), nothing,
        )  # fmt: skip

    def add_container_usage(self, rows: pa.Table, services: Services) -> None:
        found = {name: rows[name].to_numpy() for name in rows.column_names}
        again = repeats(paired(found["service"], found["time_ms"]), found["cpu"], found["mem"])
        again &= found["service"] >= 0
        self.count("container_usage", "repeated", again.sum())
        keep = ~again & (found["service"] >= 0)
        use = load.empty_use(self.windows, len(services.names))
        load.add_service_use(
            use, self.first, self.window_ms, found["time_ms"][keep] / 1000,
            *(found[name][keep] for name in ("service", "cpu", "mem")),
        )  # fmt: skip
        self.use = use if self.use is None else self.use + use

    def add_services(self, services: Services) -> None:
        """What services reserve here, and their mean use once all of it is known."""
        forever = np.full(len(services.names), load.FOREVER_MS)
        load.add_services(
            self.sums, self.first, self.window_ms, services.deploy_ms, forever, services.node,
            services.cpu, services.mem,
        )  # fmt: skip
        if self.use is not None:
            load.add_service_means(self.sums, self.use, services.node)

    def add_batch_instance(self, rows: pa.Table, db: duckdb.DuckDBPyConnection) -> None:
        cursor = db.cursor()
        cursor.register("instances", rows)
        tasks = quoted(self.plan.work / "batch_task.parquet")
        found = cursor.execute(JOINED.format(tasks=tasks)).fetchnumpy()
        cursor.close()
        again = repeats(found.pop("row_hash"))
        capacity = self.machines.capacity
        mean = capacity.mean(axis=0) if len(capacity) else np.array([CORES, MEMORY])
        runs, starts, counts = sifted(
            again, found["task"], found["node"], found["start_s"], found["end_s"],
            found["runnable_s"], found["task_s"], found["plan_cpu"], found["plan_mem"],
            capacity, mean, self.period * self.plan.period_s, self.plan.period_s, self.raw,
        )  # fmt: skip
        for name, count in zip(("repeated", "unknown-task", "before-task"), counts):
            self.count("batch_instance", name, count)
        start_ms, end_ms, node, cpu, mem, wait_ms = runs
        one = np.ones(len(node), np.int64)
        load.add_running(
            self.sums, self.first, self.window_ms, start_ms, end_ms, node, one, cpu, mem, wait_ms
        )
        row, ready_ms, start_ms, cpu, mem = starts
        if not len(row):
            return
        low = int(ready_ms.min()) // self.window_ms
        queue = load.empty_queue(self.first + self.windows - low)
        load.add_waiting(queue, low, self.window_ms, ready_ms, start_ms, one[: len(row)], cpu, mem)
        at = np.flatnonzero(queue.any(axis=1))
        self.waits.append(np.column_stack((low + at, queue[at])))
        self._add_tasks(found, row)

    def _add_tasks(self, found: dict[str, Array], row: Array) -> None:
        task = found["task"]
        low = int(task[row].min())
        used = np.zeros((int(task.max()) - low + 1, len(TASK_SUMS)), np.int64)
        add_use(used, low, row, task, *(found[n] for n in ("start_s", "end_s", "cpu", "mem")))
        at = np.flatnonzero(used[:, 0])
        self.tasks = np.concatenate((self.tasks, np.column_stack((low + at, used[at]))))

    def save(self, path: Path) -> None:
        """Three tables of whole numbers, and last, beside them, what was removed."""
        waits = np.concatenate(self.waits) if self.waits else np.zeros((0, len(WAIT_COLUMNS)))
        node = self.sums.reshape(-1, len(load.SUMS))
        write_numbers(path.with_suffix(".node"), load.SUMS, node)
        write_numbers(path.with_suffix(".queue"), WAIT_COLUMNS, waits)
        write_numbers(path.with_suffix(".tasks"), TASK_COLUMNS, self.tasks)
        point = np.flatnonzero(self.raw[:, 0])
        first = self.period * self.plan.period_s // BEFORE_S
        raw = np.column_stack((first + point, self.raw[point]))
        write_numbers(path.with_suffix(".raw"), RAW_COLUMNS, raw)
        if self.use is not None:
            total = self.use.sum(axis=0)
            at = np.flatnonzero(total[:, 0])
            use = np.column_stack((at, total[at]))
            write_numbers(path.with_suffix(".services"), ("service", *load.USE), use)
        write_whole(path, json.dumps(self.removed))


def write_numbers(path: Path, names: tuple[str, ...], values: Array) -> None:
    """A table of whole numbers, (rows, names), row by row."""
    flat = pa.array(np.ascontiguousarray(values, np.int64).ravel())
    batch = pa.RecordBatch.from_arrays([flat], schema=pa.schema([(" ".join(names), pa.int64())]))
    with (
        whole(path) as place,
        pa.ipc.new_file(place, batch.schema, options=COMPRESSION) as writer,
    ):
        writer.write_batch(batch)


def read_numbers(path: Path) -> Array:
    """(rows, names) of `write_numbers`."""
    with pa.memory_map(str(path)) as held:
        batch = pa.ipc.open_file(held).get_batch(0)
        return batch.column(0).to_numpy().reshape(-1, len(batch.schema.names[0].split()))


def join_period(plan: Plan, period: int, held: dict[str, Routed], db: Any) -> int:
    """Write the sums of a period; returns it. Safe to repeat, and in any order."""
    machines, services = read_machines(plan), read_services(plan)
    made = Period(plan, period, machines)
    for rows in _parts(held, "machine_usage", plan):
        made.add_machine_usage(rows)
    if services.names:
        for rows in _parts(held, "container_usage", plan):
            made.add_container_usage(rows, services)
        made.add_services(services)
    for rows in _parts(held, "batch_instance", plan):
        made.add_batch_instance(rows, db)
    made.save(plan.work / "sums" / f"{period:06d}.json")
    return period


def _parts(held: dict[str, Routed], table: str, plan: Plan) -> Iterator[pa.Table]:
    return buckets(held[table], table, plan.most_rows) if table in held else iter(())


@compiled
def sifted(
    again: Array, task: Array, node: Array, start_s: Array, end_s: Array, runnable_s: Array,
    task_s: Array, plan_cpu: Array, plan_mem: Array, capacity: Array, mean: Array, from_s: int,
    period_s: int, raw: Array,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """Rows that count, as columns for the sums: all that run here, then those that start here.

    `raw` adds up the waits as recorded, repeats and impossible ones too, every half minute.

    Third, how many of those that start here are repeats, of no task, or before their task.
    """
    rows = len(task)
    start_ms, end_ms = np.empty(rows, np.int64), np.empty(rows, np.int64)
    wait_ms, at = np.empty(rows, np.int64), np.empty(rows, np.int32)
    cpu, mem = np.empty(rows, np.float64), np.empty(rows, np.float64)
    own, ready_ms = np.empty(rows, np.int64), np.empty(rows, np.int64)
    own_ms = np.empty(rows, np.int64)
    own_cpu, own_mem = np.empty(rows, np.float64), np.empty(rows, np.float64)
    counts = np.zeros(3, np.int64)
    kept = mine = 0
    for i in range(rows):
        here = from_s <= start_s[i] < from_s + period_s
        if here and task[i] >= 0:
            point = start_s[i] // BEFORE_S - from_s // BEFORE_S
            raw[point, 0] += 1
            raw[point, 1] += start_s[i] - runnable_s[i]
        reason = 0 if again[i] else 1 if task[i] < 0 else 2 if start_s[i] < task_s[i] else 3
        if reason < 3:
            counts[reason] += here
            continue
        cores, memory = mean[0], mean[1]
        if 0 <= node[i] < len(capacity):
            cores, memory = capacity[node[i], 0], capacity[node[i], 1]
        start_ms[kept], end_ms[kept] = start_s[i] * 1000, end_s[i] * 1000
        ready = min(runnable_s[i], start_s[i]) * 1000
        wait_ms[kept], at[kept] = start_ms[kept] - ready, node[i]
        cpu[kept], mem[kept] = plan_cpu[i] / (100 * cores), plan_mem[i] / memory
        if here:
            own[mine], ready_ms[mine], own_ms[mine] = i, ready, start_ms[kept]
            own_cpu[mine], own_mem[mine] = plan_cpu[i] / (100 * mean[0]), plan_mem[i] / mean[1]
            mine += 1
        kept += 1
    runs = (start_ms[:kept], end_ms[:kept], at[:kept], cpu[:kept], mem[:kept], wait_ms[:kept])
    starts = (own[:mine], ready_ms[:mine], own_ms[:mine], own_cpu[:mine], own_mem[:mine])
    return runs, starts, counts


@compiled
def add_use(
    used: Array, low: int, rows: Array, task: Array, start_s: Array, end_s: Array, cpu: Array,
    mem: Array,
) -> None:  # fmt: skip
    """Add what instances used to their tasks: see TASK_SUMS. Unknown use adds nothing."""
    for i in rows:
        row = used[task[i] - low]
        run_s = end_s[i] - start_s[i]
        row[0] += 1
        row[1] += run_s
        row[2] = max(row[2], run_s)
        if np.isfinite(cpu[i]):
            row[3] += run_s
            row[4] += np.int64(np.rint(cpu[i] * 100)) * run_s
        if np.isfinite(mem[i]):
            row[5] += run_s
            row[6] += np.int64(np.rint(mem[i] * 10_000)) * run_s
