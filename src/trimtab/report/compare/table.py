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
from trimtab.metrics import PARTS, RECORDED, Result, hyperscore, interval, mean_v, measure
from trimtab.policies import BY_NAME, LEARNER, labels
from trimtab.rules.names import foretells, learned, parse
from trimtab.units import figures, unit

RANKED_BY = "jct_mean_s"
COLUMNS = {  # metric: title, short title, dimension, better
    "jct_mean_s": ("mean JCT", "mean JCT", "time", min),
    "wait_mean_s": ("mean wait", "mean wait", "time", min),
    "wait_p95_s": ("p95 wait", "p95 wait", "time", min),
    "bsld_mean": ("mean bounded slow-down", "slow down", "", min),
    "arriving_utilization": ("utilisation while jobs come", "util.", "share", max),
    "arriving_useful_utilization": ("useful part of it", "useful util.", "share", max),
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
    "dag_jct_mean_s": ("mean completion of whole jobs", "job JCT", "time", min),
    "harm": ("use of services on overloaded nodes", "harm", "share", min),
    "harm_added": ("the same less what they do to themselves", "harm added", "share", min),
    "evictions": ("evictions an instance", "evicted", "share", min),
    "lost_work": ("work that no checkpoint kept", "lost work", "share", min),
    "throughput_per_h": ("finished jobs an hour", "jobs/h", "", max),
    "arriving_throughput_per_h": ("the same while jobs come", "jobs/h coming", "", max),
    "utilization": ("utilisation over the makespan", "util. to the end", "share", max),
    "useful_utilization": ("useful part of it", "useful to the end", "share", max),
    "makespan_s": ("first submit to last end", "makespan", "time", min),
    "drain_s": ("last submit to last end", "drain", "time", min),
    **{
        f"{name}_{part}{end}": (f"{part} {title}", f"{part} {title}", size, min)
        for name, title, end, size in (
            ("jct", "JCT", "_s", "time"),
            ("wait", "wait", "_s", "time"),
            ("bsld", "slow-down", "", ""),
        )
        for part in (*PARTS, "max")
        if f"{name}_{part}{end}" not in COLUMNS
    },
}
# instead of COLUMNS where batch jobs borrow of services: what they got, and what it cost these
LENT = ("awt_s", "ldi", "dag_jct_mean_s", "tsr", "uti", "harm_added", "evictions", "lost_work")
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
    exact: bool  # a rule on a log without failures: no seed would change what it does
    versus: tuple[float, float | None] | None  # mean ratio to the strongest rule, seed by seed


@dataclass(frozen=True)
class Column:
    """A column as text. `best` marks the rows that lead it beyond overlap of their intervals."""

    key: str
    title: str
    short: str
    unit: str
    cells: tuple[str, ...]
    best: tuple[bool, ...]


def is_rule(policy: str) -> bool:
    """Whether the name is that of a rule, or of a policy of ours that was not learned.

    What is told what nobody can know is none.
    """
    if foretells(policy) or learned(policy):
        return False
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
    groups = by_policy(results)
    rows = [_row(policy, by_seed, groups[policy]) for policy, by_seed in found.items()]
    rows.sort(key=_rank)
    rule = strongest_rule(rows)
    if rule is None:
        return rows
    return [_compared(row, found[row.policy], found[rule.policy]) for row in rows]


def _rank(row: Row) -> tuple[bool, float]:
    """What was recorded stands above the policies."""
    value = row.mean.get(RANKED_BY, -row.mean.get("gpu_allocation", 0.0))
    return row.policy != RECORDED, value


def _row(policy: str, by_seed: Mapping[int, Mapping[str, float]], results: Sequence[Result]) -> Row:
    names = dict.fromkeys(name for metrics in by_seed.values() for name in metrics)
    each = {name: [m[name] for m in by_seed.values() if name in m] for name in names}
    both = {name: interval(values) for name, values in each.items() if name not in SCORES}
    if "v" in each:
        both |= _scored(each["v"])
    return Row(
        policy=policy,
        seeds=tuple(by_seed),
        mean={name: mean for name, (mean, _) in both.items()},
        half={name: None if policy == RECORDED else half for name, (_, half) in both.items()},
        is_rule=is_rule(policy),
        exact=is_rule(policy) and all(_undrawn(result) for result in results),
        versus=None,
    )


def _undrawn(result: Result) -> bool:
    """Whether the jobs are a log's, with the starts that it recorded, and nothing failed."""
    return "recorded" in result.workload.meta and not result.state["tries"].any()


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
    if len(paired) < 2 or row.policy == RECORDED:
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
    policies = [row for row in rows if row.policy != RECORDED] or list(rows)
    lent = all("harm_added" in row.mean for row in policies)
    for key in keys or (LENT if lent else COLUMNS):
        title, short, _, better = known[key]
        if not all(key in row.mean for row in policies) or (keys is None and _idle(key, policies)):
            continue
        size, name = unit_of(key, rows)
        cells = tuple(
            _cell(row.mean[key], row.half[key], size) if key in row.mean else "" for row in rows
        )
        judged = "v" if key == "hyperscore" else key  # its interval has no one width
        values = [(row.mean[judged], row.half[judged]) if row in policies else None for row in rows]
        best = _marked(rows, values, cells, better)
        told.append(Column(key, title, short, name, cells, best))
    if any(row.versus for row in rows):
        cells = tuple(_cell(*row.versus) if row.versus else "" for row in rows)
        best = _marked(rows, [row.versus for row in rows], cells, min)
        rule = strongest_rule(rows)
        title = f"JCT vs {rule.policy}" if rule else "JCT vs best rule"
        told.append(Column("versus", title, "vs best rule", "", cells, best))
    return told


def _cell(mean: float, half: float | None, size: float = 1.0) -> str:
    """A mean with its interval; in brackets where that would reach below zero, from zero on."""
    if half is None or half <= mean:
        return figures(mean / size, None if half is None else half / size)
    return f"{figures(mean / size)} [0, {figures((mean + half) / size)}]"


def value_and_interval(cell: str) -> tuple[str, str]:
    """A cell in two parts, the second "" where there is no interval."""
    at = max(cell.find(" ± "), cell.find(" ["))
    return (cell[:at], cell[at + 1 :]) if at >= 0 else (cell, "")


def _idle(key: str, rows: Sequence[Row]) -> bool:
    """Whether a column would say nothing: all zero, or what utilisation says already."""
    if key == "gpu_allocation":
        return all("arriving_utilization" in row.mean or "utilization" in row.mean for row in rows)
    return key in ONLY_IF_ANY and not any(row.mean[key] for row in rows)


def _marked(
    rows: Sequence[Row],
    values: Sequence[tuple[float, float | None] | None],
    cells: Sequence[str],
    better: Callable[..., float],
) -> tuple[bool, ...]:
    """The best of the (mean, half width), with those behind it while their intervals overlap its.

    Those that read the same are alike, whatever their intervals. None where that is all of them.
    Without an interval a mean may be any distance from the truth, unless its row is exact.
    """
    read = [value_and_interval(cell)[0] for cell in cells]
    known = [(i, *value) for i, value in enumerate(values) if value is not None]
    known.sort(key=lambda told: told[1], reverse=better is max)
    marked = [False] * len(rows)
    for i, mean, half in known:
        first, best, doubt = known[0]
        doubts = [0.0 if rows[row].exact else math.inf for row in (i, first)]
        room = sum(d if h is None else h for d, h in zip(doubts, (half, doubt)))
        if abs(mean - best) > room and read[i] != read[first]:
            return tuple(marked)
        marked[i] = True
    return (False,) * len(rows)


def unit_of(key: str, rows: Sequence[Row]) -> tuple[float, str]:
    """(size, name) of a metric's unit: one for all waits, one for all completion times.

    Of times it suits the middle between the least and the most, on a logarithmic scale.
    """
    dimension = (COLUMNS | ON_REQUEST)[key][2]
    if dimension != "time":
        return unit(dimension, [row.mean[key] for row in rows if key in row.mean])
    alike = [other for other in COLUMNS if _quantity(other) == _quantity(key)]
    means = [row.mean[other] for row in rows for other in alike if other in row.mean]
    means = [mean for mean in means or [row.mean.get(key, 0.0) for row in rows] if mean > 0]
    return unit(dimension, [math.sqrt(min(means) * max(means))] if means else [])


def _quantity(key: str) -> str:
    """What is measured, by the first word of the name; the time that AWT means is a wait too."""
    return key.partition("_")[0].replace("awt", "wait")


def as_rich(
    rows: Sequence[Row], width: int | None = None, keys: Sequence[str] | None = None
) -> Table:
    """The table for a terminal: right-aligned, the best of each column bold. `keys`: see columns.

    Where it is wider than `width` letters (None = the terminal's), intervals get their own line.
    """
    seeds = max((len(row.seeds) for row in rows), default=0)
    told = columns(rows, keys)
    best = any(any(column.best) for column in told)
    caption = f"mean ± 95 % interval over {seeds} seeds" if seeds > 1 else ""
    caption += "; bold: best beyond overlap" if seeds > 1 and best else ""
    rule = strongest_rule(rows)
    if rule and any(column.key == "versus" for column in told):
        caption += f"; best rule: {rule.policy}"
    longest = [max(map(len, (column.short, *column.cells))) for column in told]
    named = labels([row.policy for row in rows])
    needs = max(map(len, named.values()), default=0) + sum(longest) + 3 * len(told) + 3
    narrow = needs > (Console().width if width is None else width)
    table = Table(box=SIMPLE_HEAD, caption=caption or None, header_style="", caption_style="dim")
    table.add_column("policy", no_wrap=True)
    for column in told:
        head = column.short.replace(" ", "\n", 1) if narrow else column.short
        table.add_column(f"{head}\n{column.unit}".rstrip(), justify="right")
    if narrow:
        table.padding = (0, 0)
    for i, row in enumerate(rows):
        cells = []
        for column in told:
            value, ends = value_and_interval(column.cells[i])
            text = f"{value}\n{ends.replace('± ', '±')}".rstrip() if narrow else column.cells[i]
            cells.append(Text(text, style="bold" if column.best[i] else ""))
        table.add_row(Text(named[row.policy]), *cells)
    return table
