"""What the benchmarks run on: made by a fixed seed, since nobody may ship the public traces.

`sdsc_like` resembles the log SDSC-SP2-1998-4.2-cln (59,705 jobs on 128 nodes at load 0.83),
`gaia_like` the jobs of UniLu-Gaia-2014-2, which share nodes (51,887 on 2,004 processors of 151
nodes, there at load 0.45), and `openb_like` Alibaba's GPU cluster of 2023, by its published counts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from trimtab.arrays import Array
from trimtab.build import cluster, workload
from trimtab.core import Cluster, Workload
from trimtab.traces.scenes import synthetic
from trimtab.traces.scenes.presets import mixed_gpu_cluster
from trimtab.traces.scenes.scene import Scene, open_scene

SEED = 19980427
SDSC_JOBS, SDSC_NODES, SDSC_LOAD = 59_705, 128, 0.83
LONGEST_S = 64_800.0  # the machine's limit of 18 h
# widths and their shares of the log: the powers of two, and the commonest of the others
WIDTHS = (1, 2, 4, 8, 16, 32, 64, 128, 3, 6, 10, 12, 20, 24)
WIDTH_SHARE = (
    *(0.218, 0.129, 0.127, 0.122, 0.114, 0.074, 0.052, 0.003),
    *(0.03, 0.04, 0.03, 0.03, 0.02, 0.011),
)

GAIA_JOBS, GAIA_PROCS = 51_887, 2_004
GAIA_LONGEST_S = 432_000.0  # five days, which 99.9 % of the log's jobs keep to
# processors and their shares of the log: a node has 12 or more
GAIA_WIDTHS = (12, 1, 4, 48, 6, 8, 2, 36, 24, 18, 25, 13, 72, 156)
GAIA_WIDTH_SHARE = (
    *(0.474, 0.362, 0.038, 0.034, 0.025, 0.014, 0.014),
    *(0.008, 0.007, 0.003, 0.003, 0.002, 0.001, 0.001),
)

# model: (nodes, GPUs a node, cpu_milli, memory_mib): the commonest shapes, which add up to the
# published 4,392 G2, 842 T4, 312 G3, 265 P100, 204 V100M32, 195 V100M16 and 2 A10 on 1,213 nodes
OPENB_NODES = (
    ("G2", 549, 8, 96_000, 393_216),
    ("T4", 387, 2, 104_000, 524_288),
    ("T4", 17, 4, 96_000, 393_216),
    ("P100", 131, 2, 16_000, 122_880),
    ("P100", 3, 1, 8_000, 61_440),
    ("G3", 39, 8, 128_000, 786_432),
    ("V100M16", 28, 4, 32_000, 131_072),
    ("V100M16", 19, 1, 8_000, 32_768),
    ("V100M16", 8, 8, 64_000, 262_144),
    ("V100M32", 21, 8, 96_000, 786_432),
    ("V100M32", 9, 4, 48_000, 376_832),
    ("A10", 2, 1, 128_000, 1_048_576),
)
OPENB_PODS = 10_866
COPIED, SPAN_S = 1000, 900.0  # machines of a co-located scene, and seconds during which jobs come
POD_GPUS, POD_GPU_SHARE = (0, 1, 2, 4, 8), (0.133, 0.857, 0.0025, 0.0025, 0.005)
FRACTIONAL = 0.44  # of the pods with one GPU
MILLI = (810, 470, 320, 650, 230, 460, 590, 160, 550, 220, 370, 110)
MILLI_SHARE = (0.36, 0.25, 0.11, 0.08, 0.05, 0.04, 0.025, 0.025, 0.025, 0.015, 0.01, 0.01)
POD_CPU_MEMORY = (
    *((3_152, 5_600), (11_300, 49_152), (8_000, 30_517), (11_908, 47_104), (4_000, 16_384)),
    *((11_400, 48_128), (12_500, 57_344), (12_000, 49_152), (9_810, 24_576), (6_000, 22_888)),
)
POD_CPU_SHARE = (0.25, 0.14, 0.13, 0.12, 0.1, 0.1, 0.05, 0.05, 0.03, 0.03)


def sdsc_like(
    jobs: int = SDSC_JOBS, load: float = SDSC_LOAD, seed: int = SEED
) -> tuple[Workload, Cluster]:
    """A log of whole nodes, with the log's mean and deviation of log seconds (6.03 and 2.65)."""
    return _log_like(
        "SDSC-SP2", jobs, load, seed, (WIDTHS, WIDTH_SHARE), (6.03, 2.65), LONGEST_S, SDSC_NODES,
        "node",
    )  # fmt: skip


def gaia_like(
    jobs: int = GAIA_JOBS, load: float = SDSC_LOAD, seed: int = SEED
) -> tuple[Workload, Cluster]:
    """A log of shared nodes: processors of one pool, run times of log mean 7.28 and deviation 2.23.

    At the load of `sdsc_like`, so that the two differ in their machines and jobs alone.
    """
    return _log_like(
        "UniLu-Gaia", jobs, load, seed, (GAIA_WIDTHS, GAIA_WIDTH_SHARE), (7.28, 2.23),
        GAIA_LONGEST_S, GAIA_PROCS, "cpu",
    )  # fmt: skip


def gaia_nodes(jobs: int) -> tuple[Workload, Cluster]:
    """The same on 167 nodes one by one, each processor of a job with 4 GB of a node's 48."""
    work, _ = gaia_like(jobs)
    width = work.demand[:, 0].astype(np.int64)
    placed = workload(
        work.jobs["submit_s"],
        work.truth["work_s"],
        np.tile([1.0, 4.0], (jobs, 1)),
        resources=("cpu", "mem_gb"),
        instances=width,
        request_s=work.jobs["request_s"],
        source=work.source,
    )
    nodes = np.tile([GAIA_PROCS / 167, 48.0], (167, 1))
    return placed, cluster(nodes, resources=("cpu", "mem_gb"), source="167 nodes")


def _log_like(
    log: str, jobs: int, load: float, seed: int, widths: tuple[Any, Any],
    law: tuple[float, float], longest_s: float, units: int, unit: str,
) -> tuple[Workload, Cluster]:  # fmt: skip
    """A log in whole seconds: log-normal run times, too large requests, bursts of arrivals."""
    rng = np.random.default_rng(seed)
    share = np.array(widths[1]) / sum(widths[1])
    width = rng.choice(np.array(widths[0]), jobs, p=share)
    mean_s, scv = np.exp(law[0] + law[1] ** 2 / 2), np.expm1(law[1] ** 2)
    run_s = synthetic.sizes(jobs, rng=rng, law="lognormal", mean_s=mean_s, scv=scv)
    run_s = np.ceil(np.clip(run_s, 1, longest_s))
    request_s = synthetic.requests(run_s, rng=rng, exact=0.07, max_factor=50.0)
    request_s = np.clip(np.ceil(request_s / 60) * 60, run_s, longest_s)
    rate_hz = load * units * jobs / float((run_s * width).sum())
    submit_s = synthetic.arrival_times(jobs, rate_hz, rng=rng, process="diurnal-bursty")
    made = workload(
        np.floor(submit_s),
        run_s,
        width,
        resources=(unit,),
        request_s=request_s,
        source=f"like {log}: {jobs:,} jobs at load {load:g}, seed {seed}",
    )
    machine = cluster([[units]], resources=(unit,), kinds=("pool",), source=f"{units} {unit}s")
    return made, machine


def colocated_like(machines: int, seed: int = SEED) -> Scene:
    """A quarter of an hour on 1,000 co-located machines with three services each, laid out side by
    side so many times; each copy has its jobs at other times, and its services' use elsewhere.
    """
    scene = open_scene(f"colocated:machines={COPIED},services=3/3,span_s={SPAN_S:g}", seed=seed)
    times = machines // COPIED
    work, one = scene.workload, scene.cluster
    first = int((work.truth["service"] == 1).sum())  # services stand before all jobs
    jobs, truth = np.tile(work.jobs, times), np.tile(work.truth, times)
    demand = np.tile(work.demand, (times, 1))
    copy, row = np.divmod(np.arange(len(jobs)), len(work))
    batch = row >= first
    from_s = work.jobs["submit_s"][first:].min()
    later_s = jobs["submit_s"] - from_s + copy * SPAN_S / times
    jobs["submit_s"] = np.where(batch, from_s + later_s % SPAN_S, 0.0)
    jobs["like"] += copy * (int(work.jobs["like"].max()) + 1)
    truth["pinned"] += np.where(batch, 0, copy * COPIED)
    truth["pattern"] = np.where(batch, -1, (truth["pattern"] + 7 * copy) % len(work.patterns))
    order = np.lexsort((row, copy, jobs["submit_s"], batch))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    assert work.after_ptr is not None and work.after_idx is not None
    edges = len(work.after_idx)
    parent = np.tile(work.after_idx, times) + np.repeat(np.arange(times), edges) * len(work)
    count = np.tile(np.diff(work.after_ptr), times)
    begin = np.cumsum(count) - count
    ptr = np.concatenate(([0], np.cumsum(count[order])))
    edge = np.repeat(begin[order] - ptr[:-1], count[order]) + np.arange(ptr[-1])
    many = replace(
        work, jobs=jobs[order], truth=truth[order], demand=demand[order], after_ptr=ptr,
        after_idx=place[parent[edge]], meta={},
    )  # fmt: skip
    rack = replace(
        one, nodes=np.tile(one.nodes, times), capacity=np.tile(one.capacity, (times, 1)), names=None
    )
    return scene._replace(workload=many, cluster=rack)


def openb_like(
    pods: int = OPENB_PODS, seed: int = SEED
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Columns of 1,213 nodes and of pods in order of arrival, as `traces.openb` reads them."""
    rng = np.random.default_rng(seed)
    model, count, *sizes = (list(column) for column in zip(*OPENB_NODES))
    gpu, cpu_milli, memory_mib = (np.repeat(np.array(size), count) for size in sizes)
    nodes = {
        "sn": np.array([f"node-{n:04d}" for n in range(len(gpu))]),
        "cpu_milli": cpu_milli,
        "memory_mib": memory_mib,
        "gpu": gpu,
        "model": np.repeat(np.array(model), count),
    }
    num_gpu = rng.choice(np.array(POD_GPUS), pods, p=POD_GPU_SHARE)
    shared = (num_gpu == 1) & (rng.random(pods) < FRACTIONAL)
    milli = rng.choice(np.array(MILLI), pods, p=MILLI_SHARE)
    cpu, memory = np.array(POD_CPU_MEMORY)[rng.choice(len(POD_CPU_MEMORY), pods, p=POD_CPU_SHARE)].T
    times = np.maximum(num_gpu, 1)  # a pod with several GPUs asks for as much of the host for each
    return nodes, {
        "name": np.array([f"pod-{p:05d}" for p in range(pods)]),
        "cpu_milli": np.minimum(cpu * times, 88_000),
        "memory_mib": np.minimum(memory * times, 360_000),
        "num_gpu": num_gpu,
        "gpu_milli": np.where(shared, milli, np.where(num_gpu > 0, 1000, 0)),
        "gpu_spec": np.full(pods, ""),
    }


def dags(jobs: int = 1000, executors: int = 50, seed: int = SEED) -> tuple[Workload, Cluster]:
    """DAG jobs whose stages are rows and whose tasks are a row's instances, one executor each.

    A job has 2 to 18 stages; a stage waits for one or two earlier ones of its job and has a
    log-normal number of tasks (median 8), all with the stage's run time. Offered load 0.8.
    """
    rng = np.random.default_rng(seed)
    stages = rng.integers(2, 19, jobs)
    rows = int(stages.sum())
    first = np.repeat(np.cumsum(stages) - stages, stages)
    nth = np.arange(rows) - first
    parents = [
        sorted({int(f + rng.integers(n)) for _ in range(1 + n % 2)}) if n else []
        for f, n in zip(first, nth)
    ]
    tasks = np.ceil(np.clip(rng.lognormal(np.log(8), 1.2, rows), 1, 400)).astype(np.int64)
    work_s = np.clip(rng.lognormal(np.log(10), 1.0, rows), 0.5, 600)
    rate_hz = 0.8 * executors * jobs / float((tasks * work_s).sum())
    submit_s = synthetic.arrival_times(jobs, rate_hz, rng=rng)
    made = workload(
        np.repeat(submit_s, stages),
        work_s,
        np.ones(rows),
        resources=("executor",),
        instances=tasks,
        gang=0,
        after=parents,
        source=f"{jobs:,} DAG jobs",
    )
    return made, cluster([[executors]], resources=("executor",), source=f"{executors} executors")


def mixed(
    jobs: int, *, times: int = 1, short: bool = False, **params: Any
) -> tuple[Workload, Cluster]:
    """The mixed-gpu preset with `times` as many nodes; no job is pinned to a GPU model.

    `short` makes run times so short and alike that a few thousand jobs fill the cluster, so that
    the cost of a job can be compared between sizes.
    """
    count = {"a100": 2, "v100": 19, "t4": 13, "p100": 4, "cpu": 10}
    machine = mixed_gpu_cluster(**{kind: times * nodes for kind, nodes in count.items()})
    if short:
        alike = {"median_s": 300.0, "sigma": 0.8, "longest_s": 1800.0, "arrivals": "poisson"}
        params = alike | params
    work = synthetic.generate(
        "mixed-gpu", seed=SEED, jobs=jobs, cluster=machine, pinned=0.0, **params
    )
    return work, machine
