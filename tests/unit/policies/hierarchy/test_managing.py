"""Orders, goals and manager are trained into one folder, each with a checkpoint of its own."""

import math

from trimtab.policies.hierarchy.goal_training import train_goals
from trimtab.policies.hierarchy.goals import NAMES
from trimtab.policies.hierarchy.manager import read_manager
from trimtab.policies.hierarchy.managing import train_manager
from trimtab.policies.hierarchy.policy import HierarchyPolicy
from trimtab.policies.hierarchy.training import train_hierarchy

TINY = {"trace": "colocated:span_s=900", "machines": 10, "workers": 1, "steps": 1}
SEARCH = {**TINY, "scenes": 2, "of": 2, "held": 2, "population": 4, "every": 1}


def test_all_parts_are_trained_into_one_folder_and_used(tmp_path):
    list(train_hierarchy(tmp_path, **SEARCH))
    list(train_goals(tmp_path, **SEARCH))
    small = {"held": 1, "judges": 1, "rounds": 1, "orders": str(tmp_path)}
    last = list(train_manager(tmp_path, **TINY, **small))[-1]
    assert 0 <= last.aligned <= 1 and math.isfinite(last.loss)
    made = read_manager(tmp_path).made["alignment"]
    assert made["accuracy"] == round(last.aligned, 4) and list(made["table"]) == list(NAMES)
    policy = HierarchyPolicy(str(tmp_path))
    assert policy._looking.manager.made["alignment"] == made
    again = list(train_manager(tmp_path, **TINY, **small))
    assert again[-1].loss == last.loss and len(again) == 1  # no rollout is played twice
