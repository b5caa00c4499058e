"""Requests as each server wants them, with the answers that are right.

Eight images, each with logits of its own: an answer that belongs to another request, to another
server or to another model is found out.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.bench.peer_servers.work import CLASSES, IMAGE, answers
from trimtab.errors import ServeError
from trimtab.serving.client.load_gen import Driven, http_request

IMAGES = 8
NEAR = 1e-2  # logits of one image in batches of other sizes differ by rounding
OIP_PATH = "/v2/models/slim/infer"


class Wire(NamedTuple):
    """A way to ask: how a request is written and where the logits are in an answer."""

    name: str
    request: Callable[[Array], bytes]  # (3, 32, 32) -> a whole HTTP request
    logits: Callable[[bytes], Array]  # an answer's body -> (100,)


def images() -> Array:
    """(8, 3, 32, 32) pixels in 0..1, each of four decimals as a client would print them."""
    rng = np.random.default_rng(0)
    levels = rng.integers(0, 256, (IMAGES, *IMAGE)) / 255
    return np.round(levels, 4).astype(np.float32)


def texted(image: Array) -> list[float]:
    # by their shortest text: float64 digits of a float32 would double the body
    return [float(str(value)) for value in image.ravel()]


def tensor(**more: object) -> dict[str, object]:
    return {"name": "image", "shape": [1, *IMAGE], "datatype": "FP32", **more}


def oip_json(image: Array) -> bytes:
    asked = {"inputs": [tensor(data=texted(image))], "outputs": [{"name": "logits"}]}
    body = json.dumps(asked, separators=(",", ":")).encode()
    return http_request(OIP_PATH, body, {"Content-Type": "application/json"})


def oip_binary(image: Array) -> bytes:
    raw = np.ascontiguousarray(image, "<f4").tobytes()
    asked = {
        "inputs": [tensor(parameters={"binary_data_size": len(raw)})],
        "outputs": [{"name": "logits", "parameters": {"binary_data": True}}],
    }
    head = json.dumps(asked, separators=(",", ":")).encode()
    headers = {
        "Content-Type": "application/octet-stream",
        "Inference-Header-Content-Length": str(len(head)),
    }
    return http_request(OIP_PATH, head + raw, headers)


def plain_json(path: str, image: Array) -> bytes:
    body = json.dumps({"image": texted(image)}, separators=(",", ":")).encode()
    return http_request(path, body, {"Content-Type": "application/json"})


def oip_logits(body: bytes) -> Array:
    """The logits of an answer whose tensors are in the JSON or behind it."""
    head, end = json.JSONDecoder().raw_decode(body.decode("latin-1"))
    (output,) = head["outputs"]
    data = output.get("data")
    if data is None:
        data = np.frombuffer(body, "<f4", offset=end)
    return np.asarray(data, np.float32).ravel()


def plain_logits(body: bytes) -> Array:
    return np.asarray(json.loads(body)["logits"], np.float32).ravel()


JSON = Wire("json", oip_json, oip_logits)
BINARY = Wire("binary", oip_binary, oip_logits)
AT_PREDICT = Wire("json", lambda image: plain_json("/predict", image), plain_logits)
AT_ROOT = Wire("json", lambda image: plain_json("/", image), plain_logits)


@cache
def expected(model: str) -> Array:
    """(8, 100) the right logits of the images."""
    return answers(model)(images())


@cache
def requests(wire: Wire) -> list[bytes]:
    return [wire.request(image) for image in images()]


def wrong(wire: Wire, model: str, driven: Driven) -> int:
    """How many of the kept good answers do not belong to their request."""
    right, bad = expected(model), 0
    for row, body in driven.kept.items():
        if driven.status[row] != 200:
            continue
        try:
            logits = wire.logits(body)
        except (ValueError, KeyError, TypeError):
            bad += 1
            continue
        want = right[driven.body_of[row]]
        bad += logits.shape != (CLASSES,) or not np.allclose(logits, want, atol=NEAR)
    return bad


def check(wire: Wire, model: str, driven: Driven) -> None:
    """Raise where an answer is not the right one."""
    bad = wrong(wire, model, driven)
    if bad:
        raise ServeError(
            f"{bad} of {len(driven.kept)} {model} answers are wrong; another server may answer on"
            " the port, or this one mixes requests up"
        )
