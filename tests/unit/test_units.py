"""Every way in which the package writes a quantity, as a table of values."""

import math

import pytest

from trimtab.units import (
    amount,
    amounts,
    axis_unit,
    duration,
    figures,
    joules,
    number,
    percent,
    readable,
    seconds,
    size_bytes,
    three_digits,
    unit,
)


@pytest.mark.parametrize(
    ("value", "half", "text"),
    [
        (0.0, None, "0"),
        (0.0, 0.0, "0"),
        (2.0134, 0.412, "2.01 ± 0.41"),
        (1261.7, 2019.8, "1,262 ± 2,020"),
        (0.39, None, "0.390"),
        (923.0, None, "923"),
        (0.0, 3.2, "0.00 ± 3.20"),
        (-1.5, None, "-1.50"),
        (0.0004, None, "0.000"),
    ],
)
def test_figures_are_three_with_their_zeros(value, half, text):
    assert figures(value, half) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.5, "0.5"), (0.00123, "0.00123"), (99.96, "100"), (1234.5, "1,234"), (3.0, "3")],
)
def test_three_digits_end_in_no_zeros(value, text):
    assert three_digits(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (0.0123, "0.012"),
        (0.00123, "0.0012"),
        (-2.5, "-2.50"),
        (4321.0, "4,321"),
        (math.nan, ""),
        (math.inf, ""),
    ],
)
def test_a_number_is_not_rounded_away_and_none_is_an_empty_cell(value, text):
    assert number(value) == text


@pytest.mark.parametrize(("share", "text"), [(0.0, "0 %"), (0.5, "50 %"), (0.00002, "0.002 %")])
def test_a_share_is_written_in_percent(share, text):
    assert percent(share) == text


@pytest.mark.parametrize(
    ("value", "text"), [(12345.0, "12,345"), (0.5, "0.500"), (1234.5, "1,234")]
)
def test_a_whole_amount_keeps_its_digits(value, text):
    assert amount(value) == text


@pytest.mark.parametrize(
    ("values", "text"),
    [([96, 96], "96"), ([2, 1.5, 1], "1 to 2"), ([0.25, 8000], "0.250 to 8,000")],
)
def test_amounts_run_from_the_least_to_the_most(values, text):
    assert amounts(values) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"),
        (0.25, "0.250 s"),
        (119.0, "119 s"),
        (120.0, "2 min"),
        (7199.0, "120 min"),
        (7200.0, "2 h"),
        (172800.0, "2 d"),
        (math.inf, "without end"),
    ],
)
def test_a_duration_has_the_largest_unit_that_leaves_two_of_it(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0012, "1.2 ms"),
        (0.9999, "1e+03 ms"),
        (1.0, "1 s"),
        (12.345, "12.3 s"),
        (1000.0, "1,000 s"),
        (12345.6, "12,346 s"),
    ],
)
def test_a_time_of_a_step_is_in_milliseconds_or_seconds(value, text):
    assert seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(5.0, "5 J"), (1500.0, "1.5 kJ"), (2.5e6, "2.5 MJ"), (3e9, "3 GJ")]
)
def test_an_energy_of_a_step_is_in_joules(value, text):
    assert joules(value) == text


@pytest.mark.parametrize(
    ("dimension", "values", "name"),
    [
        ("time", [30, 50], "s"),
        ("time", [0, 0, 600], "min"),
        ("time", [9000], "h"),
        ("time", [9e5], "d"),
        ("energy", [7.2e6], "kWh"),
        ("energy", [1e10], "MWh"),
        ("share", [0.5], "%"),
        ("time", [], "s"),
    ],
)
def test_a_unit_suits_the_median_of_the_values_above_0(dimension, values, name):
    assert unit(dimension, values)[1] == name


@pytest.mark.parametrize(
    ("length_s", "name"), [(60, "s"), (600, "min"), (36000, "h"), (864000, "d")]
)
def test_the_axis_of_time_has_a_unit_that_suits_its_length(length_s, name):
    assert axis_unit(length_s)[1] == name


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1234567, "1,234,567"),
        (0.123456, "0.1235"),
        (1234.56, "1,235"),
        (2.5e6, "2,500,000"),
        ("text", "text"),
        ({"a": 1, "b": {"c": 0.5}}, "a 1  b c 0.5"),
    ],
)
def test_any_value_of_a_file_fits_a_line(value, text):
    assert readable(value) == text


def test_of_a_long_table_twelve_entries_are_read():
    text = readable({f"k{i}": i for i in range(15)})
    assert text.startswith("k0 0  k1 1") and text.endswith("k11 11  and 3 more")


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("2GB", 2_000_000_000),
        ("2GiB", 2 << 30),
        ("1.5gib", 3 << 29),
        (" 7 kb ", 7000),
        ("1t", 10**12),
        ("12", 12),
        (".5k", 500),
        ("2.M", 2_000_000),
    ],
)
def test_a_unit_is_a_power_of_1000_or_with_an_i_of_1024(text, size):
    assert size_bytes(text) == size


@pytest.mark.parametrize("text", ["", "GB", "1XB", "1.2.3GB", "-1GB", ".", "1 2GB"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(ValueError, match="is not a size"):
        size_bytes(text)
