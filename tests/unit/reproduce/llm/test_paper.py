"""Learned plans of parallelism: the world deserves learning, and claims follow from the rows."""

import numpy as np
import pytest

from trimtab.errors import TrimtabError, UnknownName
from trimtab.llm.world.cpu_traces import MEASURED
from trimtab.reproduce.llm.claims import claims
from trimtab.reproduce.llm.paper import METRICS, NOTES, PAPER, Setup, outcome, planned
from trimtab.reproduce.llm.trials import (
    OPTIMUM,
    POLICIES,
    held_out,
    measured,
    scores,
    series,
    walk,
    wrong_factor,
)
from trimtab.reproduce.tables import mean_row, rows_of
from trimtab.reproduce.trials import finished


@pytest.fixture(scope="module")
def small():
    """All arms with the fewest runs."""
    setup = Setup(seeds=1, jobs=20_000, quick=True)
    found = {trial.key: made for trial, made in finished(planned(setup), workers=1)}
    return setup, outcome(setup, found)


@pytest.mark.slow
@pytest.mark.parametrize("source", MEASURED)
def test_the_world_deserves_learning(source):
    found = measured(source, "full", False, 1, 1_000, 200, ("constant", "myopic"))
    assert found["world"]["actions"] >= 6
    assert found["world"]["commonest"] <= 0.6
    assert found["policies"]["constant"]["regret"] >= 0.10
    assert found["policies"]["myopic"]["regret"] >= 0.05


@pytest.mark.slow
def test_in_paper_mode_actions_differ_as_well():
    found = measured("planetlab", "paper", False, 1, 1_000, 100, ("constant",))
    assert found["world"]["actions"] >= 6
    assert found["world"]["commonest"] <= 0.6
    assert found["policies"]["constant"]["regret"] >= 0.10


@pytest.mark.slow
def test_every_policy_has_every_metric_in_every_arm(small):
    setup, made = small
    for arm in setup.arms():
        for policy in (*POLICIES, OPTIMUM):
            rows = rows_of(made["tables"], "llm", policy=policy, arm=arm.name)
            assert [one["metric"] for one in rows] == list(METRICS)


@pytest.mark.slow
def test_the_papers_figures_stand_beside_ours_in_its_mode_only(small):
    _, made = small
    beside = [one for one in made["tables"][0]["rows"] if one["paper"] is not None]
    assert {one["policy"] for one in beside} == set(PAPER)
    assert {(one["mode"], one["wrong"]) for one in beside} == {("paper", False)}
    accuracy = {one["policy"]: one["paper"] for one in beside if one["metric"] == "accuracy"}
    assert accuracy == {"q": 0.85, "sarsa": 0.79, "fixed": 0.74}


@pytest.mark.slow
def test_the_optimum_agrees_with_itself_and_loses_nothing(small):
    _, made = small
    for metric, value in (("accuracy", 1.0), ("near", 1.0), ("f1_macro", 1.0), ("regret", 0.0)):
        rows = rows_of(made["tables"], "llm", policy=OPTIMUM, metric=metric)
        assert {one["ours"] for one in rows} == {value}


@pytest.mark.slow
def test_every_table_has_a_note(small):
    _, made = small
    assert {table["name"] for table in made["tables"]} == set(NOTES)


def test_scores_are_those_of_a_table_worked_by_hand():
    right, taken = np.array([0, 0, 0, 1]), np.array([0, 0, 1, 1])
    found = scores(right, taken)
    # precision 1 and 1/2, F1 4/5 and 2/3
    assert found["accuracy"] == 0.75
    assert found["precision_macro"] == pytest.approx(0.75)
    assert found["precision_weighted"] == pytest.approx(0.875)
    assert found["f1_macro"] == pytest.approx((4 / 5 + 2 / 3) / 2)
    assert found["f1_weighted"] == pytest.approx(0.75 * 4 / 5 + 0.25 * 2 / 3)


def test_a_constant_that_is_right_in_three_of_four_has_the_square_as_weighted_precision():
    found = scores(np.array([0, 0, 0, 1]), np.zeros(4, np.int64))
    assert found["precision_weighted"] == pytest.approx(0.75**2)


def test_the_wrong_model_is_off_by_20_to_30_percent_and_by_node_only_over_links():
    factor = wrong_factor(np.random.default_rng(0))
    off = np.exp(np.abs(np.log(factor)))
    assert off.min() >= 1.2 and off.max() <= 1.3
    assert (factor[:, :12] == factor[:1, :12]).all()
    assert (factor[:, 12:] != factor[:1, 12:]).any()


def test_held_out_windows_move_in_all_five_bins():
    contexts = held_out(series("alibaba"), 50, np.random.default_rng(0))
    assert contexts.shape == (50, 49)
    assert len(np.unique(contexts)) > 100


def test_a_walk_visits_as_its_chain_says():
    path = walk(np.array([[0.9, 0.1], [0.3, 0.7]]), 400, 50, np.random.default_rng(0))
    assert path.mean() == pytest.approx(0.25, abs=0.05)


def tables_with(**values):
    where = {"arm": "full mode, made", "mode": "full", "wrong": False}
    llm = [mean_row("q", m, values[m], **where) for m in ("accuracy", "regret") if m in values]
    beside = []
    if "over" in values:
        row = mean_row("replanner", "greedy over myopic", values["over"], **where | {"wrong": True})
        beside.append(row)
    return [{"name": "llm", "rows": llm}, {"name": "llm-beside", "rows": beside}]


@pytest.mark.parametrize(
    ("values", "words", "holds"),
    [
        ({"accuracy": [0.86, 0.861, 0.859]}, "at least 85%", True),
        ({"accuracy": [0.80, 0.93, 0.90]}, "at least 85%", None),
        ({"accuracy": [0.80, 0.81, 0.80]}, "at least 85%", False),
        ({"regret": [0.01, 0.011, 0.012]}, "within 5%", True),
        ({"regret": [0.06, 0.061, 0.062]}, "within 5%", False),
        ({"over": [0.07, 0.071, 0.072]}, "by at least 5%", True),
        ({"over": [0.01, 0.011, 0.012]}, "by at least 5%", False),
        ({"over": [-0.02, -0.021, -0.022]}, "nowhere over 1 % worse", False),
        ({}, "by at least 5%", None),
    ],
)
def test_a_claim_holds_as_its_rows_say(values, words, holds):
    found = [one for one in claims(tables_with(**values)) if words in one.text]
    assert [one.holds for one in found] == [holds]


def test_parts_choose_arms_and_a_recorded_trace_takes_the_place_of_generated_ones(tmp_path):
    assert {arm.mode for arm in Setup(parts=["paper"]).arms()} == {"paper"}
    trace = tmp_path / "use.csv"
    trace.write_text("m_1,0,10,20,,,,,\n")
    arms = Setup(parts=[str(trace), "full"]).arms()
    assert [arm.name for arm in arms] == ["full mode, use.csv"]


@pytest.mark.parametrize(
    ("settings", "error", "text"),
    [
        ({"parts": ["nowhere"]}, UnknownName, "part 'nowhere' is unknown; known: paper, full"),
        ({"policies": ["dqn"]}, UnknownName, "policy 'dqn' is unknown; known: q, sarsa"),
        ({"seeds": 0}, TrimtabError, "--seeds 0"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_anything_runs(settings, error, text):
    with pytest.raises(error, match=text):
        Setup(**settings)
