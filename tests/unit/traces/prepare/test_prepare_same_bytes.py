"""The same trace gives the same bytes: after a kill, in any form, memory, pieces or threads."""

import contextlib
import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time

import duckdb
import pytest
from tests.unit.traces.prepare.folders import LEAST_MEMORY, hashes, small_twin

from trimtab.errors import TraceError
from trimtab.traces.alibaba2018.tables import TABLES
from trimtab.traces.prepare import Options, prepare, steps
from trimtab.traces.prepare.steps import Threads

pytestmark = pytest.mark.slow

RESULTS = ("node.parquet", "region.parquet", "cluster.parquet", "workload.parquet")
RUN = (
    "import sys; from trimtab.traces.prepare import prepare;"
    "prepare(sys.argv[1], sys.argv[2], memory_bytes=256 << 20)"
)


@pytest.fixture(scope="module")
def twin(tmp_path_factory):
    folder = tmp_path_factory.mktemp("twin") / "twin"
    small_twin(folder)
    return folder


@pytest.fixture(scope="module")
def as_csv(twin, tmp_path_factory):
    """The twin as CSV files without a header."""
    folder = tmp_path_factory.mktemp("csv")
    for table in TABLES:
        single = twin / f"{table}.parquet"
        source = single if single.exists() else twin / table / "*.parquet"
        duckdb.execute(
            f"COPY (SELECT * FROM read_parquet('{source}')) TO '{folder / table}.csv' "
            f"(FORMAT csv, HEADER false)"
        )
    return folder


@pytest.fixture(scope="module")
def undisturbed(twin, tmp_path_factory):
    """Hashes of what the twin becomes without any trouble."""
    out = tmp_path_factory.mktemp("undisturbed") / "out"
    prepare(twin, out)
    return hashes(out)


def alike(out, undisturbed):
    found = hashes(out)
    return {name: found[name] for name in RESULTS} == {name: undisturbed[name] for name in RESULTS}


def begun(work, step):
    """Whether the files of a step begin to appear."""
    return {
        "claimed": lambda: (work / "plan.json").exists(),
        "described": lambda: (work / "machine_meta.parquet").exists(),
        "routing": lambda: len(list((work / "rows").glob("*.json"))) >= 2,
        "joining": lambda: any((work / "sums").glob("*.json")),
        "writing": lambda: any((work / "out").glob("node.parquet")),
    }[step]()


@pytest.mark.parametrize("step", ["claimed", "described", "routing", "joining", "writing"])
def test_a_killed_run_goes_on_to_the_same_bytes(twin, undisturbed, tmp_path, step):
    out = tmp_path / "out"
    run = subprocess.Popen([sys.executable, "-c", RUN, str(twin), str(out)])
    try:
        while run.poll() is None and not begun(out / ".work", step):
            time.sleep(0.001)
        stopped = run.poll() is None
    finally:
        run.kill()  # SIGKILL
        run.wait()
    if stopped and run.returncode == -signal.SIGKILL and not (out / "manifest.json").exists():
        assert [path.name for path in out.iterdir()] == [".work"]
    prepare(twin, out)
    assert hashes(out) == undisturbed


@pytest.mark.parametrize("moved", [1, 8, 9])
def test_a_run_stopped_while_it_moves_its_results_goes_on(
    twin, undisturbed, tmp_path, monkeypatch, moved
):
    class Stopped(BaseException):
        pass

    replace, count = os.replace, 0

    def stopping(source, target):
        nonlocal count
        if os.path.dirname(target) == str(tmp_path / "out"):
            count += 1
            if count > moved:
                raise Stopped
        replace(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(steps.os, "replace", stopping)
        patched.setattr(steps.shutil, "rmtree", lambda *a, **k: None)
        with contextlib.suppress(Stopped):
            prepare(twin, tmp_path / "out")
    prepare(twin, tmp_path / "out")
    assert hashes(tmp_path / "out") == undisturbed


def test_the_out_folder_holds_nothing_but_work_until_the_end(twin, tmp_path):
    seen = set()

    def told(step, done, total):
        seen.update(path.name for path in (tmp_path / "out").iterdir())

    prepare(twin, tmp_path / "out", progress=told)
    assert seen == {".work"}
    assert not (tmp_path / "out" / ".work").exists()


def test_a_finished_run_is_returned_and_not_touched(twin, tmp_path):
    out = tmp_path / "out"
    first = prepare(twin, out)
    before = {path.name: (path.stat().st_mtime_ns, path.stat().st_ino) for path in out.iterdir()}
    steps_told = []
    assert prepare(twin, out, progress=lambda *step: steps_told.append(step)) == first
    assert json.loads((out / "manifest.json").read_text()) == first
    after = {path.name: (path.stat().st_mtime_ns, path.stat().st_ino) for path in out.iterdir()}
    assert before == after
    assert not steps_told


def test_a_begun_folder_refuses_other_options_by_name(twin, undisturbed, tmp_path):
    class Stopped(Exception):
        pass

    def stopping(step, done, total):
        raise Stopped

    out = tmp_path / "out"
    with pytest.raises(Stopped):
        prepare(twin, out, progress=stopping)
    for name, value in (("window_s", 600.0), ("history", 6), ("train", 0.6)):
        with pytest.raises(TraceError, match=rf"begun with {name}=.*now it is {value}.*--out"):
            prepare(twin, out, options=Options(**{name: value}))
    prepare(twin, out)
    assert hashes(out) == undisturbed


def test_a_finished_folder_refuses_other_options_by_name(twin, tmp_path):
    out = tmp_path / "out"
    prepare(twin, out)
    before = hashes(out)
    for name, value in (("window_s", 600.0), ("services", "none"), ("machine_mem_gb", 64.0)):
        with pytest.raises(TraceError, match=rf"{name}=.*now it is {value}.*--out"):
            prepare(twin, out, options=Options(**{name: value}))
    assert hashes(out) == before


def test_a_finished_folder_refuses_another_trace(twin, tmp_path):
    other = tmp_path / "other"
    small_twin(other, seed=1)
    prepare(twin, tmp_path / "out")
    with pytest.raises(TraceError, match=r"made from.*bytes.*choose another --out"):
        prepare(other, tmp_path / "out")


def test_a_begun_folder_begins_anew_where_a_file_has_changed(twin, undisturbed, tmp_path):
    class Stopped(Exception):
        pass

    def stopping(step, done, total):
        raise Stopped

    trace = tmp_path / "trace"
    shutil.copytree(twin, trace)
    with pytest.raises(Stopped):
        prepare(trace, tmp_path / "out", progress=stopping)
    os.utime(trace / "batch_task.parquet", (1, 1))
    left = tmp_path / "out" / ".work" / "left"
    left.touch()
    prepare(trace, tmp_path / "out", progress=lambda *_: left.exists() and pytest.fail("not anew"))
    assert hashes(tmp_path / "out") == undisturbed


@pytest.mark.parametrize(
    ("memory", "threads"), [(LEAST_MEMORY, 1), (LEAST_MEMORY, 5), (8 << 30, 3)]
)
def test_memory_and_threads_do_not_change_a_byte(twin, undisturbed, tmp_path, memory, threads):
    prepare(twin, tmp_path / "out", memory_bytes=memory, workers=Threads(threads))
    assert hashes(tmp_path / "out") == undisturbed


def small_pieces(monkeypatch, piece_bytes):
    monkeypatch.setattr(steps, "piece_of", lambda memory_bytes: piece_bytes)


@pytest.mark.parametrize("piece_bytes", [1 << 18, 777_777])
def test_small_pieces_of_a_file_give_the_same_bytes(
    as_csv, undisturbed, tmp_path, monkeypatch, piece_bytes
):
    small_pieces(monkeypatch, piece_bytes)
    prepare(as_csv, tmp_path / "out")
    assert alike(tmp_path / "out", undisturbed)


def test_few_rows_at_once_give_the_same_bytes(twin, undisturbed, tmp_path, monkeypatch):
    monkeypatch.setattr(steps.Plan, "most_rows", 1000)
    prepare(twin, tmp_path / "out")
    assert hashes(tmp_path / "out") == undisturbed


@pytest.mark.parametrize("windows", [7, 50])
def test_the_length_of_a_period_does_not_change_the_result(
    twin, undisturbed, tmp_path, monkeypatch, windows
):
    monkeypatch.setattr(steps, "period_of", lambda tables, window_s: window_s * windows)
    prepare(twin, tmp_path / "out")
    assert alike(tmp_path / "out", undisturbed)


def test_more_memory_on_the_second_run_gives_the_same_bytes(as_csv, undisturbed, tmp_path):
    class Stopped(Exception):
        pass

    def stopping(step, done, total):
        if step.startswith("routing") and done > 1:
            raise Stopped

    with pytest.raises(Stopped):
        prepare(as_csv, tmp_path / "out", memory_bytes=LEAST_MEMORY, progress=stopping)
    prepare(as_csv, tmp_path / "out", memory_bytes=4 << 30)
    assert alike(tmp_path / "out", undisturbed)


def test_csv_gives_the_same_bytes_as_parquet(as_csv, undisturbed, tmp_path):
    prepare(as_csv, tmp_path / "out")
    assert alike(tmp_path / "out", undisturbed)


def test_packed_csv_gives_the_same_bytes(as_csv, undisturbed, tmp_path, monkeypatch):
    small_pieces(monkeypatch, 1 << 20)
    trace = tmp_path / "trace"
    trace.mkdir()
    for path in as_csv.glob("*.csv"):
        packed = gzip.compress(path.read_bytes(), 1)
        (trace / f"{path.name}.gz").write_bytes(packed)
    prepare(trace, tmp_path / "out")
    assert alike(tmp_path / "out", undisturbed)


def test_archives_as_published_give_the_same_bytes(as_csv, undisturbed, tmp_path):
    trace = tmp_path / "trace"
    trace.mkdir()
    for path in as_csv.glob("*.csv"):
        with tarfile.open(trace / f"{path.stem}.tar.gz", "w:gz", compresslevel=1) as archive:
            archive.add(path, path.name)
    prepare(trace, tmp_path / "out")
    assert alike(tmp_path / "out", undisturbed)


def test_one_unreadable_number_does_not_hide_repeats(as_csv, tmp_path, monkeypatch):
    """A piece that is read as text tells the same rows apart as one that is read as numbers."""
    trace = tmp_path / "trace"
    shutil.copytree(as_csv, trace)
    lines = (trace / "batch_instance.csv").read_bytes().splitlines(keepends=True)
    bad = lines[0].rsplit(b",", 1)[0] + b",x\n"
    (trace / "batch_instance.csv").write_bytes(b"".join([*lines, bad, *lines]))
    small_pieces(monkeypatch, 1 << 18)
    found = prepare(trace, tmp_path / "out")["tables"]["batch_instance"]
    clean = prepare(as_csv, tmp_path / "clean")["tables"]["batch_instance"]
    assert found["kept"] in (clean["kept"], clean["kept"] + 1)
