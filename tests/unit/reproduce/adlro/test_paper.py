"""The tables of ADLRO hold what the runs gave and the paper's figures, and only finite numbers."""

import json

import pytest

from trimtab import policies
from trimtab.build import uniform_profile, workload
from trimtab.compare import Question, by_engine
from trimtab.core import Status
from trimtab.errors import TrimtabError, UnknownName
from trimtab.metrics import measure
from trimtab.reproduce.adlro import small_cases
from trimtab.reproduce.adlro.paper import (
    FIRST_SEED,
    NOTES,
    PARTS,
    Setup,
    _problem,
    outcome,
    planned,
)
from trimtab.reproduce.adlro.scenes import measured, result_of
from trimtab.reproduce.tables import rows_of
from trimtab.reproduce.trials import finished
from trimtab.traces.scenes.presets import servers_cluster
from trimtab.traces.scenes.scene import open_scene

KEYS = {"policy", "metric", "paper", "ours", "low", "high"}
NAMES = ("adlro", "fcfs", "fcfs+affinity", "srtf+fastest")


@pytest.fixture(scope="module")
def found():
    """A small run of all parts but the memory, in which mct stands for the learned policy."""
    before = dict(policies.BY_NAME)
    policies.BY_NAME["adlro"] = policies.BY_NAME["mct"]
    try:
        parts = [name for name in PARTS if name != "runtime-memory"]
        setup = Setup(seeds=2, jobs=40, quick=True, policies=NAMES, parts=parts)
        runs = {trial.key: run for trial, run in finished(planned(setup), workers=1)}
        return setup, runs, outcome(setup, runs)
    finally:
        policies.BY_NAME.clear()
        policies.BY_NAME.update(before)


@pytest.mark.slow
def test_every_row_has_the_keys_of_the_schema(found):
    _, _, made = found
    assert [table["name"] for table in made["tables"]] == [
        *("loads", "ratios", "hyperscore", "paper", "small-cases", "generalisation"),
    ]
    for table in made["tables"]:
        assert set(table) == {"name", "rows"}
        assert table["rows"], table["name"]
        assert all(set(row) >= KEYS for row in table["rows"])
        assert table["name"] in NOTES
    assert all(set(claim) == {"claim", "holds", "evidence"} for claim in made["claims"])
    json.dumps(made, allow_nan=False)


@pytest.mark.slow
def test_the_seeds_are_held_out_and_named(found):
    _, _, made = found
    assert made["seeds"] == [1000, 1001]
    assert FIRST_SEED == 1000
    assert made["trace"] == "adlro:load=0.7|0.9|1.5,estimate=oracle|noisy,jobs=40"


@pytest.mark.slow
def test_a_mean_of_the_table_is_that_of_its_runs(found):
    _, _, made = found
    where = {"policy": "srtf+fastest", "metric": "jct_mean_s", "arm": "noisy", "load": 0.9}
    (row,) = rows_of(made["tables"], "loads", **where)
    trace = "adlro:load=0.9,estimate=noisy,jobs=40"
    runs = [measured("srtf+fastest", trace, None, seed)["jct_mean_s"] for seed in (1000, 1001)]
    assert row["ours"] == pytest.approx(sum(runs) / 2)


@pytest.mark.slow
def test_a_ratio_of_the_table_is_of_the_learned_policy_seed_by_seed(found):
    _, _, made = found
    where = {"policy": "fcfs", "metric": "jct_mean_s", "arm": "oracle", "load": 0.7}
    (row,) = rows_of(made["tables"], "ratios", **where)
    trace = "adlro:load=0.7,estimate=oracle,jobs=40"
    each = [
        [measured(name, trace, None, seed)["jct_mean_s"] for seed in (1000, 1001)]
        for name in ("mct", "fcfs")
    ]
    assert row["ours"] == pytest.approx(sum(a / b for a, b in zip(*each)) / 2)


@pytest.mark.slow
def test_the_papers_figures_and_their_ratios_stand_beside_ours(found):
    _, _, made = found
    rows = {
        (row["policy"], row["metric"]): row["paper"]
        for row in rows_of(made["tables"], "paper", arm="noisy")
    }
    assert rows["fcfs", "jct_mean_s"] == 25.8
    assert rows["adlro", "throughput_per_h"] == 9.1
    assert rows["fcfs+affinity", "useful_utilization"] == 0.654
    assert rows["adlro", "jct_mean_s / fcfs"] == pytest.approx(1 - 0.244, abs=5e-4)
    assert rows["adlro", "jct_mean_s / fcfs+affinity"] == pytest.approx(1 - 0.118, abs=5e-4)
    assert rows["adlro", "throughput_per_h / fcfs"] == pytest.approx(1.468, abs=5e-4)
    assert rows["adlro", "throughput_per_h / fcfs+affinity"] == pytest.approx(1.213, abs=5e-4)


@pytest.mark.slow
def test_the_papers_table_breaks_littles_law(found):
    _, _, made = found
    (claim,) = [one for one in made["claims"] if "Little" in one["claim"]]
    # 6.2 / 3600 x 25.8 = 0.0444 jobs; / 16 = 0.28 %
    assert claim["holds"] is False
    assert "0.044 jobs" in claim["evidence"]
    assert "0.28%" in claim["evidence"]


@pytest.mark.slow
def test_the_reference_of_the_hyperscore_has_v_one(found):
    _, _, made = found
    rows = rows_of(made["tables"], "hyperscore", policy="fcfs", metric="v")
    assert [row["ours"] for row in rows] == [1.0] * len(rows)


@pytest.mark.slow
def test_no_order_of_runs_changes_the_tables(found):
    setup, runs, made = found
    assert outcome(setup, dict(reversed(runs.items()))) == made


def test_the_full_plan_has_every_arm_load_seed_and_policy_once():
    setup = Setup(policies=("fcfs", "fluid"), parts=["loads"])
    trials = planned(setup)
    assert len(trials) == 3 * 5 * 10 * 2
    assert len({trial.key for trial in trials}) == len(trials)


def test_a_policy_that_cannot_be_made_is_left_out_and_told(monkeypatch):
    monkeypatch.setitem(policies.BY_NAME, "adlro", "trimtab.policies.nowhere:Policy")
    _problem.cache_clear()
    try:
        setup = Setup(quick=True)
        assert "adlro" not in setup.names()
        assert "fcfs" in setup.names()
        assert any(line.startswith("adlro is left out: ") for line in setup.left_out())
    finally:
        _problem.cache_clear()


@pytest.mark.parametrize(
    ("asked", "error", "words"),
    [
        ({"seeds": 0}, TrimtabError, "--seeds 0"),
        ({"jobs": -1}, TrimtabError, "--jobs -1"),
        ({"parts": ["load"]}, UnknownName, "known: loads"),
    ],
)
def test_a_setup_that_cannot_be_is_refused(asked, error, words):
    with pytest.raises(error, match=words):
        Setup(**asked)


@pytest.mark.parametrize("policy", ["srtf+fastest", "fluid"])
def test_a_run_is_that_of_a_comparison_with_start_ups(policy):
    trace = "adlro:load=0.9,estimate=noisy,jobs=40"
    question = Question(policies=[policy], startup_s=30.0)
    compared = measure(by_engine(open_scene(trace, seed=5), policy, 5, question, None))
    found = measured(policy, trace, None, 5)
    assert {name: found[name] for name in ("jct_mean_s", "energy_j", "preemptions")} == {
        name: compared[name] for name in ("jct_mean_s", "energy_j", "preemptions")
    }


def test_what_ends_after_the_last_arrival_does_not_count_for_throughput():
    # one server, start-ups of 30 s: ends at 40 and 80 s; the third arrives at 100 and ends later
    work = workload([0.0, 0.0, 100.0], [10.0, 10.0, 10.0], [1, 1, 1])
    machine = servers_cluster(servers=1)
    result = result_of(work, machine, uniform_profile(1, 1), "fcfs", 0)
    assert (result.state["status"] == Status.FINISHED).all()
    found = measure(result)
    assert found["arriving_throughput_per_h"] == pytest.approx(2 / 100 * 3600)
    assert found["arriving_useful_utilization"] == pytest.approx(20 / 100)


def test_no_policy_without_preemption_beats_the_optimum_of_a_small_case():
    found = small_cases.measured(["sjf+fastest", "mct"], seed=1000, together=True)
    assert found["optimal"]
    assert found["bound_s"] <= found["optimum_s"] * (1 + 1e-9)
    for total_s in found["total_s"].values():
        assert total_s >= found["optimum_s"] * (1 - 1e-9)
