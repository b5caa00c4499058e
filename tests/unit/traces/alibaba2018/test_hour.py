"""The one-hour extract becomes both batch tables: starts are worked back from the ends."""

import duckdb
import pyarrow.parquet as pq
import pytest

from trimtab.errors import TraceError
from trimtab.traces.alibaba2018.hour import FIRST_S
from trimtab.traces.prepare import prepare
from trimtab.traces.readers import parquet

# R2_1 ends 100 s after its job came, and its longest instance ran 60 s: both start at 40 s
TASKS = """\
job_name,task_name,instance_num,arrival,duration,plan_cpu,plan_mem
j_1,M1,1,10,30,100,0.5
j_1,R2_1,2,10,100,50,0.3
j_2,task_x,1,20,5,100,0.5
"""
INSTANCES = (
    "('j_1', 'M1', 30, 80, 0.2), ('j_1', 'R2_1', 60, 25, 0.1), ('j_1', 'R2_1', 40, 25, 0.1), "
    "('j_2', 'task_x', 5, 10, 0.1)"
)


@pytest.fixture
def trace(tmp_path):
    folder = tmp_path / "trace"
    folder.mkdir()
    (folder / "spar_hour_tasks.csv").write_text(TASKS)
    duckdb.execute(
        f"COPY (SELECT * FROM (VALUES {INSTANCES}) t(job_name, task_name, duration, cpu_avg, "
        f"mem_avg)) TO '{folder}/spar_hour_instances.parquet'"
    )
    return folder


def test_an_hour_becomes_a_workload(trace, tmp_path):
    found = prepare(trace, tmp_path / "out")
    assert found["tables"]["batch_task"]["kept"] == 3
    assert found["tables"]["batch_instance"]["kept"] == 4
    assert found["sources"]["batch_task"] == "spar_hour_tasks.csv"
    work = parquet.load(tmp_path / "out" / "workload.parquet")
    assert list(work.job_id) == ["j_1/M1", "j_1/R2_1", "j_2/task_x"]
    assert work.jobs["submit_s"].tolist() == [FIRST_S + 10, FIRST_S + 10, FIRST_S + 20]
    assert work.truth["work_s"].tolist() == [30, (60 + 40) / 2, 5]
    assert work.jobs["request_s"].tolist() == [30, 60, 5]
    after = pq.read_table(tmp_path / "out" / "workload.parquet")["after"].to_pylist()
    assert after == [[], [0], []]


def test_a_stopped_hour_goes_on(trace, tmp_path):
    class Stopped(Exception):
        pass

    def stopping(step, done, total):
        raise Stopped

    with pytest.raises(Stopped):
        prepare(trace, tmp_path / "out", progress=stopping)
    assert prepare(trace, tmp_path / "out") == prepare(trace, tmp_path / "out")


def test_another_hour_is_not_taken_for_the_finished_one(trace, tmp_path):
    prepare(trace, tmp_path / "out")
    (trace / "spar_hour_tasks.csv").write_text(TASKS + "j_3,M1,1,30,5,100,0.5\n")
    with pytest.raises(TraceError, match=r"is finished already.*--out"):
        prepare(trace, tmp_path / "out")


def test_an_hour_without_its_columns_is_refused_by_name(trace, tmp_path):
    (trace / "spar_hour_tasks.csv").write_text("job_name,task_name\nj_1,M1\n")
    with pytest.raises(TraceError, match=r"spar_hour_tasks\.csv.*--table"):
        prepare(trace, tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == [".work"]


def test_an_hour_that_is_cut_short_is_refused_by_name(trace, tmp_path):
    path = trace / "spar_hour_instances.parquet"
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(TraceError, match=r"spar_hour_instances\.parquet.*--table"):
        prepare(trace, tmp_path / "out")
