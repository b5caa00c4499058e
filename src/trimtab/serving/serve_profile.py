"""What a batch of one segment costs on one machine: time, memory and power, measured or modelled.

The greedy executor, the simulated fleet and the routers all read the same tables. A segment is
known by (segment, width before, width); the first has no width before it and its rows repeat.
"""

from __future__ import annotations

import json
import os
import platform
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol
from zipfile import BadZipFile

import numpy as np

from trimtab.core import Array
from trimtab.errors import ServeError
from trimtab.rules.world import compiled
from trimtab.serving.slim_form import (
    COLOURS,
    SEGMENTS,
    TUPLES,
    WIDTHS,
    Form,
    channels_at,
    layers,
    segment_macs,
    segment_parameters,
)

BUCKETS = (1, 2, 4, 8, 16, 32, 64)
FACTS = "facts"
FLOAT_B = 4
MB = 1e6  # bytes
# share of images right = BASE + GAIN . widths: a line through the eight tuples published for
# CIFAR-100 (Slim Scheduler, tables I and II), right to about half a point
BASE, GAIN = 0.6825, (-0.004, 0.014, 0.027, 0.045)
BROKEN = (OSError, EOFError, ValueError, KeyError, TypeError, BadZipFile, zlib.error)


class Runs(Protocol):
    """What can be measured: `segments.Segments`, or a stand-in for it."""

    def run(self, segment: int, before: int, width: int, x: Array) -> Array: ...

    def load(self, segment: int, before: int, width: int) -> Any: ...

    def unload(self, segment: int, before: int, width: int) -> bool: ...

    def bytes_of(self, segment: int, before: int, width: int) -> int: ...

    def takes(self, segment: int, before: int) -> tuple[int, int, int]: ...


@dataclass(frozen=True)
class ServeProfile:
    """Costs of every segment on one worker of one machine. `measured` and `source` say whence."""

    time_s: Array  # (segment, before, width, bucket) of one batch
    load_s: Array  # (segment, before, width)
    memory_b: Array  # (segment, before, width)
    input_mb: Array  # (segment, before) of one image's hand-over tensor
    accuracy: Array  # (256,) share of images right, a tuple of widths
    buckets: tuple[int, ...] = BUCKETS  # batch sizes of time_s
    idle_w: float = 0.0
    busy_w: float = 0.0  # all workers busy
    hand_over_s: float = 0.0  # a megabyte, between servers
    source: str = "made by hand"
    measured: bool = False
    machine: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        widths = len(WIDTHS)
        wanted = {
            "time_s": (SEGMENTS, widths, widths, len(self.buckets)),
            "load_s": (SEGMENTS, widths, widths),
            "memory_b": (SEGMENTS, widths, widths),
            "input_mb": (SEGMENTS, widths),
            "accuracy": (len(TUPLES),),
        }
        for name, shape in wanted.items():
            array = np.ascontiguousarray(getattr(self, name), dtype=np.float64)
            object.__setattr__(self, name, array)
            if array.shape != shape:
                raise ServeError(f"profile: {name} has shape {array.shape}; give {shape}")
            if not np.isfinite(array).all() or (array < 0).any():
                raise ServeError(f"profile: {name} holds a negative or NaN; measure it again")
        if (self.accuracy > 1).any():
            raise ServeError("profile: accuracy is above 1; give shares of 0..1, not percent")
        if (self.time_s <= 0).any():
            raise ServeError("profile: time_s holds a 0; measure with a finer clock")
        _check_buckets(self.buckets)
        if not 0 <= self.idle_w <= self.busy_w < np.inf or not 0 <= self.hand_over_s < np.inf:
            raise ServeError(
                f"profile: idle_w={self.idle_w}, busy_w={self.busy_w}, hand_over_s="
                f"{self.hand_over_s}; give 0 <= idle_w <= busy_w and hand_over_s >= 0"
            )


def _check_buckets(buckets: Sequence[int]) -> None:
    if len(buckets) < 2 or buckets[0] != 1 or any(np.diff(buckets) <= 0):
        raise ServeError(f"buckets={tuple(buckets)}: give rising batch sizes, the first of them 1")


@compiled
def batch_s(time_s, buckets, segment, before, width, count):
    """Seconds of a batch: linear between buckets, and past the last one at its last slope."""
    last = len(buckets) - 1
    high = 1
    while high < last and buckets[high] < count:
        high += 1
    low = high - 1
    first_s, last_s = (
        time_s[segment, before, width, low],
        time_s[segment, before, width, high],
    )
    share = (count - buckets[low]) / (buckets[high] - buckets[low])
    # a noisy table may fall between its last buckets: no batch is then taken to cost nothing
    return max(first_s + share * (last_s - first_s), 1e-9)


def time_of(profile: ServeProfile, segment: int, before: int, width: int, count: int) -> float:
    """Seconds of one batch of `count` images."""
    if count < 1:
        raise ServeError(f"count={count}: a batch holds at least one image")
    buckets = np.asarray(profile.buckets, np.int64)
    return float(batch_s(profile.time_s, buckets, segment, before, width, count))


def tuple_s(profile: ServeProfile, count: int) -> Array:
    """(256,) seconds of a batch through all segments, a tuple of widths."""
    buckets = np.asarray(profile.buckets, np.int64)
    table = np.empty(profile.time_s.shape[:3])
    for place in np.ndindex(*table.shape):
        table[place] = batch_s(profile.time_s, buckets, *place, count)
    return np.array(
        [
            sum(table[s, widths[s - 1] if s else 0, w] for s, w in enumerate(widths))
            for widths in TUPLES
        ]
    )


def front(profile: ServeProfile, count: int = 16) -> Array:
    """(K,) tuples that no other beats in both accuracy and time at this batch, fastest first."""
    time_s = tuple_s(profile, count)
    chosen, best = [], -np.inf
    for row in np.lexsort((-profile.accuracy, time_s)):
        if profile.accuracy[row] > best:
            chosen.append(int(row))
            best = profile.accuracy[row]
    return np.array(chosen, np.int64)


def modelled(
    form: Form | None = None,
    flop_per_s: float = 30e9,
    *,
    launch_s: float = 2e-4,
    load_s_mb: float = 5e-3,
    idle_w: float = 20.0,
    busy_w: float = 65.0,
    hand_over_s: float = 1e-3,
    buckets: tuple[int, ...] = BUCKETS,
) -> ServeProfile:
    """A profile from multiplications: launch_s + 2 MACs / flop_per_s a batch. For tests and plans;
    a measured one differs most where channels are few.
    """
    form = (form or Form()).check()
    if not flop_per_s > 0 or launch_s < 0:
        raise ServeError(f"flop_per_s={flop_per_s}, launch_s={launch_s}: give a rate above 0")
    macs = _each(form, segment_macs)
    memory_b = FLOAT_B * _each(form, segment_parameters)
    return ServeProfile(
        time_s=launch_s + 2 * macs[..., None] * np.array(buckets) / flop_per_s,
        load_s=load_s_mb * memory_b / MB,
        memory_b=memory_b,
        input_mb=_input_mb(form),
        accuracy=np.array([BASE + np.dot(GAIN, np.take(WIDTHS, row)) for row in TUPLES]),
        buckets=buckets,
        idle_w=idle_w,
        busy_w=busy_w,
        hand_over_s=hand_over_s,
        source=f"modelled at {flop_per_s:g} FLOP/s; accuracy from published tables",
    )


def _each(form: Form, count: Callable[[Form, int, int, int], int]) -> Array:
    """(segment, before, width) of what `count` says."""
    found = np.empty((SEGMENTS, len(WIDTHS), len(WIDTHS)))
    for segment, before, width in np.ndindex(*found.shape):
        found[segment, before, width] = count(form, segment, before if segment else width, width)
    return found


def _input_mb(form: Form) -> Array:
    sides = {layer.segment: layer.side for layer in layers(form)}
    found = np.empty((SEGMENTS, len(WIDTHS)))
    for segment, before in np.ndindex(*found.shape):
        if segment:
            values = channels_at(form, segment - 1, before) * sides[segment - 1] ** 2
        else:
            values = COLOURS * form.side**2
        found[segment, before] = FLOAT_B * values / MB
    return found


def measured(
    segments: Runs,
    buckets: Sequence[int] = BUCKETS,
    repeats: int = 5,
    clock: Callable[[], float] = perf_counter,
    *,
    accuracy: Array,
    idle_w: float = 0.0,
    busy_w: float = 0.0,
) -> ServeProfile:
    """Time every segment at every batch size: the median of `repeats` rounds, each over all of
    them, so that a slow spell falls on all alike. Power is what you say: 0 = unknown.
    """
    if repeats < 1:
        raise ServeError(f"repeats={repeats}: give 1 or more")
    _check_buckets(buckets)
    keys = [key for key in np.ndindex(SEGMENTS, len(WIDTHS), len(WIDTHS)) if key[0] or not key[1]]
    load_s, memory_b, input_mb = _loads(segments, keys, clock)
    time_s = _rounds(segments, keys, buckets, repeats, clock)
    for table in (load_s, memory_b, time_s, input_mb):
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
        hand_over_s=_copy_s(repeats, clock),
        source=f"median of {repeats} interleaved rounds; hand-over is a copy in memory",
        measured=True,
        machine=_machine(),
    )


def _loads(
    segments: Runs, keys: Sequence[tuple[int, ...]], clock: Callable[[], float]
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
    return load_s, memory_b, input_mb


def _machine() -> dict[str, Any]:
    return {
        "system": platform.platform(terse=True),
        "processor": platform.machine(),
        "cores": os.cpu_count() or 0,
    }


def _rounds(
    segments: Runs,
    keys: Sequence[tuple[int, ...]],
    buckets: Sequence[int],
    repeats: int,
    clock: Callable[[], float],
) -> Array:
    shape = (repeats + 1, SEGMENTS, len(WIDTHS), len(WIDTHS), len(buckets))
    found = np.zeros(shape)
    for turn in range(repeats + 1):  # the first warms caches up and is left out
        for segment, before, width in keys:
            for at, count in enumerate(buckets):
                x = np.zeros((count, *segments.takes(segment, before)), np.float32)
                began_s = clock()
                segments.run(segment, before, width, x)
                found[turn, segment, before, width, at] = clock() - began_s
    return np.asarray(np.median(found[1:], axis=0))


def _copy_s(repeats: int, clock: Callable[[], float]) -> float:
    """Seconds to copy a megabyte out and in: the least that any hand-over costs."""
    given = np.ones(int(MB), np.uint8)
    found = []
    for _ in range(repeats):
        began_s = clock()
        np.frombuffer(given.tobytes(), np.uint8).copy()
        found.append(clock() - began_s)
    return float(np.median(found))


ARRAYS = tuple(item.name for item in fields(ServeProfile) if item.type == "Array")


def save(profile: ServeProfile, path: str | Path) -> None:
    """Write a profile as .npz: its arrays, and the rest as JSON."""
    facts = {
        item.name: getattr(profile, item.name)
        for item in fields(profile)
        if item.name not in ARRAYS
    }
    held: Any = {name: getattr(profile, name) for name in ARRAYS}
    held[FACTS] = np.array(json.dumps(facts))
    with open(path, "wb") as file:
        np.savez_compressed(file, **held)


def load(path: str | Path) -> ServeProfile:
    """Read what `save` wrote."""
    try:
        with np.load(path, allow_pickle=False) as held:
            facts = json.loads(str(held[FACTS]))
            arrays = {name: held[name] for name in ARRAYS}
        facts["buckets"] = tuple(facts["buckets"])
        return ServeProfile(**arrays, **facts)
    except FileNotFoundError:
        raise ServeError(f"{path}: no such profile; measure one first") from None
    except BROKEN as wrong:
        raise ServeError(f"{path}: not a profile ({wrong}); measure it again") from None
    except ServeError as wrong:
        raise ServeError(f"{path}: {wrong}") from None
