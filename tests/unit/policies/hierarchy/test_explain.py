"""What the hierarchy says of its decisions adds up to them."""

import json

import pytest

from trimtab.cli import app
from trimtab.policies.hierarchy.explain import NAMES, RESIDUAL, explained
from trimtab.policies.hierarchy.policy import HierarchyPolicy
from trimtab.sim.backend import SimBackend
from trimtab.traces.scenes.scene import open_scene

SMALL = "colocated:machines=24,regions=3,span_s=600"


def test_parts_sum_to_the_score_and_the_chosen_machine_has_the_most():
    scene = open_scene(SMALL, seed=5)
    backend = SimBackend(scene.workload, scene.cluster, scene.profile)
    found = list(explained(HierarchyPolicy(), backend, from_s=500.0, most=25))
    assert len(found) == 25
    for why in found:
        assert why.time_s >= 500.0 and why.goal == "keep" and not why.guard
        assert sum(why.chosen.parts[name] for name in NAMES) == pytest.approx(why.chosen.score)
        assert why.chosen.residual == sum(why.chosen.parts[name] for name in RESIDUAL)
        scores = [place.score for place in why.others]
        assert scores == sorted(scores, reverse=True) and len(scores) == min(3, why.fitting - 1)
        assert all(place.score <= why.chosen.score + 1e-9 for place in why.others)


def test_the_command_tells_it_and_writes_it(tmp_path, capsys):
    where = tmp_path / "why.json"
    asked = ["explain", "--trace", SMALL, "--at", "500", "--most", "2", "--json", str(where)]
    app(asked, standalone_mode=False)
    told = json.loads(where.read_text())
    assert len(told) == 2 and told[0]["chosen"]["parts"].keys() == set(NAMES)
    assert "machines had room" in capsys.readouterr().out
