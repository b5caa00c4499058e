"""One self-contained HTML page of a comparison: inline style and SVG, no script, no network."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from html import escape
from pathlib import Path

import numpy as np

from trimtab.core import Profile
from trimtab.files import write_whole
from trimtab.metrics import RECORDED, Result, measure
from trimtab.report.compare.bars import bars, drawn_metrics
from trimtab.report.compare.groups import beside_record, by_groups
from trimtab.report.compare.plots import drawn, paint
from trimtab.report.compare.scene import cluster, meanings, workload
from trimtab.report.compare.sections import (
    distributions,
    gantts,
    is_packing,
    left_out,
    over_time,
)
from trimtab.report.compare.series import span_of
from trimtab.report.compare.table import (
    Column,
    Row,
    by_policy,
    columns,
    strongest_rule,
    summary,
    unit_of,
    value_and_interval,
)
from trimtab.report.drawing import both
from trimtab.report.markup import (
    bullets,
    facts,
    figure,
    listed,
    named,
    shell,
    swatch,
    version,
)
from trimtab.units import figures

MOST_ROWS = 60  # of a table


def write_report(
    path: str | Path,
    results: list[Result],
    *,
    title: str,
    command: str,
    notes: Sequence[str] = (),
    measured: Callable[[Result], Mapping[str, float]] = measure,
    profile: Profile | None = None,
    now: datetime | None = None,
) -> Path:
    """Write the page for the results of one comparison, all at once or not at all.

    Several seeds of a policy pool their distributions; series over time are of the first seed.
    `measured` gives a result's metrics. `profile` is the one that was simulated: without it power
    is drawn only where it agrees with the metered energy. `now` dates the page; None = the present.
    """
    if not results:
        raise ValueError("write_report: no results; run at least one policy")
    path = Path(path)
    text = page(
        results, title, command, notes, measured, profile, now or datetime.now().astimezone()
    )
    write_whole(path, text)
    return path


def page(
    results: Sequence[Result],
    title: str,
    command: str,
    notes: Sequence[str],
    measured: Callable[[Result], Mapping[str, float]],
    profile: Profile | None,
    now: datetime,
) -> str:
    """The whole page as text."""
    rows = summary(results, measured)
    groups = by_policy(results)
    groups = {row.policy: groups[row.policy] for row in rows}
    span = span_of(groups[policy][0] for policy in drawn(list(groups)))
    waits, packing = unit_of("wait_mean_s", rows), is_packing(groups)
    parts = [
        _header(results, rows, title, command, now),
        "<main>",
        _outcome(rows, groups),
        "".join(f"<h2>Notes</h2>{bullets(notes)}" if notes else ""),
        beside_record(groups, waits),
        distributions(groups, waits),
        "" if packing else by_groups(groups, waits),
        over_time(groups, profile),
        gantts(groups),
        workload(results, span.unit),
        cluster(results[0].cluster),
        meanings(rows),
        f"<footer>Made by trimtab {escape(version('trimtab'))}. The page loads nothing.</footer>",
        "</main>",
    ]
    return shell(title, "\n".join(part for part in parts if part))


def _header(
    results: Sequence[Result], rows: Sequence[Row], title: str, command: str, now: datetime
) -> str:
    seeds = sorted({result.seed for result in results})
    traces = list(dict.fromkeys(result.workload.source for result in results))
    clusters = list(dict.fromkeys(result.cluster.source for result in results))
    several = len(seeds) > 1 and seeds == list(range(seeds[0], seeds[-1] + 1))
    packages = ", ".join(f"{name} {version(name)}" for name in ("trimtab", "numpy", "numba"))
    told = {
        "Trace": listed(traces, 200),
        "Cluster": listed(clusters, 200),
        "Policies": listed([row.policy for row in rows if row.policy != RECORDED]),
        "Seeds": f"{seeds[0]} to {seeds[-1]}" if several else ", ".join(map(str, seeds)),
        "Command": f"<code>{escape(command)}</code>",
        "Versions": escape(f"{packages}, Python {platform.python_version()}"),
        "Date": escape(now.strftime("%Y-%m-%d %H:%M %Z").strip()),
    }
    return f"<header><div><h1>{escape(title)}</h1>{facts(told)}</div></header>"


def _outcome(rows: Sequence[Row], groups: Mapping[str, Sequence[Result]]) -> str:
    """The table of metrics, what it says in a sentence or two, and the same as bars."""
    shown = rows[:MOST_ROWS]
    told = columns(rows)
    head = "".join(
        f"<th>{escape(column.title)}<small>{escape(column.unit)}</small></th>" for column in told
    )
    tint = paint(drawn([row.policy for row in rows]))
    body = ""
    for i, row in enumerate(shown):
        mark = swatch(tint[row.policy]) if row.policy in tint else ""
        cells = "".join(_cell(column.cells[i], column.best[i]) for column in told)
        kind = ' class="record"' if row.policy == RECORDED else ""
        body += f"<tr{kind}><td>{mark}{named(row.policy)}</td>{cells}</tr>"
    table = (
        '<div class="wide"><table class="metrics">'
        f"<thead><tr><th>policy</th>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )
    more = len(rows) - len(shown)
    over = f"And {more:,} more policies. " * (more > 0) + _legend(rows, told)
    sentences = " ".join(_sentences(rows, groups))
    few = [row for row in rows if row.policy in tint]
    chart = ""
    if drawn_metrics(few):
        plots = both(lambda on: bars(few, rows, on))
        chart = figure(plots, "Mean metrics a policy", left_out(rows))
    return f'<h2>Outcome</h2><p>{sentences}</p>{table}<p class="faint">{over}</p>{chart}'


def _legend(rows: Sequence[Row], told: Sequence[Column]) -> str:
    """What the numbers and the shading of the table mean."""
    policies = [row for row in rows if row.policy != RECORDED]
    seeds = max(len(row.seeds) for row in rows)
    over = ""
    if seeds > 1:
        over = f"Means over {seeds} seeds ± half of the 95 % interval (Student's t). "
    if len(policies) < 2:
        return over
    if any(any(column.best) for column in told):
        over += (
            "Shaded: the best of its column; several where their intervals overlap the best one's. "
        )
        return over + ("A rule on a log is exact. " if any(row.exact for row in policies) else "")
    if seeds > 1:
        return over + "Nothing is marked best: all intervals overlap. "
    return over + (
        "One seed has no interval, so nothing is marked best: more seeds tell chance apart. "
    )


def _cell(text: str, best: bool) -> str:
    """A value, with its interval in smaller print."""
    value, ends = value_and_interval(text)
    small = f" <small>{escape(ends)}</small>" if ends else ""
    mark = ' class="best"' if best else ""
    return f"<td{mark}>{escape(value)}{small}</td>"


def _sentences(rows: Sequence[Row], groups: Mapping[str, Sequence[Result]]) -> list[str]:
    """The strongest rule, how the rest stands to it, and who left jobs unfinished."""
    told, rule = [], strongest_rule(rows)
    if rule is not None and "jct_mean_s" in rule.mean:
        size, name = unit_of("jct_mean_s", rows)
        half = rule.half["jct_mean_s"]
        jct = figures(rule.mean["jct_mean_s"] / size, None if half is None else half / size)
        told.append(
            f"The strongest simple rule is <strong>{named(rule.policy)}</strong>, "
            f"with a mean JCT of {jct} {name}."
        )
        learned = next((r for r in rows if not r.is_rule and r.policy != RECORDED), None)
        if learned is not None:
            told.append(_against(learned, rule))
    for row in [row for row in rows if row.policy != RECORDED][:MOST_ROWS]:
        jobs = float(
            np.mean([(r.workload.truth["service"] == 0).sum() for r in groups[row.policy]])
        )
        done = row.mean.get("finished", jobs)
        if done < jobs:
            told.append(
                f"{named(row.policy)} finished {done:,.{0 if done == int(done) else 1}f} of "
                f"{jobs:,.0f} jobs: its mean JCT and slow-down leave the others out."
            )
    return told


def _against(learned: Row, rule: Row) -> str:
    """Whether the best of the other policies is ahead, by the paired interval if there is one."""
    name = named(learned.policy)
    ratio, half = learned.versus or (0.0, None)
    if half is None:
        ratio = learned.mean["jct_mean_s"] / max(rule.mean["jct_mean_s"], 1e-300)
        chance = "one seed cannot tell whether that is chance"
        return f"<strong>{name}</strong> needs {figures(ratio)} times as long; {chance}."
    if ratio + half < 1:
        verdict = "ahead of it on these seeds beyond chance"
    elif ratio - half > 1:
        verdict = "behind it on these seeds beyond chance"
    else:
        verdict = "not told apart from it by these seeds"
    return f"<strong>{name}</strong> needs {figures(ratio, half)} times as long: {verdict}."
