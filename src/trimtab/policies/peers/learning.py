"""What teaches the peers: policy gradient, proximal policy optimisation, deep and tabular
Q-learning, each on the decisions of one round of played scenes. All of a learner is arrays, so a
training that stops goes on to the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.random import Generator

from trimtab.arrays import Array
from trimtab.policies.peers import deeprm
from trimtab.policies.peers.kinds import DQN, PPO, REINFORCE, TABLE, Peer
from trimtab.policies.peers.nets import count, count_lstm
from trimtab.policies.peers.played import Played

BATCHES, EPOCHS = 8, 3  # of a round; a policy gradient goes through it once
ENTROPY, CLIP, CRITIC = 0.01, 0.2, 32
STEP = 50.0  # of a table's cell a visit, times the rate
WARM, CAREFUL = 0.5, 0.1  # what is left when imitation ends, and how small steps are from there
GRID_S = 20.0  # of the time-dependent baseline


class Round(NamedTuple):
    """The decisions of several played scenes behind each other."""

    rows: Array  # (R, F)
    more: Array  # (T, M)
    ptr: Array  # (T + 1,)
    act: Array  # (T,)
    worth: Array  # (T,)
    scene: Array  # (T,) which it was played on
    time_s: Array  # (T,)
    standing: Array  # (T,) how bad things stood already
    last: Array  # (T,) whether the scene ends behind it

    @classmethod
    def of(cls, peer: Peer, played: Sequence[Played], scenes: Sequence[int]) -> Round:
        kept = [(one, scene) for one, scene in zip(played, scenes) if len(one.act)]
        sizes = [len(one.rows) for one, _ in kept]
        begin = np.concatenate(([0], np.cumsum(sizes)))
        ptr = [one.ptr[:-1] + at for (one, _), at in zip(kept, begin)]
        last = [np.arange(len(one.act)) == len(one.act) - 1 for one, _ in kept]
        return cls(
            np.concatenate([one.rows for one, _ in kept]),
            np.concatenate([one.more for one, _ in kept]),
            np.concatenate([*ptr, begin[-1:]]),
            np.concatenate([one.act for one, _ in kept]),
            np.concatenate([peer.worth(one) for one, _ in kept]),
            np.concatenate([np.full(len(one.act), scene) for one, scene in kept]),
            np.concatenate([one.time_s for one, _ in kept]),
            np.concatenate([one.standing() for one, _ in kept]),
            np.concatenate(last),
        )

    def rows_of(self, some: Array) -> tuple[Array, Array]:
        """Rows of these decisions behind each other, and which of `some` each belongs to."""
        many = self.ptr[some + 1] - self.ptr[some]
        owner = np.repeat(np.arange(len(some)), many)
        begin = np.cumsum(many) - many
        return self.ptr[some][owner] + np.arange(len(owner)) - begin[owner], owner


class Learner:
    """A peer's weights and what moves them."""

    def __init__(self, peer: Peer, rate: float, seed: int) -> None:
        self.peer, self.rate, self.pace = peer, rate, rate
        self.left = 1.0
        rng = np.random.default_rng([seed, 7])
        self.theta = first_weights(peer, rng)
        self.critic_sizes = (peer.features + 1, CRITIC, 1)
        many = count(np.array(self.critic_sizes)) if peer.learner == PPO else 0
        self.critic = rng.normal(0, 0.1, many)
        self.moments = np.zeros((2, len(self.theta) + many))
        self.steps = 0

    def state(self) -> dict[str, Array]:
        return {"theta": self.theta, "critic": self.critic, "moments": self.moments,
                "gradients": np.array(self.steps)}  # fmt: skip

    def load(self, held: dict[str, Any]) -> None:
        self.theta, self.critic = np.array(held["theta"]), np.array(held["critic"])
        self.moments, self.steps = np.array(held["moments"]), int(held["gradients"])

    def learn(self, done: Round, rng: Generator, left: float = 1.0) -> None:
        """Take in one round; steps shrink with what is left of the training."""
        self.pace, self.left = self.rate * left, left
        teach = {TABLE: self._table, DQN: self._dqn, REINFORCE: self._reinforce, PPO: self._ppo}
        teach[self.peer.learner](done, rng)

    def _step(self, loss: torch.Tensor, weights: torch.Tensor) -> None:
        """One step of Adam."""
        (slope,) = torch.autograd.grad(loss, weights)
        found = slope.detach().numpy()
        found = found * min(1.0, 5.0 / (float(np.linalg.norm(found)) + 1e-9))
        self.steps += 1
        self.moments[0] += 0.1 * (found - self.moments[0])
        self.moments[1] += 0.001 * (found**2 - self.moments[1])
        mean = self.moments[0] / (1 - 0.9**self.steps)
        square = self.moments[1] / (1 - 0.999**self.steps)
        moved = self.pace * mean / (np.sqrt(square) + 1e-8)
        self.theta = self.theta - moved[: len(self.theta)]
        self.critic = self.critic - moved[len(self.theta) :]

    def _weights(self) -> torch.Tensor:
        both = np.concatenate((self.theta, self.critic))
        return torch.tensor(both, dtype=torch.float32, requires_grad=True)

    def _scores(self, weights: torch.Tensor, done: Round, rows: Array, owner: Array) -> Any:
        """(rows,) what each is worth; of one row a decision, (rows, actions)."""
        x = torch.from_numpy(done.rows[rows])
        return scores(self.peer, weights, x, done.more, owner)

    def _next(self, done: Round) -> Array:
        """(T,) the most that any row of the next decision is worth, 0 behind the last."""
        rows, owner = done.rows_of(np.arange(len(done.act)))
        if self.peer.learner == TABLE:
            value = self.theta[done.rows[rows, 0].astype(np.int64)]
        else:
            with torch.no_grad():
                weights = torch.tensor(self.theta, dtype=torch.float32)
                value = self._scores(weights, done, rows, owner).numpy()
        most = np.full(len(done.act), -np.inf)
        np.maximum.at(most, owner, value)
        return np.where(done.last, 0.0, np.append(most[1:], 0.0))

    def _table(self, done: Round, _: Generator) -> None:
        """Each cell moves towards what its decisions brought, the more the more there were."""
        target = done.worth + self.peer.gamma * self._next(done)
        cells = done.rows[:, 0].astype(np.int64)
        where, owner = done.ptr[:-1] + done.act, np.arange(len(done.act))
        waits = done.rows[where, 0] == done.rows[where, 1]
        cell, value = [cells[where[~waits]]], [target[~waits]]
        if waits.any():  # every agent that was asked has refused
            rows, owner = done.rows_of(np.flatnonzero(waits))
            cell.append(done.rows[rows, 1].astype(np.int64))
            value.append(target[waits][owner])
        at, what = np.concatenate(cell), np.concatenate(value)
        many = np.bincount(at, minlength=len(self.theta))
        mean = np.bincount(at, what, len(self.theta)) / np.maximum(many, 1)
        part = 1 - (1 - min(STEP * self.pace, 1.0)) ** np.minimum(many, 50)
        self.theta = self.theta + part * (mean - self.theta)

    def _dqn(self, done: Round, rng: Generator) -> None:
        """Regress the rows that were taken on rewards and the next decision's best, which stands
        still for a round.
        """
        target = torch.tensor(done.worth + self.peer.gamma * self._next(done), dtype=torch.float32)
        for _ in range(EPOCHS):
            for some in batches(len(done.act), rng):
                weights = self._weights()
                value = self._scores(weights, done, (done.ptr[:-1] + done.act)[some], some)
                self._step(torch.nn.functional.smooth_l1_loss(value, target[some]), weights)

    def _reinforce(self, done: Round, rng: Generator) -> None:
        """Raise what went better than other runs of the same scene did at the same time."""
        advantage = against_time(done)
        if self.peer.masked and self.left > WARM:  # first to do as a rule does
            done, advantage = done._replace(act=shortest(done)), np.ones(len(done.act))
        elif self.peer.masked:
            self.pace *= CAREFUL
        for some in batches(len(done.act), rng):
            weights = self._weights()
            if self.peer.masked:
                done = shuffled(self.peer, done, rng)
            chosen, entropy = self._chances(weights, done, some)
            gain = torch.tensor(advantage[some], dtype=torch.float32) * chosen
            self._step(-(gain.mean() + ENTROPY * entropy), weights)

    def _ppo(self, done: Round, rng: Generator) -> None:
        """The same against a critic, several times over, by no more than the clip at once."""
        everything = np.arange(len(done.act))
        rows, owner = done.rows_of(everything)
        many = torch.from_numpy(np.bincount(owner)).float()
        x = torch.zeros(len(everything), self.peer.features + 1)
        x.index_add_(0, torch.from_numpy(owner), torch.nn.functional.pad(
            torch.from_numpy(done.rows[rows]), (0, 1)))  # fmt: skip
        x = x / many[:, None]
        x[:, -1] = torch.log1p(many) / 5
        scale = float(np.abs(done.worth).mean()) + 1e-9
        worth = torch.tensor(done.worth / scale, dtype=torch.float32)
        with torch.no_grad():
            weights = self._weights()
            before, _ = self._chances(weights, done, everything)
            gain = worth - mlp(weights[len(self.theta) :], 0, self.critic_sizes, x)[:, 0]
            gain = (gain - gain.mean()) / (gain.std() + 1e-6)
        for _ in range(EPOCHS):
            for some in batches(len(everything), rng):
                weights = self._weights()
                chosen, entropy = self._chances(weights, done, some)
                ratio = torch.exp(chosen - before[some])
                least = torch.minimum(
                    ratio * gain[some], ratio.clamp(1 - CLIP, 1 + CLIP) * gain[some]
                )
                value = mlp(weights[len(self.theta) :], 0, self.critic_sizes, x[some])[:, 0]
                off = ((value - worth[some]) ** 2).mean()
                self._step(-least.mean() - ENTROPY * entropy + 0.5 * off, weights)

    def _chances(self, weights: torch.Tensor, done: Round, some: Array) -> Any:
        """(T,) log of the chance of what was chosen, and the mean entropy of the choice."""
        rows, owner = done.rows_of(some)
        value = self._scores(weights, done, rows, some[owner])
        act = torch.from_numpy(done.act[some])
        if self.peer.masked:  # one row a decision: what may be chosen stands behind it
            may = torch.from_numpy(done.rows[rows, self.peer.features :]) > 0
            may = torch.cat((may, torch.ones(len(may), 1, dtype=torch.bool)), 1)
            log = torch.log_softmax(value.masked_fill(~may, -1e9), 1)
            entropy = -(log.exp() * log.masked_fill(~may, 0.0)).sum(1).mean()
            return log[torch.arange(len(some)), act], entropy
        at, segments = torch.from_numpy(owner), len(some)
        most = torch.full((segments,), -1e9).scatter_reduce(0, at, value.detach(), "amax")
        total = torch.zeros(segments).index_add(0, at, torch.exp(value - most[at]))
        log = value - most[at] - torch.log(total)[at]
        entropy = -torch.zeros(segments).index_add(0, at, log.exp() * log).mean()
        first = torch.from_numpy(np.searchsorted(owner, np.arange(segments)))
        return log[first + act], entropy


def first_weights(peer: Peer, rng: Generator) -> Array:
    """Where training begins: layers that keep the size of what they are given, small outputs."""
    if peer.learner == TABLE:
        return np.full(peer.weights, peer.start)
    parts = []
    if peer.units:
        width = peer.memory[1] + peer.units
        parts += [rng.normal(0, width**-0.5, width * 4 * peer.units), np.zeros(4 * peer.units)]
    for layer, (a, b) in enumerate(zip(peer.sizes[:-1], peer.sizes[1:])):
        size = 0.1 if layer == len(peer.sizes) - 2 else 1.0
        parts += [rng.normal(0, size * (2 / a) ** 0.5, a * b), np.zeros(b)]
    return np.concatenate(parts)


def mlp(theta: torch.Tensor, at: int, sizes: Sequence[int], x: torch.Tensor) -> torch.Tensor:
    """As `nets.mlp`, for many rows at once."""
    for layer, (a, b) in enumerate(zip(sizes[:-1], sizes[1:])):
        x = x @ theta[at : at + a * b].view(a, b) + theta[at + a * b : at + a * b + b]
        at += a * b + b
        x = torch.relu(x) if layer < len(sizes) - 2 else x
    return x


def lstm(theta: torch.Tensor, units: int, steps: torch.Tensor) -> torch.Tensor:
    """As `nets.lstm`: (B, units) after steps (B, K, D)."""
    inputs, width = steps.shape[2], 4 * units
    at = inputs * width
    into, back = theta[:at].view(inputs, width), theta[at : at + units * width].view(units, width)
    bias = theta[at + units * width : at + units * width + width]
    h = cell = torch.zeros(len(steps), units)
    for k in range(steps.shape[1]):
        i, f, c, o = (steps[:, k] @ into + h @ back + bias).split(units, 1)
        cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(c)
        h = torch.sigmoid(o) * torch.tanh(cell)
    return h


def scores(peer: Peer, theta: torch.Tensor, rows: torch.Tensor, more: Array, of: Array) -> Any:
    """What the network says of rows (R, F), each of decision `of` with its memory in `more`."""
    rows = rows[:, : peer.features]
    if not peer.units:
        out = mlp(theta, 0, peer.sizes, rows)
        return out if peer.masked else out[:, 0]
    some, at = np.unique(of, return_inverse=True)
    steps = torch.from_numpy(more[some]).view(len(some), *peer.memory)
    h = lstm(theta, peer.units, steps)[torch.from_numpy(at)]
    first = count_lstm(peer.memory[1], peer.units)
    return mlp(theta, first, peer.sizes, torch.cat((h, rows), 1))[:, 0]


def batches(many: int, rng: Generator) -> list[Array]:
    """All decisions once, in random parts."""
    return [np.sort(part) for part in np.array_split(rng.permutation(many), BATCHES) if len(part)]


def shortest(done: Round) -> Array:
    """(T,) the slot with the least request."""
    jobs = done.rows[:, deeprm.IMAGE : deeprm.FEATURES - 2].reshape(len(done.act), deeprm.JOBS, -1)
    asked = np.where(done.rows[:, deeprm.FEATURES :] > 0, jobs[:, :, 3], np.inf)
    return np.asarray(asked.argmin(1))


def shuffled(peer: Peer, done: Round, rng: Generator) -> Round:
    """The same decisions with the slots of each in another order: what holds for one slot is
    learned for all.
    """
    slots, first = peer.masked, peer.features - 2 - peer.masked * deeprm.PER_JOB
    turn = rng.permuted(np.tile(np.arange(slots), (len(done.act), 1)), axis=1)
    rows = done.rows.copy()
    jobs = rows[:, first : peer.features - 2].reshape(len(rows), slots, -1)
    at = np.arange(len(rows))[:, None]
    rows[:, first : peer.features - 2] = jobs[at, turn].reshape(len(rows), -1)
    rows[:, peer.features :] = rows[:, peer.features :][at, turn]
    back = np.argsort(turn, axis=1)
    act = np.where(done.act < slots, back[at[:, 0], np.minimum(done.act, slots - 1)], slots)
    return done._replace(rows=rows, act=act)


def against_time(done: Round) -> Array:
    """(T,) how much better each decision's worth is than at that time of the scene in the mean of
    its runs, in deviations; what comes of how things stood already is taken off.
    """
    slot = (done.time_s / GRID_S).astype(np.int64)
    _, at = np.unique(done.scene * (slot.max() + 1) + slot, return_inverse=True)
    many = np.bincount(at)
    worth, stood = (
        values - (np.bincount(at, values) / many)[at] for values in (done.worth, done.standing)
    )
    above = worth - stood * (worth @ stood) / (stood @ stood + 1e-9)
    return np.asarray(above / (above.std() + 1e-6))
