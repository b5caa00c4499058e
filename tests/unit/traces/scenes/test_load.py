"""A log on one pool at a stated load: its arrivals move, and all that hangs on them."""

import numpy as np
import pytest

from trimtab.build import cluster, uniform_profile, workload
from trimtab.errors import TraceError
from trimtab.traces.scenes.describe import offered_load
from trimtab.traces.scenes.load import at_load

POOL = cluster([[10]], kinds=("pool",), source="a pool")


def jobs(**columns):
    """Every 100 s one job of 5 units and 40 s, eleven in all: 0.2 of ten units."""
    submit_s = 1000 + 100.0 * np.arange(11)
    return workload(submit_s, np.full(11, 40.0), np.full(11, 5.0), source="a log", **columns)


def at(work, load):
    return at_load(work, POOL, uniform_profile(1, 1), load)[0]


@pytest.mark.parametrize("load", [0.1, 0.2, 0.4])
def test_arrivals_move_until_the_pool_is_offered_the_load(load):
    # no run reaches past the last submit: half the gaps offer twice the load
    assert offered_load(jobs(), POOL)["cpu"] == pytest.approx(0.2)
    moved = at(jobs(), load)
    assert offered_load(moved, POOL)["cpu"] == pytest.approx(load)
    gaps_s = np.diff(moved.jobs["submit_s"])
    assert gaps_s == pytest.approx(100 * 0.2 / load)
    assert moved.jobs["submit_s"][0] == 1000


def test_a_run_that_the_last_submit_cuts_off_counts_up_to_there():
    # at gaps of 10 s jobs of 40 s overlap: the last four are cut to 30, 20, 10 and 0 s
    work = jobs()
    work.jobs["submit_s"] = 10.0 * np.arange(11)
    told = offered_load(work, POOL)["cpu"]
    assert told == pytest.approx((7 * 40 + 30 + 20 + 10) * 5 / (10 * 100))


def test_deadlines_and_cancellations_move_with_their_jobs_and_the_record_goes():
    work = jobs(deadline_s=1000 + 100.0 * np.arange(11) + 70, cancel_s=5000.0)
    work.meta["recorded"] = {"start_s": np.arange(11.0), "end_s": np.arange(11.0)}
    moved = at(work, 0.4)
    assert moved.jobs["deadline_s"] - moved.jobs["submit_s"] == pytest.approx(70)
    assert moved.truth["cancel_s"][-1] == pytest.approx(5000 - 500)  # submitted 500 s sooner
    assert "recorded" not in moved.meta and "recorded" in work.meta
    (note,) = moved.meta["notes"]
    assert "--load 0.4: arrivals are compressed, 0.5 times" in note and "recorded" in note
    assert moved.source == "a log, arrivals compressed by 0.5"


@pytest.mark.parametrize("load", [5.0, 1e-9])
def test_a_load_that_no_stretch_offers_is_refused_with_those_that_can_be(load):
    # close together they all run until the last submit: (10 + 9 + .. + 0) / 10 gaps x 5 / 10 units
    with pytest.raises(TraceError, match=r"can be moved to offer a pool \S+ to 2.75, not more"):
        at(jobs(), load)


def test_jobs_that_arrive_at_once_offer_no_load():
    work = workload([3, 3], [10, 10], [5, 5], source="two at once")
    with pytest.raises(TraceError, match="arrive at once"):
        at(work, 0.5)
