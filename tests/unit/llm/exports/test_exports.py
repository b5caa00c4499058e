"""Exports write options that the launchers know, and say what a launcher cannot do."""

import json
import tomllib
from dataclasses import replace

import pytest
from tests.unit.llm.exports.launchers import (
    DEEPSPEED_KEYS,
    OPTIONS,
    TITAN_KEYS,
    options_of,
    value_of,
    words_of,
)

from trimtab.errors import PlanError, UnknownName
from trimtab.llm import exports
from trimtab.llm.nouns import Plan
from trimtab.llm.spec.specs import gpu, model

H100, V100 = gpu("H100"), gpu("V100")
LLAMA, V3 = model("llama-3-70b"), model("deepseek-v3")
FULL = Plan(
    64, tp=8, pp=4, dp=2, interleave=2, global_batch=128, seq=8192, zero=1,
    recompute="selective", sequence_parallel=True,
)  # fmt: skip
SHARDED = Plan(64, dp=64, global_batch=128, micro_batch=2, seq=4096, zero=3, recompute="full")
SERVED = Plan(8, tp=4, dp=2, micro_batch=64, seq=8192)

# launcher, model, plan: every option that an export can write appears in one of these
TRAINED = [
    ("megatron", LLAMA, FULL),
    ("megatron", LLAMA, SHARDED),
    ("megatron", model("gpt3-175b"), replace(FULL, interleave=1, zero=0, recompute="full")),
    ("megatron", model("bloom-176b"), Plan(48, tp=4, pp=12, global_batch=64, seq=2048)),
    ("megatron", model("llama-3.1-405b"), Plan(64, tp=8, pp=8, global_batch=64)),
    ("megatron", V3, Plan(128, tp=2, pp=4, dp=16, ep=16, global_batch=256, precision="fp8")),
    ("deepspeed", LLAMA, SHARDED),
    ("deepspeed", LLAMA, replace(FULL, interleave=1)),
    ("deepspeed", LLAMA, Plan(8, tp=4, cp=2, global_batch=8, zero=2, precision="fp32")),
    ("fsdp", LLAMA, SHARDED),
    ("fsdp", LLAMA, replace(SHARDED, tp=4, cp=2, dp=8, zero=2, recompute="selective")),
    ("fsdp", model("gpt2"), Plan(4, dp=4, global_batch=32, seq=1024, precision="fp8")),
    ("torchtitan", LLAMA, replace(FULL, zero=2)),
    ("torchtitan", LLAMA, replace(SHARDED, precision="fp8")),
    ("torchtitan", model("llama-3.1-405b"), replace(FULL, pp=8, dp=1, interleave=1)),
    ("torchtitan", model("qwen3-30b-a3b"), Plan(8, dp=8, ep=8, global_batch=8, zero=3)),
]
SERVERS = [
    (launcher, served, plan)
    for launcher in exports.TO_SERVE
    for served, plan in [
        (LLAMA, SERVED),
        (LLAMA, Plan(32, tp=8, dp=4, micro_batch=16)),
        (LLAMA, Plan(32, tp=8, pp=2, dp=2, micro_batch=16, precision="fp8")),
        (V3, Plan(16, tp=16, ep=16, micro_batch=128, seq=32768)),
        (replace(LLAMA, hub=""), SERVED),
    ]
]


@pytest.mark.parametrize(("launcher", "trained", "plan"), TRAINED + SERVERS)
def test_every_option_is_one_that_the_launcher_knows(launcher, trained, plan, tmp_path):
    made = exports.files(launcher, trained, plan, H100)
    for node_rank in (0, 1):
        words = words_of(made["launch.sh"], tmp_path, node_rank)
        known = OPTIONS.get(launcher, {"--job.config_file"}) | OPTIONS["torchrun"]
        assert set(options_of(words)) <= known
        assert len(options_of(words)) == len(set(options_of(words)))
    if "plan.toml" in made:
        for section, keys in tomllib.loads(made["plan.toml"]).items():
            assert keys.keys() <= TITAN_KEYS[section]
    if "ds_config.json" in made:
        assert json.loads(made["ds_config.json"]).keys() <= DEEPSPEED_KEYS


def test_the_plans_of_these_tests_write_every_option_of_the_table(tmp_path):
    written = {launcher: set() for launcher in OPTIONS}
    for launcher, trained, plan in TRAINED + SERVERS:
        for at in (H100, V100):
            if (launcher, at) != ("torchtitan", V100):
                launch = exports.files(launcher, trained, plan, at)["launch.sh"]
                for rank in (0, 1):
                    options = set(options_of(words_of(launch, tmp_path, rank)))
                    written["torchrun"] |= options & OPTIONS["torchrun"]
                    written.setdefault(launcher, set()).update(options)
    unwritten = {name: OPTIONS[name] - written[name] for name in OPTIONS}
    assert not any(unwritten.values()), unwritten


def test_megatron_gets_the_numbers_of_the_plan(tmp_path):
    words = words_of(exports.files("megatron", LLAMA, FULL, H100)["launch.sh"], tmp_path)
    assert value_of(words, "--nnodes") == "8"
    assert value_of(words, "--nproc-per-node") == "8"
    assert value_of(words, "--tensor-model-parallel-size") == "8"
    assert value_of(words, "--pipeline-model-parallel-size") == "4"
    assert value_of(words, "--num-virtual-stages-per-pipeline-rank") == "2"
    assert value_of(words, "--num-query-groups") == "8"
    assert value_of(words, "--recompute-granularity") == "selective"
    assert {"--bf16", "--sequence-parallel", "--use-distributed-optimizer"} <= set(words)


def test_data_args_replace_the_mock_data(tmp_path):
    launch = exports.files("megatron", LLAMA, FULL, H100)["launch.sh"]
    words = words_of("DATA_ARGS='--data-path mine'\n" + launch, tmp_path)
    assert words[-2:] == ["--data-path", "mine"]
    assert "--mock-data" not in words


def test_uneven_layers_become_a_layout_with_the_remainder_in_the_middle(tmp_path):
    # 126 layers over 8 stages: 15 each and 6 more
    plan = Plan(64, tp=8, pp=8, global_batch=64)
    launch = exports.files("megatron", model("llama-3.1-405b"), plan, H100)["launch.sh"]
    layout = value_of(words_of(launch, tmp_path), "--pipeline-model-parallel-layout")
    assert layout == "Et*15|" + "t*16|" * 6 + "t*15L"


def test_layers_that_the_plan_gives_are_the_layout(tmp_path):
    plan = replace(FULL, interleave=1, stage_layers=(26, 26, 14, 14))
    launch = exports.files("megatron", LLAMA, plan, H100)["launch.sh"]
    layout = value_of(words_of(launch, tmp_path), "--pipeline-model-parallel-layout")
    assert layout == "Et*26|t*26|t*14|t*14L"
    toml = exports.files("torchtitan", LLAMA, plan, H100)["plan.toml"]
    parts = tomllib.loads(toml)["parallelism"]["module_fqns_per_model_part"]
    assert [sum(name.startswith("layers.") for name in part) for part in parts] == [26, 26, 14, 14]
    assert (parts[0][0], parts[-1][-1]) == ("tok_embeddings", "output")


@pytest.mark.parametrize("launcher", ["megatron", "deepspeed", "fsdp", "vllm", "sglang"])
def test_fp16_is_forced_where_the_gpu_has_no_bf16_and_a_comment_says_so(launcher, tmp_path):
    plan = SERVED if launcher in exports.TO_SERVE else SHARDED
    made = exports.files(launcher, LLAMA, plan, V100)
    text = "".join(made.values())
    assert "# V100-SXM2-32GB has no bf16: fp16 in place of bf16" in text
    assert "fp16" in text.replace("# V100-SXM2-32GB has no bf16: fp16 in place", "") or (
        value_of(words_of(made["launch.sh"], tmp_path), "--dtype") == "float16"
    )
    assert "bfloat16" not in text
    assert "--bf16" not in text


def test_fp8_falls_to_what_the_gpu_has():
    plan = replace(FULL, precision="fp8")
    assert "--fp8-format" in exports.script("megatron", LLAMA, plan, H100)
    on_a100 = exports.script("megatron", LLAMA, plan, gpu("A100"))
    assert "--bf16" in on_a100 and "--fp8-format" not in on_a100
    assert "--fp16" in exports.script("megatron", LLAMA, plan, V100)


def test_deepspeed_batches_multiply_to_the_global_batch():
    plan = Plan(64, tp=4, dp=16, micro_batch=2, global_batch=256, zero=2)
    made = json.loads(exports.files("deepspeed", LLAMA, plan, H100)["ds_config.json"])
    assert made["train_batch_size"] == 256
    assert made["train_micro_batch_size_per_gpu"] * made["gradient_accumulation_steps"] * 16 == 256
    assert made["zero_optimization"]["stage"] == 2
    assert made["bf16"] == {"enabled": True}
    assert made["tensor_parallel"] == {"autotp_size": 4}


@pytest.mark.parametrize(
    ("zero", "replicate", "shard", "reshard"),
    [(0, 64, 1, "never"), (2, 1, 64, "never"), (3, 1, 64, "always")],
)
def test_torchtitan_shards_as_zero_says(zero, replicate, shard, reshard):
    toml = exports.files("torchtitan", LLAMA, replace(SHARDED, zero=zero), H100)["plan.toml"]
    ways = tomllib.loads(toml)["parallelism"]
    assert ways["data_parallel_replicate_degree"] == replicate
    assert ways["data_parallel_shard_degree"] == shard
    assert ways["fsdp_reshard_after_forward"] == reshard


def test_a_torchtitan_pipeline_takes_the_whole_batch_of_a_replica():
    toml = exports.files("torchtitan", LLAMA, replace(FULL, zero=2), H100)["plan.toml"]
    made = tomllib.loads(toml)
    assert made["training"]["local_batch_size"] == 64
    assert made["parallelism"]["pipeline_parallel_microbatch_size"] == 1
    assert made["parallelism"]["pipeline_parallel_layers_per_stage"] == 10
    toml = exports.files("torchtitan", LLAMA, SHARDED, H100)["plan.toml"]
    assert tomllib.loads(toml)["training"]["local_batch_size"] == 2


def test_servers_on_other_nodes_are_headless(tmp_path):
    launch = exports.files("vllm", LLAMA, Plan(32, tp=8, dp=4, micro_batch=16), H100)["launch.sh"]
    assert "--headless" not in words_of(launch, tmp_path, 0)
    words = words_of(launch, tmp_path, 3)
    assert "--headless" in words
    assert value_of(words, "--data-parallel-start-rank") == "3"


def test_a_script_writes_its_files_then_launches(tmp_path):
    words = words_of(exports.script("deepspeed", LLAMA, SHARDED, H100), tmp_path)
    assert words[-2:] == ["--deepspeed_config", "ds_config.json"]
    assert json.loads((tmp_path / "ds_config.json").read_text())["train_batch_size"] == 128


def test_a_framework_without_an_export_takes_its_launchers():
    assert exports.script("nemo", LLAMA, FULL) == exports.script("megatron", LLAMA, FULL)
    with pytest.raises(UnknownName, match=r"launcher 'slrum' is unknown; take one of megatron"):
        exports.script("slrum", LLAMA, FULL)


IMPOSSIBLE = [
    ("megatron", LLAMA, replace(FULL, tp=3, gpus=24), "heads=64 cannot be split over tp=3"),
    ("megatron", LLAMA, replace(FULL, gpus=65), "gpus=65 is not tp x pp x dp x cp"),
    ("megatron", LLAMA, replace(FULL, global_batch=1), "global_batch=1 is not a multiple of dp"),
    ("megatron", LLAMA, replace(FULL, global_batch=4), "2 micro-batches are no multiple of pp=4"),
    ("megatron", LLAMA, replace(FULL, zero=3), "zero=3 with pp=4"),
    ("megatron", LLAMA, replace(FULL, ep=2), "ep=2, but llama-3-70b has no experts"),
    ("megatron", LLAMA, replace(FULL, gpus=0), "gpus=0 is not a whole number above 0"),
    ("megatron", LLAMA, replace(FULL, zero=4), "zero=4 is not known; take one of 0, 1, 2, 3"),
    ("megatron", LLAMA, replace(FULL, precision="int8"), "precision='int8' is not known"),
    ("megatron", LLAMA, replace(FULL, seq=8190), "seq=8190 cannot be split over tp=8"),
    ("megatron", LLAMA, replace(FULL, stage_layers=(40, 40)), "are 2 numbers for pp x interleave"),
    ("megatron", LLAMA, Plan(12, dp=12, global_batch=12), "gpus=12 do not fill nodes"),
    ("megatron", model("qwen2.5-7b"), Plan(7, tp=7), "kv_heads=4 is no multiple or divisor"),
    ("deepspeed", LLAMA, FULL, "interleave=2: DeepSpeed's pipeline has no virtual stages"),
    ("deepspeed", LLAMA, replace(FULL, interleave=1, zero=2), "takes ZeRO 0 or 1"),
    ("deepspeed", LLAMA, Plan(8, tp=8, zero=3), "takes ZeRO 0 to 2"),
    ("fsdp", LLAMA, FULL, "pp=4: FSDP has no such way; take pp=1"),
    ("torchtitan", LLAMA, replace(FULL, zero=0), "take zero=2 or 3"),
    ("torchtitan", LLAMA, replace(FULL, precision="fp16"), "torchtitan trains in bf16"),
    ("torchtitan", model("gpt3-175b"), Plan(8, dp=8, global_batch=8), "has no model like gpt3"),
    ("vllm", LLAMA, Plan(8, tp=4, cp=2), "cp=2, interleave=1: servers have neither"),
    ("vllm", LLAMA, Plan(6, tp=6), "heads=64 cannot be split over tp=6"),
    ("vllm", LLAMA, Plan(8, tp=4), "gpus=8 is not tp x pp x dp = 4 x 1 x 1"),
    ("sglang", V3, Plan(8, tp=4, dp=2, ep=8), "ep=8 does not divide tp=4"),
    ("sglang", LLAMA, Plan(8, tp=8, ep=8), "ep=8 does not divide the 0 experts"),
]


@pytest.mark.parametrize(("launcher", "trained", "plan", "said"), IMPOSSIBLE)
def test_an_impossible_plan_is_refused_with_its_value_and_a_remedy(launcher, trained, plan, said):
    with pytest.raises(PlanError) as raised:
        exports.files(launcher, trained, plan, H100)
    assert said in str(raised.value)
    assert ";" in str(raised.value)
