"""CPU use of hosts: pooled, binned, counted, cut into windows, and generated."""

import numpy as np
import pytest

from trimtab.errors import PlanError, UnknownName
from trimtab.llm.world.cpu_traces import (
    MEASURED,
    Series,
    binned,
    chain,
    generated,
    of_samples,
    split,
    statistics,
    windows,
)
from trimtab.load.samples import Samples


def samples(time_s, node, cpu, names):
    nan = np.full(len(cpu), np.nan)
    return Samples(
        np.asarray(time_s, float), np.asarray(node), np.asarray(cpu, float),
        nan, nan, nan, nan, nan, tuple(names),
    )  # fmt: skip


def test_an_epoch_is_the_mean_of_its_samples_and_a_gap_stays_one():
    series = of_samples(samples([0, 60, 300, 900], [0, 0, 0, 0], [0.2, 0.4, 0.5, 0.6], ["a"]))
    assert series.epoch.tolist() == [0, 1, 3]
    assert series.cpu[0] == pytest.approx([0.3, 0.5, 0.6])


def test_guests_with_the_same_gaps_share_a_host_and_fill_it_at_most():
    # a and c were measured in epoch 0, b and d in epoch 1
    made = samples([0, 300, 0, 300], [0, 1, 2, 3], [0.3, 0.8, 0.4, 0.7], "abcd")
    series = of_samples(made, guests=2)
    known = series.cpu[np.isfinite(series.cpu)]
    assert sorted(known) == pytest.approx([0.7, 1.0])


@pytest.mark.parametrize("guests", [0, 3])
def test_a_host_of_no_or_too_many_guests_is_refused(guests):
    with pytest.raises(PlanError, match=f"guests={guests} machines a host, of 1"):
        of_samples(samples([0], [0], [0.1], ["a"]), guests)


def test_bins_begin_at_their_edges():
    assert binned(np.array([0.0, 0.25, 0.49, 0.5, 0.75, 1.0, np.nan])).tolist() == [
        *(0, 1, 1, 2, 3, 3, -1)
    ]


def test_a_chain_counts_moves_within_an_epoch_and_none_over_a_gap():
    cpu = np.array([[0.1, 0.1, 0.3, 0.1, 0.9]])
    series = Series(cpu, np.array([0, 1, 2, 3, 9]), "made")
    # from bin 0: once to 0, once to 1; half a count for each neighbour and itself
    assert chain(series)[0] == pytest.approx([1.5 / 3, 1.5 / 3, 0.0, 0.0])


def test_windows_hold_no_gap_and_come_from_the_trace():
    cpu = np.linspace(0, 1, 40)[None].repeat(2, axis=0)
    cpu[1, 20] = np.nan
    series = Series(cpu, np.r_[0:20, 30:50], "made")
    found = windows(series, 8, 200, np.random.default_rng(0))
    assert found.shape == (200, 9)
    assert found.min() >= 0 and (np.diff(found) >= 0).all()
    jumps = np.diff(found, axis=1).max()
    assert jumps == 1


def test_a_trace_that_is_too_short_or_full_of_gaps_is_refused():
    short = Series(np.zeros((1, 5)), np.arange(5), "short")
    with pytest.raises(PlanError, match="short: holds out 5 epochs of 300 s, a window takes 49"):
        windows(short, 48, 1, np.random.default_rng(0))
    rare = Series(np.zeros((1, 60)), 2 * np.arange(60), "rare")
    with pytest.raises(PlanError, match="rare: has no 49 epochs of 300 s without a gap"):
        windows(rare, 48, 1, np.random.default_rng(0))


def test_what_is_held_out_comes_last():
    series = Series(np.arange(10.0)[None], np.arange(10), "made")
    first, rest = split(series)
    assert first.epoch.tolist() == [0, 1, 2, 3, 4, 5] and rest.epoch.tolist() == [6, 7, 8, 9]


@pytest.mark.parametrize("kind", MEASURED)
def test_a_generated_trace_has_the_statistics_of_the_published_one(kind):
    found = statistics(generated(kind, 48, 4032, rng=np.random.default_rng(3)))
    wanted = MEASURED[kind]
    assert found.quantiles == pytest.approx(wanted.quantiles, abs=0.02)
    assert found.between == pytest.approx(wanted.between, abs=0.06)
    assert found.near == pytest.approx(wanted.near, abs=0.06)
    assert found.far == pytest.approx(wanted.far, abs=0.08)


def test_an_unknown_kind_of_trace_is_refused():
    with pytest.raises(UnknownName, match="give one of planetlab, bitbrains, alibaba"):
        generated("borg", rng=np.random.default_rng(0))
