"""The one door to the compiler: numba as we use it, and a cache that knows what a function calls.

numba keeps machine code until the file of the function changes, and looks no further. What a
function calls stands in other files, so ours is kept until any source changes that its file
imports, directly or through others.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from numba import njit, types

from trimtab.sources import stamp

LOOK_S = 0.1  # between two looks at Ctrl-C and at how far a long run is


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


def interruptible(
    function: Any,
    *arguments: Any,
    halt: Callable[[], object],
    look: Callable[[], object] | None = None,
) -> Any:
    """Call compiled code so that Ctrl-C ends it: Python hears of no signal while such code runs.

    The code runs in a thread of its own. `halt` sets what its loops look at to break off, and they
    must within a second; what it has written by then is worthless. `look` is called meanwhile, to
    show how far it is. No thread is left when this returns or raises.
    """
    if threading.current_thread() is not threading.main_thread():
        return function(*arguments)  # signals come to the main thread alone
    if hasattr(function, "compile"):  # not so its `.py_func`
        # here, where Ctrl-C is heard between the passes of the compiler
        function.compile(tuple(function.typeof_pyval(one) for one in arguments))
    answer: list[Any] = []
    failure: list[BaseException] = []
    # not Thread.join: interrupted, that takes a thread for ended which is not (Python before 3.13)
    over = threading.Event()

    def work() -> None:
        try:
            answer.append(function(*arguments))
        except BaseException as problem:
            failure.append(problem)
        over.set()

    thread = threading.Thread(target=work, name=function.__name__, daemon=True)
    try:
        thread.start()
        while not over.wait(LOOK_S):
            if look is not None:
                look()
    except BaseException:
        halt()
        ending = True
        while ending:  # pressed again: it is ending already
            with suppress(KeyboardInterrupt):
                ending = not over.wait(LOOK_S) and thread.is_alive()
        raise
    thread.join()
    if failure:
        raise failure[0]
    return answer[0]


def inner(function: Any) -> Any:
    """The same where only compiled code calls: no wrapper for Python, a quarter less to compile."""
    return compiled(function, no_cpython_wrapper=True, no_cfunc_wrapper=True)
