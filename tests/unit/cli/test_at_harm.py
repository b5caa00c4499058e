"""`trimtab compare --at-harm`: tables at equal harm, limits found elsewhere, what is refused."""

import json
import os

import pytest
from typer.testing import CliRunner

from trimtab.cli import app
from trimtab.errors import TrimtabError

SMALL = "colocated:machines=8,regions=2,span_s=120"
RULES = ["smallest-area+greedy+calm+now", "smallest-area+greedy+calm+native@1"]


@pytest.fixture
def alone(monkeypatch):
    """All trials in this process."""
    monkeypatch.setattr(os, "cpu_count", lambda: 1)


def compare(*words):
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, ["compare", *words])


def test_each_policy_stands_at_its_own_limit(alone, tmp_path):
    out = tmp_path / "at.json"
    words = ["--trace", SMALL, "--at-harm", "1,50", "--seeds", "2", "--json", str(out)]
    done = compare(*RULES, *words)
    assert done.exit_code == 0, done.output
    measured = json.loads(out.read_text())
    rows = measured["tables"][0]["rows"]
    assert {row["at_harm"] for row in rows} <= {"1 %", "50 %"} and rows
    harm = {
        (row["policy"], row["at_harm"]): row["ours"] for row in rows if row["metric"] == "harm %"
    }
    assert all(value <= float(at[1].split()[0]) + 1e-9 for at, value in harm.items())
    limits = {row["policy"]: row["ours"] for row in rows if row["metric"] == "limit"}
    assert limits["native@1"] is None and 0.6 <= limits["now"] <= 1.02
    assert "at equal harm: 50 %" in done.output


def test_limits_found_on_other_days_are_kept(alone, tmp_path):
    out, page = tmp_path / "at.json", tmp_path / "at.html"
    done = compare(
        RULES[0], "--trace", SMALL, "--at-harm", "50", "--tune-on", f"{SMALL},split=train",
        "--seeds", "2", "--json", str(out), "--report", str(page),
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    rows = json.loads(out.read_text())["tables"][0]["rows"]
    assert {row["at_harm"] for row in rows} == {f"50 % on {SMALL},split=train"}
    assert "at equal harm" in page.read_text()


@pytest.mark.parametrize(
    "words, text",
    [
        (["--at-harm", "x"], "'x' is not a share in per cent"),
        (["--at-harm", "0"], "above 0 and at most 100"),
        (["--at-harm", "1", "--cluster", "openb"], "--cluster does not go with it"),
        (["--at-harm", "1", "--mtbf-h", "3"], "--mtbf-h does not go with it"),
        (["--at-harm", "1", "--metrics", "uti"], "has its own columns"),
        (["--tune-on", "colocated"], "to add how much harm"),
        (["--at-harm", "1", "--trace", "mixed-gpu:jobs=5"], "no services lend anything"),
    ],
)
def test_what_does_not_go_together_is_refused(alone, words, text):
    done = compare(*RULES, *words)
    assert isinstance(done.exception, TrimtabError) and text in str(done.exception)
