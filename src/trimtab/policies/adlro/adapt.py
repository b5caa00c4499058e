"""Fine-tuning of the learned policy on what a cluster has just seen.

tuned = fine_tune(net, profile, cluster, recent, seed=0)
DriftPolicy(tuner=at_once(cluster))             in a simulation: the same result every time
DriftPolicy(tuner=in_background(cluster))       beside a live loop, which goes on meanwhile

The recent jobs are drawn anew, with their arrival rate, on clusters with the speeds believed now.
The network goes on from its weights with labels of these (policies.branched), and is set beside the
old one on windows drawn for that alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.random import Generator

from trimtab.arrays import Array
from trimtab.columns import TRUTH
from trimtab.core import Cluster, Profile, Workload
from trimtab.errors import PolicyError, TrimtabError
from trimtab.metrics import interval
from trimtab.policies.adlro.branches import Branches
from trimtab.policies.adlro.drift import Recent, Tuned, Tuner
from trimtab.policies.adlro.net import Net, net_of
from trimtab.sim.world import Models

LEAST_WORK_S = 1.0
LEAST_JOBS = 16


def resampled(recent: Recent, cluster: Cluster, jobs: int, rng: Generator) -> Workload:
    """Jobs drawn from the recent ones with replacement; Poisson arrivals at their mean rate."""
    pick = rng.integers(len(recent.jobs), size=jobs)
    rows, truth = recent.jobs[pick].copy(), np.zeros(jobs, TRUTH)
    submit_s = recent.jobs["submit_s"]
    gap_s = float(submit_s.max() - submit_s.min()) / (len(submit_s) - 1)
    rows["submit_s"] = np.cumsum(rng.exponential(gap_s, jobs))
    rows["deadline_s"] = np.inf  # of another day
    truth["work_s"] = np.maximum(recent.work_s[pick], LEAST_WORK_S)
    truth["cancel_s"], truth["use"], truth["pattern"] = np.inf, 1.0, -1
    return Workload(
        rows, truth, recent.demand[pick].copy(), cluster.resources,
        kinds=tuple(str(kind) for kind in range(int(recent.jobs["kind"].max()) + 1)),
        source="the recent jobs, drawn anew",
    )  # fmt: skip


def fine_tune(
    net: Net,
    profile: Profile,
    cluster: Cluster,
    recent: Recent,
    seed: int,
    *,
    models: Models | None = None,
    decisions: int = 1_500,
    clusters: int = 16,
    jobs: int = 100,
    horizon: int = 8,
    steps: int = 300,
    learning_rate: float = 2e-4,
    windows: int = 16,
) -> Tuned:
    """Go on training the network on the recent jobs, and measure it on windows of its own.

    `decisions` are labelled, on `clusters` of `jobs` each; `windows` of the same length compare.
    """
    from trimtab.policies.adlro.learner import Settings, fit, gather, joined, layers_of

    check(net, recent)
    settings = Settings(
        decisions=decisions, steps=steps, batch=256, learning_rate=learning_rate, apart=40,
        width=int(net.sizes[1]), seed=seed,
    )  # fmt: skip

    def field(works: Sequence[Workload]) -> Branches:
        return Branches(works, [cluster] * len(works), profile, models or Models(), horizon=horizon)

    def drawn(draw: Generator) -> Workload:
        return resampled(recent, cluster, jobs, draw)

    rng = np.random.default_rng([seed, 1])
    labels = gather(lambda draw: field([drawn(draw) for _ in range(clusters)]), net, settings, rng)
    model = model_of(net, seed)
    fit(model, joined(list(labels)), settings, "cpu", seed)
    tuned = net_of(layers_of(model), net.margin, net.reach)
    held_out = np.random.default_rng([seed, 2])
    works = [drawn(held_out) for _ in range(windows)]
    before, after = (field(works).judge(one) for one in (net, tuned))
    return compared(before, after, tuned)


def check(net: Net, recent: Recent) -> None:
    if len(net.sizes) == 0:
        raise PolicyError("the guiding rule alone has no network to tune; give AdlroPolicy one")
    if len(net.sizes) != 4 or net.sizes[1] != net.sizes[2]:
        raise PolicyError(
            f"a network of sizes {net.sizes.tolist()} cannot be tuned; give one that "
            "`trimtab train adlro` made, with two hidden layers of one width"
        )
    if len(recent.jobs) < LEAST_JOBS:
        raise PolicyError(
            f"{len(recent.jobs)} recent jobs are too few to tune on; give window={LEAST_JOBS} or "
            "more"
        )


def compared(old_s: Array, new_s: Array, net: Net) -> Tuned:
    """The ratio of completion times and the upper end of its 95 % interval, paired by window."""
    mean, half = interval(np.log(new_s / old_s).tolist())
    high = np.inf if half is None else np.exp(mean + half)
    return Tuned(net, float(np.exp(mean)), float(high), new_s)


def model_of(net: Net, seed: int) -> Any:
    """The network as torch has it."""
    import torch

    from trimtab.policies.adlro.learner import network

    model = network(int(net.sizes[1]), seed)
    at = 0
    with torch.no_grad():
        for layer in (layer for layer in model if isinstance(layer, torch.nn.Linear)):
            wide, out = layer.in_features, layer.out_features
            matrix = net.flat[at : at + wide * out].reshape(wide, out)
            layer.weight.copy_(torch.from_numpy(matrix.T.copy()))
            layer.bias.copy_(torch.from_numpy(net.flat[at + wide * out :][:out].copy()))
            at += wide * out + out
    return model


def at_once(cluster: Cluster, models: Models | None = None, **settings: Any) -> Tuner:
    """A tuner that has finished when it returns; `settings` are those of `fine_tune`."""

    def tune(net: Net, profile: Profile, recent: Recent, seed: int) -> Future[Tuned]:
        done: Future[Tuned] = Future()
        try:
            found = fine_tune(net, profile, cluster, recent, seed, models=models, **settings)
            done.set_result(found)
        except TrimtabError as problem:
            done.set_exception(problem)
        return done

    return tune


def in_background(cluster: Cluster, models: Models | None = None, **settings: Any) -> Tuner:
    """A tuner that works in a thread of its own, one tuning after the other."""
    pool = ThreadPoolExecutor(1, thread_name_prefix="tuning")

    def tune(net: Net, profile: Profile, recent: Recent, seed: int) -> Future[Tuned]:
        profile = replace(profile, rate=profile.rate.copy())
        return pool.submit(
            fine_tune, net, profile, cluster, recent, seed, models=models, **settings
        )

    return tune
