"""What a log says really happened, as a result beside those of policies.

A reader puts the recorded starts and ends into `meta["recorded"]`. The result of them is named
`metrics.RECORDED`: no policy, never the best of a table, and without running totals, for nobody
simulated it. `by_group` tells where the waits were, `doubts` why a rule may be far from them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import numpy as np

from trimtab import site
from trimtab.arrays import Array
from trimtab.build import cluster as cluster_of
from trimtab.columns import STATE, TOTALS
from trimtab.core import Cluster, Status, Workload
from trimtab.errors import UnknownName
from trimtab.metrics import RECORDED, Result
from trimtab.sim.world import fitted

GROUPS = ("partition", "user", "size", "week")
WEEK_S = 7 * 86400.0
MONDAY = datetime(1969, 12, 29, tzinfo=UTC)  # of the week in which 1970 began
FAR = 2.0  # a rule's mean wait is far from the recorded one from this factor on
NOTABLE = 0.02  # share of jobs or of time from which something is worth saying
TOP = 12  # groups of each kind in a description
DOWN_S = 1800.0  # jobs that would have fitted waited so long: processors were not there


class Group(NamedTuple):
    """Jobs of one partition, user, size or week, and how they waited."""

    name: str
    jobs: int
    share: float  # of the resource-seconds of all
    wait_mean_s: float
    wait_p50_s: float
    wait_p95_s: float
    wait_max_s: float


def as_recorded(work: Workload, cluster: Cluster, seed: int = 0) -> Result | None:
    """The jobs whose starts and ends the log has, as they were; None where it has none."""
    known = has_record(work)
    if not known.any():
        return None
    work, cluster = fitted(work, cluster)
    recorded: dict[str, Array] = work.meta["recorded"]
    start_s, end_s = recorded["start_s"][known], recorded["end_s"][known]
    work = work if known.all() else work.only(known)
    state = np.zeros(len(work), STATE)
    state["start_s"], state["end_s"] = start_s, end_s
    state["queued_s"] = work.jobs["submit_s"]
    state["waited_s"] = start_s - work.jobs["submit_s"]
    state["attained_s"] = work.truth["work_s"] * work.jobs["instances"]
    state["status"], state["run"] = Status.FINISHED, -1
    return Result(RECORDED, seed, work, cluster, state, np.zeros(1, TOTALS)[0])


def anywhere(work: Workload) -> Cluster:
    """One node with room for all jobs at once: for a log of which nobody says where it ran."""
    room = (work.demand * work.jobs["instances"][:, None]).sum(axis=0)
    gpus = [name == "gpu" for name in work.resources]
    return cluster_of(np.where(gpus, 1.0, room)[None], resources=work.resources)


def has_record(work: Workload) -> Array:
    """(J,) whether the log has a job's start and end, in this order after its submission."""
    recorded = work.meta.get("recorded")
    if recorded is None:
        return np.zeros(len(work), bool)
    start_s, end_s = recorded["start_s"], recorded["end_s"]  # NaN compares as false
    return np.asarray((start_s >= work.jobs["submit_s"]) & (end_s >= start_s))


def held(work: Workload) -> tuple[Array, str]:
    """(J,) what a job holds, and of what: processors of a log, GPUs, or the first resource."""
    if "procs" in work.meta:
        return np.asarray(work.meta["procs"]), "processors"
    jobs = work.jobs
    if jobs["gpus"].any():
        return np.asarray(jobs["gpus"] * jobs["instances"]), "GPUs"
    return np.asarray(work.demand[:, 0] * jobs["instances"]), work.resources[0]


def capacity(work: Workload, cluster: Cluster) -> float:
    """How much the cluster has of what `held` counts."""
    if "max_procs" in work.meta:
        return float(work.meta["max_procs"])
    name = "gpu" if work.jobs["gpus"].any() else work.resources[0]
    return float(cluster.capacity[:, cluster.resources.index(name)].sum())


def waits(result: Result) -> dict[str, float]:
    """Mean, median, 95th percentile and longest wait, and the share of the machine in use.

    Use is over the span of arrivals, of what `held` counts.
    """
    work, state = result.workload, result.state
    wait_s = state["start_s"] - work.jobs["submit_s"]
    first_s, last_s = float(work.jobs["submit_s"].min()), float(work.jobs["submit_s"].max())
    inside_s = np.clip(state["end_s"], first_s, last_s) - np.clip(state["start_s"], first_s, last_s)
    told = {
        "jobs": float(len(work)),
        "wait_mean_s": float(wait_s.mean()),
        "wait_p50_s": float(np.percentile(wait_s, 50)),
        "wait_p95_s": float(np.percentile(wait_s, 95)),
        "wait_max_s": float(wait_s.max()),
    }
    if last_s > first_s:
        used = float(held(work)[0] @ inside_s) / capacity(work, result.cluster)
        told["utilization"] = used / (last_s - first_s)
    return told


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
        bins = np.ceil(np.log2(np.maximum(amount, 1.0))).astype(np.int64) + (amount > 0)
        named = ["no", *("1", "2")[: bins.max()]]
        named += [f"{2**b + 1}-{2 ** (b + 1)}" for b in range(1, bins.max() - 1)]
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
    """Calendar weeks of the log's own clock where its dates are known, else weeks of the log."""
    submit_s = work.jobs["submit_s"]
    if "epoch_s" not in work.meta:
        row = ((submit_s - submit_s.min()) // WEEK_S).astype(np.int64)
        return [f"week {n}" for n in range(1, int(row.max()) + 2)], row
    days = np.floor((submit_s + local_s(work)) / 86400).astype(np.int64)
    row = (days + 3) // 7  # 1970 began on a Thursday
    first = int(row.min())
    count = int(row.max()) - first + 1
    weeks = [(MONDAY + timedelta(weeks=first + n)).isocalendar() for n in range(count)]
    return [f"{week.year}-W{week.week:02d}" for week in weeks], row - first


def local_s(work: Workload) -> float:
    """Seconds from the log's clock to seconds since 1970 as its own clocks showed them."""
    return float(work.meta["epoch_s"]) + float(work.meta.get("utc_offset_s", 0.0))


def far_off(recorded: Result, results: Iterable[Result]) -> str:
    """One sentence where the mean wait of the nearest result is far from the record, else ""."""
    truth_s = waits(recorded)["wait_mean_s"]
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
    """Of the jobs with a record, so that like is held against like."""
    wait_s = result.state["start_s"] - result.workload.jobs["submit_s"]
    if "recorded" in result.workload.meta:
        wait_s = wait_s[has_record(result.workload)]
    wait_s = wait_s[~np.isnan(wait_s)]
    return float(wait_s.mean()) if len(wait_s) else 0.0


def doubts(recorded: Result) -> list[str]:
    """What the log itself says of why no rule on this machine may wait as its jobs did."""
    work, size = recorded.workload, capacity(recorded.workload, recorded.cluster)
    found = [
        _overrun(work),
        _queues(recorded),
        *_concurrency(recorded, size),
        _idle(recorded, size),
        _few_users(recorded),
        _chained(work),
        _removed(work),
    ]
    return [told for told in found if told]


def _overrun(work: Workload) -> str:
    over = float(np.mean(work.truth["work_s"] > work.jobs["request_s"] + 60))
    if over < NOTABLE:
        return ""
    return f"{over:.1%} of the jobs ran a minute or more beyond what they asked for"


def _queues(recorded: Result) -> str:
    large = [group for group in by_group(recorded, "partition") if group.jobs >= 100]
    if len(large) < 2:
        return ""
    most = max(large, key=lambda group: group.wait_mean_s)
    least = min(large, key=lambda group: group.wait_mean_s)
    if most.wait_mean_s < FAR * max(least.wait_mean_s, 60.0):
        return ""
    return (
        f"{len(large)} queues waited unequally: {most.name} {most.wait_mean_s / 3600:.3g} h in the "
        f"mean, {least.name} {least.wait_mean_s / 3600:.3g} h; their priorities and limits are "
        "not in the log"
    )


def in_use(recorded: Result) -> tuple[Array, Array]:
    """(2J,) times, and how much of the machine was held from each of them on."""
    amount, state = held(recorded.workload)[0], recorded.state
    time_s = np.concatenate((state["start_s"], state["end_s"]))
    change = np.concatenate((amount, -amount))
    turn = np.lexsort((change, time_s))
    return time_s[turn], np.cumsum(change[turn])


def _concurrency(recorded: Result, size: float) -> list[str]:
    _, used = in_use(recorded)
    unit, most = held(recorded.workload)[1], float(used.max())
    if most > 1.01 * size:
        return [f"{most:,.0f} {unit} ran jobs at once, as recorded, on a machine of {size:,.0f}"]
    if most < 0.98 * size:
        return [f"never more than {most:,.0f} of {size:,.0f} {unit} were in use at once"]
    return []


def _idle(recorded: Result, size: float) -> str:
    """How often a job waited long though all that it asked for was free all along."""
    work = recorded.workload
    time_s, used = in_use(recorded)
    amount, unit = held(work)
    start_s = recorded.state["start_s"]
    wait_s = start_s - work.jobs["submit_s"]
    sample = np.flatnonzero(wait_s > DOWN_S)[:: max(1, int((wait_s > DOWN_S).sum()) // 20_000)]
    first = np.searchsorted(time_s, work.jobs["submit_s"][sample], "right") - 1
    last = np.searchsorted(time_s, start_s[sample], "left")
    fitted = [
        used[max(a, 0) : max(b, 1)].max(initial=0) + amount[job] <= size
        for job, a, b in zip(sample, first, last, strict=True)
    ]
    share = float(np.mean(fitted)) if fitted else 0.0
    if share < NOTABLE:
        return ""
    return (
        f"{share:.0%} of the jobs that waited over half an hour did so while as many {unit} as "
        "they asked for were free all the time: limits a user or queue, nodes of another kind or "
        "down, or work that is not in the log"
    )


def _few_users(recorded: Result) -> str:
    """Whether waiting is a matter of a few users, as under limits a user."""
    groups = by_group(recorded, "user")
    total_s = sum(group.wait_mean_s * group.jobs for group in groups)
    if len(groups) < 20 or total_s <= 0:
        return ""
    most = sorted(groups, key=lambda group: -group.wait_mean_s * group.jobs)[:3]
    waited = sum(group.wait_mean_s * group.jobs for group in most) / total_s
    jobs = sum(group.jobs for group in most) / len(recorded.workload)
    if waited < 0.4 or waited < 1.5 * jobs:
        return ""
    return (
        f"three of {len(groups)} users have {waited:.0%} of all waiting with {jobs:.0%} of the "
        "jobs, as under limits a user"
    )


def _chained(work: Workload) -> str:
    columns: dict[str, Any] = work.meta.get("swf", {})
    if "preceding_job" not in columns:
        return ""
    after = (columns["preceding_job"] > 0) & (columns["think_s"] > 0)
    share = float(np.mean(after))
    # one number in all rows stands for none
    if share < NOTABLE or len(np.unique(columns["preceding_job"][after])) < 2:
        return ""
    return (
        f"{share:.0%} of the jobs were submitted some time after another ended (fields 17 and "
        "18): had that ended sooner, they would have come sooner"
    )


def _removed(work: Workload) -> str:
    header: dict[str, str] = work.meta.get("header", {})
    if "CLEANED VERSION" not in header.get("Note", ""):
        return ""
    return (
        "jobs were removed from the log when it was cleaned, which held processors and had a "
        "place in the queue"
    )


def as_dict(work: Workload, cluster: Cluster | None) -> dict[str, Any]:
    """What a description adds: dates, notes on the machine, and the recorded waits by group.

    Of partitions and users those that held most stand there, of weeks the first.
    """
    told: dict[str, Any] = {}
    if "epoch_s" in work.meta:
        first_s, last_s = (float(work.jobs["submit_s"][row]) + local_s(work) for row in (0, -1))
        told |= {"first_submit": _date(first_s), "last_submit": _date(last_s)}
    told["notes"] = list(work.meta.get("notes", ()))
    recorded = as_recorded(work, anywhere(work) if cluster is None else cluster)
    if recorded is None:
        return told
    unknown = ("jobs",) if cluster is not None else ("jobs", "utilization")
    told["recorded"] = {name: v for name, v in waits(recorded).items() if name not in unknown}
    for by in GROUPS:
        told[f"recorded_by_{by}"] = [
            {"name": group.name, "jobs": group.jobs, "wait_mean_s": group.wait_mean_s,
             "wait_p95_s": group.wait_p95_s}
            for group in by_group(recorded, by)[:TOP]
        ]  # fmt: skip
    return told


def _date(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%d %H:%M")
