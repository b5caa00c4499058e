"""Training plans on a cluster that others share: what they cost there, and what they move.

A busy host starts kernels later and a congested network slows what leaves a node; both enter the
cost model here, for the simulated world and for the live re-planner alike.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trimtab.arrays import Array
from trimtab.llm.cost.kernels import LOAD_SLOW
from trimtab.llm.cost.profiles import law_rows, profiles
from trimtab.llm.cost.serving_cost import host_slowdown
from trimtab.llm.cost.training import cost

STATE_B = 14.0  # bytes a parameter of a checkpoint: weights, master copy, two moments


def crowded_cost(rows: Array, cpu_load: float, free_link: float) -> Array:
    """COST of plans on one kind of GPU while others use that share of the host and leave that
    share of the links between nodes.
    """
    law = law_rows()[int(rows["arch"][0])]
    slow = host_slowdown.py_func(cpu_load, law[LOAD_SLOW])
    frames = profiles().copy()
    frames["launch_s"] *= slow
    frames["step_s"] *= slow
    slower = rows.copy()
    slower["node_link_bps"] *= free_link
    return cost(slower, frames=frames)


def checkpoint_s(state_b: float, old_gpus: Any, new_gpus: Any, link_bps: float) -> Any:
    """Seconds in which the state goes out over the old GPUs' links and in over the new ones'."""
    return state_b * (1.0 / (old_gpus * link_bps) + 1.0 / (new_gpus * link_bps))


def link_use_s(rows: Array) -> tuple[Array, Array]:
    """Seconds a step for which the links inside a node and a node's cards to others are in use,
    when they are free: two columns (P,).

    Ranks lie tensor first, then context, data and stages, as launchers place them.
    """
    m, node = rows, rows["per_node"]
    tokens = m["global_batch"] * m["seq"] / (m["dp"] * m["cp"])  # of one rank
    block = m["tp"] * m["cp"] * m["dp"]  # ranks of a stage
    inside_b, outside_b = _tensor_b(m, tokens), np.zeros(len(m))
    context_b, expert_b, data_b = _context_b(m, tokens), _expert_b(m, tokens), _data_b(m)
    stage_b = np.where(m["pp"] > 1, 4.0 * m["interleave"] * tokens * m["hidden"] / m["tp"], 0.0)
    # bytes of one GPU, the ranks among which they go, and GPUs of a node that send them out: a
    # ring leaves a node once however many of its ranks are there, other traffic goes rank by rank
    for sent_b, ranks, senders in (
        (context_b, m["tp"] * m["cp"], m["tp"]),
        (expert_b, m["tp"] * m["cp"] * m["ep"], node),
        (data_b, block, m["tp"]),
        (stage_b, block * m["pp"], block),
    ):
        near = ranks <= node
        inside_b = inside_b + np.where(near, sent_b, 0.0)
        outside_b = outside_b + np.where(near, 0.0, sent_b * np.minimum(senders, node) / node)
    return inside_b / m["link_bps"], outside_b / m["node_link_bps"]


def _tensor_b(m: Array, tokens: Array) -> Array:
    """Bytes a step that one GPU sends to its tensor ranks."""
    ring = 2.0 * (m["tp"] - 1) / m["tp"]
    again = np.where(m["recompute"] == 2, 1.5, 1.0)
    return np.asarray(4.0 * again * ring * m["layers"] / m["pp"] * 2.0 * tokens * m["hidden"])


def _context_b(m: Array, tokens: Array) -> Array:
    """Bytes a step of keys and values that go round the context ranks, forward and twice back."""
    wide = 2.0 * m["kv_heads"] * m["head_dim"] / m["tp"]
    return np.asarray(3.0 * (m["cp"] - 1) * 2.0 * wide * tokens * m["layers"] / m["pp"])


def _expert_b(m: Array, tokens: Array) -> Array:
    """Bytes a step of tokens sent to experts and back, forward and backward."""
    rich = np.where(m["experts"] > 0, m["layers"] - m["dense_layers"], 0.0) / m["pp"]
    share = (m["ep"] - 1) / m["ep"]
    return np.asarray(8.0 * share * m["active_experts"] * tokens * m["hidden"] / m["tp"] * rich)


def _data_b(m: Array) -> Array:
    """Bytes a step of weights and gradients that one GPU sends to its data ranks."""
    wide = m["heads"] * m["head_dim"] + m["kv_heads"] * m["head_dim"]
    matrices = np.where(m["gated"] > 0, 3.0, 2.0)
    width = np.where(m["experts"] > 0, m["shared_ffn"], m["ffn"])
    layer = 2.0 * m["hidden"] * wide + matrices * m["hidden"] * width
    weights = layer * m["layers"] / (m["tp"] * m["pp"])
    steps = m["global_batch"] / (m["dp"] * m["micro_batch"])
    # sharded weights are gathered for each pass of each micro-batch
    times = np.where(m["zero"] == 3, 2.0 * 2.0 * steps + m["grad_bytes"], 2.0 * m["grad_bytes"])
    ranks = m["dp"] * m["cp"]
    return np.asarray((ranks - 1) / ranks * times * weights)
