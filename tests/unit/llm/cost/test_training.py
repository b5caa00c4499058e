"""Step time: arithmetic that must hold whatever the constants are."""

from dataclasses import replace

import numpy as np
import pytest

from trimtab.llm.cost import training
from trimtab.llm.cost.cases import FRAMEWORKS, cases
from trimtab.llm.cost.kernels import HOT
from trimtab.llm.cost.profiles import Training, law_rows
from trimtab.llm.spec import specs

A100, H100 = specs.gpu("A100-SXM-80GB"), specs.gpu("H100")
GPT, LLAMA = specs.model("gpt3-175b"), specs.model("llama-3-70b")
PARTS = ("compute_s", "again_s", "tp_s", "cp_s", "ep_s", "pp_s", "bubble_s", "dp_s",
         "optimiser_s", "overhead_s")  # fmt: skip


def one(model, gpu, gpus, **plan):
    return training.cost(cases(model, gpu, gpus, **plan))[0]


@pytest.mark.parametrize(("recompute", "factor", "share"), [(0, 72, 12), (2, 96, 16)])
def test_flop_are_counted_as_megatron_counts_them(recompute, factor, share):
    # 72 B s L h^2 (1 + s/6h + V/12Lh), 96 and V/16Lh with full recomputation
    cost = one(GPT, A100, 64, tp=8, pp=8, global_batch=64, seq=2048, recompute=recompute)
    h, layers, vocab, s = GPT.hidden, GPT.layers, GPT.vocab, 2048
    want = factor * 64 * s * layers * h**2 * (1 + s / (6 * h) + vocab / (share * layers * h))
    assert cost["hardware_flop"] == pytest.approx(want, rel=1e-9)


def test_the_step_is_the_sum_of_its_parts():
    plans = {"tp": 8, "pp": np.array([1, 2, 4, 8]), "global_batch": 512, "zero": 1}
    costs = training.cost(cases(LLAMA, H100, 256, **plans))
    assert np.allclose(sum(costs[part] for part in PARTS), costs["step_s"])


def test_separate_kernels_move_more_bytes_and_no_more_flop():
    v100 = specs.gpu("V100")
    plan = {"global_batch": 8, "micro_batch": 8, "seq": 1024, "flash": 0, "precision": 0}
    fused, eager = (one(specs.model("gpt2-xl"), v100, 1, eager=e, **plan) for e in (0, 1))
    assert eager["hardware_flop"] == fused["hardware_flop"]
    assert eager["memory_b"] == fused["memory_b"]
    assert 1.2 < eager["step_s"] / fused["step_s"] < 2.0


def test_a_gpu_that_was_measured_hot_takes_that_over_the_power_law():
    rows = cases(LLAMA, H100, 64, tp=8, global_batch=64)
    laws = law_rows().copy()
    usual = training.cost(rows)[0]
    laws[:, HOT] = 3.0
    hot = training.cost(rows, laws=laws)[0]
    assert hot["compute_s"] > 1.5 * usual["compute_s"]
    assert hot["tp_s"] == usual["tp_s"]


def test_a_chip_that_is_let_too_few_watts_runs_below_its_listed_speed():
    # of the same generation, a T4 has 65e12 FLOP/s at 70 W and a Titan RTX 130.5e12 at 280 W
    shares = []
    for name in ("T4", "Titan RTX"):
        gpu = specs.gpu(name)
        made = cases(specs.model("gpt2-xl"), gpu, 1, micro_batch=1, flash=0, precision=0)
        made["memory_bps"] = 1e15  # products alone
        shares.append(training.cost(made)[0]["hfu"])
    assert shares[0] < 0.85 * shares[1]


def test_sharded_experts_are_gathered_for_every_pass_too():
    # Mixtral's experts, 45e9 parameters of 16 bits over 8 expert ranks: 11 GB a pass on a card
    mixtral, slow = specs.model("mixtral-8x7b"), 1e9
    made = cases(mixtral, H100, 64, ep=8, zero=3, global_batch=64, node_link_bps=slow,
                 framework=FRAMEWORKS.index("torchtitan"))  # fmt: skip
    experts_b = 32 * 8 / 8 * 3 * 4096 * 14336 * 2
    cost = training.cost(made)[0]
    # eight nodes of eight: one rank of each set of experts a node, so a ring of eight cards
    passes_s = 2 * experts_b * 7 / 8 / slow
    assert cost["dp_s"] > passes_s
    made["zero"] = 1  # gathered once a step, hidden or not
    assert training.cost(made)[0]["dp_s"] < 0.8 * cost["dp_s"]


def test_an_even_pipeline_idles_p_minus_1_over_m():
    made = cases(GPT, A100, 64, tp=8, pp=8, global_batch=64, flash=0)
    made["vocab"] = 8  # no logits to speak of: stages are alike
    cost = training.cost(made)[0]
    busy_s = cost["step_s"] - cost["bubble_s"] - cost["optimiser_s"] - cost["overhead_s"]
    assert cost["bubble_s"] == pytest.approx(busy_s * 7 / 64, rel=0.02)


def test_interleaving_divides_the_bubble_and_sends_more():
    plans = {"tp": 8, "pp": 8, "global_batch": 64}
    plain, chunks = (one(GPT, A100, 64, interleave=v, flash=0, **plans) for v in (1, 3))
    # chunks send more, so the stages' own time grows a little
    assert chunks["bubble_s"] == pytest.approx(plain["bubble_s"] / 3, rel=0.05)
    assert chunks["pp_s"] == pytest.approx(3 * plain["pp_s"], rel=1e-6)
    # software with fused attention sends beside other chunks' work
    assert one(GPT, A100, 64, interleave=3, **plans)["pp_s"] < plain["pp_s"]


def test_a_quarter_million_words_make_the_last_stage_the_slow_one():
    made = cases(GPT, A100, 64, tp=8, pp=8, global_batch=64)
    wide = made.copy()
    wide["vocab"] = 250880
    small, large = training.cost(made)[0], training.cost(wide)[0]
    # more than the mean over stages: every micro-batch waits for the last one
    extra_s = 64 * (large["compute_s"] - small["compute_s"]) / 64
    mean_s = (large["model_flop"] - small["model_flop"]) / (64 * A100.flops)
    assert extra_s > 4 * mean_s


def test_layers_that_do_not_divide_cost_as_the_longest_stage():
    made = cases(LLAMA, H100, 64, tp=8, pp=8, global_batch=512)
    made["vocab"] = 8  # else the last stage is the slow one either way
    uneven = made.copy()
    uneven["layers"] = 81
    longer = training.cost(uneven)["compute_s"][0] / training.cost(made)["compute_s"][0]
    assert longer == pytest.approx(11 / 10, rel=0.03)


def test_tensor_parallel_across_nodes_is_slower_than_inside():
    inside = one(LLAMA, H100, 64, tp=8, global_batch=64)
    across = one(LLAMA, H100, 64, tp=16, global_batch=64)
    assert across["tp_s"] > 2 * inside["tp_s"]


def test_full_recomputation_adds_a_forward_pass():
    none = one(LLAMA, H100, 64, tp=8, global_batch=64)
    full = one(LLAMA, H100, 64, tp=8, global_batch=64, recompute=2)
    assert full["again_s"] == pytest.approx(none["compute_s"] / 3, rel=0.1)
    assert full["tp_s"] == pytest.approx(1.5 * none["tp_s"])


def test_selective_recomputation_is_free_with_fused_attention():
    plan = {"tp": 8, "global_batch": 64, "recompute": 1}
    assert one(LLAMA, H100, 64, **plan)["again_s"] == 0
    assert one(LLAMA, H100, 64, flash=0, **plan)["again_s"] > 0


def test_an_h100_is_faster_but_reaches_less_of_its_peak():
    plan = {"zero": 3, "framework": FRAMEWORKS.index("fsdp"), "micro_batch": 2, "recompute": 2}
    new, old = one(LLAMA, H100, 128, **plan), one(LLAMA, A100, 128, **plan)
    assert new["tokens_s_gpu"] > 1.5 * old["tokens_s_gpu"]
    assert new["mfu"] < 0.9 * old["mfu"]


def test_sharded_weights_on_a_slow_network_cannot_hide():
    plan = {"zero": 3, "framework": FRAMEWORKS.index("fsdp"), "recompute": 2}
    fast, slow = (one(LLAMA, H100, 64, node_link_bps=bps, **plan) for bps in (50e9, 1e9))
    assert fast["dp_s"] < 0.3 * fast["step_s"]
    assert slow["dp_s"] > 0.5 * slow["step_s"]


def test_zero_1_moves_as_much_as_an_all_reduce():
    plan = {"tp": 8, "precision": 0, "flash": 0, "global_batch": 64}
    whole, sharded = (one(GPT, A100, 64, zero=zero, **plan) for zero in (0, 1))
    assert sharded["dp_s"] == pytest.approx(whole["dp_s"], rel=0.02)
    assert sharded["optimiser_s"] < 0.2 * whole["optimiser_s"]


def test_small_layers_wait_for_the_host():
    small = specs.model("gpt2-small")
    fast = one(small, H100, 8, micro_batch=1, seq=128)
    twice = one(small, H100, 8, micro_batch=2, seq=128)
    assert twice["compute_s"] < 1.2 * fast["compute_s"]


def test_fp8_speeds_up_linear_layers_by_less_than_the_peak():
    half, eighth = (one(LLAMA, H100, 64, tp=8, global_batch=64, precision=p) for p in (1, 2))
    assert 1.2 < half["compute_s"] / eighth["compute_s"] < 2.0


def test_context_parallel_divides_the_sequence():
    plan = {"seq": 131072, "tp": 8, "recompute": 2}
    whole = one(LLAMA, H100, 64, cp=1, global_batch=8, **plan)
    split = one(LLAMA, H100, 64, cp=8, global_batch=8, **plan)
    assert split["activations_b"] == pytest.approx(whole["activations_b"] / 8)
    assert split["step_s"] == pytest.approx(whole["step_s"], rel=0.25)


def test_experts_cost_what_a_token_meets_plus_the_exchange():
    model = specs.model("mixtral-8x7b")
    cost = one(model, H100, 64, ep=8, global_batch=256, seq=4096, zero=1)
    few = replace(model, experts=model.active_experts)
    active = specs.parameters(few) - specs.embedding_parameters(few)
    attention = 12 * model.layers * 4096 * model.hidden * 256 * 4096
    want = 6 * active * 256 * 4096 + attention
    assert cost["model_flop"] == pytest.approx(want, rel=0.02)
    assert cost["ep_s"] > 0


def test_energy_is_power_over_the_step_on_all_gpus():
    cost = one(LLAMA, H100, 64, tp=8, global_batch=64)
    assert cost["energy_j"] == pytest.approx(cost["power_w"] * 64 * cost["step_s"])
    assert 0.2 * H100.tdp_w < cost["power_w"] <= H100.tdp_w


def test_constants_may_be_given():
    made = cases(LLAMA, H100, 64, tp=8, global_batch=64)
    slow = training.cost(made, Training(gemm_slow=2.0))["compute_s"][0]
    fast = training.cost(made, Training(gemm_slow=1.0))["compute_s"][0]
    assert 1.5 < slow / fast < 2.0


def test_a_row_does_not_depend_on_its_neighbours():
    made = cases(LLAMA, H100, 64, tp=np.array([1, 8]), pp=4, global_batch=64)
    each = np.concatenate([training.cost(made[i : i + 1]) for i in range(2)])
    assert (training.cost(made) == each).all()


def test_pieces_add_up_to_an_even_pipeline():
    made = cases(GPT, A100, 64, tp=8, pp=8, global_batch=64)
    cost, piece = training.cost(made)[0], training.pieces(made)[0]
    last_s = 12 * piece["layer_s"] + piece["head_s"] + piece["message_s"]
    whole_s = 96 * piece["layer_s"] + piece["head_s"] + piece["table_s"] + 14 * piece["message_s"]
    busy_s = sum(cost[part] for part in ("compute_s", "again_s", "tp_s", "pp_s"))
    assert busy_s == pytest.approx(64 * last_s)
    assert cost["bubble_s"] == pytest.approx(whole_s - last_s)
