"""What no command may take is refused: at once, in one sentence, and nothing is touched."""

import importlib.util
import os
import shlex
import signal
import threading
from pathlib import Path

import pytest

from trimtab.cli import app


def _beside(name):
    """A module of tables that stands beside this one."""
    path = Path(__file__).with_name(f"{name}.py")
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CASES = _beside("bad_inputs").CASES
LONG = _beside("bad_inputs").LONG
make = _beside("bad_files").make
MOST_S = 60  # a hang, not a matter of speed: most take milliseconds


class Hangs(BaseException):
    """A command that did not come to an end."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("bad")
    make(made)
    return made


def content(folder: Path) -> dict[str, object]:
    """All that is in a folder, by name."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        kind = path.lstat().st_mode
        plain = path.is_file() and not path.is_symlink()
        found[str(path)] = path.read_bytes() if plain else kind
    return found


@pytest.fixture
def refused(command, folder, monkeypatch):
    """Type words where the files are; the one sentence that comes back."""

    def hang(number, frame):
        raise Hangs

    def run(words):
        monkeypatch.chdir(folder)
        before, threads = content(folder), threading.active_count()
        heard = signal.signal(signal.SIGALRM, hang)
        signal.alarm(MOST_S)
        try:
            code, _, said = command(*shlex.split(words))
        except Hangs:
            pytest.fail(f"trimtab {words}: still runs after {MOST_S} s")
        finally:
            signal.alarm(0)
            signal.signal(signal.SIGALRM, heard)
        assert code == 2, said
        assert content(folder) == before
        assert threading.active_count() <= threads
        lines = [line for line in said.splitlines() if line.strip()]
        assert len(lines) == 1, said
        assert lines[0].startswith("error: ")
        assert "Traceback" not in said
        assert "[Errno" not in said
        return lines[0]

    return run


@pytest.mark.parametrize(
    ("words", "why"),
    [
        pytest.param(words, why, marks=[pytest.mark.slow] * words.startswith(LONG))
        for words, why in CASES
    ],
)
def test_a_bad_input_is_named_in_one_sentence_and_nothing_is_touched(refused, words, why):
    assert why in refused(words)


def test_there_are_two_hundred_of_them_and_no_command_is_left_out():
    """`serve` alone is a command, and so is `plan` with a model behind it."""
    typed = [words for words, _ in CASES]
    assert len(set(typed)) == len(typed) >= 200
    for name in commands(app):
        assert any(words.startswith(name) for words in typed), f"no bad input for trimtab {name}"


def commands(group, above=""):
    """Every command that `--help` lists, with the words before it."""
    for one in group.registered_commands:
        yield f"{above}{one.name or one.callback.__name__}"
    for below in group.registered_groups:
        name = below.name if isinstance(below.name, str) else ""
        yield from commands(below.typer_instance, f"{above}{name} " if name else above)


def test_a_disk_without_room_is_named_before_anything_runs(command, monkeypatch, tmp_path):
    monkeypatch.setattr("shutil.disk_usage", lambda path: Full)
    code, _, said = command("trace", "generate", "mixed-gpu", "--out", tmp_path / "a.parquet")
    assert code == 2
    assert "make room or name a place on another disk" in said
    assert list(tmp_path.iterdir()) == []


class Full:
    """What `shutil.disk_usage` says of a disk with nothing left."""

    free = 0


@pytest.mark.parametrize(
    ("number", "why"),
    [
        ("ENOSPC", "the disk is full; make room"),
        ("EROFS", "can only be read; name a place on another one"),
        ("EACCES", "is not allowed for this user"),
        ("EMFILE", "too many files open; raise `ulimit -n`"),
    ],
)
def test_what_the_system_refuses_in_the_middle_is_a_sentence_and_leaves_nothing(
    command, monkeypatch, tmp_path, number, why
):
    """As where a disk fills up while a file is written."""
    import errno

    def refuse(handle):
        raise OSError(getattr(errno, number), "as the system says it", str(tmp_path / "a.json"))

    monkeypatch.setattr(os, "fsync", refuse)
    code, _, said = command("policies", "--json", tmp_path / "a.json")
    assert code == 2
    assert why in said
    assert "Errno" not in said
    assert list(tmp_path.iterdir()) == []


def test_a_want_of_memory_is_a_sentence(command, monkeypatch):
    def out(*words, **more):
        raise MemoryError("Unable to allocate 7 TiB")

    monkeypatch.setattr("trimtab.traces.scenes.scene.open_scene", out)
    code, _, said = command("trace", "describe", "adlro")
    assert (code, "not enough memory" in said) == (2, True)
