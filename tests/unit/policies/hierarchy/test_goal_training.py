"""Goals are trained, go on where they stopped, and stand in the file of the hierarchy."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from trimtab.errors import PolicyError
from trimtab.policies import named
from trimtab.policies.hierarchy.alignment import Acts, Play
from trimtab.policies.hierarchy.goal_training import Settings, loss_of, train_goals
from trimtab.policies.hierarchy.goals import GOALS, KEEP, NAMES, free, moved, told
from trimtab.policies.hierarchy.steering import Steering
from trimtab.policies.hierarchy.weights import read_orders, write_orders

TINY = {
    "trace": "colocated:span_s=600", "scenes": 2, "of": 2, "held": 2, "machines": 12,
    "population": 4, "every": 1, "workers": 1,
}  # fmt: skip


def test_what_is_moved_stays_within_its_bounds_and_keep_keeps():
    places, widths = free(GOALS)
    assert len(places) == len(widths) and KEEP not in {number for number, _ in places}
    patient = [NAMES[number] for number, name in places if name == "log_patience"]
    assert patient == ["relieve"]  # the others have the patience of the orders
    assert moved(GOALS, places, np.zeros(len(places))) == GOALS
    far = moved(GOALS, places, np.full(len(places), 50.0))
    assert far[KEEP] == GOALS[KEEP] and far[1].limit == 0.2 and far[1].patience_s == 1e4


def plays(by, cost=1.0):
    """Scenes whose acts follow goals by so much."""
    made = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        feature, goal = rng.normal(size=(200, 16)), rng.integers(0, len(NAMES), 200)
        feature[:, 0] += by * goal
        made.append(Play(cost, 0.01, Acts(feature, goal)))
    return made


def test_goals_that_show_cost_less_where_alignment_counts():
    plain, aligned = Settings(align=0.0), Settings(align=0.5)
    assert loss_of(plays(0.0), plain)[0] == loss_of(plays(3.0), plain)[0]
    assert loss_of(plays(0.0), aligned)[0] > loss_of(plays(3.0), aligned)[0] + 0.3
    assert loss_of(plays(0.0, cost=2.0), plain)[0] == loss_of(plays(0.0), plain)[0] + 1.0


def test_a_training_goes_on_to_the_same_goals(tmp_path):
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    rows = list(train_goals(whole, steps=2, **TINY))
    assert [row.step for row in rows] == [1, 2] and rows[-1].best_loss < math.inf
    list(train_goals(halves, steps=1, **TINY))
    again = list(train_goals(halves, steps=2, **TINY))
    assert [row.step for row in again] == [2] and again[-1].loss == rows[-1].loss
    first, second = (json.loads((one / "hierarchy.json").read_text()) for one in (whole, halves))
    assert first["goals"] == second["goals"] and list(first["goals"]) == list(NAMES)
    assert first["goals_made"]["cross_entropy"] > 0
    used = told(named(f"hierarchy:{whole}").orders.goals)
    assert used == first["goals"] and used != told(GOALS)


def test_goals_are_written_beside_the_orders_that_lie_there(tmp_path):
    orders = replace(read_orders(), limit=0.77)
    write_orders(tmp_path / "hierarchy.json", orders, settings={"mine": 1})
    list(train_goals(tmp_path, steps=1, **TINY))
    held = json.loads((tmp_path / "hierarchy.json").read_text())
    assert held["care"]["limit"] == 0.77 and held["settings"] == {"mine": 1}
    assert read_orders(tmp_path).limit == 0.77


def test_a_region_is_given_what_its_goal_says_in_the_file(tmp_path):
    goals = list(GOALS)
    goals[2] = goals[2]._replace(limit=0.05, now=0.25)
    write_orders(tmp_path / "hierarchy.json", replace(read_orders(), goals=tuple(goals)))
    orders = read_orders(tmp_path)
    steering = Steering(orders, None)
    made = steering._orders(np.array([KEEP, 2]), 2)
    assert made[1].share == pytest.approx(made[0].share + 0.05)
    assert steering.worker[1, 1] == pytest.approx(steering.worker[0, 1] + 0.25)


@pytest.mark.parametrize(
    "spoil, why",
    [
        (lambda goals: goals.pop("fill"), "goals are not keep"),
        (lambda goals: goals["fill"].pop("pull"), "goals.fill has not"),
        (lambda goals: goals["fill"].update(limit=3.0), "goals.fill.limit=3.0 is not in -0.2..0.2"),
        (lambda goals: goals["relieve"].update(now="x"), "goals.relieve.now='x'"),
    ],
)
def test_a_file_with_other_goals_is_refused(tmp_path, spoil, why):
    write_orders(tmp_path / "hierarchy.json", read_orders())
    held = json.loads((tmp_path / "hierarchy.json").read_text())
    spoil(held["goals"])
    (tmp_path / "hierarchy.json").write_text(json.dumps(held))
    with pytest.raises(PolicyError, match=why):
        read_orders(tmp_path)


def test_settings_that_mean_nothing_are_refused():
    with pytest.raises(PolicyError, match="align=-1"):
        Settings(align=-1.0).check()
    with pytest.raises(PolicyError, match="held=1"):
        Settings(held=1).check()
