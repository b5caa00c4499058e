"""What cannot run is an error before the run, and a decision that cannot be is refused."""

from dataclasses import replace

import numpy as np
import pytest
from tests.worlds import Logged, Script, one_kind, two

from trimtab.build import cluster, uniform_profile, workload
from trimtab.core import Move, Profile, Reject, Resize, Shape, Start, Stop, Wait, What
from trimtab.errors import TraceError
from trimtab.policies.rule import RulePolicy
from trimtab.rules.world import OUTAGE
from trimtab.run import run
from trimtab.sim.backend import SimBackend
from trimtab.sim.world import Models

NAN = np.nan


@pytest.mark.parametrize(
    "columns, machine",
    [
        ({"cpu": [1.0, 9.0]}, cluster([8, 4])),
        ({"instances": [1, 4], "cpu": [1.0, 3.0]}, cluster([8, 4])),  # 2 + 1 fit
        ({"node_kinds": [1, 4]}, cluster([8, 4], kind=[0, 1], kinds=("a", "b", "c"))),
    ],
)
def test_a_demand_that_no_node_can_ever_meet_is_told_before_the_run(columns, machine):
    with pytest.raises(
        TraceError,
        match=r"log.csv: job b \(row 1\): .* can never run on .*; drop it \(--lenient\) or",
    ):
        SimBackend(two(**columns), machine)


def test_gpus_that_no_node_has_are_told_before_the_run():
    job = workload([0], [1], [[1, 2]], resources=("cpu", "gpu"), gpus=2)
    with pytest.raises(TraceError, match="can never run"):
        SimBackend(job, cluster([[8, 1], [8, 1]], resources=("cpu", "gpu")))
    with pytest.raises(TraceError, match="can never run"):  # enough GPUs, too little memory on each
        few = replace(job, jobs=job.jobs.copy())
        few.jobs["gpu_mem_gb"] = 40
        SimBackend(few, cluster([[8, 4]], resources=("cpu", "gpu"), gpu_mem_gb=16))


def test_a_resource_the_cluster_lacks_is_named():
    job = workload([0], [1], [[1, 1]], resources=("cpu", "disk"))
    with pytest.raises(
        TraceError, match=r"asks for disk, which .* lacks .*choose a matching --cluster"
    ):
        SimBackend(job, cluster([1]))


@pytest.mark.parametrize(
    "models, told",
    [
        ({"window_s": 0.0}, "window_s=0.0"),
        ({"windows": 0}, "windows=0"),
        ({"startup_s": -1.0}, "startup_s=-1.0"),
        ({"move_s": NAN}, "move_s=nan"),
        (
            {"outages": np.array([(1.0, 2, 0)], OUTAGE)},
            r"outages: row 0: .*node=2: want a time and a node in 0\.\.1",
        ),
        ({"outages": np.array([(NAN, 0, 0)], OUTAGE)}, "outages: row 0: time_s=nan"),
    ],
)
def test_a_bad_model_is_told_before_the_run(models, told):
    with pytest.raises(TraceError, match=told):
        SimBackend(two(), cluster([1, 1]), None, Models(**models))


@pytest.mark.parametrize(
    "profile, told",
    [
        (uniform_profile(1, 1), r"rate has shape \(1, 1, 1\), want \(1, 2, 1\)"),
        (
            replace(uniform_profile(1, 2), rate=np.full((1, 2, 1), NAN)),
            "rate holds a number that is not finite",
        ),
        (replace(uniform_profile(1, 2), slow=np.full((1, 1), -1.0)), "slow holds a number"),
        (
            uniform_profile(1, 2, (Shape(), Shape("none", scale=0.0))),
            "scale is not a finite number above 0",
        ),
    ],
)
def test_a_bad_profile_is_told_before_the_run(profile, told):
    with pytest.raises(TraceError, match=told):
        SimBackend(two(), cluster([1, 1], kind=[0, 1]), profile)


def test_a_profile_is_used_as_it_is_given():
    profile: Profile = one_kind(rate=[[[2.0]]])
    backend = Logged(workload([0], [10], [1]), cluster([1]), profile)
    run(backend, Script([(0, Start(0, (0,)))]))
    assert backend.ends() == [5.0]


# decisions


RUBBISH = [
    (Start(0, (5,)), "node: there is no node 5"),
    (Start(0, (-1,)), "node: there is no node -1"),
    (Start(0, (2**70,)), "node: there is no node"),
    (Start(0, ("node-0",)), "node: there is no node"),
    (Start(0, (0.5,)), "node: there is no node"),
    (Start(0, 0), "node: there is no node"),
    (Start(0, ()), "instances: 0 given, 1 to start"),
    (Start(0, (0, 0)), "instances: 2 given, 1 to start"),
    (Start(0, (0,), shape=3), "shape: 3 is not allowed"),
    (Start(0, (0,), shape=-1), "shape: -1 is not allowed"),
    (Start(0, (0,), shape=2**63), "shape: -1 is not allowed"),
    (Start(0, (0,), devices=(1, 1)), "gpu devices: (1, 1) is not one bit mask for each of 1 nodes"),
    (Start(0, (0,), devices=(-3,)), "gpu devices: (-3,) is not one bit mask"),
    (Start(0, (0,), devices=(2**64,)), "gpu devices: "),
    (Start(0, (0,), devices=(1,)), "gpu devices: wants 0, 0 fit"),
    (Start(9, (0,)), "job: there is no row 9"),
    (Start(-1, (0,)), "job: there is no row -1"),
    (Start(2**64, (0,)), "job: there is no row"),
    (Start(None, (0,)), "job: there is no row"),
    (Start(1, (0,)), "job: not waiting"),  # not submitted yet
    (Stop(0), "job: not running"),
    (Stop(99), "job: there is no row 99"),
    (Move(0, (0,)), "job: not running"),
    (Move("x", (0,)), "job: there is no row"),
    (Resize(0, 0), "job: not running"),
    (Reject(1), "job: not waiting"),
    (Wait(0.0), "wait: until_s=0.0 is not after second 0"),
    (Wait("soon"), "wait: until_s='soon' is not after second 0"),
]  # fmt: skip


@pytest.mark.parametrize("decision, reason", RUBBISH, ids=lambda value: str(value)[:40])
def test_a_decision_that_cannot_be_is_refused_with_its_reason(decision, reason):
    jobs = workload([0, 100], [10, 10], [1, 1])
    backend = Logged(jobs, cluster([1, 1]))
    backend.wait()
    answer = backend.apply(decision)
    assert answer.what == What.REFUSED and reason in answer.reason
    assert backend.total("refused") == 1
    run(
        backend, RulePolicy("fcfs")
    )  # and the cluster goes on: the next instant is the second submit
    assert backend.ends() == [110.0, 110.0]
