"""One HTTP/1.1 connection: parse, keep the answers in order, and bound what a client may do.

Our own protocol on httptools, because ASGI servers start a task a request and lack the limits:
slow headers, stalled bodies, and a body refused from its Content-Length before it is read.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from enum import IntEnum
from typing import TYPE_CHECKING, cast

import httptools

from trimtab.serving.front.http_wire import BINARY, JSON, STATUS_OF, answer_bytes, error_bytes
from trimtab.serving.front.oip import write_answer
from trimtab.serving.nouns import Answer, Request, Why, nothing

if TYPE_CHECKING:
    from trimtab.serving.front.http_front import HttpFront

# the only headers a request is read for
WANTED = frozenset(
    {
        b"content-length",
        b"content-encoding",
        b"inference-header-content-length",
        b"expect",
        b"traceparent",
        b"tracestate",
    }
)
SLOWEST_BYTES_S = 1024  # a body that comes slower on average is given up
PIPELINE = 32  # unanswered requests of one connection before it is read no further


class Phase(IntEnum):
    """Where in a request the next byte of a connection belongs."""

    IDLE = 0
    HEADER = 1
    BODY = 2


class Slot:
    """One request's place in its connection's order of answers."""

    __slots__ = ("binary", "cancel", "close", "connection", "gone", "head_only", "request", "wire")

    def __init__(self, connection: Connection, close: bool, head_only: bool) -> None:
        self.connection = connection
        self.close = close  # the connection ends after this answer
        self.head_only = head_only
        self.request: Request | None = None
        self.binary: tuple[bool, ...] = ()
        self.cancel: Callable[[], None] = nothing
        self.wire: bytes | None = None
        self.gone = False

    def done(self, answer: Answer) -> None:
        """Take the fleet's answer; ignored where one is there or the client has left."""
        if self.gone or self.wire is not None:
            return
        front = self.connection.front
        if answer.why is Why.DONE:
            self.write(answer)
        else:
            self.error(STATUS_OF[answer.why], answer.reason, answer.retry_after_s)
        front.left()

    def write(self, answer: Answer) -> None:
        """Put the outputs on the wire."""
        front = self.connection.front
        assert self.request is not None
        try:
            body, json_bytes = write_answer(front.model, self.request, self.binary, answer)
        except Exception as error:
            # the fleet's fault, not the client's: it must not break the fleet's own loop either
            front.report(error)
            self.error(500, f"the answer cannot be written: {error}")
            return
        if json_bytes is None:
            self.put(200, body)
        else:
            self.put(200, body, BINARY, b"Inference-Header-Content-Length: %d\r\n" % json_bytes)

    def put(
        self, status: int, body: list[bytes | memoryview], kind: bytes = JSON, more: bytes = b""
    ) -> None:
        """Answer; it is written once the answers before it are."""
        front = self.connection.front
        front.answers[status] += 1
        self.wire = answer_bytes(status, body, kind, more, self.close, front.date, self.head_only)
        self.connection.flush()

    def turned_away(self, refused: Answer) -> None:
        """Answer a request that was not read; the bytes are made once for many."""
        front = self.connection.front
        if self.close:
            self.error(STATUS_OF[refused.why], refused.reason, refused.retry_after_s)
            return
        if refused is not front.refused or front.date != front.refused_date:
            front.refused, front.refused_date = refused, front.date
            front.refused_status = STATUS_OF[refused.why]
            front.refused_wire = error_bytes(
                front.refused_status, refused.reason, refused.retry_after_s, date=front.date
            )
        front.answers[front.refused_status] += 1
        self.wire = front.refused_wire
        self.connection.flush()

    def error(
        self, status: int, reason: str, retry_after_s: float = 0.0, more: bytes = b""
    ) -> None:
        """Answer with an error."""
        front = self.connection.front
        front.answers[status] += 1
        self.wire = error_bytes(
            status, reason, retry_after_s, more, self.close, front.date, self.head_only
        )
        self.connection.flush()


class Connection(asyncio.Protocol):
    """One client's connection."""

    def __init__(self, front: HttpFront) -> None:
        self.front = front
        self.parser = httptools.HttpRequestParser(self)
        self.transport: asyncio.Transport | None = None
        self.slots: deque[Slot] = deque()
        self.phase = Phase.IDLE
        self.deaf = False  # what the client still sends is thrown away
        self.requests = 0  # read whole
        self.paused = False
        self.moved_s = front.clock()  # when bytes last came
        self.began_s = self.moved_s  # when the present header began
        self.stalled_s: float | None = None  # since when the client does not read its answers
        self.header_bytes = 0  # of the fields parsed
        self.fed_bytes = 0  # in pieces that hold nothing but this header
        self.held_bytes = 0
        self.url = b""
        self.headers: dict[bytes, bytes] = {}
        self.chunks: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.front.joined(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self.front.connections.discard(self)
        self.release()
        self.abandon()

    def abandon(self) -> None:
        """Cancel every request whose answer nobody will read."""
        for slot in self.slots:
            slot.gone = True
            if slot.wire is None:
                slot.cancel()
                self.front.left()
        self.slots.clear()

    def eof_received(self) -> bool:
        # a client that has left looks the same as one that only stopped sending: both are leaving
        return False

    def pause_writing(self) -> None:
        self.stalled_s = self.front.clock()
        self.throttle()

    def resume_writing(self) -> None:
        self.stalled_s = None
        self.throttle()

    def throttle(self) -> None:
        """Read no further while the client reads no answers or has too many requests waiting."""
        if self.transport is None or self.transport.is_closing():
            return
        want = not self.deaf and (self.stalled_s is not None or len(self.slots) >= PIPELINE)
        if want and not self.paused:
            self.transport.pause_reading()
        elif self.paused and not want:
            self.transport.resume_reading()
        self.paused = want

    def data_received(self, data: bytes) -> None:
        if self.deaf:
            return
        self.moved_s = self.front.clock()
        before = self.requests
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # refused when its header was complete
        except httptools.HttpParserCallbackError:
            raise  # our own fault: asyncio reports it and closes the connection
        except httptools.HttpParserError as error:
            self.refuse(400, f"not HTTP/1.1 ({error}); check the request line, headers and body")
        if self.phase is Phase.HEADER:
            # where a request ended in `data`, how much of it is the next header is not known
            self.fed_bytes = 0 if self.requests != before else self.fed_bytes + len(data)
            self.check_header(self.fed_bytes)
        if len(self.slots) >= PIPELINE:
            self.throttle()

    def check_header(self, size_bytes: int) -> None:
        """Refuse a header that has grown too long."""
        limit_bytes = self.front.header_limit_bytes
        if size_bytes > limit_bytes:
            self.refuse(431, f"the header has more than {limit_bytes} bytes; send fewer or shorter")

    def on_message_begin(self) -> None:
        if self.deaf:
            return
        self.phase = Phase.HEADER
        self.header_bytes = 0
        self.fed_bytes = 0
        self.began_s = self.moved_s
        self.url = b""
        self.headers = {}
        self.chunks = []

    def on_url(self, url: bytes) -> None:
        self.url += url
        self.header_bytes += len(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self.header_bytes += len(name) + len(value) + 4
        name = name.lower()
        # a trailer comes after the body and must not change what the header said
        if name in WANTED and self.phase is Phase.HEADER:
            self.headers[name] = value

    def on_headers_complete(self) -> None:
        if self.deaf:
            return
        self.phase = Phase.BODY
        self.check_header(self.header_bytes)
        length = self.headers.get(b"content-length")
        limit_bytes = self.front.body_limit_bytes
        if length is not None and int(length) > limit_bytes:
            self.refuse(413, f"Content-Length is {int(length)}; send at most {limit_bytes} bytes")
        elif self.parser.should_upgrade():
            self.refuse(400, "Upgrade and CONNECT are not supported; speak HTTP/1.1")
        elif self.headers.get(b"expect", b"").lower() == b"100-continue":
            # behind an unanswered request it would look like that one's answer
            if not self.slots and self.transport is not None and not self.deaf:
                self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        if self.deaf:
            return
        self.chunks.append(body)
        self.held_bytes += len(body)
        self.front.held_bytes += len(body)
        if self.held_bytes > self.front.body_limit_bytes:
            limit_bytes = self.front.body_limit_bytes
            self.refuse(413, f"the body passes {limit_bytes} bytes; send less a request")
        elif self.front.held_bytes > self.front.held_limit_bytes:
            self.refuse(503, "too many large bodies at once; send it again", retry_after_s=1.0)

    def on_message_complete(self) -> None:
        if self.deaf:
            return
        self.phase = Phase.IDLE
        self.requests += 1
        chunks = self.chunks
        self.release()
        method = self.parser.get_method()
        slot = Slot(self, not self.parser.should_keep_alive(), method == b"HEAD")
        self.slots.append(slot)
        self.front.route(slot, method, self.url, self.headers, chunks)

    def release(self) -> None:
        """Give back what the body being read has taken of the front's memory."""
        self.front.held_bytes -= self.held_bytes
        self.held_bytes = 0
        self.chunks = []

    def refuse(self, status: int, reason: str, retry_after_s: float = 0.0) -> None:
        """Answer what cannot be read with an error, and read nothing more."""
        if self.deaf:
            return
        self.deaf = True
        self.phase = Phase.IDLE
        self.release()
        if any(slot.close for slot in self.slots):
            return  # the client was told, or will be, that nothing follows
        slot = Slot(self, close=True, head_only=False)
        self.slots.append(slot)
        slot.error(status, reason, retry_after_s)

    def flush(self) -> None:
        """Write every answer whose turn it is."""
        slots = self.slots
        while slots and slots[0].wire is not None and self.transport is not None:
            slot = slots.popleft()
            assert slot.wire is not None
            self.transport.write(slot.wire)
            if slot.close:
                self.abandon()
                self.hang_up()
        if self.paused:
            self.throttle()

    def hang_up(self) -> None:
        """Say that no answer follows, and wait a little for the client to close.

        Closing at once while bytes are unread would reset the connection, and the reset may
        overtake the answer.
        """
        if self.transport is None or self.transport.is_closing():
            return
        self.deaf = True
        self.moved_s = self.front.clock()
        self.throttle()
        self.transport.write_eof()

    def sweep(self, now_s: float) -> None:
        """End what has taken too long."""
        front, transport = self.front, self.transport
        if transport is None:
            return
        if self.stalled_s is not None and now_s - self.stalled_s > front.body_idle_s:
            transport.abort()
        elif self.slots:
            return
        elif self.deaf:
            if now_s - self.moved_s > front.linger_s:
                transport.abort()
        elif self.phase is Phase.HEADER:
            if now_s - self.began_s > front.header_s:
                self.refuse(408, f"the header took more than {front.header_s:g} s; send it faster")
        elif self.phase is Phase.BODY:
            # a byte now and then is not progress: the time allowed grows with what has come
            allowed_s = front.body_idle_s + self.held_bytes / SLOWEST_BYTES_S
            idle = now_s - self.moved_s > front.body_idle_s
            if idle or now_s - self.began_s > allowed_s + front.header_s:
                limit_s = front.body_idle_s
                self.refuse(408, f"the body stood still for {limit_s:g} s or crept; send it faster")
        elif now_s - self.moved_s > (front.keep_alive_s if self.requests else front.header_s):
            transport.close()
