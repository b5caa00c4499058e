"""What a cell of a reproduction's table says of its rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trimtab.units import figures, three_digits

Row = Mapping[str, Any]
MILLION = 1e6


def _plain(rows: Sequence[Row]) -> str:
    row = rows[0]
    if row["ours"] is None:
        return "-"
    size, unit = (MILLION, " M") if row["ours"] >= MILLION else (1.0, "")
    if row["low"] == 0 and row["high"] > 2 * row["ours"]:
        # cut off at 0: half of what is left would be too small, and would reach below 0
        return f"{figures(row['ours'] / size)} [0, {figures(row['high'] / size)}]{unit}"
    half = None if row["low"] is None else (row["high"] - row["low"]) / 2
    return f"{figures(row['ours'] / size, half and half / size)}{unit}"


def _ratio(rows: Sequence[Row]) -> str:
    row = rows[0]
    if row["ours"] is None:
        return "-"
    ends = "" if row["low"] is None else f" [{row['low']:.2f}, {row['high']:.2f}]"
    return f"{row['ours']:.3f}{ends}"


def _ends(rows: Sequence[Row]) -> str:
    row = rows[0]
    if row["ours"] is None:
        return "-"
    ends = "" if row["low"] is None else f" [{row['low']:.3g}, {row['high']:.3g}]"
    return f"{row['ours']:.3g}{ends}"


def _beside(rows: Sequence[Row]) -> str:
    row = rows[0]
    if row["paper"] is None:
        return _number(row["ours"])
    return f"{_number(row['paper'])} | {_number(row['ours'])}"


def _number(value: float | None) -> str:
    return "-" if value is None else three_digits(value)


def _score(rows: Sequence[Row]) -> str:
    of = {row["metric"]: row["ours"] for row in rows}
    return f"{of['hyperscore']:.1f} ({of['v']:.2f})"


def _points(rows: Sequence[Row]) -> str:
    row = rows[0]
    if row["ours"] is None:
        return "-"
    half = "" if row["low"] is None else f" ± {row['high'] - row['ours']:.2f}"
    return f"{row['ours']:.2f}{half}"


def _and_paper(rows: Sequence[Row]) -> str:
    row = rows[0]
    if row["ours"] is None:
        return "-"
    places = 0 if abs(row["ours"]) >= 1000 else 2 if abs(row["ours"]) >= 10 else 3
    half = "" if row["low"] is None else f" ± {row['high'] - row['ours']:.{places}f}"
    paper = "" if row["paper"] is None else f" ({row['paper']:g})"
    return f"{row['ours']:.{places}f}{half}{paper}"


CELLS: dict[str, Callable[[Sequence[Row]], str]] = {
    "number": lambda rows: _number(rows[0]["ours"]),
    "plain": _plain,
    "points": _points,
    "ratio": _ratio,
    "ends": _ends,
    "and_paper": _and_paper,
    "beside": _beside,
    "score": _score,
    "standing": lambda rows: (
        _ratio(rows) if rows[0]["metric"] == "cost" else _number(rows[0]["ours"])
    ),
}
