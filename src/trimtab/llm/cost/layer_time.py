"""What one transformer layer, the embedding and the logits take on one GPU, from kernels and links.

All times are of one micro-batch. `Layer` keeps compute and communication apart, since a pipeline,
a recomputation and an overlap treat them differently.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from trimtab.arrays import Array
from trimtab.compiled import inner
from trimtab.llm.cost.cases import FRAMEWORKS
from trimtab.llm.cost.kernels import COOL, HOT, attention_back, attention_s, gemm_s, stream_s
from trimtab.llm.cost.links import all_reduce_s, all_to_all_s, send_s
from trimtab.llm.cost.profiles import Training

FP8, FP32 = 2.0, 3.0
SHARDED = float(FRAMEWORKS.index("fsdp"))  # this framework and those behind it shard, no pipeline
LOGIT_B = 10.0  # bytes kept a logit by the software that `Training.logits_b` was counted for
# Bytes that software without fused kernels moves / with them. Of a layer's element-wise work: bias,
# dropout, residual, norm and activation each read and write (47 passes over the hidden size where
# fused kernels take 25); of a score: scale, two steps of masking, softmax and dropout (25 bytes
# where a fused softmax leaves 10).
EAGER_LIGHT, EAGER_SCORES = 1.9, 2.5


class Layer(NamedTuple):
    """Seconds of the mean layer of one micro-batch."""

    forward_s: float
    backward_s: float
    again_s: float  # what recomputation adds
    tensor_s: float  # collectives of tensor and sequence parallel, forward, backward and again
    context_s: float  # ring of context parallel that attention does not hide
    expert_s: float  # all-to-all of expert parallel


@inner
def sustained_flops(case: Any, law: Array, knobs: Training) -> float:
    """Peak FLOP/s of a linear layer at the clock that the power limit leaves."""
    peak = case.flops
    if case.precision == FP32:
        peak = case.fp32_flops
    elif case.precision == FP8 and case.fp8_flops > 0.0:
        peak = case.flops * min(knobs.fp8_gain, case.fp8_flops / case.flops)
    heat = case.flops / max(case.tdp_w, 1.0) / law[COOL]
    slow = max(heat, 1.0) ** knobs.throttle if knobs.throttle > 0.0 else 1.0
    if law[HOT] > 0.0:
        slow = law[HOT]
    return peak / (knobs.gemm_slow * slow)


@inner
def half_flops(case: Any, flops: float, knobs: Training) -> float:
    """The same for what stays in 16 bits where linear layers run in 8: attention and logits."""
    if case.precision == FP8 and case.fp8_flops > 0.0:
        return flops / min(knobs.fp8_gain, case.fp8_flops / case.flops)
    return flops


@inner
def attention_gemms_s(case: Any, m: float, flops: float, law: Array) -> float:
    """Seconds of the projections into and out of attention, forward."""
    t, bps = case.tp, case.memory_bps
    queries = case.heads * case.head_dim / t
    if case.kv_rank > 0.0:  # latent attention: down to the ranks, then up to the heads
        keys = case.heads * (case.head_dim + case.rope_dim) / t
        into_s = gemm_s(m, case.kv_rank + case.rope_dim, case.hidden, flops, bps, law)
        into_s += gemm_s(m, 2.0 * queries, case.kv_rank, flops, bps, law)
        if case.q_rank > 0.0:
            into_s += gemm_s(m, case.q_rank, case.hidden, flops, bps, law)
            into_s += gemm_s(m, keys, case.q_rank, flops, bps, law)
        else:
            into_s += gemm_s(m, keys, case.hidden, flops, bps, law)
    else:
        wide = queries + 2.0 * max(case.kv_heads / t, 1.0) * case.head_dim
        into_s = gemm_s(m, wide, case.hidden, flops, bps, law)
    return into_s + gemm_s(m, case.hidden, queries, flops, bps, law)


@inner
def ffn_gemms_s(case: Any, m: float, width: float, flops: float, law: Array) -> float:
    """Seconds of the two or three matrices of a feed-forward block of `width` a rank, forward."""
    up = 2.0 * width if case.gated > 0.0 else width
    up_s = gemm_s(m, up, case.hidden, flops, case.memory_bps, law)
    return up_s + gemm_s(m, case.hidden, width, flops, case.memory_bps, law)


@inner
def expert_gemms_s(case: Any, m: float, flops: float, law: Array, knobs: Training) -> float:
    """Seconds of the router, the experts on this rank and the shared expert, forward."""
    local = max(case.experts / case.ep, 1.0)
    rows = m * case.active_experts / local  # each rank gets as many rows as it sends
    # one grouped product: its flops and bytes are those of `local` products, its start is one
    one_s = ffn_gemms_s(case, rows * knobs.imbalance, case.expert_ffn / case.tp, flops, law)
    start_s = ffn_gemms_s(case, 1.0e-9, 1.0e-9, flops, law)
    out_s = local * (one_s - start_s) + start_s
    out_s += gemm_s(m, case.experts, case.hidden, flops, case.memory_bps, law)
    if case.shared_ffn > 0.0:
        out_s += ffn_gemms_s(case, m, case.shared_ffn / case.tp, flops, law)
    return out_s


@inner
def element_b(case: Any, m: float, rich: float) -> float:
    """Bytes that element-wise work of a mean layer moves forward, with fused kernels."""
    t = case.tp
    plain = t if case.sequence_parallel > 0.0 else 1.0
    # two norms (read, write), two dropouts with bias and residual (read 2, write 1, half a mask)
    whole = 11.0 if case.biases > 0.0 else 10.0
    turned = 2.0 * (case.heads + 2.0 * case.kv_heads) * case.head_dim  # split, rotate, transpose
    width = case.ffn
    if rich > 0.0:
        routed = case.active_experts * case.expert_ffn + case.shared_ffn
        width = (1.0 - rich) * width + rich * routed
        whole += rich * 4.0 * case.active_experts  # permute and weigh: in and out
    passes = 3.0 if case.gated > 0.0 else 2.0
    size_b = 4.0 if case.precision == FP32 else 2.0
    if case.precision == FP8:
        # every input of a product is written in 8 bits too, as is and transposed
        whole += 2.0
        passes += 1.0
    return size_b * m * (whole * case.hidden / plain + (turned + passes * width) / t)


@inner
def one_layer(
    case: Any, rich: float, flops: float, law: Array, knobs: Training, profile: Any
) -> Layer:
    """Seconds of the mean layer of one micro-batch, of which the share `rich` has experts."""
    b, s, t, c = case.micro_batch, case.seq, case.tp, case.cp
    m, bps = b * s / c, case.memory_bps
    gemm = attention_gemms_s(case, m, flops, law)
    if rich < 1.0:
        gemm += (1.0 - rich) * ffn_gemms_s(case, m, case.ffn / t, flops, law)
    if rich > 0.0:
        gemm += rich * expert_gemms_s(case, m, flops, law, knobs)
    half = half_flops(case, flops, knobs)
    heads, groups = case.heads / t, max(case.kv_heads / t, 1.0)
    wide = case.head_dim + 0.5 * case.rope_dim  # latent attention: rotated parts of keys only
    # context parallel gives each rank an early and a late part of the sequence: equal work
    scores_s = attention_s(b / c, heads, groups, s, s, wide, 1.0, case.flash, half, bps, law)
    if case.flash == 0.0:
        bare_s = attention_s(b / c, heads, groups, s, s, wide, 1.0, 0.0, half, 1e30, law)
        slow = knobs.score_slow * (EAGER_SCORES if case.eager > 0.0 else 1.0)
        scores_s = bare_s + slow * (scores_s - bare_s)
    else:
        scores_s *= profile.fused
    light_s = knobs.stream_slow * profile.stream * stream_s(element_b(case, m, rich), bps, law)
    if case.eager > 0.0:
        light_s *= EAGER_LIGHT
    forward_s = gemm + scores_s + light_s
    backward_s = 2.0 * gemm + attention_back(case.flash, law) * scores_s
    backward_s += knobs.back_stream * light_s
    again_s = 0.0
    if case.recompute == 2.0:
        again_s = forward_s
    elif case.recompute == 1.0 and case.framework >= SHARDED:
        again_s = knobs.selective * forward_s
    elif case.recompute == 1.0 and case.flash == 0.0:
        again_s = scores_s
    rounds = 6.0 if case.recompute == 2.0 else 4.0
    tensor_s = 0.0
    if t > 1.0:
        near = min(t, case.per_node)
        one_s = all_reduce_s(2.0 * m * case.hidden, t, near, case.link_bps, case.node_link_bps, law)
        tensor_s = knobs.link_slow * rounds * one_s
        if case.sequence_parallel > 0.0:
            tensor_s *= 1.0 - profile.tensor_overlap
    ring_s, expert_s = 0.0, 0.0
    if c > 1.0:
        bps_ring = case.link_bps if t * c <= case.per_node else case.node_link_bps
        hop_s = send_s(4.0 * b * s / c * groups * case.head_dim, bps_ring, law)
        # a hop hides behind the attention of one block; the backward pass sends gradients too
        ring_s = 3.0 * (c - 1.0) * max(0.0, hop_s - scores_s / c)
    if rich > 0.0 and case.ep > 1.0:
        split = t if case.sequence_parallel > 0.0 else 1.0
        sent_b = 2.0 * m / split * case.active_experts * case.hidden
        near = max(1.0, min(case.ep, case.per_node / t))
        one_s = all_to_all_s(sent_b, case.ep, near, case.link_bps, case.node_link_bps, law)
        expert_s = rich * knobs.link_slow * rounds * one_s
    slow = profile.work
    return Layer(slow * forward_s, slow * backward_s, slow * again_s, tensor_s, ring_s, expert_s)


@inner
def logits_s(case: Any, flops: float, law: Array, knobs: Training, profile: Any) -> float:
    """Seconds of the logits, the loss and their gradients of one micro-batch."""
    m, share = case.micro_batch * case.seq / case.cp, case.vocab / case.tp
    if case.framework < SHARDED:  # those that split the vocabulary pad it to whole tiles
        share = 128.0 * math.ceil(share / 128.0)
    flops = half_flops(case, flops, knobs)
    product_s = gemm_s(m, share, case.hidden, flops, case.memory_bps, law)
    moved_b = knobs.logits_b * profile.logit_b / LOGIT_B * m * share
    return 3.0 * product_s + stream_s(moved_b, case.memory_bps, law)


@inner
def embedding_s(case: Any, law: Array) -> float:
    """Seconds to read and later add up the rows of the embedding of one micro-batch."""
    m = case.micro_batch * case.seq / case.cp
    return stream_s(16.0 * m * case.hidden, case.memory_bps, law)
