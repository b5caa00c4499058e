"""One cluster as a Gymnasium environment: masked choices, exact time, rewards from running
totals.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from trimtab.core import Array
from trimtab.envs.arena import Arena
from trimtab.envs.step import ENDED, GRID, STUCK, reset_single, step_single
from trimtab.errors import TraceError


class ClusterEnv(gymnasium.Env[dict[str, Array], np.int64]):
    """An episode is `jobs` consecutive rows of a trace. Instants at which nothing may start are
    skipped.

    An action that is masked counts as refused and waits. `trace` is a generator's name, a file or a
    Workload;
    every other argument is Arena's.
    """

    metadata = {"render_modes": []}

    def __init__(self, **arena: Any) -> None:
        self._arena = Arena(1, **arena)
        self.observation_space, self.action_space = self._arena.spaces()
        self._seed = int(arena.get("seed", 0))
        self._address = self._arena.world._address
        self._steps = 0

    @property
    def arena(self) -> Arena:
        return self._arena

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Array], dict[str, Any]]:
        """Begin an episode at a random row of the trace, or at `options={"start": row}`."""
        super().reset(seed=seed)
        arena = self._arena
        first = int((options or {}).get("start", self.np_random.integers(arena.most)))
        if not 0 <= first < arena.most:
            raise TraceError(
                f"start={first} is not in 0..{arena.most - 1}; an episode has {arena.jobs} jobs"
            )
        reset_single(
            self._address,
            arena.source._address,
            first,
            arena.jobs,
            arena.codec,
            arena.place,
            *arena.seen(),
        )
        self._steps = 0
        return self._seen(), {**self._told(), "start": first}

    def step(self, action: Any) -> tuple[dict[str, Array], float, bool, bool, dict[str, Any]]:
        arena = self._arena
        over = step_single(
            self._address, arena.codec, arena.place, self._seed, arena.weight, int(action),
            arena.rows, arena.cells, arena.speed, arena.legal, arena.may, arena.shown, arena.reward,
        )  # fmt: skip
        return self._seen(), float(arena.reward[0]), over == ENDED, over == STUCK, self._told()

    def action_masks(self) -> Array:
        """For sb3-contrib's MaskablePPO."""
        return self._arena.legal[0].astype(bool)

    def _seen(self) -> dict[str, Array]:
        arena = self._arena
        mask = arena.legal[0].copy()
        if arena.codec == GRID:
            return {
                "jobs": arena.rows[0].copy(),
                "nodes": arena.cells[0].copy(),
                "speed": arena.speed[0].copy(),
                "action_mask": mask,
            }
        return {"observation": arena.rows[0].copy(), "action_mask": mask}

    def _told(self) -> dict[str, Any]:
        return {"action_mask": self._arena.legal[0].copy()}
