"""Training of the `adlro` policy: scenes drawn at random, so that what is learned holds on others.

A field is clusters of one size class and one table of speeds; every cluster has its own GPUs, job
mix, job sizes, load and kind of estimate. Validation is on windows of their own seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numba
import numpy as np
import torch
from numpy.random import Generator
from torch.utils.tensorboard import SummaryWriter

from trimtab.arrays import Array
from trimtab.core import Cluster, Profile
from trimtab.policies.adlro.branches import Branches
from trimtab.policies.adlro.learner import Settings, Told, train
from trimtab.policies.adlro.net import Net
from trimtab.sim.world import Models
from trimtab.traces.scenes.adlro import (
    ESTIMATES,
    JOB_KINDS,
    SIZES,
    adlro_cluster,
    adlro_jobs,
    adlro_profile,
)

CLUSTERS = 128  # of a field
USUAL_GPUS = 16
FEWEST, MOST = 4, 64  # GPUs of a field, give or take 40 %
STARTUPS_S = (0.0, 10.0, 30.0, 60.0)
LOADS = (0.4, 1.15)
NOISES = (0.2, 1.0)  # standard deviation of an estimate's logarithm
VALIDATION_SEED = 20_000
VALIDATION_JOBS = 600


def speeds(rng: Generator) -> Profile:
    """The scene's own speeds half of the time; else those disturbed, or quite other ones."""
    profile = adlro_profile()
    which = rng.random()
    if which < 0.5:
        return profile
    if which < 0.8:
        rate = profile.rate * np.exp(rng.normal(0.0, 0.3, profile.rate.shape))
    else:
        rate = np.exp(rng.uniform(np.log(0.15), np.log(1.5), profile.rate.shape))
    return replace(profile, rate=rate, source="drawn at random")


def drawn_cluster(rng: Generator, size: int) -> Cluster:
    """So many GPUs, give or take 40 %, of any mix."""
    gpus = max(round(size * rng.uniform(0.6, 1.4)), 3)
    count = rng.multinomial(gpus, rng.dirichlet([2.0, 1.0, 1.0]))
    return adlro_cluster(**dict(zip(("volta", "turing", "radeon"), count.tolist())))


def drawn_size(rng: Generator) -> int:
    return round(np.exp(rng.uniform(np.log(FEWEST), np.log(MOST))))


def drawn_mix(rng: Generator) -> Array | None:
    return None if rng.random() < 0.5 else rng.dirichlet([1.0] * len(JOB_KINDS))


def field(rng: Generator, horizon: int = 8, clusters: int = CLUSTERS) -> Branches:
    """Clusters with episodes of their own, as in the heading."""
    profile = speeds(rng)
    size = USUAL_GPUS if rng.random() < 0.4 else drawn_size(rng)
    works, machines = [], []
    for _ in range(clusters):
        usual = size == USUAL_GPUS and rng.random() < 0.6
        machine = adlro_cluster() if usual else drawn_cluster(rng, size)
        machines.append(machine)
        works.append(
            adlro_jobs(
                rng=np.random.default_rng(rng.integers(2**62)),
                jobs=60 + 10 * size,
                load=rng.uniform(*LOADS),
                mix=drawn_mix(rng),
                sizes=str(rng.choice(["synthetic", "synthetic", "philly", "pai"])),
                estimate=str(rng.choice(ESTIMATES)),
                noise=rng.uniform(*NOISES),
                cluster=machine,
                profile=profile,
            )
        )
    startup_s = float(rng.choice(STARTUPS_S))
    models = Models(startup_s=startup_s, move_s=startup_s)
    return Branches(works, machines, profile, models, horizon=horizon)


def validation(jobs: int = VALIDATION_JOBS, seeds: int = 12) -> Callable[[Net], Array]:
    """Mean completion times on windows, half of them of the 16-GPU scene and half of drawn ones: a
    function of a network.
    """
    works, machines = [], []
    for known, load, seed in product(ESTIMATES, (0.5, 0.7, 0.9, 0.95, 1.2), range(seeds)):
        rng = np.random.default_rng(VALIDATION_SEED + seed)
        drawn: dict[str, Any] = {"cluster": adlro_cluster()}
        if seed % 2:
            drawn = {"cluster": drawn_cluster(rng, drawn_size(rng)), "mix": drawn_mix(rng)}
            drawn["sizes"] = SIZES[seed // 2 % len(SIZES)]
        machines.append(drawn["cluster"])
        works.append(adlro_jobs(rng=rng, jobs=jobs, load=load, estimate=known, **drawn))

    def completion_s(net: Net) -> Array:
        models = Models(startup_s=30.0, move_s=30.0)
        return Branches(works, machines, adlro_profile(), models).judge(net)

    return completion_s


def train_adlro(
    out: str | Path,
    *,
    horizon: int = 8,
    clusters: int = CLUSTERS,
    device: str = "auto",
    command: str = "",
    **settings: Any,
) -> Iterator[Told]:
    """Train into `out`, which gets adlro.onnx; goes on after the last whole round of the same
    settings. `policies.branched.Settings` has the other settings.
    """
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    out, on = Path(out), Settings(**settings)
    writer = SummaryWriter(str(out / "log"))
    try:
        with numba.parallel_chunksize(1):  # episodes differ much in length
            draw = partial(field, horizon=horizon, clusters=clusters)
            for told in train(draw, validation(), out, on, device=device, command=command):
                if told.ratio == told.ratio:  # a round is over
                    for name in ("loss", "ratio", "margin"):
                        writer.add_scalar(name, getattr(told, name), told.step)
                    writer.flush()
                yield told
    finally:
        writer.close()
