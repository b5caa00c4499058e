"""Every plan that a launcher would take for a question, as a table of small numbers.

Left out before anything is priced: what another plan beats whatever the constants are (tensor
parallel without sequence parallel), what leaves a third of the stages idle, and what cannot hold
its weights and optimiser.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.errors import PlanError
from trimtab.llm.cost.cases import FRAMEWORKS, cases
from trimtab.llm.nouns import Model, Question
from trimtab.llm.spec.specs import parameters

PLAN_FIELDS = (
    "gpus", "framework", "tp", "pp", "dp", "cp", "ep", "interleave", "micro_batch", "zero",
    "recompute",
)  # fmt: skip
PLAN = np.dtype([(name, "i4") for name in PLAN_FIELDS])
MICRO_BATCHES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
MOST_TOKENS = 2**17  # of a micro-batch on a rank: kernels are long past their best size
LEAST_PIECE = 4096  # tokens of a sequence on a context rank: less hides no message
MOST_CHUNKS = 16  # interleaved parts of a stage
MOST_UNEVEN = 4 / 3  # layers of the fullest stage / of the mean one
MOST_STAGES = 128
MOST_TENSOR = 16  # ranks, where a node has fewer: further all-reduces over cards win nothing


class Ability(NamedTuple):
    """What a framework can be told."""

    tensor: bool
    pipeline: bool
    context: bool
    chunks: bool  # interleaved stages
    zero: tuple[int, ...]  # stages of ZeRO without a pipeline
    zero_piped: tuple[int, ...]  # and with one


ABILITIES = {
    "megatron": Ability(True, True, True, True, (0, 1), (0, 1)),
    "nemo": Ability(True, True, True, True, (0, 1), (0, 1)),
    "deepspeed": Ability(True, True, False, False, (0, 1, 2, 3), (0, 1)),
    "fsdp": Ability(False, False, False, False, (2, 3), ()),
    # behind a pipeline it keeps weights whole, since every micro-batch would gather them again
    "torchtitan": Ability(True, True, True, True, (2, 3), (2,)),
    "composer": Ability(False, False, False, False, (2, 3), ()),
}


def legal_plans(question: Question, counts: list[int] | None = None) -> Array:
    """All legal plans on the GPUs of the question, or on each of `counts`: (plans,) of PLAN."""
    blocks = []
    for gpus in counts or gpu_counts(question):
        for framework in question.frameworks:
            blocks += list(_blocks(question, gpus, framework))
    if not blocks:
        return np.zeros(0, PLAN)
    return pruned(question, np.concatenate(blocks))


def gpu_counts(question: Question) -> list[int]:
    """Counts of GPUs to try: whole nodes and a power of two, or a ladder where it is free."""
    gpus, node = question.gpus, question.per_node
    # launchers start as many processes on every node
    most = gpus if gpus <= node else gpus - gpus % node
    if not question.up_to:
        # 56 GPUs may split worse than 32 of them: the rest may stand idle
        power = 1 << (most.bit_length() - 1)
        return sorted({most, power if power <= node or power % node == 0 else most}, reverse=True)
    ladder = {most}
    for size in [n for n in range(1, node) if node % n == 0] + [node]:
        for times in (1, 3):
            count = size * times
            while count <= most:
                ladder.add(count)
                count *= 2
    return sorted(n for n in ladder if n <= node or n % node == 0)


def tensor_widths(model: Model, per_node: int) -> list[int]:
    """Widths of tensor parallel that split heads and feed-forward blocks evenly."""
    most = max(per_node, MOST_TENSOR)
    return [t for t in range(1, most + 1) if not tensor_fault(model, t)]


def tensor_fault(model: Model, tp: int) -> str:
    """Why `tp` cannot split the model, empty where it can."""
    if model.heads % tp:
        return f"heads={model.heads} cannot be split over tp={tp}"
    for name in ("ffn", "expert_ffn", "shared_ffn"):
        if getattr(model, name) % tp:
            return f"{name}={getattr(model, name)} cannot be split over tp={tp}"
    kv = model.kv_heads
    if not model.kv_rank and kv % tp and tp % kv:
        return f"kv_heads={kv} can neither be split nor copied evenly over tp={tp}"
    return ""


def divisors(number: int) -> list[int]:
    """All divisors, ascending."""
    low = [n for n in range(1, int(number**0.5) + 1) if number % n == 0]
    return sorted({*low, *(number // n for n in low)})


def layouts(question: Question, gpus: int, ability: Ability) -> Iterator[tuple[int, int, int, int]]:
    """Every (tp, pp, cp, dp) that uses the GPUs and shares the batch."""
    model, fixed = question.model, question.fixed
    for tp in tensor_widths(model, question.per_node) if ability.tensor else [1]:
        if gpus % tp or tp != fixed.get("tp", tp):
            continue
        for pp in stage_counts(model, gpus // tp) if ability.pipeline else [1]:
            if pp != fixed.get("pp", pp):
                continue
            for cp in divisors(gpus // (tp * pp)) if ability.context else [1]:
                dp = gpus // (tp * pp * cp)
                piece = question.seq // cp
                short = piece < LEAST_PIECE and "cp" not in fixed
                # a causal ring gives every rank two pieces, one early and one late
                if cp > 1 and (short or question.seq % (2 * cp)):
                    continue
                wrong = cp != fixed.get("cp", cp) or dp != fixed.get("dp", dp)
                if not wrong and question.global_batch % dp == 0:
                    yield tp, pp, cp, dp


def stage_counts(model: Model, ranks: int) -> list[int]:
    """Stages that divide the ranks and get layers in fair shares."""
    return [pp for pp in divisors(ranks) if fair(model, pp)]


def fair(model: Model, pp: int) -> bool:
    """Whether the fullest of `pp` stages has not much more than its share of the layers."""
    if pp > min(model.layers, MOST_STAGES):
        return False
    return -(-model.layers // pp) * pp <= MOST_UNEVEN * model.layers


def _blocks(question: Question, gpus: int, framework: int) -> Iterator[Array]:
    """One table a layout: its micro-batches, chunks, experts, ZeRO stages and recomputations."""
    ability, fixed = ABILITIES[FRAMEWORKS[framework]], question.fixed
    sharded = framework >= FRAMEWORKS.index("fsdp")
    # with fused attention the pipelines' selective recomputation has nothing left to do
    again = [0, 1, 2] if sharded or not question.flash else [0, 2]
    again = [fixed["recompute"]] if "recompute" in fixed else again
    for tp, pp, cp, dp in layouts(question, gpus, ability):
        share = question.global_batch // dp
        options = {
            "micro_batch": micro_batches(question, share, cp),
            "interleave": chunk_counts(question.model, pp) if ability.chunks else [1],
            "ep": expert_widths(question.model, dp * cp),
            "zero": zero_stages(ability, pp, dp * cp),
            "recompute": again,
        }
        for name, values in options.items():
            options[name] = [v for v in values if v == fixed.get(name, v)]
        block = product(options)
        block["gpus"], block["framework"] = gpus, framework
        block["tp"], block["pp"], block["cp"], block["dp"] = tp, pp, cp, dp
        # an interleaved schedule goes round in groups of as many micro-batches as stages
        whole = share // block["micro_batch"] % pp == 0
        yield block[whole | (block["interleave"] == 1)]


def product(options: dict[str, list[int]]) -> Array:
    """Every combination of the options, one row each."""
    grids = np.meshgrid(*options.values(), indexing="ij")
    block = np.zeros(grids[0].size, PLAN)
    for name, grid in zip(options, grids):
        block[name] = grid.reshape(-1)
    return block


def micro_batches(question: Question, share: int, cp: int) -> list[int]:
    """Sizes that divide a replica's share of the batch."""
    if "micro_batch" in question.fixed:
        size = question.fixed["micro_batch"]
        return [size] if share % size == 0 else []
    # a sequence is split where one is too much already: two halves of two are dp x 2 instead
    most = max(MOST_TOKENS // question.seq, 1) if cp == 1 else 1
    return [size for size in MICRO_BATCHES if share % size == 0 and size <= most]


def chunk_counts(model: Model, pp: int) -> list[int]:
    """Interleaved parts a stage: those that divide its layers evenly."""
    if pp == 1 or model.layers % pp:
        return [1]
    return [v for v in divisors(model.layers // pp) if v <= MOST_CHUNKS]


def expert_widths(model: Model, ranks: int) -> list[int]:
    """Widths of expert parallel that divide the experts and the data ranks."""
    if not model.experts:
        return [1]
    return [ep for ep in divisors(model.experts) if ranks % ep == 0]


def zero_stages(ability: Ability, pp: int, ranks: int) -> list[int]:
    """Stages of ZeRO that differ for that many data ranks."""
    if ranks == 1:
        return [0]
    return list(ability.zero if pp == 1 else ability.zero_piped)


def pruned(question: Question, plans: Array) -> Array:
    """The plans whose weights, gradients and optimiser could fit at all."""
    ranks = plans["dp"] * plans["cp"].astype("f8")
    parts = (2.0, 2.0, 12.0)  # bytes a parameter: the least that any framework keeps
    kept_b = sum(b / np.where(plans["zero"] >= 3 - i, ranks, 1.0) for i, b in enumerate(parts))
    # expert ranks hold different experts, so those count once whatever the data ranks
    spread = plans["tp"] * plans["pp"] * np.maximum(plans["ep"], 1.0)
    floor_b = parameters(question.model) * kept_b / spread
    return plans[floor_b <= 1.1 * question.gpu.memory_b]


def case_rows(question: Question, plans: Array) -> Array:
    """The plans as CASE rows."""
    columns: dict[str, Any] = {name: plans[name] for name in PLAN_FIELDS if name != "gpus"}
    return cases(
        question.model,
        question.gpu,
        plans["gpus"],
        per_node=question.per_node,
        node_link_bps=question.node_link_bps,
        seq=question.seq,
        global_batch=question.global_batch,
        precision=question.precision,
        flash=float(question.flash),
        sequence_parallel=plans["tp"] > 1,
        **columns,
    )


def refuse(question: Question) -> None:
    """Raise the PlanError that says which wish makes every plan illegal."""
    raise PlanError(next(_refusals(question)))


def _refusals(question: Question) -> Iterator[str]:
    """Sentences in the order in which users should read them; the last one always holds."""
    model, fixed, gpus = question.model, question.fixed, question.gpus
    tp, pp, dp, cp = (fixed.get(name, 1) for name in ("tp", "pp", "dp", "cp"))
    batch, size = question.global_batch, fixed.get("micro_batch", 1)
    if tensor_fault(model, tp):
        widths = ", ".join(str(t) for t in tensor_widths(model, question.per_node))
        yield f"{tensor_fault(model, tp)}; take a tp of {widths}"
    chunks = fixed.get("interleave", 1)
    if pp * chunks > model.layers:
        yield f"pp x interleave = {pp} x {chunks} exceeds layers={model.layers}; lower one of them"
    if gpus % (tp * pp * dp * cp):
        words = f"tp x pp x dp x cp = {tp} x {pp} x {dp} x {cp}"
        yield f"{words} does not divide gpus={gpus}; change one of them"
    if batch % (dp * size):
        yield (
            f"dp x micro_batch = {dp} x {size} = {dp * size} does not divide a batch of {batch};"
            f" take --batch {-(-batch // (dp * size)) * dp * size} or lower one of them"
        )
    if fixed.get("ep", 1) > 1 and not model.experts:
        yield f"ep={fixed['ep']}, but {model.name} has no experts; leave --ep out"
    if model.experts and model.experts % fixed.get("ep", 1):
        yield f"ep={fixed['ep']} does not divide experts={model.experts}; take one that does"
    if cp > 1 and question.seq % (2 * cp):
        yield f"seq={question.seq} has no {2 * cp} like pieces for cp={cp}; take a multiple of them"
    if chunks > 1 and fixed.get("pp") == 1:
        yield f"interleave={chunks} needs pp of 2 or more; take --interleave 1 or another --pp"
    if model.layers % (pp * chunks) and chunks > 1:
        yield f"layers={model.layers} do not divide into {pp * chunks} like chunks; take others"
    if chunks > 1 and batch // (dp * size) % pp:
        words = f"{batch // (dp * size)} micro-batches a replica are no multiple of pp={pp}"
        yield f"{words}, which interleaving needs; lower --micro-batch or take --interleave 1"
    yield from _framework_refusals(question)
    yield _unshared(question)


def _unshared(question: Question) -> str:
    """The sentence for a batch that too many replicas would have to share."""
    model, gpus = question.model, max(gpu_counts(question))
    roomy = replace(question, global_batch=math.factorial(12) * gpus)
    found = [
        dp
        for framework in question.frameworks
        for *_, dp in layouts(roomy, gpus, ABILITIES[FRAMEWORKS[framework]])
    ]
    least = min(found, default=0)
    if not least or question.global_batch % least == 0:
        return f"no plan of {model.name} on gpus={gpus} has {_wishes(question)}; fix fewer of them"
    return (
        f"a batch of {question.global_batch} cannot be shared by the {least} or more replicas that"
        f" {model.name} has on gpus={gpus} with {_wishes(question)}; take a --batch that is a"
        f" multiple of {least}, or fewer GPUs"
    )


def _wishes(question: Question) -> str:
    """What was fixed, in words."""
    return ", ".join(f"{name}={value}" for name, value in question.fixed.items()) or "nothing fixed"


def _framework_refusals(question: Question) -> Iterator[str]:
    """Wishes that no framework in question can be told."""
    fixed = question.fixed
    names = [FRAMEWORKS[framework] for framework in question.frameworks]
    able = [ABILITIES[name] for name in names]
    words = " and ".join(names)
    for field, can in (("tp", "tensor"), ("pp", "pipeline"), ("cp", "context")):
        if fixed.get(field, 1) > 1 and not any(getattr(one, can) for one in able):
            yield f"{field}={fixed[field]} is nothing {words} can do; take --framework megatron"
    piped = fixed.get("pp", 1) > 1
    stages = [stage for one in able for stage in (one.zero_piped if piped else one.zero)]
    if "zero" in fixed and fixed["zero"] not in stages:
        if piped and fixed["zero"] == 3:
            yield "zero=3 would gather weights for every micro-batch of a pipeline; take --pp 1"
        other = "megatron" if fixed["zero"] < 2 else "torchtitan"
        yield f"zero={fixed['zero']} is nothing {words} can do; take --framework {other}"
