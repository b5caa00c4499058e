"""A site's partitions, QOS and accounts as arrays, and what each job names of them as rows."""

from __future__ import annotations

import numpy as np

from trimtab.arrays import Array
from trimtab.core import Snapshot
from trimtab.site import ACCOUNT, PARTITION, QOS, USER, Account, Labels, Partition, Qos

CPU, MEM = 0, 1  # columns of the resources
DEFAULT_QOS = "normal"
YIELDS = ("requeue", "cancel")


class Rows:
    """Without a site: one partition of all nodes, one QOS, and the tenants as users."""

    def __init__(self, snapshot: Snapshot) -> None:
        site, nodes = snapshot.site, len(snapshot.nodes)
        names = node_names(snapshot)
        parts = site.partitions if site is not None and site.partitions else ()
        self.apart = bool(parts)  # instances of a gang are nodes where Slurm says what nodes are
        self.partitions = parts or (Partition("all", tuple(names), default=True),)
        self.accounts: tuple[Account, ...] = site.accounts if site is not None else ()
        self.qos = (site.qos if site is not None else ()) or (Qos(DEFAULT_QOS),)
        inside = [set(part.nodes) for part in self.partitions]
        self.part_nodes = np.array(
            [[name in each for name in names] for each in inside], np.int8
        )  # (P, N)
        self.tier = np.array([part.tier for part in self.partitions], np.int64)
        self.factor = np.array([part.factor for part in self.partitions], np.float64)
        self.max_s = np.array([part.max_s for part in self.partitions], np.float64)
        self.yields = np.array([part.preempt.lower() in YIELDS for part in self.partitions])
        self.cancels = np.array([part.preempt.lower() == "cancel" for part in self.partitions])
        weight = np.array(site.weight) if site is not None and site.weight else np.zeros(nodes)
        self.level = np.unique(weight, return_inverse=True)[1].astype(np.int64)  # (N,)
        self.totals = self._totals(snapshot)
        qos_row = {qos.name: row for row, qos in enumerate(self.qos)}
        self.qos_priority = np.array([qos.priority for qos in self.qos], np.float64)
        self.qos_preempts = np.zeros((len(self.qos), len(self.qos)), np.bool_)
        for row, qos in enumerate(self.qos):
            for other in qos.preempts:
                if other in qos_row:
                    self.qos_preempts[row, qos_row[other]] = True
        self._qos_row = self._rows_of_names(snapshot, QOS, qos_row, qos_row.get(DEFAULT_QOS, 0))
        self._parts = self._parts_by_name(snapshot)  # of each text that a job may name
        self.most_parts = max(len(rows) for rows in self._parts)

    def _totals(self, snapshot: Snapshot) -> tuple[Array, Array, Array]:
        """(P,) CPUs, memory and GPUs of each partition."""
        inside = self.part_nodes.astype(np.float64)
        capacity = snapshot.capacity
        mem = capacity[:, MEM] if capacity.shape[1] > MEM else np.zeros(len(capacity))
        return inside @ capacity[:, CPU], inside @ mem, inside @ snapshot.nodes["gpus"]

    def _rows_of_names(
        self, snapshot: Snapshot, name: str, row_of: dict[str, int], other: int
    ) -> Array:
        given = snapshot.labels.get(name)
        return np.array([row_of.get(text, other) for text in given.names] if given else [other])

    def _parts_by_name(self, snapshot: Snapshot) -> list[Array]:
        """Rows of the partitions that each text names, higher tiers first as Slurm sorts them."""
        row_of = {part.name: row for row, part in enumerate(self.partitions)}
        default = [row for row, part in enumerate(self.partitions) if part.default] or [0]
        given = snapshot.labels.get(PARTITION)
        found = []
        for text in given.names if given else ("",):
            rows = [row_of[name.strip()] for name in text.split(",") if name.strip() in row_of]
            rows = [row for row in rows if self.partitions[row].up] or default[:1]
            found.append(np.array(sorted(rows, key=lambda row: -self.tier[row]), np.int64))
        return found

    def parts_of(self, snapshot: Snapshot, jobs: Array) -> tuple[Array, Array]:
        """Rows of the partitions of each job: (n + 1,) where they begin, and the rows."""
        given = snapshot.labels.get(PARTITION)
        if given is None or len(self._parts) == 1:
            of = self._parts[0]
            return np.arange(len(jobs) + 1) * len(of), np.tile(of, len(jobs))
        texts = given.row[jobs]
        if self.most_parts == 1:
            first = np.array([rows[0] for rows in self._parts])
            return np.arange(len(jobs) + 1), first[texts]
        lists = [self._parts[text] for text in texts.tolist()]
        ptr = np.concatenate(([0], np.cumsum([len(rows) for rows in lists])))
        return ptr.astype(np.int64), np.concatenate([*lists, np.zeros(0, np.int64)])

    def qos_of(self, snapshot: Snapshot, jobs: Array) -> Array:
        given = snapshot.labels.get(QOS)
        return self._qos_row[given.row[jobs] if given else np.zeros(len(jobs), np.int64)]

    def user_of(self, snapshot: Snapshot, jobs: Array) -> Array:
        given: Labels | None = snapshot.labels.get(USER)
        return np.asarray(given.row[jobs] if given else snapshot.jobs["tenant"][jobs])

    def owner(self, snapshot: Snapshot, job: int) -> tuple[str, str]:
        """Account and user of the job; a tenant is a user of no account."""
        account, user = (
            snapshot.labels[name].of(job) if name in snapshot.labels else ""
            for name in (ACCOUNT, USER)
        )
        if not user and not account:
            user = f"tenant {int(snapshot.jobs['tenant'][job])}"
        return account, user or account

    def reserved(self, snapshot: Snapshot) -> Array:
        none = np.full(len(snapshot.jobs), -1)
        return none if snapshot.reserved is None else snapshot.reserved


def node_names(snapshot: Snapshot) -> list[str]:
    """The names as partitions list them."""
    if snapshot.names is None:
        return [f"node-{node}" for node in range(len(snapshot.nodes))]
    return [str(name) for name in snapshot.names]
