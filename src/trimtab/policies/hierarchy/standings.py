"""What there is to learn in the hierarchy's places: random choices, one goal, and what ships."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from trimtab.envs.evaluate import Evaluation
from trimtab.envs.standings import APART, CHOSEN_ON, Standing
from trimtab.policies.hierarchy.env import HierarchyEnv
from trimtab.policies.hierarchy.goals import NAMES

NAME = "HierarchyEnv"


def of_hierarchy(trace: str, *, windows: int, seed: int) -> Iterator[Standing]:
    """Goals and orders at random, the one goal that is best on other scenes, and nothing said."""
    held = range(APART, APART + windows)
    goals = HierarchyEnv(place="manager", trace=trace, seeds=held)
    orders = HierarchyEnv(place="workers", trace=trace, seeds=held)
    for env, called in ((goals, "random goals"), (orders, "random orders")):
        yield Standing(NAME, called, _played(env, _random(env, seed), 1.0))
    known = HierarchyEnv(place="manager", trace=trace, seeds=range(CHOSEN_ON))
    earned = [_played(known, _always(goal)).mean for goal in range(len(NAMES))]
    best = int(np.argmax(earned))
    yield Standing(NAME, f"always {NAMES[best]}", _played(goals, _always(best)))
    yield Standing(NAME, "as shipped", _played(orders, _always(0.0)))


def _always(said: float) -> Callable[[str], Any]:
    return lambda agent: said


def _random(env: HierarchyEnv, seed: int) -> Callable[[str], Any]:
    for g, agent in enumerate(env.possible_agents):
        env.action_space(agent).seed(seed + g)
    return lambda agent: env.action_space(agent).sample()


def _played(
    env: HierarchyEnv, choose: Callable[[str], Any], choices: float = float("nan")
) -> Evaluation:
    """Every scene once; the reward of an episode is that of one agent, for all share it."""
    rewards = np.zeros(env.count)
    for scene in range(env.count):
        env.reset(options={"scene": scene})
        while env.agents:
            _, paid, _, _, _ = env.step({agent: choose(agent) for agent in env.agents})
            rewards[scene] += next(iter(paid.values()))
    return Evaluation(np.array(env.seeds), rewards, choices)
