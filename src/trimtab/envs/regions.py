"""A cluster shared by agents, one a region, as a PettingZoo parallel env."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary
from pettingzoo import ParallelEnv

from trimtab.arrays import Array
from trimtab.codecs.grid import encode_node, node_channels
from trimtab.codecs.queue import WIDTH, encode_rows, mask_queue, place_now
from trimtab.compiled import compiled, inner
from trimtab.core import Cluster, Event, Profile, Workload
from trimtab.envs.clusters import DEFAULT, Clusters
from trimtab.envs.engine import line_window, load_window, weighed
from trimtab.errors import TraceError
from trimtab.rules.world import World, world_at
from trimtab.sim import kernel
from trimtab.sim.choice import OK, start
from trimtab.sim.kernel import advance
from trimtab.sim.log import QUEUED
from trimtab.sim.loop import queue_of
from trimtab.sim.world import Models, unhostable
from trimtab.traces.scenes.scene import open_scene

HIDDEN = 2  # of NODE_STATE.up: rules see a node that is not up, and its region makes it 1 again


@inner
def hide_others(w: World, region: int) -> None:
    """Show only the nodes of one region to the rules, until `show_all`."""
    for node in range(w.head[0].nodes):
        if w.nodes[0, node].region != region and w.node_state[0, node].up == 1:
            w.node_state[0, node].up = HIDDEN


@inner
def show_all(w: World) -> None:
    for node in range(w.head[0].nodes):
        if w.node_state[0, node].up == HIDDEN:
            w.node_state[0, node].up = 1


@inner
def start_in(w: World, on: Any, job: int, region: int) -> bool:
    """Start a job on the nodes of a region. False if it does not wait, or does not fit there."""
    if w.state[0, job].status != QUEUED:
        return False
    hide_others(w, region)
    placed = place_now(w, 0, job, on.place, on.seed)
    show_all(w)
    return placed > 0 and start(w, 0, job, 0, 0, placed) == OK


@inner
def settle(
    w: World, on: Any, first: int, table: Array, total: Array, mask: Array, out: Array
) -> bool:
    """Advance until some region can start a job, or to the end; show every region what it sees.
    `first`: the row of the table that is job 0's. True = over.
    """
    while True:
        rows = line_window(w, 0, on.window, 0)
        startable = 0
        for region in range(mask.shape[0]):
            hide_others(w, region)
            mine = mask[region : region + 1]
            startable += mask_queue(
                w, 0, rows, on.window, on.place, table, first, mine, 0, on.window
            )
            mine[0, on.window] = 1
            show_all(w)
        done = w.head[0].batch_left == 0
        if done or startable > 0:
            break
        if not advance(w, 0):
            done = True
            break
    for region in range(mask.shape[0]):
        show_region(w, region, rows, on.window, first, table, total, mask, out)
    return done


@inner
def show_region(
    w: World,
    region: int,
    rows: int,
    window: int,
    first: int,
    table: Array,
    total: Array,
    mask: Array,
    out: Array,
) -> None:
    """Write the channels of the region's nodes, then the queue window as the region sees it."""
    mine = out[region : region + 1]
    at = 0
    for node in range(w.head[0].nodes):
        if w.nodes[0, node].region == region:
            at += encode_node(w, 0, node, mine, at)
    hide_others(w, region)
    fits_now = mask[region : region + 1]
    encode_rows(w, 0, rows, table, first, total[region], fits_now, mine, at, window)
    show_all(w)


@compiled
def begin_regions(
    settings: Array, first: int, table: Array, total: Array, mask: Array, out: Array
) -> bool:
    on = settings[0]
    w = world_at(on.world)
    load_window(w, 0, world_at(on.source), first, on.fixed)
    kernel.reset(w, 0)
    return settle(w, on, first - on.fixed, table, total, mask, out)


@compiled
def step_regions(
    settings: Array,
    actions: Array,
    first: int,
    table: Array,
    total: Array,
    mask: Array,
    out: Array,
    refused: Array,
    weights: Any,
) -> tuple[float, bool]:
    """Carry out one action a region, in order; whoever names a job that is taken is refused.

    If none starts a job, time moves on; where nothing would ever happen again, the first that can
    starts one. Returns the weighed totals and whether the episode is over.
    """
    on = settings[0]
    w = world_at(on.world)
    begun = 0
    for region in range(actions.shape[0]):
        action = actions[region]
        if action == on.window:
            continue
        legal = 0 <= action < on.window and mask[region, action] != 0
        if legal and start_in(w, on, w.queue[0, action], region):
            begun += 1
        else:
            refused[region] += 1
    if begun == 0 and not advance(w, 0):
        for region in range(actions.shape[0]):
            for i in range(on.window):
                if begun == 0 and mask[region, i] != 0:
                    begun += start_in(w, on, w.queue[0, i], region)
    done = settle(w, on, first - on.fixed, table, total, mask, out)
    return weighed(w, 0, weights), done


class RegionsEnv(ParallelEnv):  # type: ignore[misc]
    """An agent a region of the cluster; all share the queue and the reward.

    An agent observes its own nodes (grid.CHANNELS without speeds), then the queue window
    (queue.FEATURES, where `fits` and `free` are about its region), flat. It starts a waiting job on
    its nodes, or waits. Agents that choose at one instant are heard in the order of the regions;
    the second to name a job is refused, which info["refused"] counts. Every job must fit into one
    region.
    """

    metadata = {"render_modes": [], "name": "trimtab_regions_v0", "is_parallelizable": True}
    render_mode = None

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
        jobs: int = 256,
        window: int = 32,
        place: str = "best",
        reward: Mapping[str, float] | None = None,
        scale: float | None = None,
        record: bool = False,
    ) -> None:
        if workload is None and cluster is None and trace is None:
            scene = open_scene(DEFAULT, load=load)
            workload, profile, load = scene.workload, scene.profile, None
            cluster = in_turn(scene.cluster, ("north", "south"))
        self.clusters = Clusters(
            1, workload, cluster, profile, models, trace=trace, load=load, lenient=lenient,
            part=part, jobs=jobs, window=window, place=place, reward=reward, scale=scale,
            record=record,
        )  # fmt: skip
        made = self.clusters.cluster
        check_regions(self.clusters.workload, made)
        self.possible_agents = list(made.regions)
        self.agents: list[str] = []
        nodes = np.bincount(made.nodes["region"], minlength=len(made.regions))
        wide = node_channels(len(made.resources), self.clusters.lends)
        self._widths = [int(n) * wide + window * WIDTH for n in nodes]
        self._spaces = {
            agent: Dict(
                observation=Box(-1.0, 1.0, (width,), np.float32),
                action_mask=MultiBinary(window + 1),
            )
            for agent, width in zip(self.possible_agents, self._widths, strict=True)
        }
        self._choices = {agent: Discrete(window + 1) for agent in self.possible_agents}
        self._total = np.stack(
            [made.capacity[made.nodes["region"] == g].sum(0) for g in range(len(nodes))]
        )
        self._mask = np.zeros((len(nodes), window + 1), np.int8)
        self._out = np.zeros((len(nodes), max(self._widths)), np.float32)
        self._refused = np.zeros(len(nodes), np.int64)
        self._rng = np.random.default_rng()
        self._first, self._score = 0, 0.0

    def observation_space(self, agent: str) -> Dict:
        return self._spaces[agent]

    def action_space(self, agent: str) -> Discrete:
        return self._choices[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        self._first = self.clusters.drawn(self._rng, options)
        self._score, self._refused[:] = 0.0, 0
        self.agents = list(self.possible_agents)
        settings, table = self.clusters.settings, self.clusters._table
        begin_regions(settings, self._first, table, self._total, self._mask, self._out)
        return self._shown()

    def step(
        self, actions: dict[str, int]
    ) -> tuple[dict[str, Any], dict[str, float], dict[str, bool], dict[str, bool], dict[str, Any]]:
        window = self.clusters.codec.window
        chosen = np.array([int(actions.get(agent, window)) for agent in self.possible_agents])
        score, done = step_regions(
            self.clusters.settings, chosen, self._first, self.clusters._table, self._total,
            self._mask, self._out, self._refused, self.clusters.weights,
        )  # fmt: skip
        reward, self._score = score - self._score, score
        shown, infos = self._shown()
        here = self.agents
        if done:
            self.agents = []
        return (
            shown,
            dict.fromkeys(here, reward),
            dict.fromkeys(here, bool(done)),
            dict.fromkeys(here, False),
            infos,
        )

    def queue(self) -> Array:
        """Rows of the episode's jobs in the window, oldest first."""
        waiting = queue_of(self.clusters.world, 0)
        return self.clusters.world.queue[0, : min(waiting, self.clusters.codec.window)].copy()

    def events(self) -> list[Event]:
        """What happened in this episode, where the env was made with record=True."""
        return self.clusters.events()

    def _shown(self) -> tuple[dict[str, Any], dict[str, Any]]:
        shown, infos = {}, {}
        for g, agent in enumerate(self.agents):
            mask = self._mask[g].copy()
            shown[agent] = {
                "observation": self._out[g, : self._widths[g]].copy(),
                "action_mask": mask,
            }
            infos[agent] = {"action_mask": mask, "refused": int(self._refused[g])}
        return shown, infos


def in_turn(cluster: Cluster, regions: tuple[str, ...]) -> Cluster:
    """The cluster with its nodes dealt out to regions, one after the other."""
    nodes = cluster.nodes.copy()
    nodes["region"] = np.arange(len(nodes)) % len(regions)
    return replace(cluster, nodes=nodes, regions=regions, link=np.ones((len(regions),) * 2))


def check_regions(workload: Workload, cluster: Cluster) -> None:
    """Raise TraceError for a job that no single region could run even if it were empty."""
    never = workload.truth["pinned"] == 0
    for g, region in enumerate(cluster.regions):
        mine = cluster.nodes["region"] == g
        if not mine.any():
            raise TraceError(
                f"{cluster.source}: region {region!r} has no nodes; give it some or drop it"
            )
        part = replace(
            cluster, nodes=cluster.nodes[mine], capacity=cluster.capacity[mine], names=None
        )
        never &= unhostable(workload, part)
    if never.any():
        row = int(np.flatnonzero(never)[0])
        raise TraceError(
            f"{workload.source}: job {workload.name(row)} (row {row}) fits into no "
            f"single region of {cluster.source}; drop it, or make regions larger"
        )
