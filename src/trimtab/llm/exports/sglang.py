"""Plans as an SGLang server's command, as of 0.5.18 and 0.5.23 (srt/server_args.py)."""

from __future__ import annotations

from trimtab.errors import PlanError
from trimtab.llm.exports.lines import (
    SHEBANG,
    Option,
    command,
    comments,
    replica_nodes,
    replicas_a_node,
)
from trimtab.llm.nouns import Gpu, Model, Plan
from trimtab.llm.plan.plan import checked_to_serve, precision_on, serving_summary

DTYPES = {"fp16": "float16", "bf16": "bfloat16", "fp8": "auto", "fp32": "float32"}


def files(model: Model, plan: Plan, gpu: Gpu | None = None) -> dict[str, str]:
    """launch.sh: one server; replicas that do not fit into its node are servers of their own."""
    checked_to_serve(model, plan)
    precision, notes = precision_on(plan, gpu)
    found: list[Option] = [
        ("--model-path", f'"{model.hub or "$MODEL"}"'),
        ("--tp-size", str(plan.tp)),
        ("--pp-size", str(plan.pp)),
        ("--context-length", str(plan.seq)),
        ("--max-running-requests", str(plan.micro_batch)),
        ("--dtype", DTYPES[precision]),
    ]
    found += [("--quantization", "fp8")] if precision == "fp8" else []
    if plan.ep > 1:
        if plan.tp % plan.ep:
            raise PlanError(
                f"ep={plan.ep} does not divide tp={plan.tp}, whose ranks share SGLang's experts;"
                " take an ep that does"
            )
        found.append(("--ep-size", str(plan.ep)))
    spread, more = _spread(plan)
    notes = [serving_summary(model, plan), *notes, *more]
    if not model.hub:
        notes.append(f"MODEL: the folder or hub name of {model.name}")
    return {
        "launch.sh": SHEBANG
        + comments(notes)
        + command("python -m sglang.launch_server", found + spread)
    }


def _spread(plan: Plan) -> tuple[list[Option], list[str]]:
    """Options that lay a replica over nodes, and how many servers to start."""
    count, notes = replica_nodes(plan, "SGLang's router")
    if count:
        return [
            ("--nnodes", str(count)),
            ("--node-rank", '"$NODE_RANK"'),
            ("--dist-init-addr", '"$MASTER_ADDR:20000"'),
        ], notes
    local = replicas_a_node(plan)
    found: list[Option] = [("--dp-size", str(local))] if local > 1 else []
    if local == plan.dp:
        return found, []
    return found, [f"start it on each of {plan.dp // local} nodes behind SGLang's router"]
