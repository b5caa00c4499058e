"""Fit the end-to-end constants of training to published tables and write them to constants.json.

A dozen constants serve all sources; each starts at what is assumed and may leave it only as far as
its own spread allows, every source weighs the same, and outliers count linearly. Errors are given
twice: as fitted, and for each source by constants fitted without it, which is what a new table
should expect.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import least_squares

from trimtab.arrays import Array
from trimtab.llm.cost import intervals, training
from trimtab.llm.cost.cases import FRAMEWORKS
from trimtab.llm.cost.constants import replace_section
from trimtab.llm.cost.profiles import Training, base_profiles, law_rows, profiles
from trimtab.llm.fit import check
from trimtab.llm.fit.figures import COMMAND
from trimtab.llm.fit.reference_runs import SOURCES, table
from trimtab.llm.fit.runs import Runs, as_runs, whole

GIB = 2.0**30
ROW_SPREAD = 0.06  # of ln(predicted / measured) of one row that the constants should not chase
SOURCE_ROWS = 8.0  # rows that each source counts as


class Free(NamedTuple):
    """A constant that the fit may move: where it starts, how far it may go, its unit and reason."""

    name: str  # of Training, or field@framework of PROFILE
    start: float
    spread: float
    unit: str
    why: str


FREE = (
    Free("gemm_slow", 1.0, 0.1, "ratio", "a matrix product in training / alone"),
    Free("throttle", 0.4, 0.15, "exponent", "clock ~ power^(1/3..1/2) under sustained load"),
    Free("stream_slow", 1.0, 0.3, "ratio", "element-wise work / counted bytes"),
    Free("score_slow", 1.0, 0.3, "ratio", "unfused attention's bytes / counted bytes"),
    Free("link_slow", 1.0, 0.3, "ratio", "a collective in training / alone"),
    Free("logits_b", 24.0, 8.0, "B", "moved a logit: cast, softmax, loss, gradients"),
    Free("overlap_slow", 1.126, 0.05, "ratio", "compute beside a collective / alone"),
    Free("jitter", 0.005, 0.004, "ratio", "of the step a doubling of nodes"),
    Free("fused@composer", 1.3, 0.3, "ratio", "its first fused attention / FlashAttention 2"),
    Free("work@deepspeed", 1.05, 0.05, "ratio", "its pipeline engine / Megatron-LM's"),
)


class Source(NamedTuple):
    """One table: its cases, and the measured step times."""

    name: str
    runs: Runs
    cases: Array
    step_s: Array


def sources(folder: Path) -> list[Source]:
    """All tables of the folder as cases."""
    made = []
    for name, rows in SOURCES.items():
        runs = whole(as_runs(rows(folder), name))
        plans = check.settled(runs)
        costs = training.cost(plans)
        flop = check.counted_flop(runs, plans, costs) / plans["gpus"] / 1e12
        by_flop = flop / runs.measured["tflops_per_gpu"]
        step_s = check.measured_step_s(runs, plans)
        made.append(Source(name, runs, plans, np.where(np.isnan(step_s), by_flop, step_s)))
    return made


def built(values: Array) -> tuple[Training, Array]:
    """The constants and profiles that a vector of free values stands for."""
    shared: dict[str, float] = {}
    frames = base_profiles()
    for free, value in zip(FREE, values):
        field, _, framework = free.name.partition("@")
        if framework:
            frames[field][FRAMEWORKS.index(framework)] = value
        else:
            shared[field] = float(value)
    return Training(**shared), frames


def residuals(values: Array, source: Source) -> Array:
    """ln(predicted / measured step time) of every row."""
    knobs, frames = built(values)
    return np.log(training.cost(source.cases, knobs, frames=frames)["step_s"] / source.step_s)


def fitted(used: list[Source]) -> Array:
    """The free values that fit some sources best, given where they start."""
    start = np.array([free.start for free in FREE])
    spread = np.array([free.spread for free in FREE])

    def wrong(moves: Array) -> Array:
        parts = []
        for source in used:
            part = residuals(start + moves * spread, source) / ROW_SPREAD
            part = np.sign(part) * np.sqrt(2.0 * (np.sqrt(1.0 + part**2) - 1.0))
            parts.append(part * np.sqrt(SOURCE_ROWS / len(part)))
        return np.concatenate([*parts, moves])

    return start + least_squares(wrong, np.zeros(len(FREE)), diff_step=1e-3).x * spread


def mean_error(logs: Array) -> float:
    """Mean of |predicted / measured - 1|."""
    return float(np.mean(np.abs(np.expm1(logs))))


def fit(folder: str | Path, write: bool = True) -> list[dict[str, Any]]:
    """Fit, write the sections "training" and "memory", and give one row a source."""
    forget()
    tables = sources(Path(folder))
    values = fitted(tables)
    rows, squares = [], []
    for source in tables:
        held = fitted([other for other in tables if other is not source])
        inside, outside = residuals(values, source), residuals(held, source)
        squares.append(float(np.mean(outside**2)))
        rows.append(
            {
                "source": source.name,
                "what": "step time",
                "rows": len(inside),
                "mean_error": round(mean_error(inside), 4),
                "held_out_error": round(mean_error(outside), 4),
                "held_out_bias": round(float(np.mean(outside)), 4),
            }
        )
    spread = float(np.sqrt(np.mean(squares)))
    memory = memory_rows(Path(folder), tables)
    if write:
        write_training(values, rows, spread, tables)
        replace_section("memory", memory_section(memory))
        forget()
    return rows + memory


def forget() -> None:
    """Drop what was read from constants.json, which a fit before or after this may have changed."""
    for kept in (profiles, law_rows, intervals.arch_spreads, intervals.known_frameworks):
        kept.cache_clear()


def write_training(
    values: Array, rows: list[dict[str, Any]], spread: float, tables: list[Source]
) -> None:
    """Write the section "training"."""
    used = {FRAMEWORKS[int(f)] for source in tables for f in source.cases["framework"]}
    replace_section(
        "training",
        {
            "command": COMMAND,
            "values": {free.name: float(f"{value:.5g}") for free, value in zip(FREE, values)},
            "units": {free.name: f"{free.unit}: {free.why}" for free in FREE},
            "sources": rows,
            "spread": round(spread, 4),
            "frameworks": [name for name in FRAMEWORKS if name in used],
        },
    )


def memory_rows(folder: Path, tables: list[Source]) -> list[dict[str, Any]]:
    """Errors of states and activations, and how many of the runs that ran are said to fit."""
    runs = next(source for source in tables if source.name == "Korthikanti 2022")
    costs = training.cost(runs.cases)
    published = table(folder / "korthikanti2022_a100.csv")
    states_b = costs["weights_b"] + costs["gradients_b"] + costs["optimiser_b"]
    said = np.array([float(row["param_opt_gib_per_gpu"]) for row in published]) * GIB
    kept = np.array([float(row["act_gib_seq_sel"]) for row in published]) * GIB
    part = slice(1, None, 2)  # every second row is the one with selective recomputation
    out = [
        memory_row("Korthikanti 2022 states", states_b[part] / said),
        memory_row("Korthikanti 2022 activations", costs["activations_b"][part] / kept),
    ]
    for source in tables:
        ran = source.runs.measured["oom"] == 0
        if ran.any():
            chance = intervals.p_fit(training.cost(source.cases), source.cases)[ran]
            row = {"source": source.name, "what": "runs that fit", "rows": int(ran.sum())}
            out.append(row | {"mean_error": round(float(np.mean(chance < 0.5)), 4)})
    return out


def memory_row(source: str, ratio: Array) -> dict[str, Any]:
    """One row of the table of errors from predicted / published bytes."""
    error = round(float(np.mean(np.abs(ratio - 1.0))), 4)
    return {"source": source, "what": "memory", "rows": len(ratio), "mean_error": error}


def memory_section(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The section "memory": its spread is assumed, since no source measures a whole GPU's bytes."""
    return {
        "command": COMMAND,
        "spread": intervals.MEMORY_SPREAD,
        "note": "spread assumed: allocators and contexts differ by this much between releases",
        "sources": rows,
    }
