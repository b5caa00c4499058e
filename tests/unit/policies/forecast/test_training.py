"""Fitting the learned estimate: better than the simple ones, and resumable to the last bit."""

import numpy as np
import pytest

from trimtab.errors import PolicyError, TraceError
from trimtab.policies.forecast.training import Settings, Sums, train_forecast
from trimtab.rules.forecast import FEATURES, HORIZON_S, read_weights

FEW = {"held": 1, "machines": 6, "every": 10}


def trained(out, steps, **settings):
    return list(train_forecast(out, steps=steps, **FEW | settings))


def test_it_errs_less_than_the_percentile_and_the_peak(tmp_path):
    last = trained(tmp_path, 4)[-1]
    assert last.loss < last.p95 and last.loss < last.peak
    assert read_weights(tmp_path / "forecast.json").shape == (len(HORIZON_S), FEATURES + 1)


def test_a_training_that_stopped_goes_on_to_the_same_weights(tmp_path):
    trained(tmp_path / "whole", 3)
    trained(tmp_path / "parts", 2)
    assert [row.step for row in trained(tmp_path / "parts", 3)] == [3]
    whole, parts = (read_weights(tmp_path / name / "forecast.json") for name in ("whole", "parts"))
    assert (whole == parts).all()
    assert trained(tmp_path / "parts", 3) == []


def test_other_settings_do_not_go_on(tmp_path):
    trained(tmp_path, 1)
    with pytest.raises(PolicyError, match="made with every=10, and now every=5"):
        trained(tmp_path, 2, every=5)


def test_sums_give_the_least_squares_and_what_they_leave():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(500, FEATURES)), rng.normal(size=(500, len(HORIZON_S)))
    sums = Sums.none()
    sums.add(x[:200], y[:200])
    sums.add(x[200:], y[200:])
    table = sums.weights(0.0)
    fit = np.linalg.lstsq(x, y, rcond=None)[0]
    np.testing.assert_allclose(table[:, :-1], fit.T, atol=1e-9)
    np.testing.assert_allclose(table[:, -1], (y - x @ fit).std(0) * 1.0, rtol=0.01)


def test_settings_and_traces_that_mean_nothing_are_refused(tmp_path):
    with pytest.raises(PolicyError, match="machines=0 leaves nothing"):
        Settings(machines=0).check()
    with pytest.raises(PolicyError, match="ridge=-1"):
        Settings(ridge=-1.0).check()
    with pytest.raises(TraceError):
        trained(tmp_path, 1, trace="mixed-gpu")
