"""Files that are dropped into a folder: each is told once, when it is complete."""

import os
from pathlib import Path

import pytest

from trimtab.errors import TraceError
from trimtab.traces import read
from trimtab.traces.readers.drop import Drop


def names(paths: list[Path]) -> list[str]:
    return [path.name for path in paths]


def test_a_file_is_told_once_when_two_looks_find_it_the_same(tmp_path):
    drop = Drop(tmp_path)
    (tmp_path / "jobs.swf").write_text("1 0 5 100 4 -1 -1 4 200 -1 1 7 1 -1 2 -1 -1 -1\n")
    assert drop.new() == []
    assert drop.new() == [tmp_path / "jobs.swf"]
    assert drop.new() == []
    assert len(read(tmp_path / "jobs.swf")) == 1


def test_a_file_that_grows_is_left_for_later(tmp_path):
    drop, path = Drop(tmp_path), tmp_path / "jobs.txt"
    for text in ("a", "ab", "abc"):
        path.write_text(text)
        assert drop.new() == []
    assert names(drop.new()) == ["jobs.txt"]


@pytest.mark.parametrize("name", ["jobs.txt.part", ".jobs.txt"])
def test_a_name_of_an_unfinished_file_is_passed_over_until_it_is_renamed(tmp_path, name):
    drop = Drop(tmp_path)
    (tmp_path / name).write_text("x")
    assert [drop.new() for _ in range(3)] == [[], [], []]
    (tmp_path / name).rename(tmp_path / "jobs.txt")
    assert [names(drop.new()) for _ in range(2)] == [[], ["jobs.txt"]]


def test_folders_and_empty_files_are_passed_over(tmp_path):
    drop = Drop(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty").touch()
    assert [drop.new() for _ in range(3)] == [[], [], []]


def test_what_was_told_and_what_was_seen_once_is_remembered_across_restarts(tmp_path):
    (tmp_path / "one").write_text("1")
    first = Drop(tmp_path)
    assert [names(first.new()) for _ in range(2)] == [[], ["one"]]
    (tmp_path / "two").write_text("2")
    assert Drop(tmp_path).new() == []
    assert names(Drop(tmp_path).new()) == ["two"]
    assert Drop(tmp_path).new() == []
    assert sorted(names(tmp_path.iterdir())) == [".trimtab-told.json", "one", "two"]


def test_the_state_may_lie_elsewhere(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "one").write_text("1")
    drop = Drop(tmp_path / "in", state=tmp_path / "state.json")
    assert [names(drop.new()) for _ in range(2)] == [[], ["one"]]
    assert names((tmp_path / "in").iterdir()) == ["one"]


def test_files_come_oldest_first(tmp_path):
    for second, name in enumerate(("b", "c", "a")):
        (tmp_path / name).write_text("x")
        os.utime(tmp_path / name, (second, second))
    drop = Drop(tmp_path)
    drop.new()
    assert names(drop.new()) == ["b", "c", "a"]


@pytest.mark.parametrize("state", ["{", "[]", '{"version": 99, "told": [], "looks": {}}'])
def test_a_state_file_that_is_broken_is_named(tmp_path, state):
    (tmp_path / ".trimtab-told.json").write_text(state)
    with pytest.raises(TraceError, match=r"trimtab-told\.json: does not tell"):
        Drop(tmp_path)


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(TraceError, match="none: cannot be looked into"):
        Drop(tmp_path / "none").new()
