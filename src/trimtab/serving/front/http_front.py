"""The HTTP front: Open Inference Protocol v2, health, metadata and metrics on one port."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from email.utils import formatdate
from urllib.parse import quote, unquote

from trimtab.errors import ServeError
from trimtab.files import refusal
from trimtab.serving.front.http_connection import Connection, Slot
from trimtab.serving.front.http_wire import TEXT, TooLarge, opened
from trimtab.serving.front.oip import Layout, model_body, read_request, server_body
from trimtab.serving.nouns import Answer, Fleet, stranger, trace_of

MIB = 1 << 20
READ = frozenset({b"GET", b"HEAD"})
POST = frozenset({b"POST"})
UNTRACED: dict[str, str] = {}
Metrics = Callable[[], tuple[bytes, bytes]]  # the answer to a scrape: body, content type
Route = Callable[[Slot, dict[bytes, bytes], list[bytes]], None]


def no_metrics() -> tuple[bytes, bytes]:
    """What a scraper gets where nothing is to be told."""
    return b"", TEXT


class HttpFront:
    """An HTTP/1.1 server before one fleet. Make it and use it on one event loop.

    Nothing starts a task, a timer or a thread for a request: one sweep a second ends what is late.
    """

    def __init__(
        self,
        fleet: Fleet,
        metrics: Metrics = no_metrics,
        version: str = "",
        body_limit_bytes: int = 64 * MIB,
        json_limit_bytes: int = 16 * MIB,  # JSON costs the loop a Python object a number
        held_limit_bytes: int = 512 * MIB,  # bodies being read, all connections together
        header_limit_bytes: int = 16 << 10,
        header_s: float = 10.0,
        body_idle_s: float = 10.0,
        keep_alive_s: float = 75.0,
        linger_s: float = 2.0,
        connection_limit: int = 1024,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.fleet, self.model, self.metrics, self.version = fleet, fleet.model, metrics, version
        self.body_limit_bytes, self.json_limit_bytes = body_limit_bytes, json_limit_bytes
        self.held_limit_bytes, self.header_limit_bytes = held_limit_bytes, header_limit_bytes
        self.header_s, self.body_idle_s = header_s, body_idle_s
        self.keep_alive_s, self.linger_s = keep_alive_s, linger_s
        self.connection_limit, self.clock = connection_limit, clock
        self.connections: set[Connection] = set()
        self.answers: Counter[int] = Counter()  # by status
        self.in_flight = 0
        self.held_bytes = 0
        self.draining = False
        self.closed = False
        self.date = b""
        self.known: dict[bytes, Layout] = {}
        # the last answer to a request that was turned away, for all who are told the same
        self.refused: Answer | None = None
        self.refused_status, self.refused_date, self.refused_wire = 0, b"", b""
        self.port = 0
        self.server: asyncio.Server | None = None
        self.tick: asyncio.TimerHandle | None = None
        self.empty = asyncio.Event()
        self.routes = routes_of(self)

    @property
    def ready(self) -> bool:
        """Whether a request sent now would be served."""
        return self.fleet.ready and not self.draining

    async def start(self, host: str = "127.0.0.1", port: int = 8000) -> None:
        """Listen; port 0 takes a free one."""
        loop = asyncio.get_running_loop()
        try:
            self.server = await loop.create_server(
                lambda: Connection(self), host, port, backlog=512
            )
        except OSError as error:
            raise ServeError(f"cannot listen on {host}:{port}: {refusal(error)}") from None
        self.port = int(self.server.sockets[0].getsockname()[1])
        self.sweep()

    def sweep(self) -> None:
        """End what has taken too long on any connection, and plan the next look."""
        period_s = min(1.0, self.header_s / 4, self.body_idle_s / 4, self.linger_s / 4)
        # planned first: one connection's fault must not end the looking
        self.tick = asyncio.get_running_loop().call_later(period_s, self.sweep)
        self.date = formatdate(usegmt=True).encode()
        now_s = self.clock()
        for connection in list(self.connections):
            connection.sweep(now_s)

    def joined(self, connection: Connection) -> None:
        """Take a new connection, or turn it away where there are too many."""
        self.connections.add(connection)
        if len(self.connections) > self.connection_limit:
            reason = f"{self.connection_limit} connections are open; come back later"
            connection.refuse(503, reason, retry_after_s=1.0)

    def left(self) -> None:
        """Count one request as answered or abandoned."""
        self.in_flight -= 1
        if self.draining and self.in_flight == 0:
            self.empty.set()

    def report(self, error: Exception) -> None:
        """Tell the event loop's log of a fault that is not the client's."""
        context = {"message": "the fleet failed a request", "exception": error}
        asyncio.get_running_loop().call_exception_handler(context)

    def route(
        self,
        slot: Slot,
        method: bytes,
        url: bytes,
        headers: dict[bytes, bytes],
        chunks: list[bytes],
    ) -> None:
        """Answer one request, now or when the fleet does."""
        found = self.routes.get(url) or self.routes.get(url.partition(b"?")[0])
        if found is None:
            slot.error(404, self.lost(url))
            return
        methods, answer = found
        if method not in methods:
            allow = b"Allow: " + b", ".join(sorted(methods)) + b"\r\n"
            text = f"{method.decode('latin-1')} is not answered here; see the header Allow"
            slot.error(405, text, more=allow)
            return
        answer(slot, headers, chunks)

    def lost(self, url: bytes) -> str:
        """Why nothing answers at `url`."""
        path = unquote(url.partition(b"?")[0].decode("latin-1"))
        parts = path.split("/")
        if parts[1:3] == ["v2", "models"] and len(parts) > 3:
            version = parts[5] if len(parts) > 5 and parts[4] == "versions" else ""
            reason = stranger(self.model, parts[3], version)
            if reason:
                return reason
        return f"nothing answers at {path[:200]!r}; start from /v2 or /v2/models/{self.model.name}"

    def infer(
        self, slot: Slot, headers: dict[bytes, bytes], chunks: list[bytes], version: str
    ) -> None:
        """Hand one inference request to the fleet."""
        if self.closed:
            slot.close = True
            slot.error(503, "the server is draining; ask another", retry_after_s=1.0)
            return
        trace = trace_in(headers) if b"traceparent" in headers else UNTRACED
        refused = self.fleet.turn_away(trace)
        if refused is not None:
            slot.turned_away(refused)
            return
        body = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        try:
            if b"content-encoding" in headers:
                body = opened(body, headers[b"content-encoding"], self.body_limit_bytes)
            json_bytes = json_size(headers.get(b"inference-header-content-length"))
            if (len(body) if json_bytes is None else json_bytes) > self.json_limit_bytes:
                raise TooLarge(
                    f"the JSON has more than {self.json_limit_bytes} bytes; send tensors as binary"
                )
            now_s = slot.connection.moved_s
            request, slot.binary = read_request(self.model, body, json_bytes, now_s, self.known)
        except ServeError as error:
            slot.error(413 if isinstance(error, TooLarge) else 400, str(error))
            return
        request.version, request.trace = version, trace
        slot.request = request
        self.in_flight += 1
        try:
            slot.cancel = self.fleet.submit(request, slot.done)
        except Exception as error:
            self.report(error)
            if slot.wire is None:
                slot.error(500, f"the fleet failed: {type(error).__name__}")
                self.left()

    async def drain(self, grace_s: float = 0.0, limit_s: float = 30.0) -> bool:
        """Stop in order: not ready, `grace_s` later no new requests, then close when all answered.

        True where every request in flight was answered within `limit_s`.
        """
        self.draining = True
        await asyncio.sleep(grace_s)
        self.closed = True
        if self.server is not None:
            self.server.close()
        try:
            if self.in_flight:
                self.empty.clear()
                await asyncio.wait_for(self.empty.wait(), limit_s)
        except TimeoutError:
            pass
        answered = self.in_flight == 0
        self.close()
        return answered

    def close(self) -> None:
        """Close every connection; answers already given are still sent."""
        self.draining = self.closed = True
        if self.tick is not None:
            self.tick.cancel()
        if self.server is not None:
            self.server.close()
        for connection in list(self.connections):
            if connection.transport is not None:
                connection.transport.close()


def trace_in(headers: dict[bytes, bytes]) -> dict[str, str]:
    """The caller's trace context."""
    return trace_of(lambda name: headers.get(name.encode(), b"").decode("latin-1") or None)


def json_size(value: bytes | None) -> int | None:
    """The Inference-Header-Content-Length as a number."""
    if value is None:
        return None
    # int() would take signs, spaces and underscores
    if not value.isdigit() or len(value) > 12:
        raise ServeError(f"Inference-Header-Content-Length is {value[:40]!r}; send a whole number")
    return int(value)


def routes_of(front: HttpFront) -> dict[bytes, tuple[frozenset[bytes], Route]]:
    """Every path that is answered, with its methods."""
    model, paths = front.model, {}

    def fixed(body: bytes) -> Route:
        return lambda slot, headers, _: slot.put(200, [body])

    def live(slot: Slot, headers: dict[bytes, bytes], chunks: list[bytes]) -> None:
        slot.put(200, [b""])

    def ready(slot: Slot, headers: dict[bytes, bytes], chunks: list[bytes]) -> None:
        if front.ready:
            slot.put(200, [b""])
        else:
            slot.error(400, "not ready")  # by the protocol a 4xx status means not ready

    def metrics(slot: Slot, headers: dict[bytes, bytes], chunks: list[bytes]) -> None:
        body, kind = front.metrics()
        slot.put(200, [body], kind)

    def infer(version: str) -> Route:
        return lambda slot, headers, chunks: front.infer(slot, headers, chunks, version)

    for path in ("/v2", "/v2/"):
        paths[path] = (READ, fixed(server_body(front.version)))
    paths["/v2/health/live"] = (READ, live)
    paths["/v2/health/ready"] = (READ, ready)
    paths["/metrics"] = (READ, metrics)
    for version in ("", *model.versions):
        base = f"/v2/models/{quote(model.name, safe='')}"
        base += f"/versions/{quote(version, safe='')}" if version else ""
        paths[base] = (READ, fixed(model_body(model)))
        paths[base + "/ready"] = (READ, ready)
        paths[base + "/infer"] = (POST, infer(version))
    return {path.encode(): route for path, route in paths.items()}
