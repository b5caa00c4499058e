"""What the README and the guide show can be typed as it stands."""

import re
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from trimtab.cli import app

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
GUIDE = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
# what Sphinx writes is as good as the docstrings
PAGES = [page for page in sorted(DOCS.rglob("*.md")) if not {"_build", "reference"} & {*page.parts}]
EVERY = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *PAGES]
README_LINES = 100
# a record says what stood where when it was written
NOW = [page for page in EVERY if page.parent.name != "decisions"]


def blocks(pages: list[Path], *languages: str) -> list[str]:
    """The code blocks of these languages; "" = of none."""
    pattern = re.compile(r"^```([a-z]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
    return [
        code
        for page in pages
        for named, code in pattern.findall(page.read_text())
        if named in languages
    ]


@pytest.mark.slow
@pytest.mark.parametrize("code", blocks(GUIDE, "python"), ids=lambda code: code[:40].split("\n")[0])
def test_a_python_example_runs(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def commands() -> list[str]:
    """Every trimtab command line in a code block, and in the README in its text too."""
    text = "\n".join(blocks(EVERY, "", "sh")).replace("\\\n", " ")
    found = [re.split(r"#| > |\| ", line)[0].strip() for line in text.splitlines()]
    words = (ROOT / "README.md").read_text().replace("\n", " ")
    found += re.findall(r"`(trimtab [^`]+)`", words)
    return sorted({line for line in found if line.startswith("trimtab ")})


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
def test_a_command_on_a_page_and_its_options_exist(line):
    command, words = resolved(line)
    known = {name for one in command.params for name in (*one.opts, *one.secondary_opts)}
    given = re.findall(r"(?<!\S)--[a-z-]+", " ".join(words))
    assert set(given) <= known | {"--help"}, (given, sorted(known))


def modules() -> list[tuple[str, str]]:
    """Page and dotted name, wherever a page names something of the package."""
    return sorted(
        {
            (page.relative_to(ROOT).as_posix(), name)
            for page in NOW
            for name in re.findall(r"\btrimtab(?:\.[A-Za-z_]\w*)+", page.read_text())
            if name != "trimtab.backends"  # a group of entry points
        }
    )


@pytest.mark.parametrize(("page", "name"), modules())
def test_a_name_of_the_package_on_a_page_exists(page, name):
    made, *rest = import_module("trimtab"), *name.split(".")[1:]
    for i, part in enumerate(rest, 2):
        if not hasattr(made, part):
            try:
                import_module(".".join(name.split(".")[:i]))
            except ModuleNotFoundError:
                pytest.fail(f"{page} names {name}: there is no {part}")
        made = getattr(made, part)


def sources() -> list[tuple[str, str]]:
    """Page and path, wherever a page names a file of the repository."""
    form = r"(?<![\w./])((?:src/trimtab|tests|examples|docs)/[\w./-]*\w)"
    return sorted(
        {
            (page.relative_to(ROOT).as_posix(), path)
            for page in NOW
            for path in re.findall(form, page.read_text())
            if "NNNN" not in path and not path.startswith(("docs/_build", "docs/reference/"))
        }
    )


@pytest.mark.parametrize(("page", "path"), sources())
def test_a_file_of_the_repository_that_a_page_names_exists(page, path):
    assert (ROOT / path).exists(), f"{page} names {path}"


def test_the_readme_is_a_page_and_no_book():
    assert len((ROOT / "README.md").read_text().splitlines()) <= README_LINES


def test_the_picture_of_the_readme_is_small_and_stands_alone():
    (name,) = re.findall(r"!\[[^]]+\]\((.+?)\)", (ROOT / "README.md").read_text())
    picture = (ROOT / name).read_text()
    assert picture.startswith('<svg xmlns="http://www.w3.org/2000/svg"')
    assert len(picture) < 150_000
