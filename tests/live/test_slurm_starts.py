"""Where and in what order a real slurmctld starts jobs, beside the policy `slurm` on the same."""

import time

import numpy as np
import pytest
from tests.live.slurm_scene import Job, ran, simulated
from tests.slurm_daemon import Node, running, why_not

NODES = [
    Node("a1", 8, gpu_kind="a100", gpus=4, features="nvlink", weight=20),
    Node("v1", 8, gpu_kind="v100", gpus=2, weight=10),
    Node("v2", 8, gpu_kind="v100", gpus=2, weight=10),
    Node("c1", 4),
    Node("c2", 4, features="ib"),
    Node("c3", 4, features="ib"),
]
PARTITIONS = [
    "gpu Nodes=a1,v1,v2 MaxTime=60 State=UP PreemptMode=OFF",
    "cpu Nodes=c1,c2,c3 Default=YES MaxTime=60 State=UP PreemptMode=OFF",
    "all Nodes=ALL MaxTime=60 State=UP PriorityTier=5 PreemptMode=OFF",
    "spare Nodes=c1,c2,c3 MaxTime=60 State=UP PreemptMode=CANCEL",
]
SETTINGS = {
    "PriorityType": "priority/multifactor",
    "PriorityWeightJobSize": "1000",
    "PriorityWeightQOS": "500",
    "PreemptType": "preempt/partition_prio",
    "PreemptMode": "REQUEUE",
    "SchedulerParameters": "bf_interval=2,bf_resolution=1,sched_min_interval=1000,"
    "batch_sched_delay=0",
}
APART_S = 3.0  # starts so far apart have an order: a start takes Slurm a second or two
LATE_S = 6.0  # those of the starts before it, one after the other, come on top


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    if why_not(accounts=True):
        pytest.skip(why_not(accounts=True))
    folder = tmp_path_factory.mktemp("slurm")
    with running(folder, NODES, PARTITIONS, SETTINGS, accounts=True) as made:
        made.out("sacctmgr", "-i", "add", "qos", "few", "priority=50", "GrpTRES=cpu=4")
        made.out("sacctmgr", "-i", "add", "qos", "first", "priority=100")
        made.out("sacctmgr", "-i", "modify", "user", "root", "set", "qos=normal,few,first")
        yield made


def same(slurm, jobs, first):
    """Every job on the nodes where Slurm had it, in its order, at its time but for its delays."""
    seen = ran(slurm, jobs, first)
    ours = simulated(slurm, jobs, seen)
    names = [job.name for job in jobs]
    told = "\n".join(
        f"{name}: Slurm {seen.start_s[i]:g} s on {seen.nodes[i]}, "
        f"ours {ours.start_s[i]:g} s on {ours.nodes[i]}"
        for i, name in enumerate(names)
    )
    assert dict(zip(names, ours.nodes)) == dict(zip(names, seen.nodes)), told
    assert dict(zip(names, ours.stopped)) == dict(zip(names, seen.stopped)), told
    late = [i for i in range(len(jobs)) if abs(ours.start_s[i] - seen.start_s[i]) > LATE_S]
    assert not late, told
    behind = np.subtract.outer(seen.start_s, seen.start_s)
    turned = (behind > APART_S) & (np.subtract.outer(ours.start_s, ours.start_s) < 0)
    assert not turned.any(), told
    return seen


FILL = [
    Job("fill-c", 6, 1, "cpu", cpus=4, nodes=3),
    Job("fill-v", 10, 1, "gpu", cpus=8, nodes=2, constraint="", gpus=2, gpu_kind="v100"),
    Job("fill-a", 14, 1, "gpu", cpus=8, gpus=4, gpu_kind="a100"),
]


def test_jobs_start_in_slurms_order_on_slurms_nodes(slurm):
    jobs = [
        *FILL,
        Job("one", 8, 5, "cpu", cpus=1),
        Job("two", 9, 5, "cpu", cpus=2),
        Job("three", 20, 5, "cpu", cpus=3),
        Job("ib", 13, 5, "cpu", cpus=2, constraint="ib"),
        Job("pair", 11, 3, "cpu", cpus=3, nodes=2),
        Job("v100", 7, 4, "gpu", cpus=2, gpus=1, gpu_kind="v100"),
        Job("any-gpu", 12, 4, "gpu", cpus=2, gpus=2),
        Job("a100", 9, 4, "gpu", cpus=4, gpus=3, gpu_kind="a100"),
        Job("nvlink", 6, 4, "gpu", cpus=1, constraint="nvlink"),
        Job("no-gpu", 5, 2, "gpu", cpus=4),
    ]
    same(slurm, jobs, len(FILL))


def test_short_jobs_are_backfilled_as_in_slurm(slurm):
    jobs = [
        Job("long", 16, 3, "cpu", cpus=4),
        Job("brief", 7, 1, "cpu", cpus=4),
        Job("wide", 6, 2, "cpu", cpus=4, nodes=3),
        Job("fits", 5, 1, "cpu", cpus=2),
        Job("too-long", 5, 9, "cpu", cpus=2),
        Job("fits-too", 6, 2, "cpu", cpus=1),
        Job("later", 5, 1, "cpu", cpus=4, nodes=2),
    ]
    same(slurm, jobs, 2)


def test_a_higher_tier_goes_first_and_keeps_its_nodes_from_others(slurm):
    jobs = [
        *FILL,
        Job("low", 6, 2, "cpu", cpus=4),
        Job("low-gpu", 6, 2, "gpu", cpus=2, gpus=1),
        Job("high", 7, 2, "all", cpus=4, nodes=4),
        Job("high-one", 9, 2, "all", cpus=1),
        Job("low-whole", 6, 2, "cpu", cpus=1, exclusive=True),
    ]
    same(slurm, jobs, len(FILL))


def test_a_limit_of_a_qos_passes_over_its_jobs_and_keeps_nobody_back(slurm):
    jobs = [
        *FILL,
        Job("few-1", 9, 2, "cpu", cpus=3, qos="few"),
        Job("few-2", 6, 2, "cpu", cpus=2, qos="few"),
        Job("few-3", 5, 2, "gpu", cpus=1, qos="few"),
        Job("plain", 7, 2, "cpu", cpus=4),
        Job("first", 8, 2, "cpu", cpus=2, qos="first"),
    ]
    same(slurm, jobs, len(FILL))


def test_jobs_keep_out_of_a_reservation_that_they_would_reach_into(slurm):
    start_s = int(time.time()) + 150
    at = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(start_s))
    slurm.out("scontrol", "create", "reservation", "ReservationName=upkeep", f"StartTime={at}",
              "Duration=10", "Nodes=c1,v1", "Users=root")  # fmt: skip
    try:
        jobs = [
            *FILL,
            Job("reaches", 6, 5, "cpu", cpus=2),
            Job("ends-before", 7, 1, "cpu", cpus=3),
            Job("gpu-reaches", 6, 5, "gpu", cpus=1, gpus=2, gpu_kind="v100"),
            Job("gpu-ends-before", 5, 1, "gpu", cpus=1, gpus=2, gpu_kind="v100"),
            Job("wide", 5, 9, "cpu", cpus=4, nodes=2),
        ]
        seen = same(slurm, jobs, len(FILL))
        assert not any({"c1", "v1"} & set(seen.nodes[i]) for i in (3, 5, 7))
    finally:
        slurm.out("scontrol", "delete", "ReservationName=upkeep")


def test_the_same_runs_are_preempted(slurm):
    jobs = [
        Job("spare-1", 25, 2, "spare", cpus=2),
        Job("spare-2", 25, 2, "spare", cpus=2),
        Job("spare-3", 25, 2, "spare", cpus=4),
        Job("kept", 12, 2, "cpu", cpus=4),
        Job("urgent", 6, 2, "all", cpus=4, constraint="ib"),
    ]
    seen = same(slurm, jobs, 4)
    assert seen.stopped == (False, False, True, False, False)  # of the nodes with ib, c3 is kept


def test_a_job_of_two_partitions_goes_where_there_is_room_first(slurm):
    jobs = [
        *FILL,
        Job("either", 6, 2, "cpu,gpu", cpus=3),
        Job("either-too", 7, 2, "gpu,cpu", cpus=2),
        Job("whole", 6, 2, "cpu", cpus=4, nodes=2, exclusive=True),
    ]
    same(slurm, jobs, len(FILL))
