"""GPU sharing on one node: what fits, how fragmented it is, and the six scores of the FGD paper.

Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient
Descent", USENIX ATC 2023. A pod asks for a share of one GPU (num_gpu 1, gpu_milli below 1000), for
whole GPUs (gpu_milli 1000) or for none (both 0). Scores are whole numbers 0..100, higher is better,
truncated where the authors' scheduler truncates: equal scores are common, and who wins a tie
decides the published tables. Devices come back as a bitmask, bit i for device i.
"""

from typing import NamedTuple

import numpy as np

from trimtab.compiled import compiled
from trimtab.rules.worth import class_of, worth

GPU_MILLI = 1000  # one whole GPU
MAX_CPU_MILLI = 128_000  # the largest machine of the trace, by which best fit and dot product scale
MAX_GPU_MILLI = 8_000
ANY_MODEL = -1  # every bit set: the pod runs on any GPU model


class Demand(NamedTuple):
    """What one pod asks for."""

    cpu_milli: int
    memory_mib: int
    gpu_milli: int  # of each GPU, 0..1000
    num_gpu: int
    models: int  # bit m set: GPU model m will do


class Typical(NamedTuple):
    """The pods a node should keep room for; fragmentation is measured against them."""

    cpu_milli: np.ndarray  # (T,)
    gpu_milli: np.ndarray  # (T,)
    num_gpu: np.ndarray  # (T,)
    models: np.ndarray  # (T,) bitmask
    share: np.ndarray  # (T,) sums to 1


def typical_pods(
    cpu_milli: np.ndarray,
    gpu_milli: np.ndarray,
    num_gpu: np.ndarray,
    spec: np.ndarray,
    spec_models: np.ndarray,
    cover: float = 0.95,
) -> Typical:
    """The most frequent demands that together cover a share of the pods, most frequent first.

    spec (P,) numbers the pods' GPU model lists in alphabetical order and spec_models gives each
    number's bitmask: two spellings of one set of models are two demands. Ties: the larger first,
    by CPU, GPU share, GPUs, then spec.
    """
    rows = np.stack([cpu_milli, gpu_milli, num_gpu, spec], axis=1).astype(np.int64)
    if not len(rows):
        raise ValueError("typical_pods: no pods; give the list whose demands are typical")
    demand, count = np.unique(rows, axis=0, return_counts=True)  # ascending: larger comes later
    by_count = np.argsort(count, kind="stable")[::-1]
    demand, count = demand[by_count], count[by_count]
    # in hundredths: 0.95 * P may round up past the pod at which 95 * P / 100 is met
    enough = round(cover * 100) * len(rows) / 100
    kept = min(int(np.searchsorted(np.cumsum(count), enough)) + 1, len(count))
    share = count / len(rows)
    if kept < len(count):
        share = share[:kept] / (count[:kept].sum() / len(rows))
    kept_demand = np.ascontiguousarray(demand[:kept].T)
    models = np.asarray(spec_models, np.int64)[kept_demand[3]]
    return Typical._make([*kept_demand[:3], models, share])


@compiled
def accessible(model, models):
    """True where a GPU model is one the pod accepts; a node without GPUs has model -1."""
    return models == ANY_MODEL or (model >= 0 and (models >> model) & 1 == 1)


@compiled
def fits(free_cpu_milli, free_memory_mib, free_gpu_milli, model, pod):
    """True where the node has the CPU, the memory and, on enough devices, the GPU share."""
    if free_cpu_milli < pod.cpu_milli or free_memory_mib < pod.memory_mib:
        return False
    if pod.gpu_milli <= 0:
        return True
    if not accessible(model, pod.models):
        return False
    wanted = pod.num_gpu
    for free in free_gpu_milli:
        if free >= pod.gpu_milli:
            wanted -= 1
    return wanted <= 0


@compiled
def node_frag(free_cpu_milli, free_gpu_milli, model, typical):
    """Idle GPU milli of a node that a typical pod could not use, expected over the typical pods.

    A pod that cannot run here, or needs no GPU, leaves all of the idle GPU unused; one that can
    leaves the devices with too little for its share. The six sums stay apart until the end
    because floating point is not associative and a last bit decides int(100 * sigmoid(0 -+ bit)).
    """
    idle = 0
    for free in free_gpu_milli:
        idle += free
    lack_both = lack_gpu = lack_cpu = cpu_pod = cpu_pod_lacks = no_access = 0.0
    if idle == 0:
        return 0.0
    for t in range(len(typical.share)):
        gpu_milli = typical.gpu_milli[t]
        amount = typical.share[t] * idle
        cpu_enough = free_cpu_milli >= typical.cpu_milli[t]
        if gpu_milli == 0:
            if cpu_enough:
                cpu_pod += amount
            else:
                cpu_pod_lacks += amount
            continue
        if not accessible(model, typical.models[t]):
            no_access += amount
            continue
        wanted = typical.num_gpu[t]
        scraps = 0
        for free in free_gpu_milli:
            if free >= gpu_milli:
                wanted -= 1
            else:
                scraps += free
        if wanted <= 0:
            if cpu_enough:
                lack_gpu += typical.share[t] * scraps
            else:
                lack_cpu += amount
        elif cpu_enough:
            lack_gpu += amount
        else:
            lack_both += amount
    return lack_both + lack_gpu + lack_cpu + cpu_pod + cpu_pod_lacks + no_access


@compiled
def is_share(pod):
    """True for a pod that takes part of one GPU."""
    return pod.num_gpu == 1 and 0 < pod.gpu_milli < GPU_MILLI


@compiled
def whole_devices(free_gpu_milli, num_gpu):
    """The first num_gpu idle devices."""
    devices = 0
    for i in range(len(free_gpu_milli)):
        if num_gpu > 0 and free_gpu_milli[i] == GPU_MILLI:
            devices |= 1 << i
            num_gpu -= 1
    return devices


@compiled
def tight_devices(free_gpu_milli, pod):
    """The tightest device that suffices, the first of equals; whole ones for an unshared pod."""
    if not is_share(pod):
        return whole_devices(free_gpu_milli, pod.num_gpu)
    tight = -1
    for i in range(len(free_gpu_milli)):
        enough = free_gpu_milli[i] >= pod.gpu_milli
        if enough and (tight < 0 or free_gpu_milli[i] < free_gpu_milli[tight]):
            tight = i
    return 1 << tight if tight >= 0 else 0


@compiled
def random_devices(free_gpu_milli, pod, draw):
    """Any device that suffices, chosen by draw in [0, 1); whole ones for an unshared pod."""
    if not is_share(pod):
        return whole_devices(free_gpu_milli, pod.num_gpu)
    enough = 0
    for free in free_gpu_milli:
        if free >= pod.gpu_milli:
            enough += 1
    skip = int(draw * enough)
    for i in range(len(free_gpu_milli)):
        if free_gpu_milli[i] >= pod.gpu_milli:
            if skip == 0:
                return 1 << i
            skip -= 1
    return 0


@compiled
def take(free_gpu_milli, pod, devices, sign):
    """Take the pod's share from its devices (sign -1), or give it back (sign 1), in place."""
    for i in range(len(free_gpu_milli)):
        if (devices >> i) & 1:
            free_gpu_milli[i] += sign * pod.gpu_milli


@compiled
def descent(frag_before, frag_after):
    """0..100 by how much fragmentation falls: 50 for no change, above it for less fragmentation."""
    return int(100.0 * (1.0 / (1.0 + np.exp(-((frag_before - frag_after) / 1000)))))


@compiled
def frag_score(frag_before, free_cpu_milli, free_gpu_milli, model, pod, typical):
    """FGD: the placement after which the node is least fragmented; a shared pod tries every device.

    frag_before is node_frag of the node as it is. Restores free_gpu_milli before it returns.
    """
    cpu_after = free_cpu_milli - pod.cpu_milli
    if not is_share(pod):
        devices = whole_devices(free_gpu_milli, pod.num_gpu)
        take(free_gpu_milli, pod, devices, -1)
        frag_after = node_frag(cpu_after, free_gpu_milli, model, typical)
        take(free_gpu_milli, pod, devices, 1)
        return descent(frag_before, frag_after), devices
    best, devices = -1, 0
    for i in range(len(free_gpu_milli)):
        free = free_gpu_milli[i]
        twin = False  # an earlier device as full as this one scores the same and wins the tie
        for earlier in range(i):
            twin |= free_gpu_milli[earlier] == free
        if twin or free < pod.gpu_milli:
            continue
        free_gpu_milli[i] = free - pod.gpu_milli
        score = descent(frag_before, node_frag(cpu_after, free_gpu_milli, model, typical))
        free_gpu_milli[i] = free
        if score > best:
            best, devices = score, 1 << i
    return best, devices


@compiled
def best_score(free_cpu_milli, free_gpu_milli, pod):
    """Best fit: the least CPU and GPU left over, each against the largest machine."""
    cpu = (free_cpu_milli - pod.cpu_milli) / MAX_CPU_MILLI * 0.5
    gpu = (free_gpu_milli.sum() - pod.gpu_milli * pod.num_gpu) / MAX_GPU_MILLI * 0.5
    return int((1.0 - (cpu + gpu)) * 100.0), tight_devices(free_gpu_milli, pod)


@compiled
def dot_score(free_cpu_milli, free_gpu_milli, pod):
    """Dot product of demand and free capacity (Tetris), the smaller the better."""
    cpu = (free_cpu_milli / MAX_CPU_MILLI) * (pod.cpu_milli / MAX_CPU_MILLI)
    gpu = (free_gpu_milli.sum() / MAX_GPU_MILLI) * (pod.gpu_milli * pod.num_gpu / MAX_GPU_MILLI)
    return int(100.0 * (1.0 - (cpu + gpu) / 2.0)), tight_devices(free_gpu_milli, pod)


@compiled
def packing_score(free_gpu_milli, pod):
    """GPU packing: shared devices first, then idle devices of a used node, then an idle node."""
    if pod.gpu_milli <= 0:
        return 0, 0
    devices = tight_devices(free_gpu_milli, pod)
    idle = 0
    for free in free_gpu_milli:
        idle += free == GPU_MILLI
    if idle == len(free_gpu_milli):
        return max(33 - idle, idle), devices
    idle_used = shared_percent = 0
    for i in range(len(free_gpu_milli)):
        if (devices >> i) & 1:
            idle_used += free_gpu_milli[i] == GPU_MILLI
            shared_percent += free_gpu_milli[i] * 100 // GPU_MILLI
    if idle_used:
        return max(50 - idle_used, 33), devices
    return max(100 - shared_percent // 10, 50), devices


@compiled
def affinity(pod):
    """The group that GPU clustering keeps together, as one bit: shares, or one number of GPUs."""
    if pod.num_gpu == 0:
        return 0
    return 1 if pod.gpu_milli < GPU_MILLI else 1 << pod.num_gpu


@compiled
def clustering_score(affinities, free_gpu_milli, pod):
    """GPU clustering: a node of the pod's group alone, a mixed one with it, an idle one, any other.

    affinities is the union of affinity(pod) over the pods on the node; a quarter of the scale each,
    the fuller node first within it.
    """
    devices = tight_devices(free_gpu_milli, pod)
    group = affinity(pod)
    if group == 0:
        return 0, devices
    fullness = 25 * (MAX_GPU_MILLI - free_gpu_milli.sum()) // MAX_GPU_MILLI
    if affinities == group:
        return fullness + 75, devices
    if affinities & group:
        return fullness + 50, devices
    return fullness + (25 if affinities == 0 else 0), devices


@compiled
def wanted_by(model, pod, typical):
    """Share of the typical pods that accept some GPU models alone, this one among them; 0 for a pod
    that is picky itself.
    """
    share = 0.0
    if pod.models == ANY_MODEL:
        for t in range(len(typical.share)):
            if typical.models[t] != ANY_MODEL and accessible(model, typical.models[t]):
                share += typical.share[t]
    return share


@compiled
def packer_score(
    weights, frag_before, machine, free_cpu_milli, free_memory_mib, free_gpu_milli, pod, typical
):
    """What the node is worth to the pod by a table of weights (`rules.worth`), on its tightest
    device; machine is the node when empty: CPU, memory, devices, model.
    """
    devices = tight_devices(free_gpu_milli, pod)
    row = class_of(pod.num_gpu, pod.gpu_milli / GPU_MILLI)
    fresh = free_cpu_milli == machine[0] and free_memory_mib == machine[1]
    device_left, opened, whole, idle = 0.0, False, 0, 0
    for i in range(len(free_gpu_milli)):
        fresh &= free_gpu_milli[i] == GPU_MILLI
        if (devices >> i) & 1:
            opened = free_gpu_milli[i] == GPU_MILLI
            device_left = (free_gpu_milli[i] - pod.gpu_milli) / GPU_MILLI
    cpu_after = free_cpu_milli - pod.cpu_milli
    relief = 0.0
    take(free_gpu_milli, pod, devices, -1)
    if len(free_gpu_milli) > 0:
        relief = (
            frag_before - node_frag(cpu_after, free_gpu_milli, machine[3], typical)
        ) / GPU_MILLI
    for free in free_gpu_milli:
        idle += free
        whole += free == GPU_MILLI
    take(free_gpu_milli, pod, devices, 1)
    cpu_left = cpu_after / max(1, machine[0])
    memory_left = (free_memory_mib - pod.memory_mib) / max(1, machine[1])
    return worth(
        weights, row, relief, idle / GPU_MILLI, whole, len(free_gpu_milli),
        (cpu_left + memory_left) / 2, min(cpu_left, memory_left), device_left, opened, fresh,
        wanted_by(machine[3], pod, typical),
    ), devices  # fmt: skip
