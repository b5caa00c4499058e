"""Read the batch tasks of Alibaba's cluster trace of 2017.

`batch_task.csv` has a row a task: create and end time in seconds, job, task, number of instances,
status, CPU an instance in hundredths of a core, and memory an instance as a share of one machine's.
The published file has no header; copies with one are read too.
"""

from pathlib import Path

import numpy as np

from trimtab.build import workload
from trimtab.core import Workload
from trimtab.traces.readers.csv_rows import Rows, numbered, read_rows

COLUMNS = (
    "create_s",
    "end_s",
    "job_id",
    "task_id",
    "instances",
    "status",
    "plan_cpu",
    "plan_mem",
)
STATUSES = ("Ready", "Waiting", "Running", "Terminated", "Failed", "Cancelled", "Interrupted")
HEADERS = ("task_create_time", "create_time", "create_timestamp", COLUMNS[0])
CORE = 100  # plan_cpu of one core
MACHINE_MEM_GB = 256.0  # modelled: 4 GB for each of a machine's 64 cores


def read_alibaba2017(
    path: str | Path, *, lenient: bool | None = None, machine_mem_gb: float = MACHINE_MEM_GB
) -> Workload:
    """Tasks as arrays whose instances need not start together; `job_id` is `job/task`.

    `meta["dag"]` numbers the jobs, whose tasks depend on each other in ways the trace keeps to
    itself. Each instance runs as long as its task did: an upper bound, for only the task's times
    are in the table. `machine_mem_gb` is modelled, for the trace does not disclose it. Time 0 is
    the first task's creation; `meta["first_s"]` is the trace's.

    Strict, a row that did not end well (status not Terminated), ends before it begins or lacks its
    plans is an error; `lenient` drops it and counts it in `meta["dropped"]`. Both sort the rows.
    """
    rows = _without_header(read_rows(path, COLUMNS, lenient=lenient, header=False))
    rows.refuse(rows["job_id"] == "", "job_id", "is missing")
    rows.pass_over(rows["status"] != "Terminated", "status", "is not Terminated")
    rows.parse("create_s", "end_s", "instances", "plan_cpu", "plan_mem")
    rows.refuse(rows["end_s"] < rows["create_s"], "end_s", "is before the task was created")
    rows.refuse(~_whole(rows["instances"]), "instances", "is not a whole number above 0")
    rows.refuse(rows["plan_cpu"] < 0, "plan_cpu", "is negative")
    rows.refuse(rows["plan_mem"] < 0, "plan_mem", "is negative")
    rows.keep(np.argsort(rows["create_s"], kind="stable"))
    first_s = float(rows["create_s"][0])
    return workload(
        rows["create_s"] - first_s,
        rows["end_s"] - rows["create_s"],
        np.stack((rows["plan_cpu"] / CORE, rows["plan_mem"] * machine_mem_gb), axis=1),
        resources=("cpu", "mem_gb"),
        instances=rows["instances"],
        gang=0,
        job_id=[f"{job}/{task}" for job, task in zip(rows["job_id"], rows["task_id"])],
        source=Path(path).name,
        meta={
            "dag": numbered(rows["job_id"])[1],
            "first_s": first_s,
            "modelled": {"machine_mem_gb": machine_mem_gb},
            "dropped": rows.dropped,
        },
    )


def is_alibaba2017(fields: list[str]) -> bool:
    """Whether the fields of a file's first line are those of this table, with a header or not."""
    if fields[0] in HEADERS:
        return len(fields) == len(COLUMNS)
    return (
        len(fields) == len(COLUMNS)
        and fields[COLUMNS.index("status")] in STATUSES
        and fields[0].lstrip("-").isdigit()
    )


def _without_header(rows: Rows) -> Rows:
    # copies name the columns differently, but all keep their order
    if rows["create_s"][0] in HEADERS:
        rows.keep(np.arange(1, len(rows)))
    return rows


def _whole(values: np.ndarray) -> np.ndarray:
    return (values >= 1) & (values == np.floor(values))
