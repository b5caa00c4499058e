"""The reference pages, written from docstrings and from the command line when Sphinx starts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from importlib import import_module
from inspect import isclass
from pathlib import Path
from typing import Any

import typer

HERE = Path(__file__).parent / "reference"
WINGS = {
    "trimtab": "Jobs on nodes",
    "trimtab.serving": "Requests on servers",
    "trimtab.llm": "Plans on GPUs",
}
API = """# API

The names that each wing keeps. Whatever else can be imported may change. `import trimtab` loads
NumPy and nothing heavier; a name of the two other wings loads what it needs when it is first used.
"""
CLI = """# Command line

Every command and every option, as `--help` has them. What a user did wrong is one line on standard
error and exit code 2; Ctrl-C ends with 130. `--json F` is for machines, `-` is standard output.
Without a terminal there is no progress bar.

`trimtab --install-completion` makes your shell (bash, zsh, fish, PowerShell) complete commands and
options with the tabulator key, from the next shell on; `trimtab --show-completion` prints what it
would add, to put it where you keep such things.
"""


def api() -> str:
    """A table of every wing's public names, and then each name with its docstring."""
    parts = [API]
    for wing, title in WINGS.items():
        names = import_module(wing).__all__
        made = {name: getattr(import_module(wing), name) for name in names}
        parts.append(f"## {title}: `{wing}`\n")
        parts.append(eval_rst([f".. py:currentmodule:: {wing}", "", *table(made)]))
        for name, thing in made.items():
            parts.append(f"### {name}\n\n{eval_rst(directive(wing, name, thing))}")
    return "\n".join(parts)


def table(made: dict[str, Any]) -> list[str]:
    return [
        ".. autosummary::",
        "   :nosignatures:",
        "",
        *(f"   {name}" for name in made if callable(made[name])),
    ]


def directive(wing: str, name: str, thing: Any) -> list[str]:
    """What autodoc is told about one public name."""
    if not isclass(thing) and not callable(thing):
        alternatives = getattr(thing, "__args__", ())
        return [", ".join(f":py:class:`{wing}.{each.__name__}`" for each in alternatives)]
    lines = [f".. auto{'class' if isclass(thing) else 'function'}:: {wing}.{name}"]
    if isclass(thing):
        lines.append("   :members:")
        bare = issubclass(thing, Enum) or getattr(thing, "_is_protocol", False)
        lines += ["   :undoc-members:"] if bare else []
    return lines


def eval_rst(lines: list[str]) -> str:
    return "\n".join(["```{eval-rst}", *lines, "```", ""])


def cli() -> str:
    """Every command of the command line: what it does, its arguments and options, examples."""
    from trimtab.cli import app

    parts = [CLI]
    for path, command in commands(typer.main.get_command(app), ("trimtab",)):
        depth = "#" * min(len(path), 3)
        parts += [f"{depth} {' '.join(path)}\n", plain(command.help or ""), ""]
        parts += [parameters(command), (command.epilog or "").strip(), ""]
    return "\n".join(parts)


def commands(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Each command with its words, those of a group after the group; the root has no page part."""
    if len(path) > 1:
        yield path, command
    for name, child in getattr(command, "commands", {}).items():
        if not child.hidden:
            yield from commands(child, (*path, name))


def parameters(command: Any) -> str:
    shown = [each for each in command.params if not getattr(each, "hidden", False)]
    rows = [row(command, each) for each in shown if each.name != "help"]
    if not rows:
        return ""
    return "\n".join(["| option | value | default | |", "|---|---|---|---|", *rows, ""])


def row(command: Any, parameter: Any) -> str:
    """One option as a row: its names, the type of its value, the default, what it does."""
    if parameter.param_type_name == "argument":
        names = f"`{parameter.name.upper()}`"
    else:
        names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
    value = "" if getattr(parameter, "is_flag", False) else value_of(command, parameter)
    default = parameter.default
    empty = default is None or default == "" or callable(default) or default is False
    empty = empty or value == "" or isinstance(default, list | tuple)
    shown = "required" if parameter.required else "" if empty else f"`{default}`"
    return f"| {names} | {value} | {shown} | {cell(getattr(parameter, 'help', '') or '')} |"


def value_of(command: Any, parameter: Any) -> str:
    """The type of an option's value: newer Typer words it for a context, click had a type."""
    if hasattr(parameter, "display_type"):
        return str(parameter.display_type(typer.Context(command))).strip("<>")
    return str(parameter.type.name)


def plain(text: str) -> str:
    """Help as one paragraph a blank line; click marks kept line breaks with a form feed or \\b."""
    return re.sub(r"[\f\b]", "", text).strip()


def cell(text: str) -> str:
    return " ".join(plain(text).split()).replace("|", "\\|").replace("<", "&lt;")


def write() -> None:
    """Write both pages; one that would not change is left alone, and not read again."""
    HERE.mkdir(exist_ok=True)
    for name, text in {"api.md": api(), "cli.md": cli()}.items():
        path = HERE / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def quoted(lines: list[str]) -> list[str]:
    """A docstring of ours as reStructuredText: backticks are code, and nothing else is markup."""
    found = []
    for line in lines:
        words = re.split(r"(`[^`]+`)", line)
        for i, word in enumerate(words):
            if i % 2:
                words[i] = f"`{word}`"
            else:
                words[i] = re.sub(r"([*|\\]|_(?=\W|$))", r"\\\1", word)
        found.append("".join(words))
    return found
