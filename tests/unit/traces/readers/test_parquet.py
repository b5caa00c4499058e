"""A workload comes back from Parquet to the last bit, and a wrong file is refused by name."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trimtab.build import workload
from trimtab.errors import TraceError
from trimtab.traces import read
from trimtab.traces.readers.parquet import load, save
from trimtab.traces.scenes.synthetic import generate

amount = st.floats(0, 1e6, allow_nan=False, width=64)
text = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), max_size=5)


@st.composite
def workloads(draw):
    jobs = draw(st.integers(1, 6))
    column = st.lists(amount, min_size=jobs, max_size=jobs)
    resources = draw(st.sampled_from([("cpu",), ("cpu", "mem_gb", "gpu")]))
    demand = [draw(column) for _ in resources]
    service = draw(st.lists(st.integers(0, 1), min_size=jobs, max_size=jobs))
    work_s = [np.inf if forever else run_s for forever, run_s in zip(service, draw(column))]
    after = [
        draw(st.lists(st.integers(0, job - 1), max_size=2)) if job else [] for job in range(jobs)
    ]
    leaves = st.none() | st.booleans() | st.integers(-9, 2**40) | amount | text
    trees = st.recursive(
        leaves, lambda t: st.lists(t, max_size=2) | st.dictionaries(text, t, max_size=2)
    )
    return workload(
        sorted(draw(column)),
        work_s,
        np.array(demand).T,
        resources=resources,
        request_s=draw(column),
        kinds=("a", "ü"),
        kind=draw(st.lists(st.integers(0, 1), min_size=jobs, max_size=jobs)),
        job_id=draw(st.none() | st.lists(text, min_size=jobs, max_size=jobs)),
        after=draw(st.sampled_from([None, after])),
        service=service,
        node_kinds=draw(st.sampled_from([1, 2**63, 2**64 - 1])),
        patterns=draw(st.sampled_from([None, [[0.1, 1 / 3], [1e-300, 2.0]]])),
        pattern_step_s=draw(st.floats(1, 1e4)),
        source=draw(text),
        meta=draw(st.dictionaries(text, trees, max_size=3)),
    )


def assert_same(a, b):
    for name in ("jobs", "truth", "demand", "patterns", "after_ptr", "after_idx"):
        x, y = getattr(a, name), getattr(b, name)
        assert (x is None) == (y is None), name
        if x is not None:
            assert x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes(), name
    assert (a.job_id is None) == (b.job_id is None)
    assert [a.name(job) for job in range(len(a))] == [b.name(job) for job in range(len(b))]
    for name in ("resources", "kinds", "tenants", "source", "pattern_step_s"):
        assert getattr(a, name) == getattr(b, name), name


@settings(
    max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(work=workloads())
def test_a_workload_comes_back_exactly(tmp_path, work):
    path = tmp_path / "w.parquet"
    save(work, path)
    back = load(path)
    assert_same(work, back)
    assert back.meta == work.meta


def test_a_generated_workload_and_a_window_of_it_come_back_exactly(tmp_path):
    whole = generate("mixed-gpu", seed=3, jobs=200)
    for work in (whole, whole.window(50, 100)):  # a window keeps the numbers of `like`
        save(work, tmp_path / "w.parquet")
        assert_same(work, read(tmp_path / "w.parquet"))


def test_arrays_in_meta_come_back_with_their_type(tmp_path):
    meta = {
        "swf": {"queue": np.array([4, 5])},
        "other": np.array([[1.5]]),
        "names": np.array(["a"]),
    }
    save(workload([0, 1], [1, 1], [1, 1], meta=meta), tmp_path / "w.parquet")
    back = load(tmp_path / "w.parquet").meta
    assert "meta.swf.queue" in pq.read_schema(tmp_path / "w.parquet").names
    assert back["swf"]["queue"].dtype == np.int64
    assert back["swf"]["queue"].tolist() == [4, 5]
    assert back["other"].tolist() == [[1.5]]
    assert back["names"].tolist() == ["a"]


def test_columns_are_named_by_quantity(tmp_path):
    save(workload([0], [1], [[1, 2]], resources=("cpu", "mem_gb")), tmp_path / "w.parquet")
    names = pq.read_schema(tmp_path / "w.parquet").names
    assert {"submit_s", "work_s", "demand.cpu", "demand.mem_gb"} <= set(names)


def test_a_table_made_elsewhere_needs_three_columns(tmp_path):
    table = pa.table({"submit_s": [0, 5], "work_s": [9, 9], "demand.cpu": [1, 2]})
    pq.write_table(table, tmp_path / "w.parquet")
    work = load(tmp_path / "w.parquet")
    assert work.resources == ("cpu",)
    assert work.jobs["request_s"].tolist() == [9, 9]
    assert work.source == "w.parquet"


def test_a_stale_likeness_is_numbered_anew(tmp_path):
    save(workload([0, 1], [1, 1], [1, 1]), tmp_path / "w.parquet")
    table = pq.read_table(tmp_path / "w.parquet")
    edited = table.set_column(
        table.column_names.index("demand.cpu"), "demand.cpu", pa.array([1.0, 2.0])
    )
    pq.write_table(edited, tmp_path / "w.parquet")
    assert len(set(load(tmp_path / "w.parquet").jobs["like"].tolist())) == 2


@pytest.mark.parametrize(
    ("columns", "parts"),
    [
        ({"submit_s": [0], "demand.cpu": [1]}, ["'work_s' is missing", "the file has: submit_s"]),
        ({"submit_s": [0], "work_s": [1]}, ["'demand.cpu' is missing"]),
        (
            {"submit_s": [0], "work_s": [None], "demand.cpu": [1]},
            ["row 0: work_s is empty", "fill"],
        ),
        ({"submit_s": [0], "work_s": ["x"], "demand.cpu": [1]}, ["'work_s'", "store it as double"]),
        ({"submit_s": [0], "work_s": [-2], "demand.cpu": [1]}, ["row 0", "work_s=-2.0", "drop"]),
    ],
)
def test_a_wrong_table_is_refused_by_file_field_value_and_remedy(tmp_path, columns, parts):
    path = tmp_path / "w.parquet"
    pq.write_table(pa.table(columns), path)
    with pytest.raises(TraceError) as caught:
        load(path)
    for part in (str(path), *parts):
        assert part in str(caught.value)


def test_a_newer_schema_is_refused(tmp_path):
    table = pa.table({"submit_s": [0], "work_s": [1], "demand.cpu": [1]})
    table = table.replace_schema_metadata({"trimtab": '{"schema_version": 99}'})
    pq.write_table(table, tmp_path / "w.parquet")
    with pytest.raises(TraceError, match=r"schema_version=99 is newer .* upgrade trimtab"):
        load(tmp_path / "w.parquet")


def test_meta_that_cannot_be_stored_is_refused_by_key(tmp_path):
    work = workload([0], [1], [1], meta={"a": {"b": object()}})
    with pytest.raises(TraceError, match=r"meta\.a\.b=<object .* keep numbers"):
        save(work, tmp_path / "w.parquet")


def test_a_folder_that_is_not_there_is_refused_and_leaves_nothing(tmp_path):
    with pytest.raises(TraceError, match=r"cannot be written: .* make the folder first"):
        save(workload([0], [1], [1]), tmp_path / "gone" / "w.parquet")
    assert list(tmp_path.iterdir()) == []
