"""What services leave and batch jobs may book, by hand: readings, limits, slow-downs, evictions."""

from dataclasses import replace

import numpy as np
import pytest
from tests.worlds import Logged, lending_scene, one_kind, played, ruled

from trimtab.build import cluster, workload
from trimtab.core import Lending, Limit, Start, Status, What
from trimtab.errors import TraceError
from trimtab.policies.rule import RulePolicy
from trimtab.run import run
from trimtab.sim.lending import ahead_max, peaks, service_use
from trimtab.sim.world import Models
from trimtab.testing.look import copied

STEP_S = 10.0


def served(use, cores, submit_s, work_s, *, reserves=8.0, **columns):
    """One service on node 0 that uses these shares of `reserves`, step by step, and batch jobs."""
    count = len(cores)
    return workload(
        [0.0, *submit_s],
        [np.inf, *work_s],
        [reserves, *cores],
        service=[1] + [0] * count,
        pinned=[1] + [0] * count,
        pattern=[0] + [-1] * count,
        patterns=[use],
        pattern_step_s=STEP_S,
        **columns,
    )


def lending(limit=1.0, **settings):
    return replace(cluster([10.0]), lending=Lending(limit=limit, **settings))


def test_a_service_comes_back_and_evicts_the_youngest_which_starts_anew_after_its_back_off():
    # 10 cores; the service uses 2, from second 20 on 8, from 40 on 2 again.
    # A: 1 core from 0. B: 3 cores, fits from the first reading on: 10 - 2 - 1 >= 3.
    # At 20 the load is (8 + 4) / 10; four seconds later B goes: (8 + 1) / 10 <= .98. A stays.
    use = [0.25, 0.25, 1.0, 1.0, *[0.25] * 16]
    jobs = served(use, [1.0, 3.0], [0.0, 1.0], [100.0, 100.0], checkpoint_s=[np.inf] * 3)
    world = ruled(jobs, lending(back_off_s=30.0), RulePolicy("fcfs"))
    assert world.starts() == [0.0, 0.0, 10.0]
    assert world.facts(What.STOPPED) == [(24.0, 2)]
    assert world.ends()[1:] == [100.0, 24.0 + 30.0 + 100.0]
    assert world.total("evicted") == 1
    assert world.total("lost_s") == 14.0  # from 10 to 24: no checkpoint kept it
    assert world.total("harmed_s") == 8.0 * 4.0  # above .95 from 20 to 24
    assert world.total("own_harm_s") == 0.0
    assert world.total("service_s") == pytest.approx(2 * 20 + 8 * 20 + 2 * (154 - 40))


def test_what_services_do_to_themselves_is_told_apart():
    jobs = served([0.5, 1.2, 0.5, 0.5], [1.0], [0.0], [40.0], reserves=9.0)
    world = ruled(jobs, lending(grace_s=np.inf), RulePolicy("fcfs"))
    # from 10 to 20 the service alone uses 10.8 of 10 cores
    assert world.total("own_harm_s") == pytest.approx(108.0)
    assert world.total("harmed_s") == pytest.approx(108.0)


def test_load_slows_a_job_down_along_its_curve():
    # full speed up to a load of .5, half of it at 1: with 5 + 4 of 10 cores in use, .6
    jobs = served([0.625], [4.0], [0.0], [60.0])
    profile = one_kind(curve=[[0.5, 0.5]])
    world = ruled(jobs, lending(estimate="now"), RulePolicy("fcfs"), profile=profile)
    assert world.starts()[1] == STEP_S  # before the first reading 8 cores are taken for used
    assert world.ends()[1] == pytest.approx(STEP_S + 60.0 / 0.6)


def test_above_its_capacity_a_node_is_shared_out_among_batch_jobs():
    # 8 + 4 on 10 cores: the 4 get 2, at the floor of .5
    jobs = served([1.0], [4.0], [0.0], [10.0])
    machine = lending(limit=1.2, grace_s=np.inf)
    world = ruled(jobs, machine, RulePolicy("fcfs"), profile=one_kind(curve=[[0.5, 0.5]]))
    assert world.ends()[1] == pytest.approx(10.0 / (0.5 * 2 / 4))


@pytest.mark.parametrize(
    "settings, start_s",
    [
        ({}, 10.0),  # the first reading
        ({"late": 2}, 20.0),  # of step 0, two steps old
        ({"every": 3}, 30.0),
        ({"missing": 1.0}, None),  # never: unknown is neither idle nor full, it is what is reserved
        ({"estimate": "native"}, None),
    ],
)
def test_nothing_is_lent_before_a_reading_has_come(settings, start_s):
    jobs = served([0.25] * 8, [3.0], [0.0], [1000.0])
    world = Logged(jobs, lending(**settings))
    for _ in range(60):
        snapshot = world.snapshot()
        if len(snapshot.queue) and snapshot.free[0, 0] >= 3.0:
            world.apply(Start(1, (0,)))
        if world.wait() is None:
            break
    assert world.facts(What.STARTED)[1:] == ([] if start_s is None else [(start_s, 1)])


def test_readings_that_stop_coming_count_as_unknown_once_they_are_stale():
    # one reading, of step 1; two steps later it says nothing any more
    machine = lending(every=10_000, stale=2)
    world = Logged(served([0.25] * 8, [0.5], [0.0], [1000.0]), machine)
    world.world.node_state[0, 0]["read"] = 2.0
    world.world.node_state[0, 0]["reads"] = 1
    seen = []
    for _ in range(5):
        world.wait()
        seen.append((world.snapshot().now_s, float(world.snapshot().free[0, 0])))
    assert (STEP_S * 2, 8.0) in seen and (STEP_S * 3, 2.0) in seen


@pytest.mark.parametrize(
    "estimate, kept",
    [
        ("now", 4.0),
        ("p95", np.percentile([2, 6, 2, 4], 95)),
        ("peak", 6.0),
        ("native", 8.0),
        ("deviation", 4.0),  # a sixth of the readings: the last alone
        ("trend", 4.0 + 2.0),  # it rose by 2 since the one before, over one step of 10 s
    ],
)
def test_estimates_of_four_readings(estimate, kept):
    # at the steps 1 to 4 the service uses 2, 6, 2 and 4 cores
    jobs = served([0.5, 0.25, 0.75, 0.25, 0.5, 0.5], [9.5], [0.0], [10.0])
    world = Logged(jobs, lending(estimate=estimate, readings=6))
    while world.snapshot().now_s < 4 * STEP_S:
        world.wait()
    assert world.snapshot().free[0, 0] == pytest.approx(10.0 - kept, abs=1e-6)


def test_a_limit_is_of_a_region_and_shows_in_the_next_snapshot():
    machine = replace(cluster([10.0, 10.0], region=[0, 1], regions=("a", "b")), lending=Lending())
    jobs = workload([0.0], [10.0], [1.0])
    world = Logged(jobs, machine)
    world.wait()
    assert world.apply(Limit(0.5, region=1)).what == What.PLACED
    assert world.snapshot().limit.tolist() == [0.8, 0.5]
    assert world.snapshot().free[:, 0].tolist() == [8.0, 5.0]
    assert world.apply(Limit(0.25)).what == What.PLACED
    assert world.snapshot().free[:, 0].tolist() == [2.5, 2.5]


@pytest.mark.parametrize(
    "decision, reason",
    [
        (Limit(0.5, region=2), "there is no region 2"),
        (Limit(0.5, region=-2), "there is no region -2"),
        (Limit(-0.1), "is not a share of a node"),
        (Limit(float("nan")), "is not a share of a node"),
        (Limit(0.5, estimate="guess"), "there is no estimate 'guess'"),
    ],
)
def test_a_limit_that_means_nothing_is_refused_and_changes_nothing(decision, reason):
    world = Logged(served([0.25], [1.0], [0.0], [5.0]), lending())
    world.wait()
    before = copied(world.snapshot())
    answer = world.apply(decision)
    assert answer.what == What.REFUSED and reason in answer.reason
    assert (world.snapshot().free == before.free).all()
    assert (world.snapshot().limit == before.limit).all()


def test_a_cluster_that_lends_nothing_refuses_a_limit():
    answer = Logged(workload([0.0], [1.0], [1.0]), cluster([1.0])).apply(Limit(0.5))
    assert "lends nothing" in answer.reason


@pytest.mark.parametrize("field, value", [("limit", -0.1), ("readings", 0), ("missing", 2.0)])
def test_settings_that_mean_nothing_are_refused_by_name(field, value):
    with pytest.raises(TraceError, match=f"lending: {field}="):
        Logged(served([0.25], [1.0], [0.0], [5.0]), lending(**{field: value}))


def test_the_oracle_keeps_the_peak_of_a_jobs_own_time():
    # 2 cores now, 8 from 40 s on: a job of 10 s may have 8 cores now, one of 100 s two
    use = [0.25, 0.25, 0.25, 0.25, *[1.0] * 20]
    jobs = served(use, [5.0, 5.0], [0.0, 0.0], [100.0, 10.0])
    world = Logged(jobs, lending(estimate="oracle"))
    world = Logged(jobs, lending())
    world.wait()
    world.apply(Limit(1.0, estimate="oracle"))
    assert "cpu" in world.apply(Start(1, (0,))).reason
    assert world.apply(Start(2, (0,))).what == What.PLACED


def test_the_peak_ahead_goes_round():
    values = np.array([[1.0], [5.0], [2.0], [3.0]])
    assert ahead_max(values, 2)[:, 0].tolist() == [5.0, 5.0, 3.0, 3.0]
    assert ahead_max(values, 3)[:, 0].tolist() == [5.0, 5.0, 3.0, 5.0]


def test_peaks_are_of_what_pinned_services_use():
    jobs = served([0.25, 0.5, 1.0, 0.25], [1.0], [0.0], [5.0])
    assert service_use(jobs, lending())[:, 0].tolist() == [2.0, 4.0, 8.0, 2.0]
    # horizons of 10 and 30 s see this step and the next one or three
    assert peaks(jobs, lending())[:, :2].tolist() == [[4, 8], [8, 8], [8, 8], [2, 8]]


@pytest.mark.parametrize("rule", ["fcfs+easy", "smallest-area+calm", "fcfs+conservative+best"])
def test_lending_switched_off_changes_nothing_to_the_last_bit(rule):
    jobs, machine, profile = lending_scene(np.random.default_rng(3))
    jobs.demand[:12, 0] = 3.5  # services reserve less, so that all jobs find room beside them
    plain = replace(machine, lending=None)
    one, other = (
        ruled(jobs, of, RulePolicy(rule), profile=profile, lends=False) for of in (machine, plain)
    )
    assert one.seen == other.seen
    assert one.world.totals[0] == other.world.totals[0]
    assert one.total("service_s") == one.total("harmed_s") == one.total("evicted") == 0.0


@pytest.mark.parametrize("seed", range(4))
def test_cores_and_work_are_conserved(seed):
    """At every instant what is free, kept and booked is the node; in the end all work was done."""
    jobs, machine, profile = lending_scene(np.random.default_rng(seed))
    world = Logged(jobs, machine, profile)
    policy, evicted = RulePolicy("fcfs+now@1.0"), 0
    demand, use = jobs.demand[:, 0], service_use(jobs, machine)
    while True:
        for decision in policy.decide(world.snapshot()):
            world.apply(decision)
        snapshot = world.snapshot()
        booked = np.zeros(len(machine))
        for row in snapshot.running:
            job, piece = snapshot.runs["job"][row], snapshot.runs["piece"][row]
            while piece >= 0 and jobs.truth["service"][job] == 0:
                node = snapshot.pieces["node"][piece]
                booked[node] += demand[job] * snapshot.pieces["count"][piece]
                piece = snapshot.pieces["next"][piece]
        state = snapshot.node_state
        np.testing.assert_allclose(snapshot.free[:, 0], 16.0 - state["kept"] - booked, atol=1e-9)
        if snapshot.now_s > 0 and snapshot.totals["submitted"] > 12:
            step = int(snapshot.now_s / 5.0) % len(use)
            np.testing.assert_allclose(state["service"], use[step], atol=1e-9)
            np.testing.assert_allclose(state["used"] - state["service"], booked * 1.0, atol=1e-9)
        evicted = int(snapshot.totals["evicted"])
        if world.wait() is None:
            break
    batch = jobs.truth["service"] == 0
    done = np.array(world.statuses())[batch] == Status.FINISHED
    assert done.all() and evicted > 0
    whole = (jobs.truth["work_s"] * jobs.jobs["instances"])[batch].sum()
    assert world.total("work_s") == pytest.approx(whole)
    assert world.world.state[0]["evicted"].sum() == evicted


def test_interference_counts_instances_not_runs():
    # each of two instances of one run on a node is slowed by the other: 10 s become 15
    jobs = workload([0.0], [10.0], [1.0], instances=2)
    world = played(jobs, cluster([4.0]), [(0.0, Start(0, (0, 0)))], profile=one_kind(slow=[[0.5]]))
    assert world.ends() == [15.0]


def test_models_can_leave_out_that_load_slows_down():
    jobs = served([0.625], [4.0], [0.0], [60.0])
    profile, models = one_kind(curve=[[0.5, 0.5]]), Models(interference=False)
    world = Logged(jobs, lending(), profile, models)
    world.wait()
    while world.snapshot().now_s < STEP_S:
        world.wait()
    world.apply(Start(1, (0,)))
    while world.wait() is not None:
        pass
    assert world.ends()[1] == STEP_S + 60.0


@pytest.mark.parametrize(
    ("overstay", "start_s"),
    [
        (0.0, 60.0),  # its room is A's for good: B begins when A ends
        (1.0, 20.0),  # A leaves in 40 s, and services come back in 80
        (2.0, 60.0),  # A may be there for 90 s more
    ],
)
def test_room_counts_as_free_once_who_has_it_will_have_left(overstay, start_s):
    # 10 cores; the service uses 2, from second 100 on 8. A: 3 cores from 10 to 60. B: 2 from 20 on,
    # for 200 s: 8 + 3 + 2 are too many.
    jobs = served([0.25] * 10 + [1.0] * 30, [3.0, 2.0], [10.0, 20.0], [50.0, 200.0])
    world = Logged(jobs, lending(grace_s=np.inf))
    world.apply(Limit(1.0, estimate="oracle", overstay=overstay))
    run(world, RulePolicy("fcfs"))
    assert world.starts()[1:] == [10.0, start_s]


def test_a_limit_tapers_off_for_longer_horizons():
    # 8 of 10 cores are lent for 10 s, for 30 s an eighth of the node less
    jobs = served([0.25] * 40, [7.5, 7.5], [0.0, 0.0], [30.0, 10.0])
    world = Logged(jobs, lending())
    world.apply(Limit(1.0, estimate="oracle", taper=0.125))
    world.apply(Limit(1.0))  # NaN leaves it
    assert world.snapshot().ahead[0].tolist() == [0.0, 1.25, 2.5, 3.75, 5.0, 6.25]
    world.wait()
    assert world.apply(Start(1, (0,))).what == What.REFUSED
    assert world.apply(Start(2, (0,))).what == What.PLACED
