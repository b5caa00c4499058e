"""A greedy pass looks only where something has changed: compiled or stepped, one outcome."""

import numpy as np
import pytest
from tests.worlds import Logged, lending_scene, random_cluster, random_jobs, random_profile

from trimtab.build import cluster, uniform_profile, workload
from trimtab.policies.rule import RulePolicy
from trimtab.run import run
from trimtab.sim.backend import events_of
from trimtab.sim.whole import simulate
from trimtab.sim.world import Models, outages


def alike(jobs, machine, rule, profile, models):
    """How many events both runs had."""
    stepped = Logged(jobs, machine, profile, models)
    run(stepped, RulePolicy(rule))
    whole = simulate(jobs, machine, rule, profile=profile, models=models, log=True)
    assert events_of(whole.log) == stepped.seen
    assert whole.totals == stepped.snapshot().totals
    assert stepped.total("refused") == 0
    return len(stepped.seen)


@pytest.mark.parametrize("place", ["first", "best", "worst", "random", "frag", "cosine"])
def test_many_jobs_wait_while_nodes_fail_and_jobs_are_cancelled(place):
    rng = np.random.default_rng(sum(place.encode()))
    machine, jobs = random_cluster(rng, nodes=12), random_jobs(rng, count=300, span_s=500.0)
    fails = outages(machine, 900.0, rng, mtbf_s=900.0, mttr_s=40.0)
    models = Models(startup_s=1.0, retries=2, outages=fails)
    rule = f"smallest-area+greedy+{place}"
    assert alike(jobs, machine, rule, random_profile(), models) > 800


@pytest.mark.parametrize(
    "rule",
    [
        "smallest-area+greedy+calm+p95@0.9",
        "smallest-area+greedy+swift+trend@1.1",
        "sjf+greedy+calm+oracle@1",
        "fcfs+greedy+first+now@1.3",
        "edf+greedy+best+peak@0.8",
    ],
)
def test_many_jobs_wait_for_what_services_lend(rule):
    jobs, machine, profile = lending_scene(np.random.default_rng(len(rule)), count=250)
    assert alike(jobs, machine, rule, profile, Models()) > 800


def test_a_job_withdrawn_as_its_parent_ends_is_not_tried():
    # at 10 the first job ends, its child comes and is withdrawn; a job of both cores waits on
    jobs = workload(
        [0.0, 0.0, 1.0, 1.0], [10.0, 50.0, 5.0, 5.0], [1.0, 1.0, 2.0, 1.0],
        after=[[], [], [], [0]], cancel_s=[np.inf, np.inf, np.inf, 10.0],
    )  # fmt: skip
    assert alike(jobs, cluster([2.0]), "fcfs+greedy+first", uniform_profile(1, 1), Models()) > 8
