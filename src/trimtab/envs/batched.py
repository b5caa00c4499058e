"""Thousands of clusters in one call, in parallel and without the GIL, as a Gymnasium vector
environment.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from trimtab.core import Array
from trimtab.envs.arena import Arena
from trimtab.envs.step import ENDED, GRID, STUCK, reset_batch, step_batch


class BatchedEnv(VectorEnv[dict[str, Array], Array, Array]):
    """`clusters` episodes at once. One that ends begins anew in the same step, at another row of
    the trace.

    What `step` returns are views that the next call overwrites: copy what you keep. The number of
    threads is
    numba's (`numba.set_num_threads`).
    """

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}

    def __init__(self, clusters: int = 1024, **arena: Any) -> None:
        self.arena = Arena(clusters, **arena)
        self.num_envs = clusters
        self.single_observation_space, self.single_action_space = self.arena.spaces()
        self.observation_space = batch_space(self.single_observation_space, clusters)
        self.action_space = gymnasium.spaces.MultiDiscrete(np.full(clusters, self.arena.actions))
        self.start = np.zeros(clusters, np.int64)  # first row of each episode
        self.episode = np.zeros(clusters, np.int64)
        self._over = np.zeros(clusters, np.int64)
        self._seed = int(arena.get("seed", 0))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Array], dict[str, Any]]:
        """Begin all episodes; the seed fixes every row they will ever start from."""
        arena = self.arena
        self._seed = self._seed if seed is None else int(seed)
        reset_batch(
            arena.world._address, arena.source._address, arena.jobs, arena.most, self._seed,
            self.start,
            self.episode, arena.codec, arena.place, *arena.seen(),
        )  # fmt: skip
        return self._seen(), {"action_mask": arena.legal}

    def step(self, actions: Array) -> tuple[dict[str, Array], Array, Array, Array, dict[str, Any]]:
        arena = self.arena
        step_batch(
            arena.world._address, arena.source._address, arena.jobs, arena.most, self._seed,
            self.start,
            self.episode, arena.codec, arena.place, arena.weight, np.asarray(actions, np.int64),
            *arena.seen(), arena.reward, self._over,
        )  # fmt: skip
        told = {"action_mask": arena.legal}
        return self._seen(), arena.reward, self._over == ENDED, self._over == STUCK, told

    def _seen(self) -> dict[str, Array]:
        arena = self.arena
        if arena.codec == GRID:
            return {
                "jobs": arena.rows,
                "nodes": arena.cells,
                "speed": arena.speed,
                "action_mask": arena.legal,
            }
        return {"observation": arena.rows, "action_mask": arena.legal}
