"""How the learned scheduler learns: Q-learning whose targets are played out on both branches.

A round plays many clusters by the present policy. At decisions along the way every candidate is
tried on a copy of the cluster and played to the end of a short horizon (branches): the return
of n steps, n to the end, with the same arrivals for all candidates of a decision. The network
learns what each saves against waiting (the advantage of a dueling network, with waiting as its
zero) from the rounds kept, and the next round plays by it. Round 0 plays by the guiding rule: what
it teaches is one step of policy improvement over that rule.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import nn

from trimtab.arrays import Array
from trimtab.files import whole
from trimtab.policies.adlro.net import GUIDE, Net, net_of
from trimtab.policies.adlro.pairs import WIDTH
from trimtab.policies.adlro.policy import write_net
from trimtab.policies.networks import WRITTEN
from trimtab.training.checkpoint import read_checkpoint, write_checkpoint

MARGINS = (0.4, 0.3, 0.2, 0.15, 0.1, 0.05, 0.02, 0.0)
HOPELESS = 1.1  # times the best ratio: smaller margins trust the network even more
CLIP = 20.0  # of a target: rare disasters teach, but do not deafen


class Field(Protocol):
    """Clusters in the middle of their episodes (branches.Branches)."""

    @property
    def over(self) -> Array: ...

    def play(self, net: Net, steps: Array, explore: float, seed: int) -> None: ...

    def label(self, net: Net, seed: int) -> tuple[Array, Array, Array]: ...


class Labels(NamedTuple):
    """Decisions with what each candidate was worth."""

    rows: Array  # (D, tries, WIDTH) f4
    worth: Array  # (D, tries) f4
    tries: Array  # (D,) made


@dataclass(frozen=True)
class Settings:
    """What a training is made of; two with the same settings make the same network."""

    rounds: int = 5
    decisions: int = 40_000  # labelled a round
    width: int = 48
    steps: int = 3_000  # of gradient descent a round
    batch: int = 1_024  # decisions
    learning_rate: float = 1e-3
    explore: float = 0.05
    apart: int = 120  # at most so many decisions between two that are labelled
    keep: int = 6  # rounds in the replay
    huber: float = 2.0
    reach: float = 0.5  # waiting jobs a node: with more of them the rule decides alone
    seed: int = 0


class Told(NamedTuple):
    """How far a training is; what is known only after a round is NaN before it."""

    step: int  # decisions labelled so far
    steps: int
    round: int
    loss: float
    ratio: float  # mean completion time against the guiding rule's, on validation windows
    best_ratio: float  # of the network in adlro.onnx
    margin: float
    wall_s: float


def network(width: int, seed: int) -> nn.Sequential:
    """Two hidden layers: each pair is a row of its own, so the network cares for no order."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(WIDTH, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1)
    )


def layers_of(model: nn.Sequential) -> list[tuple[Array, Array]]:
    linear = (layer for layer in model if isinstance(layer, nn.Linear))
    return [
        (layer.weight.detach().cpu().numpy().T, layer.bias.detach().cpu().numpy())
        for layer in linear
    ]


def gather(
    draw: Callable[[np.random.Generator], Field],
    net: Net,
    settings: Settings,
    rng: np.random.Generator,
) -> Iterator[Labels]:
    """Label so many decisions, a few at a time; a field is left when most of its episodes ended."""
    made = 0
    while made < settings.decisions:
        field = draw(rng)
        while np.mean(field.over) < 0.6 and made < settings.decisions:
            steps = rng.integers(1, settings.apart, len(field.over))
            field.play(net, steps, settings.explore, int(rng.integers(2**30)))
            rows, worth, tries = field.label(net, int(rng.integers(2**30)))
            made += len(tries)
            yield Labels(rows.copy(), worth.astype(np.float32), tries.copy())


def joined(parts: list[Labels]) -> Labels:
    return Labels(*(np.concatenate([part[i] for part in parts]) for i in range(3)))


def fit(model: nn.Sequential, labels: Labels, settings: Settings, device: str, seed: int) -> float:
    """Descend on the Huber loss of the candidates tried; returns its mean over the last tenth."""
    torch.manual_seed(seed)
    rows, worth, tries = (torch.from_numpy(part).to(device) for part in labels)
    worth = worth.clamp(-CLIP, CLIP)
    tried = (torch.arange(worth.shape[1], device=device)[None] < tries[:, None]).float()
    optimiser = torch.optim.Adam(model.parameters(), lr=settings.learning_rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, 2 * settings.learning_rate, total_steps=settings.steps + 1
    )
    last = []
    for step in range(settings.steps):
        pick = torch.randint(0, len(rows), (settings.batch,), device=device)
        error = nn.functional.huber_loss(
            model(rows[pick]).squeeze(-1), worth[pick], reduction="none", delta=settings.huber
        )
        loss = (error * tried[pick]).sum() / tried[pick].sum()
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        if step >= 0.9 * settings.steps:
            last.append(loss.detach())
    return float(torch.stack(last).mean())


def best_margin(
    model: nn.Sequential, reach: float, validate: Callable[[Net], Array], by_rule: Array
) -> tuple[float, float]:
    """(ratio, margin) with the least mean completion time on the validation windows, as the
    geometric mean of the ratios to the guiding rule's.
    """
    layers = layers_of(model)
    best = (np.inf, MARGINS[0])
    for margin in MARGINS:
        ratio = float(np.exp(np.log(validate(net_of(layers, margin, reach)) / by_rule).mean()))
        best = min(best, (ratio, margin))
        if ratio > HOPELESS * best[0]:
            break
    return best


def train(
    draw: Callable[[np.random.Generator], Field],
    validate: Callable[[Net], Array],
    out: Path,
    settings: Settings,
    *,
    device: str = "cpu",
    command: str = "",
) -> Iterator[Told]:
    """Train, a round at a time; what stops in the middle goes on from the last whole round.

    `draw` makes a field of clusters, `validate` gives the mean completion time of a network on each
    validation window. `out` holds checkpoint.pt, the replay, and adlro.onnx: the best network.
    """
    state = resumed(out, settings)
    clock = Clock(state["wall_s"])
    by_rule = validate(GUIDE)
    model = network(settings.width, settings.seed).to(device)
    if state["model"] is not None:
        model.load_state_dict(state["model"])
    steps = settings.rounds * settings.decisions
    for number in range(state["round"], settings.rounds):
        rng = np.random.default_rng([settings.seed, number])
        net = GUIDE if number == 0 else net_of(layers_of(model), state["margin"], settings.reach)
        parts: list[Labels] = []
        step = number * settings.decisions
        for part in gather(draw, net, settings, rng):
            parts.append(part)
            step += len(part.tries)
            unknown = np.nan
            yield Told(step, steps, number, unknown, unknown, state["best"], unknown, clock.now_s())
        save_labels(out, number, joined(parts))
        recent = range(max(number + 1 - settings.keep, 0), number + 1)
        kept = joined([load_labels(out, n) for n in recent])
        loss = fit(model, kept, settings, device, settings.seed + number)
        ratio, margin = best_margin(model, settings.reach, validate, by_rule)
        if ratio < state["best"]:
            state["best"] = float(ratio)
            about = {"command": command, "settings": json.dumps(asdict(settings)), "ratio": ratio}
            write_net(out / WRITTEN["adlro"], layers_of(model), margin, settings.reach, **about)
        state |= {"round": number + 1, "margin": float(margin), "model": model.state_dict()}
        state["wall_s"] = clock.now_s()
        write_checkpoint(out, asdict(settings), {"state": state})
        yield Told(step, steps, number, loss, ratio, state["best"], margin, state["wall_s"])


class Clock:
    """Seconds of training, those before an interruption included."""

    def __init__(self, before_s: float) -> None:
        self.began_s = time.perf_counter() - before_s

    def now_s(self) -> float:
        return time.perf_counter() - self.began_s


def resumed(out: Path, settings: Settings) -> dict[str, Any]:
    """What the last whole round left, or the beginning."""
    held = read_checkpoint(out, asdict(settings), free=("rounds",))
    if held is None:
        return {"round": 0, "margin": 0.0, "model": None, "best": math.inf, "wall_s": 0.0}
    return dict(held["state"])


def save_labels(out: Path, number: int, labels: Labels) -> None:
    with whole(out / f"round-{number}.npz") as place, place.open("wb") as file:
        np.savez(file, **labels._asdict())


def load_labels(out: Path, number: int) -> Labels:
    held = np.load(out / f"round-{number}.npz")
    return Labels(*(held[name] for name in Labels._fields))
