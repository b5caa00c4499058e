"""What was measured on one machine's GPUs, as a file: its laws replace those of the architecture.

    h200 = adopt(read_profile("h200.json"))             # plan with it: cases(model, h200, 8)
    measured_pool("8xH200+8xH100", "h200.json")         # or where GPUs are asked for in words

`trimtab plan calibrate` writes such files. Numbers that it could not measure (links on a machine
of one GPU, power where there is no meter) stay those of the architecture.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from trimtab.errors import PlanError, UnknownName
from trimtab.files import write_whole
from trimtab.llm.calibrate.foreign import named_as
from trimtab.llm.cost import constants
from trimtab.llm.cost.constants import Law, law_of
from trimtab.llm.cost.intervals import arch_spreads
from trimtab.llm.cost.kernels import LAW
from trimtab.llm.cost.profiles import law_rows
from trimtab.llm.cost.serving_cost import serving
from trimtab.llm.nouns import Gpu
from trimtab.llm.spec import specs
from trimtab.llm.spec.pool import Pool, pool

FAMILY = "trimtab gpu profile"
FORMAT = f"{FAMILY} 1"
# Least and most that a constant can be: wide enough for a processor that plays the GPU. What lies
# outside was measured wrongly, or typed, and would make plans of nonsense.
LIMITS: dict[str, tuple[float, float]] = {
    "gemm_flop": (0.3, 100.0),
    "gemm_byte": (0.05, 100.0),
    "gemm_start_s": (0.0, 1e-2),
    "gemm_wave": (0.0, 1.0),
    "gemm_half": (1.0, 10.0),
    "gemm_ragged": (0.5, 50.0),
    "sms": (1.0, 4096.0),
    "flash_share": (1e-3, 2.0),
    "flash_half": (0.0, 1e5),
    "flash_back": (0.5, 20.0),
    "score_b": (0.1, 1e3),
    "score_ragged": (0.5, 50.0),
    "score_broken": (0.5, 100.0),
    "stream_share": (1e-2, 2.0),
    "stream_start_s": (0.0, 1e-2),
    "cool": (1e8, 1e14),
    "hot": (0.0, 10.0),
    "host": (1e-2, 100.0),
    "load_slow": (0.0, 10.0),
    "idle_power": (0.0, 1.0),
    "flop_power": (0.0, 5.0),
    "busy_power": (0.0, 1.5),
    "link_share": (1e-4, 10.0),
    "link_start_s": (0.0, 0.1),
    "link_chunk_s": (0.0, 1e-2),
    "pcie_share": (1e-4, 10.0),
    "node_share": (1e-4, 10.0),
    "node_start_s": (0.0, 0.1),
}
MEASURED = "measured by trimtab plan calibrate"  # source of a GPU that no table lists
KEPT = (law_rows, arch_spreads, serving)  # caches that hold a row a law
LINKS = ("link_share", "pcie_share")  # one of them is there when links were measured
# Of the spread of an architecture that nobody measured, what is left when only links are not: they
# are about a third of the steps that they matter in. Assumed.
LINK_PART = 1 / 3


@dataclass(frozen=True)
class GpuProfile:
    """Laws of one GPU in one machine, and what they were fitted to."""

    gpu: Gpu
    law: Mapping[str, float]  # some of kernels.LAW; what is missing is the architecture's
    figures: list[dict[str, Any]]  # how well each law explains what was measured
    measured: dict[str, list[list[float]]]  # rows by kind of kernel
    columns: dict[str, list[str]]  # and what stands in them
    machine: dict[str, Any] = field(default_factory=dict)  # driver, software, processor, date


def write_profile(profile: GpuProfile, path: str | Path) -> None:
    """Write the file whole or not at all."""
    try:
        write_whole(Path(path), _text(profile))
    except OSError as problem:
        raise PlanError(f"{path}: cannot be written ({problem}); name another file") from None


def read_profile(path: str | Path) -> GpuProfile:
    """The profile of a file, or PlanError that names what is wrong in it."""
    other = "" if is_profile(path) else named_as(path)
    if other:
        raise PlanError(
            f"{path}: {other}; --profile takes here what `trimtab plan calibrate` writes"
        )
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"), parse_constant=_no_number)
    except (OSError, ValueError) as problem:
        raise PlanError(
            f"{path}: cannot be read as a profile ({problem}); write one with"
            f" `trimtab plan calibrate --profile {path}`"
        ) from None
    if not isinstance(found, dict) or found.pop("format", "") != FORMAT:
        raise PlanError(f"{path}: format is not {FORMAT!r}; calibrate again with this version")
    try:
        made = GpuProfile(**(found | {"gpu": Gpu(**found["gpu"])}))
    except (TypeError, KeyError) as problem:
        raise PlanError(
            f"{path}: a field is missing or unknown ({problem}); calibrate again"
        ) from None
    _check_law(made.law, path)
    _check_gpu(made.gpu, path)
    for name, kind in (("figures", list), ("measured", dict), ("columns", dict), ("machine", dict)):
        if not isinstance(getattr(made, name), kind):
            raise PlanError(f"{path}: {name} is no {kind.__name__}; calibrate again")
    return made


def is_profile(path: str | Path) -> bool:
    """Whether a file begins as a profile of any version does, a broken one too."""
    try:
        with Path(path).open(encoding="utf-8") as file:
            return file.read(200).lstrip().startswith('{"format": "' + FAMILY)
    except (OSError, ValueError):
        return False


def adopt(profile: GpuProfile) -> Gpu:
    """Let this process plan with the profile: the GPU to plan for from now on.

    Nothing else changes: other GPUs of the architecture keep its laws.
    """
    base = law_of(profile.gpu.arch)
    values = base.values.copy()
    for name, value in profile.law.items():
        values[LAW.index(name)] = value
    spread, note = 0.0, ""
    if "gemm_flop" not in profile.law:
        spread, note = base.spread, base.note
    elif base.note and not any(name in profile.law for name in LINKS):
        spread, note = LINK_PART * base.spread, f"lack the links, of which {base.note}"
    name = f"{profile.gpu.name}, measured"
    constants.ADOPTED[name] = Law(values, spread, note, base.arch)
    for kept in KEPT:
        kept.cache_clear()
    return replace(profile.gpu, law=name)


def measured_pool(text: str, *paths: str | Path) -> Pool:
    """The pool that `text` says, with the profiles of these files in the place of tables."""
    adopted = {str(path): adopt(read_profile(path)) for path in paths}
    made = pool(text, measured=list(adopted.values()))
    for path, gpu in adopted.items():
        if gpu not in [share.gpu for share in made]:
            raise PlanError(
                f"{path}: is of {gpu.name}, which gpus={text!r} do not name; leave it out, or ask"
                f" for {gpu.name}"
            )
    return made


def known_gpu(name: str) -> Gpu | None:
    """The GPU of our tables that a driver calls so, None where there is none."""
    try:
        return specs.gpu(name.partition("/")[0])  # "AMD Instinct MI250X / MI250"
    except UnknownName:
        return None


def believable(name: str, value: Any) -> bool:
    """Whether a number can be that constant of a law."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or name not in LIMITS:
        return False
    least, most = LIMITS[name]
    return math.isfinite(value) and least <= value <= most


def _check_law(law: Any, path: str | Path) -> None:
    if not isinstance(law, dict):
        raise PlanError(f"{path}: law is no table of constants; calibrate again")
    for name, value in law.items():
        if name not in LAW:
            raise PlanError(f"{path}: law {name!r} is unknown; calibrate again with this version")
        if not believable(name, value):
            least, most = LIMITS[name]
            raise PlanError(
                f"{path}: law {name}={value!r} is not between {least:g} and {most:g};"
                " calibrate again"
            )


def _check_gpu(gpu: Gpu, path: str | Path) -> None:
    for one in fields(Gpu):
        value = getattr(gpu, one.name)
        if one.type == "str" and isinstance(value, str):
            continue
        if one.type == "bool" and isinstance(value, bool):
            continue
        least = 0.0 if one.name == "fp8_flops" else 1e-3
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if one.type in ("str", "bool") or not number or not least <= value < math.inf:
            raise PlanError(f"{path}: gpu {one.name}={value!r} cannot be; calibrate again")


def _no_number(word: str) -> float:
    raise ValueError(f"{word} is no number")


def _text(profile: GpuProfile) -> str:
    """JSON with a figure and a measured row a line: people read and compare profiles too."""

    def lines(rows: Sequence[Any]) -> str:
        return "[" + ",".join(f"\n  {json.dumps(row, allow_nan=False)}" for row in rows) + "]"

    parts = [f'"format": {json.dumps(FORMAT)}']
    for name, value in asdict(profile).items():
        if name == "figures":
            text = lines(value)
        elif name == "measured":
            tables = (f"\n {json.dumps(kind)}: {lines(rows)}" for kind, rows in value.items())
            text = "{" + ",".join(tables) + "}"
        else:
            text = json.dumps(value, allow_nan=False)
        parts.append(f"{json.dumps(name)}: {text}")
    return "{" + ",\n".join(parts) + "}\n"
