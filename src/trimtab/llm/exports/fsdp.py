"""Plans as PyTorch FSDP2 behind `accelerate launch`, as of 1.15.0 (commands/launch.py)."""

from __future__ import annotations

from trimtab.errors import PlanError
from trimtab.llm.exports.lines import SHEBANG, Option, command, comments, several_nodes
from trimtab.llm.nouns import Gpu, Model, Plan
from trimtab.llm.plan.plan import checked_to_train, micro_batches, nodes, precision_on, summary


def files(model: Model, plan: Plan, gpu: Gpu | None = None) -> dict[str, str]:
    """launch.sh: accelerate's launcher around the user's training script."""
    checked_to_train(model, plan)
    _checked(plan)
    precision, notes = precision_on(plan, gpu)
    found, more = options(plan, precision)
    notes = [summary(model, plan), *notes, *more, *several_nodes(plan)]
    notes.append(
        f"in the script: {plan.micro_batch} sequences of {plan.seq} tokens a rank,"
        f" gradient_accumulation_steps={micro_batches(plan)}"
    )
    return {
        "launch.sh": SHEBANG
        + comments(notes)
        + command("accelerate launch", [*found, ('"${SCRIPT:-train.py}"',)])
    }


def options(plan: Plan, precision: str) -> tuple[list[Option], list[str]]:
    """accelerate's options for the plan, and what they leave out."""
    found: list[Option] = [
        ("--num_processes", str(plan.gpus)),
        ("--num_machines", str(nodes(plan))),
        ("--mixed_precision", "no" if precision == "fp32" else precision),
    ]
    if nodes(plan) > 1:
        found += [
            ("--machine_rank", '"$NODE_RANK"'),
            ("--main_process_ip", '"$MASTER_ADDR"'),
            ("--main_process_port", "29500"),
        ]
    notes = []
    if plan.recompute == "selective":
        notes.append("in the script: checkpoint attention alone; with FlashAttention nothing to do")
    if plan.tp * plan.cp > 1:
        found += [
            ("--use_parallelism_config",),
            ("--parallelism_config_dp_shard_size", str(plan.dp)),
            ("--parallelism_config_tp_size", str(plan.tp)),
            ("--parallelism_config_cp_size", str(plan.cp)),
        ]
    if plan.zero == 0:
        if plan.recompute == "full":
            notes.append("in the script: checkpoint every layer")
        return [*found, *([("--multi_gpu",)] if plan.gpus > 1 else [])], notes
    if plan.zero == 1:
        notes.append("FSDP2 shards gradients with optimiser states: ZeRO 1 runs as ZeRO 2")
    found += [
        ("--use_fsdp",),
        ("--fsdp_version", "2"),
        ("--fsdp_reshard_after_forward", "true" if plan.zero == 3 else "false"),
        ("--fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP"),
        ("--fsdp_state_dict_type", "SHARDED_STATE_DICT"),
        ("--fsdp_activation_checkpointing", "true" if plan.recompute == "full" else "false"),
    ]
    return found, notes


def _checked(plan: Plan) -> None:
    for name in ("pp", "interleave", "ep"):
        if getattr(plan, name) > 1:
            raise PlanError(
                f"{name}={getattr(plan, name)}: FSDP has no such way; take {name}=1 or export to"
                " megatron or torchtitan"
            )
    if plan.zero == 0 and plan.tp * plan.cp > 1:
        raise PlanError(
            f"zero=0 with tp={plan.tp}, cp={plan.cp}: they need FSDP's mesh here; take zero=2 or 3"
        )
