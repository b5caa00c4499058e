"""The multifactor priority of jobs, as `sprio` shows it: weights times factors, a whole number."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.policies.slurm.settings import Settings

MOST = 2.0**32 - 1
MB = 1024.0  # of a GB: Slurm weighs memory in MB where it is not taken as a part


class Request(NamedTuple):
    """What priority looks at, a row a job (or a job in one of its partitions)."""

    age_s: Array  # (E,) since it could have run
    fair_share: Array  # (E,) 0..1
    cpus: Array  # (E,)
    nodes: Array  # (E,)
    mem_gb: Array  # (E,)
    gpus: Array  # (E,)
    limit_s: Array  # (E,)
    qos: Array  # (E,) priority of its QOS, as part of the highest unless raw
    partition: Array  # (E,) factor of its partition, as part of the highest unless raw
    site: Array  # (E,) what is added as it is: the site's factor less nice


class Whole(NamedTuple):
    """What requests are measured against."""

    cpus: float  # of the cluster
    nodes: float
    part_cpus: Array  # (E,) of the request's partition
    part_mem_gb: Array
    part_gpus: Array


def age(age_s: Array, max_age_s: float) -> Array:
    """Whole seconds since a job could have run, as part of PriorityMaxAge, at most 1."""
    return np.minimum(np.floor(np.maximum(age_s, 0.0)) / max_age_s, 1.0)


def job_size(ask: Request, whole: Whole, settings: Settings) -> Array:
    """How large a job is, or with PriorityFavorSmall how small: mean of its parts of the nodes and
    of the CPUs. With SMALL_RELATIVE_TO_TIME: its CPUs a minute of its time limit.
    """
    if settings.size_relative:
        cpus = np.maximum(ask.nodes * whole.cpus / whole.nodes, ask.cpus)
        minutes = np.maximum(np.ceil(ask.limit_s / 60), 1.0)
        size = cpus / minutes / whole.cpus
    else:
        size = (ask.nodes / whole.nodes + ask.cpus / whole.cpus) / 2
    return np.clip(1 - size if settings.favor_small else size, 0.0, 1.0)


def tres(ask: Request, whole: Whole, settings: Settings) -> Array:
    """PriorityWeightTRES: each weight times what the job asks, as part of its partition's."""
    weights, total = settings.weights, np.zeros(len(ask.cpus))
    for weight, amount, of in (
        (weights.cpu, ask.cpus, whole.part_cpus),
        (weights.mem, ask.mem_gb * MB, whole.part_mem_gb * MB),
        (weights.gpu, ask.gpus, whole.part_gpus),
    ):
        if weight and settings.raw_tres:
            total += weight * amount
        elif weight:
            total += weight * np.divide(amount, of, out=np.zeros(len(amount)), where=of > 0)
    return total


def priority(ask: Request, whole: Whole, settings: Settings) -> Array:
    """(E,) whole numbers of 1 or more, cut off and not rounded, as in Slurm."""
    weights = settings.weights
    total = ask.site + tres(ask, whole, settings)
    total += weights.age * age(ask.age_s, settings.max_age_s)
    total += weights.fair_share * ask.fair_share
    total += weights.job_size * job_size(ask, whole, settings)
    total += weights.partition * ask.partition
    total += weights.qos * ask.qos
    return np.floor(np.clip(total, 1.0, MOST))
