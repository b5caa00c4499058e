"""Shell lines: comments, options one a line, and torchrun's."""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.errors import PlanError
from trimtab.llm.nouns import Plan
from trimtab.llm.plan.plan import gpus_a_node, nodes

SHEBANG = "#!/usr/bin/env bash\n"
Option = tuple[str, ...]  # the option and its values


def comments(sentences: Sequence[str]) -> str:
    """Each sentence as a line that a shell, TOML and YAML pass over."""
    return "".join(f"# {sentence}\n" for sentence in sentences)


def command(start: str, options: Sequence[Option]) -> str:
    """A command with one option a line."""
    return " \\\n  ".join([start, *(" ".join(option) for option in options)]) + "\n"


def torchrun(plan: Plan) -> str:
    """torchrun and its options; with several nodes the same line runs on each of them."""
    each = f"torchrun --nproc-per-node {gpus_a_node(plan)}"
    if nodes(plan) == 1:
        return f"{each} --standalone"
    return (
        f'{each} --nnodes {nodes(plan)} --node-rank "$NODE_RANK"'
        ' --master-addr "$MASTER_ADDR" --master-port 29500'
    )


def several_nodes(plan: Plan) -> list[str]:
    """The sentence that several nodes need."""
    if nodes(plan) == 1:
        return []
    return [f"run it on each of {nodes(plan)} nodes, NODE_RANK from 0, MASTER_ADDR the first one's"]


def replica_nodes(plan: Plan, balancer: str) -> tuple[int, list[str]]:
    """How many nodes a served replica fills, and how to start it there; 0 = it shares a node."""
    replica = plan.tp * plan.pp
    if replica <= plan.per_node:
        return 0, []
    if replica % plan.per_node:
        raise PlanError(
            f"tp x pp = {replica} do not fill nodes of per_node={plan.per_node}; take a multiple"
            " of it"
        )
    count = replica // plan.per_node
    notes = [f"run it on each of {count} nodes, NODE_RANK from 0, MASTER_ADDR the first one's"]
    if plan.dp > 1:
        notes.append(f"that is one replica: start {plan.dp} such groups behind {balancer}")
    return count, notes


def replicas_a_node(plan: Plan) -> int:
    """How many served replicas share a node."""
    local = min(plan.dp, plan.per_node // (plan.tp * plan.pp))
    if plan.dp % local:
        raise PlanError(
            f"dp={plan.dp} replicas do not fill nodes that hold {local} each; take a multiple"
        )
    return local
