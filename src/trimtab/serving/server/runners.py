"""The fastest way to run each segment at each batch size, found by measuring and kept in a file.

What helps a narrow segment hurts a wide one: blocked channels, torch or a captured graph each win
somewhere. `tuned` tries the ways in turns and remembers their times under the weights' digest, the
device and the libraries' versions, so that the next start measures nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.errors import ServeError
from trimtab.files import write_whole
from trimtab.serving.net.segments import Segments, checked_key
from trimtab.serving.net.serve_profile import (
    BUCKETS,
    ServeProfile,
    batch_s,
    check_buckets,
    processor_name,
)
from trimtab.serving.net.slim_weights import Weights
from trimtab.serving.nouns import SEGMENTS, WIDTHS

Key = tuple[int, int, int]  # segment, width before, width
# name: onnxruntime's level, or what `torch_segments.Way` is given
WAYS: dict[str, str | dict[str, bool]] = {
    "onnx": "ALL",
    "onnx-extended": "EXTENDED",
    "torch": {},
    "torch-last": {"last": True},
    "torch-half": {"half": True},
    "torch-compile": {"compiled": True},
    "graph": {"graph": True},
    "graph-half": {"graph": True, "half": True},
    "graph-half-last": {"graph": True, "half": True, "last": True},
}
# The first is the one to beat. torch costs a CPU server 200 MB and wins a tenth on large batches
# of wide segments, so it is there when asked for.
ON_CPU = ("onnx", "onnx-extended")
ON_GPU = ("torch", "graph", "graph-half", "graph-half-last")
MARGIN = 0.03  # by which another way must beat the first: less is noise
FORMAT = "trimtab runners 1"
GPU_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128)
BROKEN = (OSError, ValueError, KeyError, TypeError)  # what a foreign or damaged cache raises


class Tuning(NamedTuple):
    """Seconds of every way at every segment and batch size; inf = it cannot run that."""

    ways: tuple[str, ...]
    buckets: tuple[int, ...]
    time_s: Array  # (way, segment, before, width, bucket); the first segment's rows repeat
    cached: bool = False  # read from a file, not measured now


class Runners:
    """Runs segments, each batch in the way that is fastest for it; the interface of `Segments`.

    On a GPU an array that comes leaves as an array, and what `resident` gave stays on the device.
    """

    def __init__(self, tuning: Tuning, made: dict[str, Any]) -> None:
        self.tuning, self.engines = tuning, made
        self._first = made[tuning.ways[0]]
        self._chosen: dict[tuple[int, ...], str] = {}

    def run(self, segment: int, before: int, width: int, x: Any) -> Any:
        """A segment's output for a batch, as `Segments.run`."""
        key = checked_key(segment, before, width)
        return self.engines[self.way_of(*key, len(x))].run(*key, x)

    def through(self, segment: int, before: int, widths: Sequence[int], x: Array) -> Array:
        """The output after `segment` and those that follow it, at these widths; what is handed
        from one to the next stays on the device.
        """
        held: Any = self.resident(x)
        for after, width in enumerate(widths):
            key = checked_key(segment + after, before, width)
            held = self.engines[self.way_of(*key, len(x))].begun(*key, held)
            before = width
        return self.fetched(held)

    def way_of(self, segment: int, before: int, width: int, count: int) -> str:
        """The name of the way that a batch of `count` takes."""
        cell = (segment, before, width, count)
        if cell not in self._chosen:
            self._chosen[cell] = fastest(self.tuning, *cell)
        return self._chosen[cell]

    def ways_of(self, segment: int, before: int, width: int) -> list[str]:
        """The ways that a segment takes at the buckets, each once."""
        found = (self.way_of(segment, before, width, count) for count in self.tuning.buckets)
        return list(dict.fromkeys(found))

    def load(self, segment: int, before: int, width: int) -> None:
        """Load a segment in every way that it takes, and capture its graphs."""
        key = checked_key(segment, before, width)
        for count in self.tuning.buckets:
            way = self.way_of(*key, count)
            self.engines[way].load(*key)
            if has_graph(way):
                x = np.zeros((count, *self.takes(segment, before)), np.float32)
                self.engines[way].run(*key, x)

    def unload(self, segment: int, before: int, width: int) -> bool:
        """Forget a segment. Returns whether it was loaded."""
        key = checked_key(segment, before, width)
        return any([engine.unload(*key) for engine in self.engines.values()])

    @property
    def loaded(self) -> tuple[Key, ...]:
        """(segment, width before, width) of what is loaded in any way."""
        return tuple(
            dict.fromkeys(key for engine in self.engines.values() for key in engine.loaded)
        )

    def bytes_of(self, segment: int, before: int, width: int) -> int:
        """Memory of a segment's weights, a copy for every way that it takes."""
        key = checked_key(segment, before, width)
        return sum(self.engines[way].bytes_of(*key) for way in self.ways_of(*key))

    def takes(self, segment: int, before: int) -> tuple[int, int, int]:
        """(channels, side, side) of what a segment is given."""
        found: tuple[int, int, int] = self._first.takes(segment, before)
        return found

    def resident(self, x: Array) -> Any:
        """A batch where the device computes, as one segment hands it to the next."""
        return self._first.resident(x)

    def stack(self, rows: Sequence[Any]) -> Any:
        """One batch of several; all are arrays, or all are resident."""
        return self._first.stack(rows)

    def fetched(self, x: Any) -> Array:
        """A batch as an array in the host's memory."""
        found: Array = self._first.fetched(x)
        return found

    @property
    def device(self) -> str:
        """The product's name of a GPU, or cpu."""
        return device_name(self.engines)


def has_graph(way: str) -> bool:
    asked = WAYS[way]
    return isinstance(asked, dict) and asked.get("graph", False)


def fastest(tuning: Tuning, segment: int, before: int, width: int, count: int) -> str:
    """The way with the least time for a batch: a graph pays for the bucket that it is padded to."""
    buckets = np.asarray(tuning.buckets, np.int64)
    padded = int(buckets[min(int(np.searchsorted(buckets, count)), len(buckets) - 1)])
    best, best_s = tuning.ways[0], np.inf
    for at, way in enumerate(tuning.ways):
        rows = max(count, padded) if has_graph(way) else count
        needed_s = batch_s(tuning.time_s[at], buckets, segment, before, width, rows)
        if at == 0:
            needed_s *= 1 - MARGIN
        if needed_s < best_s:
            best, best_s = way, needed_s
    return best


def engines(
    weights: Weights, ways: Sequence[str], device: str, threads: int, buckets: Sequence[int]
) -> dict[str, Any]:
    """What runs each way; torch is imported where one of them needs it."""
    if unknown := [way for way in ways if way not in WAYS]:
        raise ServeError(f"way {unknown[0]!r} is unknown; give some of {', '.join(WAYS)}")
    if threads < 1:
        raise ServeError(f"threads={threads}: give 1 or more")
    on_cpu = device == "cpu"
    if wrong := [way for way in ways if (has_graph(way) if on_cpu else way.startswith("onnx"))]:
        raise ServeError(f"way {wrong[0]!r} does not run on device={device!r}; leave it out")
    made: dict[str, Any] = {}
    shared: Any = None
    for name in ways:
        asked = WAYS[name]
        if isinstance(asked, str):
            made[name] = Segments(weights, threads, asked)
            continue
        torch_segments = _torch_segments()
        if shared is None:
            half = any("half" in way for way in ways)
            shared = torch_segments.Device(device, buckets, threads, half)
        made[name] = torch_segments.TorchSegments(weights, torch_segments.Way(**asked), shared)
    return made


def _torch_segments() -> Any:
    try:
        from trimtab.serving.net import torch_segments
    except ModuleNotFoundError as missing:
        raise ServeError(
            "this way or device needs torch, which is not installed; pip install 'trimtab[train]'"
        ) from missing
    return torch_segments


def tuned(
    weights: Weights,
    device: str = "cpu",
    *,
    ways: Sequence[str] | None = None,
    buckets: Sequence[int] | None = None,
    threads: int = 1,
    rounds: int = 3,
    cache: str | Path | None = None,
    clock: Callable[[], float] = perf_counter,
    told: Callable[[str, int], object] = lambda name, done: None,
) -> Runners:
    """Runners with the fastest way a segment and batch size: measured, or read from a file of the
    folder `cache`. `told` hears (what, segments done) of `len(keys())`.
    """
    ways = tuple(dict.fromkeys(ways or (ON_CPU if device == "cpu" else ON_GPU)))
    buckets = tuple(buckets or (BUCKETS if device == "cpu" else GPU_BUCKETS))
    check_buckets(buckets)
    if rounds < 1:
        raise ServeError(f"rounds={rounds}: give 1 or more")
    made = engines(weights, ways, device, threads, buckets)
    about = identity(weights, made, threads, buckets)
    file = None if cache is None else cache_file(cache, about)
    found = None if file is None else read_cache(file, about)
    if found is None:
        if len(ways) == 1:  # nothing to choose
            time_s = np.ones((1, SEGMENTS, len(WIDTHS), len(WIDTHS), len(buckets)))
        else:
            time_s = _timed(made, buckets, rounds, clock, told)
        found = Tuning(ways, buckets, time_s)
        if file is not None:
            write_cache(file, about, found)
    return Runners(found, made)


def as_measured(profile: ServeProfile) -> Tuning:
    """The ways that a profile was measured in; ranks stand for times."""
    names, counts = np.unique(profile.way, return_counts=True)
    ways = tuple(str(name) for name in names[np.argsort(-counts)])
    time_s = [np.where(profile.way == way, 1.0, 2.0) for way in ways]
    return Tuning(ways, profile.buckets, np.array(time_s), cached=True)


def is_of(profile: ServeProfile, device: str) -> bool:
    """Whether a profile was measured in known ways on this kind of device."""
    machine = profile.machine
    if not profile.way.size or not set(profile.way.ravel().tolist()) <= set(WAYS):
        return False
    if device == "cpu":
        return machine.get("device") == "cpu" and machine.get("processor") == processor_name()
    return bool(machine.get("device") == _torch_segments().Device(device).name)


def keys() -> list[Key]:
    """Every segment that differs from the others: the first has no width before it."""
    widths = range(len(WIDTHS))
    return [
        checked_key(segment, before, width)
        for segment in range(SEGMENTS)
        for before in (widths if segment else (0,))
        for width in widths
    ]


def _timed(
    made: dict[str, Any],
    buckets: Sequence[int],
    rounds: int,
    clock: Callable[[], float],
    told: Callable[[str, int], object],
) -> Array:
    """Time all ways in turns, a segment at a time, and unload it before the next."""
    widths = len(WIDTHS)
    time_s = np.full((len(made), SEGMENTS, widths, widths, len(buckets)), np.inf)
    for segment, before, width in keys():
        told(f"segment {segment} width {WIDTHS[width]:g}", 0)
        found = np.full((rounds, len(made), len(buckets)), np.inf)
        for turn, at, count in _turns(rounds, buckets):
            x = np.zeros((count, *next(iter(made.values())).takes(segment, before)), np.float32)
            for row, engine in enumerate(made.values()):
                found[turn, row, at] = _one_s(engine, (segment, before, width), x, turn, clock)
        for engine in made.values():
            engine.unload(segment, before, width)
        befores = slice(None) if segment == 0 else before
        median_s = np.median(found, axis=0)  # (way, bucket)
        time_s[:, segment, befores, width] = median_s[:, None] if segment == 0 else median_s
        told("", 1)
    return time_s


def _turns(rounds: int, buckets: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """(round, place of the bucket, batch size)."""
    for turn in range(rounds):
        for at, count in enumerate(buckets):
            yield turn, at, count


def _one_s(engine: Any, key: Key, x: Array, turn: int, clock: Callable[[], float]) -> float:
    """Seconds of one batch; inf where this way cannot run it, such as for want of memory."""
    try:
        given = engine.resident(x)
        if turn == 0:
            engine.run(*key, given)  # loads, captures and warms up
        began_s = clock()
        engine.run(*key, given)
        return clock() - began_s
    except RuntimeError:
        return float("inf")


def device_name(made: dict[str, Any]) -> str:
    """The product's name of a GPU, or cpu."""
    engine = next(iter(made.values()))
    return "cpu" if isinstance(engine, Segments) else str(engine.device.name)


def identity(
    weights: Weights,
    made: dict[str, Any],
    threads: int,
    buckets: Sequence[int],
) -> dict[str, Any]:
    """All that times depend on: another of any of these makes them worthless."""
    hashed = hashlib.sha256(repr(weights.form).encode())
    for name in sorted(weights.arrays):
        hashed.update(name.encode() + np.ascontiguousarray(weights.arrays[name]).tobytes())
    packages = {"numpy", "onnxruntime" if any("onnx" in way for way in made) else "torch"}
    if any("onnx" not in way for way in made):
        packages.add("torch")
    return {
        "format": FORMAT,
        "weights": hashed.hexdigest(),
        "device": device_name(made),
        "processor": processor_name(),
        "versions": {name: _version(name) for name in sorted(packages)},
        "threads": threads,
        "ways": list(made),
        "buckets": list(buckets),
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"


def cache_folder() -> Path:
    """Where tunings are kept by default."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trimtab"


def cache_file(folder: str | Path, about: dict[str, Any]) -> Path:
    """The file of these weights on this device."""
    named = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:16]
    return Path(folder).expanduser() / f"runners-{named}.json"


def read_cache(file: Path, about: dict[str, Any]) -> Tuning | None:
    """The times in a file, or None where it is missing, damaged or of something else."""
    try:
        held = json.loads(file.read_text())
        if held["about"] != about:
            return None
        time_s = np.array(held["time_s"], float)  # a null, inf when written, becomes NaN
    except BROKEN:
        return None
    shape = (len(about["ways"]), SEGMENTS, len(WIDTHS), len(WIDTHS), len(about["buckets"]))
    time_s = np.where(np.isnan(time_s), np.inf, time_s)
    if time_s.shape != shape or not (time_s > 0).all():
        return None
    return Tuning(tuple(about["ways"]), tuple(about["buckets"]), time_s, cached=True)


def write_cache(file: Path, about: dict[str, Any], tuning: Tuning) -> None:
    """Keep the times, whole or not at all; a folder that cannot be written to costs only time."""
    flat = tuning.time_s.astype(object)
    flat[~np.isfinite(tuning.time_s)] = None  # JSON has no infinity
    with suppress(OSError):
        write_whole(file, json.dumps({"about": about, "time_s": flat.tolist()}))
