"""Figures 1 and 3 of the hierarchy: what is recorded, and which correlations chance could give."""

import numpy as np
import pytest

from trimtab.reproduce.hierarchy import coupling, figures
from trimtab.reproduce.hierarchy.coupling import BIN_S, STEP_S, Coupling, recorded
from trimtab.reproduce.hierarchy.paper import FIGURES, Setup, planned

SMALL = "colocated:machines=12,regions=3,span_s=600,load=0.9"


@pytest.fixture(scope="module")
def run():
    return recorded(trace=SMALL, seed=5, mtbf_s=100_000.0)


def made_up(seed, late_s=None, by=1.0):
    """A run of noise in which the release follows the queue, or does not."""
    rng = np.random.default_rng(seed)
    each, count = round(BIN_S / STEP_S), 400
    waiting, other = rng.normal(size=(2, count))
    released = other + (by * np.roll(waiting, round(late_s / BIN_S)) if late_s is not None else 0)
    series = {"waiting": np.repeat(waiting, each), "released": np.repeat(released, each)}
    return {"step_s": STEP_S, "first_s": 0.0, "series": series}


def test_a_run_is_recorded_on_an_even_grid(run):
    lengths = {len(values) for values in run["series"].values()}
    assert len(lengths) == 1 and lengths.pop() > 100
    found = {name: np.array(values, float) for name, values in run["series"].items()}
    assert set(found) >= {"waiting", "admitted", "released", "evicted", "lent", "limit", "cpu"}
    assert found["admitted"].sum() > 0 and (found["cpu"] > 0).all() and (found["cpu"] <= 1.5).all()
    # what was released was admitted before
    assert found["released"].sum() <= found["admitted"].sum() + 1e-6
    assert np.ptp(found["limit"]) == 0.0  # the manager that ships moves none


@pytest.mark.parametrize("late_s, by", [(0.0, 1.0), (60.0, 1.0), (-45.0, -1.0)])
def test_a_peak_is_found_at_its_lag_and_beyond_chance(late_s, by):
    one = coupling.coupling([made_up(1, late_s, by), made_up(2, late_s, by)], "waiting", "released")
    assert one.lag_s == late_s and one.peak * by > 0.5
    assert abs(one.peak) > 2 * one.chance
    assert one.lag_low_s <= late_s <= one.lag_high_s
    at = one.lags_s == late_s
    assert one.low[at] < one.peak < one.high[at]


def test_peaks_of_noise_are_mostly_told_as_chance():
    found = [coupling.coupling([made_up(seed)], "waiting", "released") for seed in range(20)]
    assert sum(abs(one.peak) <= one.chance for one in found) >= 17


def test_what_never_moves_has_no_correlation(run):
    assert coupling.coupling([run], "services", "limit") is None
    rows = figures.rows_of_coupled(figures.Coupled(run, [("services", "limit", -1, None)]))
    assert [one["ours"] for one in rows] == [None, None, None]


def verdict(lag_s, peak):
    lags = np.array([-60.0, 0.0, 60.0, 120.0])
    r = np.where(lags == lag_s, peak, 0.0)
    one = Coupling("waiting", "released", lags, r, r, r, lag_s, lag_s, lag_s, 0.2)
    return figures._follows(figures.Coupled({}, [("waiting", "released", 1, one)])).holds


def test_release_has_to_follow_the_queue_soon_and_beyond_chance():
    assert verdict(60.0, 0.5) is True
    assert verdict(120.0, 0.5) is False
    assert verdict(-60.0, 0.5) is False
    assert verdict(0.0, -0.5) is False
    assert verdict(0.0, 0.1) is None


def test_without_a_prepared_trace_figure_1_is_of_the_drawn_scene(run):
    first = figures.prepared("own=a.xz,work=nowhere", run)
    assert first.source == "the drawn scene" and not first.cleaned
    rows = [one for one in figures.rows_of_prepared(first) if one["metric"] == figures.BY_CLEANING]
    assert len(rows) == 4 and [one["ours"] for one in rows] == [1.0] * 4
    assert figures._smoother(first).holds is None


def test_gaps_have_no_mean_and_take_none_away():
    values = np.array([1.0, 3.0, np.nan, 5.0, np.nan, np.nan, 7.0])
    assert figures.window_means(values, 2) == pytest.approx([2.0, 5.0, np.nan], nan_ok=True)


def test_the_figures_are_a_part_of_their_own():
    alone = planned(Setup(parts=[FIGURES], quick=True))
    assert {trial.call for trial in alone} == {coupling.RUNS} and len(alone) == 2
    assert coupling.RUNS not in {trial.call for trial in planned(Setup(parts=["0.9"]))}
    assert coupling.RUNS in {trial.call for trial in planned(Setup(quick=True))}
