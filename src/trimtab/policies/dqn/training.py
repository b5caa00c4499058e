"""Training of the DQN on a trace, its checkpoint and log, and tests of what it learned."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.core import Cluster, Profile
from trimtab.errors import PolicyError
from trimtab.policies.dqn.field import (
    BatchedField,
    Ground,
    Windows,
    demonstrations,
    ground,
    shuffled,
)
from trimtab.policies.dqn.learner import Learner, Settings, train
from trimtab.policies.dqn.net import export
from trimtab.policies.networks import WRITTEN
from trimtab.policies.rule import RulePolicy
from trimtab.sim.world import Models
from trimtab.traces.scenes.presets import preset
from trimtab.traces.scenes.scene import open_scene
from trimtab.traces.scenes.synthetic import generate
from trimtab.training.checkpoint import (
    device_of,
    log_to,
    read_checkpoint,
    stopped_by_key,
    write_checkpoint,
)

RULES = ("fcfs", "fcfs+affinity", "sjf+fastest")
HELD_OUT = 0.2  # share of a trace file's rows, its last, that validation has
VALIDATION_SEED = 10_000  # a generator's validation windows have the training's seed + this
TEST_SEED = 20_000  # of the ablation's windows, which nothing is chosen on
NETWORK = WRITTEN["dqn"]


class Progress(NamedTuple):
    """How far a training is, beside the best rule on the same validation windows."""

    step: int
    steps: int
    loss: float
    epsilon: float
    q: float
    jct_s: float
    best_jct_s: float  # of the networks so far: the one in dqn.onnx
    rule: str
    rule_jct_s: float
    wall_s: float


def train_dqn(
    out: str | Path,
    *,
    trace: str = "adlro",
    cluster: str | None = None,
    jobs: int = 256,
    train_jobs: int = 20_000,
    windows: int = 16,
    window_jobs: int = 500,
    startup_s: float = 30.0,
    every: int = 50_000,
    device: str = "auto",
    command: str = "",
    **settings: Any,
) -> Iterator[Progress]:
    """Train into the folder `out`; goes on where a checkpoint of the same settings lies there.

    An episode has `jobs` jobs. A generator makes `train_jobs` of them and, from another seed,
    `windows` validation windows of `window_jobs`; a trace file gives its last fifth to validation.
    `out` gets checkpoint.pt, dqn.onnx (the network that was best in validation) and a log for
    TensorBoard. Ctrl-C writes a checkpoint first. `Settings` has the other settings.
    """
    out, on = Path(out), Settings(**settings).check()
    field_of: dict[str, Any] = dict(
        trace=trace, cluster=cluster, jobs=jobs, train_jobs=train_jobs, windows=windows,
        window_jobs=window_jobs, startup_s=startup_s,
    )  # fmt: skip
    ours, held = grounds(on.seed, **field_of)
    made = {**field_of, **asdict(on)}
    learner = Learner(on, ours.layout(on), device_of(device))
    held_back = read_checkpoint(out, made, free=("steps",))
    if held_back:
        learner.load(held_back["learner"])
    best = float(held_back["best"]) if held_back else float("inf")
    if on.imitate:
        learner.shown = demonstrations(ours, on, on.imitate)
    validation = Windows(held)
    rule, rule_jct_s = best_rule(validation)
    field = BatchedField(ours, on, on.seed + learner.step)
    with stopped_by_key() as pressed, log_to(out, learner.step) as log:
        for told in train(
            field, learner, lambda one: float(validation.by_learner(one).mean()),
            every=every, stop=lambda: bool(pressed),
        ):  # fmt: skip
            of_jct = {"dqn": told.jct_s, "best rule": rule_jct_s}
            log(told.step, {name: getattr(told, name) for name in ("loss", "epsilon", "q")})
            log(told.step, {f"mean completion s/{name}": s for name, s in of_jct.items()})
            if told.jct_s < best:
                best = told.jct_s
                about = {"settings": json.dumps(made), "validation_jct_s": f"{best:.1f}"}
                export(learner.net, out / NETWORK, command, **about)
            write_checkpoint(out, made, {"best": best, "learner": learner.state()})
            yield Progress(
                *told[:6], best_jct_s=best, rule=rule, rule_jct_s=rule_jct_s, wall_s=told.wall_s
            )
        if pressed:
            write_checkpoint(out, made, {"best": best, "learner": learner.state()})
            raise KeyboardInterrupt


def grounds(
    seed: int,
    *,
    trace: str,
    cluster: str | None,
    jobs: int,
    train_jobs: int,
    windows: int,
    window_jobs: int,
    startup_s: float,
) -> tuple[Ground, Ground]:
    """Where to train and where to validate."""
    models = Models(startup_s=startup_s, move_s=startup_s)
    whole = open_scene(trace, cluster, seed=seed)
    if whole.made:
        first = open_scene(trace, cluster, seed=seed, jobs=train_jobs).workload
        held = open_scene(trace, cluster, seed=seed + VALIDATION_SEED, jobs=windows * window_jobs)
        other = held.workload
    else:
        cut = max(int(len(whole.workload) * (1 - HELD_OUT)), 1)
        if len(whole.workload) < 2 * jobs:
            raise PolicyError(
                f"{trace}: {len(whole.workload)} jobs are too few for episodes of jobs={jobs} and "
                f"a part that is held out; give --set jobs={max(len(whole.workload) // 10, 1)}"
            )
        first, other = whole.workload.window(0, cut), whole.workload.window(cut)
        window_jobs = min(window_jobs, max(len(other) // windows, 1))
    place = (whole.cluster, whole.profile, models)
    return ground(first, *place, jobs), ground(other, *place, window_jobs)


def best_rule(windows: Windows) -> tuple[str, float]:
    """The rule with the least mean completion time, and that."""
    found = {rule: float(windows.by_policy(partial(RulePolicy, rule)).mean()) for rule in RULES}
    rule = min(found, key=lambda name: found[name])
    return rule, found[rule]


def tested(
    policy: str,
    settings: dict[str, Any],
    seed: int,
    *,
    shuffle: bool = False,
    windows: int = 8,
    window_jobs: int = 500,
    orders: int = 2,
) -> dict[str, float]:
    """Mean completion times of a network trained by these settings, on test windows of the ADLRO
    scene (16 GPUs, load 0.9, start-up 30 s): as the GPUs stood in training, and in other orders.

    `shuffle` trains in an order of its own. Of a training the network that was best in validation
    is tested. `policy` is what the caller calls it.
    """
    place = scene(seed if shuffle else None)
    began_s = time.perf_counter()
    learner = trained(Settings(**settings, seed=seed).check(), place, windows)
    spent_s = time.perf_counter() - began_s
    test = replace(adlro_windows(TEST_SEED, scene(), windows, window_jobs).on, cluster=place[0])
    return {
        "jct_s": float(Windows(test).by_learner(learner).mean()),
        "permuted_s": float(permuted(learner, test, orders, seed).mean()),
        "spent_s": spent_s,
    }


def scene(shuffle: int | None = None) -> tuple[Cluster, Profile, Models]:
    """The ADLRO cluster, its GPUs in the order that a seed gives, or in blocks of one make."""
    cluster, profile = preset("adlro")
    if shuffle is not None:
        cluster = shuffled(cluster, np.random.default_rng([shuffle, 4]))
    return cluster, profile, Models(startup_s=30.0, move_s=30.0)


def adlro_windows(
    seed: int, place: tuple[Cluster, Profile, Models], windows: int, window_jobs: int
) -> Windows:
    work = generate("adlro", seed=seed, jobs=windows * window_jobs, load=0.9)
    return Windows(ground(work, *place, window_jobs))


def trained(
    on: Settings,
    place: tuple[Cluster, Profile, Models],
    windows: int = 16,
    every: int = 25_000,
) -> Learner:
    """A learner after its steps on the ADLRO scene, with the network best in validation."""
    work = generate("adlro", seed=on.seed, jobs=20_000, load=0.9)
    ours = ground(work, *place, 256)
    validation = adlro_windows(VALIDATION_SEED + on.seed, place, windows, 300)
    learner = Learner(on, ours.layout(on))
    if on.imitate:
        learner.shown = demonstrations(ours, on, on.imitate)
    best, kept = float("inf"), learner.net.state_dict()
    field = BatchedField(ours, on, on.seed)
    for told in train(
        field, learner, lambda one: float(validation.by_learner(one).mean()), every=every
    ):
        if told.jct_s < best:
            best = told.jct_s
            kept = {name: value.clone() for name, value in learner.net.state_dict().items()}
    learner.net.load_state_dict(kept)
    return learner


def permuted(learner: Learner, on: Ground, orders: int = 4, seed: int = 0) -> Array:
    """(orders,) mean completion times of the same network where the GPUs stand in another order.

    A policy that reads the GPUs' features and not their places is as good in any order.
    """
    rng = np.random.default_rng([seed, 3])
    found = []
    for _ in range(orders):
        there = replace(on, cluster=shuffled(on.cluster, rng))
        found.append(float(Windows(there).by_learner(learner).mean()))
    return np.array(found)
