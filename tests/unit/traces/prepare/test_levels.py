"""Segments: consecutive, of one split each, and no later split looks back into an earlier one."""

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.unit.traces.prepare.folders import small_twin

from trimtab.traces.prepare import Options, prepare
from trimtab.traces.prepare.levels import PURGED, SPLITS, cut
from trimtab.traces.readers import parquet

SIZES = [1, 2, 3, 10, 13, 40, 41, 97, 346, 2304]
CHOICES = [
    Options(),
    Options(history=1),
    Options(history=30, segment_s=7200),
    Options(window_s=60, segment_s=90, train=0.5, validation=0.25),
    Options(train=0.98, validation=0.01),
]


def splits_of(segments):
    """(windows,) the split of each window, -1 where it is purged."""
    return np.repeat(segments.split, segments.windows)


@pytest.mark.parametrize("options", CHOICES)
@pytest.mark.parametrize("windows", SIZES)
def test_every_window_is_in_exactly_one_segment(windows, options):
    found = cut(7, windows, options)
    assert (found.windows > 0).all()
    assert found.first[0] == 7
    assert (found.first[1:] == found.first[:-1] + found.windows[:-1]).all()
    assert found.windows.sum() == windows
    for window in (7, 7 + windows // 2, 6 + windows):
        segment, split = found.of(window)
        assert found.first[segment] <= window < found.first[segment] + found.windows[segment]
        assert split in (*SPLITS, PURGED)


@pytest.mark.parametrize("options", CHOICES)
@pytest.mark.parametrize("windows", SIZES)
def test_no_segment_is_longer_than_asked_and_splits_are_in_order(windows, options):
    found = cut(0, windows, options)
    kept = found.split >= 0
    assert (found.windows[kept] <= max(options.segment_s // options.window_s, 1)).all()
    assert (np.diff(found.split[kept]) >= 0).all()


@pytest.mark.parametrize("options", CHOICES)
@pytest.mark.parametrize("windows", SIZES)
def test_what_a_window_looks_back_on_is_of_its_own_split_or_purged(windows, options):
    split = splits_of(cut(0, windows, options))
    for window in np.flatnonzero(split >= 0):
        recent = split[max(0, window - options.history + 1) : window + 1]
        assert set(recent.tolist()) <= {split[window], -1}


def test_a_long_trace_has_the_shares_asked_for():
    split = splits_of(cut(0, 2304, Options()))
    shares = [float(np.mean(split == n)) for n in range(3)]
    # a dozen windows are purged at the beginning of validation and of test
    assert shares == pytest.approx([0.7, 0.15 - 12 / 2304, 0.15 - 12 / 2304], abs=1e-3)


def test_a_split_too_short_to_be_apart_is_purged_whole():
    found = cut(0, 40, Options())  # validation has 6 windows, a window looks back on 12
    assert set(found.split.tolist()) == {0, -1}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("splits")
    small_twin(folder / "twin")
    return prepare(folder / "twin", folder / "out"), folder / "out"


@pytest.mark.parametrize("level", ["node", "region", "cluster"])
def test_every_row_has_the_segment_and_split_of_its_window(prepared, level):
    manifest, out = prepared
    segments = pq.read_table(out / "segments.parquet").to_pylist()
    assert segments[-1]["end_s"] - segments[0]["start_s"] == manifest["windows"]["count"] * 300
    of = {}
    for one in segments:
        for window in range(one["first_window"], one["first_window"] + one["windows"]):
            of[window] = (one["segment"], one["split"])
    table = pq.read_table(out / f"{level}.parquet", columns=["window", "segment", "split"])
    rows = list(zip(*(table[name].to_pylist() for name in ("window", "segment", "split"))))
    assert {row[0] for row in rows} == set(of)
    assert all((segment, split) == of[window] for window, segment, split in rows)


def test_a_job_is_of_the_split_in_which_it_was_submitted(prepared):
    _, out = prepared
    work = parquet.load(out / "workload.parquet")
    segments = pq.read_table(out / "segments.parquet").to_pylist()
    last_s = segments[-1]["end_s"]
    inside = work.jobs["submit_s"] < last_s
    for submit_s, split in zip(work.jobs["submit_s"][inside], work.meta["split"][inside]):
        (one,) = [s for s in segments if s["start_s"] <= submit_s < s["end_s"]]
        assert one["split"] == (PURGED if split < 0 else SPLITS[split])
    # all tasks of a job are submitted together: none has tasks in two splits
    dag, split = work.meta["dag"], work.meta["split"]
    assert all(len(set(split[dag == d].tolist())) == 1 for d in np.unique(dag[dag >= 0]))
