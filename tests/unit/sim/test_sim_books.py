"""Whatever a policy decides, the books balance: capacity, ends, energy, refusals."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.worlds import Logged, random_cluster, random_jobs, random_profile

from trimtab.columns import quantised
from trimtab.core import Move, Reject, Resize, Shape, Start, Status, Stop, Wait, What
from trimtab.policies.rule import RulePolicy
from trimtab.sim.world import Models, outages

EXAMPLES = settings(max_examples=60, derandomize=True, deadline=None)
CHAOS = 40  # instants at which the policy decides at random; then it lets the cluster run empty
RUBBISH = (-1, -7, 10**6, 2**40, 2**63, 2**64 - 1, 2**80, -(2**70), None, "x", 0.5)


class Chaos:
    """Decisions of every kind, sensible or not, fixed by a seed."""

    name = "chaos"

    def __init__(self, seed, jobs, nodes):
        self.rng = np.random.default_rng(seed)
        self.jobs, self.nodes = jobs, nodes
        self.rule = RulePolicy("fcfs")
        self.instants = 0

    def one_of(self, count):
        if self.rng.random() < 0.1:
            return RUBBISH[self.rng.integers(len(RUBBISH))]
        return int(self.rng.integers(count))

    def decide(self, seen):
        self.instants += 1
        if self.instants > CHAOS:
            decisions = self.rule.decide(seen)
            nothing_runs = not len(seen.running) and not any(
                isinstance(d, Start) for d in decisions
            )
            return decisions + [Reject(int(job)) for job in seen.queue if nothing_runs]
        drawn = [self.draw(seen) for _ in range(self.rng.integers(1, 6))]
        return [*drawn, Wait(seen.now_s + 20.0)]  # or nothing might ever happen again

    def draw(self, seen):
        rng = self.rng
        kind = rng.integers(10)
        running = seen.runs["job"][seen.running]
        job = self.one_of(self.jobs)
        if kind < 5 and len(seen.queue):
            job = int(rng.choice(seen.queue)) if rng.random() < 0.9 else job
            asked = (
                int(seen.state["left"][job]) if isinstance(job, int) and 0 <= job < self.jobs else 1
            )
            nodes = tuple(
                self.one_of(self.nodes)
                for _ in range(asked if rng.random() < 0.8 else rng.integers(5))
            )
            devices = () if rng.random() < 0.8 else tuple(self.one_of(16) for _ in nodes)
            return Start(job, nodes, self.one_of(3) if rng.random() < 0.3 else 0, devices)
        if len(running) and rng.random() < 0.9:
            job = int(rng.choice(running))
        if kind == 5:
            return Stop(job)
        if kind == 6:
            return Reject(
                job if rng.random() < 0.5 or not len(seen.queue) else int(rng.choice(seen.queue))
            )
        if kind == 7:
            return Wait(rng.choice([seen.now_s + rng.integers(0, 30), -1.0, np.nan, np.inf]))
        if kind == 8:
            return Resize(job, self.one_of(3))
        return Move(job, tuple(self.one_of(self.nodes) for _ in range(rng.integers(1, 4))))


def shaped_profile():
    """Three shapes, one of them no binary fraction; neighbours disturb."""
    plain = random_profile()
    shapes = (Shape(), Shape("half", scale=0.5), Shape("odd", scale=1.1))
    rate = plain.rate * np.array([1.0, 0.5, 1.05])
    return replace(plain, rate=rate, shapes=shapes, quality=np.ones((2, 3)))


def world(seed):
    rng = np.random.default_rng(seed)
    machine, jobs = (
        random_cluster(rng, nodes=int(rng.integers(2, 6))),
        random_jobs(rng, count=25, span_s=200),
    )
    jobs.jobs["shapes"] = rng.choice([1, 3, 7], len(jobs))
    models = Models(
        startup_s=float(rng.choice([0.0, 2.0])),
        move_s=float(rng.choice([0.0, 5.0])),
        kill_at_request=bool(rng.integers(2)),
        retries=int(rng.integers(3)),
        outages=outages(machine, 400.0, rng, mtbf_s=300.0, mttr_s=40.0),
    )
    return Logged(jobs, machine, shaped_profile(), models)


def check_amounts(seen):
    """What is free is capacity less the pieces, to the last bit, and nothing is below 0."""
    free = np.array(seen.capacity)
    has = np.arange(seen.gpu_free.shape[1]) < seen.nodes["gpus"][:, None]
    gpu_free, gpu_mem = has * 1.0, has * seen.nodes["gpu_mem_gb"][:, None]
    active = np.zeros(len(seen.jobs), int)
    pieces = np.zeros(len(seen.nodes), int)
    for one in seen.running:
        run, piece = seen.runs[one], int(seen.runs["piece"][one])
        job, scale = int(run["job"]), seen.profile.shapes[int(run["shape"])].scale
        instances = 0
        while piece >= 0:
            part = seen.pieces[piece]
            node, count, mask = int(part["node"]), int(part["count"]), int(part["devices"])
            free[node] -= count * quantised(seen.demand[job] * scale)
            for d in range(seen.gpu_free.shape[1]):
                if (mask >> d) & 1:
                    gpu_free[node, d] -= count * seen.jobs["gpu_share"][job]
                    gpu_mem[node, d] -= count * seen.jobs["gpu_mem_gb"][job]
            assert mask.bit_count() == int(seen.jobs["gpus"][job] * scale)
            assert seen.node_state["up"][node]
            instances += count
            pieces[node] += 1
            piece = int(part["next"])
        assert instances == run["instances"]
        active[job] += instances
    assert (free == seen.free).all() and (free >= 0).all()
    assert (gpu_free == seen.gpu_free).all() and (gpu_free >= 0).all()
    assert (gpu_mem == seen.gpu_mem_free).all() and (gpu_mem >= 0).all()
    assert (active == seen.state["active"]).all()
    assert (pieces == seen.node_state["pieces"]).all()
    gangs = (active > 0) & (seen.jobs["gang"] == 1)
    assert (active == seen.jobs["instances"])[gangs].all() and not seen.state["left"][gangs].any()
    assert (
        sorted(seen.queue.tolist())
        == np.flatnonzero(seen.state["status"] == Status.QUEUED).tolist()
    )


def frozen_bytes(backend):
    """All that a refusal must leave alone."""
    w = backend.world
    rest = w.totals.copy()
    rest["refused"] = 0
    arrays = (
        w.free,
        w.gpu_free,
        w.gpu_mem,
        w.state,
        w.node_state,
        w.runs["job"],
        w.runs["end_s"],
        w.words,
        rest,
    )
    head = [
        int(w.head[0][name])
        for name in ("waiting", "active", "heap", "idle", "free_runs", "free_pieces", "log")
    ]
    return (
        [np.ascontiguousarray(part).tobytes() for part in arrays],
        head,
        float(w.head[0]["alarm_s"]),
    )


def drive(backend, policy):
    """Run to the end with every promise checked on the way; returns (accepted, refused)."""
    accepted = refused = 0
    while backend.wait() is not None:
        assert backend.instants < 3000
        check_amounts(backend.snapshot())
        for decision in policy.decide(backend.snapshot()):
            backend._make_room(8)  # so that growing is no change
            before = frozen_bytes(backend)
            answer = backend.apply(decision)
            if answer.what == What.REFUSED:
                refused += 1
                assert answer.reason
                assert frozen_bytes(backend) == before
            else:
                accepted += 1
        check_amounts(backend.snapshot())
    return accepted, refused


@EXAMPLES
@given(seed=st.integers(0, 2**32))
def test_the_books_balance_whatever_is_decided(seed):
    backend = world(seed)
    accepted, refused = drive(backend, Chaos(seed, len(backend.workload), len(backend.cluster)))
    assert accepted > 0 and backend.total("refused") == refused
    seen = backend.snapshot()
    ends = dict.fromkeys(range(len(backend.workload)), 0)
    for event in backend.seen:
        if event.job >= 0 and (
            event.what in (What.FINISHED, What.REJECTED, What.FAILED) or event.reason == "cancelled"
        ):
            ends[event.job] += 1
    assert set(ends.values()) == {1}
    assert (seen.state["status"] >= Status.FINISHED).all() and not np.isnan(
        seen.state["end_s"]
    ).any()
    assert (seen.free == seen.capacity).all()
    assert (
        seen.gpu_free == (np.arange(seen.gpu_free.shape[1]) < seen.nodes["gpus"][:, None])
    ).all()
    assert not seen.node_state["load"].any() and not len(seen.running) and not len(seen.queue)
    counts = np.bincount(seen.state["status"], minlength=8)
    assert counts[Status.FINISHED] == backend.total("finished")
    assert counts[Status.FAILED] == backend.total("failed")
    assert counts[Status.REJECTED] == backend.total("rejected")


@EXAMPLES
@given(seed=st.integers(0, 2**32))
def test_energy_and_work_add_up_whatever_is_decided(seed):
    backend = world(seed)
    policy = Chaos(seed, len(backend.workload), len(backend.cluster))
    energy_j = busy_s = 0.0
    power_w, load = None, None
    first_s = before_s = float(backend.workload.jobs["submit_s"].min())
    while backend.wait() is not None:
        now_s = max(backend.snapshot().now_s, first_s)
        if power_w is None:  # nothing was on the nodes before the first instant
            power_w, load = float(backend.cluster.nodes["idle_w"].sum()), 0.0
        energy_j += power_w * (now_s - before_s)
        busy_s += load * (now_s - before_s)
        for decision in policy.decide(backend.snapshot()):
            backend.apply(decision)
        seen = backend.snapshot()
        power_w, load, before_s = (
            float(seen.node_state["power_w"].sum()),
            float(seen.node_state["load"].sum()),
            now_s,
        )
        dynamic = (seen.nodes["peak_w"] - seen.nodes["idle_w"]) * np.clip(
            seen.node_state["draw"], 0, 1
        )
        expected_w = (seen.nodes["idle_w"] + dynamic) * seen.node_state["up"]
        assert seen.node_state["power_w"] == pytest.approx(expected_w)
    totals, nodes = backend.snapshot().totals, backend.snapshot().node_state
    assert totals["energy_j"] == pytest.approx(energy_j, rel=1e-9)
    assert nodes["energy_j"].sum() == pytest.approx(totals["energy_j"], rel=1e-9)
    assert nodes["load_s"].sum() == pytest.approx(totals["busy_s"], rel=1e-9, abs=1e-9)
    assert totals["busy_s"] == pytest.approx(busy_s, rel=1e-9, abs=1e-9)
    done = backend.snapshot().state["status"] == Status.FINISHED
    least_s = (backend.workload.truth["work_s"] * backend.workload.jobs["instances"])[done].sum()
    assert totals["work_s"] >= least_s - 1e-6 and totals["lost_s"] >= 0


@EXAMPLES
@given(seed=st.integers(0, 2**32))
def test_one_seed_has_one_outcome(seed):
    logs = []
    for _ in range(2):
        backend = world(seed)
        drive(backend, Chaos(seed, len(backend.workload), len(backend.cluster)))
        logs.append(backend.seen)
    assert logs[0] == logs[1]
