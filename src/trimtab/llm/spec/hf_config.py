"""A Hugging Face config.json as the fields of a `Model`.

Families name the same width differently, so each field has the keys it goes under; what a file
leaves out (whether matrices are gated or tied, biases) is a fact about its `model_type`.
"""

from __future__ import annotations

import difflib
import json
from pathlib import Path
from typing import Any, NamedTuple

from trimtab.errors import PlanError


class Family(NamedTuple):
    """What every model of a `model_type` shares."""

    gated: bool = True
    biases: bool = False
    learned_positions: bool = False
    tied: bool = False  # where the file does not say


GPT = Family(gated=False, biases=True, learned_positions=True, tied=True)
FAMILIES = {
    "llama": Family(),
    "mistral": Family(),
    "mixtral": Family(),
    "qwen2": Family(),
    "qwen2_moe": Family(),
    "qwen3": Family(),
    "qwen3_moe": Family(),
    "deepseek_v2": Family(),
    "deepseek_v3": Family(),
    "phi3": Family(),
    "gemma": Family(tied=True),
    "gemma2": Family(tied=True),
    "gpt2": GPT,
    "opt": GPT,
    "gpt_neox": Family(gated=False, biases=True),
    "bloom": Family(gated=False, biases=True, tied=True),
    "mpt": Family(gated=False, tied=True),
    "falcon": Family(gated=False, tied=True),
}
ALIASES = {"RefinedWeb": "falcon", "RefinedWebModel": "falcon", "ministral": "mistral"}

HIDDEN = ("hidden_size", "n_embd", "n_embed", "d_model")
LAYERS = ("num_hidden_layers", "n_layer", "n_layers")
HEADS = ("num_attention_heads", "n_head", "n_heads")
FFN = ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size")
POSITIONS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")


def read(path: str | Path) -> dict[str, Any]:
    """The fields of the model in a config.json, given by its path or its folder's."""
    path = Path(path).expanduser()
    path = path / "config.json" if path.is_dir() else path
    content = _parsed(path)
    # a model of several senses keeps the language part in a section of its own
    content = content.get("text_config") or content
    kind = ALIASES.get(str(content.get("model_type")), str(content.get("model_type")))
    if kind not in FAMILIES:
        near = difflib.get_close_matches(kind, FAMILIES, n=3)
        raise PlanError(
            f"{path}: model_type={content.get('model_type')!r} is not known; near: "
            f"{', '.join(near) or ', '.join(FAMILIES)}; or describe the model in a models.csv"
        )
    made = _body(content, FAMILIES[kind], kind, path)
    made |= _experts(content, made, path) | _latent(content, path)
    named = str(content.get("_name_or_path") or "").rstrip("/").rsplit("/", 1)[-1]
    folder = path.resolve().parent
    return made | {"name": named or folder.name, "source": str(path), "hub": str(folder)}


def _body(content: dict[str, Any], family: Family, kind: str, path: Path) -> dict[str, Any]:
    hidden, layers, heads = (_width(content, keys, path) for keys in (HIDDEN, LAYERS, HEADS))
    ratio = _width(content, ("expansion_ratio",), path, 4)
    head_dim = _width(content, ("head_dim",), path, 0)
    if not head_dim and hidden % heads:
        raise PlanError(
            f"{path}: {heads} heads do not divide hidden_size={hidden}; add head_dim to the file"
        )
    attention = content.get("attn_config") or {}
    tied = content.get("tie_word_embeddings")
    learned = family.learned_positions
    if kind == "mpt":
        learned = bool(content.get("learned_pos_emb", True)) and not attention.get("alibi", False)
    return {
        "hidden": hidden,
        "layers": layers,
        "heads": heads,
        "kv_heads": _kv_heads(content, attention, kind, heads, path),
        "head_dim": head_dim or hidden // heads,
        "ffn": _width(content, FFN, path, ratio * hidden),
        "gated": family.gated,
        "vocab": _width(content, ("vocab_size",), path),
        "tied": family.tied if tied is None else bool(tied),
        "max_seq": _width(content, POSITIONS, path, 2048),
        "learned_positions": learned,
        "biases": family.biases and not content.get("no_bias", False),
    }


def _kv_heads(
    content: dict[str, Any], attention: dict[str, Any], kind: str, heads: int, path: Path
) -> int:
    if kind == "falcon":
        if not content.get("new_decoder_architecture", "n_head_kv" in content):
            return 1 if content.get("multi_query", True) else heads
        return _width(content, ("num_kv_heads", "n_head_kv"), path, heads)
    if "kv_n_heads" in attention:
        return _width(attention, ("kv_n_heads",), path, heads)
    return _width(content, ("num_key_value_heads",), path, heads)


def _experts(content: dict[str, Any], made: dict[str, Any], path: Path) -> dict[str, int]:
    names = ("experts", "active_experts", "expert_ffn", "shared_ffn", "dense_layers")
    experts = _width(content, EXPERTS, path, 0)
    if not experts:
        return dict.fromkeys(names, 0)
    for key in ("decoder_sparse_step", "moe_layer_freq"):
        if _width(content, (key,), path, 1) != 1:
            raise PlanError(
                f"{path}: {key}={content[key]}: layers with and without experts alternate, which"
                " is not modelled; set it to 1 for an upper bound"
            )
    width = _width(content, ("moe_intermediate_size",), path, made["ffn"])
    shared = _width(content, ("n_shared_experts",), path, 0) * width
    dense = _width(content, ("first_k_dense_replace",), path, 0)
    listed = content.get("mlp_only_layers") or []
    if listed and sorted(listed) != list(range(len(listed))):
        raise PlanError(
            f"{path}: mlp_only_layers={listed} are not the first layers, which is not modelled;"
            " clear it for an upper bound"
        )
    return {
        "experts": experts,
        "active_experts": _width(content, ("num_experts_per_tok",), path),
        "expert_ffn": width,
        "shared_ffn": _width(content, ("shared_expert_intermediate_size",), path, shared),
        "dense_layers": dense or len(listed),
    }


def _latent(content: dict[str, Any], path: Path) -> dict[str, int]:
    rank = _width(content, ("kv_lora_rank",), path, 0)
    if not rank:
        return {"q_rank": 0, "kv_rank": 0, "rope_dim": 0}
    head_dim = _width(content, ("qk_nope_head_dim",), path)
    if _width(content, ("v_head_dim",), path) != head_dim:
        raise PlanError(
            f"{path}: v_head_dim={content['v_head_dim']} differs from qk_nope_head_dim={head_dim},"
            " which is not modelled; describe the model in a models.csv with a mean head_dim"
        )
    return {
        "q_rank": _width(content, ("q_lora_rank",), path, 0),
        "kv_rank": rank,
        "rope_dim": _width(content, ("qk_rope_head_dim",), path),
        "head_dim": head_dim,
    }


def _width(
    content: dict[str, Any], keys: tuple[str, ...], path: Path, default: int | None = None
) -> int:
    """The first of the keys that is there and not null, as a whole number of at least 0."""
    for key in keys:
        value = content.get(key)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
            raise PlanError(f"{path}: {key}={value!r} is not a whole number; correct it")
        if value < (1 if default is None else 0):
            raise PlanError(f"{path}: {key}={value!r} is too small; correct it")
        return int(value)
    if default is None:
        raise PlanError(f"{path}: {' / '.join(keys)} is missing; add it")
    return default


def _parsed(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise PlanError(f"{path}: cannot be read ({error}); give a model's config.json") from None
    except json.JSONDecodeError as error:
        raise PlanError(f"{path}:{error.lineno}: is not JSON ({error.msg}); correct it") from None
    if not isinstance(content, dict):
        raise PlanError(f"{path}: holds a {type(content).__name__}; give a model's config.json")
    return content
