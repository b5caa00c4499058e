"""What a live fleet counts, and the picture of it that others read."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

import numpy as np

from trimtab.arrays import Array
from trimtab.serving.fleet.member import Member
from trimtab.serving.nouns import SEGMENTS, Why
from trimtab.serving.routing.greedy import NONE
from trimtab.serving.view import LATENCY_EDGES_S, FleetView, Recent, ServerView, quantile_s

if TYPE_CHECKING:
    from trimtab.serving.fleet.fleet import LiveFleet

EDGES_S = LATENCY_EDGES_S.tolist()
COUNT_OF = {
    Why.DONE: "answered",
    Why.BUSY: "refused",
    Why.LATE: "late",
    Why.FAILED: "failed",
    Why.INVALID: "invalid",
    Why.UNAVAILABLE: "unavailable",
    Why.CANCELLED: "cancelled",
}
COUNTS = ("arrived", "in_time", *COUNT_OF.values())


class Figures:
    """Requests by how they ended, and how long the answers took."""

    def __init__(self) -> None:
        self.count = dict.fromkeys(COUNTS, 0)
        self.latency_s_sum = 0.0
        self.bins: Array = np.zeros(len(LATENCY_EDGES_S) + 1, np.int64)
        self.recent = Recent()

    def ended(self, why: Why) -> None:
        """Count a request that ended without an answer."""
        self.count[COUNT_OF[why]] += 1

    def answered(self, latency_s: float, in_time: bool) -> None:
        """Count an answer."""
        self.count["answered"] += 1
        self.count["in_time"] += in_time
        self.latency_s_sum += latency_s
        self.bins[bisect_left(EDGES_S, latency_s)] += 1

    def totals(self) -> Array:
        """The running totals that `recent` is about."""
        return np.concatenate((self.bins, [self.count["arrived"], self.count["answered"]]))

    def note(self, now_s: float) -> None:
        """Remember the totals of this moment."""
        self.recent.note(now_s, self.totals())


def view_of(fleet: LiveFleet) -> FleetView:
    """One picture of everything."""
    now_s, f, figures, tally = fleet.now(), fleet.f, fleet.figures, fleet.x.tally[0]
    spent_s, added = figures.recent.since(now_s, figures.totals())
    bins = added[: len(figures.bins)]
    by_segment = f.pending[0]["count"].reshape(SEGMENTS, -1).sum(axis=1)
    return FleetView(
        model=fleet.model.name,
        router=fleet.router.name,
        router_problem=fleet.router.problem,
        ready=fleet.ready,
        draining=fleet.leaving,
        uptime_s=now_s,
        margin=float(tally["margin"]),
        objective_s=fleet.objective_s,
        queued=int(f.fleet[0]["pending"]) + fleet.slots.arrivals,
        queued_by_segment=tuple(int(rows) for rows in by_segment),
        queue_max=fleet.limit,
        in_flight=int(tally["away"]),
        **figures.count,
        resent=int(tally["resent"]),
        answered_rows=int(f.fleet[0]["answered"]),
        accuracy_sum=float(f.fleet[0]["accuracy"]),
        good=float(f.fleet[0]["good"]),
        latency_s_sum=figures.latency_s_sum,
        latency_p50_s=quantile_s(bins, 0.5),
        latency_p95_s=quantile_s(bins, 0.95),
        latency_p99_s=quantile_s(bins, 0.99),
        latency_bins=figures.bins.copy(),
        ratio_bins=fleet.x.ratios.copy(),
        come_hz=float(added[-2]) / spent_s,
        done_hz=float(added[-1]) / spent_s,
        width_counts=fleet.x.widths.copy(),
        servers=[_seen(fleet, member) for member in fleet.roster.members.values() if member.name],
    )


def _seen(fleet: LiveFleet, member: Member) -> ServerView:
    if member.row == NONE:
        return member.view(fleet.now(), member.report.waiting, 0, member.share)
    server = fleet.f.server[member.row]
    waits, speed = int(server["waiting"]), float(server["speed"])
    return member.view(fleet.now(), waits, int(server["coming"]), speed)
