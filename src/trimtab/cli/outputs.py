"""What commands write, and whether they may: asked before anything runs, not when it is over.

An output is marked by its kind (`PAGE`, `JSON`, `PARQUET`, ..). `check` refuses one that cannot be
written, that would fall on what is read, on another output or on something of another kind.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from trimtab.errors import TrimtabError
from trimtab.files import part_of, refusal

LEAST_B = 1_000_000  # free on the disk: less than any answer may need
HEAD_B = 512  # of a file, which show what it is


class Kind(NamedTuple):
    """A kind of file or folder that commands write."""

    what: str
    suffixes: tuple[str, ...] = ()  # () = a folder
    begins: tuple[bytes, ...] = ()  # lower case; () = any file of that suffix
    stream: bool = False  # `-` is standard output


PAGE = Kind("an HTML page", (".html", ".htm"), (b"<!doctype html", b"<html"))
JSON = Kind("JSON", (".json", ".jsonl"), (b"{", b"["), stream=True)
PARQUET = Kind("a Parquet file", (".parquet",), (b"par1",))
NPZ = Kind("a .npz file", (".npz",), (b"pk",))
YAML = Kind("a cluster file of ours", (".yaml", ".yml"), (b"# written by",))
STATE = Kind("what is learned", (".json",), (b"{",))
FOLDER = Kind("a folder")


class Place(NamedTuple):
    """A path that a command was given, and by what option."""

    option: str  # "" = by its place
    path: Path
    kind: Kind | None = None  # None: it is read

    def __str__(self) -> str:
        return f"{self.option} {self.path}".strip()


def check(outputs: Sequence[Place], inputs: Sequence[Place]) -> None:
    """Raise for the first output that cannot be written or would destroy something."""
    for place in outputs:
        try:
            for read in inputs:
                _check_apart(place, read)
            _check_place(place)
        except OSError as problem:
            raise TrimtabError(f"{place.option} {refusal(problem)}".strip()) from None
    real: dict[str, Place] = {}
    for place in outputs:
        other = real.setdefault(os.path.realpath(place.path), place)
        if other is not place:
            raise TrimtabError(
                f"{place}: {other.option or 'another output'} is written there too; name another"
            )


def check_room(path: Path, needed_b: float) -> None:
    """Raise where the disk that holds `path` has not so much room."""
    free_b = shutil.disk_usage(_standing(path)).free
    if free_b < needed_b:
        raise TrimtabError(
            f"{path}: up to {needed_b / 1e6:,.0f} MB are to be written, and {free_b / 1e6:,.0f} MB "
            "are free there; make room or name a place on another disk"
        )


def _check_place(place: Place) -> None:
    path, kind = place.path, place.kind or FOLDER
    if not str(path).strip() or str(path) == ".":
        if kind.suffixes:
            raise TrimtabError(f"{place.option or 'the output'} names no file; give one")
    if "\0" in str(path):
        raise TrimtabError(f"{place.option} has a byte 0 in its name; give another name")
    mode = _mode(path)
    if not kind.suffixes:
        if mode is not None and not stat.S_ISDIR(mode):
            raise TrimtabError(f"{place}: is a file; name a folder")
        _check_writable(_standing(path), place)
        return
    if mode is not None and stat.S_ISDIR(mode):
        raise TrimtabError(f"{place}: is a folder; name a file in it")
    if mode is not None and not stat.S_ISREG(mode):
        remedy = "`-` is standard output" if kind.stream else "name another"
        raise TrimtabError(f"{place}: is no plain file; {remedy}")
    _check_suffix(place, kind)
    if mode is not None:
        _check_overwritten(place, kind)
    if not path.parent.is_dir():
        there = _standing(path)
        why = f"{there} is a file" if there.is_file() else "there is no such folder"
        raise TrimtabError(f"{place}: {why}; make the folder or name another")
    _check_writable(path.parent, place)


def _mode(path: Path) -> int | None:
    """What stands at the end of a path and its links, None for nothing."""
    try:
        return os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None


def _standing(path: Path) -> Path:
    """The path itself, or the nearest above it that is there."""
    return next(one for one in (path, *path.absolute().parents) if _mode(one) is not None)


def _check_suffix(place: Place, kind: Kind) -> None:
    suffix = place.path.suffix.lower()
    if suffix in kind.suffixes or (not suffix and kind.stream):
        return
    name = place.path.with_suffix(kind.suffixes[0]).name
    said = f"{suffix!r} is another kind of file" if suffix else "the name has no ending"
    raise TrimtabError(f"{place}: {kind.what} is written there, and {said}; name it {name}")


def _check_overwritten(place: Place, kind: Kind) -> None:
    """What is replaced must be what is written: the same command again, not a user's file."""
    if not os.access(place.path, os.W_OK):
        raise TrimtabError(f"{place}: is protected from writing; name another")
    head = b""
    with suppress(PermissionError), place.path.open("rb") as file:
        head = file.read(HEAD_B).removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if head and kind.begins and not head.startswith(kind.begins):
        raise TrimtabError(f"{place}: the file that is there is not {kind.what}; name another")


def _check_writable(folder: Path, place: Place) -> None:
    if not folder.is_dir():
        raise TrimtabError(f"{place}: {folder} is a file; name another place")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise TrimtabError(f"{place}: {folder} cannot be written to; name another place")
    trial = part_of(folder / (place.path.name or "trial"))  # "." has no name
    trial.touch(exist_ok=False)  # what only shows when one tries: a name too long, a full disk
    trial.unlink()
    check_room(folder, LEAST_B)


def _check_apart(place: Place, read: Place) -> None:
    """Refuse an output that is an input, by whatever name or link, or lies among its files."""
    if _mode(place.path) is None:
        return
    if os.path.samefile(place.path, read.path):
        source = f"{read.option} reads" if read.option else "the command reads"
        raise TrimtabError(f"{place}: {source} it, and it would be lost; name another")
    if not place.path.is_dir() and read.path.is_dir():
        if Path(os.path.realpath(read.path)) in Path(os.path.realpath(place.path)).parents:
            raise TrimtabError(
                f"{place}: is one of the files in {read.path}, which is read; name another"
            )
