"""The reference pages hold every public name, every command and every option."""

import re
import sys
from pathlib import Path

import pytest
import typer

from trimtab.cli import app

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def reference():
    sys.path.insert(0, str(DOCS))
    try:
        import reference
    finally:
        sys.path.remove(str(DOCS))
    return reference


def test_every_public_name_has_its_heading_and_its_docstring(reference):
    page = reference.api()
    for wing in reference.WINGS:
        for name in __import__(wing, fromlist=["__all__"]).__all__:
            assert f"### {name}\n" in page
            assert f":: {wing}.{name}\n" in page or name == "Decision"


def test_every_command_and_option_is_on_the_page(reference):
    page = reference.cli()
    every = list(reference.commands(typer.main.get_command(app), ("trimtab",)))
    assert ("trimtab", "trace", "prepare") in [path for path, _ in every]
    for path, command in every:
        part = page.partition(f"# {' '.join(path)}\n")[2]
        part = re.split(r"^#+ trimtab", part, maxsplit=1, flags=re.MULTILINE)[0]
        for parameter in command.params:
            options = [name for name in parameter.opts if name.startswith("--")]
            if not parameter.hidden and parameter.name != "help":
                assert all(f"`{name}`" in part for name in options), (path, options)


def test_a_docstring_is_plain_text_but_for_its_code(reference):
    found = reference.quoted(["`gpu` counts *all* devices_, trailing_ `a|b` | c"])
    assert found == [r"``gpu`` counts \*all\* devices\_, trailing\_ ``a|b`` \| c"]
