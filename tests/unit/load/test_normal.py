"""Running statistics: those of all numbers at once, whatever the batches."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.errors import TraceError
from trimtab.load.normal import VERSION, Normal, load_normal

NAN = np.nan
NUMBERS = st.one_of(st.just(NAN), st.floats(-1e6, 1e6))
BATCHES = st.lists(st.lists(st.tuples(NUMBERS, NUMBERS), max_size=8), min_size=1, max_size=6)


def table(rows) -> np.ndarray:
    return np.array(rows, float).reshape(-1, 2)


@settings(max_examples=200, deadline=None)
@given(BATCHES)
def test_batches_give_the_mean_and_variance_of_all_rows(batches):
    normal = Normal(("a", "b"))
    for batch in batches:
        normal.update(table(batch))
    every = table([row for batch in batches for row in batch])
    for c in range(2):
        column = every[~np.isnan(every[:, c]), c]
        assert normal.count[c] == len(column)
        if len(column):
            largest = np.abs(column).max()
            assert normal.mean[c] == pytest.approx(column.mean(), rel=1e-9, abs=1e-12 * largest)
            variance = normal.squares[c] / normal.count[c]
            assert variance == pytest.approx(column.var(), rel=1e-9, abs=1e-12 * largest**2)


@settings(max_examples=100, deadline=None)
@given(BATCHES, BATCHES)
def test_two_that_are_merged_equal_one_that_saw_both(first, second):
    parts, whole = [Normal(("a", "b")), Normal(("a", "b"))], Normal(("a", "b"))
    for part, batches in zip(parts, (first, second)):
        for batch in batches:
            part.update(table(batch))
            whole.update(table(batch))
    parts[0].merge(parts[1])
    assert parts[0].count.tolist() == whole.count.tolist()
    np.testing.assert_allclose(parts[0].mean, whole.mean, rtol=1e-9, atol=1e-6)
    np.testing.assert_allclose(parts[0].squares, whole.squares, rtol=1e-9, atol=1e-3)


def test_a_small_spread_on_a_large_mean_is_not_lost():
    normal = Normal(("a",))
    for value in (1e9 + 1, 1e9 + 2, 1e9 + 3):  # variance 2/3; a sum of squares would round it away
        normal.update([[value]])
    assert normal.squares[0] / 3 == pytest.approx(2 / 3)


def test_scaled_is_the_distance_from_the_mean_in_standard_deviations():
    normal = Normal(("util", "power_w"))
    normal.update([[0.0, 100.0], [1.0, 300.0]])  # means 0.5 and 200, deviations 0.5 and 100
    z, mask = normal.scaled([[1.0, 250.0]])
    assert z.tolist() == [[1.0, 0.5]]
    assert mask.tolist() == [[1.0, 1.0]]


@pytest.mark.parametrize("bad", [NAN, np.inf, -np.inf])
def test_what_was_not_measured_is_zero_with_mask_zero_and_moves_nothing(bad):
    normal = Normal(("util", "power_w"))
    normal.update([[0.0, 100.0], [1.0, 300.0]])
    before = normal.mean.tolist()
    normal.update([[bad, bad]])
    z, mask = normal.scaled([[bad, 300.0]])
    assert normal.mean.tolist() == before and normal.count.tolist() == [2, 2]
    assert z.tolist() == [[0.0, 1.0]]
    assert mask.tolist() == [[0.0, 1.0]]


def test_scaled_is_clipped():
    normal = Normal(("a",))
    normal.update([[-1.0], [1.0]])
    assert normal.scaled([[100.0], [-100.0]])[0].tolist() == [[5.0], [-5.0]]
    assert normal.scaled([[100.0]], clip=2.0)[0].tolist() == [[2.0]]


def test_without_numbers_a_value_comes_back_as_it_is():
    z, mask = Normal(("a", "b")).scaled([[0.25, NAN]])
    assert z.tolist() == [[0.25, 0.0]] and mask.tolist() == [[1.0, 0.0]]


def test_a_channel_that_never_changes_is_zero_and_not_noise():
    normal = Normal(("a",))
    for _ in range(1000):
        normal.update([[0.1]])
    assert abs(normal.scaled([[0.1]])[0][0, 0]) < 1e-9


def test_any_shape_whose_last_axis_is_the_channels_will_do():
    normal = Normal(("a", "b"))
    normal.update(np.arange(12.0).reshape(2, 3, 2))
    assert normal.count.tolist() == [6, 6] and normal.mean.tolist() == [5, 6]
    assert normal.scaled(np.zeros((4, 3, 2)))[0].shape == (4, 3, 2)


def test_what_was_saved_is_loaded_to_the_last_bit(tmp_path):
    normal = Normal(("a", "b"))
    normal.update(np.random.default_rng(0).normal(size=(100, 2)) / 3)
    normal.save(tmp_path / "normal.json")
    again = load_normal(tmp_path / "normal.json", ("a", "b"))
    for name in ("count", "mean", "squares"):
        assert getattr(again, name).tolist() == getattr(normal, name).tolist()
    assert [path.name for path in tmp_path.iterdir()] == ["normal.json"]


GOOD = {"version": VERSION, "channels": ["a"], "count": [1], "mean": [0.5], "squares": [0.0]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (GOOD | {"version": 99}, "version=99"),
        (GOOD | {"channels": ["b"]}, "channels=b, want a"),
        (GOOD | {"mean": [0.5, 1.0]}, "too short or too long"),
        (GOOD | {"squares": [-1.0]}, "negative"),
        (GOOD | {"mean": [None]}, "not finite"),
        ({}, "'version'"),
        ([], "holds no statistics"),
    ],
)
def test_a_file_that_holds_something_else_is_refused(tmp_path, content, message):
    path = tmp_path / "normal.json"
    path.write_text(json.dumps(content))
    with pytest.raises(TraceError) as caught:
        load_normal(path, ("a",))
    assert str(path) in str(caught.value) and message in str(caught.value)


def test_a_file_that_is_not_there_and_a_folder_that_is_not_are_named(tmp_path):
    with pytest.raises(TraceError, match=r"none\.json: cannot be read"):
        load_normal(tmp_path / "none.json")
    with pytest.raises(TraceError, match=r"normal\.json: cannot be written"):
        Normal(("a",)).save(tmp_path / "none" / "normal.json")


def test_columns_that_do_not_match_the_channels_are_refused():
    with pytest.raises(TraceError, match=r"shape \(3,\); give 2 columns"):
        Normal(("a", "b")).update([1.0, 2.0, 3.0])
    with pytest.raises(TraceError, match="merge"):
        Normal(("a", "b")).merge(Normal(("a",)))
