"""The table of managers, of made-up outcomes and of a tiny scene."""

import pytest

from trimtab.errors import PolicyError
from trimtab.policies.hierarchy.goals import NAMES
from trimtab.policies.hierarchy.manager import write_manager
from trimtab.policies.hierarchy.managers.choosing import NONE
from trimtab.policies.hierarchy.managers.linear import steady
from trimtab.policies.hierarchy.managers.priced import SHIFTS
from trimtab.reproduce.hierarchy import managers
from trimtab.reproduce.hierarchy.managers import EVERY_S, HERE, claim_of, planned, rows_of
from trimtab.reproduce.hierarchy.paper import MANAGER, Setup
from trimtab.reproduce.hierarchy.paper import planned as all_planned

SEEDS = [1, 2, 3]
OWN = SHIFTS.index(0.0)


def made_up(trials, gain, follows=True):
    """Scenes that cost 1 and more; foresight gains 0.1, what was learned by `gain`."""
    found = {}
    for trial in trials:
        asked = trial.settings
        if trial.call.endswith(":plain"):
            cost = [1 - 0.1 * i + 0.01 * asked["seed"] for i in range(len(SHIFTS))]
            goals = {name: [cost[OWN] + 0.05, 0.01 * 2**OWN] for name in NAMES[1:]}
            harm = [0.01 * 2**i for i in range(len(SHIFTS))]
            found[trial.key] = {"cost": cost, "harm": harm, "goals": goals}
        elif trial.call.endswith(":foreseen"):
            found[trial.key] = [0.9 - 0.1 * OWN + 0.011 * asked["seed"], 0.01 * 2**OWN]
        else:
            free = [[1 + gain - 0.1 * OWN + 0.011 * seed, 0.01 * 2**OWN] for seed in asked["seeds"]]
            found[trial.key] = {"free": free, "held": free, "follows": follows}
    return found


def test_a_row_for_each_who_chooses_and_a_claim_of_what_was_learned():
    trials = planned("colocated", SEEDS, "")
    rows = rows_of(trials, made_up(trials, -0.05))
    gains = {one["policy"]: one for one in rows if one["metric"] == "at equal harm, %"}
    assert len(gains) == 4 + len(EVERY_S) * 7
    assert gains["foresight, 60 s"]["ours"] == pytest.approx(-9.8)
    assert gains["fill, always"]["ours"] == pytest.approx(5.0)
    assert gains["evolution, 300 s"]["high"] < 0 and claim_of(rows).holds is True
    none = claim_of(rows_of(trials, made_up(trials, -0.05, follows=False)))
    assert none.holds is False and "none of 12" in none.evidence
    assert claim_of(rows_of(trials, made_up(trials, 0.05))).holds is False


def test_it_is_asked_for_by_name_and_not_where_it_shall_be_quick():
    calls = {trial.call for trial in all_planned(Setup(parts=[MANAGER], seeds=2))}
    assert calls == {f"{HERE}:{name}" for name in ("plain", "foreseen", "learned")}
    assert not calls & {trial.call for trial in all_planned(Setup(quick=True))}
    asked = Setup(parts=[MANAGER], seeds=2, data="own=a.xz,managers=mine").manager_trials()
    assert {trial.settings["trace"] for trial in asked} == {"colocated:own=a.xz"}
    assert asked[-1].settings["folder"] == "mine/gradient-300"


def test_a_folders_manager_is_played_as_it_is_and_unchecked(tmp_path, monkeypatch):
    write_manager(tmp_path / "manager.npz", steady(3, 120.0))
    asked = {"trace": "colocated:span_s=600", "seeds": [5], "machines": 12, "how": "evolution",
             "every_s": 120.0}  # fmt: skip
    found = managers.learned(**asked, folder=str(tmp_path))
    assert found["free"] == found["held"] and found["follows"]
    scene = managers.plain(trace=asked["trace"], seed=5, machines=12)
    assert scene["goals"]["favour"] == found["free"][0]
    with pytest.raises(PolicyError, match=r"no manager\.npz"):
        managers.learned(**asked, folder=str(tmp_path / "none"))
    brief = {"steps": 1, "of": 1, "scenes": 1, "population": 4}
    monkeypatch.setitem(managers.BRIEF, "evolution", brief)
    monkeypatch.setattr(managers, "BRIEF_JUDGES", 2)
    own = managers.learned(**asked, folder="")
    assert own["follows"] is False or own["held"] != [[*scene["cost"], *scene["harm"]]]
    assert managers.trained(asked["trace"], 12, "evolution", 120.0).margin <= NONE
    ahead = managers.foreseen(trace=asked["trace"], seed=5, machines=12, every_s=120.0)
    assert len(ahead) == 2 and ahead[0] != scene["cost"][OWN]
