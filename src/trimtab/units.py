"""Quantities as a person reads them: three figures, in the unit that suits them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

UNITS = {  # dimension: (from this value on, size, name), largest first
    "time": (
        (2 * 86400.0, 86400.0, "d"),
        (2 * 3600.0, 3600.0, "h"),
        (120.0, 60.0, "min"),
        (0.0, 1.0, "s"),
    ),
    "energy": ((3.6e9, 3.6e9, "MWh"), (3.6e6, 3.6e6, "kWh"), (3.6e3, 3.6e3, "Wh"), (0.0, 1.0, "J")),
    "share": ((0.0, 0.01, "%"),),
    "count": ((0.0, 1.0, ""),),
    "": ((0.0, 1.0, ""),),
}


def unit(dimension: str, values: Sequence[float]) -> tuple[float, str]:
    """(size, name) of the unit that suits the median of the values above 0."""
    above = [value for value in values if value > 0]
    middle = median(above) if above else 0.0
    for least, size, name in UNITS[dimension]:
        if middle >= least:
            return size, name
    raise AssertionError(dimension)


def shown(value: float, half: float | None = None) -> str:
    """Three figures, thousands apart; half a width with the decimals of the value."""
    if value == 0 and not half:
        return "0"
    largest = abs(value) or half or 0.0  # 0 ± 3 has the decimals of 3
    places = max(0, min(3, 2 - math.floor(math.log10(largest))))
    if value == int(value) and not half:
        places = 0
    text = f"{value:,.{places}f}"
    return text if not half else f"{text} ± {half:,.{places}f}"


def amount(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else shown(value)


def duration(seconds: float) -> str:
    if not math.isfinite(seconds):
        return "without end"
    size, name = unit("time", [seconds])
    return f"{shown(seconds / size)} {name}"


def clock(length_s: float) -> tuple[float, str]:
    """(seconds, name) of the unit for an axis of that length."""
    for least_s, size_s, name in (
        (4 * 86400.0, 86400.0, "d"),
        (3 * 3600.0, 3600.0, "h"),
        (180.0, 60.0, "min"),
    ):
        if length_s >= least_s:
            return size_s, name
    return 1.0, "s"


def seconds(value: float) -> str:
    """A time with its unit, three digits of it."""
    if value < 1:
        return f"{1e3 * value:.3g} ms"
    return f"{value:.3g} s" if value < 1000 else f"{value:,.0f} s"


def joules(value: float) -> str:
    """An energy with its unit."""
    for size, name in ((1e9, "GJ"), (1e6, "MJ"), (1e3, "kJ")):
        if value >= size:
            return f"{value / size:.3g} {name}"
    return f"{value:.3g} J"
