"""What every command shares: where it writes, how it shows progress, and options by one name."""

from __future__ import annotations

import json
import shlex
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from trimtab.cli.outputs import JSON, PAGE
from trimtab.errors import TrimtabError
from trimtab.files import whole

# no emoji: it would print the `:x:` of a name as a cross
out, err = Console(emoji=False), Console(stderr=True, emoji=False)
JsonOption = Annotated[
    str | None, typer.Option("--json", help="Write JSON to this file; `-` = standard output."), JSON
]
ReportOption = Annotated[
    Path | None, typer.Option(help="Write a self-contained HTML report."), PAGE
]
LenientOption = Annotated[
    bool, typer.Option("--lenient", help="Drop bad rows and say how many and why.")
]

StrictOption = Annotated[
    bool,
    typer.Option("--strict", help="Refuse a trace with a bad row instead of dropping the row."),
]
NodesOption = Annotated[
    str | None, typer.Option("--nodes", help="whole or shared: what jobs of an SWF log take.")
]
MachineOption = Annotated[
    str | None,
    typer.Option(
        "--machine",
        help="Of an SWF log, in place of its header's: nodes=151,procs=2004,mem-gb=48.",
    ),
]


def escaped(text: str) -> str:
    return text.replace("[", "\\[")


def say(text: str) -> None:
    """One line on standard error, whatever brackets the names in it have."""
    err.print(text, highlight=False, soft_wrap=True, markup=False)


def command_line() -> str:
    return shlex.join(["trimtab", *sys.argv[1:]])


def write_json(where: str, content: Any) -> None:
    """To a file, whole or not at all, or to standard output."""
    text = json.dumps(content, indent=1, allow_nan=False)
    if where == "-":
        print(text)
        return
    with whole(where) as place:
        place.write_text(text + "\n")


def progress_bar() -> Progress:
    """On standard error; silent where that is not a terminal."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    return Progress(*columns, console=err, transient=True, disable=not err.is_terminal)


@contextmanager
def bar(what: str, total: int) -> Iterator[Any]:
    """A progress bar of known length: call it with (name, steps done)."""
    with progress_bar() as progress:
        task = progress.add_task(
            f"{what} (the first run on a machine compiles the engine)", total=total
        )
        yield lambda name, done: progress.update(task, advance=done, description=f"{what} {name}")


def went_through(names: Iterable[str], total: int) -> bool:
    """Show what is being measured; False after Ctrl-C."""
    try:
        with bar("measuring", total) as step:
            for number, name in enumerate(names):
                step(name, min(number, 1))
    except KeyboardInterrupt:
        return False
    return True


def dropped_rows(meta: dict[str, Any]) -> str:
    """How many rows a reader dropped and why, or nothing."""
    return "".join(f"; dropped {n:,}: {why}" for why, n in meta.get("dropped", {}).items() if n)


def named(option: str, text: str, example: str) -> tuple[str, str]:
    """The two sides of NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise TrimtabError(
            f"{option} {text!r} is not NAME=VALUE; write for example {option} {example}"
        )
    return name, value


def parsed(text: str) -> tuple[str, Any]:
    """NAME=VALUE of --set with the value as JSON where it is, else as text."""
    name, value = named("--set", text, "load=0.9")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


@contextmanager
def steps_bar() -> Iterator[Any]:
    """A progress bar to call with (step, done, total); 0 = the total is not known."""
    with progress_bar() as progress:
        task = progress.add_task("starting", total=None)
        yield lambda step, done, total: progress.update(
            task, description=step, completed=done, total=total or None
        )


@contextmanager
def resumable() -> Iterator[None]:
    """On Ctrl-C say that the command can be given again, and exit with 130.

    An engine in the middle of a query passes the key on as an error of its own, so what was
    pressed is remembered here and not read from the exception.
    """
    pressed: list[int] = []

    def press(number: int, _: Any) -> None:
        pressed.append(number)
        raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    heard = before is signal.default_int_handler  # else it is ignored, as under nohup
    try:
        if heard:
            signal.signal(signal.SIGINT, press)
        yield
    except BaseException as problem:
        if not pressed and not isinstance(problem, KeyboardInterrupt):
            raise
        say("stopped; give the same command again to go on")
        raise typer.Exit(130) from None
    finally:
        if heard:
            signal.signal(signal.SIGINT, before)
