"""Microsoft's Philly trace: the published JSON and the CSV made of it."""

import json
from pathlib import Path

import numpy as np
import pytest
from tests.data import found

from trimtab.errors import TraceError
from trimtab.traces import file_kind, read
from trimtab.traces.readers.philly import split

LISTED = (
    "timestamp,duration,num_gpus,gpu_time,cluster\n"
    "2017-10-09 07:01:40,50.0,16,800.0,7f04ca\n"
    "2017-10-09 07:01:30,20.5,1,20.5,6214e9\n"
)


def job(jobid="j1", gpus=(8, 8), times=(("2017-10-09 07:02:00", "2017-10-09 07:03:00"),), **more):
    detail = [
        {"ip": f"m{n}", "gpus": [f"gpu{g}" for g in range(count)]} for n, count in enumerate(gpus)
    ]
    return {
        "status": "Pass",
        "vc": "6214e9",
        "jobid": jobid,
        "attempts": [{"start_time": s, "end_time": e, "detail": detail} for s, e in times],
        "submitted_time": "2017-10-09 07:01:30",
        "user": "ed69ec",
    } | more


def logged(tmp_path, *jobs) -> Path:
    (tmp_path / "cluster_job_log").write_text(json.dumps(list(jobs), indent=1))
    return tmp_path / "cluster_job_log"


def test_the_list_is_read_in_order_of_submission(tmp_path):
    path = tmp_path / "jobs.csv"
    path.write_text(LISTED)
    assert file_kind(path) == "philly"
    work = read(path)
    assert work.jobs["submit_s"].tolist() == [0, 10]
    assert work.truth["work_s"].tolist() == [20.5, 50]
    assert work.jobs["gpus"].tolist() == [1, 8]
    assert work.jobs["instances"].tolist() == [1, 2]
    assert [work.tenants[t] for t in work.jobs["tenant"]] == ["6214e9", "7f04ca"]
    assert work.job_id.tolist() == ["1", "0"]


def test_a_wide_job_is_split_evenly_over_the_fewest_instances():
    instances, gpus = split(np.array([1, 8, 16, 12, 11, 9]), 8)
    assert instances.tolist() == [1, 1, 2, 2, 11, 3]
    assert gpus.tolist() == [1, 8, 8, 6, 1, 3]


def test_attempts_of_a_logged_job_add_up_and_its_cluster_is_the_tenant(tmp_path):
    twice = (
        ("2017-10-09 07:02:00", "2017-10-09 07:03:00"),  # 60 s
        ("2017-10-09 07:05:00", "2017-10-09 07:05:30"),  # 30 s
    )
    path = logged(
        tmp_path,
        job("late", (2,), submitted_time="2017-10-09 07:01:45", status="Killed"),
        job("twice", times=twice, vc="11cb48"),
    )
    assert file_kind(path) == "philly"
    work = read(path)
    assert work.job_id.tolist() == ["twice", "late"]
    assert work.jobs["submit_s"].tolist() == [0, 15]
    assert work.truth["work_s"].tolist() == [90, 60]
    # both start at 07:02:00, 30 s after the first submission; the last attempt ends at 07:05:30
    assert work.meta["recorded"]["start_s"].tolist() == [30, 30]
    assert work.meta["recorded"]["end_s"].tolist() == [240, 90]
    assert (work.jobs["instances"] * work.jobs["gpus"]).tolist() == [16, 2]
    assert work.tenants == ("11cb48", "6214e9")
    assert [work.meta["statuses"][s] for s in work.meta["status"]] == ["Pass", "Killed"]


@pytest.mark.parametrize(
    "bad",
    [
        job("bad", times=()),
        job("bad", times=((None, "2017-10-09 07:03:00"),)),
        job("bad", times=(("2017-10-09 07:03:00", "None"),)),
        job("bad", gpus=()),
        job("bad", submitted_time="soon"),
        job("bad", times=(("2017-10-09 07:03:00", "2017-10-09 07:02:00"),)),
    ],
)
def test_a_job_that_never_ran_is_refused_or_counted(tmp_path, bad):
    path = logged(tmp_path, job(), bad)
    with pytest.raises(TraceError, match=r":2: .*--lenient"):
        read(path, lenient=False)
    work = read(path, lenient=True)
    assert (len(work), sum(work.meta["dropped"].values())) == (1, 1)


def test_a_job_without_a_field_names_it(tmp_path):
    broken = job()
    del broken["submitted_time"]
    with pytest.raises(TraceError, match="submitted_time"):
        read(logged(tmp_path, broken))


def test_a_log_that_is_cut_off_names_the_line(tmp_path):
    path = logged(tmp_path, job())
    path.write_text(path.read_text()[:-20])
    with pytest.raises(TraceError, match=r"cluster_job_log:\d+: not JSON"):
        read(path)


def test_the_public_list_is_read_whole():
    work = read(found("data", "philly", "philly_jobs.csv.xz"))
    assert len(work) == 74_167
    assert np.mean(work.jobs["gpus"] * work.jobs["instances"]) == pytest.approx(1.276, abs=1e-3)
    assert len(work.tenants) == 15
