"""Goals are told from acts where acts follow them, and from nothing where they do not."""

import math

import numpy as np
import pytest

from trimtab.policies.hierarchy.alignment import (
    ACTION,
    STATE,
    Acts,
    acts_of,
    crossed,
    fitted,
    joined,
    judged,
    play,
    reading,
)
from trimtab.policies.hierarchy.goals import GOALS, NAMES
from trimtab.policies.hierarchy.stage import staged
from trimtab.policies.hierarchy.weights import read_orders
from trimtab.rules.world import LOG

SMALL = "colocated:span_s=900"
FEATURES = len(STATE) + len(ACTION)


def made_up(seed, by, count=600):
    """Acts of which one number follows the goal by so much."""
    rng = np.random.default_rng(seed)
    feature, goal = rng.normal(size=(count, FEATURES)), rng.integers(0, len(NAMES), count)
    feature[:, 3] += by * goal
    return Acts(feature, goal)


def test_a_goal_that_shows_is_told_and_one_that_does_not_is_guessed():
    plain = judged(fitted(made_up(0, 3.0)), made_up(1, 3.0))
    assert plain.accuracy > 0.7 and plain.cross_entropy < 0.8
    assert plain.table.sum() == 600 and (plain.table.diagonal() > 0.4 * plain.table.sum(1)).all()
    hidden = judged(fitted(made_up(0, 0.0)), made_up(1, 0.0))
    assert hidden.accuracy < 0.3
    assert hidden.cross_entropy == pytest.approx(math.log(len(NAMES)), abs=0.1)


def test_the_fit_is_where_the_slope_is_none():
    acts = made_up(2, 1.0)
    model = fitted(acts)
    x = np.concatenate(((acts.feature - model.mean) / model.scale, np.ones((600, 1))), axis=1)
    slope = x.T @ (model.chances(acts.feature) - np.eye(len(NAMES))[acts.goal]) / 600
    assert slope + 1e-2 * model.weight == pytest.approx(np.zeros_like(slope), abs=1e-6)


def test_nothing_seen_is_guessing():
    none = Acts(np.zeros((0, FEATURES)), np.zeros(0, np.int64))
    assert judged(fitted(none), none).cross_entropy == pytest.approx(math.log(len(NAMES)))
    assert crossed([none, none]) == pytest.approx(math.log(len(NAMES)))
    assert len(joined([none, made_up(0, 1.0)]).goal) == 600


@pytest.fixture(scope="module")
def scene():
    return staged(SMALL, "train", 3, 16)


def test_scenes_are_played_alike_by_seed_and_acts_add_up(scene):
    one, again, other = (play(scene, read_orders(), np.random.default_rng(s)) for s in (1, 1, 2))
    assert one.cost == again.cost and (one.acts.feature == again.acts.feature).all()
    assert len(other.acts.goal) != len(one.acts.goal) or (other.acts.goal != one.acts.goal).any()
    assert set(one.acts.goal) == set(range(len(GOALS)))
    assert np.isfinite(one.acts.feature).all()
    names = [*STATE, *ACTION]
    regions = len(scene.cluster.regions)
    drawn = one.acts.feature[:, names.index("drawn")].reshape(-1, regions)
    idle = one.acts.feature[:, names.index("none")].reshape(-1, regions).all(1)
    assert drawn[~idle].sum(1) == pytest.approx(0.0, abs=1e-9)  # shares of what began
    admitted = one.acts.feature[:, names.index("admitted")].reshape(-1, regions).sum(1)
    assert (admitted <= 1 + 1e-9).all() and admitted.max() > 0.1


def test_an_act_that_no_look_saw_is_not_counted(scene):
    empty = acts_of(scene, np.zeros(0, LOG), [], [])
    assert empty.feature.shape == (0, FEATURES)


def test_the_goals_that_stand_are_told_better_than_chance():
    found = reading(SMALL, read_orders(), scenes=4, held=2, machines=16)
    assert found.accuracy > found.majority + 0.05 and found.cross_entropy < math.log(len(NAMES))
    told = found.told()
    assert sum(sum(row.values()) for row in told["table"].values()) == found.table.sum()
    assert "cross-entropy" in found.line()
