"""Laws of one GPU from rows that were measured on it, each with how well it explains them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.llm.calibrate.gpu_profile import LIMITS, believable
from trimtab.llm.cost.constants import law_of
from trimtab.llm.cost.kernels import LAW, SMS, attention_s, gemms_s, stream_s
from trimtab.llm.cost.links import PCIE_MOST_BPS
from trimtab.llm.cost.serving_cost import MOST_LOAD, host_slowdown
from trimtab.llm.cost.training import MOST_HFU
from trimtab.llm.fit import fit_kernels, fit_links
from trimtab.llm.fit.figures import Figure, errors, figure, rounded, search
from trimtab.llm.nouns import Gpu

COLUMNS: dict[str, tuple[str, ...]] = {
    "products": ("m", "n", "k", "run_s"),
    # rows that are no multiple of 16 bytes, and n padded to whole tiles
    "ragged": ("m", "n", "k", "run_s", "whole_s"),
    "single": ("m", "n", "k", "run_s"),  # in 32 bits
    "eights": ("m", "n", "k", "half_s", "eight_s"),  # in 16 and in 8 bits
    "fused": ("batch", "heads", "seq", "head_dim", "forward_s", "back_s"),
    "unfused": ("batch", "heads", "seq", "head_dim", "forward_s"),
    "streams": ("bytes_b", "run_s"),
    "heat": ("at_s", "run_s"),  # one product again and again; at 0 s: in a short burst
    "power": ("flop_s", "busy", "power_w"),  # FLOP/s meanwhile, and whether any kernel ran
    "launches": ("load", "launch_s"),  # others' runnable threads a core
    "sums": ("bytes_b", "ranks", "run_s"),  # all-reduce inside the machine
}
Rows = Mapping[str, Sequence[Sequence[float]]]  # by the keys of COLUMNS
SOURCE = "this machine"
TILE = 64
# Host seconds in which a usual server of the tables that `launch_s` was fitted to starts one
# PyTorch operation. Assumed: the tables do not tell.
REFERENCE_LAUNCH_S = 5.0e-6
# Below so many rows nothing is fitted: fewer than the constants would say anything.
LEAST = {"products": 10, "fused": 3, "streams": 4, "heat": 3, "launches": 2, "sums": 4, "power": 3}
PCIE_FREE = (("pcie_share", 0.75), ("link_start_s", 2.5e-5))


class Fitted(NamedTuple):
    """What rows say of a GPU."""

    law: dict[str, float]
    figures: list[Figure]
    notes: list[str]


Part = tuple[dict[str, float], list[Figure]]  # constants of one kind, and how well they fit


def fitted(rows: Rows, gpu: Gpu, sms: float) -> Fitted:
    """Fit every kind of which there are enough rows; what comes out absurd is noted and left out.

    Later kinds build on earlier ones, since attention streams and an unfused one multiplies.
    """
    law = with_values(law_of(gpu.arch).values, ["sms"], np.array([sms]))
    made = Fitted({"sms": sms}, [], [])
    for kind, fit in FITS.items():
        data = table(rows, kind)
        count, least = len(data["_"]), LEAST.get(kind, 1)
        if count < least:
            if count:
                made.notes.append(f"{kind}: {count} of {least} rows; give more --seconds")
            continue
        found, figures = fit(data, gpu, law)
        found = {name: rounded(value) for name, value in found.items()}
        absurd = [name for name, value in found.items() if not believable(name, value)]
        if absurd:
            # constants of one fit hang together: half of them would be worse than none
            made.notes.append(_left_out(kind, absurd[0], found[absurd[0]]))
            continue
        made.law.update(found)
        law = with_values(law, list(found), np.array(list(found.values())))
        made.figures.extend(figures)
    return made


def _left_out(kind: str, name: str, value: float) -> str:
    least, most = LIMITS[name]
    return f"{kind}: {name}={value:.3g} is not between {least:g} and {most:g}; left out"


def table(rows: Rows, kind: str) -> dict[str, Array]:
    """Columns by name, and under "_" the number of each row."""
    found = np.asarray(rows.get(kind, ()), "f8").reshape(-1, len(COLUMNS[kind]))
    return dict(zip(COLUMNS[kind], found.T)) | {"_": np.arange(len(found))}


def with_values(law: Array, names: Sequence[str], values: Array) -> Array:
    """A copy of a law with some of its constants replaced."""
    made = law.copy()
    made[[LAW.index(name) for name in names]] = values
    return made


def stream_law(data: dict[str, Array], gpu: Gpu, law: Array) -> Part:
    """Share of the memory's bandwidth, and what an element-wise kernel takes to start."""

    def predicted_s(values: Array) -> Array:
        made = with_values(law, names, values)
        return np.array([stream_s.py_func(b, gpu.memory_bps, made) for b in data["bytes_b"]])

    names = ("stream_share", "stream_start_s")
    return _least(names, (0.8, 4.0e-6), predicted_s, data["run_s"], "element-wise work")


def product_law(data: dict[str, Array], gpu: Gpu, law: Array) -> Part:
    """The five constants of matrix products, errors held out by halves."""
    m, n, k, run_s = (data[name] for name in COLUMNS["products"])
    gemms = fit_kernels.Gemms(gpu, float(law[SMS]), m, n, k, run_s, data["_"] % 2)
    best = fit_kernels.fitted(gemms)
    wrong, unseen = errors(gemms.predicted_s(best), run_s), fit_kernels.held_out(gemms)
    names = [name for name, _ in fit_kernels.FREE]
    found = {name: float(best[LAW.index(name)]) for name in names}
    # where half tiles never pay, nothing holds their price down
    found["gemm_half"] = min(found["gemm_half"], LIMITS["gemm_half"][1])
    return found, [figure(SOURCE, "products", wrong, len(names), unseen, "half of the products")]


def ragged_law(data: dict[str, Array], gpu: Gpu, law: Array) -> Part:
    """How much slower products with unaligned rows are than the same with padded ones."""
    m, n, k, run_s, whole_s = (data[name] for name in COLUMNS["ragged"])
    peaks = gpu.flops, gpu.memory_bps
    # what the law misses of the padded one is not the rows' fault
    missed = whole_s / gemms_s(m, padded(n), k, *peaks, law)

    def predicted_s(values: Array) -> Array:
        return missed * gemms_s(m, n, k, *peaks, with_values(law, names, values))

    names = ("gemm_ragged",)
    return _least(names, (1.8,), predicted_s, run_s, "unaligned products")


def padded(n: Array) -> Array:
    """Columns up to a whole tile: 50257 become 50304."""
    return TILE * np.ceil(n / TILE)


def fused_law(data: dict[str, Array], gpu: Gpu, law: Array) -> Part:
    """Share of the peak that fused attention reaches, by its keys, and what backward takes."""

    def forward_s(values: Array) -> Array:
        return _attention_s(data, 1.0, gpu, with_values(law, names, values))

    names = ("flash_share", "flash_half")
    found, figures = _least(names, (0.5, 450.0), forward_s, data["forward_s"], "fused attention")
    ahead_s = forward_s(np.array([found[name] for name in names]))
    back, more = _least(
        ("flash_back",),
        (2.7,),
        lambda values: values[0] * ahead_s,
        data["back_s"],
        "fused attention, backward",
    )
    return found | back, figures + more


def unfused_law(data: dict[str, Array], gpu: Gpu, law: Array) -> Part:
    """Bytes a score that attention moves when its scores go through memory."""

    def predicted_s(values: Array) -> Array:
        return _attention_s(data, 0.0, gpu, with_values(law, names, values))

    names = ("score_b",)
    return _least(names, (14.0,), predicted_s, data["forward_s"], "unfused attention")


def heat_law(data: dict[str, Array], gpu: Gpu, law: Array) -> Part:
    """A product's time when the clock has settled under the power limit, over that in a burst."""
    burst_s = data["run_s"][data["at_s"] == 0.0].min()
    last_s = data["run_s"][-max(len(data["_"]) // 3, 1) :]
    hot = max(1.0, float(np.median(last_s)) / burst_s)
    return {"hot": hot}, [figure(SOURCE, "sustained load", errors(hot * burst_s, last_s), 1)]


def power_law(data: dict[str, Array], gpu: Gpu, law: Array) -> Part:
    """Shares of the power limit, as `training` adds them: at rest, by FLOP, while busy."""
    share = data["power_w"] / gpu.tdp_w
    rest, work = data["busy"] == 0.0, (data["busy"] > 0.0) & (data["flop_s"] > 0.0)
    stream = (data["busy"] > 0.0) & ~work
    if not (rest.any() and work.any() and stream.any()):
        return {}, []
    idle, busy = float(share[rest].mean()), float(share[stream].mean())
    hfu = np.minimum(data["flop_s"][work] / gpu.flops, MOST_HFU)
    flop = float(((share[work] - busy) / hfu).mean())
    found = {"idle_power": idle, "busy_power": busy - idle, "flop_power": flop}
    # a meter of a second's mean may put streams below rest by a little
    return {name: max(value, 0.0) for name, value in found.items()}, []


def launch_law(data: dict[str, Array], gpu: Gpu, law: Array) -> Part:
    """The host beside the usual one, and how others' load slows it down."""
    idle = data["load"] == 0.0
    if not idle.any():
        return {}, []
    alone_s = float(np.median(data["launch_s"][idle]))
    found, figures = {"host": alone_s / REFERENCE_LAUNCH_S}, []
    load, ratio = np.minimum(data["load"], MOST_LOAD)[~idle], data["launch_s"][~idle] / alone_s
    if len(load):
        queue = load / (1.0 - load)
        slow = max(float(queue @ (ratio - 1.0) / (queue @ queue)), 0.0)
        predicted = np.array([host_slowdown.py_func(one, slow) for one in load])
        found["load_slow"] = slow
        figures.append(figure(SOURCE, "launches under load", errors(predicted, ratio), 1))
    return found, figures


def link_law(data: dict[str, Array], gpu: Gpu, law: Array) -> Part:
    """Share and latencies of the link between GPUs; errors held out by the size of the group."""
    messages = fit_links.Messages(data["bytes_b"], data["ranks"], data["ranks"], data["run_s"])
    free = fit_links.FREE if gpu.link_bps > PCIE_MOST_BPS else PCIE_FREE
    found = fit_links.fitted(messages, gpu.link_bps, free)
    row = with_values(law, list(found), np.array(list(found.values())))
    wrong = errors(messages.summed_s(row, gpu.link_bps), messages.run_s)
    unseen = None
    if len(np.unique(messages.ranks)) > 1:
        unseen = fit_links.held_out(messages, gpu.link_bps, free)
    out = "group size" if unseen is not None else ""
    return found, [figure(SOURCE, "all-reduce", wrong, len(free), unseen, out)]


FITS: dict[str, Callable[[dict[str, Array], Gpu, Array], Part]] = {
    "streams": stream_law,
    "products": product_law,
    "ragged": ragged_law,
    "fused": fused_law,
    "unfused": unfused_law,
    "heat": heat_law,
    "power": power_law,
    "launches": launch_law,
    "sums": link_law,
}


def _least(
    names: Sequence[str],
    start: Sequence[float],
    predicted_s: Callable[[Array], Array],
    run_s: Array,
    what: str,
) -> Part:
    """Constants with the least mean relative error, and the figure of it."""
    best = search(lambda values: float(errors(predicted_s(values), run_s).mean()), start)
    wrong = errors(predicted_s(best), run_s)
    found = {name: float(value) for name, value in zip(names, best)}
    return found, [figure(SOURCE, what, wrong, len(names))]


def _attention_s(data: dict[str, Array], flash: float, gpu: Gpu, law: Array) -> Array:
    columns = zip(*(data[name] for name in ("batch", "heads", "seq", "head_dim")))
    return np.array(
        [
            attention_s.py_func(
                batch, heads, heads, seq, seq, head_dim, 1.0, flash, gpu.flops, gpu.memory_bps, law
            )
            for batch, heads, seq, head_dim in columns
        ]
    )
