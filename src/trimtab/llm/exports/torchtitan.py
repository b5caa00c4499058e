"""Plans for torchtitan: a TOML file as 0.2.2 reads it (config/job_config.py), options for 0.3.0.

From 0.3 on torchtitan reads no TOML: a function in its registry names the model, and options of the
same sections and keys change it. launch.sh holds both commands, the second as a comment.
"""

from __future__ import annotations

from typing import Any

from trimtab.errors import PlanError
from trimtab.llm.exports.lines import SHEBANG, command, comments, several_nodes, torchrun
from trimtab.llm.nouns import Gpu, Model, Plan
from trimtab.llm.plan.plan import checked_to_train, layers_of_stages, precision_on, summary

# model -> torchtitan's name and flavour (0.2), and its function in the registry (0.3)
KNOWN = {
    "llama-3-8b": ("llama3", "8B", "llama3_8b"),
    "llama-3.1-8b": ("llama3", "8B", "llama3_8b"),
    "llama-3-70b": ("llama3", "70B", "llama3_70b"),
    "llama-3.1-70b": ("llama3", "70B", "llama3_70b"),
    "llama-3.3-70b": ("llama3", "70B", "llama3_70b"),
    "llama-3.1-405b": ("llama3", "405B", "llama3_405b"),
    "qwen3-0.6b": ("qwen3", "0.6B", "qwen3_0_6b"),
    "qwen3-1.7b": ("qwen3", "1.7B", "qwen3_1_7b"),
    "qwen3-4b": ("qwen3", "4B", ""),
    "qwen3-8b": ("qwen3", "8B", ""),
    "qwen3-14b": ("qwen3", "14B", "qwen3_14b"),
    "qwen3-32b": ("qwen3", "32B", "qwen3_32b"),
    "qwen3-30b-a3b": ("qwen3", "30B-A3B", "qwen3_30b_a3b"),
    "qwen3-235b-a22b": ("qwen3", "235B-A22B", ""),
    "deepseek-v2-lite": ("deepseek_v3", "16B", "deepseek_v3_16b"),
    "deepseek-v2": ("deepseek_v3", "236B", ""),
    "deepseek-v3": ("deepseek_v3", "671B", "deepseek_v3_671b"),
    "deepseek-r1": ("deepseek_v3", "671B", "deepseek_v3_671b"),
}
PARTS = "module_fqns_per_model_part"
Sections = dict[str, dict[str, Any]]


def files(model: Model, plan: Plan, gpu: Gpu | None = None) -> dict[str, str]:
    """plan.toml, and launch.sh that starts torchtitan with it."""
    checked_to_train(model, plan)
    precision, notes = precision_on(plan, gpu)
    if precision == "fp16":
        raise PlanError(
            "torchtitan trains in bf16, fp8 or fp32 only and the plan comes to fp16; take"
            " precision=fp32, or export to megatron, deepspeed or fsdp"
        )
    found, more = sections(model, plan, precision)
    notes = [summary(model, plan), *notes, *more]
    launch = command(
        f"{torchrun(plan)} -m torchtitan.train", [("--job.config_file", "${CONFIG:-plan.toml}")]
    )
    flags = registry_flags(model, found)
    newer = []
    if flags:
        newer = ["torchtitan 0.3 reads no TOML; there the same plan is:"]
        newer.append(f"{torchrun(plan)} -m torchtitan.train {' '.join(flags)}")
    return {
        "plan.toml": comments(notes) + "\n" + toml(found),
        "launch.sh": SHEBANG
        + comments([*several_nodes(plan), *newer])
        + "export PYTORCH_ALLOC_CONF=expandable_segments:True\n"
        + launch,
    }


def sections(model: Model, plan: Plan, precision: str) -> tuple[Sections, list[str]]:
    """The sections of the TOML file, and what they leave out."""
    name, flavour, notes = _flavour(model)
    parallel, more = _parallelism(model, plan)
    # in a pipeline a step is one local batch, cut into micro-batches; else they accumulate
    local = plan.global_batch // plan.dp if plan.pp > 1 else plan.micro_batch
    made: Sections = {
        "model": {"name": name, "flavor": flavour},
        "training": {
            "local_batch_size": local,
            "global_batch_size": plan.global_batch,
            "seq_len": plan.seq,
            "mixed_precision_param": "float32" if precision == "fp32" else "bfloat16",
            "mixed_precision_reduce": "float32",
        },
        "parallelism": parallel,
        "activation_checkpoint": {"mode": plan.recompute},
    }
    if plan.recompute == "selective":
        made["activation_checkpoint"]["selective_ac_option"] = "op"
    if precision == "fp8":
        made["model"]["converters"] = ["quantize.linear.float8"]
        made["quantize.linear.float8"] = {"filter_fqns": ["output"]}
    return made, notes + more


def toml(found: Sections) -> str:
    """Sections of numbers, words, switches and lists as TOML."""
    parts = []
    for section, values in found.items():
        lines = [f"{key} = {_written(value)}" for key, value in values.items()]
        parts.append("\n".join([f"[{section}]", *lines]) + "\n")
    return "\n".join(parts)


def registry_flags(model: Model, found: Sections) -> list[str]:
    """The options of torchtitan 0.3 for the same plan; none where its registry lacks the model."""
    name, _, function = KNOWN.get(model.name, ("", "", ""))
    # lists of names and number formats are set in a registry's function, not by options
    if not function or "converters" in found["model"] or PARTS in found["parallelism"]:
        return []
    flags = [f"--module {name} --config {function}"]
    for section in ("training", "parallelism"):
        for key, value in found[section].items():
            if key != "expert_tensor_parallel_degree":
                flags.append(f"--{section}.{key} {value}")
    ways = found["parallelism"]
    if ways["pipeline_parallel_degree"] > 1 or ways.get("expert_parallel_degree", 1) > 1:
        # 0.3 captures a step as a CUDA graph, which neither of the two allows
        flags.append("--training.disable_cuda_graphs")
    return [*flags, f"activation-checkpoint:{found['activation_checkpoint']['mode']}"]


def _flavour(model: Model) -> tuple[str, str, list[str]]:
    if model.name in KNOWN:
        name, flavour, _ = KNOWN[model.name]
        return name, flavour, []
    if not model.gated or model.experts or model.kv_rank or model.biases:
        raise PlanError(
            f"torchtitan has no model like {model.name}; export to megatron, deepspeed or fsdp"
        )
    return (
        "llama3",
        model.name,
        [
            f"add the flavour {model.name} to torchtitan's llama3: dim={model.hidden},"
            f" n_layers={model.layers}, n_heads={model.heads}, n_kv_heads={model.kv_heads},"
            f" feed-forward {model.ffn}, vocab_size={model.vocab}"
        ],
    )


def _parallelism(model: Model, plan: Plan) -> tuple[dict[str, Any], list[str]]:
    notes = []
    if plan.zero == 0 and plan.dp > 1 and plan.tp * plan.pp * plan.cp > 1:
        raise PlanError(
            f"zero=0 with dp={plan.dp} beside other ways: torchtitan replicates only where there is"
            " no other parallelism; take zero=2 or 3"
        )
    if plan.zero == 1:
        notes.append("FSDP2 shards gradients with optimiser states: ZeRO 1 runs as ZeRO 2")
    if plan.tp > 1 and not plan.sequence_parallel:
        notes.append("torchtitan's tensor parallelism is always sequence parallel")
    made: dict[str, Any] = {
        "data_parallel_replicate_degree": plan.dp if plan.zero == 0 else 1,
        "data_parallel_shard_degree": 1 if plan.zero == 0 else plan.dp,
        "fsdp_reshard_after_forward": "always" if plan.zero == 3 else "never",
        "tensor_parallel_degree": plan.tp,
        "context_parallel_degree": plan.cp,
        "pipeline_parallel_degree": plan.pp,
    }
    if plan.pp > 1:
        made |= _pipeline(model, plan)
    if model.experts:
        made |= {"expert_parallel_degree": plan.ep, "expert_tensor_parallel_degree": 1}
    return made, notes


def _pipeline(model: Model, plan: Plan) -> dict[str, Any]:
    made: dict[str, Any] = {
        "pipeline_parallel_schedule": "1F1B" if plan.interleave == 1 else "Interleaved1F1B",
        "pipeline_parallel_microbatch_size": plan.micro_batch,
    }
    layers = layers_of_stages(model, plan)
    if len(set(layers)) == 1:
        # 0 fewer at the ends: the plan counts the same layers for every stage
        return made | {
            "pipeline_parallel_layers_per_stage": layers[0],
            "pipeline_parallel_first_stage_less_layers": 0,
            "pipeline_parallel_last_stage_less_layers": 0,
        }
    parts, first = [], 0
    for count in layers:
        parts.append([f"layers.{layer}" for layer in range(first, first + count)])
        first += count
    parts[0].insert(0, "tok_embeddings")
    parts[-1] += ["norm", "output"]
    return made | {PARTS: parts}


def _written(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(_written(each) for each in value) + "]"
    return f'"{value}"' if isinstance(value, str) else str(value)
