"""Speed of the learned scheduler and of its training: `trimtab bench learning`.

The scene is ADLRO's: 16 GPUs of three makes at load 0.9, noisy estimates, start-ups of 30 s. The
peer of a decision is the guiding rule, which looks at the same pairs without the network.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

import numpy as np

from trimtab.bench.cases import Measured, Setup, best_s
from trimtab.core import Decision, Policy, Snapshot, Workload
from trimtab.policies.adlro.branches import Branches, whole
from trimtab.policies.adlro.net import GUIDE, Net
from trimtab.policies.adlro.policy import SHIPPED, AdlroPolicy, AdlroRule, read_net
from trimtab.run import run
from trimtab.sim.backend import SimBackend
from trimtab.sim.world import Models
from trimtab.traces.scenes.adlro import adlro_cluster, adlro_jobs, adlro_profile

MODELS = Models(startup_s=30.0, move_s=30.0)
CLUSTERS = 64  # of the field whose decisions are labelled
HORIZON = 8  # arrivals, as `trimtab train adlro` plays them out


def jobs(count: int, seed: int = 0) -> Workload:
    rng = np.random.default_rng(seed)
    return adlro_jobs(rng=rng, jobs=count, load=0.9, estimate="noisy")


def by_both(rate: Callable[[Net], float], unit: str) -> Measured:
    return Measured(rate(read_net(SHIPPED)), unit, {"rule alone": rate(GUIDE)})


def whole_trace(setup: Setup) -> Measured:
    """Jobs of a whole trace in compiled code."""
    work, machines, profile = jobs(setup.of(5_000, 1_000)), adlro_cluster(), adlro_profile()

    def rate(net: Net) -> float:
        return len(work) / best_s(lambda: whole(work, machines, profile, MODELS, net), 3)

    return by_both(rate, "jobs/s")


def decisions(setup: Setup) -> Measured:
    """Decisions on snapshots, as a live cluster asks for them, on one core."""
    work = jobs(setup.of(600, 200))
    seen: list[Snapshot] = []

    class Kept(AdlroPolicy):
        def decide(self, snapshot: Snapshot) -> list[Decision]:
            if len(snapshot.queue):
                state = snapshot.state.copy()
                seen.append(snapshot._replace(state=state, free=snapshot.free.copy()))
            return super().decide(snapshot)

    run(SimBackend(work, adlro_cluster(), adlro_profile(), MODELS), Kept())
    kept = seen[:: max(len(seen) // 200, 1)]

    def rate(policy: Policy) -> float:
        return len(kept) / best_s(lambda: [policy.decide(snapshot) for snapshot in kept], 3)

    return Measured(rate(AdlroPolicy()), "decisions/s", {"rule alone": rate(AdlroRule())})


def labels(setup: Setup) -> Measured:
    """Training: decisions labelled on branches, on all cores."""
    clusters = setup.of(CLUSTERS, 16)
    works = [jobs(200, seed) for seed in range(clusters)]
    rng = np.random.default_rng(0)
    apart = [rng.integers(1, 120, clusters) for _ in range(setup.of(6, 2))]

    def rate(net: Net) -> float:
        made = 0

        def play() -> None:
            nonlocal made
            machines = [adlro_cluster()] * clusters
            field = Branches(works, machines, adlro_profile(), MODELS, horizon=HORIZON)
            made = 0
            for number, steps in enumerate(apart):
                field.play(net, steps, 0.05, number)
                made += len(field.label(net, number)[2])

        seconds = best_s(play, 2)
        return made / seconds

    return by_both(rate, "labels/s")


def dqn_steps(setup: Setup) -> Measured:
    """Training of the paper's DQN: decisions of 64 clusters, with their updates, on one core."""
    from trimtab.policies.dqn import field  # costs torch
    from trimtab.policies.dqn.learner import Learner, Settings, train

    steps = setup.of(12_800, 3_200)
    on = Settings(steps=steps, warmup=1_000, trunk="set").check()
    ground = field.ground(jobs(5_000), adlro_cluster(), adlro_profile(), MODELS, 256)

    def play() -> None:
        learner = Learner(on, ground.layout(on))
        list(train(field.BatchedField(ground, on, 0), learner, lambda _: 0.0, every=steps))

    return Measured(steps / best_s(play, 2), "decisions/s")


def load(setup: Setup) -> Measured:
    """How often a second the shipped network could be read from its file."""
    return Measured(1 / best_s(lambda: read_net(SHIPPED), 3), "loads/s")


BY_NAME: dict[str, Callable[[Setup], Measured]] = {
    "adlro-whole": whole_trace,
    "adlro-decide": decisions,
    "adlro-labels": labels,
    "adlro-load": load,
}
if find_spec("torch"):  # it comes with the extra that training needs
    BY_NAME["dqn-steps"] = dqn_steps
