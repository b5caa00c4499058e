"""One live fleet on this machine, asked at given moments, and its simulation."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.request import urlopen

import numpy as np

from trimtab.arrays import Array
from trimtab.errors import ServeError
from trimtab.reproduce.slim.trials import OBJECTIVE_S, router, stream
from trimtab.serving.client.load_gen import (
    Driven,
    drive,
    drive_closed,
    http_request,
    parameters_of,
    python_env,
)
from trimtab.serving.net.serve_profile import ServeProfile, tuple_s
from trimtab.serving.net.serve_profile import load as load_profile
from trimtab.serving.net.slim_form import COLOURS, row_of
from trimtab.serving.nouns import WIDTHS
from trimtab.serving.routing import routers
from trimtab.serving.routing.fleet_state import ANSWERED, begin, fleets
from trimtab.serving.routing.greedy import Knobs

SHARES = (0.4, 0.4, 0.18)  # of a core: 1 : 1 : .45, and room for the front and the client
START_S, END_S = 180.0, 40.0
ALONE_S, WARM_S = 4.0, 8.0
QUANTILES = 400  # of batch times, to draw from
STEPWISE = ("random", "light", "balanced")  # routed anew after every segment


class Gauges(NamedTuple):
    """What a fleet has measured of itself."""

    speeds: dict[str, float]  # of each server, against the profile
    margin: float  # share of a request's time that the router keeps free
    ratios: Array  # (n, 2) upper edge, batches so far with at most that real over expected time


class Fleet(NamedTuple):
    """A running `trimtab serve`."""

    port: int

    def gauges(self) -> Gauges:
        """What its metrics say."""
        with urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        speed = r'^trimtab_serve_server_speed_ratio\{.*server="([^"]+)".*\} (\S+)$'
        found = re.findall(speed, text, re.MULTILINE)
        margin = re.findall(r"^trimtab_serve_margin_ratio (\S+)$", text, re.MULTILINE)
        ratio = r'^trimtab_serve_batch_time_ratio_bucket\{le="([\d.]+)"\} (\S+)$'
        ratios = np.array(re.findall(ratio, text, re.MULTILINE), np.float64)
        speeds = {name: float(value) for name, value in sorted(found)}
        return Gauges(speeds, float(margin[0]), ratios)


def spread(before: Gauges, after: Gauges) -> Array:
    """(QUANTILES,) real over expected times of the batches between two moments."""
    counts = after.ratios[:, 1] - before.ratios[:, 1]
    if counts[-1] <= 0:
        return np.ones(1)
    shares = (np.arange(QUANTILES) + 0.5) / QUANTILES
    return np.interp(shares, counts / counts[-1], after.ratios[:, 0])


@contextmanager
def served(*options: str) -> Iterator[Fleet]:
    """A fleet on free ports; ended by its own pid."""
    command = [sys.executable, "-m", "trimtab", "serve", "--http-port", "0", "--grpc-port", "-1"]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [*command, "--grace-s", "0.1", *options],
            stdout=log, stderr=subprocess.STDOUT, env=python_env(OMP_NUM_THREADS="1"),
        )  # fmt: skip
        try:
            yield Fleet(_port(process, log.fileno()))
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _port(process: subprocess.Popen[bytes], log: int) -> int:
    end_s = time.monotonic() + START_S
    while True:
        text = os.pread(log, 1 << 20, 0).decode(errors="replace")
        if "\nready" in text:
            found = re.search(r"^http +http://[^:]+:(\d+)", text, re.MULTILINE)
            if found:
                return int(found[1])
        if process.poll() is not None or time.monotonic() > end_s:
            last = text.strip().splitlines()[-1:] or ["it said nothing"]
            raise ServeError(f"trimtab serve did not become ready: {last[0]}")
        time.sleep(0.05)


def live_and_simulated(
    policy: str,
    shape: str,
    load: float,
    seed: int,
    seconds: float,
    requests: int | None = None,
    profile: str = "cpu",
) -> dict[str, Any]:
    """Percentiles and shares of one stream of requests, live and simulated.

    What the simulation knows of the machine was measured before, under other such arrivals.
    """
    costs, image = load_profile(profile), [image_request()]
    name, _, width = policy.partition(" ")
    words = ["--router", name, *(["--fixed", width] if width else [])]
    words += ["--device", "cpu" if costs.machine["device"] == "cpu" else "cuda"]
    rate_hz = load * capacity_hz(costs)
    warming_s = stream(shape, max(int(WARM_S * rate_hz), 1), rate_hz, seed + 1)
    arrival_s = stream(shape, requests or max(int(seconds * rate_hz), 50), rate_hz, seed)
    shares = ",".join(map(str, SHARES))
    # the simulation lets everything in
    with served("--shares", shares, "--queue-max", "4096", "--profile", profile, *words) as fleet:
        alone = drive_closed(fleet.port, image, ALONE_S, keep_every=1)
        before = fleet.gauges()
        drive(fleet.port, image, warming_s)
        after = fleet.gauges()
        driven = drive(fleet.port, image, arrival_s, keep_every=1)
    known = Known(
        speeds=list(after.speeds.values()),
        spread=spread(before, after),
        hop_s=overhead_s(alone, costs, before.speeds) / (4 if policy in STEPWISE else 1),
        aim_s=OBJECTIVE_S * (1 - after.margin),
    )
    played = simulated(costs, policy, arrival_s, known, seed)
    spent = {"speeds": after.speeds, "hop_s": known.hop_s, "margin": after.margin}
    spent["spread"] = np.quantile(known.spread, (0.5, 0.9, 0.99)).tolist()
    return {"live": live_figures(driven, costs), "simulated": played, **spent}


class Known(NamedTuple):
    """What the simulation is told about the machine."""

    speeds: list[float]
    spread: Array
    hop_s: float
    aim_s: float


def capacity_hz(profile: ServeProfile) -> float:
    """What the fleet answers a second at full width."""
    batch = Knobs().batch_max
    return float(sum(SHARES) * batch / tuple_s(profile, batch)[-1])


def image_request() -> bytes:
    """A picture of noise, as a binary tensor."""
    pixels = np.random.default_rng(0).random((1, COLOURS, 32, 32), np.float32).tobytes()
    tensor = {"name": "image", "shape": [1, COLOURS, 32, 32], "datatype": "FP32"}
    asked = {
        "inputs": [{**tensor, "parameters": {"binary_data_size": len(pixels)}}],
        "outputs": [{"name": "class"}],
    }
    head = json.dumps(asked).encode()
    headers = {"Inference-Header-Content-Length": str(len(head))}
    return http_request("/v2/models/slim/infer", head + pixels, headers)


def overhead_s(alone: Driven, profile: ServeProfile, speeds: dict[str, float]) -> float:
    """What a request costs beside its batch: of single ones, the median."""
    least_s = tuple_s(profile, 1)
    found = [
        alone.latency_s[row] - least_s[widths_row(told["widths"])] / speeds[told["server"]]
        for row, told in parameters_of(alone).items()
    ]
    return max(float(np.median(found)), 0.0) if found else 0.0


def widths_row(text: str) -> int:
    return row_of([WIDTHS.index(float(part)) for part in text.split(",")])


def live_figures(driven: Driven, profile: ServeProfile) -> dict[str, float]:
    """Latencies as the client saw them; what was refused is never in time."""
    told = parameters_of(driven)
    right = np.array([profile.accuracy[widths_row(one["widths"])] for one in told.values()])
    in_time = driven.latency_s[list(told)] <= OBJECTIVE_S
    return figures(driven.latency_s[driven.good], in_time, right, len(driven.status))


def figures(latency_s: Array, in_time: Array, right: Array, count: int) -> dict[str, float]:
    cuts = np.quantile(latency_s, (0.5, 0.95, 0.99)) if len(latency_s) else np.zeros(3)
    return {
        "p50_ms": 1e3 * float(cuts[0]),
        "p95_ms": 1e3 * float(cuts[1]),
        "p99_ms": 1e3 * float(cuts[2]),
        "in_time": 100 * float(in_time.sum()) / count,
        "good": 100 * float(right[in_time].sum()) / count,
        "refused": 100 * (1 - len(latency_s) / count),
    }


def simulated(
    profile: ServeProfile, policy: str, arrival_s: Array, known: Known, seed: int
) -> dict[str, float]:
    """The same stream in a simulated fleet that aims as early as the live one does."""
    count = len(arrival_s)
    f = fleets(
        profile, 1, count,
        speeds=known.speeds, knobs=Knobs(idle_unload_s=np.inf), hop_s=known.hop_s,
        drop_late=False, spread=known.spread,
    )  # fmt: skip
    begin(f, arrival_s, known.aim_s, seed)
    routers.run(f, router(policy, profile))
    rows = f.request[f.request["outcome"] == ANSWERED]
    latency_s = rows["done_s"] - rows["arrival_s"]
    right = profile.accuracy[rows["widths"]]
    return figures(latency_s, latency_s <= OBJECTIVE_S, right, count)
