"""A file is there whole or as it was before."""

import os
import threading
from pathlib import Path

import pytest

from trimtab.files import whole, write_whole


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(
    ("content", "stored"), [("é\n", b"\xc3\xa9\n"), (b"\x00\xff", b"\x00\xff")]
)
def test_text_is_written_as_utf_8_and_bytes_as_they_are(tmp_path, content, stored):
    write_whole(tmp_path / "a.txt", content)
    assert (tmp_path / "a.txt").read_bytes() == stored
    assert names(tmp_path) == ["a.txt"]


def test_a_file_that_is_there_is_replaced(tmp_path):
    write_whole(tmp_path / "a.txt", "a longer text from before")
    write_whole(str(tmp_path / "a.txt"), "new")
    assert (tmp_path / "a.txt").read_text() == "new"
    assert names(tmp_path) == ["a.txt"]


def test_write_whole_makes_the_folder(tmp_path):
    write_whole(tmp_path / "x" / "y" / "a.txt", "text")
    assert (tmp_path / "x" / "y" / "a.txt").read_text() == "text"


@pytest.mark.parametrize("failure", [ValueError, KeyboardInterrupt])
def test_a_failure_in_the_middle_leaves_the_old_file_and_no_litter(tmp_path, failure):
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")
    with pytest.raises(failure), whole(path) as place:
        place.write_bytes(b"half of the n")
        raise failure
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["a.bin"]


def test_a_failure_before_anything_is_written_is_told_as_it_is(tmp_path):
    with pytest.raises(ValueError, match="no rows"), whole(tmp_path / "a.bin"):
        raise ValueError("no rows")
    assert names(tmp_path) == []


def test_a_block_that_writes_nothing_is_an_error_and_leaves_the_old_file(tmp_path):
    (tmp_path / "a.bin").write_bytes(b"old")
    with pytest.raises(FileNotFoundError), whole(tmp_path / "a.bin"):
        pass
    assert (tmp_path / "a.bin").read_bytes() == b"old"


def test_the_place_is_beside_the_file_and_cannot_be_taken_for_one(tmp_path):
    with whole(tmp_path / "a.parquet") as place:
        place.write_bytes(b"new")
        assert place.parent == tmp_path
        assert place.name.startswith(".") and place.suffix == ".part"
        assert not (tmp_path / "a.parquet").exists()
    assert (tmp_path / "a.parquet").read_bytes() == b"new"


@pytest.mark.parametrize("parent", ["missing", "file"])
def test_whole_names_a_folder_that_is_missing(tmp_path, parent):
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(FileNotFoundError, match=parent), whole(tmp_path / parent / "a.bin"):
        pytest.fail("the block must not begin")


def test_a_file_is_readable_by_those_who_read_any_new_file(tmp_path):
    (tmp_path / "plain").write_text("")
    write_whole(tmp_path / "a.txt", "text")
    assert os.stat(tmp_path / "a.txt").st_mode == os.stat(tmp_path / "plain").st_mode


def test_two_threads_that_write_one_file_do_not_meet(tmp_path):
    path, meet = tmp_path / "a.txt", threading.Barrier(2, timeout=10)

    def write(letter: str) -> None:
        with whole(path) as place:
            place.write_text(letter * 1000)
            meet.wait()

    threads = [threading.Thread(target=write, args=(letter,)) for letter in "xy"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(path.read_text()) in ({"x"}, {"y"}) and len(path.read_text()) == 1000
    assert names(tmp_path) == ["a.txt"]
