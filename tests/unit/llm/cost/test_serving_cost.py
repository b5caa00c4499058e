"""What serving takes: known sizes, limits of memory, and the host's part."""

import numpy as np
import pytest

from trimtab.errors import PlanError
from trimtab.llm.cost.serving_cases import serving_cases
from trimtab.llm.cost.serving_cost import serving_cost
from trimtab.llm.spec import specs


def cost(model: str, gpu: str, **serve: object) -> np.ndarray:
    return serving_cost(serving_cases(specs.model(model), specs.gpu(gpu), **serve))


def test_a_token_of_llama_2_70b_holds_320_kib_of_cache():
    # 2 x 80 layers x 8 heads x 128 numbers x 2 bytes
    assert cost("llama-2-70b", "A100-SXM-80GB", tp=1)["kv_token_b"][0] == 327680


def test_ranks_beyond_the_key_heads_hold_copies_of_the_cache():
    found = cost("llama-2-70b", "A100-SXM-80GB", tp=np.array([4, 8, 16]), per_node=16)
    assert list(found["kv_token_b"]) == [81920, 40960, 40960]


def test_latent_attention_keeps_one_small_vector_a_token():
    found = cost("deepseek-v3", "H200", tp=np.array([1, 8]))
    assert list(found["kv_token_b"]) == [61 * (512 + 64) * 2] * 2


def test_weights_take_two_bytes_a_parameter_split_over_the_ranks():
    parameters = specs.parameters(specs.model("llama-2-70b"))
    found = cost("llama-2-70b", "A100-SXM-80GB", tp=8)
    assert found["weights_b"][0] == pytest.approx(2 * parameters / 8, rel=0.001)


def test_weights_that_do_not_fit_leave_room_for_no_sequence():
    found = cost("llama-2-70b", "A100-SXM-80GB", tp=np.array([1, 2]))
    assert found["max_batch"][0] == 0
    assert found["max_batch"][1] > 0


def test_two_a100_hold_32_but_not_64_sequences_of_llama_2_70b():
    # a published run served 64 sequences of 640 tokens in parts
    found = cost("llama-2-70b", "A100-SXM-80GB", tp=2, prompt=512, generated=128, batch=64)
    assert 32 <= found["max_batch"][0] < 64


def test_four_and_eight_gpus_decode_alike_where_the_host_is_slower():
    # published: 45 ms both; bandwidth alone would allow 17 and 8.6 ms
    four, eight = cost("llama-2-70b", "A100-SXM-80GB", tp=np.array([4, 8]), chunk=0)
    assert four["decode_s"] == pytest.approx(0.045, rel=0.1)
    assert eight["decode_s"] == pytest.approx(four["decode_s"], rel=0.1)
    assert eight["host_s"] > 1.5 * eight["gpu_s"]


def test_two_gpus_decode_at_the_speed_of_their_memory():
    two = cost("llama-2-70b", "A100-SXM-80GB", tp=2)[0]
    assert two["gpu_s"] > two["host_s"]
    assert two["gpu_s"] > 69e9 / 2039e9


def test_cpu_load_lengthens_tokens_that_wait_for_the_host():
    loads = np.array([0.0, 0.5, 0.9, 1.0])
    found = cost("llama-2-70b", "H100", tp=8, cpu_load=loads)
    assert (np.diff(found["decode_s"]) > 0).all()
    assert np.isfinite(found["decode_s"]).all()
    assert (found["gpu_s"] == found["gpu_s"][0]).all()


def test_captured_graphs_take_the_host_out_of_the_layers():
    eager, graphs = cost("llama-3-70b", "H100", tp=8, graphs=np.array([0, 1]))
    assert graphs["decode_s"] < 0.6 * eager["decode_s"]
    busy = cost("llama-3-70b", "H100", tp=8, graphs=1, cpu_load=0.5)[0]
    assert busy["decode_s"] < 1.1 * graphs["decode_s"]


def test_a_longer_prompt_takes_longer_and_its_steps_are_whole():
    found = cost("llama-3-8b", "H100", prompt=np.array([2048, 4096, 8192]))
    ratios = found["prefill_s"][1:] / found["prefill_s"][:-1]
    assert ((ratios > 1.9) & (ratios < 2.6)).all()


def test_bytes_of_weights_bound_a_token_of_one_sequence():
    wide, narrow = cost("llama-3-8b", "H100", graphs=1, weight_b=np.array([2, 1]))
    assert wide["decode_s"] > 16e9 / 3350e9
    assert 0.4 < narrow["gpu_s"] / wide["gpu_s"] < 0.8


def test_few_sequences_touch_few_experts():
    one, many = cost("mixtral-8x7b", "H100", tp=2, graphs=1, batch=np.array([1, 64]))
    assert many["gpu_s"] > 2 * one["gpu_s"]
    assert many["gpu_s"] < 8 * one["gpu_s"]


def test_a_batch_shares_the_weights():
    one, many = cost("llama-3-8b", "A100", graphs=1, batch=np.array([1, 32]))
    assert many["tokens_s"] > 15 * one["tokens_s"]
    assert many["energy_j"] / 32 < one["energy_j"] / 10


def test_energy_is_power_times_time_of_all_gpus():
    found = cost("llama-2-70b", "A100-SXM-80GB", tp=8)[0]
    assert found["energy_j"] == pytest.approx(8 * found["power_w"] * found["request_s"])
    assert 0.25 * 400 < found["power_w"] < 400


def test_a_request_is_its_prompt_and_its_other_tokens():
    found = cost("llama-3-8b", "H100", generated=11)[0]
    expected_s = found["prefill_s"] + 10 * found["decode_s"]
    assert found["request_s"] == pytest.approx(expected_s)


@pytest.mark.parametrize(
    ("serve", "words"),
    [
        ({"batch": 0}, "batch=0"),
        ({"prompt": -5}, "prompt=-5"),
        ({"tp": 7}, "heads=32 cannot be split over tp=7"),
        ({"tp": 0}, "tp=0"),
        ({"pp": 64}, "layers=32 cannot be split over pp=64"),
        ({"cpu_load": 1.5}, "cpu_load=1.5"),
        ({"generated": -1}, "generated=-1"),
        ({"bacth": 1}, "bacth"),
        ({"memory_share": float("nan")}, "memory_share=nan"),
    ],
)
def test_what_cannot_be_served_is_named(serve: dict[str, float], words: str):
    with pytest.raises(PlanError, match=words):
        cost("llama-3-8b", "H100", **serve)
