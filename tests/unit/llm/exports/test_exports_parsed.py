"""The launchers' own parsers read what we export, where those packages are installed."""

import argparse
import json
import shlex
import sys
from importlib.util import find_spec
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
from tests.unit.llm.exports.launchers import OPTIONS, words_of
from tests.unit.llm.exports.test_exports import FULL, H100, LLAMA, SERVERS, TRAINED, V100

from trimtab.llm import exports


def plans_of(launcher):
    return [(trained, plan) for name, trained, plan in TRAINED + SERVERS if name == launcher]


def after(words, script):
    """The words that follow the script's name: what its own parser gets."""
    return words[words.index(script) + 1 :]


def options_known_to(parser):
    return {text for action in parser._actions for text in action.option_strings}


def test_torchrun_parses_its_part(tmp_path):
    run = pytest.importorskip("torch.distributed.run")
    words = words_of(exports.files("megatron", LLAMA, FULL, H100)["launch.sh"], tmp_path)
    parsed = run.parse_args(words[1:])
    assert (parsed.nnodes, parsed.nproc_per_node, parsed.node_rank) == ("8", "8", 0)
    assert parsed.training_script == "pretrain_gpt.py"
    assert options_known_to(run.get_args_parser()) >= OPTIONS["torchrun"]


@pytest.mark.parametrize(("trained", "plan"), plans_of("megatron"))
def test_megatron_parses_the_options(trained, plan, tmp_path):
    arguments = pytest.importorskip("megatron.training.arguments")
    parser = argparse.ArgumentParser(allow_abbrev=False)
    arguments.add_megatron_arguments(parser)
    assert options_known_to(parser) >= OPTIONS["megatron"]
    for gpu in (H100, V100):
        words = words_of(exports.files("megatron", trained, plan, gpu)["launch.sh"], tmp_path)
        parsed = parser.parse_args(after(words, "pretrain_gpt.py"))
        assert parsed.tensor_model_parallel_size == plan.tp
        assert parsed.pipeline_model_parallel_size == plan.pp
        assert parsed.context_parallel_size == plan.cp
        assert parsed.expert_model_parallel_size == plan.ep
        assert (parsed.micro_batch_size, parsed.global_batch_size) == (
            plan.micro_batch,
            plan.global_batch,
        )
        assert parsed.sequence_parallel == (
            plan.tp > 1 and (plan.sequence_parallel or trained.experts > 0)
        )
        assert parsed.fp16 == (gpu is V100)
        assert parsed.recompute_granularity == {"none": None}.get(plan.recompute, plan.recompute)
        assert parsed.use_distributed_optimizer == (plan.zero > 0)


def test_megatron_reads_the_layout_of_uneven_stages(tmp_path):
    layouts = pytest.importorskip("megatron.core.transformer.pipeline_parallel_layer_layout")
    from trimtab.llm.exports.megatron import _layout

    read = layouts.PipelineParallelLayerLayout.parse_str_to_list(_layout((3, 4, 4, 2)))
    assert [len(stage) for stage in read] == [4, 4, 4, 3]
    assert [[layer.name for layer in stage].count("decoder") for stage in read] == [3, 4, 4, 2]


@pytest.mark.parametrize(("trained", "plan"), plans_of("deepspeed"))
def test_deepspeed_reads_the_file_and_the_launch_line(trained, plan, tmp_path, monkeypatch):
    config = pytest.importorskip("deepspeed.runtime.config")
    runner = pytest.importorskip("deepspeed.launcher.runner")
    made = exports.files("deepspeed", trained, plan, H100)
    # DeepSpeed asks the process group for its size; there is none in a test
    monkeypatch.setattr(config.dist, "get_rank", lambda: 0)
    replicas = SimpleNamespace(get_data_parallel_world_size=lambda: plan.dp)
    read = config.DeepSpeedConfig(json.loads(made["ds_config.json"]), mpu=replicas)
    assert read.train_batch_size == plan.global_batch
    assert read.zero_optimization_stage == plan.zero
    assert read.tensor_parallel_config.autotp_size == (plan.tp if plan.pp == 1 < plan.tp else 0)
    words = words_of(made["launch.sh"], tmp_path)
    parsed = runner.parse_args(words[1:])
    assert parsed.num_nodes * parsed.num_gpus == plan.gpus
    assert parsed.user_args == ["--deepspeed", "--deepspeed_config", "ds_config.json"]


@pytest.mark.parametrize(("trained", "plan"), plans_of("fsdp"))
def test_accelerate_parses_the_options(trained, plan, tmp_path):
    launch = pytest.importorskip("accelerate.commands.launch")
    words = words_of(exports.files("fsdp", trained, plan, H100)["launch.sh"], tmp_path)
    parser = launch.launch_command_parser()
    assert options_known_to(parser) >= OPTIONS["fsdp"]
    parsed = parser.parse_args(words[2:])
    assert parsed.num_processes == plan.gpus
    assert parsed.use_fsdp == (plan.zero > 0)
    assert parsed.training_script == "train.py"
    assert parsed.training_script_args == []


@pytest.fixture
def kernels(monkeypatch):
    """Stand-ins for the compiler of torchtitan's kernels, which a parser does not run.

    torch looks for that compiler once and remembers: before there is a stand-in, not after.
    """
    pytest.importorskip("torch.utils._triton").has_triton_package()
    if find_spec("triton") is None:
        for name in ("triton", "triton.language"):
            monkeypatch.setitem(sys.modules, name, MagicMock())


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize(("trained", "plan"), plans_of("torchtitan"))
def test_torchtitan_reads_the_toml(trained, plan, tmp_path):
    pytest.importorskip("torchtitan.config.job_config", exc_type=ImportError)
    from torchtitan.config.manager import ConfigManager

    (tmp_path / "plan.toml").write_text(exports.files("torchtitan", trained, plan)["plan.toml"])
    read = ConfigManager().parse_args(["--job.config_file", str(tmp_path / "plan.toml")])
    assert read.parallelism.tensor_parallel_degree == plan.tp
    assert read.parallelism.pipeline_parallel_degree == plan.pp
    assert read.training.global_batch_size == plan.global_batch
    assert read.activation_checkpoint.mode == plan.recompute


def test_torchtitan_without_toml_parses_the_options(tmp_path):
    pytest.importorskip("torchtitan.config.configs", exc_type=ImportError)
    from torchtitan.config.manager import ConfigManager

    launch = exports.files("torchtitan", LLAMA, FULL, H100)["launch.sh"]
    line = next(line for line in launch.splitlines() if "--module" in line)
    read = ConfigManager().parse_args(after(shlex.split(line), "torchtitan.train"))
    assert read.parallelism.tensor_parallel_degree == 8
    assert read.parallelism.pipeline_parallel_schedule == "Interleaved1F1B"
    assert read.training.local_batch_size == 64
    assert "Selective" in type(read.activation_checkpoint).__qualname__


@pytest.mark.parametrize(("trained", "plan"), plans_of("vllm"))
def test_vllm_parses_the_options(trained, plan, tmp_path):
    platforms = pytest.importorskip("vllm.platforms")
    from vllm.platforms.cpu import CpuPlatform

    # the parser's defaults ask which device there is; a machine of tests has none
    platforms._current_platform = CpuPlatform()
    arguments = pytest.importorskip("vllm.engine.arg_utils")
    parsers = pytest.importorskip("vllm.utils.argparse_utils")
    parser = parsers.FlexibleArgumentParser()
    arguments.AsyncEngineArgs.add_cli_args(parser)
    # of `vllm serve` alone, in another file than the engine's
    parser.add_argument("--headless", action="store_true")
    assert options_known_to(parser) >= OPTIONS["vllm"]
    for rank in (0, 1):
        words = words_of(exports.files("vllm", trained, plan, H100)["launch.sh"], tmp_path, rank)
        parsed = parser.parse_args(words[3:])
        assert parsed.tensor_parallel_size == plan.tp
        assert parsed.pipeline_parallel_size == plan.pp
        assert parsed.max_model_len == plan.seq


@pytest.mark.parametrize(("trained", "plan"), plans_of("sglang"))
def test_sglang_parses_the_options(trained, plan, tmp_path):
    arguments = pytest.importorskip("sglang.srt.server_args")
    parser = argparse.ArgumentParser()
    arguments.ServerArgs.add_cli_args(parser)
    assert options_known_to(parser) >= OPTIONS["sglang"]
    words = words_of(exports.files("sglang", trained, plan, H100)["launch.sh"], tmp_path)
    parsed = parser.parse_args(after(words, "sglang.launch_server"))
    assert (parsed.tp_size, parsed.pp_size, parsed.ep_size) == (plan.tp, plan.pp, plan.ep)
    assert parsed.context_length == plan.seq
