"""The fluid router: the programme's split against the scene's own bound, and what the rest adds."""

import numpy as np
import pytest

from trimtab.build import cluster, workload
from trimtab.core import Profile, Shape, Start, Stop
from trimtab.policies import named
from trimtab.policies.baselines.fluid import FluidPolicy, Router, moved, split
from trimtab.run import run
from trimtab.sim.backend import SimBackend
from trimtab.sim.world import Models
from trimtab.testing import check_policy
from trimtab.traces.scenes.adlro import fluid_s
from trimtab.traces.scenes.presets import preset
from trimtab.traces.scenes.synthetic import generate

BARE = {"preempt": False, "steal": False, "fill": 0.0}


def scene(rate, nodes, submit_s, work_s, kind=0, checkpoint_s=0.0, **models):
    """One-core jobs of given kinds on so many one-core nodes of each kind. `rate` (K, G)."""
    rate = np.array(rate, float)
    machine = cluster(
        np.ones(sum(nodes)),
        kind=np.repeat(np.arange(len(nodes)), nodes),
        kinds=[f"make-{g}" for g in range(len(nodes))],
    )
    jobs = workload(
        submit_s, work_s, np.ones(len(work_s)), kind=kind, checkpoint_s=checkpoint_s,
        kinds=[f"sort-{k}" for k in range(len(rate))],
    )  # fmt: skip
    kinds = len(rate)
    profile = Profile(
        rate[:, :, None], np.zeros((kinds, kinds)), np.ones(rate.shape), np.ones((kinds, 1)),
        (Shape(),),
    )  # fmt: skip
    return SimBackend(jobs, machine, profile, Models(**models), keep_log=True)


def ends(backend, policy):
    run(backend, policy)
    return backend.world.state[0]["end_s"].tolist()


@pytest.mark.parametrize("options", [{}, {"preempt": False}, BARE])
def test_it_keeps_the_protocol(options):
    check_policy(FluidPolicy(**options))


def test_it_is_found_by_name():
    assert isinstance(named("fluid"), FluidPolicy)


@pytest.mark.parametrize("seed", range(5))
def test_the_least_utilisation_is_the_fluid_bound_of_the_scene(seed):
    rng = np.random.default_rng(seed)
    work_s, gpus = rng.uniform(1, 100, 3), np.array([8.0, 4.0, 4.0])
    rate = rng.uniform(0.1, 1.2, (3, 3))
    shares, z = split(work_s[:, None] / (rate * gpus), fill=0.0)
    assert z == pytest.approx(fluid_s(work_s, gpus, rate))
    assert shares.sum(axis=1) == pytest.approx(np.ones(3))
    assert (shares * work_s[:, None] / (rate * gpus)).sum(axis=0).max() == pytest.approx(z)


def test_an_idle_cluster_fills_its_fastest_nodes_first():
    # alone the fast make is 20 % busy, the slow one 40 %: an even split is 2/3 to 1/3
    load = np.array([[0.2, 0.4]])
    assert split(load, fill=0.0)[0] == pytest.approx(np.array([[2 / 3, 1 / 3]]))
    assert split(load, fill=0.6)[0] == pytest.approx(np.array([[1.0, 0.0]]))


def test_jobs_go_only_where_they_can_run():
    shares, z = split(np.array([[0.5, np.inf], [0.3, 0.2]]), fill=0.0)
    assert shares == pytest.approx(np.array([[1, 0], [0, 1]]))
    assert z == pytest.approx(0.5)


def test_routed_work_follows_the_split():
    # one job kind, makes of 2 and 1 equal nodes: two thirds of the work to the first
    backend = scene([[1, 1]], [2, 1], np.arange(90.0), np.full(90, 2.9))
    router = Router(fill=0.0, half=1e9)
    while backend.wait() is not None:
        snapshot = backend.snapshot()
        for job in snapshot.queue.tolist():
            router.routed(snapshot, job)
        if len(snapshot.queue) and snapshot.free.max() > 0:
            backend.apply(Start(int(snapshot.queue[0]), (int(snapshot.free[:, 0].argmax()),)))
    assert np.bincount(list(router.route.values())).tolist() == pytest.approx([60, 30], abs=3)


def test_the_split_is_solved_anew_only_when_the_mix_moves():
    load = np.array([[0.5, np.inf], [0.2, 0.4]])
    assert not moved(load * 1.05, load)
    assert moved(load * 1.2, load)
    assert moved(np.where(np.isinf(load), 0.1, load), load)


def test_stealing_is_no_worse_than_the_bare_router_on_a_lopsided_pair():
    # both sorts run a little faster on the first make, but the first sort needs it more
    rate, work_s = [[1.0, 0.1], [1.0, 0.9]], [100.0, 90.0, 90.0, 90.0]
    kinds = [0, 1, 1, 1]
    bare = ends(scene(rate, [1, 1], [0, 0, 0, 0], work_s, kinds), FluidPolicy(**BARE))
    full = ends(scene(rate, [1, 1], [0, 0, 0, 0], work_s, kinds), FluidPolicy(preempt=False))
    assert np.mean(full) <= np.mean(bare)


def test_an_idle_node_takes_a_job_that_would_end_later_at_home():
    # the second job is routed to the fast make too; there it would end at 200, here at 100 / 0.8
    backend = scene([[1.0, 0.8]], [1, 1], [0, 1], [100, 100])
    assert ends(backend, FluidPolicy(preempt=False)) == pytest.approx([100, 126])


def test_an_idle_node_leaves_a_job_that_ends_sooner_at_home():
    # 100 / 0.1 would take 1000: it waits for its turn at 100
    backend = scene([[1.0, 0.1]], [1, 1], [0, 1], [100, 100])
    assert ends(backend, FluidPolicy(preempt=False)) == pytest.approx([100, 200])


def test_a_shorter_job_stops_a_longer_one_that_keeps_its_progress():
    backend = scene([[1.0]], [1], [0, 10], [100, 20])
    assert ends(backend, FluidPolicy()) == pytest.approx([120, 30])


def test_a_job_that_would_lose_its_progress_is_not_stopped():
    backend = scene([[1.0]], [1], [0, 10], [100, 20], checkpoint_s=np.inf)
    assert ends(backend, FluidPolicy()) == pytest.approx([100, 120])


@pytest.mark.parametrize(("work_s", "first_ends_s"), [(14, 204), (16, 130)])
def test_a_job_is_stopped_only_for_one_of_less_than_half_its_time(work_s, first_ends_s):
    # at 40 the first has 90 left: more than 2 x (14 + 30), less than 2 x (16 + 30); it starts up
    # again when the other has ended at 84: 84 + 30 + 90
    backend = scene([[1.0]], [1], [0, 40], [100, work_s], startup_s=30.0)
    assert ends(backend, FluidPolicy())[0] == pytest.approx(first_ends_s)


def test_a_job_moves_up_when_a_faster_node_falls_idle():
    # the second job would end at 150 behind the first, so it runs at 0.8 from 0 on; at 50 it has
    # 60 to go, 75 seconds here and 60 on the node that falls idle
    backend = scene([[1.0, 0.8]], [1, 1], [0, 0], [50, 100])
    assert ends(backend, FluidPolicy()) == pytest.approx([50, 50 + 60])
    backend = scene([[1.0, 0.8]], [1, 1], [0, 0], [50, 100], startup_s=30.0)
    assert ends(backend, FluidPolicy()) == pytest.approx([80, 30 + 125])  # 15 saved cost 30


def test_with_live_migration_a_job_moves_up_and_loses_nothing():
    # as before with a start-up of 30: at 80 there are 40 done and 60 to go, 75 seconds here, and
    # 5 + 60 on the node that falls idle; stopped, it would lose the 40
    slow = scene([[1.0, 0.8]], [1, 1], [0, 0], [50, 100], checkpoint_s=np.inf, startup_s=30.0)
    assert ends(slow, FluidPolicy()) == pytest.approx([80, 155])
    models = {"startup_s": 30.0, "move_s": 5.0, "live_migration": True}
    live = scene([[1.0, 0.8]], [1, 1], [0, 0], [50, 100], checkpoint_s=np.inf, **models)
    assert ends(live, FluidPolicy()) == pytest.approx([80, 145])


def test_every_stop_is_answered_by_a_start():
    machine, profile = preset("adlro")
    jobs = generate("adlro", seed=0, jobs=200, load=0.9)
    backend = SimBackend(jobs, machine, profile, Models(startup_s=30.0))
    policy = FluidPolicy()
    stopped = 0
    while backend.wait() is not None:
        made = policy.decide(backend.snapshot())
        freed = sum(isinstance(decision, Stop) for decision in made)
        assert sum(isinstance(decision, Start) for decision in made) >= freed
        stopped += freed
        for decision in made:
            assert not backend.apply(decision).reason
    assert stopped > 0


def test_it_starts_afresh_on_another_run():
    policy = FluidPolicy()
    first = ends(scene([[1.0, 0.5]], [1, 1], [0, 1, 2], [10, 20, 30]), policy)
    assert ends(scene([[1.0, 0.5]], [1, 1], [0, 1, 2], [10, 20, 30]), policy) == first


def test_at_high_load_it_beats_shortest_remaining_on_the_fastest_free():
    machine, profile = preset("adlro")
    jobs = generate("adlro", seed=0, jobs=300, load=0.95)
    means = []
    for name in ("fluid", "srtf+fastest"):
        backend = SimBackend(jobs, machine, profile)
        run(backend, named(name))
        means.append((backend.world.state[0]["end_s"] - jobs.jobs["submit_s"]).mean())
    assert means[0] < means[1]
