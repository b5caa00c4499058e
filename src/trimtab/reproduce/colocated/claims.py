"""What is said of co-location, and whether the tables bear it out."""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.claims import Claim, listed
from trimtab.reproduce.tables import Row, Table, measured_text, rows_of

DEFAULT, CALM, SPARE = "load 0.6", "little swing", "little reserved"


def claims(tables: Sequence[Table]) -> list[Claim]:
    oracle = rows_of(tables, "oracle")
    swings = [one for one in oracle if one["scene"] not in (CALM, SPARE)]
    return [
        _all_below(
            "knowing the services' peak is worth something wherever they swing, at every harm",
            swings,
        ),
        _all_below(
            "the learned estimate is ahead of the best rule wherever services swing, at every harm",
            [one for one in rows_of(tables, "learned") if one["scene"] not in (CALM, SPARE)],
        ),
        _less(oracle, CALM, "it is worth less where services swing little"),
        _less(oracle, SPARE, "it is worth less where they reserve little"),
        _all_below(
            "placing by the speed of a class of work is ahead of placing by load alone",
            [one for one in rows_of(tables, "pairs") if "/ calm" in one["policy"]],
        ),
        _all_below(
            "limits of regions that follow the measured harm are ahead of one fixed limit",
            [one for one in rows_of(tables, "pairs") if "feedback /" in one["policy"]],
        ),
        _all_above(
            "keeping to reservations is behind borrowing",
            [one for one in rows_of(tables, "pairs") if one["policy"].startswith("swift+native")],
        ),
    ]  # fmt: skip


def _told(rows: Sequence[Row]) -> str:
    return listed(
        [f"{one['scene']} at {100 * one['harm']:g} %: {one['policy']} {measured_text(one)}"
         for one in rows]
    )  # fmt: skip


def _all_below(text: str, rows: Sequence[Row]) -> Claim:
    """Holds where every interval ends below 1, not where one begins above it."""
    known = [one for one in rows if one["low"] is not None]
    if not known:
        return Claim(text)
    if all(one["high"] < 1 for one in known):
        return Claim(text, True, _told(known))
    worst = sorted(known, key=lambda one: -one["ours"])
    return Claim(text, False if worst[0]["low"] >= 1 else None, _told(worst))


def _all_above(text: str, rows: Sequence[Row]) -> Claim:
    known = [one for one in rows if one["low"] is not None]
    if not known:
        return Claim(text)
    if all(one["low"] > 1 for one in known):
        return Claim(text, True, _told(known))
    worst = sorted(known, key=lambda one: one["ours"])
    return Claim(text, False if worst[0]["high"] <= 1 else None, _told(worst))


def _less(oracle: Sequence[Row], scene: str, text: str) -> Claim:
    """Whether the oracle gains less there than in the default scene, at every harm."""
    there = {one["harm"]: one for one in oracle if one["scene"] == scene}
    here = {one["harm"]: one for one in oracle if one["scene"] == DEFAULT}
    both = [harm for harm in there if harm in here]
    if not both:
        return Claim(text)
    told = listed(
        [f"at {100 * harm:g} %: {measured_text(there[harm])} against {measured_text(here[harm])}"
         for harm in both]
    )  # fmt: skip
    return Claim(text, all(there[harm]["ours"] > here[harm]["ours"] for harm in both), told)
