"""Windows in order: what the last ones say of this one."""

import numpy as np
import pytest
from pytest import approx

from trimtab.errors import TraceError
from trimtab.load.features import NODE, NODE_AT
from trimtab.load.series import Series, histories, sliding
from trimtab.load.sums import AT, FIXED, empty_queue, empty_sums


def use(*cpu):
    sums = empty_sums(1, len(cpu))[0]
    for node, value in enumerate(cpu):
        if not np.isnan(value):
            sums[node, [AT.samples, AT.cpu_sum]] = 1, round(value * FIXED)
    return sums


def stepped(series, windows):
    queue = empty_queue(1)[0]
    return [series.step(window, use(*cpu), queue) for window, cpu in windows]


def series(nodes=1, **options):
    return Series(np.ones((nodes, 2)), np.zeros(nodes, int), **options)


def of(frame, name, node=0):
    return float(frame.node[node, NODE.index(name)])


def test_recent_use_is_the_mean_of_the_last_windows():
    *_, last = stepped(series(history=3), enumerate([[0.9], [0.1], [0.2], [0.6]]))
    assert of(last, "cpu_recent") == approx(0.3)  # 0.9 is four windows ago
    assert of(last, "cpu_recent_sd") == approx(np.std([0.1, 0.2, 0.6]))
    # 300 s windows: x = -1/6, -1/12, 0 h
    slope = np.polyfit([-1 / 6, -1 / 12, 0], [0.1, 0.2, 0.6], 1)[0]
    assert of(last, "cpu_trend") == approx(slope)


def test_one_window_has_no_trend_and_none_is_nan():
    first, second = stepped(series(2), [(0, [0.5, np.nan]), (1, [np.nan, np.nan])])
    assert [of(first, name) for name in ("cpu_recent_sd", "cpu_trend")] == [0, 0]
    assert np.isnan(of(first, "cpu_trend", 1))
    assert of(second, "cpu_recent") == 0.5
    assert np.isnan(of(second, "cpu"))


def test_a_jump_in_the_window_number_is_a_gap():
    gap = [np.nan]
    jumped = stepped(series(history=4), [(10, [0.25]), (13, [0.75])])[-1]
    filled = stepped(series(history=4), [(10, [0.25]), (11, gap), (12, gap), (13, [0.75])])[-1]
    assert jumped.node.tobytes() == filled.node.tobytes()
    assert of(jumped, "cpu_trend") == approx(0.5 / 0.25)  # three windows are a quarter of an hour


def test_a_jump_longer_than_the_history_forgets_it():
    *_, last = stepped(series(history=4), [(0, [0.25]), (1, [0.25]), (900, [0.75])])
    assert of(last, "cpu_recent") == 0.75


def test_no_window_looks_ahead():
    rng = np.random.default_rng(0)
    windows = [(k, rng.random(3)) for k in range(6)]
    short, long = stepped(series(3), windows[:4]), stepped(series(3), windows)
    for one, other in zip(short, long):
        assert one.node.tobytes() == other.node.tobytes()
        assert one.cluster.tobytes() == other.cluster.tobytes()


def test_equal_machines_are_each_the_mean_machine_exactly():
    assert (Series(np.full((7, 2), 0.1), np.zeros(7, int)).unit == 1).all()
    unequal = Series([[30, 1], [10, 1]], [0, 0])
    assert unequal.unit.tolist() == [[20 / 30, 1], [2, 1], [1, 1]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"capacity": [1, 2]}, "give \\(machines, 2\\)"),
        ({"capacity": [[1, 0]], "region": [0]}, "capacity of machine 0"),
        ({"region": [0]}, "for each of 2 machines"),
        ({"region": [0, -1]}, "from 0 up"),
        ({"window_s": 0}, "window_s=0 is too short"),
        ({"history": 0}, "history=0"),
    ],
)
def test_a_mistake_is_named(options, message):
    given = {"capacity": [[1, 1], [1, 1]], "region": [0, 0], **options}
    with pytest.raises(TraceError, match=message):
        Series(**given)


def test_windows_come_in_order_and_in_shape():
    made = series()
    stepped(made, [(3, [0.5])])
    with pytest.raises(TraceError, match="window 3 comes after window 3"):
        stepped(made, [(3, [0.5])])
    with pytest.raises(TraceError, match="a row for unknown machines comes last"):
        made.step(4, use(0.5)[:1], empty_queue(1)[0])


def test_histories_are_views_with_a_mask_of_the_gaps():
    frames = stepped(series(2), [(0, [0.1, 0.2]), (1, [0.3, np.nan]), (2, [0.5, 0.6])])
    values, seen = histories(frames, 2)
    assert values.shape == (2, 2, 2, len(NODE))
    assert values[1, 0, :, NODE_AT.cpu].tolist() == approx([0.3, 0.5])
    assert seen.tolist() == [[[True, True], [True, False]], [[True, True], [False, True]]]
    assert np.shares_memory(values[0], values[1])


def test_histories_want_consecutive_windows():
    frames = stepped(series(), [(0, [0.1]), (2, [0.3])])
    with pytest.raises(TraceError, match="have holes"):
        histories(frames, 1)
    with pytest.raises(TraceError, match="width=3"):
        sliding(np.zeros((2, 1, 1)), 3)
