"""What a manager may want of a region, and what its workers do differently then."""

from __future__ import annotations

from typing import NamedTuple

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
