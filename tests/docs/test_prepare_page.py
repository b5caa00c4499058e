"""The page on preparing a trace says what the code does."""

import json
import re
import shlex
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import typer

from trimtab.cli import app
from trimtab.load.features import FEATURES
from trimtab.traces.prepare import prepare
from trimtab.traces.prepare.rules import RULES
from trimtab.traces.twin import write_twin

PAGE = (Path(__file__).parents[2] / "docs" / "prepare.md").read_text(encoding="utf-8")
OUTPUT = PAGE.partition("\n## Output\n")[2].partition("\n## ")[0]
NAMED = set(re.findall(r"`([^`\n]+)`", OUTPUT))


def rules_as_table() -> str:
    rows = ["| table | rule | kind | what |", "|---|---|---|---|"]
    for table, rules in RULES.items():
        rows += [f"| `{table}` | `{rule.name}` | {rule.kind} | {rule.about} |" for rule in rules]
    return "\n".join(rows)


def test_the_table_of_rules_is_that_of_the_code():
    shown = PAGE.partition("<!-- rules -->\n")[2].partition("\n<!-- /rules -->")[0]
    assert shown == rules_as_table(), f"paste this into docs/prepare.md:\n{rules_as_table()}"


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    write_twin(folder / "twin", machines=2, days=1.05, seed=1)
    prepare(folder / "twin", folder / "prepared")
    return folder / "prepared"


def test_every_file_of_the_output_is_on_the_page(prepared):
    assert {path.name for path in prepared.iterdir()} <= NAMED


def test_every_column_of_the_output_is_on_the_page(prepared):
    features = {feature.name for feature in FEATURES}
    for path in sorted(prepared.glob("*.parquet")):
        missing = set(pq.read_schema(path).names) - NAMED - features
        assert not missing, f"{path.name}: docs/prepare.md does not say what these are: {missing}"


def test_the_schema_version_on_the_page_is_that_of_the_output(prepared):
    stated = re.search(r"schema version (\d+)", OUTPUT)
    manifest = json.loads((prepared / "manifest.json").read_text())
    assert stated and int(stated[1]) == manifest["schema_version"]


def commands() -> list[str]:
    """Every command line of trimtab in a block without a language."""
    fences = re.findall(r"^```(.*)\n((?:(?!```).*\n)*)```$", PAGE, re.MULTILINE)
    lines = "".join(block for language, block in fences if not language).splitlines()
    return [line for line in lines if line.startswith("trimtab ")]


@pytest.mark.parametrize("line", commands())
def test_a_command_on_the_page_and_its_options_exist(line):
    command = typer.main.get_command(app)
    words = shlex.split(line)[1:]
    while hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    known = {option for param in command.params for option in param.opts}
    assert {word for word in words if word.startswith("--")} <= known
