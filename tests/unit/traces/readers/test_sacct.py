"""What sacct prints, as a list and as JSON: jobs with their demand, or the line that is wrong."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from trimtab.errors import TraceError
from trimtab.traces import file_kind, read
from trimtab.traces.readers.sacct import read_sacct

HEADER = (
    "JobID|Submit|Start|End|ElapsedRaw|TimelimitRaw|State|AllocTRES|ReqTRES|Priority|User|Account"
)
TRES = "billing=8,cpu=8,gres/gpu:v100=2,gres/gpu=2,mem=32G,node=1"
ROW = {
    "JobID": "101",
    "Submit": "2025-03-01T10:00:00",
    "Start": "2025-03-01T10:00:30",
    "End": "2025-03-01T10:10:30",
    "ElapsedRaw": "600",
    "TimelimitRaw": "60",
    "State": "COMPLETED",
    "AllocTRES": TRES,
    "ReqTRES": TRES,
    "Priority": "1000",
    "User": "ann",
    "Account": "physics",
}


def row(**fields: str) -> str:
    return "|".join((ROW | fields).values())


def listed(tmp_path: Path, *rows: str, header: str = HEADER) -> Path:
    path = tmp_path / "jobs.txt"
    path.write_text("\n".join((header, *rows)) + "\n")
    return path


def fields(tmp_path: Path, **values: str) -> Path:
    """A list of one job with just these fields."""
    return listed(tmp_path, "|".join(values.values()), header="|".join(values))


def first(work) -> dict:
    """The first job's numbers by name."""
    job = {name: work.jobs[name][0] for name in work.jobs.dtype.names}
    job |= {name: work.demand[0, r] for r, name in enumerate(work.resources)}
    return job | {"work_s": work.truth["work_s"][0], "kind": work.kinds[job["kind"]]}


def test_a_job_is_read_with_its_times_demand_tenant_and_model(tmp_path):
    path = listed(tmp_path, row(), row(JobID="102", Submit="2025-03-01T10:00:05", User="bob"))
    assert file_kind(path) == "sacct"
    work = read(path)
    job = first(work)
    assert work.resources == ("cpu", "mem_gb", "gpu") and len(work) == 2
    assert (job["cpu"], job["mem_gb"], job["gpu"], job["gpus"]) == (8, 32, 2, 2)
    assert (job["work_s"], job["request_s"], job["priority"]) == (600, 3600, 1000)
    assert job["kind"] == "v100" and job["instances"] == 1
    assert job["node_kinds"] == np.uint64(0xFFFFFFFFFFFFFFFF)
    assert work.tenants == ("physics",) and work.job_id.tolist() == ["101", "102"]
    assert work.jobs["submit_s"].tolist() == [0, 5]
    assert work.meta["wait_s"].tolist() == [30, 25]


def test_rows_are_sorted_by_submission(tmp_path):
    work = read(listed(tmp_path, row(), row(JobID="99", Submit="2025-03-01T09:00:00")))
    assert work.job_id.tolist() == ["99", "101"] and work.jobs["submit_s"].tolist() == [0, 3600]


def test_a_list_with_a_bar_at_the_end_of_each_line_is_read_alike(tmp_path):
    assert first(read(listed(tmp_path, row() + "|", header=HEADER + "|")))["gpus"] == 2


def test_a_packed_list_and_lists_put_end_to_end_are_read(tmp_path):
    text = "\n".join((HEADER, row(), HEADER, row(JobID="102"), ""))
    (tmp_path / "jobs.gz").write_bytes(gzip.compress(text.encode()))
    assert read(tmp_path / "jobs.gz").job_id.tolist() == ["101", "102"]


def test_steps_are_passed_over_and_array_tasks_are_jobs(tmp_path):
    ids = ("101", "101.batch", "101.0", "102_4", "102_4.extern", "103+1")
    work = read(listed(tmp_path, *(row(JobID=job_id) for job_id in ids)))
    assert work.job_id.tolist() == ["101", "102_4", "103+1"]


def test_jobs_that_ran_are_kept_however_they_ended(tmp_path):
    ends = ("COMPLETED", "CANCELLED by 1001", "CANCELLED+", "FAILED", "TIMEOUT", "OUT_OF_MEMORY")
    rows = [row(JobID=str(n), State=state) for n, state in enumerate(ends)]
    work = read(listed(tmp_path, *rows))
    names = [work.meta["statuses"][s] for s in work.meta["status"]]
    assert names == [end.split()[0].rstrip("+") for end in ends]
    only = read_sacct(tmp_path / "jobs.txt", states=("COMPLETED", "TIMEOUT"))
    assert only.job_id.tolist() == ["0", "4"]
    assert only.meta["dropped"] == {"ended in a state that is left out": 4}


def test_jobs_that_never_ran_or_have_not_ended_are_dropped_and_counted(tmp_path):
    waits = {"Start": "Unknown", "End": "Unknown", "ElapsedRaw": "0", "AllocTRES": ""}
    work = read(
        listed(
            tmp_path,
            row(),
            row(JobID="102_[5-9]", State="PENDING", **waits),
            row(JobID="103", State="RUNNING", End="Unknown"),
            row(JobID="104", State="CANCELLED by 0", **waits | {"Start": "None"}),
        )
    )
    assert work.job_id.tolist() == ["101"]
    assert work.meta["dropped"] == {
        "has not ended": 2,
        "never ran, or for less than a second": 1,
    }


@pytest.mark.parametrize("elapsed", ["600", "10:00", "00:10:00", "0-00:10:00", "00:10:00.250"])
def test_a_run_time_may_be_written_in_seconds_or_with_colons(tmp_path, elapsed):
    named = {"JobID": "1", "Submit": "1740823200", "Elapsed": elapsed, "State": "COMPLETED"}
    assert first(read(fields(tmp_path, **named, NCPUS="4")))["work_s"] == 600


def test_without_a_run_time_it_is_the_end_less_the_start(tmp_path):
    named = {"JobID": "1", "Submit": "1740823200", "Start": "1740823201", "End": "1743823201"}
    assert first(read(fields(tmp_path, **named, State="FAILED", NCPUS="4")))["work_s"] == 3_000_000


@pytest.mark.parametrize(
    ("field", "limit", "request_s"),
    [
        ("TimelimitRaw", "90", 5400),
        ("Timelimit", "01:30:00", 5400),
        ("Timelimit", "2-00:00:00", 172800),
        ("Timelimit", "UNLIMITED", 600),  # the time it took
        ("Timelimit", "Partition_Limit", 600),
        ("TimelimitRaw", "", 600),
    ],
)
def test_the_limit_is_the_request(tmp_path, field, limit, request_s):
    named = {"JobID": "1", "Submit": "1740823200", "ElapsedRaw": "600", "State": "COMPLETED"}
    work = read(fields(tmp_path, **named, NCPUS="4", **{field: limit}))
    assert first(work)["request_s"] == request_s
    assert work.meta["no_limit"] == (request_s == 600)


@pytest.mark.parametrize(
    "submit",
    ["1740823200", "2025-03-01T10:00:00", "2025-03-01T10:00:00Z", "2025-03-01T11:00:00+0100"],
)
def test_times_are_iso_or_seconds_since_1970(tmp_path, submit):
    work = read(listed(tmp_path, row(), row(JobID="102", Submit=submit)))
    assert work.jobs["submit_s"].tolist() == [0, 0]


@pytest.mark.parametrize(
    ("tres", "cpu", "mem_gb", "gpus", "kind"),
    [
        ("cpu=4,mem=16G,gres/gpu:v100=2,node=1", 4, 16, 2, "v100"),
        ("cpu=4,mem=512M,gres/gpu=1", 4, 0.5, 1, "job"),
        ("cpu=4,mem=1.50T,node=1", 4, 1536, 0, "job"),
        ("cpu=4,mem=1024,gres/gpu:t4=1,gres/gpu:v100=3", 4, 1, 4, "v100"),
        ("billing=99,cpu=2K,mem=1G,energy=18446744073709551614", 2048, 1, 0, "job"),
    ],
)
def test_tres_are_read_with_their_units_and_gpus_counted_once(
    tmp_path, tres, cpu, mem_gb, gpus, kind
):
    job = first(read(listed(tmp_path, row(AllocTRES=tres, ReqTRES=tres))))
    assert (job["cpu"], job["mem_gb"], job["gpus"], job["kind"]) == (cpu, mem_gb, gpus, kind)


def test_what_was_allocated_counts_and_the_model_is_the_one_asked_for(tmp_path):
    asked, held = "cpu=1,mem=8G,gres/gpu=1", "cpu=2,mem=8G,gres/gpu=1,gres/gpu:t4=1"
    job = first(read(listed(tmp_path, row(AllocTRES=held, ReqTRES=asked))))
    assert job["cpu"] == 2 and job["kind"] == "job"
    job = first(read(listed(tmp_path, row(AllocTRES=held, ReqTRES="cpu=1"))))
    assert job["kind"] == "t4"  # some versions leave GPUs out of what was asked
    job = first(read(listed(tmp_path, row(AllocTRES="", ReqTRES=asked))))
    assert (job["cpu"], job["mem_gb"], job["gpus"]) == (1, 8, 1)


def test_a_job_on_several_nodes_is_a_gang_of_like_instances(tmp_path):
    tres = "cpu=64,mem=128G,gres/gpu=7,node=4"
    work = read(listed(tmp_path, row(AllocTRES=tres, ReqTRES=tres)))
    job = first(work)
    assert job["instances"] == 4 and job["gang"] == 1
    assert (job["cpu"], job["mem_gb"], job["gpus"]) == (16, 32, 2)  # 7 GPUs on 4 nodes
    assert work.meta["uneven_gpus"] == 1


@pytest.mark.parametrize(
    ("mem", "mem_gb"), [("4000Mc", 4 * 4000 / 1024 / 2), ("16Gn", 16), ("16G", 8), ("0n", 0)]
)
def test_without_tres_the_columns_tell_the_demand(tmp_path, mem, mem_gb):
    named = {"JobID": "1", "Submit": "1740823200", "ElapsedRaw": "600", "State": "COMPLETED"}
    job = first(read(fields(tmp_path, **named, NCPUS="4", NNodes="2", ReqMem=mem)))
    assert (job["cpu"], job["instances"]) == (2, 2)
    assert job["mem_gb"] == pytest.approx(mem_gb, abs=1e-5)


@pytest.mark.parametrize(
    ("account", "user", "tenant"), [("phy", "ann", "phy"), ("", "ann", "ann"), ("", "", "unknown")]
)
def test_the_tenant_is_the_account_or_else_the_user(tmp_path, account, user, tenant):
    assert read(listed(tmp_path, row(Account=account, User=user))).tenants == (tenant,)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"Submit": "yesterday"}, "Submit=yesterday is not a time"),
        ({"Submit": "Unknown"}, "Submit=Unknown is missing"),
        ({"Start": "now"}, "Start=now is not a time"),
        ({"ElapsedRaw": "long"}, "ElapsedRaw=long is not a run time"),
        ({"ElapsedRaw": "-5"}, "ElapsedRaw=-5 is before the start"),
        ({"TimelimitRaw": "short"}, "TimelimitRaw=short is not a time limit"),
        ({"State": "DONE"}, "State=DONE is no state"),
        ({"AllocTRES": "cpu"}, "AllocTRES=cpu is not such as"),
        ({"AllocTRES": "", "ReqTRES": "mem=4G"}, "tells of no CPU and no GPU"),
        ({"AllocTRES": "cpu=1,gres/gpu=100"}, "has more than 64 GPUs a node"),
        ({"Priority": "high"}, "Priority=high is not a number"),
        ({"JobID": ""}, "JobID= is missing"),
        ({"JobID": "100"}, "JobID=100 stands above too"),
        ({"User": "a|b"}, "does not have 12 fields"),
    ],
)
def test_a_strict_read_names_line_field_value_and_remedy_and_a_lenient_one_counts(
    tmp_path, fields, message
):
    path = listed(tmp_path, row(JobID="100"), row(**fields))
    with pytest.raises(TraceError) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}:3: ")
    assert message in str(caught.value) and "--lenient" in str(caught.value)
    work = read(path, lenient=True)
    assert work.job_id.tolist() == ["100"] and sum(work.meta["dropped"].values()) == 1


@pytest.mark.parametrize(
    ("rows", "header", "message"),
    [
        ((), HEADER, "holds no jobs"),
        (("1|2",), "JobID|State", "field Submit is missing"),
        (("1|2|3",), "JobID|Submit|State", "field End is missing"),
        ((row(State="PENDING"),), HEADER, "all jobs were dropped: {'has not ended': 1}"),
    ],
)
def test_a_list_without_jobs_or_fields_is_refused(tmp_path, rows, header, message):
    with pytest.raises(TraceError) as caught:
        read(listed(tmp_path, *rows, header=header))
    assert message in str(caught.value)


def test_a_state_that_is_no_end_cannot_be_kept(tmp_path):
    with pytest.raises(TraceError, match="'RUNNING' is no end of a job"):
        read_sacct(listed(tmp_path, row()), states=("RUNNING",))


# --- JSON


def number(value: int | None) -> dict:
    return {"set": value is not None, "infinite": False, "number": value or 0}


def tres(*amounts: tuple) -> list[dict]:
    return [{"type": t, "name": name, "id": 1, "count": n} for t, name, n in amounts]


HELD = tres(
    ("cpu", "", 8), ("mem", "", 32768), ("node", "", 1), ("gres", "gpu:v100", 2), ("gres", "gpu", 2)
)
OLD = {  # Slurm 21.08
    "job_id": 101,
    "array": {"job_id": 0, "task_id": None},
    "state": {"current": "COMPLETED", "reason": "None"},
    "time": {"submission": 1740823200, "start": 1740823230, "end": 1740823830, "elapsed": 600}
    | {"limit": 60},
    "tres": {"allocated": HELD, "requested": HELD},
    "priority": 1000,
    "account": "physics",
    "association": {"user": "ann"},
    "allocation_nodes": 1,
    "steps": [{"step": {"id": "101.batch"}}],
}
NEW = OLD | {  # Slurm 24.05
    "array": {"job_id": 0, "task_id": number(None)},
    "state": {"current": ["COMPLETED"], "reason": "None"},
    "time": OLD["time"] | {"limit": number(60)},
    "priority": number(1000),
    "user": "ann",
}


def dumped(tmp_path: Path, *jobs: dict) -> Path:
    path = tmp_path / "jobs.json"
    path.write_text(json.dumps({"meta": {"slurm": {}}, "errors": [], "jobs": list(jobs)}))
    return path


@pytest.mark.parametrize("job", [OLD, NEW], ids=["21.08", "24.05"])
def test_json_of_any_version_is_the_job_of_the_list(tmp_path, job):
    path = dumped(tmp_path, job)
    assert file_kind(path) == "sacct"
    told, same = read(path), read(listed(tmp_path, row()))
    for name in told.jobs.dtype.names:
        assert told.jobs[name].tolist() == same.jobs[name].tolist(), name
    assert told.demand.tolist() == same.demand.tolist()
    assert told.truth["work_s"].tolist() == same.truth["work_s"].tolist()
    assert told.kinds == same.kinds and told.tenants == same.tenants


@pytest.mark.parametrize("task", [4, number(4)])
def test_a_task_of_an_array_is_named_by_both_numbers_in_json(tmp_path, task):
    job = NEW | {"array": {"job_id": 100, "task_id": task}}
    assert read(dumped(tmp_path, job)).job_id.tolist() == ["100_4"]


def test_a_limit_without_end_and_a_job_that_waits_in_json(tmp_path):
    endless = NEW | {"time": NEW["time"] | {"limit": number(None) | {"infinite": True}}}
    waits = NEW | {
        "job_id": 102,
        "state": {"current": ["PENDING"]},
        "time": NEW["time"] | {"start": 0, "end": 0, "elapsed": 0},
    }
    work = read(dumped(tmp_path, endless, waits))
    assert work.jobs["request_s"].tolist() == [600]
    assert work.meta["dropped"] == {"has not ended": 1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"jobs": [', "not JSON"),
        ('{"jobs": [{"job_id": 1}]}', "a job lacks 'time'"),
        ('{"jobs": [3]}', "want what sacct --json prints"),
        ('{"jobs": []}', "holds no jobs"),
    ],
)
def test_json_of_another_form_is_refused(tmp_path, text, message):
    path = tmp_path / "jobs.json"
    path.write_text(text)
    with pytest.raises(TraceError) as caught:
        read(path)
    assert str(path) in str(caught.value) and message in str(caught.value)
