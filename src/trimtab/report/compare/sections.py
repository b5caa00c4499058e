"""The sections of the page with plots: distributions, series over time, what ran where."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from trimtab.arrays import Array
from trimtab.core import Profile
from trimtab.metrics import RECORDED, Result
from trimtab.report.compare import gantt, plots, series
from trimtab.report.drawing import MOST_SERIES, Sheet, both, short
from trimtab.report.markup import figure, named, table
from trimtab.units import figures, unit

NOBODY = "Nobody waited: every job that started did so as soon as it was submitted."
PERCENTS = (50, 90, 95, 99)
MOST_GANTTS = 6
POWER_ERROR = 0.01  # a power series further from the metered energy than this is not shown


def left_out(rows: Sequence[object]) -> str:
    """A sentence where there are more policies than colours."""
    if len(rows) <= MOST_SERIES:
        return ""
    return f"The first {MOST_SERIES} of {len(rows):,} policies in the order of the table."


def distributions(groups: Mapping[str, Sequence[Result]], unit: tuple[float, str]) -> str:
    """Waits and slow-downs as distributions, or in a sentence where there is nothing to draw."""
    if is_packing(groups):
        return ""
    fewer = left_out(list(groups))
    seeds = max(len(group) for group in groups.values())
    pooled = f"Jobs of all {seeds} seeds together. " if seeds > 1 else ""
    chosen = plots.drawn(list(groups))

    def all_of(values: Callable[[Result], Array]) -> dict[str, Array]:
        found = {key: np.concatenate([values(r) for r in groups[key]]) for key in chosen}
        return {key: each for key, each in found.items() if len(each)}

    wait_s, slow = all_of(series.waits_s), all_of(series.slowdowns)
    told = f"Share of the jobs that waited at most this long. {pooled}{fewer}"
    parts = ["<h2>Distributions</h2><h3>Wait</h3>"]
    if not any(values.any() for values in wait_s.values()):
        parts.append(f"<p>{NOBODY}</p>" if wait_s else "<p>No job started.</p>")
    else:
        idle = [named(key) for key, values in wait_s.items() if not values.any()]
        parts.append(f"<p>Nobody waited under {', '.join(idle)}.</p>" if idle else "")
        parts.append(_compared(wait_s, lambda few, on: plots.waits(few, unit, on), "wait", told))
        parts.append(_quantiles({key: values / unit[0] for key, values in wait_s.items()}, unit[1]))
    parts.append("<h3>Bounded slow-down</h3>")
    told = f"Share of the finished jobs that were slowed down at most this much. {pooled}{fewer}"
    if not any((values > 1).any() for values in slow.values()):
        parts.append("<p>No finished job was slowed down.</p>" if slow else "<p>No job ended.</p>")
    else:
        parts.append(_compared(slow, plots.slowdowns, "bounded slow-down", told))
        parts.append(_quantiles(slow, ""))
    return "".join(parts)


def _compared(
    pooled: Mapping[str, Array], draw: Callable[[Mapping[str, Array], Sheet], str], what: str,
    caption: str,
) -> str:  # fmt: skip
    """The distributions where they differ; one line where all are the same."""
    first, *others = (np.sort(values) for values in pooled.values())
    same = len(pooled) > 1 and all(np.array_equal(first, other) for other in others)
    few = {"all alike": first} if same else pooled
    said = "All of them have the same distribution. " if same else ""
    drawn = both(lambda on: draw(few, on))
    return figure(drawn, f"Distribution of {what}", said + caption)


def _quantiles(pooled: Mapping[str, Array], unit: str) -> str:
    """A row a policy: the plot in figures."""
    rows = [
        [named(key), *(figures(float(value)) for value in np.percentile(values, PERCENTS)),
         figures(float(values.max()))]
        for key, values in pooled.items()
    ]  # fmt: skip
    head = ["median", *(f"{percent} %" for percent in PERCENTS[1:]), "most"]
    return table([f"at most{f' ({unit})' if unit else ''}", *head], rows)


def over_time(groups: Mapping[str, Sequence[Result]], profile: Profile | None) -> str:
    first = {key: groups[key][0] for key in plots.drawn(list(groups))}
    seeds = {result.seed for result in first.values()}
    several = any(len(group) > 1 for group in groups.values())
    of_seed = f"Of the first seed ({', '.join(map(str, sorted(seeds)))}) alone. " if several else ""
    said = f"{of_seed}{left_out(list(groups))}"
    span = series.span_of(first.values())
    if span.last_s <= span.first_s:
        return ""
    packing = is_packing(groups)
    ends_s = {key: series.span_s(result)[1] for key, result in first.items()}
    scale = None if profile is None else np.array([shape.scale for shape in profile.shapes])
    shares = {key: series.allocated(result, scale=scale) for key, result in first.items()}
    lines = {key: of for key, of in shares.items() if of is not None}
    measured = series.measured_resource(next(iter(first.values())))
    resource = "GPUs" if measured == "gpu" else f"{measured}s"
    parts = [f"<h2>{'As pods arrive' if packing else 'Over time'}</h2>"]
    if span.drains and not packing:
        parts.append(f"<p>{_drain(span, ends_s)}</p>")
    if lines:
        over = "pods arrived" if packing else ""
        drawn = both(
            lambda on: plots.panels(
                lines, span, "utilisation", label="allocated", over=over, ends_s=ends_s, on=on
            )
        )
        share = f"Allocated share of the {resource}"
        caption = f"{share}; dashed: its mean{_until(span)}. {_bins(span, packing)}{said}"
        parts.append(f"<h3>Utilisation</h3>{figure(drawn, f'{share} over time', caption)}")
    parts.append(_by_kind(first, span, resource, scale, of_seed))
    if not packing:
        parts.append(_queue(first, span, said))
    parts.append(_power(first, span, profile, said))
    return "".join(parts)


def _drain(span: series.Span, ends_s: Mapping[str, float]) -> str:
    """How long the cluster runs on after the last arrival."""
    size_s, name = span.unit
    tails = [max(end_s - span.arrived_s, 0.0) / size_s for end_s in ends_s.values()]
    least, most = figures(min(tails)), figures(max(tails))
    long = most if least == most else f"{least} to {most}"
    arrived = figures((span.arrived_s - span.first_s) / size_s)
    return (
        f"Shaded: the drain. Jobs arrive for {arrived} {name}; the last one to run ends {long} "
        f"{name} after that. The cluster empties meanwhile, so means leave the drain out."
    )


def _until(span: series.Span) -> str:
    return " while jobs arrive" if span.arrived_s > span.first_s else ""


def _queue(first: Mapping[str, Result], span: series.Span, said: str) -> str:
    """Jobs that wait over time, or a sentence where none does for any time."""
    if not any(series.waits_s(result).any() for result in first.values()):
        return f"<h3>Queue length</h3><p>{NOBODY}</p>"
    lines = {key: series.queue_length(result) for key, result in first.items()}
    drawn = both(lambda on: plots.queue(lines, span, on))
    caption = f"Jobs that could run and do not. {_bins(span, False)}{said}"
    return f"<h3>Queue length</h3>{figure(drawn, 'Queue length over time', caption)}"


def _bins(span: series.Span, packing: bool) -> str:
    width_s = (span.last_s - span.first_s) / plots.BINS[False]
    if packing:
        return f"Means over {width_s:,.0f} arrivals each. "
    size, name = unit("time", [width_s])
    return f"Means over {figures(width_s / size)} {name} each. "


def _by_kind(
    first: Mapping[str, Result], span: series.Span, resource: str, scale: Array | None, of_seed: str
) -> str:
    """The allocated share a node kind, for the policy at the top of the table."""
    policy = next((key for key in first if key != RECORDED), RECORDED)
    result = first[policy]
    kinds = result.cluster.kinds  # what partitions split keeps its name
    lines = {
        name: series.allocated(result, [k for k, of in enumerate(kinds) if of == name], scale=scale)
        for name in kinds
    }
    known = {kind: of for kind, of in lines.items() if of is not None and len(of.time_s)}
    if result.log is None or len(known) < 2:
        return ""
    few = dict(list(known.items())[:MOST_SERIES])
    left = f" {len(known) - len(few)} more kinds are left out." if len(few) < len(known) else ""
    ends_s = dict.fromkeys(few, series.span_s(result)[1])
    drawn = both(
        lambda on: plots.panels(
            few, span, "kinds", label="allocated", one_colour=True, ends_s=ends_s, on=on
        )
    )
    caption = (
        f"Allocated share of the {resource} a node kind under {short(policy)}.{left} {of_seed}"
    )
    return (
        f"<h3>Utilisation by node kind</h3>{figure(drawn, 'Allocated share by node kind', caption)}"
    )


def _power(
    first: Mapping[str, Result], span: series.Span, profile: Profile | None, said: str
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
    drawn = both(
        lambda on: plots.panels(
            lines, span, "power", label=f"power ({name})", share=False, size=size, ends_s=ends_s,
            on=on,
        )
    )  # fmt: skip
    until = "until its last job ends; dashed: its mean" + _until(span)
    caption = f"Power of all nodes, idle draw included, {until}. {_bins(span, False)}{said}"
    return f"<h3>Power</h3>{figure(drawn, 'Power over time', caption)}"


def gantts(groups: Mapping[str, Sequence[Result]]) -> str:
    """The best policy's in full view, the others folded, all of the same stretch of time."""
    logged = {key: group[0] for key, group in groups.items() if group[0].log is not None}
    if not logged:
        return ""
    chosen = list(logged)[:MOST_GANTTS]
    best = logged[chosen[0]]
    window_s = gantt.window_s(best)
    span = series.span_of(group[0] for group in groups.values())
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
        drawn, caption = gantt.gantt(logged[key], f"gantt{i}", window_s, span)
        seed = (
            f" Seed {logged[key].seed}." if any(len(group) > 1 for group in groups.values()) else ""
        )
        body = figure(drawn, f"What ran where under {short(key)}", f"{caption}{seed}")
        name = named(key)
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
