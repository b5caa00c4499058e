"""Use of services: recorded days dealt to splits, or drawn."""

import numpy as np
import pytest
from tests.data import found

from trimtab.errors import TraceError, UnknownName
from trimtab.traces.colocated.series import (
    BY_HOUR,
    DAY,
    SPLITS,
    daily_of,
    days_of,
    drawn_daily,
    drawn_own,
    recorded,
    stretch_of,
    use_of,
)


def usage(path, days, value):
    """A machine_usage file of two machines at 300 s: `value(day, sample)` percent."""
    rows = [
        f"m_{machine},{300 * step},{value(step // DAY, step % DAY)},50,,,0,0,0\n"
        for machine in (1, 2)
        for step in range(days * DAY)
    ]
    path.write_text("".join(rows))
    return path


def test_the_days_of_the_splits_are_apart_and_all_are_used():
    for days in (7, 8, 30):
        chosen = [day for split in SPLITS for day in range(*days_of(days, split))]
        assert chosen == list(range(days))


def test_a_series_has_only_days_of_its_split(tmp_path):
    """Each day swings at a height of its own, by which it is known again."""
    path = usage(tmp_path / "machine_usage.csv", 7, lambda day, k: 10 * (day + 1) + k % 5)
    low, high = recorded(str(path), "train"), recorded(str(path), "test")
    assert sum(map(len, low)) == 2 * 4 * DAY and sum(map(len, high)) == 2 * 2 * DAY
    # shares of the largest: day 6 of 60..64 to day 7 of 70..74 in the split for testing
    assert min(part.min() for part in high) == pytest.approx(60 / 74, abs=0.01)
    assert min(part.min() for part in low) == pytest.approx(10 / 44, abs=0.01)


def test_a_recording_without_change_is_refused(tmp_path):
    path = usage(tmp_path / "machine_usage.csv", 7, lambda day, k: 30)
    with pytest.raises(TraceError, match="no machine has 24 measurements in a row of changing use"):
        recorded(str(path), "train")


def test_the_daily_part_is_the_mean_from_0_to_1_in_whole_days(tmp_path):
    path = usage(tmp_path / "machine_usage.csv", 8, lambda day, k: 20 + 60 * k / DAY)
    part = daily_of(str(path), "test")
    assert len(part) == 2 * DAY
    assert part[0] == 0.0 and part[DAY - 1] == 1.0
    assert np.all(np.diff(part[:DAY]) >= 0)


def test_too_few_days_for_three_splits_are_refused(tmp_path):
    path = usage(tmp_path / "machine_usage.csv", 2, lambda day, k: k % 7)
    with pytest.raises(TraceError, match="has 2 whole days"):
        daily_of(str(path), "train")


def test_drawn_series_are_like_the_recorded_ones():
    rng = np.random.default_rng(0)
    own = np.concatenate(drawn_own(rng, 4 * DAY, machines=200))
    assert own.min() >= 0.0 and own.max() <= 1.0
    assert own.mean() == pytest.approx(0.40, abs=0.05)
    days = drawn_daily(rng, 30 * DAY, np.array(BY_HOUR)).reshape(30, DAY).mean(0)
    assert days.argmin() // 12 in range(16, 20) and days.argmax() // 12 in (0, 1, 2, 23)


def test_a_stretch_longer_than_the_series_is_played_back_and_forth():
    values = np.arange(5.0)
    got = stretch_of(values, 40, np.random.default_rng(0))
    assert len(got) == 40 and set(np.abs(np.diff(got))) <= {0.0, 1.0}


def test_an_unknown_split_is_named():
    with pytest.raises(UnknownName, match="did you mean 'train'"):
        use_of("", "", "trian", 0.0, np.random.default_rng(0), needs=10)


def test_bitbrains_by_days():
    path = str(found("data", "cpu_usage", "workloadTraces_bitbrains-small_fragments.parquet"))
    train, test = recorded(path, "train"), recorded(path, "test")
    assert len(train) and len(test)
    assert all(part.min() >= 0.0 and part.max() <= 1.0 for part in (*train, *test))
