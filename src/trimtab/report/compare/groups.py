"""What was recorded beside what was simulated, and how the jobs of each group waited."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from trimtab.arrays import Array
from trimtab.metrics import RECORDED, Result
from trimtab.recorded import GROUPS, Group, by_group, far_off
from trimtab.report.compare.bars import LARGE
from trimtab.report.compare.plots import drawn, paint
from trimtab.report.drawing import (
    DESK,
    FOOT_IN,
    LETTER_IN,
    ROW_IN,
    STYLE,
    Sheet,
    beside_in,
    blank,
    both,
    legend,
    short,
    svg,
)
from trimtab.report.markup import figure, named, table
from trimtab.units import figures, percent, plain

MOST_GROUPS = {"week": 53}  # of a table and a plot; of the others:
MOST = 16
LETTERS = 26  # of a group's name in a plot


def beside_record(groups: Mapping[str, Sequence[Result]], unit: tuple[float, str]) -> str:
    """How far the policies are from what happened, and why; nothing without a record."""
    if RECORDED not in groups:
        return ""
    recorded = groups[RECORDED][0]
    first = [_started(group[0]) for policy, group in groups.items() if policy != RECORDED]
    wait_s = _mean_wait_s(recorded)
    told = (
        f"The log says when {len(recorded.workload):,} of its jobs started and ended: they waited "
        f"{figures(wait_s / unit[0])} {unit[1]} on average. That row is no policy: it has no "
        "interval, is never the best, and was shaped by much that a log leaves out."
    )
    far = far_off(recorded, first)
    warning = f'<p class="warn">In doubt: {escape(far)}.</p>' if far else ""
    return f"<h2>As recorded beside simulated</h2><p>{told}</p>{warning}"


def by_groups(groups: Mapping[str, Sequence[Result]], unit: tuple[float, str]) -> str:
    """Tables and plots of waits by partition, user, size and week, where there are several."""
    chosen = drawn(list(groups))
    first = {policy: _started(groups[policy][0]) for policy in chosen}
    first = {policy: result for policy, result in first.items() if len(result.workload)}
    if not any(_mean_wait_s(result) for result in first.values()):
        return ""  # the distribution says so
    several = any(len(group) > 1 for group in groups.values())
    seeds = f" Of the first seed ({groups[chosen[0]][0].seed}) alone." if several else ""
    parts = []
    for by in GROUPS:
        found = {policy: by_group(result, by) for policy, result in first.items()}
        if max(map(len, found.values()), default=0) > 1:
            parts.append(f"<h3>By {by}</h3>{_grouped(by, found, unit, seeds)}")
    return f"<h2>Who waited</h2>{''.join(parts)}" if parts else ""


def _started(result: Result) -> Result:
    """With the batch jobs that started alone: the others have no wait."""
    begun = ~np.isnan(result.state["start_s"]) & (result.workload.truth["service"] == 0)
    if begun.all():
        return result
    return replace(result, workload=result.workload.only(begun), state=result.state[begun])


def _mean_wait_s(result: Result) -> float:
    return float((result.state["start_s"] - result.workload.jobs["submit_s"]).mean())


def _grouped(
    by: str, found: Mapping[str, Sequence[Group]], unit: tuple[float, str], seeds: str
) -> str:
    """A row a group and a column a policy, and the same as dots."""
    size_s, unit_name = unit
    names = list(dict.fromkeys(group.name for told in found.values() for group in told))
    most = MOST_GROUPS.get(by, MOST)
    shown, more = names[:most], len(names) - most
    of = {policy: {group.name: group for group in told} for policy, told in found.items()}
    head = [by, "jobs", "share of the work", *(named(policy, 30) for policy in found)]
    rows = [
        [named(name), *_counts(name, of), *(_cell(told.get(name), size_s) for told in of.values())]
        for name in shown
    ]
    left = f" And {more:,} more, with less of the work." if more > 0 else ""
    told = f"Mean wait in {unit_name}, and below which 95 % waited.{left}{seeds}"
    means = {
        policy: np.array([told[n].wait_mean_s / size_s if n in told else np.nan for n in shown])
        for policy, told in of.items()
    }
    plots = both(lambda on: dots(means, shown, unit_name, f"by-{by}", on))
    plot = figure(plots, f"Mean wait by {by}", "")
    return f'{plot}{table(head, rows)}<p class="faint">{told}</p>'


def _counts(name: str, of: Mapping[str, Mapping[str, Group]]) -> tuple[str, str]:
    group = next(told[name] for told in of.values() if name in told)
    return f"{group.jobs:,}", percent(group.share)


def _cell(group: Group | None, size_s: float) -> str:
    if group is None:
        return ""
    mean, high = (figures(s / size_s) for s in (group.wait_mean_s, group.wait_p95_s))
    return f"{mean} <small>95 %: {high}</small>"


def dots(
    means: Mapping[str, Array], names: Sequence[str], unit: str, name: str, on: Sheet = DESK
) -> str:
    """Mean waits, a row a group and a dot a policy, a hollow diamond for what was recorded."""
    policies = list(means)
    under_in = 0.08 + ROW_IN * len(policies) if on.narrow else 0.0
    labels = [short(one, LETTERS) for one in names]
    with matplotlib.rc_context(STYLE):
        rows_in = max(0.21 * len(names) + 0.2, 0.0 if on.narrow else ROW_IN * len(policies))
        figure, axes = blank(
            rows_in + FOOT_IN + 0.1 + under_in,
            on=on,
            left_in=0.25 + 0.9 * LETTER_IN * max(map(len, labels)),
            right_in=0.15 if on.narrow else beside_in(policies),
            foot_in=FOOT_IN + under_in,
        )
        ax, place = axes[0, 0], np.arange(len(names))
        logarithmic = _wait_axis(ax, np.concatenate(list(means.values())))
        for policy, colour in paint(policies).items():
            mark = "D" if policy == RECORDED else "o"
            face = "none" if policy == RECORDED else colour
            ax.plot(np.maximum(means[policy], ax.get_xlim()[0]), place, mark, label=short(policy),
                    markersize=5.5, markerfacecolor=face, markeredgecolor=colour, alpha=0.85,
                    clip_on=False)  # fmt: skip
        ax.set_yticks(place, labels)
        ax.set_ylim(len(names) - 0.4, -0.6)
        ax.set_xlabel(f"mean wait ({unit}{', log scale' if logarithmic else ''})")
        legend(ax, on)
        return svg(figure, name + on.mark)


def _wait_axis(ax: Axes, values: Array) -> bool:
    """Whether the axis is logarithmic: where waits lie far apart. Zeros stand at its left end."""
    above = values[values > 0]
    high = float(above.max())
    logarithmic = high > LARGE * float(above.min())
    if logarithmic:
        low = 10.0 ** np.floor(np.log10(max(float(above.min()), high / 1e5)))
        ax.set_xscale("log")
        ax.set_xlim(low, 1.3 * high)
        ax.xaxis.set_minor_locator(NullLocator())
    else:
        ax.set_xlim(0, 1.05 * high)
        ax.xaxis.set_major_locator(MaxNLocator(6))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: plain(x)))
    return logarithmic
