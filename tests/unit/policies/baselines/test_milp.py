"""The optimum of small cases, against every schedule there is."""

from itertools import permutations, product

import numpy as np
import pytest

from trimtab.build import cluster, uniform_profile, workload
from trimtab.errors import PolicyError
from trimtab.policies import named
from trimtab.policies.baselines.milp import (
    PlanPolicy,
    optimum,
    preemptive_bound_s,
    run_times_s,
    timed,
)
from trimtab.run import run
from trimtab.sim.backend import SimBackend
from trimtab.sim.world import Models
from trimtab.traces.scenes.presets import preset
from trimtab.traces.scenes.synthetic import generate

EVEN = uniform_profile(1, 1)


def least_of_all(time_s, release_s):
    """The least total completion time of every assignment and every order."""
    jobs, nodes = time_s.shape
    best = np.inf
    for where in product(range(nodes), repeat=jobs):
        if not np.isfinite(time_s[range(jobs), where]).all():
            continue
        total = 0.0
        for node in range(nodes):
            mine = [job for job in range(jobs) if where[job] == node]
            lines = [[list(order)] for order in permutations(mine)]
            column = time_s[:, node : node + 1]
            total += min(timed(line, column, release_s)[1] for line in lines)
        best = min(best, total)
    return best


def small(seed, jobs=5, load=1.5, together=False):
    machine, profile = preset("adlro", volta=1, turing=1, radeon=1)
    work = generate("adlro", seed=seed, jobs=jobs, load=load, cluster=machine, profile=profile)
    if together:
        work.jobs["submit_s"] = 7.0
    return work, machine, profile


def replayed(plan, work, machine, profile, startup_s=0.0):
    backend = SimBackend(work, machine, profile, Models(startup_s=startup_s))
    run(backend, PlanPolicy(plan))
    return float((backend.world.state[0]["end_s"] - work.jobs["submit_s"]).sum())


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("together", [True, False])
def test_no_schedule_is_better(seed, together):
    scene = small(seed, together=together)
    plan = optimum(*scene, startup_s=30.0)
    least = least_of_all(run_times_s(*scene, 30.0), scene[0].jobs["submit_s"])
    assert plan.optimal
    assert plan.total_completion_s == pytest.approx(least, rel=1e-6)
    assert plan.bound_s == pytest.approx(least, rel=1e-6)


@pytest.mark.parametrize("together", [True, False])
def test_the_engine_ends_the_plan_when_the_plan_says(together):
    scene = small(1, jobs=6, together=together)
    plan = optimum(*scene, startup_s=30.0)
    assert replayed(plan, *scene, startup_s=30.0) == pytest.approx(plan.total_completion_s)


def test_a_node_idles_where_a_short_job_is_about_to_come():
    # started at 0 the long job ends at 100 and the short, here since 1, at 101: 100 + 100; if the
    # node waits for second 1 the short ends at 2 and the long at 102: 1 + 102
    jobs = workload([0, 1], [100, 1], np.ones(2))
    machine = cluster([1])
    plan = optimum(jobs, machine, EVEN)
    assert plan.starts == ((1, 0, 1.0), (0, 0, 2.0))
    assert plan.total_completion_s == pytest.approx(103)


def test_jobs_that_come_together_are_planned_by_the_hundred():
    work, machine, profile = small(0, jobs=150, together=True)
    plan = optimum(work, machine, profile)
    assert plan.optimal and len(plan.starts) == 150
    assert replayed(plan, work, machine, profile) == pytest.approx(plan.total_completion_s)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("startup_s", [0.0, 30.0])
def test_the_preemptive_bound_is_below_every_schedule(seed, startup_s):
    scene = small(seed, jobs=6)
    bound_s = preemptive_bound_s(*scene, startup_s)
    assert 0 < bound_s <= optimum(*scene, startup_s).total_completion_s
    for name in ("srtf+fastest", "mct", "fluid", "gavel"):
        backend = SimBackend(*scene, Models(startup_s=startup_s))
        run(backend, named(name))
        total_s = (backend.world.state[0]["end_s"] - scene[0].jobs["submit_s"]).sum()
        assert bound_s <= total_s


def test_the_preemptive_bound_is_the_optimum_of_a_job_alone():
    scene = small(0, jobs=1)
    least = run_times_s(*scene, 30.0).min()
    assert preemptive_bound_s(*scene, 30.0) == pytest.approx(least)


def test_more_intervals_bring_the_bound_nearer():
    scene = small(2, jobs=8)
    coarse, fine = (preemptive_bound_s(*scene, intervals=n) for n in (5, 129))
    assert coarse < fine <= optimum(*scene).total_completion_s


def test_jobs_that_could_share_a_node_are_refused_by_name():
    with pytest.raises(PolicyError, match="job 0 may share node node-0"):
        optimum(workload([0, 0], [1, 1], np.ones(2)), cluster([2]), EVEN)


def test_gangs_are_refused():
    with pytest.raises(PolicyError, match="single, independent jobs"):
        optimum(workload([0], [1], [1], instances=2), cluster([1, 1]), EVEN)


def test_a_job_that_fits_nowhere_is_refused():
    with pytest.raises(PolicyError, match="job 0 fits on no node"):
        optimum(workload([0], [1], [2]), cluster([1]), EVEN)
