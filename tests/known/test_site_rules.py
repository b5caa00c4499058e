"""Toy sites whose schedules follow by hand: partitions, GPU types, reservations, QOS, arrays."""

import numpy as np
import pytest

from trimtab.build import cluster, uniform_profile, workload
from trimtab.play import by_loop, play
from trimtab.policies import named
from trimtab.sim.world import Models
from trimtab.site import (
    ACCOUNT,
    ARRAY,
    EXCLUSIVE,
    GPU_KIND,
    PARTITION,
    QOS,
    RESERVATION,
    USER,
    Account,
    Partition,
    Qos,
    Reservation,
    Site,
    labelled,
)
from trimtab.traces.scenes.match import matched
from trimtab.traces.scenes.scene import Scene

RULES = ["fcfs", "fcfs+easy", "fcfs+conservative"]


def starts(jobs, machine, rule):
    """When each job starts, and what the scene was matched to."""
    made = matched(jobs, machine, uniform_profile(len(jobs.kinds), len(machine.kinds)))
    scene = Scene(*made, "toy", False)
    begun = play(named(rule), scene, log=True).state["start_s"].tolist()
    by_steps = by_loop(named(rule), *made, Models()).state["start_s"].tolist()
    assert begun == by_steps
    return begun, made


def cores(work_s, cpu, *, submit_s=None, request_s=None, **labels):
    """Jobs of so many cores; labels by name, one text a job."""
    count = len(work_s)
    return workload(
        [0.0] * count if submit_s is None else submit_s,
        work_s,
        cpu,
        request_s=request_s,
        labels={name: labelled(texts) for name, texts in labels.items()},
        meta={"epoch_s": 1_000_000.0},
        source="log",
    )


@pytest.mark.parametrize("rule", RULES)
def test_two_jobs_of_eight_a100_never_run_at_once_on_one_a100_and_one_v100_node(rule):
    machine = cluster(
        [[64, 8], [64, 8]], resources=("cpu", "gpu"), kind=[0, 1], kinds=("a100", "v100"),
    )  # fmt: skip
    jobs = workload(
        [0.0, 0.0], [100.0, 50.0], [[8, 8], [8, 8]], resources=("cpu", "gpu"), gpus=8,
        labels={GPU_KIND: labelled(["A100", "a100"])},
    )  # fmt: skip
    begun, _ = starts(jobs, machine, rule)
    assert begun == [0.0, 100.0]  # the second waits for the one A100 node, beside an idle V100 node


@pytest.mark.parametrize("rule", RULES)
def test_cpu_jobs_stay_in_their_partition_beside_idle_gpu_nodes(rule):
    site = Site(
        partitions=(Partition("cpu", ("c0",), default=True), Partition("gpu", ("g0", "g1")))
    )
    machine = cluster([8, 8, 8], names=["c0", "g0", "g1"], site=site)
    # jobs of a whole node: two in the default partition take turns, `gpu` has room for the third,
    # behind a blocked head of another partition where the rule backfills
    jobs = cores([10.0, 10.0, 10.0], [8, 8, 8], **{PARTITION: ["", "cpu", "gpu"]})
    assert starts(jobs, machine, rule)[0] == [0.0, 10.0, 10.0 if rule == "fcfs" else 0.0]
    # without a site labels only describe
    bare = cluster([8, 8, 8], names=["c0", "g0", "g1"])
    assert starts(jobs, bare, rule)[0] == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("rule", RULES)
def test_a_long_job_waits_for_the_end_of_a_reservation_and_a_short_one_does_not(rule):
    site = Site(reservations=(Reservation("maint", ("n0",), 1_000_100.0, 1_000_200.0),))
    machine = cluster([4], names=["n0"], site=site)
    # 150 s from second 0 would reach into 100 .. 200; 60 s ends at 60. The reservation's own job
    # begins as it does, at 100; at 200 the long one goes, 30 s of the other are over at 130
    jobs = cores([150.0, 60.0, 30.0], [4, 2, 4], **{RESERVATION: ["", "", "maint"]})
    begun, _ = starts(jobs, machine, rule)
    # without backfilling the long one, at the head, blocks the other two until 200, when it starts
    # beside none; the reservation's own job follows it
    assert begun == ([200.0, 350.0, 410.0] if rule == "fcfs" else [200.0, 0.0, 100.0])


@pytest.mark.parametrize("rule", RULES)
def test_a_qos_lets_a_user_run_two_jobs_at_once_and_others_pass(rule):
    site = Site(qos=(Qos("normal", user={"jobs": 2}),))
    machine = cluster([8], site=site)
    # ada's third waits for her first to end at 10, bob's behind it starts at once
    jobs = cores([10.0, 20.0, 10.0, 10.0], [1] * 4,
                 **{QOS: ["normal"] * 4, USER: ["ada", "ada", "ada", "bob"]})  # fmt: skip
    assert starts(jobs, machine, rule)[0] == [0.0, 0.0, 10.0, 0.0]


@pytest.mark.parametrize("rule", RULES)
def test_an_array_of_six_with_two_at_once_takes_three_rounds(rule):
    machine = cluster([100])
    tasks = cores([10.0] * 6, [1] * 6, **{ARRAY: ["77%2"] * 6})
    assert starts(tasks, machine, rule)[0] == [0.0, 0.0, 10.0, 10.0, 20.0, 20.0]
    # the same as one job of six instances that need not start together
    whole = workload([0.0], [10.0], [1], instances=6, gang=0, labels={ARRAY: labelled(["77%2"])})
    made = matched(whole, machine, uniform_profile(1, 1))
    state = play(named(rule), Scene(*made, "toy", False), log=True).state
    assert (state["start_s"][0], state["end_s"][0]) == (0.0, 30.0)


@pytest.mark.parametrize("rule", RULES)
def test_limits_of_an_account_hold_for_all_below_it(rule):
    tree = (Account("physics", group={"cpu": 4}), Account("optics", parent="physics"),
            Account("chem"))  # fmt: skip
    machine = cluster([100], site=Site(accounts=tree))
    # physics and optics together hold 4 cores: 3 + 3 do not fit, 3 + 1 do; chem is apart
    jobs = cores([10.0] * 4, [3, 3, 1, 50],
                 **{ACCOUNT: ["physics", "optics", "optics", "chem"]})  # fmt: skip
    assert starts(jobs, machine, rule)[0] == [0.0, 10.0, 0.0, 0.0]


@pytest.mark.parametrize("rule", RULES)
def test_an_exclusive_job_has_its_node_for_itself(rule):
    machine = cluster([8, 8])
    # the exclusive job of one core takes a whole node; the third has the other, beside the first
    jobs = cores([10.0, 10.0, 10.0, 10.0], [1, 1, 7, 1], **{EXCLUSIVE: ["", "yes", "no", ""]})
    begun, (work, made, _) = starts(jobs, machine, rule)
    assert begun == [0.0, 0.0, 0.0, 10.0]
    assert work.resources == made.resources == ("cpu", "whole node")


@pytest.mark.parametrize("rule", RULES)
def test_an_array_with_a_limit_in_a_partition_that_waits_for_another_job(rule):
    site = Site(partitions=(Partition("small", ("n0",)), Partition("big", ("n1",), default=True)))
    machine = cluster([1, 8], names=["n0", "n1"], site=site)
    # job 0 runs 0 .. 5 on n1; then two of the three tasks at once, the third when they end
    jobs = workload(
        [0.0] * 4, [5.0, 10.0, 10.0, 10.0], [8, 1, 1, 1], after=[[], [0], [0], [0]],
        labels={PARTITION: labelled(["", "big", "big", "big"]),
                ARRAY: labelled(["", "9%2", "9%2", "9%2"])},
    )  # fmt: skip
    assert starts(jobs, machine, rule)[0] == [0.0, 5.0, 5.0, 15.0]
    assert np.isfinite(jobs.jobs["request_s"]).all()
