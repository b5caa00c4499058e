"""What the README and the guide show can be typed as it stands."""

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from trimtab.cli import app

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(language: str) -> list[str]:
    """The code blocks of one language; "" = of none."""
    pattern = re.compile(r"^```([a-z]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
    return [
        code
        for page in PAGES
        for named, code in pattern.findall(page.read_text())
        if named == language
    ]


@pytest.mark.parametrize("code", blocks("python"), ids=lambda code: code.split("\n")[0][:40])
def test_a_python_example_runs(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def commands() -> list[str]:
    """Every trimtab command line in a code block of the README."""
    lines = "\n".join(blocks("")).splitlines()
    return [line.split("#")[0].strip() for line in lines if line.startswith("trimtab ")]


def resolved(line: str) -> tuple[Any, list[str]]:
    """The command of that line, as far down as there are commands, and the words that it gets."""
    command, words = get_command(app), shlex.split(line)[1:]
    while isinstance(command, TyperGroup) and words:
        context = command.make_context("trimtab", list(words), resilient_parsing=True)
        if not context._protected_args:  # only options of the group's own
            break
        rest = [*context._protected_args, *context.args]
        _, command, words = command.resolve_command(context, rest)
        assert command is not None, line
    return command, words


@pytest.mark.parametrize("line", commands())
def test_the_options_of_a_command_in_the_readme_exist(line):
    command, words = resolved(line)
    known = {name for one in command.params for name in (*one.opts, *one.secondary_opts)} | {
        "--help"
    }
    given = re.findall(r"(?<!\S)--[a-z-]+", " ".join(words))
    assert set(given) <= known, (given, sorted(known))
