"""A bare ASGI app under uvicorn: the floor. It validates nothing and answers both wire forms."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import orjson
import uvicorn

from trimtab.arrays import Array
from trimtab.bench.peer_servers.work import BATCH, HOST, IMAGE, Answers, answers, options

MODEL = "TRIMTAB_BENCH_MODEL"
JSON_SIZE = b"inference-header-content-length"


class Batches:
    """A queue that gives what waits to one thread, up to BATCH at a time."""

    def __init__(self, answer: Answers) -> None:
        self.answer = answer
        self.waiting: deque[tuple[Array, asyncio.Future[Array]]] = deque()
        self.thread = ThreadPoolExecutor(1)
        self.busy = False

    def ask(self, image: Array) -> asyncio.Future[Array]:
        future = asyncio.get_running_loop().create_future()
        self.waiting.append((image, future))
        self.start()
        return future

    def start(self) -> None:
        if self.busy or not self.waiting:
            return
        self.busy = True
        batch = [self.waiting.popleft() for _ in range(min(BATCH, len(self.waiting)))]
        images = np.concatenate([image for image, _ in batch])
        work = asyncio.get_running_loop().run_in_executor(self.thread, self.answer, images)
        work.add_done_callback(lambda done: self.end(batch, done.result()))

    def end(self, batch: list[tuple[Array, asyncio.Future[Array]]], logits: Array) -> None:
        self.busy = False
        self.start()
        for row, (_, future) in enumerate(batch):
            if not future.done():
                future.set_result(logits[row : row + 1])


def read(body: bytes, json_size: bytes | None) -> Array:
    """The image of a request."""
    if json_size is not None:
        return np.frombuffer(body, np.float32, offset=int(json_size)).reshape(1, *IMAGE)
    data = orjson.loads(body)["inputs"][0]["data"]
    return np.array(data, np.float32).reshape(1, *IMAGE)


def written(logits: Array, binary: bool) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    """Body and headers of an answer."""
    entry: dict[str, Any] = {"name": "logits", "datatype": "FP32", "shape": logits.shape}
    if binary:
        entry["parameters"] = {"binary_data_size": logits.nbytes}
    else:
        entry["data"] = logits[0]
    head = {"model_name": "slim", "model_version": "1", "outputs": [entry]}
    body = orjson.dumps(head, option=orjson.OPT_SERIALIZE_NUMPY)
    headers = [(b"content-type", b"application/json")]
    if binary:
        headers = [(JSON_SIZE, b"%d" % len(body)), (b"content-type", b"application/octet-stream")]
        body += logits.tobytes()
    return body, [*headers, (b"content-length", b"%d" % len(body))]


def app_of(model: str) -> Any:
    """The application."""
    answer = answers(model)
    queue = Batches(answer)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        json_size = None
        for name, value in scope["headers"]:
            if name == JSON_SIZE:
                json_size = value
        message = await receive()
        parts = [message["body"]]
        while message["more_body"]:
            message = await receive()
            parts.append(message["body"])
        image = read(b"".join(parts), json_size)
        logits = answer(image) if model == "noop" else await queue.ask(image)
        body, headers = written(logits, json_size is not None)
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return app


def app_from_environment() -> Any:
    """The application of one of several worker processes, which has no command line of its own."""
    return app_of(os.environ[MODEL])


if __name__ == "__main__":
    given = options()
    os.environ[MODEL] = given.model
    uvicorn.run(
        f"{__spec__.name}:app_from_environment", factory=True, workers=given.processes, host=HOST,
        port=given.port, log_level="warning", access_log=False, lifespan="off", loop="uvloop",
        http="httptools", timeout_keep_alive=75,
    )  # fmt: skip
