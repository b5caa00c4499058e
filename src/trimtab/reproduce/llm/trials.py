"""All policies in one world of parallelism plans: what a trial of its tables measures.

The world's chain is counted on the first part of a CPU trace; policies are compared on windows of
the rest, in which the other four bins are simulated. "paper" is the mode without re-sharding, in
which the plan that runs is no part of the state; "full" has both. In the wrong arm true step times
are 20 to 30 % off the cost model's, up or down, for each action, and for plans over several nodes
at each bin of bandwidth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from trimtab.arrays import Array
from trimtab.llm.world import cpu_traces
from trimtab.llm.world.tabular import KINDS, Settings, learn, stream
from trimtab.llm.world.world import (
    BANDWIDTH,
    SHAPE,
    Solved,
    World,
    context,
    failing,
    gain,
    rollout,
    simulated_chains,
    solve,
    walk,
    world,
)
from trimtab.llm.world.world_replan import DAY, replan
from trimtab.llm.world.world_rules import best_constant, deserves, fixed_rule, myopic
from trimtab.llm.world.world_tables import tables
from trimtab.traces.load.samples_file import read_samples, samples_kind

TRACE_SEED = 0  # of generated traces: seeds differ in windows and learning, not in the trace
EPOCHS = 48  # of a window: four hours
DAYS = 28  # that the re-planner learns for, and that policies which do not learn are followed
# Without re-sharding an action moves nothing, so any discount has the same optimum, and a lower one
# has less noise.
GAMMA_OF = {"paper": 0.8, "full": 0.95}
WRONG = (np.log(1.2), np.log(1.3))
NEAR = 0.01
MODEL, REPLANNER, OPTIMUM = "planned", "replanner", "optimum"
STATIC = ("fixed", "constant", "myopic", MODEL)
POLICIES = (*KINDS, *STATIC, REPLANNER)


@cache
def series(source: str) -> cpu_traces.Series:
    """CPU use of a recorded trace by its path, or generated like one by its name."""
    if source in cpu_traces.MEASURED:
        return cpu_traces.generated(source, rng=np.random.default_rng(TRACE_SEED))
    kind = samples_kind(Path(source))
    samples = read_samples(source)
    guests = min(cpu_traces.GUESTS.get(kind, 1), len(samples.names))
    return cpu_traces.of_samples(samples, guests)


def wrong_factor(rng: np.random.Generator) -> Array:
    """True step time / the model's: (B, A)."""
    gpus, per_node = tables().gpus, tables().plan["per_node"].flat[0]
    shape = SHAPE[BANDWIDTH], len(gpus)
    drawn = np.exp(rng.choice((-1.0, 1.0), shape) * rng.uniform(*WRONG, shape))
    return np.where(gpus > per_node, drawn, drawn[:1])


def held_out(trace: cpu_traces.Series, windows: int, rng: np.random.Generator) -> Array:
    """Contexts of windows that nothing was learned on: (windows, EPOCHS + 1)."""
    cpu = cpu_traces.windows(trace, EPOCHS, windows, rng)
    others = [walk(chain, windows, EPOCHS + 1, rng) for chain in simulated_chains()]
    return context(cpu, np.stack(others, axis=-1))


def measured(
    source: str,
    mode: str,
    wrong: bool,
    seed: int,
    steps: int,
    windows: int,
    names: Sequence[str] = POLICIES,
) -> dict[str, Any]:
    """Every metric of every policy, and whether the world deserves learning."""
    first, last = cpu_traces.split(series(source))
    chain, rng = cpu_traces.chain(first), np.random.default_rng(seed)
    resharding = mode == "full"
    model = world(chain, resharding=resharding)
    truth = world(chain, resharding=resharding, factor=wrong_factor(rng)) if wrong else model
    best, contexts = solve(truth), held_out(last, windows, rng)
    chances = rng.random((windows, EPOCHS))
    states = np.zeros((windows, EPOCHS, 2), np.int64)
    most = rollout(truth, best.policy, contexts, chances, states)
    policies, online_of = policies_of(truth, model, chain, mode, seed, steps, names)
    policies[OPTIMUM] = best.policy
    found = {}
    for name, policy in policies.items():
        own = np.zeros_like(states)
        total = rollout(truth, policy, contexts, chances, own)
        found[name] = {
            **agreement(truth, best, mode, policy, states),
            "accuracy_own": accuracy_at(best, policy, own),
            **spent(truth, policy, own),
            "regret": 1.0 - float(total.mean() / most.mean()),
            "greedy": float(total.mean()),
            "online": online_of[name] if name in online_of else followed(truth, policy, seed),
        }
    return {"policies": found, "world": deserves(truth, best.policy, states)}


def policies_of(
    truth: World,
    model: World,
    chain: Array,
    mode: str,
    seed: int,
    steps: int,
    names: Sequence[str],
) -> tuple[dict[str, Array], dict[str, float]]:
    """Tables of actions, and the reward while learning of those that learn."""
    resharding = mode == "full"
    made: dict[str, Array] = {}
    reward: dict[str, float] = {}
    for kind in KINDS:
        if kind in names:
            settings = Settings(gamma=GAMMA_OF[mode], window=EPOCHS)
            learned = learn(
                truth, kind, steps=steps, seed=seed, resharding=resharding, settings=settings
            )
            made[kind], reward[kind] = learned.policy, learned.online
    rules = {"fixed": fixed_rule, "constant": best_constant, "myopic": myopic}
    made |= {name: rule(model) for name, rule in rules.items() if name in names}
    if MODEL in names:
        made[MODEL] = solve(model).policy
    if REPLANNER in names:
        contexts, chances = stream(truth, DAYS * DAY, seed)
        rng = np.random.default_rng([seed, 1])
        replanned = replan(
            truth, chain, contexts, chances, window=EPOCHS, rng=rng, resharding=resharding
        )
        made[REPLANNER] = replanned.policy
        reward[REPLANNER] = float(replanned.reward.mean() * EPOCHS)
    return made, reward


def followed(truth: World, policy: Array, seed: int) -> float:
    """Mean reward of a window in the days in which the re-planner of this seed learned."""
    contexts, chances = stream(truth, DAYS * DAY, seed)
    count = len(chances) // EPOCHS
    at = EPOCHS * np.arange(count)[:, None] + np.arange(EPOCHS + 1)
    by_window = chances[: count * EPOCHS].reshape(count, EPOCHS)
    states = np.zeros((*by_window.shape, 2), np.int64)
    return float(rollout(truth, policy, contexts[at], by_window, states).mean())


def agreement(
    truth: World, best: Solved, mode: str, policy: Array, states: Array
) -> dict[str, float]:
    """With the optimum at the states that the optimum visits, so that all have the same labels."""
    x, plan = states[..., 0].ravel(), states[..., 1].ravel()
    right, taken = best.policy[x, plan], policy[x, plan]
    worth = best.q[x, plan]
    if mode == "paper":  # one epoch is all that an action decides
        worth = gain(truth, failing(truth))[x]
    row = np.arange(len(x))
    near = worth[row, taken] >= worth.max(axis=1) * (1.0 - NEAR)
    return {**scores(right, taken), "near": float(near.mean())}


def accuracy_at(best: Solved, policy: Array, states: Array) -> float:
    """Agreement with the optimum at other states, such as those that a policy visits itself."""
    x, plan = states[..., 0], states[..., 1]
    return float((best.policy[x, plan] == policy[x, plan]).mean())


def scores(right: Array, taken: Array) -> dict[str, float]:
    """Accuracy, and precision and F1 as means over classes: plain (macro), or by their size.

    A class that was never taken has precision 0.
    """
    classes = np.union1d(right, taken)
    hit = np.array([np.sum((right == c) & (taken == c)) for c in classes], "f8")
    size = np.array([np.sum(right == c) for c in classes], "f8")
    said = np.array([np.sum(taken == c) for c in classes], "f8")
    precision = hit / np.maximum(said, 1.0)
    f1 = 2.0 * hit / (size + said)
    return {
        "accuracy": float(hit.sum() / size.sum()),
        "precision_macro": float(precision.mean()),
        "precision_weighted": float(precision @ size / size.sum()),
        "f1_macro": float(f1.mean()),
        "f1_weighted": float(f1 @ size / size.sum()),
    }


def spent(truth: World, policy: Array, states: Array) -> Mapping[str, float]:
    """Mean step time and power along a policy's own way."""
    x, plan = states[..., 0], states[..., 1]
    taken = policy[x, plan]
    return {
        "step_s": float(truth.step_s[x, taken].mean()),
        "power_w": float(truth.power_w[x, taken].mean()),
    }
