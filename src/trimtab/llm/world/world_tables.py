"""What each action costs in each condition of a shared cluster, from the cost model.

An action is a number of GPUs and a kind of parallelism. It stands for one layout (tensor, pipeline,
data, sharding), the fastest over all conditions; micro-batch and recomputation follow the memory
that is left, since they change without moving weights. A busy host starts kernels later, a
congested network slows what leaves a node, and neighbours take memory.
"""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from trimtab.arrays import Array
from trimtab.errors import PlanError
from trimtab.llm.cost.cases import FRAMEWORKS, cases, faults
from trimtab.llm.cost.crowded import STATE_B, checkpoint_s, crowded_cost, link_use_s
from trimtab.llm.cost.intervals import memory_spread
from trimtab.llm.cost.training import cost
from trimtab.llm.nouns import Gpu, Model
from trimtab.llm.spec import specs

GPUS = (1, 2, 4, 8, 16)
KINDS = ("data", "model", "hybrid")
ACTIONS = tuple((gpus, kind) for gpus in GPUS for kind in KINDS)
CPU_EDGES = (0.25, 0.5, 0.75)
CPU_LOADS = (0.125, 0.375, 0.625, 0.875)  # of the host by others: the middle of each bin
FREE_LINK = (1.0, 0.5, 0.2)  # share of the link to other nodes that others leave
TAKEN_MEMORY = (0.0, 0.2, 0.4)  # share of a GPU's memory that neighbours hold
SURE = 0.95  # chance to fit that a plan must have in the conditions seen
MICRO_BATCHES = (1, 2, 4)
HOST_W = 400.0  # of a node without its GPUs
CORES_A_GPU = 0.06  # share of a node's CPU that one GPU's process and loader take
LAYOUT = ("gpus", "tp", "pp", "dp", "zero", "framework")


class Tables(NamedTuple):
    """What actions cost: C bins of CPU, B of bandwidth, M of memory, A actions.

    What does not fit, and what is another action under a second name, has `legal` False.
    """

    step_s: Array  # (C, B, M, A)
    energy_j: Array  # (C, B, M, A) a step, all GPUs and their hosts
    memory: Array  # (C, B, M, A) share of the memory that neighbours leave
    link: Array  # (C, B, M, A) share of the busiest link that is left
    cpu: Array  # (C, A) share of the host, others' included
    legal: Array  # (M, A) bool
    fails: Array  # (C, B, M, M, A) chance to run out: memory bin at the start, then at the end
    gpus: Array  # (A,)
    plan: Array  # (C, B, M, A) of CASE: the concrete plan
    state_b: float  # of a checkpoint
    node_link_bps: float
    most_w: float  # all GPUs and hosts, at their limit
    names: tuple[str, ...]  # (A,)


@cache
def tables(
    model: str = "gpt3-2.7b",
    gpu: str = "A100-SXM-80GB",
    *,
    seq: int = 2048,
    global_batch: int = 32,
) -> Tables:
    """The tables of a training job on up to 16 GPUs, which others share."""
    job, device = specs.model(model), specs.gpu(gpu)
    rows = _legal_plans(job, device, seq, global_batch)
    step_s, energy_j = _timed(rows)  # (C, B, P) each
    needed_b, spread = cost(rows)["memory_b"], memory_spread(rows)
    room_b = float(cost(rows[:1])["capacity_b"][0]) * (1.0 - np.array(TAKEN_MEMORY))
    fit = ndtr(np.log(room_b[:, None] / needed_b) / spread)  # (M, P)
    timed_s = np.where(fit[None, None] >= SURE, step_s[:, :, None], np.inf)  # (C, B, M, P)
    chosen = np.stack([_fastest(rows, timed_s, action) for action in ACTIONS], axis=-1)
    legal = (chosen >= 0).all(axis=(0, 1))  # (M, A)
    if not legal.any():
        raise PlanError(
            f"model={model!r} fits on no {max(GPUS)} or fewer {gpu}; take a smaller model or "
            "larger GPUs"
        )
    at = np.maximum(chosen, 0)  # (C, B, M, A)
    c, b, m = np.ogrid[: at.shape[0], : at.shape[1], : at.shape[2]]
    c, b, m = c[..., None], b[..., None], m[..., None]
    gpus = np.array([gpus for gpus, _ in ACTIONS], "f8")
    used = np.minimum(gpus, device.per_node) * CORES_A_GPU
    free_link = np.array(FREE_LINK)[None, :, None, None]
    moved = np.maximum(*link_use_s(rows))[at] / step_s[c, b, at]
    shared = np.where(gpus > device.per_node, free_link, 1.0)
    return Tables(
        step_s[c, b, at],
        energy_j[c, b, at],
        needed_b[at] / room_b[m],
        np.maximum(1.0 - moved / shared, 0.0),
        np.minimum(np.array(CPU_LOADS)[:, None] + used, 1.0),
        np.asarray(legal),
        1.0 - np.moveaxis(fit[:, at], 0, 3),
        gpus,
        rows[at],
        STATE_B * specs.parameters(job),
        float(rows["node_link_bps"][0]),
        max(GPUS) * device.tdp_w + math.ceil(max(GPUS) / device.per_node) * HOST_W,
        tuple(f"{gpus} {kind}" for gpus, kind in ACTIONS),
    )


def _legal_plans(job: Model, device: Gpu, seq: int, global_batch: int) -> Array:
    """Every plan that the model and the batch permit, in rows of CASE."""
    ways = [1, 2, 4, 8, 16]
    grid = np.array(
        [
            (gpus, tp, pp, zero, recompute, micro)
            for gpus in GPUS
            for tp in ways
            for pp in ways
            for zero in (0, 1, 3)
            for recompute in (0, 1, 2)
            for micro in MICRO_BATCHES
            if gpus % (tp * pp) == 0 and tp <= device.per_node
            # sharding needs replicas; shards of weights beside a pipeline are gathered too often
            and (zero == 0 or gpus > tp * pp) and (zero < 3 or pp == 1)
        ]
    ).T  # fmt: skip
    gpus, tp, pp, zero, recompute, micro = grid
    sharded, plain = FRAMEWORKS.index("fsdp"), FRAMEWORKS.index("megatron")
    rows = cases(
        job,
        device,
        gpus,
        seq=seq,
        global_batch=global_batch,
        micro_batch=micro,
        tp=tp,
        pp=pp,
        zero=zero,
        recompute=recompute,
        sequence_parallel=tp > 1,
        framework=np.where(zero == 3, sharded, plain),
    )
    return rows[faults(rows) == 0]


def _timed(rows: Array) -> tuple[Array, Array]:
    """Step time and energy of each plan by CPU and bandwidth: (C, B, P) each."""
    step_s = np.zeros((len(CPU_LOADS), len(FREE_LINK), len(rows)))
    energy_j = np.zeros_like(step_s)
    nodes = np.ceil(rows["gpus"] / rows["per_node"])
    for c, load in enumerate(CPU_LOADS):
        for b, free in enumerate(FREE_LINK):
            found = crowded_cost(rows, load, free)
            step_s[c, b] = found["step_s"]
            energy_j[c, b] = found["energy_j"] + nodes * HOST_W * found["step_s"]
    return step_s, energy_j


def _fastest(rows: Array, timed_s: Array, action: tuple[int, str]) -> Array:
    """The plan of an action in each condition, -1 where none fits: (C, B, M).

    The layout is the one that fits in most conditions and, of those, the fastest on average.
    """
    gpus, kind = action
    split, copies = rows["tp"] * rows["pp"] > 1, rows["dp"] > 1
    # one GPU is split in no way: it counts as data parallel
    of_kind = {"data": ~split, "model": split & ~copies, "hybrid": split & copies}[kind]
    mine = np.flatnonzero((rows["gpus"] == gpus) & of_kind)
    best, found = (0, np.inf), np.full(timed_s.shape[:3], -1)
    for layout in np.unique(rows[list(LAYOUT)][mine]):
        own = mine[rows[list(LAYOUT)][mine] == layout]
        least_s = timed_s[..., own].min(axis=-1)
        fits = np.isfinite(least_s)
        score = (-int(fits.sum()), float(np.mean(least_s[fits])) if fits.any() else np.inf)
        if fits.any() and score < best:
            best = score
            found = np.where(fits, own[timed_s[..., own].argmin(axis=-1)], -1)
    return found


def reshard_s(table: Tables, free_link: float, restart_s: float) -> Array:
    """Seconds lost by a change of action, (A + 1, A): row A starts a job that is down.

    The checkpoint goes out over the links of the old GPUs and in over those of the new ones; a
    node's cards serve all of its GPUs, and one GPU has its own share of them.
    """
    old_gpus, new_gpus = np.append(table.gpus, np.inf)[:, None], table.gpus[None, :]
    link_bps = table.node_link_bps * free_link
    lost_s = restart_s + checkpoint_s(table.state_b, old_gpus, new_gpus, link_bps)
    actions = np.arange(len(table.gpus))
    lost_s[actions, actions] = 0.0
    return np.asarray(lost_s)
