"""Jobs from Slurm's accounting: what sacct prints.

    sacct --allusers --parsable2 --starttime 2025-03-01 --format \\
        JobID,Submit,Start,End,ElapsedRaw,TimelimitRaw,State,AllocTRES,ReqTRES,Priority,\\
        User,Account,Partition,QOS,Constraints,Reservation,SubmitLine

`sacct --parsable` and `sacct --json` (Slurm 21.08 and later) are read as well. Fields may stand in
any order; JobID, Submit, State and a run time (ElapsedRaw, Elapsed, or Start and End) are needed.
SubmitLine, which may hold a |, stands last.
"""

import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trimtab.arrays import Array
from trimtab.build import workload
from trimtab.columns import MAX_DEVICES
from trimtab.core import Workload
from trimtab.errors import TraceError
from trimtab.traces.readers.csv_rows import Rows, numbered, read_text
from trimtab.traces.readers.sacct_json import job_fields
from trimtab.traces.readers.sacct_labels import (
    asked_models,
    labels_of,
    parents_of,
    waiting_limits,
    whole_nodes,
)
from trimtab.traces.readers.slurm_text import (
    AMOUNT,
    MB_A_UNIT,
    count,
    gpus,
    instant_s,
    limit_s,
    span_s,
    tres,
)

NOT_NUMBER = re.compile(r"\D")
RESOURCES = ("cpu", "mem_gb", "gpu")
ENDED = (
    *("COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "PREEMPTED"),
    *("OUT_OF_MEMORY", "NODE_FAIL", "DEADLINE", "BOOT_FAIL"),
)
NOT_ENDED = (
    *("PENDING", "RUNNING", "SUSPENDED", "REQUEUED", "RESIZING", "REVOKED"),
    *("COMPLETING", "CONFIGURING", "STOPPED", "SIGNALING", "STAGE_OUT"),
    *("SPECIAL_EXIT", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD"),
)
FIELDS = (
    *("JobID", "Submit", "Start", "End", "ElapsedRaw", "Elapsed"),
    *("TimelimitRaw", "Timelimit", "State", "AllocTRES", "ReqTRES", "Priority"),
    *("User", "Account", "Partition", "NNodes", "NCPUS", "ReqMem"),
    *("QOS", "Constraints", "Reservation", "ReqGRES", "tasks_at_once", "SubmitLine"),
)


def read_sacct(
    path: str | Path, *, lenient: bool = False, states: Sequence[str] = ENDED
) -> Workload:
    """Jobs that ran and ended, as gangs of one instance a node; the account is the tenant.

    A job that ended in one of `states` is kept however it ended, for it held what it was given. One
    that never ran or has not ended is dropped and counted in `meta["dropped"]`, also when strict;
    steps are passed over. Demand is what was allocated, or where that is not told what was asked;
    of a job with whole nodes (--exclusive) what was asked. Nodes of one job are taken to hold like
    shares, GPUs rounded up. `kind` is the GPU model asked
    for, or "job"; `labels` are what a job names of its site, and it waits for those it depends on.
    A job without a time limit requests the time it took. Times without a zone are taken as UTC, so
    that the hour a clock gains in autumn shows twice. `meta["recorded"]` has the starts and ends in
    the cluster that was logged, `meta["epoch_s"]` the seconds since 1970 of time 0.
    """
    path = Path(path)
    text = read_text(path)
    reader = _of_json if text.lstrip().startswith("{") else _listed
    rows = reader(path, text, lenient)
    limits = waiting_limits(rows["JobID"])
    _jobs_only(rows)
    _known_states(rows)
    _ended(rows, states)
    _times(rows)
    _demand(rows)
    if not len(rows):
        raise TraceError(f"{path}: all jobs were dropped: {rows.dropped}; give another list")
    # of one second, by number: a job comes after those that it depends on
    number = np.array([float(NOT_NUMBER.split(job_id)[0] or 0) for job_id in rows["JobID"]])
    rows.keep(np.lexsort((number, rows["submit_s"])))
    return _workload(rows, limits)


def is_sacct(text: str) -> bool:
    """Whether a text, or its beginning, is what sacct prints, with | or as JSON."""
    first = text.lstrip().split("\n", 1)[0].strip().split("|")
    return ("JobID" in first and len(first) > 1) or (
        text.lstrip().startswith("{") and '"jobs"' in text
    )


def _listed(path: Path, text: str, lenient: bool) -> Rows:
    """The rows below the header, each with the fields that we know."""
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines:
        raise TraceError(f"{path}: the file is empty; give what sacct --parsable2 prints")
    header = lines[0][1]
    names = [name.strip() for name in header.split("|")]
    lines = [(number, line) for number, line in lines if line != header]  # lists put end to end
    most = len(names) - 1 if names[-1] == "SubmitLine" else -1
    split = [line.split("|", most) for _, line in lines]
    fit = np.array([len(fields) == len(names) for fields in split], bool)
    whole = Rows(path, {}, np.array([number for number, _ in lines], np.int64), lenient)
    if not fit.all():
        whole.columns["row"] = np.array([line for _, line in lines], object)
        problem = f"does not have {len(names)} fields (does JobName hold a |? leave it out)"
        whole.refuse(~fit, "row", problem)
    columns = list(zip(*(fields for fields, good in zip(split, fit) if good)))
    table = {name: columns[names.index(name)] for name in FIELDS if name in names and columns}
    return _rows(path, names, table, whole)


def _rows(path: Path, names: Sequence[str], table: dict[str, Any], whole: Rows) -> Rows:
    """Every field of FIELDS as text, "" where the file has none."""
    clock = {"ElapsedRaw"} & {*names} or {"Elapsed"} & {*names} or {"Start", "End"}
    for name in ("JobID", "Submit", "State", *sorted(clock)):
        if name not in names:
            raise TraceError(
                f"{path}:1: field {name} is missing; add it to sacct's --format "
                f"(the file has {', '.join(filter(None, names))})"
            )
    if not len(whole):
        raise TraceError(f"{path}: the list holds no jobs; give sacct an earlier --starttime")
    columns = {}
    for name in FIELDS:
        columns[name] = np.full(len(whole), "", object)
        if name in table:
            columns[name][:] = [text.strip() for text in table[name]]
    made = Rows(path, columns, whole.line, whole.lenient)
    made.dropped = whole.dropped
    return made


def _of_json(path: Path, text: str, lenient: bool) -> Rows:
    """The jobs of the JSON as rows, whose `line` is their place in the list, counted from 1."""
    try:
        jobs = json.loads(text)["jobs"]
        told = [job_fields(job) for job in jobs]
    except json.JSONDecodeError as error:
        problem = f"not JSON ({error.msg})"
        raise TraceError(f"{path}:{error.lineno}: {problem}; run sacct --json again") from None
    except (KeyError, TypeError, AttributeError) as error:
        raise TraceError(
            f"{path}: a job lacks {error} or holds it in another form; want what sacct --json "
            f"prints: jobs of job_id, state, time and tres"
        ) from None
    table = {name: [job.get(name, "") for job in told] for name in FIELDS}
    return _rows(path, FIELDS, table, Rows(path, {}, np.arange(1, len(told) + 1), lenient))


def _jobs_only(rows: Rows) -> None:
    """Pass over steps (123.batch, 123.0), and refuse a job that stands twice."""
    rows.refuse(rows["JobID"] == "", "JobID", "is missing")
    rows.keep(np.flatnonzero(["." not in job_id for job_id in rows["JobID"]]))
    times = Counter(rows["JobID"])
    first = np.zeros(len(rows), bool)
    first[np.unique(rows["JobID"].astype(str), return_index=True)[1]] = True
    again = ~first & np.array([times[job_id] > 1 for job_id in rows["JobID"]], bool)
    rows.refuse(again, "JobID", "stands above too (sacct without --duplicates tells it once)")


def _known_states(rows: Rows) -> None:
    # "CANCELLED by 1000"; with other columns cut to a width, "CANCELLED+"
    words = [(text.split() or [""])[0].rstrip("+").upper() for text in rows["State"]]
    rows.columns["state"] = np.array(words, object)
    known = np.isin(rows["state"].astype(str), [*ENDED, *NOT_ENDED])
    rows.refuse(~known, "State", "is no state of a job that Slurm tells")


def _ended(rows: Rows, states: Sequence[str]) -> None:
    """Keep the jobs that ended in one of the states, with their run time as `work_s`."""
    for name in states:
        if name not in ENDED:
            raise TraceError(
                f"states: {name!r} is no end of a job; choose among {', '.join(ENDED)}"
            )
    state = rows["state"].astype(str)
    over = np.isin(state, ENDED)
    _pass_over(rows, ~over, "has not ended")
    state = state[over]
    _pass_over(rows, ~np.isin(state, list(states)), "ended in a state that is left out")
    _convert(rows, "Start", "start_s", instant_s, "is not a time")
    _convert(rows, "End", "end_s", instant_s, "is not a time")
    rows.columns["work_s"] = rows["end_s"] - rows["start_s"]
    column = "End"
    if (rows["ElapsedRaw"] != "").any() or (rows["Elapsed"] != "").any():
        column = "ElapsedRaw" if (rows["ElapsedRaw"] != "").any() else "Elapsed"
        _convert(rows, column, "work_s", span_s, "is not a run time")
    rows.refuse(rows["work_s"] < 0, column, "is before the start")
    start_s, end_s = rows["start_s"], rows["end_s"]
    rows.columns["start_s"] = np.where(np.isnan(start_s), end_s - rows["work_s"], start_s)
    rows.columns["end_s"] = np.where(np.isnan(end_s), start_s + rows["work_s"], end_s)
    _pass_over(rows, ~(rows["work_s"] > 0), "never ran, or for less than a second")


def _pass_over(rows: Rows, bad: Array, reason: str) -> None:
    """Drop what a list of jobs holds by its nature, also when strict."""
    if bad.any():
        rows.dropped[reason] = rows.dropped.get(reason, 0) + int(bad.sum())
        rows.keep(np.flatnonzero(~bad))


def _times(rows: Rows) -> None:
    _convert(rows, "Submit", "submit_s", instant_s, "is not a time")
    rows.refuse(np.isnan(rows["submit_s"]), "Submit", "is missing")
    column = "TimelimitRaw" if (rows["TimelimitRaw"] != "").any() else "Timelimit"
    _convert(rows, column, "request_s", limit_s, "is not a time limit")
    _convert(rows, "Priority", "priority", count, "is not a number")


def _demand(rows: Rows) -> None:
    """Columns cpu, mem_gb, gpu of a whole job, and its nodes."""
    _convert(rows, "AllocTRES", "held", tres, "is not such as cpu=4,mem=16G,gres/gpu:v100=2")
    _convert(rows, "ReqTRES", "asked", tres, "is not such as cpu=4,mem=16G,gres/gpu:v100=2")
    _convert(rows, "NNodes", "listed_nodes", count, "is not a number of nodes")
    _convert(rows, "NCPUS", "listed_cpus", count, "is not a number of CPUs")
    _convert(rows, "ReqGRES", "asked_gres", _gres, "is not such as gpu:v100:2")
    # who has whole nodes is given all that is on them, and needs what it asked for
    alone = whole_nodes(rows)
    both = zip(rows["held"], rows["asked"], alone)
    told = [asked if whole and "cpu" in asked else asked | held for held, asked, whole in both]
    rows.columns["told"] = np.array(told, object)
    rows.columns["nodes"] = np.maximum(_amounts(rows, "node", "listed_nodes"), 1.0)
    rows.columns["cpu"] = _amounts(rows, "cpu", "listed_cpus")
    per = zip(rows["ReqMem"], rows["cpu"], rows["nodes"])
    rows.columns["listed_mb"] = np.array([_req_mem_mb(*job) for job in per], np.float64)
    rows.refuse(np.isnan(rows["listed_mb"]), "ReqMem", "is not such as 16G, 4Gc or 4000M")
    rows.columns["mem_gb"] = _amounts(rows, "mem", "listed_mb") / 1024
    gpu = np.array([gpus(job) for job in rows["told"]], np.float64)
    each = np.array([gpus(node) for node in rows["asked_gres"]], np.float64)
    rows.columns["gpu"] = np.where(gpu > 0, gpu, each * rows["nodes"])
    nothing = (rows["cpu"] <= 0) & (rows["gpu"] <= 0)
    rows.refuse(nothing, "AllocTRES", "tells of no CPU and no GPU (add ReqTRES or NCPUS)")
    each = -(-rows["gpu"] // rows["nodes"])
    rows.refuse(each > MAX_DEVICES, "AllocTRES", f"has more than {MAX_DEVICES} GPUs a node")


def _amounts(rows: Rows, name: str, listed: str) -> Array:
    """What the jobs' TRES tell of a resource, or else the column of its own."""
    return np.array([job.get(name, own) for job, own in zip(rows["told"], rows[listed])], float)


def _convert(rows: Rows, name: str, into: str, convert: Any, problem: str) -> None:
    """Make column `into` of the texts of another; refuse those for which `convert` has None."""
    made = [convert(text) for text in rows[name]]
    rows.columns[into] = np.empty(len(made), object)
    rows.columns[into][:] = made
    rows.refuse(np.array([value is None for value in made], bool), name, problem)
    if not any(isinstance(value, dict) for value in rows[into]):
        rows.columns[into] = rows[into].astype(np.float64)


def _gres(text: str) -> dict[str, float] | None:
    """GPUs a node of ReqGRES, which Slurm told until 20.11, such as PER_NODE:gpu:v100:2."""
    parts = [part.removeprefix("PER_NODE:") for part in text.split(",")]
    return tres(",".join(f"gres/{part}" for part in parts if part.startswith("gpu")))


def _req_mem_mb(text: str, cpus: float, nodes: float) -> float:
    """MB of a whole job: until Slurm 21 a c or n after the amount told per CPU or per node."""
    if text in ("", "0", "?"):
        return 0.0
    found = AMOUNT.fullmatch(text)
    if not found:
        return np.nan
    return float(found[1]) * MB_A_UNIT[found[2]] * {"c": cpus, "n": nodes, "": 1.0}[found[3]]


def _workload(rows: Rows, limits: dict[str, str]) -> Workload:
    nodes = rows["nodes"]
    each = -(-rows["gpu"] // nodes)
    demand = np.stack((rows["cpu"] / nodes, rows["mem_gb"] / nodes, each), axis=1)
    limited = ~np.isnan(rows["request_s"])
    account = [a or user or "unknown" for a, user in zip(rows["Account"], rows["User"])]
    models = asked_models(rows)
    kinds, kind = numbered(np.array([model or "job" for model in models], object))
    tenants, tenant = numbered(np.array(account, object))
    statuses, status = numbered(rows["state"])
    partitions, partition = numbered(rows["Partition"])
    after, left_out = parents_of(rows)
    epoch_s = rows["submit_s"][0]
    return workload(
        rows["submit_s"] - epoch_s,
        rows["work_s"],
        demand,
        resources=RESOURCES,
        request_s=np.where(limited, rows["request_s"], rows["work_s"]),
        priority=rows["priority"],
        instances=nodes.astype(np.int64),
        gpus=each.astype(np.int64),
        kind=kind,
        kinds=kinds,
        tenant=tenant,
        tenants=tenants,
        job_id=rows["JobID"].astype(str),
        after=after,
        labels=labels_of(rows, models, limits),
        source=rows.path.name,
        meta={
            "status": status,
            "statuses": list(statuses),
            "partition": partition,
            "partitions": list(partitions),
            "wait_s": rows["start_s"] - rows["submit_s"],  # in the cluster that was logged
            "recorded": {"start_s": rows["start_s"] - epoch_s, "end_s": rows["end_s"] - epoch_s},
            "epoch_s": float(epoch_s),
            "no_limit": int((~limited).sum()),
            "uneven_gpus": int((each * nodes != rows["gpu"]).sum()),
            "dependencies_left_out": left_out,
            "dropped": rows.dropped,
        },
    )
