"""How busy services are: recorded use of machines by days, or series drawn like it.

Everything is a share at 300 s a sample. Days are dealt to training, validation and testing in
sevenths of the time, in this order: 4, 1 and 2, so that no scene for testing has a day that one for
training has.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from trimtab.arrays import Array
from trimtab.errors import TraceError, UnknownName, suggestion
from trimtab.load.samples import Samples
from trimtab.traces.load.samples_file import read_samples

SAMPLE_S = 300.0
DAY = 288  # samples
SPLITS = {"train": (0, 4), "validation": (4, 5), "test": (5, 7)}  # sevenths of the days
FULL = 99.0  # percentile of a machine's use that counts as full
PAST_DAYS = 4  # that a site knows of before a drawn scene
FEWEST = 24  # samples: two hours, below which a series shows no pattern
LOW, HIGH = 1.0, 99.0  # percentiles of the daily part that become 0 and 1

# Alibaba 2018, mean CPU of the cluster in percent by hour of the trace's day, days 1 to 7.
BY_HOUR = (
    *(45.5, 55.6, 50.3, 47.2, 48.3, 46.8, 49.5, 45.7, 44.1, 42.3, 38.7, 37.4),
    *(37.1, 32.8, 33.8, 33.5, 34.2, 30.9, 29.2, 34.8, 37.6, 35.8, 40.9, 44.1),
)
EMPTY, BUSY = 20.0, 62.0  # percent that become 0 and 1: its range but for the last hundredths
# What is left of that cluster's use without its hours has sd 6.5, and autocorrelation .56 after one
# sample, .3 after six: a slow part beside a quick one.
SLOW_SD, SLOW_KEEP, QUICK_SD = 3.6, 0.985, 4.4
# Virtual machines of Bitbrains, shares of their 99th percentile: mean .38 (sd .26 between them), sd
# .24 of each, autocorrelation .56 after one sample, .35 after six hours.
OWN_ALPHA, OWN_BETA, OWN_SD, OWN_SLOW, OWN_KEEP = 1.3, 2.1, 0.24, 0.58, 0.993


class Use(NamedTuple):
    """What scenes draw from: series of machines of their own, and the daily part of a region."""

    own: tuple[Array, ...]  # each (T,) of one machine without a gap, full = 1
    daily: Array  # (T,) from sample 0 of a day, 0 = quiet, 1 = busy
    past: Array  # (days, DAY) of it that a site would know from before
    source: str


def use_of(own: str, daily: str, split: str, odd: float, rng: Generator, *, needs: int) -> Use:
    """The series of a split: of files, or drawn where none is named. `needs` = samples a scene;
    `odd`: how far a drawn day is from the published one.
    """
    if split not in SPLITS:
        raise UnknownName(f"split {split!r} is unknown; {suggestion(split, SPLITS)}known: "
                          f"{', '.join(SPLITS)}")  # fmt: skip
    found = tuple(part for path in own.split("+") if path for part in recorded(path, split))
    if daily:
        shared, before = daily_of(daily, split), daily_of(daily, "train")
    else:
        aside = rng.spawn(1)[0]
        hours = odd_hours(odd, aside)
        shared = drawn_daily(rng, needs + 2 * DAY, hours)
        before = drawn_daily(aside, PAST_DAYS * DAY, hours)
    told = f"{own or 'drawn like Bitbrains'}; daily part {daily or 'drawn like Alibaba 2018'}"
    return Use(found or drawn_own(rng, needs), shared, before.reshape(-1, DAY), told)


def usual_day(past: Array, smooth: int = 13) -> Array:
    """(DAY,) the mean of past days, smoothed over an hour."""
    mean = past.mean(0)
    wide = np.concatenate((mean[-(smooth // 2) :], mean, mean[: smooth // 2]))
    return np.convolve(wide, np.full(smooth, 1 / smooth), "valid")


def odd_hours(odd: float, rng: Generator) -> Array:
    """(24,) percent by hour: the published ones, in part replaced by waves drawn at random."""
    turn = np.arange(24) * 2 * np.pi / 24
    waves = sum(
        rng.normal(0, 9.0 / k) * np.sin(k * turn + rng.uniform(0, 2 * np.pi)) for k in (1, 2, 3)
    )
    return (1 - odd) * np.array(BY_HOUR) + odd * (np.mean(BY_HOUR) + waves)


def days_of(days: int, split: str) -> tuple[int, int]:
    """The first day of a split and the one after its last, of so many days."""
    low, high = SPLITS[split]
    return round(days * low / 7), max(round(days * high / 7), round(days * low / 7) + 1)


@lru_cache(maxsize=16)
def recorded(path: str, split: str) -> tuple[Array, ...]:
    """The parts without a gap of each machine's use on the days of the split."""
    samples = read_samples(path)
    first_s = float(samples.time_s.min())
    days = int(np.floor((samples.time_s.max() - first_s) / (DAY * SAMPLE_S))) + 1
    present = np.unique(np.floor((samples.time_s - first_s) / (DAY * SAMPLE_S))).astype(int)
    low, high = days_of(len(present), split)
    chosen = present[low:high]
    parts = [part for part in _parts(samples, first_s, days) if len(part[1])]
    found = []
    for at, values in parts:
        of_day = (at + np.arange(len(values))) // DAY
        values = np.where(np.isin(of_day, chosen), values, np.nan)
        found += [_scaled(run) for run in _runs(values) if len(run) >= FEWEST and run.std() > 0]
    if not found:
        raise TraceError(
            f"{path}: no machine has {FEWEST} measurements in a row of changing use on the days "
            f"for {split}; give a longer recording"
        )
    return tuple(found)


def _parts(samples: Samples, first_s: float, days: int) -> list[tuple[int, Array]]:
    """(first sample, values) of every machine, NaN where nothing was measured."""
    step = np.floor((samples.time_s - first_s) / SAMPLE_S).astype(np.int64)
    order = np.lexsort((step, samples.node))
    node, step, cpu = samples.node[order], step[order], samples.cpu[order]
    bounds = np.flatnonzero(np.diff(node, prepend=-1, append=-1))
    found = []
    for begin, end in zip(bounds[:-1], bounds[1:]):
        at, known = step[begin:end], np.isfinite(cpu[begin:end])
        low = int(at[0])
        count = np.bincount(at[known] - low, minlength=int(at[-1]) - low + 1)
        total = np.bincount(at[known] - low, cpu[begin:end][known], minlength=len(count))
        with np.errstate(invalid="ignore"):
            found.append((low, np.where(count > 0, total / count, np.nan)))
    return found


def _runs(values: Array) -> list[Array]:
    """The stretches of numbers; a single missing one is bridged."""
    gap = np.isnan(values)
    alone = gap & ~np.roll(gap, 1) & ~np.roll(gap, -1)
    alone[[0, -1]] = False
    rows = np.flatnonzero(alone)
    filled = values.copy()
    filled[rows] = (values[rows - 1] + values[rows + 1]) / 2
    gap &= ~alone
    edges = np.flatnonzero(np.diff(gap.astype(np.int8), prepend=1, append=1))
    return [filled[begin:end] for begin, end in zip(edges[::2], edges[1::2])]


def _scaled(values: Array) -> Array:
    return np.clip(values / max(float(np.percentile(values, FULL)), 1e-6), 0.0, 1.0)


@lru_cache(maxsize=16)
def daily_of(path: str, split: str) -> Array:
    """The mean of all machines on the days of the split, 0 = quiet and 1 = busy, whole days."""
    samples = read_samples(path)
    step = np.floor((samples.time_s - samples.time_s.min()) / SAMPLE_S).astype(np.int64)
    known = np.isfinite(samples.cpu)
    count = np.bincount(step[known])
    mean = np.bincount(step[known], samples.cpu[known])[count > 0] / count[count > 0]
    days = len(mean) // DAY
    if days < len(SPLITS):
        raise TraceError(
            f"{path}: has {days} whole days at {SAMPLE_S:g} s; a daily part that training and "
            f"testing do not share wants {len(SPLITS)} or more"
        )
    low, high = np.percentile(mean, [LOW, HIGH])
    begin, end = days_of(days, split)
    return np.clip((mean[begin * DAY : end * DAY] - low) / max(high - low, 1e-9), 0.0, 1.0)


def drawn_daily(rng: Generator, samples: int, hours: Array) -> Array:
    """Days of these hours in percent, with a slow and a quick part drawn beside them."""
    hour = np.arange(samples) * SAMPLE_S / 3600.0
    mean = np.interp(hour % 24, np.arange(25) + 0.5, [*hours, hours[0]], period=24)
    noise = SLOW_SD * _slow(rng, samples, SLOW_KEEP) + QUICK_SD * rng.standard_normal(samples)
    return np.clip((mean + noise - EMPTY) / (BUSY - EMPTY), 0.0, 1.0)


def drawn_own(rng: Generator, samples: int, machines: int = 48) -> tuple[Array, ...]:
    """Series like those of virtual machines."""
    mean = rng.beta(OWN_ALPHA, OWN_BETA, machines)
    slow = np.stack([_slow(rng, samples, OWN_KEEP) for _ in range(machines)])
    quick = rng.standard_normal((machines, samples))
    moving = np.sqrt(OWN_SLOW) * slow + np.sqrt(1 - OWN_SLOW) * quick
    return tuple(np.clip(mean[:, None] + OWN_SD * moving, 0.0, 1.0))


def _slow(rng: Generator, samples: int, keep: float) -> Array:
    """(samples,) of mean 0 and variance 1, each `keep` of the one before."""
    from scipy.signal import lfilter

    noise = np.sqrt(1 - keep**2) * rng.standard_normal(samples)
    noise[0] = rng.standard_normal()
    return np.asarray(lfilter([1.0], [1.0, -keep], noise))


def stretch_of(values: Array, count: int, rng: Generator) -> Array:
    """(count,) in a row from a random place; a shorter series is played there and back."""
    if len(values) < count:
        turned = np.concatenate((values, values[::-1]))
        values = np.tile(turned, -(-count // len(turned)) + 1)
    begin = int(rng.integers(0, len(values) - count + 1))
    return values[begin : begin + count]
