"""Ray Serve: replicas, batches of up to 8 held for at most 2 ms (none for noop)."""

from __future__ import annotations

import logging
import os
import signal
import threading
from typing import Any

import numpy as np
import ray
from ray import serve

from trimtab.arrays import Array
from trimtab.bench.peer_servers.work import BATCH, HOST, IMAGE, WAIT_S, answers, options


async def read(request: Any) -> Array:
    """The image of a request."""
    return np.array((await request.json())["image"], np.float32).reshape(IMAGE)


class Single:
    """One image a call."""

    def __init__(self, model: str) -> None:
        self.answer = answers(model)

    async def __call__(self, request: Any) -> dict[str, Any]:
        image = await read(request)
        return {"logits": self.answer(image[None])[0].tolist()}


class Batched:
    """Several images a call."""

    def __init__(self, model: str) -> None:
        self.answer = answers(model)

    @serve.batch(max_batch_size=BATCH, batch_wait_timeout_s=WAIT_S)
    async def together(self, images: list[Array]) -> list[Array]:
        return list(self.answer(np.stack(images)))

    async def __call__(self, request: Any) -> dict[str, Any]:
        return {"logits": (await self.together(await read(request))).tolist()}


if __name__ == "__main__":
    given = options()
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ended = threading.Event()
    ray.init(
        num_cpus=max(given.processes, 2), include_dashboard=False, log_to_driver=False,
        logging_level=logging.ERROR,
    )  # fmt: skip
    for name in (signal.SIGTERM, signal.SIGINT):  # after ray has set its own
        signal.signal(name, lambda number, frame: ended.set())
    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    quiet = {"enable_access_log": False, "log_level": "WARNING"}
    serve.start(http_options={"host": HOST, "port": given.port}, logging_config=quiet)
    kind: Any = serve.deployment(
        Single if given.model == "noop" else Batched,
        num_replicas=given.processes,
        max_ongoing_requests=64,
        ray_actor_options={"num_cpus": 1},
        logging_config=quiet,
    )
    serve.run(kind.bind(given.model), route_prefix="/")
    while not ended.wait(1.0):  # a wait without end would not see the signal
        pass
    serve.shutdown()
    ray.shutdown()
