"""The nouns and protocols. Everything else is one of these, driven by the loop in `run.py`.

Rows are integers: `job` is a row of `Workload.jobs`, `node` a row of `Cluster.nodes`; `job_id` and
`node_name` are the outside world's strings. Record arrays keep one named column a quantity, in one
block of memory that compiled code reads without unpacking.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from trimtab.errors import TraceError

Array = np.ndarray[Any, Any]

JOB = np.dtype(
    [
        ("submit_s", "f8"),
        ("request_s", "f8"),  # the user's estimate of the run time at rate 1: often wrong
        ("priority", "f8"),  # larger is more urgent
        ("deadline_s", "f8"),  # absolute; inf = none
        ("gpu_share", "f8"),  # of each GPU taken: below 1 only with gpus = 1
        ("gpu_mem_gb", "f8"),  # of each GPU taken
        ("checkpoint_s", "f8"),  # work between checkpoints: 0 keeps all progress, inf keeps none
        ("node_kinds", "u8"),  # bit k = may run on node kind k
        ("shapes", "u8"),  # bit s = may run in shape s
        ("instances", "i8"),
        ("gang", "i8"),  # 1 = all instances start together, 0 = an array that need not
        ("gpus", "i8"),  # whole or shared devices an instance
        ("kind", "i8"),
        ("tenant", "i8"),
        ("like", "i8"),  # jobs with one number here ask for the same and fit in the same places
    ]
)
TRUTH = np.dtype(
    [
        ("work_s", "f8"),  # run time at rate 1, which no policy may see
        ("cancel_s", "f8"),  # absolute; inf = never
        ("use", "f8"),  # used / demanded while it runs
        ("pattern", "i8"),  # row of Workload.patterns, -1 = steady
        ("service", "i8"),  # 1 = runs beside the batch jobs, in wall time, and is not waited for
    ]
)
NODE = np.dtype(
    [
        ("gpu_mem_gb", "f8"),  # of each device
        ("idle_w", "f8"),
        ("peak_w", "f8"),
        ("kind", "i8"),
        ("region", "i8"),
        ("gpus", "i8"),
        ("driver", "i8"),  # the resource that stands for the node's load and drives its power
    ]
)
RUN = np.dtype(
    [
        ("start_s", "f8"),
        ("expected_end_s", "f8"),  # by the request: what backfilling may use
        ("end_s", "f8"),  # by the truth at the present rate
        ("updated_s", "f8"),
        ("resume_s", "f8"),  # work begins here: after start-up or a move
        ("left_s", "f8"),  # work still to do at rate 1
        ("rate", "f8"),
        ("job", "i8"),  # -1 = a free slot
        ("instances", "i8"),
        ("shape", "i8"),
        ("piece", "i8"),  # the first of its pieces
        ("place", "i8"),  # in the heap of ends
        ("sibling", "i8"),  # the next run of the same job, or the next free slot
    ]
)
PIECE = np.dtype(
    [
        ("run", "i8"),
        ("node", "i8"),
        ("count", "i8"),
        ("devices", "u8"),  # bit d = device d of the node
        ("next", "i8"),  # of the same run, or the next free slot
        ("before", "i8"),  # on the same node
        ("after", "i8"),
    ]
)
STATE = np.dtype(
    [
        ("start_s", "f8"),  # first start; NaN before
        ("end_s", "f8"),
        ("queued_s", "f8"),  # when it last became runnable
        ("waited_s", "f8"),  # seconds runnable and not running, so far
        ("kept_s", "f8"),  # work that checkpoints kept from earlier runs
        ("attained_s", "f8"),  # instance-seconds of runs that have ended
        ("wasted_s", "f8"),  # of those, thrown away: work that no checkpoint kept
        ("status", "i8"),  # a Status
        ("left", "i8"),  # instances not yet started
        ("active", "i8"),  # instances running
        ("parents", "i8"),  # unfinished jobs it waits for
        ("tries", "i8"),  # runs lost to failures
        ("stops", "i8"),  # times it was preempted
        ("run", "i8"),  # the first of its runs, -1 = none
    ]
)
NODE_STATE = np.dtype(
    [
        ("load", "f8"),  # used / capacity of the driving resource
        ("used", "f8"),
        ("draw", "f8"),  # share of the dynamic power that is drawn
        ("power_w", "f8"),
        ("energy_j", "f8"),
        ("load_s", "f8"),  # integral of load
        ("window_s", "f8"),  # the same, of the window that is not over yet
        ("since_s", "f8"),  # the integrals stand at this time
        ("up", "i8"),
        ("piece", "i8"),  # the first piece on it
        ("pieces", "i8"),
    ]
)
TOTALS = np.dtype(
    [
        ("time_s", "f8"),
        ("waiting_s", "f8"),  # integral of the number of waiting jobs
        ("system_s", "f8"),  # integral of the number of jobs waiting or running
        ("busy_s", "f8"),  # integral of the summed node load
        ("idle_s", "f8"),  # integral of idle nodes while jobs wait
        ("imbalance_s", "f8"),  # integral of the standard deviation of node load
        ("contended_s", "f8"),  # time during which jobs wait
        ("held_s", "f8"),  # integral, while jobs wait, of the allocated share of the cluster
        ("energy_j", "f8"),
        ("work_s", "f8"),  # instance-seconds of work done and kept
        ("lost_s", "f8"),  # instance-seconds of work thrown away
        ("quality", "f8"),
        ("submitted", "i8"),
        ("started", "i8"),
        ("finished", "i8"),
        ("stopped", "i8"),
        ("failed", "i8"),
        ("rejected", "i8"),
        ("refused", "i8"),
        ("late", "i8"),  # finished after the deadline
    ]
)
MAX_DEVICES = 64

# A quantity is kept in whole 2**-20ths, rounded down, so that sums and differences of 64-bit floats
# are exact: what was taken is given back to the last bit. Since floor(a) + floor(b) <= floor(a +
# b),
# whatever fits in real arithmetic still fits.
QUANTUM = 2.0**-20


def quantised(amount: Array) -> Array:
    """Amounts rounded down to the quantum that makes booking exact."""
    return np.floor(np.asarray(amount, dtype=np.float64) * 2.0**20) * QUANTUM


class What(IntEnum):
    SUBMITTED = 0
    PLACED = 1
    STARTED = 2
    FINISHED = 3
    STOPPED = 4
    REJECTED = 5
    REFUSED = 6
    FAILED = 7


class Status(IntEnum):
    """Where a job is in its life. From FINISHED on it has ended, once."""

    FUTURE = 0
    BLOCKED = 1  # submitted, but a parent has not finished
    QUEUED = 2
    RUNNING = 3
    FINISHED = 4
    FAILED = 5
    REJECTED = 6
    CANCELLED = 7


@dataclass(frozen=True, slots=True)
class Event:
    """What happened. On a real cluster PLACED (accepted) and STARTED (running) are two facts."""

    time_s: float
    what: What
    job: int
    nodes: tuple[int, ...] = ()
    shape: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Start:
    """Run a job: one node an instance; a gang names all of them, an array as many as it likes.

    `devices` holds one bit mask of GPUs an instance; empty leaves the choice to the backend.
    """

    job: int
    nodes: tuple[int, ...]
    shape: int = 0
    devices: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Stop:
    """Preempt a running job: it goes back to the queue with what its checkpoints kept."""

    job: int


@dataclass(frozen=True, slots=True)
class Move:
    """Migrate a running gang to other nodes, at the cost of a move."""

    job: int
    nodes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Resize:
    """Change the shape of a running mouldable job where it stands."""

    job: int
    shape: int


@dataclass(frozen=True, slots=True)
class Reject:
    """Turn a waiting job away for good."""

    job: int


@dataclass(frozen=True, slots=True)
class Wait:
    """Decide again at `until_s` even if nothing happens before; at the present second, at once,
    which is how a policy takes one decision at a time.
    """

    until_s: float = np.inf


Decision = Start | Stop | Move | Resize | Reject | Wait


@dataclass(frozen=True, slots=True)
class Shape:
    """How a mouldable job runs. `scale` multiplies its demand and GPUs; 1 = as submitted."""

    name: str = "asked"
    scale: float = 1.0
    parallelism: str = ""
    width: float = 1.0
    batch: int = 1


@dataclass(frozen=True)
class Workload:
    """Jobs as columns. `demand` is one instance's, one number a resource."""

    jobs: Array  # (J,) JOB
    truth: Array  # (J,) TRUTH
    demand: Array  # (J, R)
    resources: tuple[str, ...]
    kinds: tuple[str, ...] = ("job",)
    tenants: tuple[str, ...] = ("all",)
    job_id: Array | None = None  # (J,) strings; None = the row number
    after_ptr: Array | None = None  # (J + 1,) with after_idx: the jobs each one waits for
    after_idx: Array | None = None
    patterns: Array = field(default_factory=lambda: np.ones((0, 1)))  # (P, T) use by time of day
    pattern_step_s: float = 300.0
    source: str = "made by hand"
    meta: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.jobs)

    def name(self, job: int) -> str:
        return str(job) if self.job_id is None else str(self.job_id[job])

    def window(self, start: int, jobs: int | None = None) -> Workload:
        """Rows `start .. start + jobs`."""
        stop = len(self) if jobs is None else start + jobs
        if not (0 <= start < max(len(self), 1)) or stop > len(self) or stop <= start:
            raise TraceError(
                f"{self.source}: rows {start}..{stop} are outside the trace of {len(self)} jobs; "
                f"choose --start and --jobs within it"
            )
        keep = np.zeros(len(self), bool)
        keep[start:stop] = True
        return self.only(keep)

    def only(self, keep: Array) -> Workload:
        """The rows where `keep` (J,) is true. A job waits only for those of its parents that
        stay.
        """
        ptr, idx = self.after_ptr, self.after_idx
        if ptr is not None and idx is not None:
            owner = np.repeat(np.arange(len(self)), np.diff(ptr))
            edge = keep[owner] & keep[idx]
            place = np.cumsum(keep) - 1
            counts = np.bincount(place[owner[edge]], minlength=int(keep.sum()))
            ptr = np.concatenate(([0], np.cumsum(counts)))
            idx = place[idx[edge]]

        def cut(value: Any) -> Any:
            if isinstance(value, dict):
                return {name: cut(part) for name, part in value.items()}
            return (
                value[keep] if isinstance(value, np.ndarray) and len(value) == len(self) else value
            )

        return replace(
            self,
            meta=cut(self.meta),
            jobs=self.jobs[keep],
            truth=self.truth[keep],
            demand=self.demand[keep],
            job_id=None if self.job_id is None else self.job_id[keep],
            after_ptr=ptr,
            after_idx=idx,
        )

    def with_estimate(self, estimate: str) -> Workload:
        """The same jobs with `request_s` as submitted ("requested") or as it will be ("actual")."""
        if estimate == "requested":
            return self
        if estimate != "actual":
            raise TraceError(f"estimate={estimate!r} is unknown; use requested or actual")
        jobs = self.jobs.copy()
        jobs["request_s"] = self.truth["work_s"]
        return replace(self, jobs=jobs)


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
    **columns: Any,
) -> Workload:
    """A checked workload from columns; scalars spread over all rows. `columns` are JOB and TRUTH
    fields.

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
    )
    check_workload(made)
    made.jobs["like"] = _likeness(made)
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


def _likeness(made: Workload) -> Array:
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


@dataclass(frozen=True)
class Cluster:
    """Nodes as columns. A resource named `gpu` counts devices, each shared in fractions."""

    nodes: Array  # (N,) NODE
    capacity: Array  # (N, R)
    resources: tuple[str, ...]
    kinds: tuple[str, ...] = ("node",)
    regions: tuple[str, ...] = ("all",)
    names: Array | None = None  # (N,) strings
    link: Array = field(
        default_factory=lambda: np.ones((1, 1))
    )  # (G, G) rate of a gang across regions
    source: str = "made by hand"

    def __len__(self) -> int:
        return len(self.nodes)

    def name(self, node: int) -> str:
        return f"node-{node}" if self.names is None else str(self.names[node])


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
) -> Cluster:
    """A checked cluster from columns; scalars spread over all nodes. Devices come from column
    `gpu`.
    """
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
    )


@dataclass(frozen=True)
class Profile:
    """Speed, draw and quality a (job kind, node kind, shape): measured or modelled, and it says
    which.
    """

    rate: Array  # (K, kinds of node, S) work seconds a second
    slow: Array  # (K, K) extra time a co-located neighbour of kind k costs a job: 0 = none
    draw: Array  # (K, kinds of node) share of a node's dynamic power a fully used job draws
    quality: Array  # (K, S)
    shapes: tuple[Shape, ...] = (Shape(),)
    source: str = "uniform: every job runs at rate 1 on every node"
    measured: bool = False
    guessed: tuple[str, ...] = ()  # kinds of node whose rates nobody gave: taken to be 1


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


class Snapshot(NamedTuple):
    """What a policy may see now. Valid until the next wait() or apply(); keep what you encode, not
    this.
    """

    now_s: float
    queue: Array  # (Q,) jobs that wait, oldest first
    running: Array  # (M,) rows of `runs`, oldest job first
    jobs: Array  # (J,) JOB; rows not yet submitted are blank
    demand: Array  # (J, R)
    state: Array  # (J,) STATE
    nodes: Array  # (N,) NODE
    capacity: Array  # (N, R)
    free: Array  # (N, R)
    gpu_free: Array  # (N, D) share of each device
    gpu_mem_free: Array  # (N, D)
    node_state: Array  # (N,) NODE_STATE
    recent: Array  # (N, W) mean load of past windows, newest last
    runs: Array  # (slots,) RUN; only rows in `running` mean anything; end_s and left_s are blank
    pieces: Array  # (slots,) PIECE
    profile: Profile
    link: Array  # (G, G)
    startup_s: float
    mix: Mix
    totals: Array  # () TOTALS


class Mix(NamedTuple):
    """The requests an operator expects: what fragmentation is measured against."""

    jobs: Array  # (T,) JOB
    demand: Array  # (T, R)
    share: Array  # (T,) of all jobs


@runtime_checkable
class Policy(Protocol):
    """Chooses. Decisions are applied in order; one that returns several accounts for its own
    earlier ones.
    """

    def decide(self, snapshot: Snapshot) -> Sequence[Decision]: ...


@runtime_checkable
class Backend(Protocol):
    """A cluster, simulated or real. An accepted apply shows in the very next snapshot."""

    can: frozenset[type]

    def wait(self) -> list[Event] | None:
        """Block until something happens, and say what. None = nothing will ever happen again."""
        ...

    def snapshot(self) -> Snapshot: ...

    def apply(self, decision: Decision) -> Event: ...

    def close(self) -> None: ...


@runtime_checkable
class Codec(Protocol):
    """Snapshot to arrays and back, for learners."""

    def spaces(self) -> tuple[Any, Any]:
        """(observation space, action space), Gymnasium's."""
        ...

    def encode(self, snapshot: Snapshot) -> Any:
        """An element of the observation space: an array, or a dict of arrays."""
        ...

    def mask(self, snapshot: Snapshot) -> Array: ...

    def decode(self, action: int, snapshot: Snapshot) -> Sequence[Decision]: ...


class Sink(Protocol):
    """Receives every event with the snapshot after it: JSONL, SQLite, Prometheus, a dashboard."""

    def __call__(self, event: Event, snapshot: Snapshot) -> None: ...
