"""What a command may write: somewhere that is there, and never over what it reads."""

import os
from pathlib import Path

import pytest

from trimtab.cli.outputs import FOLDER, JSON, PAGE, PARQUET, Place, check, check_room
from trimtab.errors import TrimtabError


@pytest.fixture
def log(tmp_path) -> Path:
    path = tmp_path / "log.swf"
    path.write_text("; a log\n")
    return path


def refused(place: Place, *inputs: Path) -> str:
    with pytest.raises(TrimtabError) as mistake:
        check([place], [Place("--trace", path) for path in inputs])
    return str(mistake.value)


def test_a_new_file_in_a_folder_that_is_there_may_be_written_and_leaves_nothing_yet(tmp_path, log):
    check([Place("--json", tmp_path / "a.json", JSON)], [Place("--trace", log)])
    assert [path.name for path in tmp_path.iterdir()] == ["log.swf"]


def test_the_same_command_again_replaces_what_it_wrote(tmp_path):
    (tmp_path / "a.json").write_text(' \n[{"policy": "fcfs"}]')
    (tmp_path / "a.html").write_text("<!DOCTYPE html><p>")
    (tmp_path / "a.parquet").write_bytes(b"PAR1....")
    for name, kind in (("a.json", JSON), ("a.html", PAGE), ("a.parquet", PARQUET)):
        check([Place("--out", tmp_path / name, kind)], [])


@pytest.mark.parametrize("way", ["itself", "dots", "symbolic link", "hard link", "through a link"])
def test_an_output_is_never_what_is_read(tmp_path, way):
    """By whatever name: the ending and the content would suit."""
    read = tmp_path / "jobs.parquet"
    read.write_bytes(b"PAR1")
    output = tmp_path / "other.parquet"
    if way == "itself":
        output = read
    elif way == "dots":
        output = tmp_path / "x" / ".." / "jobs.parquet"
        (tmp_path / "x").mkdir()
    elif way == "symbolic link":
        output.symlink_to(read)
    elif way == "hard link":
        os.link(read, output)
    else:
        (tmp_path / "there").symlink_to(tmp_path)
        output = tmp_path / "there" / "jobs.parquet"
    assert "--trace reads it, and it would be lost" in refused(Place("", output, PARQUET), read)


def test_a_file_of_a_folder_that_is_read_stays(tmp_path):
    (tmp_path / "prepared").mkdir()
    (tmp_path / "prepared" / "manifest.json").write_text("{}")
    place = Place("--json", tmp_path / "prepared" / "manifest.json", JSON)
    assert "is one of the files in" in refused(place, tmp_path / "prepared")


@pytest.mark.parametrize(
    ("option", "name", "kind", "why"),
    [
        ("--report", "a.parquet", PAGE, "'.parquet' is another kind of file; name it a.html"),
        ("--report", "a", PAGE, "the name has no ending; name it a.html"),
        ("--json", "a.csv", JSON, "'.csv' is another kind of file; name it a.json"),
        ("--json", "log.swf", JSON, "name it log.json"),
        ("--out", "a.csv", PARQUET, "name it a.parquet"),
        ("--json", "no/a.json", JSON, "there is no such folder; make the folder or name another"),
        ("--json", "log.swf/a.json", JSON, "log.swf is a file"),
        ("--out", "log.swf/run", FOLDER, "log.swf is a file"),
        ("--out", "log.swf", FOLDER, "is a file; name a folder"),
        ("--report", "folder", PAGE, "is a folder; name a file in it"),
        ("--json", "pipe.json", JSON, "is no plain file; `-` is standard output"),
        ("--json", f"{'a' * 300}.json", JSON, "has too long a name"),
        ("--json", f"{'a' * 245}.json", JSON, "has too long a name"),
        ("--json", "loop.json", JSON, "is a link that leads back to itself"),
        ("--json", "notes.json", JSON, "the file that is there is not JSON"),
        ("--report", "notes.html", PAGE, "the file that is there is not an HTML page"),
    ],
)  # fmt: skip
def test_what_cannot_be_written_is_refused_with_option_path_and_remedy(
    tmp_path, log, option, name, kind, why
):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "loop.json").symlink_to(tmp_path / "loop.json")
    for notes in ("notes.json", "notes.html"):
        (tmp_path / notes).write_text("what I wanted to remember")
    before = sorted(path.name for path in tmp_path.iterdir())
    said = refused(Place(option, tmp_path / name, kind))
    assert said.startswith(f"{option} ")
    assert name in said
    assert why in said
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_two_outputs_are_two_files(tmp_path):
    one, two = tmp_path / "a.json", tmp_path / "." / "a.json"
    with pytest.raises(TrimtabError, match="--json is written there too"):
        check([Place("--json", one, JSON), Place("--state", two, JSON)], [])


def test_a_disk_without_room_is_told_before(tmp_path):
    with pytest.raises(TrimtabError, match=r"MB are free there; make room"):
        check_room(tmp_path / "a.parquet", 1e18)
    check_room(tmp_path / "a.parquet", 1)


def test_the_folder_that_one_stands_in_may_be_written_to(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check([Place("--out", Path("."), FOLDER)], [])
    assert list(tmp_path.iterdir()) == []
