"""Slim Scheduler's tables: every part makes rows of its runs, and claims follow from the rows."""

import numpy as np
import pytest

from trimtab.errors import TrimtabError, UnknownName
from trimtab.reproduce.slim import trials as slim_runs
from trimtab.reproduce.slim.claims import OURS, claims
from trimtab.reproduce.slim.paper import (
    ACCURACY,
    IN_TABLES,
    LOADS,
    NOTES,
    PAPER,
    RULES,
    SHAPES,
    Setup,
    outcome,
    planned,
)
from trimtab.reproduce.tables import mean_row, row, rows_of
from trimtab.reproduce.trials import finished


@pytest.fixture(scope="module")
def small():
    """All of it with the fewest runs."""
    setup = Setup(seeds=2, jobs=150, quick=True)
    found = {trial.key: made for trial, made in finished(planned(setup), workers=1)}
    return setup, outcome(setup, found)


@pytest.mark.slow
def test_every_table_has_its_rows(small):
    made = small[1]
    names = {table["name"] for table in made["tables"]}
    assert set(NOTES) <= names
    good = rows_of(made["tables"], "slim-good")
    assert len(good) == len(SHAPES) * len(LOADS) * (len(RULES) + 1)
    assert len(rows_of(made["tables"], "slim-accuracy")) == len(ACCURACY)
    assert made["seeds"] == [5000, 5001]
    random = rows_of(made["tables"], "slim-random", policy="random", metric="latency_s")
    assert random[0]["paper"] == 8.979 and random[0]["ours"] > 0
    assert {one["policy"] for one in rows_of(made["tables"], "slim-random")} == set(IN_TABLES)


@pytest.mark.slow
def test_no_router_passes_the_bound_and_shares_are_percent(small):
    tables = small[1]["tables"]
    for one in rows_of(tables, "slim-good"):
        where = {key: one[key] for key in ("arm", "load")}
        most = rows_of(tables, "slim-good", policy="bound", **where)[0]
        assert 0 <= one["ours"] <= most["ours"] + 1e-9 <= 100


@pytest.mark.slow
def test_the_papers_changes_are_those_it_states(small):
    tables = small[1]["tables"]
    light = {one["metric"]: one for one in rows_of(tables, "slim-change", policy="light")}
    assert light["latency_s"]["paper"] == pytest.approx(-0.9645, abs=1e-4)
    assert light["energy_j"]["paper"] == pytest.approx(-0.9731, abs=1e-4)
    assert PAPER["balanced"]["accuracy"] > PAPER["random"]["accuracy"]


@pytest.mark.slow
def test_every_claim_has_a_verdict_where_all_was_measured(small):
    assert all(claim["holds"] is not None for claim in small[1]["claims"])


def test_a_part_alone_leaves_the_other_claims_open():
    made = outcome(Setup(parts=["accuracy"]), {})
    verdicts = [claim["holds"] for claim in made["claims"]]
    assert verdicts.count(None) == len(verdicts) - 1 and verdicts[-1] is not None


def cells(ours, fixed=70.0, bound=80.0, share=100.0):
    where = {"arm": "poisson", "load": 3.0}
    return [
        {
            "name": "slim-in-time",
            "rows": [
                row(OURS, "in_time", share, **where),
                row("bound", "in_time", 100.0, **where),
            ],
        },
        {
            "name": "slim-beside",
            "rows": [
                mean_row("fixed 1", f"{OURS} less the best fixed width", [ours - fixed], **where),
                row("rate", "share of the way to the bound", (ours - 75) / (bound - 75), **where),
            ],
        },
    ]


@pytest.mark.parametrize(
    ("given", "verdicts"),
    [
        ({"ours": 78.0}, [True, True, True]),
        ({"ours": 77.0}, [True, True, False]),
        ({"ours": 69.0}, [True, False, False]),
        ({"ours": 78.0, "share": 98.9}, [False, True, True]),
    ],
)
def test_claims_of_the_objective_follow_the_rows(given, verdicts):
    assert [claim.holds for claim in claims(cells(**given))[:3]] == verdicts


def test_energy_as_the_paper_counts_is_power_times_latency():
    found = slim_runs.without_objective(0.5, 1, 100, ["slimmest"])["slimmest"]
    power_w = found["energy_j"] / found["latency_s"]
    assert found["energy_j sd"] == pytest.approx(power_w * found["latency_s sd"])
    assert found["charged_j"] > 0


def test_a_recorded_stream_keeps_its_pattern_and_the_rate(tmp_path):
    path = tmp_path / "llm.csv"
    rows = [f"2023-11-16 18:15:{second:09.6f},10,10" for second in (1, 1.5, 2, 30, 30.5, 59)]
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "\n".join(rows) + "\n")
    found = slim_runs.stream("recorded", 600, 100.0, 3, str(path))
    assert len(found) == 600 and found[-1] == pytest.approx(6.0)
    gaps_s = np.diff(found)
    assert gaps_s.max() > 20 * np.median(gaps_s)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: Setup(parts=["loads"]), "part 'loads'"),
        (lambda: Setup(policies=["fastest"]), "router 'fastest'"),
        (lambda: Setup(seeds=0), "--seeds 0"),
    ],
)
def test_a_mistake_is_named(call, named):
    with pytest.raises((TrimtabError, UnknownName), match=named):
        call()
