"""Which plans the planner looks at: all that a launcher takes, none that it refuses."""

from dataclasses import replace

import numpy as np
import pytest

from trimtab.errors import PlanError
from trimtab.llm.cost.cases import FRAMEWORKS, faults
from trimtab.llm.plan.legal import (
    ABILITIES,
    case_rows,
    divisors,
    gpu_counts,
    legal_plans,
    refuse,
    tensor_fault,
    tensor_widths,
)
from trimtab.llm.plan.question import question_of
from trimtab.llm.spec.specs import gpu, model

SMALL = replace(
    model("llama-2-7b"), name="small", hidden=512, layers=4, heads=4, kv_heads=2, ffn=1024
)


def small(gpus=4, **more):
    options = {"global_batch": 8, "seq": 2048, "framework": "megatron", **more}
    return question_of(SMALL, gpu("A100"), gpus, **options)


def layouts_of(plans):
    return {tuple(int(n) for n in row) for row in plans[["tp", "pp", "dp", "cp"]].tolist()}


def test_four_gpus_have_the_six_layouts_of_four_heads_and_four_layers():
    # tp and pp of 1, 2, 4 whose product divides 4; 2,048 tokens are too few to split
    want = {(1, 1, 4, 1), (1, 2, 2, 1), (1, 4, 1, 1), (2, 1, 2, 1), (2, 2, 1, 1), (4, 1, 1, 1)}
    assert layouts_of(legal_plans(small())) == want


def test_a_layout_lists_every_micro_batch_chunk_zero_and_recompute():
    plans = legal_plans(small())
    block = plans[(plans["tp"] == 1) & (plans["pp"] == 2)]
    # share of a replica 8 / 2 = 4: micro-batches 1, 2, 4 are 4, 2, 1 a step; two chunks of one
    # layer need whole groups of two, so not with 4; ZeRO 0, 1; recompute none, full
    want = {(1, 1), (2, 1), (4, 1), (1, 2), (2, 2)}
    assert set(block[["micro_batch", "interleave"]].tolist()) == want
    assert len(block) == len(want) * 2 * 2


@pytest.mark.parametrize("name", ["llama-3-70b", "mixtral-8x7b", "bloom-176b", "deepseek-v3"])
@pytest.mark.parametrize("framework", ["", "deepspeed", "nemo"])
def test_the_cost_model_finds_no_fault_in_any_plan(name, framework):
    question = question_of(model(name), gpu("H200"), 192, framework=framework)
    plans = legal_plans(question)
    assert len(plans) > 100
    rows = case_rows(question, plans)
    assert not faults(rows).any()
    assert (rows["gpus"] == rows["tp"] * rows["pp"] * rows["dp"] * rows["cp"]).all()


def test_frameworks_are_told_only_what_they_can_do():
    plans = legal_plans(question_of(model("llama-3-8b"), gpu("H100"), 16, framework="fsdp"))
    assert (plans[["tp", "pp", "cp"]].tolist() == np.array([(1, 1, 1)] * len(plans))).all()
    assert set(plans["zero"]) == {2, 3}
    plans = legal_plans(question_of(model("llama-3-8b"), gpu("H100"), 16, framework="deepspeed"))
    assert set(plans["zero"][plans["pp"] == 1]) == {0, 1, 2, 3}
    assert set(plans["zero"][(plans["pp"] > 1) & (plans["dp"] > 1)]) == {0, 1}
    assert set(plans["interleave"]) == {1}


def test_fixed_fields_are_kept():
    question = question_of(
        model("llama-3-8b"), gpu("H100"), 16, tp=2, micro_batch=2, recompute="full"
    )
    plans = legal_plans(question)
    assert len(plans)
    assert set(plans["tp"]) == set(plans["micro_batch"]) == set(plans["recompute"]) == {2}


def test_tensor_parallel_splits_heads_and_blocks_and_splits_or_copies_kv_heads():
    wide = replace(SMALL, heads=12, kv_heads=4, head_dim=64, ffn=1536)
    # 6 divides heads and ffn, but 4 KV heads can neither be split nor copied over 6
    assert tensor_widths(wide, 8) == [1, 2, 4, 12]
    assert "kv_heads=4" in tensor_fault(wide, 6)
    assert "heads=12" in tensor_fault(wide, 5)
    assert "ffn=1537" in tensor_fault(replace(wide, ffn=1537), 2)


def test_expert_parallel_divides_experts_and_data_ranks():
    plans = legal_plans(question_of(model("mixtral-8x7b"), gpu("H200"), 16))
    assert set(plans["ep"]) == {1, 2, 4, 8}
    assert ((plans["dp"] * plans["cp"]) % plans["ep"] == 0).all()


def test_long_sequences_are_split_and_short_ones_are_not():
    short = legal_plans(question_of(model("llama-3.1-8b"), gpu("H100"), 8, seq=4096))
    long = legal_plans(
        question_of(model("llama-3.1-8b"), gpu("H100"), 8, seq=131072, global_batch=8)
    )
    assert set(short["cp"]) == {1}
    assert set(long["cp"]) == {1, 2, 4, 8}


@pytest.mark.parametrize(("gpus", "want"), [(64, [64]), (65, [64]), (3, [3, 2]), (56, [56, 32])])
def test_gpus_are_taken_in_whole_nodes_or_a_power_of_two(gpus, want):
    assert gpu_counts(question_of(model("llama-3-8b"), gpu("H100"), gpus)) == want


def test_a_free_count_climbs_by_halves_and_whole_nodes():
    question = question_of(model("llama-3-8b"), gpu("H100"), 64, up_to=True)
    assert gpu_counts(question) == [1, 2, 3, 4, 6, 8, 16, 24, 32, 48, 64]


def test_plans_that_cannot_hold_their_states_are_left_out_before_pricing():
    plans = legal_plans(question_of(model("llama-3-70b"), gpu("H100"), 64, framework="megatron"))
    # 70.6e9 parameters x 4 B of weights and gradients / 2 stages > 1.1 x 80e9 B
    assert not ((plans["tp"] == 1) & (plans["pp"] <= 2)).any()


def test_divisors_ascend():
    assert divisors(36) == [1, 2, 3, 4, 6, 9, 12, 18, 36]
    assert divisors(1) == [1]


@pytest.mark.parametrize(
    ("fixed", "sentence"),
    [
        ({"tp": 3}, "heads=4 cannot be split over tp=3; take a tp of 1, 2, 4"),
        ({"pp": 8}, "pp x interleave = 8 x 1 exceeds layers=4; lower one of them"),
        ({"dp": 3}, "tp x pp x dp x cp = 1 x 1 x 3 x 1 does not divide gpus=4"),
        ({"dp": 4, "micro_batch": 4}, "4 x 4 = 16 does not divide a batch of 8; take --batch 16"),
        ({"ep": 2}, "small has no experts; leave --ep out"),
        ({"interleave": 2, "pp": 1}, "interleave=2 needs pp of 2 or more"),
        ({"interleave": 3}, "layers=4 do not divide into 3 like chunks"),
        ({"interleave": 2, "pp": 2, "micro_batch": 8}, "1 micro-batches a replica are no multiple"),
        ({"cp": 4, "seq": 1004}, "seq=1004 has no 8 like pieces for cp=4"),
        ({"zero": 3, "pp": 2}, "zero=3 would gather weights for every micro-batch"),
        ({"zero": 3}, "zero=3 is nothing megatron can do; take --framework torchtitan"),
    ],
)
def test_a_wish_that_no_plan_meets_is_refused_with_its_remedy(fixed, sentence):
    question = small(**fixed)
    assert not len(legal_plans(question))
    with pytest.raises(PlanError) as refused:
        refuse(question)
    assert sentence in str(refused.value)


def test_a_batch_below_the_replicas_names_the_batch_that_would_do():
    question = small(gpus=64, global_batch=2)
    assert not len(legal_plans(question))
    # at most tp 4 x pp 4 = 16 GPUs a replica, so 4 replicas
    with pytest.raises(PlanError, match=r"batch of 2 .* 4 or more replicas .* multiple of 4"):
        refuse(question)


def test_every_framework_has_its_abilities():
    assert tuple(ABILITIES) == FRAMEWORKS
