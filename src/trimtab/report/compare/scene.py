"""The sections of the page without plots: the workload, the cluster, the meaning of the metrics."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from trimtab.arrays import Array
from trimtab.core import Cluster, Workload
from trimtab.metrics import ABOUT, Result
from trimtab.report.compare.table import Row, columns
from trimtab.report.markup import facts, named, plain_table, table
from trimtab.site import WHOLE
from trimtab.units import amount, amounts, figures, unit

MOST_COLUMNS = 20  # policies beside each other
MORE_ABOUT = {
    "wait_p95_s": "95 % of the jobs that started waited at most this long",
    "preemptions": "times a running job was stopped and put back into the queue",
    "failed": "jobs that ended without finishing their work",
    "rejected": "jobs that were turned away",
    "versus": "mean JCT as a multiple of the strongest simple rule's: the mean over seeds",
    "gpu_fragmented": "share of the GPUs that is free and of no use to the pods expected",
    "dropped": "pods that fitted nowhere when they arrived",
}


def workload(results: Sequence[Result], clock: tuple[float, str]) -> str:
    """The jobs of the first result; `clock` is the unit of the page's time axes.

    Times are left out of a packing, where pods come and stay.
    """
    work = results[0].workload
    timed = results[0].semantics != "packing"
    told = {"Jobs": f"{len(work):,}"} | (_times(work, clock) if timed else {}) | _counts(work)
    several = ""
    if any(not np.array_equal(result.workload.truth, work.truth) for result in results):
        seed = results[0].seed
        several = f'<p class="faint">As drawn with seed {seed}: each seed draws its own.</p>'
    told = {name: escape(text) for name, text in told.items()}
    table = _kinds(work, timed)
    return f"<h2>Workload</h2><p>{escape(work.source)}</p>{several}{facts(told)}{table}"


def _times(work: Workload, clock: tuple[float, str]) -> dict[str, str]:
    submit_s, work_s = work.jobs["submit_s"], work.truth["work_s"]
    spread = zip(("median", "mean", "95 %", "longest"), _spread(work_s[np.isfinite(work_s)]))
    (size_s, unit), request_s = _run_unit(work), float(np.median(work.jobs["request_s"]))
    told = " · ".join(f"{name} {figures(value / size_s)}" for name, value in spread)
    asked = f"{figures(request_s / size_s)} {unit}" if np.isfinite(request_s) else "without end"
    return {
        "Submitted over": f"{figures(float(np.ptp(submit_s)) / clock[0])} {clock[1]}",
        f"Run time at rate 1 ({unit})": told,
        "Requested time": f"median {asked}",
    }


def _run_unit(work: Workload) -> tuple[float, str]:
    """One unit for all run times."""
    work_s = work.truth["work_s"]
    return unit("time", work_s[np.isfinite(work_s)].tolist())


def _counts(work: Workload) -> dict[str, str]:
    """Jobs with something special, where there are any."""
    jobs = work.jobs
    found = {
        "Gangs": (jobs["instances"] > 1) & (jobs["gang"] == 1),
        "Deadlines": np.isfinite(jobs["deadline_s"]),
        "Services": work.truth["service"] == 1,
    }
    told = {name: f"{int(own.sum()):,} jobs" for name, own in found.items() if own.any()}
    return told | {"Tenants": f"{len(np.unique(jobs['tenant'])):,}"}


def _kinds(work: Workload, timed: bool) -> str:
    """A row a kind of job, most first."""
    kind = work.jobs["kind"]
    count = np.bincount(kind, minlength=len(work.kinds))
    size_s, named = _run_unit(work)
    shown = [r for r, name in enumerate(work.resources) if name != WHOLE]
    rows = []
    for k in np.argsort(-count, kind="stable")[: int((count > 0).sum())]:
        own = kind == k
        median_s = float(np.median(work.truth["work_s"][own]))
        ran = figures(median_s / size_s) if np.isfinite(median_s) else "without end"
        run = [ran] if timed else []
        asks = [amount(float(value)) for value in np.median(work.demand[own][:, shown], axis=0)]
        rows.append([work.kinds[k], f"{count[k]:,}", f"{count[k] / len(work):.1%}", *run, *asks])
    run = [f"median run ({named})"] if timed else []
    asks = [f"median {work.resources[r]}" for r in shown]
    return plain_table(["kind", "jobs", "share", *run, *asks], rows)


def _spread(values: Array) -> tuple[float, float, float, float]:
    if not len(values):
        return 0.0, 0.0, 0.0, 0.0
    return (
        float(np.median(values)),
        float(values.mean()),
        float(np.percentile(values, 95)),
        float(values.max()),
    )


def cluster(machine: Cluster) -> str:
    rows = []
    shown = [r for r, name in enumerate(machine.resources) if name != WHOLE]
    kinds = np.array(machine.kinds)[machine.nodes["kind"]]  # what partitions split keeps its name
    for kind in dict.fromkeys(machine.kinds):
        own = kinds == kind
        if not own.any():
            continue
        each = [amounts(machine.capacity[own, r]) for r in shown]
        extra = [amounts(machine.nodes[name][own]) for name in ("gpu_mem_gb", "idle_w", "peak_w")]
        rows.append([kind, f"{int(own.sum()):,}", *each, *extra])
    total = [amount(float(machine.capacity[:, r].sum())) for r in shown]
    rows.append(
        ["all", f"{len(machine):,}", *total, "", "", amount(float(machine.nodes["peak_w"].sum()))]
    )
    head = [
        "kind",
        "nodes",
        *(f"{machine.resources[r]} a node" for r in shown),
        "GPU memory (GB)",
        "idle (W)",
        "peak (W)",
    ]
    keep = [c for c in range(len(head)) if c < 2 or any(row[c] not in ("0", "") for row in rows)]
    told = plain_table([head[c] for c in keep], [[row[c] for c in keep] for row in rows])
    return f"<h2>Cluster</h2><p>{escape(machine.source)}</p>{told}"


def meanings(rows: Sequence[Row]) -> str:
    """What each metric means, and all of them in plain units."""
    titles = {column.key: column.title for column in columns(rows)}
    about = {**MORE_ABOUT, **ABOUT}
    listed = [key for key in titles if key in about]
    listed += [key for key in ABOUT if key not in titles and all(key in row.mean for row in rows)]
    items = "".join(
        f"<dt>{escape(titles.get(key, key))}"
        f"{f' <code>{escape(key)}</code>' if key in titles and key != 'versus' else ''}</dt>"
        f"<dd>{escape(about[key])}</dd>"
        for key in listed
    )
    few = rows[:MOST_COLUMNS]
    head = ["metric", *(named(row.policy) for row in few)]
    every = dict.fromkeys(name for row in few for name in row.mean)
    body = [[name, *(_value(row, name) for row in few)] for name in every]
    more = f"<p>And {len(rows) - len(few):,} more policies.</p>" if len(few) < len(rows) else ""
    return (
        f'<h2>What the metrics mean</h2><dl class="about">{items}</dl>'
        "<details><summary>All metrics, in seconds, joules and shares of 1</summary>"
        f"{table(head, body)}{more}</details>"
    )


def _value(row: Row, name: str) -> str:
    return figures(row.mean[name], row.half[name]) if name in row.mean else ""
