"""Small managers: what they say, what they gain, and how they are searched for, on tiny scenes."""

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from trimtab.errors import PolicyError
from trimtab.policies.hierarchy.goals import GOALS, KEEP, NAMES
from trimtab.policies.hierarchy.manager import read_manager, write_manager
from trimtab.policies.hierarchy.managers.foresight import foreseen
from trimtab.policies.hierarchy.managers.gradient import Play, chances, slope_of
from trimtab.policies.hierarchy.managers.linear import (
    AT,
    COLUMNS,
    SEEN,
    Scale,
    linear,
    rows,
    scale_of,
    steady,
)
from trimtab.policies.hierarchy.managers.priced import SHIFTS, Frontier, frontier, managed, under
from trimtab.policies.hierarchy.managers.settings import Settings
from trimtab.policies.hierarchy.managers.walk import outcome, walked
from trimtab.policies.hierarchy.managing import rolled, train_manager
from trimtab.policies.hierarchy.sight import MACHINE, REGION, Sight
from trimtab.policies.hierarchy.stage import FLOOR, Drawn
from trimtab.policies.hierarchy.steering import Steering
from trimtab.policies.hierarchy.weights import read_orders

SCENE = Drawn("colocated:span_s=600", "train", 5, 12)
TINY = {"trace": "colocated:span_s=600", "machines": 12, "scenes": 2, "of": 2, "judges": 2,
        "population": 4, "plays": 2, "workers": 1}  # fmt: skip


def test_what_a_small_manager_says_is_a_straight_line_of_what_is_seen():
    rng = np.random.default_rng(0)
    sight = Sight(
        rng.random((7, len(MACHINE))), rng.random((3, len(REGION))),
        np.array([0, 0, 1, 1, 2, 2, 2]), np.full((3, 3), 0.5),
    )  # fmt: skip
    weights = rng.normal(size=(1 + len(SEEN), len(GOALS) - 1))
    scale = Scale(rng.random(len(SEEN)), 0.1 + rng.random(len(SEEN)))
    said = linear(weights, scale, 0.0, {}).worth(sight)
    x = np.concatenate((np.ones((3, 1)), (rows(sight) - scale.mean) / scale.spread), 1)
    assert said[:, 1:] == pytest.approx(x @ weights) and not said[:, KEEP].any()
    assert [COLUMNS[at] for at in AT] == list(SEEN)


def test_a_steady_manager_follows_its_goal_and_a_walk_plays_alike():
    stage, orders = SCENE.stage(), read_orders()
    count, favour = len(stage.cluster.regions), NAMES.index("favour")
    plain, steadily = stage.played(orders), under(SCENE, orders, steady(favour))
    assert stage.played(orders, steady(KEEP)) == under(SCENE, orders, steady(KEEP)) == plain
    assert outcome(stage, walked(stage, orders, 60.0, lambda _: [KEEP] * count)) == plain
    by_hand = outcome(stage, walked(stage, orders, 60.0, lambda _: [favour] * count))
    assert steadily == by_hand
    assert steadily[1] < plain[1]  # lends less to what may not last


def test_foresight_keeps_where_every_goal_is_to_keep_and_gains_where_they_differ():
    stage, orders = SCENE.stage(), read_orders()
    plain = stage.played(orders)
    found = foreseen(stage, orders, 120.0, 0.1)
    assert found.plain == plain and found.best != plain
    assert sum(found.share) == pytest.approx(1.0) and 0 < found.share[KEEP] < 1
    alike = tuple(GOALS[KEEP]._replace(name=name) for name in NAMES)
    none = foreseen(stage, replace(orders, goals=alike), 120.0, 0.1)
    assert none.best == plain and none.share[KEEP] == 1.0


def made_up():
    """Cost falls by 0.1 a limit, harm doubles; scenes differ by what they cost."""
    rise, scenes = np.arange(len(SHIFTS))[:, None], np.array([[0.0, 0.5, 1.0]])
    harm = (0.01 + FLOOR) * 2.0**rise - FLOOR + 0.0 * scenes
    return Frontier(1.0 - 0.1 * rise + scenes, harm)


def test_to_wait_longer_and_harm_less_is_no_gain():
    beside = made_up()
    for at in range(len(SHIFTS)):
        assert beside.gains(np.stack((beside.cost[at], beside.harm[at]), 1)) == pytest.approx(0.0)
    own = beside.own
    cheaper = np.stack((own[:, 0] - 0.05, own[:, 1]), 1)
    assert beside.gains(cheaper) == pytest.approx([-0.05] * 3)
    half = np.stack((own[:, 0], (own[:, 1] + FLOOR) / 2 - FLOOR), 1)
    assert beside.gains(half) == pytest.approx([-0.1] * 3)
    torn = own + np.array([[0.0, 0.02], [0.0, 0.0], [0.0, -0.02]])
    assert beside.gains(torn).mean() == pytest.approx(0.0, abs=1e-9)
    assert beside.gains(torn)[0] > 0 > beside.gains(torn)[2]


def test_a_frontier_is_of_plain_runs_at_limits():
    orders = read_orders()
    with ThreadPoolExecutor(1) as pool:
        beside = frontier(pool, [SCENE], orders)
        assert beside.own[0].tolist() == list(SCENE.played(orders))
        kept = managed(pool, [SCENE], orders, steady(KEEP))
    assert beside.cost.shape == (len(SHIFTS), 1) and beside.gains(kept) == pytest.approx(0.0)


def test_the_gradient_turns_from_what_cost_more():
    rng = np.random.default_rng(3)
    weights = rng.normal(size=(1 + len(SEEN), len(GOALS) - 1))
    x = np.concatenate((np.ones((400, 2, 1)), rng.normal(size=(400, 2, len(SEEN)))), 2)
    plays = []
    for _ in range(6):
        goal = (rng.random((400, 2, 1)) > chances(x, weights).cumsum(-1)[..., :-1]).sum(-1)
        plays.append(Play(x, goal, -1.0 * (goal == 2) + 0.5 * (goal == 4)))

    def expected(at):
        chance = chances(x, at)
        return float((-chance[..., 2] + 0.5 * chance[..., 4]).mean())

    slope = slope_of(plays, weights)
    assert expected(weights - 0.1 * slope / np.linalg.norm(slope)) < expected(weights) - 0.005
    assert slope[0, 1] < 0 < slope[0, 3]
    level = [one._replace(cost=np.ones((400, 2))) for one in plays]
    assert slope_of(level, weights) == pytest.approx(0.0)  # a baseline takes off what all share


@pytest.mark.parametrize("how", ["evolution", "gradient"])
def test_a_search_goes_on_to_the_same_manager(tmp_path, how):
    told = dict(TINY, how=how, every_s=120.0)
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    found = list(train_manager(whole, steps=2, **told))
    assert [one.step for one in found] == [1, 2] and math.isnan(found[-1].loss)
    list(train_manager(halves, steps=1, **told))
    assert len(list(train_manager(halves, steps=2, **told))) == 1
    one, other = (read_manager(place) for place in (whole, halves))
    assert (one.head == other.head).all() and one.head.any() and one.margin == other.margin
    assert one.made["settings"]["how"] == how
    assert Steering(read_orders(), one).every_s == one.every_s == 120.0
    with pytest.raises(PolicyError, match="made with every_s=120"):
        list(train_manager(whole, steps=2, **{**told, "every_s": 60.0}))


def test_rollouts_are_of_the_looks_that_are_asked_for():
    often, seldom = (
        rolled(("colocated:span_s=900", "train", 5, Settings(machines=12, every_s=every_s)))
        for every_s in (60.0, 150.0)
    )
    assert len(np.unique(often["look"])) > len(np.unique(seldom["look"])) > 0
    assert np.isfinite(often["worth"]).all() and often["worth"].any()


def test_scales_are_of_what_scenes_show():
    scale = scale_of([SCENE], read_orders(), 120.0)
    assert scale.mean.shape == (len(SEEN),) and 0 < scale.mean[SEEN.index("load")] < 1
    assert (scale.spread > 0).all()


@pytest.mark.parametrize(
    "settings, why",
    [
        ({"how": "luck"}, "how='luck' is unknown; known: rollouts"),
        ({"every_s": 0.0}, "every_s=0.0; give 1 seconds or more"),
        ({"every_s": math.nan}, "every_s=nan"),
        ({"population": 3}, "population=3 leaves nothing to compare; give 4 or more"),
        ({"plays": 1}, "plays=1"),
        ({"of": 0}, "of=0 leaves nothing"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings, why):
    with pytest.raises(PolicyError, match=why):
        Settings(**settings).check()


def test_a_manager_that_looks_never_is_refused(tmp_path):
    write_manager(tmp_path / "manager.npz", replace(steady(2), made={"every_s": "often"}))
    with pytest.raises(PolicyError, match=r"made\.every_s='often'; give 1 seconds or more"):
        read_manager(tmp_path)
    assert read_manager().every_s == 60.0
