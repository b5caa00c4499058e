"""Toy clusters with a known optimum: what is best by theory is, and plans come out exactly."""

import itertools
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from tests.worlds import Logged, played, ruled

from trimtab.build import cluster, uniform_profile, workload
from trimtab.core import Start
from trimtab.policies import named
from trimtab.run import run

WORK = ([7, 3, 9, 2, 5], [4, 4, 1, 8, 6], [10, 1, 2, 3, 20])
DUE = ([9, 20, 15, 4, 30], [8, 5, 30, 12, 14], [40, 3, 2, 9, 22])


class InTurn:
    """Starts the jobs in a given order on the given nodes, each as soon as its node is free."""

    def __init__(self, order, nodes):
        self.order, self.nodes = list(order), nodes

    def decide(self, snapshot):
        decisions, taken = [], set()
        for job in list(self.order):
            node = self.nodes[job]
            if node not in taken and snapshot.free[node, 0] >= snapshot.demand[job, 0]:
                decisions.append(Start(job, (node,)))
                self.order.remove(job)
            taken.add(node)  # in turn: who comes later waits behind
        return decisions


def run_in_turn(jobs, machine, order, nodes):
    done = ruled(jobs, machine, InTurn(order, nodes))
    return np.array(done.ends())


@pytest.mark.parametrize("work_s", WORK)
def test_shortest_first_minimises_the_mean_completion_on_one_machine(work_s):
    jobs = workload([0] * 5, work_s, [1] * 5)
    machine = cluster([1])
    found = {}
    for order in itertools.permutations(range(5)):
        ends = run_in_turn(jobs, machine, order, [0] * 5)
        assert ends[list(order)].tolist() == np.cumsum([work_s[job] for job in order]).tolist()
        found[order] = ends.mean()
    assert np.mean(ruled(jobs, machine, named("sjf")).ends()) == min(found.values())
    assert np.mean(ruled(jobs, machine, named("ljf")).ends()) == max(found.values())


@pytest.mark.parametrize("work_s, due_s", list(zip(WORK, DUE)))
def test_earliest_due_first_minimises_the_largest_lateness(work_s, due_s):
    jobs = workload([0] * 5, work_s, [1] * 5, deadline_s=due_s)
    machine = cluster([1])
    best = min(
        (run_in_turn(jobs, machine, order, [0] * 5) - due_s).max()
        for order in itertools.permutations(range(5))
    )
    assert (np.array(ruled(jobs, machine, named("edf")).ends()) - due_s).max() == best


def assignments(count, machines):
    return itertools.product(range(machines), repeat=count)


@pytest.mark.parametrize("work_s", [[3, 3, 2, 2, 2], [7, 3, 9, 2, 5], [5, 5, 4, 4, 3]])
@pytest.mark.parametrize("machines", [2, 3])
def test_longest_first_is_within_grahams_bound_of_the_best_makespan(work_s, machines):
    jobs = workload([0] * 5, work_s, [1] * 5)
    machine = cluster([1] * machines)
    best = min(
        run_in_turn(jobs, machine, range(5), nodes).max() for nodes in assignments(5, machines)
    )
    by_hand = min(
        max(sum(w for w, n in zip(work_s, nodes) if n == m) for m in range(machines))
        for nodes in assignments(5, machines)
    )
    assert best == by_hand
    longest_first = max(ruled(jobs, machine, named("ljf")).ends())
    assert best <= longest_first <= (4 / 3 - 1 / (3 * machines)) * best + 1e-9


def test_grahams_bound_is_met_by_his_own_example():
    # 3, 3, 2, 2, 2 on two machines: longest first 3 + 2 + 2 = 7, best 3 + 3 | 2 + 2 + 2 = 6; 7/6 =
    # 4/3 - 1/6
    jobs = workload([0] * 5, [3, 3, 2, 2, 2], [1] * 5)
    assert max(ruled(jobs, cluster([1, 1]), named("ljf")).ends()) == 7
    plan = [
        (0, Start(0, (0,))),
        (0, Start(2, (1,))),
        (2, Start(3, (1,))),
        (3, Start(1, (0,))),
        (4, Start(4, (1,))),
    ]
    assert max(played(jobs, cluster([1, 1]), plan).ends()) == 6


def best_with_preemption(submit_s, work_s):
    """Least sum of completion times on one machine, over all schedules in whole seconds."""

    @cache
    def least(now, left):
        if not any(left):
            return 0
        ready = [job for job, part in enumerate(left) if part and submit_s[job] <= now]
        if not ready:
            return least(now + 1, left)
        options = []
        for job in ready:
            rest = tuple(part - (other == job) for other, part in enumerate(left))
            ended = now + 1 if rest[job] == 0 else 0
            options.append(ended + least(now + 1, rest))
        return min(options)

    return least(0, tuple(work_s))


@pytest.mark.parametrize(
    "submit_s, work_s",
    [
        ([0, 1, 2, 3], [8, 4, 2, 1]),
        ([0, 2, 4, 5], [7, 4, 1, 4]),
        ([0, 0, 1, 6], [3, 6, 2, 1]),
        ([0, 3, 3], [4, 1, 5]),
    ],
)
def test_shortest_remaining_first_is_best_when_jobs_may_be_stopped(submit_s, work_s):
    jobs = workload(submit_s, work_s, [1] * len(work_s), checkpoint_s=0)
    done = ruled(jobs, cluster([1]), named("srtf"))
    assert sum(done.ends()) == best_with_preemption(tuple(submit_s), tuple(work_s))
    assert done.total("lost_s") == 0


def test_the_best_placement_on_unlike_machines_comes_out_as_computed():
    # kind 0 runs on the second node three times as fast, kind 1 twice as slowly
    machine = cluster([1, 1], kind=[0, 1])
    rate = np.array([[[1.0], [3.0]], [[1.0], [0.5]]])
    work_s, kind = [6, 9, 4, 5], [0, 0, 1, 1]
    jobs = workload([0] * 4, work_s, [1] * 4, kind=kind, kinds=("a", "b"))
    profile = replace(uniform_profile(2, 2), rate=rate)
    results = {}
    for nodes in assignments(4, 2):
        done = Logged(jobs, machine, profile)
        run(done, InTurn(range(4), nodes))
        expected = max(
            sum(work_s[j] / rate[kind[j], n, 0] for j in range(4) if nodes[j] == n)
            for n in range(2)
        )
        assert max(done.ends()) == pytest.approx(expected)
        results[nodes] = max(done.ends())
    # best: both of kind 0 on the fast node (2 + 3), both of kind 1 on the other (4 + 5)
    assert min(results, key=results.get) == (1, 1, 0, 0) and results[1, 1, 0, 0] == 9.0
    assert max(ruled(jobs, machine, named("fcfs+easy+affinity"), profile=profile).ends()) == 9.0


def test_packing_two_resources_takes_the_pairs_that_complement_each_other():
    # nodes (4, 4); jobs (3, 1), (3, 1), (1, 3), (1, 3): mixed pairs fit, equal ones do not
    resources = ("cpu", "mem_gb")
    machine = cluster([[4, 4], [4, 4]], resources=resources)
    jobs = workload([0] * 4, [10] * 4, [[3, 1], [3, 1], [1, 3], [1, 3]], resources=resources)
    fitting = 0
    for nodes in assignments(4, 2):
        backend = Logged(jobs, machine)
        backend.wait()
        answers = [backend.apply(Start(job, (node,))) for job, node in enumerate(nodes)]
        placed = sum(answer.reason == "" for answer in answers)
        load = [
            np.sum([jobs.demand[j] for j in range(4) if nodes[j] == n], axis=0) for n in range(2)
        ]
        assert (placed == 4) == all((np.asarray(part) <= 4).all() for part in load)
        fitting += placed == 4
    assert fitting == 4  # {0, 2} | {1, 3} and {0, 3} | {1, 2}, either way round
    assert max(ruled(jobs, machine, named("fcfs")).ends()) == 10
