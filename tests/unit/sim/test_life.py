"""A job's life: dependencies, failures, cancellations, services; each ends once, with a reason."""

import numpy as np
import pytest
from tests.worlds import Logged, Script, at_once, one_kind, played

from trimtab.build import cluster, workload
from trimtab.core import Reject, Start, Status, Stop, What
from trimtab.rules.world import OUTAGE
from trimtab.run import run
from trimtab.sim.world import Models

INF = np.inf
DONE, FAILED, REJECTED, CANCELLED = (
    Status.FINISHED,
    Status.FAILED,
    Status.REJECTED,
    Status.CANCELLED,
)


def down(*rows):
    """Outages from (time_s, node, up) rows."""
    return np.array(list(rows), OUTAGE)


# dependencies


def test_a_diamond_releases_each_job_when_its_last_parent_ends():
    #     0 (10 s)
    #  1 (5)   2 (20)    both from 10; 3 waits for the later: 10 + 20 = 30
    #     3 (1)
    jobs = workload([0, 0, 0, 0], [10, 5, 20, 1], [1] * 4, after=[[], [0], [0], [1, 2]])
    plan = [(0, Start(0, (0,))), (10, Start(1, (0,))), (10, Start(2, (1,))), (30, Start(3, (0,)))]
    done = played(jobs, cluster([1, 1]), plan)
    assert done.ends() == [10.0, 15.0, 30.0, 31.0]
    assert done.total("waiting_s") == 0  # a blocked job does not wait for the cluster


def test_a_blocked_job_cannot_start():
    jobs = workload([0, 0], [10, 10], [1, 1], after=[[], [0]])
    backend = Logged(jobs, cluster([2]))
    backend.wait()
    assert backend.snapshot().queue.tolist() == [0]
    assert backend.apply(Start(1, (0,))).reason == "job: not waiting"


def test_a_child_submitted_after_its_parents_end_is_queued_at_once():
    jobs = workload([0, 50], [10, 10], [1, 1], after=[[], [0]])
    assert played(jobs, cluster([1]), [(0, Start(0, (0,))), (50, Start(1, (0,)))]).ends() == [
        10.0,
        60.0,
    ]


def test_a_parent_below_its_child_is_a_parent_all_the_same():
    jobs = workload([0, 5], [10, 10], [1, 1], after=[[1], []])
    done = played(jobs, cluster([1]), [(5, Start(1, (0,))), (15, Start(0, (0,)))])
    assert done.ends() == [25.0, 15.0]


CHAIN = {"after": [[], [0], [1], [1, 2]]}


def test_a_rejected_parent_fails_all_its_descendants_once():
    jobs = workload([0] * 4, [10] * 4, [1] * 4, **CHAIN)
    done = played(jobs, cluster([1]), [(3, Reject(0))])
    assert done.statuses() == [REJECTED, FAILED, FAILED, FAILED]
    assert sorted(done.facts(What.FAILED)) == [(3.0, 1), (3.0, 2), (3.0, 3)]
    assert (done.total("rejected"), done.total("failed")) == (1, 3)
    assert {event.reason for event in done.seen if event.what == What.FAILED} == {
        "a job it waits for did not finish"
    }


def test_a_cancelled_parent_fails_its_descendants_also_those_to_come():
    jobs = workload([0, 0, 100, 100], [10] * 4, [1] * 4, cancel_s=[5, INF, INF, INF], **CHAIN)
    done = played(jobs, cluster([1]), [(0, Start(0, (0,)))])
    assert done.statuses() == [CANCELLED, FAILED, FAILED, FAILED]
    assert done.ends() == [5.0] * 4


def test_a_failed_parent_fails_the_children_of_a_diamond_once():
    jobs = workload([0] * 4, [10] * 4, [1] * 4, request_s=5, after=[[], [0], [0], [1, 2]])
    done = played(jobs, cluster([1]), [(0, Start(0, (0,)))], kill_at_request=True)
    assert done.statuses() == [FAILED] * 4
    assert sorted(done.facts(What.FAILED)) == [(5.0, 0), (5.0, 1), (5.0, 2), (5.0, 3)]


def test_a_child_of_a_finished_and_a_failed_parent_fails():
    jobs = workload([0] * 3, [10, 20, 1], [1] * 3, cancel_s=[INF, 15, INF], after=[[], [], [0, 1]])
    done = played(jobs, cluster([2]), at_once(2, 0, 0))
    assert done.statuses() == [DONE, CANCELLED, FAILED] and done.ends() == [10.0, 15.0, 15.0]


# failures


def test_a_failed_node_sends_its_job_back_to_the_queue():
    # node 0 fails at 40, is back at 60. The job runs 0..40 (lost), starts anew at 60: 60 + 100
    job = workload([0], [100], [1])
    plan = [(0, Start(0, (0,))), (60, Start(0, (0,)))]
    done = played(job, cluster([1]), plan, outages=down((40, 0, 0), (60, 0, 1)))
    assert done.ends() == [160.0]
    assert (done.total("work_s"), done.total("lost_s"), done.total("waiting_s")) == (
        100.0,
        40.0,
        20.0,
    )
    assert [(e.time_s, e.what, e.nodes, e.reason) for e in done.seen if e.time_s in (40.0, 60.0)][
        :3
    ] == [
        (40.0, What.FAILED, (0,), "node down"),
        (40.0, What.STOPPED, (0,), "node failed"),
        (60.0, What.STARTED, (0,), "node up"),
    ]


def test_checkpoints_survive_a_failed_node():
    job = workload([0], [100], [1], checkpoint_s=30)
    plan = [(0, Start(0, (0,))), (50, Start(0, (1,)))]
    done = played(job, cluster([1, 1]), plan, outages=down((40, 0, 0)))
    assert done.ends() == [120.0]  # 30 kept: 50 + 70
    assert done.total("lost_s") == 10


@pytest.mark.parametrize("retries, status, end_s", [(1, FAILED, 50.0), (2, DONE, 160.0)])
def test_a_job_fails_when_it_has_lost_more_runs_than_its_retries(retries, status, end_s):
    plan = [(0, Start(0, (0,))), (20, Start(0, (0,))), (60, Start(0, (0,)))]
    fails = down((10, 0, 0), (20, 0, 1), (50, 0, 0), (60, 0, 1))
    backend = Logged(
        workload([0], [100], [1]), cluster([1]), None, Models(retries=retries, outages=fails)
    )
    run(backend, Script(plan))
    assert (backend.statuses(), backend.ends()) == ([status], [end_s])


def test_a_gang_is_lost_with_any_of_its_nodes():
    job = workload([0], [100], [1], instances=2)
    done = played(
        job,
        cluster([1, 1, 1]),
        [(0, Start(0, (0, 1))), (10, Start(0, (0, 2)))],
        outages=down((10, 1, 0)),
    )
    assert done.ends() == [110.0] and done.total("lost_s") == 20


def test_an_array_loses_only_the_instances_on_the_failed_node():
    job = workload([0], [100], [1], instances=2, gang=0)
    done = played(
        job,
        cluster([1, 1]),
        [(0, Start(0, (0, 1))), (30, Start(0, (1,)))],
        outages=down((20, 1, 0), (30, 1, 1)),
    )
    assert done.ends() == [130.0]
    assert (done.total("work_s"), done.total("lost_s")) == (200.0, 20.0)


def test_a_down_node_refuses_and_draws_nothing():
    # up 0..10 and 30..40 at 100 W, with 200 W more while the job runs 30..40
    machine = cluster([1], idle_w=100, peak_w=300)
    backend = Logged(
        workload([0], [10], [1]), machine, None, Models(outages=down((10, 0, 0), (30, 0, 1)))
    )
    run(backend, Script([(15, Start(0, (0,))), (30, Start(0, (0,)))]))
    assert backend.total("refused") == 1
    assert backend.total("energy_j") == 10 * 100 + 10 * 300


def test_a_node_that_fails_while_the_cluster_is_empty_draws_nothing_either():
    # nothing waits or runs at 20..100 but the node is down at 40..50: of 110 s 80 - 10 s are idle,
    # and two jobs have 10 s each at peak; what comes before the first job at 10 is not counted
    machine = cluster([1], idle_w=100, peak_w=300)
    plan = [(10, Start(0, (0,))), (100, Start(1, (0,)))]
    work = workload([10, 100], [10, 10], [1, 1])
    done = played(work, machine, plan, outages=down((40, 0, 0), (50, 0, 1)))
    assert done.total("energy_j") == 70 * 100 + 2 * 10 * 300
    assert done.facts(What.FAILED) == [(40.0, -1)]


def test_a_second_report_of_one_failure_changes_nothing():
    plan = [(0, Start(0, (0,))), (20, Start(0, (0,)))]
    twice = down((10, 0, 0), (12, 0, 0), (20, 0, 1), (21, 0, 1))
    done = played(workload([0], [100], [1]), cluster([1]), plan, outages=twice)
    assert (
        done.ends() == [120.0] and len(done.facts(What.STARTED)) == 3
    )  # two starts and one repair


# cancellations


@pytest.mark.parametrize(
    "submit_s, plan, lost_s",
    [
        (50, [], 0.0),  # before it is submitted
        (0, [], 0.0),  # while it waits
        (0, [(10, Start(1, (0,)))], 20.0),  # while it runs
        (0, [(10, Start(1, (0,))), (20, Stop(1))], 10.0),  # after a preemption
    ],
)
def test_a_cancelled_job_ends_then_in_whatever_state(submit_s, plan, lost_s):
    jobs = workload([0, submit_s], [100, 100], [1, 1], cancel_s=[INF, 30])
    done = played(jobs, cluster([2]), [(0, Start(0, (0,))), *plan])
    assert done.statuses() == [DONE, CANCELLED] and done.ends() == [100.0, 30.0]
    assert done.total("lost_s") == lost_s
    assert done.snapshot().free[0, 0] == 2


def test_a_blocked_job_can_be_cancelled():
    jobs = workload([0, 0], [100, 10], [1, 1], cancel_s=[INF, 30], after=[[], [0]])
    done = played(jobs, cluster([2]), [(0, Start(0, (0,)))])
    assert done.statuses() == [DONE, CANCELLED] and done.ends() == [100.0, 30.0]


def test_a_half_started_array_can_be_cancelled():
    job = workload([0], [100], [1], instances=3, gang=0, cancel_s=30)
    done = played(job, cluster([2]), [(0, Start(0, (0, 0)))])
    assert done.statuses() == [CANCELLED] and done.total("lost_s") == 60
    assert done.total("waiting_s") == 30


def test_a_job_that_ends_at_its_cancel_time_has_finished():
    done = played(workload([0], [30], [1], cancel_s=30), cluster([1]), at_once(1, 0))
    assert done.statuses() == [DONE]


def test_a_cancellation_past_the_end_changes_nothing():
    jobs = workload([0, 0], [10, 100], [1, 1], cancel_s=[50, INF])
    done = played(jobs, cluster([2]), at_once(2, 0, 0))
    assert done.statuses() == [DONE, DONE] and done.total("stopped") == 0


# services


PATTERN = {"patterns": [[0.5, 1.0, 0.25]], "pattern_step_s": 100.0, "pattern": 0}


def serving(batch_s, *, use=1.0, service_s=INF):
    """A service of 4 cores from 0 on, and a batch job of 1 core."""
    return workload(
        [0, 0],
        [service_s, batch_s],
        [4, 1],
        service=[1, 0],
        use=[use, 1.0],
        **{**PATTERN, "pattern": [0, -1]},
    )


def test_the_simulation_ends_with_the_last_batch_job():
    done = played(serving(350), cluster([8]), at_once(2, 0, 0))
    assert done.snapshot().now_s == 350.0
    assert done.statuses() == [Status.RUNNING, DONE]


def test_load_and_energy_follow_the_pattern_of_a_service():
    # service: 4 of 8 cores at 0.5, 1, 0.25, then 0.5 again: loads 0.25, 0.5, 0.125, 0.25
    # batch: 1 / 8 = 0.125. Loads by 100 s: 0.375, 0.625, 0.25, and 0.375 for the last 50
    machine = cluster([8], idle_w=100, peak_w=300)
    done = played(serving(350), machine, at_once(2, 0, 0))
    busy_s = 37.5 + 62.5 + 25 + 18.75
    assert done.total("busy_s") == busy_s
    assert done.total("energy_j") == 350 * 100 + 200 * busy_s


def test_use_scales_a_pattern():
    done = played(serving(100, use=0.5), cluster([8]), at_once(2, 0, 0))
    assert done.total("busy_s") == 100 * (4 * 0.5 * 0.5 + 1) / 8


def test_a_service_that_ends_as_its_pattern_changes_leaves_no_load_behind():
    # the service ends at 100, when its use changes from 0.5 to 1; the batch job is alone afterwards
    done = played(serving(300, service_s=100.0), cluster([8]), at_once(2, 0, 0))
    assert done.total("busy_s") == 100 * (2 + 1) / 8 + 200 * 1 / 8


def test_a_service_stopped_as_its_pattern_changes_leaves_no_load_behind():
    plan = [*at_once(2, 0, 0), (200, Stop(0)), (200, Reject(0))]
    done = played(serving(300), cluster([8]), plan)
    assert done.total("busy_s") == 100 * 3 / 8 + 100 * 5 / 8 + 100 * 1 / 8


def test_a_batch_job_may_follow_a_pattern_too():
    job = workload([0], [250], [4], **PATTERN)
    done = played(job, cluster([8]), at_once(1, 0))
    assert done.total("busy_s") == (100 * 2 + 100 * 4 + 50 * 1) / 8
    assert done.snapshot().node_state["load"].tolist() == [0.0]


def test_a_pattern_step_that_is_no_binary_fraction_does_not_stop_the_clock():
    # 43 x 0.1 / 0.1 is less than 43 in floating point
    job = workload(
        [0, 0],
        [INF, 10],
        [4, 1],
        service=[1, 0],
        patterns=[[0.5, 1.0]],
        pattern_step_s=0.1,
        pattern=[0, -1],
    )
    done = played(job, cluster([8]), at_once(2, 0, 0))
    assert done.ends()[1] == 10.0 and done.instants < 200
    assert done.total("busy_s") == pytest.approx((4 * 0.75 + 1) / 8 * 10, rel=1e-6)


def test_services_run_in_wall_time_whatever_the_rate():
    jobs = workload([0, 0], [50, 100], [1, 1], service=[1, 0])
    done = played(jobs, cluster([2]), at_once(2, 0, 0), profile=one_kind(rate=[[[4.0]]]))
    assert done.ends()[1] == 25.0 and np.isnan(done.ends()[0])
