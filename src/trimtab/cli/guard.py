"""What holds for every command before it runs: outputs that may be written, numbers in range.

An option is an output where its annotation holds a `Kind` of `cli.outputs`, as `JsonOption` and
`ReportOption` do. Whatever else names a file that is there counts as read.
"""

from __future__ import annotations

import inspect
import math
import re
import stat
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import typer
from typer.models import OptionInfo

from trimtab.cli.outputs import FOLDER, Kind, Place, check
from trimtab.errors import TrimtabError

# name of a parameter: the least and the most that any command takes
LIMITS: dict[str, tuple[float, float]] = {
    "seed": (0, 2**32 - 1),
    "first_seed": (0, 2**32 - 1),
    "seeds": (1, 10_000),
    "start": (0, 10**12),
    "jobs": (1, 10**9),
    "machines": (1, 10**6),
    "days": (0, 10_000),
    "steps": (0, 10**12),
    "workers": (1, 4096),
    "threads": (1, 4096),
    "servers": (0, 4096),
    "repeats": (1, 10_000),
    "rounds": (0, 10**9),
    "top": (0, 100_000),
    "history": (1, 100_000),
    "http_port": (-1, 65_535),
    "grpc_port": (-1, 65_535),
    "fleet_port": (-1, 65_535),
}
MOST = 10**15  # of any other number: what is larger was mistyped
FOLDERS_READ = ("source", "trace", "cluster")  # elsewhere a word may name a folder by chance
PARTS = re.compile("[=:,]")  # dqn:FILE, TABLE=FILE, 1,2


def guard(app: typer.Typer) -> None:
    """Have every command of the tree look at what it was given before it runs."""
    for command in app.registered_commands:
        if command.callback is not None:
            command.callback = guarded(command.callback)
    if app.registered_callback is not None and app.registered_callback.callback is not None:
        app.registered_callback.callback = guarded(app.registered_callback.callback)
    for group in app.registered_groups:
        if group.typer_instance is not None:
            guard(group.typer_instance)


def guarded(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command behind a look at its arguments."""
    if hasattr(command, "__guarded__"):
        return command
    marks = {name: _mark(name, hint) for name, hint in _hints(command).items()}
    defaults = {name: one.default for name, one in inspect.signature(command).parameters.items()}

    @wraps(command)
    def called(**given: Any) -> Any:
        outputs, inputs = [], []
        for name, value in given.items():
            if name not in marks:
                continue
            option, kind = marks[name]
            for one in value if isinstance(value, list | tuple) else (value,):
                if one != defaults[name]:
                    _check_value(name, option, one)
                if isinstance(one, str | Path) and kind is not None:
                    if not (kind.stream and str(one) == "-"):
                        outputs.append(Place(option, _named(one, option, kind), kind))
                elif isinstance(one, str | Path):
                    inputs += [Place(option, path) for path in _files(name, str(one))]
        check(outputs, inputs)
        return command(**given)

    called.__guarded__ = True  # type: ignore[attr-defined]
    return called


def outputs_of(command: Callable[..., Any]) -> dict[str, Kind]:
    """The options and arguments of a command that name what it writes."""
    marks = ((name, _mark(name, hint)[1]) for name, hint in _hints(command).items())
    return {name: kind for name, kind in marks if kind is not None}


def _hints(command: Callable[..., Any]) -> dict[str, Any]:
    hints = get_type_hints(command, include_extras=True)
    return {name: hints.get(name) for name in inspect.signature(command).parameters}


def _mark(name: str, hint: Any) -> tuple[str, Kind | None]:
    """What a parameter is called on the command line, and what is written there."""
    option, kind = "", None
    for part in get_args(hint) if get_origin(hint) is not None else ():
        if isinstance(part, Kind):
            kind = part
        elif isinstance(part, OptionInfo):
            # Typer takes the first name of an annotated option for its default
            names = [part.default, *(part.param_decls or ())]
            named = [one for one in names if isinstance(one, str) and one.startswith("-")]
            option = (named or [f"--{name.replace('_', '-')}"])[0].split("/")[0]
    return option, kind


def _named(given: str | Path, option: str, kind: Kind) -> Path:
    if not str(given).strip() or (str(given) == "." and kind is not FOLDER):
        raise TrimtabError(f"{option or 'the output'} names no file; give one")
    return Path(given)


def _files(name: str, text: str) -> Iterator[Path]:
    """The files and folders that an argument names, whole or in part."""
    for part in dict.fromkeys((text, text.partition(":")[2], *PARTS.split(text))):
        path = Path(part)
        try:
            mode = path.stat().st_mode if part else 0
        except (OSError, ValueError):  # nothing there, or no name that a file could have
            continue
        if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
            raise TrimtabError(
                f"{path}: is a pipe, which can be read only once; write it to a file first"
            )
        if stat.S_ISREG(mode) or (stat.S_ISDIR(mode) and name in FOLDERS_READ):
            yield path


def _check_value(name: str, option: str, value: Any) -> None:
    shown = option or name
    if isinstance(value, str) and not value.strip():
        raise TrimtabError(f"{shown} is given and empty; leave it out or give a value")
    if not isinstance(value, int | float) or isinstance(value, bool):
        return
    if isinstance(value, float) and not math.isfinite(value):
        raise TrimtabError(f"{shown} {value} is not a finite number; give one")
    least, most = LIMITS.get(name, (-MOST, MOST))
    if value < least:
        raise TrimtabError(f"{shown} {value} is below {least:,}; give {least:,} or more")
    if value > most:
        raise TrimtabError(f"{shown} {value:,} is more than {most:,}; give less")
