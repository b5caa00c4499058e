"""What we would say about learned plans of parallelism, each sentence checked by the tables."""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.claims import Claim, listed
from trimtab.reproduce.tables import Row, Table, measured_text, rows_of

Q, OTHERS = "q", ("sarsa", "fixed")
REPLANNER, MYOPIC = "replanner", "myopic"
ACCURATE, NEAR_OPTIMUM = 0.85, 0.05
AHEAD, BEHIND = 0.05, -0.01
# the world deserves learning: metric, least, most
DESERVES = (
    ("actions", 6.0, None),
    ("commonest", None, 0.6),
    ("constant regret", 0.10, None),
    ("myopic regret", 0.05, None),
)
FIXED_ACCURACY, FIXED_PRECISION = 0.74, 0.71  # of the paper's Fixed-Policy


def claims(tables: Sequence[Table]) -> list[Claim]:
    """Every claim, in the order in which we would make them."""
    return [
        _deserves(tables),
        *(
            _best_of_three(tables, mode, metric)
            for mode in ("full", "paper")
            for metric in ("greedy", "accuracy")
        ),
        _accurate(tables),
        _near_optimum(tables),
        _replanner_wrong(tables),
        _replanner_elsewhere(tables),
        _thrifty(tables),
        _constant_cannot(),
    ]


def row_text(one: Row) -> str:
    """A row as evidence: where, who, how much."""
    return f"{one['arm']}: {one['policy']}, {one['metric']} {measured_text(one)}"


def _judged(claim: str, rows: Sequence[Row], wrong: Sequence[Row], unclear: Sequence[Row]) -> Claim:
    """Holds where rows were measured and none is wrong; None where an interval leaves it open."""
    if not rows:
        return Claim(claim)
    worst_first = sorted([*wrong, *unclear] or rows, key=lambda one: one["ours"])
    holds = False if wrong else (None if unclear else True)
    return Claim(claim, holds, listed([row_text(one) for one in worst_first]))


def _at_least(claim: str, rows: Sequence[Row], least: float) -> Claim:
    """Of means and, where there are several seeds, of the lower ends of their intervals."""
    wrong = [one for one in rows if one["ours"] < least]
    unclear = [
        one for one in rows if one not in wrong and one["low"] is not None and one["low"] < least
    ]
    return _judged(claim, rows, wrong, unclear)


def _deserves(tables: Sequence[Table]) -> Claim:
    rows, wrong = [], []
    for metric, least, most in DESERVES:
        found = rows_of(tables, "llm-world", metric=metric, mode="full", wrong=False)
        rows += found
        wrong += [one for one in found if least is not None and one["ours"] < least]
        wrong += [one for one in found if most is not None and one["ours"] > most]
    return _judged(
        "the world deserves learning: 6 or more optimal actions, none in over 60 % of visits, the "
        "best constant loses 10 % or more and the myopic planner 5 % or more",
        rows,
        wrong,
        [],
    )


def _best_of_three(tables: Sequence[Table], mode: str, metric: str) -> Claim:
    rows = [
        one
        for other in OTHERS
        for one in rows_of(
            tables, "llm-beside", policy=Q, metric=f"{metric} less {other}", mode=mode, wrong=False
        )
    ]
    word = {"greedy": "total reward", "accuracy": "accuracy"}[metric]
    return _at_least(
        f"Q-learning has the largest {word} of the paper's three in {mode} mode", rows, 0.0
    )


def _accurate(tables: Sequence[Table]) -> Claim:
    rows = rows_of(tables, "llm", policy=Q, metric="accuracy", wrong=False)
    claim = f"Q-learning agrees with the optimum in at least {ACCURATE:.0%} of visits"
    return _at_least(claim, rows, ACCURATE)


def _near_optimum(tables: Sequence[Table]) -> Claim:
    rows = rows_of(tables, "llm", policy=Q, metric="regret")
    wrong = [one for one in rows if one["ours"] > NEAR_OPTIMUM]
    unclear = [
        one
        for one in rows
        if one not in wrong and one["high"] is not None and one["high"] > NEAR_OPTIMUM
    ]
    claim = f"Q-learning's total reward is within {NEAR_OPTIMUM:.0%} of the optimum's"
    return _judged(claim, rows, wrong, unclear)


def _replanner_wrong(tables: Sequence[Table]) -> Claim:
    rows = rows_of(
        tables,
        "llm-beside",
        policy=REPLANNER,
        metric=f"greedy over {MYOPIC}",
        mode="full",
        wrong=True,
    )
    claim = (
        f"with a cost model that is 20 to 30 % off, the learned re-planner beats the {MYOPIC} "
        f"planner by at least {AHEAD:.0%}"
    )
    return _at_least(claim, rows, AHEAD)


def _replanner_elsewhere(tables: Sequence[Table]) -> Claim:
    rows = [
        one
        for metric in ("greedy", "online")
        for one in rows_of(tables, "llm-beside", policy=REPLANNER, metric=f"{metric} over {MYOPIC}")
    ]
    claim = (
        f"the learned re-planner is nowhere over 1 % worse than the {MYOPIC} planner, not even "
        "while it learns"
    )
    return _at_least(claim, rows, BEHIND)


def _thrifty(tables: Sequence[Table]) -> Claim:
    """The paper's last sentence: superior in energy and latency."""
    rows = [
        one
        for other in OTHERS
        for metric in ("step_s", "power_w")
        for one in rows_of(
            tables, "llm-beside", policy=Q, metric=f"{metric} less {other}", wrong=False
        )
    ]
    wrong = [one for one in rows if one["ours"] > 0]
    claim = "Q-learning has both the shorter steps and the lower power of the paper's three"
    return _judged(claim, rows, wrong, [])


def _constant_cannot() -> Claim:
    """A constant that is right in a share p has weighted precision p^2: the rest is never said."""
    most = FIXED_ACCURACY**2
    return Claim(
        "the paper's Fixed-Policy can be one constant action",
        most >= FIXED_PRECISION,
        f"a constant with accuracy {FIXED_ACCURACY} has weighted precision "
        f"{FIXED_ACCURACY}^2 = {most:.2f}; the paper's is {FIXED_PRECISION}",
    )
