"""Fine-tuning draws the recent jobs anew, is the same every time, and measures on other windows."""

import numpy as np
import pytest
from tests.nets import values_of

from trimtab.errors import PolicyError
from trimtab.policies.adlro.drift import Recent
from trimtab.policies.adlro.net import GUIDE
from trimtab.policies.adlro.pairs import WIDTH
from trimtab.policies.adlro.policy import AdlroPolicy
from trimtab.reproduce.adlro.drifting import scenario
from trimtab.sim.world import Models

torch = pytest.importorskip("torch")
from trimtab.policies.adlro.adapt import (  # noqa: E402
    at_once,
    compared,
    fine_tune,
    in_background,
    model_of,
    resampled,
)

MODELS = Models(startup_s=30.0, move_s=30.0)
SMALL = {
    "decisions": 60,
    "clusters": 8,
    "jobs": 30,
    "steps": 20,
    "windows": 4,
    "learning_rate": 1e-3,
}


@pytest.fixture(scope="module")
def of():
    return scenario("new-class", seed=5, jobs=300, load=0.85, estimate="noisy")


@pytest.fixture(scope="module")
def recent(of):
    rows = slice(180, 300)
    work = of.workload
    return Recent(work.jobs[rows], work.demand[rows], work.truth["work_s"][rows])


def test_drawn_jobs_are_recent_ones_at_their_rate(of, recent):
    made = resampled(recent, of.cluster, 4000, np.random.default_rng(0))
    assert set(made.jobs["request_s"]) <= set(recent.jobs["request_s"])
    work_of = dict(zip(recent.jobs["request_s"].tolist(), recent.work_s.tolist()))
    assert [work_of[asked] for asked in made.jobs["request_s"].tolist()] == pytest.approx(
        made.truth["work_s"].tolist()
    )
    share = np.mean(recent.jobs["kind"] == 3)
    assert np.mean(made.jobs["kind"] == 3) == pytest.approx(share, abs=0.05)
    gap_s = np.diff(recent.jobs["submit_s"]).mean()
    assert np.diff(made.jobs["submit_s"]).mean() == pytest.approx(gap_s, rel=0.1)
    assert (np.diff(made.jobs["submit_s"]) >= 0).all()


def test_the_torch_network_says_what_the_compiled_one_says():
    net = AdlroPolicy().net
    rows = np.random.default_rng(1).normal(size=(5, WIDTH)).astype(np.float32)
    with torch.no_grad():
        said = model_of(net, seed=0)(torch.from_numpy(rows)).numpy()[:, 0]
    assert said == pytest.approx(values_of(rows, net), rel=1e-4, abs=1e-5)


def test_the_same_seed_tunes_the_same_network_here_and_in_the_background(of, recent):
    net = AdlroPolicy().net
    given = (net, of.true, recent, 3)
    first = at_once(of.cluster, MODELS, **SMALL)(*given)
    assert first.done()
    second = in_background(of.cluster, MODELS, **SMALL)(*given).result(timeout=900)
    assert (first.result().net.flat == second.net.flat).all()
    assert first.result().ratio == second.ratio
    assert (first.result().net.flat != net.flat).any()
    assert len(second.completion_s) == SMALL["windows"]


def test_a_ratio_is_paired_by_window_and_its_interval_holds_it():
    old_s, new_s = np.array([100.0, 200.0, 400.0]), np.array([90.0, 180.0, 360.0])
    same = compared(old_s, new_s, GUIDE)
    assert (same.ratio, same.high) == pytest.approx((0.9, 0.9))
    # log ratios 0.2 and -0.2: mean 0, half width 12.706 * 0.2 (Student's t, 1 degree of freedom)
    wide = compared(np.ones(2), np.exp([0.2, -0.2]), GUIDE)
    assert wide.ratio == pytest.approx(1.0)
    assert wide.high == pytest.approx(np.exp(12.706 * 0.2), rel=1e-3)
    assert compared(np.ones(1), np.array([0.5]), GUIDE).high == np.inf


def test_what_cannot_be_tuned_says_why(of, recent):
    with pytest.raises(PolicyError, match="guiding rule alone"):
        fine_tune(GUIDE, of.true, of.cluster, recent, 0)
    few = Recent(*(column[:5] for column in recent))
    told = at_once(of.cluster, MODELS)(AdlroPolicy().net, of.true, few, 0).exception()
    assert "5 recent jobs" in str(told)
    with pytest.raises(PolicyError, match="5 recent jobs"):
        fine_tune(AdlroPolicy().net, of.true, of.cluster, few, 0)
