"""Step time, memory and energy of training plans, a row in and a row out, compiled.

    cost = training.cost(cases)        # COST, one row a case; a million rows a second on a core

A step is m micro-batches through a one-forward-one-backward pipeline, the gradients' collectives
that the backward pass does not hide, and the optimiser.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.compiled import compiled, inner
from trimtab.llm.cost.cases import CASE
from trimtab.llm.cost.kernels import BUSY_POWER, FLOP_POWER, HOST, IDLE_POWER, stream_s
from trimtab.llm.cost.layer_time import embedding_s, logits_s, one_layer, sustained_flops
from trimtab.llm.cost.links import all_gather_s, all_reduce_s, reduce_scatter_s, send_s
from trimtab.llm.cost.memory import (
    WEIGHT_B,
    layer_parameters,
    stage_layers,
    worst_stage,
)
from trimtab.llm.cost.profiles import Training, law_rows, profiles, training

COST = np.dtype(
    [
        ("step_s", "f8"),
        ("compute_s", "f8"),  # of the slowest stage, all micro-batches
        ("again_s", "f8"),  # recomputation, the same way
        ("tp_s", "f8"),
        ("cp_s", "f8"),
        ("ep_s", "f8"),
        ("pp_s", "f8"),  # messages between stages
        ("bubble_s", "f8"),
        ("dp_s", "f8"),  # what of the gradients' and weights' collectives is not hidden
        ("optimiser_s", "f8"),
        ("overhead_s", "f8"),  # host and stragglers
        ("weights_b", "f8"),
        ("gradients_b", "f8"),
        ("optimiser_b", "f8"),
        ("activations_b", "f8"),
        ("logits_b", "f8"),
        ("working_b", "f8"),
        ("overhead_b", "f8"),
        ("memory_b", "f8"),
        ("capacity_b", "f8"),
        ("model_flop", "f8"),  # of a step, without recomputation
        ("hardware_flop", "f8"),  # with it
        ("mfu", "f8"),
        ("hfu", "f8"),
        ("tokens_s_gpu", "f8"),
        ("power_w", "f8"),  # of one GPU, mean over the step
        ("energy_j", "f8"),  # of a step, all GPUs
    ]
)
# What stages are made of, for pipelines whose stages differ: seconds of one micro-batch on one GPU.
PIECES = np.dtype(
    [
        ("forward_s", "f8"),  # of one layer
        ("backward_s", "f8"),
        ("again_s", "f8"),
        ("tensor_s", "f8"),
        ("context_s", "f8"),
        ("expert_s", "f8"),
        ("layer_s", "f8"),  # all of the above
        ("head_s", "f8"),  # logits and loss: the last stage
        ("table_s", "f8"),  # embedding: the first stage
        ("message_s", "f8"),  # to and from one neighbour
    ]
)
MOST_HFU = 0.6  # of the FLOP/s listed: more draws no more power, the limit holds clocks down


class Pieces(NamedTuple):
    """One row of PIECES inside compiled code."""

    forward_s: float
    backward_s: float
    again_s: float
    tensor_s: float
    context_s: float
    expert_s: float
    layer_s: float
    head_s: float
    table_s: float
    message_s: float


def cost(
    cases: Array,  # (rows,) of CASE
    knobs: Training | None = None,
    laws: Array | None = None,  # (architectures, constants)
    frames: Array | None = None,  # (frameworks,) of PROFILE
) -> Array:
    """One COST row a case."""
    rows = np.ascontiguousarray(cases, CASE).reshape(-1)
    out = np.zeros(len(rows), COST)
    _costs(
        rows,
        law_rows() if laws is None else laws,
        profiles() if frames is None else frames,
        training() if knobs is None else knobs,
        out,
    )
    return out


def pieces(cases: Array) -> Array:
    """One PIECES row a case: what a planner of uneven stages adds up itself."""
    rows = np.ascontiguousarray(cases, CASE).reshape(-1)
    out = np.zeros(len(rows), PIECES)
    _all_pieces(rows, law_rows(), profiles(), training(), out)
    return out


@compiled
def _all_pieces(cases: Array, laws: Array, frames: Array, knobs: Training, out: Array) -> None:
    for i in range(len(cases)):
        case = cases[i]
        made = _pieces(case, laws[int(case.arch)], frames[int(case.framework)], knobs)
        row = out[i]
        row.forward_s, row.backward_s, row.again_s = made.forward_s, made.backward_s, made.again_s
        row.tensor_s, row.context_s, row.expert_s = made.tensor_s, made.context_s, made.expert_s
        row.layer_s, row.head_s = made.layer_s, made.head_s
        row.table_s, row.message_s = made.table_s, made.message_s


@compiled
def _costs(cases: Array, laws: Array, frames: Array, knobs: Training, out: Array) -> None:
    for i in range(len(cases)):
        case = cases[i]
        profile = frames[int(case.framework)]
        _time(case, laws[int(case.arch)], profile, knobs, out[i])
        stage = worst_stage(case, profile, knobs)
        row = out[i]
        row.weights_b, row.gradients_b = stage.weights_b, stage.gradients_b
        row.optimiser_b, row.activations_b = stage.optimiser_b, stage.activations_b
        row.logits_b, row.working_b = stage.logits_b, stage.working_b
        row.overhead_b, row.memory_b = stage.overhead_b, stage.total_b
        row.capacity_b = knobs.capacity * case.memory_b
        _energy(case, laws[int(case.arch)], row)


@inner
def _pieces(case: Any, law: Array, profile: Any, knobs: Training) -> Pieces:
    """What stages are made of: the mean layer, the ends and the messages."""
    flops = sustained_flops(case, law, knobs)
    rich = 0.0
    if case.experts > 0.0:
        rich = (case.layers - case.dense_layers) / case.layers
    layer = one_layer(case, rich, flops, law, knobs, profile)
    # the host starts kernels ahead of the GPU, and the GPU waits for it where kernels are short
    launch_s = law[HOST] * profile.launch_s
    forward_s = max(layer.forward_s, launch_s)
    backward_s = max(layer.backward_s, 1.3 * launch_s)
    again_s = layer.again_s
    if case.recompute == 2.0:
        again_s = max(again_s, launch_s)
    tensor_s, context_s, expert_s = layer.tensor_s, layer.context_s, layer.expert_s
    return Pieces(
        forward_s, backward_s, again_s, tensor_s, context_s, expert_s,
        forward_s + backward_s + again_s + tensor_s + context_s + expert_s,
        logits_s(case, flops, law, knobs, profile), embedding_s(case, law),
        _message_s(case, law, profile, knobs),
    )  # fmt: skip


@inner
def _time(case: Any, law: Array, profile: Any, knobs: Training, row: Any) -> None:
    """Fill the seconds of one row."""
    p = case.pp
    steps = max(case.global_batch / (case.dp * case.micro_batch), 1.0)
    made, layers = _pieces(case, law, profile, knobs), stage_layers(case)
    first_s = layers.first * made.layer_s + made.table_s + made.message_s
    last_s = layers.last * made.layer_s + made.head_s + made.message_s
    # the slowest stage: its seconds, its layers, what it has beside them, its neighbours
    stage_s, count, extra_s, sides = first_s, layers.first, made.table_s, 1.0
    if p == 1.0:
        extra_s, sides = made.table_s + made.head_s, 0.0
        stage_s = layers.first * made.layer_s + extra_s
        whole_s = stage_s
    else:
        if last_s > stage_s:
            stage_s, count, extra_s = last_s, layers.last, made.head_s
        middle_s = layers.middle * made.layer_s + 2.0 * made.message_s
        if p > 2.0 and middle_s > stage_s:
            stage_s, count, extra_s, sides = middle_s, layers.middle, 0.0, 2.0
        whole_s = first_s + last_s + (case.layers - layers.first - layers.last) * made.layer_s
        whole_s += 2.0 * (p - 2.0) * made.message_s
    row.bubble_s = max(whole_s - stage_s, 0.0) / case.interleave
    row.compute_s = steps * (count * (made.forward_s + made.backward_s) + extra_s)
    row.again_s = steps * count * made.again_s
    row.tp_s = steps * count * made.tensor_s
    row.cp_s = steps * count * made.context_s
    row.ep_s = steps * count * made.expert_s
    row.pp_s = steps * sides * made.message_s
    shared, own = layer_parameters(case)
    tables = case.vocab * case.hidden / case.tp
    if p == 1.0 and case.tied == 0.0:
        tables *= 2.0
    behind_s = count * made.forward_s, count * (made.backward_s + made.again_s)
    held = layers.first * shared + tables
    experts = layers.first * own
    row.dp_s = _data_s(case, held, experts, behind_s, steps, law, profile, knobs)
    ranks = case.dp * case.cp
    updated = held + experts
    if case.zero >= 1.0:
        updated = held / ranks + experts / max(ranks / case.ep, 1.0)
    row.optimiser_s = stream_s(knobs.adam_b * updated, case.memory_bps, law)
    busy_s = row.compute_s + row.again_s + row.tp_s + row.cp_s + row.ep_s + row.pp_s
    busy_s += row.bubble_s + row.dp_s + row.optimiser_s
    nodes = max(case.gpus / case.per_node, 1.0)
    row.overhead_s = profile.step_s + knobs.jitter * np.log2(nodes) * busy_s
    row.step_s = busy_s + row.overhead_s


@inner
def _message_s(case: Any, law: Array, profile: Any, knobs: Training) -> float:
    """Seconds in which one stage sends a micro-batch on and gets its gradient back, all chunks.

    With several chunks a stage has other work meanwhile, and software that overlaps uses it.
    """
    if case.pp == 1.0:
        return 0.0
    block = case.tp * case.cp * case.dp
    bps = case.link_bps if block * case.pp <= case.per_node else case.node_link_bps
    sent_b = 2.0 * case.micro_batch * case.seq / case.cp * case.hidden / case.tp
    one_s = knobs.link_slow * 2.0 * case.interleave * send_s(sent_b, bps, law)
    if case.interleave > 1.0:
        one_s *= 1.0 - knobs.overlap_most * profile.overlap * case.flash
    return one_s


@inner
def _near(case: Any, ranks: float, block: float) -> float:
    """Ranks of a group that share a node, if each is one of `block` neighbours."""
    return max(1.0, min(ranks, float(int(case.per_node / block))))


@inner
def _gather_s(case: Any, count: float, experts: float, law: Array) -> float:
    """Seconds to gather 16-bit weights: those that all data ranks share, and a rank's experts."""
    ranks, few = case.dp * case.cp, max(case.dp * case.cp / case.ep, 1.0)
    fast, slow = case.link_bps, case.node_link_bps
    near = _near(case, ranks, case.tp)
    out_s = all_gather_s(WEIGHT_B * count, ranks, near, fast, slow, law)
    near = _near(case, few, case.tp * case.ep)
    return out_s + all_gather_s(WEIGHT_B * experts, few, near, fast, slow, law)


@inner
def _sum_s(case: Any, count: float, experts: float, law: Array, profile: Any) -> float:
    """Seconds to sum gradients of both: whole, or to each rank its part where they are sharded."""
    wire_b = profile.reduce_b if profile.reduce_b > 0.0 else case.grad_bytes
    ranks, few = case.dp * case.cp, max(case.dp * case.cp / case.ep, 1.0)
    fast, slow = case.link_bps, case.node_link_bps
    near, far = _near(case, ranks, case.tp), _near(case, few, case.tp * case.ep)
    if case.zero == 0.0:
        out_s = all_reduce_s(wire_b * count, ranks, near, fast, slow, law)
        return out_s + all_reduce_s(wire_b * experts, few, far, fast, slow, law)
    out_s = reduce_scatter_s(wire_b * count, ranks, near, fast, slow, law)
    return out_s + reduce_scatter_s(wire_b * experts, few, far, fast, slow, law)


@inner
def _data_s(
    case: Any,
    count: float,
    experts: float,
    behind_s: tuple[float, float],
    steps: float,
    law: Array,
    profile: Any,
    knobs: Training,
) -> float:
    """Seconds that data parallel adds to a step: what shows of its collectives and the drag.

    `count` parameters are shared by all data ranks, `experts` by those that hold the same ones.
    Software from before fused attention did not overlap its collectives either.
    """
    if case.dp * case.cp <= 1.0:
        return 0.0
    forward_s, backward_s = behind_s
    drag = knobs.overlap_slow - 1.0
    hides = knobs.overlap_most * profile.overlap * case.flash
    sum_s = knobs.link_slow * _sum_s(case, count, experts, law, profile)
    if case.zero == 0.0:
        return _shown_s(sum_s, hides * backward_s, drag)
    gather_s = knobs.link_slow * _gather_s(case, count, experts, law)
    if case.zero == 3.0:
        # a pipeline gathers once a step; without one every micro-batch gathers and reduces anew
        times = steps if case.pp == 1.0 else 1.0
        cover = knobs.overlap_most * steps / times
        out_s = _shown_s(gather_s, cover * forward_s, drag)
        out_s += _shown_s(gather_s + sum_s, cover * backward_s, drag)
        # the first layer's weights and the last layer's gradient have nothing to hide behind
        return times * out_s + (gather_s + sum_s) / case.layers
    times = steps if case.zero == 2.0 and case.pp == 1.0 else 1.0
    return _shown_s(times * sum_s + gather_s, hides * backward_s * times, drag)


@inner
def _shown_s(collective_s: float, cover_s: float, drag: float) -> float:
    """Seconds a collective adds beside compute of `cover_s`, which it slows by `drag`."""
    hidden_s = min(collective_s, cover_s)
    return collective_s - hidden_s + drag * hidden_s


@inner
def _flop(case: Any) -> float:
    """FLOP of one token forward, counted as papers do: attention whole, not halved for the mask."""
    wide = case.heads * case.head_dim
    into = 2.0 * case.hidden * (wide + 2.0 * case.kv_heads * case.head_dim)
    if case.kv_rank > 0.0:
        keys = case.heads * (case.head_dim + case.rope_dim)
        into = 2.0 * case.hidden * (case.kv_rank + case.rope_dim) + 4.0 * case.kv_rank * wide
        into += 2.0 * (
            case.q_rank * (case.hidden + keys) if case.q_rank > 0.0 else case.hidden * keys
        )
    layer = into + 2.0 * wide * case.hidden + 4.0 * case.seq * wide
    matrices = 6.0 if case.gated > 0.0 else 4.0
    dense = matrices * case.hidden * case.ffn
    if case.experts > 0.0:
        rich = (case.layers - case.dense_layers) / case.layers
        routed = matrices * case.hidden
        routed *= case.active_experts * case.expert_ffn + case.shared_ffn
        dense = (1.0 - rich) * dense + rich * (routed + 2.0 * case.hidden * case.experts)
    return case.layers * (layer + dense)


@inner
def _energy(case: Any, law: Array, row: Any) -> None:
    """Fill FLOP counts, shares of peak, power and energy of one row."""
    tokens = case.global_batch * case.seq
    inner_flop, head_flop = _flop(case), 2.0 * case.hidden * case.vocab
    again = inner_flop if case.recompute == 2.0 else 0.0
    if case.recompute == 1.0:
        again = (
            0.0 if case.flash > 0.0 else case.layers * 4.0 * case.seq * case.heads * case.head_dim
        )
    row.model_flop = tokens * 3.0 * (inner_flop + head_flop)
    row.hardware_flop = row.model_flop + tokens * again
    peak = case.gpus * case.flops * row.step_s
    row.mfu, row.hfu = row.model_flop / peak, row.hardware_flop / peak
    row.tokens_s_gpu = tokens / (row.step_s * case.gpus)
    busy = (row.compute_s + row.again_s) / row.step_s
    # dynamic power saturates at the limit: the tensor cores' share by FLOP, the rest while busy
    drawn = law[IDLE_POWER] + law[FLOP_POWER] * min(row.hfu, MOST_HFU) + law[BUSY_POWER] * busy
    row.power_w = case.tdp_w * min(drawn, 1.0)
    row.energy_j = row.power_w * case.gpus * row.step_s
