"""Kernel laws, with the arithmetic shown."""

import math

import numpy as np
import pytest
from numba import njit

from trimtab.llm.cost import kernels
from trimtab.llm.cost.constants import law_of
from trimtab.llm.cost.kernels import LAW

FLOPS, BPS = 100e12, 1e12


def law(**known: float) -> np.ndarray:
    """A law in which everything reaches its peak at once, but for what is given."""
    plain = {"gemm_start_s": 0.0, "gemm_wave": 0.0, "flash_half": 0.0, "stream_start_s": 0.0}
    plain |= {"sms": 100.0, "score_b": 0.0}
    return np.array([(plain | known).get(name, 1.0) for name in LAW])


def gemm_s(m: float, n: float, k: float, row: np.ndarray) -> float:
    columns = (np.array([value], float) for value in (m, n, k))
    return float(kernels.gemms_s(*columns, FLOPS, BPS, row)[0])


@njit
def attention_s(batch, heads, kv_heads, seq_q, seq_k, head_dim, causal, flash, row):
    return kernels.attention_s(
        batch, heads, kv_heads, seq_q, seq_k, head_dim, causal, flash, FLOPS, BPS, row
    )


@njit
def tiling(m, n, row):
    return kernels.tiling(m, n, row)


def test_flop_and_byte_times_add_as_the_sides_of_a_right_angle():
    flop_s = 2 * 1024 * 512 * 256 / FLOPS
    byte_s = 2 * (1024 * 256 + 256 * 512 + 1024 * 512) / BPS
    expected_s = math.hypot(2 * flop_s, 3 * byte_s) + 5e-6
    row = law(gemm_flop=2.0, gemm_byte=3.0, gemm_start_s=5e-6)
    assert gemm_s(1024, 512, 256, row) == pytest.approx(expected_s)


def test_a_product_of_nothing_costs_its_start():
    assert gemm_s(0, 512, 256, law(gemm_start_s=5e-6)) == 5e-6


def test_a_result_that_fills_whole_waves_is_not_padded():
    # 10 x 10 tiles of 256 x 128 on 100 multiprocessors: one wave
    assert tiling(2560.0, 1280.0, law(gemm_wave=1.0, gemm_half=2.0)) == 1.0


def test_one_row_more_than_a_wave_pays_for_a_share_of_the_next():
    # 11 x 10 tiles need two waves of 100: 200 tiles are paid for 2561 x 1280 numbers
    paid = 200 * 256 * 128 / (2561 * 1280)
    row = law(gemm_wave=0.5, gemm_half=2.0)
    assert tiling(2561.0, 1280.0, row) == pytest.approx(1 + (paid - 1) / 2)


def test_small_results_take_small_tiles():
    # one tile of 64 x 64 in place of one of 256 x 128: an eighth of the padding, three halvings
    row = law(gemm_wave=1.0, gemm_half=1.1, sms=1.0)
    assert tiling(64.0, 64.0, row) == pytest.approx(1.1**3)


def test_a_vocabulary_that_is_no_multiple_of_eight_is_slower():
    row = law(gemm_ragged=2.0)
    assert gemm_s(4096, 50257, 4096, row) > 1.5 * gemm_s(4096, 50304, 4096, row)


def test_a_causal_mask_halves_fused_attention():
    row = law()
    whole_s = attention_s(1.0, 8.0, 8.0, 8192.0, 8192.0, 128.0, 0.0, 1.0, row)
    moved_s = 4 * 128 * 16 * 8192 / BPS
    flop_s = 4 * 8 * 8192**2 * 128 / FLOPS
    assert whole_s == pytest.approx(flop_s + moved_s)
    half_s = attention_s(1.0, 8.0, 8.0, 8192.0, 8192.0, 128.0, 1.0, 1.0, row)
    assert half_s == pytest.approx(flop_s / 2 + moved_s)


def test_one_query_sees_all_keys_through_a_causal_mask():
    row = law()
    seen = attention_s(1.0, 8.0, 8.0, 1.0, 65536.0, 128.0, 1.0, 1.0, row)
    assert seen == pytest.approx(
        attention_s(1.0, 8.0, 8.0, 1.0, 65536.0, 128.0, 0.0, 1.0, row), rel=1e-4
    )


def test_fused_attention_pads_heads_to_steps_of_32():
    row = law()
    at_80, at_96 = (
        attention_s(1.0, 8.0, 8.0, 4096.0, 4096.0, dim, 1.0, 1.0, row) for dim in (80.0, 96.0)
    )
    moved_s = 4 * 16 * (8 + 8) * 4096 / BPS
    assert at_96 - at_80 == pytest.approx(moved_s)


@pytest.mark.parametrize(("head_dim", "factor"), [(128.0, 1.0), (80.0, 2.0), (108.0, 5.0)])
def test_unaligned_heads_slow_unfused_attention(head_dim: float, factor: float):
    row = law(score_ragged=2.0, score_broken=5.0, stream_share=1e30)
    taken_s = attention_s(1.0, 8.0, 8.0, 4096.0, 4096.0, head_dim, 1.0, 0.0, row)
    assert taken_s == pytest.approx(factor * 4 * 8 * 4096**2 * head_dim / FLOPS)


def test_unfused_attention_moves_its_scores_through_memory():
    row, bare = law(score_b=14.0), law()
    with_s, without_s = (
        attention_s(2.0, 8.0, 8.0, 1024.0, 1024.0, 128.0, 1.0, 0.0, each) for each in (row, bare)
    )
    assert with_s - without_s == pytest.approx(14 * 2 * 8 * 1024**2 / BPS)


def test_python_and_compiled_laws_agree(monkeypatch: pytest.MonkeyPatch):
    row = law_of("Hopper").values
    compiled_s = gemm_s(513, 8192, 28672, row)
    for name in ("_padded", "tiling"):
        monkeypatch.setattr(kernels, name, getattr(kernels, name).py_func)
    assert kernels.gemm_s.py_func(513.0, 8192.0, 28672.0, FLOPS, BPS, row) == pytest.approx(
        compiled_s
    )


def test_an_h100_multiplies_large_matrices_at_six_to_eight_tenths_of_its_peak():
    row = law_of("Hopper").values
    size = np.array([8192.0])
    taken_s = kernels.gemms_s(size, size, size, 989e12, 3350e9, row)[0]
    assert 0.6 < 2 * 8192**3 / taken_s / 989e12 < 0.8
