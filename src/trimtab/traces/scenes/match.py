"""What jobs name of a site, turned into what the engine keeps to: node kinds, quotas and gates.

    workload, cluster, profile = matched(workload, cluster, profile)

A job may run on the nodes of any partition that it names and that takes it, else of the default
one, which have its GPU type and features; whether CPU jobs run on GPU nodes is for the partitions
to say. What a site lists none of (partitions, QOS, accounts) only describes the jobs; GPU types,
features and reservations must match, and an array's limit and `exclusive` hold on any cluster.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from trimtab.arrays import Array
from trimtab.build import likeness
from trimtab.columns import QUANTUM
from trimtab.core import Cluster, Profile, Workload
from trimtab.site import ARRAY, ASKS, EXCLUSIVE, GPU_KIND, WHOLE, Site
from trimtab.traces.scenes.caps import Caps, empty_room, limit, node_counts
from trimtab.traces.scenes.door import Door
from trimtab.traces.scenes.entry import Entry, entered
from trimtab.traces.scenes.gates import gates_of
from trimtab.traces.scenes.node_sets import distinct, masks, node_sets, split

ANYWHERE = (GPU_KIND, ARRAY, EXCLUSIVE)  # what a job means also on a cluster without a site


def matched(
    workload: Workload, cluster: Cluster, profile: Profile, *, lenient: bool = False
) -> tuple[Workload, Cluster, Profile]:
    """Jobs with the nodes they may use, their quotas and gates, on nodes of as many kinds.

    TraceError for the first job that names what there is not, or that the site would refuse; with
    `lenient` such jobs are dropped and counted by reason in `meta["dropped"]`. Kinds of node are
    split where jobs tell their nodes apart, and keep their names.
    """
    if not _says_anything(workload, cluster):
        return workload, cluster, profile
    site = cluster.site or Site()
    door = Door(workload, lenient=lenient)
    nodes = node_counts(workload, cluster)
    entry = entered(door, site, nodes, cluster.source)
    caps = Caps(door, cluster, nodes)
    limit(caps, site, entry)
    gates = gates_of(door, site, cluster)
    whole = _whole(door, site, entry)
    sets, of = node_sets(door, cluster, site, entry, gates)
    made, within, origin = split(cluster, sets, gates)
    jobs = workload.jobs.copy()
    jobs["node_kinds"] = masks(jobs["node_kinds"], of, within, origin)
    asks_s = jobs["request_s"]
    jobs["request_s"] = np.where(np.isfinite(asks_s), asks_s, entry.default_s())
    work = replace(
        workload,
        jobs=jobs,
        quotas=caps.made(),
        reserved=gates.reserved if len(made.gates) else None,
        meta=workload.meta | door.told(),
    )
    if whole.any():
        work, made = _alone(work, made, whole)
    if not door.keep.all():
        work = work.only(door.keep)
    work.jobs["like"] = likeness(work)
    rate, draw = (np.ascontiguousarray(of[:, origin]) for of in (profile.rate, profile.draw))
    return work, made, replace(profile, rate=rate, draw=draw)


def _says_anything(workload: Workload, cluster: Cluster) -> bool:
    site = cluster.site
    if site is not None and (site.partitions or site.reservations):
        return True
    names = ASKS if site is not None else ANYWHERE
    return any(any(workload.labels[name].names) for name in names if name in workload.labels)


def _whole(door: Door, site: Site, entry: Entry) -> Array:
    """(J,) whether a job shares its nodes with no other: it says so, or a partition does."""
    given = door.said(EXCLUSIVE)
    odd = np.array([name not in ("", "no", "yes") for name in given.names], bool)
    what = "is not yes or no; other ways to share nodes are not modelled"
    door.refuse(odd[given.row], EXCLUSIVE, lambda j: repr(given.of(j)), what, "give yes or no")
    whole = np.array([name == "yes" for name in given.names], bool)[given.row]
    for part in site.partitions:
        if part.exclusive:
            whole = whole | entry.takes(part)
    return whole


def _alone(work: Workload, cluster: Cluster, whole: Array) -> tuple[Workload, Cluster]:
    """Both with a resource of one a node, of which these jobs take all and others a trace.

    Where instances are processors, those of a gang that fit on a node become one instance: its
    whole nodes are its own.
    """
    jobs, demand = work.jobs.copy(), work.demand.copy()
    if work.meta.get("nodes") == "shared":
        of, first = distinct([jobs["like"], jobs["node_kinds"].view(np.int64)])
        room = np.ones(len(first))
        for i, row in enumerate(first):
            empty = empty_room(work, cluster, row)
            room[i] = empty[empty >= 1].min(initial=np.inf) if (empty >= 1).any() else 1
        gang = whole & (jobs["gang"] == 1)
        each = np.where(gang, np.minimum(room[of], jobs["instances"]), 1)
        jobs["instances"] = np.ceil(jobs["instances"] / each)
        demand *= each[:, None]
        jobs["gpus"] = jobs["gpus"] * each
    column = np.where(whole, 1.0, QUANTUM)
    quotas = work.quotas
    if quotas is not None:
        cap = np.insert(quotas.cap, len(cluster.resources), np.inf, axis=1)
        quotas = quotas._replace(cap=cap)
    made = replace(
        cluster,
        capacity=np.column_stack((cluster.capacity, np.ones(len(cluster)))),
        resources=(*cluster.resources, WHOLE),
    )
    table = np.column_stack((demand, column))
    names = (*work.resources, WHOLE)
    return replace(work, jobs=jobs, demand=table, resources=names, quotas=quotas), made
