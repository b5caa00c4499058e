"""The policy notices that speeds or jobs changed, corrects what it believes, and takes back what
made it worse.
"""

import math
from concurrent.futures import Future

import numpy as np
import pytest

from trimtab.core import Status
from trimtab.errors import PolicyError
from trimtab.policies.adlro.policy import AdlroPolicy
from trimtab.policies.adlro.stretches import ASKED, KEPT, Stretches, change_at, revised
from trimtab.reproduce.adlro.drifting import DriftingBackend, scenario
from trimtab.run import run
from trimtab.sim.world import Models

pytest.importorskip("river")
pytest.importorskip("torchhd")
from trimtab.policies.adlro.drift import DriftPolicy, Stream, Tuned

pytestmark = pytest.mark.slow

MODELS = Models(startup_s=30.0, move_s=30.0)


def played(policy, of) -> np.ndarray:
    """The states of all jobs at the end."""
    backend = DriftingBackend(of.workload, of.cluster, of.told, of.true, of.change_s, MODELS)
    run(backend, policy)
    return np.array(backend.world.state[0])


def harmful():
    """The shipped network with its judgement reversed."""
    net = AdlroPolicy().net
    width = int(net.sizes[1])
    flat = net.flat.copy()
    flat[-width - 1 :] *= -1
    return net._replace(flat=flat, margin=0.0)


def promising(net, ratio_high, completion_s):
    """A tuner that gives this network and says that it is better."""

    def tune(old, profile, recent, seed) -> Future:
        done: Future = Future()
        done.set_result(Tuned(net, 0.5, ratio_high, np.array(completion_s)))
        return done

    return tune


def test_a_slow_down_is_noticed_in_six_runs_where_run_times_are_exact():
    stream = Stream()
    assert not any(stream.changed(0.0) for _ in range(100))
    after = [stream.changed(-math.log(0.7)) for _ in range(10)]
    assert after.index(True) == 5


def test_noise_alone_raises_no_alarm():
    stream = Stream()
    values = np.random.default_rng(3).normal(0.0, 0.7, 300)
    assert not any(stream.changed(value) for value in values.tolist())


def test_a_sequence_is_cut_where_its_level_changes():
    assert change_at([0.0] * 7 + [1.0] * 5) == 7
    assert change_at([0.0, 5.0]) == 0


def test_the_gpu_kind_that_slowed_is_named_and_its_speeds_are_learned():
    of = scenario("turing", seed=2, jobs=500, load=0.85, estimate="noisy")
    policy = DriftPolicy()
    played(policy, of)
    assert [(alarm.what, alarm.kind) for alarm in policy.alarms] == [("gpu-kind", 1)]
    assert policy.alarms[0].submitted > of.change_job
    # stops and moves measure the kinds of job that keep their progress; the third by requests alone
    assert policy.rate[:2] == pytest.approx(of.true.rate[:2], rel=0.02)
    assert policy.rate[2] == pytest.approx(of.true.rate[2], rel=0.05)


def test_a_new_kind_of_job_is_noticed_at_once_and_its_speeds_are_learned():
    of = scenario("new-class", seed=2, jobs=400, load=0.85, estimate="oracle")
    policy = DriftPolicy()
    played(policy, of)
    first = int(np.flatnonzero(of.workload.jobs["kind"] == 3)[0])
    assert policy.alarms[0][1:] == ("new-kind", 3, first + 1)
    assert policy.rate[3] == pytest.approx(of.true.rate[3], rel=0.05)


def test_nothing_is_decided_otherwise_while_nothing_changes():
    of = scenario("none", seed=2, jobs=300, load=0.85, estimate="noisy")
    policy = DriftPolicy()
    watched, alone = played(policy, of), played(AdlroPolicy(), of)
    assert policy.alarms == []
    assert (watched == alone).all()


def test_a_network_that_makes_it_worse_is_taken_back():
    of = scenario("new-class", seed=2, jobs=500, load=0.85, estimate="oracle")
    policy = DriftPolicy(
        tuner=promising(harmful(), 0.9, [900.0, 1000.0]), window=60, gather=20, ready_after_s=0.0
    )
    before = policy.policy.net
    state = played(policy, of)
    assert [change.what for change in policy.changes][:2] == ["adopted", "rolled back"]
    assert policy.policy.net is before
    assert (state["status"] == Status.FINISHED).all()


def test_a_network_that_keeps_its_promise_stays():
    of = scenario("new-class", seed=2, jobs=400, load=0.85, estimate="oracle")
    better = AdlroPolicy().net._replace(margin=0.11)
    tuner = promising(better, 0.9, [50_000.0, 60_000.0])
    policy = DriftPolicy(tuner=tuner, window=60, gather=20)
    played(policy, of)
    assert {change.what for change in policy.changes} == {"adopted"}
    assert policy.policy.net is better


def test_a_network_that_is_not_better_beyond_chance_is_not_used():
    of = scenario("new-class", seed=2, jobs=300, load=0.85, estimate="oracle")
    policy = DriftPolicy(tuner=promising(harmful(), 1.01, [900.0, 1000.0]), gather=20)
    before = policy.policy.net
    played(policy, of)
    assert [change.what for change in policy.changes] == ["not better"]
    assert policy.policy.net is before


def test_a_tuning_that_is_not_done_holds_nothing_up():
    of = scenario("new-class", seed=2, jobs=300, load=0.85, estimate="oracle")
    policy = DriftPolicy(tuner=lambda *given: Future(), gather=20)
    state = played(policy, of)
    assert (state["status"] == Status.FINISHED).all()
    assert policy.changes == []


def test_a_tuning_that_fails_is_told_and_harms_nothing():
    of = scenario("new-class", seed=2, jobs=200, load=0.85, estimate="oracle")
    failed: Future = Future()
    failed.set_exception(PolicyError("too few jobs"))
    policy = DriftPolicy(tuner=lambda *given: failed, gather=20)
    state = played(policy, of)
    assert (state["status"] == Status.FINISHED).all()
    assert [change.what for change in policy.changes] == ["tuning failed: too few jobs"]


def test_the_tuner_is_given_the_believed_speeds_and_the_recent_jobs():
    of = scenario("new-class", seed=2, jobs=400, load=0.85, estimate="noisy")
    given = []

    def tune(net, profile, recent, seed) -> Future:
        given.append((profile, recent))
        return Future()

    played(DriftPolicy(tuner=tune, gather=100, window=80), of)
    profile, recent = given[0]
    assert profile.rate[3] == pytest.approx(of.true.rate[3], rel=0.2)
    assert len(recent.jobs) == len(recent.work_s) == len(recent.demand) == 80
    rows = np.searchsorted(of.workload.jobs["submit_s"], recent.jobs["submit_s"])
    off = np.log(recent.work_s / of.workload.truth["work_s"][rows])
    # most have ended and are known by their run times, not by requests that are off by 0.7
    assert np.median(np.abs(off)) < 0.05


def test_other_speeds_move_the_expected_ends():
    of = scenario("turing", seed=2, jobs=100, load=0.85, estimate="oracle")
    shown = []

    class Watcher:
        def __init__(self) -> None:
            self.policy = AdlroPolicy()

        def decide(self, snapshot):
            on, true = snapshot.running, revised(snapshot, of.true.rate)
            turing = (
                snapshot.nodes["kind"][snapshot.pieces["node"][snapshot.runs["piece"][on]]] == 1
            )
            ahead_s = [seen.runs["expected_end_s"][on] - seen.runs["resume_s"][on]
                       for seen in (snapshot, true)]  # fmt: skip
            same = revised(snapshot, snapshot.profile.rate) is snapshot
            if turing.any() and not turing.all():
                shown.append((turing, *ahead_s, same))
            return self.policy.decide(snapshot)

    played(Watcher(), of)
    turing, was_s, now_s, same = shown[0]
    assert now_s == pytest.approx(np.where(turing, was_s / 0.7, was_s))
    assert same


def test_a_stop_or_move_tells_the_true_speed_and_a_request_only_as_well_as_it_was_made():
    of = scenario("turing", seed=2, jobs=300, load=0.85, estimate="noisy")
    ran = []

    class Watcher:
        def __init__(self) -> None:
            self.policy, self.stretches = AdlroPolicy(), Stretches()

        def decide(self, snapshot):
            ran.extend(self.stretches.seen(snapshot, snapshot.profile.rate))
            decisions = self.policy.decide(snapshot)
            self.stretches.decided(decisions, snapshot.now_s)
            return decisions

    played(Watcher(), of)
    before = [one for one in ran if one.end_s < of.change_s]
    kept = [one.off for one in before if one.source == KEPT]
    asked = [one.off for one in before if one.source == ASKED]
    assert kept == pytest.approx([0.0] * len(kept), abs=1e-6) and len(kept) > 20
    assert 0.4 < np.std(asked) < 1.0  # requests were drawn with 0.7
    late = [one for one in ran if one.source == KEPT and one.end_s > of.change_s]
    slow = [one.off for one in late if one.gpu == 1]
    # a stretch that was on its way at the change has run at both speeds
    assert max(slow) == pytest.approx(-math.log(0.7)) and min(slow) > 0
    assert [one.off for one in late if one.gpu != 1] == pytest.approx(
        [0.0] * (len(late) - len(slow)), abs=1e-6
    )


@pytest.mark.parametrize("wrong", [{"window": 1}, {"gather": -1}, {"ready_after_s": math.nan}])
def test_settings_that_make_no_sense_are_refused(wrong):
    with pytest.raises(PolicyError, match=f"{next(iter(wrong))}={next(iter(wrong.values()))}"):
        DriftPolicy(**wrong)
