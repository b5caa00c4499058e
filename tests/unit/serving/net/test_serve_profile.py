"""A profile says what a batch costs, whence it knows, and survives a file."""

from dataclasses import replace

import numpy as np
import pytest

from trimtab.errors import ServeError
from trimtab.serving.net import serve_profile
from trimtab.serving.net.serve_profile import front, modelled, time_of, tuple_s
from trimtab.serving.net.slim_form import Form, row_of, segment_macs
from trimtab.serving.nouns import TUPLES
from trimtab.serving.routing import arrivals

PROFILE = modelled()


def test_time_is_the_tables_at_a_bucket_and_linear_between():
    at = PROFILE.time_s[2, 1, 3]
    assert time_of(PROFILE, 2, 1, 3, 8) == at[3]
    assert time_of(PROFILE, 2, 1, 3, 6) == pytest.approx((at[2] + at[3]) / 2)
    assert time_of(PROFILE, 2, 1, 3, 96) == pytest.approx(at[6] + (at[6] - at[5]))


def test_the_model_counts_multiplications():
    made = modelled(flop_per_s=1e9, launch_s=0.25)
    assert made.time_s[1, 2, 3, 0] == pytest.approx(0.25 + 2e-9 * segment_macs(Form(), 1, 2, 3))
    assert not made.measured


def test_modelled_accuracy_is_near_the_published_tables():
    published = {(0, 0, 0, 0): 0.7030, (3, 3, 3, 3): 0.7643, (0, 1, 2, 3): 0.7533}
    for widths, right in published.items():
        assert PROFILE.accuracy[row_of(widths)] == pytest.approx(right, abs=0.006)


def test_no_tuple_beats_the_front():
    rows, time_s = front(PROFILE, 8), tuple_s(PROFILE, 8)
    assert (np.diff(time_s[rows]) > 0).all() and (np.diff(PROFILE.accuracy[rows]) > 0).all()
    for row in range(len(TUPLES)):
        beaten = (time_s[rows] <= time_s[row]) & (PROFILE.accuracy[rows] >= PROFILE.accuracy[row])
        assert beaten.any()


def test_the_time_of_a_tuple_is_the_sum_of_its_segments():
    parts = [(0, 0, 2), (1, 2, 0), (2, 0, 3), (3, 3, 1)]
    whole = sum(time_of(PROFILE, *part, 4) for part in parts)
    assert tuple_s(PROFILE, 4)[row_of((2, 0, 3, 1))] == pytest.approx(whole)


def test_a_saved_profile_is_read_back(tmp_path):
    serve_profile.save(PROFILE, tmp_path / "profile.npz")
    read = serve_profile.load(tmp_path / "profile.npz")
    assert (read.time_s == PROFILE.time_s).all() and (read.accuracy == PROFILE.accuracy).all()
    assert (read.buckets, read.source, read.busy_w) == (PROFILE.buckets, PROFILE.source, 65.0)
    assert read.slow_s.size == read.way.size == 0


def test_the_ways_and_the_spread_are_read_back(tmp_path):
    way = np.full(PROFILE.time_s.shape, "onnx-extended")
    known = replace(PROFILE, slow_s=2 * PROFILE.time_s, way=way)
    serve_profile.save(known, tmp_path / "profile.npz")
    read = serve_profile.load(tmp_path / "profile.npz")
    assert (read.way == way).all() and (read.slow_s == known.slow_s).all()


@pytest.mark.parametrize("content", [b"", b"not a profile", b"PK\x03\x04 cut short"])
def test_a_damaged_file_is_named(tmp_path, content):
    path = tmp_path / "profile.npz"
    path.write_bytes(content)
    with pytest.raises(ServeError, match=r"profile\.npz: not a profile.*measure one"):
        serve_profile.load(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ServeError, match="no such file; measure one"):
        serve_profile.load(tmp_path / "none.npz")


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: modelled(flop_per_s=0), "flop_per_s=0"),
        (lambda: modelled(buckets=(2, 4)), r"buckets=\(2, 4\)"),
        (lambda: modelled(idle_w=70.0), "idle_w=70"),
        (lambda: time_of(PROFILE, 0, 0, 0, 0), "count=0"),
        (lambda: replace(PROFILE, slow_s=np.ones(3)), r"slow_s has shape \(3,\)"),
        (lambda: arrivals.poisson(0, 1.0, np.random.default_rng(0)), "count=0"),
        (lambda: arrivals.bursty(5, 1.0, np.random.default_rng(0), peak=9.0), "peak=9"),
        (lambda: arrivals.shaped([3.0, 1.0], 1.0), "sort them"),
    ],
)
def test_a_mistake_is_named(call, named):
    with pytest.raises(ServeError, match=named):
        call()


@pytest.mark.parametrize("kind", ["poisson", "bursty", "shaped"])
def test_arrivals_rise_at_the_mean_rate_asked_for(kind):
    rng = np.random.default_rng(3)
    if kind == "shaped":
        found = arrivals.shaped(np.cumsum(rng.random(50) ** 4), 200.0, 20_000)
    else:
        found = getattr(arrivals, kind)(20_000, 200.0, rng)
    assert len(found) == 20_000 and (np.diff(found) >= 0).all() and found[0] >= 0
    assert 20_000 / found[-1] == pytest.approx(200.0, rel=0.1)


def test_bursts_spread_counts_more_than_poisson_does():
    def spread(times_s):
        counts = np.bincount(times_s.astype(int))[:-1]
        return counts.var() / counts.mean()

    calm = arrivals.poisson(20_000, 100.0, np.random.default_rng(0))
    wild = arrivals.bursty(20_000, 100.0, np.random.default_rng(0))
    assert spread(calm) < 2 < 10 < spread(wild)


def test_a_trace_keeps_its_pattern_when_stretched():
    found = arrivals.shaped([0.0, 1.0, 1.5, 4.0], 8.0)
    first_gap_s, *others_s = np.diff(found)
    # gaps 1, 0.5, 2.5 and their mean; the first is the way to the first arrival
    assert [gap_s / first_gap_s for gap_s in others_s] == pytest.approx([5.0, 8 / 3])
