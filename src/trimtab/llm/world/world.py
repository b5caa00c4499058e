"""Which parallelism on how many GPUs, every five minutes: a finite decision process.

    made = world(cpu_chain)              # what the cost model says of a shared cluster
    value = solve(made)                  # the exact optimum, by value iteration
    total = rollout(made, value.policy, contexts, chances)

A context is a bin each of CPU use, latency class, energy price, free bandwidth and memory taken by
neighbours; contexts move by themselves. A state is a context and the plan that runs. The memory
taken at the end of an epoch decides whether a plan runs out of it, so a plan that fits now can
fail within the epoch: it then loses the epoch and what came since the last checkpoint, and is down.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.compiled import compiled
from trimtab.errors import PlanError
from trimtab.llm.world.world_tables import (
    CPU_LOADS,
    FREE_LINK,
    TAKEN_MEMORY,
    Tables,
    reshard_s,
    tables,
)

EPOCH_S = 300.0
RESTART_S = 120.0  # processes, communicators, compilation
REDONE_S = 150.0  # work since the last checkpoint, which a failure throws away: half an epoch
# Step time with which each latency class is content / that of the fastest plan on a calm cluster:
# the most urgent would be faster still.
CONTENT = (7.0, 1.85, 0.92)
SHAPE = (len(CPU_LOADS), len(CONTENT), 3, len(FREE_LINK), len(TAKEN_MEMORY))
CPU, LATENCY, ENERGY, BANDWIDTH, MEMORY = range(len(SHAPE))
CONTEXTS = int(np.prod(SHAPE))
# Preferences: how much of the reward each term is, before they are made to sum to 1. Each weighs
# more in the bins in which the thing is scarce.
LATENCY_WEIGHT = (0.5, 1.5, 5.0)  # by latency class
ENERGY_WEIGHT = (0.2, 1.0, 5.0)  # by price
CPU_WEIGHT = (0.05, 0.1, 0.2, 0.4)
LINK_WEIGHT = (0.1, 0.3, 0.8)
MEMORY_WEIGHT = (0.05, 0.2, 0.8)
WEIGHTS = {
    CPU: CPU_WEIGHT,
    LATENCY: LATENCY_WEIGHT,
    ENERGY: ENERGY_WEIGHT,
    BANDWIDTH: LINK_WEIGHT,
    MEMORY: MEMORY_WEIGHT,
}
GAMMA = 0.95


class World(NamedTuple):
    """X contexts, A actions, M bins of memory; plan A is "down"."""

    score: Array  # (X, A) reward of an epoch that ends well, before a change of plan
    legal: Array  # (X, A) bool
    fails: Array  # (X, M, A) chance to run out of memory, by the bin at the end of the epoch
    lost: Array  # (X, A + 1, A) reward that the change from a plan to another costs
    chain: Array  # (X, X) chance of each next context
    loss: float  # reward that a failure costs beside the epoch
    step_s: Array  # (X, A) what a run of the plan shows
    power_w: Array  # (X, A) all GPUs and their hosts
    names: tuple[str, ...]  # (A,)


class Solved(NamedTuple):
    """The optimum: q and v are discounted by GAMMA."""

    q: Array  # (X, A + 1, A); -inf where illegal
    v: Array  # (X, A + 1)
    policy: Array  # (X, A + 1) action


def bins() -> Array:
    """The five bins of each context: (X, 5)."""
    return np.stack(np.unravel_index(np.arange(CONTEXTS), SHAPE), axis=1)


def context(cpu: Array, others: Array) -> Array:
    """Contexts of bins of CPU use (...) and of the four others (..., 4)."""
    moved = (cpu, *np.moveaxis(others, -1, 0))
    return np.ravel_multi_index(tuple(np.asarray(m, np.int64) for m in moved), SHAPE)


def ladder(up: float, down: float, rungs: int = 3) -> Array:
    """A chain that moves one bin up or down with these chances an epoch: (rungs, rungs)."""
    made = np.diag(np.full(rungs - 1, up), 1) + np.diag(np.full(rungs - 1, down), -1)
    return np.asarray(made + np.diag(1.0 - made.sum(axis=1)))


def simulated_chains() -> tuple[Array, Array, Array, Array]:
    """How latency class, price, bandwidth and memory move: simulated, since no trace has them.

    Haste, congestion and neighbours last for an hour or two, prices for longer. A neighbour comes
    and goes whole, so memory may go from free to full at once.
    """
    memory = np.array([[0.95, 0.03, 0.02], [0.05, 0.91, 0.04], [0.04, 0.05, 0.91]])
    return ladder(0.04, 0.05), ladder(0.02, 0.03), ladder(0.03, 0.05), memory


def walk(chain: Array, count: int, steps: int, rng: np.random.Generator) -> Array:
    """Paths of a chain, after it has forgotten where it began: (count, steps)."""
    ahead, forget = np.cumsum(chain, axis=1), 500
    path = np.zeros((count, forget + steps), np.int64)
    for t in range(1, forget + steps):
        passed = rng.random(count)[:, None] >= ahead[path[:, t - 1]]
        path[:, t] = np.minimum(passed.sum(axis=1), len(chain) - 1)
    return path[:, forget:]


def world(
    cpu_chain: Array,  # (C, C)
    *,
    resharding: bool = True,
    factor: Array | float = 1.0,  # (B, A) true step time / that of the cost model
    table: Tables | None = None,
) -> World:
    """The process; without `resharding` the plan that runs is of no account (the paper's mode)."""
    _check_chain(cpu_chain)
    t = tables() if table is None else table
    at = bins()
    c, b, m = at[:, CPU], at[:, BANDWIDTH], at[:, MEMORY]
    step_s = t.step_s[c, b, m] * np.broadcast_to(factor, t.step_s.shape[1::2])[b]  # (X, A)
    legal = t.legal[m]
    lost_s = np.stack([reshard_s(t, free, RESTART_S) for free in FREE_LINK])[b]
    loss = REDONE_S / EPOCH_S
    if not resharding:
        lost_s, loss = np.zeros_like(lost_s), loss + RESTART_S / EPOCH_S
    chain = cpu_chain
    for own in simulated_chains():
        chain = np.kron(chain, own)
    return World(
        np.where(legal, score(at, step_s, t), 0.0),
        np.ascontiguousarray(legal),
        np.ascontiguousarray(t.fails[c, b, m]),
        np.ascontiguousarray(lost_s / EPOCH_S),
        np.ascontiguousarray(chain),
        loss,
        step_s,
        t.energy_j[c, b, m] / t.step_s[c, b, m],
        t.names,
    )


def score(at: Array, step_s: Array, t: Tables) -> Array:
    """Preference-weighted terms, each 0..1, of bins (X, 5) and step times (X, A): (X, A)."""
    c, b, m = at[:, CPU], at[:, BANDWIDTH], at[:, MEMORY]
    fastest_s = t.step_s[0, 0, 0][t.legal[0]].min()
    wanted_s = fastest_s * np.array(CONTENT)[at[:, LATENCY], None]
    power_w = t.energy_j[c, b, m] / t.step_s[c, b, m]
    terms = {
        CPU: 1.0 - t.cpu[c],
        LATENCY: np.minimum(wanted_s / step_s, 1.0),
        ENERGY: 1.0 - power_w / t.most_w,
        BANDWIDTH: t.link[c, b, m],
        MEMORY: np.maximum(1.0 - t.memory[c, b, m], 0.0),
    }
    weight = np.stack([np.array(WEIGHTS[k])[at[:, k]] for k in terms])  # (5, X)
    return np.einsum("kx,kxa->xa", weight / weight.sum(axis=0), np.stack(list(terms.values())))


def _check_chain(chain: Array) -> None:
    if chain.shape != (SHAPE[CPU], SHAPE[CPU]) or not np.allclose(chain.sum(axis=1), 1.0):
        raise PlanError(
            f"cpu_chain has shape {chain.shape}; give ({SHAPE[CPU]}, {SHAPE[CPU]}) whose rows sum"
            " to 1, as cpu_traces.chain does"
        )


def failing(made: World) -> Array:
    """Chance that each action fails within the epoch, over what memory may become: (X, A)."""
    memory = bins()[:, MEMORY]
    by_bin = np.stack([made.chain[:, memory == m].sum(axis=1) for m in range(SHAPE[MEMORY])])
    return np.einsum("mx,xma->xa", by_bin, made.fails)


def gain(made: World, fail: Array) -> Array:
    """Mean reward of an epoch, before a change of plan, if actions fail with these chances."""
    return np.where(made.legal, (1.0 - fail) * made.score - fail * made.loss, -np.inf)


def q_of(made: World, v: Array, gamma: float = GAMMA) -> Array:
    """Value of each action now and of `v` (X, A + 1) afterwards: (X, A + 1, A)."""
    memory, after = bins()[:, MEMORY], np.zeros(made.score.shape)
    for m in range(SHAPE[MEMORY]):
        there = memory == m
        mean = made.chain[:, there] @ v[there]  # (X, A + 1)
        fail = made.fails[:, m]
        after += (1.0 - fail) * mean[:, :-1] + fail * mean[:, -1:]
    now = gain(made, failing(made)) + gamma * after
    return np.asarray(now[:, None, :] - made.lost)


def solve(
    made: World, gamma: float = GAMMA, near: float = 1e-9, start: Array | None = None
) -> Solved:
    """Value iteration, from `start` (X, A + 1), until no value moves by more than `near`."""
    v = np.zeros((len(made.score), made.score.shape[1] + 1)) if start is None else start
    while True:
        q = q_of(made, v, gamma)
        better = q.max(axis=2)
        moved = float(np.abs(better - v).max())
        v = better
        if moved < near:
            return Solved(q, v, q.argmax(axis=2))


@compiled
def rollout(
    made: World,
    policy: Array,  # (X, A + 1)
    contexts: Array,  # (W, T + 1): the last decides whether the last epoch fails
    chances: Array,  # (W, T) uniform draws: below the chance to fail, it fails
    states: Array,  # (W, T, 2) out: context and plan at each decision
) -> Array:
    """Undiscounted reward of each window, from a job that is down: (W,)."""
    windows, epochs = chances.shape
    down = made.score.shape[1]
    bins_of_memory = made.fails.shape[1]
    total = np.zeros(windows)
    for w in range(windows):
        plan = down
        for t in range(epochs):
            x = contexts[w, t]
            states[w, t, 0], states[w, t, 1] = x, plan
            action = policy[x, plan]
            total[w] -= made.lost[x, plan, action]
            # memory is the last of the five bins
            if chances[w, t] < made.fails[x, contexts[w, t + 1] % bins_of_memory, action]:
                total[w] -= made.loss
                plan = down
            else:
                total[w] += made.score[x, action]
                plan = action
    return total
