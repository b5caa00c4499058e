"""Measure the load of this machine: psutil, and NVML where there are GPUs."""

import math
import platform
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import psutil
import pynvml

from trimtab.errors import TrimtabError
from trimtab.load.samples import Samples

BYTES_A_MBIT = 125_000.0
# interfaces whose traffic passes a real one too, or never leaves the machine
VIRTUAL = re.compile(r"(lo$|veth|docker|br-|virbr|cni|cali|flannel|tap|tun|ifb|dummy)")
UNREAL_DISKS = re.compile(r"(loop|ram|zram)\d")
NO_SENSOR = (OSError, RuntimeError, NotImplementedError)  # some containers hide /proc files
GUEST = ("guest", "guest_nice")  # the kernel counts these in user and nice too


class Reading(NamedTuple):
    """Counters that only grow; a load is the difference of two readings."""

    time_s: float
    cpu_s: float  # of all processors, whatever they did
    idle_s: float
    link_bytes: dict[str, tuple[int, int, float]]  # received, sent, and capacity a second
    disk_busy_s: dict[str, float]


class Probe:
    """Samples of this machine. Each covers the time since the one before.

    The first has NaN for cpu, net and disk, which need two readings. Network is the share of the
    speed of all links that know theirs, disk the share of time that the busiest disk worked, gpu
    the mean over the GPUs that answer. CPU that waits for a disk counts as idle, CPU that a
    hypervisor took away as busy.
    """

    def __init__(self, name: str = "") -> None:
        self.name = name or platform.node() or "localhost"
        self._last: Reading | None = None
        self._gpus = _gpus()

    def sample(self, now_s: float) -> Samples:
        """One row at `now_s`, in seconds of any clock that goes forward."""
        reading, last = _reading(now_s), self._last
        self._last = reading
        net_in = net_out = math.nan
        if last is not None:
            over_s = reading.time_s - last.time_s
            net_in, net_out = link_shares(last.link_bytes, reading.link_bytes, over_s)
        memory = psutil.virtual_memory()
        row = {
            "cpu": _cpu(last, reading),
            "mem": 1 - memory.available / memory.total,
            "net_in": net_in,
            "net_out": net_out,
            "disk": _disk(last, reading),
            "gpu": _gpu(self._gpus),
        }
        columns = {name: np.array([_ratio(value)]) for name, value in row.items()}
        return Samples(
            np.array([now_s]),
            np.zeros(1, np.int64),
            **columns,
            names=(self.name,),
            source=f"measured on {self.name}",
        )

    def watch(
        self,
        every_s: float,
        *,
        until_s: float = math.inf,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], object] = time.sleep,
    ) -> Iterator[Samples]:
        """A sample at each beat of `every_s` after now, up to the last beat before `until_s`.

        A beat that the machine slept through is left out, not made up.
        """
        if not every_s > 0:
            raise TrimtabError(f"every_s={every_s} is not positive; give seconds, such as 30")
        start_s = clock()
        self.sample(start_s)
        beat = 1
        while start_s + beat * every_s <= until_s:
            sleep(max(0.0, start_s + beat * every_s - clock()))
            now_s = clock()
            if now_s > until_s + every_s:
                return
            yield self.sample(now_s)
            beat = max(beat, math.floor((clock() - start_s) / every_s)) + 1

    def close(self) -> None:
        """Let go of NVML."""
        if self._gpus:
            self._gpus = []
            pynvml.nvmlShutdown()


def _reading(now_s: float) -> Reading:
    cpu = psutil.cpu_times()._asdict()
    return Reading(
        time_s=now_s,
        cpu_s=sum(spent_s for mode, spent_s in cpu.items() if mode not in GUEST),
        idle_s=cpu["idle"] + cpu.get("iowait", 0.0),
        link_bytes=_link_bytes(),
        disk_busy_s=_disk_busy_s(),
    )


def _link_bytes() -> dict[str, tuple[int, int, float]]:
    try:
        counters, links = psutil.net_io_counters(pernic=True) or {}, psutil.net_if_stats()
    except NO_SENSOR:
        return {}
    return {
        name: (counters[name].bytes_recv, counters[name].bytes_sent, link.speed * BYTES_A_MBIT)
        for name, link in links.items()
        if name in counters and link.isup and link.speed > 0 and not VIRTUAL.match(name)
    }


def _disk_busy_s() -> dict[str, float]:
    try:
        disks = psutil.disk_io_counters(perdisk=True) or {}
    except NO_SENSOR:
        return {}
    return {
        name: disk.busy_time / 1000
        for name, disk in disks.items()
        if hasattr(disk, "busy_time") and not UNREAL_DISKS.match(name)  # macOS does not count it
    }


def _cpu(last: Reading | None, now: Reading) -> float:
    if last is None or now.cpu_s <= last.cpu_s:
        return math.nan
    return 1 - (now.idle_s - last.idle_s) / (now.cpu_s - last.cpu_s)


def link_shares(
    last: dict[str, tuple[int, int, float]], now: dict[str, tuple[int, int, float]], over_s: float
) -> tuple[float, float]:
    """Shares received and sent of the speed of all links, from two readings of their counters."""
    if over_s <= 0:
        return math.nan, math.nan
    received, sent, capacity = 0, 0, 0.0
    for name in now.keys() & last.keys():
        in_now, out_now, bytes_a_s = now[name]
        in_last, out_last, _ = last[name]
        if in_now >= in_last and out_now >= out_last:  # else the interface was made anew
            received += in_now - in_last
            sent += out_now - out_last
            capacity += bytes_a_s * over_s
    return (received / capacity, sent / capacity) if capacity else (math.nan, math.nan)


def _disk(last: Reading | None, now: Reading) -> float:
    if last is None or now.time_s <= last.time_s:
        return math.nan
    names = now.disk_busy_s.keys() & last.disk_busy_s.keys()
    busy_s = [now.disk_busy_s[name] - last.disk_busy_s[name] for name in names]
    return max(busy_s, default=math.nan) / (now.time_s - last.time_s)


def _gpus() -> list[Any]:
    """NVML's handles of the GPUs; none without a driver."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    handles = []
    for index in range(pynvml.nvmlDeviceGetCount()):
        with suppress(pynvml.NVMLError):  # a GPU that fell off the bus does not hide the others
            handles.append(pynvml.nvmlDeviceGetHandleByIndex(index))
    if not handles:
        pynvml.nvmlShutdown()
    return handles


def _gpu(handles: list[Any]) -> float:
    shares = []
    for handle in handles:
        try:
            shares.append(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100)
        except pynvml.NVMLError:  # a GPU cut into MIG slices has no utilization
            continue
    return sum(shares) / len(shares) if shares else math.nan


def _ratio(value: float) -> float:
    """Within 0..1: a counter is read a moment before or after the clock."""
    return value if math.isnan(value) else min(max(value, 0.0), 1.0)
