"""Measure everything in turn within a time, fit it, and say what GPU it was.

profile = calibrated("cuda", 90.0, today="2026-01-31", rng=np.random.default_rng(0))
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import psutil

from trimtab.errors import PlanError
from trimtab.llm.calibrate import laws
from trimtab.llm.calibrate.gpu_profile import MEASURED, GpuProfile, known_gpu
from trimtab.llm.calibrate.rates import fastest
from trimtab.llm.calibrate.rows import RowStream, Turn, Unmeasured
from trimtab.llm.cost.constants import OTHER
from trimtab.llm.cost.profiles import training
from trimtab.llm.fit.figures import plain, rounded
from trimtab.llm.nouns import Gpu

LEAST_S, MOST_S = 1.0, 3600.0
ASSUMED_LINK_BPS, ASSUMED_TDP_W = 32e9, 300.0
LAST_PART = 0.02  # of the time that is left for the last kinds where earlier ones took it all
BUSY_HOST = 0.25  # use of the processor by others from which launch times are noted as theirs
# Kinds whose last row is the point of them: they keep their time by themselves.
WHOLE = ("sustained load", "power", "launches", "all-reduce")
Progress = Callable[[str, float], object]  # hears (what, seconds that went by)
Tables = dict[str, list[list[float]]]


class Kind(NamedTuple):
    """One kind of measurement."""

    what: str
    part: float  # of the time, beside the other kinds
    rows: Callable[[Turn], RowStream]


def calibrated(
    kind: str,
    seconds: float,
    *,
    today: str,
    rng: np.random.Generator,
    progress: Progress = lambda what, went_s: None,
    clock: Callable[[], float] = perf_counter,
) -> GpuProfile:
    """The profile of this machine's GPU (`cuda`) or of its processor in the place of one (`cpu`).

    Takes about `seconds`, and as long as it takes to load torch once a group of GPUs.
    """
    check_seconds(seconds)
    devices, kinds = _torch_files()
    load = psutil.cpu_percent(interval=0.2) / 100.0
    with devices.opened(kind) as device:
        rows, notes = taken(device, kinds, seconds, rng, progress, clock)
        if not rows:
            raise PlanError(f"{device.name}: nothing could be measured ({'; '.join(notes)})")
        about, sms = machine(device, today), float(device.units)
        gpu = gpu_of(device, rows, notes)
    if load > BUSY_HOST:
        notes.append(f"launches: others used {load:.0%} of the processor; repeat on an idle host")
    found = laws.fitted(rows, gpu, sms)
    used = {name: list(laws.COLUMNS[name]) for name in rows}
    figures = [plain(one) for one in found.figures]
    about["notes"] = notes + found.notes
    return GpuProfile(gpu, found.law, figures, rows, used, about)


def check_seconds(seconds: float) -> None:
    """Refuse a time that nothing can be measured in."""
    if not LEAST_S <= seconds <= MOST_S:
        raise PlanError(
            f"--seconds {seconds:g} is not between {LEAST_S:g} and {MOST_S:g}; take about 90"
        )


def taken(
    device: Any,
    kinds: tuple[Kind, ...],
    seconds: float,
    rng: np.random.Generator,
    progress: Progress,
    clock: Callable[[], float],
) -> tuple[Tables, list[str]]:
    """Rows of every kind by table, and notes of what could not be measured.

    Each kind gets its part of the time that is left, so that what one saves the next ones have.
    """
    from trimtab.llm.calibrate.products import rough_flops

    began_s = clock()
    flops, rows, notes = rough_flops(device), Tables(), list[str]()
    for place, kind in enumerate(kinds):
        left_s = max(seconds - (clock() - began_s), LAST_PART * seconds)
        part_s = left_s * kind.part / sum(other.part for other in kinds[place:])
        try:
            _take(kind, Turn(device, part_s, flops, rng), rows, progress, clock)
        except Unmeasured as reason:
            notes.append(str(reason))
        except RuntimeError as problem:  # torch's: out of memory, no kernel for this device
            first = (str(problem).strip().splitlines() or [type(problem).__name__])[0]
            notes.append(f"{kind.what}: failed ({first[:200]})")
    return rows, notes


def _take(
    kind: Kind, turn: Turn, rows: Tables, progress: Progress, clock: Callable[[], float]
) -> None:
    """Add the rows of one kind until its time is over and a fit has enough of them."""
    began_s = last_s = clock()
    progress(kind.what, 0.0)
    # closed here and not when it is collected: it may have processes to end
    with closing(kind.rows(turn)) as found:
        for table, row in found:
            rows.setdefault(table, []).append(_shortened(table, row))
            now_s = clock()
            progress(kind.what, now_s - last_s)
            last_s = now_s
            over = now_s - began_s > turn.seconds and kind.what not in WHOLE
            if over and len(rows[table]) >= laws.LEAST.get(table, 1):
                break


def _shortened(table: str, row: list[float]) -> list[float]:
    """Measured cells with four digits; sizes stay exact, since a product of 4095 is another one."""
    named = zip(laws.COLUMNS[table], row)
    return [rounded(cell) if name.endswith(("_s", "_w")) else float(cell) for name, cell in named]


def gpu_of(device: Any, rows: Tables, notes: list[str]) -> Gpu:
    """The GPU of our tables by the driver's name, else one whose peaks are what was measured."""
    known = known_gpu(device.name) if device.kind == "cuda" else None
    if known is not None:
        return known
    best = {name: fastest(rows, name) for name in ("products", "single", "streams", "sums")}
    if not best["products"] or not best["streams"]:
        raise PlanError(
            f"{device.name}: no product or stream could be measured ({'; '.join(notes)});"
            " give more --seconds"
        )
    watts = [row[2] for row in rows.get("power", [])]
    notes.append(
        f"{device.name} is not in our tables: its peaks are the best that was measured"
        + ("" if watts else f", its power limit is assumed as {ASSUMED_TDP_W:g} W")
    )
    return Gpu(
        name=device.name,
        vendor="unknown",
        arch=OTHER,
        flops=best["products"],
        fp8_flops=fastest(rows, "eights"),
        fp32_flops=best["single"] or best["products"] / 2,
        bf16="bfloat16" in str(device.dtype),
        # tables list what is printed on the box, which planning turns into what can be had
        memory_b=device.memory_b / training().capacity,
        memory_bps=best["streams"],
        link="measured" if best["sums"] else "PCIe4",
        link_bps=best["sums"] or ASSUMED_LINK_BPS,
        tdp_w=max(watts, default=ASSUMED_TDP_W),
        per_node=max(device.ranks, 1),
        source=MEASURED,
    )


def machine(device: Any, today: str) -> dict[str, Any]:
    """What was measured with: software, driver, processor, date; nothing that names the host."""
    import torch

    return {
        "date": today,
        "device": device.name,
        "gpus": device.ranks,
        "dtype": str(device.dtype).removeprefix("torch."),
        "torch": torch.__version__,
        **device.driver(),
        "processor": processor(),
        "cores": os.cpu_count() or 0,
        "system": platform.system(),
    }


def processor() -> str:
    """The processor's model, or its kind where the system does not tell."""
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        named = (line for line in lines if line.startswith("model name"))
        return next(named, ":").partition(":")[2].strip() or platform.machine()
    return platform.processor() or platform.machine()


def _torch_files() -> tuple[Any, tuple[Kind, ...]]:
    """The files that need torch, or PlanError that says how to get it."""
    try:
        from trimtab.llm.calibrate import devices, host, products, scores, streams, sums
    except ModuleNotFoundError as missing:
        raise PlanError(
            f"measuring needs {missing.name}, which is not installed;"
            " pip install 'trimtab[train]', or a torch for your GPU"
        ) from None
    return devices, (
        Kind("power", 2.0, streams.idle_power),
        Kind("element-wise work", 8.0, streams.streams),
        Kind("products", 24.0, products.products),
        Kind("unaligned products", 4.0, products.ragged),
        Kind("products in 32 bits", 1.0, products.single),
        Kind("products in 8 bits", 2.0, products.eights),
        Kind("fused attention", 14.0, scores.fused),
        Kind("unfused attention", 4.0, scores.unfused),
        Kind("sustained load", 10.0, products.heat),
        Kind("power", 5.0, streams.stream_power),
        Kind("launches", 10.0, host.launches),
        Kind("all-reduce", 12.0, sums.sums),
    )
