"""The PPO router of Slim Scheduler (eq. 1-13), trained in batches of simulated fleets.

Differs from the paper: the state knows the segment and the width before it; accuracy is that of all
256 tuples, and of a prefix the mean of its ends; energy is a block's share of busy time at the
profile's watts, charged once; epsilon is kept with the sample. gae=True credits a decision with
what follows it in its fleet; the paper's one-step return is the default.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn

from trimtab.arrays import Array
from trimtab.errors import ServeError
from trimtab.serving.net.serve_profile import ServeProfile, tuple_s
from trimtab.serving.routing import arrivals, heads, routers
from trimtab.serving.routing.fleet_state import Fleets, begin, fleets
from trimtab.serving.routing.greedy import Knobs
from trimtab.serving.routing.learned_router import Net

# weights of eq. 7 by name; of latency and energy for what one image takes alone at full width, so
# that they mean the same on a fast machine and on a slow one
WEIGHTINGS = {
    "light": {"alpha": 1.0, "beta": 0.34, "gamma": 0.77, "delta": 0.1},
    "balanced": {"alpha": 20.0, "beta": 0.085, "gamma": 0.77, "delta": 0.2},
}
SPEEDS = (1.0, 1.0, 0.45)


@dataclass(frozen=True)
class PpoSettings:
    """How the paper's router is trained; the paper's letters beside."""

    alpha: float = 0.0  # accuracy prior; 0 = that of the weighting, so for the next three
    beta: float = 0.0  # latency, a second
    gamma: float = 0.0  # energy, a joule
    delta: float = 0.0  # imbalance
    bonus: float = 0.0  # b
    centred: bool = True  # the accuracy prior less its mean
    updates: int = 80
    fleets: int = 16
    requests: int = 300
    load_low: float = 0.4  # of the capacity at full width
    load_high: float = 1.3
    hidden: int = 32
    learning_rate: float = 1e-3
    epochs: int = 3  # K
    batch: int = 2048
    clip: float = 0.2  # epsilon
    value_weight: float = 0.5  # c_v
    entropy_weight: float = 0.01  # c_H
    norm_max: float = 0.5  # of gradients
    explore_max: float = 0.3  # epsilon_max of the server head
    explore_min: float = 0.0
    explore_updates: int = 60  # T_dec
    gae: bool = False
    discount: float = 0.9
    trace: float = 0.9  # lambda

    def check(self) -> Self:
        for name in ("updates", "fleets", "requests", "hidden", "epochs", "batch"):
            if getattr(self, name) < 1:
                raise ServeError(f"{name}={getattr(self, name)}: give 1 or more")
        if not 0 < self.load_low <= self.load_high:
            raise ServeError(
                f"load_low={self.load_low}, load_high={self.load_high}: give rising loads above 0"
            )
        return self

    def weighted(self, weighting: str, profile: ServeProfile) -> Self:
        """With the weights of a weighting where none is given."""
        if weighting not in WEIGHTINGS:
            raise ServeError(
                f"weighting={weighting!r} is unknown; give one of {', '.join(WEIGHTINGS)}"
            )
        full_s = float(tuple_s(profile, 1)[-1])
        full_j = full_s * (profile.busy_w - profile.idle_w)
        unit = {"beta": full_s, "gamma": full_j or np.inf}
        known = {name: a / unit.get(name, 1.0) for name, a in WEIGHTINGS[weighting].items()}
        chosen: dict[str, Any] = {name: getattr(self, name) or known[name] for name in known}
        return replace(self, **chosen)


class Mlp(nn.Module):
    """Logits of the three heads and a value, on one trunk."""

    def __init__(self, servers: int, hidden: int) -> None:
        super().__init__()
        self.one = nn.Linear(heads.inputs_of(servers), hidden)
        self.two = nn.Linear(hidden, hidden)
        self.logits = nn.Linear(hidden, heads.outputs_of(servers))
        self.value = nn.Linear(hidden, 1)
        nn.init.zeros_(self.logits.weight)
        nn.init.zeros_(self.logits.bias)

    def forward(self, seen: Tensor) -> tuple[Tensor, Tensor]:
        held = torch.tanh(self.two(torch.tanh(self.one(seen))))
        return self.logits(held), self.value(held).squeeze(-1)

    def net(self) -> Net:
        """As compiled code runs it."""
        one, two, three = (
            torch.cat((layer.weight, layer.bias[:, None]), dim=1).detach().double().numpy()
            for layer in (self.one, self.two, self.logits)
        )
        return one, two, three


class Sample(NamedTuple):
    """Decisions of all fleets, one after another."""

    seen: Tensor  # (D, I)
    action: Tensor  # (D, 3)
    explore: Tensor  # (D,) epsilon as it was
    reward: Tensor  # (D,)
    fleet: Array  # (D,)
    part: Array  # (D, 4)


class Ppo:
    """The learner: its network, optimiser and fleets."""

    def __init__(self, profile: ServeProfile, on: PpoSettings, seed: int) -> None:
        self.on, self.seed, self.step = on, seed, 0
        torch.manual_seed(seed)
        self.mlp = Mlp(len(SPEEDS), on.hidden)
        self.optimiser = torch.optim.Adam(self.mlp.parameters(), on.learning_rate)
        self.f = world(profile, on)
        self.rules = routers.rule(profile, "priced")
        self.scale = 1.0  # of rewards, so that the value's error has a fair size

    def explore(self) -> float:
        """Epsilon of eq. 5."""
        on = self.on
        gone = self.step / max(on.explore_updates, 1)
        return max(on.explore_min, on.explore_max + gone * (on.explore_min - on.explore_max))

    def sample(self) -> Sample:
        """Run every fleet with drawn actions."""
        on, f = self.on, self.f
        rng = np.random.default_rng([self.seed, self.step])
        rates_hz = f.conf[0]["scale_hz"] * rng.uniform(on.load_low, on.load_high, on.fleets)
        begin(
            f,
            np.array([arrivals.poisson(on.requests, rate_hz, rng) for rate_hz in rates_hz]),
            np.inf,
            seed=int(rng.integers(1 << 31)),
        )
        rules = routers.with_net(self.rules, routers.HEADS, self.mlp.net())
        rules = rules._replace(draws=np.array([1.0, self.explore()]))
        noted = heads.trail(f)
        heads.collect_all(f, rules, noted)
        kept = np.arange(noted.seen.shape[1]) < noted.length[:, None]
        part = noted.part[kept]
        return Sample(
            torch.from_numpy(noted.seen[kept]).float(),
            torch.from_numpy(noted.action[kept]),
            torch.full((int(kept.sum()),), self.explore()),
            torch.from_numpy(rewards(part, on, float(f.accuracy.mean()))).float(),
            np.nonzero(kept)[0],
            part,
        )

    def update(self) -> Sample:
        """One round: collect, then K epochs of the clipped objective."""
        found, on = self.sample(), self.on
        self.scale = float(found.reward.std()) + 1e-6 if self.step == 0 else self.scale
        with torch.no_grad():
            logits, value = self.mlp(found.seen)
            before, _ = log_likelihood(logits, found.action, found.explore)
        returns = found.reward / self.scale
        if on.gae:
            returns = credited(returns, value, found.fleet, on)
        advantage = returns - value
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        order = torch.Generator().manual_seed(self.seed * 100_003 + self.step)
        for _ in range(on.epochs):
            for rows in torch.split(torch.randperm(len(returns), generator=order), on.batch):
                self.learn(found, rows, before[rows], advantage[rows], returns[rows])
        self.step += 1
        return found

    def learn(
        self, found: Sample, rows: Tensor, before: Tensor, advantage: Tensor, returns: Tensor
    ) -> None:
        """One step down the loss of eq. 13."""
        on = self.on
        logits, value = self.mlp(found.seen[rows])
        now, entropy = log_likelihood(logits, found.action[rows], found.explore[rows])
        ratio = torch.exp(now - before)
        clipped = torch.clamp(ratio, 1 - on.clip, 1 + on.clip)
        gain = torch.minimum(ratio * advantage, clipped * advantage).mean()
        miss = 0.5 * (returns - value).pow(2).mean()
        loss = -gain + on.value_weight * miss - on.entropy_weight * entropy.mean()
        self.optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.mlp.parameters(), on.norm_max)
        self.optimiser.step()

    def state(self) -> dict[str, Any]:
        return {
            "mlp": self.mlp.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "step": self.step,
            "scale": self.scale,
        }

    def load(self, state: dict[str, Any]) -> None:
        self.mlp.load_state_dict(state["mlp"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.step, self.scale = int(state["step"]), float(state["scale"])


def world(profile: ServeProfile, on: PpoSettings) -> Fleets:
    """Fleets as in the paper: no objective, nothing is given up, every segment loaded."""
    knobs = Knobs(idle_unload_s=np.inf)
    return fleets(profile, on.fleets, on.requests, speeds=SPEEDS, knobs=knobs, drop_late=False)


def rewards(part: Array, on: PpoSettings, mean_right: float) -> Array:
    """(D,) of eq. 7."""
    right = part[:, heads.RIGHT] - (mean_right if on.centred else 0.0)
    cost = on.beta * part[:, heads.LATENCY] + on.gamma * part[:, heads.ENERGY]
    return np.asarray(
        on.alpha * right - cost - on.delta * part[:, heads.IMBALANCE] + on.bonus, np.float64
    )


def log_likelihood(logits: Tensor, action: Tensor, explore: Tensor) -> tuple[Tensor, Tensor]:
    """(D,) log of eq. 6, its server head mixed with even chances, and the entropy of eq. 12."""
    servers = logits.shape[1] - heads.outputs_of(0)
    parts = torch.split(logits, [servers, 4, len(heads.GROUPS)], dim=1)
    logs = [torch.log_softmax(part, dim=1) for part in parts]
    taken = [log.gather(1, action[:, i : i + 1]).squeeze(1) for i, log in enumerate(logs)]
    mixed = torch.log((1 - explore) * taken[0].exp() + explore / servers)
    entropy = torch.stack([-(log.exp() * log).sum(dim=1) for log in logs]).sum(dim=0)
    return mixed + taken[1] + taken[2], entropy


def credited(reward: Tensor, value: Tensor, fleet: Array, on: PpoSettings) -> Tensor:
    """(D,) returns by generalised advantage estimation along each fleet's decisions."""
    given, guessed = reward.tolist(), value.tolist()  # plain numbers: a loop over tensors is slow
    ends = np.append(fleet[1:] != fleet[:-1], True)
    found, ahead, following = [0.0] * len(given), 0.0, 0.0
    for i in range(len(given) - 1, -1, -1):
        if ends[i]:
            ahead, following = 0.0, 0.0
        missed = given[i] + on.discount * following - guessed[i]
        ahead = missed + on.discount * on.trace * ahead
        found[i] = ahead + guessed[i]
        following = guessed[i]
    return torch.tensor(found)
