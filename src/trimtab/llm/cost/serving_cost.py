"""What serving takes: the prompt, one token, the cache, the most sequences at once, and energy.

The host starts every kernel of a step, so a step waits for the GPU or for the host, whichever is
slower: a busy CPU lengthens tokens that the GPU alone would produce faster. Captured graphs take
the host out of the layers and leave it the scheduler and the sampler.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.compiled import compiled, inner
from trimtab.llm.cost.constants import OTHER, law_archs, read
from trimtab.llm.cost.kernels import (
    FLASH_SHARE,
    HOST,
    LINK_START_S,
    LOAD_SLOW,
    STREAM_SHARE,
    STREAM_START_S,
    attention_s,
    gemm_s,
    stream_s,
)
from trimtab.llm.cost.layer_time import attention_gemms_s, element_b, ffn_gemms_s
from trimtab.llm.cost.links import all_reduce_s, send_s
from trimtab.llm.cost.memory import layer_parameters
from trimtab.llm.cost.profiles import law_rows
from trimtab.llm.cost.serving_cases import narrowed

SERVING_COST = np.dtype(
    [
        (name, "f8")
        for name in (
            "prefill_s",  # until the first token of the whole batch
            "decode_s",  # between two tokens of one sequence
            "gpu_s",  # of decode_s, were the host infinitely fast
            "host_s",  # of decode_s, were the GPU infinitely fast
            "link_s",  # of gpu_s, in collectives
            "request_s",  # from the prompt to the last token
            "tokens_s",  # generated tokens a second of the replica while it decodes
            "weights_b",  # a GPU
            "kv_token_b",  # a GPU and token of a sequence
            "max_batch",  # sequences of this length that fit; 0 = the weights do not fit
            "power_w",  # a GPU, mean over the request
            "energy_j",  # a request of the batch, all GPUs of the replica
        )
    ]
)

# Kernels that a step starts in one layer: two norms, four products, rotation, cache, attention,
# activation, two sums, one collective; separate bias kernels where there are biases; router, sort,
# gather and scatter where there are experts.
LAUNCHES, BIAS_LAUNCHES, EXPERT_LAUNCHES = 13.0, 4.0, 8.0
LIGHT_KERNELS = 5.0  # of those, element-wise ones
# The measured server sums messages from here on much more slowly than the same collective alone.
LONG_MESSAGE_B = 64.0 * 2.0**20
STEP_ROWS = 8192.0  # tokens a step for whose activations servers keep memory
LISTED_B = 1.063  # bytes that can be had / listed: cards hold GiB, drivers take 1 %
MOST_LOAD = 0.95  # a host that others fill wholly still answers at some point


class Serving(NamedTuple):
    """Constants of serving: two columns by law, the others hold for all."""

    launch_s: Array  # (laws,) host seconds to start one kernel
    prefill_slow: Array  # (laws,) prompt kernels in the server / alone in a loop
    graph_launch_s: float  # the same inside a captured graph
    graph_link_start_s: float  # of a collective inside a captured graph
    step_host_s: float  # host seconds a step: scheduler, inputs, outputs
    sequence_host_s: float  # host seconds a step and sequence
    graph_sequence_host_s: float  # the same where the whole batch is sampled at once
    prefill_host: float  # host time of a prompt's step / of a token's
    wait_norm: float  # p of (gpu^p + host^p)^(1/p): inf = the slower hides the other wholly
    link_slow: float  # collectives in the server / alone in a loop
    long_link_slow: float  # the same for long messages among more than two ranks
    idle_power: float  # shares of the GPU's limit: holding a model
    byte_power: float  # and at full memory bandwidth
    flop_power: float  # and at the largest FLOP/s that products reach


@cache
def serving() -> Serving:
    """The constants as fitted."""
    return serving_of(read()["serving"])


def serving_of(section: dict[str, Any]) -> Serving:
    """The constants of one section of the file; hosts not measured are like the nearest."""
    columns = [
        np.array([float(section[name].get(arch, section[name][OTHER])) for arch in law_archs()])
        for name in ("launch_s", "prefill_slow")
    ]
    values = {name: float(section["values"][name]) for name in Serving._fields[2:]}
    return Serving(columns[0], columns[1], **values)


@inner
def host_slowdown(load: float, load_slow: float) -> float:
    """Host time under `load` / on an idle host: a queue's delay."""
    load = min(max(load, 0.0), MOST_LOAD)
    return 1.0 + load_slow * load / (1.0 - load)


@inner
def kv_layer_b(case: Any) -> float:
    """Bytes of cache a token, a layer and a GPU; ranks beyond the KV heads hold copies."""
    if case.kv_rank > 0.0:
        return (case.kv_rank + case.rope_dim) * case.kv_b
    return 2.0 * max(case.kv_heads / case.tp, 1.0) * case.head_dim * case.kv_b


@inner
def weights_b(case: Any) -> float:
    """Bytes of weights on the fullest GPU; embeddings stay in 16 bits."""
    shared, own = layer_parameters(case)
    layers = math.ceil(case.layers / case.pp)
    copies = 1.0 if case.tied > 0.0 or case.pp > 1.0 else 2.0
    table_b = copies * 2.0 * case.vocab * case.hidden / case.tp
    return (shared + own) * layers * case.weight_b + table_b


@inner
def experts_s(case: Any, rows: float, flops: float, bps: float, law: Array) -> float:
    """Seconds of the experts that `rows` tokens touch, forward, as one grouped product."""
    chance = case.active_experts / case.experts
    touched = case.experts * (1.0 - (1.0 - chance) ** max(rows, 1.0))
    each = rows * case.active_experts / touched
    up = (2.0 if case.gated > 0.0 else 1.0) * case.expert_ffn / case.tp
    start_s = gemm_s(0.0, 0.0, 0.0, flops, bps, law)
    up_s = gemm_s(each, up, case.hidden, flops, bps, law) - start_s
    down_s = gemm_s(each, case.hidden, case.expert_ffn / case.tp, flops, bps, law) - start_s
    out_s = touched * (up_s + down_s) + 2.0 * start_s
    out_s += gemm_s(rows, case.experts, case.hidden, flops, bps, law)
    if case.shared_ffn > 0.0:
        out_s += ffn_gemms_s(case, rows, case.shared_ffn / case.tp, flops, law)
    return out_s


@inner
def products_s(narrow: Any, rows: float, law: Array) -> float:
    """Seconds of all layers' products for `rows` tokens, forward; `narrow` as by `narrowed`."""
    flops, bps = narrow.flops, narrow.memory_bps
    rich = narrow.layers - narrow.dense_layers if narrow.experts > 0.0 else 0.0
    out_s = narrow.layers * attention_gemms_s(narrow, rows, flops, law)
    out_s += (narrow.layers - rich) * ffn_gemms_s(narrow, rows, narrow.ffn / narrow.tp, flops, law)
    if rich > 0.0:
        out_s += rich * experts_s(narrow, rows, flops, bps, law)
    return out_s


@inner
def light_s(case: Any, rows: float, law: Array) -> float:
    """Seconds of all layers' element-wise kernels for `rows` tokens."""
    moved_b = element_b(case, rows, case.experts)
    one_s = stream_s(moved_b, case.memory_bps, law) + (LIGHT_KERNELS - 1.0) * law[STREAM_START_S]
    return case.layers * one_s


@inner
def collectives_s(case: Any, rows: float, graphs: float, law: Array, knobs: Serving) -> float:
    """Seconds of two sums a layer over the tensor ranks, and of the hops between stages."""
    near = min(case.tp, case.per_node)
    message_b = 2.0 * rows * case.hidden
    sum_s = all_reduce_s(message_b, case.tp, near, case.link_bps, case.node_link_bps, law)
    if message_b >= LONG_MESSAGE_B and case.tp > 2.0:
        sum_s *= knobs.long_link_slow
    elif graphs > 0.0 and case.tp > 1.0:
        # as alone in a loop, and without the host's part of the start
        sum_s += min(knobs.graph_link_start_s - law[LINK_START_S], 0.0)
    else:
        sum_s *= knobs.link_slow
    out_s = 2.0 * case.layers * sum_s
    if case.pp > 1.0:
        bps = case.link_bps if case.tp * case.pp <= case.per_node else case.node_link_bps
        out_s += (case.pp - 1.0) * send_s(message_b, bps, law)
    return out_s


@inner
def padded_vocab(case: Any) -> float:
    """Logits a rank computes: servers pad the vocabulary to whole tiles."""
    return 64.0 * math.ceil(case.vocab / case.tp / 64.0)


@inner
def launches(case: Any) -> float:
    """Kernels that the host starts a step."""
    one = LAUNCHES + (BIAS_LAUNCHES if case.biases > 0.0 else 0.0)
    return case.layers * (one + (EXPERT_LAUNCHES if case.experts > 0.0 else 0.0))


@inner
def host_time_s(case: Any, graphs: float, law: Array, knobs: Serving) -> float:
    """Seconds in which the host starts one step's kernels."""
    launch_s = knobs.graph_launch_s if graphs > 0.0 else knobs.launch_s[int(case.arch)]
    start_s = law[HOST] * launches(case) * launch_s
    slow = host_slowdown(case.cpu_load, law[LOAD_SLOW])
    return start_s * (slow if graphs == 0.0 else 1.0) + knobs.step_host_s * slow


@inner
def sampling_s(case: Any, law: Array, knobs: Serving) -> float:
    """Host seconds after the kernels of a step: one sequence after the other."""
    one_s = knobs.graph_sequence_host_s if case.graphs > 0.0 else knobs.sequence_host_s
    return law[HOST] * case.batch * one_s * host_slowdown(case.cpu_load, law[LOAD_SLOW])


@inner
def joined_s(gpu_s: float, host_s: float, norm: float) -> float:
    """Seconds of a step in which GPU and host mostly, but not wholly, hide one another."""
    most = max(gpu_s, host_s)
    if most <= 0.0:
        return 0.0
    return most * ((gpu_s / most) ** norm + (host_s / most) ** norm) ** (1.0 / norm)


@inner
def prefill_parts(case: Any, narrow: Any, law: Array, knobs: Serving) -> tuple[float, float]:
    """Seconds of the prompts of the whole batch: all of it, and the GPU's products in it."""
    rows = case.batch * case.prompt
    step_rows = min(rows, case.chunk) if case.chunk > 0.0 else rows
    steps = rows / step_rows
    product_s = steps * products_s(narrow, step_rows, law)
    scores_s = case.layers * attention_s(
        case.batch,
        case.heads / case.tp,
        max(case.kv_heads / case.tp, 1.0),
        case.prompt,
        case.prompt,
        case.head_dim + case.rope_dim,
        1.0,
        1.0,
        case.flops,
        case.memory_bps,
        law,
    )
    compute_s = product_s + scores_s + steps * light_s(case, step_rows, law)
    gpu_s = compute_s * knobs.prefill_slow[int(case.arch)]
    gpu_s += steps * collectives_s(case, step_rows, 0.0, law, knobs)
    gpu_s += gemm_s(case.batch, padded_vocab(case), case.hidden, case.flops, case.memory_bps, law)
    host_s = knobs.prefill_host * math.ceil(steps) * host_time_s(case, 0.0, law, knobs)
    all_s = joined_s(gpu_s, host_s, knobs.wait_norm) + sampling_s(case, law, knobs)
    return all_s, product_s


@inner
def decode_parts(
    case: Any, narrow: Any, law: Array, knobs: Serving
) -> tuple[float, float, float, float]:
    """Seconds of one token: GPU, host before it, host after it, collectives (part of GPU)."""
    rows = max(case.batch / case.pp, 1.0)  # a stage works on one part of the batch at a time
    context = case.prompt + 0.5 * case.generated
    read_b = rows * context * kv_layer_b(case)
    read_s = read_b / (law[STREAM_SHARE] * case.memory_bps)
    wide = 2.0 * case.kv_rank + case.rope_dim if case.kv_rank > 0.0 else 2.0 * case.head_dim
    flop = 2.0 * rows * context * case.heads / case.tp * wide
    scores_s = max(read_s, flop / (law[FLASH_SHARE] * case.flops)) + law[STREAM_START_S]
    link_s = collectives_s(case, rows, case.graphs, law, knobs)
    gpu_s = products_s(narrow, rows, law) + case.layers * scores_s + light_s(case, rows, law)
    gpu_s += link_s + gemm_s(
        rows, padded_vocab(case), case.hidden, case.flops, case.memory_bps, law
    )
    host_s = host_time_s(case, case.graphs, law, knobs)
    return gpu_s, host_s, sampling_s(case, law, knobs), link_s


@inner
def most_batch(case: Any, used_b: float) -> float:
    """Sequences of this length whose cache fits beside the weights and a step's activations."""
    rows = min(case.batch * case.prompt, STEP_ROWS)
    widest = max(case.ffn, case.active_experts * case.expert_ffn) / case.tp
    working_b = 2.0 * rows * (4.0 * case.hidden + 3.0 * widest)
    free_b = case.memory_share * LISTED_B * case.memory_b - used_b - working_b
    layers = math.ceil(case.layers / case.pp)
    one_b = kv_layer_b(case) * layers * (case.prompt + case.generated)
    return max(math.floor(free_b / one_b), 0.0) if one_b > 0.0 else 0.0


@compiled
def _costs(rows: Array, narrow: Array, laws: Array, knobs: Serving, out: Array) -> None:
    for i in range(len(rows)):
        case = rows[i]
        law = laws[int(case.arch)]
        prefill_s, product_s = prefill_parts(case, narrow[i], law, knobs)
        gpu_s, host_s, after_s, link_s = decode_parts(case, narrow[i], law, knobs)
        decode_s = joined_s(gpu_s, host_s, knobs.wait_norm) + after_s
        used_b = weights_b(case)
        token_b = kv_layer_b(case) * math.ceil(case.layers / case.pp)
        read_b = used_b + case.batch * token_b * (case.prompt + 0.5 * case.generated)
        # the busy share of one GPU: stages of a pipeline wait for each other
        byte_use = min(read_b / case.memory_bps / decode_s, 1.0)
        flop_use = min(product_s / case.pp / prefill_s, 1.0)
        decode_w = min(knobs.idle_power + knobs.byte_power * byte_use, 1.0) * case.tdp_w
        prefill_w = min(knobs.idle_power + knobs.flop_power * flop_use, 1.0) * case.tdp_w
        tokens = max(case.generated - 1.0, 0.0)
        request_s = prefill_s + tokens * decode_s
        energy_j = prefill_s * prefill_w + tokens * decode_s * decode_w
        cost = out[i]
        cost.prefill_s, cost.decode_s, cost.gpu_s = prefill_s, decode_s, gpu_s
        cost.host_s, cost.link_s, cost.request_s = host_s + after_s, link_s, request_s
        cost.tokens_s = case.batch / decode_s
        cost.weights_b, cost.kv_token_b = used_b, token_b
        cost.max_batch = most_batch(case, used_b)
        cost.power_w = energy_j / request_s
        cost.energy_j = energy_j * case.tp * case.pp


def serving_cost(
    made: Array, laws: Array | None = None, knobs: Serving | None = None
) -> Array:  # SERVING_COST
    """What every row of `serving_cases` takes."""
    rows = np.atleast_1d(made)
    out = np.zeros(len(rows), SERVING_COST)
    table = law_rows() if laws is None else laws
    _costs(rows, narrowed(rows), table, serving() if knobs is None else knobs, out)
    return out
