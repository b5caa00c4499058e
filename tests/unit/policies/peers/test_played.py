"""What a played scene was worth to each decision, by hand."""

import numpy as np
import pytest

from trimtab.build import workload
from trimtab.columns import STATE
from trimtab.policies.peers.mind import tape
from trimtab.policies.peers.played import SHORT_S, Played

MEMORY_S = 20.0


@pytest.fixture
def played():
    """Two tasks of 85 s, the second of which waits for the first: 100 s and 200 s from ready to
    end, the second with a quarter of its instances evicted.
    """
    work = workload(
        [0.0, 10.0], [85.0, 85.0], [1.0, 1.0], request_s=[85.0, 85.0], instances=[1, 4],
        after=(np.array([0, 0, 1]), np.array([0])),
    )  # fmt: skip
    state = np.zeros(2, STATE)
    state["end_s"], state["evicted"], state["attained_s"] = [100.0, 300.0], [0, 1], [85.0, 510.0]
    kept = tape(3, 8, 2, 0)
    kept.length[0], kept.ptr[:4] = 3, [0, 2, 4, 6]
    kept.act[:], kept.job[:], kept.time_s[:] = [1, 0, 1], [0, 1, 1], [0.0, 150.0, 250.0]
    kept.rows[:6] = [[1, 0], [2, 0], [3, 0], [4, 4], [5, 0], [6, 6]]
    return Played.of(kept, work, state)


def test_a_task_is_ready_when_it_has_come_and_what_it_waits_for_is_over(played):
    assert played.ready_s.tolist() == [0.0, 100.0]


def test_slow_down_is_seconds_in_the_system_over_the_request(played):
    assert played.slowdown().tolist() == [100 / (85 + SHORT_S), 2.0, 2.0]


def test_what_was_chosen_and_what_became_of_it(played):
    assert played.chosen().tolist() == [[2, 0], [3, 0], [6, 6]]
    assert played.waits().tolist() == [False, False, True]
    assert played.run_over_request().tolist() == [1.0, 1.5, 1.5]
    assert played.evicted().tolist() == [0.0, 0.25, 0.25]


def kept(begin_s, end_s):
    """What a weight of 1 / 100 gathers between so many seconds from now."""
    return MEMORY_S * (np.exp(-begin_s / MEMORY_S) - np.exp(-end_s / MEMORY_S)) / 100


def test_slow_down_from_now_on_is_of_what_waits(played):
    played.state["start_s"] = [50.0, 250.0]  # ready at 0 and 100
    exact = -np.array([kept(0, 50) + kept(100, 250), kept(0, 100), 0.0])
    assert np.allclose(played.slowdown_from_now("start_s", MEMORY_S), exact, rtol=0.06, atol=0.02)
    ended = -np.array([kept(0, 100) + kept(100, 300), kept(0, 150), kept(0, 50)])
    assert np.allclose(played.slowdown_from_now("end_s", MEMORY_S), ended, rtol=0.06, atol=0.02)
    assert np.allclose(played.standing(), [0.01, 0.01, 0.0], atol=0.005)
