"""Policies of one's own, out of a Python file or a module that can be imported.

made_by("./mine.py:MyPolicy")       a class, or a function that makes one; loaded by its path
made_by("package.module:MyPolicy")
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from inspect import Parameter, isclass, isfunction, signature
from pathlib import Path
from types import ModuleType
from typing import Any

from trimtab.core import Policy
from trimtab.errors import PolicyError, TrimtabError, raised_at

IN_FILE = re.compile(r"(?P<place>.+\.py)(?::(?P<name>\w*))?")
IN_MODULE = re.compile(r"(?P<place>[^\W\d][\w.]*):(?P<name>[^\W\d]\w*)")
NEEDED = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


def file_of(text: str) -> Path | None:
    """The file in FILE.py:NAME."""
    found = IN_FILE.fullmatch(text)
    return Path(found["place"]) if found else None


def is_code(text: str) -> bool:
    """Whether the text names a Python file, or something in a module that is there to import."""
    found = IN_MODULE.fullmatch(text)
    return file_of(text) is not None or (found is not None and _is_there(found["place"]))


def made_by(text: str) -> Callable[..., Policy]:
    """What makes the policy, to be called with `seed=`; PolicyError says what is wrong with it."""
    found = IN_FILE.fullmatch(text)
    if found:
        module = loaded(Path(found["place"]))
    else:
        found = IN_MODULE.fullmatch(text)
        if found is None:
            raise PolicyError(f"{text}: give FILE.py:NAME or MODULE:NAME")
        module = _imported(found["place"])
    place, name = found["place"], found["name"]
    given = getattr(module, name, None) if name else None
    if given is None:
        wrong = f"holds no {name}" if name else "which policy of it?"
        raise PolicyError(f"{place}: {wrong}; {_offers(place, module)}")
    file = str(module.__file__)
    _check_callable(f"{place}:{name}", given, file)

    def make(seed: int) -> Policy:
        return _made(f"{place}:{name}", given, seed, file)

    return make


def loaded(path: Path) -> ModuleType:
    """The module in a file, run once for each state of the file."""
    if not path.is_file():
        raise PolicyError(f"{path}: no such file; give FILE.py:NAME of one that is there")
    return _run(path, path.resolve(), path.stat().st_mtime_ns)


@cache
def _run(path: Path, whole: Path, changed_ns: int) -> ModuleType:
    # a private name: a file called json.py must not become the module of that name
    name = f"_trimtab_policy_{sha256(f'{whole}:{changed_ns}'.encode()).hexdigest()[:16]}"
    spec = spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None  # the suffix is .py
    module = module_from_spec(spec)
    if str(whole.parent) not in sys.path:
        sys.path.append(str(whole.parent))  # last, so that files beside it hide nothing
    sys.modules[name] = module  # dataclasses and pickle look a class's module up
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # nothing beside a user's file
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as problem:
        del sys.modules[name]
        raise _failed(str(path), problem, str(path)) from problem
    finally:
        sys.dont_write_bytecode = writes
    return module


def _imported(name: str) -> ModuleType:
    try:
        return import_module(name)
    except (Exception, SystemExit) as problem:
        spec = _spec(name)
        raise _failed(name, problem, str(spec.origin) if spec else name) from problem


def _is_there(name: str) -> bool:
    return _spec(name) is not None


def _spec(name: str) -> Any:
    """Where a module would come from, or None; a package around it that fails counts as there."""
    try:
        return find_spec(name)
    except ModuleNotFoundError:
        return None
    except Exception:
        return find_spec(name.partition(".")[0])


def _offers(place: str, module: ModuleType) -> str:
    """The policies that a module holds, as names to give."""
    held = [
        f"{place}:{name}"
        for name, one in vars(module).items()
        if isclass(one) and one.__module__ == module.__name__ and hasattr(one, "decide")
    ]
    if held:
        return f"give {' or '.join(held)}"
    return f"write a class with decide(snapshot) in it, and give {place}:ITS_NAME"


def _check_callable(text: str, given: Any, file: str) -> None:
    """Raise for what cannot make a policy: nothing to call, or more wanted than a seed."""
    if isclass(given) and not hasattr(given, "decide"):
        raise PolicyError(f"{text}: the class has no decide(snapshot), which a policy is asked by")
    if not callable(given):
        raise PolicyError(
            f"{text} is {type(given).__name__}; give a class with decide(snapshot), or a function "
            "that makes a policy"
        )
    wanted = [
        one.name
        for one in _parameters(given).values()
        if one.default is Parameter.empty and one.kind in NEEDED and one.name != "seed"
    ]
    if wanted:
        line = f" (line {given.__code__.co_firstlineno})" if isfunction(given) else ""
        raise PolicyError(
            f"{text}{line} wants {', '.join(wanted)}; it is given a seed at most, so give the rest "
            "defaults"
        )


def _parameters(given: Any) -> dict[str, Parameter]:
    try:
        return dict(signature(given).parameters)
    except (TypeError, ValueError):  # of a class written in C, which takes what it takes
        return {}


def _made(text: str, given: Any, seed: int, file: str) -> Policy:
    takes = _parameters(given)
    every = any(one.kind == Parameter.VAR_KEYWORD for one in takes.values())
    try:
        policy = given(seed=seed) if "seed" in takes or every else given()
    except TrimtabError:
        raise
    except Exception as problem:
        raise _failed(text, problem, file) from problem
    if not callable(getattr(policy, "decide", None)):
        raise PolicyError(
            f"{text} made {type(policy).__name__}, which has no decide(snapshot); return a policy"
        )
    made: Policy = policy
    return made


def _failed(text: str, problem: BaseException, file: str) -> PolicyError:
    """One sentence: where in the file, what, and of which kind."""
    place = raised_at(problem, file) or text
    said = problem.msg if isinstance(problem, SyntaxError) else str(problem)
    of = "" if place.startswith(text.partition(":")[0]) else f" ({text})"
    return PolicyError(f"{place}: {type(problem).__name__}: {' '.join(said.split())}{of}")
