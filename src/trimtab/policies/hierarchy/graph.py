"""The cluster as a graph that is kept, not rebuilt: machines, running entities, and their edges.

Edges of placement tie a run to its machines, of co-location the runs of a machine to each other,
of coupling regions that hold instances of one job, of communication regions by their links. A look
takes the runs of a snapshot: what it knows already costs one comparison, and only what came, went
or shrank since changes edges.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.compiled import compiled

# what a machine's edges of placement sum to
CORES, ENDS, INSTANCES = range(3)
SUMS = 3
SLOT = np.dtype([
    ("job", "i8"),  # -1 = no run is known here
    ("start_s", "f8"),
    ("instances", "i8"),
    ("first", "i8"),  # of its edges, -1 = none
    ("stamp", "i8"),  # of the last look that saw it
])  # fmt: skip
EDGE = np.dtype([("node", "i8"), ("count", "i8"), ("end_s", "f8"), ("next", "i8")])
HEAD = np.dtype([("stamp", "i8"), ("free", "i8"), ("edges", "i8"), ("changed", "i8")])


class Graph(NamedTuple):
    """Of one cluster; `grown` makes room for more runs and jobs."""

    slot: Array  # (M,) SLOT
    edge: Array  # (E,) EDGE, a free list through `next`
    sums: Array  # (N, SUMS) of each machine's runs
    held: Array  # (J, G) instances of each job in each region
    coupling: Array  # (G, G) jobs that have instances in both
    head: Array  # (1,) HEAD


def empty(slots: int, nodes: int, jobs: int, regions: int) -> Graph:
    """A graph of machines without a run."""
    graph = Graph(
        np.zeros(slots, SLOT), np.zeros(max(2 * slots, 64), EDGE), np.zeros((nodes, SUMS)),
        np.zeros((jobs, regions), np.int64), np.zeros((regions, regions), np.int64),
        np.zeros(1, HEAD),
    )  # fmt: skip
    graph.slot["job"] = graph.slot["first"] = -1
    graph.edge["next"] = np.arange(1, len(graph.edge) + 1)
    graph.edge["next"][-1] = -1
    return graph


def grown(graph: Graph, slots: int, jobs: int, edges: int) -> Graph:
    """The same graph with room for so many."""
    more = empty(slots, len(graph.sums), jobs, len(graph.coupling))
    edge = np.zeros(max(edges, len(graph.edge)), EDGE)
    edge["next"] = np.arange(1, len(edge) + 1)
    edge["next"][-1] = int(graph.head[0]["free"]) if len(edge) > len(graph.edge) else -1
    edge[: len(graph.edge)] = graph.edge
    head = graph.head.copy()
    if len(edge) > len(graph.edge):
        head["free"] = len(graph.edge)
    more.slot[: len(graph.slot)] = graph.slot
    more.held[: len(graph.held)] = graph.held
    more.sums[:], more.coupling[:] = graph.sums, graph.coupling
    return more._replace(edge=edge, head=head)


def seen(graph: Graph, view: Any) -> Graph:
    """Bring the graph up to a snapshot; returns it, or one with more room."""
    runs, jobs = len(view.runs), len(view.jobs)
    if runs > len(graph.slot) or jobs > len(graph.held):
        graph = grown(graph, runs, jobs, len(graph.edge))
    driver = view.nodes["driver"]
    while not look(
        graph.slot, graph.edge, graph.sums, graph.held, graph.coupling, graph.head, view.runs,
        view.pieces, view.running, view.demand, view.nodes["region"], driver,
    ):  # fmt: skip
        graph = grown(graph, len(graph.slot), len(graph.held), 2 * len(graph.edge))
    return graph


@compiled
def look(
    slot: Array, edge: Array, sums: Array, held: Array, coupling: Array, head: Array, runs: Array,
    pieces: Array, running: Array, demand: Array, region: Array, driver: Array,
) -> bool:  # fmt: skip
    """One look; False where edges ran out, after which the same look goes on."""
    head[0].stamp += 1
    head[0].changed = 0
    for i in range(running.shape[0]):
        m = running[i]
        run = runs[m]
        known = slot[m]
        same = known.job == run.job and known.start_s == run.start_s
        if not (same and known.instances == run.instances):
            forget(slot, edge, sums, held, coupling, head, demand, region, driver, m)
            learn(
                slot, edge, sums, held, coupling, head, runs, pieces, demand, region,
                driver, m,
            )  # fmt: skip
            if slot[m].instances < 0:
                slot[m].instances = 0
                return False
            head[0].changed += 1
        slot[m].stamp = head[0].stamp
    for m in range(slot.shape[0]):
        if slot[m].job >= 0 and slot[m].stamp != head[0].stamp:
            forget(slot, edge, sums, held, coupling, head, demand, region, driver, m)
            head[0].changed += 1
    return True


@compiled
def tie(held: Array, coupling: Array, job: int, g: int, by: int) -> None:
    """Count instances of a job in a region, and what that says of pairs of regions."""
    before = held[job, g] > 0
    held[job, g] += by
    after = held[job, g] > 0
    if before != after:
        for other in range(held.shape[1]):
            if other != g and held[job, other] > 0:
                change = 1 if after else -1
                coupling[g, other] += change
                coupling[other, g] += change


@compiled
def place(
    sums: Array, held: Array, coupling: Array, demand: Array, region: Array,
    driver: Array, job: int, node: int, count: int, end_s: float,
) -> None:  # fmt: skip
    """Add an edge of placement to the sums of its machine, or take it off (count below 0)."""
    cores = demand[job, driver[node]] * count
    if end_s == np.inf:  # a service: it has no end that could be waited for
        return
    sums[node, CORES] += cores
    sums[node, ENDS] += cores * end_s
    sums[node, INSTANCES] += count
    tie(held, coupling, job, region[node], count)


@compiled
def forget(
    slot: Array, edge: Array, sums: Array, held: Array, coupling: Array, head: Array,
    demand: Array, region: Array, driver: Array, m: int,
) -> None:  # fmt: skip
    at = slot[m].first
    while at >= 0:
        place(
            sums, held, coupling, demand, region, driver, slot[m].job, edge[at].node,
            -edge[at].count, edge[at].end_s,
        )  # fmt: skip
        following = edge[at].next
        edge[at].next = head[0].free
        head[0].free = at
        head[0].edges -= 1
        at = following
    slot[m].job = slot[m].first = -1


@compiled
def learn(
    slot: Array, edge: Array, sums: Array, held: Array, coupling: Array, head: Array, runs: Array,
    pieces: Array, demand: Array, region: Array, driver: Array, m: int,
) -> None:  # fmt: skip
    run = runs[m]
    slot[m].job, slot[m].start_s, slot[m].instances = run.job, run.start_s, run.instances
    at = run.piece
    while at >= 0:
        new = head[0].free
        if new < 0:  # no room: what was learned of it is taken back by the next look
            slot[m].instances = -1
            return
        head[0].free = edge[new].next
        head[0].edges += 1
        edge[new].node, edge[new].count = pieces[at].node, pieces[at].count
        edge[new].end_s = run.expected_end_s
        edge[new].next = slot[m].first
        slot[m].first = new
        place(
            sums, held, coupling, demand, region, driver, run.job, pieces[at].node,
            pieces[at].count, run.expected_end_s,
        )  # fmt: skip
        at = pieces[at].next
