"""What an environment plays on: a trace to cut episodes from, a cluster, and the arrays it writes
to.
"""

from __future__ import annotations

import numpy as np
from gymnasium import spaces

from trimtab.codecs.grid import CHANNELS
from trimtab.codecs.queue import FEATURES, place_code
from trimtab.core import Array, Cluster, Profile, Workload
from trimtab.envs.step import GRID, QUEUE, REWARDS
from trimtab.errors import TraceError, UnknownName
from trimtab.rules.names import unknown
from trimtab.rules.world import World
from trimtab.sim.world import Models, check_hostable, expected_mix, fitted, make_world
from trimtab.traces.scene import open_scene

CODECS = {"queue": QUEUE, "grid": GRID}


class Arena:
    """C clusters side by side, each on its own episode of `jobs` consecutive rows of one trace."""

    def __init__(
        self,
        clusters: int,
        *,
        trace: str | Workload = "mixed-gpu",
        cluster: Cluster | None = None,
        profile: Profile | None = None,
        models: Models | None = None,
        jobs: int = 256,
        codec: str = "queue",
        window: int = 128,
        place: str = "best",
        reward: dict[str, float] | None = None,
        seed: int = 0,
    ) -> None:
        if isinstance(trace, str):
            scene = open_scene(trace, seed=seed)
            trace, cluster, profile = (
                scene.workload,
                cluster or scene.cluster,
                profile or scene.profile,
            )
        if cluster is None:
            raise TraceError(
                "an environment on a workload needs the cluster it runs on: give cluster=..."
            )
        if codec not in CODECS:
            raise UnknownName(unknown("codec", codec, codec, CODECS))
        if not 0 < jobs <= len(trace):
            raise TraceError(
                f"{trace.source}: jobs={jobs} is not in 1..{len(trace)}; choose episodes within the trace"
            )
        work, cluster = fitted(trace, cluster)
        check_hostable(work, cluster)
        self.workload, self.cluster, self.jobs, self.clusters = work, cluster, jobs, clusters
        self.codec, self.place, self.window = CODECS[codec], place_code(place), window
        self.most = len(work) - jobs + 1
        self.weight = weights(reward, jobs)
        self.source = make_world([work], [cluster], profile, models, runs=1, pieces=1)
        self.world = episode_world(work, cluster, profile, models, jobs, clusters)
        nodes = len(cluster)
        grid = self.codec == GRID
        self.actions = window * nodes + 1 if grid else window + 1
        self.rows = np.zeros((clusters, window, len(FEATURES)), np.float32)
        self.cells = np.zeros((clusters, nodes if grid else 0, len(CHANNELS)), np.float32)
        self.speed = np.zeros((clusters, window if grid else 0, nodes), np.float32)
        self.legal = np.zeros((clusters, self.actions), np.int8)
        self.may = np.zeros((clusters, window + 1 if grid else 0), np.int8)
        self.shown = np.zeros(clusters, np.int64)
        self.reward = np.zeros(clusters)

    def seen(self) -> tuple[Array, ...]:
        """The arrays a step writes what is seen to."""
        return self.rows, self.cells, self.speed, self.legal, self.may, self.shown

    def spaces(self) -> tuple[spaces.Dict, spaces.Discrete]:
        """Of one cluster."""
        mask = spaces.Box(0, 1, (self.actions,), np.int8)
        rows = spaces.Box(-1.0, 1.0, self.rows.shape[1:], np.float32)
        seen: dict[str, spaces.Space[Array]] = {"observation": rows, "action_mask": mask}
        if self.codec == GRID:
            seen = {
                "jobs": rows,
                "nodes": spaces.Box(0.0, 1.0, self.cells.shape[1:], np.float32),
                "speed": spaces.Box(0.0, 1.0, self.speed.shape[1:], np.float32),
                "action_mask": mask,
            }
        return spaces.Dict(seen), spaces.Discrete(self.actions)


def weights(reward: dict[str, float] | None, jobs: int) -> Array:
    """Weights of the running totals; by default the episode's rewards sum to minus its mean wait in
    hours.
    """
    reward = {"waiting_s": -1.0 / (3600.0 * jobs)} if reward is None else reward
    weight = np.zeros(len(REWARDS))
    for name, value in reward.items():
        if name not in REWARDS:
            raise UnknownName(unknown("reward", name, name, REWARDS))
        weight[REWARDS.index(name)] = value
    return weight


def episode_world(
    work: Workload,
    cluster: Cluster,
    profile: Profile | None,
    models: Models | None,
    jobs: int,
    clusters: int,
) -> World:
    """A world with room for any `jobs` consecutive rows in each cluster."""
    instances = most_in_window(work.jobs["instances"], jobs)
    ptr, idx = work.after_ptr, work.after_idx
    edges = (
        0
        if ptr is None or idx is None
        else most_in_window(np.bincount(idx, minlength=len(work)), jobs)
    )
    part = work.window(0, jobs)
    world = make_world(
        [part] * clusters, [cluster] * clusters, profile, models,
        runs=instances, pieces=instances, mix=expected_mix(work),
    )  # fmt: skip
    likes = int(work.jobs["like"].max()) + 1
    cancels = jobs if np.isfinite(work.truth["cancel_s"]).any() else 0
    return world.replaced(
        child_idx=np.zeros((clusters, edges), np.int64),
        cancel=np.full((clusters, cancels), -1, np.int64),
        refused=np.zeros((clusters, likes), np.int64),
        prefer=np.zeros((clusters, likes), np.int64),
        held=np.zeros((clusters, len(work.tenants), len(cluster.resources))),
        share=np.zeros((clusters, len(work.tenants))),
    )


def most_in_window(counts: Array, width: int) -> int:
    """The largest sum of `width` consecutive counts."""
    total = np.concatenate(([0], np.cumsum(counts)))
    return int((total[width:] - total[:-width]).max())
