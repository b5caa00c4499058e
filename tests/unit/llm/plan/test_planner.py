"""The best plans: nothing legal that fits is better, and what cannot run says what would."""

import numpy as np
import pytest

from trimtab.errors import PlanError
from trimtab.llm.cost import intervals, training
from trimtab.llm.plan.legal import PLAN, case_rows, legal_plans
from trimtab.llm.plan.planner import (
    EQUAL,
    PRICED,
    amount,
    distinct,
    fewest,
    layout_words,
    planned,
    price,
    ranked,
)
from trimtab.llm.plan.question import default_batch, question_of, weights
from trimtab.llm.spec.specs import gpu, model


@pytest.fixture(scope="module")
def question():
    return question_of(model("llama-3-8b"), gpu("H100"), 16, global_batch=64)


@pytest.fixture(scope="module")
def answer(question):
    return planned(question, top=8)


def test_no_legal_plan_that_fits_is_faster_than_the_first(question, answer):
    rows = case_rows(question, legal_plans(question))
    costs = training.cost(rows)
    fits = intervals.p_fit(costs, rows) >= 0.9
    fastest_s = costs["step_s"][fits].min()
    assert answer.costs["step_s"][0] <= fastest_s * np.exp(EQUAL) * (1 + 1e-12)
    assert (answer.legal, answer.fitting) == (len(rows), fits.sum())


def test_ranked_plans_fit_are_of_different_layouts_and_carry_an_interval(answer):
    assert (answer.p_fit >= 0.9).all()
    names = ["gpus", "framework", "tp", "pp", "dp", "cp", "ep"]
    assert len(set(answer.cases[names].tolist())) == len(answer.cases) == 8
    assert (answer.low_s < answer.costs["step_s"]).all()
    assert (answer.high_s > answer.costs["step_s"]).all()


def test_later_plans_are_slower(answer):
    bands = np.log(answer.costs["step_s"] / answer.costs["step_s"].min())
    assert (np.diff(bands) > -EQUAL).all()


def test_a_higher_chance_to_fit_leaves_fewer_plans(question):
    safe = planned(
        question_of(question.model, question.gpu, 16, global_batch=64, least_p_fit=0.999)
    )
    assert safe.fitting < planned(question).fitting
    assert (safe.p_fit >= 0.999).all()


def test_energy_and_cost_are_least_where_they_are_the_objective():
    options = {"global_batch": 128, "up_to": True}
    best = {
        name: planned(question_of(model("llama-3-8b"), gpu("A100"), 64, objective=name, **options))
        for name in ("time", "cost", "energy")
    }

    def of(name, answer):
        first = slice(0, 1)
        gpus = answer.cases["gpus"][first]
        return float(amount(answer.question, name, gpus, answer.costs[first])[0])

    for name, answer in best.items():
        assert of(name, answer) <= min(of(name, other) for other in best.values()) * 1.006
    assert best["time"].cases["gpus"][0] > best["cost"].cases["gpus"][0]


def test_gpus_that_are_held_and_idle_are_paid_for():
    question = question_of(model("llama-3-8b"), gpu("A100"), 64, price_hour=3.6)
    costs = np.zeros(1, [("step_s", "f8"), ("energy_j", "f8")])
    costs["step_s"], costs["energy_j"] = 10.0, 500.0
    # 64 GPUs x 10 s x 3.6 / 3,600 s; 32 idle ones draw a fifth of 400 W for 10 s
    assert amount(question, "cost", np.array([32]), costs)[0] == pytest.approx(0.64)
    assert amount(question, "energy", np.array([32]), costs)[0] == pytest.approx(500 + 25600)


def test_of_plans_within_half_a_percent_the_one_more_likely_to_fit_goes_first():
    plans, priced = np.zeros(3, PLAN), np.zeros(3, PRICED)
    priced["p_fit"] = 0.91, 0.99, 1.0
    scores = np.log([1.0, 1.003, 1.02])
    assert ranked(scores, plans, priced).tolist() == [1, 0, 2]


def test_one_plan_of_each_layout_is_kept_in_order():
    plans = np.zeros(4, PLAN)
    plans["tp"] = 2, 2, 1, 4
    plans["micro_batch"] = 1, 2, 1, 1
    assert distinct(plans, 2).tolist() == [0, 2]
    assert distinct(plans, 9).tolist() == [0, 2, 3]


def test_a_model_that_does_not_fit_names_the_fewest_gpus_and_those_fit():
    question = question_of(model("llama-3-70b"), gpu("A100-40GB"), 8)
    with pytest.raises(PlanError) as refused:
        planned(question)
    count = fewest(question)
    assert f"needs {_needed(refused)} GB of 40 GB a GPU" in str(refused.value)
    assert f"{count} GPUs of this kind are the fewest that would" in str(refused.value)
    again = question_of(
        model("llama-3-70b"), gpu("A100-40GB"), count, global_batch=question.global_batch
    )
    assert planned(again).p_fit[0] >= 0.9
    fewer = question_of(
        model("llama-3-70b"), gpu("A100-40GB"), count - 8, global_batch=question.global_batch
    )
    with pytest.raises(PlanError, match="does not fit"):
        planned(fewer)


def _needed(refused):
    needed = str(refused.value).split("needs ")[1].split(" GB")[0]
    assert float(needed.replace(",", "")) > 40
    return needed


def test_a_thousand_gpus_need_under_a_million_plans_and_every_one_is_priced():
    for name in ("llama-3-70b", "llama-3.1-405b", "deepseek-v3"):
        question = question_of(model(name), gpu("H100"), 1024)
        plans = legal_plans(question)
        assert 1000 < len(plans) < 1_000_000
        assert (price(question, plans)["step_s"] > 0).all()


def test_left_out_fields_are_filled_in_and_said():
    question = question_of(model("llama-3-70b"), gpu("H100"), 64)
    assert (question.seq, question.global_batch) == (8192, 512)  # 4M tokens for 70B parameters
    said = " ".join(question.notes)
    assert "8192 tokens: default" in said
    assert "512 sequences (4.19M tokens): default" in said
    assert "400 Gb/s between nodes" in said


@pytest.mark.parametrize(("gpus", "batch"), [(64, 512), (48, 528), (1000, 500), (96, 480)])
def test_the_default_batch_is_one_that_the_gpus_can_share(gpus, batch):
    # 2**22 tokens / 8,192 = 512: multiples of 64, 48 and 96; 1,000 = 125 x 8 shares 125 x 4
    assert default_batch(model("llama-3-70b"), 8192, gpus, []) == batch


def test_gpus_without_bf16_get_fp16():
    question = question_of(model("llama-2-7b"), gpu("V100"), 8, precision="bf16")
    assert question.precision == 0
    assert not question.flash
    assert any("has no bf16" in note for note in question.notes)
    with pytest.raises(PlanError, match=r"fp8 is beyond V100.*take fp16"):
        question_of(model("llama-2-7b"), gpu("V100"), 8, precision="fp8")


def test_weights_of_a_mix_sum_to_one():
    assert weights("time=3, energy=1") == {"time": 0.75, "energy": 0.25}
    for text in ("speed", "time=-1", "time=x", "time=0"):
        with pytest.raises(PlanError, match="objective"):
            weights(text)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"gpus": 0}, "gpus=0 leaves nothing"),
        ({"seq": -1}, "seq=-1 is negative"),
        ({"least_p_fit": 1.5}, "p_fit=1.5 is no chance"),
        ({"node_link_bps": -1e9}, "node-link-gbps=-8 is not a usable number"),
        ({"recompute": "half"}, "recompute='half' is not known; take one of none, selective, full"),
        ({"zero": 4}, "zero=4 is out of range; take 0 to 3"),
        ({"depth": 4}, "'depth' cannot be fixed"),
        ({"framework": "jax"}, "framework='jax' is not known"),
    ],
)
def test_a_number_out_of_range_is_refused_by_name(options, sentence):
    gpus = options.pop("gpus", 8)
    with pytest.raises(PlanError, match=sentence):
        question_of(model("llama-3-8b"), gpu("H100"), gpus, **options)


def test_a_plan_reads_as_words():
    plan = np.zeros((), PLAN)
    for name in ("tp", "pp", "dp", "cp", "ep", "interleave", "micro_batch"):
        plan[name] = 1
    assert layout_words(plan) == "TP 1, PP 1, DP 1, micro-batch 1, no recompute"
    plan["cp"], plan["interleave"], plan["zero"], plan["recompute"] = 2, 3, 1, 2
    want = "TP 1, PP 1, DP 1, CP 2, 3 chunks a stage, ZeRO-1, micro-batch 1, full recompute"
    assert layout_words(plan) == want
