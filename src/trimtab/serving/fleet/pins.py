"""A live fleet's compiled calls, by the addresses of its pinned arrays.

The same functions as in `route`, without unpacking fifty arrays a call; what a server sends is
read by compiled code as it lies in its frame.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from trimtab.arrays import Array
from trimtab.compiled import compiled, inner
from trimtab.serving.fleet.route import book, pump
from trimtab.serving.fleet.state import Live, live_arrays
from trimtab.serving.net.serve_profile import modelled
from trimtab.serving.nouns import SEGMENTS
from trimtab.serving.routing.fleet_state import Fleets
from trimtab.serving.routing.greedy import Knobs
from trimtab.serving.routing.pinned import Pinned, likeness, opener
from trimtab.serving.routing.routers import Rule, rule
from trimtab.serving.server.wire import ANSWER_HEAD, REPORT, REPORT_ROW, RUN_COLUMNS

MISFIT = -1  # for a number of rows: what a server sent does not fit together
FIXED_B = REPORT.size + ANSWER_HEAD.size
REPORT_B, RUN_B = REPORT.size, RUN_COLUMNS * 8


@cache
def likenesses() -> tuple[Any, Any, Any]:
    """The compiled types of Fleets, Live and Rule."""
    profile = modelled()
    fleets, live = live_arrays(profile, 1, Knobs())
    return likeness(fleets), likeness(live), likeness(rule(profile, "fixed"))


fleets_at = opener(lambda: likenesses()[0])
live_at = opener(lambda: likenesses()[1])
rule_at = opener(lambda: likenesses()[2])


@compiled
def pump_at(
    fleets: int, live: int, rules: int, arrivals: Array, refused: Array, now_s: float
) -> Any:
    """See `route.pump`."""
    return pump(fleets_at(fleets), live_at(live), rule_at(rules), arrivals, refused, now_s)


@inner
def fits(x: Live, ids: Array, widths: Array, segment: int, tensor_b: int) -> bool:
    """Whether rows that came back are as many bytes as their widths make; see `check_answer`."""
    if not 0 < segment <= SEGMENTS or not 0 < len(ids) <= len(x.slot):
        return False
    width = widths[0, segment - 1]
    for k in range(len(ids)):
        if widths[k, segment - 1] != width:
            return False
    return width < 4 and tensor_b == len(ids) * x.row_b[segment, width]


@compiled
def book_at(
    fleets: int, live: int, v: int, meta: Array, came_back: bool, tensor_b: int, now_s: float
) -> tuple[Any, int]:
    """Book the meta part of what a server sent, and its rows where `came_back`; see
    `route.book`. Returns (rows, rows that wait at the front); out_back and out_mark say which
    rows came back. MISFIT rows: nothing was booked.
    """
    f, x = fleets_at(fleets), live_at(live)
    if len(meta) < FIXED_B:
        return MISFIT, 0
    report = meta[:REPORT_B].view(REPORT_ROW)[0]
    head = meta[REPORT_B:FIXED_B].view(np.uint32)
    runs, rows, segment = np.int64(report["runs"]), np.int64(head[0]), np.int64(head[1])
    at = FIXED_B + runs * RUN_B
    if at + rows * (8 + SEGMENTS) > len(meta):
        return MISFIT, 0
    rows = rows if came_back else np.int64(0)
    ids = meta[at : at + rows * 8].view(np.int64)
    widths = meta[at + rows * 8 : at + rows * (8 + SEGMENTS)].reshape(rows, SEGMENTS)
    if came_back and not fits(x, ids, widths, segment, tensor_b):
        return MISFIT, 0
    ran = meta[FIXED_B:at].view(np.float64).reshape(runs, RUN_COLUMNS)
    counts = np.int64(report["received"]), np.int64(report["busy"]), np.int64(report["waiting"])
    waits = book(f, x, v, counts, report["util"], ran, ids, widths, segment, x.out_mark, now_s)
    for k in range(rows):
        x.out_back[k] = ids[k] % len(x.slot)
    return rows, waits


class Pins:
    """The arrays of a fleet where compiled code finds them."""

    def __init__(self, f: Fleets, x: Live) -> None:
        fleets, live, _ = likenesses()
        self.held = Pinned(f, fleets), Pinned(x, live)
        self.at = self.held[0].address, self.held[1].address
        self.rule: Pinned | None = None
        self.rule_at = 0

    def use(self, rules: Rule) -> None:
        """Route by another rule."""
        self.rule = Pinned(rules, likenesses()[2])
        self.rule_at = self.rule.address
