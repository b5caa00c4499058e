"""`trimtab envs`: what there is to learn, as a table and for machines."""

import json

import numpy as np
import pytest

from trimtab import cli
from trimtab.cli import envs
from trimtab.errors import TrimtabError

SMALL = {
    "trace": "adlro:load=2,jobs=200",
    "cluster": "adlro:volta=2,turing=1,radeon=1",
    "load": None,
    "lenient": False,
    "jobs": 12,
    "window": 6,
}


@pytest.mark.parametrize("name", envs.OF_CLUSTERS)
def test_each_environment_of_clusters_has_three_choices_and_a_rule(name):
    found = list(envs.standings(name, SMALL, windows=2, seed=0))
    assert [one.policy for one in found[:3]] == ["random", "oldest", "shortest"]
    assert found[3].policy.split("+")[0] in {order.split("+")[0] for order in envs.ORDERS}
    assert all(np.isfinite(one.found.rewards).all() for one in found)
    starts = [one.found.starts.tolist() for one in found]
    # of 200 jobs the last 40 are held out: windows of twelve begin at rows 160, 172 and 184
    assert starts == [[160, 172]] * 4


def test_limits_have_a_random_choice_one_that_stands_still_and_feedback():
    small = SMALL | {"trace": "colocated:machines=8,regions=2,span_s=300"}
    found = list(envs.standings("Limits-v0", small, windows=2, seed=0))
    assert [one.policy.split(" ")[0] for one in found] == ["random", "limit", "feedback"]
    assert all(one.found.starts.tolist() == [100, 101] for one in found)
    assert max(one.found.mean for one in found[1:]) > found[0].found.mean


def test_the_hierarchys_places_have_random_choices_one_goal_and_what_ships():
    small = SMALL | {"trace": "colocated:machines=12,regions=2,span_s=300"}
    found = list(envs.standings("Hierarchy", small, windows=2, seed=0))
    names = [one.policy for one in found]
    assert names[:2] == ["random goals", "random orders"] and names[3] == "as shipped"
    assert names[2].startswith("always ")
    assert all(one.found.starts.tolist() == [100, 101] for one in found)
    assert found[3].found.mean > found[1].found.mean


def test_the_parallelism_environment_has_what_beats_random(capsys):
    found = {
        one.policy: one.found.mean
        for one in envs.standings("Parallelism-v0", SMALL, windows=6, seed=0)
    }
    assert min(found["operator's rule"], found["myopic planner"]) > found["random"]


def test_the_table_and_its_json_say_the_same(tmp_path, capsys, monkeypatch):
    path = tmp_path / "envs.json"
    words = ["envs", "--only", "Queue-v0", "--jobs", "12", "--window", "6", "--windows", "2"]
    words += ["--trace", SMALL["trace"], "--cluster", SMALL["cluster"], "--json", str(path)]
    monkeypatch.setattr("sys.argv", ["trimtab", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 0
    rows, shown = json.loads(path.read_text()), capsys.readouterr().out
    assert len(rows) == 4 and {row["windows"] for row in rows} == {2}
    assert rows[3]["choices"] is None  # a rule plays through the loop, which has no steps
    for row in rows:
        assert f"{row['reward_mean']:.2f} ± {row['reward_half']:.2f}" in shown
        assert row["policy"] in shown


def test_an_unknown_environment_says_what_there_is():
    with pytest.raises(TrimtabError, match="--only Quue: no such environment; known: Queue-v0, G"):
        envs.envs(only=["Quue"])
