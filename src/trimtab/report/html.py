"""One self-contained HTML page of a comparison: inline style and SVG, no script, nothing from a network."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from html import escape
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

from trimtab.core import Array, Cluster, Profile, Workload
from trimtab.metrics import ABOUT, Result, measure
from trimtab.report import gantt, plots, series
from trimtab.report.table import Row, by_policy, columns, shown, strongest_rule, summary, unit

MORE_ABOUT = {
    "wait_p95_s": "95 % of the jobs that started waited at most this long",
    "preemptions": "times a running job was stopped and put back into the queue",
    "failed": "jobs that ended without finishing their work",
    "rejected": "jobs that were turned away",
    "versus": "mean JCT as a multiple of the strongest simple rule's, taken seed by seed and averaged",
    "gpu_fragmented": "share of the GPUs that is free and of no use to the pods expected",
    "dropped": "pods that fitted nowhere when they arrived",
}
MOST_GANTTS = 6
POWER_ERROR = 0.01  # a power series further from the metered energy than this is not shown
CSS = """
:root{color-scheme:light;--ink:#24292f;--faint:#6e7781;--line:#d8dee4;--soft:#f6f8fa;--best:#e3f3ea}
*{box-sizing:border-box}
body{margin:0;background:#fff;color:var(--ink);line-height:1.5;font-size:15px;
font-family:system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
svg text{font-family:system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif!important}
main,header>div{max-width:1140px;margin:0 auto;padding:0 20px}
header{background:var(--soft);border-bottom:1px solid var(--line);padding:22px 0 16px}
h1{font-size:25px;line-height:1.25;margin:0 0 10px;overflow-wrap:anywhere}
h2{font-size:19px;margin:38px 0 6px;padding-bottom:4px;border-bottom:1px solid var(--line)}
h3{font-size:15px;margin:24px 0 2px}
p{margin:8px 0;max-width:78ch}
dl.facts{display:grid;grid-template-columns:max-content 1fr;gap:2px 16px;margin:0;font-size:14px}
dl.facts dt,figcaption,.faint{color:var(--faint)}
dl.facts dd{margin:0;overflow-wrap:anywhere}
dl.about dt{font-weight:600;margin-top:6px}
dl.about dd{margin:0;max-width:78ch}
code{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;font-size:13px}
.wide{overflow-x:auto;margin:12px 0}
table{border-collapse:collapse;font-size:14px;font-variant-numeric:tabular-nums}
.metrics{width:100%;font-size:13.5px}
.metrics th,.metrics td{padding:5px 8px}
td small{color:var(--faint);font-weight:400;font-size:12px}
th,td{padding:5px 12px;text-align:right;white-space:nowrap;border-bottom:1px solid var(--line)}
.metrics thead th{max-width:9em}
thead th{vertical-align:bottom;font-weight:600;white-space:normal;border-bottom:2px solid var(--line)}
thead th small{display:block;font-weight:400;color:var(--faint)}
tbody th{font-weight:500}
th:first-child,td:first-child{text-align:left}
td.best{background:var(--best);font-weight:700}
figure{margin:8px 0 20px;overflow-x:auto}
figure svg{display:block;width:100%;height:auto;min-width:560px}
figcaption{font-size:13.5px;max-width:86ch}
.swatch{display:inline-block;width:.72em;height:.72em;border-radius:2px;margin-right:.5em}
ul.notes{margin:8px 0;padding-left:20px}
details{margin:8px 0}
summary{cursor:pointer;color:#0b5cad}
footer{margin:44px 0 28px;color:var(--faint);font-size:13px}
@media print{figure,tr{break-inside:avoid}header{background:none}}
"""


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

    Several seeds of a policy pool their distributions; series over time are those of the first seed.
    `measured` gives a result's metrics. `profile` is the one that was simulated: without it power is
    drawn only where it agrees with the metered energy. `now` dates the page; None = the present.
    """
    if not results:
        raise ValueError("write_report: no results; run at least one policy")
    path = Path(path)
    text = page(results, title, command, notes, measured, profile, now or datetime.now().astimezone())
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
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
    parts = [
        _header(results, rows, title, command, now),
        "<main>",
        _outcome(rows, groups),
        "".join(f"<h2>Notes</h2>{_list(notes)}" if notes else ""),
        _distributions(groups),
        _over_time(groups, profile),
        _gantts(groups),
        _workload(results[0].workload, len({id(r.workload) for r in results})),
        _cluster(results[0].cluster),
        _meanings(rows),
        f"<footer>Made by trimtab {escape(_version('trimtab'))}. The page is complete: it loads nothing.</footer>",
        "</main>",
    ]
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{CSS}</style>\n</head>\n<body>\n"
        + "\n".join(part for part in parts if part)
        + "\n</body>\n</html>\n"
    )


def _header(results: Sequence[Result], rows: Sequence[Row], title: str, command: str, now: datetime) -> str:
    seeds = sorted({result.seed for result in results})
    traces = list(dict.fromkeys(result.workload.source for result in results))
    clusters = list(dict.fromkeys(result.cluster.source for result in results))
    several = len(seeds) > 1 and seeds == list(range(seeds[0], seeds[-1] + 1))
    packages = ", ".join(f"{name} {_version(name)}" for name in ("trimtab", "numpy", "numba"))
    facts = {
        "Trace": escape("; ".join(traces)),
        "Cluster": escape("; ".join(clusters)),
        "Policies": escape(", ".join(row.policy for row in rows)),
        "Seeds": f"{seeds[0]} to {seeds[-1]}" if several else ", ".join(map(str, seeds)),
        "Command": f"<code>{escape(command)}</code>",
        "Versions": escape(f"{packages}, Python {platform.python_version()}"),
        "Date": escape(now.strftime("%Y-%m-%d %H:%M %Z").strip()),
    }
    return f"<header><div><h1>{escape(title)}</h1>{_facts(facts)}</div></header>"


def _outcome(rows: Sequence[Row], groups: Mapping[str, Sequence[Result]]) -> str:
    """The table of metrics, what it says in a sentence or two, and the same as bars."""
    told = columns(rows)
    head = "".join(
        f"<th>{escape(column.title)}<small>{escape(column.unit)}</small></th>" for column in told
    )
    paint = plots.colours([row.policy for row in rows][: plots.MOST_SERIES])
    body = ""
    for i, row in enumerate(rows):
        swatch = f'<span class="swatch" style="background:{paint[row.policy]}"></span>' if row.policy in paint else ""
        cells = "".join(_cell(column.cells[i], column.best[i]) for column in told)
        body += f"<tr><td>{swatch}{escape(row.policy)}</td>{cells}</tr>"
    seeds = max(len(row.seeds) for row in rows)
    over = f"Means over {seeds} seeds ± half of the 95 % interval (Student's t). " if seeds > 1 else ""
    over += "Shaded: the best of its column. " if len(rows) > 1 else ""
    table = f'<div class="wide"><table class="metrics"><thead><tr><th>policy</th>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    sentences = " ".join(_sentences(rows, groups))
    chart = _figure(plots.bars(rows[: plots.MOST_SERIES]), "Mean metrics a policy", _few(rows) or "")
    return f"<h2>Outcome</h2><p>{sentences}</p>{table}<p class=\"faint\">{over}</p>{chart}"


def _cell(text: str, best: bool) -> str:
    """A value, with its interval in smaller print."""
    value, plus_minus, half = text.partition(" ± ")
    small = f" <small>± {escape(half)}</small>" if plus_minus else ""
    mark = ' class="best"' if best else ""
    return f"<td{mark}>{escape(value)}{small}</td>"


def _sentences(rows: Sequence[Row], groups: Mapping[str, Sequence[Result]]) -> list[str]:
    """The strongest rule, how the rest stands to it, and who left jobs unfinished."""
    told, rule = [], strongest_rule(rows)
    if rule is not None and "jct_mean_s" in rule.mean:
        size, name = unit("time", [rule.mean["jct_mean_s"]])
        half = rule.half["jct_mean_s"]
        jct = shown(rule.mean["jct_mean_s"] / size, None if half is None else half / size)
        told.append(f"The strongest simple rule is <strong>{escape(rule.policy)}</strong>, with a mean JCT of {jct} {name}.")
        learned = next((row for row in rows if not row.is_rule), None)
        if learned is not None:
            told.append(_against(learned, rule))
    for row in rows:
        jobs = float(np.mean([(r.workload.truth["service"] == 0).sum() for r in groups[row.policy]]))
        done = row.mean.get("finished", jobs)
        if done < jobs:
            told.append(
                f"{escape(row.policy)} finished {done:,.{0 if done == int(done) else 1}f} of {jobs:,.0f} jobs: "
                f"its mean JCT and slow-down leave the others out."
            )
    return told


def _against(learned: Row, rule: Row) -> str:
    """Whether the best of the other policies is ahead, by the paired interval where there is one."""
    name = escape(learned.policy)
    if learned.versus is None or learned.versus[1] is None:
        ratio = learned.mean["jct_mean_s"] / max(rule.mean["jct_mean_s"], 1e-300)
        return f"<strong>{name}</strong> needs {shown(ratio)} times as long; one seed cannot tell whether that is chance."
    ratio, half = learned.versus
    if ratio + half < 1:
        verdict = "ahead of it on these seeds beyond chance"
    elif ratio - half > 1:
        verdict = "behind it on these seeds beyond chance"
    else:
        verdict = "not told apart from it by these seeds"
    return f"<strong>{name}</strong> needs {shown(ratio, half)} times as long: {verdict}."


def _few(rows: Sequence[object]) -> str:
    if len(rows) <= plots.MOST_SERIES:
        return ""
    return f"The first {plots.MOST_SERIES} of {len(rows)} policies in the order of the table."


def _distributions(groups: Mapping[str, Sequence[Result]]) -> str:
    if _is_packing(groups):
        return ""
    few = _few(list(groups))
    seeds = max(len(group) for group in groups.values())
    pooled = f"Jobs of all {seeds} seeds together. " if seeds > 1 else ""
    chosen = list(groups)[: plots.MOST_SERIES]

    def all_of(values: Callable[[Result], Array]) -> dict[str, Array]:
        return {key: np.concatenate([values(r) for r in groups[key]]) for key in chosen}

    wait = _figure(
        plots.waits(all_of(series.waits_s)),
        "Distribution of wait",
        f"Share of the jobs that waited at most this long. {pooled}{few}",
    )
    slow = _figure(
        plots.slowdowns(all_of(series.slowdowns)),
        "Distribution of bounded slow-down",
        f"Share of the finished jobs that were slowed down at most this much. {pooled}{few}",
    )
    return f"<h2>Distributions</h2><h3>Wait</h3>{wait}<h3>Bounded slow-down</h3>{slow}"


def _over_time(groups: Mapping[str, Sequence[Result]], profile: Profile | None) -> str:
    first = {key: groups[key][0] for key in list(groups)[: plots.MOST_SERIES]}
    seeds = {result.seed for result in first.values()}
    several = any(len(group) > 1 for group in groups.values())
    of_seed = f"Of the first seed ({', '.join(map(str, sorted(seeds)))}) alone. " if several else ""
    said = f"{of_seed}{_few(list(groups))}"
    spans = [series.span_s(result) for result in first.values()]
    span_s = min(s[0] for s in spans), max(s[1] for s in spans)
    if span_s[1] <= span_s[0]:
        return ""
    packing = _is_packing(groups)
    ends_s = {key: series.span_s(result)[1] for key, result in first.items()}
    scale = None if profile is None else np.array([shape.scale for shape in profile.shapes])
    shares = {key: series.allocated(result, scale=scale) for key, result in first.items()}
    lines = {key: of for key, of in shares.items() if of is not None}
    resource = {"gpu": "GPUs"}.get(name := series.measured_resource(next(iter(first.values()))), f"{name}s")
    parts = ["<h2>Over time</h2>"]
    if lines:
        drawn = plots.panels(
            lines, span_s, "utilisation", label="allocated", over="pods arrived" if packing else "", ends_s=ends_s
        )
        until = "" if packing else " until the policy's last job ends"
        caption = f"Allocated share of the {resource}; dashed: its mean{until}. {_bins(span_s, packing)}{said}"
        parts.append(f"<h3>Utilisation</h3>{_figure(drawn, f'Allocated share of the {resource} over time', caption)}")
    parts.append(_by_kind(first, resource, scale, of_seed))
    if not packing:
        queue = plots.queue({key: series.queue_length(r) for key, r in first.items()}, span_s)
        caption = f"Jobs that could run and do not. {_bins(span_s, False)}{said}"
        parts.append(f"<h3>Queue length</h3>{_figure(queue, 'Queue length over time', caption)}")
    parts.append(_power(first, span_s, profile, said))
    return "".join(parts)


def _bins(span_s: tuple[float, float], packing: bool) -> str:
    width_s = (span_s[1] - span_s[0]) / plots.BINS
    if packing:
        return f"Means over {width_s:,.0f} arrivals each. "
    size, name = unit("time", [width_s])
    return f"Means over {shown(width_s / size)} {name} each. "


def _by_kind(first: Mapping[str, Result], resource: str, scale: Array | None, of_seed: str) -> str:
    """The allocated share a node kind, for the policy at the top of the table."""
    policy, result = next(iter(first.items()))
    lines = {
        kind: series.allocated(result, k, scale=scale) for k, kind in enumerate(result.cluster.kinds)
    }
    known = {kind: of for kind, of in lines.items() if of is not None and len(of.time_s)}
    if result.log is None or len(known) < 2:
        return ""
    few = dict(list(known.items())[: plots.MOST_SERIES])
    left = f" {len(known) - len(few)} more kinds are left out." if len(few) < len(known) else ""
    drawn = plots.panels(few, series.span_s(result), "kinds", label="allocated", one_colour=True)
    caption = f"Allocated share of the {resource} a node kind under {policy}.{left} {of_seed}"
    return f"<h3>Utilisation by node kind</h3>{_figure(drawn, 'Allocated share by node kind', caption)}"


def _power(first: Mapping[str, Result], span_s: tuple[float, float], profile: Profile | None, said: str) -> str:
    found = {key: series.power(result, profile) for key, result in first.items()}
    lines = {key: of for key, of in found.items() if of is not None}
    if not lines:
        return ""
    error = max(series.power_error(first[key], of) for key, of in lines.items())
    if error > POWER_ERROR:
        return (
            "<h3>Power</h3><p class=\"faint\">Not drawn: what the log tells of power does not add up to the "
            f"energy that was metered ({error:.0%} apart), because jobs differ in draw or use by a profile "
            "or pattern that is not in the log.</p>"
        )
    ends_s = {key: series.span_s(first[key])[1] for key in lines}
    peak_w = max(float(of.value.max()) for of in lines.values())
    size, name = (1000.0, "kW") if peak_w >= 2000 else (1.0, "W")
    drawn = plots.panels(lines, span_s, "power", label=f"power ({name})", share=False, size=size, ends_s=ends_s)
    caption = f"Power of all nodes, idle draw included, until its last job ends. {_bins(span_s, False)}{said}"
    return f"<h3>Power</h3>{_figure(drawn, 'Power over time', caption)}"


def _gantts(groups: Mapping[str, Sequence[Result]]) -> str:
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
        else "A bar is as high as its share of the node's GPUs (of the first resource without GPUs) and stands "
        "where there is room, not at a device's number; jobs that hold none are the thin strip below"
    )
    tell = " Jobs of one kind: the colours only tell neighbours apart." if len(best.workload.kinds) == 1 else ""
    parts = [f"<h2>What ran where</h2><p>{how}. Very short runs are drawn wide enough to be seen.{tell}</p>"]
    for i, key in enumerate(chosen):
        drawn, caption = gantt.gantt(logged[key], f"gantt{i}", window_s)
        seed = f" Seed {logged[key].seed}." if any(len(group) > 1 for group in groups.values()) else ""
        body = _figure(drawn, f"What ran where under {key}", f"{caption}{seed}")
        name = escape(key)
        parts.append(f"<h3>{name}</h3>{body}" if i == 0 else f"<details><summary>{name}</summary>{body}</details>")
    if len(logged) > len(chosen):
        parts.append(f'<p class="faint">{len(logged) - len(chosen)} more policies are not drawn.</p>')
    return "".join(parts)


def _workload(work: Workload, workloads: int) -> str:
    jobs, truth = work.jobs, work.truth
    finite = truth["work_s"][np.isfinite(truth["work_s"])]
    gangs = int(((jobs["instances"] > 1) & (jobs["gang"] == 1)).sum())
    facts = {
        "Jobs": f"{len(work):,}",
        "Submitted over": _time(float(jobs["submit_s"].max() - jobs["submit_s"].min())),
        "Run time at rate 1": " · ".join(
            f"{name} {_time(float(value))}"
            for name, value in zip(("median", "mean", "95 %", "longest"), _spread(finite))
        ),
        "Requested time": f"median {_time(float(np.median(jobs['request_s'])))}",
        "Gangs": f"{gangs:,} jobs of several instances that start together" if gangs else "none",
        "Deadlines": f"{int(np.isfinite(jobs['deadline_s']).sum()):,} jobs",
        "Services": f"{int(truth['service'].sum()):,}",
        "Tenants": f"{len(np.unique(jobs['tenant'])):,}",
    }
    facts = {name: text for name, text in facts.items() if text not in ("none", "0", "0 jobs")}
    count = np.bincount(jobs["kind"], minlength=len(work.kinds))
    rows = []
    for k in np.argsort(-count, kind="stable"):
        own = jobs["kind"] == k
        if own.any():
            middle = [_amount(float(np.median(work.demand[own, r]))) for r in range(len(work.resources))]
            run_s = _time(float(np.median(truth["work_s"][own])))
            rows.append([work.kinds[k], f"{count[k]:,}", f"{count[k] / len(work):.1%}", run_s, *middle])
    head = ["kind", "jobs", "share", "median run", *(f"median {name}" for name in work.resources)]
    several = f"<p class=\"faint\">Of the first of {workloads} workloads: each seed draws its own.</p>" if workloads > 1 else ""
    facts = {name: escape(text) for name, text in facts.items()}
    return f"<h2>Workload</h2><p>{escape(work.source)}</p>{several}{_facts(facts)}{_plain_table(head, rows)}"


def _spread(values: Array) -> tuple[float, float, float, float]:
    if not len(values):
        return 0.0, 0.0, 0.0, 0.0
    return float(np.median(values)), float(values.mean()), float(np.percentile(values, 95)), float(values.max())


def _cluster(machine: Cluster) -> str:
    rows = []
    for k, kind in enumerate(machine.kinds):
        own = machine.nodes["kind"] == k
        if not own.any():
            continue
        each = [_range(machine.capacity[own, r]) for r in range(len(machine.resources))]
        rows.append([kind, f"{int(own.sum()):,}", *each, _range(machine.nodes["gpu_mem_gb"][own]),
                     _range(machine.nodes["idle_w"][own]), _range(machine.nodes["peak_w"][own])])  # fmt: skip
    total = [_amount(float(machine.capacity[:, r].sum())) for r in range(len(machine.resources))]
    rows.append(["all", f"{len(machine):,}", *total, "", "", _amount(float(machine.nodes["peak_w"].sum()))])
    head = ["kind", "nodes", *(f"{name} a node" for name in machine.resources), "GPU memory (GB)", "idle (W)", "peak (W)"]
    keep = [c for c in range(len(head)) if c < 2 or any(row[c] not in ("0", "") for row in rows)]
    told = _plain_table([head[c] for c in keep], [[row[c] for c in keep] for row in rows])
    return f"<h2>Cluster</h2><p>{escape(machine.source)}</p>{told}"


def _meanings(rows: Sequence[Row]) -> str:
    """What each metric means, and all of them in plain units."""
    titles = {column.key: column.title for column in columns(rows)}
    about = {**MORE_ABOUT, **ABOUT}
    listed = [key for key in titles if key in about]
    listed += [key for key in ABOUT if key not in titles and all(key in row.mean for row in rows)]
    items = "".join(
        f"<dt>{escape(titles.get(key, key))}"
        f"{f' <code>{escape(key)}</code>' if key in titles and key != 'versus' else ''}</dt><dd>{escape(about[key])}</dd>"
        for key in listed
    )
    head = ["metric", *(row.policy for row in rows)]
    every = [name for name in rows[0].mean if all(name in row.mean for row in rows)]
    body = [[name, *(shown(row.mean[name], row.half[name]) for row in rows)] for name in every]
    return (
        f'<h2>What the metrics mean</h2><dl class="about">{items}</dl>'
        f"<details><summary>All metrics, in seconds, joules and shares of 1</summary>{_plain_table(head, body)}</details>"
    )


def _figure(drawn: str, label: str, caption: str) -> str:
    """An inline SVG; a name space is of no use inside HTML, and would look like an address."""
    inline = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", drawn, count=2)
    inline = re.sub(r'(<svg[^>]*?)\swidth="[^"]*"', r"\1", inline, count=1)
    inline = re.sub(r'(<svg[^>]*?)\sheight="[^"]*"', r"\1", inline, count=1)
    inline = inline.replace("<svg", f'<svg role="img" aria-label="{escape(label)}"', 1)
    told = f"<figcaption>{escape(caption)}</figcaption>" if caption.strip() else ""
    return f"<figure>{inline}{told}</figure>"


def _facts(facts: Mapping[str, str]) -> str:
    """Names and values; the values are HTML."""
    return '<dl class="facts">' + "".join(f"<dt>{escape(k)}</dt><dd>{v}</dd>" for k, v in facts.items()) + "</dl>"


def _list(items: Sequence[str]) -> str:
    return '<ul class="notes">' + "".join(f"<li>{escape(item)}</li>" for item in items) + "</ul>"


def _plain_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    top = "".join(f"<th>{escape(text)}</th>" for text in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(text)}</td>" for text in row) + "</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def _time(seconds: float) -> str:
    if not np.isfinite(seconds):
        return "without end"
    size, name = unit("time", [seconds])
    return f"{shown(seconds / size)} {name}"


def _amount(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else shown(value)


def _range(values: Array) -> str:
    low, high = float(values.min()), float(values.max())
    return _amount(low) if low == high else f"{_amount(low)} to {_amount(high)}"


def _is_packing(groups: Mapping[str, Sequence[Result]]) -> bool:
    return any(result.semantics == "packing" for group in groups.values() for result in group)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "(version unknown)"
