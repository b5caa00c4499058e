"""Rows of a table that sets a paper's figures beside ours, with 95 % intervals over the seeds.

{"policy": "adlro", "metric": "jct_mean_s", "paper": None, "ours": 1502.0, "low": 1380.0,
 "high": 1624.0, "arm": "noisy", "load": 0.9}

`paper` is None where the paper says nothing, `low` and `high` are None for one seed. Further keys
say where the row was measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trimtab.claims import finite
from trimtab.metrics import hyperscore, interval, mean_v

Row = dict[str, Any]
Table = dict[str, Any]  # {"name", "rows"}


def row(
    policy: str,
    metric: str,
    ours: float | None,
    low: float | None = None,
    high: float | None = None,
    paper: float | None = None,
    **where: Any,
) -> Row:
    """One row; a number that is not finite becomes None."""
    ends = {"paper": paper, "ours": ours, "low": low, "high": high}
    numbers = {
        name: None if value is None else finite(float(value)) for name, value in ends.items()
    }
    return {"policy": policy, "metric": metric, **numbers, **where}


def measured_text(one: Row) -> str:
    """Our figure of a row with its interval, where it has one."""
    ends = "" if one["low"] is None else f" [{one['low']:.3f}, {one['high']:.3f}]"
    return f"{one['ours']:.3f}{ends}"


def mean_row(policy: str, metric: str, values: Sequence[float], **where: Any) -> Row:
    """The mean over the seeds; the interval of what is nowhere negative begins at 0 at least."""
    mean, half = interval(values)
    if half is None:
        return row(policy, metric, mean, **where)
    low = max(mean - half, 0.0) if min(values) >= 0 else mean - half
    return row(policy, metric, mean, low, mean + half, **where)


def ratio_row(
    policy: str, metric: str, mine: Sequence[float], theirs: Sequence[float], **where: Any
) -> Row:
    """The mean of ratios of two policies, seed by seed; None where a divisor is 0."""
    if not all(theirs):
        return row(policy, metric, None, **where)
    return mean_row(policy, metric, [a / b for a, b in zip(mine, theirs)], **where)


def score_rows(policy: str, values: Sequence[float], **where: Any) -> list[Row]:
    """V over the seeds and the HyperScore of V, whose interval is that of ln V."""
    v, low, high = mean_v(values)
    ends = (None, None) if low is None or high is None else (hyperscore(low), hyperscore(high))
    return [
        row(policy, "v", v, low, high, **where),
        row(policy, "hyperscore", hyperscore(v), *ends, **where),
    ]


def rows_of(tables: Sequence[Table], name: str, **where: Any) -> list[Row]:
    """The rows of the table of that name that have these values; none where there is no such."""
    return [
        one
        for table in tables
        if table["name"] == name
        for one in table["rows"]
        if all(one.get(key) == value for key, value in where.items())
    ]


def places(rows: Sequence[Row], *keys: str) -> list[dict[str, Any]]:
    """The different values of these keys, in order of first appearance."""
    found = dict.fromkeys(tuple(one.get(key) for key in keys) for one in rows)
    return [dict(zip(keys, values)) for values in found]


def column(by_seed: Mapping[int, Mapping[str, float]], metric: str) -> list[float]:
    """A metric by seed, in the order of the seeds."""
    return [by_seed[seed][metric] for seed in sorted(by_seed)]
