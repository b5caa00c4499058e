"""The instances of an hour's tasks, a row group at a time.

Every instance starts within its task and none ends after it; one, the longest, ends with it. The
others' durations are log-normal about a mean that gives the task's straggler ratio. The machine is
drawn by a weight a machine has for the whole trace (log-normal, sigma 0.25).
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from trimtab.compiled import compiled
from trimtab.traces.twin.columns import NORMAL, Chunk, Numbered, Text, mixed, numbered, same
from trimtab.traces.twin.plan import Plan, stream
from trimtab.traces.twin.tasks import TYPES, Tasks

CHUNK_ROWS = 960_000  # and a repeated few: a row group stays near a million rows
WEIGHT_SIGMA = 0.25
UNKNOWN_MACHINES = 8  # names of machines that are not there, for dirt
UNKNOWN_JOB = "j_0"  # jobs count from 1
# Factors by twelve random bits: use of an instance about its task's mean, and peak over mean.
ABOUT_MEAN = np.exp(0.1 * NORMAL - 0.005)
PEAK = 1.0 + 0.25 * np.abs(NORMAL)


class Out(NamedTuple):
    """Columns that the compiled loop fills, (rows,) each."""

    task: np.ndarray
    start_s: np.ndarray
    end_s: np.ndarray
    machine: np.ndarray
    cpu_avg: np.ndarray
    cpu_max: np.ndarray
    mem_avg: np.ndarray
    mem_max: np.ndarray


def machine_deck(plan: Plan) -> np.ndarray:
    """Machines, each as often as its weight says; a power of two of cards, so bits can draw one."""
    rng = stream(plan, "batch_instance")
    weight = rng.lognormal(0.0, WEIGHT_SIGMA, plan.options.machines)
    cards = 1 << max(16, int(np.ceil(np.log2(16 * plan.options.machines))))
    share = (np.arange(cards) + 0.5) / cards
    total = np.cumsum(weight)
    return np.searchsorted(total / total[-1], share).astype(np.int32)


def instance_chunks(plan: Plan, tasks: Tasks, deck: np.ndarray, period: int) -> Iterator[Chunk]:
    """Rows of batch_instance, whole tasks at a time."""
    key = stream(plan, "batch_instance", period).integers(0, 2**62)
    end = np.cumsum(tasks.instances)  # (T,) rows up to and with each task
    machines = numbered("m_", 1 + np.arange(plan.options.machines + UNKNOWN_MACHINES))
    task = 0
    while task < len(end):
        done = end[task] - tasks.instances[task]
        stop = max(task + 1, int(np.searchsorted(end, done + CHUNK_ROWS, side="right")))
        out = _empty(int(end[stop - 1] - done))
        # a row's key is its number in the hour: chunks of another size would make the same rows
        _fill(
            *(np.uint64(key + done), task, stop, tasks.instances, tasks.start_s, tasks.end_s),
            *(tasks.longest_s, tasks.straggler, tasks.plan_cpu * tasks.cpu_used),
            *(tasks.plan_mem * tasks.mem_used, deck, NORMAL, ABOUT_MEAN, PEAK, out),
        )
        number = 1 + period * plan.instance_block + done + np.arange(len(out.task))
        yield _chunk(tasks, task, stop, out, number, machines)
        task = stop


def _empty(rows: int) -> Out:
    whole = (np.empty(rows, np.int32), np.empty(rows, np.int64), np.empty(rows, np.int64))
    return Out(*whole, np.empty(rows, np.int32), *(np.empty(rows) for _ in range(4)))


def _chunk(
    tasks: Tasks, start: int, stop: int, out: Out, number: np.ndarray, machines: pa.Array
) -> Chunk:
    part = slice(start, stop)
    names = tasks.name.slice(start, stop - start).dictionary_encode()
    first_job = int(tasks.job[start])
    jobs = numbered("j_", tasks.job_number[first_job : tasks.job[stop - 1] + 1])
    rows = len(number)
    return {
        "instance_name": Numbered("ins_", number),
        "task_name": Text(names.indices.to_numpy()[out.task], names.dictionary),
        "job_name": Text(
            (tasks.job[part] - first_job).astype(np.int32)[out.task],
            pa.concat_arrays([jobs, pa.array([UNKNOWN_JOB])]),
        ),
        "task_type": Text(tasks.kind[part].astype(np.int32)[out.task], pa.array(TYPES)),
        "status": same("Terminated", rows, "Running", "Waiting", "Failed"),
        "start_time": out.start_s,
        "end_time": out.end_s,
        "machine_id": Text(out.machine, machines),
        "seq_no": np.ones(rows, np.int64),
        "total_seq_no": np.ones(rows, np.int64),
        "cpu_avg": out.cpu_avg,
        "cpu_max": out.cpu_max,
        "mem_avg": out.mem_avg,
        "mem_max": out.mem_max,
    }


@compiled
def _fill(
    key: np.uint64,
    first: int,
    stop: int,
    instances: np.ndarray,  # (tasks,) as those down to mem
    start_s: np.ndarray,
    end_s: np.ndarray,
    longest_s: np.ndarray,
    straggler: np.ndarray,
    cpu: np.ndarray,
    mem: np.ndarray,
    deck: np.ndarray,
    normal: np.ndarray,
    about_mean: np.ndarray,
    peak: np.ndarray,
    out: Out,
) -> None:
    """Draw every instance of tasks first to stop, 128 random bits each."""
    row = 0
    cards = np.uint64(len(deck) - 1)
    low = np.uint64(0xFFF)
    for task in range(first, stop):
        count, whole_s = instances[task], longest_s[task]
        slack_s = end_s[task] - start_s[task] - whole_s
        # the mean of the others, over the longest, that leaves the ratio to all
        other = 1.0 if count == 1 else (count / straggler[task] - 1.0) / (count - 1)
        sigma = 0.6 * (1.0 - other)
        longest = np.int64(mixed(key + np.uint64(row)) % np.uint64(count))
        for instance in range(count):
            bits = mixed((key + np.uint64(row)) * np.uint64(2))
            more = mixed((key + np.uint64(row)) * np.uint64(2) + np.uint64(1))
            late_s, run_s = slack_s, whole_s
            if instance != longest:
                share = other * np.exp(sigma * normal[bits & low] - 0.5 * sigma * sigma)
                # the chance part keeps the mean of whole seconds where runs are short
                part = np.float64((bits >> np.uint64(12)) & low) / 4096.0
                run_s = np.int64(min(share, 1.0) * whole_s + part)
                late = np.float64((bits >> np.uint64(24)) & np.uint64(0xFFFF)) / 65536.0
                late_s = np.int64(late * (slack_s + 1))
            out.task[row] = task - first
            out.start_s[row] = start_s[task] + late_s
            out.end_s[row] = start_s[task] + late_s + run_s
            out.machine[row] = deck[(bits >> np.uint64(40)) & cards]
            used = max(1.0, np.floor(cpu[task] * about_mean[more & low] + 0.5))
            out.cpu_avg[row] = used
            out.cpu_max[row] = np.floor(used * peak[(more >> np.uint64(12)) & low] + 0.5)
            held = max(1.0, np.floor(
                100.0 * mem[task] * about_mean[(more >> np.uint64(24)) & low] + 0.5))  # fmt: skip
            out.mem_avg[row] = held / 100.0
            out.mem_max[row] = np.floor(held * peak[(more >> np.uint64(36)) & low] + 0.5) / 100.0
            row += 1
