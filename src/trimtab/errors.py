"""Mistakes are exceptions that name the file, the field, the value and the remedy."""

from collections.abc import Iterable
from difflib import get_close_matches

NEAR = 0.6  # of two names: what is less alike was not meant


class TrimtabError(Exception):
    """A mistake in what the user gave us. The command line prints it without a traceback."""


class TraceError(TrimtabError):
    """A trace, cluster or order file holds something that cannot be simulated."""


class PolicyError(TrimtabError):
    """A policy raised, or left jobs waiting while nothing runs and nothing will happen."""


class UnknownName(TrimtabError):
    """A name that is not registered; the message suggests the nearest one."""


class ServeError(TrimtabError):
    """A network, weight file or request that cannot be served."""


class PlanError(TrimtabError):
    """A model, a GPU pool or a plan of parallelism that cannot be planned for or launched."""


def raised_at(problem: BaseException, file: str) -> str:
    """`FILE:LINE` of the innermost line of a file that an exception came through; "" for none."""
    if isinstance(problem, SyntaxError) and problem.filename == file:
        return f"{file}:{problem.lineno}"
    place, trace = "", problem.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            place = f"{file}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place


def suggestion(name: str, known: Iterable[str]) -> str:
    """`did you mean 'fcfs'? ` where a known name is near; nothing where none is."""
    names = {one.lower(): one for one in known}
    asked = name.lower()
    near = get_close_matches(asked, names, n=1, cutoff=NEAR)
    # wfp3-published for wfp3, and the other way round
    near += [
        one
        for one in names
        if min(len(one), len(asked)) > 2 and (one.startswith(asked) or asked.startswith(one))
    ]
    return f"did you mean {names[near[0]]!r}? " if near else ""
