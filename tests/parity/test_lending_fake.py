"""A lagging cluster that lends: the same as the simulator without lag, and all ends with it."""

from collections import Counter

import numpy as np
import pytest
from tests.parity.test_fake import ENDINGS, LAGS, lagging, overbookings
from tests.worlds import lending_scene

from trimtab.core import Limit, Status, What
from trimtab.live.fake import FakeBackend
from trimtab.policies import named
from trimtab.run import run
from trimtab.sim.backend import SimBackend
from trimtab.traces.scenes.scene import open_scene

SHOWN = ("queue", "free", "limit", "margin", "patience_s", "overstay", "taper", "ahead")


def minutes(seed=3, load=1.1):
    """One minute of arrivals on eight machines."""
    scene = open_scene(f"colocated:machines=8,regions=2,span_s=60,load={load}", seed=seed)
    return SimBackend(scene.workload, scene.cluster, scene.profile)


def drawn():
    return SimBackend(*lending_scene(np.random.default_rng(4)))


def seen_by(backend, name):
    """Every event and answer, and what a policy sees of lending after each."""
    told, shown = [], []

    def sink(event, snapshot):
        told.append(event)
        shown.append([np.array(getattr(snapshot, table)) for table in SHOWN])

    run(backend, named(name), [sink])
    return told, shown


@pytest.mark.parametrize("make", [minutes, drawn])
@pytest.mark.parametrize("name", ["hierarchy", "smallest-area+greedy+swift+p95@0.9"])
def test_without_lag_a_policy_sees_and_does_what_it_does_in_the_simulator(make, name):
    told, shown = seen_by(make(), name)
    fake = FakeBackend(make(), lag_s=0, late=0, lost=0)
    fake_told, fake_shown = seen_by(fake, name)
    assert told == fake_told and fake.refusals == []
    for one, two in zip(shown, fake_shown, strict=True):
        for name, mine, theirs in zip(SHOWN, one, two):
            assert mine.tobytes() == theirs.tobytes(), name


@pytest.mark.parametrize("params", LAGS, ids=str)
def test_with_lag_and_loss_the_hierarchy_finishes_all_batch_jobs(params):
    true = minutes()
    batch = np.flatnonzero(true.workload.truth["service"] == 0)
    fake, told = lagging(true, "hierarchy", **params)
    ends = Counter(event.job for event in told if event.what in ENDINGS)
    assert ends == Counter(batch.tolist())
    assert any(event.what == What.STARTED for event in told)
    for seen in (true.snapshot(), fake.snapshot()):
        assert (seen.state["status"][batch] == Status.FINISHED).all()
        assert seen.estimate == "encoder" and len(seen.limit) == 2
    assert not fake.ledger.promises
    # room is refused where services took it meanwhile, and never twice over
    assert len(overbookings(fake)) < len(batch) / 10


def test_an_eviction_is_heard_of_late_and_the_job_ends_all_the_same():
    true = minutes(seed=1, load=1.3)
    fake, told = lagging(true, "smallest-area+greedy+swift+now@1.1")
    batch = true.workload.truth["service"] == 0
    assert true.snapshot().totals["evicted"] > 0
    assert any(event.what == What.STOPPED for event in told)
    assert (fake.snapshot().state["status"][batch] == Status.FINISHED).all()


def test_a_limit_shows_at_once_and_is_heard_after_the_lag():
    true = drawn()
    fake = FakeBackend(true, lag_s=5.0, late=0, lost=0)
    fake.wait()
    before = fake.snapshot().limit.tolist()
    answer = fake.apply(Limit(0.5, 1, "peak", 1.5, 20.0, 2.0, 0.01))
    shown = fake.snapshot()
    assert answer.what == What.PLACED and shown.limit.tolist() == [before[0], 0.5]
    assert (shown.margin[1], shown.patience_s[1], shown.estimate) == (1.5, 20.0, "peak")
    assert (shown.overstay[1], shown.taper[1]) == (2.0, 0.01)
    assert true.snapshot().limit.tolist() == before
    asked_s = fake.now_s
    while fake.now_s < asked_s + 5.0:
        fake.wait()
    assert true.snapshot().limit.tolist() == [before[0], 0.5]
    refused = fake.apply(Limit(0.5, 2))
    assert (refused.what, refused.reason) == (What.REFUSED, "limit: there is no region 2")
