"""What the host takes to start one small kernel, alone and while others keep its cores busy."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from time import perf_counter, sleep
from typing import IO

import numpy as np
import torch

from trimtab.llm.calibrate.devices import Device
from trimtab.llm.calibrate.rows import RowStream, Turn

LOADS = (0.5, 0.9, 1.5)  # busy threads a core
SETTLE_S = 0.3  # until the busy processes run
MOST_PROCESSES = 1024
KEPT_S = 5.0  # beyond its turn a busy process ends by itself, should nobody end it
# Keeps a share of one core busy until its time is over.
BUSY = """
import sys, time
end_s, duty = time.monotonic() + float(sys.argv[1]), float(sys.argv[2])
while time.monotonic() < end_s:
    until_s = time.monotonic() + 0.02 * duty
    while time.monotonic() < until_s:
        pass
    if duty < 1:
        time.sleep(0.02 * (1 - duty))
"""


def launches(
    turn: Turn, clock: Callable[[], float] = perf_counter, rest: Callable[[float], None] = sleep
) -> RowStream:
    """Launches on the host as it is, then under each load."""
    part_s = turn.seconds / (len(LOADS) + 1)
    idle = bursts_s(turn.device, part_s, clock)
    # the median leaves out what interrupted an idle host; of a busy one that is the very effect
    yield "launches", [0.0, float(np.median(idle))]
    work_s = max(part_s - SETTLE_S, 0.5 * part_s)
    for load in LOADS:
        with busy(load * cores(), SETTLE_S + work_s + KEPT_S):
            rest(SETTLE_S)
            yield "launches", [load, float(np.mean(bursts_s(turn.device, work_s, clock)))]


def bursts_s(device: Device, seconds: float, clock: Callable[[], float]) -> list[float]:
    """Host seconds a launch, of as many bursts as there is time for."""
    small = torch.zeros(8, device=device.at)
    device.host_s(lambda: small.add_(1.0))
    found: list[float] = []
    began_s = clock()
    while not found or clock() - began_s < seconds:
        found.append(device.host_s(lambda: small.add_(1.0)))
    return found


def cores(quota: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """Cores whose time this process may use: those it is bound to, or what a container leaves."""
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    count = bound or 1
    with suppress(OSError, ValueError):  # no control group, or one with "max"
        most_us, period_us = (int(word) for word in quota.read_text().split())
        count = min(count, max(round(most_us / period_us), 1))
    return count


@contextmanager
def busy(threads: float, seconds: float) -> Iterator[None]:
    """Keep so many cores' worth of processes busy; they end with the block, or after `seconds`."""
    count = min(max(math.ceil(threads), 1), MOST_PROCESSES)
    words = [sys.executable, "-I", "-S", "-c", BUSY, str(seconds), str(min(threads / count, 1.0))]
    started: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(count):
            started.append(apart(words))
        yield
    finally:
        end(started)


def apart(
    words: Sequence[str],
    out: int = subprocess.DEVNULL,
    log: int | IO[bytes] = subprocess.DEVNULL,
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a process that Ctrl-C does not reach: whoever starts it ends it."""
    return subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=log,
        env=environment,
        start_new_session=True,
    )


def end(started: Sequence[subprocess.Popen[bytes]]) -> None:
    """End processes of our own and wait until they are gone."""
    for process in started:
        process.kill()
    for process in started:
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
