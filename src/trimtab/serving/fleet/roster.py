"""Who serves in a live fleet: servers greeted, given work, stood down and let go."""

from __future__ import annotations

import hmac
import logging
from typing import Any

from trimtab.errors import ServeError
from trimtab.serving.fleet.member import Member
from trimtab.serving.fleet.router import Router
from trimtab.serving.fleet.seats import Capacity, seat, unseat, warm_keys
from trimtab.serving.fleet.state import Live
from trimtab.serving.net.serve_profile import ServeProfile
from trimtab.serving.nouns import ServerState
from trimtab.serving.routing.fleet_state import Fleets
from trimtab.serving.routing.greedy import NONE, Knobs
from trimtab.serving.server.wire import LEAVE, WELCOME, said

log = logging.getLogger("trimtab.serve")


class Roster:
    """The servers of a fleet. digest: of the network that they must have, or "" = any."""

    def __init__(
        self,
        f: Fleets,
        x: Live,
        profile: ServeProfile,
        knobs: Knobs,
        objective_s: float,
        margin: float,
        token: str,
        digest: str,
    ) -> None:
        self.f, self.x, self.profile, self.knobs = f, x, profile, knobs
        self.token, self.digest = token, digest
        self.capacity = Capacity(profile, knobs.batch_max, objective_s, margin)
        self.members: dict[int, Member] = {}  # by uid
        self.seated: list[Member] = []  # by row of the arrays: those who are given work
        self.restarts: dict[str, int] = {}
        self.uids = 0
        self.alone_s = 0.0  # since when none is seated

    def connected(self, member: Member, now_s: float) -> None:
        """Note a connection; it is a server once it has said hello."""
        self.uids += 1
        member.uid, member.heard_s = self.uids, now_s
        self.members[member.uid] = member

    def greet(self, member: Member, greeting: dict[str, Any], router: Router) -> None:
        """Let a server in, and say what to warm up; or not."""
        token = str(greeting.get("token", "")).encode()
        if not member.trusted and not hmac.compare_digest(token, self.token.encode()):
            raise ServeError("the token is wrong; give --token as `trimtab serve` printed it")
        if self.digest and greeting.get("digest") != self.digest:
            raise ServeError("the server has another network; give it the same --weights")
        try:
            member.name, member.kind = str(greeting["name"])[:80], str(greeting["kind"])[:20]
            member.workers, member.share = int(greeting["workers"]), float(greeting["share"])
            member.pid = int(greeting["pid"])
        except (KeyError, TypeError, ValueError) as wrong:
            raise ServeError(f"the greeting lacks {wrong}; use `trimtab serve join`") from None
        if not 0 < member.workers <= 1024 or not 0 < member.share <= 100:
            raise ServeError(f"workers={member.workers}, share={member.share}: give above 0")
        member.restarts = self.restarts.get(member.name, -1) + 1
        self.restarts[member.name] = member.restarts
        member.reader.trusted, member.state = True, ServerState.WARMING
        about = {"warm": warm_keys(router), "knobs": self.knobs._asdict()}
        watts = {"idle_w": self.profile.idle_w, "busy_w": self.profile.busy_w}
        member.write(said(WELCOME, **about, **watts))
        log.info("server %s joined (pid %d, %s)", member.name, member.pid, member.kind)

    def admit(self, member: Member, router: Router, now_s: float) -> None:
        """Give a server work from now on."""
        if member.row == NONE:
            if not seat(self.f, self.x, self.seated, member, now_s):
                raise ServeError(f"the fleet has {len(self.seated)} servers, its most")
            member.state = ServerState.READY
            self.capacity.count(self.f, router)
            log.info("server %s is ready (%d in all)", member.name, len(self.seated))

    def stand_down(self, member: Member, state: ServerState, router: Router, now_s: float) -> None:
        """Give a server no more work."""
        if member.row != NONE:
            unseat(self.f, self.x, self.seated, member)
            self.capacity.count(self.f, router)
            if not self.seated:
                self.alone_s = now_s
        member.state = state

    def let_go(self, member: Member, router: Router, now_s: float) -> None:
        """Give a server no more work; it goes when it has done what it has."""
        self.stand_down(member, ServerState.DRAINING, router, now_s)
        member.write(said(LEAVE))

    def silent(self, now_s: float, limit_s: float) -> list[Member]:
        """Servers with work that have said nothing for too long."""
        return [member for member in self.seated if now_s - member.heard_s > limit_s]

    def forget_strangers(self, now_s: float, limit_s: float) -> None:
        """End connections that never said hello."""
        for member in list(self.members.values()):
            if not member.name and now_s - member.heard_s > limit_s:
                member.refuse("no greeting came")
