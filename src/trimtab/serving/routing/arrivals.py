"""When requests come: Poisson, in bursts, or as in a recorded trace, at a mean rate you name."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.random import Generator

from trimtab.arrays import Array
from trimtab.errors import ServeError


def poisson(count: int, rate_hz: float, rng: Generator) -> Array:
    """(count,) arrival times in seconds, gaps independent and exponential."""
    _check(count, rate_hz)
    return np.cumsum(rng.exponential(1 / rate_hz, count))


def bursty(
    count: int,
    rate_hz: float,
    rng: Generator,
    *,
    peak: float = 4.0,
    burst_share: float = 0.2,
    burst_s: float = 1.0,
) -> Array:
    """(count,) arrival times of a Poisson process whose rate switches between two levels.

    Bursts last burst_s on average, take burst_share of the time and run at `peak` times the mean
    rate; between them the rate is what keeps the long-run mean at rate_hz.
    """
    _check(count, rate_hz)
    if not 0 < burst_share < 1 or not 1 <= peak <= 1 / burst_share or not burst_s > 0:
        raise ServeError(
            f"peak={peak}, burst_share={burst_share}, burst_s={burst_s}: give a share in 0..1, "
            "a peak of 1 .. 1 / burst_share, and a length above 0"
        )
    calm = (1 - peak * burst_share) / (1 - burst_share)
    calm_s = burst_s * (1 - burst_share) / burst_share
    # unit-rate arrivals, moved from operational time to the clock: one draw serves any modulation
    marks = np.cumsum(rng.exponential(1.0, count))
    in_burst = bool(rng.random() < burst_share)
    ends_s, levels, work = [0.0], [], [0.0]
    while work[-1] < marks[-1]:
        level = rate_hz * (peak if in_burst else calm)
        length_s = rng.exponential(burst_s if in_burst else calm_s)
        ends_s.append(ends_s[-1] + length_s)
        work.append(work[-1] + level * length_s)
        levels.append(level)
        in_burst = not in_burst
    return np.interp(marks, work, ends_s)


def shaped(times_s: Any, rate_hz: float, count: int | None = None) -> Array:
    """(count,) arrival times with the pattern of a trace, its clock stretched to a mean rate.

    A count above the trace's length repeats the trace; below, the trace is cut, and the mean rate
    holds over what is left.
    """
    given = np.asarray(times_s, np.float64)
    wanted = len(given) if count is None else count
    _check(wanted, rate_hz)
    if given.ndim != 1 or len(given) < 2 or not np.isfinite(given).all():
        raise ServeError(f"times_s has shape {given.shape}: give two or more finite times")
    if (np.diff(given) < 0).any() or given[-1] <= given[0]:
        raise ServeError("times_s do not rise: sort them, and drop a trace of a single moment")
    gaps_s = np.diff(given)
    gaps_s = np.append(gaps_s, gaps_s.mean())  # from the last arrival to the repeated first
    found = np.cumsum(np.resize(gaps_s, wanted))
    return found * (wanted / rate_hz) / found[-1]


def _check(count: int, rate_hz: float) -> None:
    if count < 1:
        raise ServeError(f"count={count}: ask for at least one arrival")
    if not 0 < rate_hz < np.inf:
        raise ServeError(f"rate_hz={rate_hz}: give requests a second above 0")
