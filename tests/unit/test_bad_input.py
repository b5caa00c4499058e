"""A mistake is an error that names row, field, value and remedy; a bad decision a refusal."""

from dataclasses import replace

import numpy as np
import pytest
from tests.worlds import Answers, Logged, Script, one_kind

from trimtab.build import cluster, uniform_profile, workload
from trimtab.core import Move, Profile, Reject, Resize, Shape, Start, Stop, Wait, What
from trimtab.errors import PolicyError, TraceError
from trimtab.policies.rule import RulePolicy
from trimtab.rules.seen import world_of
from trimtab.rules.world import OUTAGE
from trimtab.run import run
from trimtab.sim.backend import SimBackend
from trimtab.sim.world import Models

NAN = np.nan
INF = np.inf


def two(**columns):
    """Two jobs of one core with one column replaced in the second row."""
    named = {"submit_s": [0.0, 1.0], "work_s": [10.0, 10.0], "cpu": [1.0, 1.0]}
    named |= {key: value for key, value in columns.items() if key in named}
    more = {key: value for key, value in columns.items() if key not in named}
    return workload(
        named["submit_s"],
        named["work_s"],
        named["cpu"],
        source="log.csv",
        job_id=["a", "b"],
        **more,
    )


@pytest.mark.parametrize(
    "columns, told",
    [
        (
            {"submit_s": [5.0, 1.0]},
            "submit_s=1.0 is before the row above it; sort the rows by submit time",
        ),
        ({"submit_s": [0.0, NAN]}, "submit_s=nan is not a finite time"),
        ({"work_s": [10.0, -1.0]}, "work_s=-1.0 is not a number >= 0"),
        ({"work_s": [10.0, NAN]}, "work_s=nan"),
        ({"work_s": [10.0, INF]}, "work_s=inf never ends; set service=1 or a cancel_s"),
        ({"request_s": [1, NAN]}, "request_s=nan"),
        ({"cpu": [1.0, -2.0]}, "cpu=-2.0 is not a finite number >= 0"),
        ({"cpu": [1.0, NAN]}, "cpu=nan"),
        ({"instances": [1, 0]}, "instances=0 is below 1"),
        ({"gpus": [0, -1]}, "gpus=-1 is negative"),
        ({"gpus": [0, 65]}, "gpus=65 is above 64"),
        ({"gpu_share": [1, 0]}, "gpu_share=0.0 is not in (0, 1]"),
        ({"gpu_share": [1, 0.5], "gpus": [0, 2]}, "is fractional on several GPUs"),
        ({"gpu_mem_gb": [0, -1]}, "gpu_mem_gb=-1.0"),
        ({"checkpoint_s": [0, NAN]}, "checkpoint_s=nan"),
        ({"deadline_s": [0, NAN]}, "deadline_s=nan"),
        ({"cancel_s": [0, NAN]}, "cancel_s=nan"),
        ({"priority": [0, INF]}, "priority=inf is not finite"),
        ({"use": [1, -0.1]}, "use=-0.1"),
        ({"kind": [0, 1]}, "kind=1 is not in 0..0"),
        ({"tenant": [0, -1]}, "tenant=-1 is not in 0..0"),
    ],
)
def test_a_bad_number_is_named_with_its_source_row_and_remedy(columns, told):
    with pytest.raises(TraceError) as caught:
        two(**columns)
    text = str(caught.value)
    assert text.startswith("log.csv: job b (row 1): ") and told in text and ";" in text


def test_a_cycle_of_dependencies_names_a_job_in_it():
    with pytest.raises(
        TraceError, match=r"log.csv: job b \(row 1\) waits for itself through a cycle.*2 jobs.*drop"
    ):
        workload(
            [0, 0, 0],
            [1, 1, 1],
            [1, 1, 1],
            source="log.csv",
            job_id=["a", "b", "c"],
            after=[[], [2], [1]],
        )


def test_a_job_that_waits_for_itself_is_a_cycle():
    with pytest.raises(TraceError, match="waits for itself"):
        workload([0], [1], [1], after=[[0]])


@pytest.mark.parametrize("after", [[[], [7]], [[], [-1]]])
def test_a_parent_that_is_not_there_is_named(after):
    with pytest.raises(TraceError, match=r"after names a job outside 0\.\.1; drop that edge"):
        workload([0, 0], [1, 1], [1, 1], after=after)


def test_an_empty_trace_says_so():
    with pytest.raises(TraceError, match=r"log\.csv: the trace holds no jobs"):
        workload([], [], np.zeros((0, 1)), source="log.csv")


def test_an_unknown_column_lists_the_known_ones():
    with pytest.raises(
        TraceError, match=r"column 'gpu' is unknown; known columns: submit_s, .*gpus"
    ):
        two(gpu=[1, 1])


def test_a_demand_table_of_another_shape_says_what_it_should_be():
    with pytest.raises(TraceError, match=r"demand has shape \(2, 1\), want \(2, 2\)"):
        workload([0, 0], [1, 1], [1, 1], resources=("cpu", "mem_gb"))


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
    "make, told",
    [
        (lambda: cluster([]), "no nodes"),
        (lambda: cluster([1, -4]), "node 1: cpu=-4.0 is not a finite number >= 0"),
        (lambda: cluster([[1, 0.5]], resources=("cpu", "gpu")), "whole number of devices"),
        (lambda: cluster([[1, 65]], resources=("cpu", "gpu")), "at most 64"),
        (lambda: cluster([1, 1], region=[0, 1], link=[[1, 0], [0, 1]]), r"numbers in \(0, 1\]"),
        (lambda: cluster([1], kind=3, kinds=("a",)), "kind is not in 0..0"),
    ],
)
def test_a_bad_cluster_is_an_error_that_says_where(make, told):
    with pytest.raises(TraceError, match=told):
        make()


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


class Says:
    """A policy that always gives the same answer."""

    def __init__(self, answer):
        self.answer = answer

    def decide(self, snapshot):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize(
    "answer, told",
    [
        (["start"], r"policy Says returned 'start', which is not a decision; return Start, Stop"),
        ([None], "returned None"),
        (None, "policy Says raised TypeError at second 0"),
        (7, "policy Says raised TypeError at second 0"),
        (ZeroDivisionError("by zero"), "policy Says raised ZeroDivisionError at second 0: by zero"),
        ([], "left 1 jobs waiting .first: row 0. while nothing runs and nothing will happen"),
        ([Wait()], "left 1 jobs waiting"),
        ([Wait(0.0)], "decided 1000 times at second 0"),
        ([Wait(NAN)], "left 1 jobs waiting"),
        ([Start(0, (99,))], "left 1 jobs waiting"),
        ([Start(0, (0,)), Stop(0)], "decided 1000 times at second 0"),
    ],
    ids=str,
)
def test_a_policy_that_answers_rubbish_is_an_error_that_names_it(answer, told):
    backend = Logged(workload([0], [10], [1]), cluster([1]))
    with pytest.raises(PolicyError, match=told):
        run(backend, Says(answer))
    assert backend.instants < 10


def test_the_same_job_started_twice_is_refused_the_second_time():
    backend, answers = Logged(workload([0], [10], [1]), cluster([2])), Answers()
    run(backend, Says([Start(0, (0,)), Start(0, (0,))]), [answers])
    assert answers.refusals()[0] == "job: not waiting"
    assert backend.ends() == [10.0]


def test_rules_have_room_for_a_window_of_a_longer_trace():
    # a window keeps the trace's numbers of alike jobs, which may be larger than the window is long
    jobs = workload(np.arange(50.0), 10, np.arange(1.0, 51.0)).window(45)
    backend = Logged(jobs, cluster([50]))
    while backend.wait() is not None and backend.world.head[0]["submitted"] < len(jobs):
        pass
    world = world_of(backend.snapshot())
    assert min(world.refused.shape[1], world.prefer.shape[1]) > jobs.jobs["like"].max() >= len(jobs)


def test_a_profile_is_used_as_it_is_given():
    profile: Profile = one_kind(rate=[[[2.0]]])
    backend = Logged(workload([0], [10], [1]), cluster([1]), profile)
    run(backend, Script([(0, Start(0, (0,)))]))
    assert backend.ends() == [5.0]
