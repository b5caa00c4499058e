"""Gavel's rounds: the programme by hand, and what a round changes."""

import numpy as np
import pytest

from trimtab.build import cluster, workload
from trimtab.core import Move, Profile, Shape, Start, Stop, Wait
from trimtab.errors import PolicyError, UnknownName
from trimtab.policies import named
from trimtab.policies.baselines.fluid import standing
from trimtab.policies.baselines.gavel import (
    Active,
    GavelPolicy,
    allocate,
    migrated,
    promising,
    winners,
)
from trimtab.run import run
from trimtab.sim.backend import SimBackend
from trimtab.sim.world import Models
from trimtab.testing import check_policy
from trimtab.traces.scenes.presets import preset
from trimtab.traces.scenes.synthetic import generate


def some(left, rate, share=1.0, kind=-1, job_kind=0):
    """Jobs as the programme sees them; `rate` (M, G)."""
    rate = np.array(rate, float)
    jobs = len(rate)
    return Active(
        np.arange(jobs),
        np.broadcast_to(np.array(left, float), jobs),
        rate,
        np.broadcast_to(share, rate.shape),
        np.broadcast_to(kind, jobs),
        np.broadcast_to(job_kind, jobs),
    )


def one_kind(rates, nodes, submit_s, work_s, checkpoint_s=0.0, startup_s=0.0):
    """One-core jobs on so many one-core nodes of each kind."""
    rate = np.array(rates, float)[None, :, None]
    machine = cluster(
        np.ones(sum(nodes)),
        kind=np.repeat(np.arange(len(nodes)), nodes),
        kinds=[f"make-{g}" for g in range(len(nodes))],
    )
    jobs = workload(submit_s, work_s, np.ones(len(work_s)), checkpoint_s=checkpoint_s)
    profile = Profile(rate, np.zeros((1, 1)), np.ones(rate.shape[:2]), np.ones((1, 1)), (Shape(),))
    return SimBackend(jobs, machine, profile, Models(startup_s=startup_s))


def ends(backend, policy):
    run(backend, policy)
    return backend.world.state[0]["end_s"].tolist()


@pytest.mark.parametrize("objective", ["shortest", "fair"])
def test_it_keeps_the_protocol(objective):
    check_policy(GavelPolicy(objective=objective))


def test_it_is_found_by_name():
    assert isinstance(named("gavel"), GavelPolicy)


def test_an_unknown_objective_is_named():
    with pytest.raises(UnknownName, match="'fastest' is unknown; known: shortest, fair"):
        GavelPolicy(objective="fastest")


def test_a_round_of_no_length_is_refused():
    with pytest.raises(PolicyError, match="round_s=0; give a finite number above 0"):
        GavelPolicy(round_s=0.0)


def test_the_fast_node_goes_to_whom_it_speeds_up_most():
    # two jobs of equal work: the first gains tenfold on make 0, the second nothing
    shares = allocate("shortest", some(100, [[1, 0.1], [1, 0.9]]), np.ones(2), 0.0)
    assert shares == pytest.approx(np.array([[1, 0], [0, 1]]))


def test_the_shortest_come_first():
    shares = allocate("shortest", some([30, 10, 20], [[1]] * 3), np.array([2.0]), 0.0)
    assert shares[:, 0] == pytest.approx([0, 1, 1])


def test_a_start_up_keeps_a_job_where_it_runs():
    # the first runs on the slower make: 100 / 0.8 = 125 there, 100 + 30 on the other
    active = some(100, [[1, 0.8]], kind=1)
    assert allocate("shortest", active, np.ones(2), 30.0) == pytest.approx(np.array([[0, 1]]))
    assert allocate("shortest", active, np.ones(2), 0.0) == pytest.approx(np.array([[1, 0]]))


def test_fair_shares_give_equal_jobs_equal_time():
    shares = allocate("fair", some([1, 1000], [[1.0], [1.0]]), np.array([1.0]), 0.0)
    assert shares[:, 0] == pytest.approx([0.5, 0.5])


def test_fair_shares_give_each_job_the_make_it_does_best_on():
    # each gets 4 / 2.5 of its even share; swapped, 1 / 2.5
    shares = allocate("fair", some(1, [[4, 1], [1, 4]]), np.ones(2), 0.0)
    assert shares == pytest.approx(np.eye(2))


def test_no_node_kind_is_given_away_twice():
    rng = np.random.default_rng(0)
    active = some(rng.uniform(1, 99, 40), rng.uniform(0, 1, (40, 3)), share=0.125)
    for objective in ("shortest", "fair"):
        shares = allocate(objective, active, np.array([1.0, 0.5, 0.0]), 0.0)
        assert (shares.sum(axis=1) <= 1 + 1e-9).all()
        assert ((active.share * shares).sum(axis=0) <= np.array([1, 0.5, 0]) + 1e-9).all()


def test_the_jobs_left_out_would_have_got_nothing():
    rng = np.random.default_rng(1)
    sort = rng.integers(0, 3, 120)
    rate = rng.uniform(0.2, 1, (3, 2))[sort]
    active = some(rng.uniform(1, 99, 120), rate, share=0.25, job_kind=sort)
    few = promising("shortest", active, np.ones(2))
    assert len(few.jobs) < 40
    all_shares = allocate("shortest", active, np.ones(2), 0.0)
    few_shares = allocate("shortest", few, np.ones(2), 0.0)
    worth = (all_shares * active.rate / active.left[:, None]).sum()
    assert (few_shares * few.rate / few.left[:, None]).sum() == pytest.approx(worth)


def test_a_round_goes_to_those_that_lag_most_while_there_is_room():
    lag = [(9.0, 2, 0), (5.0, 2, 1), (4.0, 0, 0), (3.0, 1, 1)]
    assert winners(some(1, np.ones((3, 2))), lag, np.ones(2)) == [(9.0, 2, 0), (3.0, 1, 1)]


def test_equal_jobs_take_turns_when_shares_are_fair():
    # two jobs of 300 on one node in rounds of 100: neither runs its 300 in one go
    backend = one_kind([1.0], [1], [0, 0], [300, 300])
    assert sorted(ends(backend, GavelPolicy(objective="fair", round_s=100.0))) == [500, 600]


def test_a_short_job_waits_for_the_next_round_and_then_stops_a_long_one():
    backend = one_kind([1.0], [1], [0, 10], [1000, 20])
    assert ends(backend, GavelPolicy(round_s=360.0)) == pytest.approx([1020, 380])


def test_a_job_that_would_lose_its_progress_is_not_stopped():
    backend = one_kind([1.0], [1], [0, 10], [1000, 20], checkpoint_s=np.inf)
    assert ends(backend, GavelPolicy(round_s=360.0)) == pytest.approx([1000, 1020])


def test_a_node_that_falls_idle_within_a_round_is_filled_at_once():
    backend = one_kind([1.0], [1], [0, 10], [50, 20])
    assert ends(backend, GavelPolicy(round_s=360.0)) == pytest.approx([50, 70])


def test_a_job_moves_to_a_faster_node_at_the_next_round():
    # at 0.5 until second 100: 50 of 100 done; then the fast node, idle since 20
    backend = one_kind([1.0, 0.5], [1, 1], [0, 0], [20, 100])
    assert max(ends(backend, GavelPolicy(round_s=100.0))) == pytest.approx(150)


def test_a_job_that_keeps_its_node_is_neither_stopped_nor_moved():
    backend = one_kind([1.0, 0.5], [2, 2], [0, 0, 0, 0], [900, 800, 700, 600])
    policy = GavelPolicy(round_s=100.0)
    backend.wait()
    for decision in policy.decide(backend.snapshot()):
        backend.apply(decision)
    backend.wait()
    assert backend.snapshot().now_s == 100
    made = policy.decide(backend.snapshot())
    assert [type(decision) for decision in made] == [Wait]


def test_stops_come_before_the_starts_that_need_their_room():
    machine, profile = preset("adlro")
    jobs = generate("adlro", seed=0, jobs=150, load=0.95)
    backend = SimBackend(jobs, machine, profile, Models(startup_s=30.0))
    policy, stopped = GavelPolicy(), 0
    while backend.wait() is not None:
        made = policy.decide(backend.snapshot())
        sorts = [type(decision) for decision in made]
        assert sorts == sorted(sorts, key=[Stop, Start, Wait].index)
        stopped += sorts.count(Stop)
        for decision in made:
            assert not backend.apply(decision).reason
    assert stopped > 0


def test_with_live_migration_who_changes_its_node_kind_moves():
    machine, profile = preset("adlro")
    jobs = generate("adlro", seed=0, jobs=150, load=0.95)
    backend = SimBackend(jobs, machine, profile, Models(startup_s=30.0, live_migration=True))
    policy, moved = GavelPolicy(), 0
    while backend.wait() is not None:
        made = policy.decide(backend.snapshot())
        again = {d.job for d in made if isinstance(d, Start)}
        moved += sum(isinstance(decision, Move) for decision in made)
        assert not again & {decision.job for decision in made if isinstance(decision, Move)}
        for decision in made:
            assert not backend.apply(decision).reason
    assert moved > 0


def test_jobs_that_wait_for_each_others_places_stop_and_start():
    # 0 and 1 change places, which no move can; 2 goes where 3, which is stopped for good, stood
    backend = one_kind([1.0], [4], [0] * 4, [100] * 4)
    backend.wait()
    for job in range(4):
        backend.apply(Start(job, (job,)))
    snapshot = backend.snapshot()
    of = {stand.job: stand for stand in standing(snapshot)}
    stops: list = [Stop(job) for job in range(4)]
    made = migrated(snapshot, of, [*stops, Start(0, (1,)), Start(1, (0,)), Start(2, (3,))])
    assert made == [Stop(3), Move(2, (3,)), Stop(0), Stop(1), Start(0, (1,)), Start(1, (0,))]
    assert not any(backend.apply(decision).reason for decision in made)


def test_shortest_beats_fair_in_mean_completion_on_the_adlro_scene():
    machine, profile = preset("adlro")
    jobs = generate("adlro", seed=0, jobs=200, load=0.95)
    means = []
    for objective in ("shortest", "fair"):
        backend = SimBackend(jobs, machine, profile)
        run(backend, GavelPolicy(objective=objective))
        means.append((backend.world.state[0]["end_s"] - jobs.jobs["submit_s"]).mean())
    assert means[0] < means[1]
