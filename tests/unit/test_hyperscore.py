"""HyperScore: the paper's curve, our V, and what `trimtab compare --hyperscore` prints."""

import json
import math
import subprocess
import sys

import pytest

from trimtab.errors import TraceError, UnknownName
from trimtab.hyperscore import hyperscore, mean_v, scores, value

PAPER = {  # ADLRO table 1: JCT in seconds, jobs an hour, share of the GPUs; no energy
    "fcfs": (25.8, 6.2, 0.581),
    "static": (22.1, 7.5, 0.654),
    "adlro": (19.5, 9.1, 0.798),
}
LOG = """; MaxNodes: 8
1 0 -1 10 2 -1 -1 2 20 -1 1 1 1 1 1 -1 -1 -1
2 5 -1 20 8 -1 -1 8 40 -1 1 1 1 1 1 -1 -1 -1
3 6 -1 3 4 -1 -1 4 4 -1 1 1 1 1 1 -1 -1 -1
"""


def row(jct_mean_s=10.0, throughput_per_h=5.0, useful_utilization=0.5, energy_j=0.0):
    return {
        "jct_mean_s": jct_mean_s,
        "throughput_per_h": throughput_per_h,
        "useful_utilization": useful_utilization,
        "energy_j": energy_j,
    }


def test_the_papers_own_table_scores_110_and_125_and_150():
    found = scores({policy: {0: row(*cells)} for policy, cells in PAPER.items()}, "fcfs")
    got = [found.of(policy, 0)["hyperscore"] for policy in PAPER]
    assert got == pytest.approx([110.0, 125.3, 150.1], abs=0.05)
    assert found.of("fcfs", 0)["v"] == 1.0
    # cube root of (25.8 / 19.5) (9.1 / 6.2) (79.8 / 58.1)
    v = (25.8 / 19.5 * 9.1 / 6.2 * 79.8 / 58.1) ** (1 / 3)
    assert found.of("adlro", 0)["v"] == pytest.approx(v)
    assert found.left_out == {"energy_j": "zero or not measured"}


def test_the_curve_is_v_to_the_fifth_over_itself_plus_two():
    for v in (0.1, 0.5, 1.0, 1.3, 4.0):
        assert hyperscore(v) == pytest.approx(100 * (1 + (v**5 / (v**5 + 2)) ** 2.1))


def test_the_score_rises_with_v_from_100_to_200_and_cannot_reorder_policies():
    vs = [0.0, 0.05, 0.3, 0.9, 1.0, 1.1, 2.0, 5.0, 20.0]
    got = [hyperscore(v) for v in vs]
    assert got == sorted(set(got))
    assert got[0] == 100.0
    assert hyperscore(1e-300) == pytest.approx(100.0)
    assert hyperscore(1e300) == pytest.approx(200.0)


def test_the_score_is_steepest_at_1_26_and_has_88_of_its_100_points_at_2():
    slope = {
        v: hyperscore(v + 1e-4) - hyperscore(v - 1e-4) for v in [i / 100 for i in range(5, 400)]
    }
    assert max(slope, key=slope.get) == pytest.approx(1.26)
    assert hyperscore(2.0) == pytest.approx(188.0, abs=0.1)


@pytest.mark.parametrize("v", [-1.0, math.nan])
def test_a_v_that_is_no_mean_of_ratios_is_refused(v):
    with pytest.raises(ValueError, match="is not a number >= 0"):
        hyperscore(v)


def test_less_is_better_for_time_and_energy_and_more_for_the_rest():
    ours, theirs = row(5.0, 10.0, 0.25, 40.0), row(10.0, 5.0, 0.5, 10.0)
    # 2, 2, 1/2 and 1/4
    assert value(ours, theirs, ["jct_mean_s", "throughput_per_h"]) == pytest.approx(2.0)
    assert value(ours, theirs, list(ours)) == pytest.approx((2 * 2 / 2 / 4) ** (1 / 4))


def test_seeds_are_paired_with_the_reference_of_the_same_seed():
    found = scores(
        {
            "fcfs": {0: row(10.0), 1: row(40.0)},
            "sjf": {0: row(5.0), 1: row(5.0), 2: row(1.0)},
        },
        "fcfs",
    )
    assert found.v["sjf"] == pytest.approx({0: 2 ** (1 / 3), 1: 8 ** (1 / 3)})
    assert found.of("sjf", 2) == {}  # the reference has no such seed


def test_the_mean_of_v_is_one_of_logarithms_with_its_interval():
    v, low, high = mean_v([1.0, 4.0])
    assert v == pytest.approx(2.0)
    # ln V = 0 and ln 4: half = t x sd / sqrt 2 = 12.7062 x ln 4 / 2
    half = 12.7062 * math.log(4) / 2
    assert (math.log(low), math.log(high)) == pytest.approx(
        (math.log(2) - half, math.log(2) + half)
    )
    assert mean_v([3.0])[1:] == (None, None)
    assert mean_v([3.0, 0.0]) == (0.0, None, None)


def test_the_reference_stands_at_1_without_spread():
    found = scores({"fcfs": {seed: row(10.0 + seed) for seed in range(3)}}, "fcfs")
    assert mean_v(list(found.v["fcfs"].values())) == (1.0, 1.0, 1.0)


def test_energy_counts_where_it_is_measured():
    found = scores({"fcfs": {0: row(energy_j=8.0)}, "sjf": {0: row(energy_j=0.5)}}, "fcfs")
    assert found.metrics == (
        "jct_mean_s",
        "throughput_per_h",
        "useful_utilization",
        "energy_j",
    )
    assert found.v["sjf"][0] == pytest.approx(2.0)  # fourth root of 16
    assert "left out" not in found.told()


def test_a_metric_that_is_zero_for_one_of_them_is_left_out_for_all():
    found = scores(
        {"fcfs": {0: row(energy_j=8.0)}, "sjf": {0: row(5.0)}, "las": {0: row(energy_j=4.0)}},
        "fcfs",
    )
    assert found.left_out == {"energy_j": "zero for a policy"}
    assert "energy_j left out: zero for a policy" in found.told()
    assert found.v["las"][0] == 1.0
    none = scores({"fcfs": {0: row(useful_utilization=0.0)}, "sjf": {0: row()}}, "fcfs")
    assert none.left_out["useful_utilization"] == "zero for the reference"


def test_a_policy_that_finishes_nothing_has_v_0_and_spoils_no_other():
    idle = row(0.0, 0.0, 0.0)  # no finished job: a mean JCT of 0 is not a good one
    found = scores({"fcfs": {0: row()}, "sjf": {0: row(5.0)}, "never": {0: idle}}, "fcfs")
    assert found.of("never", 0) == {"v": 0.0, "hyperscore": 100.0}
    assert found.of("sjf", 0)["v"] == pytest.approx(2 ** (1 / 3))


def test_a_reference_that_finishes_nothing_is_refused():
    with pytest.raises(TraceError, match=r"never finished no job with seed 0.*choose another"):
        scores({"never": {0: row(0.0, 0.0, 0.0)}, "sjf": {0: row()}}, "never")


def test_a_reference_without_a_result_is_refused():
    with pytest.raises(UnknownName, match="'lifo' has no result; known: fcfs"):
        scores({"fcfs": {0: row()}}, "lifo")


def compare(*words):
    command = [sys.executable, "-m", "trimtab", "compare", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=900)


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "small.swf"
    path.write_text(LOG)
    return path


def test_compare_scores_every_row_against_a_reference_that_it_runs_too(log):
    done = compare("sjf", "fcfs+easy", "--trace", log, "--hyperscore", "fcfs", "--json", "-")
    rows = {got["policy"]: got["metrics"] for got in json.loads(done.stdout)}
    assert list(rows) == ["fcfs", "sjf", "fcfs+easy"]
    assert "fcfs: not among the policies, so it is run too" in done.stderr
    assert "energy_j left out: zero or not measured" in done.stderr
    assert rows["fcfs"]["v"] == 1.0
    assert rows["fcfs"]["hyperscore"] == pytest.approx(hyperscore(1.0))
    # fcfs: JCT 10, 25, 27, ended at 33; easy: job 3 goes ahead, JCT 10, 25, 3, ended at 30
    v = (62 / 38 * 33 / 30 * 33 / 30) ** (1 / 3)
    assert rows["fcfs+easy"]["v"] == pytest.approx(v)


def test_compare_shows_both_columns_beside_what_was_asked_for(log):
    words = ["fcfs", "fcfs+easy", "--trace", log, "--hyperscore", "fcfs", "--metrics", "awt_s"]
    done = compare(*words)
    assert done.returncode == 0, done.stderr
    head, _, table = done.stdout.partition("─")
    assert head.split() == ["AWT", "policy", "s", "V", "HyperScore"]  # units on their own line
    assert ["fcfs", "9.67", "1", "110"] in [line.split() for line in table.splitlines()]
    assert "run too" not in done.stderr


def test_compare_scores_under_the_semantics_of_rlscheduler(log):
    words = ["fcfs", "sjf", "--trace", log, "--semantics", "rlscheduler", "--hyperscore", "fcfs"]
    done = compare(*words, "--json", "-")
    assert all("hyperscore" in got["metrics"] for got in json.loads(done.stdout))


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["fcfs", "--hyperscore", "fcsf"], "--hyperscore fcsf: "),
        (["fcfs", "--hyperscore", "fcsf"], "did you mean 'fcfs'?"),
        (["fcfs", "--hyperscore", "fgd"], "policy fgd packs pods that never leave"),
        (["fgd", "--hyperscore", "fcfs"], "policy fgd packs pods that never leave"),
        (["fcfs", "--order", "o.json", "--hyperscore", "fcfs"], "--order o.json packs pods"),
        (["fcfs", "--metrics", "v"], "--metrics v: against what? Add --hyperscore REFERENCE"),
    ],
)
def test_a_mistake_is_one_line_without_a_traceback(words, text, command):
    code, _, said = command("compare", *words)
    assert code == 2
    assert text in said
    assert said.count("\n") == 1
