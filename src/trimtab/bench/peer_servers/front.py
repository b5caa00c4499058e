"""Trimtab's HTTP front, in one process, before a fleet that answers zeros: the protocol's cost."""

from __future__ import annotations

import asyncio
import signal

from trimtab.bench.peer_servers.work import CLASSES, HOST, IMAGE, options
from trimtab.serving.front.http_front import HttpFront
from trimtab.serving.nouns import Metadata, Spec, ZeroFleet

MODEL = Metadata(
    "slim", (Spec("image", "FP32", (-1, *IMAGE)),), (Spec("logits", "FP32", (-1, CLASSES)),)
)


async def serve(port: int) -> None:
    """Serve until a signal comes."""
    ended = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, ended.set)
    front = HttpFront(ZeroFleet(MODEL))
    await front.start(HOST, port)
    await ended.wait()
    await front.drain()


if __name__ == "__main__":
    given = options()
    if given.model != "noop":
        raise SystemExit("the front alone has no network: ask for --model noop")
    try:
        import uvloop

        uvloop.run(serve(given.port))
    except ImportError:
        asyncio.run(serve(given.port))
