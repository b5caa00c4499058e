"""GPUs and models as data: what a datasheet or a config.json says, in SI units.

Our tables are gpus.csv and models.csv; `spec_files` says how users add their own. Tables give
TFLOP/s, GB (1e9 B) and GB/s as datasheets do, the objects here FLOP/s, B and B/s.
"""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

from trimtab.errors import PlanError
from trimtab.llm.nouns import Gpu, Model
from trimtab.llm.spec import hf_config
from trimtab.llm.spec.names import IDLE_GPU_WORDS, IDLE_MODEL_WORDS, found, index_of
from trimtab.llm.spec.spec_files import FOLDER_VARIABLE, Column, folder_of_user, tables

GPU_COLUMNS = {
    "name": Column(str),
    "aliases": Column(str, ""),
    "vendor": Column(str, "unknown"),
    "arch": Column(str),
    "tflops": Column(float, least=1e-3),
    "fp8_tflops": Column(float, 0.0),
    "fp32_tflops": Column(float, least=1e-3),
    "bf16": Column(bool),
    "memory_gb": Column(float, least=1e-3),
    "memory_gb_s": Column(float, least=1e-3),
    "link": Column(str, "PCIe4"),
    "link_gb_s": Column(float, 32.0, 1e-3),
    "tdp_w": Column(float, least=1.0),
    "per_node": Column(int, 8, 1),
    "source": Column(str, "the user's table"),
}
MODEL_COLUMNS = {
    "name": Column(str),
    "aliases": Column(str, ""),
    "hidden": Column(int, least=1),
    "layers": Column(int, least=1),
    "heads": Column(int, least=1),
    "kv_heads": Column(int, 0),  # 0 = as many as heads
    "head_dim": Column(int, 0),  # 0 = hidden / heads
    "ffn": Column(int, least=1),
    "gated": Column(bool, True),
    "vocab": Column(int, least=1),
    "tied": Column(bool, False),
    "max_seq": Column(int, 4096, 1),
    "experts": Column(int, 0),
    "active_experts": Column(int, 0),
    "expert_ffn": Column(int, 0),
    "shared_ffn": Column(int, 0),
    "dense_layers": Column(int, 0),
    "q_rank": Column(int, 0),
    "kv_rank": Column(int, 0),
    "rope_dim": Column(int, 0),
    "learned_positions": Column(bool, False),
    "biases": Column(bool, False),
    "hub": Column(str, ""),
    "source": Column(str, "the user's table"),
}


def gpus(folder: str | Path | None = None) -> dict[str, Gpu]:
    """Every GPU by name: our table and the user's."""
    return dict(_gpus(folder_of_user(folder))[0])


def models(folder: str | Path | None = None) -> dict[str, Model]:
    """Every model by name: our table and the user's."""
    return dict(_models(folder_of_user(folder))[0])


def gpu(name: str, folder: str | Path | None = None) -> Gpu:
    """The GPU of that name or alias; what drivers report ("NVIDIA H100 80GB HBM3") will do."""
    known, index = _gpus(folder_of_user(folder))
    remedy = f"or add it to gpus.csv in the folder that {FOLDER_VARIABLE} names"
    return known[found(name, "GPU", index, IDLE_GPU_WORDS, remedy)]


def model(name: str, folder: str | Path | None = None) -> Model:
    """The model of that name or alias, or that of a config.json (its path, or its folder's)."""
    path = Path(name).expanduser()
    if path.suffix == ".json" or (path / "config.json").is_file():
        return checked(Model(**hf_config.read(path)), str(path))
    known, index = _models(folder_of_user(folder))
    # "meta-llama/Llama-3.1-70B": the owner on the hub is no part of the name
    last = name.rstrip("/").rsplit("/", 1)[-1]
    remedy = f"give a config.json, or add it to models.csv in the folder of {FOLDER_VARIABLE}"
    return known[found(last or name, "model", index, IDLE_MODEL_WORDS, remedy)]


def checked(made: Model, where: str) -> Model:
    """`made`, or PlanError for widths that no such network has."""
    for field in ("hidden", "layers", "heads", "kv_heads", "head_dim", "vocab", "max_seq"):
        if getattr(made, field) < 1:
            raise PlanError(f"{where}: {field}={getattr(made, field)} is below 1; correct it")
    if made.heads % made.kv_heads:
        raise PlanError(
            f"{where}: kv_heads={made.kv_heads} does not divide heads={made.heads}; correct one"
        )
    if made.experts and not (1 <= made.active_experts <= made.experts and made.expert_ffn):
        raise PlanError(
            f"{where}: active_experts={made.active_experts} of experts={made.experts} with"
            f" expert_ffn={made.expert_ffn}; take 1 to {made.experts} of a width above 0"
        )
    if made.dense_layers > made.layers:
        raise PlanError(
            f"{where}: dense_layers={made.dense_layers} exceed layers={made.layers}; lower them"
        )
    return made


def attention_parameters(made: Model) -> int:
    """Of one layer, its input norm included."""
    wide = made.heads * made.head_dim
    norm = made.hidden * (1 + made.biases)
    if made.kv_rank:
        rotated = made.heads * (made.head_dim + made.rope_dim)
        query = made.q_rank * (made.hidden + rotated + 1) if made.q_rank else made.hidden * rotated
        down = made.hidden * (made.kv_rank + made.rope_dim) + made.kv_rank
        return query + down + made.kv_rank * 2 * wide + wide * made.hidden + norm
    kv = 2 * made.kv_heads * made.head_dim
    bias = (wide + kv + made.hidden) if made.biases else 0
    return made.hidden * (wide + kv) + wide * made.hidden + bias + norm


def ffn_parameters(made: Model, width: int) -> int:
    """Of one feed-forward block of that width, without its norm."""
    bias = (width * (1 + made.gated) + made.hidden) if made.biases else 0
    return (2 + made.gated) * made.hidden * width + bias


def layer_parameters(made: Model, layer: int) -> int:
    """Of the layer with that number."""
    common = attention_parameters(made) + made.hidden * (1 + made.biases)
    if not made.experts or layer < made.dense_layers:
        return common + ffn_parameters(made, made.ffn)
    shared = ffn_parameters(made, made.shared_ffn) if made.shared_ffn else 0
    router = made.hidden * made.experts
    return common + router + shared + made.experts * ffn_parameters(made, made.expert_ffn)


def embedding_parameters(made: Model) -> int:
    """Of the first stage: the input table and learned positions."""
    return made.hidden * (made.vocab + (made.max_seq if made.learned_positions else 0))


def head_parameters(made: Model) -> int:
    """Of the last stage: the output matrix, counted where it is not the input table, and a norm."""
    own = 0 if made.tied else made.hidden * made.vocab
    return own + made.hidden * (1 + made.biases)


def parameters(made: Model) -> int:
    """All weights of the model."""
    dense = made.dense_layers if made.experts else made.layers
    body = dense * layer_parameters(made, 0) if dense else 0
    if dense < made.layers:
        body += (made.layers - dense) * layer_parameters(made, made.layers - 1)
    return body + embedding_parameters(made) + head_parameters(made)


@cache
def _gpus(folder: Path | None) -> tuple[dict[str, Gpu], dict[str, str]]:
    made: dict[str, Gpu] = {}
    aliases: dict[str, list[str]] = {}
    for row in tables("gpus.csv", folder, GPU_COLUMNS):
        made[row["name"]] = Gpu(
            name=row["name"],
            vendor=row["vendor"],
            arch=row["arch"],
            flops=row["tflops"] * 1e12,
            fp8_flops=row["fp8_tflops"] * 1e12,
            fp32_flops=row["fp32_tflops"] * 1e12,
            bf16=row["bf16"],
            memory_b=row["memory_gb"] * 1e9,
            memory_bps=row["memory_gb_s"] * 1e9,
            link=row["link"],
            link_bps=row["link_gb_s"] * 1e9,
            tdp_w=row["tdp_w"],
            per_node=row["per_node"],
            source=row["source"],
        )
        # a user's row in place of ours keeps the names that ours went under
        aliases.setdefault(row["name"], []).extend(filter(None, row["aliases"].split("|")))
    return made, index_of(aliases, IDLE_GPU_WORDS)


@cache
def _models(folder: Path | None) -> tuple[dict[str, Model], dict[str, str]]:
    made: dict[str, Model] = {}
    aliases: dict[str, list[str]] = {}
    for row in tables("models.csv", folder, MODEL_COLUMNS):
        made[row["name"]] = _model(row)
        others = [*row["aliases"].split("|"), row["hub"].rsplit("/", 1)[-1]]
        aliases.setdefault(row["name"], []).extend(filter(None, others))
    return made, index_of(aliases, IDLE_MODEL_WORDS)


def _model(row: dict[str, Any]) -> Model:
    values = {field.name: row[field.name] for field in fields(Model)}
    values["kv_heads"] = row["kv_heads"] or row["heads"]
    if not row["head_dim"] and row["hidden"] % row["heads"]:
        raise PlanError(
            f"{row['where']}: heads={row['heads']} does not divide hidden={row['hidden']};"
            " fill in head_dim"
        )
    values["head_dim"] = row["head_dim"] or row["hidden"] // row["heads"]
    return checked(Model(**values), row["where"])
