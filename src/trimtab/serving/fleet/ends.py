"""How requests of a live fleet end: refused, given up, left or answered; counted, and traced where
somebody asked for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from trimtab.serving.fleet.figures import Figures
from trimtab.serving.fleet.request import OpenRequest, Slots, refusal
from trimtab.serving.fleet.state import Live
from trimtab.serving.nouns import TUPLES, Answer, Request, Why
from trimtab.serving.routing.greedy import NONE

if TYPE_CHECKING:
    from trimtab.serving.fleet.tracing import Tracer

AFTER_S = (1e-3, 60.0)  # the least and the most that a refused client is told to wait


class Ends:
    """Counts the end of every request, and tells a tracer. epoch_s: the fleet's 0 on `clock`."""

    def __init__(
        self,
        figures: Figures,
        x: Live,
        slots: Slots,
        tracer: Tracer | None,
        clock: Callable[[], float],
        epoch_s: float,
    ) -> None:
        self.figures, self.x, self.slots = figures, x, slots
        self.tracer, self.clock, self.epoch_s = tracer, clock, epoch_s
        self.refusals = 0  # for want of room, since the last turn
        self.full = refusal(Why.BUSY, "")  # what is said at `full_at`: rows open, answered a second
        self.full_at = (0, 0.0)

    def busy(self, open_rows: int, answered_hz: float) -> Answer:
        """What a request is told that finds no room: one object until something changes."""
        self.refusals += 1
        at = open_rows, answered_hz
        if at != self.full_at:
            after_s = min(max(open_rows / max(answered_hz, 1e-9), AFTER_S[0]), AFTER_S[1])
            reason = f"{open_rows} images wait, which is all that can be answered in time"
            self.full = refusal(Why.BUSY, f"{reason}; come back later", after_s)
            self.full_at = at
        return self.full

    def unread(self, trace: Mapping[str, str], answer: Answer) -> Answer:
        """Book the refusal of a request that nobody read."""
        self.figures.count["arrived"] += 1
        self.figures.ended(answer.why)
        if self.tracer is not None:
            now_s = self.clock()
            request = Request({}, (), arrived_s=now_s, trace=trace)
            self.tracer.ended(request, answer.why, now_s, reason=answer.reason)
        return answer

    def refused(self, request: Request, answer: Answer) -> Answer:
        """Book the refusal of a request."""
        self.figures.ended(answer.why)
        if self.tracer is not None:
            self.tracer.ended(request, answer.why, self.clock(), reason=answer.reason)
        return answer

    def given_up(self, request: OpenRequest, why: Why, reason: str) -> None:
        """Book a request that ends without an answer; its slots are still its own."""
        self.figures.ended(why)
        if self.tracer is None:
            return
        sent_s = math.nan
        for slot in request.slots:
            state = self.x.slot[slot]
            if self.slots.owner[slot] is request and state["uid"] != NONE:
                sent_s = float(state["sent_s"])
        self._traced(request, why, sent_s, reason)

    def answered(self, request: OpenRequest, now_s: float, slot: int) -> None:
        """Book an answer; `slot` had the row that came back last."""
        self.figures.answered(now_s - request.arrived_s, now_s <= request.due_s)
        if self.tracer is not None:
            self._traced(request, Why.DONE, float(self.x.slot[slot]["sent_s"]), "")

    def _traced(self, request: OpenRequest, why: Why, sent_s: float, reason: str) -> None:
        assert self.tracer is not None
        self.tracer.ended(
            request.request,
            why,
            self.clock(),
            sent_s=sent_s + self.epoch_s,
            server=request.server,
            widths=TUPLES[request.widths[-1]] if request.widths else (),
            reason=reason,
        )
