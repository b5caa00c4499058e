"""A live fleet: servers that run segments, behind one router, as what a protocol front asks.

Everything happens on one event loop. Servers connect to the fleet and may come and go while it
serves. What it knows is in its books; how requests travel is in `dispatch`, what changes without an
event in `care`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from trimtab.errors import ServeError
from trimtab.serving.fleet.books import Books
from trimtab.serving.fleet.care import Care
from trimtab.serving.fleet.dispatch import Dispatch
from trimtab.serving.fleet.ends import Ends
from trimtab.serving.fleet.member import Member
from trimtab.serving.fleet.picture import view_of
from trimtab.serving.fleet.pins import MISFIT, book_at
from trimtab.serving.fleet.request import OpenRequest, count_problem, refusal
from trimtab.serving.fleet.route import lose_ids
from trimtab.serving.front.tensors import all_finite
from trimtab.serving.nouns import Answer, Request, ServerState, Why, nothing
from trimtab.serving.server.wire import (
    ANSWER,
    BYE,
    FAILED,
    HELLO,
    LEAVE,
    READY,
    REPORT,
    check_answer,
    heard,
    read_answer,
)
from trimtab.serving.view import FleetView

if TYPE_CHECKING:
    from trimtab.serving.fleet.tracing import Tracer

DEFAULT_RANK = 2  # priority 1 goes ahead of requests that name none, 3 and above behind


class LiveFleet:
    """Answers requests by the servers that have joined. Make it and use it on one event loop.
    tracer: told of every request when it has ended.
    """

    def __init__(self, books: Books, tracer: Tracer | None = None) -> None:
        self.books, self.model = books, books.model
        self.ends = Ends(books, tracer)
        self.dispatch = Dispatch(books, self.ends)
        self.care = Care(books, self.dispatch)
        self.alarm = self.care.alarm

    @property
    def ready(self) -> bool:
        """Whether a request sent now would be served."""
        return self.books.ready

    def start(self) -> None:
        """Begin to look after servers and deadlines, on the running loop."""
        self.books.loop = asyncio.get_running_loop()
        self.care.tick()

    def submit(self, request: Request, done: Callable[[Answer], None]) -> Callable[[], None]:
        """Take one request; see `nouns.Fleet`."""
        books = self.books
        books.figures.count["arrived"] += 1
        if books.closed:
            gone = refusal(Why.UNAVAILABLE, "the fleet is closed; ask another", 1.0)
            return self.refuse(request, done, gone)
        image = request.inputs["image"]
        rows = len(image)
        if not 0 < rows <= books.rows_max:
            wrong = refusal(Why.INVALID, count_problem(rows, books.rows_max))
            return self.refuse(request, done, wrong)
        # before the pixels are looked at: a refusal must cost least when there are most of them
        full = books.open_rows and books.open_rows + rows > books.limit
        if full or rows > len(books.slots.free):
            return self.refuse(request, done, self.ends.busy())
        if not all_finite(image):
            wrong = refusal(Why.INVALID, "image holds NaN or infinity; send pixels of 0..1")
            return self.refuse(request, done, wrong)
        now_s, hard_s = books.now(), request.deadline_s - books.epoch_s
        if hard_s <= now_s:
            late = refusal(Why.LATE, "the deadline had passed when the request came")
            return self.refuse(request, done, late)
        opened = OpenRequest(request, done)
        came_s = request.arrived_s
        opened.arrived_s = min(came_s - books.epoch_s, now_s) if came_s else now_s
        opened.due_s = hard_s if hard_s < math.inf else opened.arrived_s + books.objective_s
        books.slots.give(opened, hard_s, request.priority or DEFAULT_RANK)
        books.open += 1
        books.open_rows += rows
        if hard_s < self.alarm.at_s:
            self.alarm.set(hard_s)
        if not self.dispatch.due:
            self.dispatch.wake()
        return partial(self.dispatch.cancel, opened)

    def turn_away(self, trace: Mapping[str, str]) -> Answer | None:
        """Refuse a request unread, where there is no room for any; see `nouns.Fleet`."""
        books = self.books
        if not books.open_rows or books.open_rows < books.limit or books.closed:
            return None
        return self.ends.unread(trace, self.ends.busy())

    def refuse(
        self, request: Request, done: Callable[[Answer], None], answer: Answer
    ) -> Callable[[], None]:
        """Answer a request that is not taken in."""
        done(self.ends.refused(request, answer))
        return nothing

    def connected(self, member: Member) -> None:
        """Note a connection; it is a server once it has said hello."""
        self.books.roster.connected(member, self.books.now())

    def heard(self, member: Member, kind: int, meta: memoryview, tensor: memoryview) -> None:
        """Take what a server sent."""
        books = self.books
        now_s = member.heard_s = books.now()
        if kind == HELLO:
            books.roster.greet(member, heard(meta), books.router)
        elif not member.reader.trusted:
            raise ServeError("a server must say hello first; use `trimtab serve join`")
        elif kind == LEAVE:
            books.roster.let_go(member, books.router, now_s)
        else:
            self.booked(member, kind, meta, tensor, now_s)

    def booked(
        self, member: Member, kind: int, meta: memoryview, tensor: memoryview, now_s: float
    ) -> None:
        """Book a report, and the rows that came with it."""
        books, dispatch = self.books, self.dispatch
        packed, back = np.frombuffer(meta, np.uint8), kind == ANSWER
        rows, waits = book_at(*books.pins.at, member.row, packed, back, len(tensor), now_s)
        if rows == MISFIT:
            check_answer(read_answer(meta), len(tensor), books.row_b, len(books.slots.rows))
            raise ServeError("what came does not fit together; use `trimtab serve join`")
        member.packed_report = bytes(meta[: REPORT.size])
        if rows:
            dispatch.hand_out(member, rows, tensor, now_s)
        elif kind == FAILED:
            lose_ids(books.f, books.x, read_answer(meta).ids)
            dispatch.fail_lost(bytes(tensor).decode("utf-8", "replace"))
        elif kind == BYE:
            member.state = ServerState.DRAINING
        warmed = kind == READY and member.state == ServerState.WARMING
        if (warmed or member.state == ServerState.SUSPECT) and not books.closed:
            books.roster.admit(member, books.router, now_s)
        if waits or kind != ANSWER:
            dispatch.wake()

    def lost(self, member: Member, reason: str) -> None:
        """Send again elsewhere what a server had when its connection ended."""
        books = self.books
        books.roster.members.pop(member.uid, None)
        expected = member.state == ServerState.DRAINING or books.closed
        if member.name and not expected:
            books.log.warning("server %s is gone: %s", member.name, reason)
        books.roster.stand_down(member, ServerState.GONE, books.router, books.now())
        self.dispatch.take_back(member)

    async def drain(self, limit_s: float = 30.0) -> bool:
        """Answer what is open, then let every server go; True where nothing was left."""
        answered = await self.care.drain(limit_s)
        self.close()
        return answered

    def close(self) -> None:
        """End every connection and timer at once."""
        self.books.leaving = self.books.closed = True
        self.care.stop()
        self.dispatch.stop()
        for member in list(self.books.roster.members.values()):
            if member.transport is not None:
                member.transport.abort()

    def view(self) -> FleetView:
        """One picture of everything."""
        return view_of(self.books)
