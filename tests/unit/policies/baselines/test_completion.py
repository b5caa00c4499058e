"""Minimum completion time: where jobs go, by expectation, with the arithmetic shown."""

import numpy as np
import pytest

from trimtab.build import cluster, workload
from trimtab.core import Profile, Shape, Start
from trimtab.policies import named
from trimtab.policies.baselines.completion import CompletionPolicy, left_s, line_up, node_rates
from trimtab.run import run
from trimtab.sim.backend import SimBackend
from trimtab.sim.world import Models
from trimtab.testing import check_policy
from trimtab.traces.scenes.presets import preset
from trimtab.traces.scenes.synthetic import generate

FAST_SLOW = (1.0, 0.25)


def speeds(*rates):
    """One kind of job, a node kind a rate."""
    rate = np.array(rates, float)[None, :, None]
    ones = np.ones((1, len(rates)))
    return Profile(rate, np.zeros((1, 1)), ones, np.ones((1, 1)), (Shape(),))


def two_nodes(submit_s, work_s, request_s=None, startup_s=0.0):
    """Jobs of one core on two nodes of one core: the first at rate 1, the second at 1/4."""
    machine = cluster([1, 1], kind=[0, 1], kinds=("fast", "slow"))
    jobs = workload(submit_s, work_s, np.ones(len(work_s)), request_s=request_s or work_s)
    return SimBackend(jobs, machine, speeds(*FAST_SLOW), Models(startup_s=startup_s))


def ends(backend, policy):
    run(backend, policy)
    return backend.world.state[0]["end_s"].tolist()


def test_it_keeps_the_protocol():
    check_policy(CompletionPolicy())


def test_it_is_found_by_name():
    assert isinstance(named("mct"), CompletionPolicy)


def test_a_job_waits_for_a_fast_node_where_the_slow_one_would_end_it_later():
    # on the slow node 100 / 0.25 = 400; behind the first job 100 + 100 = 200
    assert ends(two_nodes([0, 0], [100, 100]), CompletionPolicy()) == [100, 200]


def test_the_slow_node_is_used_where_it_ends_the_job_sooner():
    # the fifth would end at 500 behind the others, on the slow node at 400
    backend = two_nodes([0] * 5, [100] * 5)
    assert sorted(ends(backend, CompletionPolicy())) == [100, 200, 300, 400, 400]


def test_startup_counts_in_every_turn():
    # fast: 30 + 10 = 40, then 80; slow: 30 + 40 = 70, so the second goes there
    assert ends(two_nodes([0, 0], [10, 10], startup_s=30.0), CompletionPolicy()) == [40, 70]


def test_a_job_that_waits_is_bound_anew_when_the_expectation_was_wrong():
    # the first says 1000 and takes 20: the second, which would end at 400 on the slow node, went
    # there; the third came at 10, lined up on the slow node behind it (810) rather than 1100, and
    # takes the fast node when that falls free at 20
    backend = two_nodes([0, 0, 10], [20, 100, 100], [1000, 100, 100])
    assert ends(backend, CompletionPolicy()) == [20, 400, 120]


def test_work_left_is_the_request_less_what_is_done_then_as_much_again():
    backend = two_nodes([0, 60, 200], [1000, 1, 1], [100, 1, 1])
    backend.wait()
    backend.apply(Start(0, (0,)))
    backend.wait()
    assert left_s(backend.snapshot(), np.array([0])) == [40]
    backend.apply(Start(1, (1,)))
    while backend.snapshot().now_s < 200:
        backend.wait()
    assert left_s(backend.snapshot(), np.array([0])) == [200]  # 200 done of 100 asked for


def test_rates_are_zero_where_a_job_cannot_run():
    machine = cluster([[4, 1], [8, 0]], resources=("cpu", "gpu"), kind=[0, 1], gpu_mem_gb=[16, 0])
    jobs = workload(
        [0, 0, 0], [1, 1, 1], [[1, 1], [8, 0], [1, 1]], resources=("cpu", "gpu"),
        gpus=[1, 0, 1], gpu_mem_gb=[8, 0, 16],
    )  # fmt: skip
    backend = SimBackend(jobs, machine, speeds(1.0, 0.5))
    backend.wait()
    rate = node_rates(backend.snapshot(), np.arange(3))
    assert rate.tolist() == [[1, 0], [0, 0.5], [1, 0]]


def test_a_gang_is_bound_to_all_its_nodes_at_once():
    # two cores on two nodes of one: the job before it holds the fast one until 50
    machine = cluster([1, 1])
    jobs = workload([0, 0], [50, 10], np.ones(2), instances=[1, 2], gang=1)
    backend = SimBackend(jobs, machine)
    backend.wait()
    snapshot = backend.snapshot()
    both = np.arange(2)
    line = line_up(snapshot, both, left_s(snapshot, both), node_rates(snapshot, both))
    assert line.begin_s.tolist() == [0, 50]
    assert line.finish_s.tolist() == [50, 60]
    assert sorted(line.nodes[1]) == [0, 1]


@pytest.mark.parametrize("load", [0.7, 0.9])
def test_it_beats_fastest_free_on_the_adlro_scene(load):
    machine, profile = preset("adlro")
    jobs = generate("adlro", seed=0, jobs=400, load=load)
    means = []
    for name in ("mct", "fcfs+fastest"):
        backend = SimBackend(jobs, machine, profile)
        run(backend, named(name))
        means.append((backend.world.state[0]["end_s"] - jobs.jobs["submit_s"]).mean())
    assert means[0] < 0.9 * means[1]
