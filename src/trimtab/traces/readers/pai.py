"""Read Alibaba's GPU trace of 2020 (PAI, "MLaaS in the Wild", NSDI 2022): tasks and machines.

`pai_task_table` and `pai_machine_spec` are published as `.tar.gz` of a CSV without a header, which
stands in a `.header` file beside it; copies with a header, and packed otherwise, are read too. The
conversion of 10,000 tasks that follow-up work uses (job_id, task_id, submit_time, duration,
instances_num, cpu, memory, gpu) is known by its header.
"""

from pathlib import Path
from typing import Any

import numpy as np

from trimtab.arrays import Array
from trimtab.build import cluster, workload
from trimtab.core import Cluster, Workload
from trimtab.traces.readers.csv_rows import Rows, numbered, read_rows, read_text

TASK = (
    "job_name",
    "task_name",
    "inst_num",
    "status",
    "start_time",
    "end_time",
    "plan_cpu",
    "plan_mem",
    "plan_gpu",
    "gpu_type",
)
JOB = ("job_name", "inst_id", "user", "status", "start_time", "end_time")
MACHINE = ("machine", "gpu_type", "cap_cpu", "cap_mem", "cap_gpu")
DERIVED = (
    "job_id",
    "task_id",
    "submit_time",
    "duration",
    "instances_num",
    "cpu",
    "memory",
    "gpu",
)
STATUSES = ("Running", "Terminated", "Failed", "Waiting")
GPU_TYPES = ("CPU", "MISC", "P100", "T4", "V100", "V100M32")  # node kinds; CPU = without GPUs
RESOURCES = ("cpu", "mem_gb", "gpu")
PERCENT = 100
JOB_TABLE = "pai_job_table"
SUFFIXES = (".csv", ".csv.gz", ".csv.xz", ".csv.bz2", ".tar.gz")


def read_pai(path: str | Path, *, lenient: bool | None = None) -> Workload:
    """Tasks as gangs of their instances; the GPU type that a task ran on is its kind.

    A GPU share up to 1 is a share of one device. More than one GPU comes whole: what is between is
    rounded up, as many times as `meta["rounded_up"]` says. An empty plan_gpu is no GPU. Tasks of
    one job share a number in `meta["dag"]`; that they start together is not modelled.

    A task is submitted when `pai_job_table`, if it lies beside the file, says that its job was, and
    its tenant is the job's user; else when it started. Time 0 is the first one's, `meta["first_s"]`
    the trace's. A task that did not end well (status not Terminated) is dropped and counted in
    `meta["dropped"]`, and one that lacks a time or a plan is a bad row; with `lenient` False either
    is an error. Rows are sorted.
    """
    path = Path(path)
    if is_derived(_first_fields(path)):
        return _derived(path, lenient)
    rows = read_rows(path, _names(path, TASK), lenient=lenient)
    rows.refuse(rows["job_name"] == "", "job_name", "is missing")
    rows.pass_over(rows["status"] != "Terminated", "status", "is not Terminated")
    rows.parse("inst_num", "start_time", "end_time", "plan_cpu", "plan_mem")
    rows.parse("plan_gpu", empty=0.0)
    _refuse_amounts(rows, "inst_num", ("plan_cpu", "plan_mem", "plan_gpu"))
    rows.refuse(rows["end_time"] < rows["start_time"], "end_time", "is before start_time")
    submit_s, user, told = _submissions(rows, path)
    kind = np.where(rows["gpu_type"] == "", "CPU", rows["gpu_type"])
    return _workload(
        rows,
        submit_s=submit_s,
        work_s=rows["end_time"] - rows["start_time"],
        amounts=(rows["plan_cpu"] / PERCENT, rows["plan_mem"], rows["plan_gpu"] / PERCENT),
        instances=rows["inst_num"],
        kind=kind,
        names=(rows["job_name"], rows["task_name"]),
        user=user,
        told=told,
        # without submissions of their own tasks are submitted when they start: nothing is recorded
        started_s=rows["start_time"] if (submit_s < rows["start_time"]).any() else None,
    )


def read_machines(path: str | Path) -> Cluster:
    """The machines of `pai_machine_spec` as a cluster; a GPU type is a node kind."""
    path = Path(path)
    rows = read_rows(path, _names(path, MACHINE))
    rows.parse("cap_cpu", "cap_mem", "cap_gpu")
    unknown = ~np.isin(rows["gpu_type"].astype(str), GPU_TYPES)
    rows.refuse(unknown, "gpu_type", f"is none of {', '.join(GPU_TYPES)}")
    return cluster(
        np.stack([rows[name] for name in ("cap_cpu", "cap_mem", "cap_gpu")], axis=1),
        resources=RESOURCES,
        kind=[GPU_TYPES.index(name) for name in rows["gpu_type"]],
        kinds=GPU_TYPES,
        names=rows["machine"].astype(str),
        source=path.name,
    )


def is_pai(fields: list[str]) -> bool:
    """Whether the fields of a file's first line are those of a task table, or of the conversion."""
    if is_derived(fields) or fields == list(TASK):
        return True
    return len(fields) == len(TASK) and fields[TASK.index("status")] in STATUSES


def is_derived(fields: list[str]) -> bool:
    return set(DERIVED) <= set(fields)


def is_machines(path: str | Path) -> bool:
    """Whether a file is `pai_machine_spec`, by its first line."""
    fields = _first_fields(path)
    return fields == list(MACHINE) or (len(fields) == len(MACHINE) and fields[1] in GPU_TYPES)


def _first_fields(path: str | Path) -> list[str]:
    first = read_text(path).lstrip().partition("\n")[0]
    return [field.strip() for field in first.split(",")]


def _names(path: Path, usual: tuple[str, ...]) -> tuple[str, ...]:
    """The columns as the `.header` file beside the table has them, or else as published."""
    header = path.with_name(f"{path.name.partition('.')[0]}.header")
    if not header.is_file():
        return usual
    return tuple(name.strip() for name in read_text(header).strip().split(","))


def _refuse_amounts(rows: Rows, instances: str, names: tuple[str, ...]) -> None:
    count = rows[instances]
    rows.refuse(
        (count < 1) | (count != np.floor(count)), instances, "is not a whole number above 0"
    )
    for name in names:
        rows.refuse(rows[name] < 0, name, "is negative")


def _submissions(rows: Rows, path: Path) -> tuple[Array, Array, dict[str, Any]]:
    """When each task was submitted, by whom, and where that is known from."""
    submit_s, user = rows["start_time"].copy(), np.full(len(rows), "all", object)
    beside = [path.with_name(f"{JOB_TABLE}{suffix}") for suffix in SUFFIXES]
    found = next((table for table in beside if table.is_file()), None)
    if found is None:
        return submit_s, user, {"submitted": "when the task started: no pai_job_table beside it"}
    # a job that is not usable takes only its submit time from its tasks: no reason to refuse it
    jobs = read_rows(found, _names(found, JOB), lenient=True)
    jobs.parse("start_time")
    number = {name: row for row, name in enumerate(jobs["job_name"])}
    row = np.array([number.get(name, -1) for name in rows["job_name"]], np.int64)
    known = row >= 0
    user[known] = jobs["user"][row[known]]
    user[~known] = "unknown"
    # a task cannot start before its job was submitted: then the job's time is that of a restart
    submit_s[known] = np.minimum(jobs["start_time"][row[known]], submit_s[known])
    told = f"{int(known.sum()):,} of {len(rows):,} tasks by {found.name}, others when they started"
    return submit_s, user, {"submitted": told}


def _derived(path: Path, lenient: bool | None) -> Workload:
    """The conversion; its column gpu_type_require is filled wrongly and passed over."""
    rows = read_rows(path, DERIVED, lenient=lenient, header=True)
    rows.parse("submit_time", "duration", "instances_num", "cpu", "memory", "gpu")
    _refuse_amounts(rows, "instances_num", ("duration", "cpu", "memory", "gpu"))
    return _workload(
        rows,
        submit_s=rows["submit_time"],
        work_s=rows["duration"],
        amounts=(rows["cpu"], rows["memory"], rows["gpu"]),
        instances=rows["instances_num"],
        kind=np.where(rows["gpu"] > 0, "GPU", "CPU").astype(object),
        names=(rows["job_id"], rows["task_id"]),
        user=np.full(len(rows), "all", object),
        told={"submitted": "submit_time"},
    )


def devices(asked: Array) -> tuple[Array, Array]:
    """Devices and the share of each: a fraction is of one device, above 1 they come whole."""
    return np.ceil(asked), np.where((asked > 0) & (asked < 1), asked, 1.0)


def _workload(
    rows: Rows,
    *,
    submit_s: Array,
    work_s: Array,
    amounts: tuple[Array, Array, Array],
    instances: Array,
    kind: Array,
    names: tuple[Array, Array],
    user: Array,
    told: dict[str, Any],
    started_s: Array | None = None,
) -> Workload:
    order = np.argsort(submit_s, kind="stable")
    first_s = float(submit_s[order[0]])
    cpu, mem_gb, asked = amounts
    gpus, share = devices(asked)
    kinds, kind_of = numbered(kind[order])
    tenants, tenant = numbered(user[order])
    if started_s is not None:
        start_s = (started_s - first_s)[order]
        told = told | {"recorded": {"start_s": start_s, "end_s": start_s + work_s[order]}}
    return workload(
        submit_s[order] - first_s,
        work_s[order],
        np.stack((cpu, mem_gb, gpus * share), axis=1)[order],
        resources=RESOURCES,
        instances=instances[order],
        gpus=gpus[order],
        gpu_share=share[order],
        kind=kind_of,
        kinds=kinds,
        tenant=tenant,
        tenants=tenants,
        job_id=[f"{names[0][row]}/{names[1][row]}" for row in order],
        source=rows.path.name,
        meta={
            "dag": numbered(names[0][order])[1],
            "first_s": first_s,
            "rounded_up": int(((asked > 1) & (gpus > asked)).sum()),
            "dropped": rows.dropped,
            **told,
        },
    )
