"""The tables of the trace are found in whatever form they were downloaded."""

import gzip
import tarfile

import pytest
from tests.data import found

from trimtab.errors import TraceError
from trimtab.traces.alibaba2018.source import TableFiles, find_tables, verify
from trimtab.traces.alibaba2018.tables import TABLES, looks_like

TASK = "M1,1,j_1,1,Terminated,60,120,100,1"
# A line as the official schema describes it; no two tables are taken for each other.
LINES = {
    "machine_meta": "m_1,0,1,1,96,100,USING",
    "machine_usage": "m_1,10,40,60,,,10,20,30",
    "container_meta": "c_1,m_1,0,app_1,started,400,400,1.56",
    "container_usage": "c_1,m_1,10,10,20,,,,,,",
    "batch_task": TASK,
    "batch_instance": "i_1,M1,j_1,1,Terminated,90,120,m_1,1,1,50,60,0.5,0.6",
}


def archive(path, **members):
    """A tar archive of small files, by their names."""
    with tarfile.open(path, "w:gz") as made:
        for name, text in members.items():
            plain = path.parent / f"{name}.csv.tmp"
            plain.write_text(text)
            made.add(plain, f"{name}.csv")
            plain.unlink()


@pytest.mark.parametrize("table", TABLES)
def test_a_line_looks_like_its_own_table_alone(table):
    assert looks_like(LINES[table].split(",")) == [table]


@pytest.mark.parametrize("table", TABLES)
def test_a_line_without_values_still_may_be_of_its_table(table):
    assert table in looks_like([""] * len(TABLES[table].columns))


def test_an_exact_name_comes_before_a_longer_one(tmp_path):
    (tmp_path / "batch_task.csv").write_text(TASK)
    (tmp_path / "batch_task_large.csv").write_text(TASK * 100)
    folder = find_tables(tmp_path)
    assert folder.tables["batch_task"].paths == (tmp_path / "batch_task.csv",)
    assert folder.aside == ("batch_task_large.csv",)


def test_a_named_file_decides(tmp_path):
    (tmp_path / "batch_task.csv").write_text(TASK)
    (tmp_path / "mine.csv").write_text(TASK)
    folder = find_tables(tmp_path, {"batch_task": "mine.csv"})
    assert folder.tables["batch_task"].paths == (tmp_path / "mine.csv",)


def test_a_folder_of_parts_is_one_table_in_their_order(tmp_path):
    parts = tmp_path / "batch_task"
    parts.mkdir()
    for name in ("b.csv", "a.csv"):
        (parts / name).write_text(TASK)
    folder = find_tables(tmp_path)
    assert [path.name for path in folder.tables["batch_task"].paths] == ["a.csv", "b.csv"]
    assert folder.tables["batch_task"].as_text() == "batch_task/"


def test_archives_as_published_are_found(tmp_path):
    archive(tmp_path / "batch_task.tar.gz", batch_task=TASK)
    found_there = find_tables(tmp_path).tables["batch_task"]
    assert found_there.member == "batch_task.csv"
    assert found_there.as_text() == "batch_task.tar.gz:batch_task.csv"


def test_the_archive_of_all_tables_is_found(tmp_path):
    archive(tmp_path / "alibaba_clusterdata_v2018.tar.gz", **LINES)
    assert set(find_tables(tmp_path).tables) == set(TABLES)


def test_a_named_archive_is_known_by_its_content(tmp_path):
    archive(tmp_path / "all.bin", batch_task=TASK)
    folder = find_tables(tmp_path, {"batch_task": "all.bin"})
    assert folder.tables["batch_task"].member == "batch_task.csv"


def test_a_header_file_beside_the_table_is_not_the_table(tmp_path):
    (tmp_path / "batch_task.header.csv").write_text("task_name")
    with pytest.raises(TraceError, match="batch_task is missing"):
        find_tables(tmp_path)


def test_packed_files_are_found(tmp_path):
    (tmp_path / "batch_task.csv.gz").write_bytes(gzip.compress(TASK.encode()))
    assert find_tables(tmp_path).tables["batch_task"].paths[0].suffix == ".gz"


def test_the_public_parts_of_the_trace_are_found():
    folder = find_tables(found("data", "alibaba2018", "schema.txt").parent)
    assert "machine_meta" in folder.tables
    assert folder.hour is not None


def test_a_published_archive_is_checked_by_its_sha256(tmp_path):
    archive(tmp_path / "batch_task.tar.gz", **{"batch_task.csv": TASK})
    tables = find_tables(tmp_path).tables
    with pytest.raises(TraceError, match=r"batch_task.tar.gz: its sha256 is .*download it again"):
        verify(tables, lambda *said: None)


def test_the_published_archive_passes(tmp_path):
    path = found("data", "alibaba2018", "machine_meta.tar.gz")
    heard = []
    table = TableFiles((path,), "machine_meta.csv")
    assert verify({"machine_meta": table}, lambda *step: heard.append(step))
    assert heard == [("verifying machine_meta.tar.gz", 0, 1)]
