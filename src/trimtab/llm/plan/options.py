"""What a user may say of a plan and may leave open, with how it is said on the command line.

0, "" and None leave a field open. Next to nothing is imported here: `trimtab --help` stays quick.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

from trimtab.errors import PlanError

FIXED = "Fix a part of the plan; default: whatever is best"  # heading of --help
GBPS = 1e9 / 8  # B/s of a Gb/s


def _option(default: Any, text: str, name: str = "", **more: Any) -> Any:
    named = {"option": name} if name else {}
    return field(default=default, metadata={"help": text, **named, **more})


def _part(text: str) -> Any:
    return _option(None, text, panel=FIXED)


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """Of any plan, beside the model and the GPUs."""

    objective: str = _option("time", "time, cost, energy, or a mix: time=0.7,energy=0.3.")
    least_p_fit: float = _option(0.9, "Least chance that a plan fits.", "--p-fit")
    precision: str = _option("", "fp16, bf16, fp8 or fp32.")
    node_link_bps: float = _option(
        0.0, "Gb/s of a GPU's network card; by generation.", "--node-link-gbps", times=GBPS
    )
    per_node: int = _option(0, "Default: the usual server's.", "--gpus-per-node")
    tp: int | None = _part("Tensor parallel.")
    pp: int | None = _part("Pipeline stages.")


@dataclass(frozen=True, kw_only=True)
class TrainOptions(PlanOptions):
    """Of a training run."""

    global_batch: int = _option(0, "Sequences a step; default by the model.", "--batch")
    seq: int = _option(0, "Tokens a sequence; default by the model.")
    price_hour: float = _option(0.0, "Of one GPU; cost is in its currency.")
    framework: str = _option("", "megatron, nemo, deepspeed, fsdp, torchtitan or composer.")
    up_to: bool = False  # fewer GPUs may be taken: a word before their number says so
    dp: int | None = _part("Data parallel.")
    cp: int | None = _part("Context parallel.")
    ep: int | None = _part("Expert parallel.")
    interleave: int | None = _part("Chunks a stage.")
    micro_batch: int | None = _part("Sequences at a time.")
    zero: int | None = _part("ZeRO stage, 0 to 3.")
    recompute: str | None = _part("none, selective or full.")


@dataclass(frozen=True, kw_only=True)
class ServeOptions(PlanOptions):
    """Of an inference server."""

    prompt: int = _option(1024, "Tokens of a prompt.")
    generated: int = _option(256, "Tokens of an answer.", "--generate")
    slo_s: float = _option(0.0, "Most between tokens.", "--slo-ms", times=1e-3)
    ttft_s: float = _option(0.0, "Most until the first token.", "--ttft-ms", times=1e-3)
    cpu_load: float = _option(0.0, "Of the host by others, 0..1.")


TRAIN, SERVE = TrainOptions(), ServeOptions()  # all left open
Options = TypeVar("Options", TrainOptions, ServeOptions)


def changed(options: Options, said: Mapping[str, Any]) -> Options:
    """The options with some said in other words, or PlanError for a word that is none."""
    known = [one.name for one in fields(options)]
    for name in said:
        if name not in known:
            raise PlanError(f"plan field {name!r} cannot be fixed; take one of {', '.join(known)}")
    return replace(options, **said)
