"""Quantities as a person reads them: three figures, in the unit that suits them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

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


def axis_unit(length_s: float) -> tuple[float, str]:
    """(seconds, name) of the unit for an axis of that length."""
    for least_s, size_s, name in (
        (4 * 86400.0, 86400.0, "d"),
        (3 * 3600.0, 3600.0, "h"),
        (180.0, 60.0, "min"),
    ):
        if length_s >= least_s:
            return size_s, name
    return 1.0, "s"


def figures(value: float, half: float | None = None) -> str:
    """Three figures with their zeros, thousands apart; half a width with the decimals of the value.

    Below 0.001 nothing is left of a value: `three_digits` and `number` keep it.
    """
    if value == 0 and not half:
        return "0"
    largest = abs(value) or half or 0.0  # 0 ± 3 has the decimals of 3
    places = max(0, min(3, 2 - math.floor(math.log10(largest))))
    if value == int(value) and not half:
        places = 0
    text = f"{value:,.{places}f}"
    return text if not half else f"{text} ± {half:,.{places}f}"


def amount(value: float) -> str:
    """A whole number with all its digits, another with three figures."""
    return f"{value:,.0f}" if value == int(value) else figures(value)


def amounts(values: Iterable[float]) -> str:
    """From the least to the most, or the one that all are."""
    least, most = min(values := [float(value) for value in values]), max(values)
    return amount(least) if least == most else f"{amount(least)} to {amount(most)}"


def number(value: float) -> str:
    """Three figures, two of one below 0.01, and nothing where nothing was measured."""
    if not math.isfinite(value):
        return ""
    return figures(value) if value == 0 or abs(value) >= 0.01 else f"{value:.2g}"


def plain(value: float) -> str:
    """A tick of an axis: all its digits, thousands apart, no power of ten."""
    return f"{value:,.9f}".rstrip("0").rstrip(".") if value < 1 else f"{value:,.12g}"


def percent(share: float) -> str:
    """A share of 0..1."""
    return f"{number(100 * share)} %"


def three_digits(value: float) -> str:
    """As short as it can be said: no zeros at the end; whole from 100 on, thousands apart."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def duration(seconds: float) -> str:
    """A time in the largest unit that leaves two of it or more."""
    if not math.isfinite(seconds):
        return "without end"
    size, name = unit("time", [seconds])
    return f"{figures(seconds / size)} {name}"


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


def readable(value: Any) -> str:
    """Any value of a file in a line: numbers with four digits, of a table its first entries."""
    if isinstance(value, dict):
        parts = [f"{name} {readable(part)}" for name, part in list(value.items())[:12]]
        more = len(value) - 12
        return "  ".join(parts) + (f"  and {more} more" if more > 0 else "")
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1e6 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def size_bytes(text: str) -> int:
    """Bytes in a text such as 2GB, 512MB or 1.5GiB; ValueError where it is none."""
    parts = re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)\s*([kmgt]?)(i?)b?\s*", text, re.IGNORECASE)
    if parts is None:
        raise ValueError(f"{text!r} is not a size; write for example 2GB or 512MB")
    count, letter, binary = parts.groups()
    return int(float(count) * (1024 if binary else 1000) ** " kmgt".index(letter.lower() or " "))
