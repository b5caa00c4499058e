"""Play-outs of queues made by hand, with the arithmetic shown; compiled and as Python."""

import numpy as np
import pytest

from trimtab.policies.rollout import pivots, playout, ranks
from trimtab.policies.rollout.playout import SLOWDOWN, WAIT, Scene, play_out
from trimtab.policies.rollout.ranks import CODES, ranked
from trimtab.rules import sort
from trimtab.sim import rlscheduler


def scene(jobs, free, running=(), now_s=0.0):
    """jobs: (submit, run, request, width); running: (left, due, width); one resource."""
    jobs = np.array(jobs, float).reshape(-1, 4)
    running = np.array(running, float).reshape(-1, 3)
    return Scene(
        now_s, np.array([float(free)]), running[:, 0].copy(), running[:, 1].copy(),
        running[:, 2:].copy(), jobs[:, 0].copy(), jobs[:, 1].copy(), jobs[:, 2].copy(),
        jobs[:, 3:].copy(),
    )  # fmt: skip


def value(made, order, backfill=False, objective=WAIT, enough=np.inf):
    return play_out(made, np.array(order), backfill, objective, enough)


def test_the_short_job_first_costs_the_long_one_little():
    # one unit: 100 s then 10 s wait 0 + 100; the other way about 10 + 0
    made = scene([(0, 100, 100, 1), (0, 10, 10, 1)], free=1)
    assert value(made, [0, 1]) == 100.0
    assert value(made, [1, 0]) == 10.0


def test_the_slow_down_is_bounded_by_ten_seconds():
    # 100 s at once: 1; 1 s after 100 s of waiting: (100 + 1) / 10
    made = scene([(0, 100, 100, 1), (0, 1, 1, 1)], free=1)
    assert value(made, [0, 1], objective=SLOWDOWN) == pytest.approx(1 + 10.1)


def test_a_job_that_waited_already_has_that_counted():
    # submitted 50 s ago, starts when what runs ends in 30 s
    made = scene([(50, 10, 10, 1)], free=0, running=[(30, 200, 1)], now_s=100.0)
    assert value(made, [0]) == 80.0


def test_without_backfilling_a_head_that_blocks_holds_all_behind_it():
    # 1 of 4 is free until 10: the head wants 4 and starts at 10, the small one at 30
    made = scene([(0, 20, 20, 4), (0, 5, 5, 1)], free=1, running=[(10, 10, 3)])
    assert value(made, [0, 1]) == 10.0 + 30.0


def test_backfilling_starts_what_ends_by_the_request_before_the_head_is_expected():
    # the head is expected at 10: 5 s fit before it, a request of 11 s does not, though it runs 5
    made = scene([(0, 20, 20, 4), (0, 5, 5, 1)], free=1, running=[(10, 10, 3)])
    assert value(made, [0, 1], backfill=True) == 10.0 + 0.0
    made = scene([(0, 20, 20, 4), (0, 5, 11, 1)], free=1, running=[(10, 10, 3)])
    assert value(made, [0, 1], backfill=True) == 10.0 + 30.0


def test_backfilling_starts_what_leaves_the_head_its_room():
    # the head wants 3 of 4 and is expected at 10; the long one may have the fourth, once
    made = scene([(0, 20, 20, 3), (0, 50, 50, 1), (0, 50, 50, 1)], 2, running=[(10, 10, 2)])
    # head at 10, one at 0; the other at 30, when the head has ended
    assert value(made, [0, 1, 2], backfill=True) == 10.0 + 0.0 + 30.0


def test_what_has_yet_to_come_starts_no_earlier():
    # comes at 7, is first in the order, and finds the unit taken until 10
    made = scene([(0, 10, 10, 1), (7, 5, 5, 1)], free=1)
    assert value(made, [1, 0]) == 0.0 + 3.0


def test_a_play_out_breaks_off_once_it_is_no_better():
    made = scene([(0, 100, 100, 1), (0, 10, 10, 1)], free=1)
    assert (
        value(
            made,
            [
                0,
                1,
            ],
            enough=50.0,
        )
        == 100.0
    )  # it was over when that was known
    longer = scene([(0, 100, 100, 1), (0, 10, 10, 1), (0, 10, 10, 1)], free=1)
    assert value(longer, [0, 1, 2], enough=50.0) == np.inf


def test_what_fits_nowhere_is_worth_nothing():
    assert value(scene([(0, 10, 10, 5)], free=4), [0]) == np.inf


def test_every_resource_counts():
    made = scene([(0, 10, 10, 1), (0, 10, 10, 1)], free=2)
    wide = np.array([[1.0, 3.0], [1.0, 3.0]])
    made = made._replace(free=np.array([2.0, 4.0]), held=np.zeros((0, 2)), width=wide)
    assert value(made, [0, 1]) == 10.0  # 3 + 3 of the second do not fit in 4


@pytest.mark.parametrize(
    ("name", "order"),
    [
        ("fcfs", [0, 1, 2]),  # 0, 10, 20
        ("sjf", [2, 1, 0]),  # 30, 20, 5
        ("smallest", [1, 0, 2]),  # 2, 1, 8
        ("smallest-area", [1, 2, 0]),  # 60, 20, 40
        ("wfp3", [0, 2, 1]),  # (100/30)^3 2 = 74, (90/20)^3 1 = 91, (80/5)^3 8 = 32768
    ],
)
def test_orders_are_by_the_guessed_run_times(name, order):
    columns = np.array([0.0, 10, 20]), np.array([30.0, 20, 5]), np.array([2.0, 1, 8])
    if name == "wfp3":
        order = [2, 1, 0]
    assert ranked(CODES[name], 100.0, *columns).tolist() == order


def random_scene(rng, later=False):
    jobs = rng.integers(1, 30, (12, 4)).astype(float)
    jobs[:, 3] = rng.integers(1, 9, 12)
    jobs[:, 0] = np.sort(rng.integers(0, 100, 12))
    if later:
        jobs[8:, 0] += 100.0
    held = rng.integers(1, 3, 3)
    running = np.column_stack((rng.integers(1, 30, 3), 100 + rng.integers(1, 60, 3), held))
    return scene(jobs, 8 - held.sum(), running, now_s=100.0)


@pytest.mark.parametrize("backfill", [False, True])
def test_compiled_and_python_agree(monkeypatch, backfill):
    rng = np.random.default_rng(5)
    cases = [(random_scene(rng, later), rng.permutation(12)) for later in (False, True) * 5]
    compiled = [value(made, order, backfill, SLOWDOWN) for made, order in cases]
    by_pivots = [pivots.play_out(made, order, backfill, SLOWDOWN) for made, order in cases]
    orders = [ranked(code, 100.0, m.submit_s, m.run_s, m.width[:, 0]).tolist()
              for m, _ in cases for code in CODES.values()]  # fmt: skip
    for module in (sort, rlscheduler, playout, pivots, ranks):
        for name, function in vars(module).copy().items():
            if hasattr(function, "py_func"):
                monkeypatch.setattr(module, name, function.py_func)
    assert compiled == pytest.approx(
        [playout.play_out(made, order, backfill, SLOWDOWN, np.inf) for made, order in cases]
    )
    assert by_pivots == pytest.approx(
        [pivots.play_out(made, order, backfill, SLOWDOWN) for made, order in cases]
    )
    assert orders == [
        ranks.ranked(code, 100.0, m.submit_s, m.run_s, m.width[:, 0]).tolist()
        for m, _ in cases for code in CODES.values()
    ]  # fmt: skip


def test_without_backfilling_both_semantics_play_the_same():
    # nothing comes, and a job that blocks holds all behind it: an order is one list of starts
    rng = np.random.default_rng(6)
    for _ in range(20):
        made, order = random_scene(rng), rng.permutation(12)
        assert pivots.play_out(made, order, False, SLOWDOWN) == pytest.approx(
            value(made, order, False, SLOWDOWN)
        )
