"""How jobs waited by partition, user, size or week, and how near a policy is to what happened."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from trimtab import site
from trimtab.arrays import Array
from trimtab.core import Workload
from trimtab.errors import UnknownName
from trimtab.metrics import Result

GROUPS = ("partition", "user", "size", "week")
WEEK_S = 7 * 86400.0
FAR = 2.0  # a mean wait is far from the recorded one from this factor on


class Group(NamedTuple):
    """Jobs of one partition, user, size or week, and how they waited."""

    name: str
    jobs: int
    share: float  # of the resource-seconds of all
    wait_mean_s: float
    wait_p50_s: float
    wait_p95_s: float
    wait_max_s: float


def held(work: Workload) -> tuple[Array, str]:
    """(J,) what a job holds, and of what: processors of a log, GPUs, or the first resource."""
    if "procs" in work.meta:
        return np.asarray(work.meta["procs"]), "processors"
    jobs = work.jobs
    if jobs["gpus"].any():
        return np.asarray(jobs["gpus"] * jobs["instances"]), "GPUs"
    return np.asarray(work.demand[:, 0] * jobs["instances"]), work.resources[0]


def by_group(result: Result, by: str) -> list[Group]:
    """How jobs waited by partition, user, size or week of submission.

    Sizes and weeks are in their order, partitions and users by what they held, most first.
    """
    work = result.workload
    names, row = _grouped(work, by)
    wait_s = result.state["start_s"] - work.jobs["submit_s"]
    amount = held(work)[0] * work.truth["work_s"]
    share = np.bincount(row, amount, minlength=len(names)) / max(float(amount.sum()), 1e-300)
    turn = np.argsort(row, kind="stable")
    parts = np.split(wait_s[turn], np.cumsum(np.bincount(row, minlength=len(names)))[:-1])
    groups = [
        Group(
            name, len(part), float(portion), float(part.mean()),
            *(float(q) for q in np.percentile(part, [50, 95, 100])),
        )
        for name, part, portion in zip(names, parts, share, strict=True)
        if len(part)
    ]  # fmt: skip
    return groups if by in ("size", "week") else sorted(groups, key=lambda group: -group.share)


def _grouped(work: Workload, by: str) -> tuple[Sequence[str], Array]:
    """Names of groups, and each job's row among them."""
    if by == "partition":
        return _labelled(work, site.PARTITION, ("all",), np.zeros(len(work), np.int64))
    if by == "user":
        return _labelled(work, site.USER, work.tenants, work.jobs["tenant"])
    if by == "size":
        amount, unit = held(work)
        bins = np.ceil(np.log2(np.maximum(amount, 1.0))).astype(np.int64)
        named = [
            f"{2 ** (b - 1) + 1}-{2**b}" if b > 1 else str(2**b) for b in range(bins.max() + 1)
        ]
        return [f"{name} {unit}" for name in named], bins
    if by == "week":
        return _weeks(work)
    raise UnknownName(f"group {by!r} is unknown; known: {', '.join(GROUPS)}")


def _labelled(
    work: Workload, label: str, names: Sequence[str], row: Array
) -> tuple[Sequence[str], Array]:
    """The label's names, or those given where the jobs have no such label."""
    if label not in work.labels:
        return names, row
    return [name or "none" for name in work.labels[label].names], work.labels[label].row


def _weeks(work: Workload) -> tuple[Sequence[str], Array]:
    """Weeks since the first submit."""
    submit_s = work.jobs["submit_s"]
    row = ((submit_s - submit_s.min()) // WEEK_S).astype(np.int64)
    return [f"week {n}" for n in range(1, int(row.max()) + 2)], row


def far_off(recorded: Result, results: Iterable[Result]) -> str:
    """One sentence where the mean wait of the nearest result is far from the record, else ""."""
    truth_s = _wait_mean_s(recorded)
    found = {result.policy: _wait_mean_s(result) for result in results}
    if not found or (truth_s <= 0 and not max(found.values())):
        return ""
    ratio = {name: max(s, 1.0) / max(truth_s, 1.0) for name, s in found.items()}
    nearest = min(ratio, key=lambda name: abs(np.log(ratio[name])))
    if 1 / FAR < ratio[nearest] < FAR:
        return ""
    way = f"{ratio[nearest]:.3g} times" if ratio[nearest] > 1 else f"{ratio[nearest]:.1%} of"
    return (
        f"{nearest}, the nearest to the record, waits {way} the recorded mean of "
        f"{truth_s / 3600:.3g} h: how it compares with what happened is in doubt"
    )


def _wait_mean_s(result: Result) -> float:
    wait_s = result.state["start_s"] - result.workload.jobs["submit_s"]
    wait_s = wait_s[~np.isnan(wait_s)]
    return float(wait_s.mean()) if len(wait_s) else 0.0
