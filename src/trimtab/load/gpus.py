"""What GPUs are measured to do, and how much of it a scheduler may believe.

    watch = GpuWatch(gpu_names(cluster), models=cluster.kinds)
    watch.poll("nvml", read_nvml, now_s)                # or dcgm.read_dcgm, or anything alike
    seen = watch.seen(now_s)                            # (G, 4) values and a mask of them

A sensor that is dead, stuck or absurd, a GPU that is gone and an exporter that does not answer are
masked and counted by reason. None of them is a zero, and none of them stops the scheduler.
"""

import difflib
import platform
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pynvml

from trimtab.arrays import Array
from trimtab.core import Cluster
from trimtab.load.samples import Samples

CHANNELS = ("util", "mem", "temp_c", "power_w")
MEASURES = (*CHANNELS, "mem_bandwidth")
# A GPU shuts down near 100 C and the largest modules draw 1,200 W. DCGM writes 2**63 - 14 and the
# like for a blank, which lies far outside too.
RANGE = {
    "util": (0.0, 1.0),
    "mem": (0.0, 1.0),
    "temp_c": (-20.0, 125.0),
    "power_w": (0.0, 2000.0),
    "mem_bandwidth": (0.0, 1.0),
}
LOW, HIGH = (np.array([RANGE[name][end] for name in MEASURES]) for end in (0, 1))
UTIL, POWER = MEASURES.index("util"), MEASURES.index("power_w")
# Not memory, of which a job that trains holds the same for hours while its power swings, nor its
# bandwidth, of which a kernel that stays in the cache uses none.
JUDGED = np.isin(MEASURES, ("util", "temp_c", "power_w"))
STUCK_AFTER = 10  # samples of one value at each of two powers far apart
POWER_SWING = 0.5  # of the larger of two powers: less may leave a temperature as it is
POWER_SWING_W = 50.0  # at least: a GPU that a process opens wakes up and draws more, unused
UTIL_SWING = 0.5  # what a power is judged by
SET_BACK_AFTER = 5  # samples in a row on an earlier time: the clock was set, and is believed
GPU_PAST = np.dtype(
    [
        ("time_s", "f8"),  # of the newest sample
        ("back_s", "f8"),  # of the newest on an earlier time than that
        ("back", "i8"),  # such samples in a row
        ("value", "f8", len(MEASURES)),  # the newest
        ("base", "f8", len(MEASURES)),  # power, or for power use, when that value came
        ("near", "i8", len(MEASURES)),  # samples since then that are near the base
        ("far", "i8", len(MEASURES)),  # and those that are not
    ]
)


class GpuSamples(NamedTuple):
    """Measurements of GPUs as columns, in order of arrival. NaN = not measured, never a zero."""

    time_s: Array  # (S,)
    gpu: Array  # (S,) row of `names`
    util: Array  # (S,) share of time in which a kernel ran
    mem: Array  # (S,) share of the GPU's memory
    temp_c: Array  # (S,)
    power_w: Array  # (S,)
    mem_bandwidth: Array  # (S,) share of time in which memory was read or written
    names: tuple[str, ...]  # of the GPUs: host/index
    models: tuple[str, ...] = ()  # of the GPUs, "" = not told
    source: str = "made by hand"


class GpuView(NamedTuple):
    """What a scheduler sees of its GPUs at a moment."""

    value: Array  # (G, 4) CHANNELS; NaN where masked
    mask: Array  # (G, 4) 1 = fresh and believed


def gpu_samples(
    rows: Sequence[Mapping[str, float]],
    names: Sequence[str],
    time_s: Any,
    *,
    models: Sequence[str] = (),
    source: str = "made by hand",
) -> GpuSamples:
    """One row a GPU, from a table of those measures that each has."""
    columns = {name: np.array([row.get(name, np.nan) for row in rows], float) for name in MEASURES}
    return GpuSamples(
        np.broadcast_to(np.asarray(time_s, np.float64), len(rows)).copy(),
        np.arange(len(rows)),
        **columns,
        names=tuple(names),
        models=tuple(models),
        source=source,
    )


def gpu_names(cluster: Cluster) -> tuple[str, ...]:
    """host/index of every GPU, in the order of the nodes."""
    devices = cluster.nodes["gpus"]
    return tuple(f"{cluster.name(n)}/{d}" for n in range(len(cluster)) for d in range(devices[n]))


def read_nvml(now_s: float, host: str = "") -> GpuSamples:
    """One sample of every NVIDIA GPU of this machine; none where there is no GPU or driver."""
    host = host or platform.node() or "localhost"
    rows, names, models = [], [], []
    with suppress(pynvml.NVMLError):
        pynvml.nvmlInit()
        try:
            for index in range(pynvml.nvmlDeviceGetCount()):
                row, model = _nvml_row(index)
                rows.append(row)
                names.append(f"{host}/{index}")
                models.append(model)
        finally:
            pynvml.nvmlShutdown()
    return gpu_samples(rows, names, now_s, models=models, source=f"NVML on {host}")


def _nvml_row(index: int) -> tuple[dict[str, float], str]:
    """What a GPU answers; one that fell off the bus answers nothing, one in slices no util."""
    row: dict[str, float] = {}
    model = ""
    with suppress(pynvml.NVMLError):
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        name = pynvml.nvmlDeviceGetName(handle)
        model = name.decode() if isinstance(name, bytes) else name
        with suppress(pynvml.NVMLError):
            share = pynvml.nvmlDeviceGetUtilizationRates(handle)
            row |= {"util": share.gpu / 100, "mem_bandwidth": share.memory / 100}
        with suppress(pynvml.NVMLError):
            memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
            row["mem"] = memory.used / memory.total
        with suppress(pynvml.NVMLError):
            sensor = pynvml.NVML_TEMPERATURE_GPU
            row["temp_c"] = float(pynvml.nvmlDeviceGetTemperature(handle, sensor))
        with suppress(pynvml.NVMLError):
            row["power_w"] = pynvml.nvmlDeviceGetPowerUsage(handle) / 1000
    return row, model


def replayed(samples: Samples, gpus: int = 1) -> GpuSamples:
    """Load of machines as that of their GPUs, of which each machine has so many.

    Such samples hold the mean use over a machine's GPUs and no other measure of them.
    """
    rows = np.repeat(np.arange(len(samples.time_s)), gpus)
    device = np.tile(np.arange(gpus), len(samples.time_s))
    measured: dict[str, Any] = {name: np.full(len(rows), np.nan) for name in MEASURES[1:]}
    return GpuSamples(
        np.asarray(samples.time_s, np.float64)[rows],
        np.asarray(samples.node, np.int64)[rows] * gpus + device,
        np.asarray(samples.gpu, np.float64)[rows],
        **measured,
        names=tuple(f"{name}/{d}" for name in samples.names for d in range(gpus)),
        source=samples.source,
    )


def between(samples: GpuSamples, start_s: float, end_s: float) -> GpuSamples:
    """The samples of [start_s, end_s), for a replay beat by beat."""
    kept = (samples.time_s >= start_s) & (samples.time_s < end_s)
    return _only(samples, np.flatnonzero(kept))


def _only(samples: GpuSamples, rows: Array) -> GpuSamples:
    return samples._replace(
        **{name: getattr(samples, name)[rows] for name in ("time_s", "gpu", *MEASURES)}
    )


class Past:
    """What earlier samples of one source said, a row a GPU; grows with the names it meets."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        self.row: dict[str, int] = {}  # of a GPU's name
        self.gpus = np.zeros(0, GPU_PAST)  # (G,)
        self.rows_of(names)

    def rows_of(self, names: Sequence[str]) -> Array:
        """Rows of these GPUs, new ones at the end."""
        for name in names:
            self.row.setdefault(name, len(self.row))
        new = np.zeros(len(self.row) - len(self.gpus), GPU_PAST)
        new["time_s"] = new["back_s"] = -np.inf
        new["value"] = new["base"] = np.nan
        self.gpus = np.append(self.gpus, new)
        return np.array([self.row[name] for name in names], np.int64)


def checked(
    samples: GpuSamples, last: Past, stuck_after: int = STUCK_AFTER
) -> tuple[GpuSamples, Counter[str]]:
    """The samples with what cannot be believed as NaN, and how often for which reason.

    A sample on the time of its GPU's last one or before is dropped, until so many come in a row
    that the clock was set. Every GPU that `last` knows and this batch lacks has a masked row at the
    batch's newest time. `last` is brought up to date.
    """
    warnings: Counter[str] = Counter()
    row = last.rows_of(samples.names)[np.asarray(samples.gpu, np.int64)]
    time_s = np.asarray(samples.time_s, np.float64)
    value = np.stack([np.asarray(getattr(samples, name), float) for name in MEASURES], axis=1)
    warnings += _count("not measured", np.isnan(value))
    absurd = (value < LOW) | (value > HIGH)
    value[absurd] = np.nan
    warnings += _count("out of range", absurd)
    keep = np.zeros(len(row), bool)
    stuck = np.zeros(value.shape, bool)
    for turn in _turns(row):
        turn = turn[_on_time(last, row[turn], time_s[turn], warnings)]
        keep[turn] = True
        stuck[turn] = _stuck(last, row[turn], value[turn], stuck_after)
    warnings += _count("stuck", stuck)
    value[stuck] = np.nan
    gone = np.setdiff1d(np.arange(len(last.row)), row)
    warnings["GPU missing"] += len(gone)
    return _rebuilt(samples, last, (time_s[keep], row[keep], value[keep]), gone), +warnings


def _turns(row: Array) -> Iterator[Array]:
    """Samples such that each GPU has at most one in a turn, its first in the first turn."""
    order = np.argsort(row, kind="stable")
    nth = np.arange(len(row)) - np.searchsorted(row[order], row[order])
    in_turn = order[np.argsort(nth, kind="stable")]
    yield from np.split(in_turn, np.cumsum(np.bincount(nth))[:-1]) if len(row) else ()


def _on_time(last: Past, row: Array, time_s: Array, warnings: Counter[str]) -> Array:
    """Which samples come after their GPU's last one; the times of those become the last."""
    past = last.gpus
    timeless = ~np.isfinite(time_s)
    later = (time_s > past["time_s"][row]) & ~timeless
    onward = time_s > past["back_s"][row]
    twice = time_s == past["time_s"][row]
    early = ~later & ~timeless & ~twice
    past["back"][row] = np.where(early, np.where(onward, past["back"][row] + 1, 1), 0)
    past["back_s"][row] = np.where(early, time_s, -np.inf)
    set_back = early & (past["back"][row] >= SET_BACK_AFTER)
    for reason, bad in (
        ("no time", timeless),
        ("time seen twice", twice),
        ("clock went back", early & ~set_back),
        ("clock was set back", set_back),
    ):
        warnings[reason] += int(bad.sum())
    good = later | set_back
    past["back"][row[set_back]] = 0
    past["time_s"][row[good]] = time_s[good]
    return good


def _stuck(last: Past, row: Array, value: Array, stuck_after: int) -> Array:
    """(n, M) values that stayed as they were in spite of a power, or for power a use, that did not.

    Both powers must be seen often. A burst is over in a sample or two, a GPU that begins to work is
    soon warmer, and power, a mean over the last second, is late. Use that stays at 1 is sound at
    any power.
    """
    past = last.gpus
    witness = np.repeat(value[:, POWER, None], len(MEASURES), axis=1)
    witness[:, POWER] = value[:, UTIL]
    same = value == past["value"][row]
    base = np.where(same & ~np.isnan(past["base"][row]), past["base"][row], witness)
    swing = np.abs(witness - base)
    enough = np.maximum(POWER_SWING * np.maximum(witness, base), POWER_SWING_W)
    enough[:, POWER] = UTIL_SWING
    past["value"][row], past["base"][row] = value, base
    past["near"][row] = np.where(same, past["near"][row], 0) + (swing < enough)
    past["far"][row] = np.where(same, past["far"][row], 0) + (swing >= enough)
    often = np.minimum(past["near"][row], past["far"][row]) >= stuck_after
    full = np.zeros(value.shape, bool)
    full[:, UTIL] = value[:, UTIL] >= 1.0
    return often & JUDGED & ~full


def _count(reason: str, bad: Array) -> Counter[str]:
    """How often each channel has a fault; few sources measure bandwidth, so its lack is none."""
    counts = zip(MEASURES, bad.sum(axis=0).tolist())
    skip = "mem_bandwidth" if reason == "not measured" else ""
    return Counter({f"{name}: {reason}": n for name, n in counts if n and name != skip})


def _rebuilt(
    samples: GpuSamples, last: Past, kept: tuple[Array, Array, Array], gone: Array
) -> GpuSamples:
    """Samples whose rows are those of `last`, with a masked row for each GPU that is gone."""
    time_s, row, value = kept
    newest_s = np.max(time_s) if len(time_s) else np.nan
    table = np.vstack((value, np.full((len(gone), len(MEASURES)), np.nan)))
    told = dict(zip(samples.names, samples.models))
    columns: dict[str, Any] = {name: table[:, m] for m, name in enumerate(MEASURES)}
    return samples._replace(
        time_s=np.append(time_s, np.full(len(gone), newest_s)),
        gpu=np.append(row, gone),
        **columns,
        names=tuple(last.row),
        models=tuple(told.get(name, "") for name in last.row),
    )


class GpuWatch:
    """The newest believed measurements of a cluster's GPUs, from any number of sources.

    `names` are the GPUs in the scheduler's order, `models` the GPU kinds that the cluster file
    knows (none = any), `known_as` tells what a source's own name of a GPU or a model is there. What
    is older than `fresh_s` is masked. `warnings` counts by reason, `said` holds the last error of
    each source that fails.
    """

    def __init__(
        self,
        names: Sequence[str],
        *,
        models: Sequence[str] = (),
        known_as: Mapping[str, str] = MappingProxyType({}),
        fresh_s: float = 60.0,
        stuck_after: int = STUCK_AFTER,
    ) -> None:
        self.names = tuple(names)
        self.models = tuple(models)
        self.known_as = dict(known_as)
        self.fresh_s = fresh_s
        self.stuck_after = stuck_after
        self.warnings: Counter[str] = Counter()
        self.said: dict[str, str] = {}
        self._row = {name: row for row, name in enumerate(self.names)}
        self._time_s = np.full(len(self.names), -np.inf)  # (G,)
        self._value = np.full((len(self.names), len(CHANNELS)), np.nan)  # (G, 4)
        self._past: dict[str, Past] = {}
        self._warned: set[tuple[str, str]] = set()

    def poll(self, source: str, read: Callable[[float], GpuSamples], now_s: float) -> bool:
        """Ask a source and take what it says; whether it answered."""
        try:
            samples = read(now_s)
        except Exception as error:  # whatever a source raises, jobs are scheduled without it
            self.fail(source, str(error) or type(error).__name__)
            return False
        self.take(samples, source)
        self.said.pop(source, None)
        return True

    def fail(self, source: str, reason: str) -> None:
        """Mask the GPUs of a source that does not answer."""
        self.warnings[f"{source}: no answer"] += 1
        self.said[source] = reason
        rows = self._rows(tuple(self._past.setdefault(source, Past()).row))
        self._value[rows[rows >= 0]] = np.nan

    def take(self, samples: GpuSamples, source: str = "") -> None:
        """Check a batch of one source and keep the newest of each GPU."""
        past = self._past.setdefault(source, Past())
        good, warnings = checked(samples, past, self.stuck_after)
        self.warnings += warnings
        self._warn_of_models(good)
        row = self._rows(good.names)[good.gpu]
        good, row = _only(good, np.flatnonzero(row >= 0)), row[row >= 0]
        value = np.stack([getattr(good, name) for name in CHANNELS], axis=1)
        for turn in _turns(row):
            self._time_s[row[turn]] = good.time_s[turn]
            self._value[row[turn]] = value[turn]

    def seen(self, now_s: float) -> GpuView:
        """The channels of every GPU and the mask of those that are fresh and believed."""
        with np.errstate(invalid="ignore"):
            fresh = np.abs(now_s - self._time_s) <= self.fresh_s
        value = np.where(fresh[:, None], self._value, np.nan)
        return GpuView(value, (~np.isnan(value)).astype(np.float64))

    def _rows(self, names: Sequence[str]) -> Array:
        """Rows of a source's GPUs, -1 for those that the cluster has not, each warned of once."""
        for name in names:
            if self.known_as.get(name, name) not in self._row:
                self._warn("GPU", name, self.names)
        return np.array([self._row.get(self.known_as.get(n, n), -1) for n in names], np.int64)

    def _warn_of_models(self, samples: GpuSamples) -> None:
        for model in filter(None, dict.fromkeys(samples.models)):
            name = self.known_as.get(model, model)
            if self.models and not any(_is_a(name, known) for known in self.models):
                self._warn("GPU model", model, self.models)

    def _warn(self, what: str, name: str, known: Sequence[str]) -> None:
        if (what, name) in self._warned:
            return
        self._warned.add((what, name))
        near = difflib.get_close_matches(name.lower(), known, n=1)
        guess = f"; the nearest is {near[0]!r}" if near else ""
        self.warnings[f"{what} {name!r} is not in the cluster{guess}"] += 1


def _is_a(model: str, kind: str) -> bool:
    """Whether the words of a kind all stand in a model's name: a100 in NVIDIA A100-SXM4-80GB."""
    words, wanted = (set(re.findall(r"[a-z0-9]+", text.lower())) for text in (model, kind))
    return bool(wanted) and wanted <= words
