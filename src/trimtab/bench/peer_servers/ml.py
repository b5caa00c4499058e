"""MLServer: adaptive batches of up to 8 held for at most 2 ms (none for noop).

One process computes in the server's own; more are its workers.
"""

from __future__ import annotations

import asyncio
import socket

from mlserver import MLModel, MLServer, ModelSettings, Settings
from mlserver.codecs import NumpyCodec
from mlserver.parallel import worker
from mlserver.types import InferenceRequest, InferenceResponse
from mlserver.utils import install_uvloop_event_loop

from trimtab.bench.peer_servers.work import BATCH, HOST, IMAGE, WAIT_S, answers, options


class Model(MLModel):  # type: ignore[misc]
    """The work behind MLServer's own types."""

    async def load(self) -> bool:
        self.answer = answers(self.settings.parameters.extra["work"])
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        images = NumpyCodec.decode_input(payload.inputs[0]).reshape(-1, *IMAGE)
        logits = self.answer(images)
        outputs = [NumpyCodec.encode_output("logits", logits)]
        return InferenceResponse(model_name=self.name, outputs=outputs)


def with_a_loop() -> None:
    """Prepare a worker process as MLServer does, and give it the event loop that it then asks for.

    Newer versions of uvloop make none by themselves.
    """
    install_uvloop_event_loop()
    asyncio.set_event_loop(asyncio.new_event_loop())


# here and not below: worker processes import this file
worker.install_uvloop_event_loop = with_a_loop


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


async def serve(model: str, port: int, processes: int) -> None:
    settings = Settings(
        host=HOST, http_port=port, grpc_port=free_port(),
        parallel_workers=processes if processes > 1 else 0, metrics_endpoint=None,
        debug=False, load_models_at_startup=False,
    )  # fmt: skip
    batching = {} if model == "noop" else {"max_batch_size": BATCH, "max_batch_time": WAIT_S}
    slim = ModelSettings(
        name="slim", implementation=Model, parameters={"extra": {"work": model}}, **batching
    )
    await MLServer(settings).start([slim])


if __name__ == "__main__":
    given = options()
    asyncio.run(serve(given.model, given.port, given.processes))
