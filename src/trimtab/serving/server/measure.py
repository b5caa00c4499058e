"""Measure a profile: what a live server gets from one worker, its batches made of single rows."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import replace
from time import perf_counter, sleep
from typing import Any, NamedTuple, Protocol

import numpy as np

from trimtab.arrays import Array
from trimtab.errors import ServeError
from trimtab.serving.net.serve_profile import (
    BUCKETS,
    FLOAT_B,
    MB,
    ServeProfile,
    check_buckets,
    processor_name,
    time_of,
)
from trimtab.serving.nouns import SEGMENTS, TUPLES, WIDTHS
from trimtab.serving.server.power import Meter

SLOW = 0.9  # the share of rounds that `slow_s` lies above
# of all 256: the uniform ones, and two that change widths on the way
WHOLE = ((0, 0, 0, 0), (1, 1, 1, 1), (2, 2, 2, 2), (3, 3, 3, 3), (0, 1, 2, 3), (3, 0, 2, 1))
METER_EVERY_S = 0.05
Progress = Callable[[str, int], object]  # hears (what, steps done)


class Runs(Protocol):
    """What can be measured and served: `Segments`, `Runners`, or a stand-in for them.

    A batch is an array, or what `resident` made of one; `run` gives the kind that it was given.
    """

    def run(self, segment: int, before: int, width: int, x: Any) -> Any: ...

    def through(self, segment: int, before: int, widths: Sequence[int], x: Array) -> Array: ...

    def load(self, segment: int, before: int, width: int) -> Any: ...

    def unload(self, segment: int, before: int, width: int) -> bool: ...

    def bytes_of(self, segment: int, before: int, width: int) -> int: ...

    def takes(self, segment: int, before: int) -> tuple[int, int, int]: ...

    def resident(self, x: Array) -> Any: ...

    def stack(self, rows: Sequence[Any]) -> Any: ...

    def fetched(self, x: Any) -> Array: ...


class Whole(NamedTuple):
    """One batch through all segments at once, beside the sum of its segments in the profile."""

    widths: tuple[int, ...]
    rows: int
    whole_s: float
    sum_s: float


def measured(
    segments: Runs,
    buckets: Sequence[int] = BUCKETS,
    repeats: int = 5,
    clock: Callable[[], float] = perf_counter,
    *,
    accuracy: Array,
    idle_w: float = 0.0,
    busy_w: float = 0.0,
    progress: Progress = lambda what, done: None,
) -> ServeProfile:
    """Time every segment at every batch size: the median of `repeats` rounds, each over all of
    them, so that a slow spell falls on all alike. Power is what you say: 0 = unknown.

    The first segment takes arrays, the last gives arrays; between them batches stay where the
    device computes. `progress` hears one step a segment and round: `steps(repeats)` in all.
    """
    steps(repeats)
    check_buckets(buckets)
    keys = _keys()
    load_s, memory_b, input_mb = _loads(segments, keys, clock, progress)
    rounds_s = _rounds(segments, keys, buckets, repeats, clock, progress)
    time_s, slow_s = np.median(rounds_s, axis=0), np.quantile(rounds_s, SLOW, axis=0)
    way = _ways(segments, keys, buckets)
    for table in filter(np.size, (load_s, memory_b, time_s, slow_s, input_mb, way)):
        table[0] = table[0, :1]  # the first segment has no width before it
    return ServeProfile(
        time_s=time_s,
        load_s=load_s,
        memory_b=memory_b,
        input_mb=input_mb,
        accuracy=accuracy,
        buckets=tuple(int(count) for count in buckets),
        idle_w=idle_w,
        busy_w=busy_w,
        hand_over_s=_copy_s(segments, repeats, clock),
        source=f"median of {repeats} interleaved rounds; hand-over is a copy in memory",
        measured=True,
        machine=_machine(segments),
        slow_s=slow_s,
        way=way,
    )


def _keys() -> list[tuple[int, ...]]:
    """(segment, before, width): the first segment has no width before it."""
    every = np.ndindex(SEGMENTS, len(WIDTHS), len(WIDTHS))
    return [key for key in every if key[0] or not key[1]]


def steps(repeats: int) -> int:
    """How many steps `measured` tells of; refuses what it would refuse."""
    if repeats < 1:
        raise ServeError(f"repeats={repeats}: give 1 or more")
    return len(_keys()) * (repeats + 2)


def _loads(
    segments: Runs, keys: Sequence[tuple[int, ...]], clock: Callable[[], float], progress: Progress
) -> tuple[Array, Array, Array]:
    """Load every segment once: seconds, bytes, and the size of what it is given."""
    load_s = np.zeros((SEGMENTS, len(WIDTHS), len(WIDTHS)))
    memory_b, input_mb = np.zeros_like(load_s), np.zeros((SEGMENTS, len(WIDTHS)))
    segments.load(0, 0, 0)  # what loads with the first of all is no segment's cost
    for segment, before, width in keys:
        segments.unload(segment, before, width)
        began_s = clock()
        segments.load(segment, before, width)
        load_s[segment, before, width] = clock() - began_s
        memory_b[segment, before, width] = segments.bytes_of(segment, before, width)
        input_mb[segment, before] = FLOAT_B * np.prod(segments.takes(segment, before)) / MB
        progress("loading", 1)
    return load_s, memory_b, input_mb


def _rounds(
    segments: Runs,
    keys: Sequence[tuple[int, ...]],
    buckets: Sequence[int],
    repeats: int,
    clock: Callable[[], float],
    progress: Progress,
) -> Array:
    """(repeats, segment, before, width, bucket) seconds."""
    found = np.zeros((repeats + 1, SEGMENTS, len(WIDTHS), len(WIDTHS), len(buckets)))
    for turn in range(repeats + 1):  # the first warms caches up and is left out
        for segment, before, width in keys:
            row = np.full((1, *segments.takes(segment, before)), 0.5, np.float32)
            given = segments.resident(row) if segment else row
            for at, count in enumerate(buckets):
                rows = [given] * count
                began_s = clock()
                made = segments.run(segment, before, width, _entered(segments, segment, rows))
                if segment == SEGMENTS - 1:
                    segments.fetched(made)
                found[turn, segment, before, width, at] = clock() - began_s
            progress(f"round {turn} of {repeats}" if turn else "warming up", 1)
    return found[1:]


def _entered(segments: Runs, segment: int, rows: Sequence[Any]) -> Any:
    """A batch of rows where the device computes: images come as arrays."""
    x = segments.stack(rows)
    return segments.resident(x) if segment == 0 else x


def _ways(segments: Runs, keys: Sequence[tuple[int, ...]], buckets: Sequence[int]) -> Array:
    """(segment, before, width, bucket) names, or nothing where there is one way only."""
    way_of = getattr(segments, "way_of", None)
    if way_of is None:
        return np.zeros(0, "U1")
    found = np.full((SEGMENTS, len(WIDTHS), len(WIDTHS), len(buckets)), "", "U24")
    for key in keys:
        found[key] = [way_of(*key, count) for count in buckets]
    return found


def _machine(segments: Runs) -> dict[str, Any]:
    return {
        "system": platform.platform(terse=True),
        "processor": processor_name(),
        "cores": os.cpu_count() or 0,
        "device": getattr(segments, "device", "cpu"),
    }


def _copy_s(segments: Runs, repeats: int, clock: Callable[[], float]) -> float:
    """Seconds to bring a megabyte out of the device and in again: the least a hand-over costs."""
    given = segments.resident(np.ones((1, 1, 1, int(MB / FLOAT_B)), np.float32))
    found = []
    for _ in range(repeats + 1):
        began_s = clock()
        out = segments.fetched(given).tobytes()
        again = np.frombuffer(out, np.float32).copy().reshape(1, 1, 1, -1)
        segments.fetched(segments.resident(again)[..., :1])  # waits for the copy
        found.append(clock() - began_s)
    return float(np.median(found[1:]))


def wholes(
    segments: Runs,
    profile: ServeProfile,
    counts: Sequence[int] = (1, 16),
    repeats: int = 5,
    clock: Callable[[], float] = perf_counter,
) -> list[Whole]:
    """Whole networks in one call beside the sum of their segments. A ratio far from 1 says that a
    server which runs a plan in one go differs from the profile.
    """
    image = np.full((1, *segments.takes(0, 0)), 0.5, np.float32)
    found_s = np.zeros((repeats + 1, len(counts), len(WHOLE)))
    for turn in range(repeats + 1):
        for at, count in enumerate(counts):
            for row, widths in enumerate(WHOLE):
                began_s = clock()
                segments.through(0, widths[0], widths, segments.stack([image] * count))
                found_s[turn, at, row] = clock() - began_s
    whole_s = np.median(found_s[1:], axis=0)
    return [
        Whole(widths, count, float(whole_s[at, row]), _sum_s(profile, widths, count))
        for at, count in enumerate(counts)
        for row, widths in enumerate(WHOLE)
    ]


def _sum_s(profile: ServeProfile, widths: Sequence[int], count: int) -> float:
    befores = (0, *widths)
    return sum(time_of(profile, s, befores[s], w, count) for s, w in enumerate(widths))


def with_power(
    profile: ServeProfile,
    segments: Runs,
    meter: Meter,
    *,
    seconds: float = 1.0,
    clock: Callable[[], float] = perf_counter,
    rest: Callable[[float], None] = sleep,
) -> ServeProfile:
    """The profile with watts at rest and at work by the meter; a model's stay the model's."""
    if meter.source == "model":
        idle_w, busy_w = meter.read(0.0).watts, meter.read(1.0).watts
        source = f"power is a model of {idle_w:g} W idle and {busy_w:g} W busy: there is no meter"
    else:
        idle_w = _mean_w(meter, lambda: rest(METER_EVERY_S), seconds, clock)
        widest = TUPLES[-1]
        x = np.zeros((profile.buckets[-1], *segments.takes(0, 0)), np.float32)
        busy_w = _mean_w(meter, lambda: segments.through(0, widest[0], widest, x), seconds, clock)
        busy_w = max(busy_w, idle_w)  # a meter of the whole machine sees others' work too
        source = f"power by {meter.source}"
    return replace(profile, idle_w=idle_w, busy_w=busy_w, source=f"{profile.source}; {source}")


def _mean_w(
    meter: Meter, work: Callable[[], object], seconds: float, clock: Callable[[], float]
) -> float:
    work()
    meter.read(0.0)  # a meter of energy counts from the reading before
    found: list[float] = []
    began_s = clock()
    while not found or clock() - began_s < seconds:
        work()
        found.append(meter.read(0.0).watts)
    return float(np.mean(found))
