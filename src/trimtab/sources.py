"""Which sources of the package a source may reach: what kept results follow from."""

from __future__ import annotations

import re
from functools import cache
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).parent
IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+(trimtab[\w.]*)[ \t]+import[ \t]+(\([^)]*\)|[^\n]*)"
    r"|import[ \t]+(trimtab[\w., \t]*))",
    re.MULTILINE,
)
NAMED = re.compile(r"""["'](trimtab(?:\.\w+)+)[:"']""")  # "trimtab.sim.backend:SimBackend"


@cache
def stamp(file: Path, root: Path = ROOT) -> str:
    """A hash of the file and of every source of the package that it imports, however far below."""
    parts = [_content(source)[1] for source in reached(file, root)]
    return sha256(b"".join(parts)).hexdigest()


def reached(file: Path, root: Path = ROOT, *, named: bool = False) -> list[Path]:
    """The file and every source it imports, directly or through others; `named`: also those that
    a string names, to be imported when they are wanted.
    """
    found, ahead = {file}, [file]
    while ahead:
        here = ahead.pop()
        for source in (*imported(here, root), *(mentioned(here, root) if named else ())):
            if source not in found:
                found.add(source)
                ahead.append(source)
    return sorted(found)


@cache
def imported(file: Path, root: Path = ROOT) -> list[Path]:
    """The sources of the package that a file imports, at any depth of its code."""
    found = []
    for package, names, plain in IMPORT.findall(_content(file)[0]):
        found += [_source(name, root) for name in re.findall(r"[\w.]+", plain)]
        within = [_source(f"{package}.{name}", root) for name in re.findall(r"\w+", names)]
        # `from trimtab.rules import fit` means a module, `from trimtab.core import JOB` does not
        found += within + ([_source(package, root)] if package and None in within else [])
    return [source for source in found if source is not None]


@cache
def mentioned(file: Path, root: Path = ROOT) -> list[Path]:
    """The sources of the package whose names stand in strings of a file."""
    found = (_source(name, root) for name in NAMED.findall(_content(file)[0]))
    return [source for source in found if source is not None]


def _source(module: str, root: Path) -> Path | None:
    """The file of a module of the package, if there is such a module."""
    base = root.joinpath(*module.split(".")[1:])
    plain = base.with_name(f"{base.name}.py")
    return plain if plain.is_file() else next(base.glob("__init__.py"), None)


@cache
def _content(file: Path) -> tuple[str, bytes]:
    """What a file says, and its hash."""
    data = file.read_bytes()
    return data.decode("utf-8"), sha256(data).digest()
