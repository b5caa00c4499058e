"""A lagging cluster is never booked twice; without lag it is the simulator, event for event."""

from collections import Counter

import numpy as np
import pytest

from trimtab.build import cluster, uniform_profile, workload
from trimtab.core import Move, Reject, Resize, Shape, Start, Status, Stop, Wait, What
from trimtab.errors import TrimtabError
from trimtab.live.fake import FakeBackend
from trimtab.live.ledger import Ledger
from trimtab.policies import named
from trimtab.rules.room import Room
from trimtab.run import run
from trimtab.sim.backend import SimBackend
from trimtab.sim.world import Models, outages
from trimtab.testing import small_cluster, small_workload
from trimtab.traces.scenes.presets import preset
from trimtab.traces.scenes.synthetic import generate

SHOWN = ("queue", "free", "gpu_free", "gpu_mem_free", "jobs", "demand", "state", "recent")
SAME_STATE = ("status", "left", "active", "start_s", "end_s", "kept_s", "attained_s", "tries")
ENDINGS = (What.FINISHED, What.FAILED, What.REJECTED)
LACKING = ("cpu", "mem_gb", "gpu", "gpu devices", "node")


def mixed_gpu(jobs=150, load=1.5):
    machine, profile = preset("mixed-gpu")
    return SimBackend(generate("mixed-gpu", seed=1, jobs=jobs, load=load), machine, profile)


def everything():
    """Gangs, arrays, shared GPUs, dependencies, cancellations, a service, failures, neighbours."""
    rng = np.random.default_rng(7)
    jobs, machine = 60, small_cluster()
    base = small_workload(jobs, gap_s=15.0, seed=7)
    after = [[int(rng.integers(row))] if row and rng.random() < 0.2 else [] for row in range(jobs)]
    cancel_s = np.where(rng.random(jobs) < 0.1, base.jobs["submit_s"] + 60.0, np.inf)
    service = np.zeros(jobs, int)
    service[0] = 1
    names = ("instances", "gang", "gpus", "gpu_share", "gpu_mem_gb", "checkpoint_s")
    made = workload(
        base.jobs["submit_s"],
        base.truth["work_s"],
        base.demand,
        resources=base.resources,
        request_s=base.jobs["request_s"],
        after=after,
        cancel_s=cancel_s,
        service=service,
        pattern=np.where(service, 0, -1),
        patterns=[[0.2, 0.8, 0.5]],
        pattern_step_s=40.0,
        shapes=3,
        **{name: base.jobs[name] for name in names},
    )
    shapes = (Shape(), Shape("half", scale=0.5))
    profile = uniform_profile(1, 2, shapes)
    profile.slow[:] = 0.1
    failing = outages(machine, 3000.0, rng, mtbf_s=700.0, mttr_s=60.0)
    models = Models(startup_s=2.0, move_s=3.0, outages=failing, retries=1000)
    return SimBackend(made, machine, profile, models)


class Restless:
    """Decides anything at random, also what is impossible."""

    def __init__(self, seed=0):
        self.rng = np.random.default_rng(seed)

    def decide(self, snapshot):
        rng, nodes = self.rng, len(snapshot.nodes)
        room = Room.of(snapshot)
        made = [Wait(snapshot.now_s + rng.integers(1, 30))] if rng.random() < 0.2 else []
        for job in snapshot.queue:
            picked = room.pick(job, rng.random(nodes))
            if picked and rng.random() < 0.9:
                made.append(room.start(job, picked))
        running = snapshot.runs["job"][snapshot.running].tolist()
        some = [*snapshot.queue.tolist(), *running, len(snapshot.jobs) + 1]
        for kind in (Start, Stop, Move, Resize, Reject):
            if rng.random() < 0.15:
                job = int(rng.choice(some))
                where = tuple(rng.integers(-1, nodes + 1, rng.integers(0, 4)).tolist())
                made.append(
                    {
                        Start: Start(job, where, int(rng.integers(3))),
                        Stop: Stop(int(rng.choice(running or some))),
                        Move: Move(job, where),
                        Resize: Resize(job, int(rng.integers(3))),
                        Reject: Reject(job) if rng.random() < 0.2 else Wait(),
                    }[kind]
                )
        return made


def seen_by(backend, policy):
    """Every event and answer, and what the snapshots after them show."""
    told, shown = [], []

    def sink(event, snapshot):
        told.append(event)
        running = snapshot.runs[snapshot.running]
        rows = [running[name].tolist() for name in ("job", "instances", "shape", "start_s")]
        state = [snapshot.state[name][snapshot.jobs["instances"] > 0] for name in SAME_STATE]
        tables = [getattr(snapshot, name) for name in SHOWN if name not in ("state", "recent")]
        shown.append((np.sort(np.array(rows), axis=1), *state, *(table.copy() for table in tables)))

    run(backend, policy, [sink])
    return told, shown, backend.snapshot()


def assert_same(true, fake):
    assert true[0] == fake[0]
    for i, (a, b) in enumerate(zip(true[1], fake[1], strict=True)):
        for one, two in zip(a, b, strict=True):
            assert one.tobytes() == two.tobytes(), f"after {true[0][i]}"
    for name in true[2].totals.dtype.names:
        if name not in ("started", "stopped", "work_s", "lost_s", "quality"):
            assert fake[2].totals[name] == pytest.approx(true[2].totals[name]), name
    assert np.allclose(true[2].recent, fake[2].recent)


@pytest.mark.parametrize("make", [mixed_gpu, everything])
@pytest.mark.parametrize("name", ["fcfs+easy", "wfp3+easy+cosine", "drf+frag", "srtf"])
def test_without_lag_a_rule_sees_and_does_what_it_does_in_the_simulator(make, name):
    true = seen_by(make(), named(name))
    assert_same(true, seen_by(FakeBackend(make(), lag_s=0, late=0, lost=0), named(name)))


@pytest.mark.parametrize("name", ["srtf", "las+cosine"])
def test_without_lag_a_preempting_rule_does_what_it_does_in_the_simulator(name):
    true = seen_by(mixed_gpu(400, 0.9), named(name))
    assert any(event.what == What.STOPPED for event in true[0])
    fake = FakeBackend(mixed_gpu(400, 0.9), lag_s=0, late=0, lost=0)
    assert_same(true, seen_by(fake, named(name)))


@pytest.mark.parametrize("seed", range(6))
def test_without_lag_every_answer_is_the_simulators_also_to_the_impossible(seed):
    true = seen_by(everything(), Restless(seed))
    kinds = {event.what for event in true[0]}
    assert kinds >= {What.REFUSED, What.STOPPED, What.STARTED, What.PLACED, What.FAILED}
    assert_same(true, seen_by(FakeBackend(everything(), lag_s=0, late=0, lost=0), Restless(seed)))


def busy(jobs=600):
    """Short jobs on a small cluster that is full most of the time."""
    rng = np.random.default_rng(3)
    made = workload(
        np.sort(rng.uniform(0, jobs * 2.0, jobs)),
        rng.uniform(5, 60, jobs),
        np.stack([rng.integers(1, 5, jobs), rng.integers(1, 9, jobs)], axis=1),
        resources=("cpu", "mem_gb"),
        checkpoint_s=0.0,
    )
    machine = cluster(np.tile([8, 16], (6, 1)), resources=("cpu", "mem_gb"))
    return SimBackend(made, machine)


class Forgetful(Ledger):
    """A ledger that checks what it is asked and keeps no promise of it."""

    def promise(self, decision, now_s):
        answer = super().promise(decision, now_s)
        if answer.what != What.REFUSED:
            del self.promises[decision.job]
            self._show(decision.job)
        return answer


def lagging(true, name, **params):
    """Run to the end; returns the fake and all events that wait() told."""
    fake = FakeBackend(true, rng=np.random.default_rng(5), **params)
    told, policy = [], named(name)
    run(Listened(fake, told), policy)
    return fake, told


class Listened:
    """A backend whose wait() is written down."""

    def __init__(self, backend, told):
        self.backend, self.told, self.can = backend, told, backend.can
        self.snapshot, self.apply, self.close = backend.snapshot, backend.apply, backend.close

    def wait(self):
        events = self.backend.wait()
        self.told += events or []
        return events


def overbookings(fake):
    """Refusals by the true cluster for lack of room."""
    return [one for one in fake.refusals if one.reason.split(":")[0] in LACKING]


def assert_all_ended_once(fake, told):
    ends = Counter(event.job for event in told if event.what in ENDINGS)
    assert ends == Counter(range(len(fake.true.workload)))
    submitted = Counter(event.job for event in told if event.what == What.SUBMITTED)
    assert submitted == Counter(range(len(fake.true.workload)))
    times = [event.time_s for event in told]
    assert times == sorted(times)
    true, seen = fake.true.snapshot(), fake.snapshot()
    assert (true.state["status"] == Status.FINISHED).all()
    for name in ("status", "start_s", "end_s", "attained_s"):
        assert seen.state[name].tobytes() == true.state[name].tobytes()
    assert np.array_equal(seen.free, seen.capacity)
    assert not fake.ledger.promises


LAGS = [
    {},
    {"late": 1.0, "late_s": 20.0},
    {"late": 0.5, "lost": 0.3},
    {"late": 0.5, "lost": 0.3, "numbered": False},
    {"lag_s": 0.0, "late": 1.0, "lost": 0.1},
    {"lag_s": 50.0, "lost": 0.1},
]


@pytest.mark.parametrize("make", [busy, mixed_gpu])
@pytest.mark.parametrize("params", LAGS, ids=str)
def test_with_lag_and_loss_every_job_ends_once_and_nothing_is_refused(make, params):
    fake, told = lagging(make(150), "fcfs+easy", **params)
    assert fake.refusals == []
    assert fake.lost_reports > 0 or params.get("lost") is None
    assert_all_ended_once(fake, told)


@pytest.mark.parametrize("make", [busy, mixed_gpu])
@pytest.mark.parametrize("params", LAGS, ids=str)
def test_with_lag_and_loss_the_hierarchys_workers_finish_all_jobs(make, params):
    fake, told = lagging(make(150), "hierarchy", **params)
    assert fake.refusals == []
    assert_all_ended_once(fake, told)


@pytest.mark.parametrize("params", LAGS, ids=str)
def test_with_lag_and_loss_a_preempting_rule_never_overbooks(params):
    fake, told = lagging(busy(300), "srtf", **params)
    assert any(event.what == What.STOPPED for event in told)
    assert overbookings(fake) == []
    assert_all_ended_once(fake, told)


@pytest.mark.parametrize("name", ["fcfs+easy", "srtf"])
@pytest.mark.parametrize("numbered", [True, False])
def test_a_decision_lost_on_its_way_returns_the_job_to_the_queue(name, numbered):
    fake, told = lagging(busy(300), name, dropped=0.2, lost=0.2, late=0.5, numbered=numbered)
    assert fake.lost_decisions > 30
    withdrawn = [one for one in told if one.what == What.REFUSED and "withdrawn" in one.reason]
    assert len(withdrawn) == fake.ledger.withdrawn > 0
    assert overbookings(fake) == []
    assert_all_ended_once(fake, told)


def test_without_the_ledger_a_lagging_cluster_refuses_thousands():
    without, _ = lagging(busy(), "fcfs+easy", ledger=Forgetful)
    kept, _ = lagging(busy(), "fcfs+easy")
    assert len(without.refusals) > 2000
    assert len(overbookings(without)) > 100
    assert len(kept.refusals) == 0


def test_jobs_that_are_left_waiting_end_the_run_with_an_error_not_a_hang():
    class Idle:
        def decide(self, snapshot):
            return []

    with pytest.raises(TrimtabError, match="left 20 jobs waiting"):
        run(FakeBackend(busy(20), lost=0.5), Idle())


def test_patience_shorter_than_the_lag_is_refused_with_the_remedy():
    with pytest.raises(TrimtabError, match="give patience_s more"):
        FakeBackend(busy(5), lag_s=60.0, patience_s=60.0)


def test_it_can_do_what_the_true_cluster_can_and_refuses_the_rest():
    true = busy(5)
    true.can = frozenset({Start, Wait})
    fake = FakeBackend(true, lag_s=0, late=0, lost=0)
    fake.wait()
    answer = fake.apply(Reject(0))
    assert (answer.what, answer.reason) == (What.REFUSED, "backend: cannot Reject")
