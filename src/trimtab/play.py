"""One policy on one scene, by the fastest way that the policy offers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from trimtab.core import Cluster, Policy, Profile, Workload
from trimtab.metrics import Result
from trimtab.run import run
from trimtab.sim.backend import SimBackend
from trimtab.sim.whole import Whole, left_in
from trimtab.sim.world import Models, fitted
from trimtab.traces.scenes.scene import Scene

Progress = Callable[[int], None]  # is told how many jobs have ended


def play(
    policy: Policy,
    scene: Scene,
    models: Models | None = None,
    *,
    seed: int = 0,
    label: str = "",
    log: bool = False,
    progress: Progress | None = None,
) -> Result:
    """Run a policy over a whole trace. `label` is what the result calls it: its own name if empty.

    A policy may offer `whole(workload, cluster, profile, models, *, log, progress)`, compiled code
    that gives what the loop would, to the last bit, or None where it cannot. Everything else is
    asked decision by decision. One that counts something itself offers `counters()`, and
    `footnote()` to say it in words.
    """
    work, cluster = fitted(scene.workload, scene.cluster)
    models = models or Models()
    whole = getattr(policy, "whole", None)
    done: Whole | None = None
    if whole is not None:
        done = whole(work, cluster, scene.profile, models, log=log, progress=progress)
    if done is None:
        done = by_loop(policy, work, cluster, scene.profile, models, log=log, progress=progress)
    return Result(
        label or getattr(policy, "name", type(policy).__name__), seed, work, cluster, done.state,
        done.totals, done.log, done.wall_s, profile=scene.profile,
        arrived=done.arrived, so_far=done.so_far, **own_words(policy),
    )  # fmt: skip


def own_words(policy: Policy) -> dict[str, Any]:
    """What a policy counted, and says of it, as fields of a Result."""
    offered = {name: getattr(policy, name, None) for name in ("counters", "footnote")}
    return {name: tell() for name, tell in offered.items() if tell is not None}


def by_loop(
    policy: Policy,
    work: Workload,
    cluster: Cluster,
    profile: Profile,
    models: Models,
    *,
    log: bool = False,
    progress: Progress | None = None,
) -> Whole:
    """The same through the loop, on a backend of the same engine."""
    began_s = time.perf_counter()
    backend = SimBackend(work, cluster, profile, models, keep_log=log)
    sinks = []
    if progress is not None:
        sinks.append(lambda event, snapshot: progress(int(snapshot.totals["finished"])))
    run(backend, policy, sinks)
    return left_in(backend.world, backend.kept_log(), time.perf_counter() - began_s)


def check_suits(policy: Policy, scene: Scene) -> None:
    """Raise where a policy says that it cannot steer this scene, before anything long begins.

    A policy may offer `suits(nodes, resources, kinds)`, which raises: a network of a fixed size.
    """
    suits = getattr(policy, "suits", None)
    if suits is not None:
        _, cluster = fitted(scene.workload, scene.cluster)
        suits(*cluster.capacity.shape, scene.profile.rate.shape[0])
