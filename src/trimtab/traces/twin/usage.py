"""Use of machines and containers, drawn with a diurnal shape; not derived from what runs there.

A machine's CPU is the cluster's (a profile by hour of day and a noise all machines share), its own
offset, a slow noise that is an AR(1) from hour to hour, and a fast one every 10 s. A tenth of a
minute is kept with probability 1/3: samples come about every 30 s, irregularly, at multiples of
10 s. A container is sampled every 300 s, each at its own phase.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from trimtab.compiled import compiled
from trimtab.traces.twin.columns import NORMAL, Chunk, Text, mixed, numbered
from trimtab.traces.twin.inventory import Inventory
from trimtab.traces.twin.plan import HOUR_S, Plan, seconds_of, stream

TICK_S = 10
KEPT_SHARE = 1 / 3
CONTAINER_STEP_S = 300
STEP_S = 300  # of the noise all machines share
# Cluster mean of CPU by hour of day, after the 8-day series; with the noise from 31 to 52 %.
CPU_BY_HOUR = np.array(
    [35.0, 38.5, 42.5, 46.5, 49.0, 51.0, 51.5, 49.5, 47.0, 44.5, 44.0, 43.0]
    + [41.0, 38.0, 36.0, 34.5, 35.0, 34.0, 34.0, 33.0, 33.0, 34.0, 34.0, 34.5]
)
SHARED_SD, SHARED_CORRELATION_S = 7.4, 1800.0  # percent of CPU
SHARED_SKEW = 0.1  # the cluster is far above its mean more often than far below
SHARED_RANGE = (16.0, 79.0)
MEM_MEAN, MEM_SD, MEM_RANGE, MEM_CORRELATION_S = 88.0, 2.5, (78.0, 95.0), 7200.0
OFFSET_SD = 6.0  # of a machine's mean CPU
SLOW_SD, SLOW_KEPT = 6.0, 0.7  # and what is left of a slow noise after an hour
FAST_SD, FAST_KEPT = 4.5, 0.9  # after a tick
MEM_OFFSET_SD, MEM_NOISE_SD = 3.0, 2.0
COUNTED_SHARE = 0.21  # of the samples with mem_gps and mkpi; the others miss them
CONTAINER_CPU_P50, CONTAINER_SIGMA = 6.0, 0.75
CONTAINER_COUNTED_SHARE = 0.33  # with cpi, mem_gps and mpki
MACHINES_A_CHUNK = 8000
CONTAINERS_A_CHUNK = 80_000


class Weather(NamedTuple):
    """What holds over the whole trace; P periods, N machines."""

    cpu: np.ndarray  # (steps + 1,) cluster mean in percent every STEP_S
    mem: np.ndarray  # (steps + 1,)
    offset: np.ndarray  # (N,) of a machine's CPU
    mem_offset: np.ndarray  # (N,)
    net: np.ndarray  # (N,)
    slow: np.ndarray  # (P + 1, N) at the start of each period


def weather(plan: Plan) -> Weather:
    """Draw what the hours share, from the first on: a longer trace starts alike."""
    rng = stream(plan, "weather")
    steps = plan.periods * HOUR_S // STEP_S + 1
    hour = np.arange(steps) * STEP_S / HOUR_S - 0.5  # a profile's hour is meant at its middle
    shape = np.interp(hour % 24, np.arange(25), np.append(CPU_BY_HOUR, CPU_BY_HOUR[0]))
    noise = _ar1(rng, steps, np.exp(-STEP_S / SHARED_CORRELATION_S))
    cpu = shape + SHARED_SD * (noise + SHARED_SKEW * (noise**2 - 1))
    mem = MEM_MEAN + MEM_SD * _ar1(rng, steps, np.exp(-STEP_S / MEM_CORRELATION_S))
    machines = plan.options.machines
    own = stream(plan, "weather", 1)
    offset = own.normal(0.0, OFFSET_SD, machines)
    return Weather(
        np.clip(cpu, *SHARED_RANGE),
        np.clip(mem, *MEM_RANGE),
        offset - offset.mean(),
        own.normal(0.0, MEM_OFFSET_SD, machines),
        np.clip(own.normal(38.0, 5.0, machines), 5, 80),
        SLOW_SD * _ar1(stream(plan, "weather", 2), plan.periods + 1, SLOW_KEPT, machines),
    )


def machine_chunks(plan: Plan, sky: Weather, period: int) -> Iterator[Chunk]:
    """Rows of machine_usage of an hour, machine by machine."""
    names = numbered("m_", 1 + np.arange(plan.options.machines))
    ticks = -(-seconds_of(plan.options, period) // TICK_S)
    for start in range(0, plan.options.machines, MACHINES_A_CHUNK):
        part = slice(start, start + MACHINES_A_CHUNK)
        rng = stream(plan, "machine_usage", period, start)
        kept = rng.random((len(sky.offset[part]), ticks)) < KEPT_SHARE  # (machines, ticks)
        machine, tick = np.nonzero(kept)
        time_s = period * HOUR_S + tick * TICK_S
        slow = _at(sky.slow[period : period + 2, part], machine, tick * TICK_S / HOUR_S)
        fast = np.empty(len(machine))
        _walk(np.uint64(rng.integers(0, 2**62)), kept, FAST_KEPT, NORMAL, fast)
        cpu = _shared(sky.cpu, time_s) + sky.offset[part][machine] + slow + FAST_SD * fast
        mem = _shared(sky.mem, time_s) + sky.mem_offset[part][machine]
        mem += MEM_NOISE_SD * rng.standard_normal(len(machine), np.float32)
        net = sky.net[part][machine] + time_s / 86400
        yield {
            "machine_id": Text((start + machine).astype(np.int32), names),
            "time_stamp": time_s.astype(float),
            "cpu_util_percent": _percent(cpu),
            "mem_util_percent": _percent(mem),
            **_counted(rng, len(machine), COUNTED_SHARE, "mkpi", 3.0),
            "net_in": np.round(np.minimum(net, 100), 2),
            "net_out": np.round(np.minimum(0.8 * net, 100), 2),
            "disk_io_percent": _percent(rng.lognormal(1.85, 0.6, len(machine))).astype(float),
        }


def container_chunks(plan: Plan, sky: Weather, stock: Inventory, period: int) -> Iterator[Chunk]:
    """Rows of container_usage of an hour, container by container."""
    own = stream(plan, "container_usage")
    count = len(stock.host)
    base = CONTAINER_CPU_P50 * own.lognormal(0.0, CONTAINER_SIGMA, count)
    base_mem = 100 * own.beta(6.0, 1.6, count)
    phase_s = TICK_S * own.integers(0, CONTAINER_STEP_S // TICK_S, count)
    names = numbered("c_", 1 + np.arange(count))
    machines = numbered("m_", 1 + np.arange(plan.options.machines))
    steps = -(-seconds_of(plan.options, period) // CONTAINER_STEP_S)
    for start in range(0, count, CONTAINERS_A_CHUNK):
        rng = stream(plan, "container_usage", period, start)
        one = np.repeat(np.arange(start, min(start + CONTAINERS_A_CHUNK, count)), steps)
        time_s = period * HOUR_S + np.arange(len(one)) % steps * CONTAINER_STEP_S + phase_s[one]
        rows = len(one)
        # services follow the day by half as much as the cluster, batch included, does
        day = np.sqrt(_shared(sky.cpu, time_s) / 40.0)
        cpu = base[one] * day * np.exp(0.3 * rng.standard_normal(rows, np.float32))
        net = rng.exponential(0.3, rows)
        yield {
            "container_id": Text(one.astype(np.int32), names),
            "machine_id": Text(stock.host[one], machines),
            "time_stamp": time_s.astype(float),
            "cpu_util_percent": _percent(cpu),
            "mem_util_percent": _percent(base_mem[one] + 3 * rng.standard_normal(rows, np.float32)),
            "cpi": np.round(rng.normal(1.6, 0.2, rows).clip(0.3), 2),
            **_counted(rng, rows, CONTAINER_COUNTED_SHARE, "mpki", 0.1),
            "net_in": np.round(net, 2),
            "net_out": np.round(0.8 * net, 2),
            "disk_io_percent": _percent(rng.lognormal(2.0, 0.5, rows)).astype(float),
        }


def _ar1(rng: np.random.Generator, steps: int, kept: float, *width: int) -> np.ndarray:
    """A first-order autoregression of mean 0 and sd 1, (steps, *width)."""
    noise = rng.standard_normal((steps, *width))
    for step in range(1, steps):
        noise[step] = kept * noise[step - 1] + np.sqrt(1 - kept**2) * noise[step]
    return noise


def _shared(series: np.ndarray, time_s: np.ndarray) -> np.ndarray:
    """The series at whole seconds, by way of its ticks: they are few, the rows are many."""
    tick = time_s // TICK_S
    first = tick.min() if len(tick) else 0
    ticks = np.arange(first, (tick.max() if len(tick) else 0) + 1)
    return np.interp(ticks * TICK_S / STEP_S, np.arange(len(series)), series)[tick - first]


def _at(ends: np.ndarray, which: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Between the two rows of `ends` by share; scaled so that the middle varies like the ends."""
    a, b = (1 - share), share
    scale = np.sqrt(a * a + b * b + 2 * SLOW_KEPT * a * b)
    return (a * ends[0, which] + b * ends[1, which]) / scale


def _percent(value: np.ndarray) -> np.ndarray:
    return np.clip(np.rint(value), 0, 100).astype(np.int64)


def _counted(
    rng: np.random.Generator, rows: int, share: float, misses: str, scale: float
) -> dict[str, np.ndarray]:
    """Memory bandwidth and cache misses, known for a share of the samples."""
    bandwidth = np.round(rng.exponential(scale, rows), 2).clip(0, 100)
    missed = rng.poisson(0.5, rows).astype(float)
    unknown = rng.random(rows) >= share
    bandwidth[unknown] = np.nan
    missed[unknown] = np.nan
    return {"mem_gps": bandwidth, misses: missed}


@compiled
def _walk(
    key: np.uint64, kept: np.ndarray, keep: float, normal: np.ndarray, out: np.ndarray
) -> None:
    """An AR(1) of sd 1 along the ticks of each machine, told at the ticks that are kept."""
    row = 0
    new = np.sqrt(1.0 - keep * keep)
    for machine in range(kept.shape[0]):
        value = 0.0
        for tick in range(kept.shape[1]):
            bits = mixed(key)
            key += np.uint64(1)
            draw = normal[bits & np.uint64(0xFFF)]
            value = draw if tick == 0 else keep * value + new * draw
            if kept[machine, tick]:
                out[row] = value
                row += 1
