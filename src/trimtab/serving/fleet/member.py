"""The front's side of one server's connection."""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol, cast

from trimtab.errors import ServeError
from trimtab.serving.nouns import SEGMENTS, ServerState
from trimtab.serving.routing.greedy import NONE
from trimtab.serving.server.wire import POWER_SOURCES, REFUSED, REPORT, FrameReader, Report, said
from trimtab.serving.view import ServerView

BUFFERED_MAX_B = 64 << 20  # a server that does not read what it is sent is taken for lost

log = logging.getLogger("trimtab.serve")


class Listener(Protocol):
    """What is told of servers: the fleet."""

    def connected(self, member: Member) -> None:
        """A connection begins."""
        ...

    def heard(self, member: Member, kind: int, meta: memoryview, tensor: memoryview) -> None:
        """A frame came; ServeError turns the server away."""
        ...

    def lost(self, member: Member, reason: str) -> None:
        """A connection has ended."""
        ...


class Member(asyncio.BufferedProtocol):
    """One server, from its connection to its end."""

    def __init__(self, listener: Listener, trusted: bool) -> None:
        self.listener, self.trusted = listener, trusted  # trusted = needs no token
        self.transport: asyncio.Transport | None = None
        self.reader = FrameReader()
        self.uid = NONE
        self.row = NONE  # of the arrays, while it is given work
        self.name, self.kind, self.address = "", "", ""
        self.state = ServerState.STARTING
        self.pid, self.workers, self.share, self.restarts = 0, 1, 1.0, 0
        self.packed_report = b""  # its last report, packed: it is read far less often than it comes
        self.heard_s = 0.0

    @property
    def report(self) -> Report:
        """What it last said of itself."""
        return Report(*REPORT.unpack(self.packed_report)) if self.packed_report else Report()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        peer = self.transport.get_extra_info("peername")
        self.address = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else "local"
        self.listener.connected(self)

    def get_buffer(self, sizehint: int) -> bytearray:
        return cast(bytearray, self.reader.room())

    def buffer_updated(self, nbytes: int) -> None:
        try:
            for frame in self.reader.fill(nbytes):
                self.listener.heard(self, *frame)
        except ServeError as problem:
            self.refuse(str(problem))
        except Exception as problem:  # a server's nonsense must not end the front
            log.exception("server %s sent what cannot be read", self.name)
            self.refuse(f"{type(problem).__name__}: {problem}")

    def connection_lost(self, exc: Exception | None) -> None:
        self.listener.lost(self, str(exc) if exc else "the connection ended")

    def write(self, frame: bytes) -> None:
        """Send a frame; never waits."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(frame)
            if self.transport.get_write_buffer_size() > BUFFERED_MAX_B:
                self.transport.abort()

    def refuse(self, reason: str) -> None:
        """Turn the server away with a sentence."""
        log.warning("server %s at %s refused: %s", self.name, self.address, reason)
        self.write(said(REFUSED, reason=reason))
        if self.transport is not None:
            self.transport.close()

    def view(self, now_s: float, waiting: int, coming: int, speed: float) -> ServerView:
        """This server for a picture of the fleet."""
        report = self.report
        return ServerView(
            name=self.name,
            kind=self.kind,
            pid=self.pid,
            address=self.address,
            state=self.state,
            busy=report.busy,
            workers=self.workers,
            waiting=waiting,
            coming=coming,
            waiting_by_segment=tuple(int(rows) for rows in report[5 : 5 + SEGMENTS]),
            memory_b=report.memory_b,
            loaded=report.loaded,
            util=report.util,
            power_w=report.power_w,
            power_source=POWER_SOURCES[report.power_source],
            energy_j=report.energy_j,
            speed=speed,
            batches=report.batches,
            rows=report.rows,
            mean_batch=report.rows / max(report.batches, 1),
            beat_age_s=now_s - self.heard_s,
            restarts=self.restarts,
        )
