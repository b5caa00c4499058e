"""Thousands of clusters in one compiled call, in parallel and without the GIL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from trimtab.arrays import Array
from trimtab.core import Cluster, Event, Profile, Workload
from trimtab.envs.clusters import Clusters, first_row
from trimtab.envs.engine import begin_all, step_all
from trimtab.sim.world import Models


class BatchedEnv(VectorEnv):
    """`clusters` copies of ClusterEnv, stepped together: the same observations, masks and rewards.

    Observations are arrays (clusters, ..) of the codec's; masks are in info["action_mask"] and
    `action_masks()`. Same-step autoreset: the step that ends an episode returns the first
    observation of the cluster's next one, drawn at random by the seed, and info["final_obs"] has
    the last of the old one where info["_final_obs"]. Episodes are never truncated.

    The arrays returned are the env's own and the next step overwrites them; copy=True returns
    copies. numba.set_num_threads sets how many threads step.
    """

    metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.SAME_STEP}

    def __init__(
        self,
        clusters: int = 1024,
        workload: Workload | None = None,
        cluster: Cluster | None = None,
        profile: Profile | None = None,
        models: Models | None = None,
        *,
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
            clusters, workload, cluster, profile, models, codec=codec, jobs=jobs, window=window,
            place=place, reward=reward, scale=scale, record=record,
        )  # fmt: skip
        self.num_envs = clusters
        self.codec = self.clusters.codec
        self.single_observation_space, self.single_action_space = self.codec.spaces()
        self.observation_space = batch_space(self.single_observation_space, clusters)
        self.action_space = batch_space(self.single_action_space, clusters)
        self.copy = copy
        self._reward, self._done = np.zeros(clusters), np.zeros(clusters, np.bool_)
        self._never = np.zeros(clusters, np.bool_)
        self._final = np.zeros_like(self.clusters.out)
        self._answers = (self._reward, self._done, self._final)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Begin an episode everywhere; options={"start": one workload row or (clusters,)}."""
        super().reset(seed=seed)
        if seed is not None or not self.clusters.settings["draw"][0]:
            self.clusters.settings["draw"] = self.np_random.integers(1, 2**62)
            self.clusters.episode["number"] = 0
        first = first_row(options, self.clusters.windows)
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
        return shown, self._own(self._reward), self._own(self._done), self._own(self._never), info

    def action_masks(self) -> Array:
        """(clusters, actions), 1 = legal."""
        return self._own(self.clusters.mask)

    def events(self, c: int) -> list[Event]:
        """What happened in a cluster's present episode; needs an env made with record=True."""
        return self.clusters.events(c)

    def _own(self, array: Array) -> Array:
        return array.copy() if self.copy else array

    def _info(self) -> dict[str, Any]:
        refused = self.clusters.episode["refused"].copy()
        return {"action_mask": self._own(self.clusters.mask), "refused": refused}
