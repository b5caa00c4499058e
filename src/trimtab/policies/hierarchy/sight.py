"""What a manager sees: a row of numbers a machine and a row a region, of a snapshot and its graph.

All are shares, or logarithms of ratios: clusters of any size and kind look alike.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.compiled import compiled
from trimtab.policies.hierarchy.graph import CORES, ENDS, INSTANCES, Graph

MACHINE = {
    "load": "used / capacity",
    "read": "of that, services by the last reading; what they reserve where it is unknown",
    "reserved": "by services",
    "soon": "foreseen peak of services within 60 s",
    "late": "the same within 480 s",
    "room": "that batch jobs may still book",
    "batch": "cores of batch instances",
    "ends": "1 - e^(-seconds until these end, their mean / 300)",
    "instances": "of batch, over cores",
    "memory": "free",
    "crowded": "1 = load above .95 with batch jobs",
    "down": "1 = not up",
    "speed": "mean over classes of work, of the fastest kind of machine",
}
REGION = {
    "limit": "that stands",
    "nodes": "share of the cluster's",
    "harm": "of what its services used since the last look, the share that was harmed",
    "evicted": "instances since then, over machines",
    "coupled": "1 - e^(-jobs with instances here and elsewhere / machines)",
    "waiting": "cores that wait / cores of the cluster, x / (1 + x)",
    "long": "of the waiting core-seconds, the share asked for above 240 s",
    "oldest": "1 - e^(-seconds of the job that waits longest / 600)",
    "started": "1 - e^(-seconds since anything began / 300)",
}
SOON, LATE = 60.0, 480.0
CROWDED = 0.95
LONG_S = 240.0


class Sight(NamedTuple):
    machine: Array  # (N, len(MACHINE))
    region: Array  # (G, len(REGION))
    of: Array  # (N,) region of each machine
    link: Array  # (G, G) how much regions tell each other: links and coupling


class Memory(NamedTuple):
    """Of the last look: what the counters of machines were."""

    harm_s: Array  # (N,)
    evicted: Array  # (N,)
    now_s: float


def look(view: Any, graph: Graph, memory: Memory | None) -> tuple[Sight, Memory]:
    """What is seen of a snapshot, and what to remember of it."""
    nodes, state = view.nodes, view.node_state
    regions = len(view.limit)
    machine = np.empty((len(nodes), len(MACHINE)))
    speed = view.profile.rate[:, :, 0].mean(0)
    horizon = np.asarray(view.horizon_s)
    soon, late = (int(np.searchsorted(horizon, at_s)) for at_s in (SOON, LATE))
    last = len(horizon) - 1
    describe(
        nodes, state, view.capacity, view.free, view.ahead, view.limit, graph.sums,
        speed / max(float(speed.max()), 1e-12), min(soon, last), min(late, last), view.now_s,
        machine,
    )  # fmt: skip
    of = nodes["region"].astype(np.int64)
    kept = Memory(state["harm_s"].copy(), state["evicted"].copy(), view.now_s)
    before = memory if memory is not None and memory.now_s <= view.now_s else kept
    region = np.zeros((regions, len(REGION)))
    count = np.maximum(np.bincount(of, minlength=regions), 1)
    used = np.where(state["read"] < 0, state["reserved"], state["read"])
    since_s = max(view.now_s - before.now_s, 1.0)
    served_s = np.maximum(np.bincount(of, used, regions) * since_s, 1e-9)
    region[:, 0] = view.limit
    region[:, 1] = count / len(nodes)
    region[:, 2] = np.bincount(of, kept.harm_s - before.harm_s, regions) / served_s
    region[:, 3] = np.bincount(of, kept.evicted - before.evicted, regions) / count
    region[:, 4] = 1 - np.exp(-graph.coupling.sum(1) / count)
    region[:, 5:] = waiting(view)
    link = np.asarray(view.link)
    link = np.ones((regions, regions)) if len(link) != regions else link
    tied = link + graph.coupling / np.maximum(graph.coupling.sum(1, keepdims=True), 1)
    np.fill_diagonal(tied, 0.0)
    return Sight(machine, region, of, tied / np.maximum(tied.sum(1, keepdims=True), 1e-9)), kept


def waiting(view: Any) -> Array:
    """The last columns of REGION, which all regions share."""
    queue = np.asarray(view.queue)
    queue = queue[np.isfinite(view.jobs["request_s"][queue])]  # services come back by themselves
    begun = view.runs["start_s"][view.running]
    jobs = view.jobs[view.runs["job"][view.running]]
    batch = begun[np.isfinite(jobs["request_s"])] if len(begun) else begun
    idle_s = view.now_s - float(batch.max()) if len(batch) else 0.0
    if not len(queue):
        return np.array([0.0, 0.0, 0.0, 0.0])
    driver = int(np.bincount(view.nodes["driver"]).argmax())
    cores = view.demand[queue, driver] * np.maximum(view.state["left"][queue], 0)
    asked_s = view.jobs["request_s"][queue]
    area = cores * asked_s
    share = cores.sum() / max(float(view.capacity[:, driver].sum()), 1e-9)
    oldest_s = view.now_s - float(view.state["queued_s"][queue].min())
    return np.array([
        share / (1 + share), float(area[asked_s > LONG_S].sum() / max(area.sum(), 1e-9)),
        1 - math.exp(-max(oldest_s, 0.0) / 600), 1 - math.exp(-max(idle_s, 0.0) / 300),
    ])  # fmt: skip


@compiled
def describe(
    nodes: Array, state: Array, capacity: Array, free: Array, ahead: Array, limit: Array,
    sums: Array, speed: Array, soon: int, late: int, now_s: float, out: Array,
) -> None:  # fmt: skip
    """Write a row of MACHINE for each machine."""
    for n in range(nodes.shape[0]):
        rec, now, driver = nodes[n], state[n], nodes[n].driver
        cap = max(capacity[n, driver], 1e-9)
        first = now.kept - (1.0 - limit[rec.region]) * cap  # the estimate of the shortest horizon
        out[n, 0] = now.load
        out[n, 1] = (now.reserved if now.read < 0.0 else now.read) / cap
        out[n, 2] = now.reserved / cap
        out[n, 3] = (first + (ahead[n, soon] if ahead.shape[1] > 0 else 0.0)) / cap
        out[n, 4] = (first + (ahead[n, late] if ahead.shape[1] > 0 else 0.0)) / cap
        out[n, 5] = free[n, driver] / cap
        out[n, 6] = sums[n, CORES] / cap
        out[n, 7] = 0.0
        if sums[n, CORES] > 0.0:
            left_s = max(sums[n, ENDS] / sums[n, CORES] - now_s, 0.0)
            out[n, 7] = 1.0 - math.exp(-left_s / 300.0) if left_s < np.inf else 1.0
        out[n, 8] = sums[n, INSTANCES] / cap
        memory = 1.0
        for r in range(free.shape[1]):
            if r != driver and capacity[n, r] > 0.0:
                memory = min(memory, free[n, r] / capacity[n, r])
        out[n, 9] = memory
        out[n, 10] = 1.0 if now.load > CROWDED and now.batch > 0 else 0.0
        out[n, 11] = 0.0 if now.up == 1 else 1.0
        out[n, 12] = speed[rec.kind]
