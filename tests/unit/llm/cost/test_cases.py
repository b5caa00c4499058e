"""Rows of numbers from a model, a GPU and columns of plans."""

import numpy as np
import pytest

from trimtab.errors import PlanError
from trimtab.llm.cost.cases import (
    FRAMEWORKS,
    cases,
    fault,
    faults,
    framework_index,
    node_link_of,
)
from trimtab.llm.spec import specs

LLAMA, H100 = specs.model("llama-3-70b"), specs.gpu("H100")


def test_columns_broadcast_to_one_row_a_plan():
    made = cases(LLAMA, H100, 64, tp=np.array([1, 2, 4, 8]), micro_batch=2, global_batch=512)
    assert made.shape == (4,)
    assert made["dp"].tolist() == [64, 32, 16, 8]
    assert set(made["hidden"]) == {8192}


def test_a_plan_without_a_batch_has_one_micro_batch_a_replica():
    made = cases(LLAMA, H100, 64, tp=8, micro_batch=2)
    assert made["global_batch"][0] == 8 * 2


def test_gradients_are_summed_in_fp32_in_bf16_and_in_16_bits_in_fp16():
    made = cases(LLAMA, H100, 64, tp=8, precision=np.array([0, 1]))
    assert made["grad_bytes"].tolist() == [2, 4]


def test_a_field_that_does_not_exist_is_named():
    with pytest.raises(PlanError, match="'tensor'"):
        cases(LLAMA, H100, 64, tensor=8)


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ({"tp": 8, "dp": 3}, "gpus=64 is not tp x pp x dp x cp = 8 x 1 x 3 x 1"),
        ({"tp": 8, "pp": 8, "interleave": 16}, "layers=80 are fewer than pp x interleave"),
        ({"tp": 8, "global_batch": 12}, "global_batch=12 is not a multiple of dp x micro_batch"),
        ({"interleave": 2}, "interleave=2 needs pp of 2 or more"),
        ({"micro_batch": -1, "global_batch": 64}, "micro_batch=-1 must be a positive number"),
    ],
)
def test_an_impossible_plan_is_told_why(plan, words):
    made = cases(LLAMA, H100, 64, **plan)
    assert words in fault(made[0])


def test_heads_that_do_not_divide_are_a_fault():
    made = cases(specs.model("gpt2-small"), H100, 8, tp=8, micro_batch=1)
    assert fault(made[0]).startswith("heads=12 cannot be split over tp=8")


def test_a_legal_plan_has_no_fault():
    made = cases(LLAMA, H100, 64, tp=8, pp=4, global_batch=64)
    assert faults(made).tolist() == [0]
    assert fault(made[0]) == ""


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("Megatron-LM", "megatron"),
        ("Megatron-DeepSpeed", "deepspeed"),
        ("PyTorch FSDP", "fsdp"),
        ("llm-foundry", "composer"),
        ("torchtitan 0.1 (FSDP2)", "torchtitan"),
    ],
)
def test_frameworks_go_under_many_names(name, known):
    assert FRAMEWORKS[framework_index(name)] == known


def test_an_unknown_framework_names_those_there_are():
    with pytest.raises(PlanError, match="megatron, nemo"):
        framework_index("abacus")


def test_a_generation_without_an_entry_has_the_slow_network():
    assert node_link_of("Kepler") < node_link_of("Hopper")
