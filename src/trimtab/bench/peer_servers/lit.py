"""LitServe: worker processes, batches of up to 8 held for at most 2 ms (none for noop)."""

from __future__ import annotations

from typing import Any

import litserve
import numpy as np

from trimtab.arrays import Array
from trimtab.bench.peer_servers.work import BATCH, HOST, IMAGE, WAIT_S, answers, options


class Single(litserve.LitAPI):  # type: ignore[misc]
    """One image a call."""

    def __init__(self, model: str, **settings: Any) -> None:
        super().__init__(**settings)
        self.model = model

    def setup(self, device: str) -> None:
        self.answer = answers(self.model)

    # without a type: LitServe would read a postponed one as a query parameter
    def decode_request(self, request) -> Array:  # type: ignore[no-untyped-def]
        return np.array(request["image"], np.float32).reshape(IMAGE)

    def predict(self, image: Array) -> Array:
        return self.answer(image[None])[0]

    def encode_response(self, logits: Array) -> dict[str, Any]:
        return {"logits": logits.tolist()}


class Batched(Single):
    """Several images a call."""

    def batch(self, images: list[Array]) -> Array:
        return np.stack(images)

    def predict(self, images: Array) -> Array:
        return self.answer(images)

    def unbatch(self, logits: Array) -> list[Array]:
        return list(logits)


if __name__ == "__main__":
    given = options()
    if given.model == "noop":
        api = Single(given.model)
    else:
        api = Batched(given.model, max_batch_size=BATCH, batch_timeout=WAIT_S)
    server = litserve.LitServer(
        api, accelerator="cpu", devices=1, workers_per_device=given.processes
    )
    server.run(
        host=HOST, port=given.port, num_api_servers=1, log_level="warning",
        generate_client_file=False, access_log=False,
    )  # fmt: skip
