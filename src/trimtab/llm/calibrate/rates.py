"""What was measured, in the units of datasheets, beside what the datasheet says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from trimtab.arrays import Array
from trimtab.llm.calibrate import laws
from trimtab.llm.calibrate.gpu_profile import MEASURED, GpuProfile

TIMES = ("run_s", "eight_s", "forward_s")  # the column that a rate is by
# what, its table, the peak that it is compared with
COMPUTED = (
    ("products", "products", "flops"),
    ("unaligned products", "ragged", "flops"),
    ("products in 8 bits", "eights", "fp8_flops"),
    ("products in 32 bits", "single", "fp32_flops"),
    ("fused attention", "fused", "flops"),
    ("unfused attention", "unfused", "flops"),
)


class Rate(NamedTuple):
    """One line of the table."""

    what: str
    rows: int
    error: float | None  # mean relative error of the law; None = nothing was fitted
    measured: float
    listed: float | None  # by the datasheet, of a launch the usual; None = unknown
    unit: str


def rates(profile: GpuProfile) -> list[Rate]:
    """The best rate of every kind that was measured."""
    wrong = {one["what"]: float(one["mean_error"]) for one in profile.figures}
    found = [*_computed(profile, wrong), *_gain(profile), *_moved(profile, wrong)]
    found += [*_host(profile, wrong), *_power(profile)]
    lines = [one for one in found if one.rows]
    if profile.gpu.source == MEASURED:
        # its peaks are these very rates
        lines = [one if one.unit == "us" else one._replace(listed=None) for one in lines]
    return lines


def fastest(rows: laws.Rows, kind: str) -> float:
    """The best rate of a table: FLOP/s of what computes, B/s of what moves; 0 = no rows."""
    data = laws.table(rows, kind)
    rate = work(data, kind) / data[next(name for name in TIMES if name in data)]
    return float(rate.max()) if len(rate) else 0.0


def work(data: dict[str, Array], kind: str) -> Array:
    """FLOP or bytes of every row of a table."""
    if kind == "streams":
        return data["bytes_b"]
    if kind == "sums":
        # what a ring passes on: every byte twice, but for one's own part
        return 2.0 * data["bytes_b"] * (data["ranks"] - 1.0) / data["ranks"]
    if kind in ("fused", "unfused"):
        # a fused one leaves out what the mask hides
        each = 2.0 if kind == "fused" else 4.0
        return each * data["batch"] * data["heads"] * data["seq"] ** 2 * data["head_dim"]
    return 2.0 * data["m"] * data["n"] * data["k"]


def _computed(profile: GpuProfile, wrong: dict[str, float]) -> Iterator[Rate]:
    gpu, rows = profile.gpu, profile.measured
    for what, kind, peak in COMPUTED:
        listed = getattr(gpu, peak) / 1e12
        count, best = len(rows.get(kind, ())), fastest(rows, kind) / 1e12
        yield Rate(what, count, wrong.get(what), best, listed or None, "TFLOP/s")
        if kind == "products" and "hot" in profile.law:
            hot, what = best / max(profile.law["hot"], 1.0), "sustained load"
            yield Rate(what, len(rows.get("heat", ())), wrong.get(what), hot, listed, "TFLOP/s")


def _gain(profile: GpuProfile) -> Iterator[Rate]:
    gpu = profile.gpu
    for *_, half_s, eight_s in profile.measured.get("eights", ()):
        yield Rate("8 bits over 16", 1, None, half_s / eight_s, gpu.fp8_flops / gpu.flops, "x")


def _moved(profile: GpuProfile, wrong: dict[str, float]) -> Iterator[Rate]:
    gpu, rows = profile.gpu, profile.measured
    what, count = "element-wise work", len(rows.get("streams", ()))
    best = fastest(rows, "streams") / 1e9
    yield Rate(what, count, wrong.get(what), best, gpu.memory_bps / 1e9, "GB/s")
    for ranks in sorted({row[1] for row in rows.get("sums", ())}):
        mine = [row for row in rows["sums"] if row[1] == ranks]
        best = fastest({"sums": mine}, "sums") / 1e9
        what, error = f"all-reduce, {ranks:.0f} ranks", wrong.get("all-reduce")
        yield Rate(what, len(mine), error, best, gpu.link_bps / 1e9, "GB/s")


def _host(profile: GpuProfile, wrong: dict[str, float]) -> Iterator[Rate]:
    listed = laws.REFERENCE_LAUNCH_S * 1e6
    for load, launch_s in profile.measured.get("launches", ()):
        if load == 0.0:
            yield Rate("launch, host as it is", 1, None, launch_s * 1e6, listed, "us")
        else:
            what, error = f"launch, {load:g} busy threads a core", wrong.get("launches under load")
            yield Rate(what, 1, error, launch_s * 1e6, None, "us")


def _power(profile: GpuProfile) -> Iterator[Rate]:
    for flop_s, busy, power_w in profile.measured.get("power", ()):
        what = "products" if flop_s else "element-wise work" if busy else "at rest"
        yield Rate(f"power, {what}", 1, None, power_w, profile.gpu.tdp_w, "W")
