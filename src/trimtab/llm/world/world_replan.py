"""A re-planner that corrects the cost model by the step times it sees, and plans ahead.

    found = replan(truth, cpu_chain, contexts, chances, rng=rng)

It holds one factor an action and bin of bandwidth, the mean of ln(observed / predicted). What was
never run counts as a little faster than the model says, so that it is tried where that could pay.
Once a day, and as soon as an action shows itself for the first time, the process is solved again
with the factors known by then.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.llm.world.world import BANDWIDTH, SHAPE, World, bins, solve, world

DAY = 288  # epochs
BOLD = 0.1  # how much faster, as a logarithm, an action never run is taken to be
NOISE = 0.03  # spread of the logarithm of an epoch's mean step time
NEAR = 1e-3  # of values, when the process is solved again: a thousandth of an epoch's reward


class Replanned(NamedTuple):
    policy: Array  # (X, A + 1) with all that was seen
    factor: Array  # (B, A)
    reward: Array  # (T,) while it learned
    solves: int


def replan(
    truth: World,
    cpu_chain: Array,
    contexts: Array,  # (T + 1,)
    chances: Array,  # (T,)
    *,
    window: int,
    rng: np.random.Generator,
    resharding: bool = True,
    bold: float = BOLD,
) -> Replanned:
    """Run on the true world for T epochs, the job starting anew every `window`."""
    model = world(cpu_chain, resharding=resharding)
    actions = truth.score.shape[1]
    total, count = np.zeros((SHAPE[BANDWIDTH], actions)), np.zeros((SHAPE[BANDWIDTH], actions))
    bandwidth = bins()[:, BANDWIDTH]
    reward = np.zeros(len(chances))
    factor = corrections(total, count, bold)
    solved = solve(world(cpu_chain, resharding=resharding, factor=factor), near=NEAR)
    solves, plan, seen = 1, actions, set[int]()
    for t, x in enumerate(contexts[:-1]):
        if t % window == 0:
            plan = actions
        action = int(solved.policy[x, plan])
        failed = chances[t] < truth.fails[x, contexts[t + 1] % truth.fails.shape[1], action]
        reward[t] = -truth.lost[x, plan, action]
        reward[t] += -truth.loss if failed else truth.score[x, action]
        plan = actions if failed or not resharding else action
        if not failed:
            observed_s = truth.step_s[x, action] * np.exp(NOISE * rng.standard_normal())
            total[bandwidth[x], action] += np.log(observed_s / model.step_s[x, action])
            count[bandwidth[x], action] += 1
        if (action not in seen and not failed) or (t + 1) % DAY == 0:
            seen.add(action)
            factor = corrections(total, count, bold)
            now = world(cpu_chain, resharding=resharding, factor=factor)
            solved = solve(now, near=NEAR, start=solved.v)
            solves += 1
    last = world(cpu_chain, resharding=resharding, factor=corrections(total, count, 0.0))
    return Replanned(solve(last, near=NEAR, start=solved.v).policy, factor, reward, solves)


def corrections(total: Array, count: Array, bold: float) -> Array:
    """True step time / the model's, as seen; an action's other bins speak for one not seen."""
    whole, often = total.sum(axis=0), count.sum(axis=0)
    of_action = np.where(often > 0, whole / np.maximum(often, 1), -bold)
    return np.exp(np.where(count > 0, total / np.maximum(count, 1), of_action[None]))
