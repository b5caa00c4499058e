"""When a change of plan is worth it, and when it is not yet."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtri
from tests.unit.llm.watch.plays import BEST, MARKET, QUESTION, is_plan

from trimtab.llm.cost.crowded import crowded_cost
from trimtab.llm.plan.planner import planned
from trimtab.llm.spec.specs import parameters
from trimtab.llm.watch.conditions import Conditions
from trimtab.llm.watch.correction import Correction
from trimtab.llm.watch.replan import (
    FRESH,
    Market,
    Offer,
    Patience,
    Rules,
    changed,
    decided,
    market,
    offered,
    predicted_s,
    smoothed,
    span,
)

RULES = Rules()
CALM = Conditions(1e6)
OTHER = planned(replace(QUESTION, fixed={"pp": 2}), 1).cases[0]


def known(*ratios):
    """A belief after many steps of the best plan and of another at these ratios to the model."""
    made = Correction()
    for beat in range(200):
        for row, ratio in zip((BEST, OTHER), ratios):
            made.observe(row, ratio, 1.0, 60.0 * beat)
    return made


def an_offer(saving_s=1000.0, cost_s=100.0, p_fit=1.0, settled=True):
    return Offer(
        BEST, CALM, 10.0, p_fit, 21600.0, settled, OTHER, 9.0, 0.99, saving_s, cost_s
    )  # fmt: skip


def test_on_a_calm_cluster_the_best_plan_is_kept():
    offer = offered(MARKET, BEST, CALM, Correction(), RULES)
    assert offer.saving_s < 0
    assert offer.old_s == pytest.approx(predicted_s(BEST, CALM))
    verdict, patience = decided(offer, FRESH, 1e6, RULES)
    assert verdict.action == "keep" and verdict.reason.startswith("no other plan is surely better")
    assert patience == FRESH


def test_the_current_plan_is_never_offered():
    for row in (BEST, OTHER):
        assert not is_plan(offered(MARKET, row, CALM, Correction(), RULES).plan, row)


def test_the_saving_is_the_horizon_less_what_the_cautious_ratio_takes():
    only = Market(QUESTION, np.array([BEST, OTHER]))
    belief = known(1.5)
    offer = offered(only, BEST, CALM, belief, RULES)
    costs = crowded_cost(only.rows, 0.0, 1.0)
    apart = belief.against(only.rows, BEST)
    ratio = costs["step_s"][1] / costs["step_s"][0] * math.exp(apart.mean[1])
    ratio *= math.exp(ndtri(0.7) * apart.spread[1])
    assert offer.saving_s == pytest.approx(6 * 3600 * (1 - ratio))
    assert offer.new_s == pytest.approx(
        costs["step_s"][1] * math.exp(belief.expected(only.rows).mean[1])
    )


def test_a_change_costs_the_restart_the_checkpoint_and_the_risk_of_the_way_back():
    only = Market(QUESTION, np.array([BEST, OTHER]))
    offer = offered(only, BEST, Conditions(1e6, free_link=0.5), Correction(), RULES)
    state_b = 14 * parameters(QUESTION.model)
    moved_s = 2 * state_b / (16 * 0.5 * QUESTION.node_link_bps)
    assert offer.cost_s == pytest.approx((120 + moved_s) * (2 - offer.new_p_fit))


def test_what_is_not_known_of_a_plan_counts_against_it():
    only = Market(QUESTION, np.array([BEST, OTHER]))
    unknown = offered(only, OTHER, CALM, known(), RULES)
    sure = offered(only, OTHER, CALM, known(1.0, 1.0), RULES)
    assert unknown.saving_s < sure.saving_s
    assert unknown.new_s == pytest.approx(sure.new_s, rel=1e-3)


def test_a_slow_plan_is_left_for_another_and_a_little_slower_one_is_not():
    assert offered(MARKET, BEST, CALM, known(1.05), RULES).saving_s < 0
    offer = offered(MARKET, BEST, CALM, known(1.3), RULES)
    assert offer.saving_s > RULES.margin * offer.cost_s
    # a twin with other micro-batches would be as slow: the layout changes
    assert any(offer.plan[name] != BEST[name] for name in ("tp", "pp", "cp"))


def test_the_objective_decides_what_is_saved():
    question = replace(QUESTION, objective={"energy": 1.0})
    offer = offered(market(question), BEST, CALM, Correction(), RULES)
    assert offer.plan is not None and offer.saving_s < RULES.horizon_s


def test_after_a_change_the_horizon_is_as_long_as_it_has_lasted():
    patience = Patience(changed_s=1e6 - 1800.0)
    offer = offered(MARKET, BEST, CALM, known(1.5), RULES, patience=patience)
    whole = offered(MARKET, BEST, CALM, known(1.5), RULES)
    assert (offer.horizon_s, whole.horizon_s) == (1800.0, 21600.0)
    assert offer.saving_s == pytest.approx(whole.saving_s / 12)


def test_a_plan_offered_before_stays_among_equals():
    first = offered(MARKET, BEST, CALM, known(1.5), RULES)
    _, patience = decided(first, FRESH, 1e6, RULES)
    near = Conditions(1e6, free_link=0.98)
    again = offered(MARKET, BEST, near, known(1.5), RULES, patience=patience)
    assert is_plan(again.plan, first.plan)


def test_patience_waits_for_readings_in_a_row():
    patience, actions = FRESH, []
    for saving_s in (1000.0, 1000.0, 140.0, 1000.0, 1000.0, 1000.0):  # 140 < 1.5 x 100
        verdict, patience = decided(an_offer(saving_s), patience, 1e6, RULES)
        actions.append(verdict.action)
    assert actions == ["wait", "wait", "keep", "wait", "wait", "propose"]


def test_a_plan_dwells_after_a_change():
    patience = changed(Patience(agreed=5), 1e6)
    assert patience.agreed == 0
    actions = []
    for minute in range(1, 33):
        verdict, patience = decided(an_offer(), patience, 1e6 + 60 * minute, RULES)
        actions.append(verdict.action)
    assert actions == ["wait"] * 29 + ["propose"] * 3


def test_step_times_that_have_just_changed_are_waited_for():
    patience = Patience(agreed=5)
    verdict, after = decided(an_offer(settled=False), patience, 1e6, RULES)
    assert verdict.action == "wait" and after == patience


def test_a_plan_that_likely_does_not_fit_any_more_is_left_at_once():
    patience = changed(FRESH, 1e6 - 60.0)
    verdict, _ = decided(an_offer(saving_s=-500.0, p_fit=0.3), patience, 1e6, RULES)
    assert verdict.action == "propose" and verdict.reason.startswith("P(fit) 0.30 now")


def test_neighbours_memory_makes_plans_unfit():
    full = Conditions(1e6, taken_b=30e9)
    offer = offered(MARKET, BEST, full, Correction(), RULES)
    assert offer.urgent and offer.new_p_fit >= QUESTION.least_p_fit
    assert not offered(MARKET, BEST, CALM, Correction(), RULES).urgent


@pytest.mark.parametrize(
    ("proven_b", "urgent"),
    [(None, True), (0.0, True), (29e9, False), (30e9, False), (40e9, False)],
)
def test_a_plan_that_has_run_beside_as_much_fits(proven_b, urgent):
    full = Conditions(1e6, taken_b=30e9)
    offer = offered(MARKET, BEST, full, Correction(), RULES, proven_b=proven_b)
    assert offer.urgent == urgent
    assert (offer.p_fit == 1.0) == (proven_b is not None and proven_b >= 30e9)


def test_where_nothing_fits_the_plan_is_kept_and_the_danger_told():
    full = Conditions(1e6, taken_b=79e9)
    offer = offered(MARKET, BEST, full, Correction(), RULES)
    verdict, _ = decided(offer, FRESH, 1e6, RULES)
    assert offer.plan is None and verdict.action == "keep"
    assert verdict.reason.startswith("no other plan fits (79 GB a GPU held by others); the running")


def test_load_is_averaged_and_memory_is_not():
    last, now = Conditions(0.0, 0.0, 1.0, 0.0), Conditions(600.0, 1.0, 0.5, 9e9)
    keep = math.exp(-1.0)
    mean = smoothed(last, now, 600.0)
    assert mean.cpu_load == pytest.approx(1 - keep)
    assert mean.free_link == pytest.approx(keep + 0.5 * (1 - keep))
    assert (mean.taken_b, mean.time_s) == (9e9, 600.0)
    assert smoothed(None, now, 600.0) == now


@pytest.mark.parametrize(
    ("value_s", "words"), [(0.5, "500 ms"), (90, "90 s"), (150, "2 min"), (21600, "6 h")]
)
def test_spans_are_told_as_people_say_them(value_s, words):
    assert span(value_s) == words
