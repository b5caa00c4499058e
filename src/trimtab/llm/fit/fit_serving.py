"""Fit the constants of serving to measured prompts, tokens and power of two models on two GPUs.

The table's power-capped rows are its H100 rows with prompt times scaled, and one configuration did
not fit into memory and was served in parts: both are left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.llm.cost import priors
from trimtab.llm.cost.constants import OTHER
from trimtab.llm.cost.serving_cases import serving_cases
from trimtab.llm.cost.serving_cost import Serving, serving_cost, serving_of
from trimtab.llm.fit.figures import (
    COMMAND,
    MEASURED,
    QUANTILES,
    Figure,
    errors,
    figure,
    log_quantiles,
    plain,
    rounded,
    search,
    table,
    unit_of,
)
from trimtab.llm.spec import specs

SOURCE = "splitwise_perf_model.csv"
GPUS = {"a100-80gb": "A100-SXM-80GB", "h100-80gb": "H100-SXM5"}
CAPPED = "pcap"
# name, where the search starts
FREE = (
    ("launch_s@Ampere", 4.0e-5),
    ("launch_s@Hopper", 2.7e-5),
    ("prefill_slow@Ampere", 1.1),
    ("prefill_slow@Hopper", 1.2),
    ("sequence_host_s", 2.0e-4),
    ("prefill_host", 1.5),
    ("wait_norm", 3.5),
    ("link_slow", 1.0),
    ("long_link_slow", 3.0),
)
POWER_FREE = (("idle_power", 0.3), ("byte_power", 0.7), ("flop_power", 1.0))


class Served(NamedTuple):
    """Measured ways to serve: medians over repeats."""

    rows: Array  # SERVING_CASE
    prefill_s: Array
    decode_s: Array
    mean_power: Array  # of the GPU's limit; 0 = not measured
    peak_power: Array
    laws: Array  # (len(ARCHS), len(LAW))

    def of(self, chosen: Array) -> Served:
        """The chosen rows."""
        kept = {name: getattr(self, name)[chosen] for name in self._fields if name != "laws"}
        return self._replace(**kept)

    def cost(self, values: dict[str, float]) -> Array:
        """What the rows take by `values`."""
        return serving_cost(self.rows, self.laws, built(values))


def served(folder: Path, laws: Array) -> Served:
    """The table, one row a configuration."""
    repeats = defaultdict(list)
    for row in table(folder / SOURCE):
        if row["hardware"].endswith(CAPPED):
            continue
        names = ("tensor_parallel", "prompt_size", "batch_size", "token_size")
        key = (row["model"], row["hardware"], tuple(int(row[name]) for name in names))
        fields = ("prompt_time", "token_time", "average_power", "peak_power")
        repeats[key].append([float(row[name]) for name in fields])
    keys = sorted(repeats)
    middle = np.array([np.median(repeats[key], axis=0) for key in keys])
    rows = np.concatenate(
        [
            serving_cases(
                specs.model(model),
                specs.gpu(GPUS[gpu]),
                tp=tp,
                prompt=prompt,
                batch=batch,
                generated=tokens,
                chunk=0,  # this server takes all prompts in one step
            )
            for model, gpu, (tp, prompt, batch, tokens) in keys
        ]
    )
    prefill_ms, decode_ms, mean_power, peak_power = middle.T
    found = Served(rows, prefill_ms * 1e-3, decode_ms * 1e-3, mean_power, peak_power, laws)
    return found.of(found.cost({})["max_batch"] >= rows["batch"])


def section_of(values: dict[str, float]) -> dict[str, Any]:
    """Fitted and assumed values in the shape of the section `serving`."""
    start = dict(FREE) | dict(POWER_FREE) | priors.SERVING
    full = start | values
    made: dict[str, Any] = {"launch_s": {}, "prefill_slow": {}, "values": {}}
    for name, value in full.items():
        field, _, arch = name.partition("@")
        place = made[field] if arch else made["values"]
        place[arch or field] = rounded(value)
    # newer hosts and GPUs behave like the newest measured, older ones like the oldest
    for field in ("launch_s", "prefill_slow"):
        made[field]["Blackwell"] = made[field]["Hopper"]
        made[field][OTHER] = made[field]["Ampere"]
    return made


def built(values: dict[str, float]) -> Serving:
    """The constants that compiled code takes."""
    return serving_of(section_of(values))


def named(free: Sequence[tuple[str, float]], values: Array) -> dict[str, float]:
    """Searched values by their names."""
    return {name: float(value) for (name, _), value in zip(free, values)}


def fitted(data: Served) -> dict[str, float]:
    """Constants with the least mean error of prompts and tokens together."""

    def loss(values: Array) -> float:
        cost = data.cost(named(FREE, values))
        prefill = np.abs(np.log(cost["prefill_s"] / data.prefill_s))
        return float((prefill + np.abs(np.log(cost["decode_s"] / data.decode_s))).mean())

    return named(FREE, search(loss, [start for _, start in FREE]))


def power_of(data: Served, values: dict[str, float]) -> Array:
    """Predicted mean power, of the GPU's limit."""
    cost = data.cost(values)
    return cost["power_w"] / data.rows["tdp_w"]


def fitted_power(data: Served, times: dict[str, float]) -> dict[str, float]:
    """Power constants with the least mean error; a median loss ignores rows cut short."""

    def loss(values: Array) -> float:
        predicted = power_of(data, times | named(POWER_FREE, values))
        return float(errors(predicted, data.mean_power).mean())

    return named(POWER_FREE, search(loss, [start for _, start in POWER_FREE]))


def held_out(data: Served, by: str) -> tuple[Array, Array]:
    """Errors of prompts and of tokens by constants fitted without the row's value of `by`."""
    prefill, decode = np.empty(len(data.rows)), np.empty(len(data.rows))
    for value in np.unique(data.rows[by]):
        out = data.rows[by] == value
        rest = data.of(out)
        cost = rest.cost(fitted(data.of(~out)))
        prefill[out] = errors(cost["prefill_s"], rest.prefill_s)
        decode[out] = errors(cost["decode_s"], rest.decode_s)
    return prefill, decode


def time_figures(
    data: Served, values: dict[str, float], spreads: dict[str, list[float]]
) -> list[Figure]:
    """Figures of prompts and tokens a GPU, with other degrees and with the other model left out."""
    cost = data.cost(values)
    figures = []
    for by, out in (("tp", "tp degrees"), ("hidden", "the model")):
        unseen = dict(zip(("prefill_s", "decode_s"), held_out(data, by)))
        for what, measured_s in (("prefill_s", data.prefill_s), ("decode_s", data.decode_s)):
            for arch, label in zip(MEASURED, GPUS):
                mine = data.rows["tdp_w"] == specs.gpu(GPUS[label]).tdp_w
                predicted_s = cost[what][mine]
                wrong = errors(predicted_s, measured_s[mine])
                title = f"{what.removesuffix('_s')}, {label}"
                figures.append(figure(SOURCE, title, wrong, len(FREE), unseen[what][mine], out))
                spreads[f"{what}@{arch}"] = log_quantiles(predicted_s, measured_s[mine])
    return figures


def fit_serving(folder: Path, laws: Array) -> tuple[dict[str, Any], list[Figure]]:
    """The section `serving` under kernel and link `laws`, and figures of times and power."""
    data = served(folder, laws)
    values = fitted(data)
    spreads: dict[str, list[float]] = {}
    figures = time_figures(data, values, spreads)
    # means far below their own peaks come from runs that the power meter mostly missed
    powered = data.of((data.mean_power > 0.0) & (data.mean_power > 0.25 * data.peak_power))
    values |= fitted_power(powered, values)
    predicted = power_of(powered, values)
    wrong = errors(predicted, powered.mean_power)
    figures.append(figure(SOURCE, "mean power, a100-80gb", wrong, len(POWER_FREE)))
    spreads["power"] = log_quantiles(predicted, powered.mean_power)
    made = section_of(values) | {
        "command": COMMAND,
        "figures": [plain(one) for one in figures],
        "fitted": sorted(name for name, _ in FREE + POWER_FREE),
        "log_error_quantiles": {"at": list(QUANTILES), "by": spreads},
        "priors": sorted(priors.SERVING),
        "units": {name: unit_of(name) for name in Serving._fields},
    }
    return made, figures
