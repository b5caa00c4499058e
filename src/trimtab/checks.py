"""What a workload must keep to before it can be simulated."""

from __future__ import annotations

import numpy as np

from trimtab.arrays import Array
from trimtab.columns import MAX_DEVICES
from trimtab.core import Workload
from trimtab.errors import TraceError
from trimtab.site import ASKS


def check_workload(made: Workload) -> None:
    """Raise TraceError at the first row that cannot be simulated."""

    def refuse(bad: Array, column: str, values: Array, problem: str, remedy: str) -> None:
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            raise TraceError(
                f"{made.source}: job {made.name(row)} (row {row}): "
                f"{column}={values[row]} {problem}; {remedy}"
            )

    if not len(made):
        raise TraceError(f"{made.source}: the trace holds no jobs; nothing to schedule")
    jobs, truth = made.jobs, made.truth
    drop = "drop the row or read with --lenient"
    submit = jobs["submit_s"]
    refuse(~np.isfinite(submit), "submit_s", submit, "is not a finite time", drop)
    early = np.concatenate(([False], np.diff(submit) < 0))
    refuse(early, "submit_s", submit, "is before the row above it", "sort the rows by submit time")
    for table, name, low in (
        (truth, "work_s", 0.0),
        (jobs, "request_s", 0.0),
        (jobs, "gpu_mem_gb", 0.0),
        (jobs, "checkpoint_s", 0.0),
        (truth, "use", 0.0),
    ):
        column = table[name]
        refuse(np.isnan(column) | (column < low), name, column, f"is not a number >= {low:g}", drop)
    refuse(np.isnan(jobs["deadline_s"]), "deadline_s", jobs["deadline_s"], "is NaN", drop)
    refuse(np.isnan(truth["cancel_s"]), "cancel_s", truth["cancel_s"], "is NaN", drop)
    refuse(~np.isfinite(jobs["priority"]), "priority", jobs["priority"], "is not finite", drop)
    endless = (
        ~np.isfinite(truth["work_s"]) & (truth["service"] == 0) & ~np.isfinite(truth["cancel_s"])
    )
    refuse(endless, "work_s", truth["work_s"], "never ends", "set service=1 or a cancel_s")
    refuse(jobs["instances"] < 1, "instances", jobs["instances"], "is below 1", drop)
    refuse(jobs["gpus"] < 0, "gpus", jobs["gpus"], "is negative", drop)
    refuse(jobs["gpus"] > MAX_DEVICES, "gpus", jobs["gpus"], f"is above {MAX_DEVICES}", drop)
    share = jobs["gpu_share"]
    refuse(~((share > 0) & (share <= 1)), "gpu_share", share, "is not in (0, 1]", drop)
    split = (jobs["gpus"] > 1) & (share < 1)
    refuse(
        split, "gpu_share", share, "is fractional on several GPUs", "ask for 1 GPU or whole ones"
    )
    for name, names in (("kind", made.kinds), ("tenant", made.tenants)):
        column = jobs[name]
        refuse(
            (column < 0) | (column >= len(names)),
            name,
            column,
            f"is not in 0..{len(names) - 1}",
            drop,
        )
    for r, resource in enumerate(made.resources):
        column = made.demand[:, r]
        bad = ~np.isfinite(column) | (column < 0)
        refuse(bad, resource, column, "is not a finite number >= 0", drop)
    row = truth["pattern"]
    lost = (row < -1) | (row >= len(made.patterns))
    refuse(
        lost, "pattern", row, f"is not in -1..{len(made.patterns) - 1}", "name a row of patterns"
    )
    refuse(~np.isfinite(truth["use"]), "use", truth["use"], "is not finite", drop)
    pinned = truth["pinned"]
    refuse(pinned < 0, "pinned", pinned, "is negative", "give 1 + a node, or 0")
    loose = (pinned > 0) & ((jobs["instances"] != 1) | (jobs["gpus"] != 0))
    refuse(loose, "pinned", pinned, "pins more than one instance, or GPUs", "leave it 0")
    for name, given in made.labels.items():
        if name not in ASKS or len(given.row) != len(made):
            raise TraceError(
                f"{made.source}: labels[{name!r}] has {len(given.row)} rows for {len(made)} jobs; "
                f"give one each of {', '.join(ASKS)}"
            )
    _check_acyclic(made)


def _check_acyclic(made: Workload) -> None:
    ptr, idx = made.after_ptr, made.after_idx
    if ptr is None or idx is None:
        return
    count = len(made)
    if len(ptr) != count + 1 or (len(idx) and (idx.min() < 0 or idx.max() >= count)):
        raise TraceError(f"{made.source}: after names a job outside 0..{count - 1}; drop that edge")
    owner = np.repeat(np.arange(count), np.diff(ptr))
    if (idx < owner).all():
        return  # parents above their children: rows are a topological order already
    waits = np.diff(ptr).copy()
    order = np.argsort(idx, kind="stable")
    child_ptr = np.searchsorted(idx[order], np.arange(count + 1))
    ready = list(np.flatnonzero(waits == 0))
    seen = 0
    while ready:
        job = ready.pop()
        seen += 1
        for child in owner[order[child_ptr[job] : child_ptr[job + 1]]]:
            waits[child] -= 1
            if waits[child] == 0:
                ready.append(child)
    if seen < count:
        row = int(np.flatnonzero(waits > 0)[0])
        raise TraceError(
            f"{made.source}: job {made.name(row)} (row {row}) waits for itself through a cycle of "
            f"dependencies; {count - seen} jobs can never start; drop an edge of the cycle"
        )
