"""What we would say about Slim Scheduler, each sentence checked against the tables."""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.claims import Claim
from trimtab.reproduce.tables import Row, Table, measured_text, places, rows_of

OURS, LEARNED, BOUND = "priced", "learned", "bound"
HEURISTICS = ("max_batch", "slack_fit", "rate")
FIXED = ("fixed 0.25", "fixed 0.5", "fixed 0.75", "fixed 1")
BESIDE = {
    "the best fixed width": FIXED,
    "the best heuristic": HEURISTICS,
    "the learned router": (LEARNED,),
}
SATURATED = 1.2  # of the capacity at full width: random routing cannot keep up, as in the paper
IN_TIME = 99.0  # percent
HALF = 0.5
LESS = {"latency_s": 0.96, "energy_j": 0.97}  # against random, for the light weighting
SPREADS = ("latency_s sd", "energy_j sd", "charged_j sd")
LITTLE = 0.1  # points that nobody would notice


def claims(tables: Sequence[Table]) -> list[Claim]:
    """Every claim, in the order in which we would make them."""
    return [
        _held(tables),
        *_beside(tables),
        _learned(tables),
        _light(tables),
        _balanced(tables),
        _tuples(tables),
    ]


def _judged(claim: str, rows: Sequence[Row], wrong: Sequence[Row]) -> Claim:
    """Holds where rows are measured and none is wrong; the evidence: the wrong or the nearest."""
    if not rows:
        return Claim(claim)
    least = sorted(wrong or rows, key=lambda one: one["ours"])[:4]
    return Claim(claim, not wrong, "; ".join(map(_row_text, least)))


def _row_text(one: Row) -> str:
    where = [str(one[key]) for key in ("arm", "load") if key in one]
    return " ".join([*where, f"{one['policy']}, {one['metric']}: {measured_text(one)}"])


def _held(tables: Sequence[Table]) -> Claim:
    rows = []
    for where in places(rows_of(tables, "slim-in-time"), "arm", "load"):
        most = rows_of(tables, "slim-in-time", policy=BOUND, **where)
        if most and most[0]["ours"] >= IN_TIME:
            rows += rows_of(tables, "slim-in-time", policy=OURS, **where)
    wrong = [one for one in rows if one["ours"] < IN_TIME]
    return _judged(f"{OURS} answers 99 % in time wherever the bound permits it", rows, wrong)


def _beside(tables: Sequence[Table]) -> list[Claim]:
    fixed = rows_of(tables, "slim-beside", metric=f"{OURS} less the best fixed width")
    half = rows_of(tables, "slim-beside", metric="share of the way to the bound")
    return [
        _judged(
            f"{OURS} is below the best fixed width in no cell",
            fixed,
            [one for one in fixed if one["ours"] < 0],
        ),
        _judged(
            f"{OURS} goes at least half the way from the best heuristic to the bound in every cell",
            half,
            [one for one in half if one["ours"] < HALF],
        ),
    ]


def _learned(tables: Sequence[Table]) -> Claim:
    rows = rows_of(tables, "slim-beside", metric=f"{OURS} less the learned router")
    wrong = [one for one in rows if one["ours"] < -LITTLE]
    return _judged(f"the learned router gains {LITTLE:g} points on {OURS} in no cell", rows, wrong)


def _light(tables: Sequence[Table]) -> Claim:
    rows = [
        one
        for metric in LESS
        for one in rows_of(tables, "slim-change", policy="light", metric=metric, load=SATURATED)
    ]
    wrong = [one for one in rows if one["ours"] > -LESS[one["metric"]]]
    return _judged(
        "weights on latency and energy cut latency by 96 % and energy, counted as in the paper, by "
        "97 % against random routing",
        rows,
        wrong,
    )


def _balanced(tables: Sequence[Table]) -> Claim:
    names = ("accuracy", "latency_s", *SPREADS)
    rows = [
        one
        for metric in names
        for one in rows_of(tables, "slim-change", policy="balanced", metric=metric, load=SATURATED)
    ]
    wrong = [one for one in rows if (one["ours"] <= 0) == (one["metric"] == "accuracy")]
    return _judged(
        "balanced weights are at once more accurate, faster and less variable than random routing",
        rows,
        wrong,
    )


def _tuples(tables: Sequence[Table]) -> Claim:
    rows = rows_of(tables, "slim-accuracy", policy="0.25-0.5-0.75-1")
    other = rows_of(tables, "slim-accuracy", policy="1-0.75-0.5-0.25")
    wrong = [one for one in rows for two in other if one["ours"] <= two["ours"]]
    return _judged("later segments matter most: .25-.5-.75-1 beats 1-.75-.5-.25", rows, wrong)
