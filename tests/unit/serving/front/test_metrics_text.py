"""The metrics' text says what the picture does, in names and units that Prometheus can read."""

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from trimtab.serving.front.metrics_text import PREFIX, page, text
from trimtab.serving.net.slim_form import row_of
from trimtab.serving.nouns import ServerState
from trimtab.serving.view import LATENCY_EDGES_S, FleetView, ServerView


@pytest.fixture
def view():
    bins = np.zeros(len(LATENCY_EDGES_S) + 1, int)
    bins[10], bins[-1] = 3, 1
    counts = np.zeros(256, int)
    counts[row_of((0, 1, 2, 3))] = 7
    return FleetView(
        model="slim", router="planned", router_problem='asked for "ppo"\nwhich broke', ready=True,
        queued_by_segment=(4, 0, 2, 0), arrived=20, answered=4, in_time=3, refused=5, late=6,
        latency_bins=bins, latency_s_sum=1.25, latency_p99_s=0.25, width_counts=counts,
        accuracy_sum=3.1,
        servers=[
            ServerView("a", state="ready", util=0.5, power_w=30.0, power_source="rapl",
                       energy_j=99.0, waiting_by_segment=(1, 2, 3, 4), memory_b=5e6),
            ServerView('b "quoted"', state="suspect"),
        ],
    )  # fmt: skip


def families(view):
    return {family.name: family for family in text_string_to_metric_families(text(view))}


def value(found, name, **labels):
    """The one sample of that name and labels."""
    family = next(f for f in found.values() if any(s.name == name for s in f.samples))
    (sample,) = (s for s in family.samples if s.name == name and labels.items() <= s.labels.items())
    return sample.value


def test_every_name_is_ours_and_explained(view):
    found = families(view)
    assert all(name.startswith(f"{PREFIX}_") for name in found)
    assert all(family.documentation and family.type != "unknown" for family in found.values())


def test_totals_are_counters_by_outcome(view):
    found = families(view)
    name = f"{PREFIX}_requests_total"
    assert value(found, name, outcome="answered") == 4
    assert value(found, name, outcome="refused") == 5
    assert value(found, name, outcome="late") == 6
    assert value(found, f"{PREFIX}_arrived_total") == 20
    assert value(found, f"{PREFIX}_expected_right_rows_total") == pytest.approx(3.1)


def test_the_histogram_counts_up_to_all(view):
    found = families(view)
    name = f"{PREFIX}_latency_seconds"
    samples = [s for s in found[name].samples if s.name == f"{name}_bucket"]
    assert [s.value for s in samples] == [0.0] * 10 + [3.0] * 55 + [4.0]
    assert float(samples[10].labels["le"]) == pytest.approx(LATENCY_EDGES_S[10], rel=1e-3)
    edges = [float(s.labels["le"]) for s in samples]
    assert edges == sorted(set(edges)) and edges[-1] == np.inf
    assert value(found, f"{name}_sum") == 1.25 and value(found, f"{name}_count") == 4


def test_the_router_and_why_it_is_not_the_one_asked_for(view):
    labels = families(view)[f"{PREFIX}_router_info"].samples[0].labels
    assert labels["router"] == "planned" and labels["problem"] == view.router_problem


def test_a_server_has_a_state_and_its_own_gauges(view):
    found = families(view)
    states = [
        value(found, f"{PREFIX}_server_state", server="a", state=name) for name in ServerState
    ]
    assert sum(states) == 1 and states[list(ServerState).index(ServerState.READY)] == 1
    assert value(found, f"{PREFIX}_server_waiting_rows", server="a", segment="2") == 3
    assert value(found, f"{PREFIX}_server_power_watts", server="a", source="rapl") == 30
    assert value(found, f"{PREFIX}_server_energy_joules_total", server="a") == 99
    assert value(found, f"{PREFIX}_server_utilisation_ratio", server='b "quoted"') == 0


def test_only_widths_in_use_are_named(view):
    samples = families(view)[f"{PREFIX}_width_rows"].samples
    assert [(s.labels["widths"], s.value) for s in samples] == [("0.25,0.5,0.75,1", 7.0)]


def test_a_fleet_without_servers_or_requests_has_metrics():
    found = families(FleetView("slim", "planned"))
    assert value(found, f"{PREFIX}_ready") == 0
    assert value(found, f"{PREFIX}_latency_seconds_count") == 0


def test_a_scraper_is_told_the_format_that_it_reads(view):
    body, kind = page(view)
    assert kind.startswith(b"text/plain; version=0.0.4")
    assert body.decode() == text(view)
