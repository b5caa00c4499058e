"""Fit the law of matrix products to measured ones; attention and streams keep their priors."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.llm.cost import priors
from trimtab.llm.cost.kernels import LAW, gemms_s
from trimtab.llm.fit.figures import (
    GPUS,
    KERNEL_FIELDS,
    Figure,
    column,
    errors,
    figure,
    law_row,
    law_section,
    log_quantiles,
    rounded,
    search,
    table,
)
from trimtab.llm.nouns import Gpu
from trimtab.llm.spec import specs

SOURCE = "gemm_microbench_a100_h100.csv.xz"
# name, where the search starts
FREE = (
    ("gemm_flop", 1.3),
    ("gemm_byte", 1.1),
    ("gemm_start_s", 5.0e-6),
    ("gemm_wave", 0.4),
    ("gemm_half", 1.1),
)


class Gemms(NamedTuple):
    """Measured products of one GPU."""

    gpu: Gpu
    sms: float  # multiprocessors of this one
    m: Array
    n: Array
    k: Array
    run_s: Array
    model: Array  # rows of one model are held out together

    def of(self, chosen: Array) -> Gemms:
        """The chosen rows."""
        return Gemms(self.gpu, self.sms, *(value[chosen] for value in self[2:]))

    def predicted_s(self, law: Array) -> Array:
        """Seconds by a law."""
        return gemms_s(self.m, self.n, self.k, self.gpu.flops, self.gpu.memory_bps, law)


def gemms(folder: Path, name: str) -> Gemms:
    """The table's rows of one GPU."""
    mine = [row for row in table(folder / SOURCE) if row["gpu"] == name]
    m, n, k, run_ms = (column(mine, field) for field in ("M", "N", "K", "median_ms"))
    models = np.array([row["model"] for row in mine])
    gpu = specs.gpu(GPUS[name])
    return Gemms(gpu, priors.SMS[gpu.arch], m, n, k, run_ms * 1e-3, models)


def law_with(values: Array, sms: float) -> Array:
    """A law with the searched values inside their limits."""
    free = {name: float(value) for (name, _), value in zip(FREE, values)}
    free["gemm_wave"] = min(free["gemm_wave"], 1.0)
    free["gemm_half"] = max(free["gemm_half"], 1.0)
    return law_row(priors.KERNELS | {"sms": sms} | free)


def fitted(data: Gemms) -> Array:
    """The law whose mean relative error on `data` is least."""

    def loss(values: Array) -> float:
        law = law_with(values, data.sms)
        return float(errors(data.predicted_s(law), data.run_s).mean())

    return law_with(search(loss, [start for _, start in FREE]), data.sms)


def held_out(data: Gemms) -> Array:
    """Errors of every row by a law fitted on the half of the models that it is not of."""
    models = np.unique(data.model)
    found = np.empty(len(data.m))
    for fold in range(2):
        out = np.isin(data.model, models[fold::2])
        rest = data.of(out)
        found[out] = errors(rest.predicted_s(fitted(data.of(~out))), rest.run_s)
    return found


def transferred(data: Gemms, law: Array) -> Figure:
    """How well another architecture's law does: what a GPU without measurements should expect."""
    moved = law.copy()
    moved[LAW.index("sms")] = data.sms
    wrong = errors(data.predicted_s(moved), data.run_s)
    return figure(SOURCE, "products, h100 by a100's law", wrong, 0, wrong, "the GPU")


def fit_kernels(folder: Path) -> tuple[dict[str, Any], list[Figure]]:
    """The section `kernels`, and a figure a GPU and one of the law moved between them."""
    laws: dict[str, dict[str, float]] = {}
    spreads: dict[str, list[float]] = {}
    rows: dict[str, Array] = {}
    figures = []
    for name in GPUS:
        data = gemms(folder, name)
        rows[name] = law = fitted(data)
        predicted_s = data.predicted_s(law)
        wrong = errors(predicted_s, data.run_s)
        unseen = held_out(data)
        figures.append(figure(SOURCE, f"products, {name}", wrong, len(FREE), unseen, "models"))
        values = {field: rounded(law[LAW.index(field)]) for field, _ in FREE}
        arch = data.gpu.arch
        # element-wise work streams as thin products do
        share = rounded(min(1.0 / values["gemm_byte"], priors.STREAM_MOST))
        own = {"sms": priors.SMS[arch], "flash_share": priors.FLASH_SHARE[arch]}
        laws[arch] = priors.KERNELS | values | own | {"stream_share": share}
        spreads[arch] = log_quantiles(predicted_s, data.run_s)
    figures.append(transferred(gemms(folder, "h100"), rows["a100"]))
    names = [field for field, _ in FREE] + ["stream_share"]
    return law_section(laws, KERNEL_FIELDS, names, spreads, figures), figures
