"""`trimtab plan calibrate`: measure this machine's GPUs and write a profile to plan with."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from rich.box import SIMPLE
from rich.table import Table

from trimtab.cli.outputs import STATE
from trimtab.cli.shown import bar, out, say, write_json
from trimtab.errors import PlanError
from trimtab.units import three_digits

PROFILE = Path("gpu-profile.json")
SECONDS = 90.0  # enough for a datacentre GPU: a fit gains little beyond


@dataclass(frozen=True)
class Calibrating:
    """What to measure, for how long, and where it is written."""

    profile: tuple[Path, ...] = field(
        default=(),
        metadata={
            "help": f"The file to write; default {PROFILE}.",
            "metavar": "FILE",
            "writes": STATE,
        },
    )
    device: str = field(default="cuda", metadata={"help": "cuda (also AMD's) or cpu."})
    seconds: float = field(default=SECONDS, metadata={"help": "About how long."})


def calibrate(
    file: Path, device: str = "cuda", seconds: float = SECONDS, json_file: str | None = None
) -> None:
    """Measure, write the profile to `file`, and show what was measured beside the datasheet."""
    from trimtab.llm.calibrate.gpu_profile import write_profile
    from trimtab.llm.calibrate.measure import calibrated, check_seconds
    from trimtab.llm.calibrate.rates import rates

    check_seconds(seconds)
    check_target(file)
    rng = np.random.default_rng(0)  # the same shapes on every machine: profiles compare
    with bar("measuring", round(seconds)) as step:
        profile = calibrated(
            device, seconds, today=date.today().isoformat(), rng=rng, progress=step
        )
    write_profile(profile, file)
    lines = [one._asdict() for one in rates(profile)]
    if json_file:
        write_json(json_file, answer(profile, lines, file))
    if json_file != "-":
        show(profile, lines)
    say(f"profile: {file}")
    name = f"8x{profile.gpu.name}"
    example = shlex.join(["--gpus", name, "--profile", str(file)])
    say(f"plan with it: trimtab plan llama-3-8b {example}")


def check_target(file: Path) -> None:
    """Refuse, before anything is measured, a file that is something else or cannot be written."""
    from trimtab.llm.calibrate.gpu_profile import is_profile

    if file.exists() and not (file.is_file() and is_profile(file)):
        raise PlanError(f"--profile {file} is there and no profile; name another file")
    folder = next(one for one in (file.parent, *file.absolute().parents) if one.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise PlanError(f"--profile {file}: {folder} cannot be written to; name another file")


def answer(profile: Any, lines: list[dict[str, Any]], file: Path) -> dict[str, Any]:
    """What is shown, as plain numbers."""
    return {
        "file": str(file),
        "gpu": profile.gpu.name,
        "law": dict(profile.law),
        "rates": lines,
        "figures": profile.figures,
        "machine": {name: value for name, value in profile.machine.items() if name != "notes"},
        "notes": profile.machine["notes"],
    }


def show(profile: Any, lines: list[dict[str, Any]]) -> None:
    """The profile on the terminal."""
    about = profile.machine
    parts = [profile.gpu.name, f"torch {about['torch']}", about["dtype"], about["processor"]]
    out.print(", ".join(parts), highlight=False, soft_wrap=True, markup=False, style="dim")
    table = Table(box=SIMPLE, pad_edge=False)
    for name in ("what", "rows", "error", "measured", "listed", ""):
        table.add_column(name, justify="left" if name in ("what", "") else "right", no_wrap=True)
    for line in lines:
        table.add_row(
            line["what"],
            str(line["rows"]),
            "" if line["error"] is None else f"{line['error']:.1%}",
            three_digits(line["measured"]),
            "" if line["listed"] is None else three_digits(line["listed"]),
            line["unit"],
        )
    out.print(table)
    for note in about["notes"]:
        out.print(f"note: {note}", highlight=False, soft_wrap=True, markup=False)
