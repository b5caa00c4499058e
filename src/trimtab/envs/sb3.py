"""Many clusters in one compiled call, as an environment of Stable-Baselines3 and sb3-contrib.

MaskablePPO("MultiInputPolicy", VecEnv(64, trace="log.swf.gz", load=0.9, part="train")).learn(...)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from stable_baselines3.common import vec_env

from trimtab.arrays import Array
from trimtab.envs.batched import VectorEnv

Indices = None | int | Iterable[int]


class VecEnv(vec_env.VecEnv):
    """trimtab/Queue-v0, or with codec="grid" Grid-v0, `num_envs` of them; `settings` are theirs.

    A model that learned here plays in the single environments and the other way round. An infos
    dict has `episode`, as VecMonitor writes it, `terminal_observation` and `totals` where an
    episode ended, and is empty elsewhere.
    """

    def __init__(self, num_envs: int = 64, **settings: Any) -> None:
        self.env = VectorEnv(num_envs, **settings)
        super().__init__(num_envs, self.env.single_observation_space, self.env.single_action_space)
        self._actions: Array = np.zeros(num_envs, np.int64)

    def reset(self) -> Any:
        """Begin an episode everywhere, by what seed() and set_options() said for the first."""
        options = self._options[0] or None
        shown, info = self.env.reset(seed=self._seeds[0], options=options)
        self._reset_seeds()
        self._reset_options()
        self.reset_infos = [{"action_mask": mask} for mask in info["action_mask"]]
        return shown

    def step_async(self, actions: Array) -> None:
        self._actions = actions

    def step_wait(self) -> Any:
        shown, reward, done, _, info = self.env.step(self._actions)
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for c in np.flatnonzero(done):
            ended, totals = self.env.ended[c], info["final_info"]["totals"]
            infos[c] = {
                "terminal_observation": info["final_obs"][c],
                "TimeLimit.truncated": False,
                "episode": {"r": float(ended["score"]), "l": int(ended["steps"])},
                "totals": {name: totals[name][c].item() for name in totals if name[0] != "_"},
            }
        return shown, reward.astype(np.float32), done, infos

    def close(self) -> None:
        self.env.close()

    def action_masks(self) -> Array:
        """(num_envs, actions), 1 = legal."""
        return self.env.action_masks()

    def env_method(
        self, method_name: str, *args: Any, indices: Indices = None, **named: Any
    ) -> list[Any]:
        """What a method of all clusters says, cluster by cluster."""
        said = getattr(self.env, method_name)(*args, **named)
        return [said[c] for c in self._get_indices(indices)]

    def get_attr(self, attr_name: str, indices: Indices = None) -> list[Any]:
        value = getattr(self.env, attr_name)
        return [value for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Indices = None) -> None:
        setattr(self.env, attr_name, value)

    def env_is_wrapped(self, wrapper_class: Any, indices: Indices = None) -> list[bool]:
        return [False for _ in self._get_indices(indices)]
