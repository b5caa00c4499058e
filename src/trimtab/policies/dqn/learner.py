"""The learner of the DQN: experience from many clusters at once, replay, target network, update.

Double (van Hasselt et al., 2016), dueling (Wang et al., 2016), several steps (Sutton, 1988),
prioritised replay (Schaul et al., 2016) and a warm start from a rule by large-margin loss (Hester
et al., 2018) are switches of `Settings`.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.random import Generator
from torch import Tensor

from trimtab.arrays import Array
from trimtab.errors import PolicyError, UnknownName
from trimtab.policies.dqn.net import QNet
from trimtab.policies.dqn.policy import MODES, TRUNKS, Layout
from trimtab.policies.dqn.replay import Batch, Replay

REWARDS = ("dense", "completion")
DISCOUNTS = ("time", "step")


@dataclass(frozen=True)
class Settings:
    """What a training is made of."""

    steps: int = 500_000  # decisions of all clusters together
    clusters: int = 64  # stepped at once
    mode: str = "full"  # or paper: utilisation, queue length, priority and kind of the oldest job
    trunk: str = "set"  # indifferent to the nodes' order and number; or cnn, as in the paper
    window: int = 16  # waiting jobs to choose among; 1 in paper mode
    reward: str = "dense"  # or completion: the same sum, paid when a job ends
    idle_weight: float = 0.5  # lambda of the paper
    gamma: float = 0.95
    discount: str = "time"  # gamma a mean gap between arrivals; step: gamma a decision
    learning_rate: float = 1e-3  # 1e-4 in the paper
    updates: int = 4  # of the network, each time that all clusters have decided
    batch: int = 128
    replay: int = 100_000  # decisions
    warmup: int = 5_000  # decisions before the first update
    target_every: int = 100  # updates
    explore_first: float = 1.0
    explore_last: float = 0.02
    explore_steps: int = 100_000  # decisions from the one to the other
    double: bool = True
    dueling: bool = True
    n_step: int = 5
    prioritised: bool = False
    alpha: float = 0.6  # of prioritised replay
    beta: float = 0.4  # the same, at the beginning; 1 at the end
    clip: float = 10.0  # norm of a gradient
    hidden: int = 128
    imitate: str = ""  # a rule to start from, such as sjf+fastest
    demonstrations: int = 5_000  # decisions of that rule
    imitate_updates: int = 1_000  # on them alone, before any other experience
    imitate_share: float = 0.25  # of a batch
    margin: float = 0.5  # by which its action shall be the better one
    threads: int = 1  # of torch on a CPU: these networks are too small to share among more
    seed: int = 0

    def check(self) -> Settings:
        """Refuse what cannot be trained, with the setting and the remedy."""
        for name, known in (
            ("mode", MODES),
            ("trunk", TRUNKS),
            ("reward", REWARDS),
            ("discount", DISCOUNTS),
        ):
            if getattr(self, name) not in known:
                raise UnknownName(
                    f"{name}={getattr(self, name)!r} is unknown; known: {', '.join(known)}"
                )
        for name in ("gamma", "explore_first", "explore_last", "imitate_share", "alpha", "beta"):
            if not 0 <= getattr(self, name) <= 1:
                raise PolicyError(f"{name}={getattr(self, name)} is not in 0..1; give a share")
        whole = [one.name for one in fields(self) if isinstance(one.default, int)]
        for name in (*whole, "idle_weight", "margin", "learning_rate", "clip"):
            low = 0 if name in ("seed", "imitate_updates", "idle_weight", "margin") else 1e-12
            if not isinstance(one := getattr(self, name), bool) and not low <= one < np.inf:
                raise PolicyError(f"{name}={one} is too small; give a number above 0")
        if self.replay < self.clusters * (self.n_step + 2):
            raise PolicyError(
                f"replay={self.replay} holds less than n_step + 2 steps of {self.clusters} "
                f"clusters; give {self.clusters * (self.n_step + 2)} or more"
            )
        return self

    def layout(self, nodes: int, resources: int, kinds: int) -> Layout:
        window = 1 if self.mode == "paper" else self.window
        return Layout(self.mode, self.trunk, nodes, resources, window, kinds)

    def explore(self, step: int) -> float:
        """Share of random actions, falling evenly."""
        done = min(step / self.explore_steps, 1.0)
        return self.explore_first + done * (self.explore_last - self.explore_first)


class Field(Protocol):
    """Clusters that are stepped together."""

    def look(self) -> tuple[Array, Array]:
        """(clusters, size) and the masks (clusters, actions); the next step may overwrite them."""
        ...

    def step(self, action: Array) -> tuple[Array, Array]:
        """(clusters,) rewards, and the discount of what comes next: 0 where an episode ended."""
        ...


class Told(NamedTuple):
    """How far a training is."""

    step: int
    steps: int
    loss: float
    epsilon: float
    q: float  # mean of the actions in the last batches
    jct_s: float  # mean completion time of the greedy policy on validation windows
    wall_s: float


class Learner:
    """Network, target network, optimiser and replay of one training."""

    def __init__(self, settings: Settings, layout: Layout, device: str = "cpu") -> None:
        self.settings, self.layout = settings, layout
        if device == "cpu":
            torch.set_num_threads(settings.threads)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(settings.seed)
            self.net = QNet(layout, dueling=settings.dueling, hidden=settings.hidden).to(device)
        self.target = copy.deepcopy(self.net).requires_grad_(False)
        self.optimiser = torch.optim.Adam(self.net.parameters(), settings.learning_rate)
        self.rng: Generator = np.random.default_rng([settings.seed, 1])
        self.step = self.updates = 0
        alpha = settings.alpha if settings.prioritised else 0.0
        rows = -(-settings.replay // settings.clusters) + 1
        self.replay = Replay(rows, settings.clusters, layout.size, layout.actions, alpha=alpha)
        self.shown: Replay | None = None  # what a rule did

    def act(self, seen: Array, mask: Array, epsilon: float) -> Array:
        """(B,) greedy actions, each with chance `epsilon` replaced by any legal one."""
        draw = self.rng.random(len(mask)) < epsilon
        chosen = (mask * self.rng.random(mask.shape)).argmax(1)
        if not draw.all():
            chosen = np.where(draw, chosen, self.best(seen, mask))
        return np.asarray(chosen)

    def best(self, seen: Array, mask: Array) -> Array:
        with torch.no_grad():
            return self.net.of(seen, mask).argmax(1).cpu().numpy()

    def update(self, share: float = 0.0) -> tuple[float, float]:
        """One step of gradient descent, with this share of the batch from the rule. Returns the
        loss and the mean Q.
        """
        on = self.settings
        from_rule = round(on.batch * share) if self.shown else 0
        batches = []
        if from_rule < on.batch:
            done = min(self.step / on.steps, 1.0)
            beta = on.beta + (1 - on.beta) * done
            batches.append(self.replay.draw(on.batch - from_rule, on.n_step, self.rng, beta))
        if self.shown and from_rule:
            batches.append(self.shown.draw(from_rule, on.n_step, self.rng))
        batch = Batch(*(np.concatenate(parts) for parts in zip(*batches)))
        q = self.net.of(batch.seen, batch.mask)
        action = torch.as_tensor(batch.action).to(q.device)[:, None]
        taken = q.gather(1, action)[:, 0]
        wanted = self._wanted(batch, q)
        error = taken - wanted
        weight = torch.as_tensor(batch.weight).to(q.device)
        loss = (weight * torch.nn.functional.smooth_l1_loss(taken, wanted, reduction="none")).mean()
        if from_rule:
            loss = loss + self._margin_loss(q[-from_rule:], action[-from_rule:])
        self.optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.net.parameters(), on.clip)
        self.optimiser.step()
        own = on.batch - from_rule
        if own:
            self.replay.surprised(batch.place[:own], error.detach().cpu().numpy()[:own])
        self.updates += 1
        if self.updates % on.target_every == 0:
            self.target.load_state_dict(self.net.state_dict())
        return float(loss.detach()), float(taken.detach().mean())

    def _wanted(self, batch: Batch, like: Tensor) -> Tensor:
        """What Q should be: the rewards, and the target network's best legal action after them."""
        with torch.no_grad():
            later = self.target.of(batch.later, batch.later_mask)
            if self.settings.double:
                best = self.net.of(batch.later, batch.later_mask).argmax(1, keepdim=True)
                value = later.gather(1, best)[:, 0]
            else:
                value = later.amax(1)
        carry = torch.as_tensor(batch.carry).to(like.device)
        reward = torch.as_tensor(batch.reward).to(like.device)
        # an ended episode has nothing after it, and may have no legal action to take the best of
        return reward + torch.where(carry > 0, carry * value, 0.0)

    def _margin_loss(self, q: Tensor, action: Tensor) -> Tensor:
        """How far the rule's action is from being better than all others by the margin."""
        others = (q + self.settings.margin).scatter(1, action, q.gather(1, action))
        return (others.amax(1) - q.gather(1, action)[:, 0]).mean()

    def state(self) -> dict[str, Any]:
        """All but the replay, which is filled anew."""
        return {
            "net": self.net.state_dict(),
            "target": self.target.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "rng": self.rng.bit_generator.state,
            "step": self.step,
            "updates": self.updates,
        }

    def load(self, state: dict[str, Any]) -> None:
        self.net.load_state_dict(state["net"])
        self.target.load_state_dict(state["target"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.rng.bit_generator.state = state["rng"]
        self.step, self.updates = state["step"], state["updates"]


def train(
    field: Field,
    learner: Learner,
    validate: Callable[[Learner], float],
    *,
    every: int = 50_000,
    stop: Callable[[], bool] = lambda: False,
    wall_s: Callable[[], float] = time.perf_counter,
) -> Iterator[Told]:
    """Learn from the field until `Settings.steps`, or until `stop` says so; tells how far it is
    every so many decisions and at the end.

    A learner that goes on fills its replay first, by what it knows.
    """
    on, replay = learner.settings, learner.replay
    began_s, last = wall_s(), (float("nan"), float("nan"))
    if learner.updates == 0 and learner.shown:
        start_from_rule(learner, stop)
    while learner.step < on.steps and not stop():
        seen, mask = field.look()
        replay.show(seen, mask)
        ready = replay.ready(on.n_step) >= min(on.warmup, on.replay // 2)
        if ready and learner.updates == 0:
            measure(learner)
        for _ in range(on.updates if ready else 0):
            last = learner.update(on.imitate_share)
        epsilon = on.explore(learner.step)
        action = learner.act(seen, mask, epsilon)
        reward, carry = field.step(action)
        replay.pay(action, reward, carry, on.n_step)
        before = learner.step
        learner.step += on.clusters
        if learner.step // every > before // every or learner.step >= on.steps:
            told_s = wall_s() - began_s
            yield Told(
                learner.step, on.steps, *last[:1], epsilon, last[1], validate(learner), told_s
            )


def measure(learner: Learner) -> None:
    """Shift and scale the network's inputs by what was seen so far."""
    source = learner.shown or learner.replay
    batch = source.draw(min(source.ready(learner.settings.n_step), 4096), 1, learner.rng)
    learner.net.measure(batch.seen)
    learner.target.load_state_dict(learner.net.state_dict())


def start_from_rule(learner: Learner, stop: Callable[[], bool]) -> None:
    """Learn from the rule's decisions alone."""
    measure(learner)
    for _ in range(learner.settings.imitate_updates):
        if stop():
            return
        learner.update(1.0)
