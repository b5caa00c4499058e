"""Jobs on nodes: the nouns and protocols. All else is one of these, driven by the loop in `run.py`.

Rows are integers: `job` is a row of `Workload.jobs`, `node` a row of `Cluster.nodes`; `job_id` and
`node_name` are the outside world's strings. `columns.py` says what the record arrays hold,
`build.py` makes workloads and clusters. Two other wings have nouns of their own: requests on
servers (`serving/nouns.py`) and plans on GPUs (`llm/nouns.py`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from trimtab.arrays import Array
from trimtab.errors import TraceError
from trimtab.site import NO_GATES, Labels, Quotas, Site


class What(IntEnum):
    """What became of a job, or of a decision about it."""

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
    """Bring a running gang to other nodes: a stop and a start, unless live migration exists."""

    job: int
    nodes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Resize:
    """Change the shape of a running mouldable job where it stands, at the cost of a move."""

    job: int
    shape: int


@dataclass(frozen=True, slots=True)
class Reject:
    """Turn a waiting job away for good."""

    job: int


@dataclass(frozen=True, slots=True)
class Limit:
    """Lend batch jobs what services leave under this share of every node of a region (-1: of all).

    `estimate` names how the services' use is foreseen; "" leaves that as it is. `margin`:
    deviations that a learned estimate adds. `patience_s`: seconds after which batch jobs leave a
    crowded node, and at once those whose time is lost anyway; below 0 none does. Where a learned
    estimate tells horizons apart: `overstay`, the room of batch jobs is free for what comes after
    them so many planned times after they began, 0 = it is theirs for good; `taper`, the share falls
    by so much with each longer horizon. NaN leaves any of them as it is. `learned`: what is added
    to the medians of the estimate `encoder`, horizon by horizon, in shares of a node, and then
    factors of its deviations; () leaves them as they are.
    """

    share: float
    region: int = -1
    estimate: str = ""
    margin: float = math.nan
    patience_s: float = math.nan
    overstay: float = math.nan
    taper: float = math.nan
    learned: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Wait:
    """Decide again at `until_s` even if nothing happens before; at the present second, at once,
    which is how a policy takes one decision at a time.
    """

    until_s: float = np.inf


Decision = Start | Stop | Move | Resize | Reject | Limit | Wait


@dataclass(frozen=True, slots=True)
class Shape:
    """How a mouldable job runs. `scale` multiplies its demand and GPUs; 1 = as submitted."""

    name: str = "asked"
    scale: float = 1.0


IN_TIME = (10.0, 0.0)  # requests and seconds within which a job is in time, unless told


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
    labels: dict[str, Labels] = field(default_factory=dict)  # site.ASKS: what the jobs name
    quotas: Quotas | None = None  # with reserved: what matching the labels with a site gave
    reserved: Array | None = None  # (J,) row of Cluster.gates that the job may pass, -1 = none

    def __len__(self) -> int:
        return len(self.jobs)

    @property
    def in_time(self) -> tuple[float, float]:
        """A job without a deadline is in time within so many of its requests and seconds."""
        plans, spare_s = self.meta.get("in_time", IN_TIME)
        return float(plans), float(spare_s)

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
        """The rows where `keep` (J,) is true. A job waits only for its parents that stay."""
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
            labels={
                name: Labels(given.names, given.row[keep]) for name, given in self.labels.items()
            },
            quotas=None if self.quotas is None else self.quotas.only(keep),
            reserved=None if self.reserved is None else self.reserved[keep],
        )

    def label(self, name: str, job: int) -> str:
        """What the job names there, "" if nothing."""
        return self.labels[name].of(job) if name in self.labels else ""

    def with_estimate(self, estimate: str) -> Workload:
        """The same jobs with `request_s` as submitted ("requested") or as it will be ("actual")."""
        if estimate == "requested":
            return self
        if estimate != "actual":
            raise TraceError(f"estimate={estimate!r} is unknown; use requested or actual")
        jobs = self.jobs.copy()
        jobs["request_s"] = self.truth["work_s"]
        return replace(self, jobs=jobs)


@dataclass(frozen=True)
class Lending:
    """How a cluster lends to batch jobs what its services reserve and do not use, of the driving
    resource of each node. docs/colocation.md says why each is as it is.
    """

    limit: float = 0.8  # share of a node that the services' estimate and batch jobs may fill
    estimate: str = "now"  # a name of rules.names.ESTIMATES
    readings: int = 24  # that an estimate looks back
    every: int = 1  # steps of use between two of them
    late: int = 0  # steps of use that a reading is old when it comes
    missing: float = 0.0  # share of the readings that never come
    stale: int = 12  # steps after which the last reading says nothing any more
    crowded: float = 0.95  # load above which services are harmed
    grace_s: float = 4.0  # of overload before batch jobs are evicted, inf = never
    evict_to: float = 0.98  # load down to which they are
    back_off_s: float = 30.0  # before what was evicted is back in the queue
    seed: int = 0  # of the readings that go missing
    forecast: str = ""  # weights of the estimate of that name: a file or folder; "" = the shipped
    encoder: str = ""  # the same of that one
    # (G, K) mean share of each region's capacity that its services used on past days, from second 0
    usual: Array | None = None
    usual_step_s: float = 300.0


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
    site: Site | None = None
    gates: Array = field(default_factory=NO_GATES.copy)  # (V,) GATE, one a reservation
    live_migration: bool = False  # a running job can go to another node and lose nothing
    lending: Lending | None = None  # None = what services reserve is theirs

    def __len__(self) -> int:
        return len(self.nodes)

    def name(self, node: int) -> str:
        return f"node-{node}" if self.names is None else str(self.names[node])

    def node_names(self) -> Array:
        """(N,) strings."""
        return np.array([self.name(node) for node in range(len(self))])

    def only(self, nodes: Array) -> Cluster:
        """These rows of the nodes, in this order."""
        return replace(
            self,
            nodes=self.nodes[nodes],
            capacity=self.capacity[nodes],
            names=None if self.names is None else self.names[nodes],
            site=None if self.site is None else self.site.only(nodes),
        )


@dataclass(frozen=True)
class Profile:
    """Speed, draw and quality a (job kind, node kind, shape); `source`: measured or modelled."""

    rate: Array  # (K, kinds of node, S) work seconds a second
    slow: Array  # (K, K) extra time a co-located neighbour of kind k costs a job: 0 = none
    draw: Array  # (K, kinds of node) share of a node's dynamic power a fully used job draws
    quality: Array  # (K, S)
    shapes: tuple[Shape, ...] = (Shape(),)
    source: str = "uniform: every job runs at rate 1 on every node"
    guessed: tuple[str, ...] = ()  # kinds of node whose rates nobody gave: taken to be 1
    # (K, 2) load of a node above which a job slows down, and its share of its speed at load 1
    curve: Array = field(default_factory=lambda: np.ones((0, 2)))


class Snapshot(NamedTuple):
    """What a policy may see until the next wait() or apply(); keep what you encode, not this."""

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
    move_s: float = 0.0  # that a move takes
    live_migration: bool = False  # a move loses nothing; else only what checkpoints keep is kept
    # a site's rules; of labels, rows not yet submitted are ""
    site: Site | None = None
    labels: Mapping[str, Labels] = MappingProxyType({})
    quotas: Quotas | None = None
    quota_used: Array = np.zeros((0, 0))  # (Q, R + 2) as Quotas.cap
    gates: Array = NO_GATES  # (V,) GATE
    reserved: Array | None = None  # (J,) row of gates that the job may pass, -1 = none
    names: Array | None = None  # (N,) of the nodes, as a site's partitions list them
    # where the cluster lends; else no rows of any
    limit: Array = np.zeros(0)  # (G,) a region's, and so are the next four, as in Limit
    margin: Array = np.zeros(0)
    overstay: Array = np.zeros(0)
    taper: Array = np.zeros(0)
    patience_s: Array = np.zeros(0)  # of crowded nodes, -1 = none is relieved
    estimate: str = ""
    horizon_s: Array = np.zeros(0)  # (H,)
    ahead: Array = np.zeros((0, 0))  # (N, H) kept from jobs that long, beyond what free leaves out
    said: Array = np.zeros((0, 0))  # (N, 2 H) rises by the encoder: medians, then deviations


class Mix(NamedTuple):
    """The requests an operator expects: what fragmentation is measured against."""

    jobs: Array  # (T,) JOB
    demand: Array  # (T, R)
    share: Array  # (T,) of all jobs


@runtime_checkable
class Policy(Protocol):
    """Chooses. Decisions apply in order; one that returns several accounts for its earlier ones."""

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
