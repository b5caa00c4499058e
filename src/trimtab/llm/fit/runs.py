"""A table of runs, from a CSV with any subset of the columns below, as cases and measurements.

What a table leaves out is filled by what such runs usually have, and `notes` says so a row.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.errors import PlanError, UnknownName
from trimtab.llm.cost import cases
from trimtab.llm.cost.cases import CASE, FRAMEWORKS, PRECISIONS, RECOMPUTES
from trimtab.llm.nouns import Gpu
from trimtab.llm.spec import specs

MEASURED = ("step_s", "tflops_per_gpu", "tokens_per_s_per_gpu", "mem_gb", "oom")
COUNTS = (
    "gpus", "gpus_per_node", "hidden", "layers", "heads", "kv_heads", "head_dim", "ffn", "vocab",
    "seq", "experts", "active_experts", "expert_ffn", "shared_ffn", "tp", "pp", "dp", "cp", "ep",
    "interleave", "micro_batch", "global_batch",
)  # fmt: skip
YES = {"1", "true", "yes", "y", "on"}
NO = {"0", "false", "no", "n", "off", "", "none", "nan"}
OUT = {"oom", "cudaoom", "outofmemory"}
EMPTY = {"", "nan", "none", "null", "n/a", "na", "-", "?"} | OUT
TOKENS = 65536  # a batch of this many sequences or more is one of tokens
RECOMPUTE_NAMES = {
    "": "none", "no": "none", "false": "none", "0": "none", "off": "none", "nan": "none",
    "attention": "selective", "attn": "selective", "partial": "selective", "op": "selective",
    "yes": "full", "true": "full", "1": "full", "on": "full", "block": "full", "uniform": "full",
    "sel": "selective", "all": "full",
}  # fmt: skip
PRECISION_NAMES = {
    "ampbf16": "bf16", "bfloat16": "bf16", "mixed": "bf16", "float16": "fp16", "ampfp16": "fp16",
    "half": "fp16", "float8": "fp8", "ampfp8": "fp8", "fp8hybrid": "fp8", "bf16fp8": "fp8",
    "float32": "fp32", "tf32": "fp32", "16": "fp16", "32": "fp32", "8": "fp8",
}  # fmt: skip
ZERO_NAMES = {
    "": 0, "none": 0, "ddp": 0, "no": 0, "false": 0, "nan": 0, "true": 1, "yes": 1, "distopt": 1,
    "osdp": 1, "sdp": 2, "gradop": 2, "shardgradop": 2, "fsdp": 3, "hsdp": 3, "fsdp2": 3,
    "fullshard": 3, "hybridshard": 3,
}  # fmt: skip
# The first NVIDIA and AMD generations with a fused attention that training uses.
FUSED_SINCE = ("Ampere", "Ada", "Hopper", "Blackwell", "CDNA2", "CDNA3", "CDNA4")
# Runs on these are mostly from before 2021, when softmax, bias and dropout got fused kernels, or of
# software that never had them.
EAGER_UNTIL = ("Kepler", "Maxwell", "Pascal", "Volta", "Turing")
VOCAB = 51200
DIE_FIELDS = ("flops", "fp8_flops", "fp32_flops", "memory_b", "memory_bps", "tdp_w")


class Runs(NamedTuple):
    """One row a run: what was run, what was measured (NaN = not given), what we filled in."""

    cases: Array  # (rows,) of CASE; micro_batch = 0 where the table has none
    measured: dict[str, Array]  # (rows,) a name of MEASURED
    notes: list[str]
    lines: list[int]
    either: Array  # (rows,) bool: gradients of 2 or of 4 bytes, the table does not say
    refused: dict[int, str]  # line -> why it cannot be predicted


class Row:
    """One line of a table: its words by lower-case column, and where they stand."""

    def __init__(self, words: Mapping[str, str], path: str, line: int) -> None:
        self.words = {
            name.strip().lower(): (word or "").strip() for name, word in words.items() if name
        }
        self.where, self.line = f"{path}:{line}", line
        self.notes: list[str] = []

    def text(self, field: str) -> str:
        """The word in a column, empty where there is none."""
        return self.words.get(field, "")

    def number(self, field: str, least: float = 0.0) -> float:
        """The number in a column, NaN where there is none."""
        word = self.text(field).replace(",", "")
        if word.lower() in EMPTY:
            return math.nan
        try:
            value = float(word)
        except ValueError:
            raise self.wrong(field, word, "write a number or leave the cell empty") from None
        if not math.isfinite(value) or value < least:
            raise self.wrong(field, word, f"write a number of at least {least:g}")
        return value

    def count(self, field: str) -> float:
        """The whole number in a column, NaN where there is none."""
        value = self.number(field)
        if not math.isnan(value) and value != round(value):
            raise self.wrong(field, self.text(field), "write a whole number")
        return value

    def flag(self, field: str) -> float:
        """1, 0 or NaN for a yes, a no or an empty cell."""
        word = self.text(field).lower()
        if not word:
            return math.nan
        if word in YES or word in NO:
            return float(word in YES)
        raise self.wrong(field, word, "write true or false")

    def wrong(self, field: str, value: str, remedy: str) -> PlanError:
        """The error for one cell."""
        return PlanError(f"{self.where}: {field}={value!r}; {remedy}")


def read_runs(path: str | Path) -> Runs:
    """The runs of a CSV file with a header."""
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            table = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as mistake:
        raise PlanError(f"{path}: cannot be read as CSV ({mistake}); check the file") from None
    found = as_runs(table, str(path))
    if not found.lines and not found.refused:
        raise PlanError(f"{path}: has no rows under its header; add at least one run")
    return found if found.lines else whole(found)


def as_runs(table: Iterable[Mapping[str, str]], path: str = "runs") -> Runs:
    """The runs of rows of words, as `csv.DictReader` gives them; a bad row stops no other."""
    kept: list[Row] = []
    parts: list[Array] = []
    seen: list[dict[str, float]] = []
    refused: dict[int, str] = {}
    for line, words in enumerate(table, 2):
        row = Row(words, path, line)
        if not any(row.words.values()):
            continue
        made = np.zeros(1, CASE)
        try:
            fill(made, row)
            seen.append({name: measure(row, name) for name in MEASURED})
        except PlanError as mistake:
            refused[line] = str(mistake)
            continue
        kept.append(row)
        parts.append(made)
    plans = np.concatenate([np.zeros(0, CASE), *parts])
    measured = {name: np.array([one[name] for one in seen]) for name in MEASURED}
    notes = ["; ".join(row.notes) for row in kept]
    said = np.array([row.count("grad_bytes") > 0 for row in kept], bool)
    either = ~said & (plans["framework"] == FRAMEWORKS.index("megatron"))
    return Runs(plans, measured, notes, [row.line for row in kept], either, refused)


def whole(runs: Runs) -> Runs:
    """The runs, or the PlanError of the first row that cannot be predicted."""
    for why in runs.refused.values():
        raise PlanError(why)
    return runs


def measure(row: Row, name: str) -> float:
    """One measurement; what is not above 0 was not measured."""
    if name == "oom":
        # some tables write it where the time would stand
        said = {row.text(column).lower().replace(" ", "") for column in MEASURED[:-1]}
        return 1.0 if said & OUT else row.flag("oom")
    value = row.number(name)
    return value if value > 0.0 else math.nan


def fill(made: Array, row: Row) -> None:
    """Fill one case from one line: the GPU, the model, then the plan, each with its defaults."""
    gpu = counted(row, named(row, "gpu", specs.gpu, "A100-SXM-80GB"))
    for name in ("flops", "fp8_flops", "fp32_flops", "memory_b", "memory_bps", "link_bps", "tdp_w"):
        made[name] = float(getattr(gpu, name))
    made["arch"] = cases.law_index(gpu)
    fill_model(made, row)
    fill_plan(made, row, gpu)


def counted(row: Row, gpu: Gpu) -> Gpu:
    """The GPU as the table counts it: a node of four MI250 has eight dies, two a GPU."""
    if not gpu.name.endswith("-GCD") or row.count("gpus_per_node") != 4:
        return gpu
    row.notes.append("gpu: packages of two dies, by gpus_per_node")
    twice = {name: 2.0 * getattr(gpu, name) for name in DIE_FIELDS}
    return replace(gpu, per_node=4, **twice)


def named(row: Row, field: str, known: Any, default: str) -> Any:
    """What a name stands for in the shipped tables; the error says where the name was read."""
    word = row.text(field)
    if not word:
        row.notes.append(f"{field}: {default}")
    try:
        return known(word or default)
    except (UnknownName, PlanError) as mistake:
        raise PlanError(f"{row.where}: {field}={word!r}: {mistake}") from None


def known_model(row: Row) -> Any:
    """The model that the row names, None where it has numbers or a name of its own only."""
    word = row.text("model")
    if not word:
        return None
    try:
        return specs.model(word)
    except (UnknownName, PlanError):
        if row.text("hidden"):
            return None
        raise


def fill_model(made: Array, row: Row) -> None:
    """Fill the model's fields; numbers in the row win over those of the model it names."""
    model = known_model(row)
    value = {field: row.count(field) for field in COUNTS}
    if model is not None:
        for field in cases.MODEL_FIELDS:
            made[field] = float(getattr(model, field))
    for field in ("hidden", "layers"):
        if model is None and not value[field] > 0:
            raise row.wrong(field, row.text(field), "give it, or name a known model in `model`")
    for field in ("hidden", "layers", "heads", "kv_heads", "head_dim", "vocab", "experts",
                  "active_experts", "shared_ffn"):  # fmt: skip
        if not math.isnan(value[field]):
            made[field] = value[field]
    hidden = float(made["hidden"][0])
    fallback(made, row, "heads", max(1.0, round(hidden / 128)))
    fallback(made, row, "kv_heads", float(made["heads"][0]))
    fallback(made, row, "head_dim", hidden / float(made["heads"][0]))
    fallback(made, row, "vocab", VOCAB)
    if model is not None and math.isnan(value["ffn"]):
        return
    fill_width(made, row, value, hidden)


def fill_width(made: Array, row: Row, value: Mapping[str, float], hidden: float) -> None:
    """Fill the feed-forward block: gated where its width is not 4 x hidden, as Llama's is."""
    grouped = made["kv_heads"][0] < made["heads"][0]
    width = value["ffn"]
    moe = made["experts"][0] > 0
    if math.isnan(width):
        width = 3.5 * hidden if grouped or moe else 4.0 * hidden
        row.notes.append(f"ffn: {width:g}")
    gated = row.flag("gated")
    if math.isnan(gated):
        gated = float(moe or abs(width / hidden - 4.0) > 0.01)
    made["gated"], made["ffn"] = gated, width
    if moe:
        own = value["expert_ffn"]
        made["expert_ffn"] = width if math.isnan(own) else own
        fallback(made, row, "active_experts", 2.0)
    tied, biases = row.flag("tied"), row.flag("biases")
    composer = framework_of(row) == FRAMEWORKS.index("composer")
    made["tied"] = float(not gated) if math.isnan(tied) else tied
    made["biases"] = float(not gated and not composer) if math.isnan(biases) else biases
    made["learned_positions"] = float(not gated)


def fallback(made: Array, row: Row, field: str, value: float) -> None:
    """Fill a field that is still 0 and note it."""
    if not made[field][0] > 0:
        made[field] = value
        row.notes.append(f"{field}: {value:g}")


def framework_of(row: Row) -> int:
    """The row's framework; without one, what usually runs such a plan."""
    word = row.text("framework")
    usual = "fsdp" if zero_of(row) == 3.0 else "megatron"
    try:
        return cases.framework_index(word or usual)
    except PlanError:
        note = f"framework: {word!r} is not known, read as {usual}"
        if note not in row.notes:
            row.notes.append(note)
        return FRAMEWORKS.index(usual)


def zero_of(row: Row) -> float:
    """The ZeRO stage a cell names, NaN where it is empty."""
    word = "".join(letter for letter in row.text("zero").lower() if letter.isalnum())
    if not row.text("zero"):
        return math.nan
    bare = word.removeprefix("zero").removeprefix("stage")
    if bare in ("0", "1", "2", "3", "00", "10", "20", "30"):
        return float(bare[0])
    if word in ZERO_NAMES:
        return float(ZERO_NAMES[word])
    raise row.wrong("zero", row.text("zero"), "write 0, 1, 2, 3 or fsdp")


def fill_plan(made: Array, row: Row, gpu: Any) -> None:
    """Fill the plan's fields and the machine's shape."""
    framework = framework_of(row)
    made["framework"] = framework
    value = {field: row.count(field) for field in COUNTS}
    for field in ("tp", "pp", "cp", "ep", "interleave"):
        made[field] = 1.0 if math.isnan(value[field]) else value[field]
        if made[field][0] == 0 and field in ("tp", "pp"):
            raise row.wrong(field, row.text(field), "write 1 where it is not used")
        made[field] = np.maximum(made[field], 1.0)  # a 0 in the others says that they are off
    made["seq"] = 2048.0 if math.isnan(value["seq"]) else value["seq"]
    fill_ranks(made, row, value, gpu)
    word = row.text("precision") or ("bf16" if gpu.bf16 else "fp16")
    made["precision"] = place(row, PRECISIONS, word, "precision", PRECISION_NAMES)
    word = row.text("recompute") or "none"
    made["recompute"] = place(row, RECOMPUTES, word, "recompute", RECOMPUTE_NAMES)
    fill_software(made, row, gpu, framework)
    made["micro_batch"] = 0.0 if math.isnan(value["micro_batch"]) else value["micro_batch"]
    batch = 0.0 if math.isnan(value["global_batch"]) else value["global_batch"]
    if batch >= TOKENS and batch % made["seq"][0] == 0:
        batch /= float(made["seq"][0])
        row.notes.append("global_batch: read as tokens")
    made["global_batch"] = batch
    if not made["global_batch"][0] > 0:
        many = 8.0 * made["pp"][0] if made["pp"][0] > 1 else 1.0
        made["global_batch"] = made["dp"][0] * max(made["micro_batch"][0], 1.0) * many
        row.notes.append(f"global_batch: {made['global_batch'][0]:g}")
    kept = row.count("grad_bytes")
    made["grad_bytes"] = kept if kept > 0 else cases.grad_bytes(made)


def fill_ranks(made: Array, row: Row, value: Mapping[str, float], gpu: Any) -> None:
    """Fill GPUs, replicas and nodes, each from the others where one is missing."""
    ways = float(made["tp"][0] * made["pp"][0] * made["cp"][0])
    gpus, dp = value["gpus"], value["dp"]
    if math.isnan(gpus):
        gpus = ways * (1.0 if math.isnan(dp) else dp)
        row.notes.append(f"gpus: {gpus:g}")
    if not gpus > 0:
        raise row.wrong("gpus", row.text("gpus"), "give at least one GPU")
    if gpus % ways:
        remedy = f"tp x pp x cp = {ways:g} does not divide it; correct one of them"
        raise row.wrong("gpus", row.text("gpus"), remedy)
    if dp != gpus / ways:
        # tables count context or expert parallel inside or outside of dp: the GPUs decide
        if not math.isnan(dp):
            row.notes.append(f"dp: {gpus / ways:g} by the GPUs")
        dp = gpus / ways
    made["gpus"], made["dp"] = gpus, dp
    node = value["gpus_per_node"]
    made["per_node"] = float(gpu.per_node) if math.isnan(node) or node < 1 else node
    made["node_link_bps"] = node_link_bps(row, gpu.arch, float(made["per_node"][0]))


def node_link_bps(row: Row, arch: str, per_node: float) -> float:
    """Bytes a second a GPU to other nodes, from `node_link_gbps`.

    Tables write GB/s a GPU, Gb/s a GPU or Gb/s a node. The reading is the fastest of these that
    the network cards of the GPU's generation reach; `node_link_bps` leaves no doubt.
    """
    exact = row.number("node_link_bps")
    if not math.isnan(exact) and exact > 0:
        return exact
    usual, value = cases.node_link_of(arch), row.number("node_link_gbps")
    if math.isnan(value) or value == 0.0:
        return usual
    for unit, size in (("GB/s a GPU", 1.0), ("Gb/s a GPU", 8.0), ("Gb/s a node", 8.0 * per_node)):
        if value / size * 1e9 <= usual:
            row.notes.append(f"node_link_gbps: read as {unit}")
            return value / size * 1e9
    return usual


def fill_software(made: Array, row: Row, gpu: Any, framework: int) -> None:
    """Fill ZeRO, sequence parallel and fused attention by what the framework's users have."""
    name, zero = FRAMEWORKS[framework], zero_of(row)
    recent = bool(made["gated"][0]) or gpu.arch in ("Hopper", "Blackwell", "CDNA3", "CDNA4")
    if math.isnan(zero):
        sharded = framework >= FRAMEWORKS.index("fsdp")
        zero = 3.0 if sharded else float(name in ("nemo", "deepspeed") or recent)
    made["zero"] = zero if made["dp"][0] * made["cp"][0] > 1 else 0.0
    split = row.flag("sequence_parallel")
    if math.isnan(split):
        modern = recent or made["recompute"][0] == 1 or name in ("nemo", "torchtitan")
        split = float(made["tp"][0] > 1 and modern and name != "deepspeed")
    made["sequence_parallel"] = split
    fused = row.flag("flash")
    if math.isnan(fused):
        # without a fused attention nobody trained these models without recomputation
        old = name in ("megatron", "deepspeed") and not recent and made["recompute"][0] > 0
        old = old and made["seq"][0] < 8192
        fused = float(gpu.arch in FUSED_SINCE and not old)
        row.notes.append(f"flash: {'yes' if fused else 'no'}")
    made["flash"] = fused
    eager = row.flag("eager")
    if math.isnan(eager):
        eager = float(gpu.arch in EAGER_UNTIL and not fused)
        row.notes += ["eager: yes, as before 2021"] if eager else []
    made["eager"] = eager


def place(row: Row, words: tuple[str, ...], word: str, field: str, others: Any) -> float:
    """The number of a word, with the cell in the error."""
    try:
        return float(cases.place(words, word, field, others))
    except PlanError as mistake:
        raise PlanError(f"{row.where}: {mistake}") from None
