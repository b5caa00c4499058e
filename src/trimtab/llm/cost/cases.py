"""A case: one model, one machine and one plan, as a row of numbers that compiled code reads.

Every field is a float, so that a column of a million plans is one array and a user's table maps
onto it without a class for each kind of plan. Words (framework, precision, ...) are places in the
tuples below.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from trimtab.arrays import Array
from trimtab.errors import PlanError
from trimtab.llm.cost.constants import OTHER, law_names
from trimtab.llm.nouns import Gpu, Model

FRAMEWORKS = ("megatron", "nemo", "deepspeed", "fsdp", "torchtitan", "composer")
PRECISIONS = ("fp16", "bf16", "fp8", "fp32")
RECOMPUTES = ("none", "selective", "full")

MODEL_FIELDS = (
    "hidden", "layers", "heads", "kv_heads", "head_dim", "ffn", "gated", "vocab", "tied",
    "experts", "active_experts", "expert_ffn", "shared_ffn", "dense_layers", "q_rank", "kv_rank",
    "rope_dim", "learned_positions", "biases",
)  # fmt: skip
MACHINE_FIELDS = (
    "flops",  # dense FLOP/s of the GPU in 16 bits
    "fp8_flops",  # 0 = it has none
    "fp32_flops",
    "memory_b",
    "memory_bps",
    "link_bps",  # one direction, a GPU, inside a node
    "node_link_bps",  # one direction, a GPU's share of its node's cards
    "per_node",
    "tdp_w",
    "arch",  # row of its law
    "gpus",
)
PLAN_FIELDS = (
    "seq", "global_batch", "micro_batch", "tp", "pp", "dp", "cp", "ep", "interleave", "zero",
    "recompute", "sequence_parallel", "flash", "eager", "precision", "framework", "grad_bytes",
)  # fmt: skip
CASE = np.dtype([(name, "f8") for name in MODEL_FIELDS + MACHINE_FIELDS + PLAN_FIELDS])

# What a framework calls itself in tables and papers.
FRAMEWORK_NAMES = {
    "megatron": "megatron", "megatronlm": "megatron", "megatroncore": "megatron",
    "mcore": "megatron", "primus": "megatron",
    "nemo": "nemo", "nemoframework": "nemo",
    "deepspeed": "deepspeed", "megatrondeepspeed": "deepspeed", "bigscience": "deepspeed",
    "deepspeedmegatron": "deepspeed", "zero": "deepspeed", "bloom": "deepspeed",
    "gptneox": "deepspeed", "accelerate": "deepspeed",
    "fsdp": "fsdp", "fsdp1": "fsdp", "torchfsdp": "fsdp", "pytorchfsdp": "fsdp", "fmsfsdp": "fsdp",
    "pytorch": "fsdp", "hf": "fsdp", "llamarecipes": "fsdp", "litgpt": "fsdp", "hsdp": "fsdp",
    "torchtitan": "torchtitan", "fsdp2": "torchtitan",
    "composer": "composer", "llmfoundry": "composer", "mosaicml": "composer", "mpt": "composer",
    "llmfoundrycomposer": "composer",
}  # fmt: skip

# One direction, a GPU, bytes a second: what the usual server of that generation has.
NODE_LINK_BPS = {
    "Volta": 12.5e9,
    "Ampere": 25e9,
    "Hopper": 50e9,
    "Blackwell": 50e9,
    "CDNA2": 25e9,
    "CDNA3": 50e9,
    "CDNA4": 50e9,
}
OTHER_NODE_LINK_BPS = 12.5e9

DEFAULT_PLAN = {
    "seq": 2048, "global_batch": 0, "micro_batch": 1, "tp": 1, "pp": 1, "dp": 0, "cp": 1, "ep": 1,
    "interleave": 1, "zero": 0, "recompute": 0, "sequence_parallel": 0, "flash": 1, "eager": 0,
    "precision": 1, "framework": 0, "grad_bytes": 0,
}  # fmt: skip

# Place = code that `faults` gives; 0 = a legal plan.
FAULTS = (
    "",
    "gpus={gpus} is not tp x pp x dp x cp = {tp} x {pp} x {dp} x {cp}; change one of them",
    "heads={heads} cannot be split over tp={tp}; take a tp that divides the heads",
    "layers={layers} are fewer than pp x interleave = {pp} x {interleave}; lower one of them",
    "global_batch={global_batch} is not a multiple of dp x micro_batch = {dp} x {micro_batch};"
    " raise the batch or lower one of them",
    "seq={seq} cannot be split over cp={cp}; take a cp that divides the sequence",
    "experts={experts} cannot be split over ep={ep}; take an ep that divides the experts",
    "ep={ep} does not divide dp x cp = {dp} x {cp}, over whose ranks the experts lie; lower ep",
    "interleave={interleave} needs pp of 2 or more, pp={pp}; take interleave=1",
    "{field}={value} must be a positive number; correct it",
)


def cases(
    model: Model,
    gpu: Gpu,
    gpus: Any,
    *,
    per_node: Any = None,
    node_link_bps: Any = None,
    **plan: Any,
) -> Array:
    """One row a plan: every keyword is a number or a column, and they broadcast.

    `dp=0` or none takes what the GPUs leave, `global_batch=0` one micro-batch a replica,
    `grad_bytes=0` what the framework keeps.
    """
    unknown = sorted(set(plan) - set(PLAN_FIELDS))
    if unknown:
        raise PlanError(f"plan field {unknown[0]!r} does not exist; take one of {PLAN_FIELDS}")
    columns = {name: np.asarray(plan.get(name, DEFAULT_PLAN[name]), "f8") for name in PLAN_FIELDS}
    columns["gpus"] = np.asarray(gpus, "f8")
    columns["per_node"] = np.asarray(gpu.per_node if per_node is None else per_node, "f8")
    link_bps = node_link_of(gpu.arch) if node_link_bps is None else node_link_bps
    columns["node_link_bps"] = np.asarray(link_bps, "f8")
    made = np.zeros(np.broadcast_shapes(*(c.shape for c in columns.values())) or (1,), CASE)
    for name in MODEL_FIELDS:
        made[name] = float(getattr(model, name))
    for name in ("flops", "fp8_flops", "fp32_flops", "memory_b", "memory_bps", "link_bps", "tdp_w"):
        made[name] = float(getattr(gpu, name))
    made["arch"] = law_index(gpu)
    for name, column in columns.items():
        made[name] = column
    return completed(made)


def completed(made: Array) -> Array:
    """Fill what a row leaves at 0: dp, the batch, and the bytes of a gradient."""
    ways = made["tp"] * made["pp"] * made["cp"]
    made["dp"] = np.where(made["dp"] > 0, made["dp"], np.floor(made["gpus"] / ways))
    one_each = made["dp"] * made["micro_batch"]
    made["global_batch"] = np.where(made["global_batch"] > 0, made["global_batch"], one_each)
    made["grad_bytes"] = np.where(made["grad_bytes"] > 0, made["grad_bytes"], grad_bytes(made))
    return made


def grad_bytes(made: Array) -> Array:
    """Bytes of a parameter's gradient while it is summed over micro-batches."""
    framework, half = made["framework"], made["precision"] != PRECISIONS.index("fp32")
    # FSDP keeps the sharded gradient in the type of its fp32 shard; in bf16 the pipelines sum in
    # fp32, since 8 bits of mantissa lose small gradients; fp16 software did not, and NeMo's recipes
    # for speed do not
    sharded = framework >= FRAMEWORKS.index("fsdp")
    in_bf16 = (made["precision"] == PRECISIONS.index("bf16")) | (made["precision"] == 2)
    fast = framework == FRAMEWORKS.index("nemo")
    return np.where(half & ~sharded & (fast | ~in_bf16), 2.0, 4.0)


def faults(made: Array) -> Array:
    """Code of the first thing that makes each plan impossible, 0 where nothing does."""
    m, found = made, np.zeros(made.shape, "i8")
    checks = (
        m["gpus"] != m["tp"] * m["pp"] * m["dp"] * m["cp"],
        np.mod(m["heads"], m["tp"]) != 0,
        m["layers"] < m["pp"] * m["interleave"],
        np.mod(m["global_batch"], m["dp"] * m["micro_batch"]) != 0,
        np.mod(m["seq"], m["cp"]) != 0,
        (m["experts"] > 0) & (np.mod(m["experts"], m["ep"]) != 0),
        np.mod(m["dp"] * m["cp"], m["ep"]) != 0,
        (m["interleave"] > 1) & (m["pp"] < 2),
    )
    for code in range(len(checks), 0, -1):
        found[checks[code - 1]] = code
    for name in ("hidden", "layers", "heads", "seq", "micro_batch", "tp", "pp", "dp", "cp", "gpus"):
        found[~(m[name] > 0)] = len(checks) + 1
    return found


def fault(row: Any) -> str:
    """The sentence for the first fault of one row, empty for a legal plan."""
    code = int(faults(np.asarray([row], CASE))[0])
    values = {name: f"{row[name]:g}" for name in CASE.names or ()}
    field = next((name for name in values if name in PLAN_FIELDS and not row[name] > 0), "gpus")
    return FAULTS[code].format(field=field, value=values[field], **values)


def node_link_of(arch: str) -> float:
    """Bytes a second to other nodes, a GPU, that servers of this generation usually have."""
    return NODE_LINK_BPS.get(arch, OTHER_NODE_LINK_BPS)


def law_index(gpu: Gpu) -> int:
    """Row of a GPU's law: its own if it was measured, else its architecture's, else "other"."""
    lower = [known.lower() for known in law_names()]
    name = (gpu.law or gpu.arch).lower()
    return lower.index(name) if name in lower else lower.index(OTHER)


def framework_index(name: str) -> int:
    """Place of a framework in FRAMEWORKS, by any of the names it goes under."""
    plain = "".join(letter for letter in name.lower() if letter.isalnum())
    if plain in FRAMEWORK_NAMES:
        return FRAMEWORKS.index(FRAMEWORK_NAMES[plain])
    # "Megatron-LM 2023" or "torch FSDP2 + compile": the longest name that is part of it
    for known in sorted(FRAMEWORK_NAMES, key=len, reverse=True):
        if len(known) > 3 and known in plain:
            return FRAMEWORKS.index(FRAMEWORK_NAMES[known])
    raise PlanError(f"framework={name!r} is not known; take one of {', '.join(FRAMEWORKS)}")


def place(words: tuple[str, ...], word: str, field: str, others: Mapping[str, str]) -> int:
    """Place of a word in one of the tuples above; `others` maps spellings onto those words."""
    plain = "".join(letter for letter in word.lower() if letter.isalnum())
    plain = others.get(plain, plain)
    if plain not in words:
        raise PlanError(f"{field}={word!r} is not known; take one of {', '.join(words)}")
    return words.index(plain)
