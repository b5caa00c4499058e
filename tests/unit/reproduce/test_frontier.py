"""Policies at equal harm: where they are set beside each other, and with what."""

import math

import pytest

from trimtab.errors import TraceError
from trimtab.reproduce.frontier import (
    LIMITS,
    TARGETS,
    Point,
    at_harm,
    beside,
    cost,
    measured,
    points,
    shortened,
    sweeps,
    swept,
    tried,
)
from trimtab.rules.names import foretells

SMALL = "colocated:machines=8,regions=2,span_s=120"


def metrics(harm, awt_s=99.0, tsr=0.995):
    return {
        "harm_added": harm, "awt_s": awt_s, "ldi": 0.1, "dag_jct_mean_s": 100.0, "tsr": tsr,
        "uti": 0.5, "evictions": 0.0, "lost_work": 0.0, "jct_mean_s": 50.0,
    }  # fmt: skip


def point(limit, harm, awt_s):
    return Point(limit, {0: metrics(harm, awt_s), 1: metrics(harm, awt_s)})


def test_what_is_swept_hangs_on_the_name():
    assert list(swept("sjf+p95").values()) == list(LIMITS)
    assert next(iter(swept("sjf+p95"))) == f"sjf+p95@{LIMITS[0]:g}"
    assert list(swept("sjf+p95@0.7+feedback").values()) == list(TARGETS)
    assert list(swept("sjf+p95@0.7+feedback"))[1] == f"sjf+p95@0.7+feedback@{TARGETS[1]:g}"
    for name in ("sjf+native@1", "sjf", "sjf+p95+feedback@0.02"):  # as they say, or none
        assert list(swept(name)) == [name] and math.isnan(swept(name)[name])


def test_the_cost_by_hand():
    assert cost(metrics(0.0)) == pytest.approx(math.log(100 * 0.1 * 100 * 0.01) / 4)
    whole = {name: value for name, value in metrics(0.0).items() if name != "dag_jct_mean_s"}
    assert cost(whole) == pytest.approx(math.log(100 * 0.1 * 50 * 0.01) / 4)


def test_between_two_limits_figures_are_in_proportion():
    curve = [point(0.6, 0.0, 100.0), point(0.8, 0.02, 50.0), point(1.0, 0.2, 20.0)]
    there = at_harm(curve, 0.01)
    assert there.limit == pytest.approx(0.7) and there.harm() == pytest.approx(0.01)
    assert there.by_seed[0]["awt_s"] == pytest.approx(75.0)
    assert at_harm(curve, 0.5).limit == 1.0
    assert at_harm(curve[1:], 0.01) is None


def test_a_lower_limit_is_taken_where_it_is_better():
    curve = [point(0.6, 0.0, 100.0), point(0.8, 0.01, 40.0), point(1.0, 0.03, 90.0)]
    assert at_harm(curve, 0.03).limit == 0.8


def test_the_table_is_beside_the_best_that_cannot_foresee():
    at = {
        "sjf+calm+p95": point(0.8, 0.01, 99.0),
        "sjf+calm+now": point(0.7, 0.01, 199.0),
        "sjf+calm+oracle": point(0.9, 0.01, 24.0),
    }
    rows = [row for row in beside(at, harm=0.01) if row["metric"] == "cost"]
    assert [row["policy"] for row in rows] == ["oracle", "p95", "now"]
    assert {row["beside"] for row in rows} == {"p95"}
    assert [row["ours"] for row in rows] == pytest.approx([0.25**0.25, 1.0, 2**0.25])
    assert foretells("sjf+calm+oracle@0.9") and not foretells("sjf+calm+p95")


def test_names_lose_what_all_begin_with():
    assert shortened(["a+b+c", "a+b+d+e"]) == {"a+b+c": "c", "a+b+d+e": "d+e"}
    assert shortened(["a+b", "a"]) == {"a+b": "a+b", "a": "a"}
    assert shortened(["a+b"]) == {"a+b": "a+b"}


def test_a_sweep_on_a_small_scene_has_harm_rise_with_the_limit():
    name, seeds = "smallest-area+greedy+first+now", [0, 1]
    trials = sweeps(SMALL, [name], seeds)
    found = {trial.key: measured(**trial.settings) for trial in trials}
    curve = points(found, SMALL, name, seeds)
    assert len(curve) >= 2 and curve[0].harm() < curve[-1].harm()


def test_a_limit_under_which_a_job_never_fits_is_left_out():
    names = {"fcfs+p95@0": 0.0, "fcfs+p95@1": 1.0}
    trial = tried(SMALL, "fcfs+p95", list(names), 0)
    found = {trial.key: measured(**trial.settings)}
    assert found[trial.key]["fcfs+p95@0"] is None
    assert [point.limit for point in points(found, SMALL, "fcfs+p95", [0], names=names)] == [1.0]


def test_a_scene_that_lends_nothing_is_refused():
    with pytest.raises(TraceError, match="no services lend anything"):
        measured("fcfs", "mixed-gpu:jobs=10", ["fcfs"], 0)
