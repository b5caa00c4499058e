"""Clusters and profiles that belong to the named generators of `synthetic.py`.

`mixed-gpu` has the node mix of Alibaba's openb cluster of 2023 (1,523 nodes), scaled to 48: its
undisclosed 8-GPU models G2 and G3 are taken to be V100 and A100 machines. Cores, memory and GPUs a
node are openb's most common for the model, except CPU-only nodes: openb's median.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from trimtab.core import Array, Cluster, Profile, Shape, cluster, uniform_profile
from trimtab.errors import UnknownName

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
        measured=False,
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
}


def preset(name: str, **nodes: Any) -> tuple[Cluster, Profile]:
    """The cluster and profile of a named generator; `nodes` are the cluster's arguments."""
    if name not in BY_NAME:
        raise UnknownName(f"preset {name!r} is unknown; known: {', '.join(BY_NAME)}")
    make_cluster, make_profile = BY_NAME[name]
    return make_cluster(**nodes), make_profile()
