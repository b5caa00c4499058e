"""Packer beside the FGD paper's policies: the tables, and claims that follow from their rows."""

import json
import subprocess
import sys

import pytest
from tests.data import FOLDER

from trimtab.errors import TraceError, TrimtabError, UnknownName
from trimtab.reproduce.openb.claims import claims
from trimtab.reproduce.openb.paper import NOTES, Setup, outcome, planned
from trimtab.reproduce.openb.published import ALLOCATION, published
from trimtab.reproduce.tables import row, rows_of
from trimtab.reproduce.trials import finished

DATA = FOLDER / "data" / "alibaba_gpu"


def measured(setup):
    found = {trial.key: made for trial, made in finished(planned(setup), workers=1)}
    return outcome(setup, found)


@pytest.fixture(scope="module")
def drawn():
    return measured(Setup(quick=True, seeds=2))


def test_without_data_pods_are_drawn(drawn):
    setup = Setup(quick=True)
    assert setup.lists() == ["drawn"] and len(setup.of_seeds()) == 3
    assert "--data FOLDER" in setup.left_out()[0]
    assert {table["name"] for table in drawn["tables"]} == set(NOTES)
    rows = rows_of(drawn["tables"], "openb", arm="drawn")
    by_policy = {one["policy"]: one["ours"] for one in rows}
    assert len(by_policy) == 7
    assert max(by_policy.values()) < 100
    assert min(by_policy, key=lambda name: by_policy[name]) == "random"
    assert json.loads(json.dumps(drawn)) == drawn


def test_packer_fills_more_than_fgd_on_drawn_lists(drawn):
    rows = rows_of(drawn["tables"], "openb-beside", arm="drawn", metric="least less fgd")
    assert rows[0]["ours"] > 0
    holds = [one["holds"] for one in drawn["claims"]]
    assert holds == [None] * 5 + [True, True]  # openb's lists were not there


def tables(default=95.9, least=0.1, lists=(0.3, 0.2), harm=0.0, fgd=95.391):
    where = {"arm": "default", "load": 1.3}
    filled = [
        row("packer", "gpu_allocation", default, default - 0.1, default + 0.1, **where),
        row("fgd", "gpu_allocation", fgd, paper=95.391, **where),
    ]
    beside = [row("packer", "least less fgd", least, **where)]
    for i, less in enumerate(lists):
        beside.append(row("packer", "less fgd", less, less - 0.1, less + 0.1, arm=f"l{i}"))
        beside.append(row("packer", "least less fgd", min(less, harm), arm=f"l{i}"))
    return [
        {"name": "openb", "rows": filled},
        {"name": "openb-beside", "rows": beside},
        {"name": "openb-loads", "rows": filled},
    ]


def held(**given):
    return [one.holds for one in claims(tables(**given))]


def test_claims_follow_from_the_rows():
    #              published, 95.8, every order, lists, no harm, loads, drawn
    assert held() == [True, True, True, True, True, True, None]
    assert held(default=95.7)[1] is False
    assert held(default=95.3)[5] is False
    assert held(least=-0.01)[2] is False
    assert held(lists=(0.3,) * 6 + (-0.1,) * 2)[3] is False
    assert held(lists=(0.3,) * 7 + (-0.1,))[3] is True
    assert held(harm=-0.3)[4] is False
    assert held(fgd=95.38)[0] is False
    assert [one.holds for one in claims([])] == [None] * 7


def test_published_figures_are_of_the_load_that_was_published():
    assert published("default", "fgd", 1.3) == 95.391
    assert published("default", "fgd", 1.2) is None
    assert published("default", "packer", 1.3) is None
    assert published("cpu300", "fgd", 1.3) is None
    assert all(len(row) == 6 for row in ALLOCATION.values())


@pytest.mark.parametrize(
    ("given", "error", "told"),
    [
        ({"jobs": 5}, TrimtabError, "--jobs 5"),
        ({"seeds": 11}, TrimtabError, "10 orders are published"),
        ({"policies": ["fgt"]}, UnknownName, "did you mean 'fgd'"),
        ({"parts": ["nothing"]}, UnknownName, "known: default, lists, drawn"),
        ({"parts": ["default"]}, TraceError, "add --data FOLDER"),
        ({"data": "nowhere"}, TraceError, "holds no openb_node_list_gpu_node.csv"),
    ],
)
def test_mistakes_are_named(given, error, told):
    with pytest.raises(error, match=told):
        Setup(**given)


@pytest.mark.slow
@pytest.mark.skipif(not DATA.is_dir(), reason="openb's lists are not here; set TRIMTAB_DATA")
def test_the_published_orders_of_the_default_list():
    found = measured(Setup(data=str(DATA), parts=["default"], policies=["packer", "fgd"]))
    holds = {one["claim"][:40]: (one["holds"], one["evidence"]) for one in found["claims"]}
    as_published, full, every_order = list(holds.values())[:3]
    assert as_published[0] and full[0] and every_order[0], holds


@pytest.mark.slow
@pytest.mark.skipif(not DATA.is_dir(), reason="openb's lists are not here; set TRIMTAB_DATA")
def test_the_lists_that_packer_was_not_trained_on():
    found = measured(Setup(data=str(DATA), parts=["lists"], seeds=2, policies=["packer", "fgd"]))
    lists, harm = found["claims"][3:5]
    assert lists["holds"] and harm["holds"], (lists, harm)


@pytest.mark.slow
def test_the_command_prints_its_tables_as_json_and_goes_on(tmp_path):
    words = ["reproduce", "openb", "--quick", "--seeds=1", "--policies=packer,fgd", "--json=-"]
    command = [sys.executable, "-m", "trimtab", *words, "--out", str(tmp_path / "kept")]
    first, second = (
        subprocess.run(command, capture_output=True, text=True, timeout=900) for _ in range(2)
    )
    assert first.returncode == 0, first.stderr
    assert json.loads(first.stdout) == json.loads(second.stdout)
    assert "without --data FOLDER" in first.stderr
