"""The picture of a live fleet that others read."""

from __future__ import annotations

from trimtab.serving.fleet.books import Books
from trimtab.serving.fleet.member import Member
from trimtab.serving.nouns import SEGMENTS
from trimtab.serving.routing.greedy import NONE
from trimtab.serving.view import FleetView, ServerView, quantile_s


def view_of(books: Books) -> FleetView:
    """One picture of everything."""
    now_s, f, figures, tally = books.now(), books.f, books.figures, books.x.tally[0]
    spent_s, added = figures.recent.since(now_s, figures.totals())
    bins = added[: len(figures.bins)]
    by_segment = f.pending[0]["count"].reshape(SEGMENTS, -1).sum(axis=1)
    return FleetView(
        model=books.model.name,
        router=books.router.name,
        router_problem=books.router.problem,
        ready=books.ready,
        draining=books.leaving,
        uptime_s=now_s,
        margin=float(tally["margin"]),
        objective_s=books.objective_s,
        queued=int(f.fleet[0]["pending"]) + books.slots.arrivals,
        queued_by_segment=tuple(int(rows) for rows in by_segment),
        queue_max=books.limit,
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
        ratio_bins=books.x.ratios.copy(),
        come_hz=float(added[-2]) / spent_s,
        done_hz=float(added[-1]) / spent_s,
        width_counts=books.x.widths.copy(),
        servers=[server_view(books, m) for m in books.roster.members.values() if m.name],
    )


def server_view(books: Books, member: Member) -> ServerView:
    """One server as the arrays know it, or as it says where it has no row there."""
    now_s = books.now()
    if member.row == NONE:
        return member.view(now_s, member.report.waiting, 0, member.share)
    server = books.f.server[member.row]
    waits, speed = int(server["waiting"]), float(server["speed"])
    return member.view(now_s, waits, int(server["coming"]), speed)
