"""What we would say about packer, each sentence checked by the tables."""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.claims import Claim, listed
from trimtab.reproduce.tables import Row, Table, rows_of

PACKER, FGD = "packer", "fgd"
HUNDREDTH = 0.0051  # points: published figures have two decimals
LEAST = 95.8  # % of the GPUs, in the mean of the published orders
PUBLISHED_ORDERS = 10
SHARE = 7 / 8  # of the lists
HARM = 0.2  # points
DRAWN, DEFAULT, LOAD = "drawn", "default", 1.3


def claims(tables: Sequence[Table], packer: str = PACKER) -> list[Claim]:
    """Every claim, in the order in which we would make them; `packer` may have weights of yours."""
    return [
        _as_published(tables),
        _full(tables, packer),
        _every_order(tables, packer),
        _lists(tables, packer),
        _no_harm(tables, packer),
        _loads(tables, packer),
        _drawn(tables, packer),
    ]


def _text(one: Row) -> str:
    ends = "" if one["low"] is None else f" [{one['low']:.2f}, {one['high']:.2f}]"
    return f"{one['arm']}: {one['policy']} {one['metric']} {one['ours']:.2f}{ends}"


def _as_published(tables: Sequence[Table]) -> Claim:
    claim = (
        "the FGD paper's deterministic policies fill as much of the GPUs as published, to a "
        "hundredth of a point, on every list with published figures"
    )
    rows = [
        one
        for one in rows_of(tables, "openb", load=LOAD)
        if one["paper"] is not None and one["policy"] != "random"
    ]
    if not rows:
        return Claim(claim)
    far = [one for one in rows if abs(one["ours"] - one["paper"]) > HUNDREDTH]
    if far:
        return Claim(claim, False, listed([f"{_text(one)}, not {one['paper']:g}" for one in far]))
    return Claim(claim, True, f"{len(rows)} means of ten orders, all equal")


def _full(tables: Sequence[Table], packer: str) -> Claim:
    claim = (
        f"packer fills {LEAST} % of the GPUs or more in the mean of the ten published orders of "
        "the default list (FGD: 95.39)"
    )
    rows = rows_of(tables, "openb", arm=DEFAULT, policy=packer)
    if not rows:
        return Claim(claim)
    return Claim(claim, bool(rows[0]["ours"] >= LEAST), _text(rows[0]))


def _every_order(tables: Sequence[Table], packer: str) -> Claim:
    claim = "packer fills more than FGD in every one of those orders"
    rows = rows_of(tables, "openb-beside", arm=DEFAULT, policy=packer, metric=f"least less {FGD}")
    if not rows:
        return Claim(claim)
    return Claim(claim, bool(rows[0]["ours"] > 0), _text(rows[0]))


def _others(tables: Sequence[Table], packer: str, metric: str) -> list[Row]:
    rows = rows_of(tables, "openb-beside", policy=packer, metric=metric)
    return sorted(
        (one for one in rows if one["arm"] not in (DRAWN, DEFAULT)), key=lambda one: one["ours"]
    )


def _lists(tables: Sequence[Table], packer: str) -> Claim:
    claim = (
        "of openb's other lists, none of which it was trained on, packer fills more than FGD on "
        "seven of eight or more (14 of 16), in the mean of the orders"
    )
    rows = _others(tables, packer, f"less {FGD}")
    if not rows:
        return Claim(claim)
    above = sum(one["ours"] > 0 for one in rows)
    clear = sum(one["low"] is not None and one["low"] > 0 for one in rows)
    evidence = f"{above} of {len(rows)}, with an interval above 0 on {clear}; "
    return Claim(claim, above >= SHARE * len(rows), evidence + listed([_text(r) for r in rows]))


def _no_harm(tables: Sequence[Table], packer: str) -> Claim:
    claim = f"at 130 % packer is in no order of any list more than {HARM} points below FGD"
    rows = _others(tables, packer, f"least less {FGD}")
    if not rows:
        return Claim(claim)
    return Claim(claim, bool(rows[0]["ours"] >= -HARM), listed([_text(one) for one in rows]))


def _loads(tables: Sequence[Table], packer: str) -> Claim:
    claim = "packer fills more than FGD when 100, 110 and 120 % have arrived too, on every list"
    mine = rows_of(tables, "openb-loads", policy=packer)
    theirs = {
        (one["arm"], one["load"]): one["ours"] for one in rows_of(tables, "openb-loads", policy=FGD)
    }
    less = [
        (
            one["ours"] - theirs[one["arm"], one["load"]],
            f"{one['arm']} at {100 * one['load']:.0f} %",
        )
        for one in mine
        if (one["arm"], one["load"]) in theirs
    ]
    if not less:
        return Claim(claim)
    less.sort()
    above = sum(points > 0 for points, _ in less)
    evidence = f"{above} of {len(less)}; " + listed([f"{at}: {points:+.2f}" for points, at in less])
    return Claim(claim, above == len(less), evidence)


def _drawn(tables: Sequence[Table], packer: str) -> Claim:
    claim = "on lists drawn from the published mix packer fills more than FGD in every order"
    rows = rows_of(tables, "openb-beside", arm=DRAWN, policy=packer, metric=f"least less {FGD}")
    if not rows:
        return Claim(claim)
    return Claim(claim, bool(rows[0]["ours"] > 0), _text(rows[0]))
