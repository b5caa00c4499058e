"""Shell lines: comments, options one a line, and torchrun's."""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.llm.plan import Plan, gpus_a_node, nodes

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
