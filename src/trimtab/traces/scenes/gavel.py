"""Speeds of deep-learning jobs on K80, P100 and V100 as Gavel measured them, and work made of them.

Gavel (OSDI 2020, stanford-futuredata/gavel@c4fa400, MIT) measured training steps a second for each
job type alone on a GPU. A speed here is relative to the V100: work_s is the run time on a V100.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from trimtab.arrays import Array
from trimtab.build import workload
from trimtab.columns import JOB, TRUTH, quantised
from trimtab.core import Cluster, Profile, Shape, Workload
from trimtab.errors import TraceError
from trimtab.traces.scenes.presets import DATA_SHEET, HOST_SHARE, UNDISCLOSED, gpu_of, modelled_rate

MEASURED = ("k80", "p100", "v100")
STEPS_HZ = {  # steps a second on K80, P100, V100; one GPU (scale factor 1)
    "A3C": (3.4388, 5.6813, 7.1758),
    "CycleGAN": (0.5048, 2.4027, 4.4261),
    "LM (batch size 5)": (25.4855, 90.7759, 109.1666),
    "LM (batch size 10)": (23.7944, 77.0847, 81.6516),
    "LM (batch size 20)": (17.1423, 58.1727, 64.7425),
    "LM (batch size 40)": (11.4997, 35.7664, 45.2374),
    "LM (batch size 80)": (6.0542, 21.1575, 28.2400),
    "Recommendation (batch size 512)": (32.8593, 48.8824, 23.3176),
    "Recommendation (batch size 1024)": (20.0500, 30.7444, 13.2826),
    "Recommendation (batch size 2048)": (10.4412, 16.5966, 7.4696),
    "Recommendation (batch size 4096)": (5.3002, 8.8967, 3.9061),
    "Recommendation (batch size 8192)": (2.6988, 5.5484, 2.8415),
    "ResNet-18 (batch size 16)": (4.7953, 35.8692, 32.3534),
    "ResNet-18 (batch size 32)": (7.1758, 35.8254, 29.9472),
    "ResNet-18 (batch size 64)": (7.0521, 22.3049, 24.0932),
    "ResNet-18 (batch size 128)": (1.8065, 11.6755, 17.9949),
    "ResNet-18 (batch size 256)": (0.8856, 7.7228, 10.3003),
    "ResNet-50 (batch size 16)": (2.3005, 9.0530, 11.3961),
    "ResNet-50 (batch size 32)": (1.2366, 4.8883, 7.7873),
    "ResNet-50 (batch size 64)": (0.6190, 2.6195, 4.3948),
    "ResNet-50 (batch size 128)": (0.3472, 1.5844, 2.4968),
    "Transformer (batch size 16)": (5.4674, 9.5372, 11.0641),
    "Transformer (batch size 32)": (3.5074, 7.8692, 10.6209),
    "Transformer (batch size 64)": (1.7522, 5.0918, 8.6178),
    "Transformer (batch size 128)": (0.9816, 3.0735, 5.4461),
    "Transformer (batch size 256)": (0.4583, 1.6777, 1.5951),
}
GAVEL = {  # job type: rate on K80, P100 and V100, relative to the V100
    job_type: tuple(rate / steps[-1] for rate in steps) for job_type, steps in STEPS_HZ.items()
}
# Recommendation runs twice as fast on the P100 machines as on the V100's: that tells of the hosts,
# not of the GPUs, so work is made of the others unless it is asked for by name.
FAMILIES = ("A3C", "CycleGAN", "LM", "ResNet-18", "ResNet-50", "Transformer")
SOURCE = "K80, P100 and V100: measured by Gavel (OSDI 2020)"


def rates_of(kind: str) -> dict[str, float] | None:
    """The rate on each GPU of a job type, or of a family: the geometric mean of its types."""
    types = [kind] if kind in GAVEL else [name for name in GAVEL if _family(name) == kind]
    if not types:
        return None
    mean = np.exp(np.mean(np.log([GAVEL[name] for name in types]), axis=0))
    return dict(zip(MEASURED, mean.tolist()))


def gavel_profile(kinds: Sequence[str], node_kinds: Sequence[str]) -> Profile:
    """Measured speeds of the job kinds that are named after Gavel's types or families.

    Other GPUs are modelled as in `presets` by their data sheets; of A3C only the GPU's share of the
    time shrinks with its speed. Nodes of kind `cpu` run none of it. Job kinds that Gavel lacks run
    at 1 everywhere, and so does all on node kinds without a data sheet; `source` names them.
    """
    rate = np.ones((len(kinds), len(node_kinds), 1))
    for k, kind in enumerate(kinds):
        measured = rates_of(kind)
        if measured is not None:
            host = HOST_SHARE if _family(kind) == "A3C" else 0.0
            rate[k, :, 0] = [_rate(measured, node_kind, host) for node_kind in node_kinds]
    told = _told(node_kinds)
    others = [kind for kind in kinds if rates_of(kind) is None]
    if others:
        told.append(f"job kinds {', '.join(others)}: 1 on every node")
    return Profile(
        rate=rate,
        slow=np.zeros((len(kinds), len(kinds))),
        draw=np.ones((len(kinds), len(node_kinds))),
        quality=np.ones((len(kinds), 1)),
        shapes=(Shape(),),
        source="; ".join(told),
    )


def mapped(
    work: Workload,
    machine: Cluster,
    *,
    seed: int,
    gpu_jobs: float = 0.1,
    gpu_share: float = 1.0,
    families: Sequence[str] = FAMILIES,
) -> Workload:
    """Make a share of a CPU workload's jobs GPU work of Gavel's types.

    What is assumed:
    - A job is a whole DAG: the rows with one number in `meta["dag"]`, else those that `after`
      connects. `gpu_jobs` of the jobs that ask for no GPU and are no service become GPU work,
      rounded to the nearest number; which ones, the seed says, whatever their size.
    - Each of them is of one of the `families`, equally likely, which becomes the kind of its tasks.
    - Each instance asks for `gpu_share` of one GPU beside the CPU and memory that it asked for.
    - The run time it had is its run time on a V100; arrivals, instances and dependencies stay.
    - A job with a task that the GPU nodes of `machine` could not hold stays CPU work.
    `meta["mapped"]` says what was done. Use `gavel_profile` for the speeds.
    """
    _check(work, machine, gpu_jobs, gpu_share, families)
    rng = np.random.default_rng(seed)
    dag = dags(work)  # (J,)
    chosen = _chosen(work, machine, dag, gpu_jobs, gpu_share, rng)
    family = np.full(int(dag.max()) + 1, -1)
    family[chosen] = rng.integers(len(families), size=len(chosen))
    row = np.flatnonzero(family[dag] >= 0)
    demand, resources = _with_gpu(work)
    demand[row, resources.index("gpu")] = gpu_share
    columns: dict[str, Any] = {name: work.jobs[name].copy() for name in JOB.names or ()}
    columns |= {name: work.truth[name] for name in TRUTH.names or ()}
    kinds = (*work.kinds, *(name for name in families if name not in work.kinds))
    columns["kind"][row] = np.array([kinds.index(name) for name in families])[family[dag[row]]]
    columns["gpus"][row], columns["gpu_share"][row] = 1, gpu_share
    told: dict[str, Any] = {"seed": seed, "gpu_jobs": gpu_jobs, "gpu_share": gpu_share}
    told |= {"jobs": len(chosen), "tasks": len(row), "families": list(families)}
    return _remade(work, demand, resources, kinds, columns, told)


def _chosen(
    work: Workload,
    machine: Cluster,
    dag: Array,
    gpu_jobs: float,
    gpu_share: float,
    rng: np.random.Generator,
) -> Array:
    """The DAGs that become GPU work."""
    cpu_jobs = _all_of(dag, (work.jobs["gpus"] == 0) & (work.truth["service"] == 0))
    able = cpu_jobs & _all_of(dag, _holds(work, machine, gpu_share))
    count = round(gpu_jobs * int(cpu_jobs.sum()))
    if count > able.sum():
        raise TraceError(
            f"{work.source}: gpu_jobs={gpu_jobs:g} asks for {count} jobs, but the GPU nodes of "
            f"{machine.source} can hold {int(able.sum())} of {int(cpu_jobs.sum())}; lower gpu_jobs "
            f"or choose larger nodes"
        )
    return rng.permutation(np.flatnonzero(able))[:count]


def dags(work: Workload) -> Array:
    """The number of each row's DAG, (J,), from 0: as `meta["dag"]` says, else as `after` joins."""
    if isinstance(work.meta.get("dag"), np.ndarray):
        return np.unique(work.meta["dag"], return_inverse=True)[1]
    label = np.arange(len(work))
    if work.after_ptr is None or work.after_idx is None:
        return label
    child = np.repeat(np.arange(len(work)), np.diff(work.after_ptr))
    while True:  # the smallest row spreads along the edges; labels of labels halve the way
        lower = label.copy()
        least = np.minimum(label[child], label[work.after_idx])
        np.minimum.at(lower, child, least)
        np.minimum.at(lower, work.after_idx, least)
        lower = lower[lower]
        if (lower == label).all():
            return np.unique(label, return_inverse=True)[1]
        label = lower


def _family(job_type: str) -> str:
    return job_type.partition(" (")[0]


def _rate(measured: dict[str, float], node_kind: str, host_share: float) -> float:
    gpu = gpu_of(node_kind)
    if gpu in measured:
        return measured[gpu]
    if gpu in DATA_SHEET:
        return 1 / (host_share + (1 - host_share) / modelled_rate(gpu))
    return 0.0 if gpu == "cpu" else 1.0


def _told(node_kinds: Sequence[str]) -> list[str]:
    """Where the speeds on these nodes come from."""
    gpu = {kind: gpu_of(kind) for kind in node_kinds}
    taken = [kind for kind in node_kinds if kind.lower() in UNDISCLOSED]
    sheets = [kind for kind in node_kinds if gpu[kind] in DATA_SHEET and gpu[kind] not in MEASURED]
    known = (*MEASURED, *DATA_SHEET, "cpu")
    unknown = [kind for kind in node_kinds if gpu[kind] not in known]
    told = [SOURCE]
    if taken:
        told.append("taken to be " + ", ".join(f"{gpu[kind].upper()}: {kind}" for kind in taken))
    if sheets:
        told.append(f"modelled by data sheets: {', '.join(sheets)}")
    if unknown:
        told.append(f"no data, so 1: {', '.join(unknown)}")
    return told


def _check(
    work: Workload, machine: Cluster, gpu_jobs: float, gpu_share: float, families: Sequence[str]
) -> None:
    if not 0 <= gpu_jobs <= 1:
        raise TraceError(f"{work.source}: gpu_jobs={gpu_jobs} is not in 0..1; give a share of jobs")
    if not 0 < gpu_share <= 1:
        raise TraceError(f"{work.source}: gpu_share={gpu_share} is not in (0, 1]; give a share")
    unknown = [name for name in families if rates_of(name) is None]
    if unknown or not families:
        known = ", ".join(dict.fromkeys(_family(name) for name in GAVEL))
        raise TraceError(f"families={unknown} are not Gavel's; choose from: {known}")
    if not machine.nodes["gpus"].any():
        raise TraceError(
            f"{machine.source}: has no GPUs, so no job can become GPU work; choose a cluster with "
            f"some, for example openb:48"
        )


def _with_gpu(work: Workload) -> tuple[Array, tuple[str, ...]]:
    if "gpu" in work.resources:
        return work.demand.copy(), work.resources
    return np.column_stack((work.demand, np.zeros(len(work)))), (*work.resources, "gpu")


def _all_of(dag: Array, fact: Array) -> Array:
    """Whether the fact holds for every row of a DAG, (DAGs,)."""
    return np.bincount(dag, ~fact, minlength=int(dag.max()) + 1) == 0


def _holds(work: Workload, machine: Cluster, gpu_share: float) -> Array:
    """Whether the empty GPU nodes could start a row: all of a gang, one instance of an array."""
    _, first, like = np.unique(work.jobs["like"], return_index=True, return_inverse=True)
    jobs, demand = work.jobs[first], work.demand[first]  # one row for all its like
    column = [machine.resources.index(r) if r in machine.resources else -1 for r in work.resources]
    capacity = np.column_stack((machine.capacity, np.zeros(len(machine))))[:, column]
    nodes = np.column_stack((machine.nodes["kind"], machine.nodes["gpus"], capacity))
    nodes = nodes[machine.nodes["gpus"] > 0]
    fits = np.zeros(len(first))
    for group, count in zip(*np.unique(nodes, axis=0, return_counts=True)):
        room = np.full(len(first), group[1] * (1 // quantised(np.array(gpu_share))))
        for r, amount in enumerate(demand.T):
            most = np.floor_divide(group[2 + r], amount, out=room.copy(), where=amount > 0)
            room = np.minimum(room, most)
        allowed = (jobs["node_kinds"] >> np.uint64(group[0])) & np.uint64(1)
        fits += count * room * allowed
    return (fits >= np.where(jobs["gang"] == 1, jobs["instances"], 1))[like]


def _remade(
    work: Workload,
    demand: Array,
    resources: tuple[str, ...],
    kinds: tuple[str, ...],
    columns: dict[str, Any],
    told: dict[str, Any],
) -> Workload:
    edges = None
    if work.after_ptr is not None and work.after_idx is not None:
        edges = (work.after_ptr, work.after_idx)
    columns.pop("like")  # what is alike has changed
    return workload(
        columns.pop("submit_s"),
        columns.pop("work_s"),
        demand,
        resources=resources,
        kinds=kinds,
        tenants=work.tenants,
        job_id=work.job_id,
        after=edges,
        patterns=work.patterns,
        pattern_step_s=work.pattern_step_s,
        source=f"{work.source}, {told['gpu_jobs']:.0%} of its jobs as Gavel's GPU work",
        meta={**work.meta, "mapped": told},
        **columns,
    )
