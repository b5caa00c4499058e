"""What a workload looks like: the statistics a generator must match and a reader must show."""

import hashlib
from typing import Any

import numpy as np

from trimtab.arrays import Array
from trimtab.build import uniform_profile
from trimtab.core import Cluster, Profile, Workload
from trimtab.errors import TraceError
from trimtab.site import WHOLE

QUANTILES = (25, 50, 75, 90, 95, 99)
WINDOWS_S = (1, 60, 3600)


def describe(
    work: Workload, machine: Cluster | None = None, profile: Profile | None = None
) -> dict[str, Any]:
    """Statistics of a workload as plain numbers; with a cluster, the offered load too.

    Quantities end in their unit. `count_variance_to_mean` (window in seconds: ratio) is 1 for
    Poisson arrivals. `content_sha256` is of the jobs alone: not of the source text or meta.
    """
    jobs, truth = work.jobs, work.truth
    submit_s = jobs["submit_s"]
    span_s = float(submit_s[-1] - submit_s[0])
    finite = np.isfinite(truth["work_s"]) & (truth["work_s"] > 0)
    ratio = jobs["request_s"][finite] / truth["work_s"][finite]
    told: dict[str, Any] = {
        "source": work.source,
        "jobs": len(work),
        "instances_total": int(jobs["instances"].sum()),
        "span_s": span_s,
        "interarrival_mean_s": span_s / max(len(work) - 1, 1),
        "count_variance_to_mean": {str(w): _dispersion(submit_s, w) for w in WINDOWS_S},
        "work_s": _quantiles(truth["work_s"][np.isfinite(truth["work_s"])]),
        "request_to_work": _quantiles(ratio),
        "demand": {
            name: _quantiles(work.demand[:, r])
            for r, name in enumerate(work.resources)
            if name != WHOLE
        },
        "instances": _quantiles(jobs["instances"]),
        "gangs": int(((jobs["instances"] > 1) & (jobs["gang"] == 1)).sum()),
        "gpus": _counts(jobs["gpus"]),
        "gpu_shared_jobs": int(((jobs["gpus"] > 0) & (jobs["gpu_share"] < 1)).sum()),
        "services": int(truth["service"].sum()),
        "deadlines": int(np.isfinite(jobs["deadline_s"]).sum()),
        "kinds": _named(jobs["kind"], work.kinds),
        "tenants": _named(jobs["tenant"], work.tenants),
        "graphs": _graphs(work),
        "dropped": dict(work.meta.get("dropped", {})),
        "content_sha256": content_sha256(work),
    }
    if machine is not None:
        shares = offered_load(work, machine, profile)
        told["offered_load"] = {name: share for name, share in shares.items() if name != WHOLE}
    return told


def offered_load(
    work: Workload,
    machine: Cluster,
    profile: Profile | None = None,
    stretch: float = 1.0,
) -> dict[str, float]:
    """Share of the cluster, by resource, that the work keeps busy over the span of arrivals.

    Only what can be done inside the span counts: a run is cut off at the last submit, as if it had
    begun when it was submitted. So load 1 is contended, however long the last jobs run. `stretch`
    takes the arrivals that many times as far apart. Services are left out.
    """
    submit_s, batch = work.jobs["submit_s"] * stretch, work.truth["service"] == 0
    if not batch.any():
        return dict.fromkeys(work.resources, 0.0)
    last_s = float(submit_s[batch].max())
    span_s = last_s - float(submit_s[batch].min())
    run_s = np.minimum(run_on_s(work, machine, profile), np.maximum(last_s - submit_s, 0.0))
    seconds = held_s(work, machine, np.where(batch, run_s, 0.0))
    return {name: s / span_s if span_s > 0 else 0.0 for name, s in seconds.items()}


def busy_s(work: Workload, machine: Cluster, profile: Profile | None = None) -> dict[str, float]:
    """Seconds for which the whole cluster, fully used, would be busy with the jobs, by resource."""
    return held_s(work, machine, run_on_s(work, machine, profile))


def run_on_s(work: Workload, machine: Cluster, profile: Profile | None = None) -> Array:
    """(J,) run times on the cluster; 0 for what never ends.

    A job runs at the mean rate of the nodes it may use, weighted by their GPUs if it asks for
    GPUs, else by the first resource.
    """
    profile = profile or uniform_profile(len(work.kinds), len(machine.kinds))
    node_kind = machine.nodes["kind"]
    kinds = len(machine.kinds)
    of_gpus = np.bincount(node_kind, machine.nodes["gpus"], minlength=kinds)
    of_first = np.bincount(node_kind, machine.capacity[:, 0], minlength=kinds)
    bit = np.arange(kinds, dtype=np.uint64)
    allowed = (work.jobs["node_kinds"][:, None] >> bit) & np.uint64(1)  # (J, kinds)
    weight = np.where(work.jobs["gpus"][:, None] > 0, of_gpus, of_first) * allowed
    total = weight.sum(axis=1)
    rate = (profile.rate[work.jobs["kind"], :, 0] * weight).sum(axis=1)
    if (rate <= 0).any():
        row = int(np.flatnonzero(rate <= 0)[0])
        raise TraceError(
            f"{work.source}: job {work.name(row)} (row {row}): kind "
            f"{work.kinds[work.jobs['kind'][row]]!r} runs on no node of {machine.source}; "
            f"add such nodes or a rate to the profile"
        )
    work_s = work.truth["work_s"]
    return np.asarray(np.where(np.isfinite(work_s), work_s, 0.0) * total / rate)


def held_s(work: Workload, machine: Cluster, run_s: Array) -> dict[str, float]:
    """Seconds of the whole cluster, by resource, that jobs hold which run so long."""
    taken = (run_s * work.jobs["instances"]) @ work.demand  # (R,) resource-seconds
    seconds = {}
    for r, name in enumerate(work.resources):
        has = (
            machine.capacity[:, machine.resources.index(name)].sum()
            if name in machine.resources
            else 0
        )
        if taken[r] > 0 and not has:
            raise TraceError(
                f"{machine.source}: has no {name!r}, which {work.source} asks for; add it"
            )
        seconds[name] = float(taken[r] / has) if has else 0.0
    return seconds


def content_sha256(work: Workload) -> str:
    """One number for all that decides a simulation: equal here means the same jobs."""
    digest = hashlib.sha256()
    for part in (work.resources, work.kinds, work.tenants, work.pattern_step_s, work.demand.shape):
        digest.update(repr(part).encode())
    for array in (
        work.jobs,
        work.truth,
        work.demand,
        work.patterns,
        work.after_ptr,
        work.after_idx,
    ):
        digest.update(b"none" if array is None else np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _quantiles(values: Array) -> dict[str, float]:
    if not len(values):
        return {}
    found = np.percentile(values, QUANTILES)
    told = {f"p{q}": float(value) for q, value in zip(QUANTILES, found)}
    return told | {"mean": float(np.mean(values)), "max": float(np.max(values))}


def _dispersion(submit_s: Array, window_s: float) -> float:
    """Variance / mean of arrivals a window; empty windows count though none is stored."""
    window = np.floor((submit_s - submit_s[0]) / window_s)
    windows = window[-1] + 1
    _, count = np.unique(window, return_counts=True)
    mean = len(submit_s) / windows
    return float((np.square(count.astype(float)).sum() / windows - mean**2) / mean)


def _counts(values: Array) -> dict[str, int]:
    found, count = np.unique(values, return_counts=True)
    return {str(value): int(n) for value, n in zip(found, count)}


def _named(values: Array, names: tuple[str, ...]) -> dict[str, int]:
    """Jobs a name, most first."""
    count = np.bincount(values, minlength=len(names))
    return {names[k]: int(count[k]) for k in np.argsort(-count, kind="stable") if count[k]}


def _graphs(work: Workload) -> dict[str, Any]:
    """Jobs linked by `after`: how many groups, their size, and the longest chain through them."""
    ptr, idx = work.after_ptr, work.after_idx
    if ptr is None or idx is None or not len(idx):
        return {"edges": 0}
    child = np.repeat(np.arange(len(work)), np.diff(ptr))
    depth = np.ones(len(work), np.int64)
    group = np.arange(len(work))
    while True:  # one round a level: the graph has no cycles
        deeper, joined = depth.copy(), group.copy()
        np.maximum.at(deeper, child, depth[idx] + 1)
        np.minimum.at(joined, child, group[idx])
        np.minimum.at(joined, idx, group[child])
        joined = joined[joined]
        if (deeper == depth).all() and (joined == group).all():
            break
        depth, group = deeper, joined
    linked = np.zeros(len(work), bool)
    linked[child] = linked[idx] = True
    heads, size = np.unique(group[linked], return_counts=True)
    longest = np.zeros(len(work), np.int64)
    np.maximum.at(longest, group, depth)
    return {
        "edges": len(idx),
        "count": len(heads),
        "jobs": _quantiles(size),
        "depth": _quantiles(longest[heads]),
    }
