"""Training the hierarchy's workers: from the best rule, over growing scenes, ablations beside."""

import json

import pytest

from trimtab.errors import PolicyError
from trimtab.policies.hierarchy.training import Settings, sizes, train_hierarchy
from trimtab.policies.hierarchy.weights import read_orders

TRACE = "colocated:span_s=300"
TINY = {"steps": 1, "scenes": 2, "of": 1, "held": 1, "machines": 16, "population": 4, "every": 1}


def test_scenes_grow_from_the_smallest_to_the_largest_by_one_ratio():
    assert sizes(Settings(scenes=3, machines=64, most=4000)) == [64, 506, 4000]
    assert sizes(Settings(scenes=2, machines=48)) == [48, 48]
    with pytest.raises(PolicyError, match="most=20 is below machines=48"):
        Settings(most=20).check()


def test_an_ablation_is_trained_into_the_same_file_and_from_the_same_start(tmp_path):
    whole = list(train_hierarchy(tmp_path, trace=TRACE, first="rule", **TINY))[-1]
    lacking = {**TINY, "without": "compatibility", "first": "rule"}
    part = list(train_hierarchy(tmp_path, trace=TRACE, **lacking))[-1]
    assert whole.best_loss < 10 and part.best_loss < 10  # played, and no job was left
    held = json.loads((tmp_path / "hierarchy.json").read_text())
    assert held["settings"]["first"] == "rule" and list(held["without"]) == ["compatibility"]
    assert read_orders(tmp_path).worker[0, 0] != 0.0  # the cosine was searched for
    assert read_orders(tmp_path, "compatibility").worker[0, 0] == 0.0
    assert sorted(one.name for one in tmp_path.glob("*.npz")) == [
        "checkpoint.npz", "no-compatibility.npz",
    ]  # fmt: skip
    again = list(train_hierarchy(tmp_path, trace=TRACE, first="rule", **{**TINY, "steps": 2}))
    assert [one.step for one in again] == [2]  # it went on
    assert list(json.loads((tmp_path / "hierarchy.json").read_text())["without"])
