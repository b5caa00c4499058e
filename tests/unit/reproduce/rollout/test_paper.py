"""`reproduce rollout`: its rows, claims and files, on small logs made by hand."""

import numpy as np
import pytest
from typer.testing import CliRunner

from trimtab.cli import app
from trimtab.errors import TrimtabError, UnknownName
from trimtab.reproduce.rollout.paper import (
    ARMS,
    BUDGETS_MS,
    NOTES,
    OURS,
    PUBLISHED,
    RULES,
    WEEK_RULES,
    Setup,
    claims,
    known_as,
    ours,
    outcome,
    planned,
)
from trimtab.reproduce.rollout.trials import WEEK_S, chosen_weeks
from trimtab.reproduce.tables import mean_row, row, rows_of
from trimtab.reproduce.trials import finished


def write_log(path, jobs, seed, gap_s):
    """A log of eight processors in the standard workload format."""
    rng = np.random.default_rng(seed)
    submit_s = np.cumsum(rng.exponential(gap_s, jobs)).astype(int)
    run_s = np.maximum(1, rng.lognormal(5, 1, jobs)).astype(int)
    lines = ["; MaxNodes: 8", "; MaxProcs: 8"]
    for i in range(jobs):
        procs, user = rng.integers(1, 8), rng.integers(0, 3)
        lines.append(
            f"{i + 1} {submit_s[i]} -1 {run_s[i]} {procs} -1 -1 {procs} {3 * run_s[i]} -1 1 {user} "
            "-1 -1 -1 -1 -1 -1"
        )
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A log by the paper's name, long enough for its second sequence, and another of two weeks."""
    made = tmp_path_factory.mktemp("logs")
    write_log(made / "lublin_256.swf", 3000, 1, 400.0)
    write_log(made / "other.swf", 400, 2, 2 * WEEK_S / 400)
    (made / "notes.txt").write_text("no log")
    return made


@pytest.fixture(scope="module")
def small(folder):
    setup = Setup(seeds=2, jobs=40, logs=[str(folder)])
    found = {trial.key: made for trial, made in finished(planned(setup), workers=1)}
    return setup, outcome(setup, found)


@pytest.mark.slow
def test_every_table_has_its_rows(small):
    tables = small[1]["tables"]
    assert {table["name"] for table in tables} == set(NOTES)
    sequences = rows_of(tables, "rollout-sequences")
    assert len(sequences) == len(ARMS) * (len(RULES) + 1)
    ours_there = rows_of(tables, "rollout-sequences", policy="rollout", arm="easy")[0]
    assert ours_there["paper"] == 58.64 and ours_there["ours"] >= 1
    assert len(rows_of(tables, "rollout-weeks")) == len(ARMS) * (len(WEEK_RULES) + 1)
    assert len(rows_of(tables, "rollout-week-ratios")) == len(ARMS)
    hits = rows_of(tables, "rollout-budget", metric="hits, %")
    assert [one["budget"] for one in hits] == [*(f"{ms:g}" for ms in BUDGETS_MS), "inf"]
    assert hits[-1]["ours"] == 0.0


@pytest.mark.slow
def test_fewer_sequences_than_the_published_cannot_tell(small):
    told = {claim["claim"]: claim["holds"] for claim in small[1]["claims"]}
    assert len(told) == len(PUBLISHED) + len(ARMS)
    assert all(holds is None for claim, holds in told.items() if "published" in claim)


@pytest.mark.slow
def test_it_is_a_command_that_goes_on_where_it_stopped(folder, tmp_path):
    words = ["reproduce", "rollout", "--quick", "--only", "weeks", "--seeds", "1", "--jobs", "30"]
    words += ["--logs", str(folder / "other.swf"), "--workers", "1", "--out", str(tmp_path)]
    first = CliRunner().invoke(app, words)
    assert first.exit_code == 0, first.output
    kept = (tmp_path / "trials.jsonl").read_text()
    assert len(kept.splitlines()) == len(ARMS) * (len(WEEK_RULES) + 1)
    again = CliRunner().invoke(app, words)
    assert again.exit_code == 0
    assert (tmp_path / "trials.jsonl").read_text() == kept
    assert "rollout over the rule that was best in these weeks" in " ".join(first.output.split())


def sequence_rows(value):
    one = mean_row("rollout", "bsld_mean", [value, value], log="HPC2N", arm="none")
    return [{"name": "rollout-sequences", "rows": [one]}]


def claim_of(setup, tables, start):
    return next(one for one in claims(setup, tables) if one.text.startswith(start))


def test_a_published_value_is_passed_from_below_alone(folder):
    whole = Setup(logs=[str(folder)])
    assert claim_of(whole, sequence_rows(117.0), "HPC2N").holds is True
    assert claim_of(whole, sequence_rows(117.02), "HPC2N").holds is False
    assert claim_of(whole, [], "HPC2N").holds is None


@pytest.mark.parametrize(
    ("ratio", "low", "high", "holds"),
    [(0.9, 0.7, 1.2, True), (1.1, 0.9, 1.3, None), (1.1, 1.05, 1.2, False)],
)
def test_level_is_no_higher_or_not_beyond_chance(folder, ratio, low, high, holds):
    one = row("f1", "rollout / best rule", ratio, low, high, log="x", arm="easy", weeks=5)
    tables = [{"name": "rollout-week-ratios", "rows": [one]}]
    assert claim_of(Setup(logs=[str(folder)]), tables, "x, with backfilling").holds is holds


def test_logs_of_the_paper_are_known_by_their_files(folder):
    setup = Setup(logs=[str(folder), str(folder / "other.swf")])
    assert list(setup.published()) == ["Lublin-1"] and list(setup.others()) == ["other"]
    assert setup.left_out() == ["Lublin-2, SDSC-SP2, HPC2N: no such log in --logs, left out"]
    assert known_as(folder / "lublin_256_new2") == "Lublin-2"


def test_without_logs_it_says_what_it_wants(tmp_path):
    with pytest.raises(TrimtabError, match="--logs PATH"):
        Setup()
    with pytest.raises(TrimtabError, match="no such file or folder"):
        Setup(logs=[str(tmp_path / "none")])


def test_an_unknown_part_is_named(folder):
    with pytest.raises(UnknownName, match="part 'months' is unknown"):
        Setup(logs=[str(folder)], parts=["months"])


def test_weeks_are_spread_over_the_log_and_have_jobs_enough():
    # five weeks of 120, 120, 20, 120 and 120 jobs: two are the first and the last
    counts = (120, 120, 20, 120, 120)
    submit_s = np.concatenate([
        week * WEEK_S + np.arange(count) for week, count in enumerate(counts)
    ])  # fmt: skip
    assert chosen_weeks(submit_s, 9) == [(0, 120), (120, 240), (260, 380), (380, 500)]
    assert chosen_weeks(submit_s, 2) == [(0, 120), (380, 500)]


def test_backfilling_goes_between_the_name_and_its_options():
    assert OURS == ours("none") == "rollout:budget_ms=inf"
    assert ours("easy") == "rollout+easy:budget_ms=inf"
