"""What a learner has to beat in `llm.world`: a fixed rule, the best constant, the myopic planner.

Each is a table of actions, (X, A + 1): by context and by the plan that runs.
"""

from __future__ import annotations

import numpy as np

from trimtab.arrays import Array
from trimtab.llm.world.world import (
    BANDWIDTH,
    ENERGY,
    GAMMA,
    LATENCY,
    MEMORY,
    World,
    bins,
    gain,
    q_of,
)
from trimtab.llm.world.world_tables import ACTIONS, GPUS, KINDS

RULE_GPUS = (2, 8, 16)  # by latency class
SCARCE = 2  # bin from which price, network or memory count as scarce


def fixed_rule(made: World) -> Array:
    """Thresholds that an operator would write down: haste takes GPUs, a high price gives half of
    them back, scarce memory splits the model, a scarce network splits part of it.

    What does not fit takes more GPUs until it does.
    """
    policy = np.zeros((len(made.score), made.score.shape[1] + 1), np.int64)
    for x, at in enumerate(bins()):
        gpus = RULE_GPUS[at[LATENCY]] // (2 if at[ENERGY] >= SCARCE else 1)
        kind = "data"
        if at[BANDWIDTH] >= SCARCE:
            kind = "hybrid"
        if at[MEMORY] >= SCARCE:
            kind = "model"
        policy[x] = _fitting(made.legal[x], gpus, kind)
    return policy


def _fitting(legal: Array, gpus: int, kind: str) -> int:
    wanted = [ACTIONS.index((more, kind)) for more in GPUS if more >= gpus]
    # the kinds that need less memory, should no number of GPUs do
    wanted += [ACTIONS.index((max(GPUS), other)) for other in reversed(KINDS)]
    return next((action for action in wanted if legal[action]), int(legal.argmax()))


def myopic(made: World) -> Array:
    """The best of the cost model's next epoch less the change of plan, if nothing else moves."""
    memory = bins()[:, MEMORY]
    now = gain(made, made.fails[np.arange(len(memory)), memory])
    return np.asarray((now[:, None, :] - made.lost).argmax(axis=2))


def constant(made: World, action: int) -> Array:
    """One action for ever."""
    return np.full((len(made.score), made.score.shape[1] + 1), action)


def best_constant(made: World) -> Array:
    """Of the actions that fit in every context, the one of the largest value from the start."""
    always = np.flatnonzero(made.legal.all(axis=0))
    often = visits(made.chain)
    worth = [often @ value_of(made, constant(made, int(action)))[:, -1] for action in always]
    return constant(made, int(always[int(np.argmax(worth))]))


def visits(chain: Array) -> Array:
    """Share of time that a chain spends in each state: (X,)."""
    # 4,096 steps: any chain that moves within hours has forgotten its start
    return np.asarray(np.linalg.matrix_power(chain, 4096).mean(axis=0))


def value_of(made: World, policy: Array, gamma: float = GAMMA, near: float = 1e-4) -> Array:
    """Discounted value of following a policy: (X, A + 1)."""
    v = np.zeros(policy.shape)
    while True:
        q = q_of(made, v, gamma)
        after = np.take_along_axis(q, policy[:, :, None], axis=2)[:, :, 0]
        moved = float(np.abs(after - v).max())
        v = after
        if moved < near:
            return v


def deserves(made: World, policy: Array, states: Array) -> dict[str, float]:
    """Is there something to learn: how many actions the optimum takes at the states it visits
    (W, T, 2), and the share of the commonest.
    """
    taken = policy[states[..., 0], states[..., 1]].ravel()
    counts = np.bincount(taken, minlength=made.score.shape[1])
    return {"actions": float((counts > 0).sum()), "commonest": float(counts.max() / len(taken))}
