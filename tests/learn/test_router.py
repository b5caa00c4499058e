"""Routers learn in seconds what a small fleet shows: the paper's by its weights, ours by search."""

import numpy as np
import pytest
import torch

from trimtab.errors import PolicyError
from trimtab.serving.net.serve_profile import modelled, save
from trimtab.serving.routing import arrivals, learned_router, routers
from trimtab.serving.routing.fleet_state import begin, fleets
from trimtab.serving.routing.greedy import Knobs
from trimtab.serving.training.router import train_router
from trimtab.serving.training.router_ppo import (
    SPEEDS,
    Ppo,
    PpoSettings,
)
from trimtab.serving.training.router_search import SearchSettings, search

PROFILE = modelled(hand_over_s=0.0)
QUICK = dict(updates=15, fleets=8, requests=120, explore_updates=8, learning_rate=3e-3)


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    torch.set_num_threads(1)


def after(weighting, **more):
    on = PpoSettings(**QUICK | more).weighted(weighting, PROFILE).check()
    learner = Ppo(PROFILE, on, 0)
    while learner.step < on.updates:
        learner.update()
    rules = routers.with_net(learner.rules, routers.HEADS, learner.mlp.net())
    return run(rules)


def run(rules):
    """Accuracy and latencies on arrivals that no learner saw."""
    made = fleets(
        PROFILE, 2, 300, speeds=SPEEDS, knobs=Knobs(idle_unload_s=np.inf), drop_late=False
    )
    rng = np.random.default_rng(99)
    begin(made, np.array([arrivals.poisson(300, 40.0, rng) for _ in range(2)]), np.inf, 7)
    routers.run(made, rules)
    latency_s = made.request["done_s"] - made.request["arrival_s"]
    return made.accuracy[made.request["widths"]].mean(), latency_s.mean()


def test_weights_on_latency_and_energy_lead_to_the_slimmest():
    right, latency_s = after("light")
    at_random = run(routers.rule(PROFILE, "random"))
    assert right < np.quantile(PROFILE.accuracy, 0.1)
    assert latency_s < 0.2 * at_random[1]


def test_balanced_weights_beat_random_in_accuracy_and_latency():
    right, latency_s = after("balanced", alpha=11.0, updates=40)
    at_random = run(routers.rule(PROFILE, "random"))
    assert right > at_random[0] and latency_s < at_random[1]


def test_a_step_of_search_moves_the_last_layer_and_repeats():
    on = SearchSettings(generations=1, pairs=1, fleets=2, requests=60)
    first, again = (next(search(PROFILE, on, 3)) for _ in range(2))
    assert np.abs(first.theta).max() > 0
    assert (first.theta == again.theta).all() and first.good == again.good


def test_training_goes_on_where_it_stopped(tmp_path):
    save(PROFILE, tmp_path / "profile.npz")
    given = dict(profile=str(tmp_path / "profile.npz"), kind="balanced", fleets=2, requests=40)
    whole = list(train_router(tmp_path / "a", updates=4, **given))
    list(train_router(tmp_path / "b", updates=2, **given))
    rest = list(train_router(tmp_path / "b", updates=4, **given))
    assert [told.step for told in whole] == [1, 2, 3, 4] and [told.step for told in rest] == [3, 4]
    assert rest[-1].loss == whole[-1].loss
    nets = [learned_router.read(tmp_path / name / "router.npz").net for name in "ab"]
    assert all((one == two).all() for one, two in zip(*nets))
    with pytest.raises(PolicyError, match="fleets=2, and now fleets=3"):
        list(train_router(tmp_path / "b", **{**given, "fleets": 3}))
    assert list(train_router(tmp_path / "b", updates=4, **given)) == []


def test_search_leaves_a_router_that_says_whether_it_wins(tmp_path, monkeypatch):
    monkeypatch.setattr("trimtab.serving.training.router_search.SCENES", (((1.0, 0.5), 0.1),))
    save(PROFILE, tmp_path / "profile.npz")
    told = list(
        train_router(tmp_path, profile=str(tmp_path / "profile.npz"), generations=1, pairs=1)
    )
    found = learned_router.read(tmp_path / "router.npz")
    assert [one.step for one in told] == [1] and found.kind == learned_router.AHEAD
    assert found.facts["wins"] == (found.facts["gain"] > 2 * found.facts["gain_error"])
