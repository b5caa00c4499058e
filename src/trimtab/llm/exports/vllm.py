"""Plans as a `vllm serve` command, as of 0.27.1 and 0.32.0 (engine/arg_utils.py)."""

from __future__ import annotations

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
    """launch.sh: one server, on every node that it spans."""
    checked_to_serve(model, plan)
    precision, notes = precision_on(plan, gpu)
    found = _options(plan, precision)
    spread, more = _spread(plan)
    if plan.ep > 1:
        found.append(("--enable-expert-parallel",))
        if plan.ep != plan.tp * plan.dp:
            more.append(f"vLLM spreads experts over all tp x dp ranks, not over ep={plan.ep}")
    notes = [serving_summary(model, plan), *notes, *more]
    name = model.hub or "$MODEL"
    if not model.hub:
        notes.append(f"MODEL: the folder or hub name of {model.name}")
    return {
        "launch.sh": SHEBANG + comments(notes) + command(f'vllm serve "{name}"', found + spread)
    }


def _options(plan: Plan, precision: str) -> list[Option]:
    found: list[Option] = [
        ("--tensor-parallel-size", str(plan.tp)),
        ("--pipeline-parallel-size", str(plan.pp)),
        ("--max-model-len", str(plan.seq)),
        ("--max-num-seqs", str(plan.micro_batch)),
        ("--dtype", DTYPES[precision]),
    ]
    return found + ([("--quantization", "fp8")] if precision == "fp8" else [])


def _spread(plan: Plan) -> tuple[list[Option], list[str]]:
    """Options that lay replicas over nodes, and how to run them there."""
    count, notes = replica_nodes(plan, "a balancer")
    if count:
        return [
            ("--nnodes", str(count)),
            ("--node-rank", '"$NODE_RANK"'),
            ("--master-addr", '"$MASTER_ADDR"'),
            ('$([ "$NODE_RANK" = 0 ] || echo --headless)',),
        ], notes
    if plan.dp == 1:
        return [], []
    found: list[Option] = [("--data-parallel-size", str(plan.dp))]
    if plan.gpus <= plan.per_node:
        return found, []
    local = replicas_a_node(plan)
    found += [
        ("--data-parallel-size-local", str(local)),
        ("--data-parallel-start-rank", f'"$((NODE_RANK * {local}))"'),
        ("--data-parallel-address", '"$MASTER_ADDR"'),
        ("--data-parallel-rpc-port", "13345"),
        ('$([ "$NODE_RANK" = 0 ] || echo --headless)',),
    ]
    count = plan.dp // local
    return found, [f"run it on each of {count} nodes, NODE_RANK from 0, MASTER_ADDR the first's"]
