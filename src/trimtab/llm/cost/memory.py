"""Bytes a GPU needs in the stage of the pipeline that needs most.

States and activations follow Korthikanti et al. 2022 (arXiv 2205.05198), generalised to gated
feed-forward blocks, grouped heads and experts; overheads come from the framework's profile.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from trimtab.compiled import inner
from trimtab.llm.cost.cases import FRAMEWORKS
from trimtab.llm.cost.profiles import Training

FP32 = 3.0
SHARDED = float(FRAMEWORKS.index("fsdp"))
WEIGHT_B, ADAM_B = 2.0, 12.0  # a parameter: 16-bit weight; fp32 master copy and two moments
# Of a layer's activations under a sharded framework's "selective": every second product's output,
# attention's and the layer's input, 14.5 of 34 passes over the hidden size of a Llama 3.
SELECTIVE_KEEPS = 0.43
SCORE_B = 5.0  # softmax's output, its dropout mask and product: what an unfused attention saves


class Stage(NamedTuple):
    """Bytes on one GPU of one stage."""

    weights_b: float
    gradients_b: float
    optimiser_b: float
    activations_b: float  # kept from forward to backward, all micro-batches in flight
    logits_b: float
    working_b: float  # what one layer needs while it is recomputed, beyond the logits' bytes
    overhead_b: float
    total_b: float


class Layers(NamedTuple):
    """Layers of the first, the middle and the last stage."""

    first: float
    middle: float
    last: float


@inner
def stage_layers(case: Any) -> Layers:
    """Layers a stage; what does not divide evenly leaves the last and the first stage shorter."""
    p = case.pp
    short = float(int(case.layers / p))
    extra = case.layers - short * p
    if extra == 0.0:
        return Layers(short, short, short)
    first = short if p - extra >= 2.0 else short + 1.0
    return Layers(first, short + 1.0, short)


@inner
def attention_parameters(case: Any) -> float:
    """Parameters of one layer's attention and norms, of the whole model."""
    h, wide = case.hidden, case.heads * case.head_dim
    norms = 4.0 * h if case.biases > 0.0 else 2.0 * h
    if case.kv_rank > 0.0:
        keys = case.heads * (case.head_dim + case.rope_dim)
        down = h * (case.kv_rank + case.rope_dim) + 2.0 * case.kv_rank * wide
        queries = case.q_rank * (h + keys) if case.q_rank > 0.0 else h * keys
        return down + queries + wide * h + norms
    groups = 2.0 * case.kv_heads * case.head_dim
    biases = wide + groups + h if case.biases > 0.0 else 0.0
    return h * (wide + groups) + wide * h + biases + norms


@inner
def ffn_parameters(case: Any, width: float) -> float:
    """Parameters of a feed-forward block of `width`."""
    matrices = 3.0 if case.gated > 0.0 else 2.0
    return matrices * case.hidden * width + (width + case.hidden if case.biases > 0.0 else 0.0)


@inner
def layer_parameters(case: Any) -> tuple[float, float]:
    """Mean parameters a layer on one GPU: those that data parallel shares, and its experts'."""
    dense = ffn_parameters(case, case.ffn)
    own = 0.0
    if case.experts > 0.0:
        rich = (case.layers - case.dense_layers) / case.layers
        routed = ffn_parameters(case, case.shared_ffn) if case.shared_ffn > 0.0 else 0.0
        dense = (1.0 - rich) * dense + rich * (routed + case.hidden * case.experts)
        own = rich * case.experts / case.ep * ffn_parameters(case, case.expert_ffn)
    return (attention_parameters(case) + dense) / case.tp, own / case.tp


@inner
def saved_b(case: Any, scores: float) -> float:
    """Bytes a token that one layer keeps for its backward pass when nothing is recomputed."""
    t, h = case.tp, case.hidden
    plain = t if case.sequence_parallel > 0.0 else 1.0
    # inputs of two norms, of attention and of the block; two dropout masks where there is dropout
    whole = 8.0 * h + (2.0 * h if case.biases > 0.0 else 0.0)
    split = 4.0 * case.heads * case.head_dim + 4.0 * case.kv_heads * case.head_dim
    inside = 6.0 if case.gated > 0.0 else 4.0
    width = case.ffn
    if case.experts > 0.0:
        rich = (case.layers - case.dense_layers) / case.layers
        routed = case.active_experts * case.expert_ffn + case.shared_ffn
        width = (1.0 - rich) * width + rich * routed
        whole += rich * 4.0 * h * case.active_experts  # rows as sent to and got from the experts
    out = whole / plain + (split + inside * width) / t
    if scores > 0.0:
        out += SCORE_B * case.heads * case.seq / case.cp / t
    return out * (2.0 if case.precision == FP32 else 1.0)


@inner
def in_flight(case: Any, stage: float) -> float:
    """Micro-batches whose activations a stage holds at most, in whole passes over its layers."""
    p, v = case.pp, case.interleave
    steps = case.global_batch / (case.dp * case.micro_batch)
    if v > 1.0:
        chunks = 2.0 * (p - stage - 1.0) + (v - 1.0) * p + 1.0
        return min(chunks, steps * v) / v
    return min(steps, p - stage)


@inner
def stage_memory(case: Any, stage: float, layers: float, profile: Any, knobs: Training) -> Stage:
    """Bytes on one GPU of the given stage."""
    tokens = case.micro_batch * case.seq / case.cp
    last, first = stage == case.pp - 1.0, stage == 0.0
    tables = 0.0
    if first:
        tables += case.vocab * case.hidden
        tables += case.seq * case.hidden if case.learned_positions > 0.0 else 0.0
    if last and (case.tied == 0.0 or case.pp > 1.0):
        tables += case.vocab * case.hidden
    shared, own = layer_parameters(case)
    count = layers * shared + tables / case.tp
    ranks = case.dp * case.cp
    weights_b, gradients_b, optimiser_b = states(case, count, ranks)
    if own > 0.0:
        more = states(case, layers * own, max(ranks / case.ep, 1.0))
        weights_b += more[0]
        gradients_b += more[1]
        optimiser_b += more[2]
    if case.zero == 3.0 and ranks > 1.0:
        # two layers gathered, one ahead, the tables all through; one layer's whole gradient
        weights_b += WEIGHT_B * (2.0 * (shared + own) + tables / case.tp)
        gradients_b += WEIGHT_B * (shared + own)
    dense_scores = case.flash == 0.0
    flight = in_flight(case, stage)
    whole_b = profile.keep * tokens * saved_b(case, 1.0 if dense_scores else 0.0)
    bare_b = profile.keep * tokens * saved_b(case, 0.0)
    working_b = 0.0
    if case.recompute == 2.0:
        plain = case.tp if case.sequence_parallel > 0.0 else 1.0
        size_b = 4.0 if case.precision == FP32 else 2.0
        activations_b = flight * layers * tokens * size_b * case.hidden / plain
        working_b = whole_b
    elif case.recompute == 1.0 and case.framework >= SHARDED:
        activations_b = SELECTIVE_KEEPS * flight * layers * whole_b / profile.keep
        working_b = (1.0 - SELECTIVE_KEEPS) * whole_b
    elif case.recompute == 1.0 and dense_scores:
        activations_b = flight * layers * bare_b
        working_b = whole_b - bare_b
    else:
        activations_b = flight * layers * whole_b
    logits_b = profile.logit_b * tokens * case.vocab / case.tp if last else 0.0
    working_b = max(working_b - logits_b, 0.0)
    groups = 1.0 + (case.tp > 1.0) + (case.pp > 1.0) + (ranks > 1.0) + (case.cp > 1.0)
    groups += case.ep > 1.0
    overhead_b = profile.context_b + profile.group_b * groups
    # copies of gradients are sharded where gradients are
    overhead_b += profile.copy_b * (count + layers * own) / (ranks if case.zero >= 2.0 else 1.0)
    overhead_b += profile.fragment * (activations_b + logits_b + working_b)
    total_b = weights_b + gradients_b + optimiser_b + activations_b + logits_b + working_b
    return Stage(
        weights_b, gradients_b, optimiser_b, activations_b, logits_b, working_b, overhead_b,
        total_b + overhead_b,
    )  # fmt: skip


@inner
def states(case: Any, count: float, ranks: float) -> tuple[float, float, float]:
    """Bytes of weights, gradients and optimiser of `count` parameters shared by `ranks`."""
    weights_b, gradients_b = WEIGHT_B * count, case.grad_bytes * count
    optimiser_b = ADAM_B * count
    if case.precision == FP32:
        weights_b, optimiser_b = 4.0 * count, 8.0 * count
    elif case.zero == 3.0:
        # a sharded fp32 weight is its own master copy: 16 bytes a parameter in all
        optimiser_b = (16.0 - WEIGHT_B - case.grad_bytes) * count
    if case.zero >= 1.0:
        optimiser_b /= ranks
    if case.zero >= 2.0:
        gradients_b /= ranks
    if case.zero >= 3.0:
        weights_b /= ranks
    return weights_b, gradients_b, optimiser_b


@inner
def worst_stage(case: Any, profile: Any, knobs: Training) -> Stage:
    """Bytes in the stage that needs most: the first, the second or the last one."""
    layers = stage_layers(case)
    worst = stage_memory(case, 0.0, layers.first, profile, knobs)
    if case.pp > 1.0:
        last = stage_memory(case, case.pp - 1.0, layers.last, profile, knobs)
        if last.total_b > worst.total_b:
            worst = last
    # only where the first stage is short can the next one need more
    if case.pp > 2.0 and layers.middle > layers.first:
        second = stage_memory(case, 1.0, layers.middle, profile, knobs)
        if second.total_b > worst.total_b:
            worst = second
    return worst
