"""Batch jobs as whole DAGs of tasks: those of a recorded trace, or drawn like Alibaba's of 2018."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.random import Generator
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from trimtab.arrays import Array
from trimtab.core import Workload
from trimtab.errors import TraceError
from trimtab.traces import read
from trimtab.traces.alibaba2018 import quantiles
from trimtab.traces.colocated.series import SPLITS
from trimtab.traces.twin import shapes

KINDS = ("map", "reduce", "join", "other")
LETTERS = {"M": 0, "R": 1, "J": 2}
MEM_GB = 512.0  # of the machine whose memory the published trace counts as 100
DRAWN = 8000  # DAGs drawn where no trace is named
TOGETHER = 0.42  # correlation behind instances and durations, as in the twin
HOUR_S = 3600.0
TASK_COLUMNS = ("cpu", "mem_gb", "run_s", "instances", "kind")


class Dags(NamedTuple):
    """D jobs of T tasks and E edges; tasks of a job stand together, parents in any order."""

    first: Array  # (D + 1,) first task of each
    cpu: Array  # (T,) of an instance
    mem_gb: Array  # (T,)
    run_s: Array  # (T,)
    instances: Array  # (T,)
    kind: Array  # (T,) of KINDS
    parent_ptr: Array  # (T + 1,)
    parent: Array  # (E,) task
    arrival_s: Array  # (D,) within an hour
    source: str

    def work(self) -> Array:
        """(D,) core-seconds."""
        each = self.cpu * self.run_s * self.instances
        return np.add.reduceat(each, self.first[:-1])


def dags_of(path: str, split: str, rng: Generator) -> Dags:
    """The DAGs of a split of a trace: jobs are dealt by their number, as the days are by time."""
    return recorded(path, split) if path else drawn(rng)


@lru_cache(maxsize=8)
def recorded(path: str, split: str) -> Dags:
    """Batch jobs of any trace without GPUs; tasks that wait for each other are one job."""
    work = read(path)
    rows = np.flatnonzero((work.truth["service"] == 0) & (work.jobs["gpus"] == 0))
    if "cpu" not in work.resources or not len(rows):
        raise TraceError(
            f"{path}: has no jobs of CPUs alone, which are what services leave room for; "
            "give a prepared folder or a log of such jobs"
        )
    of_job = _jobs_of(work)[rows]
    _, of_job = np.unique(of_job, return_inverse=True)
    low, high = SPLITS[split]
    chosen = (of_job % 7 >= low) & (of_job % 7 < high)
    rows, of_job = rows[chosen], of_job[chosen]
    order = np.lexsort((rows, of_job))
    return _of_rows(work, rows[order], of_job[order], path)


def _jobs_of(work: Workload) -> Array:
    """(J,) which job each task is of."""
    if "dag" in work.meta:
        return np.asarray(work.meta["dag"])
    if work.after_ptr is None or work.after_idx is None:
        return np.arange(len(work))
    child = np.repeat(np.arange(len(work)), np.diff(work.after_ptr))
    ones, size = np.ones(len(child)), len(work)
    edges = coo_array((ones, (child, work.after_idx)), shape=(size, size))
    return np.asarray(connected_components(edges, directed=False)[1])


def _of_rows(work: Workload, rows: Array, of_job: Array, path: str) -> Dags:
    first = np.flatnonzero(np.diff(of_job, prepend=-1, append=-1))
    place = np.full(len(work), -1)
    place[rows] = np.arange(len(rows))
    ptr, parent = np.zeros(len(rows) + 1, np.int64), np.zeros(0, np.int64)
    if work.after_ptr is not None and work.after_idx is not None:
        count = np.diff(work.after_ptr)[rows]
        ptr = np.concatenate(([0], np.cumsum(count)))
        at = np.repeat(work.after_ptr[rows] - ptr[:-1], count) + np.arange(ptr[-1])
        parent = place[work.after_idx[at]]
        owner = np.repeat(np.arange(len(rows)), count)[parent >= 0]
        parent = parent[parent >= 0]
        ptr = np.concatenate(([0], np.cumsum(np.bincount(owner, minlength=len(rows)))))
    submit_s = work.jobs["submit_s"][rows]
    kind = np.array([min(LETTERS.get(name[:1].upper(), 3), 3) for name in work.kinds])
    memory = "mem_gb" in work.resources
    return Dags(
        first,
        work.demand[rows, work.resources.index("cpu")],
        work.demand[rows, work.resources.index("mem_gb")] if memory else np.zeros(len(rows)),
        work.truth["work_s"][rows],
        work.jobs["instances"][rows],
        kind[work.jobs["kind"][rows]],
        ptr,
        parent,
        (submit_s[first[:-1]] - work.jobs["submit_s"][0]) % HOUR_S,
        path,
    )


def drawn(rng: Generator) -> Dags:
    """Shapes, sizes and plans after the published quantiles."""
    library = shapes.made(np.random.default_rng(0))
    shape = rng.integers(0, len(library.first) - 1, DRAWN)
    size = np.diff(library.first)[shape]
    first = np.concatenate(([0], np.cumsum(size)))
    of_shape = np.repeat(library.first[shape] - first[:-1], size) + np.arange(first[-1])
    tasks = len(of_shape)
    wide = rng.standard_normal(tasks)
    long = TOGETHER * wide + np.sqrt(1 - TOGETHER**2) * rng.standard_normal(tasks)
    words = library.words.to_pylist()
    letter = np.array([LETTERS[word[0]] for word in words])
    word = library.word[of_shape]
    count = np.diff(library.first_parent)[of_shape]
    ptr = np.concatenate(([0], np.cumsum(count)))
    edge = np.repeat(library.first_parent[of_shape] - ptr[:-1], count) + np.arange(ptr[-1])
    base = np.repeat(np.repeat(first[:-1], size), count)
    plan_cpu = quantiles.picked(quantiles.PLAN_CPU, rng.random(DRAWN))
    return Dags(
        first,
        np.repeat(plan_cpu / 100, size),
        quantiles.picked(quantiles.PLAN_MEM, rng.random(tasks)) / 100 * MEM_GB,
        quantiles.drawn(quantiles.DURATION_S, quantiles.share_below(long)),
        np.floor(quantiles.drawn(quantiles.INSTANCES, quantiles.share_below(wide))).astype(int),
        np.where(word < 0, 3, letter[word]),
        ptr,
        base + library.parent[edge],
        rng.uniform(0.0, HOUR_S, DRAWN),
        "drawn like Alibaba 2018",
    )


def taken(dags: Dags, jobs: Array) -> Dags:
    """These jobs, in this order; the same one more than once is another each time."""
    size = np.diff(dags.first)[jobs]
    first = np.concatenate(([0], np.cumsum(size)))
    task = np.repeat(dags.first[jobs] - first[:-1], size) + np.arange(first[-1])
    count = np.diff(dags.parent_ptr)[task]
    ptr = np.concatenate(([0], np.cumsum(count)))
    edge = np.repeat(dags.parent_ptr[task] - ptr[:-1], count) + np.arange(ptr[-1])
    shift = np.repeat(np.repeat(first[:-1] - dags.first[jobs], size), count)
    of_task = {name: getattr(dags, name)[task] for name in TASK_COLUMNS}
    return dags._replace(
        first=first,
        **of_task,
        parent_ptr=ptr,
        parent=dags.parent[edge] + shift,
        arrival_s=dags.arrival_s[jobs],
    )
