"""Alibaba's batch_task of 2017: tasks are arrays, and dirty rows are refused by line or counted."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from tests.data import found

from trimtab.errors import TraceError
from trimtab.traces import file_kind, read
from trimtab.traces.readers.alibaba2017 import read_alibaba2017

HEADER = "task_create_time, task_end_time, job_id, task_id,instances, status, cpus, memory\r\n"
ROWS = (
    "100,165,3,4,15740,Terminated,50,0.0078125\r\n"
    "-20,33,3,5,1,Terminated,100,0.015625\r\n"
    "100,100,7,6,2,Terminated,800,0.5\r\n"
)
DIRT = {  # what is wrong: the row
    "status": "5,6,8,9,1,Waiting,,",
    "plan_cpu": "5,6,8,9,1,Terminated,,0.1",
    "plan_mem": "5,6,8,9,1,Terminated,50,",
    "end_s": "6,5,8,9,1,Terminated,50,0.1",
    "instances": "5,6,8,9,0,Terminated,50,0.1",
    "create_s": "x,6,8,9,1,Terminated,50,0.1",
    "job_id": "5,6,,9,1,Terminated,50,0.1",
    "row": "5,6,8,9,1,Terminated,50",
}


def written(tmp_path, text: str, name: str = "batch_task.csv") -> Path:
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


@pytest.mark.parametrize("name", ["batch_task.csv", "batch_task.csv.gz"])
@pytest.mark.parametrize("header", ["", HEADER])
def test_the_table_is_known_with_and_without_a_header(tmp_path, name, header):
    path = written(tmp_path, header + ROWS, name)
    assert file_kind(path) == "alibaba2017"
    assert len(read(path)) == 3


def test_a_task_is_an_array_that_asks_for_hundredths_of_a_core_and_a_share_of_memory(tmp_path):
    work = read_alibaba2017(written(tmp_path, ROWS), machine_mem_gb=128.0)
    # sorted by creation: -20, 100, 100; time 0 is the first
    assert work.jobs["submit_s"].tolist() == [0, 120, 120]
    assert work.truth["work_s"].tolist() == [33 - -20, 165 - 100, 0]
    assert work.demand.tolist() == [[1.0, 128 / 64], [0.5, 128 / 128], [8.0, 64.0]]
    assert work.jobs["instances"].tolist() == [1, 15740, 2]
    assert work.jobs["gang"].tolist() == [0, 0, 0]
    assert work.job_id.tolist() == ["3/5", "3/4", "7/6"]
    assert work.meta["dag"].tolist() == [0, 0, 1]
    assert work.meta["first_s"] == -20


@pytest.mark.parametrize(("field", "row"), DIRT.items())
def test_a_dirty_row_is_refused_by_its_line_with_the_remedy(tmp_path, field, row):
    path = written(tmp_path, HEADER + ROWS + row + "\r\n")
    with pytest.raises(TraceError) as caught:
        read(path, lenient=False)
    for part in (f"{path}:5: {field}=", "--lenient", "1 such row"):
        assert part in str(caught.value)


def test_a_lenient_read_counts_each_kind_of_dirt(tmp_path):
    work = read(written(tmp_path, ROWS + "\r\n".join(DIRT.values())), lenient=True)
    assert len(work) == 3
    assert sum(work.meta["dropped"].values()) == len(DIRT) == len(work.meta["dropped"])


def test_a_file_of_dirt_alone_is_an_error_also_when_lenient(tmp_path):
    with pytest.raises(TraceError, match="all rows were dropped"):
        read(written(tmp_path, DIRT["status"] + "\r\n"), lenient=True)


def test_the_public_table_is_read_whole():
    work = read(found("data", "alibaba2017", "batch_task_2017.csv.xz"), lenient=True)
    assert len(work) + sum(work.meta["dropped"].values()) == 80_553
    assert work.meta["dropped"]["status is not Terminated"] == 1126 + 3567 + 8847
    assert len(np.unique(work.meta["dag"])) <= 12_951
