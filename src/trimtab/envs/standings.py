"""What there is to learn in each environment: simple choices and the best rule, side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from trimtab.arrays import Array
from trimtab.core import Policy
from trimtab.envs.evaluate import CHOICES, Evaluation, apart, evaluate, played
from trimtab.envs.limits import PLACED_BY, Limits, LimitsEnv
from trimtab.envs.parallelism import ParallelismEnv
from trimtab.envs.regions import RegionsEnv
from trimtab.llm.world import world_rules
from trimtab.rules.names import FEEDBACK
from trimtab.sim.whole import simulate

Rules = Mapping[str, Callable[[], Policy]]
CHOSEN_ON = 5  # windows of the first part, on which the best rule is chosen
APART = 100  # seed of the first held-out scene whose limits are set
SHARES = (0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0)
HARMS = (0.003, 0.005, 0.01, 0.02)


class Standing(NamedTuple):
    """How good a policy is in an environment, over windows of its held-out part."""

    env: str
    policy: str
    found: Evaluation


def of_clusters(
    name: str, settings: Mapping[str, Any], rules: Rules, *, windows: int, seed: int
) -> Iterator[Standing]:
    """Random, oldest, shortest, and the rule that is best where nothing is measured."""
    env = gymnasium.make(name, part="test", **settings)
    for choice in CHOICES:
        yield Standing(name, choice, evaluate(choice, env, windows=windows, seed=seed))
    seen = gymnasium.make(name, part="train", **settings)
    earned = {rule: evaluate(make(), seen, windows=CHOSEN_ON).mean for rule, make in rules.items()}
    best = max(earned, key=lambda rule: earned[rule])
    yield Standing(name, best, evaluate(rules[best](), env, windows=windows))


def of_regions(
    name: str, settings: Mapping[str, Any], rules: Rules, *, windows: int, seed: int
) -> Iterator[Standing]:
    """The same where every region has an agent and all choose alike; a rule sees all regions."""
    env = RegionsEnv(part="test", **settings)
    clusters = env.clusters
    starts = apart(clusters.first, clusters.windows, clusters.jobs, windows)
    for choice in CHOICES:
        rng = np.random.default_rng(seed)
        rows = np.array([_shared(env, choice, int(start), rng) for start in starts])
        share = float(rows[:, 1].sum() / rows[:, 2].sum())
        yield Standing(name, choice, Evaluation(starts, rows[:, 0], share))
    for rule, make in rules.items():
        rewards = [played(make(), clusters, int(start)) for start in starts]
        yield Standing(name, rule, Evaluation(starts, np.array(rewards), float("nan")))


def _shared(
    env: RegionsEnv, choice: str, start: int, rng: np.random.Generator
) -> tuple[float, int, int]:
    """Rewards, steps with a real choice and steps of a window that agents of one kind share."""
    _, told = env.reset(options={"start": start})
    reward, real, steps = 0.0, 0, 0
    while env.agents:
        masks = {agent: told[agent]["action_mask"] for agent in env.agents}
        real += any(mask[:-1].sum() > 1 for mask in masks.values())
        key = env.clusters.world.jobs[0]["request_s"][env.queue()]
        chosen = {agent: _chosen(choice, mask, key, rng) for agent, mask in masks.items()}
        _, paid, _, _, told = env.step(chosen)
        reward, steps = reward + next(iter(paid.values())), steps + 1
    return reward, real, steps


def _chosen(choice: str, mask: Array, key: Array, rng: np.random.Generator) -> int:
    legal = np.flatnonzero(mask)
    if choice == "random":
        return int(rng.choice(legal))
    if choice == "oldest" or len(legal) == 1:
        return int(legal[0])  # waiting is the last of the actions
    return int(min(legal[legal < len(key)], key=lambda row: key[row]))


def of_limits(name: str, trace: str, *, windows: int, seed: int) -> Iterator[Standing]:
    """Random limits, the best limit that stands still, and the best feedback of the harm measured.

    A window is a scene; the two are the best of a few on scenes of other seeds.
    """
    env = gymnasium.make(name, trace=trace, seeds=range(APART, APART + windows))
    yield Standing(name, "random limits", _steered(env, windows, seed))
    bare = env.unwrapped
    assert isinstance(bare, LimitsEnv)
    known = Limits(1, trace=trace, seeds=range(CHOSEN_ON))
    for called, rules in (
        ("limit", {share: f"{PLACED_BY}@{share}" for share in SHARES}),
        ("feedback", {harm: f"{PLACED_BY}+{FEEDBACK}@{harm}" for harm in HARMS}),
    ):
        earned = {
            value: Evaluation(np.arange(CHOSEN_ON), _ruled(known, rule), 0.0).mean
            for value, rule in rules.items()
        }
        best = max(earned, key=lambda value: earned[value])
        rewards = _ruled(bare.limits, rules[best])
        seeds = np.array(bare.limits.seeds)
        yield Standing(name, f"{called} {best:g}", Evaluation(seeds, rewards, float("nan")))


def _steered(env: Any, scenes: int, seed: int) -> Evaluation:
    """Limits of every region at random, anew at every step."""
    env.action_space.seed(seed)
    rewards = np.zeros(scenes)
    for scene in range(scenes):
        env.reset(options={"scene": scene})
        over = False
        while not over:
            _, paid, over, _, _ = env.step(env.action_space.sample())
            rewards[scene] += paid
    return Evaluation(np.array(env.unwrapped.limits.seeds), rewards, 1.0)


def _ruled(limits: Limits, rule: str) -> Array:
    """(scenes,) what a rule earns in each."""
    earned = []
    for number in range(limits.count):
        stage = limits.stage(number)
        whole = simulate(
            stage.work, stage.cluster, rule, profile=stage.scene.profile, models=limits.models
        )
        earned.append(stage.score(whole.totals, limits.price_s))
    return np.array(earned)


def of_parallelism(name: str, *, windows: int, seed: int) -> Iterator[Standing]:
    """Random, the best plan for all times, an operator's rule, and the myopic planner."""
    env = gymnasium.make(name, held_out=True)
    bare = env.unwrapped
    assert isinstance(bare, ParallelismEnv)
    made, rng = bare.world, np.random.default_rng(seed)
    choices: dict[str, Callable[[int, int], Any]] = {
        "random": lambda x, plan: rng.choice(np.flatnonzero(made.legal[x])),
        "best constant": _by(world_rules.best_constant(made)),
        "operator's rule": _by(world_rules.fixed_rule(made)),
        "myopic planner": _by(world_rules.myopic(made)),
    }
    for policy, choose in choices.items():
        yield Standing(name, policy, _walked(env, bare, choose, windows))


def _walked(
    env: Any, bare: ParallelismEnv, choose: Callable[[int, int], Any], windows: int
) -> Evaluation:
    """Windows of the held-out trace, drawn by their number: the same for every policy."""
    rewards, real, steps = np.zeros(windows), 0, 0
    for window in range(windows):
        env.reset(seed=window)
        over = False
        while not over:
            x = int(bare.contexts[bare.at])
            real += int(bare.world.legal[x].sum() > 1)
            _, paid, ended, cut, _ = env.step(int(choose(x, bare.plan)))
            rewards[window] += paid
            steps, over = steps + 1, ended or cut
    return Evaluation(np.arange(windows), rewards, real / steps)


def _by(table: Array) -> Callable[[int, int], int]:
    return lambda x, plan: int(table[x, plan])
