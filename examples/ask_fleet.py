"""Ask a fleet that `trimtab serve` started: python examples/ask_fleet.py [HOST:PORT]."""

import sys

import numpy as np
import tritonclient.http as triton

client = triton.InferenceServerClient(sys.argv[1] if len(sys.argv) > 1 else "localhost:8000")
image = triton.InferInput("image", [1, 3, 32, 32], "FP32")
image.set_data_from_numpy(np.random.default_rng(0).random((1, 3, 32, 32), np.float32))
answer = client.infer("slim", [image], priority=1, timeout=5_000_000)  # microseconds
print(answer.as_numpy("label")[0], answer.get_response()["parameters"])
