"""Rows carry means and paired ratios with their intervals, and never NaN."""

import math

import pytest

from trimtab.metrics import hyperscore
from trimtab.reproduce.tables import mean_row, places, ratio_row, row, rows_of, score_rows


def test_a_row_has_the_keys_of_the_schema_and_where_it_was_measured():
    found = row("fcfs", "jct_mean_s", 3.0, paper=25.8, arm="noisy", load=0.9)
    assert list(found) == ["policy", "metric", "paper", "ours", "low", "high", "arm", "load"]


@pytest.mark.parametrize("value", [math.nan, math.inf, None])
def test_a_number_that_is_none_becomes_null(value):
    assert row("fcfs", "v", value, 1.0, value)["ours"] is None
    assert row("fcfs", "v", 1.0, 1.0, value)["high"] is None


def test_a_mean_has_the_interval_of_students_t():
    found = mean_row("fcfs", "m", [11.0, 12.0, 13.0])
    # standard error 1 / sqrt(3), t at 2 degrees of freedom 4.3027
    assert (found["ours"], found["low"]) == pytest.approx((12.0, 12 - 4.3027 / 3**0.5))


def test_the_interval_of_what_is_nowhere_negative_begins_at_zero_at_least():
    assert mean_row("fcfs", "m", [1.0, 2.0, 3.0])["low"] == 0.0  # 2 - 2.48
    assert mean_row("fcfs", "m", [-1.0, 2.0, 3.0])["low"] < 0


def test_one_seed_has_no_interval():
    found = mean_row("fcfs", "m", [2.0])
    assert (found["ours"], found["low"], found["high"]) == (2.0, None, None)


def test_a_ratio_is_paired_by_seed():
    # 1/2 and 20/40: both a half, though means of 10.5 and 21 differ widely between seeds
    found = ratio_row("fcfs", "m", [1.0, 20.0], [2.0, 40.0])
    assert (found["ours"], found["low"], found["high"]) == (0.5, 0.5, 0.5)


def test_a_ratio_to_nothing_is_null():
    assert ratio_row("fcfs", "m", [1.0, 2.0], [0.0, 1.0])["ours"] is None


def test_the_score_is_that_of_the_mean_v_and_keeps_its_order():
    v, score = score_rows("fluid", [1.1, 1.3])
    assert v["ours"] == pytest.approx((1.1 * 1.3) ** 0.5)
    assert score["ours"] == pytest.approx(hyperscore(v["ours"]))
    assert score["low"] <= score["ours"] <= score["high"]


def test_rows_are_found_by_table_and_value():
    tables = [{"name": "a", "rows": [row("p", "m", 1.0, load=0.5), row("p", "m", 2.0, load=0.9)]}]
    assert [one["ours"] for one in rows_of(tables, "a", load=0.9)] == [2.0]
    assert rows_of(tables, "b") == []
    assert places(tables[0]["rows"], "load") == [{"load": 0.5}, {"load": 0.9}]
