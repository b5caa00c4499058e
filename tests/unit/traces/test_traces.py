"""`read` finds the reader by the file's name, or else by its content."""

import gzip
import subprocess
import sys

import pytest

from trimtab.build import workload
from trimtab.errors import TraceError
from trimtab.traces import file_kind, read
from trimtab.traces.readers.parquet import save

ROW = "1 0 5 100 4 -1 -1 4 200 -1 1 7 1 -1 2 -1 -1 -1\n"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("log.swf", ROW.encode()),
        ("log.swf.gz", gzip.compress(ROW.encode(), mtime=0)),
        ("log.txt", f"; Version: 2\n{ROW}".encode()),
        ("log", gzip.compress(ROW.encode(), mtime=0)),
    ],
)
def test_a_log_is_known_by_name_or_content(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    assert len(read(tmp_path / name)) == 1


def test_parquet_is_known_by_content(tmp_path):
    save(workload([0], [1], [1]), tmp_path / "jobs.parquet")
    (tmp_path / "jobs.parquet").rename(tmp_path / "jobs.data")
    assert file_kind(tmp_path / "jobs.data") == "parquet"
    assert len(read(tmp_path / "jobs.data")) == 1


@pytest.mark.parametrize(
    ("content", "looks"), [("a,b\n1,2\n", "its first line is 'a,b'"), ("", "it is empty")]
)
def test_an_unknown_file_is_refused_with_the_known_kinds(tmp_path, content, looks):
    path = tmp_path / "trace.csv"
    path.write_text(content)
    with pytest.raises(TraceError) as caught:
        read(path)
    for part in (str(path), looks, ".swf", ".parquet"):
        assert part in str(caught.value)


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(TraceError, match=r"unknown \(a folder\)"):
        read(tmp_path)


def test_importing_the_readers_does_not_import_pyarrow():
    code = "import sys, trimtab.traces.scenes.synthetic, trimtab.traces.readers.swf;"
    code += "print('pyarrow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
