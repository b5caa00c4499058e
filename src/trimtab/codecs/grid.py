"""A grid of waiting jobs and nodes: the choice of which job starts where."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from gymnasium import spaces

from trimtab.codecs.queue import FEATURES, choose_queue, place_code, write_rows
from trimtab.core import Array, Decision, Snapshot, Wait
from trimtab.rules.fit import fits
from trimtab.rules.seen import decisions_of, world_of
from trimtab.rules.world import compiled, inner

CHANNELS = (
    "free",  # share of the driving resource: GPUs where the node has any
    "free first",  # share of the first resource
    "whole GPUs",  # share of its devices that nobody uses
    "load",
    "power",  # share of its peak draw
    "up",
)


@inner
def write_nodes(w, c, cells):
    """Write the channels of every node."""
    for node in range(w.nodes.shape[1]):
        rec, state = w.nodes[c, node], w.node_state[c, node]
        driver = rec.driver
        cap, first = w.capacity[c, node, driver], w.capacity[c, node, 0]
        whole = 0.0
        for d in range(rec.gpus):
            if w.gpu_free[c, node, d] == 1.0:
                whole += 1.0
        cells[c, node, 0] = w.free[c, node, driver] / cap if cap > 0.0 else 0.0
        cells[c, node, 1] = w.free[c, node, 0] / first if first > 0.0 else 0.0
        cells[c, node, 2] = whole / rec.gpus if rec.gpus > 0 else 0.0
        cells[c, node, 3] = min(state.load, 1.0)
        cells[c, node, 4] = state.power_w / rec.peak_w if rec.peak_w > 0.0 else 0.0
        cells[c, node, 5] = state.up


@inner
def write_pairs(w, c, count, shown, rows, speed, legal):
    """Write how fast each job would run on each node, 1 = the fastest of all, and what is legal."""
    nodes = w.nodes.shape[1]
    for i in range(max(count, min(shown, rows.shape[1]))):
        fastest = 0.0
        for node in range(nodes):
            speed[c, i, node] = 0.0
            legal[c, i * nodes + node] = 0
        if i >= count:
            continue
        job = w.queue[c, i]
        kind = w.jobs[c, job].kind
        for other in range(w.rate.shape[1]):
            fastest = max(fastest, w.rate[kind, other, 0])
        for node in range(w.head[c].nodes):
            rate = w.rate[kind, w.nodes[c, node].kind, 0]
            speed[c, i, node] = rate / fastest if fastest > 0.0 else 0.0
            if rows[c, i, 5] > 0.0 and fits(w, c, node, job, 0):
                legal[c, i * nodes + node] = 1


@compiled
def encode_grid(w, place, waiting, rows, cells, speed, may, legal):
    """Everything the grid shows of a world of one cluster."""
    count, _ = write_rows(w, 0, place, waiting, 0, rows, may)
    write_nodes(w, 0, cells)
    write_pairs(w, 0, count, 0, rows, speed, legal)


class GridCodec:
    """Action job x nodes + node starts that job there; the last one waits.

    A gang, or what of an array does not fit on the node, goes on by the rule.
    """

    def __init__(self, nodes: int, window: int = 8, place: str = "best", seed: int = 0) -> None:
        self.nodes, self.window, self.place, self.seed = nodes, window, place_code(place), seed

    def spaces(self) -> tuple[spaces.Dict, spaces.Space[np.int64]]:
        window, nodes = self.window, self.nodes
        seen = spaces.Dict(
            {
                "jobs": spaces.Box(-1.0, 1.0, (window, len(FEATURES)), np.float32),
                "nodes": spaces.Box(0.0, 1.0, (nodes, len(CHANNELS)), np.float32),
                "speed": spaces.Box(0.0, 1.0, (window, nodes), np.float32),
            }
        )
        return seen, spaces.Discrete(window * nodes + 1)

    def encode(self, snapshot: Snapshot) -> dict[str, Array]:
        return self._both(snapshot)[0]

    def mask(self, snapshot: Snapshot) -> Array:
        return self._both(snapshot)[1]

    def decode(self, action: int, snapshot: Snapshot) -> Sequence[Decision]:
        """The start it stands for; an action that stands for no job, or for one that does not fit,
        waits.
        """
        i, node = divmod(int(action), self.nodes)
        if not 0 <= i < min(self.window, len(snapshot.queue)):
            return [Wait()]
        job = int(snapshot.queue[i])
        world = world_of(snapshot, max(int(snapshot.state["left"][job]), 1))
        choose_queue(world, job, node, self.place, self.seed)
        return decisions_of(world) or [Wait()]

    def _both(self, snapshot: Snapshot) -> tuple[dict[str, Array], Array]:
        window, nodes = self.window, self.nodes
        rows = np.zeros((1, window, len(FEATURES)), np.float32)
        cells = np.zeros((1, nodes, len(CHANNELS)), np.float32)
        speed = np.zeros((1, window, nodes), np.float32)
        legal = np.zeros((1, window * nodes + 1), np.int8)
        may = np.zeros((1, window + 1), np.int8)
        world = world_of(snapshot)
        encode_grid(world, self.place, len(snapshot.queue), rows, cells, speed, may, legal)
        legal[0, -1] = 1
        return {"jobs": rows[0], "nodes": cells[0], "speed": speed[0]}, legal[0]
