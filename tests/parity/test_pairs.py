"""The learned policy decides the same in compiled rollouts and through the loop."""

import numpy as np
import pytest

from trimtab.build import cluster, uniform_profile, workload
from trimtab.core import Status
from trimtab.policies import named
from trimtab.policies.adlro.branches import Branches, whole
from trimtab.policies.adlro.net import GUIDE
from trimtab.run import run
from trimtab.sim.backend import SimBackend
from trimtab.sim.world import Models
from trimtab.traces.scenes.adlro import adlro_cluster, adlro_jobs, adlro_profile
from trimtab.traces.scenes.presets import preset
from trimtab.traces.scenes.synthetic import generate


def scene(seed, estimate="noisy", load=0.95, jobs=150):
    rng = np.random.default_rng(seed)
    return adlro_jobs(rng=rng, jobs=jobs, load=load, estimate=estimate)


@pytest.mark.parametrize("name", ["adlro", "adlro-rule"])
@pytest.mark.parametrize("estimate", ["oracle", "noisy", "unknown"])
@pytest.mark.parametrize("startup_s", [0.0, 30.0])
def test_a_whole_trace_in_compiled_code_is_the_loop_job_by_job(name, estimate, startup_s):
    work, machines, profile = scene(3, estimate), adlro_cluster(), adlro_profile()
    models = Models(startup_s=startup_s, move_s=startup_s)
    policy = named(name)
    done = whole(work, machines, profile, models, policy.net)
    backend = SimBackend(work, machines, profile, models)
    run(backend, policy)
    for column in ("start_s", "end_s", "stops", "kept_s", "attained_s"):
        np.testing.assert_array_equal(done.state[column], backend.world.state[0][column], column)
    assert done.totals["refused"] == 0 and done.totals["stopped"] > 0


def test_nodes_of_several_gpus_and_gangs_run_to_the_end():
    machines, profile = preset("mixed-gpu")
    work = generate("mixed-gpu", seed=2, jobs=200)
    done = whole(work, machines, profile, Models(), named("adlro").net)
    batch = work.truth["service"] == 0
    assert (done.state["status"][batch] == Status.FINISHED).all()
    backend = SimBackend(work, machines, profile)
    run(backend, named("adlro"))
    np.testing.assert_array_equal(done.state["end_s"], backend.world.state[0]["end_s"])


def test_a_branch_leaves_the_cluster_as_it_was():
    works, machines = [scene(seed) for seed in range(4)], [adlro_cluster()] * 4
    field = Branches(works, machines, adlro_profile(), Models(startup_s=30.0, move_s=30.0))
    other = Branches(works, machines, adlro_profile(), Models(startup_s=30.0, move_s=30.0))
    field.play(GUIDE, np.full(4, 100))
    other.play(GUIDE, np.full(4, 100))
    field.label(GUIDE, seed=1)
    np.testing.assert_array_equal(field.finish(GUIDE), other.finish(GUIDE))


def test_the_worth_of_a_start_is_what_it_saves_against_waiting():
    """Job 1 (50 s) runs. Job 0 (100 s) starts now and ends at 100, or waits for the next event,
    second 50, and ends at 150: 50 s saved, over the mean of the 50 and 100 s that they have left.
    """
    nodes = cluster([[1.0], [1.0]])
    work = workload([0.0, 0.0], [100.0, 50.0], [[1.0], [1.0]])
    field = Branches([work], [nodes], uniform_profile(1, 1), tries=4)
    field.play(GUIDE, np.array([1]))  # both arrive
    field.play(GUIDE, np.array([1]))  # the shorter one starts
    _, worth, count = field.label(GUIDE)
    assert count.tolist() == [1]
    assert worth[0, 0] == pytest.approx(50.0 / 75.0)
