"""Limits of a site on its jobs: what one job may ask for, and what groups may hold at once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial

import numpy as np

from trimtab.arrays import Array
from trimtab.columns import quantised
from trimtab.core import Cluster, Workload
from trimtab.errors import TraceError
from trimtab.site import ACCOUNT, ARRAY, QOS, USER, Account, Limits, Qos, Quotas, Site
from trimtab.traces.scenes.door import Door
from trimtab.traces.scenes.entry import Entry

TASKS = re.compile(r"(.+)%(\d+)")


def node_counts(work: Workload, cluster: Cluster) -> Array:
    """(J,) nodes that a job is counted for: an instance is one, unless it is a processor.

    Where instances are processors (`meta["nodes"]` is "shared"), as few as could hold them. Of an
    array each instance counts alone.
    """
    jobs = work.jobs
    alone = np.where(jobs["gang"] == 1, jobs["instances"], 1)
    if work.meta.get("nodes") != "shared":
        return alone.astype(np.float64)
    return np.ceil(alone / np.maximum(instances_a_node(work, cluster), 1))


def instances_a_node(work: Workload, cluster: Cluster) -> Array:
    """(J,) instances of each job that the roomiest node holds when it is empty."""
    _, first, like = np.unique(work.jobs["like"], return_index=True, return_inverse=True)
    most = np.array([empty_room(work, cluster, row).max() for row in first])
    return most[like]


def empty_room(work: Workload, cluster: Cluster, row: int) -> Array:
    """(N,) instances of a job that each node of a kind it may use holds when it is empty."""
    kinds = int(work.jobs["node_kinds"][row])
    room = np.where([kinds >> int(kind) & 1 for kind in cluster.nodes["kind"]], np.inf, 0.0)
    for r, name in enumerate(work.resources):
        if work.demand[row, r] > 0 and name in cluster.resources:
            has = cluster.capacity[:, cluster.resources.index(name)]
            room = np.minimum(room, has // work.demand[row, r])
    return room


def sizes(work: Workload, nodes: Array, name: str) -> Array:
    """(J,) what a whole gang, or one instance of an array, takes of a resource or of nodes."""
    if name == "nodes":
        return nodes
    if name == "jobs":
        return np.ones(len(work))
    if name not in work.resources:
        return np.zeros(len(work))
    alone = np.where(work.jobs["gang"] == 1, work.jobs["instances"], 1)
    return work.demand[:, work.resources.index(name)] * alone


def _amount(asks: Array, job: int) -> str:
    return f"{asks[job]:g}"


class Caps:
    """Groups of jobs with a cap on what they hold at once, gathered one by one."""

    def __init__(self, door: Door, cluster: Cluster, nodes: Array) -> None:
        self.door, self.cluster, self.nodes = door, cluster, nodes
        self.columns = (*cluster.resources, "jobs", "nodes")
        self.names: list[str] = []
        self.caps: list[Array] = []
        self.pairs: list[tuple[Array, Array]] = []  # (jobs, quotas)

    def job(self, who: str, limits: Limits, jobs: Array) -> None:
        """Refuse each of the jobs (a mask) that alone is above a limit."""
        for name, most in self._known(who, limits).items():
            asks = sizes(self.door.work, self.nodes, name)
            problem = f"is above the {most:g} of {who}"
            remedy = "mend the limit in the cluster file"
            self.door.refuse(jobs & (asks > most), name, partial(_amount, asks), problem, remedy)

    def time(self, who: str, max_s: float, jobs: Array) -> None:
        """Refuse each of the jobs that asks for more time."""
        asks_s = self.door.work.jobs["request_s"]
        long = np.isfinite(asks_s) & (asks_s > max_s)
        problem = f"is above the {max_s:g} of {who}"
        remedy = "mend the limit in the cluster file"
        self.door.refuse(jobs & long, "request_s", partial(_amount, asks_s), problem, remedy)

    def group(self, who: str, limits: Limits, jobs: Array) -> None:
        """Jobs (a mask) that together hold no more than this at once."""
        if not limits:
            return
        self.job(who, limits, jobs)
        self._add([who], limits, np.flatnonzero(jobs), np.zeros(int(jobs.sum()), np.int64))

    def each(self, who: str, label: str, limits: Limits, jobs: Array) -> None:
        """The same of each user or account among the jobs."""
        if not limits:
            return
        if label not in self.door.work.labels:
            raise TraceError(
                f"{self.cluster.source}: {who} limits each {label}, but {self.door.work.source} "
                f"does not say the {label} of its jobs; take the limit out or give such a log"
            )
        self.job(f"{who}, each {label}", limits, jobs)
        given = self.door.said(label)
        rows = np.flatnonzero(jobs)
        found, number = np.unique(given.row[rows], return_inverse=True)
        self._add([f"{who}, {label} {given.names[i]}" for i in found], limits, rows, number)

    def _add(self, names: list[str], limits: Limits, rows: Array, number: Array) -> None:
        cap = np.full(len(self.columns), np.inf)
        for name, most in self._known(names[0] if names else "", limits).items():
            cap[self.columns.index(name)] = (
                float(quantised(np.array(most))) if np.isfinite(most) else np.inf
            )
        if np.isfinite(cap).any() and len(rows):
            self.pairs.append((rows, number + len(self.names)))
            self.names += names
            self.caps += [cap] * len(names)

    def _known(self, who: str, limits: Limits) -> Mapping[str, float]:
        for name, most in limits.items():
            if name not in self.columns:
                raise TraceError(
                    f"{self.cluster.source}: {who}: limit {name}={most:g} is on nothing that the "
                    f"cluster has ({', '.join(self.columns)}); name one of these"
                )
        return limits

    def made(self) -> Quotas | None:
        """All groups so far."""
        if not self.names:
            return None
        jobs = np.concatenate([rows for rows, _ in self.pairs])
        quota = np.concatenate([number for _, number in self.pairs])
        order = np.lexsort((quota, jobs))
        count = np.bincount(jobs, minlength=len(self.door.work))
        ptr = np.concatenate(([0], np.cumsum(count))).astype(np.int64)
        idx = quota[order].astype(np.int64)
        return Quotas(tuple(self.names), np.array(self.caps), ptr, idx, self.nodes)


def limit(caps: Caps, site: Site, entry: Entry) -> None:
    """Keep to the limits of the site's QOS and accounts, and of the jobs' own arrays."""
    door, source = caps.door, caps.cluster.source
    if site.qos:
        door.refuse_unknown(QOS, (one.name for one in site.qos), "QOS", source)
    if site.accounts:
        door.refuse_unknown(ACCOUNT, (one.name for one in site.accounts), "account", source)
    for one in site.qos:
        _limit_qos(caps, one, _who_has(door, site, one, entry))
    for account in site.accounts:
        _limit_account(caps, account, site)
    given = door.said(ARRAY)
    for row, text in enumerate(given.names):
        found = TASKS.fullmatch(text)
        jobs = given.row == row
        if "%" in text and (not found or int(found[2]) < 1):
            remedy = "give a limit of 1 or more, or none"
            door.refuse(jobs, ARRAY, repr(text), "is not such as 1234%4", remedy)
        elif found:
            caps.group(f"array {found[1]}", {"jobs": float(found[2])}, jobs)


def _who_has(door: Door, site: Site, one: Qos, entry: Entry) -> Array:
    """The jobs of a QOS: those that name it and those of a partition that it is of."""
    given = door.said(QOS)
    jobs = np.array([name == one.name for name in given.names], bool)[given.row]
    for part in site.partitions:
        if part.qos == one.name:
            jobs = jobs | entry.takes(part)
    return jobs


def _limit_qos(caps: Caps, one: Qos, jobs: Array) -> None:
    who = f"qos {one.name}"
    caps.time(who, one.max_s, jobs)
    caps.job(who, one.job, jobs)
    caps.group(who, one.group, jobs)
    caps.each(who, USER, one.user, jobs)
    caps.each(who, ACCOUNT, one.account, jobs)


def _limit_account(caps: Caps, account: Account, site: Site) -> None:
    """Limits of an account are those of all below it, too."""
    parent = {one.name: one.parent for one in site.accounts}
    given = caps.door.said(ACCOUNT)
    below = []
    for name in given.names:
        seen: list[str] = []
        while name and name not in seen:
            seen.append(name)
            name = parent.get(name, "")
        below.append(account.name in seen)
    jobs = np.array(below, bool)[given.row]
    who = f"account {account.name}"
    caps.time(who, account.max_s, jobs)
    caps.job(who, account.job, jobs)
    caps.group(who, account.group, jobs)
