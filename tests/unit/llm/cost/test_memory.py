"""Bytes of the worst stage against the formulas and figures of Korthikanti et al. 2022."""

import numpy as np
import pytest

from trimtab.llm.cost import training
from trimtab.llm.cost.cases import FRAMEWORKS, cases
from trimtab.llm.cost.profiles import profiles
from trimtab.llm.spec import specs

A100 = specs.gpu("A100-SXM-80GB")
GIB = 2.0**30
# hidden, layers, heads, pp, interleave, micro-batch; GiB without recomputation, then with
# selective recomputation and sequence parallel, tensor parallel 8 and 2048 tokens
PUBLISHED = [
    (6144, 48, 64, 1, 1, 4, 59.25, 9.5625),
    (12288, 96, 96, 8, 3, 1, 66.84375, 12.3515625),
    (20480, 105, 128, 35, 3, 1, 114.0234375, 23.076171875),
    (25600, 128, 160, 64, 1, 1, 131.25, 26.5625),
]


def gpt(hidden=6144, layers=48, heads=64, gpus=8, vocab=51200.0, **plan):
    made = cases(specs.model("gpt3-175b"), A100, gpus, seq=2048, flash=0, **plan)
    made["hidden"], made["layers"], made["heads"], made["kv_heads"] = hidden, layers, heads, heads
    made["ffn"], made["head_dim"], made["vocab"] = 4 * hidden, hidden / heads, vocab
    return made


def gib(made, field):
    return float(training.cost(made)[field][0]) / GIB


@pytest.mark.parametrize("shape", PUBLISHED)
def test_activations_are_those_published(shape):
    hidden, layers, heads, pp, chunks, micro, none, selective = shape
    plan = {"gpus": 8 * pp, "tp": 8, "pp": pp, "interleave": chunks, "micro_batch": micro,
            "global_batch": 16 * pp * micro}  # fmt: skip
    bare = gpt(hidden, layers, heads, **plan)
    assert gib(bare, "activations_b") == pytest.approx(none, rel=1e-9)
    split = gpt(hidden, layers, heads, recompute=1, sequence_parallel=1, **plan)
    assert gib(split, "activations_b") == pytest.approx(selective, rel=1e-9)


def test_full_recomputation_keeps_two_bytes_a_hidden_value():
    # 2 s b h L = 2 x 2048 x 4 x 6144 x 48
    made = gpt(tp=8, micro_batch=4, recompute=2)
    assert gib(made, "activations_b") == pytest.approx(2 * 2048 * 4 * 6144 * 48 / GIB)


def test_states_of_mixed_adam_with_fp32_gradients_take_18_bytes_a_parameter():
    made = gpt(tp=8, micro_batch=4, recompute=2, vocab=0.0)
    made["learned_positions"], made["biases"] = 0, 0
    cost = training.cost(made)[0]
    count = 12 * 48 * 6144**2 + 48 * 2 * 6144
    states_b = cost["weights_b"] + cost["gradients_b"] + cost["optimiser_b"]
    assert states_b == pytest.approx(18 * count / 8, rel=1e-9)


@pytest.mark.parametrize(("zero", "bytes_each"), [(0, 18), (1, 6 + 12 / 8), (2, 2 + 16 / 8)])
def test_zero_divides_states_over_the_replicas(zero, bytes_each):
    made = gpt(zero=zero, vocab=0.0)
    made["learned_positions"], made["biases"] = 0, 0
    cost = training.cost(made)[0]
    count = 12 * 48 * 6144**2 + 48 * 2 * 6144
    states_b = cost["weights_b"] + cost["gradients_b"] + cost["optimiser_b"]
    assert states_b == pytest.approx(bytes_each * count, rel=1e-9)


def test_zero_3_takes_16_bytes_over_the_replicas_and_two_gathered_layers():
    fsdp = FRAMEWORKS.index("fsdp")
    made = gpt(zero=3, framework=fsdp, vocab=0.0)
    made["learned_positions"], made["biases"] = 0, 0
    cost = training.cost(made)[0]
    layer = 12 * 6144**2 + 2 * 6144
    states_b = cost["weights_b"] + cost["gradients_b"] + cost["optimiser_b"]
    assert states_b == pytest.approx(16 * 48 * layer / 8 + 2 * 2 * layer + 2 * layer, rel=1e-9)


@pytest.mark.parametrize("vocab", [51200.0, 250880.0])
def test_a_logit_takes_ten_bytes_and_tensor_parallel_divides_them(vocab):
    made = gpt(tp=8, micro_batch=4, recompute=2, vocab=vocab)
    assert gib(made, "logits_b") == pytest.approx(10 * 4 * 2048 * vocab / 8 / GIB)


def test_parts_add_up_to_the_whole():
    made = gpt(gpus=64, tp=8, pp=4, micro_batch=2, global_batch=64, zero=1, recompute=1)
    cost = training.cost(made)[0]
    parts = ("weights_b", "gradients_b", "optimiser_b", "activations_b", "logits_b", "working_b",
             "overhead_b")  # fmt: skip
    assert sum(cost[part] for part in parts) == pytest.approx(cost["memory_b"])


def test_a_pipeline_holds_as_many_micro_batches_as_it_has_stages_but_no_more_than_there_are():
    few = gpt(gpus=64, tp=8, pp=8, global_batch=2)
    many = gpt(gpus=64, tp=8, pp=8, global_batch=64)
    assert gib(many, "activations_b") == pytest.approx(4 * gib(few, "activations_b"))


def test_experts_are_spread_by_expert_parallel():
    model = specs.model("mixtral-8x7b")
    made = cases(model, A100, 64, ep=np.array([1, 8]), recompute=2, global_batch=64)
    cost = training.cost(made)
    expert_b = 3 * 4096 * 14336 * 8 * 32 * 2  # two bytes each of all experts
    saved_b = cost["weights_b"][0] - cost["weights_b"][1]
    assert saved_b == pytest.approx(expert_b * 7 / 8, rel=1e-6)


def test_parameters_of_a_whole_model_agree_with_the_specifications():
    for name in ("llama-3-70b", "mixtral-8x7b", "deepseek-v3", "gpt3-175b", "bloom-176b"):
        model = specs.model(name)
        made = cases(model, A100, 1, seq=model.max_seq)
        weights_b = float(training.cost(made)["weights_b"][0])
        assert weights_b / 2 == pytest.approx(specs.parameters(model), rel=2e-3), name


def test_what_a_framework_adds_grows_with_its_communicators():
    alone, many = gpt(micro_batch=1), gpt(gpus=64, tp=8, pp=4, global_batch=64)
    group_b = profiles()["group_b"][0]
    fragment = profiles()["fragment"][0]
    for made, groups in ((alone, 2), (many, 4)):
        cost = training.cost(made)[0]
        moving_b = cost["activations_b"] + cost["logits_b"] + cost["working_b"]
        fixed_b = cost["overhead_b"] - fragment * moving_b
        assert fixed_b == pytest.approx(profiles()["context_b"][0] + groups * group_b)
