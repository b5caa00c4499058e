"""A plan of parallelism in words and whole numbers: what exports turn into a launcher's options."""

from __future__ import annotations

import numpy as np

from trimtab.errors import PlanError
from trimtab.llm.cost.cases import CASE, MODEL_FIELDS, PRECISIONS, RECOMPUTES, fault
from trimtab.llm.nouns import Gpu, Model, Plan

COUNTS = (
    "gpus", "per_node", "tp", "pp", "dp", "cp", "ep", "interleave", "micro_batch", "global_batch",
    "seq",
)  # fmt: skip


def checked_to_train(model: Model, plan: Plan) -> Plan:
    """`plan`, or PlanError for one that no launcher could run."""
    _checked_values(plan)
    row = np.zeros((), CASE)
    for name in MODEL_FIELDS:
        row[name] = getattr(model, name)
    for name in COUNTS:
        row[name] = getattr(plan, name)
    said = fault(row)
    if said:
        raise PlanError(said)
    if plan.ep > 1 and not model.experts:
        raise PlanError(f"ep={plan.ep}, but {model.name} has no experts; take ep=1")
    if plan.sequence_parallel and plan.seq % plan.tp:
        raise PlanError(
            f"seq={plan.seq} cannot be split over tp={plan.tp}; take a multiple, or"
            " sequence_parallel=False"
        )
    stages = plan.pp * plan.interleave
    if plan.stage_layers and len(plan.stage_layers) != stages:
        raise PlanError(
            f"stage_layers={plan.stage_layers} are {len(plan.stage_layers)} numbers for pp x"
            f" interleave = {stages} stages; give one a stage"
        )
    if plan.stage_layers and (min(plan.stage_layers) < 1 or sum(plan.stage_layers) != model.layers):
        raise PlanError(
            f"stage_layers={plan.stage_layers} must be above 0 and sum to layers={model.layers};"
            " correct them"
        )
    nodes(plan)
    return plan


def checked_to_serve(model: Model, plan: Plan) -> Plan:
    """`plan`, or PlanError for one that no inference server could run."""
    _checked_values(plan)
    if plan.cp > 1 or plan.interleave > 1:
        raise PlanError(
            f"cp={plan.cp}, interleave={plan.interleave}: servers have neither; take 1 for both"
        )
    if plan.gpus != plan.tp * plan.pp * plan.dp:
        raise PlanError(
            f"gpus={plan.gpus} is not tp x pp x dp = {plan.tp} x {plan.pp} x {plan.dp};"
            " change one of them"
        )
    if model.heads % plan.tp:
        raise PlanError(
            f"heads={model.heads} cannot be split over tp={plan.tp}; take a tp that divides them"
        )
    if plan.pp > model.layers:
        raise PlanError(f"pp={plan.pp} exceeds layers={model.layers}; lower pp")
    if plan.ep > 1 and (not model.experts or model.experts % plan.ep):
        raise PlanError(
            f"ep={plan.ep} does not divide the {model.experts} experts of {model.name}; take an ep"
            " that does, or 1"
        )
    nodes(plan)
    return plan


def nodes(plan: Plan) -> int:
    """How many servers the plan takes, all full but a single one."""
    if plan.gpus <= plan.per_node:
        return 1
    if plan.gpus % plan.per_node:
        raise PlanError(
            f"gpus={plan.gpus} do not fill nodes of per_node={plan.per_node}; take a multiple of it"
        )
    return plan.gpus // plan.per_node


def gpus_a_node(plan: Plan) -> int:
    """Processes that a launcher starts on each server."""
    return min(plan.gpus, plan.per_node)


def micro_batches(plan: Plan) -> int:
    """Micro-batches a step that each replica works through."""
    return plan.global_batch // (plan.dp * plan.micro_batch)


def layers_of_stages(model: Model, plan: Plan) -> tuple[int, ...]:
    """Layers of each virtual stage; a remainder goes to the middle, as the ends hold the tables."""
    if plan.stage_layers:
        return plan.stage_layers
    stages = plan.pp * plan.interleave
    each, more = divmod(model.layers, stages)
    first = (stages - more) // 2
    return tuple(each + (first <= stage < first + more) for stage in range(stages))


def precision_on(plan: Plan, gpu: Gpu | None) -> tuple[str, list[str]]:
    """The precision that the GPU can do, and a sentence where that is not the plan's."""
    asked = plan.precision
    if gpu is None:
        return asked, []
    if asked == "fp8" and not gpu.fp8_flops:
        asked = "bf16"
    if asked == "bf16" and not gpu.bf16:
        asked = "fp16"
    if asked == plan.precision:
        return asked, []
    lost = "bf16" if asked == "fp16" else "fp8"
    return asked, [f"{gpu.name} has no {lost}: {asked} in place of {plan.precision}"]


def summary(model: Model, plan: Plan) -> str:
    """The plan in one line, leaving out the ways that are 1."""
    batch = f"batch {plan.global_batch} in micro-batches of {plan.micro_batch}"
    return _sentence(model, plan, [batch, f"seq {plan.seq}", f"ZeRO {plan.zero}"])


def serving_summary(model: Model, plan: Plan) -> str:
    """The same for a plan to serve."""
    return _sentence(model, plan, [f"{plan.micro_batch} sequences of {plan.seq} a replica"])


def _sentence(model: Model, plan: Plan, more: list[str]) -> str:
    names = ("tp", "pp", "dp", "cp", "ep", "interleave")
    ways = [f"{name} {getattr(plan, name)}" for name in names if getattr(plan, name) > 1]
    return f"{model.name} on {plan.gpus} GPUs: {', '.join([*ways, *more])}"


def _checked_values(plan: Plan) -> None:
    for name in COUNTS:
        value = getattr(plan, name)
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
            raise PlanError(f"{name}={value!r} is not a whole number above 0; correct it")
    for name, known in (
        ("zero", (0, 1, 2, 3)),
        ("recompute", RECOMPUTES),
        ("precision", PRECISIONS),
    ):
        if getattr(plan, name) not in known:
            words = ", ".join(str(word) for word in known)
            raise PlanError(f"{name}={getattr(plan, name)!r} is not known; take one of {words}")
