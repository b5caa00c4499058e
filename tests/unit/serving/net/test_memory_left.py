"""What is left of the memory is the least that a process, its group and the machine allow."""

import math
import resource

import pytest

from trimtab.serving.net.memory_left import (
    SPARE_B,
    by_group,
    by_machine,
    by_process,
    check_room,
    left_b,
)
from trimtab.serving.net.segments import Segments
from trimtab.serving.net.slim_weights import SHIPPED, load


@pytest.fixture
def machine(tmp_path):
    """Folders as Linux has them: 8 GB available, in a group of 2 GB inside one of 1 GB."""
    proc, groups = tmp_path / "proc", tmp_path / "groups"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text("MemTotal: 16000000 kB\nMemAvailable: 8000000 kB\n")
    (proc / "self" / "statm").write_text("1000 500 100 1 0 400 0\n")
    (proc / "self" / "cgroup").write_text("4:memory:/old\n0::/outer/inner\n")
    for path, limit in (("outer/inner", 2_000_000_000), ("outer", 1_000_000_000)):
        (groups / path).mkdir(parents=True, exist_ok=True)
        (groups / path / "memory.max").write_text(f"{limit}\n")
        (groups / path / "memory.current").write_text("700000000\n")
        (groups / path / "memory.stat").write_text("anon 1\ninactive_file 100000000\n")
    return proc, groups


def test_the_tightest_group_counts_and_files_in_memory_make_room(machine):
    proc, groups = machine
    assert by_group(proc, groups) == 400_000_000
    assert by_machine(proc) == 8_192_000_000
    assert left_b(proc, groups) == 400_000_000
    (groups / "outer" / "memory.max").write_text("max\n")
    assert left_b(proc, groups) == 1_400_000_000


def test_where_nothing_is_known_there_is_room(tmp_path):
    assert by_group(tmp_path, tmp_path) == by_machine(tmp_path) == math.inf
    check_room(1e15, tmp_path, tmp_path)


def test_the_limit_of_the_process_counts_what_it_has_mapped(machine, monkeypatch):
    limit_b = 1000 * resource.getpagesize() + 5_000_000
    monkeypatch.setattr(resource, "getrlimit", lambda which: (limit_b, limit_b))
    assert by_process(machine[0]) == 5_000_000


def test_too_little_is_an_error_that_says_how_much(machine):
    check_room(400e6 - SPARE_B, *machine)
    with pytest.raises(MemoryError, match="needs 400 MB and 128 MB to spare, 400 MB are left"):
        check_room(400e6, *machine)


def test_a_segment_without_room_is_not_loaded_and_the_others_run_on(monkeypatch):
    segments = Segments(load(SHIPPED))
    segments.load(0, 0, 0)
    monkeypatch.setattr("trimtab.serving.net.memory_left.left_b", lambda *_: SPARE_B)
    with pytest.raises(MemoryError):
        segments.load(3, 3, 3)
    assert segments.loaded == ((0, 0, 0),)
    segments.load(0, 0, 0)
