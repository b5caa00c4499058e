"""The demonstration runs as a stranger types it, with smaller inputs."""

import json
import subprocess
import sys

import pytest

from trimtab.cli import demo

pytestmark = pytest.mark.slow
SMALL = "adlro:load=0.9,estimate=noisy,jobs=40"


@pytest.fixture(scope="module")
def shown(tmp_path_factory) -> tuple[str, list[dict]]:
    """What it prints, and what it writes for machines."""
    folder = tmp_path_factory.mktemp("demo")
    code = (
        f"import trimtab.cli.demo as d; d.TRACE = {SMALL!r}; from trimtab.cli import main; main()"
    )
    words = ["demo", "--seeds", "2", "--json", str(folder / "demo.json")]
    words += ["--report", str(folder / "report.html")]
    run = [sys.executable, "-c", code, *words]
    done = subprocess.run(run, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "<svg" in (folder / "report.html").read_text()
    return done.stdout, json.loads((folder / "demo.json").read_text())


def test_learned_policies_stand_beside_baselines_and_rules(shown):
    table, rows = shown
    policies = [*demo.LEARNED, *demo.BASELINES, *demo.RULES]
    assert {(row["policy"], row["seed"]) for row in rows} == {
        (p, s) for p in policies for s in (0, 1)
    }
    assert all(policy in table for policy in policies)
    assert "95 % interval over 2 seeds" in table


def test_every_wing_has_a_line_that_says_what_to_type(shown):
    assert shown[0].splitlines()[-len(demo.NEXT) :] == list(demo.NEXT)


def test_the_table_fits_eighty_columns(shown):
    table = shown[0].partition("over 2 seeds")[0]
    assert max(map(len, table.splitlines())) <= 80


def test_it_is_plain_text_in_a_pipe(shown):
    assert "\x1b" not in shown[0]
