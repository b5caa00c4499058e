"""Choosing parallelism for a training job on a shared cluster, as a Gymnasium env (`llm.world`)."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Dict, Discrete, MultiBinary, MultiDiscrete

from trimtab.arrays import Array
from trimtab.errors import PlanError
from trimtab.llm.world import cpu_traces
from trimtab.llm.world.world import SHAPE, bins, context, simulated_chains, walk, world


class ParallelismEnv(gymnasium.Env):
    """Every five minutes a number of GPUs and data, model or hybrid parallelism.

    Observation {"observation": bins of CPU use, latency class, energy price, bandwidth and memory,
    then the plan that runs (the last = down), "action_mask"}. An episode is a window of `epochs` of
    a CPU trace: of its first part, which policies may learn on, or, `held_out`, of the rest.
    Without `resharding` a change of plan is free (the paper's mode). `factor` is true step time
    over the cost model's, (bandwidth bins, actions). A masked action is refused: the job is down
    for the epoch, and info["refused"] counts it. reset(options={"contexts", "chances"}) plays a
    given window.
    """

    metadata = {"render_modes": []}

    def __init__(
        self,
        trace: str | cpu_traces.Series = "planetlab",
        *,
        epochs: int = 48,
        held_out: bool = False,
        resharding: bool = True,
        factor: Array | float = 1.0,
    ) -> None:
        if epochs < 1:
            raise PlanError(f"epochs={epochs} make no episode; take 1 or more")
        if isinstance(trace, str):
            trace = cpu_traces.generated(trace, rng=np.random.default_rng(0))
        first, rest = cpu_traces.split(trace)
        self.series, self.epochs = rest if held_out else first, epochs
        self.world = world(cpu_traces.chain(first), resharding=resharding, factor=factor)
        self.resharding, self.down = resharding, self.world.score.shape[1]
        self._bins = bins()
        self.action_space = Discrete(self.down)
        self.observation_space = Dict(
            observation=MultiDiscrete([*SHAPE, self.down + 1]), action_mask=MultiBinary(self.down)
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Array], dict[str, Any]]:
        super().reset(seed=seed)
        rng, given = self.np_random, options or {}
        if "contexts" in given:
            self.contexts = np.asarray(given["contexts"], np.int64)
        else:
            cpu = cpu_traces.windows(self.series, self.epochs, 1, rng)
            others = [walk(chain, 1, self.epochs + 1, rng) for chain in simulated_chains()]
            self.contexts = context(cpu, np.stack(others, axis=-1))[0]
        steps = len(self.contexts) - 1
        self.chances = np.asarray(given.get("chances", rng.random(steps)))
        self.at, self.plan, self.refused = 0, self.down, 0
        return self._shown()

    def step(self, action: int) -> tuple[dict[str, Array], float, bool, bool, dict[str, Any]]:
        made, x = self.world, self.contexts[self.at]
        if not made.legal[x, action]:
            self.refused += 1
            reward, self.plan = 0.0, self.down
        else:
            reward = -float(made.lost[x, self.plan, action])
            # memory is the last of the five bins
            after = self.contexts[self.at + 1] % SHAPE[-1]
            failed = self.chances[self.at] < made.fails[x, after, action]
            reward += -made.loss if failed else float(made.score[x, action])
            self.plan = self.down if failed else int(action)
        self.at += 1
        seen, info = self._shown()
        return seen, reward, False, self.at == len(self.contexts) - 1, info

    def action_masks(self) -> Array:
        """Actions that are 95 % sure to fit now, for masked learners."""
        return self.world.legal[self.contexts[self.at]]

    def _shown(self) -> tuple[dict[str, Array], dict[str, Any]]:
        plan = self.plan if self.resharding else self.down
        seen = np.append(self._bins[self.contexts[self.at]], plan)
        mask = self.action_masks().astype(np.int8)
        info = {"refused": self.refused, "plan": self.plan, "action_mask": mask}
        return {"observation": seen, "action_mask": mask}, info
