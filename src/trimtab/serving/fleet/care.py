"""What a live fleet does as time goes by: silent servers, stuck work, requests without a server,
and the end.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

from trimtab.serving.fleet.books import Books
from trimtab.serving.fleet.dispatch import Dispatch
from trimtab.serving.fleet.route import lose_stuck, sweep
from trimtab.serving.nouns import ServerState

TICK_S = 0.1


class Alarm:
    """Ends requests at their deadlines: one timer for all, set to the nearest."""

    def __init__(self, books: Books, dispatch: Dispatch) -> None:
        self.books, self.dispatch, self.at_s = books, dispatch, math.inf
        self.timer: asyncio.TimerHandle | None = None

    def set(self, at_s: float) -> None:
        """Look at deadlines then."""
        self.stop()
        self.at_s, loop = at_s, self.books.loop
        if at_s < math.inf and loop is not None:
            wait_s = min(max(at_s - self.books.now(), 0.0), 3600.0)
            self.timer = loop.call_later(wait_s, self.ring)

    def ring(self) -> None:
        """End what is past its deadline."""
        books = self.books
        if books.slots.arrivals:
            self.dispatch.turn()
        sweep(books.f, books.x, books.now())
        next_s = float(books.x.tally[0]["next_s"])
        self.dispatch.clear("the deadline passed before an answer came")
        self.set(next_s)

    def stop(self) -> None:
        """Ring no more."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class Care:
    """Looks after all that changes without an event, some times a second."""

    def __init__(self, books: Books, dispatch: Dispatch) -> None:
        self.books, self.dispatch = books, dispatch
        self.alarm = Alarm(books, dispatch)
        self.checks: list[Callable[[float], None]] = []  # called every tick
        self.beat: asyncio.TimerHandle | None = None

    def tick(self) -> None:
        """Look at everything, and plan the next look."""
        assert self.books.loop is not None
        # planned first: one fault must not end the looking
        self.beat = self.books.loop.call_later(TICK_S, self.tick)
        self.look(self.books.now())

    def look(self, now_s: float) -> None:
        """One look at everything."""
        books, roster = self.books, self.books.roster
        for member in roster.silent(now_s, books.silent_s):
            books.log.warning("server %s is silent", member.name)
            roster.stand_down(member, ServerState.SUSPECT, books.router, now_s)
            self.dispatch.take_back(member)
        roster.forget_strangers(now_s, books.wait_s)
        lose_stuck(books.f, books.x, now_s)
        count = books.figures.count
        roster.capacity.learn(count["answered"], count["in_time"], count["refused"])
        roster.capacity.count(books.f, books.router)
        books.x.tally["margin"] = roster.capacity.margin
        for check in self.checks:
            check(now_s)
        if books.open and not roster.seated and now_s - roster.alone_s > books.wait_s:
            self.dispatch.give_up("no server is left; come back later")
        books.figures.note(now_s)
        self.alarm.ring()
        self.dispatch.wake()

    async def drain(self, limit_s: float) -> bool:
        """Answer what is open, then let every server go; True where nothing was left."""
        books, clock = self.books, self.books.clock
        books.leaving = True
        until_s = clock() + limit_s
        while books.open and clock() < until_s:
            books.empty.clear()
            try:
                await asyncio.wait_for(books.empty.wait(), max(until_s - clock(), 0.01))
            except TimeoutError:
                break
        answered = books.open == 0
        books.closed = True
        self.dispatch.give_up("the fleet is closing; ask another")
        for member in list(books.roster.members.values()):
            books.roster.let_go(member, books.router, books.now())
        while books.roster.members and clock() < until_s:
            await asyncio.sleep(0.01)
        return answered

    def stop(self) -> None:
        """Look no more."""
        self.alarm.stop()
        if self.beat is not None:
            self.beat.cancel()
