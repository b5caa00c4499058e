"""A site's rules, by name: who may run where, with what, and how much at once.

`Cluster.site` holds the rows, `Workload.labels` what each job names of them. `matched` in
`traces/scenes/match.py` turns both into what the engine keeps to: kinds of node, quotas and gates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from trimtab.arrays import Array

# What a job may name; the text is the site's own, and "" names nothing.
PARTITION = "partition"  # one, or several between commas: any of them
GPU_KIND = "gpu_kind"  # such as a100
CONSTRAINT = "constraint"  # features in Slurm's form: nvlink&(ib|opa)
RESERVATION = "reservation"
QOS = "qos"
ACCOUNT = "account"
USER = "user"
ARRAY = "array"  # job id and how many tasks may run at once: 1234%4
EXCLUSIVE = "exclusive"  # "yes" = no other job on its nodes
ASKS = (PARTITION, GPU_KIND, CONSTRAINT, RESERVATION, QOS, ACCOUNT, USER, ARRAY, EXCLUSIVE)

WHOLE = "whole node"  # a resource, one a node, that keeps others off the nodes of exclusive jobs

# At most so much at once, by resource of the cluster (cpu, mem_gb, gpu) or "jobs" or "nodes".
Limits = Mapping[str, float]


class Labels(NamedTuple):
    """A column of names: job j has names[row[j]]."""

    names: tuple[str, ...]
    row: Array  # (J,)

    def of(self, job: int) -> str:
        return self.names[int(self.row[job])]

    def unsaid(self) -> Labels:
        """Room for the same names, of which no job has said one yet."""
        names = self.names if "" in self.names else (*self.names, "")
        return Labels(names, np.full(len(self.row), names.index("")))


def labelled(texts: Sequence[str]) -> Labels:
    """A column of names from one text a job, in order of their first appearance."""
    row_of: dict[str, int] = {}
    row = np.array([row_of.setdefault(str(text), len(row_of)) for text in texts], np.int64)
    return Labels(tuple(row_of), row)


@dataclass(frozen=True)
class Partition:
    """A set of nodes with a queue of its own. An empty list of who may enter lets all in."""

    name: str
    nodes: tuple[str, ...]  # names
    default: bool = False
    up: bool = True
    max_s: float = np.inf  # longest time limit of a job
    default_s: float = np.inf  # where a job names none
    min_nodes: float = 0
    max_nodes: float = np.inf  # of a job
    tier: int = 1  # higher tiers are served first, and may preempt
    factor: float = 1.0  # of a job's priority
    preempt: str = "off"  # what befalls its jobs when a higher tier wants their nodes: requeue ...
    exclusive: bool = False  # jobs take whole nodes
    qos: str = ""  # whose limits hold for its jobs
    accounts: tuple[str, ...] = ()
    deny_accounts: tuple[str, ...] = ()
    allow_qos: tuple[str, ...] = ()
    deny_qos: tuple[str, ...] = ()


@dataclass(frozen=True)
class Qos:
    """A quality of service: a priority, who yields to it, and limits."""

    name: str
    priority: float = 0.0
    preempts: tuple[str, ...] = ()
    max_s: float = np.inf
    group: Limits = field(default_factory=dict)  # of all its running jobs
    user: Limits = field(default_factory=dict)  # of each user's
    account: Limits = field(default_factory=dict)  # of each account's
    job: Limits = field(default_factory=dict)  # of one job


@dataclass(frozen=True)
class Account:
    """A node of the account tree. Limits of an account hold for all below it together."""

    name: str
    parent: str = ""  # "" = the root
    shares: float = 1.0
    group: Limits = field(default_factory=dict)
    job: Limits = field(default_factory=dict)
    max_s: float = np.inf
    users: Mapping[str, float] = field(default_factory=dict)  # shares of its users


@dataclass(frozen=True)
class Reservation:
    """Nodes that only some may use from one time to another, in seconds since 1970.

    Those who may are the jobs that name it, of these users or accounts where any are listed.
    """

    name: str
    nodes: tuple[str, ...]
    start_s: float
    end_s: float
    users: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Site:
    """The rules of a cluster. `features`, `gpu_kind` and `weight` are its nodes', row by row."""

    features: tuple[tuple[str, ...], ...] = ()  # (N,)
    gpu_kind: tuple[str, ...] = ()  # (N,) "" = no GPU
    weight: tuple[float, ...] = ()  # (N,) Slurm fills nodes of low weight first
    partitions: tuple[Partition, ...] = ()
    qos: tuple[Qos, ...] = ()
    accounts: tuple[Account, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    # how Slurm is set up there, in its own words: PriorityWeightAge, SchedulerParameters ...
    slurm: Mapping[str, str] = field(default_factory=dict)

    def only(self, nodes: Array) -> Site:
        """With these rows of the cluster's nodes left."""
        return replace(
            self,
            features=tuple(self.features[node] for node in nodes) if self.features else (),
            gpu_kind=tuple(self.gpu_kind[node] for node in nodes) if self.gpu_kind else (),
            weight=tuple(self.weight[node] for node in nodes) if self.weight else (),
        )


class Quotas(NamedTuple):
    """Amounts that groups of jobs may hold at once. Job j counts in idx[ptr[j]:ptr[j + 1]]."""

    names: tuple[str, ...]  # (Q,) such as "qos long, user ada"
    cap: Array  # (Q, R + 2) of the cluster's resources, then of jobs and of nodes
    ptr: Array  # (J + 1,)
    idx: Array
    nodes: Array  # (J,) that a gang counts for; of an array, each instance

    def only(self, keep: Array) -> Quotas:
        """Of the jobs where `keep` (J,) is true."""
        owner = np.repeat(np.arange(len(keep)), np.diff(self.ptr))
        counts = np.diff(self.ptr)[keep]
        ptr = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
        return self._replace(ptr=ptr, idx=self.idx[keep[owner]], nodes=self.nodes[keep])


GATE = np.dtype(  # nodes of these kinds are for jobs of this reservation alone meanwhile
    [("from_s", "f8"), ("to_s", "f8"), ("kinds", "u8")]
)
NO_GATES = np.zeros(0, GATE)
