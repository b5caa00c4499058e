"""Tables of runs: what is filled in, and what a wrong cell is told."""

import math

import pytest

from trimtab.errors import PlanError
from trimtab.llm.cost.cases import FRAMEWORKS
from trimtab.llm.fit.runs import as_runs, read_runs, whole

SHAPE = {"hidden": "4096", "layers": "32", "heads": "32"}


def case(**words):
    return as_runs([SHAPE | words]).cases[0]


def test_a_model_and_gpus_are_enough():
    made = as_runs([{"model": "llama-3-8b", "gpu": "H100", "gpus": "8", "framework": "torchtitan"}])
    row = made.cases[0]
    assert (row["hidden"], row["kv_heads"], row["vocab"]) == (4096, 8, 128256)
    assert (row["dp"], row["zero"], row["flash"], row["precision"]) == (8, 3, 1, 1)


def test_numbers_of_the_row_win_over_the_model_it_names():
    row = as_runs([{"model": "llama-3-8b", "vocab": "32000", "layers": "16"}]).cases[0]
    assert (row["vocab"], row["layers"], row["ffn"]) == (32000, 16, 14336)


@pytest.mark.parametrize(
    ("words", "ffn", "gated"),
    [
        ({}, 16384, 0),
        ({"kv_heads": "8"}, 14336, 1),
        ({"ffn": "11008"}, 11008, 1),
        ({"ffn": "16384"}, 16384, 0),
        ({"experts": "8"}, 14336, 1),
        ({"ffn": "16384", "gated": "true"}, 16384, 1),
    ],
)
def test_a_block_is_gated_where_its_width_is_not_four_times_the_hidden_size(words, ffn, gated):
    row = case(**words)
    assert (row["ffn"], row["gated"]) == (ffn, gated)


def test_replicas_are_what_the_other_ways_leave():
    assert case(gpus="64", tp="4", pp="2", cp="2")["dp"] == 4
    assert case(tp="4", pp="2", dp="3")["gpus"] == 24
    assert case(gpus="64", tp="4", dp="32", cp="2")["dp"] == 8  # counted with cp inside


def test_a_framework_of_another_name_is_read_as_the_usual_one_and_noted():
    made = as_runs([SHAPE | {"framework": "abacus", "gpus": "8", "zero": "3"}])
    assert made.cases[0]["framework"] == FRAMEWORKS.index("fsdp")
    assert "'abacus' is not known" in made.notes[0]


def test_a_time_that_says_oom_is_an_out_of_memory_run():
    made = as_runs([SHAPE | {"step_s": "OOM"}, SHAPE | {"step_s": "3"}])
    assert made.measured["oom"][0] == 1
    assert math.isnan(made.measured["step_s"][0])
    assert math.isnan(made.measured["oom"][1])


def test_ways_that_are_off_count_as_one():
    row = case(gpus="8", cp="0", ep="0", interleave="0")
    assert (row["cp"], row["ep"], row["interleave"], row["dp"]) == (1, 1, 1, 8)


def test_a_batch_in_tokens_is_read_as_sequences():
    assert case(gpus="8", global_batch="4194304", seq="2048")["global_batch"] == 2048


def test_empty_rows_are_skipped_and_lines_keep_their_number():
    made = as_runs([SHAPE, dict.fromkeys(SHAPE, ""), SHAPE])
    assert made.lines == [2, 4]


@pytest.mark.parametrize(
    ("gpu", "said", "bps"),
    [
        ("A100", "25", 25e9),  # GB/s a GPU
        ("A100", "200", 25e9),  # Gb/s a GPU: one HDR card each
        ("A100", "1600", 25e9),  # Gb/s a node of eight
        ("A100", "400", 6.25e9),  # four 100 Gb/s cards a node of eight
        ("H100", "400", 50e9),  # one NDR card each
        ("H100", "3200", 50e9),
        ("H100", "50", 50e9),
        ("V100", "100", 12.5e9),
        ("H100", "", 50e9),
    ],
)
def test_a_network_is_read_in_the_unit_that_its_generation_can_reach(gpu, said, bps):
    assert case(gpu=gpu, gpus="16", node_link_gbps=said)["node_link_bps"] == pytest.approx(bps)


@pytest.mark.parametrize(
    ("words", "flash"),
    [
        ({"gpu": "V100"}, 0),
        ({"gpu": "A100", "framework": "megatron", "recompute": "full"}, 0),
        ({"gpu": "A100", "framework": "llm-foundry"}, 1),
        ({"gpu": "A100", "framework": "megatron", "ffn": "11008"}, 1),
        ({"gpu": "H100", "framework": "megatron"}, 1),
        ({"gpu": "H100", "framework": "megatron", "flash": "no"}, 0),
    ],
)
def test_attention_is_fused_where_the_software_of_that_time_had_it(words, flash):
    assert case(**words)["flash"] == flash


@pytest.mark.parametrize(
    ("field", "word", "value"),
    [
        ("zero", "ZeRO-3", 3),
        ("zero", "FULL_SHARD", 3),
        ("zero", "stage2", 2),
        ("recompute", "True", 2),
        ("recompute", "Selective", 1),
        ("recompute", "", 0),
        ("precision", "amp_bf16", 1),
        ("precision", "FP8", 2),
        ("sequence_parallel", "yes", 1),
    ],
)
def test_words_of_many_tables_are_understood(field, word, value):
    assert case(gpu="H100", gpus="16", tp="2", **{field: word})[field] == value


def test_nodes_of_four_mi250_count_packages_of_two_dies():
    die, package = (case(gpu="MI250", gpus="4", gpus_per_node=n) for n in ("8", "4"))
    assert package["flops"] == 2 * die["flops"]
    assert package["memory_b"] == 2 * die["memory_b"]
    assert (die["per_node"], package["per_node"]) == (8, 4)


def test_a_v100_runs_in_fp16():
    assert case(gpu="V100")["precision"] == 0


def test_sharded_runs_without_a_framework_are_fsdp():
    assert case(gpus="8", zero="3")["framework"] == FRAMEWORKS.index("fsdp")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"hidden": "wide"}, "runs:2: hidden='wide'; write a number"),
        ({"hidden": ""}, "runs:2: hidden=''; give it, or name a known model"),
        ({"gpus": "0"}, "runs:2: gpus='0'; give at least one GPU"),
        ({"gpus": "12", "tp": "8"}, "gpus='12'; tp x pp x cp = 8 does not divide it"),
        ({"tp": "1.5"}, "tp='1.5'; write a whole number"),
        ({"tp": "0"}, "tp='0'; write 1 where it is not used"),
        ({"gpu": "H1000"}, "runs:2: gpu='H1000'"),
        ({"recompute": "perhaps"}, "runs:2: recompute='perhaps' is not known"),
        ({"zero": "7"}, "zero='7'; write 0, 1, 2, 3 or fsdp"),
        ({"oom": "maybe"}, "oom='maybe'; write true or false"),
        ({"step_s": "-3"}, "step_s='-3'; write a number of at least 0"),
    ],
)
def test_a_wrong_cell_is_named_with_its_line_and_the_remedy(words, message):
    made = as_runs([SHAPE | words])
    assert message in made.refused[2]
    assert not made.lines
    with pytest.raises(PlanError) as caught:
        whole(made)
    assert str(caught.value) == made.refused[2]


def test_a_wrong_row_stops_no_other():
    made = as_runs([SHAPE, SHAPE | {"gpu": "H1000"}, SHAPE | {"step_s": "3"}])
    assert made.lines == [2, 4]
    assert list(made.refused) == [3]
    assert made.measured["step_s"][1] == 3


def test_a_table_of_wrong_rows_alone_is_an_error(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text("gpu,gpus,hidden,layers\nH1000,8,4096,32\n")
    with pytest.raises(PlanError, match=r"runs.csv:2: gpu='H1000'"):
        read_runs(path)


@pytest.mark.parametrize(
    ("words", "eager"),
    [
        ({"gpu": "V100"}, 1),
        ({"gpu": "V100", "eager": "no"}, 0),
        ({"gpu": "A100", "framework": "megatron", "recompute": "full"}, 0),
        ({"gpu": "H100"}, 0),
    ],
)
def test_runs_of_2020_had_no_fused_kernels(words, eager):
    assert case(**words)["eager"] == eager


def test_only_megatrons_gradients_may_be_of_either_size():
    rows = [{"framework": "megatron"}, {"framework": "megatron", "grad_bytes": "2"},
            {"framework": "fsdp"}]  # fmt: skip
    made = as_runs([SHAPE | {"gpu": "A100", "gpus": "8"} | row for row in rows])
    assert list(made.either) == [True, False, False]
    assert list(made.cases["grad_bytes"]) == [4, 2, 4]


def test_a_file_that_is_not_there_is_an_error_without_a_traceback(tmp_path):
    with pytest.raises(PlanError, match="cannot be read"):
        read_runs(tmp_path / "none.csv")


def test_a_table_without_rows_says_so(tmp_path):
    path = tmp_path / "empty.csv"
    for empty in ("gpu,gpus\n", "gpu,gpus\n,\n,\n"):
        path.write_text(empty)
        with pytest.raises(PlanError, match="has no rows"):
            read_runs(path)
