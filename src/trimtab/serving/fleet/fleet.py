"""A live fleet: servers that run segments, behind one router, as what a protocol front asks.

Everything happens on one event loop. No request starts a task, a thread or a timer: arrivals of
one turn of the loop are routed by one compiled call, and what a server sends back is booked by
another. Servers connect to the fleet and may come and go while it serves.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from trimtab.errors import ServeError
from trimtab.serving.fleet.care import Alarm, drained, look_after
from trimtab.serving.fleet.ends import Ends
from trimtab.serving.fleet.figures import Figures, view_of
from trimtab.serving.fleet.member import Member
from trimtab.serving.fleet.pins import MISFIT, Pins, book_at, pump_at
from trimtab.serving.fleet.request import (
    OpenRequest,
    Slots,
    answer_of,
    count_problem,
    labels_of,
    metadata_of,
    refusal,
)
from trimtab.serving.fleet.roster import Roster
from trimtab.serving.fleet.route import ON, STALE, forget, lose_ids, lose_server
from trimtab.serving.fleet.router import Router, slimmest_of
from trimtab.serving.fleet.seats import width_table
from trimtab.serving.fleet.state import live_arrays
from trimtab.serving.front.tensors import all_finite
from trimtab.serving.net.serve_profile import ServeProfile
from trimtab.serving.net.slim_weights import Weights
from trimtab.serving.nouns import WIDTHS, Answer, Metadata, Request, ServerState, Why, nothing
from trimtab.serving.routing.greedy import NONE, Knobs
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
    work_frame,
)
from trimtab.serving.view import FleetView

if TYPE_CHECKING:
    from trimtab.serving.fleet.tracing import Tracer

TICK_S = 0.1
HELD_S = 0.005  # a rule that holds back is asked again after this
SILENT_S = 2.0  # no word from a server for so long: no work for it
WAIT_S = 10.0  # how long requests wait where no server is left
LIVE_KNOBS = Knobs(scan=True, idle_unload_s=600.0)
DEFAULT_RANK = 2  # priority 1 goes ahead of requests that name none, 3 and above behind


class LiveFleet:
    """Answers requests by the servers that have joined. Make it and use it on one event loop.

    objective_s: what a request without a deadline should take; it is answered also when late.
    margin: share of a request's time that the router may not plan with, to begin with; more or
    less is learned. queue_max: rows open at once; None = what the servers can answer within the
    objective. digest: of the network that servers must have, or "" = any. tracer: told of every
    request when it has ended.
    """

    def __init__(
        self,
        weights: Weights,
        profile: ServeProfile,
        router: Router,
        *,
        name: str = "slim",
        objective_s: float = 0.1,
        margin: float = 0.15,
        queue_max: int | None = None,
        rows_max: int = 64,
        slots: int = 8192,
        wait_s: float = WAIT_S,
        silent_s: float = SILENT_S,
        token: str = "",
        digest: str = "",
        knobs: Knobs = LIVE_KNOBS,
        tracer: Tracer | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not objective_s > 0 or not 0 <= margin < 1 or not 0 < rows_max <= slots:
            raise ServeError(
                f"objective_s={objective_s}, margin={margin}, rows_max={rows_max}: give seconds "
                "above 0, a share below 1, and 1 or more rows"
            )
        self.model: Metadata = metadata_of(weights, name)
        self.labels = labels_of(weights)
        self.objective_s, self.rows_max, self.wait_s = objective_s, rows_max, wait_s
        self.silent_s, self.clock = silent_s, clock
        self.queue_max = queue_max
        self.log = logging.getLogger("trimtab.serve")
        self.f, self.x = live_arrays(profile, slots, knobs)
        self.x.tally["margin"] = margin
        self.slots = Slots(self.x)
        self.pins = Pins(self.f, self.x)
        self.widths = width_table()
        self.row_b = [[round(mb * 1e6) for mb in row] for row in profile.input_mb]
        self.row_b.append([4 * weights.form.classes] * len(WIDTHS))  # of a row, by segment, width
        self.x.row_b[:] = self.row_b
        self.roster = Roster(self.f, self.x, profile, knobs, objective_s, margin, token, digest)
        self.figures = Figures()
        self.open = self.open_rows = 0
        self.epoch_s = clock()
        self.ends = Ends(self.figures, self.x, self.slots, tracer, clock, self.epoch_s)
        self.due = False  # a turn is planned
        self.leaving = False  # not ready any more; still answers
        self.closed = False
        self.loop: asyncio.AbstractEventLoop | None = None
        self.alarm = Alarm(self)
        self.again: asyncio.TimerHandle | None = None
        self.beat: asyncio.TimerHandle | None = None
        self.checks: list[Callable[[float], None]] = []  # called every tick
        self.empty = asyncio.Event()
        self.use(router)

    @property
    def ready(self) -> bool:
        """Whether a request sent now would be served."""
        return bool(self.roster.seated) and not self.leaving

    @property
    def limit(self) -> int:
        """Rows that may be open at once."""
        return self.queue_max or self.roster.capacity.rows

    def now(self) -> float:
        """Seconds since the fleet began."""
        return self.clock() - self.epoch_s

    def start(self) -> None:
        """Begin to look after servers and deadlines, on the running loop."""
        self.loop = asyncio.get_running_loop()
        self.tick()

    def use(self, router: Router) -> None:
        """Route by another rule from the next decision on."""
        self.router = router
        self.pins.use(router.rule)
        self.x.tally["slimmest"] = slimmest_of(router)
        self.roster.capacity.count(self.f, router)
        if router.problem:
            self.log.warning("router: %s; running %s", router.problem, router.name)

    def submit(self, asked: Request, done: Callable[[Answer], None]) -> Callable[[], None]:
        """Take one request; see `front.Fleet`."""
        self.figures.count["arrived"] += 1
        if self.closed:
            gone = refusal(Why.UNAVAILABLE, "the fleet is closed; ask another", 1.0)
            return self.refuse(asked, done, gone)
        image = asked.inputs["image"]
        rows = len(image)
        if not 0 < rows <= self.rows_max:
            return self.refuse(
                asked, done, refusal(Why.INVALID, count_problem(rows, self.rows_max))
            )
        # before the pixels are looked at: a refusal must cost least when there are most of them
        if (self.open_rows and self.open_rows + rows > self.limit) or rows > len(self.slots.free):
            return self.refuse(asked, done, self.busy())
        if not all_finite(image):
            wrong = refusal(Why.INVALID, "image holds NaN or infinity; send pixels of 0..1")
            return self.refuse(asked, done, wrong)
        now_s = self.now()
        request = OpenRequest(self, asked, done)
        request.arrived_s = min(asked.arrived_s - self.epoch_s, now_s) if asked.arrived_s else now_s
        hard_s = asked.deadline_s - self.epoch_s
        if hard_s <= now_s:
            late = refusal(Why.LATE, "the deadline had passed when the request came")
            return self.refuse(asked, done, late)
        request.due_s = hard_s if hard_s < math.inf else request.arrived_s + self.objective_s
        self.slots.give(request, hard_s, asked.priority or DEFAULT_RANK)
        self.open += 1
        self.open_rows += rows
        if hard_s < self.alarm.at_s:
            self.alarm.set(hard_s)
        if not self.due:
            self.wake()
        return request.cancel

    def turn_away(self, trace: Mapping[str, str]) -> Answer | None:
        """Refuse a request unread, where there is no room for any; see `front.Fleet`."""
        if not self.open_rows or self.open_rows < self.limit or self.closed:
            return None
        return self.ends.unread(trace, self.busy())

    def busy(self) -> Answer:
        return self.ends.busy(self.open_rows, self.roster.capacity.hz)

    def refuse(
        self, asked: Request, done: Callable[[Answer], None], answer: Answer
    ) -> Callable[[], None]:
        """Answer a request that is not taken in."""
        done(self.ends.refused(asked, answer))
        return nothing

    def cancel(self, request: OpenRequest) -> None:
        """Drop a request whose client has left."""
        if not request.closed:
            self.ends.given_up(request, Why.CANCELLED, "the client left")
            self.drop(request)

    def fail(self, request: OpenRequest, why: Why, reason: str, retry_after_s: float = 0.0) -> None:
        """End a request without an answer."""
        if not request.closed:
            self.ends.given_up(request, why, reason)
            self.drop(request)
            request.done(refusal(why, reason, retry_after_s))

    def drop(self, request: OpenRequest) -> None:
        """Close a request and take its rows out of everything."""
        if self.slots.arrivals:
            self.turn()  # its rows may not be on the books yet
        if not request.closed:
            self.close_request(request)
            for slot in request.slots:
                if self.slots.owner[slot] is request and forget(self.f, self.x, slot):
                    self.slots.free_again(slot)

    def close_request(self, request: OpenRequest) -> None:
        request.closed = True
        self.open -= 1
        self.open_rows -= len(request.rows)
        if self.open == 0:
            self.empty.set()

    def finish(self, request: OpenRequest, now_s: float, slot: int) -> None:
        """Answer a request whose rows have all come back, the last of them from `slot`."""
        self.close_request(request)
        self.ends.answered(request, now_s, slot)
        request.done(answer_of(request, self.labels))

    def wake(self) -> None:
        """Plan a turn, where none is."""
        if not self.due and self.loop is not None:
            self.due = True
            self.loop.call_soon(self.turn)

    def turn(self) -> None:
        """Route what has come, by one compiled call, and send it."""
        self.due = False
        arrivals, refusals = self.slots.arrivals, self.ends.refusals
        self.slots.arrivals = self.ends.refusals = 0
        pins, now_s = self.pins, self.now()
        batches, rows, cleared, held = pump_at(*pins.at, pins.rule_at, arrivals, refusals, now_s)
        if batches:
            self.send_all(batches, rows)
        if cleared:
            self.clear("the deadline cannot be met any more")
        if held and self.again is None and self.loop is not None:
            self.again = self.loop.call_later(HELD_S, self.ask_again)

    def ask_again(self) -> None:
        self.again = None
        self.wake()

    def send_all(self, count: int, sent_rows: int) -> None:
        """Send the batches that the last call wrote: one frame each."""
        x, rows, seated = self.x, self.slots.rows, self.roster.seated
        at, ids = x.out_slot[:sent_rows].tolist(), x.out_id[:sent_rows]
        for first, size, v, sent, segment, before, width, plan in x.out_batch[:count].tolist():
            asked = self.widths[plan if plan != NONE else NONE - width, segment]
            end = first + size
            mine = [rows[slot] for slot in at[first:end]]
            seated[v].write(work_frame(sent, segment, before, asked, ids[first:end], mine))

    def clear(self, reason: str) -> None:
        """Free what left its line, and end what is late, as the last call wrote."""
        tally = self.x.tally[0]
        freed = self.x.out_freed[: tally["freed"]].tolist()
        late = self.x.out_late[: tally["late"]].tolist()
        tally["freed"] = tally["late"] = 0
        for slot in freed:
            self.slots.free_again(slot)
        for slot in late:
            if (request := self.slots.owner[slot]) is not None:
                self.fail(request, Why.LATE, reason)

    def connected(self, member: Member) -> None:
        """Note a connection; it is a server once it has said hello."""
        self.roster.connected(member, self.now())

    def heard(self, member: Member, kind: int, meta: memoryview, tensor: memoryview) -> None:
        """Take what a server sent."""
        member.heard_s = self.now()
        if kind == HELLO:
            self.roster.greet(member, heard(meta), self.router)
        elif not member.reader.trusted:
            raise ServeError("a server must say hello first; use `trimtab serve join`")
        elif kind == LEAVE:
            self.roster.let_go(member, self.router, self.now())
        else:
            self.booked(member, kind, meta, tensor)

    def booked(self, member: Member, kind: int, meta: memoryview, tensor: memoryview) -> None:
        """Book a report, and the rows that came with it."""
        now_s, back = self.now(), kind == ANSWER
        packed = np.frombuffer(meta, np.uint8)
        rows, waits = book_at(*self.pins.at, member.row, packed, back, len(tensor), now_s)
        if rows == MISFIT:
            check_answer(read_answer(meta), len(tensor), self.row_b, len(self.slots.rows))
            raise ServeError("what came does not fit together; use `trimtab serve join`")
        member.told = bytes(meta[: REPORT.size])
        if rows:
            self.hand_out(member, rows, tensor, now_s)
        elif kind == FAILED:
            lose_ids(self.f, self.x, read_answer(meta).ids)
            self.fail_lost(bytes(tensor).decode("utf-8", "replace"))
        elif kind == BYE:
            member.state = ServerState.DRAINING
        warmed = kind == READY and member.state == ServerState.WARMING
        if (warmed or member.state == ServerState.SUSPECT) and not self.closed:
            self.roster.admit(member, self.router, now_s)
        if waits or kind != ANSWER:
            self.wake()

    def hand_out(self, member: Member, count: int, tensor: memoryview, now_s: float) -> None:
        """Give rows that came back to their requests, or keep them for their next segment."""
        slots, name, size = self.slots, member.name, len(tensor) // count
        logits = np.frombuffer(tensor, np.float32).reshape(count, -1)
        came, marks = self.x.out_back[:count].tolist(), self.x.out_mark[:count].tolist()
        for at, (slot, mark) in enumerate(zip(came, marks)):
            if mark == ON:
                slots.rows[slot] = tensor[at * size : (at + 1) * size]
            elif mark != STALE:
                request, place = slots.owner[slot], slots.place[slot]
                slots.free_again(slot)
                row = logits if count == 1 else logits[at : at + 1]
                if request is not None and request.take(place, row, mark, name):
                    self.finish(request, now_s, slot)

    def lost(self, member: Member, reason: str) -> None:
        """Send again elsewhere what a server had when its connection ended."""
        self.roster.members.pop(member.uid, None)
        expected = member.state == ServerState.DRAINING or self.closed
        if member.name and not expected:
            self.log.warning("server %s is gone: %s", member.name, reason)
        self.roster.stand_down(member, ServerState.GONE, self.router, self.now())
        self.take_back(member)

    def take_back(self, member: Member) -> None:
        lose_server(self.f, self.x, member.uid)
        self.fail_lost("two servers were lost while they ran it")
        self.wake()

    def fail_lost(self, reason: str) -> None:
        """End the requests that were lost twice, as the last call wrote."""
        tally = self.x.tally[0]
        failed = self.x.out_failed[: tally["failed"]].tolist()
        tally["failed"] = 0
        for slot in failed:
            if (request := self.slots.owner[slot]) is not None:
                self.fail(request, Why.FAILED, f"the request failed: {reason}")

    def tick(self) -> None:
        """Look after all that changes without an event."""
        assert self.loop is not None
        # planned first: one fault must not end the looking
        self.beat = self.loop.call_later(TICK_S, self.tick)
        look_after(self, self.now())

    async def drain(self, limit_s: float = 30.0) -> bool:
        """Answer what is open, then let every server go; True where nothing was left."""
        return await drained(self, limit_s)

    def close(self) -> None:
        """End every connection and timer at once."""
        self.leaving = self.closed = True
        for timer in (self.alarm.timer, self.again, self.beat):
            if timer is not None:
                timer.cancel()
        for member in list(self.roster.members.values()):
            if member.transport is not None:
                member.transport.abort()

    def view(self) -> FleetView:
        """One picture of everything."""
        return view_of(self)
