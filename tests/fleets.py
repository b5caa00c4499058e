"""Live fleets in one process, with servers on threads and networks that do as they are told."""

from __future__ import annotations

import asyncio
import math
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import numpy as np

from trimtab.errors import ServeError
from trimtab.serving.fleet.books import Books
from trimtab.serving.fleet.fleet import LiveFleet
from trimtab.serving.fleet.member import Member
from trimtab.serving.fleet.router import router_of, tried
from trimtab.serving.net.runner import Zeros
from trimtab.serving.net.serve_profile import modelled
from trimtab.serving.net.slim_form import Form
from trimtab.serving.net.slim_weights import Weights
from trimtab.serving.nouns import Answer, Request
from trimtab.serving.server.server import Server
from trimtab.serving.server.wire import connected

FORM = Form(channels=(4, 4, 4, 4), group=1, classes=5, blocks=(1, 1, 1, 1), side=8)
WEIGHTS = Weights(FORM, {}, {})
PROFILE = modelled(FORM, 1e9)
LIMIT_S = 300.0  # no test takes this long unless it fails, or compiles first


class Scripted(Zeros):
    """Adds 1 a segment to the mean of every image; may take time, wait at a gate, or fail."""

    def __init__(self, spent_s: float = 0.0) -> None:
        super().__init__(FORM)
        self.spent_s = spent_s
        self.gate = threading.Event()
        self.gate.set()
        self.fails: Callable[[int, int, int], bool] = lambda *key: False
        self.fails_to_load: Callable[[int, int, int], bool] = lambda *key: False
        self.ran: list[tuple[int, int, int, int]] = []  # segment, before, width, rows

    def run(self, segment, before, width, x):
        self.gate.wait(LIMIT_S)
        time.sleep(self.spent_s)
        if self.fails(segment, before, width):
            raise RuntimeError("told to fail")
        self.ran.append((segment, before, width, len(x)))
        last = segment == 3
        shape = (FORM.classes,) if last else self.takes(segment + 1, width)
        mean = x.reshape(len(x), -1).mean(axis=1) + 1
        return np.broadcast_to(mean.reshape(-1, *[1] * len(shape)), (len(x), *shape)).astype("f4")

    def load(self, segment, before, width):
        if self.fails_to_load(segment, before, width):
            raise MemoryError("told to have no memory")


class Rig:
    """A fleet under test; make it with `play`."""

    def __init__(self, fleet: LiveFleet, address: str) -> None:
        self.fleet, self.books, self.address = fleet, fleet.books, address
        self.servers: list[Server] = []
        self.threads: list[threading.Thread] = []
        self.refused: list[str] = []

    async def add(self, runner: Scripted | None = None, ready: bool = True, **about) -> Server:
        """Let a server join, and wait until it is given work."""
        named = {"name": f"s{len(self.servers)}", "digest": "", **about}
        server = Server(connected(self.address), runner or Scripted(), FORM, **named)

        def serve() -> None:
            try:
                server.serve()
            except ServeError as problem:
                self.refused.append(str(problem))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        self.servers.append(server)
        self.threads.append(thread)
        if ready:
            await until(lambda: any(m.name == named["name"] for m in self.books.roster.seated))
        return server

    def ask(self, value: float = 0.0, rows: int = 1, **about) -> asyncio.Future[Answer]:
        """Submit images whose every pixel is `value`, `value` + 1, ..."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        pixels = np.arange(rows, dtype="f4") + np.float32(value)
        image = np.broadcast_to(pixels.reshape(-1, 1, 1, 1), (rows, 3, 8, 8)).copy()
        return self.submit(image, answer, **about)

    def submit(self, image, answer=None, **about) -> asyncio.Future[Answer]:
        answer = answer or asyncio.get_running_loop().create_future()
        request = Request({"image": image}, ("logits", "class", "label"), **about)
        answer.answers = 0  # type: ignore[attr-defined]

        def done(given: Answer) -> None:
            answer.answers += 1  # type: ignore[attr-defined]
            if not answer.done():
                answer.set_result(given)

        answer.withdraw = self.fleet.submit(request, done)  # type: ignore[attr-defined]
        return answer


def play(scenario: Callable[[Rig], Awaitable[None]], router: str = "max_batch", **options) -> None:
    """Run a scenario against a fleet on a socket in a folder of its own, and end all of it."""
    decides = router_of(router, PROFILE)
    tried(decides.rule, PROFILE)
    tracer = options.pop("tracer", None)

    async def run(folder: str) -> None:
        books = Books(WEIGHTS, PROFILE, decides, **{"objective_s": 5.0, **options})
        fleet = LiveFleet(books, tracer)
        fleet.start()
        path = str(Path(folder) / "fleet")
        trusted = not options.get("token")
        loop = asyncio.get_running_loop()
        listening = await loop.create_unix_server(lambda: Member(fleet, trusted), path)
        rig = Rig(fleet, f"unix:{path}")
        try:
            await asyncio.wait_for(scenario(rig), LIMIT_S)
        finally:
            fleet.close()
            listening.close()
            for server in rig.servers:
                if isinstance(server.runner, Scripted):
                    server.runner.gate.set()
            for thread in rig.threads:
                await asyncio.to_thread(thread.join, 10.0)
                assert not thread.is_alive()

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(folder))


async def until(fact: Callable[[], bool], limit_s: float = LIMIT_S) -> None:
    """Wait for something that will be so."""
    end_s = time.monotonic() + limit_s
    while not fact():
        assert time.monotonic() < end_s, "it never came"
        await asyncio.sleep(0.002)


def mean_of(answer: Answer) -> list[float]:
    """What `Scripted` made of each image, less the 4 that its segments add."""
    logits = answer.outputs["logits"]
    assert (logits == logits[:, :1]).all()
    return [round(float(value) - 4, 3) for value in logits[:, 0]]


def soon(seconds: float) -> float:
    """A moment on the fleet's clock."""
    return time.monotonic() + seconds if seconds < math.inf else math.inf
