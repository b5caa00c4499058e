"""Thousands of clusters in one compiled call, in parallel and without the GIL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.spaces import Dict, MultiBinary
from gymnasium.vector import AutoresetMode
from gymnasium.vector import VectorEnv as GymnasiumVectorEnv
from gymnasium.vector.utils import batch_space

from trimtab.arrays import Array
from trimtab.columns import TOTALS
from trimtab.core import Cluster, Event, Profile, Workload
from trimtab.envs.clusters import Clusters, first_row
from trimtab.envs.engine import EPISODE, TOTAL_NAMES, begin_all, step_all
from trimtab.sim.world import Models


class BatchedEnv(GymnasiumVectorEnv):
    """`clusters` copies of ClusterEnv, stepped together: the same observations, masks and rewards.

    Observations are arrays (clusters, ..) of the codec's; masks are in info["action_mask"] and
    `action_masks()`. Same-step autoreset: the step that ends an episode returns the first
    observation of the cluster's next one, drawn at random by the seed, and where
    info["_final_obs"] info["final_obs"] has the last of the old one and info["final_info"] what it
    ended with. Episodes are never truncated.

    The arrays returned are the env's own and the next step overwrites them; copy=True returns
    copies. numba.set_num_threads sets how many threads step.
    """

    metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.SAME_STEP}

    def __init__(
        self,
        clusters: int = 1024,
        workload: Workload | None = None,
        cluster: Cluster | str | None = None,
        profile: Profile | None = None,
        models: Models | None = None,
        *,
        trace: str | None = None,
        load: float | None = None,
        lenient: bool = False,
        part: str | None = None,
        codec: str = "queue",
        jobs: int = 256,
        window: int | None = None,
        place: str = "best",
        reward: Mapping[str, float] | None = None,
        scale: float | None = None,
        record: bool = False,
        copy: bool = False,
    ) -> None:
        self.clusters = Clusters(
            clusters, workload, cluster, profile, models, trace=trace, load=load, lenient=lenient,
            part=part, codec=codec, jobs=jobs, window=window, place=place, reward=reward,
            scale=scale, record=record,
        )  # fmt: skip
        self.num_envs = clusters
        self.codec = self.clusters.codec
        self.single_observation_space, self.single_action_space = self.codec.spaces()
        self.observation_space = batch_space(self.single_observation_space, clusters)
        self.action_space = batch_space(self.single_action_space, clusters)
        self.copy = copy
        self._reward, self._done = np.zeros(clusters), np.zeros(clusters, np.bool_)
        self._never, self._here = np.zeros(clusters, np.bool_), np.ones(clusters, np.bool_)
        self._final = np.zeros_like(self.clusters.out)
        self.ended = np.zeros(clusters, EPISODE)  # where the last step ended an episode, that one
        self._totals = np.zeros(clusters, TOTALS)
        self._over = np.zeros(self.codec.actions, np.int8)  # when all is over there is only waiting
        self._over[-1] = 1
        self._answers = (self._reward, self._done, self._final, self.ended, self._totals)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Begin an episode everywhere; options={"start": one workload row or (clusters,)}."""
        super().reset(seed=seed)
        if seed is not None or not self.clusters.settings["draw"][0]:
            self.clusters.settings["draw"] = self.np_random.integers(1, 2**62)
            self.clusters.episode["number"] = 0
        first = first_row(options, self.clusters)
        firsts = (
            np.full(self.num_envs, -1) if first is None else np.broadcast_to(first, self.num_envs)
        )
        begin_all(self.clusters.settings, firsts.copy(), *self.clusters._rest)
        self._done[:] = False
        return self._own(self.clusters.observation), self._info()

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        actions = np.asarray(actions, np.int64)
        step_all(self.clusters.settings, actions, *self.clusters._rest, *self._answers)
        shown, info = self._own(self.clusters.observation), self._info()
        info["final_obs"] = self._own(self._final).reshape(shown.shape)
        info["_final_obs"] = info["_final_info"] = self._own(self._done)
        if self._done.any():
            info["final_info"] = self._final_info()
        return shown, self._own(self._reward), self._own(self._done), self._own(self._never), info

    def action_masks(self) -> Array:
        """(clusters, actions), 1 = legal."""
        return self._own(self.clusters.mask)

    def events(self, c: int) -> list[Event]:
        """What happened in a cluster's present episode; needs an env made with record=True."""
        return self.clusters.events(c)

    def _final_info(self) -> dict[str, Any]:
        """What info has of one environment, in arrays, and beside each where it holds."""
        done = self._done.copy()
        masks = np.where(done[:, None], self._over, np.int8(0))
        parts: dict[str, Any] = {
            "action_mask": masks,
            "refused": np.where(done, self.ended["refused"], 0),
        }
        totals = {name: np.where(done, self._totals[name], 0) for name in TOTAL_NAMES}
        parts["totals"] = totals | {f"_{name}": done for name in totals}
        return parts | {f"_{name}": done for name in parts}

    def _own(self, array: Array) -> Array:
        return array.copy() if self.copy else array

    def _info(self) -> dict[str, Any]:
        refused = self.clusters.episode["refused"].copy()
        here = self._here
        return {
            "action_mask": self._own(self.clusters.mask), "_action_mask": here,
            "refused": refused, "_refused": here,
        }  # fmt: skip


class VectorEnv(BatchedEnv):
    """BatchedEnv with the observations of the single env, {"observation", "action_mask"}: what
    gymnasium.make_vec makes. Final observations are an object array with None elsewhere.
    """

    def __init__(self, num_envs: int = 1, *, copy: bool = True, **settings: Any) -> None:
        super().__init__(num_envs, copy=copy, **settings)
        masks = MultiBinary(self.codec.actions)
        self.single_observation_space = Dict(
            observation=self.single_observation_space, action_mask=masks
        )
        self.observation_space = batch_space(self.single_observation_space, num_envs)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        shown, info = super().reset(seed=seed, options=options)
        return {"observation": shown, "action_mask": self.action_masks()}, info

    def step(self, actions: Array) -> tuple[Any, Array, Array, Array, dict[str, Any]]:
        shown, reward, done, never, info = super().step(actions)
        last, final = info.pop("final_obs"), np.full(self.num_envs, None, object)
        for c in np.flatnonzero(done):
            final[c] = {"observation": last[c].copy(), "action_mask": self._over.copy()}
        if done.any():
            info["final_obs"] = final
        else:
            del info["_final_obs"], info["_final_info"]
        seen = {"observation": shown, "action_mask": self.action_masks()}
        return seen, reward, done, never, info


def queue_envs(num_envs: int = 1, **settings: Any) -> VectorEnv:
    """trimtab/Queue-v0, so many of them."""
    return VectorEnv(num_envs, codec="queue", **settings)


def grid_envs(num_envs: int = 1, **settings: Any) -> VectorEnv:
    """trimtab/Grid-v0, so many of them."""
    return VectorEnv(num_envs, codec="grid", **settings)
