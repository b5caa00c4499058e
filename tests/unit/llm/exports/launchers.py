"""Exported commands as their launchers get them, and the options that those launchers know.

`OPTIONS` was read from the parsers of Megatron-LM core 0.16.1 and 0.19.0, DeepSpeed 0.19.8,
Accelerate 1.15.0, torchtitan 0.2.2 (keys of its TOML), vLLM 0.32.0 and SGLang 0.5.23, torchrun's
from torch 2.13. It holds what our exports write, so that a misspelt option fails where the package
is not installed.
"""

import os
import subprocess
from pathlib import Path

OPTIONS = {
    "torchrun": {
        "--nproc-per-node", "--nnodes", "--node-rank", "--master-addr", "--master-port",
        "--standalone",
    },
    "megatron": {
        "--num-layers", "--hidden-size", "--ffn-hidden-size", "--num-attention-heads",
        "--kv-channels", "--seq-length", "--max-position-embeddings", "--group-query-attention",
        "--num-query-groups", "--multi-latent-attention", "--q-lora-rank", "--kv-lora-rank",
        "--qk-head-dim", "--qk-pos-emb-head-dim", "--v-head-dim", "--swiglu", "--normalization",
        "--disable-bias-linear", "--untie-embeddings-and-output-weights",
        "--position-embedding-type", "--num-experts", "--moe-router-topk", "--moe-ffn-hidden-size",
        "--moe-grouped-gemm", "--moe-token-dispatcher-type", "--expert-model-parallel-size",
        "--moe-shared-expert-intermediate-size", "--moe-layer-freq", "--micro-batch-size",
        "--global-batch-size", "--tensor-model-parallel-size", "--pipeline-model-parallel-size",
        "--context-parallel-size", "--pipeline-model-parallel-layout",
        "--num-virtual-stages-per-pipeline-rank", "--sequence-parallel",
        "--use-distributed-optimizer", "--overlap-grad-reduce", "--overlap-param-gather",
        "--use-megatron-fsdp", "--data-parallel-sharding-strategy",
        "--no-gradient-accumulation-fusion", "--ckpt-format", "--recompute-granularity",
        "--recompute-method", "--recompute-num-layers", "--fp16", "--bf16", "--fp8-format",
        "--mock-data", "--tokenizer-type", "--vocab-size", "--train-iters", "--lr",
    },
    "deepspeed": {
        "--num_nodes", "--num_gpus", "--hostfile", "--master_addr", "--deepspeed",
        "--deepspeed_config",
    },
    "fsdp": {
        "--num_processes", "--num_machines", "--mixed_precision", "--machine_rank",
        "--main_process_ip", "--main_process_port", "--use_parallelism_config",
        "--parallelism_config_dp_shard_size", "--parallelism_config_tp_size",
        "--parallelism_config_cp_size", "--multi_gpu", "--use_fsdp", "--fsdp_version",
        "--fsdp_reshard_after_forward", "--fsdp_auto_wrap_policy", "--fsdp_state_dict_type",
        "--fsdp_activation_checkpointing",
    },
    "vllm": {
        "--tensor-parallel-size", "--pipeline-parallel-size", "--max-model-len", "--max-num-seqs",
        "--dtype", "--quantization", "--enable-expert-parallel", "--nnodes", "--node-rank",
        "--master-addr", "--headless", "--data-parallel-size", "--data-parallel-size-local",
        "--data-parallel-start-rank", "--data-parallel-address", "--data-parallel-rpc-port",
    },
    "sglang": {
        "--model-path", "--tp-size", "--pp-size", "--dp-size", "--ep-size", "--context-length",
        "--max-running-requests", "--dtype", "--quantization", "--nnodes", "--node-rank",
        "--dist-init-addr",
    },
}  # fmt: skip
TITAN_KEYS = {
    "model": {"name", "flavor", "converters"},
    "training": {
        "local_batch_size", "global_batch_size", "seq_len", "mixed_precision_param",
        "mixed_precision_reduce",
    },
    "parallelism": {
        "data_parallel_replicate_degree", "data_parallel_shard_degree",
        "fsdp_reshard_after_forward", "tensor_parallel_degree", "context_parallel_degree",
        "pipeline_parallel_degree", "pipeline_parallel_schedule",
        "pipeline_parallel_microbatch_size", "pipeline_parallel_layers_per_stage",
        "pipeline_parallel_first_stage_less_layers", "pipeline_parallel_last_stage_less_layers",
        "module_fqns_per_model_part", "expert_parallel_degree", "expert_tensor_parallel_degree",
    },
    "activation_checkpoint": {"mode", "selective_ac_option"},
    "quantize": {"linear"},
}  # fmt: skip
DEEPSPEED_KEYS = {
    "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps",
    "gradient_clipping", "zero_optimization", "fp16", "bf16", "tensor_parallel",
    "sequence_parallel_size", "activation_checkpointing",
}  # fmt: skip


def words_of(launch: str, folder: Path, node_rank: int = 0) -> list[str]:
    """What the launcher gets, its own name first, when bash runs the script on that node."""
    # each launcher is a function that writes its words; bash does the quoting and the defaults
    stubs = "".join(
        f"{name}() {{ printf '%s\\0' {name} \"$@\"; }}\n"
        for name in ("torchrun", "deepspeed", "accelerate", "vllm", "python")
    )
    done = subprocess.run(
        ["bash", "-eu", "-c", stubs + launch],
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=300,
        env={
            "PATH": os.environ["PATH"],
            "NODE_RANK": str(node_rank),
            "MASTER_ADDR": "10.0.0.1",
            "MODEL": "some/model",
        },
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\0")[:-1]


def options_of(words: list[str]) -> list[str]:
    """The words that are options."""
    return [word for word in words if word.startswith("--")]


def value_of(words: list[str], option: str) -> str:
    """The word after an option."""
    return words[words.index(option) + 1]
