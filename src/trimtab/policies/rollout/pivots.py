"""Rollouts under RLScheduler's semantics: an order is played out by its simulator itself."""

from __future__ import annotations

import numpy as np

from trimtab.arrays import Array
from trimtab.compiled import compiled
from trimtab.core import Workload
from trimtab.policies.rollout.choice import Asks, Going
from trimtab.policies.rollout.playout import Scene, cost
from trimtab.policies.rollout.policy import RolloutPolicy
from trimtab.sim import rlscheduler
from trimtab.sim.rlscheduler import (
    ARRIVED,
    ASKED,
    FCFS,
    FREE,
    GOING,
    QUEUED,
    STARTED,
    Running,
    Turn,
    simulate,
)


@compiled
def play_out(scene: Scene, order: Array, backfill: bool, objective: int) -> float:
    """As `playout.play_out`, of jobs that are picked one by one and block until they fit."""
    running, jobs = len(scene.left_s), len(scene.left_s) + len(order)
    submit_s, run_s, request_s = np.zeros(jobs), np.ones(jobs), np.ones(jobs)
    width, rank, come = np.ones(jobs, np.int64), np.zeros(jobs), 0
    turn = Turn(
        Running(np.empty(jobs), np.empty(jobs, np.int64), np.empty(jobs), np.empty(jobs, np.int64)),
        np.empty(jobs, np.int64), np.full(jobs, np.nan), np.empty(jobs), np.empty(jobs, np.int64),
        np.zeros(5, np.int64), np.full(1, -1), np.full(1, scene.now_s),
    )  # fmt: skip
    for i in range(running):
        width[i], turn.due_of_s[i] = int(scene.held[i, 0]), scene.due_s[i]
    by_end, by_due = np.argsort(-scene.left_s), np.argsort(scene.due_s)
    for i in range(running):
        turn.running.end_s[i] = scene.now_s + scene.left_s[by_end[i]]
        turn.running.job[i] = by_end[i]
        turn.running.due_s[i] = scene.due_s[by_due[i]]
        turn.running.due_units[i] = width[by_due[i]]
    for i in range(len(order)):
        row = running + i
        submit_s[row], run_s[row] = scene.submit_s[i], scene.run_s[i]
        request_s[row], width[row] = scene.request_s[i], int(scene.width[i, 0])
        rank[running + order[i]] = i
        if scene.submit_s[i] <= scene.now_s:
            turn.queue[come] = row
            come += 1
    count, halt = turn.counts, np.zeros(1, np.int64)
    count[QUEUED], count[GOING], count[ARRIVED] = come, running, running + come
    count[STARTED], count[FREE] = running, int(scene.free[0])
    simulate(
        turn, submit_s, run_s, request_s, width, rank, width, rank, FCFS, backfill, halt
    )  # fmt: skip
    total = 0.0
    for row in range(running, jobs):
        total += cost(objective, turn.start_s[row] - submit_s[row], run_s[row])
    return total


def schedule(
    work: Workload, capacity: int, policy: RolloutPolicy, request_s: Array
) -> tuple[Array, Array]:
    """As `sim.rlscheduler.schedule`, with each job picked by the policy.

    It sees of a job what the simulator has admitted, and its run time when it has ended.
    """
    chooser, backfill = policy.chooser, policy.backfill == "easy"

    def played(scene: Scene, order: Array, objective: int, enough: float) -> float:
        value: float = play_out(scene, order, backfill, objective)
        return value

    columns = work.jobs["submit_s"].copy(), work.truth["work_s"].copy(), request_s
    width = (work.demand[:, 0] * work.jobs["instances"]).astype(np.int64)
    procs = np.asarray(work.meta.get("procs", width), np.int64)
    asks = Asks(
        np.arange(len(work)), columns[0], np.maximum(request_s, 1.0), work.jobs["tenant"].copy(),
        width[:, None].astype(np.float64),
    )  # fmt: skip
    scores, halt = np.zeros(len(work)), np.zeros(1, np.int64)
    turn, done, came = rlscheduler.first_turn(columns[0], capacity), np.zeros(len(work), bool), 0
    while True:
        simulate(
            turn, *columns, procs, scores, width, scores, ASKED, backfill, halt
        )  # fmt: skip
        if not turn.counts[QUEUED]:
            return turn.start_s, turn.order
        chooser.came(asks.only(np.arange(came, turn.counts[ARRIVED])))
        came = int(turn.counts[ARRIVED])
        running = turn.running.job[: turn.counts[GOING]]
        over = np.zeros(len(work), bool)
        over[turn.order[: turn.counts[STARTED]]] = True
        over[running] = False
        for job in np.flatnonzero(over & ~done).tolist():
            chooser.ended(job, int(asks.tenant[job]), asks.request_s[job], columns[1][job])
        done |= over
        queue = np.sort(turn.queue[: turn.counts[QUEUED]])
        turn.pick[0] = queue[0]
        if len(queue) > 1:
            going = Going(asks.only(running), turn.start_s[running], turn.due_of_s[running])
            best = chooser.order(
                float(turn.now_s[0]), turn.counts[FREE:].astype(np.float64), asks.only(queue),
                going, played,
            )  # fmt: skip
            turn.pick[0] = queue[best[0]]
