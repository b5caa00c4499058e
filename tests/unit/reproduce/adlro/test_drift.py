"""Scenarios of drift change what they say and nothing else; tables and claims follow the runs."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from trimtab.build import cluster, uniform_profile, workload
from trimtab.core import Start
from trimtab.errors import TrimtabError, UnknownName
from trimtab.reproduce.adlro.drifting import NEW_SPEED, SCENARIOS, DriftingBackend, scenario
from trimtab.run import run
from trimtab.testing import check_backend
from trimtab.traces.scenes.adlro import offered_load

pytest.importorskip("river")
pytest.importorskip("torchhd")
from trimtab.reproduce.adlro.drift import (
    BOUND,
    MEMORY,
    NOTES,
    STALE,
    Setup,
    claims,
    measured,
    outcome,
    planned,
)


class StartsAll:
    def decide(self, snapshot):
        return [Start(int(job), (int(job),)) for job in snapshot.queue]


def two_jobs(change_s: float) -> DriftingBackend:
    """A job of 100 s on each of two nodes; the second node halves its speed."""
    work = workload([0.0, 0.0], [100.0, 100.0], [[1.0], [1.0]])
    machine = cluster([1.0, 1.0], kind=[0, 1])
    told, true = uniform_profile(1, 2), uniform_profile(1, 2)
    true.rate[0, 1] = 0.5
    return DriftingBackend(work, machine, told, true, change_s)


@pytest.mark.parametrize(("change_s", "end_s"), [(40.0, 40 + 60 / 0.5), (0.0, 200.0), (1e4, 100.0)])
def test_a_run_goes_on_at_its_new_speed_from_the_second_of_the_change(change_s, end_s):
    backend = two_jobs(change_s)
    run(backend, StartsAll())
    assert backend.world.state[0]["end_s"] == pytest.approx([100.0, end_s])


def test_a_policy_is_shown_the_told_speeds_before_and_after():
    backend = two_jobs(40.0)
    shown = []

    class Watcher(StartsAll):
        def decide(self, snapshot):
            on = snapshot.runs[snapshot.running]
            shown.append((snapshot.now_s, on["rate"].tolist(), on["expected_end_s"].tolist()))
            return super().decide(snapshot)

    run(backend, Watcher())
    assert (40.0, [1.0, 1.0], [100.0, 100.0]) in shown
    assert (100.0, [1.0], [100.0]) in shown  # the slow one is late by what was told


@pytest.mark.parametrize("name", SCENARIOS)
def test_both_halves_have_the_load_that_was_asked(name):
    of = scenario(name, seed=1, jobs=200, load=0.8, estimate="oracle")
    for rows, profile in ((range(100), of.told), (range(100, 200), of.true)):
        keep = np.isin(np.arange(200), rows)
        load = offered_load(of.workload.only(keep), of.cluster, profile)
        assert load == pytest.approx(0.8, rel=1e-6)
    assert of.change_s == of.workload.jobs["submit_s"][of.change_job]
    assert (np.diff(of.workload.jobs["submit_s"]) >= 0).all()


def test_only_what_a_scenario_names_changes():
    slow = scenario("turing", seed=1, jobs=100, load=0.8, estimate="oracle")
    ratio = slow.true.rate[:, :, 0] / slow.told.rate[:, :, 0]
    assert ratio == pytest.approx(np.tile([1.0, 0.7, 1.0], (3, 1)))
    same = scenario("none", seed=1, jobs=100, load=0.8, estimate="oracle")
    assert same.true is same.told
    new = scenario("new-class", seed=1, jobs=200, load=0.8, estimate="oracle")
    assert (new.workload.jobs["kind"][:100] < 3).all()
    assert 15 <= (new.workload.jobs["kind"][100:] == 3).sum() <= 45  # 30 expected
    assert (new.told.rate[:3] == new.true.rate[:3]).all()
    assert new.true.rate[3, :, 0].tolist() == list(NEW_SPEED)
    assert new.told.rate[3] == pytest.approx(new.told.rate[:3].mean(0))


@pytest.fixture(scope="module")
def made():
    return measured(seeds=1, jobs=120, quick=True)


def test_tables_hold_finite_numbers_and_every_scenario(made):
    json.dumps(made, allow_nan=False)
    tables = {table["name"]: table["rows"] for table in made["tables"]}
    assert set(tables) == set(NOTES)
    assert {row["scenario"] for row in tables["drift"]} == {"none", "new-class"}
    assert {row["policy"] for row in tables["drift"]} == {STALE, MEMORY, BOUND}
    noticed = [row for row in tables["drift-detection"] if row["metric"] == "noticed"]
    assert [row["ours"] for row in noticed] == [1.0]
    quiet = [row for row in tables["detectors"] if row["metric"] == "false_a_1000_runs"]
    assert len(quiet) == 6


def test_one_seed_proves_nothing(made):
    about = {claim["claim"]: claim["holds"] for claim in made["claims"]}
    assert about["fine-tuning the network adds to it beyond chance"] is None
    better = [claim for claim in about if claim.startswith("correcting speeds")]
    assert [about[claim] for claim in better] == [None, None]


def test_an_alarm_counts_as_a_hit_only_if_it_names_what_changed():
    setup = Setup(seeds=2, jobs=200, policies=[MEMORY], parts=["turing"])
    found = {}
    alarms = [["gpu-kind", 0, 50], ["gpu-kind", 2, 130], ["gpu-kind", 1, 140]]
    for trial in planned(setup):
        run_ = {
            "jct_before_s": 1.0,
            "jct_after_s": 1.0,
            "change_job": 100,
            "changes": [],
            "rolled_back": 0,
        }
        hit = alarms if trial.settings.get("seed") == 1000 else alarms[:2]
        detectors = [{"detector": "adwin", "spread": 0.0, "delay_runs": None, "noticed": 0.0,
                      "false_a_1000_runs": 0.0}]  # fmt: skip
        found[trial.key] = {**run_, "alarms": hit} if "policy" in trial.settings else detectors
    tables = outcome(setup, found)["tables"]
    rows = {row["metric"]: row["ours"] for row in tables[2]["rows"] if row["arm"] == "noisy"}
    assert rows == {"noticed": 0.5, "delay_jobs": 40.0, "other_alarms": 1.0, "false_alarms": 1.0}
    assert claims(tables)[0].holds is False


def ratio(low, high, policy=MEMORY, other=STALE, name="new-class"):
    return {"policy": policy, "metric": f"jct_after / {other}", "paper": None, "low": low,
            "high": high, "ours": (low + high) / 2, "scenario": name, "arm": "noisy"}  # fmt: skip


@pytest.mark.parametrize(("high", "holds"), [(0.95, True), (1.05, False)])
def test_a_gain_is_claimed_only_beyond_chance(high, holds):
    found = claims([{"name": "drift-ratios", "rows": [ratio(0.8, high)]}])
    said = {claim.text: claim.holds for claim in found}
    claim = "correcting speeds at once helps beyond chance where a new kind of job comes"
    assert said[claim] is holds


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"seeds": 0}, TrimtabError, "--seeds 0"),
        ({"jobs": 20}, TrimtabError, "--jobs 20"),
        ({"policies": ["fcfs"]}, UnknownName, "'fcfs' is unknown with --drift"),
        ({"parts": ["loads"]}, UnknownName, "'loads' is unknown with --drift"),
    ],
)
def test_what_cannot_be_asked_is_refused(given, error, words):
    with pytest.raises(error, match=words):
        Setup(**given)


def test_the_drifting_cluster_is_a_backend_like_any_other():
    def make(work, machine):
        told = uniform_profile(len(work.kinds), len(machine.kinds))
        return DriftingBackend(work, machine, told, told, 5.0)

    check_backend(make)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--policies", "fcfs"], "'fcfs' is unknown with --drift; known: adlro, adlro+memory"),
        (["--only", "loads"], "'loads' is unknown with --drift; known: none, turing"),
    ],
)
def test_the_command_says_what_drift_knows(words, text):
    done = subprocess.run(
        [sys.executable, "-m", "trimtab", "reproduce", "adlro", "--drift", *words],
        capture_output=True, text=True, timeout=900, env={**os.environ, "COLUMNS": "200"},
    )  # fmt: skip
    assert done.returncode != 0
    assert text in done.stderr and "Traceback" not in done.stderr
