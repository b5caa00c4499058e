"""Workloads, clusters and profiles out of columns, checked where they are made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from trimtab.arrays import Array
from trimtab.checks import check_workload
from trimtab.columns import JOB, MAX_DEVICES, NODE, TRUTH, quantised
from trimtab.core import Cluster, Profile, Shape, Workload
from trimtab.errors import TraceError
from trimtab.site import Labels, Site


def workload(
    submit_s: Iterable[float] | Array,
    work_s: Iterable[float] | Array,
    demand: Any,
    *,
    resources: Sequence[str] = ("cpu",),
    request_s: Any = None,
    source: str = "made by hand",
    kinds: Sequence[str] = ("job",),
    tenants: Sequence[str] = ("all",),
    job_id: Any = None,
    after: Sequence[Sequence[int]] | tuple[Array, Array] | None = None,
    patterns: Any = None,
    pattern_step_s: float = 300.0,
    meta: dict[str, Any] | None = None,
    labels: Mapping[str, Labels] | None = None,
    **columns: Any,
) -> Workload:
    """A checked workload from columns; scalars fill all rows. `columns` are JOB and TRUTH fields.

    `labels` are what jobs name of a site: partition, gpu_kind and the others of site.ASKS.
    `after` is a list of parents a job, or the pair (ptr, idx). Raises TraceError for a submit time
    out of order, a negative or NaN number, a cycle, or a demand column that does not match
    `resources`.
    """
    submit = np.asarray(submit_s, dtype=np.float64)
    count = len(submit)
    jobs = np.zeros(count, JOB)
    truth = np.zeros(count, TRUTH)
    jobs["submit_s"] = submit
    truth["work_s"] = work_s
    jobs["request_s"] = truth["work_s"] if request_s is None else request_s
    jobs["deadline_s"] = jobs["checkpoint_s"] = truth["cancel_s"] = np.inf
    jobs["gpu_share"] = jobs["instances"] = jobs["gang"] = truth["use"] = 1
    jobs["node_kinds"] = np.uint64(0xFFFFFFFFFFFFFFFF)
    jobs["shapes"] = 1
    truth["pattern"] = -1
    for name, column in columns.items():
        target = jobs if name in (JOB.names or ()) else truth
        if name not in (target.dtype.names or ()):
            known = ", ".join([*(JOB.names or ()), *(TRUTH.names or ())])
            raise TraceError(f"{source}: column {name!r} is unknown; known columns: {known}")
        target[name] = column
    table = np.asarray(demand, dtype=np.float64)
    if table.ndim == 1:
        table = table[:, None]
    if table.shape != (count, len(resources)):
        raise TraceError(
            f"{source}: demand has shape {table.shape}, want ({count}, {len(resources)}) "
            f"for {count} jobs and resources {tuple(resources)}"
        )
    ptr, idx = _parents(after, count, source)
    jobs["gpu_mem_gb"] = quantised(jobs["gpu_mem_gb"])
    jobs["gpu_share"] = quantised(jobs["gpu_share"])
    made = Workload(
        jobs=jobs,
        truth=truth,
        demand=quantised(table) if table.size else table,
        resources=tuple(resources),
        kinds=tuple(kinds),
        tenants=tuple(tenants),
        job_id=None if job_id is None else np.asarray(job_id),
        after_ptr=ptr,
        after_idx=idx,
        patterns=np.ones((0, 1)) if patterns is None else np.asarray(patterns, dtype=np.float64),
        pattern_step_s=pattern_step_s,
        source=source,
        meta=meta or {},
        labels=dict(labels or {}),
    )
    check_workload(made)
    made.jobs["like"] = likeness(made)
    return made


def _parents(after: Any, count: int, source: str) -> tuple[Array | None, Array | None]:
    if after is None:
        return None, None
    if isinstance(after, tuple) and len(after) == 2 and isinstance(after[0], np.ndarray):
        return after[0].astype(np.int64), after[1].astype(np.int64)
    if len(after) != count:
        raise TraceError(
            f"{source}: after has {len(after)} rows, want one for each of {count} jobs"
        )
    ptr = np.concatenate(([0], np.cumsum([len(parents) for parents in after]))).astype(np.int64)
    idx = np.array([p for parents in after for p in parents], dtype=np.int64)
    return ptr, idx


def likeness(made: Workload) -> Array:
    """Number the distinct requests, so that one refusal in a pass answers for all its like."""
    if not len(made):
        return np.zeros(0, np.int64)
    names = ("gpu_share", "gpu_mem_gb", "node_kinds", "instances", "gang", "gpus", "kind", "shapes")
    columns = [made.jobs[name].astype(np.float64) for name in names] + list(made.demand.T)
    like = np.zeros(len(made), np.int64)
    for column in columns:  # pairwise: a row-wise unique of many columns sorts long keys
        _, part = np.unique(column, return_inverse=True)
        _, like = np.unique(like * (int(part.max()) + 1) + part, return_inverse=True)
    return np.asarray(like, dtype=np.int64)


def cluster(
    capacity: Any,
    *,
    resources: Sequence[str] = ("cpu",),
    kind: Any = 0,
    kinds: Sequence[str] | None = None,
    region: Any = 0,
    regions: Sequence[str] | None = None,
    gpu_mem_gb: Any = 0.0,
    idle_w: Any = 0.0,
    peak_w: Any = 0.0,
    names: Any = None,
    link: Any = None,
    source: str = "made by hand",
    site: Site | None = None,
) -> Cluster:
    """A checked cluster from columns; scalars fill all nodes. Devices come from column `gpu`."""
    table = np.asarray(capacity, dtype=np.float64)
    if table.ndim == 1:
        table = table[:, None]
    nodes = np.zeros(len(table), NODE)
    nodes["kind"], nodes["region"] = kind, region
    nodes["gpu_mem_gb"], nodes["idle_w"], nodes["peak_w"] = gpu_mem_gb, idle_w, peak_w
    nodes["gpu_mem_gb"] = quantised(nodes["gpu_mem_gb"])
    if len(table) == 0:
        raise TraceError(f"{source}: the cluster holds no nodes; nothing to schedule on")
    if table.shape[1] != len(resources):
        raise TraceError(
            f"{source}: capacity has {table.shape[1]} columns, want one each of {tuple(resources)}"
        )
    if not np.isfinite(table).all() or (table < 0).any():
        row, col = (int(v[0]) for v in np.nonzero(~(np.isfinite(table) & (table >= 0))))
        raise TraceError(
            f"{source}: node {row}: {resources[col]}={table[row, col]} "
            "is not a finite number >= 0; mend the file"
        )
    if "gpu" in resources:
        gpu = list(resources).index("gpu")
        nodes["gpus"] = table[:, gpu]
        nodes["driver"] = np.where(nodes["gpus"] > 0, gpu, 0)
        if (nodes["gpus"] != table[:, gpu]).any() or (nodes["gpus"] > MAX_DEVICES).any():
            raise TraceError(
                f"{source}: gpu must be a whole number of devices, at most {MAX_DEVICES} a node"
            )
    kinds_ = (
        tuple(kinds) if kinds else tuple(f"kind-{k}" for k in range(int(nodes["kind"].max()) + 1))
    )
    regions_ = (
        tuple(regions)
        if regions
        else tuple(f"region-{k}" for k in range(int(nodes["region"].max()) + 1))
    )
    if len(kinds_) > 64:
        raise TraceError(
            f"{source}: {len(kinds_)} node kinds; at most 64 are supported, merge some"
        )
    for name, names_ in (("kind", kinds_), ("region", regions_)):
        if nodes[name].min() < 0 or nodes[name].max() >= len(names_):
            raise TraceError(
                f"{source}: a node's {name} is not in 0..{len(names_) - 1}; name every {name}"
            )
    table_link = (
        np.ones((len(regions_), len(regions_)))
        if link is None
        else np.asarray(link, dtype=np.float64)
    )
    if (
        table_link.shape != (len(regions_), len(regions_))
        or not ((table_link > 0) & (table_link <= 1)).all()
    ):
        raise TraceError(
            f"{source}: link must be {len(regions_)} x {len(regions_)} numbers in (0, 1]"
        )
    return Cluster(
        nodes=nodes,
        capacity=quantised(table),
        resources=tuple(resources),
        kinds=kinds_,
        regions=regions_,
        names=None if names is None else np.asarray(names),
        link=table_link,
        source=source,
        site=site,
    )


def uniform_profile(kinds: int, node_kinds: int, shapes: Sequence[Shape] = (Shape(),)) -> Profile:
    """Every job at rate 1 (times its shape's scale) everywhere, undisturbed by neighbours."""
    rate = np.ones((kinds, node_kinds, len(shapes))) * np.array([shape.scale for shape in shapes])
    return Profile(
        rate=rate,
        slow=np.zeros((kinds, kinds)),
        draw=np.ones((kinds, node_kinds)),
        quality=np.ones((kinds, len(shapes))),
        shapes=tuple(shapes),
    )
