"""Jobs of `sacct --json` in the words of its list, whatever the version: 21.08 to 24.11."""

from __future__ import annotations

from typing import Any


def job_fields(job: dict[str, Any]) -> dict[str, str]:
    """A job in sacct's own words for the fields of its list."""
    time, array, tres = job["time"], job.get("array") or {}, job.get("tres") or {}
    state = job["state"]["current"]
    task = plain(array.get("task_id"))
    in_array = plain(array.get("job_id")) not in ("", "0") and task
    return {
        "JobID": f"{plain(array['job_id'])}_{task}" if in_array else plain(job["job_id"]),
        "Submit": plain(time["submission"]),
        "Start": plain(time.get("start")),
        "End": plain(time.get("end")),
        "ElapsedRaw": plain(time.get("elapsed")),
        "TimelimitRaw": plain(time.get("limit")),
        "State": " ".join(state) if isinstance(state, list) else str(state),
        "AllocTRES": _tres_text(tres.get("allocated")),
        "ReqTRES": _tres_text(tres.get("requested")),
        "Priority": plain(job.get("priority")),
        "User": str(job.get("user") or (job.get("association") or {}).get("user") or ""),
        "Account": str(job.get("account") or ""),
        "Partition": str(job.get("partition") or ""),
        "NNodes": plain(job.get("allocation_nodes")),
        "QOS": _name(job.get("qos")),
        "Constraints": _name(job.get("constraints")),
        "Reservation": _name(job.get("reservation")),
        "SubmitLine": _name(job.get("submit_line")),
        "tasks_at_once": plain(_at_once(array)),
    }


def plain(value: Any) -> str:
    """A number as text; from Slurm 23.02 on it comes as {set, infinite, number}."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set", True) and not value.get("infinite") else ""
    return "" if value is None else str(value)


def _name(value: Any) -> str:
    """A name; where there is none, some versions have 0. A reservation's stands in a table."""
    if isinstance(value, dict):
        value = value.get("name")
    return value if isinstance(value, str) else ""


def _at_once(array: dict[str, Any]) -> Any:
    """How many tasks of an array may run together; 0 or nothing where all may."""
    limits = array.get("limits") or {}
    return ((limits.get("max") or {}).get("running") or {}).get("tasks")


def _tres_text(listed: Any) -> str:
    """As the list has it. A count below 0 says that nothing was told."""
    if not isinstance(listed, list):
        return str(listed or "")
    named = [(item["type"], item.get("name"), plain(item["count"])) for item in listed]
    return ",".join(
        f"{kind}/{name}={n}" if name else f"{kind}={n}"
        for kind, name, n in named
        if n and not n.startswith("-")
    )
