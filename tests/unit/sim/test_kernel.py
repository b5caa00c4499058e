"""What the engine does to one job at a time, model by model, with the arithmetic beside it."""

from dataclasses import replace

import numpy as np
import pytest
from tests.worlds import Logged, Script, at_once, one_kind, played

from trimtab.build import cluster, uniform_profile, workload
from trimtab.core import Move, Reject, Resize, Shape, Start, Status, Stop, Wait, What
from trimtab.run import run
from trimtab.sim.world import Models

INF = np.inf


def apply_now(backend, *decisions):
    """Answers to decisions taken at the next instant."""
    backend.wait()
    return [backend.apply(decision) for decision in decisions]


# start-up


@pytest.mark.parametrize("startup_s, end_s", [(0.0, 100.0), (30.0, 130.0)])
def test_a_run_ends_its_start_up_and_its_work_after_it_starts(startup_s, end_s):
    done = played(workload([0], [100], [1]), cluster([1]), at_once(1, 0), startup_s=startup_s)
    assert done.ends() == [end_s]  # 0 + startup + 100
    assert done.total("work_s") == 100 and done.total("lost_s") == 0


def test_a_restart_pays_the_start_up_again():
    # runs 0..50 (20 start-up, 30 work, all lost), starts again at 50: 50 + 20 + 100 = 170
    plan = [(0, Start(0, (0,))), (50, Stop(0)), (50, Start(0, (0,)))]
    done = played(workload([0], [100], [1]), cluster([1]), plan, startup_s=20.0)
    assert done.ends() == [170.0]
    assert (done.total("work_s"), done.total("lost_s")) == (100.0, 30.0)


def test_a_stop_during_start_up_loses_no_work():
    plan = [(0, Start(0, (0,))), (15, Stop(0)), (15, Start(0, (0,)))]
    done = played(workload([0], [100], [1]), cluster([1]), plan, startup_s=20.0)
    assert done.ends() == [135.0]  # 15 + 20 + 100
    assert done.total("lost_s") == 0


# moves and resizes


LIVE = {"live_migration": True}


@pytest.mark.parametrize("checkpoint_s", [0.0, 15.0, INF])
def test_a_move_is_a_stop_and_a_start_to_the_last_bit(checkpoint_s):
    job, machine = workload([0], [100], [1], checkpoint_s=checkpoint_s), cluster([1, 1])
    moved = [(0, Start(0, (0,))), (40, Move(0, (1,)))]
    again = [(0, Start(0, (0,))), (40, Stop(0)), (40, Start(0, (1,)))]
    one, other = (played(job, machine, plan, startup_s=7.0) for plan in (moved, again))
    assert (one.world.state[0] == other.world.state[0]).all()
    assert one.world.totals[0] == other.world.totals[0]
    assert (one.world.node_state[0] == other.world.node_state[0]).all()


@pytest.mark.parametrize(
    "checkpoint_s, lost_s, end_s",
    [(0.0, 0, 114), (15.0, 3, 117), (INF, 33, 147)],  # 40 + 7 + 100 less what is kept
)
def test_a_move_loses_what_no_checkpoint_kept_and_is_a_preemption(checkpoint_s, lost_s, end_s):
    # at 40 the start-up of 7 s and 33 s of work are done; checkpoints of 15 s keep 30 of them
    job = workload([0], [100], [1], checkpoint_s=checkpoint_s)
    plan = [(0, Start(0, (0,))), (40, Move(0, (1,)))]
    done = played(job, cluster([1, 1]), plan, startup_s=7.0)
    assert done.ends() == [end_s]
    assert (done.total("work_s"), done.total("lost_s")) == (100, lost_s)
    assert (done.total("stopped"), done.world.state[0]["stops"].tolist()) == (1, [1])


@pytest.mark.parametrize(
    "live, move_s, end_s",
    [
        (False, None, 160),  # as the start-up: 40 + 30, and 90 left of 100, since 40 - 30 are done
        (False, 50.0, 180),  # it takes longer to carry it over: 40 + 50 + 90
        (False, 5.0, 160),  # a start is no shorter than a start-up: 40 + 30 + 90
        (True, None, 160),
        (True, 5.0, 135),  # 40 + 5 + 90
    ],
)
def test_a_move_takes_a_start_up_unless_said(live, move_s, end_s):
    job = workload([0], [100], [1], checkpoint_s=0.0)
    plan = [(0, Start(0, (0,))), (40, Move(0, (1,)))]
    models = {"startup_s": 30.0, "move_s": move_s, "live_migration": live}
    assert played(job, cluster([1, 1]), plan, **models).ends() == [end_s]


def test_a_cluster_with_live_migration_lets_moves_lose_nothing():
    machine = replace(cluster([1, 1]), live_migration=True)
    plan = [(0, Start(0, (0,))), (40, Move(0, (1,)))]
    done = played(workload([0], [100], [1]), machine, plan)
    assert done.ends() == [100.0] and done.snapshot().live_migration


def test_a_resize_too_is_a_stop_and_a_start():
    # 10 s of 50 are lost; at half the rate 50 s take 100
    shapes = (Shape(), Shape("half", scale=0.5))
    plan = [(0, Start(0, (0,))), (10, Resize(0, 1))]
    job = workload([0], [50], [2], shapes=3)
    done = played(job, cluster([4]), plan, profile=one_kind(shapes))
    assert done.ends() == [110.0] and done.total("lost_s") == 10


@pytest.mark.parametrize("move_s, end_s", [(0.0, 100.0), (7.0, 107.0)])
def test_a_live_move_pauses_the_job_and_keeps_its_progress(move_s, end_s):
    plan = [(0, Start(0, (0,))), (40, Move(0, (1,)))]
    done = played(workload([0], [100], [1]), cluster([1, 1]), plan, move_s=move_s, **LIVE)
    assert done.ends() == [end_s]  # 40 done, pause, 60 left
    assert [event.nodes for event in done.seen if event.what == What.STARTED] == [(0,), (1,)]
    assert done.total("lost_s") == 0 and done.total("work_s") == 100


def test_a_move_to_a_faster_kind_runs_the_rest_at_its_rate():
    machine = cluster([1, 1], kind=[0, 1])
    speeds = replace(uniform_profile(1, 2), rate=np.array([[[1.0], [4.0]]]))
    plan = [(0, Start(0, (0,))), (40, Move(0, (1,)))]
    done = played(workload([0], [100], [1]), machine, plan, profile=speeds, move_s=5.0, **LIVE)
    assert done.ends() == [60.0]  # 40 + 5 + 60 / 4


def test_a_move_may_overlap_the_place_it_leaves():
    # two instances of 2 cores on nodes of 4: (0, 0) to (0, 1) keeps one where it is
    machine, job = cluster([4, 4]), workload([0], [100], [2], instances=2)
    done = played(job, machine, [(0, Start(0, (0, 0))), (10, Move(0, (0, 1)))])
    assert done.ends() == [110.0]  # all over again


def test_a_move_to_a_full_node_is_refused_and_changes_nothing():
    backend = Logged(workload([0, 0], [100, 100], [1, 1]), cluster([1, 1]))
    answers = apply_now(backend, Start(0, (0,)), Start(1, (1,)), Move(0, (1,)))
    assert answers[2].what == What.REFUSED and answers[2].reason == "cpu: wants 1, free 0"
    run(backend, Script([]))
    assert backend.ends() == [100.0, 100.0]


def test_a_start_and_a_move_at_one_instant_are_two_events():
    plan = [(0, Start(0, (0,))), (0, Move(0, (1,)))]
    done = played(workload([0], [100], [1]), cluster([1, 1]), plan)
    found = [(e.nodes, e.reason) for e in done.seen if e.what == What.STARTED]
    assert found == [((0,), ""), ((1,), "moved")]


def test_a_resize_changes_demand_and_rate():
    # 2 cores at rate 1 for 40 s; at double scale 4 cores and rate 1.6: 40 + 60 / 1.6 = 77.5
    shapes = (Shape("asked"), Shape("double", scale=2.0))
    speeds = one_kind(shapes, rate=[[[1.0, 1.6]]])
    job = workload([0], [100], [2], shapes=3, checkpoint_s=0.0)
    backend = Logged(job, cluster([4]), speeds)
    backend.wait()
    backend.apply(Start(0, (0,)))
    assert backend.snapshot().free[0, 0] == 2
    backend.apply(Wait(40.0))
    backend.wait()
    assert backend.apply(Resize(0, 1)).what == What.PLACED
    assert backend.snapshot().free[0, 0] == 0
    run(backend, Script([]))
    assert backend.ends() == [77.5]


@pytest.mark.parametrize("move_s, end_s", [(0.0, 90.0), (6.0, 96.0)])
def test_a_resize_to_half_costs_a_pause_and_half_the_rate(move_s, end_s):
    # by default the rate is the scale: 10 s at 1, then 40 / 0.5 = 80
    shapes = (Shape(), Shape("half", scale=0.5))
    plan = [(0, Start(0, (0,))), (10, Resize(0, 1))]
    job = workload([0], [50], [2], shapes=3)
    models = {"profile": one_kind(shapes), "move_s": move_s}
    assert played(job, cluster([4]), plan, **models, **LIVE).ends() == [end_s]


def test_a_job_may_start_in_another_shape_it_allows():
    shapes = (Shape(), Shape("wide", scale=3.0))
    job = workload([0, 0], [90, 90], [1, 1], shapes=[3, 1])
    backend = Logged(job, cluster([4]), one_kind(shapes))
    answers = apply_now(backend, Start(0, (0,), shape=1), Start(1, (0,), shape=1), Start(1, (0,)))
    assert [a.what for a in answers] == [What.PLACED, What.REFUSED, What.PLACED]
    assert answers[1].reason == "shape: 1 is not allowed"
    run(backend, Script([]))
    assert backend.ends() == [30.0, 90.0]  # 90 / 3 and 90 / 1


def test_amounts_of_an_odd_shape_come_back_to_the_last_bit():
    shapes = (Shape(), Shape("third", scale=1 / 3), Shape("odd", scale=1.1))
    jobs = workload([0, 0, 0], [10, 20, 30], [0.7, 1.3, 0.9], shapes=7)
    machine = cluster([5.3])
    plan = [
        (0, Start(0, (0,), 1)),
        (0, Start(1, (0,), 2)),
        (0, Start(2, (0,), 1)),
        (5, Resize(2, 2)),
    ]
    done = played(jobs, machine, plan, profile=one_kind(shapes))
    assert done.snapshot().free[0, 0] == machine.capacity[0, 0]


# preemption


@pytest.mark.parametrize(
    "checkpoint_s, kept_s, end_s",
    [
        (0.0, 130.0, 270.0),  # all 130 kept: 200 + 70
        (60.0, 120.0, 280.0),  # floor(130 / 60) x 60 = 120 kept: 200 + 80
        (INF, 0.0, 400.0),  # nothing kept: 200 + 200
    ],
)
def test_a_preempted_job_resumes_from_its_last_checkpoint(checkpoint_s, kept_s, end_s):
    job = workload([0], [200], [1], checkpoint_s=checkpoint_s)
    done = played(job, cluster([1]), [(0, Start(0, (0,))), (130, Stop(0)), (200, Start(0, (0,)))])
    assert done.ends() == [end_s]
    assert done.total("work_s") == 200  # kept, then the rest
    assert done.total("lost_s") == 130 - kept_s
    assert done.total("waiting_s") == 70  # 130..200
    assert done.facts(What.STOPPED) == [(130.0, 0)]


def test_a_second_preemption_keeps_the_later_checkpoint():
    # run 1: 0..70 keeps 60. Run 2: 100..190 does 60..150, keeps 120. Run 3: 200 + 80 = 280
    plan = [
        (0, Start(0, (0,))),
        (70, Stop(0)),
        (100, Start(0, (0,))),
        (190, Stop(0)),
        (200, Start(0, (0,))),
    ]
    done = played(workload([0], [200], [1], checkpoint_s=60), cluster([1]), plan)
    assert done.ends() == [280.0]
    assert (done.total("work_s"), done.total("lost_s")) == (200.0, 10.0 + 30.0)


def test_work_is_counted_by_the_instance():
    # a gang of 3 stopped at 50 of 100 without checkpoints, then run to its end
    job = workload([0], [100], [1], instances=3)
    plan = [(0, Start(0, (0, 0, 0))), (50, Stop(0)), (50, Start(0, (0, 0, 0)))]
    done = played(job, cluster([3]), plan)
    assert (done.total("work_s"), done.total("lost_s")) == (300.0, 150.0)


def test_progress_is_kept_in_work_seconds_not_in_wall_seconds():
    # at rate 2: 0..30 does 60 of 100; the rest takes 20 more
    plan = [(0, Start(0, (0,))), (30, Stop(0)), (40, Start(0, (0,)))]
    job = workload([0], [100], [1], checkpoint_s=0)
    done = played(job, cluster([1]), plan, profile=one_kind(rate=[[[2.0]]]))
    assert done.ends() == [60.0]


# neighbours


@pytest.mark.parametrize("on, ends", [(True, [60.0, 80.0, 100.0]), (False, [40.0, 60.0, 100.0])])
def test_neighbours_slow_a_job_for_as_long_as_they_are_there(on, ends):
    # slow 0.5 a neighbour. A (40) and B (60) share node 0 at 1 / 1.5: A does its 40 by 60. Then B
    # has done 40 and is alone: 60 + 20 = 80. C is alone on node 1
    jobs = workload([0, 0, 0], [40, 60, 100], [1, 1, 1])
    profile = one_kind(slow=[[0.5]])
    done = played(jobs, cluster([2, 1]), at_once(3, 0, 0, 1), profile=profile, interference=on)
    assert done.ends() == pytest.approx(ends, abs=1e-9)


def test_a_neighbour_that_comes_late_slows_what_is_left():
    # A alone 0..30 does 30; with B (slow 1: half speed) 30..50 does 10; B is stopped; 60 left from
    # 50
    jobs = workload([0, 30], [100, 500], [1, 1], checkpoint_s=0)
    plan = [(0, Start(0, (0,))), (30, Start(1, (0,))), (50, Stop(1)), (200, Reject(1))]
    done = played(jobs, cluster([2]), plan, profile=one_kind(slow=[[1.0]]))
    assert done.ends()[0] == 110.0  # 50 + 60
    assert done.total("work_s") == 100 + 10


def test_a_gang_is_as_slow_as_its_most_disturbed_node():
    # the gang sits on nodes 0 and 1; a neighbour on node 1 alone halves the whole gang
    jobs = workload([0, 0], [50, 500], [1, 1], instances=[2, 1], cancel_s=[INF, 300])
    plan = [(0, Start(0, (0, 1))), (0, Start(1, (1,)))]
    done = played(jobs, cluster([1, 2]), plan, profile=one_kind(slow=[[1.0]]))
    assert done.ends()[0] == 100.0


def test_moving_a_neighbour_away_gives_the_speed_back():
    # half speed until 20 (10 done), then alone: 20 + 90
    jobs = workload([0, 0], [100, 400], [1, 1])
    plan = [*at_once(2, 0, 0), (20, Move(1, (1,)))]
    done = played(jobs, cluster([2, 1]), plan, profile=one_kind(slow=[[1.0]]), **LIVE)
    assert done.ends() == [110.0, 410.0]


def test_only_named_kinds_disturb():
    jobs = workload([0, 0], [100, 100], [1, 1], kind=[0, 1], kinds=("quiet", "loud"))
    slow = replace(uniform_profile(2, 1), slow=np.array([[0.0, 1.0], [0.0, 0.0]]))
    done = played(jobs, cluster([2]), at_once(2, 0, 0), profile=slow)
    assert done.ends() == [150.0, 100.0]  # the quiet one: 50 by 100, then 50 alone


# links


LINKED = {"region": [0, 0, 1], "link": [[1.0, 0.5], [0.25, 1.0]]}


@pytest.mark.parametrize(
    "nodes, links, end_s",
    [
        ((0, 1), True, 100.0),
        ((1, 2), True, 400.0),  # the worse direction counts: 100 / 0.25
        ((1, 2), False, 100.0),
        ((0, 1, 2), True, 400.0),
    ],
)
def test_a_gang_across_regions_runs_at_the_worst_link(nodes, links, end_s):
    job = workload([0], [100], [1], instances=len(nodes))
    done = played(job, cluster([1, 1, 1], **LINKED), [(0, Start(0, nodes))], links=links)
    assert done.ends() == [end_s]


def test_an_array_across_regions_is_not_slowed():
    job = workload([0], [100], [1], instances=2, gang=0)
    assert played(job, cluster([1, 1, 1], **LINKED), [(0, Start(0, (1, 2)))]).ends() == [100.0]


@pytest.mark.parametrize("slow", [0.0, 0.5])
@pytest.mark.parametrize("links, expected_s", [(True, 400.0), (False, 100.0)])
def test_the_expected_end_of_a_gang_knows_its_link_but_not_its_neighbours(links, expected_s, slow):
    job = workload([0], [100], [1], instances=2)
    profile = one_kind(slow=[[slow]])
    backend = Logged(job, cluster([1, 1, 1], **LINKED), profile, Models(links=links))
    apply_now(backend, Start(0, (1, 2)))
    seen = backend.snapshot()
    assert seen.runs["expected_end_s"][seen.running].tolist() == [expected_s]


def test_what_would_make_no_progress_is_refused():
    machine = cluster([1, 1], kind=[0, 1])
    speeds = replace(uniform_profile(1, 2), rate=np.array([[[0.0], [1.0]]]))
    backend = Logged(workload([0], [10], [1]), machine, speeds)
    answers = apply_now(backend, Start(0, (0,)), Start(0, (1,)), Move(0, (0,)))
    assert [a.what for a in answers] == [What.REFUSED, What.PLACED, What.REFUSED]


# power


def test_energy_is_idle_draw_and_the_used_share_of_the_dynamic_draw():
    # node 0: 100 W idle, 300 W peak, 4 cores; a job of 2 cores at use 0.5 = a load of 0.25 for 10 s
    # node 0: 10 s x (100 + 200 x 0.25) = 1500 J, then idle 10 s x 100 = 1000
    # node 1: 50..150 W, 1 core, load 1 for 20 s: 20 x 150 = 3000
    machine = cluster([4, 1], idle_w=[100, 50], peak_w=[300, 150])
    jobs = workload([0, 0], [10, 20], [2, 1], use=[0.5, 1.0])
    done = played(jobs, machine, at_once(2, 0, 1))
    assert done.snapshot().node_state["energy_j"].tolist() == [2500.0, 3000.0]
    assert done.total("energy_j") == 5500.0


def test_a_kind_draws_its_own_share_of_the_dynamic_power():
    machine = cluster([1], idle_w=100, peak_w=300)
    done = played(workload([0], [10], [1]), machine, at_once(1, 0), profile=one_kind(draw=[[0.5]]))
    assert done.total("energy_j") == 10 * (100 + 200 * 0.5)


def test_without_the_power_model_no_energy_is_counted():
    machine = cluster([1], idle_w=100, peak_w=300)
    assert (
        played(workload([0], [10], [1]), machine, at_once(1, 0), power=False).total("energy_j") == 0
    )


def test_a_gpu_node_draws_by_its_gpus():
    # 2 of 4 GPUs busy for 10 s: 10 x (100 + 400 x 0.5); the cores do not count
    machine = cluster([[8, 4]], resources=("cpu", "gpu"), idle_w=100, peak_w=500)
    job = workload([0], [10], [[8, 2]], resources=("cpu", "gpu"), gpus=2)
    assert played(job, machine, at_once(1, 0)).total("energy_j") == 3000.0


# deadlines, quality, alarms


def test_a_job_is_late_only_past_its_deadline():
    jobs = workload([0, 0, 0], [10, 10, 10], [1, 1, 1], deadline_s=[10.0, 9.999, INF])
    assert played(jobs, cluster([3]), at_once(3, 0, 0, 0)).total("late") == 1


def test_quality_is_summed_by_instance_kind_and_shape():
    shapes = (Shape(), Shape("slim"))
    profile = one_kind(shapes, quality=[[1.0, 0.75]])
    jobs = workload([0, 0], [10, 10], [1, 1], shapes=3, instances=[1, 3])
    plan = [(0, Start(0, (0,))), (0, Start(1, (0, 0, 0), shape=1))]
    assert played(jobs, cluster([4]), plan, profile=profile).total("quality") == 1 + 3 * 0.75


def test_an_alarm_wakes_the_policy_once_at_its_second():
    backend = Logged(workload([0, 50], [10, 10], [1, 1]), cluster([1]))
    backend.wait()
    backend.apply(Wait(20.0))
    backend.apply(Wait(7.5))  # the earlier one counts
    assert backend.wait() == []
    assert backend.snapshot().now_s == 7.5
    backend.apply(Wait(INF))
    backend.wait()
    assert backend.snapshot().now_s == 50.0  # the alarm at 20 was replaced, not kept


@pytest.mark.parametrize("until_s", [0.0, -5.0, np.nan])
def test_an_alarm_that_is_not_ahead_is_refused(until_s):
    backend = Logged(workload([0, 50], [10, 10], [1, 1]), cluster([1]))
    (answer,) = apply_now(backend, Wait(until_s))
    assert answer.what == What.REFUSED and "wait" in answer.reason
    backend.wait()
    assert backend.snapshot().now_s == 50.0


# kill at request


@pytest.mark.parametrize(
    "kill, end_s, status", [(False, 100.0, Status.FINISHED), (True, 60.0, Status.FAILED)]
)
def test_a_run_past_its_request_is_killed_where_the_cluster_does_so(kill, end_s, status):
    job = workload([0], [100], [1], request_s=60)
    done = played(job, cluster([1]), at_once(1, 0), kill_at_request=kill)
    assert (done.ends(), done.statuses()) == ([end_s], [status])
    assert done.total("lost_s") == (60 if kill else 0)
    if kill:
        assert done.seen[-1].reason == "ran past its requested time"


def test_a_run_that_ends_at_its_request_is_not_killed():
    done = played(workload([0], [60], [1]), cluster([1]), at_once(1, 0), kill_at_request=True)
    assert done.statuses() == [Status.FINISHED]


def test_the_requested_time_runs_from_the_start_start_up_included():
    # 20 start-up + 50 work = 70 > 60
    job = workload([0], [50], [1], request_s=60)
    done = played(job, cluster([1]), at_once(1, 0), kill_at_request=True, startup_s=20.0)
    assert done.statuses() == [Status.FAILED] and done.total("lost_s") == 40
