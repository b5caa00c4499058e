"""Fill a GPU cluster pod by pod, as the FGD paper does: pods arrive in order and never leave.

Follows the authors' scheduler: CPU, memory, GPU model and GPU share are filters, the policy scores
the nodes that pass, the highest score wins and of equals the node with the smallest prefix (their
random renaming of nodes). A pod that fits nowhere is dropped and not tried again.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from trimtab.compiled import compiled, interruptible
from trimtab.errors import TraceError
from trimtab.sim.fragment import (
    ANY_MODEL,
    GPU_MILLI,
    Demand,
    Typical,
    affinity,
    best_score,
    clustering_score,
    dot_score,
    fits,
    frag_score,
    node_frag,
    packer_score,
    packing_score,
    random_devices,
    take,
    typical_pods,
)

RANDOM, DOT_PRODUCT, GPU_CLUSTERING, GPU_PACKING, BEST_FIT, FGD, PACKER = range(7)
BY_NAME = {
    "random": RANDOM,
    "dotprod": DOT_PRODUCT,
    "clustering": GPU_CLUSTERING,
    "packing": GPU_PACKING,
    "bestfit": BEST_FIT,
    "fgd": FGD,
    "packer": PACKER,
}
NO_FIT = -32768  # below any score: a machine larger than the trace's largest scores below 0
WHOLE, FINE = np.dtype(np.int16), np.dtype(np.float32)  # of scores: a weighted sum is no integer
NO_WEIGHTS = np.zeros((0, 0))
MOST_BITS = 62  # devices and models are bits of a signed 64-bit number


class Nodes(NamedTuple):
    """A cluster of machines with GPUs of one model each."""

    cpu_milli: np.ndarray  # (N,)
    memory_mib: np.ndarray  # (N,)
    gpu: np.ndarray  # (N,) devices
    model: np.ndarray  # (N,) number of the GPU model, -1 without


class Pods(NamedTuple):
    """A pod list; the order of arrival is apart, and may repeat a pod."""

    cpu_milli: np.ndarray  # (P,)
    memory_mib: np.ndarray  # (P,)
    gpu_milli: np.ndarray  # (P,) of each GPU
    num_gpu: np.ndarray  # (P,)
    spec: np.ndarray  # (P,) number of the list of models the pod accepts
    spec_models: np.ndarray  # (specs,) bitmask of models


class Packing(NamedTuple):
    """What became of each arrival, and the cluster after it."""

    node: np.ndarray  # (A,) -1: dropped
    devices: np.ndarray  # (A,) bitmask
    arrived_gpu_milli: np.ndarray  # (A,) asked for so far, dropped pods too
    used_gpu_milli: np.ndarray  # (A,)
    frag_gpu_milli: np.ndarray  # (A,)
    capacity_gpu_milli: int

    @property
    def gpu_allocation(self) -> float:
        """Share of the cluster's GPUs in use at the end, 0..1; 0 where nothing arrived."""
        return float(self.used_gpu_milli[-1:].sum() / max(1, self.capacity_gpu_milli))


def columns(nodes: Mapping[str, np.ndarray], pods: Mapping[str, np.ndarray]) -> tuple[Nodes, Pods]:
    """Number the GPU models of openb's columns: as arrays of strings they cannot be compiled."""
    names = np.unique(nodes["model"][nodes["model"] != ""])
    if len(names) > MOST_BITS or nodes["gpu"].max(initial=0) > MOST_BITS:
        raise TraceError(
            f"the cluster has {len(names)} GPU models and up to {nodes['gpu'].max()} GPUs a node; "
            f"merge models or split nodes, at most {MOST_BITS} of each fit"
        )
    number = {str(name): m for m, name in enumerate(names)}
    model = np.array([number.get(str(name), -1) for name in nodes["model"]], np.int64)
    # alphabetical numbers: typical_pods breaks its last tie by them
    listed = np.array(["|".join(filter(None, str(s).split("|"))) for s in pods["gpu_spec"]])
    texts, spec = np.unique(np.where(pods["num_gpu"] > 0, listed, ""), return_inverse=True)
    bits = [sum(1 << number[m] for m in set(text.split("|")) if m in number) for text in texts]
    models = np.array([b if text else ANY_MODEL for b, text in zip(bits, texts)], np.int64)
    machine = (nodes[name].astype(np.int64) for name in ("cpu_milli", "memory_mib", "gpu"))
    asks = ("cpu_milli", "memory_mib", "gpu_milli", "num_gpu")
    demand = (pods[name].astype(np.int64) for name in asks)
    spec = spec.astype(np.int64).reshape(-1)
    return Nodes._make([*machine, model]), Pods._make([*demand, spec, models])


def by_prefix(names: np.ndarray, gpu: np.ndarray, node_prefix: np.ndarray | None) -> np.ndarray:
    """Rows of the nodes in the order that breaks ties: ascending prefix of the i-th node by name.

    The authors' runs know only nodes with GPUs: where the prefixes are as many as those, the nodes
    without take no part. node_prefix None: by name.
    """
    rows = np.argsort(names, kind="stable")
    if node_prefix is None:
        return rows
    if len(node_prefix) != len(rows):
        rows = rows[gpu[rows] > 0]
    if len(node_prefix) != len(rows):
        raise TraceError(
            f"node_prefix has {len(node_prefix)} entries for {len(names)} nodes, {len(rows)} of "
            "them with GPUs; give the cluster file that the order was made for"
        )
    return rows[np.argsort(node_prefix, kind="stable")]


def pack(
    nodes: Nodes,
    pods: Pods,
    order: np.ndarray,
    policy: int,
    rows: np.ndarray | None = None,
    rng: np.random.Generator | None = None,
    weights: np.ndarray | None = None,
) -> Packing:
    """Place the pods of an order (rows of pods) with one policy.

    rows: the nodes that take part, the winner of a tie first (see by_prefix); None: all, as they
    stand. rng: for RANDOM only; weights: for PACKER only, as `rules.worth` has them.
    """
    order = np.asarray(order, np.int64)
    rows = np.arange(len(nodes.gpu)) if rows is None else np.asarray(rows)
    if not len(rows):
        raise TraceError("the cluster has no nodes; give one with at least one row")
    if policy not in range(7):
        raise ValueError(f"policy={policy} is not one of packing's seven codes, 0..6")
    if (policy == PACKER) != (weights is not None):
        raise ValueError("weights are for PACKER alone, and it wants some")
    typical = typical_pods(
        pods.cpu_milli, pods.gpu_milli, pods.num_gpu, pods.spec, pods.spec_models
    )
    asks = np.stack([*pods[:4], pods.spec_models[pods.spec]], axis=1)
    shapes, shape = np.unique(asks, axis=0, return_inverse=True)
    machines = np.stack([column[rows] for column in nodes], axis=1)
    kinds, kind = np.unique(machines, axis=0, return_inverse=True)
    kind = kind.reshape(-1)
    arrival = shape.reshape(-1)[order]
    draws = (rng or np.random.default_rng(0)).random((len(order) if policy == RANDOM else 0, 2))
    halt = np.zeros(1, np.int64)
    scores = np.full((len(shapes), len(kind)), NO_FIT, FINE if policy == PACKER else WHOLE)
    table = NO_WEIGHTS if weights is None else np.ascontiguousarray(weights, np.float64)
    node, devices, used, frag = interruptible(
        _pack, kinds, kind, shapes, arrival, policy, table, scores, draws, typical, halt,
        halt=lambda: halt.fill(1),
    )  # fmt: skip
    arrived = np.cumsum(shapes[arrival, 2] * shapes[arrival, 3])
    placed = np.where(node >= 0, rows[node], -1).astype(np.int32)
    return Packing(placed, devices, arrived, used, frag, int(machines[:, 2].sum()) * GPU_MILLI)


def at_load(packing: Packing, percent: int) -> tuple[float, float]:
    """Allocation and fragmentation in percent at a load, as the paper's tables give them.

    Load is the GPU asked for so far against the cluster. The tables average, over the arrivals
    whose load rounds to percent (the neighbours' where there are none), values that were rounded
    to two decimals; allocation is rounded again, fragmentation (of idle GPU) is not.
    """
    load = np.round(packing.arrived_gpu_milli / packing.capacity_gpu_milli * 100)
    at = load == percent
    if not at.any():
        at = abs(load - percent) <= 1
    if not at.any():
        return float("nan"), float("nan")
    used = packing.used_gpu_milli[at]
    idle = np.maximum(1, packing.capacity_gpu_milli - used)
    alloc = np.round(100 * used / packing.capacity_gpu_milli, 2)
    frag = np.round(100 * packing.frag_gpu_milli[at] / idle, 2)
    return round(float(alloc.mean()), 2), float(frag.mean())


@compiled
def _demand(shape: np.ndarray) -> Demand:
    return Demand(shape[0], shape[1], shape[2], shape[3], shape[4])


@compiled
def score(
    policy: int,
    weights: np.ndarray,
    frag: float,
    machine: np.ndarray,
    free_cpu_milli: int,
    free_memory_mib: int,
    free_gpu_milli: np.ndarray,
    affinities: np.ndarray,
    pod: Demand,
    typical: Typical,
    draw: float,
) -> tuple[float, int]:
    """One policy's score and devices for a pod on a node where it fits."""
    model = machine[3]
    if policy == PACKER:
        return packer_score(
            weights, frag, machine, free_cpu_milli, free_memory_mib, free_gpu_milli, pod, typical
        )
    if policy == FGD:
        return frag_score(frag, free_cpu_milli, free_gpu_milli, model, pod, typical)
    if policy == BEST_FIT:
        return best_score(free_cpu_milli, free_gpu_milli, pod)
    if policy == GPU_PACKING:
        return packing_score(free_gpu_milli, pod)
    if policy == GPU_CLUSTERING:
        return clustering_score(affinities, free_gpu_milli, pod)
    if policy == DOT_PRODUCT:
        return dot_score(free_cpu_milli, free_gpu_milli, pod)
    return 0, random_devices(free_gpu_milli, pod, draw)


@compiled
def pick(scores: np.ndarray, policy: int, draw: float) -> int | np.signedinteger:
    """The first node of the highest score, for RANDOM any that fits; -1 where none does."""
    if policy != RANDOM:
        best = np.argmax(scores)
        return best if scores[best] > NO_FIT else -1
    skip = int(draw * np.sum(scores > NO_FIT))
    for n in range(len(scores)):
        if scores[n] > NO_FIT:
            if skip == 0:
                return n
            skip -= 1
    return -1


@compiled
def _pack(
    kinds: np.ndarray,
    kind: np.ndarray,
    shapes: np.ndarray,
    arrival: np.ndarray,
    policy: int,
    weights: np.ndarray,
    scores: np.ndarray,
    draws: np.ndarray,
    typical: Typical,
    halt: np.ndarray,
) -> tuple[np.ndarray, ...]:
    """Run the arrivals over the nodes, in tie order: kinds (K, 4) and kind (N,), shapes (S, 5).
    scores (S, N) are NO_FIT when it begins.

    A node's score for a shape of pod changes only when the node does. Each shape keeps its row of
    scores and, when such a pod arrives, brings it up to date with the nodes used since the last.
    """
    n_nodes, n_shapes, n_arrivals = len(kind), len(shapes), len(arrival)
    width = max(1, kinds[:, 2].max())
    free_cpu = np.empty(n_nodes, np.int64)
    free_memory = np.empty(n_nodes, np.int64)
    free_gpu = np.zeros((n_nodes, width), np.int64)
    frag = np.empty(n_nodes)
    affinities = np.zeros(n_nodes, np.int64)
    fresh = np.empty(n_shapes, scores.dtype)
    for k in range(len(kinds)):
        cpu, memory, gpu, model = kinds[k]
        idle = np.full(gpu, GPU_MILLI, np.int64)
        idle_frag = node_frag(cpu, idle, model, typical)
        for s in range(n_shapes):
            pod = _demand(shapes[s])
            fresh[s] = NO_FIT
            if fits(cpu, memory, idle, model, pod):
                fresh[s] = score(
                    policy, weights, idle_frag, kinds[k], cpu, memory, idle, 0, pod, typical, 0.0
                )[0]
        for n in range(n_nodes):
            if kind[n] == k:
                free_cpu[n], free_memory[n], frag[n] = cpu, memory, idle_frag
                free_gpu[n, :gpu] = GPU_MILLI
                scores[:, n] = fresh

    node_of = np.full(n_arrivals, -1, np.int64)
    devices_of = np.zeros(n_arrivals, np.int64)
    used_after = np.empty(n_arrivals, np.int64)
    frag_after = np.empty(n_arrivals)
    used, frag_sum = 0, frag.sum()
    seen = np.zeros(n_shapes, np.int64)  # arrivals before this one are in the shape's scores
    checked = np.full(n_nodes, -1, np.int64)
    for a in range(n_arrivals):
        if halt[0] == 1:
            break
        s = arrival[a]
        pod = _demand(shapes[s])
        for earlier in range(seen[s], a):
            n = node_of[earlier]
            if n < 0 or scores[s, n] == NO_FIT or checked[n] == a:
                continue  # what did not fit once never will: pods do not leave
            checked[n] = a
            machine, gpus = kinds[kind[n]], free_gpu[n, : kinds[kind[n], 2]]
            scores[s, n] = NO_FIT
            if fits(free_cpu[n], free_memory[n], gpus, machine[3], pod):
                scores[s, n] = score(
                    policy, weights, frag[n], machine, free_cpu[n], free_memory[n], gpus,
                    affinities[n], pod, typical, 0.0,
                )[0]  # fmt: skip
        seen[s] = a
        n = pick(scores[s], policy, draws[a, 0] if policy == RANDOM else 0.0)
        if n >= 0:
            machine, gpus = kinds[kind[n]], free_gpu[n, : kinds[kind[n], 2]]
            draw = draws[a, 1] if policy == RANDOM else 0.0
            devices = score(
                policy, weights, frag[n], machine, free_cpu[n], free_memory[n], gpus,
                affinities[n], pod, typical, draw,
            )[1]  # fmt: skip
            take(gpus, pod, devices, -1)
            free_cpu[n] -= pod.cpu_milli
            free_memory[n] -= pod.memory_mib
            affinities[n] |= affinity(pod)
            used += pod.gpu_milli * pod.num_gpu
            frag_sum -= frag[n]
            frag[n] = node_frag(free_cpu[n], gpus, machine[3], typical)
            frag_sum += frag[n]
            node_of[a], devices_of[a] = n, devices
        used_after[a], frag_after[a] = used, frag_sum
    return node_of, devices_of, used_after, frag_after
