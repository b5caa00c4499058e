"""Plans as a DeepSpeed JSON file and its launcher's line, as of 0.19.8 (runtime/config.py)."""

from __future__ import annotations

import json
from typing import Any

from trimtab.errors import PlanError
from trimtab.llm.exports.lines import SHEBANG, command, comments
from trimtab.llm.nouns import Gpu, Model, Plan
from trimtab.llm.plan.plan import (
    checked_to_train,
    gpus_a_node,
    micro_batches,
    nodes,
    precision_on,
    summary,
)


def files(model: Model, plan: Plan, gpu: Gpu | None = None) -> dict[str, str]:
    """ds_config.json, and launch.sh for a training script that passes it to deepspeed."""
    checked_to_train(model, plan)
    _checked(model, plan)
    precision, notes = precision_on(plan, gpu)
    if precision == "fp8":
        notes.append("DeepSpeed leaves fp8 to the model's layers (Transformer Engine): bf16 here")
    notes = [summary(model, plan), *notes, *_left_to_script(plan)]
    start = f"deepspeed --num_nodes {nodes(plan)} --num_gpus {gpus_a_node(plan)}"
    if nodes(plan) > 1:
        start += ' --hostfile "${HOSTFILE:-hostfile}" --master_addr "$MASTER_ADDR"'
        notes.append("hostfile: a line a node, its name and slots=GPUs")
    start += ' "${SCRIPT:-train.py}"'
    launch = command(start, [("--deepspeed",), ("--deepspeed_config", "ds_config.json")])
    return {
        "ds_config.json": json.dumps(config(plan, precision), indent=2) + "\n",
        "launch.sh": SHEBANG + comments(notes) + launch,
    }


def config(plan: Plan, precision: str) -> dict[str, Any]:
    """The JSON file as a dict."""
    made: dict[str, Any] = {
        "train_batch_size": plan.global_batch,
        "train_micro_batch_size_per_gpu": plan.micro_batch,
        "gradient_accumulation_steps": micro_batches(plan),
        "gradient_clipping": 1.0,
        "zero_optimization": {"stage": plan.zero},
    }
    if plan.zero:
        made["zero_optimization"] |= {"overlap_comm": True, "contiguous_gradients": True}
    if precision == "fp16":
        made["fp16"] = {"enabled": True}
    elif precision != "fp32":
        made["bf16"] = {"enabled": True}
    if plan.tp > 1 and plan.pp == 1:
        made["tensor_parallel"] = {"autotp_size": plan.tp}
    if plan.cp > 1:
        made["sequence_parallel_size"] = plan.cp
    if plan.recompute == "full":
        made["activation_checkpointing"] = {"partition_activations": plan.sequence_parallel}
    return made


def _checked(model: Model, plan: Plan) -> None:
    if plan.interleave > 1:
        raise PlanError(
            f"interleave={plan.interleave}: DeepSpeed's pipeline has no virtual stages; take"
            " interleave=1 or export to megatron"
        )
    if plan.pp > 1 and plan.zero > 1:
        raise PlanError(
            f"zero={plan.zero} with pp={plan.pp}: DeepSpeed's pipeline takes ZeRO 0 or 1; take"
            " zero=1 or pp=1"
        )
    if plan.tp > 1 and plan.pp == 1 and plan.zero == 3:
        raise PlanError(
            f"zero=3 with tp={plan.tp}: DeepSpeed's automatic tensor parallelism takes ZeRO 0 to 2;"
            " take zero=2 or tp=1"
        )
    if plan.cp > 1 and model.heads % plan.cp:
        raise PlanError(
            f"cp={plan.cp} does not divide heads={model.heads}: DeepSpeed splits the sequence by"
            " heads (Ulysses); take a cp that does"
        )


def _left_to_script(plan: Plan) -> list[str]:
    notes = []
    if plan.pp > 1:
        layers = f", layers {plan.stage_layers}" if plan.stage_layers else ""
        notes.append(f"in the script: PipelineModule(..., num_stages={plan.pp}){layers}")
        if plan.tp > 1:
            notes.append(
                f"in the script: PipeModelDataParallelTopology(num_pp={plan.pp},"
                f" num_mp={plan.tp}, num_dp={plan.dp}) and layers split {plan.tp} ways"
            )
    if plan.cp > 1:
        notes.append(f"in the script: Ulysses attention, {plan.cp} ranks a sequence")
    if plan.ep > 1:
        notes.append(f"in the script: deepspeed.moe.layer.MoE(..., ep_size={plan.ep})")
    if plan.recompute == "full":
        notes.append("in the script: checkpoint every layer (deepspeed.checkpointing.checkpoint)")
    if plan.recompute == "selective":
        notes.append("in the script: checkpoint attention alone; with FlashAttention nothing to do")
    return notes
