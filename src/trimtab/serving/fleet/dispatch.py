"""What a live fleet does with its open requests: routes them, hands their rows back, closes them.

Arrivals of one turn of the event loop are routed by one compiled call, and what a server sends back
is booked by another. No request starts a task, a thread or a timer.
"""

from __future__ import annotations

import asyncio

import numpy as np

from trimtab.serving.fleet.books import Books
from trimtab.serving.fleet.ends import Ends
from trimtab.serving.fleet.member import Member
from trimtab.serving.fleet.pins import pump_at
from trimtab.serving.fleet.request import OpenRequest, answer_of, refusal
from trimtab.serving.fleet.route import ON, STALE, forget, lose_server
from trimtab.serving.fleet.seats import width_table
from trimtab.serving.nouns import Why
from trimtab.serving.routing.greedy import NONE
from trimtab.serving.server.wire import work_frame

HELD_S = 0.005  # a rule that holds back is asked again after this


class Dispatch:
    """Sends what waits to the servers, turn by turn, and ends requests."""

    def __init__(self, books: Books, ends: Ends) -> None:
        self.books, self.ends = books, ends
        self.widths = width_table()
        self.due = False  # a turn is planned
        self.again: asyncio.TimerHandle | None = None

    def wake(self) -> None:
        """Plan a turn, where none is."""
        if not self.due and self.books.loop is not None:
            self.due = True
            self.books.loop.call_soon(self.turn)

    def turn(self) -> None:
        """Route what has come, by one compiled call, and send it."""
        self.due = False
        books, ends = self.books, self.ends
        pins, slots, now_s = books.pins, books.slots, books.now()
        arrivals, refusals = slots.arrivals, ends.refusals
        slots.arrivals = ends.refusals = 0
        batches, rows, cleared, held = pump_at(*pins.at, pins.rule_at, arrivals, refusals, now_s)
        if batches:
            self.send_all(batches, rows)
        if cleared:
            self.clear("the deadline cannot be met any more")
        if held and self.again is None and books.loop is not None:
            self.again = books.loop.call_later(HELD_S, self.ask_again)

    def ask_again(self) -> None:
        self.again = None
        self.wake()

    def send_all(self, count: int, sent_rows: int) -> None:
        """Send the batches that the last call wrote: one frame each."""
        x, rows, seated = self.books.x, self.books.slots.rows, self.books.roster.seated
        at, ids = x.out_slot[:sent_rows].tolist(), x.out_id[:sent_rows]
        for first, size, v, sent, segment, before, width, plan in x.out_batch[:count].tolist():
            widths = self.widths[plan if plan != NONE else NONE - width, segment]
            end = first + size
            mine = [rows[slot] for slot in at[first:end]]
            seated[v].write(work_frame(sent, segment, before, widths, ids[first:end], mine))

    def clear(self, reason: str) -> None:
        """Free what left its line, and end what is late, as the last call wrote."""
        x, slots = self.books.x, self.books.slots
        tally = x.tally[0]
        freed = x.out_freed[: tally["freed"]].tolist()
        late = x.out_late[: tally["late"]].tolist()
        tally["freed"] = tally["late"] = 0
        for slot in freed:
            slots.free_again(slot)
        for slot in late:
            if (opened := slots.owner[slot]) is not None:
                self.fail(opened, Why.LATE, reason)

    def hand_out(self, member: Member, count: int, tensor: memoryview, now_s: float) -> None:
        """Give rows that came back to their requests, or keep them for their next segment."""
        x, slots, name, size = self.books.x, self.books.slots, member.name, len(tensor) // count
        logits = np.frombuffer(tensor, np.float32).reshape(count, -1)
        came, marks = x.out_back[:count].tolist(), x.out_mark[:count].tolist()
        for at, (slot, mark) in enumerate(zip(came, marks)):
            if mark == ON:
                slots.rows[slot] = tensor[at * size : (at + 1) * size]
            elif mark != STALE:
                opened, place = slots.owner[slot], slots.place[slot]
                slots.free_again(slot)
                row = logits if count == 1 else logits[at : at + 1]
                if opened is not None and opened.take(place, row, mark, name):
                    self.finish(opened, now_s, slot)

    def take_back(self, member: Member) -> None:
        """Send again elsewhere what a server has."""
        lose_server(self.books.f, self.books.x, member.uid)
        self.fail_lost("two servers were lost while they ran it")
        self.wake()

    def fail_lost(self, reason: str) -> None:
        """End the requests that were lost twice, as the last call wrote."""
        x, owner = self.books.x, self.books.slots.owner
        tally = x.tally[0]
        failed = x.out_failed[: tally["failed"]].tolist()
        tally["failed"] = 0
        for slot in failed:
            if (opened := owner[slot]) is not None:
                self.fail(opened, Why.FAILED, f"the request failed: {reason}")

    def finish(self, opened: OpenRequest, now_s: float, slot: int) -> None:
        """Answer a request whose rows have all come back, the last of them from `slot`."""
        self.close(opened)
        self.ends.answered(opened, now_s, slot)
        opened.done(answer_of(opened, self.books.labels))

    def cancel(self, opened: OpenRequest) -> None:
        """Drop a request whose client has left."""
        if not opened.closed:
            self.ends.given_up(opened, Why.CANCELLED, "the client left")
            self.drop(opened)

    def fail(self, opened: OpenRequest, why: Why, reason: str, retry_after_s: float = 0.0) -> None:
        """End a request without an answer."""
        if not opened.closed:
            self.ends.given_up(opened, why, reason)
            self.drop(opened)
            opened.done(refusal(why, reason, retry_after_s))

    def give_up(self, reason: str) -> None:
        """End every open request."""
        for opened in {opened for opened in self.books.slots.owner if opened is not None}:
            self.fail(opened, Why.UNAVAILABLE, reason, 1.0)

    def drop(self, opened: OpenRequest) -> None:
        """Close a request and take its rows out of everything."""
        books, slots = self.books, self.books.slots
        if slots.arrivals:
            self.turn()  # its rows may not be on the books yet
        if not opened.closed:
            self.close(opened)
            for slot in opened.slots:
                if slots.owner[slot] is opened and forget(books.f, books.x, slot):
                    slots.free_again(slot)

    def close(self, opened: OpenRequest) -> None:
        """Count a request out."""
        books = self.books
        opened.closed = True
        books.open -= 1
        books.open_rows -= len(opened.rows)
        if books.open == 0:
            books.empty.set()

    def stop(self) -> None:
        """Ask the rule no more."""
        if self.again is not None:
            self.again.cancel()
