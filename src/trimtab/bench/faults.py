"""What a live fleet does beyond what it can do: `trimtab bench faults`.

`overload`: the most answers in time a second over a ladder of rates, then 3 and 10 times as many
requests, then what it can do again. `killed`: one of two servers is killed under a steady load.

Latencies of the flood count from the planned moment, so its own lateness is in them. A second
client asks beside it, slowly and in a process of its own: what it waits from sending to the answer
is what a refusal costs a client that is not itself the flood.
"""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.bench.fault_fleet import Watch, fleet_of, server_of
from trimtab.bench.serve_hosts import Host
from trimtab.bench.serve_wires import BINARY, requests
from trimtab.serving.client.load_gen import Driven, drive
from trimtab.serving.routing.arrivals import poisson

CASES = ("overload", "killed")
OBJECTIVE_S = 0.1  # of `trimtab serve` where nothing else is said
BUSY = 429
AFTER = "after"
LADDER = (0.5, 0.7, 0.85, 1.0, 1.2, 1.5)  # of the first guess at what can be answered
FLOODS = (3, 10)  # times the most in time
START_HZ, GUESS_S, WARM_S = 250.0, 1.5, 2.0
CLIENT_HZ = 2e4
FLOOD_CONNECTIONS, QUIET_CONNECTIONS, QUIET_HZ = 512, 8, 50.0
WINDOW_S, BEFORE_S, AFTER_S = 0.5, 5.0, 10.0
KILLED_SHARES = "0.4,0.4"  # of a core, and room for the front and the client on a small machine
KILLED_LOAD = 0.5


class Plan(NamedTuple):
    """How much to measure."""

    cases: tuple[str, ...] = CASES
    seconds: float = 30.0  # of each flood
    ladder: tuple[float, ...] = LADDER
    before_s: float = BEFORE_S
    after_s: float = AFTER_S

    @property
    def rung_s(self) -> float:
        """Length of one rate of the ladder."""
        return self.seconds / 5


class Step(NamedTuple):
    """One rate asked for a while."""

    name: str
    asked_hz: float
    in_time_hz: float
    refused: int
    refused_ms: tuple[float, float]  # p50 and p99 of the flood, from the planned moment
    late_ms: float  # p99 of how late the flood was sent: part of the above
    quiet_ms: tuple[float, float]  # p50 and p99 of the second client, from sending
    memory_mb: tuple[float, float, float]  # start, end, most
    lost: dict[str, int]  # neither answered nor refused, by kind
    others: float  # cores that other processes of the machine kept busy


class Window(NamedTuple):
    """What was asked in half a second, counted from the moment of the kill."""

    from_s: float
    asked: int
    refused: int
    lost: int
    p99_ms: float  # of those that were let in


class Killed(NamedTuple):
    """A server killed under a steady load."""

    asked_hz: float
    before_ms: float  # p99 of a window before the kill: the median, as one hiccup is no state
    windows: list[Window]
    lost: dict[str, int]

    @property
    def back_s(self) -> float:
        """From when on every window's p99 is below twice the one before; inf = never."""
        bad = [each.from_s for each in self.windows if not each.p99_ms <= 2 * self.before_ms]
        last_s = max((from_s for from_s in bad if from_s >= 0), default=-WINDOW_S)
        end_s = self.windows[-1].from_s if self.windows else last_s
        return math.inf if last_s >= end_s else last_s + WINDOW_S


class Session:
    """A whole measurement: what was found so far, also when it is stopped in the middle."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.steps: list[Step] = []
        self.killed: Killed | None = None

    @property
    def names(self) -> list[str]:
        """What is measured, in order."""
        overload = ["a first guess", *map(rung, self.plan.ladder), *map(flood, FLOODS), AFTER]
        found = overload if "overload" in self.plan.cases else []
        return [*found, *(["a server killed"] if "killed" in self.plan.cases else [])]

    @property
    def peak(self) -> Step | None:
        """The step without a flood that has most answers in time."""
        calm = [step for step in self.steps if step.name not in map(flood, FLOODS)]
        return max(calm, key=lambda step: step.in_time_hz, default=None)

    def run(self) -> Iterator[str]:
        """Measure; yields what comes next, and once more at the end."""
        if "overload" in self.plan.cases:
            yield from self.overload()
        if "killed" in self.plan.cases:
            yield "a server killed"
            self.killed = killed(self.plan)
        yield "done"

    def overload(self) -> Iterator[str]:
        yield "a first guess"
        with fleet_of() as host:
            guess_hz = answered_hz(host)
            for share in self.plan.ladder:
                yield rung(share)
                self.steps.append(step(host, rung(share), share * guess_hz, self.plan.rung_s))
            assert self.peak is not None
            peak = self.peak
            for times in FLOODS:
                yield flood(times)
                found = step(host, flood(times), times * peak.in_time_hz, self.plan.seconds)
                self.steps.append(found)
            yield AFTER
            self.steps.append(step(host, AFTER, peak.asked_hz, self.plan.rung_s))


def rung(share: float) -> str:
    return f"x {share:g}"


def flood(times: int) -> str:
    return f"peak x {times}"


def stream(rate_hz: float, seconds: float, seed: int) -> Array:
    """Poisson arrivals over so many seconds."""
    return poisson(max(round(rate_hz * seconds), 20), rate_hz, np.random.default_rng(seed))


def answered_hz(host: Host) -> float:
    """A first guess at what a fleet answers a second: more and more is asked until not all are."""
    asked, rate_hz = requests(BINARY), START_HZ
    drive(host.port, asked, stream(START_HZ / 2, WARM_S, 0))
    while True:
        found = drive(host.port, asked, stream(rate_hz, GUESS_S, 1), connections=FLOOD_CONNECTIONS)
        # a client that cannot ask for more is the end, too
        if found.good.mean() < 0.9 or rate_hz > CLIENT_HZ:
            return max(float(found.good.sum()) / GUESS_S, 1.0)
        rate_hz *= 2


def step(host: Host, name: str, rate_hz: float, seconds: float) -> Step:
    """Ask at a rate, with a quiet client beside, and look at the memory."""
    asked = requests(BINARY)
    with Watch(host) as watch, ThreadPoolExecutor(1) as beside:
        slow_s = stream(QUIET_HZ, seconds, 2)
        waits = beside.submit(drive, host.port, asked, slow_s, connections=QUIET_CONNECTIONS)
        flooded = drive(
            host.port, asked, stream(rate_hz, seconds, 3), connections=FLOOD_CONNECTIONS
        )
        quiet = waits.result()
    both = (flooded, quiet)
    return stepped(name, rate_hz + QUIET_HZ, seconds, *both, watch.memory_mb, watch.others)


def stepped(
    name: str,
    asked_hz: float,
    seconds: float,
    flooded: Driven,
    quiet: Driven,
    memory_mb: tuple[float, float, float],
    others: float = 0.0,
) -> Step:
    """What both clients of a step saw."""
    both = (flooded, quiet)
    in_time = sum(int((each.good & (each.latency_s <= OBJECTIVE_S)).sum()) for each in both)
    waited_s = quiet.latency_s - (quiet.sent_s - quiet.planned_s)
    return Step(
        name,
        asked_hz,
        in_time / seconds,
        sum(int((each.status == BUSY).sum()) for each in both),
        cuts_ms(flooded.latency_s[flooded.status == BUSY]),
        flooded.late_ms,
        cuts_ms(waited_s[quiet.status == BUSY]),
        memory_mb,
        lost_of(flooded, quiet),
        others,
    )


def cuts_ms(times_s: Array) -> tuple[float, float]:
    """p50 and p99; nan where there is nothing."""
    if not len(times_s):
        return math.nan, math.nan
    low_s, high_s = np.quantile(times_s, (0.5, 0.99))
    return float(low_s) * 1e3, float(high_s) * 1e3


def lost_of(*driven: Driven) -> dict[str, int]:
    """What was neither answered nor refused, by kind."""
    found: dict[str, int] = {}
    for each in driven:
        for kind, count in each.errors().items():
            if kind != f"status {BUSY}":
                found[kind] = found.get(kind, 0) + count
    return found


def killed(plan: Plan) -> Killed:
    """Kill one of two servers under a steady load, and see what the clients see."""
    with fleet_of("--shares", KILLED_SHARES) as host, ThreadPoolExecutor(1) as beside:
        rate_hz = KILLED_LOAD * answered_hz(host)
        arrival_s = stream(rate_hz, plan.before_s + plan.after_s, 4)
        victim, began_s = server_of(host, "local-0"), time.monotonic()
        running = beside.submit(drive, host.port, requests(BINARY), arrival_s)
        time.sleep(plan.before_s)
        victim.send_signal(signal.SIGKILL)
        killed_s = time.monotonic()
        driven = running.result()
    assert driven.began_s > began_s  # else two clocks were compared
    return around(driven, killed_s - driven.began_s, rate_hz)


def around(driven: Driven, killed_s: float, rate_hz: float) -> Killed:
    """What was asked before and after a moment of a run, in windows."""
    since_s = driven.planned_s - killed_s
    waited_s = np.where(driven.good, driven.latency_s, np.inf)
    taken = driven.status != BUSY
    windows = []
    first, end = math.ceil(since_s[0] / WINDOW_S), int(since_s[-1] // WINDOW_S)  # whole ones
    for number in range(first, end):
        mine = (since_s >= number * WINDOW_S) & (since_s < (number + 1) * WINDOW_S)
        lost = int((mine & taken & ~driven.good).sum())
        counts = int(mine.sum()), int((mine & ~taken).sum()), lost
        windows.append(Window(number * WINDOW_S, *counts, cut_ms(waited_s[mine & taken])))
    # what was asked right before the kill was on its way then
    before_ms = [each.p99_ms for each in windows if each.from_s < -WINDOW_S]
    return Killed(rate_hz, float(np.median(before_ms)), windows, lost_of(driven))


def cut_ms(times_s: Array) -> float:
    """p99 of times of which some may be infinite; 0 where there are none."""
    return float(np.quantile(times_s, 0.99, method="higher") * 1e3) if len(times_s) else 0.0
