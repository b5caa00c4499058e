"""How requests of a live fleet end: refused, given up, left or answered; counted, and traced where
somebody asked for it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from trimtab.serving.fleet.books import Books
from trimtab.serving.fleet.request import OpenRequest, refusal
from trimtab.serving.nouns import TUPLES, Answer, Request, Why
from trimtab.serving.routing.greedy import NONE

if TYPE_CHECKING:
    from trimtab.serving.fleet.tracing import Tracer

AFTER_S = (1e-3, 60.0)  # the least and the most that a refused client is told to wait


class Ends:
    """Counts the end of every request, and tells a tracer."""

    def __init__(self, books: Books, tracer: Tracer | None) -> None:
        self.books, self.figures, self.tracer = books, books.figures, tracer
        self.refusals = 0  # for want of room, since the last turn
        self.full = refusal(Why.BUSY, "")  # what is said at `full_at`: rows open, answered a second
        self.full_at = (0, 0.0)

    def busy(self) -> Answer:
        """What a request is told that finds no room: one object until something changes."""
        self.refusals += 1
        open_rows, answered_hz = at = self.books.open_rows, self.books.roster.capacity.hz
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
            now_s = self.books.clock()
            request = Request({}, (), arrived_s=now_s, trace=trace)
            self.tracer.ended(request, answer.why, now_s, reason=answer.reason)
        return answer

    def refused(self, request: Request, answer: Answer) -> Answer:
        """Book the refusal of a request."""
        self.figures.ended(answer.why)
        if self.tracer is not None:
            self.tracer.ended(request, answer.why, self.books.clock(), reason=answer.reason)
        return answer

    def given_up(self, opened: OpenRequest, why: Why, reason: str) -> None:
        """Book a request that ends without an answer; its slots are still its own."""
        self.figures.ended(why)
        if self.tracer is None:
            return
        sent_s = math.nan
        for slot in opened.slots:
            state = self.books.x.slot[slot]
            if self.books.slots.owner[slot] is opened and state["uid"] != NONE:
                sent_s = float(state["sent_s"])
        self._traced(opened, why, sent_s, reason)

    def answered(self, opened: OpenRequest, now_s: float, slot: int) -> None:
        """Book an answer; `slot` had the row that came back last."""
        self.figures.answered(now_s - opened.arrived_s, now_s <= opened.due_s)
        if self.tracer is not None:
            self._traced(opened, Why.DONE, float(self.books.x.slot[slot]["sent_s"]), "")

    def _traced(self, opened: OpenRequest, why: Why, sent_s: float, reason: str) -> None:
        assert self.tracer is not None
        self.tracer.ended(
            opened.request,
            why,
            self.books.clock(),
            sent_s=sent_s + self.books.epoch_s,
            server=opened.server,
            widths=TUPLES[opened.widths[-1]] if opened.widths else (),
            reason=reason,
        )
