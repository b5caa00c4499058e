"""What others take of a cluster now: host, links and GPU memory, as far as sensors tell.

    sensors = Sensors(Host(job="4711").read, warn=print)
    sensors.conditions(time.time(), own_link=0.2)

A sensor that fails leaves the last known value, or that of a calm cluster, and warns once. The
job's own use does not count: a process tree tells its CPU and its GPU memory, and `own_link` what
its plan moves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import psutil

from trimtab.errors import PlanError, TraceError
from trimtab.load.job import Job, others_memory_b
from trimtab.load.probe import NO_SENSOR, Probe
from trimtab.load.prometheus import LINK_QUERY, QUERIES, Server, instant, windowed
from trimtab.load.rdma import RdmaPorts

LEAST_FREE = 0.05  # of a link: fair queueing leaves something even among greedy neighbours
BEYOND = 0.05  # a rate overshoots 0..1 by a little; what lies farther out is no ratio
# Prometheus' answers by what they measure; of several machines the worst counts, since a step
# waits for the slowest. DCGM cannot tell whose the memory is, so `taken` has no default.
DEFAULT_QUERIES: Mapping[str, str] = MappingProxyType(
    {
        "cpu": QUERIES["cpu"],
        "link": LINK_QUERY,
        "memory": QUERIES["mem"],
        "gpu": QUERIES["gpu"],
        "taken": "",
    }
)
WORDS = {
    "cpu": "CPU load",
    "own_cpu": "the job's own CPU load",
    "link": "load of the links",
    "taken": "GPU memory of others",
    "gpu": "GPU load",
    "memory": "host memory",
}


class Conditions(NamedTuple):
    """What others leave; the last two are told for the reader and enter no decision."""

    time_s: float
    cpu_load: float = 0.0  # of the host by others
    free_link: float = 1.0  # of the links to other nodes that others leave
    taken_b: float = 0.0  # of one GPU's memory by others, on the worst GPU
    gpu_load: float = math.nan  # share of time in which GPUs were busy; NaN = not measured
    host_memory: float = math.nan  # share in use


class Raw(NamedTuple):
    """One reading of all sensors, NaN = not measured, and why where that is a fault."""

    cpu: float = math.nan  # of the host, the job's included
    own_cpu: float = math.nan  # of the host by the job
    link: float = math.nan  # of the links to other nodes, the job's included
    taken: float = math.nan  # bytes
    gpu: float = math.nan
    memory: float = math.nan
    faults: Mapping[str, str] = MappingProxyType({})  # sentence by field


class Host:
    """Sensors of this machine: psutil, NVML and RDMA ports."""

    def __init__(self, job: str = "") -> None:
        self.job = Job(job) if job else None
        self._probe, self._ports = Probe(), RdmaPorts()

    def read(self, now_s: float) -> Raw:
        """What this machine shows since the reading before; the first has no rates."""
        faults: dict[str, str] = {}
        try:
            sample = self._probe.sample(now_s)
        except (psutil.Error, *NO_SENSOR) as problem:
            faults = dict.fromkeys(("cpu", "link", "memory"), f"psutil: {problem}")
            return self.read_job(now_s)._replace(faults=faults)
        # where there are RDMA ports, collectives pass through them and not through Ethernet
        ways = [way for way in self._ports.shares(now_s) if not math.isnan(way)]
        ways = ways or [float(sample.net_in[0]), float(sample.net_out[0])]
        if math.isnan(max(ways)):
            faults["link"] = "no network interface tells its speed; give --prometheus a link query"
        own = self.read_job(now_s)
        return Raw(
            cpu=float(sample.cpu[0]),
            own_cpu=own.own_cpu,
            link=max(ways),
            taken=own.taken,
            gpu=float(sample.gpu[0]),
            memory=float(sample.mem[0]),
            faults={**faults, **own.faults},
        )

    def read_job(self, now_s: float) -> Raw:
        """What the job itself uses here, and whose the memory is; nothing without a job."""
        if self.job is None:
            return Raw()
        own_cpu, processes = self.job.cpu_share(now_s), self.job.processes()
        if not processes:
            words = f"job {self.job.named} does not run on this machine; name the new PID"
            return Raw(faults=dict.fromkeys(("own_cpu", "taken"), words))
        taken, faults = others_memory_b(processes), {}
        if math.isnan(taken):
            faults["taken"] = f"NVML shows no process of job {self.job.named} on a GPU"
        return Raw(own_cpu=own_cpu, taken=taken, faults=faults)


def prometheus_read(
    server: Server, queries: Mapping[str, str], now_s: float, window_s: float = 120.0
) -> Raw:
    """What a Prometheus server tells of all machines; an empty query is not asked."""
    found: dict[str, float] = {}
    faults: dict[str, str] = {}
    for name, query in queries.items():
        if not query:
            continue
        try:
            values = instant(server, windowed(query, window_s), now_s, f"query {name}")
        except TraceError as problem:
            faults[name] = str(problem)
            continue
        good = [value for value in values if _plausible(name, value)]
        if good:
            found[name] = sum(good) / len(good) if name == "gpu" else max(good)
        else:
            faults[name] = f"{server.url}: query {name} finds no usable series; replace it"
    return Raw(**found, faults=faults)


def _plausible(name: str, value: float) -> bool:
    return value >= 0 if name == "taken" else -BEYOND <= value <= 1 + BEYOND


def chosen_queries(given: Mapping[str, str]) -> dict[str, str]:
    """The default queries with those replaced that the user gives."""
    for name in given:
        if name not in DEFAULT_QUERIES:
            known = ", ".join(DEFAULT_QUERIES)
            raise PlanError(f"query {name!r} measures nothing here; take one of {known}")
    return {**DEFAULT_QUERIES, **given}


class Sensors:
    """Readings made whole: the last known value stands in for one that is missing."""

    def __init__(self, read: Callable[[float], Raw], warn: Callable[[str], None]) -> None:
        self._read, self._warn = read, warn
        self._known: dict[str, float] = {}
        self._warned: set[str] = set()

    def prime(self, now_s: float) -> None:
        """Take a first reading, of which rates are the difference."""
        self._read(now_s)

    def conditions(self, now_s: float, own_link: float = 0.0) -> Conditions:
        """Conditions at `now_s`; the running plan itself uses `own_link` of the links."""
        raw = self._read(now_s)
        values = raw._asdict()
        values.pop("faults")
        for name, value in values.items():
            if not math.isnan(value):
                self._known[name] = value
                self._warned.discard(name)
            elif name in raw.faults and name not in self._warned:
                self._warned.add(name)
                stand_in = "the last known" if name in self._known else "a calm cluster's"
                self._warn(f"{WORDS[name]}: {stand_in} value is taken: {raw.faults[name]}")
        known = self._known
        others = known.get("cpu", 0.0) - known.get("own_cpu", 0.0)
        free = 1.0 - max(known.get("link", 0.0) - own_link, 0.0)
        return Conditions(
            now_s,
            cpu_load=min(max(others, 0.0), 1.0),
            free_link=min(max(free, LEAST_FREE), 1.0),
            taken_b=max(known.get("taken", 0.0), 0.0),
            gpu_load=_share(known.get("gpu", math.nan)),
            host_memory=_share(known.get("memory", math.nan)),
        )


def _share(value: float) -> float:
    return value if math.isnan(value) else min(max(value, 0.0), 1.0)
