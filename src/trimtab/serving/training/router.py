"""Training of routers: the network that steers the lookahead, or the paper's router."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import torch

from trimtab.errors import ServeError
from trimtab.serving.net.serve_profile import ServeProfile
from trimtab.serving.net.serve_profile import load as load_profile
from trimtab.serving.routing.learned_router import AHEAD, PAPER, save
from trimtab.serving.training.router_ppo import SPEEDS, WEIGHTINGS, Ppo, PpoSettings
from trimtab.serving.training.router_search import CHANCE, SearchSettings, search, start, validated
from trimtab.training.checkpoint import (
    log_to,
    read_checkpoint,
    stopped_by_key,
    write_checkpoint,
)

ROUTER = "router.npz"
FREE = ("updates", "generations")  # a training may go on for longer
KINDS = ("ahead", *WEIGHTINGS)


@dataclass(frozen=True)
class RouterSettings(PpoSettings):
    """Settings of the paper's router, then those of the search; each kind reads its own."""

    generations: int = 30
    pairs: int = 5
    spread: float = 0.3
    rate: float = 0.3

    def for_search(self) -> SearchSettings:
        return SearchSettings(
            generations=self.generations, pairs=self.pairs, spread=self.spread, rate=self.rate
        ).check()


class Progress(NamedTuple):
    """How far a training is."""

    step: int
    steps: int
    loss: float  # less the mean reward, or the share of answers not right in time
    latency_s: float
    wall_s: float


def train_router(
    out: str | Path,
    *,
    kind: str = "ahead",
    profile: str = "cpu",
    seed: int = 0,
    command: str = "",
    **settings: Any,
) -> Iterator[Progress]:
    """Train into the folder `out`; goes on where a checkpoint of the same settings lies there.

    `kind` is `ahead` (evolution strategies on the network that steers the lookahead) or a weighting
    of the paper's router: `light` or `balanced`. `profile` is a file of `trimtab serve profile`,
    or a shipped one's name. `out` gets checkpoint.pt, a log for TensorBoard, at the end router.npz.
    """
    if kind not in KINDS:
        raise ServeError(f"kind={kind!r} is unknown; give one of {', '.join(KINDS)}")
    out, on = Path(out), RouterSettings(**settings).check()
    costs = load_profile(profile)
    made = {"kind": kind, "seed": seed, **asdict(on)}
    trained = _searched if kind == "ahead" else _ppo
    held = (read_checkpoint(out, made, FREE) or {}).get("state", {})
    with stopped_by_key() as pressed, log_to(out, int(held.get("step", 0))) as log:
        rows = trained(costs, on, made, held, out, _facts(costs, made, command))
        for progress in rows:
            log(progress.step, {"loss": progress.loss, "latency_s": progress.latency_s})
            yield progress
            if pressed:
                raise KeyboardInterrupt


def _facts(profile: ServeProfile, made: dict[str, Any], command: str) -> dict[str, Any]:
    return {"command": command, "settings": made, "profile": profile.source}


def _searched(
    profile: ServeProfile,
    on: RouterSettings,
    made: dict[str, Any],
    held: dict[str, Any],
    out: Path,
    facts: dict[str, Any],
) -> Iterator[Progress]:
    how, seed, began_s = on.for_search(), int(made["seed"]), perf_counter()
    theta = held["theta"].double().numpy() if held else None
    net = start(how, seed)
    for generation in search(profile, how, seed, theta, int(held.get("step", 0))):
        state = {"theta": torch.from_numpy(generation.theta), "step": generation.step}
        write_checkpoint(out, made, {"state": state})
        yield Progress(
            generation.step, how.generations, 1 - generation.good, np.nan, perf_counter() - began_s
        )
        theta = generation.theta
    if theta is not None:
        gain, error = validated(profile, how, (net[0], net[1], theta), seed)
        measured = {"gain": gain, "gain_error": error, "wins": gain > CHANCE * error}
        save(out / ROUTER, AHEAD, (net[0], net[1], theta), {**facts, **measured})


def _ppo(
    profile: ServeProfile,
    on: RouterSettings,
    made: dict[str, Any],
    held: dict[str, Any],
    out: Path,
    facts: dict[str, Any],
) -> Iterator[Progress]:
    on, began_s = on.weighted(made["kind"], profile), perf_counter()
    learner = Ppo(profile, on, int(made["seed"]))
    if held:
        learner.load(held)
    while learner.step < on.updates:
        batch = learner.update()
        write_checkpoint(out, made, {"state": learner.state()})
        latency_s = float(batch.part[:, 1].mean())
        spent_s = perf_counter() - began_s
        yield Progress(learner.step, on.updates, -float(batch.reward.mean()), latency_s, spent_s)
    weights = {name: getattr(on, name) for name in ("alpha", "beta", "gamma", "delta", "bonus")}
    reward = {"weights": weights, "speeds": list(SPEEDS)}
    save(out / ROUTER, PAPER, learner.mlp.net(), {**facts, **reward})
