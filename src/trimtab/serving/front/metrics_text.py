"""A fleet's picture as the text that Prometheus reads. Base units throughout: seconds, bytes,
joules, watts; ratios are 0..1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder

from trimtab.arrays import Array
from trimtab.serving.nouns import TUPLES, WIDTHS, ServerState
from trimtab.serving.view import LATENCY_EDGES_S, RATIO_EDGES, FleetView, ServerView

PREFIX = "trimtab_serve"
ENCODE, CONTENT_TYPE = choose_encoder("")  # what a scraper gets that asks for nothing special
OUTCOMES = ("answered", "refused", "late", "failed", "invalid", "unavailable", "cancelled")

# (kind, name, help, value of the fleet)
FLEET: tuple[tuple[Callable[..., Metric], str, str, Callable[[FleetView], float]], ...] = (
    (GaugeMetricFamily, "ready", "1 where a request sent now would be served.", lambda v: v.ready),
    (GaugeMetricFamily, "draining", "1 while no new request is taken.", lambda v: v.draining),
    (GaugeMetricFamily, "uptime_seconds", "Since the front started.", lambda v: v.uptime_s),
    (GaugeMetricFamily, "margin_ratio", "Of a request's time, kept free.", lambda v: v.margin),
    (GaugeMetricFamily, "objective_seconds", "Latency asked for.", lambda v: v.objective_s),
    (GaugeMetricFamily, "queue_limit_rows", "Rows open at once, at most.", lambda v: v.queue_max),
    (GaugeMetricFamily, "in_flight_rows", "Rows at servers.", lambda v: v.in_flight),
    (GaugeMetricFamily, "arrivals_per_second", "Requests, lately.", lambda v: v.come_hz),
    (GaugeMetricFamily, "answers_per_second", "Requests, lately.", lambda v: v.done_hz),
    (CounterMetricFamily, "arrived", "Requests that came.", lambda v: v.arrived),
    (CounterMetricFamily, "in_time", "Requests answered in time.", lambda v: v.in_time),
    (CounterMetricFamily, "resent_rows", "Rows sent to a second server.", lambda v: v.resent),
    (CounterMetricFamily, "answered_rows", "Images answered.", lambda v: v.answered_rows),
    (
        CounterMetricFamily,
        "expected_right_rows",
        "Images answered, each times the accuracy of its widths.",
        lambda v: v.accuracy_sum,
    ),
    (
        CounterMetricFamily,
        "expected_right_in_time_rows",
        "The same of those answered in time.",
        lambda v: v.good,
    ),
)

# (kind, name, help, value of a server)
SERVER: tuple[tuple[Callable[..., Metric], str, str, Callable[[ServerView], float]], ...] = (
    (GaugeMetricFamily, "busy_workers", "Workers that run a batch.", lambda s: s.busy),
    (GaugeMetricFamily, "workers", "Workers.", lambda s: s.workers),
    (GaugeMetricFamily, "coming_rows", "Rows sent and not yet counted.", lambda s: s.coming),
    (GaugeMetricFamily, "memory_bytes", "Of loaded instances.", lambda s: s.memory_b),
    (GaugeMetricFamily, "instances", "Segments loaded.", lambda s: s.loaded),
    (GaugeMetricFamily, "utilisation_ratio", "Workers busy, smoothed.", lambda s: s.util),
    (GaugeMetricFamily, "speed_ratio", "The profile's time over the real.", lambda s: s.speed),
    (GaugeMetricFamily, "mean_batch_rows", "Rows of a batch.", lambda s: s.mean_batch),
    (GaugeMetricFamily, "beat_age_seconds", "Since it was last heard.", lambda s: s.beat_age_s),
    (CounterMetricFamily, "energy_joules", "Used.", lambda s: s.energy_j),
    (CounterMetricFamily, "batches", "Batches run.", lambda s: s.batches),
    (CounterMetricFamily, "rows", "Rows run, once a segment.", lambda s: s.rows),
    (CounterMetricFamily, "restarts", "Times it was started again.", lambda s: s.restarts),
)


def text(view: FleetView) -> str:
    """The whole picture, with HELP and TYPE of every name."""
    return page(view)[0].decode()


def page(view: FleetView) -> tuple[bytes, bytes]:
    """The answer to a scrape: its body and content type."""
    return ENCODE(Picture(view)), CONTENT_TYPE.encode()


class Picture:
    """What prometheus_client collects from: one moment, not counters that live on."""

    def __init__(self, view: FleetView) -> None:
        self.view = view

    def collect(self) -> Iterator[Metric]:
        view = self.view
        about = {"model": view.model, "router": view.router, "problem": view.router_problem}
        help_text = "Who decides; problem = why it is not the router that was asked for."
        yield InfoMetricFamily(f"{PREFIX}_router", help_text, value=about)
        for kind, name, help_text, value in FLEET:
            yield kind(f"{PREFIX}_{name}", help_text, value=float(value(view)))
        yield from _requests(view)
        yield from _servers(view.servers)


def _requests(view: FleetView) -> Iterator[Metric]:
    ended = _family(CounterMetricFamily, "requests", "Requests by how they ended.", ["outcome"])
    for outcome in OUTCOMES:
        ended.add_metric([outcome], float(getattr(view, outcome)))
    yield ended
    queue = _family(GaugeMetricFamily, "queue_rows", "Rows that wait for a server.", ["segment"])
    for segment, count in enumerate(view.queued_by_segment):
        queue.add_metric([str(segment)], float(count))
    yield queue
    yield HistogramMetricFamily(
        f"{PREFIX}_latency_seconds",
        "From a request's arrival to its answer.",
        buckets=_buckets(LATENCY_EDGES_S, view.latency_bins),
        sum_value=view.latency_s_sum,
    )
    yield HistogramMetricFamily(
        f"{PREFIX}_batch_time_ratio",
        "Of batches, the real time over the expected.",
        buckets=_buckets(RATIO_EDGES, view.ratio_bins),
        sum_value=None,
    )
    lately = _family(
        GaugeMetricFamily, "latency_recent_seconds", "Quantiles of the last seconds.", ["quantile"]
    )
    for name in ("50", "95", "99"):
        lately.add_metric([f"0.{name}"], float(getattr(view, f"latency_p{name}_s")))
    yield lately
    rows = _family(
        CounterMetricFamily, "width_rows", "Images answered, by their widths.", ["widths"]
    )
    # most of the 256 are never used: a name for each would drown the rest
    for at in np.flatnonzero(view.width_counts):
        rows.add_metric([widths_name(int(at))], float(view.width_counts[at]))
    yield rows


def _buckets(edges: Array, bins: Array) -> list[tuple[str, float]]:
    """Counts at or below each edge, the last one all of them."""
    names = [*(f"{edge:.4g}" for edge in edges), "+Inf"]
    return list(zip(names, np.cumsum(bins).astype(float).tolist(), strict=True))


def widths_name(row: int) -> str:
    """The label of a tuple of widths, such as 0.25,0.5,0.75,1."""
    return ",".join(f"{WIDTHS[width]:g}" for width in TUPLES[row])


def _servers(servers: list[ServerView]) -> Iterator[Metric]:
    about = _family(InfoMetricFamily, "server", "A server of the fleet.", ["server"])
    state = _family(
        GaugeMetricFamily, "server_state", "1 for the state that it is in.", ["server", "state"]
    )
    waiting = _family(
        GaugeMetricFamily, "server_waiting_rows", "Rows in its queue.", ["server", "segment"]
    )
    power = _family(
        GaugeMetricFamily, "server_power_watts", "Now, and by which source.", ["server", "source"]
    )
    for server in servers:
        facts = {"kind": server.kind, "address": server.address, "pid": str(server.pid)}
        about.add_metric([server.name], facts)
        for known in ServerState:
            state.add_metric([server.name, known], float(server.state == known))
        for segment, count in enumerate(server.waiting_by_segment):
            waiting.add_metric([server.name, str(segment)], float(count))
        power.add_metric([server.name, server.power_source or "unknown"], server.power_w)
    yield from (about, state, waiting, power)
    for kind, name, help_text, value in SERVER:
        family = _family(kind, f"server_{name}", help_text, ["server"])
        for server in servers:
            family.add_metric([server.name], float(value(server)))
        yield family


def _family(kind: Callable[..., Metric], name: str, help_text: str, labels: list[str]) -> Any:
    return kind(f"{PREFIX}_{name}", help_text, labels=labels)
