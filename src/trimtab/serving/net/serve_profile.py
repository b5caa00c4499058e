"""What a batch of one segment costs on one machine: time, memory and power, measured or modelled.

The greedy executor, the simulated fleet and the routers all read the same tables. A segment is
known by (segment, width before, width); the first has no width before it and its rows repeat.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from trimtab.arrays import Array
from trimtab.compiled import compiled
from trimtab.errors import ServeError
from trimtab.serving.net.packed import read_packed, refusing, write_packed
from trimtab.serving.net.slim_form import (
    COLOURS,
    Form,
    channels_at,
    layers,
    segment_macs,
    segment_parameters,
)
from trimtab.serving.nouns import SEGMENTS, TUPLES, WIDTHS

BUCKETS = (1, 2, 4, 8, 16, 32, 64)
FORMAT = "trimtab serve profile 1"
FLOAT_B = 4
SHIPPED = {name: Path(__file__).with_name(f"{name}.npz") for name in ("cpu", "h200")}
MB = 1e6  # bytes
# share of images right = BASE + GAIN . widths: a line through the eight tuples published for
# CIFAR-100 (Slim Scheduler, tables I and II), right to about half a point
BASE, GAIN = 0.6825, (-0.004, 0.014, 0.027, 0.045)


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
    # of the rounds measured, like time_s: the time that 9 of 10 stayed below, and the way that was
    # run; empty where not measured
    slow_s: Array = field(default_factory=lambda: np.zeros(0))
    way: Array = field(default_factory=lambda: np.zeros(0, "U1"))

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
        for name in ("slow_s", "way"):
            array = np.asarray(getattr(self, name))
            object.__setattr__(self, name, array)
            if array.size and array.shape != wanted["time_s"]:
                raise ServeError(
                    f"profile: {name} has shape {array.shape}; give {wanted['time_s']} or nothing"
                )
        if (self.accuracy > 1).any():
            raise ServeError("profile: accuracy is above 1; give shares of 0..1, not percent")
        if (self.time_s <= 0).any():
            raise ServeError("profile: time_s holds a 0; measure with a finer clock")
        check_buckets(self.buckets)
        if not 0 <= self.idle_w <= self.busy_w < np.inf or not 0 <= self.hand_over_s < np.inf:
            raise ServeError(
                f"profile: idle_w={self.idle_w}, busy_w={self.busy_w}, hand_over_s="
                f"{self.hand_over_s}; give 0 <= idle_w <= busy_w and hand_over_s >= 0"
            )


def check_buckets(buckets: Sequence[int]) -> None:
    """Refuse batch sizes that times cannot be interpolated between."""
    if len(buckets) < 2 or buckets[0] != 1 or any(np.diff(buckets) <= 0):
        raise ServeError(f"buckets={tuple(buckets)}: give rising batch sizes, the first of them 1")


@compiled
def batch_s(
    time_s: Array, buckets: Array, segment: int, before: int, width: int, count: int
) -> Any:
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


def processor_name() -> str:
    """The processor's model, or its kind where the system does not tell."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


ARRAYS = tuple(item.name for item in fields(ServeProfile) if item.type == "Array")


def save(profile: ServeProfile, path: str | Path) -> None:
    """Write a profile as .npz: its arrays, and the rest as JSON."""
    facts = {
        item.name: getattr(profile, item.name)
        for item in fields(profile)
        if item.name not in ARRAYS
    }
    write_packed(path, FORMAT, {name: getattr(profile, name) for name in ARRAYS}, facts)


def path_of(name: str) -> Path:
    """The file of a shipped profile by its name, or any other by its path."""
    return SHIPPED.get(name) or Path(name).absolute()


def shipped_for(device: str) -> str:
    """The shipped profile for servers of a device, where nobody measured one."""
    return "cpu" if device == "cpu" else "h200"


def load(path: str | Path) -> ServeProfile:
    """Read what `save` wrote, or a shipped profile by its name."""
    path = path_of(str(path))
    with refusing(path, "a profile", "measure one with `trimtab serve profile`"):
        arrays, facts = read_packed(path, FORMAT)
        facts["buckets"] = tuple(facts["buckets"])
        whole: dict[str, Any] = {**arrays, **facts}
        return ServeProfile(**whole)
