"""The one door to the compiler: numba as we use it, and a cache that knows what a function calls.

numba keeps machine code until the file of the function changes, and looks no further. What a
function calls stands in other files, so ours is kept until any source changes that its file
imports, directly or through others.
"""

from __future__ import annotations

import re
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from numba import njit, types

ROOT = Path(__file__).parent
IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+(trimtab[\w.]*)[ \t]+import[ \t]+(\([^)]*\)|[^\n]*)"
    r"|import[ \t]+(trimtab[\w., \t]*))",
    re.MULTILINE,
)


@cache
def stamp(file: Path, root: Path = ROOT) -> str:
    """A hash of the file and of every source in the package that it imports, however far below."""
    reached, ahead = {file}, [file]
    while ahead:
        for source in imported(ahead.pop(), root):
            if source not in reached:
                reached.add(source)
                ahead.append(source)
    return sha256(b"".join(_content(source)[1] for source in sorted(reached))).hexdigest()


@cache
def imported(file: Path, root: Path = ROOT) -> list[Path]:
    """The sources of the package that a file imports, at any depth of its code."""
    found = []
    for package, names, plain in IMPORT.findall(_content(file)[0]):
        for name in re.findall(r"[\w.]+", plain):
            found.append(_source(name, root))
        within = [_source(f"{package}.{name}", root) for name in re.findall(r"\w+", names)]
        # `from trimtab.rules import fit` means a module, `from trimtab.core import JOB` does not
        found += within + ([_source(package, root)] if package and None in within else [])
    return sorted({source for source in found if source is not None})


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


def compiled(function: Any = None, **options: Any) -> Any:
    """numba's njit: cached until a source it may call changes, without the GIL, no exceptions."""
    if function is None:
        return lambda f: compiled(f, **options)
    made = njit(cache=True, error_model="numpy", nogil=True, **options)(function)
    made._cache._cache_file._source_stamp = stamp(Path(function.__code__.co_filename))
    template = made.get_call_template
    # f(w, 0) and f(w, 1) are one function: without this each literal would compile a copy of its
    # own
    made.get_call_template = lambda args, kws: template(
        [types.unliteral(a) for a in args], {k: types.unliteral(a) for k, a in kws.items()}
    )
    return made


def inner(function: Any) -> Any:
    """The same for functions that only compiled code calls: no wrapper for Python, a quarter less
    to compile.
    """
    return compiled(function, no_cpython_wrapper=True, no_cfunc_wrapper=True)
