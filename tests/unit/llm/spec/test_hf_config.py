"""A config.json from disk becomes the model that our table has, or a clear refusal."""

import json
from dataclasses import replace

import pytest

from trimtab.errors import PlanError
from trimtab.llm.spec import specs

LLAMA = {
    "model_type": "llama", "hidden_size": 8192, "intermediate_size": 28672,
    "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8,
    "vocab_size": 128256, "max_position_embeddings": 8192, "tie_word_embeddings": False,
}  # fmt: skip
CONFIGS = {
    "llama-3-70b": LLAMA,
    "mixtral-8x7b": {
        "model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
        "vocab_size": 32000, "max_position_embeddings": 32768, "num_local_experts": 8,
        "num_experts_per_tok": 2,
    },
    "qwen3-30b-a3b": {
        "model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144,
        "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 4,
        "head_dim": 128, "vocab_size": 151936, "max_position_embeddings": 40960,
        "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768,
        "mlp_only_layers": [], "decoder_sparse_step": 1, "tie_word_embeddings": False,
    },
    "deepseek-v3": {
        "model_type": "deepseek_v3", "hidden_size": 7168, "intermediate_size": 18432,
        "num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 128,
        "vocab_size": 129280, "max_position_embeddings": 163840, "n_routed_experts": 256,
        "n_shared_experts": 1, "num_experts_per_tok": 8, "moe_intermediate_size": 2048,
        "first_k_dense_replace": 3, "moe_layer_freq": 1, "q_lora_rank": 1536,
        "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
    },
    "deepseek-v2-lite": {
        "model_type": "deepseek_v2", "hidden_size": 2048, "intermediate_size": 10944,
        "num_hidden_layers": 27, "num_attention_heads": 16, "num_key_value_heads": 16,
        "vocab_size": 102400, "max_position_embeddings": 32768, "n_routed_experts": 64,
        "n_shared_experts": 2, "num_experts_per_tok": 6, "moe_intermediate_size": 1408,
        "first_k_dense_replace": 1, "q_lora_rank": None, "kv_lora_rank": 512,
        "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
    },
    "gpt2-xl": {
        "model_type": "gpt2", "n_embd": 1600, "n_layer": 48, "n_head": 25, "n_positions": 1024,
        "vocab_size": 50257,
    },
    "gpt-neox-20b": {
        "model_type": "gpt_neox", "hidden_size": 6144, "intermediate_size": 24576,
        "num_hidden_layers": 44, "num_attention_heads": 64, "vocab_size": 50432,
        "max_position_embeddings": 2048, "tie_word_embeddings": False,
    },
    "bloom-176b": {
        "model_type": "bloom", "n_embed": 14336, "n_layer": 70, "n_head": 112,
        "vocab_size": 250880, "seq_length": 2048,
    },
    "mpt-7b": {
        "model_type": "mpt", "d_model": 4096, "n_layers": 32, "n_heads": 32, "max_seq_len": 2048,
        "expansion_ratio": 4, "vocab_size": 50432, "no_bias": True, "learned_pos_emb": True,
        "attn_config": {"alibi": True},
    },
    "falcon-7b": {
        "model_type": "falcon", "hidden_size": 4544, "num_hidden_layers": 32,
        "num_attention_heads": 71, "multi_query": True, "vocab_size": 65024,
    },
    "falcon-40b": {
        "model_type": "RefinedWeb", "hidden_size": 8192, "n_layer": 60, "n_head": 128,
        "n_head_kv": 8, "vocab_size": 65024,
    },
    "gemma-2-9b": {
        "model_type": "gemma2", "hidden_size": 3584, "intermediate_size": 14336,
        "num_hidden_layers": 42, "num_attention_heads": 16, "num_key_value_heads": 8,
        "head_dim": 256, "vocab_size": 256000, "max_position_embeddings": 8192,
    },
}  # fmt: skip


def saved(content, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(content))
    return tmp_path / "config.json"


@pytest.mark.parametrize(("name", "content"), CONFIGS.items())
def test_a_config_is_the_model_of_our_table(name, content, tmp_path):
    read = specs.model(str(saved(content, tmp_path)))
    ours = specs.model(name)
    assert replace(read, name=ours.name, source=ours.source, hub=ours.hub) == ours


def test_a_folder_stands_for_its_config_and_gives_the_name(tmp_path):
    folder = tmp_path / "my-llama"
    folder.mkdir()
    saved(LLAMA, folder)
    read = specs.model(str(folder))
    assert read.name == "my-llama"
    assert read.hub == str(folder.resolve())


def test_the_language_part_of_a_model_of_several_senses_is_read(tmp_path):
    read = specs.model(str(saved({"model_type": "llava", "text_config": LLAMA}, tmp_path)))
    assert read.hidden == 8192


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model_type": "lama"}, "model_type='lama' is not known; near: llama"),
        ({"model_type": None}, "model_type=None is not known"),
        ({"hidden_size": None}, "hidden_size / n_embd / n_embed / d_model is missing; add it"),
        ({"hidden_size": "8k"}, "hidden_size='8k' is not a whole number; correct it"),
        ({"num_hidden_layers": 0}, "num_hidden_layers=0 is too small; correct it"),
        ({"hidden_size": 8190}, "64 heads do not divide hidden_size=8190; add head_dim"),
        ({"num_key_value_heads": 7}, "kv_heads=7 does not divide heads=64"),
        ({"num_experts": 8, "num_experts_per_tok": 9}, "active_experts=9 of experts=8"),
        ({"num_experts": 8, "decoder_sparse_step": 2}, "decoder_sparse_step=2: layers with and"),
        (
            {"num_experts": 8, "num_experts_per_tok": 2, "mlp_only_layers": [3]},
            "mlp_only_layers=[3] are not the first layers",
        ),
    ],
)
def test_a_bad_config_names_the_key_the_value_and_the_remedy(change, said, tmp_path):
    path = saved(LLAMA | change, tmp_path)
    with pytest.raises(PlanError) as raised:
        specs.model(str(path))
    assert said in str(raised.value)
    assert str(path) in str(raised.value)


@pytest.mark.parametrize(("text", "said"), [("{", ":1: is not JSON"), ("[]", "holds a list")])
def test_a_file_that_is_no_config_is_refused(text, said, tmp_path):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(PlanError, match=said):
        specs.model(str(tmp_path))


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(PlanError, match=r"gone\.json: cannot be read .*; give a model's config"):
        specs.model(str(tmp_path / "gone.json"))
