"""What every server is asked to do, and the bounds within which it lives.

`noop` answers zeros, so that what is left is the server's own cost; `net` runs the shipped network
at width 0.25 in all segments, on one thread. Needs numpy, onnx and onnxruntime only: a peer may
live in an interpreter of its own.
"""

from __future__ import annotations

import argparse
import os
import signal
import threading
import time
from collections.abc import Callable

import numpy as np

from trimtab.arrays import Array
from trimtab.serving.net.segments import Segments
from trimtab.serving.net.slim_weights import SHIPPED, load
from trimtab.serving.nouns import SEGMENTS

HOST = "127.0.0.1"
MODELS = ("noop", "net")
SIDE, CLASSES = 32, 100
IMAGE = (3, SIDE, SIDE)
BATCH = 8  # images that a peer puts together at most
WAIT_S = 0.002  # for which it may hold the first of them

Answers = Callable[[Array], Array]  # (N, 3, 32, 32) pixels to (N, 100) logits


class Options(argparse.Namespace):
    """The command line of a server."""

    model: str
    port: int
    limit_s: float
    processes: int  # that compute


def options() -> Options:
    """Read the command line, and end this process group when its time or its parent is gone."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=MODELS, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--limit-s", type=float, default=600.0)
    parser.add_argument("--processes", type=int, default=1)
    found = parser.parse_args(namespace=Options())
    threading.Thread(target=watch, args=(found.limit_s, os.getppid()), daemon=True).start()
    return found


def watch(limit_s: float, parent: int) -> None:
    """Kill this process group, if it is our own, when the limit is over or the parent ended."""
    until_s = time.monotonic() + limit_s
    while time.monotonic() < until_s and os.getppid() == parent:
        time.sleep(0.5)
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os._exit(1)


def answers(model: str) -> Answers:
    """The work of one batch, warmed up."""
    if model == "noop":
        return lambda images: np.zeros((len(images), CLASSES), np.float32)
    segments = Segments(load(SHIPPED))

    def run(images: Array) -> Array:
        x = images
        for segment in range(SEGMENTS):
            x = segments.run(segment, 0, 0, x)
        return x

    for rows in (1, BATCH):
        run(np.zeros((rows, *IMAGE), np.float32))
    return run
