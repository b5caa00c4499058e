"""Element-wise work of all sizes, and the power of a GPU that does nothing else, or nothing."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter, sleep

import numpy as np
import torch

from trimtab.llm.calibrate.devices import BURST_S, Call, Device
from trimtab.llm.calibrate.rows import RowStream, Turn, Unmeasured

# bytes read and written, whole pages in steps of the root of 2
SIZES_B = [4096.0 * round(2.0 ** (8 + step / 2)) for step in range(23)]
# the ends first: any first part spans them all
ORDER = (0, 22, 11, 6, 16, 3, 19, 8, 14, 1, 21, 5, 17, 10, 12, 2, 20, 7, 15, 4, 18, 9, 13)
CALLS = 6
PROBE_B = 2.0**24
METER_EVERY_S = 0.1
NO_METER = "power: no meter answers (NVML or amdsmi), so its shares stay the architecture's"


def stream(device: Device, bytes_b: float) -> Call:
    """One pass that reads half of the bytes and writes the other half."""
    count = max(int(bytes_b / 2 / device.dtype.itemsize), 1)
    given, made = device.inputs[:count], device.outputs[:count]
    return lambda: torch.mul(given, 1.01, out=made)


def most_b(device: Device) -> float:
    """Bytes that the largest pass can move."""
    return 2.0 * len(device.inputs) * device.dtype.itemsize


def streams(turn: Turn) -> RowStream:
    """Passes over 1 MiB to 2 GiB, as many as fit into memory and time."""
    device = turn.device
    bps = PROBE_B / device.timed(stream(device, PROBE_B), 0.0)
    call_s = turn.seconds / len(SIZES_B) / CALLS
    for bytes_b in (SIZES_B[place] for place in ORDER):
        if bytes_b <= most_b(device) and bytes_b / bps <= 3 * call_s:
            yield "streams", [bytes_b, device.timed(stream(device, bytes_b), min(BURST_S, call_s))]


def idle_power(
    turn: Turn, clock: Callable[[], float] = perf_counter, rest: Callable[[float], None] = sleep
) -> RowStream:
    """Power of a GPU that holds memory and computes nothing."""
    device, seconds = turn.device, turn.seconds
    if device.watts() is None:
        raise Unmeasured(NO_METER)
    device.synchronise()
    began_s, found = clock(), []
    while clock() - began_s < seconds:
        rest(METER_EVERY_S)
        # what ran a moment ago is still in the meter's mean
        if clock() - began_s > 0.5 * seconds:
            found.append(device.watts() or 0.0)
    yield "power", [0.0, 0.0, float(np.mean(found or [device.watts() or 0.0]))]


def stream_power(turn: Turn) -> RowStream:
    """Power under element-wise work alone."""
    device, seconds = turn.device, turn.seconds
    if device.watts() is None:
        return
    call, found = stream(device, most_b(device)), []
    for at_s, _ in device.sustained(call, seconds):
        drawn_w = device.watts()
        if drawn_w is not None and at_s > max(0.5 * seconds, 1.0):
            found.append(drawn_w)
    if found:
        yield "power", [0.0, 1.0, float(np.mean(found))]
