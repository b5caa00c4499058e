"""Trimtab beside other inference servers, by one load generator: `trimtab bench serve`.

One server at a time, in turn in every round. `closed-k`: k clients, each asks again when answered.
`rate`: the highest Poisson rate whose 99th percentile stays within the limit, latency counted from
the planned moment. CPU time is that of all processes of the server, memory with shared pages once.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from trimtab.bench.serve_hosts import FLOOR, OURS, SERVERS, Host, hosted, missing, probed
from trimtab.bench.serve_wires import Wire, check, requests
from trimtab.errors import ServeError
from trimtab.serving.client.load_gen import Driven, drive, drive_closed
from trimtab.serving.routing.arrivals import poisson

CASES = ("noop-json", "noop-binary", "net-json", "net-binary")  # model, wire
FEWEST = 100  # requests of a point, or its 99th percentile is a single one
STEP = 1.5  # between two rates tried
KEEP_EVERY = 16  # answers that are checked
MANY = 16  # clients
LIMIT_MS = 50.0


class Metric(NamedTuple):
    """A column: its unit, and whether more of it is better."""

    unit: str
    more: bool


METRICS = {
    "closed-1-p50": Metric("ms", False),
    "closed-16": Metric("req/s", True),
    "closed-16-p99": Metric("ms", False),
    "rate": Metric("req/s", True),
    "cpu": Metric("ms/req", False),
    "memory": Metric("MB", False),
    "idle": Metric("cores", False),
}


class Plan(NamedTuple):
    """How much to measure."""

    servers: tuple[str, ...]
    pythons: dict[str, str]
    cases: tuple[str, ...] = CASES
    rounds: int = 3
    seconds: float = 3.0  # of one run
    refine: int = 3  # halvings of the step between a rate that is held and one that is not
    processes: int = 1  # of each server that compute


class Point(NamedTuple):
    """What one server reached in one round."""

    server: str
    case: str
    values: dict[str, float]  # by METRICS
    errors: dict[str, int]  # of the closed runs
    generator_us: float  # CPU time of the load generator a request
    late_ms: float  # 99th percentile of how late it sent


class Row(NamedTuple):
    """One metric of one case: median, lowest and highest of the rounds a server."""

    case: str
    metric: str
    servers: dict[str, tuple[float, float, float]]

    @property
    def peer(self) -> str | None:
        """The best of the other products."""
        best = max if METRICS[self.metric].more else min
        found = [name for name in self.servers if SERVERS[name].peer]
        return best(found, key=lambda name: self.servers[name][0]) if found else None

    def times(self, other: str | None) -> float | None:
        """How many times better than another server we are."""
        if OURS not in self.servers or other is None or other not in self.servers:
            return None
        ours, theirs = self.servers[OURS][0], self.servers[other][0]
        over, under = (ours, theirs) if METRICS[self.metric].more else (theirs, ours)
        return over / under if under > 0 and math.isfinite(over / under) else None

    def as_json(self) -> dict[str, Any]:
        ours, peer = self.servers.get(OURS), self.peer
        return {
            "name": f"{self.case}-{self.metric}",
            "value": None if ours is None else finite(ours[0]),
            "unit": METRICS[self.metric].unit,
            "peer": peer,
            "peer_value": None if peer is None else finite(self.servers[peer][0]),
            "servers": {
                name: dict(zip(("median", "low", "high"), map(finite, values)))
                for name, values in self.servers.items()
            },
        }


class Session:
    """A whole measurement: what was found so far, also when it is stopped in the middle."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.points: list[Point] = []
        self.orphans: dict[str, int] = {}
        self.notes: dict[str, str] = {}  # why a server is not in the table
        self.servers = [name for name in plan.servers if not self.lacks(name)]
        models = dict.fromkeys(case.split("-")[0] for case in plan.cases)
        self.turns = [
            (name, model)
            for _ in range(plan.rounds)
            for model in models
            for name in self.servers
            if model in SERVERS[name].models and wires_of(plan, name, model)
        ]

    def lacks(self, name: str) -> str:
        why = missing(name, self.plan.pythons[name])
        if why:
            self.notes[name] = why
        return why

    def run(self) -> Iterator[str]:
        """Measure; yields what comes next, and once more at the end."""
        for name, model in self.turns:
            yield f"{name} {model}"
            if name in self.notes:  # it failed before
                continue
            try:
                self.measure(name, model)
            except ServeError as problem:
                self.notes[name] = str(problem)
        yield "done"

    def measure(self, name: str, model: str) -> None:
        python = self.plan.pythons[name]
        with hosted(name, model, python, self.orphans, self.plan.processes) as host:
            for wire in wires_of(self.plan, name, model):
                self.points.append(point(host, wire, self.plan))

    def rows(self) -> list[Row]:
        """The table so far."""
        return [
            Row(case, metric, found)
            for case in self.plan.cases
            for metric in METRICS
            if (found := spread(self.points, case, metric))
        ]

    def versions(self) -> dict[str, str]:
        """The version of each server measured."""
        found = {}
        for name in self.servers:
            package = SERVERS[name].packages[0]
            version = probed(self.plan.pythons[name], [package]).get(package)
            found[name] = f"{package.split('.')[0]} {version}" if version else ""
        return found


def wires_of(plan: Plan, name: str, model: str) -> list[Wire]:
    """The ways in which a server is asked for a model."""
    return [wire for wire in SERVERS[name].wires if f"{model}-{wire.name}" in plan.cases]


def spread(
    points: Sequence[Point], case: str, metric: str
) -> dict[str, tuple[float, float, float]]:
    found: dict[str, list[float]] = {}
    for each in points:
        if each.case == case:
            found.setdefault(each.server, []).append(each.values[metric])
    return {
        name: (statistics.median(values), min(values), max(values))
        for name, values in found.items()
    }


def finite(value: float) -> float | None:
    """As JSON has it: a latency without end is null."""
    return value if math.isfinite(value) else None


def point(host: Host, wire: Wire, plan: Plan) -> Point:
    """Everything about one server, asked in one way."""
    asked = requests(wire)

    def closed(clients: int, seconds: float) -> Driven:
        found = drive_closed(host.port, asked, seconds, clients, keep_every=KEEP_EVERY)
        check(wire, host.model, found)
        return found

    closed(MANY, min(1.0, plan.seconds))  # warms up
    idle_s, began_s = host.cpu_s(), time.monotonic()
    time.sleep(min(1.0, plan.seconds))
    idle = (host.cpu_s() - idle_s) / (time.monotonic() - began_s)
    one = closed(1, plan.seconds)
    cpu_s = host.cpu_s()
    many = closed(MANY, plan.seconds)
    cpu_ms = (host.cpu_s() - cpu_s) * 1e3 / max(int(many.good.sum()), 1)
    memory_mb = host.memory_mb()
    rates: list[Driven] = []
    rate_hz = highest(
        lambda rate_hz: held(host, wire, plan, rate_hz, rates), 0.6 * many.rate_hz, plan.refine
    )
    host.own_port()
    values = {
        "closed-1-p50": one.latency_ms(0.5),
        "closed-16": many.rate_hz,
        "closed-16-p99": many.latency_ms(0.99),
        "rate": rate_hz,
        "cpu": cpu_ms,
        "memory": memory_mb,
        "idle": idle,
    }
    errors = dict(one.errors())
    for kind, count in many.errors().items():
        errors[kind] = errors.get(kind, 0) + count
    late_ms = statistics.median([each.late_ms for each in rates]) if rates else 0.0
    case = f"{host.model}-{wire.name}"
    return Point(host.name, case, values, errors, many.cpu_us, late_ms)


def held(host: Host, wire: Wire, plan: Plan, rate_hz: float, seen: list[Driven]) -> bool:
    """Whether a server keeps the limit at a Poisson rate; a narrow miss gets a second try."""
    count = max(round(rate_hz * plan.seconds), FEWEST if plan.refine else 20)
    for _ in range(2):
        # the same arrivals for every server that is asked at this rate
        arrival_s = poisson(count, rate_hz, np.random.default_rng(count))
        found = drive(host.port, requests(wire), arrival_s, timeout_s=2.0, keep_every=KEEP_EVERY)
        check(wire, host.model, found)
        p99_ms = found.latency_ms(0.99)
        if p99_ms <= LIMIT_MS:
            seen.append(found)
            return True
        settle(host, wire)
        if p99_ms > 4 * LIMIT_MS:
            return False
    return False


def settle(host: Host, wire: Wire, limit_s: float = 10.0) -> None:
    """Wait until what a server still has to do from an overload is done."""
    until_s = time.monotonic() + limit_s
    while time.monotonic() < until_s:
        found = drive_closed(host.port, requests(wire), 0.1, 1, timeout_s=limit_s)
        if found.latency_ms(1.0) < LIMIT_MS:
            return


def highest(passes: Callable[[float], bool], start_hz: float, refine: int) -> float:
    """The highest rate that passes, to STEP ** (1 / 2 ** refine); 0 where not even 1 does."""
    if start_hz < 1:
        return 0.0
    low_hz, high_hz = 0.0, start_hz
    if passes(start_hz):
        while passes(high_hz * STEP):
            high_hz *= STEP
        low_hz, high_hz = high_hz, high_hz * STEP
    while not low_hz:
        if high_hz / STEP < 1:
            return 0.0
        if passes(high_hz / STEP):
            low_hz = high_hz / STEP
        else:
            high_hz /= STEP
    for _ in range(refine):
        middle_hz = math.sqrt(low_hz * high_hz)
        if passes(middle_hz):
            low_hz = middle_hz
        else:
            high_hz = middle_hz
    return low_hz


def floor_cpu(rows: Sequence[Row], case: str) -> float | None:
    """Our CPU time a request over the bare app's."""
    for row in rows:
        if (row.case, row.metric) == (case, "cpu"):
            better = row.times(FLOOR)
            return None if better is None else 1 / better
    return None
