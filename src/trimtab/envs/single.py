"""One cluster as a Gymnasium env: every step is one compiled call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
from gymnasium.spaces import Dict, MultiBinary

from trimtab.arrays import Array
from trimtab.core import Cluster, Event, Profile, Workload
from trimtab.envs.clusters import Clusters
from trimtab.envs.engine import step_one
from trimtab.sim.world import Models


class ClusterEnv(gymnasium.Env):
    """Schedule the jobs of an episode; it ends when all of them have ended.

    Observation {"observation", "action_mask"}, see the codec. reset(seed=..) draws a window of
    `jobs` consecutive jobs of the workload, or of a `trace` such as a log of yours, on its `part`
    ("train", "test"; see Clusters); reset(options= {"start": row}) takes that one. Instants at
    which no job can start are passed over. A masked action is refused: it waits and is counted in
    info["refused"]. `reward` weighs the changes of core.TOTALS, divided by `scale`; by default the
    rewards of an episode sum to -(waiting seconds) / scale.

    copy=False returns the env's own arrays, which the next step overwrites.
    """

    metadata = {"render_modes": []}

    def __init__(
        self,
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
        copy: bool = True,
    ) -> None:
        self.clusters = Clusters(
            1, workload, cluster, profile, models, trace=trace, load=load, lenient=lenient,
            part=part, codec=codec, jobs=jobs, window=window, place=place, reward=reward,
            scale=scale, record=record,
        )  # fmt: skip
        self.codec = self.clusters.codec
        shown, self.action_space = self.codec.spaces()
        self.observation_space = Dict(
            observation=shown, action_mask=MultiBinary(self.codec.actions)
        )
        self.copy = copy
        self._observation, self._mask = self.clusters.observation[0], self.clusters.mask[0]
        self._settings, self._rest = self.clusters.settings, self.clusters._rest
        self._refused = self.clusters.episode["refused"]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Array], dict[str, Any]]:
        super().reset(seed=seed)
        self.clusters.begin(0, self.clusters.drawn(self.np_random, options))
        return self._shown()

    def step(self, action: int) -> tuple[dict[str, Array], float, bool, bool, dict[str, Any]]:
        reward, done = step_one(self._settings, int(action), *self._rest)
        shown, info = self._shown()
        if done:
            info["totals"] = self.clusters.totals()
        return shown, reward, done, False, info

    def action_masks(self) -> Array:
        """1 = legal, as sb3-contrib asks for it."""
        return self._mask.copy() if self.copy else self._mask

    def queue(self) -> Array:
        """Rows of the episode's jobs in the window, oldest first."""
        rows = int(self.clusters.episode["rows"][0])
        return self.clusters.world.queue[0, :rows].copy()

    def events(self) -> list[Event]:
        """What happened in this episode, where the env was made with record=True."""
        return self.clusters.events()

    def _shown(self) -> tuple[dict[str, Array], dict[str, Any]]:
        observation, mask = self._observation, self._mask
        if self.copy:
            observation, mask = observation.copy(), mask.copy()
        info = {"action_mask": mask, "refused": self._refused.item()}
        return {"observation": observation, "action_mask": mask}, info


def queue_env(**settings: Any) -> ClusterEnv:
    """trimtab/Queue-v0: choose the waiting job to start next."""
    return ClusterEnv(codec="queue", **settings)


def grid_env(**settings: Any) -> ClusterEnv:
    """trimtab/Grid-v0: choose the waiting job and the node."""
    return ClusterEnv(codec="grid", **settings)
