"""A cluster behind slow and lossy wires: the same as the simulator without them, safe with them."""

from collections import Counter

import numpy as np
import pytest
from tests.worlds import random_cluster, random_jobs, random_profile

from trimtab.core import Event, Status, What, cluster, workload
from trimtab.live.fake import FakeBackend
from trimtab.live.ledger import Ledger
from trimtab.policies import named
from trimtab.run import run
from trimtab.sim.backend import SimBackend
from trimtab.sim.world import Models, outages

QUIET = {"lag_s": 0.0, "late": 0.0, "lost": 0.0}
RULES = [
    "fcfs",
    "fcfs+easy+best",
    "sjf+easy+fastest",
    "wfp3+easy+cosine",
    "edf+conservative",
    "drf+easy+dot",
    "srtf+easy",
    "las+easy+frag",
]
MOST_WAITS = 20_000


class Bounded(FakeBackend):
    """A fake cluster that raises instead of going on for ever."""

    waits = 0

    def wait(self):
        self.waits += 1
        assert self.waits < MOST_WAITS, "the run goes on for ever"
        return super().wait()


class Forgetful(Ledger):
    """What a backend without a ledger sees: only what has been reported."""

    def promise(self, decision):
        return Event(self.mirror.now_s, What.PLACED, decision.job, decision.nodes), decision


def scene(seed, *, fails=True, wild=True):
    rng = np.random.default_rng(seed)
    machine, jobs = random_cluster(rng), random_jobs(rng, wild=wild)
    down = outages(machine, 500.0, rng, mtbf_s=600.0, mttr_s=40.0) if fails else Models().outages
    models = Models(startup_s=float(rng.choice([0.0, 3.0])), retries=2, outages=down)
    return SimBackend(jobs, machine, random_profile(), models)


def told(backend, policy):
    """Everything that sinks hear, and what the queue, the books and the runs then look like."""
    events, views = [], []

    def sink(event, snapshot):
        events.append(event)
        runs = snapshot.runs[snapshot.running]
        columns = [
            runs[name].tolist() for name in ("job", "start_s", "expected_end_s", "instances")
        ]
        views.append(
            (
                snapshot.now_s,
                snapshot.queue.tolist(),
                sorted(zip(*columns, strict=True)),
                snapshot.free.tolist(),
                snapshot.gpu_free.tolist(),
                snapshot.gpu_mem_free.tolist(),
            )
        )

    run(backend, policy, [sink])
    return events, views


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("rule", RULES)
def test_without_lag_or_loss_the_fake_is_the_simulator_event_for_event(rule, seed):
    plain = told(scene(seed), named(rule, 7))
    faked = told(Bounded(scene(seed), **QUIET), named(rule, 7))
    assert faked[0] == plain[0]
    assert faked[1] == plain[1]
    assert len(plain[0]) > 100


def test_without_lag_or_loss_the_running_totals_are_the_simulators():
    true, fake = scene(4), Bounded(scene(4), **QUIET)
    run(true, named("fcfs+easy"))
    run(fake, named("fcfs+easy"))
    one, other = true.snapshot().totals, fake.snapshot().totals
    for name in ("submitted", "started", "finished", "stopped", "failed", "rejected", "late"):
        assert one[name] == other[name], name
    for name in ("time_s", "waiting_s", "system_s", "busy_s", "idle_s", "energy_j", "work_s"):
        assert one[name] == pytest.approx(other[name]), name


WIRES = {
    "late": {"lag_s": 5.0, "late": 0.5, "lost": 0.0},
    "lossy": {"lag_s": 5.0, "late": 0.2, "lost": 0.3},
    "slow": {"lag_s": 25.0, "late": 0.5, "late_s": 100.0, "lost": 0.1},
    "loses decisions": {"lag_s": 5.0, "late": 0.1, "lost": 0.1, "lost_decisions": 0.2},
    "loses nearly all": {"lag_s": 3.0, "late": 0.3, "lost": 0.9, "lost_decisions": 0.5},
}


def is_overbooking(reason):
    """A refusal because the place was taken already, by resource or by device."""
    return ": wants " in reason


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("wires", WIRES)
@pytest.mark.parametrize("rule", ["fcfs+easy+best", "sjf+conservative", "srtf+easy", "las+dot"])
def test_behind_bad_wires_every_job_ends_once_and_nothing_is_lost(rule, wires, seed):
    true = scene(seed)
    fake = Bounded(true, rng=np.random.default_rng(seed), **WIRES[wires])
    events, _ = told(fake, named(rule))
    final = true.world.state[0]["status"]
    assert (final >= Status.FINISHED).all()
    assert fake.snapshot().state["status"].tolist() == final.tolist()
    assert fake.snapshot().free.tolist() == fake.snapshot().capacity.tolist()
    assert not fake.ledger.promises
    ends = Counter(event.job for event in events if is_end(event))
    assert ends == Counter(range(len(final)))
    times = [event.time_s for event in events]
    assert times == sorted(times)


def is_end(event):
    by_user = event.what == What.STOPPED and event.reason == "cancelled"
    return event.job >= 0 and (event.what in (What.FINISHED, What.FAILED) or by_user)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("wires", WIRES)
@pytest.mark.parametrize("rule", ["fcfs+easy+best", "sjf+conservative"])
def test_the_ledger_never_books_a_place_twice(rule, wires, seed):
    fake = Bounded(scene(seed), rng=np.random.default_rng(seed), **WIRES[wires])
    run(fake, named(rule))
    assert [reason for reason in fake.refusals if is_overbooking(reason)] == []


def crowd(count=300):
    rng = np.random.default_rng(5)
    submit_s = np.sort(rng.uniform(0, 2000, count))
    jobs = workload(submit_s, rng.uniform(20, 200, count), rng.integers(1, 9, count))
    return SimBackend(jobs, cluster(np.full(6, 16.0)))


def test_the_same_cluster_refuses_often_without_a_ledger_and_never_with_one():
    counts = {}
    for ledger in (Ledger, Forgetful):
        true = crowd()
        fake = Bounded(true, rng=np.random.default_rng(1), ledger=ledger)
        run(fake, named("fcfs+easy"))
        assert (true.world.state[0]["status"] == Status.FINISHED).all()
        counts[ledger] = len(fake.refusals)
    print(counts)
    assert counts[Ledger] == 0
    assert counts[Forgetful] > 100


def test_jobs_whose_decision_was_lost_wait_again_and_finish():
    true = crowd(100)
    fake = Bounded(true, lost_decisions=0.3, rng=np.random.default_rng(2))
    run(fake, named("fcfs+easy"))
    assert fake.ledger.withdrawn > 10
    assert fake.refusals == []
    assert (true.world.state[0]["status"] == Status.FINISHED).all()


def test_a_policy_that_leaves_jobs_waiting_is_told_and_not_waited_for():
    class Idle:
        def decide(self, snapshot):
            return []

    from trimtab.errors import PolicyError

    with pytest.raises(PolicyError, match="left 100 jobs waiting"):
        run(Bounded(crowd(100)), Idle())
