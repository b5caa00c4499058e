"""Train the load encoder: median and 90th percentile of how far services' use of a node will rise.

Examples come from scenes whose swing, noise, reservation, regions and days are drawn at random, so
that the encoder does not hang on one of them; a seventh of them know no usual day. The loss is that
of the two quantiles. `errors` sets it beside what simpler estimates say on validation days.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.random import Generator
from torch import Tensor, nn

from trimtab.arrays import Array
from trimtab.errors import PolicyError
from trimtab.policies.forecast.outlook import examples, said
from trimtab.policies.forecast.training import lent_scene
from trimtab.policies.hierarchy.stage import AND
from trimtab.rules import encoder
from trimtab.rules.encoder import FEATURES, HIGH_Z, SHIPPED
from trimtab.rules.forecast import FEATURES as PLAIN
from trimtab.rules.forecast import HORIZON_S
from trimtab.rules.forecast import shipped as ridge
from trimtab.training.checkpoint import device_of, log_to, read_checkpoint, write_checkpoint

FIRST_SEED, HELD_SEED = 510_000, 610_000
QUANTILES = (0.5, 0.9)
UNKNOWN = 7  # one in so many scenes knows no usual day


@dataclass(frozen=True)
class Settings:
    """`trace` are co-located scenes, several with ; between them, drawn in turn."""

    steps: int = 6  # rounds through all examples
    scenes: int = 720
    held: int = 12  # scenes that validate
    machines: int = 24  # of each
    every: int = 6  # steps of use between two examples of a node
    hidden: int = 32
    batch: int = 2048
    learning_rate: float = 3e-3
    device: str = "auto"

    def check(self) -> Settings:
        for name in ("steps", "scenes", "held", "machines", "every", "hidden", "batch"):
            if getattr(self, name) < 1:
                raise PolicyError(f"{name}={getattr(self, name)} leaves nothing; give 1 or more")
        if not self.learning_rate > 0:
            raise PolicyError(f"learning_rate={self.learning_rate} is not above 0")
        return self


class Progress(NamedTuple):
    """How far a training is. On validation days, in points of a node, means over horizons: the
    absolute errors of the median, of the ridge and of standing still, and the loss of the 90th
    percentile, which is the ridge's with a deviation of 1.28.
    """

    step: int
    steps: int
    loss: float
    ridge: float
    still: float
    high_loss: float
    ridge_high_loss: float
    wall_s: float


def train_encoder(
    out: str | Path,
    *,
    trace: str = "colocated",
    seed: int = 0,
    command: str = "",
    **settings: Any,
) -> Iterator[Progress]:
    """Train into the folder `out`; goes on where a checkpoint of the same settings lies there.

    `out` gets encoder.npz, the weights after the rounds so far, and checkpoint.pt.
    """
    out, on = Path(out), Settings(**settings).check()
    made = {"trace": trace, "seed": seed, **asdict(on)}
    device = device_of(on.device)
    began_s = time.perf_counter()
    held = read_checkpoint(out, made, ("steps", "device", "held"))
    x, y = gathered(trace, "train", FIRST_SEED + 10_000 * seed, on.scenes, on)
    judged = gathered(trace, "validation", HELD_SEED + 10_000 * seed, on.held, on)
    torch.manual_seed(seed)
    net = Net(on.hidden, x.mean(0), x.std(0) + 1e-3).to(device)
    inputs, wanted = torch.tensor(x, device=device), torch.tensor(y, device=device)
    learner = torch.optim.AdamW(net.parameters(), on.learning_rate, weight_decay=1e-3)
    rounds = max(len(x) // on.batch, 1)
    pace = torch.optim.lr_scheduler.OneCycleLR(learner, on.learning_rate, on.steps * rounds)
    done, spent_s = 0, 0.0
    if held is not None:
        net.load_state_dict(held["net"])
        learner.load_state_dict(held["learner"])
        done, spent_s = int(held["done"]), float(held["spent_s"])
        pace.last_epoch = done * rounds
    with log_to(out, done) as log:
        for step in range(done, on.steps):
            chance = torch.Generator().manual_seed(1000 * seed + step)
            for rows in torch.randperm(len(x), generator=chance)[: rounds * on.batch].split(
                on.batch
            ):
                rows = rows.to(device)
                loss = pinball(net(inputs[rows]), wanted[rows])
                learner.zero_grad()
                loss.backward()
                learner.step()
                pace.step()
            layers = net.layers()
            about = {"settings": made, "rounds": step + 1, "examples": len(x)}
            encoder.write_weights(out / SHIPPED.name, layers, command=command, **about)
            wall_s = time.perf_counter() - began_s + spent_s
            state = {"net": net.state_dict(), "learner": learner.state_dict()}
            write_checkpoint(out, made, {**state, "done": step + 1, "spent_s": wall_s})
            found = errors(layers, *judged)
            log(step + 1, found)
            yield Progress(step=step + 1, steps=on.steps, wall_s=wall_s, **found)


class Net(nn.Module):
    """Three layers on standardised features."""

    def __init__(self, hidden: int, mean: Array, scale: Array) -> None:
        super().__init__()
        self.mean: Tensor
        self.scale: Tensor
        self.register_buffer("mean", torch.tensor(mean))
        self.register_buffer("scale", torch.tensor(scale))
        self.first, self.middle = nn.Linear(FEATURES, hidden), nn.Linear(hidden, hidden)
        self.last = nn.Linear(hidden, 2 * len(HORIZON_S))

    def forward(self, x: Tensor) -> Tensor:
        """(B, 2, H) medians, and how far the 90th percentiles lie above them."""
        seen = torch.relu(self.first((x - self.mean) / self.scale))
        said = self.last(torch.relu(self.middle(seen))).view(-1, 2, len(HORIZON_S))
        return torch.stack((said[:, 0], nn.functional.softplus(said[:, 1])), 1)

    def layers(self) -> tuple[Array, Array, Array]:
        """The same as compiled code takes it: the standardising is part of the first layer."""
        parts = [self.first, self.middle, self.last]
        made = [
            np.vstack([one.weight.detach().cpu().numpy().T, one.bias.detach().cpu().numpy()[None]])
            for one in parts
        ]
        mean, scale = self.mean.cpu().numpy(), self.scale.cpu().numpy()
        made[0][-1] -= (mean / scale) @ made[0][:-1]
        made[0][:-1] /= scale[:, None]
        first, middle, last = (one.astype(np.float64) for one in made)
        return first, middle, last


def pinball(said: Tensor, wanted: Tensor) -> Tensor:
    """The loss of both quantiles."""
    low, high = wanted - said[:, 0], wanted - said[:, 0] - said[:, 1]
    losses = [torch.maximum(q * off, (q - 1) * off) for q, off in zip(QUANTILES, (low, high))]
    return torch.stack(losses).mean()


def drawn_settings(rng: Generator) -> str:
    """What a scene differs in from others."""
    settings = {
        "swing": rng.uniform(0.5, 1.2),
        "reserved": rng.uniform(0.55, 0.95),
        "noise": rng.uniform(0.1, 0.6),
        "uneven": rng.uniform(0.0, 0.4),
        "odd": rng.random() if rng.random() < 0.5 else 0.0,
        "phase": rng.choice([0.0, 0.5, 1.0]),
        "sample_s": rng.choice([10.0, 15.0, 15.0, 15.0, 30.0]),
        "surges": rng.choice([0.0, 0.0, 0.0, 1.0]),
    }
    return ",".join(f"{name}={value:.3g}" for name, value in settings.items())


def gathered(trace: str, split: str, first: int, scenes: int, on: Settings) -> tuple[Array, Array]:
    """Features (E, F) and rises (E, H) of so many scenes; validation is on the scene as it is."""
    traces = trace.split(AND)
    found = []
    for number in range(scenes):
        seed = first + number
        rng = np.random.default_rng(seed)
        more = drawn_settings(rng) if split == "train" else ""
        scene = lent_scene(traces[number % len(traces)], split, seed, on.machines, more)
        found.append(examples(scene, on.every, known=bool(number % UNKNOWN)))
    x, y = (np.concatenate(part) for part in zip(*found))
    return x, y


def errors(layers: tuple[Array, Array, Array], x: Array, y: Array) -> dict[str, float]:
    """Of the encoder, the ridge of `forecast`, and of use that stands still: see Progress."""
    median, high = said(layers, x)
    plain = ridge()
    other = np.maximum(x[:, :PLAIN] @ plain[:, :-1].T, 0.0)
    return {
        "loss": absolute(np.maximum(median, 0.0), y),
        "ridge": absolute(other, y),
        "still": absolute(np.zeros_like(other), y),
        "high_loss": high_loss(high, y),
        "ridge_high_loss": high_loss(other + HIGH_Z * plain[:, -1], y),
    }


def absolute(foreseen: Array, truth: Array) -> float:
    """Mean absolute error in points."""
    return 100 * float(np.abs(foreseen - truth).mean())


def high_loss(foreseen: Array, truth: Array) -> float:
    """Mean loss of the 90th percentile, in points."""
    off, q = truth - foreseen, QUANTILES[1]
    return 100 * float(np.maximum(q * off, (q - 1) * off).mean())
