"""What a manager may want of a region, and what its workers do differently then.

GOALS are written by hand; `trimtab train goals` moves their numbers, and a file of the hierarchy
may hold others: {"goals": {"relieve": {"limit": -0.04, .., "patience_s": 5.0}, ..}, ..}
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.errors import PolicyError
from trimtab.rules.compat import WEIGHTS

KEEP = 0


class Goal(NamedTuple):
    """Added to the region's orders; a patience of its own, NaN = theirs."""

    name: str
    why: str
    limit: float = 0.0
    margin: float = 0.0
    patience_s: float = float("nan")
    now: float = 0.0
    peak: float = 0.0
    pull: float = 0.0


GOALS = (
    Goal("keep", "nothing promises more than the orders that stand"),
    Goal("relieve", "hot spots are coming", limit=-0.04, patience_s=5.0, pull=-0.05),
    Goal("consolidate", "free room lies in fragments", now=-0.3, peak=-0.1),
    Goal("favour", "what is short comes first, for what is long may not last", margin=0.75),
    Goal("fill", "room is left and work waits", limit=0.03, pull=0.05),
)
NAMES = tuple(goal.name for goal in GOALS)
MOVES = ("now", "peak", "pull")  # weights of a worker that a goal changes
AT = tuple(list(WEIGHTS).index(name) for name in MOVES)
# what a search may move of each goal, by how much in a step, and how far at all; log_patience is of
# the decimal logarithm, where a goal has a patience of its own
WIDTHS = {"limit": 0.015, "margin": 0.25, "log_patience": 0.3, "now": 0.15, "peak": 0.15,
          "pull": 0.04}  # fmt: skip
BOUNDS = {"limit": (-0.2, 0.2), "margin": (-2.0, 2.0), "patience_s": (0.1, 1e4),
          "now": (-1.0, 1.0), "peak": (-1.0, 1.0), "pull": (-0.5, 0.5)}  # fmt: skip
Place = tuple[int, str]  # a goal's number, and one of WIDTHS


def free(goals: tuple[Goal, ...]) -> tuple[list[Place], Array]:
    """What a search may move, and by how much in a step; that nothing is wanted stays so."""
    places = [
        (number, name)
        for number, goal in enumerate(goals)
        for name in WIDTHS
        if number != KEEP and not (name == "log_patience" and math.isnan(goal.patience_s))
    ]
    return places, np.array([WIDTHS[name] for _, name in places])


def moved(goals: tuple[Goal, ...], places: list[Place], by: Array) -> tuple[Goal, ...]:
    """The same goals with these numbers changed by so much, each within its bounds."""
    made = list(goals)
    for (number, name), step in zip(places, by.tolist()):
        at = "patience_s" if name == "log_patience" else name
        value = getattr(made[number], at)
        value = value * 10.0 ** min(max(step, -6.0), 6.0) if at != name else value + step
        low, high = BOUNDS[at]
        made[number] = made[number]._replace(**{at: min(max(value, low), high)})
    return tuple(made)


def told(goals: tuple[Goal, ...]) -> dict[str, dict[str, float | None]]:
    """The numbers of each goal as JSON has them."""
    return {
        goal.name: {
            name: None if math.isnan(value) else round(value, 6)
            for name in BOUNDS
            for value in (float(getattr(goal, name)),)
        }
        for goal in goals
    }


def goals_in(held: dict[str, Any], place: str, remedy: str) -> tuple[Goal, ...]:
    """The goals that a file holds; where it holds none, those written by hand."""
    given = held.get("goals")
    if given is None:
        return GOALS
    if not isinstance(given, dict) or list(given) != list(NAMES):
        raise PolicyError(f"{place}: goals are not {', '.join(NAMES)} in turn; {remedy}")
    made = []
    for goal in GOALS:
        own = given[goal.name]
        if not isinstance(own, dict) or list(own) != list(BOUNDS):
            raise PolicyError(
                f"{place}: goals.{goal.name} has not {', '.join(BOUNDS)} in turn; {remedy}"
            )
        for name, (low, high) in BOUNDS.items():
            value = own[name]
            if value is None and name == "patience_s":
                continue
            if type(value) not in (int, float) or not low <= value <= high:
                raise PolicyError(
                    f"{place}: goals.{goal.name}.{name}={value!r} is not in {low:g}..{high:g}; "
                    f"{remedy}"
                )
        own = {name: math.nan if value is None else float(value) for name, value in own.items()}
        made.append(goal._replace(**own))
    return tuple(made)
