"""Read Microsoft's Philly trace (ATC 2019, msr-fiddle/philly-traces): GPU jobs of late 2017.

Two layouts: the published `cluster_job_log`, a JSON list of jobs with their attempts, and the CSV
that follow-up work uses (timestamp, duration, num_gpus, gpu_time, cluster). Neither says what CPU
and memory a job asks for, so jobs ask for GPUs alone. Times are local, as logged: the hour that
November gains shows as jobs submitted an hour apart that were not.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from trimtab.arrays import Array
from trimtab.build import workload
from trimtab.core import Workload
from trimtab.errors import TraceError
from trimtab.traces.readers.csv_rows import Rows, numbered, read_rows, read_text

CSV_COLUMNS = ("timestamp", "duration", "num_gpus", "gpu_time", "cluster")
TIMES = ("wait_s", "from_first_to_last_s")  # to the first attempt, and from it to the last's end
GPUS_A_NODE = 8  # of the larger of Philly's two kinds of server; the other has 2


def read_philly(
    path: str | Path, *, lenient: bool | None = None, gpus_a_node: int = GPUS_A_NODE
) -> Workload:
    """Jobs as gangs that ask for whole GPUs; the virtual cluster is the tenant.

    A job of more than `gpus_a_node` GPUs is split evenly over the fewest instances that a node can
    hold: 16 = 2 x 8, 12 = 2 x 6, 11 = 11 x 1. Killed and failed jobs stay, for they held their GPUs
    all the same. Of the JSON, attempts that follow each other add up and the widest one counts; in
    `meta["status"]` stands a number of `meta["statuses"]`; recorded are the start of the first
    attempt and the end of the last. A job that never ran or has no end is dropped and counted in
    `meta["dropped"]`; with `lenient` False it is an error. Rows are sorted.
    """
    path = Path(path)
    text = read_text(path)
    rows = _jobs(path, text, lenient) if is_job_log(text) else _listed(path, lenient)
    rows.refuse(rows["run_s"] < 0, "run_s", "is negative")
    gpus = rows["gpus"]
    rows.refuse((gpus < 1) | (gpus != np.floor(gpus)), "gpus", "is not a whole number above 0")
    rows.keep(np.argsort(rows["submit_s"], kind="stable"))
    instances, each = split(rows["gpus"].astype(np.int64), gpus_a_node)
    tenants, tenant = numbered(rows["tenant"])
    meta: dict[str, Any] = {"modelled": {"gpus_a_node": gpus_a_node}, "dropped": rows.dropped}
    if "status" in rows.columns:
        statuses, meta["status"] = numbered(rows["status"])
        meta["statuses"] = list(statuses)
        start_s = rows["submit_s"] - rows["submit_s"][0] + rows["wait_s"]
        meta["recorded"] = {"start_s": start_s, "end_s": start_s + rows["from_first_to_last_s"]}
    return workload(
        rows["submit_s"] - rows["submit_s"][0],
        rows["run_s"],
        each,
        resources=("gpu",),
        instances=instances,
        gpus=each,
        tenant=tenant,
        tenants=tenants,
        job_id=rows["job_id"].astype(str),
        source=path.name,
        meta=meta,
    )


def split(gpus: Array, most: int) -> tuple[Array, Array]:
    """Instances and GPUs of each: the fewest like ones that ask for at most `most`."""
    instances = np.maximum(1, -(-gpus // most))
    for row in np.flatnonzero(gpus % instances):
        while gpus[row] % instances[row]:
            instances[row] += 1
    return instances, gpus // instances


def is_job_log(text: str) -> bool:
    """Whether a text, or its beginning, is the published JSON."""
    return text.lstrip().startswith("[") and '"attempts"' in text[:65536]


def _listed(path: Path, lenient: bool | None) -> Rows:
    rows = read_rows(path, CSV_COLUMNS, lenient=lenient, header=True)
    rows.parse("duration", "num_gpus")
    rows.parse_time("timestamp")
    named = {"submit_s": "timestamp", "run_s": "duration", "gpus": "num_gpus", "tenant": "cluster"}
    rows.columns = {name: rows[column] for name, column in named.items()}
    rows.columns["job_id"] = (rows.line - 2).astype(object)  # the list has no names
    return rows


def _jobs(path: Path, text: str, lenient: bool | None) -> Rows:
    """The jobs of the JSON as rows, whose `line` is their place in the list, counted from 1."""
    try:
        jobs = json.loads(text)
    except json.JSONDecodeError as error:
        problem = f"not JSON ({error.msg})"
        raise TraceError(f"{path}:{error.lineno}: {problem}; fetch the file again") from None
    try:
        told = [_job(job) for job in jobs]
    except (KeyError, TypeError, AttributeError) as error:
        raise TraceError(
            f"{path}: a job lacks {error} or holds it in another form; want jobid, status, vc, "
            f"submitted_time, attempts of start_time, end_time, detail of gpus"
        ) from None
    names = ("job_id", "status", "tenant", "submit_s", "gpus", "run_s", *TIMES)
    columns = {name: _objects(values) for name, values in zip(names, zip(*told))}
    rows = Rows(path, columns, np.arange(1, len(told) + 1), lenient)
    never = np.array([run_s is None for run_s in rows["run_s"]], bool)
    rows.pass_over(never, "job_id", "has no attempt, or one without a start or an end")
    rows.parse_time("submit_s")
    rows.columns |= {name: rows[name].astype(np.float64) for name in ("gpus", "run_s", *TIMES)}
    return rows


def _job(job: dict[str, Any]) -> tuple[str, str, str, str, int, float | None, float, float]:
    attempts = job["attempts"]
    gpus = [sum(len(node["gpus"]) for node in attempt["detail"]) for attempt in attempts]
    ends = [(_time(attempt["start_time"]), _time(attempt["end_time"])) for attempt in attempts]
    whole = bool(ends) and not any(np.isnat(at) for pair in ends for at in pair)
    run_s = sum(_seconds(end - start) for start, end in ends)
    submitted = str(job["submitted_time"] or "")
    return (
        str(job["jobid"]),
        str(job["status"]),
        str(job["vc"]),
        submitted,
        max(gpus, default=0),
        run_s if whole else None,
        _seconds(ends[0][0] - _time(submitted)) if whole else np.nan,
        _seconds(ends[-1][1] - ends[0][0]) if whole else np.nan,
    )


def _seconds(span: np.timedelta64) -> float:
    return np.nan if np.isnat(span) else float(span / np.timedelta64(1, "s"))


def _time(text: str | None) -> np.datetime64:
    """The log writes null or None for a time that it lacks."""
    try:
        return np.datetime64(text or "NaT", "s")
    except ValueError:
        return np.datetime64("NaT", "s")


def _objects(values: tuple[Any, ...]) -> Array:
    column = np.empty(len(values), object)
    column[:] = values
    return column
