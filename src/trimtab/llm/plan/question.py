"""What a planner is asked: a model, GPUs of one kind, a batch, an objective, and what is fixed.

    question = question_of(model("llama-3-70b"), gpu("H100"), 64, objective="time=0.7,energy=0.3")

What the user leaves open is filled in here, and `notes` says how.
"""

from __future__ import annotations

from typing import Any

from trimtab.errors import PlanError
from trimtab.llm.cost.cases import (
    FRAMEWORKS,
    PRECISIONS,
    RECOMPUTES,
    framework_index,
    node_link_of,
)
from trimtab.llm.cost.constants import law_of
from trimtab.llm.cost.kernels import IDLE_POWER
from trimtab.llm.nouns import Gpu, Model, Question
from trimtab.llm.plan.options import GBPS, TRAIN, TrainOptions, changed
from trimtab.llm.spec.specs import parameters

OBJECTIVES = ("time", "cost", "energy")
ANY_FRAMEWORK = ("megatron", "torchtitan")  # where the user names none: the two that go furthest
FIXABLE = ("tp", "pp", "dp", "cp", "ep", "interleave", "micro_batch", "zero", "recompute")
MOST_SEQ = 8192  # models that can read more are trained on this much first
# Tokens of a batch up to that many parameters, as GPT-3 and Llama 2 and 3 were trained.
BATCH_TOKENS = ((1e9, 2**19), (3e9, 2**20), (2e10, 2**21), (1e11, 2**22), (2e11, 2**23))
LARGEST_BATCH_TOKENS = 2**24
# Fused attention kernels begin with these generations' successors.
UNFUSED = ("Kepler", "Maxwell", "Pascal", "Volta", "Turing", "Vega20", "CDNA1", "RDNA2")


def question_of(
    model: Model, gpu: Gpu, gpus: int, options: TrainOptions = TRAIN, **said: Any
) -> Question:
    """The question with defaults filled in; `said` are fields of TrainOptions, by name."""
    wish = changed(options, said)
    _refuse_numbers(gpus, wish)
    _refuse_amounts(wish)
    notes: list[str] = []
    seq = settled_seq(model, wish.seq, notes)
    node = wish.per_node or default_node(gpu, gpus, notes)
    whole = gpus - gpus % node if gpus > node else gpus
    sharing = 1 if wish.up_to else whole
    return Question(
        model=model,
        gpu=gpu,
        gpus=gpus,
        seq=seq,
        global_batch=wish.global_batch or default_batch(model, seq, sharing, notes),
        per_node=node,
        node_link_bps=wish.node_link_bps or default_link(gpu, gpus > node, notes),
        precision=settled_precision(gpu, wish.precision, notes),
        flash=gpu.arch not in UNFUSED,
        frameworks=settled_frameworks(wish.framework),
        objective=weights(wish.objective),
        price_hour=wish.price_hour,
        up_to=wish.up_to,
        least_p_fit=wish.least_p_fit,
        fixed=settled_fixed(wish),
        notes=tuple(notes + law_notes(gpu)),
    )


def _refuse_numbers(gpus: int, wish: TrainOptions) -> None:
    if gpus < 1:
        raise PlanError(f"gpus={gpus} leaves nothing to plan for; ask for at least one")
    counts = {"seq": wish.seq, "batch": wish.global_batch, "gpus-per-node": wish.per_node}
    for name, value in counts.items():
        if value < 0:
            raise PlanError(f"{name}={value} is negative; take 1 or more, or leave it out")


def _refuse_amounts(wish: TrainOptions) -> None:
    amounts = {"node-link-gbps": wish.node_link_bps / GBPS, "price-hour": wish.price_hour}
    for name, amount in amounts.items():
        if not 0 <= amount < float("inf"):
            raise PlanError(f"{name}={amount:g} is not a usable number; take one above 0")
    if not 0 < wish.least_p_fit < 1:
        raise PlanError(f"p_fit={wish.least_p_fit:g} is no chance; take a number between 0 and 1")


def settled_seq(model: Model, seq: int, notes: list[str]) -> int:
    """The sequence asked for, or as much as the model was likely trained on."""
    if not seq:
        seq = min(model.max_seq, MOST_SEQ)
        notes.append(f"sequence of {seq} tokens: default, set --seq")
    elif seq > model.max_seq:
        notes.append(f"sequence of {seq} tokens is beyond the {model.max_seq} of {model.name}")
    return seq


def default_batch(model: Model, seq: int, gpus: int, notes: list[str]) -> int:
    """Sequences a step by the size of the model, as a multiple that these GPUs can share."""
    count = parameters(model)
    tokens = next((t for most, t in BATCH_TOKENS if count <= most), LARGEST_BATCH_TOKENS)
    batch = max(tokens // seq, 1)
    if gpus <= batch:
        batch = max(round(batch / gpus), 1) * gpus
    else:
        odd = gpus // (gpus & -gpus)
        # a share of the GPUs that halves evenly: tensor and pipeline ranks take the rest
        batch = odd << max(round(batch / odd).bit_length() - 1, 0)
    words = f"batch of {batch} sequences ({batch * seq / 1e6:.3g}M tokens)"
    notes.append(f"{words}: default for {count / 1e9:.3g}B parameters, set --batch")
    return batch


def default_node(gpu: Gpu, gpus: int, notes: list[str]) -> int:
    """GPUs a node: the usual server's, or a smaller one's that the GPUs fill evenly."""
    usual = gpu.per_node
    if gpus <= usual or gpus % usual == 0:
        return usual
    node = next((n for n in range(usual, usual // 2 - 1, -1) if gpus % n == n % 2 == 0), usual)
    if node != usual:
        notes.append(f"nodes of {node} GPUs: {gpus} do not fill nodes of {usual}")
    return node


def default_link(gpu: Gpu, crosses: bool, notes: list[str]) -> float:
    """Bytes a second between nodes, a GPU, that such servers usually have."""
    link_bps = node_link_of(gpu.arch)
    if crosses:
        gbps = 8 * link_bps / 1e9
        notes.append(f"{gbps:g} Gb/s between nodes a {gpu.name}: default, set --node-link-gbps")
    return link_bps


def settled_precision(gpu: Gpu, precision: str, notes: list[str]) -> int:
    """Place of the precision; 16 bits in the form that the GPU has."""
    if not precision:
        precision = half(gpu)
    if precision not in PRECISIONS:
        raise PlanError(
            f"precision={precision!r} is not known; take one of {', '.join(PRECISIONS)}"
        )
    if precision == "bf16" and not gpu.bf16:
        notes.append(f"{gpu.name} has no bf16: fp16 is taken")
        precision = "fp16"
    if precision == "fp8" and not gpu.fp8_flops:
        raise PlanError(f"precision=fp8 is beyond {gpu.name}; take {half(gpu)}")
    return PRECISIONS.index(precision)


def half(gpu: Gpu) -> str:
    """The 16 bits that the GPU trains best in."""
    return "bf16" if gpu.bf16 else "fp16"


def settled_frameworks(framework: str) -> tuple[int, ...]:
    """Places of the frameworks to plan for."""
    if not framework:
        return tuple(FRAMEWORKS.index(name) for name in ANY_FRAMEWORK)
    return (framework_index(framework),)


def settled_fixed(wish: TrainOptions) -> dict[str, int]:
    """The fields that the plan must have, as whole numbers; None leaves one open."""
    out: dict[str, int] = {}
    for name in FIXABLE:
        value = getattr(wish, name)
        if value is None:
            continue
        if name == "recompute" and not isinstance(value, int):
            if value not in RECOMPUTES:
                words = ", ".join(RECOMPUTES)
                raise PlanError(f"recompute={value!r} is not known; take one of {words}")
            value = RECOMPUTES.index(value)
        least, most = (0, 3) if name == "zero" else (0, 2) if name == "recompute" else (1, 10**6)
        if not least <= value <= most:
            raise PlanError(f"{name}={value} is out of range; take {least} to {most}")
        out[name] = int(value)
    return out


def weights(text: str) -> dict[str, float]:
    """Weights that sum to 1 of an objective: `time`, or a mix such as `time=0.7,energy=0.3`."""
    out: dict[str, float] = {}
    for part in text.split(","):
        name, _, weight = part.strip().partition("=")
        try:
            out[name] = float(weight or 1.0)
        except ValueError:
            out[name] = -1.0
        if name not in OBJECTIVES or not 0 <= out[name] < float("inf"):
            known = ", ".join(OBJECTIVES)
            raise PlanError(
                f"objective={text!r} is not one of {known}, nor a mix like time=0.7,energy=0.3"
            )
    total = sum(out.values())
    if not total:
        raise PlanError(f"objective={text!r} weighs nothing; give one part a weight above 0")
    return {name: weight / total for name, weight in out.items()}


def idle_power(gpu: Gpu) -> float:
    """What a GPU without work draws, of its power limit."""
    return float(law_of(gpu.law or gpu.arch).values[IDLE_POWER])


def law_notes(gpu: Gpu) -> list[str]:
    """What stands in for a GPU's own measurements, if something does."""
    note = law_of(gpu.law or gpu.arch).note
    return [f"{gpu.name}: kernel and link times {note}, intervals are wider"] if note else []
