"""Pipelines over several kinds of GPU: layers by speed, one answer where kinds are alike."""

from dataclasses import replace

import numpy as np
import pytest

from trimtab.errors import PlanError
from trimtab.llm.cost import training
from trimtab.llm.cost.cases import FRAMEWORKS, cases
from trimtab.llm.plan.mixed import balanced, mixed
from trimtab.llm.plan.pool_plan import pool_planned, pool_questions
from trimtab.llm.plan.question import question_of
from trimtab.llm.spec.pool import Share
from trimtab.llm.spec.specs import gpu, model


def test_layers_go_by_speed():
    # stages of 1 and 2 s a layer: 6 x 1 = 3 x 2
    out = balanced(np.array([[1.0, 2.0]]), np.zeros((1, 2)), np.full((1, 2), 99.0), 9)
    assert out.tolist() == [[6, 3]]


def test_what_a_stage_does_besides_layers_takes_layers_from_it():
    # 5 s of logits on the last of two like stages: 7 x 1 s and 3 x 1 + 5 s are 8 s at most
    out = balanced(np.array([[1.0, 1.0]]), np.array([[0.0, 5.0]]), np.full((1, 2), 99.0), 10)
    assert out.sum() == 10
    assert (out * 1.0 + [0, 5]).max() == 8


def test_memory_caps_the_layers_of_a_stage_and_others_take_them():
    out = balanced(np.array([[1.0, 2.0]]), np.zeros((1, 2)), np.array([[4.0, 99.0]]), 9)
    assert out.tolist() == [[4, 5]]
    short = balanced(np.array([[1.0, 2.0]]), np.zeros((1, 2)), np.array([[4.0, 4.0]]), 9)
    assert short.sum() < 9


def test_the_slowest_stage_is_as_fast_as_any_split_makes_it():
    rng = np.random.default_rng(3)
    each_s, extra_s = rng.uniform(0.5, 3, (20, 3)), rng.uniform(0, 4, (20, 3))
    out = balanced(each_s, extra_s, np.full((20, 3), 99.0), 12)
    splits = np.array([(a, b, 12 - a - b) for a in range(13) for b in range(13 - a)])
    for way in range(20):
        best_s = (splits * each_s[way] + extra_s[way]).max(1).min()
        assert (out[way] * each_s[way] + extra_s[way]).max() == pytest.approx(best_s)


def test_two_like_kinds_cost_what_one_pipeline_of_that_kind_costs():
    twin = replace(gpu("H100"), name="twin")
    fixed = {"tp": 4, "dp": 4, "micro_batch": 1, "zero": 1, "recompute": "none"}
    options = {"global_batch": 512, "framework": "megatron", "seq": 4096, **fixed}
    kinds = [question_of(model("llama-2-70b"), kind, 32, **options) for kind in (gpu("H100"), twin)]
    found = mixed(kinds)
    assert found is not None
    assert (found.stages, found.gpus, found.plan["pp"]) == ((2, 2), 64, 4)
    row = cases(
        model("llama-2-70b"), gpu("H100"), 64, seq=4096, global_batch=512, tp=4, pp=4, dp=4,
        zero=1, sequence_parallel=1, framework=FRAMEWORKS.index("megatron"),
    )  # fmt: skip
    cost = training.cost(row)
    # the split may also beat the even one, as the last stage holds the logits
    assert found.step_s == pytest.approx(cost["step_s"][0], rel=0.05)
    assert max(found.memory_b) == pytest.approx(cost["memory_b"][0], rel=0.05)
    assert found.energy_j == pytest.approx(cost["energy_j"][0], rel=0.1)


def test_the_faster_kind_gets_more_layers_and_the_mix_beats_both_alone():
    pool = (Share(16, gpu("H100")), Share(16, gpu("A100")))
    answer = pool_planned(pool_questions(model("llama-3-8b"), pool, framework="megatron"))
    found = answer.mixed
    assert answer.best == -1
    assert found is not None
    assert sum(found.stage_layers) == 32
    assert found.p_fit >= 0.9
    assert found.low_s < found.step_s < found.high_s
    assert all(found.step_s < alone.costs["step_s"][0] for alone in answer.alone)
    by_kind = {}
    for kind, layers in zip(
        np.repeat([k.gpu.name for k in found.kinds], found.stages), found.stage_layers
    ):
        by_kind.setdefault(kind, []).append(layers)
    assert np.mean(by_kind["H100-SXM5"]) > np.mean(by_kind["A100-SXM-80GB"])


def test_a_kind_that_only_slows_the_others_down_is_left_out():
    slow = replace(gpu("A100"), name="slow", flops=1e12, fp32_flops=1e11, memory_bps=1e10)
    pool = (Share(32, gpu("H100")), Share(8, slow))
    answer = pool_planned(pool_questions(model("llama-3-8b"), pool, framework="megatron"))
    assert answer.best == 0


def test_kinds_share_batch_sequence_and_the_precision_of_the_oldest():
    pool = (Share(8, gpu("A100")), Share(16, gpu("V100")))
    questions = pool_questions(model("llama-2-7b"), pool)
    assert len({q.global_batch for q in questions}) == len({q.seq for q in questions}) == 1
    assert {q.precision for q in questions} == {0}
    assert questions[0].global_batch % 16 == 0


def test_kinds_change_at_the_end_of_a_node():
    pool = (Share(16, gpu("H100")), Share(24, gpu("A100")))
    found = mixed(pool_questions(model("llama-2-70b"), pool, framework="megatron"))
    assert found is not None
    width = found.plan["tp"] * found.plan["dp"]
    assert all(count * width % 8 == 0 for count in found.stages)


def test_a_pool_in_which_nothing_fits_says_what_would():
    pool = (Share(1, gpu("T4")), Share(1, gpu("V100")))
    with pytest.raises(PlanError, match="fewest that would"):
        pool_planned(pool_questions(model("llama-3.1-405b"), pool))


def test_a_free_count_asks_for_one_kind():
    pool = (Share(8, gpu("A100")), Share(8, gpu("H100")))
    with pytest.raises(PlanError, match="one kind"):
        pool_questions(model("llama-3-8b"), pool, up_to=True)


def test_frameworks_without_a_pipeline_are_not_mixed():
    kinds = [
        question_of(model("llama-3-8b"), gpu(k), 8, framework="fsdp") for k in ("H100", "A100")
    ]
    assert mixed(kinds) is None
