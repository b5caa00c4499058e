"""The hierarchy as a PettingZoo parallel env: agents take the manager's or the workers' place."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete, Space
from pettingzoo import ParallelEnv

from trimtab.arrays import Array
from trimtab.errors import PolicyError, TraceError, UnknownName
from trimtab.policies.hierarchy.course import BOUND, COLUMNS, Chosen, Course, Told, Weights, rows
from trimtab.policies.hierarchy.goals import GOALS, KEEP, NAMES
from trimtab.policies.hierarchy.manager import EVERY_S, read_manager
from trimtab.policies.hierarchy.stage import Stage
from trimtab.policies.hierarchy.weights import read_orders
from trimtab.rules.world import World
from trimtab.sim.world import Models, check_hostable, fitted
from trimtab.traces.scenes.scene import Scene, open_scene

PLACES = ("manager", "workers")
DEFAULT = "colocated"
SEEDS = tuple(range(8))
REACH = 3.0  # steps of a search, to either side of the shipped orders


class HierarchyEnv(ParallelEnv):  # type: ignore[misc]
    """An agent a region of a co-located scene; every `every_s` seconds all look, and act at once.

    place="manager": an action is the number of one of GOALS, and the workers of `path` obey it.
    place="workers": an action (orders,) moves the orders of the region - limit, margin, patience
    and what a worker weighs, see `names` - by so many of their steps; 0 are the orders of `path`,
    whose manager sets goals, which are seen too. An agent that says nothing keeps, or has 0.

    Agents see COLUMNS of their region and share the reward, see TERMS; the four weights are
    keywords. `path` is a folder of `trimtab train hierarchy`, "" = what ships. An episode is a
    scene; info["metrics"] has its metrics at the end, info["guard"] says why the best rule
    acted in place of what was said, "" = it did not. reset(options={"scene": 2}) takes the third.
    """

    metadata = {"render_modes": [], "name": "trimtab_hierarchy_v0", "is_parallelizable": True}
    render_mode = None

    def __init__(
        self,
        scenes: Sequence[Scene] | None = None,
        models: Models | None = None,
        *,
        place: str = "manager",
        trace: str = DEFAULT,
        seeds: Sequence[int] = SEEDS,
        path: str = "",
        every_s: float = EVERY_S,
        utilisation: float = 1.0,
        waiting: float = 1.0,
        imbalance: float = 1.0,
        cost: float = 1.0,
    ) -> None:
        if place not in PLACES:
            raise UnknownName(f"place={place!r} is unknown; known: {', '.join(PLACES)}")
        if not (math.isfinite(every_s) and every_s > 0):
            raise TraceError(f"every_s={every_s}; give seconds above 0")
        self.place, self.every_s = place, every_s
        self.weights = Weights(utilisation, waiting, imbalance, cost)
        self.trace, self.seeds, self.scenes, self.models = trace, tuple(seeds), scenes, models
        self.count = len(self.seeds) if scenes is None else len(scenes)
        if self.count == 0:
            raise TraceError("hierarchy: no scenes; give some, or seeds of a trace")
        self.orders, self.manager = read_orders(path), read_manager(path)
        self.names, self._steps = self.orders.free()
        self._stages: dict[int, tuple[Stage, World]] = {}
        self.possible_agents = list(self.stage(0)[0].cluster.regions)
        self.agents: list[str] = []
        wide = len(COLUMNS) + (len(GOALS) if place == "workers" else 0)
        self._seen = {
            agent: Box(-BOUND, BOUND, (wide,), np.float32) for agent in self.possible_agents
        }
        self._choices: dict[str, Space[Any]] = {
            agent: Discrete(len(GOALS))
            if place == "manager"
            else Box(-REACH, REACH, (len(self.names),), np.float32)
            for agent in self.possible_agents
        }
        self._rng = np.random.default_rng()
        self.course: Course

    def observation_space(self, agent: str) -> Box:
        return self._seen[agent]

    def action_space(self, agent: str) -> Space[Any]:
        return self._choices[agent]

    def stage(self, number: int) -> tuple[Stage, World]:
        """The scene of that number and its world at the beginning, made when first played."""
        if number not in self._stages:
            scene = (
                open_scene(self.trace, seed=self.seeds[number])
                if self.scenes is None
                else self.scenes[number]
            )
            self._stages[number] = self._laid_out(scene)
        return self._stages[number]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Array], dict[str, Any]]:
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        number = int((options or {}).get("scene", self._rng.integers(self.count)))
        if not 0 <= number < self.count:
            raise TraceError(f"scene={number}; scenes have numbers 0..{self.count - 1}")
        stage, world = self.stage(number)
        managed = self.place == "manager"
        self._chosen = Chosen(len(self.possible_agents))
        self._told = Told(self.orders, self._chosen if managed else self.manager, self.every_s)
        self.course = Course(stage, world, self._told)
        self.agents = list(self.possible_agents)
        return self._shown()

    def step(
        self, actions: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, float], dict[str, bool], dict[str, bool], dict[str, Any]]:
        for g, agent in enumerate(self.possible_agents):
            if self.place == "manager":
                self._chosen.said[g] = goal_of(agent, actions.get(agent, KEEP))
            else:
                by = np.nan_to_num(np.asarray(actions.get(agent, 0.0), np.float64))
                steps = np.broadcast_to(np.clip(by, -REACH, REACH), self._steps.shape)
                self._told.said[g] = self.orders.moved(self.names, steps * self._steps)
        reward = self.weights.of(self.course.go())
        shown, infos = self._shown()
        here = self.agents
        if self.course.over or self.course.cut:
            self.agents = []
        return (
            shown,
            dict.fromkeys(here, reward),
            dict.fromkeys(here, self.course.over),
            dict.fromkeys(here, self.course.cut),
            infos,
        )

    def _laid_out(self, scene: Scene) -> tuple[Stage, World]:
        work, cluster = fitted(scene.workload, scene.cluster)
        check_hostable(work, cluster)
        if cluster.lending is None:
            raise TraceError(
                f"{scene.name}: the hierarchy's regions borrow what services leave, and "
                f"{cluster.source} lends nothing; give a trace such as {DEFAULT}"
            )
        if self._stages and list(cluster.regions) != self.possible_agents:
            raise TraceError(
                f"{scene.name}: has {len(cluster.regions)} regions, and the first scene "
                f"{len(self.possible_agents)}; agents are the same in all"
            )
        stage = Stage(scene, work, cluster, self.models or Models())
        return stage, stage.world(self.orders)

    def _shown(self) -> tuple[dict[str, Array], dict[str, Any]]:
        seen = rows(self.course.sight)
        if self.place == "workers":
            goals = np.full(len(seen), KEEP)
            if self.manager is not None:
                goals, _ = self.manager.goals(self.course.sight)
            seen = np.concatenate((seen, np.eye(len(GOALS), dtype=np.float32)[goals]), axis=1)
        info: dict[str, Any] = {"now_s": self.course.now_s, "guard": self.course.guard}
        if self.course.over:
            info["metrics"] = self.course.stage.measured(self.course.world)
        return (
            {agent: seen[g].copy() for g, agent in enumerate(self.agents)},
            {agent: dict(info) for agent in self.agents},
        )


def goal_of(agent: str, said: Any) -> int:
    """The number of a goal, checked."""
    number = int(said)
    if not 0 <= number < len(GOALS):
        known = ", ".join(f"{n} {name}" for n, name in enumerate(NAMES))
        raise PolicyError(f"{agent}: goal {number} is unknown; known: {known}")
    return number
