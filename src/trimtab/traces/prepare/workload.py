"""The workload of the prepared trace: tasks with their dependencies, and services beside them.

A task is a job whose instances may start apart. All tasks of a job of the trace are submitted when
the job's first one was; a task waits for those its name lists. Written a block at a time in the
form of `traces.parquet`, so that a trace of any length needs little memory.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from trimtab.arrays import Array
from trimtab.columns import JOB, TRUTH
from trimtab.compiled import compiled
from trimtab.traces.prepare.join import TASK_SUMS, Services, read_numbers, read_services
from trimtab.traces.prepare.levels import CODEC, Segments
from trimtab.traces.prepare.plan import Plan
from trimtab.traces.readers.parquet import DEMAND, KEY, META, SCHEMA_VERSION

BLOCK = 262_144  # tasks
SHORTEST_S = 0.5  # times are whole seconds: 0 means less than one
KINDS = ("map", "reduce", "join", "stage", "independent", "service")
LETTERS = {"M": 0, "R": 1, "J": 2, "": 4}  # other letters are a stage of some kind
RESOURCES = ("cpu", "mem_gb")
TASK_NUMBERS = ("arrival_s", "start_s", "end_s", "runnable_s", "instances", "plan_cpu", "plan_mem")
PER_JOB = {"dag": pa.int64(), "split": pa.int8(), "use_ratio": pa.float32()}
PER_JOB |= {"mem_ratio": pa.float32(), "straggle": pa.float32(), "span_s": pa.float32()}


def write_workload(path: Path, plan: Plan, periods: range, segments: Segments) -> dict[str, int]:
    """Write `workload.parquet`; returns how many tasks, services and dependencies it has."""
    tasks = pq.ParquetFile(plan.work / "batch_task.parquet")
    use = TaskUse(plan.work / "sums", periods)
    services = service_columns(plan)
    made = Blocks(path, plan, segments)
    at = dag = taken = edges = cyclic = 0
    for batch in whole_jobs(tasks):
        columns = task_columns(batch, use.of(at, batch.num_rows), plan)
        change = job_starts(batch)
        columns["meta.dag"] = dag + np.cumsum(change) - 1
        dag += int(change.sum())
        ptr, idx, lost = parents(batch, at)
        edges, cyclic = edges + len(idx), cyclic + lost
        at += batch.num_rows
        until = len(services["submit_s"])
        if at < tasks.metadata.num_rows:
            until = int(np.searchsorted(services["submit_s"], columns["submit_s"][-1], "right"))
        part = {name: column[taken:until] for name, column in services.items()}
        made.write(columns, (ptr, idx), part, taken)
        taken = until
    made.close()
    return {"tasks": at, "services": taken, "edges": edges, "edges_in_cycles": cyclic}


def whole_jobs(tasks: pq.ParquetFile) -> Iterator[pa.RecordBatch]:
    """Blocks of tasks that end where a job does."""
    rest: list[pa.RecordBatch] = []
    for batch in tasks.iter_batches(BLOCK):
        last = int(np.flatnonzero(job_starts(batch))[-1])  # where the last job begins
        if last:
            yield pa.concat_batches([*rest, batch.slice(0, last)])
            rest = []
        rest.append(batch.slice(last))
    yield pa.concat_batches(rest)


def job_starts(batch: pa.RecordBatch) -> Array:
    """(rows,) whether a job begins here; the first row counts as one."""
    names = batch["job_name"]
    change = np.ones(len(names), bool)
    change[1:] = pc.not_equal(names.slice(1), names.slice(0, len(names) - 1)).to_numpy(False)
    return change


class TaskUse:
    """What instances used, summed over the periods in which they started."""

    def __init__(self, folder: Path, periods: range) -> None:
        paths = [folder / f"{period:06d}.tasks" for period in periods]
        self.ranges = []  # (first task, last task, file): a period has the tasks of its time
        for path in paths:
            task = read_numbers(path)[:, 0] if path.exists() else np.zeros(0)
            if len(task):
                self.ranges.append((int(task.min()), int(task.max()), path))

    def of(self, first: int, count: int) -> Array:
        """(count, TASK_SUMS) of the tasks from `first` on."""
        used = np.zeros((count, len(TASK_SUMS)), np.int64)
        for low, high, path in self.ranges:
            if low < first + count and high >= first:
                merge(used, first, read_numbers(path))
        return used


@compiled
def merge(used: Array, first: int, found: Array) -> None:
    for i in range(len(found)):
        if not 0 <= found[i, 0] - first < len(used):
            continue
        row = used[found[i, 0] - first]
        row[2] = max(row[2], found[i, 3])
        for c in (0, 1, 3, 4, 5, 6):
            row[c] += found[i, c + 1]


def parents(batch: pa.RecordBatch, at: int) -> tuple[Array, Array, int]:
    """(ptr, idx, edges dropped): the tasks that each task of a block waits for, without cycles.

    A block has whole jobs and begins with task `at`, so that all parents are in it.
    """
    after = batch["after"]
    ptr = np.asarray(after.offsets, np.int64)
    idx = np.asarray(after.flatten(), np.int64)
    ptr = ptr - ptr[0]
    keep = acyclic(ptr, idx - at)
    if keep.all():
        return ptr, idx, 0
    held = np.concatenate(([0], np.cumsum(keep)))
    return held[ptr], idx[keep], int((~keep).sum())


@compiled
def acyclic(ptr: Array, idx: Array) -> Array:
    """Which edges to keep: none that leads from one task of a cycle to another."""
    count = len(ptr) - 1
    waits = np.diff(ptr)
    child_ptr = np.zeros(count + 1, np.int64)
    for parent in idx:
        child_ptr[parent + 1] += 1
    child_ptr = np.cumsum(child_ptr)
    at = child_ptr[:-1].copy()
    child = np.empty(len(idx), np.int64)
    for task in range(count):
        for e in range(ptr[task], ptr[task + 1]):
            child[at[idx[e]]] = task
            at[idx[e]] += 1
    ready = np.empty(count, np.int64)
    tail = 0
    for task in range(count):
        if waits[task] == 0:
            ready[tail] = task
            tail += 1
    head = 0
    while head < tail:
        task = ready[head]
        head += 1
        for e in range(child_ptr[task], child_ptr[task + 1]):
            waits[child[e]] -= 1
            if waits[child[e]] == 0:
                ready[tail] = child[e]
                tail += 1
    keep = np.ones(len(idx), np.bool_)
    for task in range(count):
        if waits[task] > 0:
            for e in range(ptr[task], ptr[task + 1]):
                keep[e] = waits[idx[e]] == 0
    return keep


def task_columns(batch: pa.RecordBatch, used: Array, plan: Plan) -> dict[str, Array]:
    """JOB, TRUTH and the rest of a block of tasks."""
    found = {
        name: batch[name].to_numpy(zero_copy_only=False).astype(np.float64) for name in TASK_NUMBERS
    }
    n, run_s, longest_s, cpu_s, cpu, mem_s, mem = used.T.astype(np.float64)
    seen = n > 0
    span_s = np.maximum(found["end_s"] - found["runnable_s"], SHORTEST_S)
    work_s = np.where(seen, np.maximum(run_s / np.maximum(n, 1), SHORTEST_S), span_s)
    request_s = np.where(seen, np.maximum(longest_s, SHORTEST_S), span_s)
    with np.errstate(divide="ignore", invalid="ignore"):
        use = np.where(cpu_s > 0, cpu / 100 / cpu_s / found["plan_cpu"], np.nan)
        mem_use = np.where(mem_s > 0, mem / 10_000 / mem_s / found["plan_mem"], np.nan)
    letter = [LETTERS.get(name or "", 3) for name in batch["letter"].to_pylist()]
    names = zip(batch["job_name"].to_pylist(), batch["task_name"].to_pylist())
    return {
        "submit_s": found["arrival_s"],
        "work_s": work_s,
        "request_s": np.maximum(request_s, work_s),
        "instances": found["instances"].astype(np.int64),
        "kind": np.array(letter, np.int64),
        "use": np.clip(np.where(np.isfinite(use), use, 1.0), 0.0, 1.0),
        "service": np.zeros(len(work_s), np.int64),
        "demand.cpu": found["plan_cpu"] / 100,
        "demand.mem_gb": found["plan_mem"] / 100 * plan.options.machine_mem_gb,
        "meta.use_ratio": use,
        "meta.mem_ratio": mem_use,
        "meta.span_s": found["end_s"] - found["start_s"],  # as the trace recorded it
        "meta.straggle": np.where(run_s > 0, longest_s * n / np.maximum(run_s, 1), 1.0),
        "job_id": np.array([f"{job}/{task}" for job, task in names], object),
    }


def service_columns(plan: Plan) -> dict[str, Array]:
    """The same of the services, in order of their deployment; none where they are left out."""
    services: Services = read_services(plan)
    if plan.options.services == "none" or not services.names:
        services = Services([], *(column[:0] for column in services[1:]))
    count = len(services.names)
    share = np.stack((services.cpu, services.mem), axis=1).reshape(count, 2)
    if plan.options.services == "used" and count:
        share = np.minimum(service_use(plan, count), share)
    cores, memory_gb = _machine(plan)
    nothing = np.full(count, np.nan)
    return {
        "submit_s": services.deploy_ms / 1000,
        "work_s": np.full(count, np.inf),
        "request_s": np.full(count, np.inf),
        "instances": np.ones(count, np.int64),
        "kind": np.full(count, KINDS.index("service"), np.int64),
        "use": np.ones(count),
        "service": np.ones(count, np.int64),
        "demand.cpu": share[:, 0] * cores,
        "demand.mem_gb": share[:, 1] * memory_gb,
        "meta.use_ratio": nothing,
        "meta.mem_ratio": nothing,
        "meta.straggle": np.ones(count),
        "meta.span_s": nothing,
        "job_id": np.array(services.names, object),
        "meta.dag": np.full(count, -1, np.int64),
    }


def _machine(plan: Plan) -> tuple[float, float]:
    """Cores and memory of the trace's machine; shares of unlike machines would need their own."""
    table = pq.read_table(plan.work / "machine_meta.parquet") if _has_machines(plan) else None
    cores = float(table["cores"].to_numpy().mean()) if table is not None else 0.0
    return cores, plan.options.machine_mem_gb


def _has_machines(plan: Plan) -> bool:
    return (plan.work / "machine_meta.parquet").exists()


def service_use(plan: Plan, count: int) -> Array:
    """(services, 2) mean share of CPU and memory used; what is reserved where nothing was seen."""
    use = np.zeros((count, 3), np.int64)
    for path in sorted((plan.work / "sums").glob("*.services")):
        found = read_numbers(path)
        np.add.at(use, found[:, 0], found[:, 1:])
    seen = np.maximum(use[:, :1], 1)
    return np.where(use[:, :1] > 0, use[:, 1:] / seen / 2**30, np.inf)


class Blocks:
    """Rows of services and tasks merged by time of submission, written a block at a time."""

    def __init__(self, path: Path, plan: Plan, segments: Segments) -> None:
        self.plan, self.segments = plan, segments
        self.dtype = {name: (JOB if name in (JOB.names or ()) else TRUTH)[name] for name in FIELDS}
        fields = [(name, pa.from_numpy_dtype(dtype)) for name, dtype in self.dtype.items()]
        fields += [(f"{DEMAND}{name}", pa.float64()) for name in RESOURCES]
        fields += [("job_id", pa.string()), ("after", pa.list_(pa.int64()))]
        fields += [(f"{META}{name}", kind) for name, kind in PER_JOB.items()]
        meta: dict[str, Any] = {name: {"__column__": f"{META}{name}"} for name in PER_JOB}
        meta |= {"machine_mem_gb": plan.options.machine_mem_gb, "services": plan.options.services}
        rest = {
            "schema_version": SCHEMA_VERSION,
            "resources": RESOURCES,
            "kinds": KINDS,
            "tenants": ("all",),
            "source": "Alibaba 2018: batch_task, prepared",
            "meta": meta,
        }
        self.schema = pa.schema(fields, metadata={KEY: json.dumps(rest).encode()})
        self.writer = pq.ParquetWriter(path, self.schema, **CODEC)

    def write(
        self, tasks: dict[str, Array], after: tuple[Array, Array], services: dict[str, Array],
        taken: int,
    ) -> None:  # fmt: skip
        """A block of tasks and the services that come before its end; `taken` came earlier."""
        count = len(services["submit_s"])
        before = np.searchsorted(services["submit_s"], tasks["submit_s"], "right")  # (tasks,)
        order = np.argsort(np.concatenate((services["submit_s"], tasks["submit_s"])), kind="stable")
        table = {name: np.concatenate((services[name], tasks[name]))[order] for name in tasks}
        ptr, idx = after
        # parents share the submission of their children: as many services stand before them
        shift = np.repeat(taken + before, np.diff(ptr))
        length = np.concatenate((np.zeros(count, np.int64), np.diff(ptr)))[order]
        offsets = np.concatenate(([0], np.cumsum(length))).astype(np.int32)
        flat = idx[ptr[0] : ptr[-1]] + shift
        table["after"] = pa.ListArray.from_arrays(pa.array(offsets), pa.array(flat))
        table["meta.split"] = self.splits(table["submit_s"])
        defaults = {
            "priority": 0.0, "deadline_s": np.inf, "gpu_share": 1.0, "gpu_mem_gb": 0.0,
            "checkpoint_s": np.inf, "node_kinds": np.uint64(0xFFFFFFFFFFFFFFFF), "shapes": 1,
            "gang": 0, "gpus": 0, "tenant": 0, "cancel_s": np.inf, "pattern": -1, "pinned": 0,
        }  # fmt: skip
        rows = len(order)
        for name, value in defaults.items():
            table[name] = np.full(rows, value, self.dtype[name])
        columns = [
            table[f.name] if isinstance(table[f.name], pa.Array)
            else pa.array(table[f.name], f.type, from_pandas=False)
            for f in self.schema
        ]  # fmt: skip
        self.writer.write_table(pa.Table.from_arrays(columns, schema=self.schema))

    def splits(self, submit_s: Array) -> Array:
        """(rows,) the split of the window in which each was submitted; outside: the nearest."""
        window = submit_s // self.plan.window_s
        segment = np.searchsorted(self.segments.first, window, "right") - 1
        return self.segments.split[np.clip(segment, 0, len(self.segments.split) - 1)]

    def close(self) -> None:
        self.writer.close()


FIELDS = tuple(name for name in (*(JOB.names or ()), *(TRUTH.names or ())) if name != "like")
