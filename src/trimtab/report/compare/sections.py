"""The sections of the page with plots: distributions, series over time, what ran where."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape

import numpy as np

from trimtab.arrays import Array
from trimtab.core import Profile
from trimtab.metrics import Result
from trimtab.report.compare import gantt, plots, series
from trimtab.report.drawing import MOST_SERIES
from trimtab.report.markup import figure
from trimtab.units import figures, unit

MOST_GANTTS = 6
POWER_ERROR = 0.01  # a power series further from the metered energy than this is not shown


def left_out(rows: Sequence[object]) -> str:
    """A sentence where there are more policies than colours."""
    if len(rows) <= MOST_SERIES:
        return ""
    return f"The first {MOST_SERIES} of {len(rows)} policies in the order of the table."


def distributions(groups: Mapping[str, Sequence[Result]]) -> str:
    if is_packing(groups):
        return ""
    fewer = left_out(list(groups))
    seeds = max(len(group) for group in groups.values())
    pooled = f"Jobs of all {seeds} seeds together. " if seeds > 1 else ""
    chosen = list(groups)[:MOST_SERIES]

    def all_of(values: Callable[[Result], Array]) -> dict[str, Array]:
        return {key: np.concatenate([values(r) for r in groups[key]]) for key in chosen}

    wait = figure(
        plots.waits(all_of(series.waits_s)),
        "Distribution of wait",
        f"Share of the jobs that waited at most this long. {pooled}{fewer}",
    )
    slow = figure(
        plots.slowdowns(all_of(series.slowdowns)),
        "Distribution of bounded slow-down",
        f"Share of the finished jobs that were slowed down at most this much. {pooled}{fewer}",
    )
    return f"<h2>Distributions</h2><h3>Wait</h3>{wait}<h3>Bounded slow-down</h3>{slow}"


def over_time(groups: Mapping[str, Sequence[Result]], profile: Profile | None) -> str:
    first = {key: groups[key][0] for key in list(groups)[:MOST_SERIES]}
    seeds = {result.seed for result in first.values()}
    several = any(len(group) > 1 for group in groups.values())
    of_seed = f"Of the first seed ({', '.join(map(str, sorted(seeds)))}) alone. " if several else ""
    said = f"{of_seed}{left_out(list(groups))}"
    spans = [series.span_s(result) for result in first.values()]
    span_s = min(s[0] for s in spans), max(s[1] for s in spans)
    if span_s[1] <= span_s[0]:
        return ""
    packing = is_packing(groups)
    ends_s = {key: series.span_s(result)[1] for key, result in first.items()}
    scale = None if profile is None else np.array([shape.scale for shape in profile.shapes])
    shares = {key: series.allocated(result, scale=scale) for key, result in first.items()}
    lines = {key: of for key, of in shares.items() if of is not None}
    measured = series.measured_resource(next(iter(first.values())))
    resource = "GPUs" if measured == "gpu" else f"{measured}s"
    parts = [f"<h2>{'As pods arrive' if packing else 'Over time'}</h2>"]
    if lines:
        drawn = plots.panels(
            lines,
            span_s,
            "utilisation",
            label="allocated",
            over="pods arrived" if packing else "",
            ends_s=ends_s,
        )
        until = "" if packing else " until the policy's last job ends"
        share = f"Allocated share of the {resource}"
        caption = f"{share}; dashed: its mean{until}. {_bins(span_s, packing)}{said}"
        parts.append(f"<h3>Utilisation</h3>{figure(drawn, f'{share} over time', caption)}")
    parts.append(_by_kind(first, resource, scale, of_seed))
    if not packing:
        queue = plots.queue({key: series.queue_length(r) for key, r in first.items()}, span_s)
        caption = f"Jobs that could run and do not. {_bins(span_s, False)}{said}"
        parts.append(f"<h3>Queue length</h3>{figure(queue, 'Queue length over time', caption)}")
    parts.append(_power(first, span_s, profile, said))
    return "".join(parts)


def _bins(span_s: tuple[float, float], packing: bool) -> str:
    width_s = (span_s[1] - span_s[0]) / plots.BINS
    if packing:
        return f"Means over {width_s:,.0f} arrivals each. "
    size, name = unit("time", [width_s])
    return f"Means over {figures(width_s / size)} {name} each. "


def _by_kind(first: Mapping[str, Result], resource: str, scale: Array | None, of_seed: str) -> str:
    """The allocated share a node kind, for the policy at the top of the table."""
    policy, result = next(iter(first.items()))
    lines = {
        kind: series.allocated(result, k, scale=scale)
        for k, kind in enumerate(result.cluster.kinds)
    }
    known = {kind: of for kind, of in lines.items() if of is not None and len(of.time_s)}
    if result.log is None or len(known) < 2:
        return ""
    few = dict(list(known.items())[:MOST_SERIES])
    left = f" {len(known) - len(few)} more kinds are left out." if len(few) < len(known) else ""
    drawn = plots.panels(few, series.span_s(result), "kinds", label="allocated", one_colour=True)
    caption = f"Allocated share of the {resource} a node kind under {policy}.{left} {of_seed}"
    return (
        f"<h3>Utilisation by node kind</h3>{figure(drawn, 'Allocated share by node kind', caption)}"
    )


def _power(
    first: Mapping[str, Result], span_s: tuple[float, float], profile: Profile | None, said: str
) -> str:
    found = {key: series.power(result, profile) for key, result in first.items()}
    lines = {key: of for key, of in found.items() if of is not None}
    if not lines or not any(float(first[key].totals["energy_j"]) for key in lines):
        return ""
    error = max(series.power_error(first[key], of) for key, of in lines.items())
    if error > POWER_ERROR:
        return (
            '<h3>Power</h3><p class="faint">Not drawn: what the log tells of power does not add up '
            f"to the energy that was metered ({error:.0%} apart), because jobs differ in draw or "
            "use by a profile or pattern that is not in the log.</p>"
        )
    ends_s = {key: series.span_s(first[key])[1] for key in lines}
    peak_w = max(float(of.value.max()) for of in lines.values())
    size, name = (1000.0, "kW") if peak_w >= 2000 else (1.0, "W")
    drawn = plots.panels(
        lines, span_s, "power", label=f"power ({name})", share=False, size=size, ends_s=ends_s
    )
    until = "until its last job ends"
    caption = f"Power of all nodes, idle draw included, {until}. {_bins(span_s, False)}{said}"
    return f"<h3>Power</h3>{figure(drawn, 'Power over time', caption)}"


def gantts(groups: Mapping[str, Sequence[Result]]) -> str:
    """The best policy's in full view, the others folded, all of the same stretch of time."""
    logged = {key: group[0] for key, group in groups.items() if group[0].log is not None}
    if not logged:
        return ""
    chosen = list(logged)[:MOST_GANTTS]
    best = logged[chosen[0]]
    window_s = gantt.window_s(best)
    pool = len(best.cluster) == 1
    how = (
        "A bar is as high as the units its job holds, and stands where there is room"
        if pool
        else "A bar is as high as its share of the node's GPUs (of the first resource without "
        "GPUs) and stands where there is room, not at a device's number; jobs that hold none are "
        "the thin strip below"
    )
    tell = (
        " Jobs of one kind: the colours only tell neighbours apart."
        if len(best.workload.kinds) == 1
        else ""
    )
    parts = [
        f"<h2>What ran where</h2><p>{how}. Very short runs are drawn wide enough to be seen."
        f"{tell}</p>"
    ]
    for i, key in enumerate(chosen):
        drawn, caption = gantt.gantt(logged[key], f"gantt{i}", window_s)
        seed = (
            f" Seed {logged[key].seed}." if any(len(group) > 1 for group in groups.values()) else ""
        )
        body = figure(drawn, f"What ran where under {key}", f"{caption}{seed}")
        name = escape(key)
        parts.append(
            f"<h3>{name}</h3>{body}"
            if i == 0
            else f"<details><summary>{name}</summary>{body}</details>"
        )
    if len(logged) > len(chosen):
        parts.append(
            f'<p class="faint">{len(logged) - len(chosen)} more policies are not drawn.</p>'
        )
    return "".join(parts)


def is_packing(groups: Mapping[str, Sequence[Result]]) -> bool:
    return any(result.semantics == "packing" for group in groups.values() for result in group)
