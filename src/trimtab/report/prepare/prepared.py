"""One self-contained page of what `trimtab trace prepare` found: inline style and SVG only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from trimtab.files import write_whole
from trimtab.load.features import FEATURES
from trimtab.report.markup import bullets, facts, figure, plain_table, shell, version
from trimtab.report.prepare import prepared_plots as plots
from trimtab.report.prepare.prepared_figures import (
    Work,
    beside_published,
    figures,
    mean_imbalance,
    quantile_rows,
    rates_by_hour,
    read_work,
    region_names,
)
from trimtab.traces.alibaba2018.published import PUBLISHED
from trimtab.traces.prepare.result import (
    Line,
    before_and_after,
    line,
    manifest_of,
    numbers,
    opened,
    roughness,
    span_s,
)
from trimtab.traces.prepare.route import BEFORE_S
from trimtab.traces.prepare.rules import ABNORMAL, CAPACITY, DUPLICATE, MISSING, RULES
from trimtab.units import duration, number, percent

__all__ = ["quantile_rows", "write_prepared_report"]

KINDS = (MISSING, ABNORMAL, DUPLICATE, CAPACITY)
LEVELS = ("node", "region", "cluster")
PERCENTS = (25, 50, 75, 90, 95, 99)
ALIGNED = """
.words td,.words th{white-space:normal;text-align:left;vertical-align:top}
.words td:first-child,.rules td:not(:last-child){white-space:nowrap}
.rules td:nth-child(3),.rules th:nth-child(3),.rules td:nth-child(4),.rules th:nth-child(4){
text-align:right}
.sized table{font-size:13.5px}
.sized td,.sized th{padding:5px 8px;vertical-align:top}
.sized td:nth-child(2),.sized th:nth-child(2){white-space:normal;text-align:left;
overflow-wrap:anywhere}
"""


def write_prepared_report(folder: Path, path: Path | None = None) -> Path:
    """Write the page of a prepared folder, all at once or not at all; None = `report.html` in it.

    The same folder gives the same page, to the byte.
    """
    folder = Path(folder)
    path = folder / "report.html" if path is None else Path(path)
    manifest = manifest_of(folder)
    work = read_work(folder)
    parts = [
        _header(manifest),
        "<main>",
        _came_in(manifest),
        _before_and_after(folder, manifest),
        _load(folder, manifest),
        _work(folder, manifest, work),
        _segments(folder),
        _files(folder),
        f"<footer>Made by trimtab {escape(version('trimtab'))}. The page loads nothing.</footer>",
        "</main>",
    ]
    body = "\n".join(part for part in parts if part)
    write_whole(path, shell("Prepared trace", body, ALIGNED, allowed="; img-src data:"))
    return path


def _header(manifest: Mapping[str, Any]) -> str:
    options, windows = manifest["options"], manifest["windows"]
    length_s = windows["count"] * options["window_s"]
    told = {
        "Windows": f"{windows['count']:,} of {options['window_s']:g} s, {duration(length_s)}",
        "Machines": f"{windows['machines']:,}",
        "Options": escape(", ".join(f"{name} = {value}" for name, value in options.items())),
        "Versions": escape(f"trimtab {version('trimtab')}, numpy {version('numpy')}"),
    }
    return f"<header><div><h1>Prepared trace</h1>{facts(told)}</div></header>"


def _came_in(manifest: Mapping[str, Any]) -> str:
    rows, broken, unbroken = [], [], []
    for table, counts in manifest["tables"].items():
        rules = {rule.name: rule for rule in RULES.get(table, [])}
        kinds = dict.fromkeys(KINDS, 0)
        for name, removed in counts["removed"].items():
            rule = rules.get(name)
            kind, about = (rule.kind, rule.about) if rule else ("", "")
            if removed:
                share = percent(removed / counts["in"])
                broken.append((table, name, f"{removed:,}", share, kind, about))
            else:
                unbroken.append((table, name, "0", "", kind, about))
            kinds[kind] = kinds.get(kind, 0) + removed
        gone = counts["in"] - counts["kept"]
        numbers = (counts["in"], counts["kept"], gone)
        rows.append(
            (table, manifest["sources"].get(table, ""), *(f"{n:,}" for n in numbers),
             percent(gone / max(counts["in"], 1)), *(f"{kinds[kind]:,}" for kind in KINDS))
        )  # fmt: skip
    head = ("table", "source", "rows in", "kept", "removed", "share removed", *KINDS)
    rules_head = ("table", "rule", "rows", "share", "kind", "what it means")
    folded = (
        f"<details><summary>{len(unbroken)} rules that removed nothing</summary>"
        f'<div class="words rules">{plain_table(rules_head, unbroken)}</div></details>'
    )
    table = plain_table(rules_head, broken) if broken else "<p>No rule removed a row.</p>"
    notes = _notes(manifest)
    return (
        f'<h2>What came in</h2><div class="sized">{plain_table(head, rows)}</div>'
        '<p class="faint">A row counts under the first rule that it breaks; shares are of the rows'
        " in.</p>"
        f'<h3>Rules</h3><div class="words rules">{table}</div>{folded if unbroken else ""}'
        + (f"<h3>Notes</h3>{bullets(notes)}" if notes else "")
    )


def _notes(manifest: Mapping[str, Any]) -> list[str]:
    notes = list(manifest["notes"])
    for table, counts in manifest["tables"].items():
        if counts.get("narrow"):
            notes.append(f"{table}: {counts['narrow']:,} lines of a wrong width were skipped")
        if counts.get("edges_lost"):
            notes.append(
                f"{table}: {counts['edges_lost']:,} dependencies name a task that is not there"
            )
    cyclic = manifest.get("workload", {}).get("edges_in_cycles")
    return notes + ([f"{cyclic:,} dependencies inside cycles were dropped"] if cyclic else [])


def _before_and_after(folder: Path, manifest: Mapping[str, Any]) -> str:
    """Four series as they were recorded and as they are now, and how far both jump."""
    title = "<h2>Before and after</h2>"
    window_s = manifest["options"]["window_s"]
    panels = before_and_after(folder)
    if not panels:
        return f'{title}<p class="faint">No machines were given: there is no load to show.</p>'
    drawn = plots.before_and_after(panels, span_s(manifest))
    caption = (
        f"Grey: as recorded, dirt and all, means every {BEFORE_S:g} s. Blue: clean, in windows of"
        f" {window_s:g} s. A gap breaks the line. Where points are denser than the plot, it shows"
        " the lowest and the highest of each stretch. A wait is the time from the end of a task's"
        " parents to the start of its instance; as recorded it may be below zero."
    )
    rows = [_jumps(name, lines, round(window_s / BEFORE_S)) for name, lines in panels.items()]
    far, near = f"{window_s:g} s apart", f"{BEFORE_S:g} s apart"
    ratios = ("after / before", "after / before, same step")
    head = ("", f"before, {near}", f"before, {far}", f"after, {far}", *ratios)
    return (
        f"{title}{figure(drawn, 'Load before and after cleaning', caption)}"
        f"<h3>How smooth</h3>{plain_table(head, rows)}"
        '<p class="faint">Standard deviation of the difference between neighbouring points, in the'
        " unit of the plot. The last column compares points that are equally far apart.</p>"
    )


def _jumps(name: str, lines: Sequence[Line], apart: int) -> tuple[str, ...]:
    """A row of the table: deviation of differences before, before at the step of after, after."""
    after = roughness(lines[-1].value)
    if len(lines) == 1:
        return (name, "", "", number(after), "", "")
    near, far = roughness(lines[0].value), roughness(lines[0].value, max(apart, 1))
    ratios = [number(after / of) if of > 0 else "" for of in (near, far)]
    return (name, *(number(value) for value in (near, far, after)), *ratios)


def _load(folder: Path, manifest: Mapping[str, Any]) -> str:
    """CPU use by region, and what a scheduler contends with, over time."""
    region, cpu = (numbers(folder / "region.parquet", name) for name in ("region", "cpu"))
    if not len(region):
        return ""
    within_s, window_s = span_s(manifest), manifest["options"]["window_s"]
    members = int(region.max()) + 1
    grid, width = plots.averaged(cpu.reshape(-1, members).T)
    step_s = width * window_s
    drawn = plots.heat(grid, region_names(folder, members), within_s, step_s, "regions")
    caption = f"CPU use a region, means over {duration(step_s)} each. Grey: no sample."
    time_s, competition, gap = (
        numbers(folder / "cluster.parquet", name) for name in ("time_s", "competition", "gap")
    )
    imbalance = mean_imbalance(folder, manifest["windows"]["first"], manifest["windows"]["count"])
    told = {
        "Competition: CPU asked / (CPU asked + free CPU), %": competition,
        "Imbalance: mean distance of machines from their region's CPU use, %": imbalance,
        "Gaps: machines without a sample, %": gap,
    }
    lines = {name: line("", time_s, 100 * values, window_s) for name, values in told.items()}
    over = plots.stacked(lines, within_s, "load")
    missing = float(np.nanmean(gap))
    return (
        f"<h2>Load</h2><h3>By region</h3>{figure(drawn, 'CPU use by region over time', caption)}"
        f"<h3>Over time</h3>{figure(over, 'Competition, imbalance and gaps over time', '')}"
        f"<p>{percent(missing)} of all windows of all machines have no sample. They are marked "
        "as gaps and not filled.</p>"
    )


def _work(folder: Path, manifest: Mapping[str, Any], work: Work | None) -> str:
    rows = [
        (name, number(published), number(here), f"{here / published:.2f}")
        for name, published, here in beside_published(figures(folder, manifest, work))
    ]
    if not rows and work is None:
        return ""
    compared = plain_table(("figure", "published", "here", "here / published"), rows)
    beside = (
        f"<h3>Beside the published trace</h3>{compared}"
        '<p class="faint">Published: Alibaba, cluster-trace-v2018. Counts grow with the trace; the'
        " rest is comparable at any size. Submissions count when their job's first task starts.</p>"
    )
    if work is None:
        return f'<h2>The work</h2><p class="faint">No tasks were given.</p>{beside}'
    made = manifest["workload"]
    by_kind = np.bincount(work.kind, minlength=len(work.kinds))
    told = {
        "Tasks": f"{len(work.kind):,} of {len(work.size):,} jobs",
        "Kinds": ", ".join(f"{n:,} {kind}" for kind, n in zip(work.kinds, by_kind) if n),
        "Instances": f"{int(work.instances.sum()):,}",
        "Dependencies": f"{made['edges']:,}; the longest path has {int(work.depth.max())} tasks",
        "Services": f"{made['services']:,}",
        "Submitted over": duration(float(np.ptp(work.submit_s))),
    }
    return (
        f"<h2>The work</h2>{facts(told)}{_shapes(work)}{_durations(manifest, work)}"
        f"{_hours(work)}{beside}"
    )


def _shapes(work: Work) -> str:
    told = {
        "tasks a job": (work.size, _published("tasks_a_job")),
        "tasks on a job's longest path": (work.depth, _published("job_depth")),
        "instances a task": (work.instances, _published("task_instances")),
    }
    drawn = plots.distributions(told)
    caption = "Share of jobs or tasks with at most so many; the axes are logarithmic."
    return f"<h3>Shape</h3>{figure(drawn, 'Sizes of jobs and tasks', caption)}"


def _published(name: str) -> dict[int, float]:
    found = {percent: PUBLISHED.get(f"{name}.p{percent}") for percent in PERCENTS}
    return {percent: value for percent, value in found.items() if value is not None}


def _durations(manifest: Mapping[str, Any], work: Work) -> str:
    """Run times. What was published is longer: it also holds the time between instances."""
    rows = []
    if "batch_instance" in manifest["tables"]:
        named = {"work_s": "mean instance of a task", "request_s": "longest instance of a task"}
    else:
        named = {"work_s": "task, from when it could run to its end"}
    for name, title in named.items():
        values = work.column(name)
        found = (*np.percentile(values, PERCENTS, method="inverted_cdf"), values.mean())
        rows.append((title, *(number(float(value)) for value in found)))
    known = (*_published("task_duration_s").values(), PUBLISHED["task_duration_s.mean"])
    rows.append(("published: task, from its start to its end", *(number(v) for v in known)))
    head = ("seconds", *(f"{percent} %" for percent in PERCENTS), "mean")
    return (
        f"<h3>Durations</h3>{plain_table(head, rows)}"
        '<p class="faint">The published duration also holds the time in which instances wait; the'
        " workload leaves that to the scheduler.</p>"
    )


def _hours(work: Work) -> str:
    rates = rates_by_hour(work)
    if not len(rates):
        return ""
    published = np.array([PUBLISHED[f"task_rate.hour_{hour:02d}"] for hour in range(24)])
    drawn = plots.by_hour(rates, published)
    caption = "Tasks by the hour of their submission, over the whole days after day 0."
    return f"<h3>By hour of the day</h3>{figure(drawn, 'Tasks by hour of the day', caption)}"


def _segments(folder: Path) -> str:
    path = folder / "segments.parquet"
    if not path.exists():
        return ""
    with opened(path) as file:
        held = file.read().to_pydict()
    found = list(zip(held["split"], held["start_s"], held["end_s"], held["windows"]))
    drawn = plots.strip([(split, start_s, end_s) for split, start_s, end_s, _ in found])
    rows = []
    for split in plots.SPLIT_COLOURS:
        own = [one for one in found if one[0] == split]
        spans: list[list[float]] = []
        for _, start_s, end_s, _ in own:
            if spans and spans[-1][1] == start_s:
                spans[-1][1] = end_s
            else:
                spans.append([start_s, end_s])
        if own:
            when = "; ".join(f"{start_s:,.0f} to {end_s:,.0f}" for start_s, end_s in spans)
            rows.append((split, f"{len(own):,}", f"{sum(one[3] for one in own):,}", when))
    head = ("split", "segments", "windows", "time in the trace (s)")
    caption = (
        "Decision segments. Purged windows lie between two splits: features that look back would"
        " carry what happened in them from one split into the next."
    )
    return f"<h2>Segments</h2>{figure(drawn, 'Splits over time', caption)}{plain_table(head, rows)}"


def _files(folder: Path) -> str:
    """Every file with its columns; those of the load with units and meaning."""
    rows = []
    for path in sorted(folder.glob("*.parquet")):
        with opened(path) as file:
            names = file.schema_arrow.names
            count = file.metadata.num_rows
        known = {feature.name for feature in FEATURES}
        own = [name for name in names if path.stem not in LEVELS or name not in known]
        features = len(names) - len(own)
        text = ", ".join(own) + (f" and {features} features" if features else "")
        rows.append((path.name, text, f"{count:,}", number(path.stat().st_size / 2**20)))
    told = [(f.name, f.unit, ", ".join(f.levels), f.what) for f in FEATURES]
    about = plain_table(("feature", "unit", "levels", "what it is"), told)
    return (
        '<h2>Files</h2><div class="sized">'
        f"{plain_table(('file', 'columns', 'rows', 'MiB'), rows)}</div>"
        "<p>Names end in their unit; shares are 0 to 1 and have none. A null is a gap.</p>"
        f"<details><summary>The {len(FEATURES)} features of the load</summary>"
        f'<div class="words">{about}</div></details>'
    )
