"""The one door to the compiler: numba as we use it, and a cache that knows what a function calls.

numba keeps machine code until the file of the function changes, and looks no further. What a
function calls stands in other files, so ours is kept until any source changes that its file
imports, directly or through others.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from numba import njit, types

from trimtab.sources import stamp


def compiled(function: Any = None, **options: Any) -> Any:
    """numba's njit: cached until a source it may call changes, without the GIL, no exceptions."""
    if function is None:
        return lambda f: compiled(f, **options)
    made = njit(cache=True, error_model="numpy", nogil=True, **options)(function)
    kept = made._cache._cache_file
    # in place of numba's version: the first word of a kept file, read before the rest is unpickled,
    # which would fail where it names a class that has moved since
    kept._version = f"{kept._version} {stamp(Path(function.__code__.co_filename))}"
    template = made.get_call_template
    # f(w, 0) and f(w, 1) are one function: without this each literal would compile a copy of its
    # own
    made.get_call_template = lambda args, kws: template(
        [types.unliteral(a) for a in args], {k: types.unliteral(a) for k, a in kws.items()}
    )
    return made


def inner(function: Any) -> Any:
    """The same where only compiled code calls: no wrapper for Python, a quarter less to compile."""
    return compiled(function, no_cpython_wrapper=True, no_cfunc_wrapper=True)
