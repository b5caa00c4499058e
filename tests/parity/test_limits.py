"""Quotas and gates hold alike in the loop, the compiled run, the environments, a fake and Room."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.parity.test_fake import Restless, assert_same, seen_by
from tests.worlds import Logged, random_cluster, random_jobs, random_profile

from trimtab.codecs.grid import GridCodec
from trimtab.codecs.queue import QueueCodec
from trimtab.columns import quantised
from trimtab.core import Reject, Wait, What
from trimtab.envs.batched import BatchedEnv
from trimtab.envs.single import ClusterEnv
from trimtab.live.fake import FakeBackend
from trimtab.policies.rule import RulePolicy
from trimtab.rules.names import BACKFILLS, ORDERS
from trimtab.rules.room import Room
from trimtab.run import run
from trimtab.sim.backend import SimBackend, events_of
from trimtab.sim.whole import simulate
from trimtab.sim.world import Models, fitted, outages
from trimtab.site import GATE, Quotas

GATES = 3


def limited(seed, *, count=30, wild=True):
    """Random jobs in three groups with caps, on nodes of which some are reserved now and then."""
    rng = np.random.default_rng(seed)
    machine = random_cluster(rng)
    work, machine = fitted(random_jobs(rng, count=count, wild=wild), machine)
    member = rng.random((count, 3)) < 0.5
    nodes = np.where(work.jobs["gang"] == 1, work.jobs["instances"], 1).astype(float)
    each = np.where(work.jobs["gang"] == 1, work.jobs["instances"], 1)[:, None] * work.demand
    needs = np.column_stack((each, np.ones(count), nodes))
    cap = np.full((3, needs.shape[1]), np.inf)
    for q in range(3):
        column = int(rng.integers(needs.shape[1]))
        largest = needs[member[:, q], column].max(initial=1.0)  # each job alone stays within it
        cap[q, column] = quantised(largest * rng.choice([1.0, 1.5, 3.0]))
    ptr = np.concatenate(([0], np.cumsum(member.sum(axis=1))))
    names = ("qos long", "account physics", "array 7")
    quotas = Quotas(names, cap, ptr, np.nonzero(member)[1].astype(np.int64), nodes)
    gates = np.zeros(GATES, GATE)
    gates["from_s"] = rng.integers(0, 500, GATES)
    gates["to_s"] = gates["from_s"] + rng.integers(1, 200, GATES)
    gates["kinds"] = rng.integers(1, 4, GATES)
    reserved = np.where(rng.random(count) < 0.2, rng.integers(0, GATES, count), -1)
    return replace(work, quotas=quotas, reserved=reserved), replace(machine, gates=gates)


def models_of(seed, machine):
    rng = np.random.default_rng(seed)
    fails = outages(machine, 500.0, rng, mtbf_s=600.0, mttr_s=40.0)
    return Models(startup_s=float(rng.choice([0.0, 3.0])), retries=1, outages=fails)


def used_by(backend):
    """(Q, R + 2) what the running jobs hold of each quota, counted anew from the snapshot."""
    seen = backend.snapshot()
    used, quotas = np.zeros_like(seen.quota_used), seen.quotas
    for run_ in seen.runs[seen.running]:
        job, count = int(run_["job"]), int(run_["instances"])
        alone = 1 if seen.jobs["gang"][job] else count
        row = [*(count * seen.demand[job]), alone, alone * quotas.nodes[job]]
        for q in quotas.idx[quotas.ptr[job] : quotas.ptr[job + 1]]:
            used[q] += row
    return used


class Watched(Logged):
    """Checks after every instant and every decision that quotas hold."""

    def snapshot(self):
        seen = super().snapshot()
        assert (seen.quota_used <= seen.quotas.cap).all()
        return seen


class Patient(Restless):
    """Looks again later where it let a job wait, and rejects none."""

    def decide(self, snapshot):
        later = [Wait(snapshot.now_s + 25)] if len(snapshot.queue) else []
        made = super().decide(snapshot)
        return [*(one for one in made if not isinstance(one, Reject)), *later]


CASES = st.tuples(
    st.sampled_from([*ORDERS]), st.sampled_from([*BACKFILLS]), st.sampled_from(["first", "best"])
)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), CASES)
def test_the_compiled_run_is_the_stepped_run_and_keeps_to_the_quotas(seed, parts):
    work, machine = limited(seed)
    models, rule = models_of(seed, machine), "+".join(parts)
    stepped = Watched(work, machine, random_profile(), models)
    run(stepped, RulePolicy(rule))
    whole = simulate(work, machine, rule, profile=random_profile(), models=models, log=True)
    assert events_of(whole.log) == stepped.seen
    assert whole.totals == stepped.snapshot().totals
    assert stepped.total("refused") == 0  # a rule plans nothing that the engine refuses
    assert (stepped.snapshot().quota_used == 0).all()


@pytest.mark.parametrize("seed", range(4))
def test_what_is_used_is_what_the_running_jobs_hold(seed):
    work, machine = limited(seed)
    backend = SimBackend(work, machine, random_profile())
    policy = RulePolicy("fcfs+easy")
    while backend.wait() is not None:
        for decision in policy.decide(backend.snapshot()):
            backend.apply(decision)
        assert backend.snapshot().quota_used.tolist() == used_by(backend).tolist()


@pytest.mark.parametrize("rule", ["fcfs+easy", "sjf+conservative"])
@pytest.mark.parametrize("seed", range(5))
def test_nobody_starts_who_would_run_into_a_gate_of_others(rule, seed):
    work, machine = limited(seed, wild=False)
    whole = simulate(work, machine, rule, log=True)
    starts = [event for event in events_of(whole.log) if event.what == What.STARTED]
    assert len(starts) >= len(work)
    for event in starts:
        end_s = event.time_s + work.jobs["request_s"][event.job]
        for node in event.nodes:
            for g, gate in enumerate(machine.gates):
                if not int(gate["kinds"]) >> int(machine.nodes["kind"][node]) & 1:
                    continue
                if g == work.reserved[event.job]:
                    assert event.time_s >= gate["from_s"]
                else:
                    assert event.time_s >= gate["to_s"] or end_s <= gate["from_s"]


@pytest.mark.parametrize("seed", range(6))
def test_a_fake_without_lag_answers_as_the_simulator(seed):
    def make():
        work, machine = limited(seed)
        return SimBackend(work, machine, random_profile(), Models(startup_s=2.0))

    true = seen_by(make(), Patient(seed))
    fake = FakeBackend(make(), lag_s=0, late=0, lost=0)
    assert_same(true, seen_by(fake, Patient(seed)))


@pytest.mark.parametrize("codec", ["queue", "grid"])
@pytest.mark.parametrize("seed", range(3))
def test_the_loop_the_single_and_the_batched_environment_start_every_job_alike(codec, seed):
    work, machine = limited(seed, count=40, wild=False)
    jobs, window, first = 25, 25 if codec == "queue" else 6, 10
    given = dict(workload=work, cluster=machine, profile=random_profile(), jobs=jobs)
    env = ClusterEnv(**given, codec=codec, window=window)
    batched = BatchedEnv(3, **given, codec=codec, window=window)
    seen, _ = env.reset(options={"start": first})
    _, told = batched.reset(seed=1, options={"start": first})
    grid = GridCodec(len(machine), len(machine.resources), window, "best")
    made = QueueCodec(window, "best") if codec == "queue" else grid
    backend = SimBackend(work.window(first, jobs), machine, random_profile())
    begin_s = float(work.jobs["submit_s"][first])
    begun, ended = 0, False
    while backend.wait() is not None:
        while (mask := made.mask(snapshot := backend.snapshot()))[:-1].any():
            now_s = float(env.clusters.world.head[0]["now_s"])
            assert snapshot.now_s == pytest.approx(now_s + begin_s)
            np.testing.assert_array_equal(mask, seen["action_mask"])
            np.testing.assert_array_equal(told["action_mask"], np.tile(mask, (3, 1)))
            room = Room.of(snapshot)
            for i, job in enumerate(snapshot.queue[:window]):
                here = mask[:-1].reshape(window, -1)[i].any()
                assert bool(room.pick(int(job))) == here
            action = int(mask[:-1].nonzero()[0][-1])
            answers = [backend.apply(decision) for decision in made.decode(action, snapshot)]
            assert all(answer.what == What.PLACED for answer in answers)
            seen, _, ended, _, _ = env.step(action)
            _, _, over, _, told = batched.step(np.full(3, action))
            assert over.tolist() == [ended] * 3
            begun += 1
    assert ended and begun >= jobs
