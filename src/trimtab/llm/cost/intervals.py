"""How sure a prediction is: an interval of the step time, and the chance that a plan fits.

Both come from residuals of the calibration: the model is fitted without one source, predicts it,
and the spread of ln(predicted / measured) over all sources is what a new table must expect. Where a
case leaves what was calibrated, an assumed spread is added, as squares add.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from scipy.special import ndtr

from trimtab.arrays import Array
from trimtab.llm.cost.cases import FRAMEWORKS
from trimtab.llm.cost.constants import law_names, law_of, read
from trimtab.llm.cost.links import PCIE_MOST_BPS

NORMAL_90 = 1.645  # standard deviations either side that hold 90 % of a normal distribution

# ln(predicted / measured), one standard deviation, until a fit has written its own.
STEP_SPREAD, MEMORY_SPREAD = 0.13, 0.10
# What a case adds to them outside of the calibration: assumed, since no table shows it.
OUTSIDE = {
    "framework": 0.07,  # no source uses it
    "experts": 0.12,  # routing is uneven in ways the mean does not show
    "afar": 0.25,  # experts on other nodes: some software hides those messages, most does not
    "fp8": 0.10,  # which products run in 8 bits differs by release
    "context": 0.05,
    "pcie": 0.15,  # no fast link: in some hosts GPUs do not even reach each other
    "nodes": 0.05,  # link to other nodes below the calibrated 25 GB/s a GPU
}
MEMORY_OUTSIDE = {"framework": 0.03, "experts": 0.08, "sharded": 0.03}
# Architectures whose spread counts in `law_of` are off in kernels; memory does not depend on them.
CALIBRATED_LINK_BPS = 25e9


@cache
def arch_spreads() -> Array:
    """What each law adds, by how it was come by: (laws,)."""
    return np.array([law_of(name).spread for name in law_names()])


@cache
def known_frameworks() -> Array:
    """1 for each framework that a calibration source uses: (len(FRAMEWORKS),)."""
    known = read().get("training", {}).get("frameworks", ["megatron", "composer", "fsdp"])
    return np.array([float(name in known) for name in FRAMEWORKS])


def step_spread(cases: Array, constants: dict[str, Any] | None = None) -> Array:
    """Standard deviation of ln(step time) of each case: (rows,)."""
    found = (constants if constants is not None else read()).get("training", {})
    square = np.full(len(cases), float(found.get("spread", STEP_SPREAD)) ** 2)
    square += arch_spreads()[cases["arch"].astype(int)] ** 2
    square += OUTSIDE["framework"] ** 2 * (1 - known_frameworks()[cases["framework"].astype(int)])
    square += OUTSIDE["experts"] ** 2 * (cases["experts"] > 0)
    afar = (cases["ep"] > 1) & (cases["ep"] * cases["tp"] > cases["per_node"])
    square += OUTSIDE["afar"] ** 2 * afar
    square += OUTSIDE["fp8"] ** 2 * (cases["precision"] == 2)
    square += OUTSIDE["pcie"] ** 2 * (
        (cases["gpus"] > 1) & (cases["per_node"] > 1) & (cases["link_bps"] <= PCIE_MOST_BPS)
    )
    square += OUTSIDE["context"] ** 2 * (cases["cp"] > 1)
    slow = (cases["gpus"] > cases["per_node"]) & (cases["node_link_bps"] < CALIBRATED_LINK_BPS)
    square += OUTSIDE["nodes"] ** 2 * slow
    return np.sqrt(square)


def memory_spread(cases: Array, constants: dict[str, Any] | None = None) -> Array:
    """Standard deviation of ln(bytes needed) of each case: (rows,)."""
    found = (constants if constants is not None else read()).get("memory", {})
    square = np.full(len(cases), float(found.get("spread", MEMORY_SPREAD)) ** 2)
    known = known_frameworks()[cases["framework"].astype(int)]
    square += MEMORY_OUTSIDE["framework"] ** 2 * (1 - known)
    square += MEMORY_OUTSIDE["experts"] ** 2 * (cases["experts"] > 0)
    square += MEMORY_OUTSIDE["sharded"] ** 2 * (cases["zero"] == 3)
    return np.sqrt(square)


def interval(cost: Array, cases: Array) -> tuple[Array, Array]:
    """Step times between which nine runs in ten should lie: two columns, seconds."""
    factor = np.exp(NORMAL_90 * step_spread(cases))
    return cost["step_s"] / factor, cost["step_s"] * factor


def memory_interval(cost: Array, cases: Array) -> tuple[Array, Array]:
    """Bytes between which nine runs in ten should need: two columns."""
    factor = np.exp(NORMAL_90 * memory_spread(cases))
    return cost["memory_b"] / factor, cost["memory_b"] * factor


def p_fit(cost: Array, cases: Array) -> Array:
    """Chance that each plan stays inside its GPUs' memory: (rows,), 0..1."""
    room = np.log(cost["capacity_b"] / cost["memory_b"])
    return ndtr(room / memory_spread(cases))
