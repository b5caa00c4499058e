"""The policy in the simulator, on scenes small enough to follow by hand."""

from dataclasses import replace

import numpy as np
import pytest

from trimtab.build import cluster, workload
from trimtab.core import Status
from trimtab.policies import named
from trimtab.policies.slurm.policy import SlurmPolicy
from trimtab.run import run
from trimtab.sim.backend import SimBackend
from trimtab.site import (
    GATE,
    PARTITION,
    QOS,
    USER,
    Account,
    Partition,
    Qos,
    Quotas,
    Site,
    labelled,
)
from trimtab.testing import check_policy

FIFO = {"SchedulerParameters": "bf_interval=30,bf_resolution=1"}


def starts(jobs, nodes=(4,), site=None, settings=FIFO, labels=None, gates=None, **more):
    """Start of each job (submit_s, run_s, cpus, request_s) on nodes of so many CPUs."""
    made = cluster(np.array(nodes, float)[:, None], kind=np.arange(len(nodes)), site=site,
                   kinds=[f"k{n}" for n in range(len(nodes))])  # fmt: skip
    if gates is not None:
        made = replace(made, gates=gates)
    submit_s, run_s, cpus, request_s = zip(*jobs)
    columns = {name: more.pop(name) for name in ("instances", "gang", "node_kinds") if name in more}
    work = workload(
        submit_s, run_s, np.array(cpus, float)[:, None], request_s=request_s, labels=labels,
        **columns,
    )  # fmt: skip
    work = replace(work, **more)
    backend = SimBackend(work, made)
    run(backend, SlurmPolicy(settings))
    return backend.world.state[0]


@pytest.mark.slow
def test_the_policy_keeps_every_promise_of_a_policy():
    check_policy(named("slurm"))


def test_jobs_behind_a_blocked_one_wait_for_the_backfills_turn():
    state = starts([(0, 100, 3, 100), (1, 10, 4, 10), (2, 50, 1, 50), (3, 90, 1, 90)])
    # the backfill ran at 0 and comes again at 30: then 50 s end before 100, 90 s would not
    assert state["start_s"].tolist() == [0.0, 100.0, 30.0, 110.0]


def test_a_planned_job_takes_the_whole_node_from_those_behind_it():
    jobs = [(0, 100, 3, 100), (1, 60, 2, 60), (2, 1000, 1, 1000)]
    # at 100 there would be room for both beside each other, and EASY backfilling starts the third
    # at once; Slurm plans the node for the second alone
    assert starts(jobs)["start_s"].tolist() == [0.0, 100.0, 100.0]


def test_without_backfill_nobody_passes_the_head():
    settings = {"SchedulerType": "sched/builtin"}
    state = starts([(0, 100, 3, 100), (1, 10, 4, 10), (2, 50, 1, 50)], settings=settings)
    assert state["start_s"].tolist() == [0.0, 100.0, 110.0]


def test_a_node_of_lower_weight_is_filled_first_and_then_the_tightest():
    parts = (Partition("p", ("node-0", "node-1", "node-2"), default=True),)
    site = Site(partitions=parts, weight=(5.0, 1.0, 1.0))
    made = cluster([[8.0], [6.0], [4.0]], site=site)
    work = workload(np.arange(4.0), [50.0] * 4, [[3.0], [1.0], [4.0], [8.0]])
    backend = SimBackend(work, made)
    where = {}

    def note(event, snapshot):
        if event.what.name == "STARTED":
            where[event.job] = event.nodes

    run(backend, SlurmPolicy(FIFO), [note])
    # 3 CPUs: node 2 has 4 free, node 1 has 6; 1: node 2 has 1 left, exactly enough; 4: node 1;
    # 8: only node 0, which is dear
    assert where == {0: (2,), 1: (2,), 2: (1,), 3: (0,)}


def test_what_cannot_start_in_one_partition_keeps_its_nodes_from_another():
    site = Site(partitions=(
        Partition("urgent", ("node-0", "node-1"), tier=9), Partition("rest", ("node-1",)),
    ))  # fmt: skip
    jobs = [(0, 100, 4, 100), (1, 10, 4, 10), (2, 10, 1, 10)]
    labels = {PARTITION: labelled(["urgent", "urgent", "rest"])}
    state = starts(jobs, (4, 4), site, labels=labels, instances=[1, 2, 1])
    # the second wants both nodes until 110; node 1 is free, and yet the third must be backfilled
    assert state["start_s"].tolist() == [0.0, 100.0, 30.0]


def test_a_job_in_several_partitions_starts_in_the_first_that_has_room():
    site = Site(partitions=(Partition("a", ("node-0",)), Partition("b", ("node-1",), tier=2)))
    labels = {PARTITION: labelled(["b", "a,b", "a,b"])}
    jobs = [(0, 100, 4, 100), (1, 50, 4, 50), (2, 50, 4, 50)]
    assert starts(jobs, (4, 4), site, labels=labels)["start_s"].tolist() == [0.0, 1.0, 51.0]


def test_who_used_least_of_his_share_goes_first():
    site = Site(
        accounts=(Account("lab", users={"ann": 1, "bob": 1}),),
        slurm={"PriorityWeightFairshare": "1000", "PriorityCalcPeriod": "1",
               "SchedulerType": "sched/builtin"},
    )  # fmt: skip
    labels = {
        "account": labelled(["lab"] * 4),
        USER: labelled(["ann", "ann", "bob", "ann"]),
    }
    jobs = [(0, 200, 4, 200), (1, 10, 4, 10), (2, 10, 4, 10), (3, 10, 4, 10)]
    state = starts(jobs, site=site, labels=labels, settings=None)
    # ann's 800 CPU-seconds put bob, who came later, before her
    assert state["start_s"].tolist() == [0.0, 210.0, 200.0, 220.0]


def test_a_cluster_that_says_nothing_of_its_slurm_shares_fairly_between_tenants():
    work = workload([0, 1, 2], [400, 10, 10], [[4.0]] * 3, tenants=("ann", "bob"), tenant=[0, 0, 1])
    backend = SimBackend(work, cluster([[4.0]]))
    run(backend, named("slurm"))
    assert backend.world.state[0]["start_s"].tolist() == [0.0, 410.0, 400.0]


def tiers(mode):
    """A partition whose jobs yield, in this way, to those of another."""
    return Site(partitions=(
        Partition("low", ("node-0",), preempt=mode), Partition("high", ("node-0",), tier=9),
    ))  # fmt: skip


@pytest.mark.parametrize(("mode", "status"), [("REQUEUE", "FINISHED"), ("CANCEL", "REJECTED")])
def test_a_higher_tier_preempts_as_the_site_says(mode: str, status: str):
    settings = {"PreemptType": "preempt/partition_prio", "PreemptMode": "REQUEUE"}
    labels = {PARTITION: labelled(["low", "low", "high"])}
    jobs = [(0, 100, 2, 100), (1, 100, 2, 100), (5, 30, 2, 30)]
    state = starts(jobs, site=tiers(mode), settings=settings, labels=labels)
    # one of the two is enough; the first in the order of preemption goes
    assert state["start_s"].tolist() == [0.0, 1.0, 5.0]
    assert state["stops"].tolist() == [1, 0, 0]
    assert Status(state["status"][0]).name == status


def test_without_preemption_a_higher_tier_waits():
    labels = {PARTITION: labelled(["low", "high"])}
    state = starts([(0, 100, 4, 100), (5, 30, 4, 30)], site=tiers("REQUEUE"), labels=labels)
    assert state["start_s"].tolist() == [0.0, 100.0]


def test_a_qos_preempts_those_that_it_names():
    site = Site(qos=(Qos("normal"), Qos("now", preempts=("normal",))))
    settings = {"PreemptType": "preempt/qos", "PreemptMode": "REQUEUE"}
    labels = {QOS: labelled(["normal", "now"])}
    state = starts([(0, 100, 4, 100), (5, 30, 4, 30)], site=site, settings=settings, labels=labels)
    assert state["start_s"].tolist()[1] == 5.0
    assert state["stops"].tolist() == [1, 0]


def test_a_job_beyond_its_quota_is_passed_over_and_keeps_nobody_back():
    quotas = Quotas(
        ("qos small",), np.array([[2.0, np.inf, np.inf]]), np.array([0, 1, 2, 2]),
        np.array([0, 0]), np.ones(3),
    )  # fmt: skip
    state = starts([(0, 100, 2, 100), (1, 10, 1, 10), (2, 10, 2, 10)], quotas=quotas)
    assert state["start_s"].tolist() == [0.0, 100.0, 2.0]


def test_a_reservation_keeps_out_what_would_reach_into_it():
    gates = np.array([(50.0, 150.0, 1)], GATE)
    reserved = np.array([-1, -1, 0])
    jobs = [(0, 40, 1, 40), (0, 60, 1, 60), (5, 20, 4, 20)]
    state = starts(jobs, gates=gates, reserved=reserved)
    # 60 s from 0 would reach into it; the job of the reservation waits for it to begin
    assert state["start_s"].tolist() == [0.0, 150.0, 50.0]


def test_a_gang_of_a_site_has_a_node_for_each_instance():
    site = Site(partitions=(Partition("p", ("node-0", "node-1"), default=True),))
    state = starts([(0, 100, 3, 100), (1, 10, 2, 10)], (4, 4), site, instances=[1, 2])
    assert state["start_s"].tolist() == [0.0, 100.0]  # node 1 alone could hold both


def test_tasks_of_a_log_without_a_site_are_packed():
    state = starts([(0, 100, 3, 100), (1, 10, 2, 10)], (4, 4), instances=[1, 2])
    assert state["start_s"].tolist() == [0.0, 1.0]


def test_an_array_starts_as_many_tasks_as_fit():
    state = starts([(0, 10, 1, 10)], instances=[10], gang=[0])
    # 4 CPUs: 4 tasks at 0, 4 at 10, 2 at 20
    assert state["end_s"].tolist() == [30.0]


def test_the_same_policy_can_be_used_for_another_run():
    policy = SlurmPolicy(FIFO)
    for _ in range(2):
        work = workload([0, 1, 2], [100, 10, 50], [[3.0], [4.0], [1.0]], request_s=[100, 10, 50])
        backend = SimBackend(work, cluster([[4.0]]))
        run(backend, policy)
        assert backend.world.state[0]["start_s"].tolist() == [0.0, 100.0, 30.0]
