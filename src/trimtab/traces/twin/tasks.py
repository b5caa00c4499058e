"""The jobs that arrive in one hour and their tasks.

A job arrives when its first task starts. A child starts after the last of its parents has ended and
a wait: exponential, of mean 2 s times the square of the hour's relative rate, cut to whole seconds,
so heavier where the cluster is busier. Jobs that arrive in the last hour may end after the trace.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from trimtab.compiled import compiled
from trimtab.traces.alibaba2018 import quantiles
from trimtab.traces.twin.columns import Chunk, Text, numbered, same
from trimtab.traces.twin.plan import HOUR_S, Plan, relative_rate, seconds_of, stream
from trimtab.traces.twin.shapes import Shapes

DISPERSION = 4.4  # variance / mean of the jobs of a second, kept at any rate
WAIT_S = 2.0
# Correlation behind the instances and the duration of a task; in the hour that is published whole,
# the logarithms of the two correlate 0.36.
TOGETHER = 0.42
SINGLE_SPREAD = 0.45  # few instances straggle less: the ratio to this power below ten
AT_ONCE_SHARE = 0.5  # of the tasks whose longest instance runs from their start to their end
SHORTEST_SHARE = 0.3  # of its task, that the longest instance of another lasts
# Tasks of the whole trace by type where the type is not 1; all tasks with a DAG name are type 1.
OTHER_TYPES = {
    **{"6": 1_226_388, "5": 399_489, "10": 322_929, "8": 53_933, "3": 35_061, "11": 28_777},
    **{"12": 8889, "9": 6543, "4": 5519, "7": 488, "2": 12},
}
TYPES = ("1", *OTHER_TYPES)
ALPHABET = np.frombuffer(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8
)
RANDOM_LETTERS = 22


class Tasks(NamedTuple):
    """Tasks of the jobs of one hour, job by job, parents before children; J jobs, T tasks."""

    job_number: np.ndarray  # (J,)
    job: np.ndarray  # (T,)
    name: pa.Array  # (T,)
    kind: np.ndarray  # (T,) into TYPES
    instances: np.ndarray  # (T,)
    start_s: np.ndarray  # (T,) whole seconds of trace time
    end_s: np.ndarray  # (T,)
    plan_cpu: np.ndarray  # (T,) 100 is a core
    plan_mem: np.ndarray  # (T,)
    cpu_used: np.ndarray  # (T,) over planned
    mem_used: np.ndarray  # (T,)
    longest_s: np.ndarray  # (T,) run of the longest instance
    straggler: np.ndarray  # (T,) longest over mean


def tasks_of(plan: Plan, shapes: Shapes, period: int) -> Tasks:
    """Draw the jobs of an hour. Depends on the options and the hour alone."""
    rng = stream(plan, "batch_task", period)
    submit_s = _arrivals(plan, period, rng)  # (J,)
    shape = rng.integers(0, len(shapes.first) - 1, len(submit_s))
    size = np.diff(shapes.first)[shape]
    first = np.concatenate(([0], np.cumsum(size)))  # (J + 1,) first task of each job
    job = np.repeat(np.arange(len(shape)), size)
    of_shape = shapes.first[shape][job] + np.arange(first[-1]) - first[job]  # (T,)
    instances, run_s = _sizes(plan, rng, len(job))
    wait_s = rng.exponential(WAIT_S * relative_rate(period) ** 2, len(job)).astype(np.int64)
    start_s, end_s = np.empty_like(run_s), np.empty_like(run_s)
    _timed(first, of_shape, shapes.first_parent, shapes.parent, submit_s, run_s, wait_s,
           start_s, end_s)  # fmt: skip
    word = shapes.word[of_shape]
    longest_s, straggler = _stragglers(rng, instances, run_s)
    return Tasks(
        1 + period * plan.job_block + np.arange(len(shape)),
        job,
        _names(word, shapes.words, rng),
        np.where(word < 0, _types(rng, len(shape))[job], 0),
        instances,
        start_s,
        end_s,
        quantiles.picked(quantiles.PLAN_CPU, rng.random(len(shape)))[job],
        quantiles.picked(quantiles.PLAN_MEM, rng.random(len(job))),
        quantiles.drawn(quantiles.CPU_USED, rng.random(len(job))),
        quantiles.drawn(quantiles.MEM_USED, rng.random(len(job))),
        longest_s,
        straggler,
    )


def task_chunk(tasks: Tasks) -> Chunk:
    """The tasks as rows of batch_task."""
    rows = len(tasks.job)
    words = tasks.name.dictionary_encode()
    return {
        "task_name": Text(words.indices.to_numpy(), words.dictionary),
        "instance_num": tasks.instances,
        "job_name": Text(tasks.job.astype(np.int32), numbered("j_", tasks.job_number)),
        "task_type": Text(tasks.kind.astype(np.int32), pa.array(TYPES)),
        "status": same("Terminated", rows, "Running", "Waiting", "Failed"),
        "start_time": tasks.start_s.copy(),
        "end_time": tasks.end_s.copy(),
        "plan_cpu": tasks.plan_cpu.copy(),
        "plan_mem": tasks.plan_mem.copy(),
    }


def _arrivals(plan: Plan, period: int, rng: np.random.Generator) -> np.ndarray:
    """Second of each job's arrival: each second's count is negative binomial, (J,)."""
    mean = plan.jobs_hz * relative_rate(period)
    seconds = seconds_of(plan.options, period)
    counts = rng.negative_binomial(mean / (DISPERSION - 1), 1 / DISPERSION, seconds)
    return np.repeat(period * HOUR_S + np.arange(seconds), counts)


def _sizes(plan: Plan, rng: np.random.Generator, tasks: int) -> tuple[np.ndarray, np.ndarray]:
    """Instances and seconds of each task; a wide task tends to be a long one."""
    wide = rng.standard_normal(tasks)
    long = TOGETHER * wide + np.sqrt(1 - TOGETHER**2) * rng.standard_normal(tasks)
    instances = np.floor(quantiles.drawn(quantiles.INSTANCES, quantiles.share_below(wide)))
    run_s = np.rint(quantiles.drawn(quantiles.DURATION_S, quantiles.share_below(long)))
    return np.minimum(instances, plan.largest).astype(np.int64), run_s.astype(np.int64)


def _stragglers(
    rng: np.random.Generator, instances: np.ndarray, run_s: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Seconds of each task's longest instance, and that over the mean of its instances."""
    share = np.where(
        rng.random(len(run_s)) < AT_ONCE_SHARE, 1.0, rng.uniform(SHORTEST_SHARE, 1.0, len(run_s))
    )
    ratio = quantiles.drawn(quantiles.STRAGGLER, rng.random(len(run_s)))
    ratio = np.where(instances < 10, ratio**SINGLE_SPREAD, ratio)
    # the mean of n instances, of which one is the longest, is at least a n-th of it
    return np.rint(run_s * share).astype(np.int64), np.clip(ratio, 1.0, 0.9 * instances + 0.1)


def _names(word: np.ndarray, words: pa.Array, rng: np.random.Generator) -> pa.Array:
    """DAG names by number, random ones for independent tasks."""
    alone = np.flatnonzero(word < 0)
    letters = np.empty((len(alone), 5 + RANDOM_LETTERS), np.uint8)
    letters[:, :5] = np.frombuffer(b"task_", np.uint8)
    letters[:, 5:] = ALPHABET[rng.integers(0, len(ALPHABET), (len(alone), RANDOM_LETTERS))]
    ends = np.arange(0, letters.size + 1, letters.shape[1], dtype=np.int32)
    random = pa.StringArray.from_buffers(
        len(alone), pa.py_buffer(ends), pa.py_buffer(letters.tobytes())
    )
    index = word.copy()
    index[alone] = len(words) + np.arange(len(alone))
    return pa.concat_arrays([words, random]).take(pa.array(index))


def _types(rng: np.random.Generator, jobs: int) -> np.ndarray:
    """A type for each job of independent tasks, into TYPES."""
    weight = np.cumsum(list(OTHER_TYPES.values()))
    return 1 + np.searchsorted(weight, rng.random(jobs) * weight[-1], side="right")


@compiled
def _timed(
    first: np.ndarray,  # (jobs + 1,)
    of_shape: np.ndarray,  # (tasks,) as the times below
    first_parent: np.ndarray,
    parent: np.ndarray,
    submit_s: np.ndarray,  # (jobs,)
    run_s: np.ndarray,
    wait_s: np.ndarray,
    start_s: np.ndarray,
    end_s: np.ndarray,
) -> None:
    """Start and end of every task, parents first."""
    for job in range(len(first) - 1):
        for task in range(first[job], first[job + 1]):
            ready_s = submit_s[job]
            shape_task = of_shape[task]
            for edge in range(first_parent[shape_task], first_parent[shape_task + 1]):
                ready_s = max(ready_s, end_s[first[job] + parent[edge]])
            # the first task starts as the job arrives: its start is all the trace tells of that
            start_s[task] = ready_s + (wait_s[task] if task > first[job] else 0)
            end_s[task] = start_s[task] + run_s[task]
