"""Limits of regions, each set by an agent of its own, as a PettingZoo parallel env."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.spaces import Box
from pettingzoo import ParallelEnv

from trimtab.arrays import Array
from trimtab.envs.limiting import WIDTH
from trimtab.envs.limits import Limits
from trimtab.rules.steer import LEAST, MOST
from trimtab.sim.world import Models
from trimtab.traces.scenes.scene import Scene


class LimitAgentsEnv(ParallelEnv):  # type: ignore[misc]
    """LimitsEnv with an agent a region: each sees its own row, sets its own limit (1,), and all
    share the reward. The limit of an agent that says nothing stays.
    """

    metadata = {"render_modes": [], "name": "trimtab_limits_v0", "is_parallelizable": True}
    render_mode = None

    def __init__(
        self, scenes: Sequence[Scene] | None = None, models: Models | None = None, **settings: Any
    ) -> None:
        self.limits = Limits(1, scenes, models, **settings)
        self.possible_agents = list(self.limits.regions)
        self.agents: list[str] = []
        self._seen = {agent: Box(-1.0, 1.0, (WIDTH,), np.float32) for agent in self.possible_agents}
        self._choices = {
            agent: Box(LEAST, MOST, (1,), np.float32) for agent in self.possible_agents
        }
        self._rng = np.random.default_rng()

    def observation_space(self, agent: str) -> Box:
        return self._seen[agent]

    def action_space(self, agent: str) -> Box:
        return self._choices[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Array], dict[str, Any]]:
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        self.agents = list(self.possible_agents)
        self.limits.begin(0, self.limits.drawn(self._rng, options))
        self.limits.run()
        return self._shown()

    def step(
        self, actions: dict[str, Array]
    ) -> tuple[dict[str, Any], dict[str, float], dict[str, bool], dict[str, bool], dict[str, Any]]:
        silent = np.full(1, np.nan)
        said = [np.ravel(actions.get(agent, silent))[0] for agent in self.possible_agents]
        self.limits.act(0, np.array(said))
        self.limits.run()
        shown, infos = self._shown()
        play, here = self.limits.play[0], self.agents
        if play["done"]:
            self.agents = []
        return (
            shown,
            dict.fromkeys(here, float(play["reward"])),
            dict.fromkeys(here, bool(play["done"])),
            dict.fromkeys(here, False),
            infos,
        )

    def _shown(self) -> tuple[dict[str, Array], dict[str, Any]]:
        info = self.limits.info(0)
        shown = {agent: self.limits.out[0, g].copy() for g, agent in enumerate(self.agents)}
        return shown, {agent: dict(info) for agent in self.agents}
