"""CPU use of hosts, five minutes at a time: from recorded samples, or generated with their look.

    series = of_samples(read_planetlab(path), guests=4)     # or generated("planetlab", rng=rng)
    first, held_out = split(series)
    chain(first)                                            # (C, C) for llm.world
    windows(held_out, 48, 200, rng)                         # (200, 49) bins

Samples of virtual machines become those of a host that several share.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.signal import lfilter
from scipy.special import ndtri
from scipy.stats import rankdata

from trimtab.arrays import Array
from trimtab.errors import PlanError, UnknownName
from trimtab.llm.world.world_tables import CPU_EDGES
from trimtab.load.samples import Samples

EPOCH_S = 300.0
HELD_OUT = 0.4  # of the time, at its end
HOUR = 12  # epochs
BINS = len(CPU_EDGES) + 1
GUESS = 0.5  # counts that each move to a neighbouring bin has before any was seen
QUANTILES = np.linspace(0.0, 1.0, 11)


class Series(NamedTuple):
    """CPU use of H hosts in T epochs; NaN where nothing was measured."""

    cpu: Array  # (H, T) 0..1
    epoch: Array  # (T,) since 1970 or the start of the trace, in epochs; gaps jump
    source: str


class Statistics(NamedTuple):
    """What the generator matches: the spread of values, and of their ranks as normal scores."""

    quantiles: tuple[float, ...]  # of CPU use, at QUANTILES
    between: float  # share of the scores' variance that hosts differ by
    near: float  # correlation of a host's scores, less its mean, one epoch apart
    far: float  # the same, an hour apart


# `statistics(of_samples(...))` of the published traces: PlanetLab's seven days with four machines a
# host, Bitbrains' 50 with five, and 16 of Alibaba's machines of 2018.
MEASURED = {
    "planetlab": Statistics(
        (0.0, 0.11, 0.17, 0.23, 0.29, 0.36, 0.44, 0.54, 0.68, 0.89, 1.0), 0.802, 0.269, 0.270
    ),
    "bitbrains": Statistics(
        (0.001, 0.0167, 0.0278, 0.0387, 0.0467, 0.0528, 0.0721, 0.3735, 0.58, 1.0, 1.0),
        *(0.549, 0.900, 0.748),
    ),
    "alibaba": Statistics(
        (0.03, 0.0571, 0.225, 0.28, 0.32, 0.355, 0.3915, 0.4333, 0.4833, 0.55, 0.93),
        *(0.433, 0.787, 0.581),
    ),
}
GUESTS = {"planetlab": 4, "bitbrains": 5, "alibaba": 1}  # so that hosts are about as busy


def of_samples(samples: Samples, guests: int = 1) -> Series:
    """Means over epochs; `guests` machines with the same gaps share a host and fill it at most."""
    if guests < 1 or guests > len(samples.names):
        raise PlanError(
            f"guests={guests} machines a host, of {len(samples.names)}; give 1 or more of those"
        )
    kept = np.isfinite(samples.cpu)
    number = np.floor(samples.time_s[kept] / EPOCH_S).astype(np.int64)
    epoch, at = np.unique(number, return_inverse=True)
    shape = len(samples.names), len(epoch)
    place = samples.node[kept] * shape[1] + at
    count = np.bincount(place, minlength=shape[0] * shape[1])
    total = np.bincount(place, samples.cpu[kept], minlength=len(count))
    with np.errstate(invalid="ignore", divide="ignore"):
        cpu = (total / count).reshape(shape)
    hosts = shape[0] // guests
    # machines that were measured at the same times become neighbours: else hosts would be all gaps
    order = np.lexsort(np.packbits(np.isfinite(cpu), axis=1).T)[: hosts * guests]
    pooled = cpu[order].reshape(hosts, guests, -1).sum(axis=1)
    return Series(np.minimum(pooled, 1.0), epoch, samples.source)


def split(series: Series) -> tuple[Series, Series]:
    """What comes first, and the rest, which nothing may be fitted on."""
    cut = round((1.0 - HELD_OUT) * len(series.epoch))
    return (
        Series(series.cpu[:, :cut], series.epoch[:cut], series.source),
        Series(series.cpu[:, cut:], series.epoch[cut:], series.source),
    )


def binned(cpu: Array) -> Array:
    """Bins of CPU use; -1 where it was not measured."""
    return np.where(np.isfinite(cpu), np.searchsorted(CPU_EDGES, cpu, side="right"), -1)


def chain(series: Series) -> Array:
    """Counted chances to go from a bin to another within an epoch: (C, C)."""
    bins = binned(series.cpu)
    before, after = bins[:, :-1], bins[:, 1:]
    seen = (before >= 0) & (after >= 0) & (np.diff(series.epoch) == 1)
    counts = np.zeros((BINS, BINS))
    np.add.at(counts, (before[seen], after[seen]), 1.0)
    near = np.abs(np.subtract.outer(np.arange(BINS), np.arange(BINS))) <= 1
    counts += GUESS * near
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))


def windows(series: Series, epochs: int, count: int, rng: np.random.Generator) -> Array:
    """Random stretches without a gap, and the bin after them: (count, epochs + 1)."""
    bins = binned(series.cpu)
    gap = np.concatenate([[0], np.cumsum(np.diff(series.epoch) != 1)])
    missing = np.concatenate([np.zeros((len(bins), 1)), np.cumsum(bins < 0, axis=1)], axis=1)
    starts = bins.shape[1] - epochs
    if starts < 1:
        raise PlanError(
            f"{series.source}: holds out {bins.shape[1]} epochs of {EPOCH_S:g} s, a window takes "
            f"{epochs + 1}; give a longer trace"
        )
    whole = missing[:, epochs + 1 :] == missing[:, :starts]
    whole &= (gap[epochs:] == gap[:starts])[None]
    host, start = np.nonzero(whole)
    if not len(host):
        raise PlanError(
            f"{series.source}: has no {epochs + 1} epochs of {EPOCH_S:g} s without a gap; give a "
            "trace that is measured at least that often"
        )
    chosen = rng.integers(len(host), size=count)
    return bins[host[chosen, None], start[chosen, None] + np.arange(epochs + 1)]


def statistics(series: Series) -> Statistics:
    """What `generated` needs of a recorded trace."""
    cpu = series.cpu
    known = np.isfinite(cpu)
    scores = np.full(cpu.shape, np.nan)
    scores[known] = ndtri((rankdata(cpu[known]) - 0.5) / known.sum())
    enough = known.sum(axis=1) > 2 * HOUR
    scores = scores[enough]
    mean = np.nanmean(scores, axis=1, keepdims=True)
    within = scores - mean
    return Statistics(
        tuple(round(float(q), 4) for q in np.quantile(cpu[known], QUANTILES)),
        round(float(np.var(mean) / np.nanvar(scores)), 3),
        _correlation(within, series.epoch, 1),
        _correlation(within, series.epoch, HOUR),
    )


def _correlation(within: Array, epoch: Array, apart: int) -> float:
    a, b = within[:, :-apart], within[:, apart:]
    both = np.isfinite(a) & np.isfinite(b) & (epoch[apart:] - epoch[:-apart] == apart)
    return round(float(np.corrcoef(a[both], b[both])[0, 1]), 3)


def generated(
    kind: str = "planetlab", hosts: int = 64, epochs: int = 4032, *, rng: np.random.Generator
) -> Series:
    """A trace that looks like a published one: spread, differences of hosts, and persistence."""
    if kind not in MEASURED:
        raise UnknownName(f"trace {kind!r} is unknown; give one of {', '.join(MEASURED)}")
    told = MEASURED[kind]
    # what lasts: a slow part that decays from `near` to `far` within the hour, the rest is noise
    stay = min(max(told.far, 1e-3) / told.near, 0.95) ** (1.0 / (HOUR - 1))
    slow = min(told.near / stay, 1.0)
    within = 1.0 - told.between
    steps = rng.standard_normal((hosts, epochs)) * np.sqrt(within * slow * (1.0 - stay**2))
    steps[:, 0] /= np.sqrt(1.0 - stay**2)
    score = lfilter([1.0], [1.0, -stay], steps, axis=1)
    score += np.sqrt(within * (1.0 - slow)) * rng.standard_normal((hosts, epochs))
    # even levels: with few hosts, drawn ones would make another trace of every seed
    level = ndtri((rng.permutation(hosts) + 0.5) / hosts)
    score += np.sqrt(told.between) * level[:, None]
    rank = (rankdata(score) - 0.5) / score.size
    cpu = np.interp(rank.reshape(score.shape), QUANTILES, told.quantiles)
    return Series(cpu, np.arange(epochs), f"generated like {kind}")
