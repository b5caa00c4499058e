"""Results made by hand for the tests of the report."""

import numpy as np

from trimtab.build import cluster, workload
from trimtab.core import Status, What
from trimtab.metrics import Result
from trimtab.rules.world import LOG
from trimtab.sim.whole import ended_state, pool_arrived, pool_totals


def pool(policy="fcfs", seed=0, delay_s=0.0, units=4):
    """Three jobs of 2, 2 and 4 units on a pool of 4; the last waits for both others.

    Submitted at 0, 0, 2 and run for 10, 20, 5 s: started at 0, 0 and 20, plus the delay.
    """
    work = workload([0, 0, 2], [10, 20, 5], [2, 2, 4], resources=["node"], source="three jobs")
    machine = cluster([units], resources=["node"], kinds=["pool"], names=["pool"], source="a pool")
    start_s = np.array([0.0, 0.0, 20.0]) + delay_s
    state = ended_state(work, start_s, start_s + work.truth["work_s"])
    arrived, so_far = pool_arrived(work, state, units)
    totals = pool_totals(work, state, units)
    return Result(policy, seed, work, machine, state, totals, arrived=arrived, so_far=so_far)


def logged(rows, work, machine, policy="fcfs", **ends):
    """A result with a log of (time_s, what, job, node, count, run[, reason])."""
    log = np.zeros(len(rows), LOG)
    for i, (time_s, what, job, node, count, run, *reason) in enumerate(rows):
        log[i] = (time_s, what, job, node, count, 0, run, reason[0] if reason else 0)
    state = ended_state(work, np.full(len(work), np.nan), np.full(len(work), np.nan))
    for row in log:
        job = row["job"]
        if job >= 0 and row["what"] == What.STARTED and np.isnan(state["start_s"][job]):
            state["start_s"][job] = row["time_s"]
        if job >= 0 and row["what"] == What.FINISHED:
            state["end_s"][job] = row["time_s"]
    state["status"] = np.where(np.isnan(state["end_s"]), Status.RUNNING, Status.FINISHED)
    for name, values in ends.items():
        state[name] = values
    totals = np.zeros(1, pool().totals.dtype)[0]
    return Result(policy, 0, work, machine, state, totals, log)
