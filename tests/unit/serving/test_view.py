"""The picture of a fleet: quantiles of a histogram, rates of the last seconds, shares of widths."""

import numpy as np
import pytest

from trimtab.serving.fleet.figures import Figures
from trimtab.serving.front.metrics_text import text
from trimtab.serving.net.slim_form import row_of
from trimtab.serving.nouns import Why
from trimtab.serving.view import LATENCY_EDGES_S, FleetView, Recent, quantile_s


def test_quantiles_are_right_to_a_bin():
    figures, rng = Figures(), np.random.default_rng(0)
    latency_s = rng.lognormal(-4, 1, 20_000)
    for value_s in latency_s:
        figures.answered(float(value_s), True)
    for share in (0.5, 0.95, 0.99):
        assert quantile_s(figures.bins, share) == pytest.approx(
            np.quantile(latency_s, share), rel=0.1
        )


def test_a_latency_counts_in_the_bin_whose_edge_it_does_not_pass():
    for value_s in (1e-9, 1e-4, 1.1e-4, 0.05, 11.0, 1e6):
        figures = Figures()
        figures.answered(value_s, True)
        at = int(np.flatnonzero(figures.bins)[0])
        assert at == np.searchsorted(LATENCY_EDGES_S, value_s * (1 - 1e-12))


def test_nothing_answered_has_latency_0():
    assert quantile_s(Figures().bins, 0.99) == 0.0


def test_recent_forgets_what_is_older_than_its_window():
    recent, total = Recent(window_s=10.0), np.zeros(1)
    for second in range(40):
        recent.note(float(second), total)
        total = total + (100 if second < 20 else 1)
    spent_s, added = recent.since(40.0, total)
    assert 10 <= spent_s <= 12
    assert added[0] == pytest.approx(spent_s, abs=1)
    assert len(recent.notes) < 15


def test_every_end_is_counted_once():
    figures = Figures()
    for why in Why:
        if why is not Why.UNKNOWN:
            figures.ended(why)
    ended = {name: n for name, n in figures.count.items() if name not in ("arrived", "in_time")}
    assert set(ended.values()) == {1}


def test_width_shares_add_up_a_segment():
    counts = np.zeros(256, int)
    counts[row_of((0, 1, 2, 3))] = 3
    counts[row_of((3, 1, 2, 3))] = 1
    shares = FleetView("m", "r", width_counts=counts).width_shares
    assert shares.sum(axis=1) == pytest.approx([1.0] * 4)
    assert shares[0].tolist() == [0.75, 0, 0, 0.25]
    assert shares[1, 1] == 1.0


def test_cumulative_bins_end_at_the_number_of_answers():
    figures = Figures()
    for value_s in (0.001, 0.01, 100.0):
        figures.answered(value_s, False)
    told = text(FleetView("m", "r", latency_bins=figures.bins)).splitlines()
    found = [line for line in told if line.startswith("trimtab_serve_latency_seconds_bucket")]
    assert len(found) == len(LATENCY_EDGES_S) + 1
    assert [line.split()[-1] for line in found[-2:]] == ["2.0", "3.0"]
