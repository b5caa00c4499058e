"""`trimtab serve` beyond what it can do: too many requests, and too little memory in a server."""

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import psutil
import pytest
from tests.live.serving import Load, Serving, body_of, post

from trimtab.bench.serve_wires import BINARY, requests
from trimtab.serving.client.load_gen import drive, python_env
from trimtab.serving.routing.arrivals import poisson

BODY = body_of(np.random.default_rng(7).random((1, 3, 32, 32), np.float32))
ROOM_MB = 30  # less than a tenth of the bodies that the flood sends


def flooded(port, rate_hz, seconds):
    arrival_s = poisson(round(rate_hz * seconds), rate_hz, np.random.default_rng(1))
    return drive(port, requests(BINARY), arrival_s, connections=64)


def memory_mb(serving):
    processes = [psutil.Process(serving.process.pid), *serving.children().values()]
    return sum(process.memory_full_info().uss for process in processes) / 1e6


def ended(serving):
    """Requests by how they ended, as the fleet has counted."""
    text = serving.get("/metrics")[1]
    rows = re.findall(r'^trimtab_serve_requests_total\{outcome="(\w+)"\} (\S+)$', text, re.M)
    return {outcome: int(float(count)) for outcome, count in rows if float(count)}


def test_a_flood_is_answered_or_refused_once_each_leaves_no_memory_and_ends_without_a_trace():
    options = ("--shares", "0.1", "--router", "slimmest", "--queue-max", "4")
    with Serving(*options) as serving, ThreadPoolExecutor(1) as beside:
        port = int(serving.address("http").rpartition(":")[2])
        flooded(port, 8000, 0.5)  # warms up, connections and all
        before, before_mb = ended(serving), memory_mb(serving)
        flood = beside.submit(flooded, port, 8000, 4.0)
        told = []
        while not flood.done():
            told.append(post(serving, BODY))
        driven = flood.result()
        after, after_mb = ended(serving), memory_mb(serving)
        calm = flooded(port, 10, 2.0)
        assert serving.stop() == 0
        assert not serving.orphans()
    assert set(np.unique(driven.status)) == {200, 429}
    busy = [headers for status, _, headers in told if status == 429]
    assert len(busy) > 5
    assert all(int(headers["Retry-After"]) >= 1 for headers in busy)
    assert {status for status, *_ in told} <= {200, 429}
    statuses = [*driven.status.tolist(), *(status for status, *_ in told)]
    counts = {kind: after[kind] - before[kind] for kind in after}
    assert counts == {"answered": statuses.count(200), "refused": statuses.count(429)}
    assert len(driven.status) > 5 * counts["answered"]
    assert after_mb - before_mb < ROOM_MB
    assert calm.good.all()


# a limit of its own for the process, over what the imports take
CRAMPED = """
import resource, sys
import onnx.helper, onnx.numpy_helper, onnxruntime
from trimtab.serving.server.server import main

with open("/proc/self/statm") as now:
    limit_b = int(now.read().split()[0]) * resource.getpagesize() + int(sys.argv[1]) * 1_000_000
resource.setrlimit(resource.RLIMIT_AS, (limit_b, limit_b))
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits of the address space are Linux's")
def test_a_server_without_memory_for_more_instances_serves_on_and_loses_nothing():
    options = ("--router", "random", "--fleet-port", "0", "--token", "t", "--objective-ms", "5000")
    with Serving(*options) as serving:
        words = [serving.address("fleet"), '{"token": "t", "name": "cramped"}']
        cramped = subprocess.Popen(
            [sys.executable, "-c", CRAMPED, "900", *words],
            stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            # an arena a thread would take address space that nobody uses
            env=python_env(OMP_NUM_THREADS="1", MALLOC_ARENA_MAX="1"),
        )  # fmt: skip
        try:
            serving.until(lambda: "cramped is ready" in serving.text(), 60)
            running = Load(serving, 8, BODY)
            serving.until(lambda: len(by(running, "cramped")) > 200, 60)
            serving.until(lambda: len(running.answers) > 1000, 60)
            running.stop()
            resent = serving.metric("trimtab_serve_resent_rows_total")
            assert cramped.poll() is None
            assert serving.text().count("cramped is ready") == 1
            assert serving.stop() == 0
            assert cramped.wait(60) == 0
        finally:
            cramped.kill()
            said = cramped.communicate()[1]
    assert "does not load: needs" in said
    assert resent > 0
    assert running.statuses() == {200}
    assert not running.errors
    assert len(running.answers) == running.asked


def by(running, server):
    return [found for _, _, found in running.answers if found["parameters"]["server"] == server]
