"""The ablation sets each variant beside the rules; its claims follow its rows."""

import pytest

from trimtab.errors import TrimtabError, UnknownName
from trimtab.reproduce.adlro.ablation import BESIDE, NOTES, VARIANTS, Setup, outcome, planned

WINDOWS_S = {"fcfs": [400.0, 600.0], "fcfs+affinity": [300.0, 300.0], "sjf+fastest": [290.0, 310.0],
             "mct": [190.0, 210.0], "gavel": [150.0, 150.0], "adlro": [140.0, 140.0]}  # fmt: skip


def made_up(setup, jct_s):
    """Outcomes with these times; permuted, a network needs a tenth more, with trunk `set` not."""
    found = {}
    for trial in planned(setup):
        name = trial.settings["policy"]
        if name in BESIDE:
            found[trial.key] = WINDOWS_S[name]
            continue
        mine_s = jct_s + trial.settings["seed"]
        shift = 1.0 if "set" in name else 1.1
        found[trial.key] = {"jct_s": mine_s, "permuted_s": shift * mine_s, "spent_s": 60.0}
    return found


def test_every_variant_stands_beside_the_rules_with_its_ratios():
    setup = Setup(seeds=2)
    found = outcome(setup, made_up(setup, 180.0))
    (table,) = found["tables"]
    of = {(row["policy"], row["metric"]): row["ours"] for row in table["rows"]}
    assert {name for name, _ in of} == {*BESIDE, *VARIANTS}
    assert of["fcfs", "jct_s"] == 500.0
    assert of["all", "jct / mct"] == pytest.approx(180.5 / 200.0)
    assert of["all", "permuted / not"] == pytest.approx(1.1)
    assert of["all+set", "permuted / not"] == pytest.approx(1.0)
    assert table["name"] in NOTES


def test_claims_follow_the_rows():
    setup = Setup(seeds=2)
    better = outcome(setup, made_up(setup, 180.0))["claims"]
    assert [claim["holds"] for claim in better] == [True, True, True, None]  # equal means
    worse = outcome(setup, made_up(setup, 900.0))["claims"]
    assert [claim["holds"] for claim in worse][:2] == [False, False]
    alone = Setup(seeds=1)
    assert [claim["holds"] for claim in outcome(alone, made_up(alone, 180.0))["claims"]] == [
        None
    ] * 4


def test_what_is_not_measured_is_said_to_be_so():
    setup = Setup(seeds=2, policies=["plain"])
    found = outcome(setup, made_up(setup, 180.0))
    assert {claim["evidence"] for claim in found["claims"]} == {"not measured in this run"}


@pytest.mark.parametrize(
    ("asked", "kind", "words"),
    [
        ({"seeds": 0}, TrimtabError, "--seeds 0"),
        ({"jobs": 5}, TrimtabError, "no --jobs"),
        ({"policies": ["plain", "gavel"]}, UnknownName, "'gavel' is unknown with --ablation"),
    ],
)
def test_what_cannot_be_asked_is_refused(asked, kind, words):
    with pytest.raises(kind, match=words):
        Setup(**asked)
