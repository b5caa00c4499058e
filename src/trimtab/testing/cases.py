"""Small clusters and workloads with something of everything, to drive plug-ins with."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trimtab.build import cluster, workload
from trimtab.core import Cluster, Workload
from trimtab.sim.backend import SimBackend
from trimtab.sim.world import Models, outages

MOST_INSTANTS = 10_000  # of a built-in case: far more than any needs


def small_cluster() -> Cluster:
    """Four nodes of two kinds in two regions: 8, 8 and 16 cores, and 16 with four GPUs."""
    capacity = [[8, 32, 0], [8, 32, 0], [16, 64, 0], [16, 128, 4]]
    return cluster(
        capacity,
        resources=("cpu", "mem_gb", "gpu"),
        kind=[0, 0, 0, 1],
        kinds=("cpu", "gpu"),
        region=[0, 0, 1, 1],
        regions=("east", "west"),
        gpu_mem_gb=[0, 0, 0, 16],
        idle_w=[50, 50, 80, 200],
        peak_w=[150, 150, 300, 1200],
        source="trimtab.testing's cluster of four nodes",
    )


def small_workload(jobs: int = 60, gap_s: float = 20.0, seed: int = 0) -> Workload:
    """Small, wide, gangs, arrays, whole and shared GPUs in turn. `gap_s` 0 = all at once."""
    rng = np.random.default_rng(seed)
    sort = np.resize([0, 1, 2, 3, 4, 5], jobs)  # small, wide, gang, array, whole GPU, shared GPU
    cpu = np.array([1, 8, 4, 2, 2, 1])[sort]
    gpus = np.array([0, 0, 0, 0, 2, 1])[sort]
    share = np.array([1, 1, 1, 1, 1, 0.5])[sort]
    work_s = rng.integers(5, 200, jobs).astype(float)
    return workload(
        np.floor(np.cumsum(rng.exponential(gap_s, jobs))) if gap_s else np.zeros(jobs),
        work_s,
        np.stack([cpu, 2 * cpu, gpus * share], axis=1),
        resources=("cpu", "mem_gb", "gpu"),
        request_s=work_s * rng.choice([1.0, 2.0], jobs),
        instances=np.array([1, 1, 3, 4, 1, 1])[sort],
        gang=np.array([1, 1, 1, 0, 1, 1])[sort],
        gpus=gpus,
        gpu_share=share,
        gpu_mem_gb=np.where(gpus > 0, 6.0, 0.0),
        checkpoint_s=np.where(sort == 2, 0.0, np.inf),
        source=f"trimtab.testing's {jobs} jobs",
    )


def small_cases() -> Iterator[tuple[str, SimBackend]]:
    """Simulated clusters by name: one job, a trickle, all at once, and nodes that fail."""
    machine = small_cluster()
    yield "one job", SimBackend(small_workload(1), machine)
    yield "an idle cluster", SimBackend(small_workload(12, gap_s=400.0, seed=1), machine)
    yield "a loaded cluster", SimBackend(small_workload(60, gap_s=25.0, seed=2), machine)
    yield "an overloaded cluster", SimBackend(small_workload(60, gap_s=0.0, seed=3), machine)
    failing = outages(machine, 4000.0, np.random.default_rng(4), mtbf_s=900.0, mttr_s=100.0)
    models = Models(outages=failing, retries=1000)
    yield (
        "failing nodes",
        SimBackend(small_workload(40, gap_s=20.0, seed=4), machine, models=models),
    )
