"""The sets of nodes that jobs name, and kinds of node that tell them apart."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from trimtab.arrays import Array
from trimtab.core import Cluster
from trimtab.errors import TraceError
from trimtab.site import CONSTRAINT, GPU_KIND, PARTITION, RESERVATION, Site
from trimtab.traces.scenes.constraint import choose
from trimtab.traces.scenes.door import Door, near
from trimtab.traces.scenes.entry import Entry
from trimtab.traces.scenes.gates import Gates

MOST_KINDS = 64


def node_sets(
    door: Door, cluster: Cluster, site: Site, entry: Entry, gates: Gates
) -> tuple[Array, Array]:
    """The distinct sets of nodes that jobs name (sets, N), and the row of each job (J,)."""
    names = cluster.node_names()
    inside = [
        [np.isin(names, part.nodes) for part in named] for named in entry.named
    ]  # by label, by partition
    gpu, has = _of_gpus(door, site, cluster), _of_features(door, site, cluster)
    columns = [
        entry.row,
        entry.taken,
        door.said(GPU_KIND).row,
        door.said(CONSTRAINT).row,
        gates.reserved,
    ]
    of, first = distinct(columns)
    sets = np.ones((len(first), len(cluster)), bool)
    for i, row in enumerate(first):
        if site.partitions:
            parts = [on for k, on in enumerate(inside[entry.row[row]]) if entry.taken[row] >> k & 1]
            sets[i] = np.any(parts, axis=0) if parts else False
        sets[i] &= gpu[door.said(GPU_KIND).row[row]] & has[door.said(CONSTRAINT).row[row]]
        if gates.reserved[row] >= 0:
            sets[i] &= gates.nodes[gates.reserved[row]]
    asked = (PARTITION, GPU_KIND, CONSTRAINT, RESERVATION)
    empty = np.array(~sets.any(axis=1))[of]
    problem = f"together are on no node of {cluster.source}"

    def said(job: int) -> str:
        return " ".join(
            f"{name}={door.said(name).of(job)}" for name in asked if door.said(name).of(job)
        )

    door.refuse(empty, "what it names", said, problem, "name what some node has")
    named, which = np.unique(sets, axis=0, return_inverse=True)
    return named, which.reshape(-1)[of]


def distinct(columns: Sequence[Array]) -> tuple[Array, Array]:
    """The number of each row among the distinct rows of some columns, and where each is first."""
    of = np.zeros(len(columns[0]), np.int64)
    for column in columns:  # pairwise: a row-wise unique of many columns sorts long keys
        _, part = np.unique(column, return_inverse=True)
        _, of = np.unique(of * (int(part.max()) + 1) + part, return_inverse=True)
    return of, np.unique(of, return_index=True)[1]


def gpu_nodes(text: str, site: Site, cluster: Cluster) -> Array:
    """(N,) nodes whose GPUs are of this type, by the site's word or the name of their kind.

    Case and what surrounds a word do not matter: a100 is on nodes of A100-80GB.
    """
    kinds = [cluster.kinds[kind] for kind in cluster.nodes["kind"]]
    told = site.gpu_kind or ("",) * len(cluster)
    names = [own or kind for own, kind in zip(told, kinds, strict=True)]
    has = np.array([_is_of(text, name) for name in names], bool)
    return has & (cluster.nodes["gpus"] > 0)


def _is_of(text: str, name: str) -> bool:
    text, name = text.lower(), name.lower()
    return text == name or text in re.split(r"[^a-z0-9]+", name)


def _of_gpus(door: Door, site: Site, cluster: Cluster) -> list[Array]:
    """(N,) a name of a GPU type; refuses jobs whose type no node has."""
    given, found = door.said(GPU_KIND), []
    kinds = [cluster.kinds[k] for k in np.unique(cluster.nodes["kind"][cluster.nodes["gpus"] > 0])]
    known = {name for name in site.gpu_kind if name} or set(kinds)
    for row, text in enumerate(given.names):
        on = gpu_nodes(text, site, cluster) if text else np.ones(len(cluster), bool)
        problem = f"is no type of GPU in {cluster.source}"
        lost = (given.row == row) & (not on.any())
        door.refuse(lost, GPU_KIND, repr(text), problem, near(text, known))
        found.append(on)
    return found


def _of_features(door: Door, site: Site, cluster: Cluster) -> list[Array]:
    """(N,) a constraint; refuses jobs whose constraint is unknown or not modelled."""
    given, found = door.said(CONSTRAINT), []
    features = site.features or ((),) * len(cluster)
    gang = (door.work.jobs["gang"] == 1) & (door.work.jobs["instances"] > 1)
    for row, text in enumerate(given.names):
        jobs, on = given.row == row, np.ones(len(cluster), bool)
        problem, remedy = "", "write it as features with &, | and parentheses"
        try:
            on, options = choose(text, features) if text else (on, 1)
            if options > 1:
                problem = "wants all nodes of one job alike in one of several ways: not modelled"
                jobs, remedy = jobs & gang, "name one of them"
        except KeyError as lost:
            names = {name for node in features for name in node}
            problem = f"names a feature {lost} that no node of {cluster.source} has"
            remedy = near(str(lost.args[0]), names)
        except ValueError as wrong:
            problem = str(wrong)
        if problem:
            door.refuse(jobs, CONSTRAINT, repr(text), problem, remedy)
        found.append(on)
    return found


def split(cluster: Cluster, sets: Array, gates: Gates) -> tuple[Cluster, Array, Array]:
    """The cluster with its kinds split where sets or gates tell their nodes apart.

    With it (sets, kinds), whether a set has the nodes of a kind, and (kinds,) what each was.
    """
    bits = np.packbits(np.vstack((sets, *gates.nodes)), axis=0).T  # (N, bytes)
    marks = np.column_stack((cluster.nodes["kind"], bits))
    found, first, number = np.unique(marks, axis=0, return_index=True, return_inverse=True)
    if len(found) > MOST_KINDS:
        raise TraceError(
            f"{cluster.source}: partitions, GPU types, constraints and reservations that jobs name "
            f"tell {len(found)} kinds of node apart, and {MOST_KINDS} are the most; take some out"
        )
    order = np.lexsort((first, found[:, 0]))
    origin, example = found[order, 0].astype(np.int64), first[order]
    nodes = cluster.nodes.copy()
    nodes["kind"] = np.argsort(order)[number.reshape(-1)]
    gate = gates.gate.copy()
    for v, on in enumerate(gates.nodes):
        gate["kinds"][v] = _mask(on[example])
    names = tuple(cluster.kinds[kind] for kind in origin)
    return replace(cluster, nodes=nodes, kinds=names, gates=gate), sets[:, example], origin


def masks(old: Array, of: Array, within: Array, origin: Array) -> Array:
    """(J,) kinds of node for each job: of its set, and of kinds that it could use before."""
    number, first = distinct([of, old.view(np.int64)])
    made = np.zeros(len(first), np.uint64)
    for i, row in enumerate(first):
        could = np.array([int(old[row]) >> int(kind) & 1 for kind in origin], bool)
        on = within[of[row]] & could
        made[i] = old[row] if on.all() and ~old[row] == 0 else _mask(on)
    return made[number]


def _mask(on: Array) -> np.uint64:
    return np.uint64(sum(1 << int(k) for k in np.flatnonzero(on)))
