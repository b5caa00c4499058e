"""Clusters and profiles that belong to the named generators of `synthetic.py`, and node mixes.

`mixed-gpu` has the node mix of Alibaba's openb cluster of 2023 (1,523 nodes), scaled to 48: its
undisclosed 8-GPU models G2 and G3 are taken to be V100 and A100 machines. Cores, memory and GPUs a
node are openb's most common for the model, except CPU-only nodes: openb's median.

The mixes `openb` and `pai` are the whole clusters as published, node group by node group, or with
`openb:48` as many nodes in the same proportions.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from trimtab.arrays import Array
from trimtab.build import cluster, uniform_profile
from trimtab.core import Cluster, Profile, Shape
from trimtab.errors import TraceError, UnknownName
from trimtab.traces.readers import openb, pai
from trimtab.traces.scenes.adlro import adlro_cluster, adlro_profile

RESOURCES = ("cpu", "mem_gb", "gpu")
NODE_KINDS = ("a100", "v100", "t4", "p100", "cpu")
JOB_KINDS = (
    "training-vision",
    "training-language",
    "reinforcement",
    "inference-batch",
    "data-processing",
    "simulation",
)

# cpu, mem_gb, gpu, gpu_mem_gb, peak_w. Peak draw: DGX A100 (6.5 kW) and DGX-1 (3.5 kW) data sheets;
# else the data sheets' 70 W a T4, 250 W a P100, with 560, 250 and 400 W for the host (modelled).
NODE = {
    "a100": (128.0, 768.0, 8, 40.0, 6500.0),
    "v100": (96.0, 384.0, 8, 32.0, 3500.0),
    "t4": (104.0, 512.0, 2, 16.0, 700.0),
    "p100": (16.0, 120.0, 2, 16.0, 750.0),
    "cpu": (32.0, 256.0, 0, 0.0, 400.0),
}
IDLE_SHARE = 0.3  # of peak draw, modelled

# Data sheets: dense half-precision TFLOP/s, GB/s of memory.
A100, V100, T4, P100 = (312.0, 1555.0), (125.0, 900.0), (65.0, 320.0), (21.2, 732.0)
DATA_SHEET = {"a100": A100, "v100": V100, "t4": T4, "p100": P100, "a10": (125.0, 600.0)}
GPU_PEAK_W = {"a100": 400, "v100": 300, "t4": 70, "p100": 250, "a10": 150, "k80": 150}  # a device
GPU_MEM_GB = {"a100": 40, "v100": 16, "t4": 16, "p100": 16, "a10": 24, "k80": 12}  # data sheets
# the GPU that a node kind has, or is taken to have: G2, G3 and MISC are undisclosed
GPU_OF = {"v100m16": "v100", "v100m32": "v100", "g2": "v100", "g3": "a100", "misc": "k80"}
UNDISCLOSED = ("g2", "g3", "misc")
HOST_W, CORE_W = 200.0, 4.0  # draw of a node without its GPUs: modelled

# (node kind, cpu, mem_gb, gpu, nodes): every group of like nodes
MIX = {
    # alibaba/clusterdata@7a6c496, cluster-trace-gpu-v2023, openb_node_list_all_node.csv
    "openb": (
        ("cpu", 32, 256, 0, 129),
        ("cpu", 96, 512, 0, 59),
        ("cpu", 96, 384, 0, 30),
        ("cpu", 32, 128, 0, 23),
        ("cpu", 64, 512, 0, 22),
        ("cpu", 104, 512, 0, 20),
        ("cpu", 32, 64, 0, 10),
        ("cpu", 64, 256, 0, 8),
        ("cpu", 64, 128, 0, 4),
        ("cpu", 104, 768, 0, 3),
        ("cpu", 96, 768, 0, 1),
        ("cpu", 104, 192, 0, 1),
        ("A10", 128, 1024, 1, 2),
        ("G2", 96, 384, 8, 549),
        ("G3", 128, 768, 8, 39),
        ("P100", 16, 120, 2, 107),
        ("P100", 64, 256, 2, 22),
        ("P100", 8, 60, 1, 3),
        ("P100", 8, 60, 2, 2),
        ("T4", 104, 512, 2, 387),
        ("T4", 96, 384, 4, 17),
        ("V100M16", 32, 128, 4, 28),
        ("V100M16", 8, 32, 1, 19),
        ("V100M16", 64, 256, 8, 7),
        ("V100M16", 82, 336, 8, 1),
        ("V100M32", 96, 768, 8, 21),
        ("V100M32", 48, 368, 4, 9),
    ),
    # alibaba/clusterdata@7a6c496, cluster-trace-gpu-v2020, pai_machine_spec
    "pai": (
        ("CPU", 96, 512, 0, 83),
        ("MISC", 96, 512, 8, 280),
        ("P100", 64, 512, 2, 798),
        ("T4", 96, 512, 2, 497),
        ("V100", 96, 512, 8, 59),
        ("V100", 96, 384, 8, 45),
        ("V100M32", 96, 384, 8, 135),
    ),
}
MIX_KINDS = {"openb": openb.KINDS, "pai": pai.GPU_TYPES}  # in the order that the traces' jobs name

# P100 / V100 throughput on one GPU, measured: geometric means over the job types of Gavel (OSDI
# 2020, stanford-futuredata/gavel@c4fa400, MIT) named beside them. Its recommendation jobs are left
# out: they run twice as fast on the P100 machines, which tells of the hosts, not of the GPUs.
P100_TO_V100 = {
    "training-vision": 0.7562,  # ResNet-18, ResNet-50, CycleGAN: 10 types
    "training-language": 0.7891,  # LM, Transformer: 10 types
    "reinforcement": 0.7917,  # A3C: 1 type
}
HOST_SHARE = 0.5  # of the time of reinforcement learning spent on the CPU, modelled
PROFILE_SOURCE = (
    "training on P100 against V100: measured by Gavel (OSDI 2020); A100 and T4: modelled as the "
    "geometric mean of the data sheets' peak half-precision FLOP/s and memory bandwidth; batch "
    "inference: modelled by memory bandwidth; CPU work: modelled, 1 on every node"
)


def mixed_gpu_cluster(
    *, a100: int = 2, v100: int = 19, t4: int = 13, p100: int = 4, cpu: int = 10, regions: int = 1
) -> Cluster:
    """48 nodes with 202 GPUs by default: a number of nodes a kind, spread over regions in turn."""
    count = {"a100": a100, "v100": v100, "t4": t4, "p100": p100, "cpu": cpu}
    kind = np.repeat(np.arange(len(NODE_KINDS)), [count[name] for name in NODE_KINDS])
    table = np.array([NODE[name] for name in NODE_KINDS])[kind]  # (N, 5)
    nth = np.concatenate([np.arange(count[name]) for name in NODE_KINDS])
    return cluster(
        table[:, :3],
        resources=RESOURCES,
        kind=kind,
        kinds=NODE_KINDS,
        region=nth % regions,
        regions=["all"] if regions == 1 else [f"region-{g}" for g in range(regions)],
        gpu_mem_gb=table[:, 3],
        idle_w=table[:, 4] * IDLE_SHARE,
        peak_w=table[:, 4],
        names=[f"{NODE_KINDS[k]}-{n}" for k, n in zip(kind, nth)],
        source="mixed-gpu: openb's node mix scaled down",
    )


def mixed_gpu_profile(*, slow: float = 0.0) -> Profile:
    """Rates against a V100 node. `slow` is the extra time that every co-located neighbour costs."""
    rate = np.zeros((len(JOB_KINDS), len(NODE_KINDS), 1))
    for k, kind in enumerate(JOB_KINDS):
        rate[k, :, 0] = _rates(kind)
    kinds = (len(JOB_KINDS), len(JOB_KINDS))
    return Profile(
        rate=rate,
        slow=np.full(kinds, slow),
        draw=np.ones((len(JOB_KINDS), len(NODE_KINDS))),
        quality=np.ones((len(JOB_KINDS), 1)),
        shapes=(Shape(),),
        source=PROFILE_SOURCE,
    )


def _rates(kind: str) -> Array:
    """Of a job kind on a100, v100, t4, p100, cpu; 0 where GPU work cannot run."""
    if kind in ("data-processing", "simulation"):
        return np.ones(len(NODE_KINDS))
    if kind == "inference-batch":
        return np.array([*(gpu[1] / V100[1] for gpu in (A100, V100, T4, P100)), 0.0])
    speed = [(gpu[0] / V100[0] * gpu[1] / V100[1]) ** 0.5 for gpu in (A100, V100, T4)]
    if kind == "reinforcement":  # only the GPU's share of the time shrinks with its speed
        speed = [1 / (HOST_SHARE + (1 - HOST_SHARE) / one) for one in speed]
    return np.array([*speed, P100_TO_V100[kind], 0.0])


def modelled_rate(gpu: str) -> float:
    """A GPU's training speed against a V100: the geometric mean of two ratios of data sheets."""
    flops, bandwidth = DATA_SHEET[gpu]
    return (flops / V100[0] * bandwidth / V100[1]) ** 0.5


def gpu_of(node_kind: str) -> str:
    """The GPU model of a node kind, in small letters; a kind that is not a model keeps its name."""
    name = node_kind.lower()
    return GPU_OF.get(name, name)


def is_mix(name: str) -> bool:
    return name.partition(":")[0] in MIX


def mix_cluster(name: str) -> Cluster:
    """The nodes of `openb` or `pai`, or as many as `openb:48` says in the same proportions.

    Proportions hold by node kind first, then among the groups of a kind, both by the largest
    remainder. The draw is modelled: 200 W and 4 W a core for the host, the data sheet's for a GPU.
    """
    mix, _, text = name.partition(":")
    if mix not in MIX:
        raise UnknownName(f"node mix {name!r} is unknown; known: {', '.join(MIX)}")
    groups = MIX[mix]
    nodes = np.array([group[4] for group in groups])
    if ":" in name:
        if not text.isdigit() or int(text) < 1:
            raise TraceError(f"{name}: {text!r} is no number of nodes; write for example {mix}:48")
        nodes = _scaled(groups, int(text))
    table = np.repeat(np.array([group[1:4] for group in groups], float), nodes, axis=0)
    kind = np.repeat([group[0] for group in groups], nodes)
    gpu = [gpu_of(model) for model in kind]
    peak_w = HOST_W + CORE_W * table[:, 0]
    peak_w += table[:, 2] * [GPU_PEAK_W.get(model, 0) for model in gpu]
    mem_gb = [32 if model == "V100M32" else GPU_MEM_GB.get(g, 0) for model, g in zip(kind, gpu)]
    kinds = MIX_KINDS[mix]
    return cluster(
        table,
        resources=RESOURCES,
        kind=[kinds.index(model) for model in kind],
        kinds=kinds,
        gpu_mem_gb=mem_gb,
        idle_w=peak_w * IDLE_SHARE,
        peak_w=peak_w,
        names=[f"{model.lower()}-{n}" for n, model in enumerate(kind)],
        source=f"{name}: the node mix of Alibaba's {mix} cluster",
    )


def _scaled(groups: tuple[tuple[str, int, int, int, int], ...], nodes: int) -> Array:
    """Nodes a group, (groups,)."""
    kinds = list(dict.fromkeys(group[0] for group in groups))
    of_kind = [[g for g, group in enumerate(groups) if group[0] == kind] for kind in kinds]
    count = np.array([group[4] for group in groups])
    scaled = np.zeros(len(groups), np.int64)
    share = apportioned(np.array([count[rows].sum() for rows in of_kind]), nodes)
    for rows, part in zip(of_kind, share):
        scaled[rows] = apportioned(count[rows], int(part))
    return scaled


def apportioned(count: Array, total: int) -> Array:
    """`total` in the proportions of `count`: what is left over goes to the largest remainders."""
    exact = count * total  # in units of 1 / sum: whole numbers, so that ties are ties
    share = exact // count.sum()
    left = total - int(share.sum())
    # stable: of equal remainders the first gains
    share[np.argsort(-(exact % count.sum()), kind="stable")[:left]] += 1
    return share


def servers_cluster(*, servers: int = 4) -> Cluster:
    """One-core nodes: the c servers of a queueing model."""
    names = [f"server-{n}" for n in range(servers)]
    return cluster(np.ones(servers), kinds=("server",), names=names, source=f"{servers} servers")


def servers_profile() -> Profile:
    """Every job at rate 1 on every server."""
    return uniform_profile(1, 1)


BY_NAME: dict[str, tuple[Callable[..., Cluster], Callable[..., Profile]]] = {
    "mixed-gpu": (mixed_gpu_cluster, mixed_gpu_profile),
    "queue": (servers_cluster, servers_profile),
    "poisson-mmc": (servers_cluster, servers_profile),
    "adlro": (adlro_cluster, adlro_profile),
}


def preset(name: str, **nodes: Any) -> tuple[Cluster, Profile]:
    """The cluster and profile of a named generator; `nodes` are the cluster's arguments."""
    if name not in BY_NAME:
        raise UnknownName(f"preset {name!r} is unknown; known: {', '.join(BY_NAME)}")
    make_cluster, make_profile = BY_NAME[name]
    return make_cluster(**nodes), make_profile()
