"""Predict every row of a table of real runs and put the error beside what was measured.

    rows, summary = check.checked("runs.csv")

Rows are flat dictionaries for JSON: the prediction, its interval and P(fit), then `measured_*` and
`error_*` (predicted / measured - 1) for the columns that the table has. Nothing is NaN. A row that
cannot be predicted holds its line and the sentence why, as `error`.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from trimtab.arrays import Array
from trimtab.llm.cost import intervals, training
from trimtab.llm.cost.cases import CASE, FRAMEWORKS, PRECISIONS, RECOMPUTES, fault, faults
from trimtab.llm.cost.constants import law_names
from trimtab.llm.fit.runs import Runs, read_runs

GIB = 2.0**30  # torch and nvidia-smi print GiB, and tables call them GB
TIMES = ("step_s", "tokens_per_s_per_gpu", "tflops_per_gpu")  # the first given is the row's time
MICRO_BATCHES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)


def checked(path: str | Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Predictions beside the measurements of every row of a CSV, and their summary."""
    runs = read_runs(path)
    return predicted(runs, settled(runs))


def settled(runs: Runs) -> Array:
    """The runs' cases with micro-batches filled in; what no launcher would take is noted."""
    plans = runs.cases.copy()
    missing = np.flatnonzero(plans["micro_batch"] == 0)
    for row in missing:
        # what ran out of memory did not have the best one
        out = runs.measured["oom"][row] == 1
        plans[row]["micro_batch"] = 1.0 if out else best_micro_batch(plans[row : row + 1])
        runs.notes[row] = f"{runs.notes[row]}; micro_batch: {plans[row]['micro_batch']:g}"
    for row in np.flatnonzero(faults(plans)):
        runs.notes[row] = f"{runs.notes[row]}; unusual: {fault(plans[row]).split(';')[0]}"
    return plans


def best_micro_batch(plan: Array) -> float:
    """The micro-batch that a tuned run has: the fastest by the model of those that fit."""
    most = plan["global_batch"][0] / plan["dp"][0]
    sizes = [size for size in MICRO_BATCHES if most % size == 0 and size <= most] or [1]
    tries = np.repeat(plan, len(sizes))
    tries["micro_batch"] = sizes
    costs = training.cost(tries)
    fits = intervals.p_fit(costs, tries) >= 0.5
    return float(sizes[int(np.argmin(np.where(fits, costs["step_s"], np.inf)))]) if any(fits) else 1


def predicted(runs: Runs, plans: Array) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Rows and summary of cases that are complete."""
    costs = training.cost(plans)
    low_s, high_s = intervals.interval(costs, plans)
    low_b, high_b = intervals.memory_interval(costs, plans)
    flop = counted_flop(runs, plans, costs)
    tokens = plans["global_batch"] * plans["seq"] / plans["gpus"]
    columns: dict[str, tuple[Array, Array, Array]] = {  # prediction, low, high
        "step_s": (costs["step_s"], low_s, high_s),
        "tflops_per_gpu": tuple(
            flop / plans["gpus"] / 1e12 / t for t in (costs["step_s"], high_s, low_s)
        ),
        "tokens_per_s_per_gpu": tuple(tokens / t for t in (costs["step_s"], high_s, low_s)),
        "mem_gb": (costs["memory_b"] / GIB, low_b / GIB, high_b / GIB),
    }
    chance = p_fit(runs, plans, costs)
    rows = [
        one_row(runs, plans, costs, columns, chance, i, flop[i] > costs["model_flop"][i])
        for i in range(len(plans))
    ]
    rows += [{"line": line, "error": why} for line, why in runs.refused.items()]
    rows.sort(key=lambda row: row["line"])
    return rows, summary(runs, columns, chance)


def p_fit(runs: Runs, plans: Array, costs: Array) -> Array:
    """Chance that each run fits: where gradients may be of 2 or of 4 bytes, the mean of both."""
    chance = intervals.p_fit(costs, plans)
    other = plans.copy()
    other["grad_bytes"] = 6.0 - plans["grad_bytes"]
    both = 0.5 * (chance + intervals.p_fit(training.cost(other), other))
    return np.where(runs.either & (plans["precision"] != PRECISIONS.index("fp32")), both, chance)


def counted_flop(runs: Runs, plans: Array, costs: Array) -> Array:
    """FLOP of a step as the table counts them: with recomputation or without.

    A time in the same row decides. Otherwise DeepSpeed, and Megatron-LM before it had fused
    attention, print what the hardware did, the others what the model needs.
    """
    hardware, model = costs["hardware_flop"], costs["model_flop"]
    old = (plans["framework"] == FRAMEWORKS.index("megatron")) & (plans["flash"] == 0)
    whole = old | (plans["framework"] == FRAMEWORKS.index("deepspeed"))
    step_s = measured_step_s(runs, plans)
    said = runs.measured["tflops_per_gpu"] * 1e12 * plans["gpus"] * step_s
    with np.errstate(invalid="ignore"):
        nearer = np.abs(np.log(said / hardware)) < np.abs(np.log(said / model))
    return np.where(np.where(np.isnan(said), whole, nearer), hardware, model)


def measured_step_s(runs: Runs, plans: Array) -> Array:
    """Seconds a step from the step or token column, NaN where neither is given."""
    tokens = plans["global_batch"] * plans["seq"] / plans["gpus"]
    by_rate = tokens / runs.measured["tokens_per_s_per_gpu"]
    return np.where(np.isnan(runs.measured["step_s"]), by_rate, runs.measured["step_s"])


def one_row(
    runs: Runs,
    plans: Array,
    costs: Array,
    columns: dict[str, tuple[Array, Array, Array]],
    chance: Array,
    i: int,
    hardware: bool,
) -> dict[str, Any]:
    """One flat dictionary: plan, prediction, interval, P(fit), measurements, errors, notes."""
    row: dict[str, Any] = {"line": runs.lines[i]}
    row |= {name: plain(plans[name][i]) for name in CASE.names or ()}
    row["arch"] = law_names()[int(plans["arch"][i])]
    row["framework"] = FRAMEWORKS[int(plans["framework"][i])]
    row["precision"] = PRECISIONS[int(plans["precision"][i])]
    row["recompute"] = RECOMPUTES[int(plans["recompute"][i])]
    for name, (value, low, high) in columns.items():
        row[name], row[f"{name}_low"], row[f"{name}_high"] = map(plain, (value[i], low[i], high[i]))
    row["p_fit"], row["oom"] = plain(chance[i]), bool(chance[i] < 0.5)
    row["mfu"], row["hfu"] = plain(costs["mfu"][i]), plain(costs["hfu"][i])
    row["energy_j"] = plain(costs["energy_j"][i])
    row["tflops_count"] = "with recomputation" if hardware else "model"
    for name, (value, _, _) in columns.items():
        seen = runs.measured[name][i]
        if not math.isnan(seen):
            row[f"measured_{name}"], row[f"error_{name}"] = plain(seen), plain(value[i] / seen - 1)
    if not math.isnan(runs.measured["oom"][i]):
        row["measured_oom"] = bool(runs.measured["oom"][i])
    row["note"] = runs.notes[i].strip("; ")
    return row


def plain(value: Any) -> float:
    """A number for JSON."""
    return float(f"{float(value):.6g}") if math.isfinite(float(value)) else 0.0


def summary(
    runs: Runs, columns: dict[str, tuple[Array, Array, Array]], chance: Array
) -> dict[str, Any]:
    """Mean absolute errors, coverage of the intervals and the count of out-of-memory rows."""
    out: dict[str, Any] = {"rows": len(chance), "refused": len(runs.refused)}
    for name, (value, low, high) in columns.items():
        seen = runs.measured[name]
        given = ~np.isnan(seen)
        if given.any():
            error = np.abs(value[given] / seen[given] - 1)
            inside = (low[given] <= seen[given]) & (seen[given] <= high[given])
            out[name] = {
                "rows": int(given.sum()),
                "mean_error": plain(error.mean()),
                "median_error": plain(np.median(error)),
                "worst_error": plain(error.max()),
                "bias": plain(np.mean(value[given] / seen[given] - 1)),
                "coverage": plain(inside.mean()),
            }
    out["time"] = time_summary(runs, columns)
    oom, flagged = runs.measured["oom"], chance < 0.5
    out["oom"] = {
        "rows": int((oom == 1).sum()),
        "flagged": int(((oom == 1) & flagged).sum()),
        "fitting_rows": int((oom == 0).sum()),
        "false_alarms": int(((oom == 0) & flagged).sum()),
    }
    return out


def time_summary(runs: Runs, columns: dict[str, tuple[Array, Array, Array]]) -> dict[str, Any]:
    """Error and coverage of one time a row: the step, else the token rate, else the FLOP rate."""
    error = np.full(len(runs.lines), math.nan)
    inside = np.zeros(len(error), bool)
    for name in reversed(TIMES):
        seen, (value, low, high) = runs.measured[name], columns[name]
        given = ~np.isnan(seen)
        error[given] = np.abs(value[given] / seen[given] - 1)
        inside[given] = (low[given] <= seen[given]) & (seen[given] <= high[given])
    given = ~np.isnan(error)
    if not given.any():
        return {"rows": 0}
    return {
        "rows": int(given.sum()),
        "mean_error": plain(error[given].mean()),
        "coverage": plain(inside[given].mean()),
    }
