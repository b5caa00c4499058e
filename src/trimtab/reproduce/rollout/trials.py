"""Single runs: sequences under RLScheduler's semantics, and weeks of a log on the engine."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from trimtab.arrays import Array
from trimtab.core import Workload
from trimtab.metrics import mean_in_order, measure
from trimtab.play import play
from trimtab.policies import named
from trimtab.policies.rollout import pivots
from trimtab.policies.rollout.policy import RolloutPolicy
from trimtab.sim import rlscheduler
from trimtab.traces.readers.swf import read_swf, swf_cluster
from trimtab.traces.scenes.scene import Scene, open_scene

# first rows of the sequences behind the tables of RLScheduler, as its program draws them
SEQUENCES = (1981, 2756, 4299, 8850, 3316, 2714, 5228, 7762, 4022, 7085)
WEEK_S = 7 * 86400.0
FEWEST = 100  # jobs of a week that counts
SHORT_S = 10.0


@cache
def log_of(path: str) -> Workload:
    return read_swf(path, nodes="whole")


def sequences(log: str, policy: str, count: int, jobs: int) -> dict[str, Any]:
    """Mean bounded slow-down of each sequence under RLScheduler's semantics, and counters."""
    work = log_of(log)
    ours = policy.startswith("rollout")
    found: dict[str, Any] = {"bsld": [], "counters": {}}
    for start in SEQUENCES[:count]:
        part = work.window(start, min(jobs, len(work) - start))
        made = named(policy) if ours else None
        start_s, order = _scheduled(part, policy, made)
        run_s = part.truth["work_s"]
        slow = (start_s - part.jobs["submit_s"] + run_s) / np.maximum(run_s, SHORT_S)
        found["bsld"].append(mean_in_order(np.maximum(1.0, slow), order))
        if isinstance(made, RolloutPolicy):
            found["counters"] = _sum(found["counters"], made.counters())
    return found


def _scheduled(work: Workload, policy: str, made: Any) -> tuple[Array, Array]:
    capacity, asked_s = int(swf_cluster(work).capacity[0, 0]), work.meta["request_logged_s"]
    if isinstance(made, RolloutPolicy):
        return pivots.schedule(work, capacity, made, asked_s)
    base, _, backfill = policy.partition("+")
    return rlscheduler.schedule(
        work.jobs["submit_s"], work.truth["work_s"], asked_s, work.meta["procs"], capacity,
        rlscheduler.POLICIES[base], backfill == "easy", work.demand[:, 0].astype(np.int64),
    )  # fmt: skip


def weeks(log: str, policy: str, count: int, jobs: int) -> dict[str, Any]:
    """Mean bounded slow-down of each of some weeks, spread over the log, and counters."""
    scene = scene_of(log)
    found: dict[str, Any] = {"bsld": [], "counters": {}, "jobs": []}
    for start, stop in chosen_weeks(scene.workload.jobs["submit_s"], count):
        part = scene._replace(workload=scene.workload.window(start, min(jobs, stop - start)))
        done = play(named(policy), part)
        found["bsld"].append(measure(done)["bsld_mean"])
        found["jobs"].append(len(part.workload))
        found["counters"] = _sum(found["counters"], done.counters)
    return found


@cache
def scene_of(log: str) -> Scene:
    return open_scene(log)


def chosen_weeks(submit_s: Array, count: int) -> list[tuple[int, int]]:
    """(first row, row behind the last) of at most `count` weeks with jobs enough, evenly spread."""
    edges = np.arange(submit_s[0], submit_s[-1] + WEEK_S, WEEK_S)
    at = np.searchsorted(submit_s, edges)
    rows = [(int(a), int(b)) for a, b in zip(at[:-1], at[1:]) if b - a >= FEWEST]
    if len(rows) <= count:
        return rows
    return [rows[int(i)] for i in np.linspace(0, len(rows) - 1, count)]


def _sum(before: dict[str, float], more: dict[str, float]) -> dict[str, float]:
    return {name: before.get(name, 0.0) + value for name, value in more.items()}
