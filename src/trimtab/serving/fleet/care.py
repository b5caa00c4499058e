"""What a live fleet does as time goes by: silent servers, stuck work, requests without a server,
and the end.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

from trimtab.serving.fleet.route import lose_stuck, sweep
from trimtab.serving.nouns import ServerState, Why

if TYPE_CHECKING:
    from trimtab.serving.fleet.fleet import LiveFleet


class Alarm:
    """Ends requests at their deadlines: one timer for all, set to the nearest."""

    def __init__(self, fleet: LiveFleet) -> None:
        self.fleet, self.at_s = fleet, math.inf
        self.timer: asyncio.TimerHandle | None = None

    def set(self, at_s: float) -> None:
        """Look at deadlines then."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        self.at_s, loop = at_s, self.fleet.loop
        if at_s < math.inf and loop is not None:
            wait_s = min(max(at_s - self.fleet.now(), 0.0), 3600.0)
            self.timer = loop.call_later(wait_s, self.ring)

    def ring(self) -> None:
        """End what is past its deadline."""
        fleet = self.fleet
        if fleet.slots.arrivals:
            fleet.turn()
        sweep(fleet.f, fleet.x, fleet.now())
        next_s = float(fleet.x.tally[0]["next_s"])
        fleet.clear("the deadline passed before an answer came")
        self.set(next_s)


def look_after(fleet: LiveFleet, now_s: float) -> None:
    """One look at everything, some times a second."""
    roster = fleet.roster
    for member in roster.silent(now_s, fleet.silent_s):
        fleet.log.warning("server %s is silent", member.name)
        roster.stand_down(member, ServerState.SUSPECT, fleet.router, now_s)
        fleet.take_back(member)
    roster.forget_strangers(now_s, fleet.wait_s)
    lose_stuck(fleet.f, fleet.x, now_s)
    count = fleet.figures.count
    roster.capacity.learn(count["answered"], count["in_time"], count["refused"])
    roster.capacity.count(fleet.f, fleet.router)
    fleet.x.tally["margin"] = roster.capacity.margin
    for check in fleet.checks:
        check(now_s)
    if fleet.open and not roster.seated and now_s - roster.alone_s > fleet.wait_s:
        give_up(fleet, "no server is left; come back later")
    fleet.figures.note(now_s)
    fleet.alarm.ring()
    fleet.wake()


def give_up(fleet: LiveFleet, reason: str) -> None:
    """End every open request."""
    for request in {request for request in fleet.slots.owner if request is not None}:
        fleet.fail(request, Why.UNAVAILABLE, reason, 1.0)


async def drained(fleet: LiveFleet, limit_s: float) -> bool:
    """Answer what is open, then let every server go; True where nothing was left."""
    fleet.leaving = True
    until_s = fleet.clock() + limit_s
    while fleet.open and fleet.clock() < until_s:
        fleet.empty.clear()
        try:
            await asyncio.wait_for(fleet.empty.wait(), max(until_s - fleet.clock(), 0.01))
        except TimeoutError:
            break
    answered = fleet.open == 0
    fleet.closed = True
    give_up(fleet, "the fleet is closing; ask another")
    for member in list(fleet.roster.members.values()):
        fleet.roster.let_go(member, fleet.router, fleet.now())
    while fleet.roster.members and fleet.clock() < until_s:
        await asyncio.sleep(0.01)
    fleet.close()
    return answered
