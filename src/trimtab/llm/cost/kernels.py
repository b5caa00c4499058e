"""What one GPU kernel takes: matrix products, attention and element-wise work, as compiled laws.

A law is one row of constants for an architecture (`constants.law_of`); the peak numbers of the GPU
come in beside it, so that a GPU without measurements uses its own peaks with its family's shares.
"""

from __future__ import annotations

import math

import numpy as np

from trimtab.arrays import Array
from trimtab.compiled import compiled, inner

LAW = (
    "gemm_flop",  # flop time of a large product / flop time at peak
    "gemm_byte",  # byte time of a thin product / byte time at peak
    "gemm_start_s",
    "gemm_wave",  # share of an unfinished wave or tile that is paid for: 0 none, 1 all
    "gemm_half",  # flop time with tiles of half the size / with whole tiles
    "gemm_ragged",  # flop time where rows are no multiple of 16 bytes / where they are
    "sms",  # multiprocessors that share one wave of tiles
    "flash_share",  # of peak FLOP/s that a fused attention reaches forward on long sequences
    "flash_half",  # keys at which it reaches half of that
    "flash_back",  # backward time / forward time of a fused attention
    "score_b",  # bytes a score that an unfused attention moves forward
    "score_ragged",  # its flop time where the head dimension is no multiple of 64
    "score_broken",  # and where it is no multiple of 8: tensor cores stand idle
    "stream_share",  # of peak memory bandwidth that element-wise work reaches
    "stream_start_s",
    "cool",  # FLOP/s listed a watt of the limit up to which clocks hold under sustained load
    "hot",  # products under sustained load / in bursts; 0 = by the power limit
    "host",  # kernel starts of this host / of those that were fitted
    "load_slow",  # host time grows by this x load / (1 - load) under others' load
    "idle_power",  # shares of the power limit: a GPU that holds a model
    "flop_power",  # and at the FLOP/s listed
    "busy_power",  # and while any kernel runs
    "link_share",  # of a scale-up link that a large collective reaches
    "link_start_s",  # of a collective inside a node
    "link_chunk_s",  # latency of one chunk of a pipelined collective
    "pcie_share",  # as link_share, for PCIe
    "node_share",  # as link_share, for a network card
    "node_start_s",  # latency of one hop between nodes
)
(
    GEMM_FLOP,
    GEMM_BYTE,
    GEMM_START_S,
    GEMM_WAVE,
    GEMM_HALF,
    GEMM_RAGGED,
    SMS,
    FLASH_SHARE,
    FLASH_HALF,
    FLASH_BACK,
    SCORE_B,
    SCORE_RAGGED,
    SCORE_BROKEN,
    STREAM_SHARE,
    STREAM_START_S,
    COOL,
    HOT,
    HOST,
    LOAD_SLOW,
    IDLE_POWER,
    FLOP_POWER,
    BUSY_POWER,
    LINK_SHARE,
    LINK_START_S,
    LINK_CHUNK_S,
    PCIE_SHARE,
    NODE_SHARE,
    NODE_START_S,
) = range(len(LAW))


@inner
def _padded(m: float, n: float, rows: float, columns: float, sms: float, wave: float) -> float:
    """Work paid for / work asked for, when tiles of rows x columns fill whole waves."""
    tiles = math.ceil(m / rows) * math.ceil(n / columns)
    paid = math.ceil(tiles / sms) * sms * rows * columns / (m * n)
    return 1.0 + (paid - 1.0) * wave


@inner
def tiling(m: float, n: float, law: Array) -> float:
    """Flop time of an m x n result / flop time of one that fills all tiles and waves."""
    sms, wave, half = law[SMS], law[GEMM_WAVE], law[GEMM_HALF]
    best = _padded(m, n, 256.0, 128.0, sms, wave)
    best = min(best, _padded(m, n, 128.0, 256.0, sms, wave))
    best = min(best, _padded(m, n, 128.0, 128.0, sms, wave) * half)
    best = min(best, _padded(m, n, 128.0, 64.0, sms, wave) * half * half)
    return min(best, _padded(m, n, 64.0, 64.0, sms, wave) * half * half * half)


@inner
def gemm_s(m: float, n: float, k: float, flops: float, memory_bps: float, law: Array) -> float:
    """Seconds of C(m, n) = A(m, k) B(k, n) in 16 bits; a product of nothing costs its start.

    Flops and bytes overlap, but not wholly: their times add as the sides of a right angle, which
    fits better than their sum and than the larger of them.
    """
    if m < 1.0e-3 or n < 1.0e-3 or k < 1.0e-3:
        return law[GEMM_START_S]
    flop_s = law[GEMM_FLOP] * tiling(m, n, law) * 2.0 * m * n * k / flops
    if n % 8.0 != 0.0 or k % 8.0 != 0.0:
        flop_s *= law[GEMM_RAGGED]
    byte_s = law[GEMM_BYTE] * 2.0 * (m * k + k * n + m * n) / memory_bps
    return math.sqrt(flop_s * flop_s + byte_s * byte_s) + law[GEMM_START_S]


@inner
def attention_s(
    batch: float,
    heads: float,
    kv_heads: float,
    seq_q: float,
    seq_k: float,
    head_dim: float,
    causal: float,
    flash: float,
    flops: float,
    memory_bps: float,
    law: Array,
) -> float:
    """Seconds of softmax(Q K') V forward; `flash` keeps scores on chip and skips the masked ones.

    With fewer queries than keys the queries are the last ones: one query sees all keys.
    """
    scores = batch * heads * seq_q * seq_k
    moved_b = 4.0 * batch * head_dim * (heads * seq_q + kv_heads * seq_k)
    if flash > 0.0:
        if causal > 0.0:
            scores *= 1.0 - 0.5 * min(seq_q / seq_k, 1.0)
        # fused kernels are compiled for head dimensions in steps of 32 and pad to the next
        flop = 4.0 * scores * 32.0 * math.ceil(head_dim / 32.0)
        share = law[FLASH_SHARE] * seq_k / (seq_k + law[FLASH_HALF])
        work_s = flop / (share * flops)
    else:
        work_s = law[GEMM_FLOP] * 4.0 * scores * head_dim / flops
        if head_dim % 8.0 != 0.0:
            work_s *= law[SCORE_BROKEN]
        elif head_dim % 64.0 != 0.0:
            work_s *= law[SCORE_RAGGED]
        moved_b += law[SCORE_B] * scores
    return work_s + moved_b / (law[STREAM_SHARE] * memory_bps) + law[STREAM_START_S]


@inner
def attention_back(flash: float, law: Array) -> float:
    """Backward time over forward time: a fused kernel computes the scores again."""
    return law[FLASH_BACK] if flash > 0.0 else 2.0


@inner
def stream_s(bytes_b: float, memory_bps: float, law: Array) -> float:
    """Seconds of element-wise work that moves `bytes_b` through memory."""
    if bytes_b <= 0.0:
        return 0.0
    return bytes_b / (law[STREAM_SHARE] * memory_bps) + law[STREAM_START_S]


@compiled
def gemms_s(m: Array, n: Array, k: Array, flops: float, memory_bps: float, law: Array) -> Array:
    """`gemm_s` for columns of products on one GPU: (rows,)."""
    out = np.empty(len(m))
    for i in range(len(m)):
        out[i] = gemm_s(m[i], n[i], k[i], flops, memory_bps, law)
    return out
