"""The optimum of small cases: least sum of completion times on unrelated machines, clairvoyant.

plan = optimum(workload, cluster, profile)              8-10 jobs on 3-5 GPUs in seconds
run(SimBackend(workload, cluster, profile), PlanPolicy(plan))       the same, by the engine
preemptive_bound_s(workload, cluster, profile)          what no schedule beats, for hundreds of jobs

Every node is one machine, which runs one job at a time to its end. All see the true run times.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, linear_sum_assignment, linprog, milp
from scipy.sparse import coo_array, csr_array, lil_array, vstack

from trimtab.arrays import Array
from trimtab.core import Cluster, Decision, Profile, Snapshot, Start, Status, Workload
from trimtab.errors import PolicyError

OPTIMAL_GAP = 1e-6  # relative


@dataclass(frozen=True)
class Plan:
    """Where and when each job starts. `bound_s` is what no such plan can beat."""

    starts: tuple[tuple[int, int, float], ...]  # (job, node, start_s), by time
    total_completion_s: float  # sum over jobs of end less submit
    bound_s: float
    optimal: bool


class PlanPolicy:
    """Replays a plan: each node runs its jobs in the planned order, each as soon as it may."""

    name = "plan"

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def decide(self, snapshot: Snapshot) -> list[Decision]:
        made: list[Decision] = []
        waits, busy = set(snapshot.queue.tolist()), set[int]()
        for job, node, _ in self.plan.starts:
            if node in busy or snapshot.state["status"][job] >= Status.FINISHED:
                continue
            busy.add(node)  # by this job, or kept for it
            if job in waits and snapshot.node_state["pieces"][node] == 0:
                made.append(Start(job, (node,)))
        return made


def run_times_s(
    workload: Workload, cluster: Cluster, profile: Profile, startup_s: float = 0.0
) -> Array:
    """(J, N) seconds each job takes on each node, its start-up with it; inf where it cannot run.

    PolicyError where a job is not one instance, waits for another, or may share a node.
    """
    jobs, nodes = workload.jobs, cluster.nodes
    if (jobs["instances"] != 1).any() or workload.after_ptr is not None:
        raise PolicyError(
            f"{workload.source}: the optimum is for single, independent jobs; "
            "drop gangs, arrays and dependencies"
        )
    fits = (workload.demand[:, None, :] <= cluster.capacity[None]).all(axis=2)
    fits &= jobs["gpus"][:, None] <= nodes["gpus"]
    fits &= (jobs["gpus"][:, None] == 0) | (jobs["gpu_mem_gb"][:, None] <= nodes["gpu_mem_gb"])
    fits &= (jobs["node_kinds"][:, None] >> nodes["kind"].astype(np.uint64) & np.uint64(1)) == 1
    rate = profile.rate[jobs["kind"][:, None], nodes["kind"][None, :], 0]
    both = workload.demand + workload.demand.min(axis=0)
    shared = (both[:, None, :] <= cluster.capacity[None]).all(axis=2) & fits
    if len(workload) > 1 and shared.any():
        job, node = (int(part[0]) for part in np.nonzero(shared))
        raise PolicyError(
            f"{workload.source}: job {workload.name(job)} may share node {cluster.name(node)}; "
            "the optimum is for nodes of one job at a time: give each GPU a node of its own"
        )
    with np.errstate(divide="ignore"):
        time_s = startup_s + workload.truth["work_s"][:, None] / rate
    time_s = np.where(fits & (rate > 0), time_s, np.inf)
    nowhere = ~np.isfinite(time_s).any(axis=1)
    if nowhere.any():
        raise PolicyError(
            f"{workload.source}: job {workload.name(int(np.argmax(nowhere)))} fits on no node; "
            "drop it or add a node that holds it"
        )
    return time_s


def optimum(
    workload: Workload, cluster: Cluster, profile: Profile, startup_s: float = 0.0,
    time_limit_s: float = 60.0,
) -> Plan:  # fmt: skip
    """The plan of least total completion time without preemption.

    Where all jobs are there from the start it is an assignment of jobs to places counted from the
    end of each node's line, and exact for hundreds of jobs (Horn 1973; Bruno et al. 1974). With
    release times it is a mixed-integer programme, exact if it ends within `time_limit_s`.
    """
    time_s = run_times_s(workload, cluster, profile, startup_s)
    release_s = workload.jobs["submit_s"]
    if (release_s == release_s[0]).all():
        lines, bound_s = _assigned(time_s), np.nan
    else:
        lines, bound_s = _by_places(time_s, release_s, cluster.nodes["kind"], time_limit_s)
    starts, total_s = timed(lines, time_s, release_s)
    bound_s = total_s if np.isnan(bound_s) else min(bound_s - float(release_s.sum()), total_s)
    optimal = total_s - bound_s <= OPTIMAL_GAP * max(total_s, 1.0)
    return Plan(starts, total_s, bound_s, optimal)


def timed(
    lines: list[list[int]], time_s: Array, release_s: Array
) -> tuple[tuple[tuple[int, int, float], ...], float]:
    """Start times of jobs that run in these lines, one a node, and their total completion time."""
    starts, total_s = [], 0.0
    for node, line in enumerate(lines):
        free_s = -np.inf
        for job in line:
            start_s = max(free_s, float(release_s[job]))
            free_s = start_s + float(time_s[job, node])
            starts.append((job, node, start_s))
            total_s += free_s - float(release_s[job])
    return tuple(sorted(starts, key=lambda start: (start[2], start[0]))), total_s


def _assigned(time_s: Array) -> list[list[int]]:
    """The k-th job from the end of a node's line delays k jobs, itself included."""
    jobs, nodes = time_s.shape
    known = np.where(np.isfinite(time_s), time_s, 0.0)
    never = known.sum() * jobs + 1.0  # dearer than any plan
    cost = time_s[:, :, None] * np.arange(1, jobs + 1)
    cost = np.where(np.isfinite(cost), cost, never).reshape(jobs, nodes * jobs)
    rows, places = linear_sum_assignment(cost)
    lines: list[list[int]] = [[] for _ in range(nodes)]
    for job, place in sorted(zip(rows.tolist(), places.tolist()), key=lambda pair: -pair[1]):
        lines[place // jobs].append(job)
    return lines


def _by_places(
    time_s: Array, release_s: Array, node_kind: Array, time_limit_s: float
) -> tuple[list[list[int]], float]:
    """Jobs take places of the nodes' lines; a line fills from its end, so that no big constant is
    needed: the empty places come first and end at 0.

    Variables: x[job, node, place] in {0, 1}, then end[node, place] >= 0. The sum of ends is least.
    """
    jobs, nodes = time_s.shape
    first_s = float(release_s.min())
    release_s = release_s - first_s
    x = np.arange(jobs * nodes * jobs).reshape(jobs, nodes, jobs)
    end = x.size + np.arange(nodes * jobs).reshape(nodes, jobs)
    known = np.where(np.isfinite(time_s), time_s, 0.0)
    rules = _rules(x, end, known, release_s, node_kind)
    upper = np.ones(x.size + end.size)
    upper[: x.size] = np.repeat(np.isfinite(time_s).ravel(), jobs)
    upper[x.size :] = np.inf
    cost = np.concatenate((np.zeros(x.size), np.ones(end.size)))
    solved = milp(
        cost,
        constraints=rules,
        integrality=1 - cost,
        bounds=Bounds(np.zeros(len(cost)), upper),
        options={"time_limit": time_limit_s, "mip_rel_gap": OPTIMAL_GAP / 10},
    )
    if solved.x is None:
        raise PolicyError(
            f"no plan for {jobs} jobs on {nodes} nodes within time_limit_s={time_limit_s:g}; "
            "give more time or fewer jobs"
        )
    taken = solved.x[x] > 0.5
    lines = [[int(j) for p in range(jobs) for j in np.flatnonzero(taken[:, n, p])]
             for n in range(nodes)]  # fmt: skip
    return lines, float(solved.mip_dual_bound) + jobs * first_s


def _rules(
    x: Array, end: Array, time_s: Array, release_s: Array, node_kind: Array
) -> list[LinearConstraint]:
    jobs, nodes, _ = x.shape
    size = x.size + end.size
    once = lil_array((jobs, size))
    for job in range(jobs):
        once[job, x[job].ravel()] = 1.0
    place = lil_array((4 * nodes * jobs, size))
    low, high = np.full(place.shape[0], -np.inf), np.zeros(place.shape[0])
    row = 0
    for n in range(nodes):
        for p in range(jobs):
            mine = x[:, n, p]
            place[row, mine] = 1.0  # at most as many as in the place behind, and one in the last
            if p + 1 < jobs:
                place[row, x[:, n, p + 1]] = -1.0
            else:
                high[row] = 1.0
            place[row + 1, mine] = time_s[:, n] + release_s  # not before its release
            place[row + 1, end[n, p]] = -1.0
            place[row + 2, mine] = time_s[:, n]  # nor before the place ahead is done
            place[row + 2, end[n, p]] = -1.0
            if p:
                place[row + 2, end[n, p - 1]] = 1.0
            row += 3
    for n in range(1, nodes):  # of two nodes alike the first has as many jobs: no mirror images
        if node_kind[n] == node_kind[n - 1]:
            place[row, x[:, n].ravel()] = 1.0
            place[row, x[:, n - 1].ravel()] = -1.0
            row += 1
    return [
        LinearConstraint(csr_array(once), 1.0, 1.0),
        LinearConstraint(csr_array(place[:row]), low[:row], high[:row]),
    ]


def preemptive_bound_s(
    workload: Workload, cluster: Cluster, profile: Profile, startup_s: float = 0.0,
    intervals: int = 64,
) -> float:  # fmt: skip
    """A total completion time that no schedule beats, though it stop and move jobs at will.

    A linear programme over intervals of time: y[job, node kind, interval] seconds of run. A job
    works in one place at a time, from its release and start-up on; if M is the mean time of its
    progress and it never goes faster than in its least run time, then end >= M + least / 2.
    Progress within an interval is counted at the interval's beginning, which is what makes it a
    bound; the last interval has no end. More intervals bring it nearer.
    """
    time_s = run_times_s(workload, cluster, profile)
    node_kind = cluster.nodes["kind"]
    kinds, count = np.unique(node_kind, return_counts=True)
    time_s = np.stack([time_s[:, node_kind == g].min(axis=1) for g in kinds], axis=1)
    ready_s = workload.jobs["submit_s"] + startup_s
    least_s = time_s.min(axis=1)
    last_s = float(ready_s.max() + least_s.sum() / len(cluster) + least_s.max())
    edge_s = np.unique(np.append(np.linspace(float(ready_s.min()), last_s, intervals), ready_s))
    for_all_s = float(time_s.sum(where=np.isfinite(time_s)))  # enough for everything on one node
    length_s = np.append(np.diff(edge_s), for_all_s)
    can = np.isfinite(time_s)[:, :, None] & (edge_s >= ready_s[:, None, None])
    return _least_total_s(time_s, count, ready_s, edge_s, length_s, can) - float(
        workload.jobs["submit_s"].sum()
    )


def _least_total_s(
    time_s: Array, count: Array, ready_s: Array, edge_s: Array, length_s: Array, can: Array
) -> float:
    """Solve `preemptive_bound_s`: the least sum of ends. `can` is (J, node kinds, intervals)."""
    job, kind, step = np.nonzero(can)
    least_s = time_s.min(axis=1)
    progress = 1.0 / time_s[job, kind]  # of the whole job, a second
    runs, jobs, steps = len(job), len(time_s), len(edge_s)

    def table(value: Array, rows: Array, height: int) -> coo_array:
        return coo_array((value, (rows, np.arange(runs))), shape=(height, runs + jobs))

    ends = np.arange(jobs)
    own = coo_array((-np.ones(jobs), (ends, runs + ends)), shape=(jobs, runs + jobs))
    nodes_busy = table(np.ones(runs), kind * steps + step, len(count) * steps)
    job_busy = table(np.ones(runs), job * steps + step, jobs * steps)
    mean = table(progress * edge_s[step], job, jobs) + own
    room_s = np.outer(count, length_s).ravel()
    solved = linprog(
        np.append(np.zeros(runs), np.ones(jobs)),
        A_ub=vstack((nodes_busy, job_busy, mean)),
        b_ub=np.concatenate((room_s, np.tile(length_s, jobs), -least_s / 2)),
        A_eq=table(progress, job, jobs),
        b_eq=np.ones(jobs),
        bounds=[(0, None)] * runs + [(low, None) for low in ready_s + least_s],
        method="highs",
    )
    return float(solved.fun)
