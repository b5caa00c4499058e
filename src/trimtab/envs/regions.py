"""A cluster as a PettingZoo environment: an agent a region, one queue for all."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

from trimtab.codecs.queue import FEATURES, choose_queue, encode_queue, place_code
from trimtab.core import Array, Cluster, Profile, Snapshot, Workload
from trimtab.envs.arena import weights
from trimtab.envs.step import REWARDS
from trimtab.rules.seen import decisions_of, world_of
from trimtab.rules.world import World
from trimtab.sim.backend import SimBackend
from trimtab.sim.world import Models
from trimtab.traces.presets import mixed_gpu_cluster, mixed_gpu_profile
from trimtab.traces.synthetic import generate


class RegionsEnv(ParallelEnv[str, dict[str, Array], int]):
    """Each agent sees the queue with what fits in its region, and starts a job there or waits.

    Agents act in the order of regions: a job that an earlier one started, or that no longer fits,
    is
    refused to a later one, which counts in its info. All share one reward. Jobs that fit in no
    single region
    are started across regions by the place rule as soon as they fit, since no agent could.
    """

    metadata = {"name": "trimtab_regions_v0", "render_modes": []}

    def __init__(
        self,
        trace: Workload | None = None,
        cluster: Cluster | None = None,
        profile: Profile | None = None,
        models: Models | None = None,
        *,
        regions: int = 4,
        jobs: int = 64,
        window: int = 16,
        place: str = "best",
        reward: dict[str, float] | None = None,
        seed: int = 0,
    ) -> None:
        if cluster is None:
            cluster, profile = mixed_gpu_cluster(regions=regions), profile or mixed_gpu_profile()
        self._work = generate("mixed-gpu", seed=seed) if trace is None else trace
        self._cluster, self._profile, self._models = cluster, profile, models
        self._jobs, self._window, self._place, self._seed = jobs, window, place_code(place), seed
        self._weight = weights(reward, jobs)
        self.possible_agents = list(cluster.regions)
        self.agents: list[str] = []
        self._spaces = {agent: spaces_of(window) for agent in self.possible_agents}
        self._rng = np.random.default_rng(seed)
        self._backend: SimBackend | None = None

    def observation_space(self, agent: str) -> spaces.Dict:
        return self._spaces[agent][0]

    def action_space(self, agent: str) -> spaces.Discrete:
        return self._spaces[agent][1]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, dict[str, Array]], dict[str, dict[str, Any]]]:
        """Begin an episode at a random row of the trace, or at `options={"start": row}`."""
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        most = len(self._work) - self._jobs + 1
        first = int((options or {}).get("start", self._rng.integers(most)))
        self._backend = SimBackend(
            self._work.window(first, self._jobs), self._cluster, self._profile, self._models
        )
        self.agents = list(self.possible_agents)
        self._going = True
        self._advance()
        return self._seen(), {agent: {"refused": 0} for agent in self.agents}

    def step(
        self, actions: dict[str, int]
    ) -> tuple[
        dict[str, dict[str, Array]],
        dict[str, float],
        dict[str, bool],
        dict[str, bool],
        dict[str, dict[str, Any]],
    ]:
        """Apply one action an agent, then go on to the next instant at which an agent has a
        choice.
        """
        backend = self._backend
        if backend is None:
            raise RuntimeError("call reset() before step()")
        before = self._worth()
        shown = self._shown
        told = {agent: {"refused": 0} for agent in self.agents}
        for region, agent in enumerate(self.possible_agents):
            action = int(actions.get(agent, self._window))
            if 0 <= action < len(shown):
                snapshot = backend.snapshot()
                decisions = []
                if shown[action] in snapshot.queue:
                    world = self._of_region(snapshot, region)
                    choose_queue(world, int(shown[action]), -1, self._place, self._seed)
                    decisions = decisions_of(world)
                for decision in decisions:
                    backend.apply(decision)
                told[agent]["refused"] = int(not decisions)
        self._going = backend.wait() is not None
        self._advance()
        reward = self._worth() - before
        over = not self._going
        agents, seen = list(self.agents), self._seen()
        if over:
            self.agents = []
        done = backend.world.head[0]["batch_left"] == 0
        return (
            seen,
            dict.fromkeys(agents, reward),
            dict.fromkeys(agents, bool(over and done)),
            dict.fromkeys(agents, bool(over and not done)),
            told,
        )

    def _advance(self) -> None:
        """Go to the next instant at which some agent may start something."""
        backend = self._backend
        assert backend is not None
        while self._going:
            snapshot = backend.snapshot()
            self._span(snapshot)
            snapshot = backend.snapshot()
            if any(
                self._both(snapshot, region)[1][:-1].any()
                for region in range(len(self.possible_agents))
            ):
                return
            self._going = backend.wait() is not None

    def _span(self, snapshot: Snapshot) -> None:
        """Start jobs too large for any one region where they fit across regions, oldest first."""
        for job in snapshot.queue[: self._window]:
            if int(job) not in self._too_large(snapshot):
                continue
            world = world_of(snapshot, int(snapshot.state["left"][job]))
            choose_queue(world, int(job), -1, self._place, self._seed)
            for decision in decisions_of(world):
                if self._backend is not None:
                    self._backend.apply(decision)
                    snapshot = self._backend.snapshot()

    def _too_large(self, snapshot: Snapshot) -> set[int]:
        """Waiting jobs that no region could host even if it were empty."""
        large: set[int] = set()
        if len(self.possible_agents) == 1:
            return large
        for job in snapshot.queue[: self._window]:
            rec = snapshot.jobs[job]
            need = int(snapshot.state["left"][job]) if rec["gang"] else 1
            demand = snapshot.demand[job]
            with np.errstate(divide="ignore", invalid="ignore"):
                room = np.where(demand > 0, snapshot.capacity // demand, np.inf).min(axis=1)
            kinds = (int(rec["node_kinds"]) >> snapshot.nodes["kind"].astype(object)) & 1
            room = np.where(kinds == 1, room, 0)
            best = max(
                room[snapshot.nodes["region"] == r].sum() for r in range(len(self.possible_agents))
            )
            if best < need:
                large.add(int(job))
        return large

    def _of_region(self, snapshot: Snapshot, region: int) -> World:
        """A world in which only the region's nodes are up."""
        state = snapshot.node_state.copy()
        state["up"][snapshot.nodes["region"] != region] = 0
        most = int(snapshot.state["left"][snapshot.queue].max(initial=1))
        return world_of(snapshot._replace(node_state=state), most)

    def _both(self, snapshot: Snapshot, region: int) -> tuple[Array, Array]:
        rows = np.zeros((1, self._window, len(FEATURES)), np.float32)
        legal = np.zeros((1, self._window + 1), np.int8)
        world = self._of_region(snapshot, region)
        encode_queue(world, self._place, len(snapshot.queue), rows, legal)
        legal[0, -1] = 1
        return rows[0], legal[0]

    def _seen(self) -> dict[str, dict[str, Array]]:
        assert self._backend is not None
        snapshot = self._backend.snapshot()
        self._shown = snapshot.queue[: self._window].copy()
        seen = {}
        for region, agent in enumerate(self.possible_agents):
            rows, legal = self._both(snapshot, region)
            seen[agent] = {"observation": rows, "action_mask": legal}
        return seen

    def _worth(self) -> float:
        assert self._backend is not None
        totals = self._backend.world.totals[0]
        return float(
            sum(w * float(totals[name]) for w, name in zip(self._weight, REWARDS, strict=True) if w)
        )


def spaces_of(window: int) -> tuple[spaces.Dict, spaces.Discrete]:
    seen = {
        "observation": spaces.Box(-1.0, 1.0, (window, len(FEATURES)), np.float32),
        "action_mask": spaces.Box(0, 1, (window + 1,), np.int8),
    }
    return spaces.Dict(seen), spaces.Discrete(window + 1)
