"""Files of arrays with facts: .npz, the facts as JSON inside. Weights, profiles and routers."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from trimtab.arrays import Array
from trimtab.errors import ServeError
from trimtab.files import whole
from trimtab.files.formats import FACTS, FORMAT, family, kind_of

BROKEN = (
    OSError,
    EOFError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    BadZipFile,
    zlib.error,
)


def write_packed(
    path: str | Path, format: str, arrays: Mapping[str, Array], facts: Mapping[str, Any]
) -> None:
    """Write the file whole or not at all; `facts` must be JSON."""
    held: dict[str, Any] = {**arrays, FACTS: np.array(json.dumps({FORMAT: format, **facts}))}
    with whole(path) as place, place.open("wb") as file:
        np.savez_compressed(file, **held)


@contextmanager
def refusing(path: str | Path, what: str, remedy: str) -> Iterator[None]:
    """Turn what a missing, damaged or foreign file raises while it is read into one sentence."""
    try:
        yield
    except FileNotFoundError:
        raise ServeError(f"{path}: no such file; {remedy}") from None
    except BROKEN as problem:
        kind = kind_of(path)
        fact = f", but {kind}" if kind else f" ({type(problem).__name__})"
        raise ServeError(f"{path}: not {what}{fact}; {remedy}") from problem
    except ServeError as problem:
        raise ServeError(f"{path}: {problem}") from None


def read_packed(path: str | Path, format: str) -> tuple[dict[str, Array], dict[str, Any]]:
    """The arrays and facts of a file of this format; to be called within `refusing`."""
    with np.load(path, allow_pickle=False) as held:
        arrays = {name: held[name] for name in held.files}
    facts: dict[str, Any] = json.loads(str(arrays.pop(FACTS)))
    held_format = str(facts.pop(FORMAT))
    if family(held_format) != family(format):
        raise KeyError(FORMAT)
    if held_format != format:
        raise ServeError(f"its format is {held_format!r} and {format!r} is read; make it again")
    return arrays, facts
