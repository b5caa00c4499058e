"""Train a peer on training days: rounds of played scenes, each learned from and forgotten; the best
on validation days is kept. Every peer is given the same scenes, and as many of them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from trimtab.errors import PolicyError, TraceError
from trimtab.play import play
from trimtab.policies.peers.files import Weights, write_weights
from trimtab.policies.peers.kinds import REINFORCE, Peer, peer_of
from trimtab.policies.peers.learning import Learner, Round
from trimtab.policies.peers.mind import tape
from trimtab.policies.peers.played import Played
from trimtab.policies.peers.policy import PeerPolicy, play_whole
from trimtab.policies.peers.validation import ESTIMATE, TRIED, at_harm
from trimtab.policies.rule import RulePolicy
from trimtab.sim.world import Models
from trimtab.traces.scenes.scene import Scene, open_scene
from trimtab.training.kept import read_kept, write_kept

FREE = ("steps", "held", "threads")  # may differ when a training goes on
FIRST_SEED, HELD_SEED = 700_000, 800_000
HELD_LOADS = (0.6, 0.9, 1.1)
LOADS, LIMITS = (0.6, 1.1), (0.8, 0.95)  # drawn between
DECISIONS, ROWS = 20_000, 400_000  # of a scene, as far as they are learned from
RUNS = 5  # of one scene, where a baseline is their mean
EXPLORES = (0.3, 0.02, 0.6)  # share of random choices first and last, and by when
KEPT = ("theta", "critic", "moments", "gradients", "best", "way", "done", "spent_s")


@dataclass(frozen=True)
class Settings:
    """How long and on what; the trace is `colocated`, or the same with files of yours."""

    steps: int = 1500  # played scenes
    round: int = 10  # of them between two updates
    pool: int = 150  # different ones; loads and limits are drawn anew at each
    held: int = 9  # scenes that validate
    every: int = 15  # rounds between two validations
    machines: int = 24  # of each scene
    rate: float = 0.003  # of learning, at first
    threads: int = 1  # of torch: networks so small are not worth more

    def check(self) -> Settings:
        for name in ("steps", "round", "pool", "held", "every", "machines", "threads"):
            if getattr(self, name) < 1:
                raise PolicyError(f"{name}={getattr(self, name)} leaves nothing; give 1 or more")
        if not self.rate > 0:
            raise PolicyError(f"rate={self.rate} teaches nothing; give more than 0")
        return self


class Progress(NamedTuple):
    """How far a training is; losses are mean logs of cost at one per cent of harm."""

    step: int
    steps: int
    loss: float  # NaN between validations
    best_loss: float
    worth: float  # of a decision, mean
    wall_s: float


def train_peer(
    name: str,
    out: str | Path,
    *,
    trace: str = "colocated:regions=3,span_s=900",
    seed: int = 0,
    command: str = "",
    **settings: Any,
) -> Iterator[Progress]:
    """Train into the folder `out`; goes on where a checkpoint of the same settings lies there.

    `out` gets NAME.npz, the weights that were best in validation, and checkpoint.npz.
    """
    out, on, peer = Path(out), Settings(**settings).check(), peer_of(name)
    made = {"peer": name, "trace": trace, "seed": seed, **asdict(on)}
    torch.set_num_threads(on.threads)
    learner = Learner(peer, on.rate, seed)
    best, way, done, spent_s = float("inf"), len(peer.ways) - 1, 0, 0.0
    held = read_kept(out, made, FREE, KEPT)
    if held is not None:
        learner.load(held)
        best, way, done = float(held["best"]), int(held["way"]), int(held["done"])
        spent_s = float(held["spent_s"])
    began_s = time.perf_counter() - spent_s
    held_scenes = _held(trace, seed, on) if done < on.steps else []
    while done < on.steps:
        many = min(on.round, on.steps - done)
        played, scenes = [], []
        for number in range(done, done + many):
            scene = _number(peer, number) % on.pool
            one = _play(name, learner, way, trace, seed, on, scene, number)
            if one is not None:
                played.append(one)
                scenes.append(scene)
        done += many
        worth, loss = float("nan"), float("nan")
        if any(len(one.act) for one in played):
            seen = Round.of(peer, played, scenes)
            worth = float(seen.worth.mean())
            left = max(1.0 - (done - many) / on.steps, 0.1)
            learner.learn(seen, np.random.default_rng([seed, done]), left)
        if done // on.round % on.every == 0 or done >= on.steps:
            loss, here = _validated(name, learner, held_scenes)
            if loss < best:
                best, way = loss, here
                write_weights(
                    out / f"{name}.npz", learner.theta, *peer.ways[way],
                    {"command": command, "settings": made, "scenes": done, "loss": loss},
                )  # fmt: skip
        wall_s = time.perf_counter() - began_s
        write_kept(
            out, made,
            {**learner.state(), "best": best, "way": way, "done": done, "spent_s": wall_s},
        )  # fmt: skip
        yield Progress(done, on.steps, loss, best, worth, wall_s)


def _number(peer: Peer, number: int) -> int:
    """Which scene is played as this one: several runs of the same, where a baseline wants them."""
    return number // RUNS if peer.learner == REINFORCE else number


def _play(
    name: str, learner: Learner, way: int, trace: str, seed: int, on: Settings, scene: int,
    number: int,
) -> Played | None:  # fmt: skip
    """One scene with choices drawn; None where some job never fitted under so low a limit."""
    peer, first = learner.peer, FIRST_SEED + 100_000 * seed
    load = float(np.random.default_rng([seed, scene, 1]).uniform(*LOADS))
    limit = float(np.random.default_rng([seed, _number(peer, number), 2]).uniform(*LIMITS))
    opened = _scene(trace, "train", first + scene, on.machines, round(load, 3))
    begin, end, by = EXPLORES
    rate = max(begin + (end - begin) * number / (by * on.steps), end)
    policy = PeerPolicy(
        name, borrow=f"{ESTIMATE}@{limit:.4f}", weights=Weights(learner.theta, *peer.ways[way], {})
    )
    kept = tape(DECISIONS, ROWS, peer.features + peer.masked, peer.memory[0] * peer.memory[1])
    mind = peer.mind(learner.theta, peer.explores, rate, number)
    work, rack = opened.workload, opened.cluster
    try:
        ended = play_whole(policy, mind, kept, work, rack, opened.profile, Models())
    except PolicyError:
        return None
    return Played.of(kept, work, ended.state)


def _validated(name: str, learner: Learner, held: list[Scene]) -> tuple[float, int]:
    """The loss of the best way to run it, and which that is."""
    losses = [at_harm(name, Weights(learner.theta, *way, {}), held) for way in learner.peer.ways]
    return min(losses), int(np.argmin(losses))


def _held(trace: str, seed: int, on: Settings) -> list[Scene]:
    """Scenes that validate: such as a rule brings to their end under the least limit tried."""
    found: list[Scene] = []
    rule = f"smallest-area+greedy+calm+{ESTIMATE}@{TRIED[0]:g}"
    first = HELD_SEED + 100_000 * seed
    for number in range(first, first + 20 * on.held):
        load = HELD_LOADS[len(found) % len(HELD_LOADS)]
        scene = _scene(trace, "validation", number, on.machines, load)
        with suppress(PolicyError):
            play(RulePolicy(rule), scene)
            found.append(scene)
        if len(found) == on.held:
            return found
    raise PolicyError(f"{trace}: in hardly any scene every job fits; give more machines")


@lru_cache(maxsize=300)
def _scene(trace: str, split: str, seed: int, machines: int, load: float) -> Scene:
    mark = "," if ":" in trace else ":"
    scene = open_scene(f"{trace}{mark}machines={machines},split={split}", seed=seed, load=load)
    if scene.cluster.lending is None:
        raise TraceError(f"{trace}: no services lend anything there; give a co-located scene")
    return scene


train_deeprm, train_rjoub = partial(train_peer, "deeprm"), partial(train_peer, "rjoub")
train_islam_dqn = partial(train_peer, "islam-dqn")
train_islam_reinforce = partial(train_peer, "islam-reinforce")
train_cheng, train_rlscheduler = partial(train_peer, "cheng"), partial(train_peer, "rlscheduler")
train_belgacem, train_ghasemi = partial(train_peer, "belgacem"), partial(train_peer, "ghasemi")
