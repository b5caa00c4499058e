"""What is said of the hierarchy, and whether the tables bear it out."""

from __future__ import annotations

import math
from collections.abc import Sequence

from trimtab.claims import Claim, listed
from trimtab.reproduce.tables import Row, Table, measured_text, rows_of

HALF = 0.5


def claims(tables: Sequence[Table]) -> list[Claim]:
    pairs = rows_of(tables, "hierarchy")
    at_one = [one for one in pairs if one["harm"] == 0.01]

    def of(kind: str, among: Sequence[Row] = at_one) -> list[Row]:
        return [one for one in among if one["kind"] == kind]

    def part(name: str) -> list[Row]:
        return [one for one in of("ablation") if f"-no-{name}" in one["policy"]]

    return [
        _ahead("it is ahead of all seven peers at 1 % of harm, at each load", of("peer")),
        _ahead("it is ahead of every rule at 1 % of harm, at each load", of("rule")),
        _halfway(at_one),
        *(
            _ahead(f"without {name} it is behind", part(name))
            for name in ("encoder", "compatibility", "manager")
        ),
    ]  # fmt: skip


def _told(rows: Sequence[Row]) -> str:
    return listed([f"{one['scene']}: {one['policy']} {measured_text(one)}" for one in rows])


def _ahead(text: str, rows: Sequence[Row]) -> Claim:
    """Holds where every interval ends below 1, not where one begins above it."""
    known = [one for one in rows if one["low"] is not None]
    if not known:
        return Claim(text)
    worst = sorted(known, key=lambda one: -one["ours"])
    if all(one["high"] < 1 for one in known):
        return Claim(text, True, _told(worst))
    return Claim(text, False if worst[0]["low"] >= 1 else None, _told(worst))


def _halfway(rows: Sequence[Row]) -> Claim:
    """How much of the way from the best rule to the oracle, in the log of the cost."""
    text = "it goes at least half of the way from the best rule to the oracle of the peak"
    told, ways = [], []
    for scene in dict.fromkeys(one["scene"] for one in rows):
        of = [one for one in rows if one["scene"] == scene]
        best = next((one["ours"] for one in of if one.get("best")), None)
        oracle = next((one["ours"] for one in of if one["kind"] == "oracle"), None)
        if best and oracle and oracle > best:
            ways.append(-math.log(best) / (math.log(oracle) - math.log(best)))
            told.append(f"{scene}: {100 * ways[-1]:.0f} %")
    return Claim(text, min(ways) >= HALF, listed(told)) if ways else Claim(text)
