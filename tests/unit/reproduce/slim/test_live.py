"""Live beside simulated: what is compared, and what is told to the simulation."""

import numpy as np
import pytest

from trimtab.reproduce.slim.fleet import Gauges, spread
from trimtab.reproduce.slim.live import Setup, outcome, planned


def figures(p50_ms, p99_ms, in_time):
    return {"p50_ms": p50_ms, "p95_ms": p99_ms, "p99_ms": p99_ms, "in_time": in_time, "good": 70.0}


def claimed(live, simulated):
    setup = Setup(seeds=1, quick=True, policies=["priced"])
    found = {trial.key: {"live": live, "simulated": simulated} for trial in planned(setup)}
    return [claim["holds"] for claim in outcome(setup, found)["claims"]]


@pytest.mark.parametrize(
    ("live", "holds"),
    [
        (figures(11.0, 90.0, 99.0), [True, True]),
        (figures(12.0, 90.0, 99.0), [False, True]),
        (figures(11.0, 60.0, 99.0), [True, False]),
        (figures(99.0, 999.0, 50.0), [None, None]),  # a queue that grew for as long as it ran
    ],
)
def test_near_means_within_15_percent_where_the_fleet_keeps_up(live, holds):
    assert claimed(live, figures(10.0, 85.0, 99.0)) == holds


def test_the_spread_is_that_of_the_batches_between_two_moments():
    edges = np.array([0.5, 1.0, 2.0])
    before = Gauges({}, 0.1, np.stack([edges, [5.0, 5.0, 5.0]], axis=1))
    after = Gauges({}, 0.1, np.stack([edges, [5.0, 105.0, 205.0]], axis=1))
    found = spread(before, after)
    # half of them lie evenly between 0.5 and 1, half between 1 and 2
    assert found.min() > 0.5 and found.max() < 2.0
    assert np.mean(found < 1.0) == pytest.approx(0.5)
    assert np.quantile(found, 0.75) == pytest.approx(1.5, abs=0.01)


def test_a_fleet_that_ran_nothing_has_no_spread():
    told = Gauges({}, 0.1, np.array([[0.5, 3.0], [1.0, 3.0]]))
    assert spread(told, told).tolist() == [1.0]
