"""What is said of the hierarchy, and whether the tables bear it out."""

from __future__ import annotations

import math
from collections.abc import Sequence

from trimtab.claims import Claim, listed
from trimtab.reproduce.tables import Row, Table, measured_text, rows_of

HALF = 0.5
WORST = "Mao et al. (DeepRM)"  # of the paper's table
BOUND = "the oracle over DeepRM"
MORE_IS_BETTER = ("UTI %", "TSR %")


def claims(tables: Sequence[Table]) -> list[Claim]:
    pairs = rows_of(tables, "hierarchy")
    ratios = rows_of(tables, "metrics")
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
        *(_level(metric, ratios) for metric in dict.fromkeys(one["metric"] for one in ratios)),
        *_gains(ratios),
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


def _level(metric: str, ratios: Sequence[Row]) -> Claim:
    """Holds where no peer is better in it beyond chance."""
    known = [one for one in ratios if one["metric"] == metric and one["policy"] != BOUND
             and one["low"] is not None]  # fmt: skip
    text = f"no peer is better in {metric} beyond chance"
    if not known:
        return Claim(text)
    better = [one for one in known
              if (one["high"] < 1 if metric in MORE_IS_BETTER else one["low"] > 1)]  # fmt: skip
    close = max(known, key=lambda one: -one["ours"] if metric in MORE_IS_BETTER else one["ours"])
    return Claim(text, not better, listed([_singly(one) for one in better or [close]]))


def _gains(ratios: Sequence[Row]) -> list[Claim]:
    """Whether gains over DeepRM are as large as the paper's, and what the oracle's would be."""
    made = []
    for metric in dict.fromkeys(one["metric"] for one in ratios):
        of = [one for one in ratios if one["metric"] == metric]
        mine = [one for one in of if one["policy"] == WORST and one["ours"] is not None]
        sign = -1 if metric in MORE_IS_BETTER else 1
        if mine:
            holds = all(sign * one["ours"] <= sign * one["paper"] for one in mine)
            paper = f"{100 * (mine[0]['paper'] - 1):+.1f} %"
            bound = [one for one in of if one["policy"] == BOUND]
            told = listed([_singly(one) for one in (*mine, *bound)])
            made.append(Claim(f"{metric} against DeepRM's: {paper}", holds, told))
    return made


def _singly(one: Row) -> str:
    return f"{one['arm']}: {one['policy']} {measured_text(one)}"
