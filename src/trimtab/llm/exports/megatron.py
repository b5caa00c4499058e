"""Plans as torchrun and Megatron-LM options, as of core 0.16.1 and 0.19.0 (arguments.py)."""

from __future__ import annotations

from trimtab.errors import PlanError
from trimtab.llm.exports.lines import SHEBANG, Option, command, comments, several_nodes, torchrun
from trimtab.llm.nouns import Gpu, Model, Plan
from trimtab.llm.plan.plan import (
    checked_to_train,
    layers_of_stages,
    micro_batches,
    precision_on,
    summary,
)

ALIBI = ("bloom", "mpt")  # families with slopes in place of positions, which Megatron-LM has not
SHARDING = {2: "optim_grads", 3: "optim_grads_params"}


def files(model: Model, plan: Plan, gpu: Gpu | None = None) -> dict[str, str]:
    """launch.sh: torchrun with pretrain_gpt.py, on mock data until DATA_ARGS is set."""
    checked_to_train(model, plan)
    _checked(model, plan)
    precision, notes = precision_on(plan, gpu)
    found, more = options(model, plan, precision)
    notes = [summary(model, plan), *notes, *more, *several_nodes(plan)]
    data = (
        f"--mock-data --tokenizer-type NullTokenizer --vocab-size {model.vocab}"
        " --train-iters 50 --lr 1e-4"
    )
    # one queue keeps a collective ahead of the product that hides it; FSDP forbids it
    queue = "export CUDA_DEVICE_MAX_CONNECTIONS=1\n" if plan.zero < 2 else ""
    return {
        "launch.sh": SHEBANG
        + comments(notes)
        + queue
        + f'DATA_ARGS=${{DATA_ARGS:-"{data}"}}\n'
        + command(f"{torchrun(plan)} pretrain_gpt.py", [*found, ("$DATA_ARGS",)])
    }


def options(model: Model, plan: Plan, precision: str) -> tuple[list[Option], list[str]]:
    """Megatron-LM's options for the model and the plan, and what they leave out."""
    sharded, notes = _sharded(plan)
    found = [*_shape(model, plan), *_experts(model, plan), *_parallel(model, plan), *sharded]
    found += _recompute(plan) + _precision(precision)
    if model.name.lower().startswith(ALIBI):
        notes.append("Megatron-LM has no ALiBi: rotary positions stand in for it, at like cost")
    if model.experts and plan.tp > 1 and not plan.sequence_parallel:
        found.append(("--sequence-parallel",))
        notes.append("experts with tensor parallelism need sequence parallelism: switched on")
    return found, notes


def _checked(model: Model, plan: Plan) -> None:
    if model.kv_heads % plan.tp and plan.tp % model.kv_heads:
        raise PlanError(
            f"kv_heads={model.kv_heads} is no multiple or divisor of tp={plan.tp}, which"
            " Megatron-LM needs; take another tp"
        )
    if plan.interleave > 1 and micro_batches(plan) % plan.pp:
        raise PlanError(
            f"{micro_batches(plan)} micro-batches are no multiple of pp={plan.pp}, which"
            " interleaving needs; change global_batch or take interleave=1"
        )
    if plan.zero > 1 and plan.pp > 1:
        raise PlanError(
            f"zero={plan.zero} with pp={plan.pp}: a pipeline would gather weights again for every"
            " micro-batch; take zero=1 or pp=1"
        )


def _shape(model: Model, plan: Plan) -> list[Option]:
    found: list[Option] = [
        ("--num-layers", str(model.layers)),
        ("--hidden-size", str(model.hidden)),
        ("--ffn-hidden-size", str(model.ffn)),
        ("--num-attention-heads", str(model.heads)),
        ("--kv-channels", str(model.head_dim)),
        ("--seq-length", str(plan.seq)),
        ("--max-position-embeddings", str(max(plan.seq, model.max_seq))),
    ]
    if model.kv_heads != model.heads:
        found += [("--group-query-attention",), ("--num-query-groups", str(model.kv_heads))]
    if model.kv_rank:
        found += [
            ("--multi-latent-attention",),
            *([("--q-lora-rank", str(model.q_rank))] if model.q_rank else []),
            ("--kv-lora-rank", str(model.kv_rank)),
            ("--qk-head-dim", str(model.head_dim)),
            ("--qk-pos-emb-head-dim", str(model.rope_dim)),
            ("--v-head-dim", str(model.head_dim)),
        ]
    found += [("--swiglu",), ("--normalization", "RMSNorm")] if model.gated else []
    found += [] if model.biases else [("--disable-bias-linear",)]
    found += [] if model.tied else [("--untie-embeddings-and-output-weights",)]
    positions = "learned_absolute" if model.learned_positions else "rope"
    return [*found, ("--position-embedding-type", positions)]


def _experts(model: Model, plan: Plan) -> list[Option]:
    if not model.experts:
        return []
    found: list[Option] = [
        ("--num-experts", str(model.experts)),
        ("--moe-router-topk", str(model.active_experts)),
        ("--moe-ffn-hidden-size", str(model.expert_ffn)),
        ("--moe-grouped-gemm",),
        ("--moe-token-dispatcher-type", "alltoall"),
        ("--expert-model-parallel-size", str(plan.ep)),
    ]
    if model.shared_ffn:
        found.append(("--moe-shared-expert-intermediate-size", str(model.shared_ffn)))
    if model.dense_layers:
        rest = model.layers - model.dense_layers
        found.append(("--moe-layer-freq", f'"([0]*{model.dense_layers}+[1]*{rest})"'))
    return found


def _parallel(model: Model, plan: Plan) -> list[Option]:
    found: list[Option] = [
        ("--micro-batch-size", str(plan.micro_batch)),
        ("--global-batch-size", str(plan.global_batch)),
        ("--tensor-model-parallel-size", str(plan.tp)),
        ("--pipeline-model-parallel-size", str(plan.pp)),
        ("--context-parallel-size", str(plan.cp)),
    ]
    layers = layers_of_stages(model, plan)
    if len(set(layers)) > 1:
        found.append(("--pipeline-model-parallel-layout", f'"{_layout(layers)}"'))
    elif plan.interleave > 1:
        found.append(("--num-virtual-stages-per-pipeline-rank", str(plan.interleave)))
    if plan.sequence_parallel and plan.tp > 1:
        found.append(("--sequence-parallel",))
    return found


def _layout(layers: tuple[int, ...]) -> str:
    """Stages apart by |: E the input table, t a layer, L the loss."""
    stages = [f"t*{count}" for count in layers]
    return "E" + "|".join(stages) + "L"


def _sharded(plan: Plan) -> tuple[list[Option], list[str]]:
    if plan.zero == 0:
        return [("--overlap-grad-reduce",)] if plan.dp > 1 else [], []
    found: list[Option] = [
        ("--use-distributed-optimizer",),
        ("--overlap-grad-reduce",),
        ("--overlap-param-gather",),
    ]
    if plan.zero == 1:
        return found, []
    found += [
        ("--use-megatron-fsdp",),
        ("--data-parallel-sharding-strategy", SHARDING[plan.zero]),
        ("--no-gradient-accumulation-fusion",),
        ("--ckpt-format", "fsdp_dtensor"),
    ]
    return found, ["ZeRO 2 and 3 run as Megatron-FSDP: leave CUDA_DEVICE_MAX_CONNECTIONS unset"]


def _recompute(plan: Plan) -> list[Option]:
    if plan.recompute == "none":
        return []
    if plan.recompute == "selective":
        return [("--recompute-granularity", "selective")]
    return [
        ("--recompute-granularity", "full"),
        ("--recompute-method", "uniform"),
        ("--recompute-num-layers", "1"),
    ]


def _precision(precision: str) -> list[Option]:
    by_name: dict[str, list[Option]] = {
        "fp32": [],
        "fp16": [("--fp16",)],
        "bf16": [("--bf16",)],
        "fp8": [("--bf16",), ("--fp8-format", "hybrid")],
    }
    return by_name[precision]
