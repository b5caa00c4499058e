"""What cannot be prepared is refused: the message names file, line and remedy."""

import bz2
import gzip
import lzma
import os
import shutil
import tarfile

import duckdb
import pytest
from tests.unit.traces.prepare.folders import BY_HAND, hashes, small_twin, written

from trimtab.errors import TraceError
from trimtab.traces.alibaba2018.tables import TABLES
from trimtab.traces.prepare import Options, prepare, steps

FAR_S = 200_000  # in milliseconds this is beyond a year


@pytest.fixture(scope="module")
def twin(tmp_path_factory):
    folder = tmp_path_factory.mktemp("twin") / "twin"
    small_twin(folder)
    return folder


@pytest.fixture
def refused(tmp_path):
    """Prepare a folder that is refused; the message, with nothing but work left behind."""

    def trial(trace, **how):
        out = tmp_path / "out"
        with pytest.raises(TraceError) as error:
            prepare(trace, out, **how)
        assert type(error.value) is TraceError
        assert not out.exists() or {path.name for path in out.iterdir()} <= {".work"}
        return str(error.value)

    return trial


def csv_of(twin, table):
    """A table of the twin as text without a header."""
    single = twin / f"{table}.parquet"
    source = single if single.exists() else twin / table / "*.parquet"
    rows = duckdb.execute(f"SELECT * FROM read_parquet('{source}')").fetchall()
    return "".join(
        ",".join("" if cell is None else str(cell) for cell in row) + "\n" for row in rows
    )


def late(usage):
    """Samples late enough that milliseconds cannot be taken for seconds."""
    lines = [line.split(",") for line in usage.splitlines()]
    return [[line[0], str(FAR_S + n), *line[2:]] for n, line in enumerate(lines)]


def as_text(lines):
    return "".join(",".join(line) + "\n" for line in lines)


@pytest.mark.parametrize("table", ["batch_task", "batch_instance"])
@pytest.mark.parametrize("form", ["csv.gz", "tar.gz", "csv.xz", "csv.bz2"])
def test_a_packed_file_that_is_cut_short(twin, tmp_path, refused, form, table):
    trace = written(tmp_path / "trace", {table: None})
    plain = tmp_path / f"{table}.csv"
    plain.write_text(csv_of(twin, table))
    path = trace / f"{table}.{form}"
    if form == "tar.gz":
        with tarfile.open(path, "w:gz") as archive:
            archive.add(plain, plain.name)
    elif form == "csv.gz":
        path.write_bytes(gzip.compress(plain.read_bytes()))
    else:
        path.write_bytes({"csv.xz": lzma, "csv.bz2": bz2}[form].compress(plain.read_bytes()))
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) * 2 // 3])
    message = refused(trace)
    assert path.name in message
    assert "cut short or damaged" in message
    assert "download it again" in message


@pytest.mark.parametrize("form", ["csv.gz", "tar.gz", "csv.xz", "csv.bz2", "parquet", "tgz"])
def test_a_packed_file_that_is_none(tmp_path, refused, form):
    trace = written(tmp_path / "trace", {"batch_task": None})
    (trace / f"batch_task.{form}").write_bytes(b"\x00\x01<html>not found</html>" * 100)
    message = refused(trace)
    assert f"batch_task.{form}" in message
    assert "again" in message


@pytest.mark.parametrize("table", ["batch_task", "machine_usage", "batch_instance"])
def test_parquet_that_is_damaged_in_the_middle(twin, tmp_path, refused, table):
    trace = tmp_path / "trace"
    shutil.copytree(twin, trace)
    path = trace / f"{table}.parquet"
    if not path.exists():
        path = trace / table / "part-00020.parquet"
    whole = bytearray(path.read_bytes())
    whole[4 : len(whole) // 2] = bytes(len(whole) // 2 - 4)
    path.write_bytes(whole)
    message = refused(trace)
    assert path.name in message
    assert "again" in message


@pytest.mark.parametrize("table", ["machine_meta", "batch_task", "machine_usage", "batch_instance"])
@pytest.mark.parametrize("header", [False, True])
def test_a_line_with_a_column_too_few_is_named_by_its_number(tmp_path, refused, table, header):
    lines = BY_HAND[table].splitlines()
    lines.insert(2, lines[2].rsplit(",", 1)[0])
    if header:
        lines.insert(0, ",".join(TABLES[table].columns))
    trace = written(tmp_path / "trace", {table: "\n".join(lines) + "\n"})
    message = refused(trace)
    assert f"{table}.csv:{4 if header else 3}:" in message
    assert "--lenient" in message
    counts = prepare(trace, tmp_path / "lenient", options=Options(lenient=True))["tables"][table]
    assert counts["narrow"] == 1
    assert counts["in"] == len(BY_HAND[table].splitlines())


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("table", ["batch_task", "machine_usage"])
def test_the_number_of_the_line_is_exact_in_any_piece(
    twin, tmp_path, refused, monkeypatch, table, packed
):
    lines = csv_of(twin, table).splitlines()
    at = len(lines) * 4 // 5
    lines[at] = lines[at] + ",1"
    text = "\n".join(lines) + "\n"
    trace = written(tmp_path / "trace", {table: None if packed else text})
    if packed:
        (trace / f"{table}.csv.gz").write_bytes(gzip.compress(text.encode(), 1))
    monkeypatch.setattr(steps, "piece_of", lambda memory_bytes: len(text) // 9)
    assert f"{table}.csv{'.gz' if packed else ''}:{at + 1}:" in refused(trace)


def test_a_narrow_first_line_is_dropped_where_that_is_allowed(tmp_path, refused):
    trace = written(tmp_path / "trace", {"batch_task": "M1,1\n" + BY_HAND["batch_task"]})
    assert "batch_task.csv:1:" in refused(trace)
    found = prepare(trace, tmp_path / "lenient", options=Options(lenient=True))
    assert found["tables"]["batch_task"]["narrow"] == 1


@pytest.mark.parametrize(
    ("table", "held"),
    [
        ("batch_task", "batch_instance"),
        ("batch_task", "machine_usage"),  # both have nine columns
        ("machine_usage", "batch_task"),
        ("batch_instance", "container_usage"),
        ("machine_meta", "machine_usage"),
    ],
)
def test_a_table_in_the_file_of_another(tmp_path, refused, table, held):
    message = refused(written(tmp_path / "trace", {table: BY_HAND[held]}))
    assert f"{table}.csv:1: holds {held}, not {table}" in message
    assert f"--table {table}=FILE" in message


def test_parquet_of_another_table(twin, tmp_path, refused):
    trace = tmp_path / "trace"
    shutil.copytree(twin, trace)
    shutil.copy(trace / "machine_meta.parquet", trace / "batch_task.parquet")
    message = refused(trace)
    assert "batch_task.parquet" in message
    # only the status is common to both: no job is named in any row
    assert "no-id" in message


@pytest.mark.parametrize("share", [2, 1])
def test_samples_in_milliseconds(tmp_path, refused, share):
    lines = late(BY_HAND["machine_usage"] * 20)
    first = len(lines) if share == 1 else len(lines) // 2
    for line in lines[-first:]:
        line[1] += "000"
    message = refused(written(tmp_path / "trace", {"machine_usage": as_text(lines)}))
    # the line of the first such time
    assert f"machine_usage.csv:{len(lines) - first + 1}: time_stamp=" in message
    assert "divide milliseconds by 1,000" in message


def test_tasks_in_milliseconds(tmp_path, refused):
    tasks = [line.split(",") for line in BY_HAND["batch_task"].splitlines()]
    for line in tasks:
        line[5] = str((FAR_S + 60) * 1000)
        line[6] = str((FAR_S + 90) * 1000)
    message = refused(written(tmp_path / "trace", {"batch_task": as_text(tasks)}))
    assert "batch_task.csv:1: start_time=200060000 s is beyond a year" in message


def test_instances_half_in_milliseconds(tmp_path, refused, monkeypatch):
    lines = [line.split(",") for line in (BY_HAND["batch_instance"] * 50).splitlines()]
    for line in lines[len(lines) // 2 :]:
        line[5], line[6] = f"{FAR_S}000", f"{FAR_S + 5}000"
    text = as_text(lines)
    monkeypatch.setattr(steps, "piece_of", lambda memory_bytes: len(text) // 5)
    message = refused(written(tmp_path / "trace", {"batch_instance": text}))
    assert "batch_instance.csv:" in message
    assert "divide milliseconds" in message


def test_a_folder_without_tasks(tmp_path, refused):
    message = refused(written(tmp_path / "trace", {"batch_task": None}))
    assert "batch_task is missing" in message
    assert "--table batch_task=FILE" in message


@pytest.mark.parametrize("table", ["machine_meta", "batch_task", "machine_usage", "batch_instance"])
@pytest.mark.parametrize("text", ["", "\n\n"])
def test_an_empty_file(tmp_path, refused, table, text):
    message = refused(written(tmp_path / "trace", {table: text}))
    assert f"{table}.csv" in message
    assert "download it again" in message


@pytest.mark.parametrize("table", ["batch_task", "machine_usage"])
def test_an_empty_packed_file(tmp_path, refused, table):
    trace = written(tmp_path / "trace", {table: None})
    (trace / f"{table}.csv.gz").write_bytes(gzip.compress(b""))
    message = refused(trace)
    assert f"{table}.csv.gz: is empty; download it again" in message


@pytest.mark.parametrize("table", BY_HAND)
def test_a_header_alone(tmp_path, refused, table):
    text = ",".join(TABLES[table].columns) + "\n"
    message = refused(written(tmp_path / "trace", {table: text}))
    assert f"{table}.csv: holds no rows; download it again" in message


@pytest.mark.parametrize(
    ("table", "old", "new"),
    [
        ("machine_meta", ",96,", ",0,"),
        ("container_meta", "m_", "x_"),
        ("machine_usage", "m_", "m_77"),
        ("container_usage", "c_", "c_77"),
        ("batch_task", "Terminated", "Failed"),
        ("batch_instance", "Terminated", "Failed"),
    ],
)
def test_no_row_left_after_cleaning(tmp_path, refused, table, old, new):
    text = BY_HAND[table].replace(old, new)
    if table == "machine_meta":
        text = text.replace(",64,", ",0,")
    message = refused(written(tmp_path / "trace", {table: text}))
    rows = len(text.splitlines())
    assert f"{table}.csv: none of its {rows} rows is left after cleaning" in message


def test_samples_of_machines_that_no_table_describes(tmp_path, refused):
    message = refused(written(tmp_path / "trace", {"machine_meta": None}))
    assert "machine_usage.csv" in message
    assert "machine_meta" in message
    assert "download" in message


def test_services_on_machines_that_no_table_describes(tmp_path, refused):
    without = {"machine_meta": None, "machine_usage": None}
    message = refused(written(tmp_path / "trace", without))
    assert "container_meta.csv" in message
    assert "machine_meta is missing" in message


def test_a_table_by_an_unknown_name(tmp_path, refused):
    message = refused(written(tmp_path / "trace"), tables={"batch_tasks": "batch_task.csv"})
    assert "--table batch_tasks=" in message
    assert "known: machine_meta" in message


def test_a_named_file_that_is_not_there(tmp_path, refused):
    message = refused(written(tmp_path / "trace"), tables={"batch_task": "none.csv"})
    assert "--table batch_task=none.csv" in message


def test_what_is_no_folder(tmp_path, refused):
    (tmp_path / "file").write_text("")
    for trace in (tmp_path / "file", tmp_path / "nowhere"):
        assert f"{trace}: is not a folder" in refused(trace)


def test_out_below_a_file(tmp_path, refused):
    (tmp_path / "file").write_text("")
    with pytest.raises(TraceError, match=r"choose another --out"):
        prepare(written(tmp_path / "trace"), tmp_path / "file" / "out")


def test_out_that_is_a_file(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(TraceError, match=r"file: is not a folder.*--out"):
        prepare(written(tmp_path / "trace"), tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_out_that_cannot_be_written(tmp_path):
    (tmp_path / "out").mkdir(mode=0o500)
    with pytest.raises(TraceError, match=r"cannot be made.*choose another --out"):
        prepare(written(tmp_path / "trace"), tmp_path / "out")


@pytest.mark.parametrize("name", ["thesis.txt", "manifest.json", "node.parquet"])
def test_out_that_holds_something_else(tmp_path, name):
    out = tmp_path / "out"
    out.mkdir()
    (out / name).write_text("mine")
    with pytest.raises(TraceError, match=r"out: holds something else.*--out"):
        prepare(written(tmp_path / "trace"), out)
    assert list(hashes(out)) == [name]
    assert (out / name).read_text() == "mine"


def test_out_with_the_manifest_of_another_program(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "manifest.json").write_text('{"name": "an extension"}')
    with pytest.raises(TraceError, match=r"out: holds something else.*--out"):
        prepare(written(tmp_path / "trace"), out)


def test_too_little_memory(tmp_path, refused):
    message = refused(written(tmp_path / "trace"), memory_bytes=1 << 20)
    assert "--memory 1MB is too little; give at least 256MB" in message


def test_a_column_of_parquet_that_is_no_number(twin, tmp_path, refused):
    trace = tmp_path / "trace"
    shutil.copytree(twin, trace)
    duckdb.execute(
        f"COPY (SELECT * REPLACE (TIMESTAMP '2018-01-01' AS start_time) FROM "
        f"read_parquet('{twin}/batch_task.parquet')) TO '{trace}/batch_task.parquet'"
    )
    message = refused(trace)
    assert "batch_task.parquet" in message
    assert "start_time" in message


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("window_s", 0.5), ("window_s", 300.5), ("history", 0), ("segment_s", 10.0),
        ("train", 1.5), ("validation", 0.4), ("machine_mem_gb", 0.0), ("services", "some"),
    ],
)  # fmt: skip
def test_options_out_of_range_are_refused_by_name(name, value):
    with pytest.raises(TraceError, match=f"{name}={value!r}"):
        Options(**{name: value})


def test_there_must_be_something_to_verify(tmp_path):
    (tmp_path / "trace").mkdir()
    (tmp_path / "trace" / "batch_task.csv").write_text("M1,1,j_1,1,Terminated,60,120,100,1\n")
    with pytest.raises(TraceError, match=r"--verify: .*none of the published"):
        prepare(tmp_path / "trace", tmp_path / "out", verified=True)
    assert not (tmp_path / "out").exists()
