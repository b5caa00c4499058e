"""Scripted fleets and a raw HTTP client, for tests of the protocol fronts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

from trimtab.serving.front.http_front import HttpFront
from trimtab.serving.nouns import Answer, Metadata, Request, Spec, ZeroFleet

MODEL = Metadata(
    "slim net", (Spec("image", "FP32", (-1, 2)),), (Spec("logits", "FP32", (-1, 2)),), ("1", "2")
)
INFER = "/v2/models/slim%20net/infer"
TENSOR = {"name": "image", "shape": [1, 2], "datatype": "FP32"}
BODY = json.dumps({"id": "a", "inputs": [{**TENSOR, "data": [1, 2]}]}).encode()
LIMIT_S = 120.0  # no test takes this long unless it fails


class Held(ZeroFleet):
    """A fleet that answers when the test says so, with twice the input."""

    def __init__(self) -> None:
        super().__init__(MODEL)
        self.waiting: list[tuple[Request, Callable[[Answer], None]]] = []
        self.cancelled: list[str] = []

    def submit(self, request: Request, done: Callable[[Answer], None]) -> Callable[[], None]:
        self.waiting.append((request, done))
        return lambda: self.cancelled.append(request.request_id)

    def answer(self, place: int) -> None:
        request, done = self.waiting[place]
        done(Answer({"logits": request.inputs["image"] * 2}))


class Refusing(ZeroFleet):
    """A fleet that gives one answer to all."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(MODEL)
        self.answer = answer

    def submit(self, request: Request, done: Callable[[Answer], None]) -> Callable[[], None]:
        done(self.answer)
        return lambda: None


class Client:
    """One raw connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, method: str, path: str, body: bytes = b"", *fields: str) -> None:
        lines = [f"{method} {path} HTTP/1.1", "Host: x", *fields]
        if body or method == "POST":
            lines.append(f"Content-Length: {len(body)}")
        self.writer.write("\r\n".join([*lines, "", ""]).encode() + body)

    async def read(self, head_only: bool = False) -> tuple[int, dict[str, str], bytes]:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        fields = dict(line.lower().split(": ", 1) for line in head[1:-2])
        size_bytes = 0 if head_only else int(fields["content-length"])
        return int(head[0].split()[1]), fields, await self.reader.readexactly(size_bytes)

    async def ask(self, *request: object) -> tuple[int, dict[str, str], bytes]:
        self.send(*request)
        return await self.read(head_only=request[0] == "HEAD")

    async def ended(self) -> bool:
        return await self.reader.read() == b""


class Doubling(ZeroFleet):
    """A fleet that answers twice the input at once."""

    def submit(self, request: Request, done: Callable[[Answer], None]) -> Callable[[], None]:
        done(Answer({"logits": request.inputs["image"] * 2}, parameters={"width": 0.5}))
        return lambda: None


Connect = Callable[[], Awaitable[Client]]
Scenario = Callable[[HttpFront, Connect], Awaitable[None]]


def play(scenario: Scenario, fleet: ZeroFleet | None = None, **limits: object) -> HttpFront:
    """Run a scenario against a front on a free port of this machine."""

    async def run() -> HttpFront:
        front = HttpFront(fleet or ZeroFleet(MODEL), **limits)
        await front.start("127.0.0.1", 0)
        clients: list[Client] = []

        async def connect() -> Client:
            clients.append(Client(*await asyncio.open_connection("127.0.0.1", front.port)))
            return clients[-1]

        try:
            await asyncio.wait_for(scenario(front, connect), LIMIT_S)
        finally:
            front.close()
            for client in clients:
                client.writer.close()
            while front.connections:
                await asyncio.sleep(0.005)
        return front

    return asyncio.run(run())


def ask(*request: object, fleet: ZeroFleet | None = None, **limits: object):
    """One request's answer: status, headers, body."""
    found = []

    async def scenario(front: HttpFront, connect: Connect) -> None:
        found.append(await (await connect()).ask(*request))

    play(scenario, fleet, **limits)
    return found[0]


async def until(fact: Callable[[], bool]) -> None:
    while not fact():
        await asyncio.sleep(0.002)


def error_of(body: bytes) -> str:
    return json.loads(body)["error"]
