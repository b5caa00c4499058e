"""What a measurement of `bench.faults` shows: its claims with their evidence, and its JSON."""

from __future__ import annotations

import math
from typing import Any

from trimtab.bench.faults import AFTER, FLOODS, WINDOW_S, Session, Step, flood
from trimtab.claims import Claim, finite

SHARE_MIN = 0.95  # of the peak that an overload must leave
REFUSED_MS = 5.0
GROWTH_MAX = 0.1  # of the memory, from the begin of the first flood to the end of the last
BACK_S = 2.0


def claims(session: Session) -> list[Claim]:
    """Every claim of the cases that were measured."""
    found = []
    if "overload" in session.plan.cases:
        floods = [step for step in session.steps if step.name in map(flood, FLOODS)]
        checks = (goodput(session, floods), quick(floods), bounded(floods), whole(session.steps))
        found += [*checks, recovers(session)]
    if "killed" in session.plan.cases:
        found += survives(session)
    return found


def goodput(session: Session, floods: list[Step]) -> Claim:
    text = f"answers in time stay at {SHARE_MIN:.0%} of the peak or more under a flood"
    peak = session.peak
    if peak is None or not floods:
        return Claim(text)
    shares = [step.in_time_hz / max(peak.in_time_hz, 1e-9) for step in floods]
    told = [f"{step.name} {share:.1%}" for step, share in zip(floods, shares)]
    evidence = f"peak {peak.in_time_hz:,.0f}/s; {'; '.join(told)}"
    return Claim(text, min(shares) >= SHARE_MIN, evidence)


def quick(floods: list[Step]) -> Claim:
    text = f"a refusal takes {REFUSED_MS:g} ms or less at the 99th percentile"
    floods = [step for step in floods if step.refused and not math.isnan(step.quiet_ms[1])]
    if not floods:
        return Claim(text)
    told = [
        f"{step.name} {step.quiet_ms[1]:.1f} ms to a client beside the flood (the flood itself"
        f" {step.refused_ms[1]:.1f} ms, and was {step.late_ms:.1f} ms late to send)"
        for step in floods
    ]
    return Claim(text, max(step.quiet_ms[1] for step in floods) <= REFUSED_MS, "; ".join(told))


def bounded(floods: list[Step]) -> Claim:
    text = f"the memory of front and servers grows by less than {GROWTH_MAX:.0%} in the floods"
    if not floods:
        return Claim(text)
    start_mb, most_mb = floods[0].memory_mb[0], max(step.memory_mb[2] for step in floods)
    refused = sum(step.refused for step in floods)
    evidence = f"{start_mb:,.0f} MB before, {most_mb:,.0f} MB at most; {refused:,} refused"
    return Claim(text, most_mb <= (1 + GROWTH_MAX) * start_mb, evidence)


def whole(steps: list[Step]) -> Claim:
    text = "every request is answered or refused"
    if not steps:
        return Claim(text)
    lost: dict[str, int] = {}
    for step in steps:
        for kind, count in step.lost.items():
            lost[kind] = lost.get(kind, 0) + count
    kinds = ", ".join(f"{count} {kind}" for kind, count in lost.items())
    return Claim(text, not lost, kinds or "none was lost")


def recovers(session: Session) -> Claim:
    text = f"right after the floods {SHARE_MIN:.0%} of the peak or more is answered in time"
    peak, last = session.peak, session.steps[-1] if session.steps else None
    if peak is None or last is None or last.name != AFTER:
        return Claim(text)
    share = last.in_time_hz / max(peak.in_time_hz, 1e-9)
    return Claim(text, share >= SHARE_MIN, f"{last.in_time_hz:,.0f}/s, {share:.1%} of the peak")


def survives(session: Session) -> list[Claim]:
    lossless = "no request is lost with a killed server"
    soon = f"p99 is back below twice what it was within {BACK_S:g} s of the kill"
    found = session.killed
    if found is None:
        return [Claim(lossless), Claim(soon)]
    lost = ", ".join(f"{count} {kind}" for kind, count in found.lost.items())
    after = [each for each in found.windows if each.from_s >= 0]
    touched = [each.p99_ms for each in found.windows if each.from_s >= -WINDOW_S]
    worst_ms = max(touched, default=math.nan)
    refused = sum(each.refused for each in after)
    when = f"after {found.back_s:g} s" if math.isfinite(found.back_s) else "not within the run"
    evidence = (
        f"{when}; {found.before_ms:.0f} ms before, {worst_ms:.0f} ms in the worst window, at"
        f" {found.asked_hz:,.0f}/s; {refused} refused after it"
    )
    return [
        Claim(lossless, not found.lost, lost or "none was lost"),
        Claim(soon, found.back_s <= BACK_S, evidence),
    ]


def as_json(session: Session) -> list[dict[str, Any]]:
    """A row a step, what became of the killed server, and a row a claim."""
    blank = {"peer": None, "peer_value": None}
    rows: list[dict[str, Any]] = [
        {"name": each.name, "value": each.in_time_hz, "unit": "in time/s", **blank}
        | {key: finite(value) for key, value in each._asdict().items() if key != "name"}
        for each in session.steps
    ]
    if session.killed is not None:
        found = session.killed
        row = {"name": "a server killed", "value": finite(found.back_s), "unit": "s", **blank}
        told = {"asked_hz": found.asked_hz, "before_ms": finite(found.before_ms)}
        seen = [{key: finite(x) for key, x in each._asdict().items()} for each in found.windows]
        rows.append({**row, **told, "lost": found.lost, "windows": seen})
    for each in claims(session):
        row = {"name": each.text, "value": each.holds, "unit": "holds", **blank}
        rows.append({**row, "evidence": each.evidence})
    return rows
