"""The table of a comparison: one row a policy, means over seeds with 95 % intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from trimtab.errors import UnknownName
from trimtab.metrics import Result, hyperscore, interval, mean_v, measure
from trimtab.policies import BY_NAME, LEARNER, labels
from trimtab.rules.names import parse
from trimtab.units import figures, unit

RANKED_BY = "jct_mean_s"
COLUMNS = {  # metric: title, short title, dimension, better
    "jct_mean_s": ("mean JCT", "mean JCT", "time", min),
    "wait_mean_s": ("mean wait", "mean wait", "time", min),
    "wait_p95_s": ("p95 wait", "p95 wait", "time", min),
    "bsld_mean": ("mean bounded slow-down", "slow down", "", min),
    "utilization": ("utilisation", "util.", "share", max),
    "energy_j": ("energy", "energy", "energy", min),
    "preemptions": ("preemptions", "preempt.", "count", min),
    "failed": ("failed jobs", "failed", "count", min),
    "rejected": ("rejected jobs", "rejected", "count", min),
    "gpu_allocation": ("allocated GPUs", "GPUs", "share", max),
    "gpu_fragmented": ("fragmented GPUs", "frag.", "share", min),
    "dropped": ("dropped pods", "dropped", "count", min),
    "v": ("V against the reference", "V", "", max),
    "hyperscore": ("HyperScore", "HyperScore", "", max),
}
ON_REQUEST = {  # the same, shown only where they are asked for
    "uti": ("useful allocation while jobs wait", "UTI", "share", max),
    "awt_s": ("mean time runnable and not running", "AWT", "time", min),
    "ldi": ("spread of load between nodes", "LDI", "", min),
    "tsr": ("jobs in time, never evicted", "TSR", "share", max),
    "throughput_per_h": ("finished jobs an hour", "jobs/h", "", max),
    "useful_utilization": ("useful work at the best node's speed", "useful util.", "share", max),
}
SCORES = ("v", "hyperscore")  # means of these over seeds are taken over ln V
ONLY_IF_ANY = ("energy_j", "preemptions", "failed", "rejected")


@dataclass(frozen=True)
class Row:
    """A policy's means over seeds. `half` is half the width of an interval, None for one seed."""

    policy: str
    seeds: tuple[int, ...]
    mean: dict[str, float]
    half: dict[str, float | None]
    is_rule: bool  # nothing in it was learned: a rule or a baseline of ours, by its name
    versus: tuple[float, float | None] | None  # mean ratio to the strongest rule, seed by seed


@dataclass(frozen=True)
class Column:
    """A column as text. `best` marks the rows that no other is seen to better."""

    key: str
    title: str
    short: str
    unit: str
    cells: tuple[str, ...]
    best: tuple[bool, ...]


def is_rule(policy: str) -> bool:
    """Whether the name is that of a rule, or of a policy of ours that was not learned."""
    if policy in BY_NAME:
        return policy not in LEARNER
    try:
        parse(policy)
    except UnknownName:
        return False
    return True


def by_policy(results: Sequence[Result]) -> dict[str, list[Result]]:
    """Results of each policy by seed, in order of first appearance."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(result.policy, []).append(result)
    return {policy: sorted(group, key=lambda r: r.seed) for policy, group in groups.items()}


def summary(
    results: Sequence[Result], measured: Callable[[Result], Mapping[str, float]] = measure
) -> list[Row]:
    """One row a policy, least mean JCT first; packings, which have none, most allocated GPUs first.

    With several seeds every policy is compared with the strongest that was not learned, seed by
    seed.
    """
    found = {
        policy: {result.seed: measured(result) for result in group}
        for policy, group in by_policy(results).items()
    }
    rows = [_row(policy, by_seed) for policy, by_seed in found.items()]
    rows.sort(key=lambda row: row.mean.get(RANKED_BY, -row.mean.get("gpu_allocation", 0.0)))
    rule = strongest_rule(rows)
    if rule is None:
        return rows
    return [_compared(row, found[row.policy], found[rule.policy]) for row in rows]


def _row(policy: str, by_seed: Mapping[int, Mapping[str, float]]) -> Row:
    names = dict.fromkeys(name for metrics in by_seed.values() for name in metrics)
    each = {name: [m[name] for m in by_seed.values() if name in m] for name in names}
    both = {name: interval(values) for name, values in each.items() if name not in SCORES}
    if "v" in each:
        both |= _scored(each["v"])
    return Row(
        policy=policy,
        seeds=tuple(by_seed),
        mean={name: mean for name, (mean, _) in both.items()},
        half={name: half for name, (_, half) in both.items()},
        is_rule=is_rule(policy),
        versus=None,
    )


def _scored(values: Sequence[float]) -> dict[str, tuple[float, float | None]]:
    """V over seeds and the HyperScore of that V, so that both rank the rows alike."""
    v, low, high = mean_v(values)
    if low is None or high is None:
        return {"v": (v, None), "hyperscore": (hyperscore(v), None)}
    spread = hyperscore(high) - hyperscore(low)
    return {"v": (v, (high - low) / 2), "hyperscore": (hyperscore(v), spread / 2)}


def _compared(
    row: Row, mine: Mapping[int, Mapping[str, float]], rule: Mapping[int, Mapping[str, float]]
) -> Row:
    paired = [seed for seed in mine if seed in rule and rule[seed].get(RANKED_BY, 0.0) > 0]
    if len(paired) < 2:
        return row
    ratio = interval([mine[seed][RANKED_BY] / rule[seed][RANKED_BY] for seed in paired])
    return replace(row, versus=ratio)


def strongest_rule(rows: Sequence[Row]) -> Row | None:
    """The first policy of a sorted table that was not learned."""
    return next((row for row in rows if row.is_rule), None)


def columns(rows: Sequence[Row], keys: Sequence[str] | None = None) -> list[Column]:
    """The columns worth showing, or those named, as text in one unit each."""
    told = []
    known = COLUMNS | ON_REQUEST
    for key in keys or ():
        if key not in known:
            raise UnknownName(
                f"metric {key!r} is no column of the table; known: {', '.join(known)}"
            )
    for key in keys or COLUMNS:
        title, short, dimension, better = known[key]
        if not all(key in row.mean for row in rows) or (keys is None and _idle(key, rows)):
            continue
        values = [row.mean[key] for row in rows]
        size, name = unit(dimension, values)
        pairs = [(row.mean[key], row.half[key]) for row in rows]
        cells = tuple(
            figures(mean / size, None if half is None else half / size) for mean, half in pairs
        )
        told.append(Column(key, title, short, name, cells, _marked(values, cells, better(values))))
    if any(row.versus for row in rows):
        ratio = [row.versus[0] if row.versus else math.inf for row in rows]
        cells = tuple(figures(*row.versus) if row.versus else "" for row in rows)
        best = _marked(ratio, cells, min(ratio))
        rule = strongest_rule(rows)
        title = f"JCT vs {rule.policy}" if rule else "JCT vs best rule"
        told.append(Column("versus", title, "vs best rule", "", cells, best))
    return told


def _idle(key: str, rows: Sequence[Row]) -> bool:
    """Whether a column would say nothing: all zero, or what utilisation says already."""
    if key == "gpu_allocation":
        return all("utilization" in row.mean for row in rows)
    return key in ONLY_IF_ANY and not any(row.mean[key] for row in rows)


def _marked(values: Sequence[float], cells: Sequence[str], best: float) -> tuple[bool, ...]:
    """The best value and those that read the same; none where all do."""
    read = [cell.partition(" ± ")[0] for cell in cells]
    like = read[values.index(best)]
    return tuple(text == like and text != "" and len(set(read)) > 1 for text in read)


def as_rich(
    rows: Sequence[Row], width: int | None = None, keys: Sequence[str] | None = None
) -> Table:
    """The table for a terminal: right-aligned, the best of each column bold. `keys`: see columns.

    Where it is wider than `width` letters (None = the terminal's), intervals get their own line.
    """
    seeds = max((len(row.seeds) for row in rows), default=0)
    caption = f"mean ± 95 % interval over {seeds} seeds" if seeds > 1 else None
    told = columns(rows, keys)
    rule = strongest_rule(rows)
    if rule and any(column.key == "versus" for column in told):
        caption = f"{caption}; best rule: {rule.policy}"
    longest = [max(map(len, (column.short, *column.cells))) for column in told]
    named = labels([row.policy for row in rows])
    needs = max(map(len, named.values()), default=0) + sum(longest) + 3 * len(told) + 3
    narrow = needs > (Console().width if width is None else width)
    table = Table(box=SIMPLE_HEAD, caption=caption, header_style="", caption_style="dim")
    table.add_column("policy", no_wrap=True)
    for column in told:
        head = column.short.replace(" ", "\n", 1) if narrow else column.short
        table.add_column(f"{head}\n{column.unit}".rstrip(), justify="right")
    if narrow:
        table.padding = (0, 0)
    for i, row in enumerate(rows):
        cells = []
        for column in told:
            text = column.cells[i].replace(" ± ", "\n±") if narrow else column.cells[i]
            cells.append(Text(text, style="bold" if column.best[i] else ""))
        table.add_row(Text(named[row.policy]), *cells)
    return table
