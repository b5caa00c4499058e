"""What the README and the guide show can be typed as it stands."""

import re
import shlex
import subprocess
import sys
from itertools import takewhile
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("line", commands())
def test_the_options_of_a_command_in_the_readme_exist(line):
    words = list(takewhile(lambda word: not word.startswith("-"), shlex.split(line)[1:]))
    name = words[:2] if words[0] in ("trace", "serve") else words[:1]
    done = subprocess.run(
        [sys.executable, "-m", "trimtab", *name, "--help"],
        capture_output=True,
        text=True,
        timeout=120,
        env={"COLUMNS": "200"},
    )
    assert done.returncode == 0
    options = re.findall(r"--[a-z-]+", line)
    assert all(option in done.stdout for option in options), (options, done.stdout)
