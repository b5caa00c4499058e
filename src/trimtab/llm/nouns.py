"""The nouns of this wing: a Model, a Gpu, a Plan of how the one lies on many of the other, and the
Question that a planner answers with one.

Start reading here. `spec` makes models and GPUs of tables and files, `plan.question` a question of
what a user says, `plan.planner` the plans; `plan.plan` checks one by hand. Quantities are in SI
units: FLOP/s, B, B/s, s, J, W.

A plan has four forms, each of which holds what one place needs:

    row of PLAN   `plan.legal`: what a layout can vary in; there may be millions of them
    row of CASE   `cost.cases`: such a row with its model and machine, as compiled code prices it
    Plan          here: words and whole numbers, what a launcher is told (`plan.plan_rows.plan_of`)
    dict          `plan.plan_rows.plan_row`: a Plan with its prediction, for JSON and for people

They go one way, PLAN to CASE (`legal.case_rows`) to Plan to dict; only `watch.watch_state`
reads a dict back, as the CASE row of the plan that runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Model:
    """A decoder of like layers; experts = 0 is a dense one, kv_rank > 0 latent attention."""

    name: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int  # with latent attention the part without rotation, as wide as a value
    ffn: int
    gated: bool  # three matrices in place of two
    vocab: int
    tied: bool  # the output matrix is the input table
    max_seq: int
    experts: int
    active_experts: int
    expert_ffn: int
    shared_ffn: int  # width of all experts that every token takes
    dense_layers: int  # the first layers, which have no experts
    q_rank: int
    kv_rank: int
    rope_dim: int
    learned_positions: bool
    biases: bool
    source: str
    hub: str = ""  # its repository on the Hugging Face hub, where it has one


@dataclass(frozen=True)
class Gpu:
    """One device as software sees it."""

    name: str
    vendor: str
    arch: str
    flops: float  # dense FLOP/s of 16-bit products with 32-bit sums
    fp8_flops: float  # 0 = none
    fp32_flops: float
    bf16: bool
    memory_b: float
    memory_bps: float
    link: str  # inside a node
    link_bps: float  # one direction
    tdp_w: float
    per_node: int  # in the usual server, or the domain of the fast link
    source: str
    law: str = ""  # of a profile measured on such a GPU; empty = its architecture's


@dataclass(frozen=True)
class Plan:
    """How a model lies on GPUs.

    To serve, a replica is tp x pp GPUs, `micro_batch` the sequences it takes at once, `seq` the
    longest of them.
    """

    gpus: int
    per_node: int = 8
    tp: int = 1  # tensor
    pp: int = 1  # pipeline
    dp: int = 1  # data
    cp: int = 1  # context
    ep: int = 1  # expert: spread over dp x cp ranks in training, over tp x dp ones in serving
    interleave: int = 1  # virtual stages a rank
    micro_batch: int = 1  # sequences
    global_batch: int = 1  # sequences a step
    seq: int = 4096  # tokens
    zero: int = 0  # 0 replicates, 1 shards optimiser states, 2 also gradients, 3 also weights
    recompute: str = "none"  # none, selective (attention), full
    sequence_parallel: bool = False
    precision: str = "bf16"  # fp16, bf16, fp8, fp32
    framework: str = "megatron"
    stage_layers: tuple[int, ...] = ()  # layers of each virtual stage; empty = as even as it goes


@dataclass(frozen=True)
class Question:
    """A planning question in which nothing is left open but the plan."""

    model: Model
    gpu: Gpu
    gpus: int
    seq: int
    global_batch: int
    per_node: int
    node_link_bps: float
    precision: int  # place in PRECISIONS
    flash: bool
    frameworks: tuple[int, ...]  # places in FRAMEWORKS
    objective: Mapping[str, float]  # weights of OBJECTIVES, which sum to 1
    price_hour: float = 0.0  # of one GPU, in any currency; 0 = cost is GPU time
    up_to: bool = False  # fewer GPUs may be taken and the others given back
    least_p_fit: float = 0.9
    fixed: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
