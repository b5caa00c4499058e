"""Finds the tables of the trace in a folder, whatever form they were downloaded in."""

import hashlib
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from trimtab.errors import TraceError
from trimtab.traces.alibaba2018.tables import DOWNLOAD, TABLES

PACKED = ("", ".gz", ".xz", ".bz2")
TARS = (".tar.gz", ".tgz", ".tar", ".tar.xz")
WHOLE = "alibaba_clusterdata_v2018"
WHOLE_SHA256 = "ccb3dc93786507dd42eed29ef62c82220d07f877f269e5fad39f31bf75134ed1"
HOUR = ("spar_hour_tasks", "spar_hour_instances")  # every job of one hour, from the package spar


Progress = Callable[[str, int, int], None]  # (step, done, total; 0 = not known yet)


class TableFiles(NamedTuple):
    """Where a table is: files that are read one after the other."""

    paths: tuple[Path, ...]
    member: str = ""  # of a tar archive

    def as_text(self) -> str:
        first = self.paths[0]
        name = first.parent.name + "/" if len(self.paths) > 1 else first.name
        return f"{name}:{self.member}" if self.member and self.member not in name else name


class Folder(NamedTuple):
    """What a folder holds of the trace. `hour` replaces the two batch tables."""

    tables: dict[str, TableFiles]
    hour: tuple[Path, Path] | None
    aside: tuple[str, ...]  # files that could have been a table but were not chosen


def find_tables(folder: str | Path, named: dict[str, str] | None = None) -> Folder:
    """The tables in a folder; `named` (table: file) decides where several files would fit."""
    folder = Path(folder)
    if not folder.is_dir():
        raise TraceError(f"{folder}: is not a folder; give the one that holds {DOWNLOAD}")
    for table in named or ():
        if table not in TABLES:
            raise TraceError(f"--table {table}=...: no such table; known: {', '.join(TABLES)}")
    tables, aside = {}, []
    for table in TABLES:
        fitting = _fitting(folder, table)
        if table in (named or {}):
            fitting = [_given(folder, table, (named or {})[table])]
        if fitting:
            tables[table] = fitting[0]
            aside += [other.as_text() for other in fitting[1:]]
    hour = _hour(folder, tables, named or {})
    if hour is not None:
        aside += [tables.pop(name).as_text() for name in ("batch_task",) if name in tables]
    elif "batch_task" not in tables:
        held = ", ".join(tables) or "none of the six tables"
        raise TraceError(
            f"{folder}: batch_task is missing (there: {held}); download batch_task.tar.gz (125 MB) "
            f"from {DOWNLOAD}, or name a file with --table batch_task=FILE"
        )
    return Folder(tables, hour, tuple(dict.fromkeys(aside)))


def _fitting(folder: Path, table: str) -> list[TableFiles]:
    """Candidates, the best first: exact names before longer ones, then by size, largest first."""
    found = []
    parts = folder / table
    if parts.is_dir():
        for suffix in (".parquet", *(f".csv{packed}" for packed in PACKED)):
            files = tuple(sorted(parts.glob(f"*{suffix}")))
            if files:
                found.append(TableFiles(files))
    exact = [f"{table}.parquet", *(f"{table}.csv{packed}" for packed in PACKED)]
    found += [TableFiles((folder / name,)) for name in exact if (folder / name).is_file()]
    for stem, member in ((table, f"{table}.csv"), (WHOLE, f"{table}.csv")):
        archives = [folder / f"{stem}{suffix}" for suffix in TARS]
        found += [TableFiles((path,), member) for path in archives if path.is_file()]
    taken = {path for one in found for path in one.paths}
    longer = [
        path
        for path in folder.glob(f"{table}*")
        if path.is_file() and path not in taken and _is_table(path)
    ]
    longer.sort(key=lambda path: (-path.stat().st_size, path.name))
    return found + [TableFiles((path,)) for path in longer]


def _is_table(path: Path) -> bool:
    bare = path.with_suffix("") if path.suffix in PACKED[1:] else path
    return bare.suffix in (".csv", ".parquet") and ".header" not in path.name


def _given(folder: Path, table: str, name: str) -> TableFiles:
    path = folder / name if not Path(name).is_absolute() else Path(name)
    if path.is_dir():
        files = tuple(sorted(p for p in path.iterdir() if _is_table(p)))
        if files:
            return TableFiles(files)
    if not path.is_file():
        raise TraceError(f"--table {table}={name}: {path} is not there; name a file of {folder}")
    return TableFiles((path,), f"{table}.csv" if tarfile.is_tarfile(path) else "")


def _hour(
    folder: Path, tables: dict[str, TableFiles], named: dict[str, str]
) -> tuple[Path, Path] | None:
    """The pair of files of the one-hour extract, where nothing better is there."""
    if "batch_instance" in tables or "batch_task" in named:
        return None
    tasks = [p for p in sorted(folder.glob(f"{HOUR[0]}*")) if _is_table(p)]
    instances = [p for p in sorted(folder.glob(f"{HOUR[1]}*.parquet")) if _is_table(p)]
    return (tasks[0], instances[0]) if tasks and instances else None


def verify(tables: dict[str, TableFiles], progress: Progress) -> int:
    """Compare published archives with their published sha256; returns how many there were."""
    known = {f"{table}.tar.gz": one.sha256 for table, one in TABLES.items()}
    known[f"{WHOLE}.tar.gz"] = WHOLE_SHA256
    paths = sorted({path for found in tables.values() for path in found.paths})
    paths = [path for path in paths if path.name in known]
    for n, path in enumerate(paths):
        progress(f"verifying {path.name}", n, len(paths))
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != known[path.name]:
            raise TraceError(
                f"{path}: its sha256 is {found}, published is {known[path.name]}; download it again"
            )
    return len(paths)
