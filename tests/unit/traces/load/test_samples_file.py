"""Samples saved and loaded, and the one door to every file that holds load."""

import json
import tarfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from trimtab.errors import TraceError
from trimtab.load.samples import Samples
from trimtab.traces.load.samples_file import MEASURES, load_samples, read_samples, save_samples

NAN = np.nan
SEEN = Samples(
    time_s=np.array([30.0, 0.0, 0.0]),
    node=np.array([2, 0, 2]),
    cpu=np.array([0.1, 0.2, NAN]),
    mem=np.array([0.3, NAN, 0.5]),
    net_in=np.array([0.0, 1.0, NAN]),
    net_out=np.full(3, NAN),
    disk=np.array([1 / 3, 0.0, 0.1]),
    gpu=np.array([NAN, NAN, 1.0]),
    names=("b", "silent", "a"),
    source="by hand",
)


def same(one: Samples, other: Samples) -> bool:
    arrays = ("time_s", "node", *MEASURES)
    return (one.names, one.source) == (other.names, other.source) and all(
        np.array_equal(getattr(one, name), getattr(other, name), equal_nan=True) for name in arrays
    )


def test_samples_come_back_exactly_with_their_gaps_and_silent_machines(tmp_path):
    save_samples(SEEN, tmp_path / "seen.parquet")
    assert same(load_samples(tmp_path / "seen.parquet"), SEEN)
    assert same(read_samples(str(tmp_path / "seen.parquet")), SEEN)
    assert [path.name for path in tmp_path.iterdir()] == ["seen.parquet"]


def test_no_samples_come_back_as_none(tmp_path):
    none = Samples(*(column[:0] for column in SEEN[:8]), names=("a",), source="nothing yet")
    save_samples(none, tmp_path / "none.parquet")
    assert same(load_samples(tmp_path / "none.parquet"), none)


def test_a_failed_write_leaves_nothing(tmp_path):
    with pytest.raises(TraceError, match="cannot be written"):
        save_samples(SEEN, tmp_path / "nowhere" / "seen.parquet")
    (tmp_path / "folder").mkdir()
    with pytest.raises(TraceError, match="cannot be written"):
        save_samples(SEEN, tmp_path / "folder")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_a_node_without_a_name_is_refused(tmp_path):
    with pytest.raises(TraceError, match="node=2 is no row of the 2 names"):
        save_samples(SEEN._replace(names=("a", "b")), tmp_path / "seen.parquet")


def test_a_name_that_comes_twice_is_refused(tmp_path):
    with pytest.raises(TraceError, match="names has 'a' twice"):
        save_samples(SEEN._replace(names=("a", "b", "a")), tmp_path / "seen.parquet")


def test_a_file_made_elsewhere_needs_time_name_and_one_measure(tmp_path):
    path = tmp_path / "other.parquet"
    pq.write_table(pa.table({"time_s": [1, 2], "node_name": ["x", "y"], "cpu": [0.5, None]}), path)
    seen = read_samples(path)
    assert seen.names == ("x", "y")
    assert np.array_equal(seen.cpu, [0.5, NAN], equal_nan=True)
    assert np.isnan(seen.gpu).all()


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"time_s": [1], "node_name": ["x"]}, "lacks the column one of cpu, mem"),
        ({"node_name": ["x"], "cpu": [0.5]}, "lacks the column time_s"),
        ({"time_s": [1.0, None], "node_name": ["x", "x"], "cpu": [0.5, 0.5]}, "row 1: time_s"),
        ({"time_s": [1.0, 2.0], "node_name": ["x", None], "cpu": [0.5, 0.5]}, "row 1: node_name"),
        ({"time_s": [1.0], "node_name": ["x"], "cpu": ["much"]}, "column 'cpu'"),
        ({"submit_s": [1.0], "work_s": [2.0]}, "its columns are submit_s, work_s"),
    ],
)
def test_a_table_that_holds_no_samples_is_refused_with_the_reason(tmp_path, table, message):
    path = tmp_path / "bad.parquet"
    pq.write_table(pa.table(table), path)
    with pytest.raises(TraceError, match=message):
        read_samples(path)


def test_a_newer_file_is_refused(tmp_path):
    path = tmp_path / "new.parquet"
    table = pa.table({"time_s": [1.0], "node_name": ["x"], "cpu": [0.5]})
    stored = {b"trimtab.samples": json.dumps({"schema_version": 2}).encode()}
    pq.write_table(table.replace_schema_metadata(stored), path)
    with pytest.raises(TraceError, match="schema_version=2 is newer than 1"):
        load_samples(path)


def test_each_kind_of_load_is_known_by_its_content(tmp_path):
    usage = tmp_path / "usage.csv"
    usage.write_text("m_1,10,40,90,,,30,20,5\n")
    assert read_samples(usage).source.startswith("Alibaba")
    days = tmp_path / "days" / "20110303"
    days.mkdir(parents=True)
    (days / "vm").write_text("5\n" * 288)
    with tarfile.open(tmp_path / "days.tar.xz", "w:xz") as tar:
        tar.add(days, "20110303")
    for path in (tmp_path / "days", days, days / "vm", tmp_path / "days.tar.xz"):
        assert read_samples(path).source.startswith("PlanetLab")
    machines = tmp_path / "machines"
    machines.mkdir()
    columns = ("CPU capacity provisioned [MHZ]", "CPU usage [MHZ]", "Memory usage [KB]")
    columns = ("Timestamp [ms]", *columns, "Memory capacity provisioned [KB]")
    (machines / "1.csv").write_text(";\t".join(columns) + "\n1376314846;\t10;\t5;\t1;\t4\n")
    assert read_samples(machines).cpu.tolist() == [0.5]
    pair = tmp_path / "pair"
    pair.mkdir()
    tasks = {"id": [3], "submission_time": [0], "cpu_capacity": [100.0]}
    fragments = {"id": [3], "duration": [300_000], "cpu_usage": [50.0]}
    pq.write_table(pa.table(tasks), pair / "tasks.parquet")
    pq.write_table(pa.table(fragments), pair / "fragments.parquet")
    for path in (pair, pair / "tasks.parquet", pair / "fragments.parquet"):
        assert read_samples(path).cpu.tolist() == [0.5]


def test_an_unknown_kind_is_refused_with_what_is_known(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("hello\n")
    with pytest.raises(TraceError, match=r"'hello'.*machine_usage.*PlanetLab.*Bitbrains"):
        read_samples(path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(TraceError, match="it holds no files"):
        read_samples(tmp_path / "empty")
    with pytest.raises(TraceError, match="is not there"):
        read_samples(tmp_path / "none.parquet")
    with pytest.raises(TraceError, match="query_range"):
        read_samples("http://localhost:9090")
