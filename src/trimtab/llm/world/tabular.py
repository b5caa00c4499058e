"""Q-learning, SARSA, expected SARSA and double Q on a finite world, compiled.

    learned = learn(world, "q", steps=4_000_000, seed=0)
    rollout(world, learned.policy, contexts, chances, states)

Steps shrink with the visits of a state and action, exploration falls over the run, and values start
near what a good policy earns, so that what is untried is tried: from zero the first action that
pays anything would be kept, and from far above it millions of steps go into the disappointment.
All kinds meet the same contexts and the same chances for the same seed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.compiled import compiled, inner
from trimtab.errors import PolicyError, UnknownName
from trimtab.llm.world.world import GAMMA, World

KINDS = ("q", "sarsa", "expected_sarsa", "double_q")
Q, SARSA, EXPECTED, DOUBLE = range(len(KINDS))
PARTS = 20  # of a run, for the curve
GOLDEN, MIX_1, MIX_2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


@dataclass(frozen=True)
class Settings:
    """How to learn; chances of a random action fall in a straight line from first to last."""

    gamma: float = GAMMA
    fade: float = 0.75  # the n-th visit moves a value by n^-fade
    explore_first: float = 0.2
    explore_last: float = 0.02
    start: float = 0.75  # value before any visit / that of a reward of 1 for ever
    window: int = 48  # epochs between two starts of the job

    def __post_init__(self) -> None:
        for name, low, high in (
            ("gamma", 0.0, 0.9999), ("fade", 0.5, 1.0), ("explore_first", 0.0, 1.0),
            ("explore_last", 0.0, 1.0), ("start", -10.0, 10.0), ("window", 1, 1_000_000),
        ):  # fmt: skip
            if not low <= getattr(self, name) <= high:
                raise PolicyError(
                    f"{name}={getattr(self, name)} of a tabular learner; give {low:g} to {high:g}"
                )


class Learned(NamedTuple):
    q: Array  # (X, A + 1, A); -inf where illegal
    policy: Array  # (X, A + 1)
    online: float  # mean reward of a window while it learned, exploration included
    curve: Array  # (PARTS,) the same by twentieths of the run


def learn(
    made: World,
    kind: str,
    *,
    steps: int,
    seed: int,
    resharding: bool = True,
    settings: Settings | None = None,
    warm: Array | None = None,  # (X, A + 1, A) values to start from
) -> Learned:
    """Values after `steps` epochs; without `resharding` the running plan is no part of a state."""
    if kind not in KINDS:
        raise UnknownName(f"learner {kind!r} is unknown; give one of {', '.join(KINDS)}")
    s = settings or Settings()
    if steps < s.window:
        raise PolicyError(f"steps={steps} are less than one window; give {s.window} or more")
    contexts, actions = made.score.shape
    shape = contexts, actions + 1, actions
    if warm is None:
        q = np.full(shape, s.start / (1.0 - s.gamma))
    else:
        q = np.where(np.isfinite(warm), warm, 0.0)
    q = np.where(made.legal[:, None, :], q, -np.inf)
    other = q.copy()
    curve = np.zeros(PARTS)
    numbers = np.array([s.gamma, s.fade, s.explore_first, s.explore_last])
    _learn(
        made,
        KINDS.index(kind),
        steps,
        np.uint64(seed),
        s.window,
        resharding,
        np.cumsum(made.chain, axis=1),
        numbers,
        q,
        other,
        np.zeros((2, *shape), np.int32),
        curve,
    )
    if kind == "double_q":
        q = (q + other) / 2.0
    if not resharding:
        q = np.repeat(q[:, -1:], actions + 1, axis=1)
    return Learned(q, q.argmax(axis=2), float(curve.mean()), curve)


def stream(made: World, steps: int, seed: int) -> tuple[Array, Array]:
    """What `learn` of this seed meets: contexts (steps + 1,) and chances to fail (steps,)."""
    contexts, chances = np.zeros(steps + 1, np.int64), np.zeros(steps)
    _stream(np.cumsum(made.chain, axis=1), np.uint64(seed), contexts, chances)
    return contexts, chances


@inner
def _uniform(seed: Any, step: int, stream: int) -> float:
    """The draw of this step and stream, whatever was drawn before it."""
    # counters through a mixer (SplitMix64): kinds draw differently often, and stay paired
    z = seed * np.uint64(MIX_2) + np.uint64(8 * step + stream) * np.uint64(GOLDEN)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(MIX_1)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(MIX_2)
    z = z ^ (z >> np.uint64(31))
    return float(z >> np.uint64(11)) / 9007199254740992.0


@inner
def _next(ahead: Array, chance: float) -> int:
    """The context that comes next, by cumulated chances."""
    return min(int(np.searchsorted(ahead, chance, side="right")), len(ahead) - 1)


@inner
def _best(row: Array) -> int:
    """The first of the largest."""
    best = 0
    for a in range(1, len(row)):
        if row[a] > row[best]:
            best = a
    return best


@inner
def _best_of_both(row: Array, other: Array) -> int:
    best = 0
    for a in range(1, len(row)):
        if row[a] + other[a] > row[best] + other[best]:
            best = a
    return best


@inner
def _drawn(legal: Array, chance: float) -> int:
    """One of the legal actions, all alike."""
    count = 0
    for a in range(len(legal)):
        count += legal[a]
    left = int(chance * count)
    for a in range(len(legal)):
        if legal[a]:
            if left == 0:
                return a
            left -= 1
    return 0


@inner
def _mean_value(row: Array, legal: Array, explore: float) -> float:
    """Value of a state under the exploring policy."""
    total, count, best = 0.0, 0, -np.inf
    for a in range(len(row)):
        if legal[a]:
            total += row[a]
            count += 1
            best = max(best, row[a])
    return explore * total / count + (1.0 - explore) * best


@inner
def _chosen(
    made: World, kind: int, q: Array, other: Array, x: int, plan: int, explore: float, draw: Any
) -> int:
    seed, t = draw
    if _uniform(seed, t, 2) < explore:
        return _drawn(made.legal[x], _uniform(seed, t, 3))
    if kind == DOUBLE:
        return _best_of_both(q[x, plan], other[x, plan])
    return _best(q[x, plan])


@compiled
def _learn(
    made: World,
    kind: int,
    steps: int,
    seed: Any,
    window: int,
    resharding: bool,
    ahead: Array,  # (X, X) cumulated chances
    numbers: Array,
    q: Array,
    other: Array,
    visits: Array,  # (2, X, A + 1, A)
    curve: Array,
) -> None:
    gamma, fade, explore_first, explore_last = numbers
    down = made.score.shape[1]
    rungs = made.fails.shape[1]
    x, plan, action = 0, down, -1
    for t in range(steps):
        part = t / steps
        explore = explore_first + (explore_last - explore_first) * part
        if t % window == 0:
            plan, action = down, -1
        if action < 0:
            action = _chosen(made, kind, q, other, x, plan, explore, (seed, 2 * t))
        later = _next(ahead[x], _uniform(seed, t, 0))
        failed = _uniform(seed, t, 1) < made.fails[x, later % rungs, action]
        reward = -made.lost[x, plan, action] + (-made.loss if failed else made.score[x, action])
        next_plan = down if failed or not resharding else action
        curve[int(part * len(curve))] += reward * window * len(curve) / steps
        following = -1
        if kind == Q:
            value = q[later, next_plan, _best(q[later, next_plan])]
        elif kind == EXPECTED:
            value = _mean_value(q[later, next_plan], made.legal[later], explore)
        elif kind == SARSA:
            following = _chosen(made, kind, q, other, later, next_plan, explore, (seed, 2 * t + 1))
            value = q[later, next_plan, following]
        else:
            value = 0.0
        if kind == DOUBLE and _uniform(seed, t, 4) < 0.5:
            value = q[later, next_plan, _best(other[later, next_plan])]
            _move(other, visits[1], x, plan, action, reward + gamma * value, fade)
        else:
            if kind == DOUBLE:
                value = other[later, next_plan, _best(q[later, next_plan])]
            _move(q, visits[0], x, plan, action, reward + gamma * value, fade)
        x, plan, action = later, next_plan, following


@compiled
def _stream(ahead: Array, seed: Any, contexts: Array, chances: Array) -> None:
    for t in range(len(chances)):
        contexts[t + 1] = _next(ahead[contexts[t]], _uniform(seed, t, 0))
        chances[t] = _uniform(seed, t, 1)


@inner
def _move(
    q: Array, visits: Array, x: int, plan: int, action: int, target: float, fade: float
) -> None:
    """Move a value towards its target, the less the more often that was done."""
    visits[x, plan, action] += 1
    q[x, plan, action] += (target - q[x, plan, action]) / visits[x, plan, action] ** fade
