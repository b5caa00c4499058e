"""The sending side of the load generator: raw HTTP/1.1 on kept connections, one event loop.

It runs in a process of its own: a job comes pickled on standard input, what happened goes pickled
to standard output. Nothing but the bytes to send is made while the clock runs.
"""

from __future__ import annotations

import asyncio
import ctypes
import math
import os
import pickle
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import httptools

TIMED_OUT, BROKEN, NO_CONNECTION, NEVER_SENT = -1, -2, -3, -4
NAMES = {
    TIMED_OUT: "timed out",
    BROKEN: "connection broken",
    NO_CONNECTION: "no connection",
    NEVER_SENT: "never sent",
}
LEAD_S = 0.02  # from the opened connections to the clock's zero
STALE_S = 3.0  # common servers close a connection that was idle for 5 s
SWEEP_S = 0.1


class Job(NamedTuple):
    """What to send, where and when."""

    host: str
    port: int
    requests: list[bytes]  # whole, with their heads
    body_of: list[int]  # row of `requests` that is sent, taken in a circle
    arrival_s: list[float] | None  # from the start; None = each connection asks again when answered
    seconds: float  # length of a run without arrivals
    connections: int  # with arrivals: at most; without: exactly
    timeout_s: float
    keep_every: int  # keep the answer's body of every such request; 0 = none


class Outcome(NamedTuple):
    """What happened, a place for each request. Times count from the start."""

    planned_s: list[float]
    sent_s: list[float]  # nan = never
    latency_s: list[float]  # from the planned moment; nan = unanswered
    status: list[int]  # of HTTP, or one of NAMES
    kept: dict[int, bytes]
    wall_s: float
    cpu_s: float
    began_s: float  # the start on the monotonic clock, which all processes of a machine share


class Run:
    """The rows of one run and the connections that carry them."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.planned_s: list[float] = []
        self.sent_s: list[float] = []
        self.latency_s: list[float] = []
        self.status: list[int] = []
        self.kept: dict[int, bytes] = {}
        self.connections: set[Connection] = set()
        self.opening: set[asyncio.Task[None]] = set()
        self.left = 0  # rows that have not ended
        self.ended = asyncio.Event()
        self.freed: Callable[[Connection], None] = lambda connection: None
        self.failed: Callable[[], None] = lambda: None  # no connection could be opened
        self.lost: Callable[[], None] = lambda: None  # one that was open has ended
        self.clock = time.monotonic

    def add(self, planned_s: float) -> int:
        """A new row."""
        self.planned_s.append(planned_s)
        self.sent_s.append(math.nan)
        self.latency_s.append(math.nan)
        self.status.append(0)
        self.left += 1
        return len(self.status) - 1

    def end(self, row: int, status: int) -> None:
        """Write down how a row ended."""
        self.status[row] = status
        if status > 0:
            self.latency_s[row] = self.clock() - self.planned_s[row]
        self.left -= 1
        if self.left == 0:
            self.ended.set()

    def open(self) -> None:
        """Open one more connection beside the running work."""
        task = asyncio.get_running_loop().create_task(self.opened())
        self.opening.add(task)
        task.add_done_callback(self.opening.discard)

    async def opened(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self.job.timeout_s):
                _, connection = await loop.create_connection(
                    lambda: Connection(self), self.job.host, self.job.port
                )
        except (OSError, TimeoutError):
            self.failed()
        else:
            self.freed(connection)

    def sweep(self) -> None:
        """End what was sent too long ago."""
        before_s = self.clock() - self.job.timeout_s
        for connection in list(self.connections):
            if connection.row >= 0 and self.planned_s[connection.row] < before_s:
                connection.stop(TIMED_OUT)


class Connection(asyncio.Protocol):
    """One connection with at most one request in flight."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.row = -1  # -1 = idle
        self.parts: list[bytes] | None = None
        self.parser: Any = httptools.HttpResponseParser(self)
        self.transport: Any = None
        self.moved_s = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.moved_s = self.run.clock()
        self.run.connections.add(self)

    def send(self, row: int) -> None:
        """Put one request on the wire."""
        run, job = self.run, self.run.job
        self.row = row
        self.parts = [] if job.keep_every and row % job.keep_every == 0 else None
        run.sent_s[row] = run.clock()
        self.transport.write(job.requests[job.body_of[row % len(job.body_of)]])

    def data_received(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self.stop(BROKEN)

    def on_body(self, data: bytes) -> None:
        if self.parts is not None:
            self.parts.append(data)

    def on_message_complete(self) -> None:
        row, run = self.row, self.run
        if row < 0:  # an answer to nothing: whoever speaks here is not to be trusted
            self.transport.abort()
            return
        self.row = -1
        self.moved_s = run.clock()
        if self.parts is not None:
            run.kept[row] = b"".join(self.parts)
        run.end(row, self.parser.get_status_code())
        if self.parser.should_keep_alive() and not self.transport.is_closing():
            run.freed(self)
        else:
            self.transport.close()

    def stop(self, status: int) -> None:
        """Give up the request in flight and the connection."""
        row, self.row = self.row, -1
        self.transport.abort()
        if row >= 0:
            self.run.end(row, status)

    def connection_lost(self, error: Exception | None) -> None:
        self.run.connections.discard(self)
        if self.row >= 0:
            self.stop(BROKEN)
        self.run.lost()


class Alarm:
    """Wakes the loop at a moment of the monotonic clock.

    The loop's own timers count whole milliseconds, which is much beside an answer of 0.3 ms: on
    Linux the kernel's timer does it.
    """

    def __init__(self, ring: Callable[[], None]) -> None:
        self.ring = ring
        self.fd = -1
        self.later: asyncio.TimerHandle | None = None
        if sys.platform == "linux":
            self.libc = ctypes.CDLL(None)
            self.fd = self.libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK)
        if self.fd >= 0:
            asyncio.get_running_loop().add_reader(self.fd, self.rang)

    def rang(self) -> None:
        with suppress(BlockingIOError):
            os.read(self.fd, 8)
        self.ring()

    def set(self, when_s: float) -> None:
        if self.fd < 0:
            wait_s = when_s - time.monotonic()
            self.later = asyncio.get_running_loop().call_later(max(wait_s, 0.0), self.ring)
            return
        whole_s = int(when_s)
        # interval (none), then the moment; 0 would disarm
        spec = (ctypes.c_long * 4)(0, 0, whole_s, max(int((when_s - whole_s) * 1e9), 1))
        self.libc.timerfd_settime(self.fd, 1, spec, None)  # 1 = the moment is absolute

    def close(self) -> None:
        if self.fd >= 0:
            asyncio.get_running_loop().remove_reader(self.fd)
            os.close(self.fd)
        if self.later is not None:
            self.later.cancel()


class Planned:
    """Sends every request at its moment, whatever became of those before it."""

    def __init__(self, run: Run, arrival_s: list[float], begin_s: float) -> None:
        self.run = run
        self.idle = list(run.connections)
        self.waiting: deque[int] = deque()  # due, but there was no connection
        self.next = 0
        for moment_s in arrival_s:
            run.add(begin_s + moment_s)
        run.freed, run.failed, run.lost = self.freed, self.failed, self.lost

    def freed(self, connection: Connection) -> None:
        if self.waiting:
            connection.send(self.waiting.popleft())
        else:
            self.idle.append(connection)

    def failed(self) -> None:
        if self.waiting:
            self.run.end(self.waiting.popleft(), NO_CONNECTION)
        if self.waiting and not self.run.connections:
            self.run.open()

    def send(self, row: int) -> None:
        run = self.run
        while self.idle:
            connection = self.idle.pop()  # the one used last: the others may go stale
            if connection.transport.is_closing():
                continue
            if run.clock() - connection.moved_s < STALE_S:
                connection.send(row)
                return
            connection.transport.close()
        self.waiting.append(row)
        self.open_more()

    def lost(self) -> None:
        """Those who waited for the connection that ended get another."""
        if len(self.waiting) > len(self.run.opening):
            self.open_more()

    def open_more(self) -> None:
        """Open one more connection where that is allowed."""
        run = self.run
        if len(run.connections) + len(run.opening) < run.job.connections:
            run.open()

    def due(self) -> None:
        """Send what is due and plan the next look."""
        now_s, planned_s = self.run.clock(), self.run.planned_s
        while self.next < len(planned_s) and planned_s[self.next] <= now_s:
            self.send(self.next)
            self.next += 1
        if self.next < len(planned_s):
            self.alarm.set(planned_s[self.next])

    async def play(self) -> None:
        """Go through all arrivals, until the last has ended."""
        run = self.run
        self.alarm = Alarm(self.due)
        self.due()
        try:
            while not run.ended.is_set():
                with suppress(TimeoutError):
                    await asyncio.wait_for(run.ended.wait(), SWEEP_S)
                run.sweep()
                before_s = run.clock() - run.job.timeout_s
                while self.waiting and run.planned_s[self.waiting[0]] < before_s:
                    run.end(self.waiting.popleft(), NEVER_SENT)
        finally:
            self.alarm.close()


async def send_in_turn(run: Run, begin_s: float) -> None:
    """Let each connection ask again as soon as it has its answer."""
    until_s = begin_s + run.job.seconds

    def freed(connection: Connection) -> None:
        now_s = run.clock()
        if now_s < until_s:
            connection.send(run.add(now_s))

    run.freed = freed
    await asyncio.sleep(begin_s - run.clock())
    for connection in list(run.connections):
        freed(connection)
    while run.clock() < until_s or run.left:
        await asyncio.sleep(min(SWEEP_S, max(until_s - run.clock(), 0.001)))
        run.sweep()
        lost = run.job.connections - len(run.connections) - len(run.opening)
        for _ in range(lost if run.clock() < until_s else 0):
            run.open()


async def run_job(job: Job) -> Outcome:
    """Do one job."""
    run = Run(job)
    ahead = job.connections if job.arrival_s is None else min(job.connections, 16)
    await asyncio.gather(*(run.opened() for _ in range(ahead)))
    cpu_s, begin_s = time.process_time(), run.clock() + LEAD_S
    try:
        if job.arrival_s is None:
            await send_in_turn(run, begin_s)
        elif job.arrival_s:
            await Planned(run, job.arrival_s, begin_s).play()
        cpu_s, wall_s = time.process_time() - cpu_s, run.clock() - begin_s
    finally:
        for connection in list(run.connections):
            connection.transport.abort()
        for task in list(run.opening):
            task.cancel()
    planned_s = [moment_s - begin_s for moment_s in run.planned_s]
    sent_s = [moment_s - begin_s for moment_s in run.sent_s]
    return Outcome(planned_s, sent_s, run.latency_s, run.status, run.kept, wall_s, cpu_s, begin_s)


def main() -> None:
    """Take one job from standard input and tell what happened."""
    job = pickle.load(sys.stdin.buffer)
    try:
        import uvloop

        outcome = uvloop.run(run_job(job))
    except ImportError:
        outcome = asyncio.run(run_job(job))
    # a plain tuple: run as __main__, the class would have a name that the reader cannot find
    pickle.dump(tuple(outcome), sys.stdout.buffer)


if __name__ == "__main__":
    main()
