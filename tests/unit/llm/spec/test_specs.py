"""GPUs and models: published sizes, forgiving names, users' tables and what is wrong in them."""

import csv
from dataclasses import replace

import pytest

from trimtab.errors import PlanError, UnknownName
from trimtab.llm.cost.constants import ARCHS
from trimtab.llm.spec import specs
from trimtab.llm.spec.spec_files import SHIPPED

# Published parameters in 1e9: the papers' tables and the counts on the models' pages.
PUBLISHED = {
    "gpt2-small": 0.124, "gpt2-medium": 0.355, "gpt2-large": 0.774, "gpt2-xl": 1.558,
    "gpt3-175b": 175, "gpt-1.7b": 1.65, "gpt-3.6b": 3.6, "gpt-7.5b": 7.5, "gpt-18.4b": 18.4,
    "gpt-39.1b": 39.1, "gpt-76.1b": 76.1, "gpt-145.6b": 145.6, "gpt-310.1b": 310.1,
    "gpt-529.6b": 529.6, "gpt-1t": 1008, "gpt-22b": 22, "mt-nlg-530b": 530,
    "llama-7b": 6.74, "llama-13b": 13.02, "llama-33b": 32.53, "llama-65b": 65.29,
    "llama-2-7b": 6.74, "llama-2-13b": 13.02, "llama-2-70b": 68.98, "codellama-34b": 33.7,
    "llama-3-8b": 8.03, "llama-3-70b": 70.6, "llama-3.1-8b": 8.03, "llama-3.1-70b": 70.6,
    "llama-3.1-405b": 405.9, "llama-3.2-1b": 1.24, "llama-3.2-3b": 3.21, "mistral-7b": 7.24,
    "mistral-nemo-12b": 12.2, "mistral-small-24b": 23.6, "mistral-large-123b": 123,
    "mixtral-8x7b": 46.7, "mixtral-8x22b": 140.6, "dbrx": 132, "qwen2.5-0.5b": 0.494,
    "qwen2.5-1.5b": 1.54, "qwen2.5-3b": 3.09, "qwen2.5-7b": 7.62, "qwen2.5-14b": 14.8,
    "qwen2.5-32b": 32.8, "qwen2.5-72b": 72.7, "qwen3-0.6b": 0.6, "qwen3-1.7b": 1.72,
    "qwen3-4b": 4.02, "qwen3-8b": 8.19, "qwen3-14b": 14.8, "qwen3-32b": 32.8,
    "qwen3-30b-a3b": 30.5, "qwen3-235b-a22b": 235, "bloom-560m": 0.559, "bloom-1b1": 1.065,
    "bloom-1b7": 1.722, "bloom-3b": 3.003, "bloom-7b1": 7.069, "bloom-176b": 176.247,
    "mpt-7b": 6.65, "mpt-30b": 29.96, "mpt-70b": 64.862437376, "opt-1.3b": 1.316,
    "opt-6.7b": 6.66, "opt-13b": 12.85, "opt-30b": 29.97, "opt-66b": 65.7, "falcon-7b": 6.92,
    "falcon-40b": 41.3, "falcon-180b": 179, "deepseek-v2-lite": 15.7, "deepseek-v2": 235.7,
    "deepseek-v3": 671, "deepseek-r1": 671, "gemma-7b": 8.54, "gemma-2-2b": 2.61,
    "gemma-2-9b": 9.24, "gemma-2-27b": 27.2, "phi-3-mini": 3.82, "phi-3-medium": 13.96,
    "phi-4": 14.7, "gpt-neox-20b": 20.55, "pythia-1.4b": 1.415, "pythia-2.8b": 2.775,
    "pythia-6.9b": 6.857, "pythia-12b": 11.846,
}  # fmt: skip
ACTIVE = {
    "mixtral-8x7b": 12.9, "mixtral-8x22b": 39.1, "dbrx": 36, "qwen3-30b-a3b": 3.35,
    "qwen3-235b-a22b": 22, "deepseek-v2": 21.4, "deepseek-v3": 37.5,
}  # fmt: skip


@pytest.mark.parametrize(("name", "published"), PUBLISHED.items())
def test_parameters_are_within_two_percent_of_the_published_ones(name, published):
    assert specs.parameters(specs.model(name)) / 1e9 == pytest.approx(published, rel=0.015)


@pytest.mark.parametrize(("name", "published"), ACTIVE.items())
def test_the_weights_that_a_token_meets_are_within_two_percent_of_the_published_ones(
    name, published
):
    model = specs.model(name)
    met = replace(model, experts=model.active_experts)
    assert specs.parameters(met) / 1e9 == pytest.approx(published, rel=0.02)


def test_gpt_parameters_follow_the_formula_to_the_last_weight():
    # 12 L h^2 + 13 L h + (V + s) h and the 2 h of the last norm
    made = specs.model("gpt-22b")
    h, layers = 6144, 48
    by_hand = 12 * layers * h**2 + 13 * layers * h + (51200 + 2048) * h + 2 * h
    assert specs.parameters(made) == by_hand


def test_parts_of_a_model_sum_to_its_parameters():
    made = specs.model("deepseek-v3")
    layers = sum(specs.layer_parameters(made, layer) for layer in range(made.layers))
    ends = specs.embedding_parameters(made) + specs.head_parameters(made)
    assert layers + ends == specs.parameters(made)
    # the first three layers have no experts
    assert specs.layer_parameters(made, 2) < specs.layer_parameters(made, 3) / 10


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ("H100", "H100-SXM5"),
        ("h100-sxm", "H100-SXM5"),
        ("A100", "A100-SXM-80GB"),
        ("A100 80GB", "A100-SXM-80GB"),
        ("a100_40", "A100-SXM-40GB"),
        ("4090", "RTX 4090"),
        ("mi250x", "MI250X-GCD"),
        # as drivers report them
        ("NVIDIA H100 80GB HBM3", "H100-SXM5"),
        ("NVIDIA H100 PCIe", "H100-PCIe"),
        ("NVIDIA A100-SXM4-40GB", "A100-SXM-40GB"),
        ("NVIDIA A100 80GB PCIe", "A100-PCIe-80GB"),
        ("Tesla V100-SXM2-16GB", "V100-SXM2-16GB"),
        ("NVIDIA GeForce RTX 3090", "RTX 3090"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada"),
        ("AMD Instinct MI300X", "MI300X"),
        ("NVIDIA H200", "H200-SXM"),
    ],
)
def test_gpu_names_are_forgiving(asked, name):
    assert specs.gpu(asked).name == name


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ("llama-3-70b", "llama-3-70b"),
        ("Llama3 70B", "llama-3-70b"),
        ("meta-llama/Llama-3.1-70B", "llama-3.1-70b"),
        ("meta-llama/Meta-Llama-3-8B-Instruct", "llama-3-8b"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"),
        ("bigscience/bloom", "bloom-176b"),
        ("gpt_1.7b", "gpt-1.7b"),
    ],
)
def test_model_names_are_forgiving(asked, name):
    assert specs.model(asked).name == name


@pytest.mark.parametrize("said", ["A100-80GB-SXM", "A100 80GB SXM4", "DGX A100", "sxm_a100_80gb"])
def test_the_order_of_a_names_words_makes_no_difference(said):
    assert specs.gpu(said).name == "A100-SXM-80GB"


def test_every_hub_name_finds_its_own_model():
    for name, made in specs.models().items():
        if made.hub:
            assert specs.model(made.hub).name == name


def test_a_dot_between_digits_tells_names_apart():
    with pytest.raises(UnknownName, match=r"model 'gpt-17b' is unknown; nearest: .*gpt-1\.7b"):
        specs.model("gpt-17b")


def test_an_unknown_gpu_is_answered_with_the_three_nearest():
    with pytest.raises(UnknownName, match=r"^GPU 'H1000' is unknown; nearest: H100-SXM5, .*, .*;"):
        specs.gpu("H1000")


@pytest.mark.parametrize("file", ["gpus.csv", "models.csv"])
def test_no_alias_stands_for_two_rows(file):
    with (SHIPPED / file).open(encoding="utf-8") as opened:
        rows = list(csv.DictReader(opened))
    forms = [
        specs.index_of({row["name"]: filter(None, row["aliases"].split("|"))}, words)
        for row in rows
        for words in [specs.IDLE_GPU_WORDS if file == "gpus.csv" else specs.IDLE_MODEL_WORDS]
    ]
    every = [form for one in forms for form in one]
    assert sorted(every) == sorted(set(every))


def test_gpu_units_are_si_and_links_one_way():
    h100 = specs.gpu("H100")
    assert (h100.flops, h100.memory_b, h100.memory_bps) == (989e12, 80e9, 3350e9)
    assert h100.link_bps == 450e9
    assert (h100.fp8_flops, h100.fp32_flops, h100.tdp_w) == (1979e12, 67e12, 700)


def test_every_gpu_is_of_a_known_architecture_with_sane_numbers():
    for made in specs.gpus().values():
        assert made.arch in ARCHS, made.name
        assert 1e12 < made.fp32_flops < 2e14 and 4e12 < made.flops < 3e15, made.name
        assert 0.99 * made.fp32_flops <= made.flops <= made.fp32_flops * 32, made.name
        assert 0.2e12 < made.memory_bps < 1e13 and 5e9 < made.memory_b < 3e11, made.name
        assert 1e10 < made.link_bps <= 9e11 and 1 <= made.per_node <= 72, made.name
        assert made.fp8_flops == 0 or 1.9 < made.fp8_flops / made.flops < 2.1, made.name
        assert made.source


def test_gpus_before_ampere_have_no_bf16():
    old = {"Kepler", "Maxwell", "Pascal", "Volta", "Turing", "Vega20", "RDNA2"}
    assert {made.arch for made in specs.gpus().values() if not made.bf16} == old
    assert not any(made.bf16 for made in specs.gpus().values() if made.arch in old)


GPU_HEADER = "name,arch,tflops,fp32_tflops,bf16,memory_gb,memory_gb_s,tdp_w\n"


def test_users_add_gpus_and_replace_ours(tmp_path, monkeypatch):
    (tmp_path / "gpus.csv").write_text(
        GPU_HEADER
        + "Mine 9,other,100,50,yes,64,2000,400\nH100-SXM5,Hopper,900,60,yes,80,3350,700\n"
    )
    assert specs.gpu("mine-9", tmp_path).memory_b == 64e9
    assert specs.gpu("mine-9", tmp_path).per_node == 8
    monkeypatch.setenv("TRIMTAB_SPECS", str(tmp_path))
    assert specs.gpu("H100").flops == 900e12
    monkeypatch.delenv("TRIMTAB_SPECS")
    assert specs.gpu("H100").flops == 989e12


def test_users_add_models_and_empty_cells_take_defaults(tmp_path):
    (tmp_path / "models.csv").write_text(
        "name,hidden,layers,heads,ffn,vocab\nours,1024,8,16,4096,32000\n"
    )
    made = specs.model("Ours", tmp_path)
    assert (made.kv_heads, made.head_dim, made.gated, made.experts) == (16, 64, True, 0)
    assert "llama-3-8b" in specs.models(tmp_path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (GPU_HEADER + "X,other,fast,50,yes,64,2000,400\n", ":2: tflops='fast' is not a number"),
        (GPU_HEADER + "X,other,-1,50,yes,64,2000,400\n", ":2: tflops='-1' is not between"),
        (GPU_HEADER + "X,other,nan,50,yes,64,2000,400\n", ":2: tflops='nan' is not a number"),
        (GPU_HEADER + "X,other,100,50,maybe,64,2000,400\n", ":2: bf16='maybe' is neither yes"),
        (GPU_HEADER + "\nX,other,100,50,yes,,2000,400\n", ":3: memory_gb is empty; fill it in"),
        (GPU_HEADER + "X,other,1,1,no,1,1,1\nX,other,1,1,no,1,1,1\n", "is also in line 2; keep"),
        (GPU_HEADER + "X,other,1,1,no,1,1,1,9\n", ":2: 9 cells under 8 columns; quote"),
        ("name,arch\nX,other\n", ":1: column 'tflops' is missing; add it"),
        (GPU_HEADER.replace("arch", "architecture"), ":1: column 'architecture' is unknown; take"),
        ("", "gpus.csv: is empty; begin it with"),
    ],
)
def test_a_bad_gpu_table_names_file_line_field_value_and_remedy(text, said, tmp_path):
    (tmp_path / "gpus.csv").write_text(text)
    with pytest.raises(PlanError) as raised:
        specs.gpus(tmp_path)
    assert said in str(raised.value)
    assert str(tmp_path / "gpus.csv") in str(raised.value)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("m,1000,8,16,,4096,32000,,", "heads=16 does not divide hidden=1000; fill in head_dim"),
        ("m,1024,8,16,3,4096,32000,,", "kv_heads=3 does not divide heads=16; correct one"),
        ("m,1024,8,16,,4096,32000,8,9", "active_experts=9 of experts=8"),
        ("m,1024,8.5,16,,4096,32000,,", "layers='8.5' is not a whole number"),
        ("m,1024,0,16,,4096,32000,,", "layers='0' is not between 1 and"),
    ],
)
def test_a_bad_model_row_is_refused(row, said, tmp_path):
    header = "name,hidden,layers,heads,kv_heads,ffn,vocab,experts,active_experts\n"
    (tmp_path / "models.csv").write_text(header + row + "\n")
    with pytest.raises(PlanError) as raised:
        specs.models(tmp_path)
    assert said in str(raised.value)


def test_a_specs_folder_that_is_not_there_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("TRIMTAB_SPECS", str(tmp_path / "gone"))
    with pytest.raises(PlanError, match=r"gone' is not a folder; create it .*TRIMTAB_SPECS"):
        specs.gpus()
