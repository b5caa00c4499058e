"""Tables and claims of the hierarchy, of made-up outcomes."""

import pytest

from trimtab.errors import UnknownName
from trimtab.reproduce.hierarchy import paper
from trimtab.reproduce.hierarchy.paper import ABLATIONS, METRICS, OURS, PEERS, Setup, planned
from trimtab.reproduce.tables import rows_of


def figures(awt_s, seed, harm):
    scale = 1 + 0.01 * seed
    return {
        "awt_s": awt_s * scale, "ldi": 0.1, "dag_jct_mean_s": 300.0, "jct_mean_s": 300.0,
        "tsr": 0.95, "uti": 0.7, "harm_added": harm, "evictions": 0.01, "lost_work": 0.01,
    }  # fmt: skip


def made_up(setup, waits):
    """Outcomes in which each policy waits as long as `waits` says, whatever its limit."""
    found = {}
    for trial in planned(setup):
        asked = trial.settings
        awt_s = waits.get(asked["policy"], 100.0)
        found[trial.key] = {
            name: figures(awt_s, asked["seed"], 0.002 + 0.01 * i)
            for i, name in enumerate(asked["names"])
        }
    return found


@pytest.fixture(scope="module")
def setup():
    return Setup(seeds=3, parts=["0.9"])


def verdicts(setup, waits):
    return {c["claim"]: c["holds"] for c in paper.outcome(setup, made_up(setup, waits))["claims"]}


def test_claims_hold_where_it_waits_less_than_all_and_nears_the_oracle(setup):
    waits = {OURS: 40.0, paper.ORACLE: 20.0}
    told = verdicts(setup, waits)
    gains = {text: told.pop(text) for text in list(told) if "against DeepRM" in text}
    assert all(told.values()), told
    # all are alike but in how long they wait
    assert gains == {
        "UTI % against DeepRM's: +16.6 %": False, "AWT s against DeepRM's: -43.6 %": True,
        "LDI against DeepRM's: -43.5 %": False, "TSR % against DeepRM's: +6.7 %": False,
    }  # fmt: skip
    worse = verdicts(setup, {**waits, "cheng+peak": 30.0})
    assert worse["it is ahead of all seven peers at 1 % of harm, at each load"] is False
    assert worse["it is ahead of every rule at 1 % of harm, at each load"] is True
    assert worse["no peer is better in AWT s beyond chance"] is False
    assert worse["no peer is better in LDI beyond chance"] is True
    far = verdicts(setup, {OURS: 95.0, paper.ORACLE: 20.0})
    assert (
        far["it goes at least half of the way from the best rule to the oracle of the peak"]
        is False
    )
    alike = verdicts(setup, {**waits, "hierarchy-no-manager+encoder": 40.0})
    assert alike["without manager it is behind"] is not True


def test_the_papers_tables_stand_beside_ours(setup):
    tables = paper.outcome(setup, made_up(setup, {OURS: 40.0}))["tables"]
    rows = rows_of(tables, "paper", arm="load 0.9")
    assert len(rows) == len(METRICS) * (len(PEERS) + len(ABLATIONS) + 1)
    mine = {one["metric"]: one for one in rows if one["policy"] == "hierarchy (ours)"}
    assert mine["AWT s"]["paper"] == 24.36 and mine["UTI %"]["ours"] == pytest.approx(70.0)
    best = [one for one in rows_of(tables, "hierarchy", harm=0.01) if one["best"]]
    assert len(best) == 1 and best[0]["kind"] == "rule"


def test_scenes_and_their_settings():
    assert list(Setup().scenes()) == ["load 0.6", "load 0.9", "load 1.1"]
    assert len(Setup(quick=True).scenes()) == 1
    assert "own=a.xz" in Setup(data="own=a.xz").scenes()["load 0.6"]
    with pytest.raises(UnknownName, match="is no load of this"):
        Setup(parts=["0.7"])
