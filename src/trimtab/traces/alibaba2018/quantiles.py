"""Distributions as quantiles, joined by straight lines in the logarithm of the value."""

import math

import numpy as np

Quantiles = tuple[tuple[float, ...], tuple[float, ...]]  # shares from 0 to 1, their values

# Shares and values that the published quantiles do not name (the ends, the tails) are ours, chosen
# so that the published means come out.
DURATION_S: Quantiles = (
    (0.0, 0.012, 0.10, 0.25, 0.50, 0.75, 0.90, 0.95, 0.99, 0.995, 0.999, 1.0),
    (0.3, 0.5, 1.2, 3.0, 10.0, 37.0, 148.0, 320.0, 741.0, 947.0, 2200.0, 6500.0),
)
# A task's instances: the last stretch makes the tasks of 6,000 and more, half of all instances.
INSTANCES: Quantiles = (
    (0.0, 0.56, 0.65, 0.75, 0.90, 0.95, 0.99, 0.995, 0.9978, 1.0),
    (1.0, 1.0, 2.2, 5.2, 48.5, 233.5, 877.5, 1650.0, 6000.0, 63000.0),
)
CPU_USED: Quantiles = (  # cpu_avg over plan_cpu, mean of a task
    (0.0, 0.01, 0.05, 0.10, 0.25, 0.50, 0.75, 0.90, 0.95, 0.99, 1.0),
    (0.015, 0.02, 0.04, 0.066, 0.22, 0.66, 1.14, 1.71, 1.95, 3.3, 8.0),
)
MEM_USED: Quantiles = (
    (0.0, 0.01, 0.05, 0.10, 0.25, 0.50, 0.75, 0.90, 0.95, 0.99, 1.0),
    (0.03, 0.04, 0.05, 0.06, 0.10, 0.137, 0.31, 0.67, 1.2, 3.6, 8.0),
)
STRAGGLER: Quantiles = (  # longest over mean instance
    (0.0, 0.10, 0.25, 0.50, 0.75, 0.90, 0.95, 0.99, 1.0),
    (1.0, 1.02, 1.14, 1.49, 2.0, 2.83, 4.1, 9.4, 50.0),
)
PLAN_CPU: Quantiles = (  # shares of the jobs, not cumulative
    (0.523, 0.446, 0.0095, 0.0095, 0.0095, 0.0025),
    (100.0, 50.0, 10.0, 5.0, 30.0, 200.0),
)
PLAN_MEM: Quantiles = (  # shares of the tasks, not cumulative
    (0.30, 0.235, 0.235, 0.135, 0.065, 0.02, 0.01),
    (0.2, 0.3, 0.39, 0.49, 0.59, 0.05, 0.25),
)
POINTS = 200_001


def drawn(quantiles: Quantiles, share: np.ndarray) -> np.ndarray:
    """The value below which each `share` (0 to 1) of the distribution lies."""
    shares, values = quantiles
    return np.exp(np.interp(share, shares, np.log(values)))


def mean(quantiles: Quantiles, largest: float = np.inf) -> float:
    """Mean of the whole numbers drawn, each cut at `largest`."""
    share = (np.arange(POINTS) + 0.5) / POINTS
    return float(np.minimum(np.floor(drawn(quantiles, share)), largest).mean())


def picked(weighted: Quantiles, share: np.ndarray) -> np.ndarray:
    """One of the weighted values for each `share` (0 to 1)."""
    weights = np.cumsum(weighted[0])
    return np.asarray(weighted[1])[np.searchsorted(weights, share * weights[-1], side="right")]


def share_below(normal: np.ndarray) -> np.ndarray:
    """The share of a standard normal distribution below each value, to 1e-4 of a share."""
    return np.interp(normal, _NORMAL_AT, _NORMAL_SHARE)


_NORMAL_AT = np.linspace(-6.0, 6.0, 2401)
_NORMAL_SHARE = np.array([0.5 * (1 + math.erf(at / math.sqrt(2))) for at in _NORMAL_AT])
