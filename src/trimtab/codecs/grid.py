"""The grid: waiting jobs x nodes. An action starts one job on one node, or waits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from trimtab.arrays import Array
from trimtab.codecs.queue import (
    COLUMNS,
    LOG_LONGEST,
    WIDTH,
    add_capacity,
    describe,
    encode_rows,
    give_back,
    may_wait,
    start_of,
)
from trimtab.compiled import compiled, inner
from trimtab.core import Decision, Snapshot, Wait
from trimtab.errors import TraceError, UnknownName
from trimtab.rules.fit import expected_end, fits, slots, within
from trimtab.rules.names import PLACES, unknown
from trimtab.rules.nodes.choose import book_instance, place_job
from trimtab.rules.seen import world_of

# The channels of a node, in 0 .. 1; `free` has one a resource, `speed` one a job of the window.
CHANNELS = {
    "up": "1 = the node is alive",
    "load": "used share of its driving resource",
    "power": "drawn share of its peak power",
    "device": "the largest free share of one GPU",
    "left": "log(1 + seconds to its next expected end) / log(1 + 30 days), at most 1; 0 = idle",
    "memory": "free share of the memory of its GPUs; 0 = it has none",
    "free": "free share of each resource, below 0 where more is booked than is left",
    "read": "where a cluster lends: share that services use by the last reading, -1 = unknown",
    "reserved": "the same: share that services reserve",
    "kept": "the same: half the share that is kept from batch jobs, by the estimate and the limit",
    "over": "the same: load above 1",
    "speed": "r / (1 + r) of the rate of each job of the window here; 0 = it does not fit now",
}
SINGLE = 6  # channels before `free`
LENT = 4  # channels behind `free` where a cluster lends


def node_channels(resources: int, lends: bool) -> int:
    """The channels of a node but the speeds."""
    return SINGLE + resources + (LENT if lends else 0)


@inner
def mask_grid(w, c, rows, window, mask, before):
    """Write which of World.queue's first `rows` jobs may start on which node, and whether to wait.

    A gang may start led by a node if one instance fits there and all of them fit somewhere.
    Returns how many pairs may. Of the `before` jobs written last time, those gone now are cleared.
    """
    nodes = w.nodes.shape[1]
    startable = 0
    for i in range(rows):
        job = w.queue[c, i]
        left = w.state[c, job].left
        whole = left == 1 or w.jobs[c, job].gang == 0
        room = 0
        for node in range(nodes):
            here = fits(w, c, node, job, 0)
            mask[c, i * nodes + node] = here
            startable += here
            if here and not whole:
                room += slots(w, c, node, job, 0, w.free, w.gpu_free, w.gpu_mem, left)
        if not whole and room < left:
            for node in range(nodes):
                startable -= mask[c, i * nodes + node]
                mask[c, i * nodes + node] = 0
    for k in range(rows * nodes, before * nodes):
        mask[c, k] = 0
    mask[c, window * nodes] = may_wait(w, c, startable)
    return startable


@inner
def next_end_s(w, c, node):
    """Seconds until the first of the node's runs ends if its request is right; 0 if none runs."""
    now_s = w.head[c].now_s
    piece = w.node_state[c, node].piece
    first_s = np.inf if piece >= 0 else now_s
    while piece >= 0:
        first_s = min(first_s, expected_end(w, c, w.pieces[c, piece].run, now_s))
        piece = w.pieces[c, piece].after
    return first_s - now_s


@inner
def encode_node(w, c, node, out, at):
    """Write all channels of a node but the speeds from out[c, at] on. Returns how many."""
    rec, state = w.nodes[c, node], w.node_state[c, node]
    out[c, at] = state.up == 1
    out[c, at + 1] = min(max(state.load, 0.0), 1.0)
    out[c, at + 2] = min(state.power_w / rec.peak_w, 1.0) if rec.peak_w > 0.0 else 0.0
    widest = free_gb = 0.0
    for d in range(rec.gpus):
        widest = max(widest, w.gpu_free[c, node, d])
        free_gb += max(w.gpu_mem[c, node, d], 0.0)
    out[c, at + 3] = widest
    out[c, at + 4] = min(math.log1p(next_end_s(w, c, node)) / LOG_LONGEST, 1.0)
    has_gb = rec.gpus * rec.gpu_mem_gb
    out[c, at + 5] = min(free_gb / has_gb, 1.0) if has_gb > 0.0 else 0.0
    for r in range(w.free.shape[2]):
        cap = w.capacity[c, node, r]
        free = w.free[c, node, r] / cap if cap > 0.0 else 0.0
        out[c, at + SINGLE + r] = min(max(free, -1.0), 1.0)
    wide = SINGLE + w.free.shape[2]
    if w.limit.shape[1] == 0:
        return wide
    cap = w.capacity[c, node, rec.driver]
    share = 1.0 / cap if cap > 0.0 else 0.0
    out[c, at + wide] = min(state.read * share, 1.0) if state.read >= 0.0 else -1.0
    out[c, at + wide + 1] = min(state.reserved * share, 1.0)
    out[c, at + wide + 2] = min(max(0.5 * state.kept * share, -1.0), 1.0)
    out[c, at + wide + 3] = min(max(state.load - 1.0, 0.0), 1.0)
    return wide + LENT


@inner
def encode_grid(w, c, rows, window, table, first, total, mask, fits_now, out, before):
    """Write a row of channels a node, then the rows of the queue window."""
    nodes = w.nodes.shape[1]
    at = 0
    for node in range(nodes):
        at += encode_node(w, c, node, out, at)
        for i in range(window):
            out[c, at + i] = 0.0
            if i < rows and mask[c, i * nodes + node]:
                rate = w.rate[w.jobs[c, w.queue[c, i]].kind, w.nodes[c, node].kind, 0]
                out[c, at + i] = rate / (1.0 + rate)
        at += window
    for i in range(rows):
        fits_now[c, i] = 0
        for node in range(nodes):
            fits_now[c, i] |= mask[c, i * nodes + node]
    encode_rows(w, c, rows, table, first, total, fits_now, out, at, before)


@inner
def place_led(w, c, job, node, place, seed):
    """Write to World.entry a placement led by this node; books nothing. Returns how many instances.

    The node takes as many as fit; the rest of a gang goes where the place rule puts it, the rest of
    an array waits.
    """
    left = within(w, c, job, 0, w.state[c, job].left)
    here = slots(w, c, node, job, 0, w.free, w.gpu_free, w.gpu_mem, left)
    if here > w.entry.shape[1]:
        return 0
    for i in range(here):
        book_instance(w, c, node, job, 0, i)
    placed = here
    if 0 < here < left and w.jobs[c, job].gang == 1:
        placed += place_job(place, w, c, job, 0, left - here, False, seed, here)
    give_back(w, c, job, placed)
    if w.jobs[c, job].gang == 1 and placed < left:
        return 0
    return placed


@compiled
def look(w, window, table, total, mask, fits_now, out):
    """Mask and observation of a world made from a snapshot."""
    rows = min(w.head[0].waiting, window)
    add_capacity(w, 0, total)
    for i in range(rows):
        describe(w, 0, w.queue[0, i], total, table, w.queue[0, i])
    mask_grid(w, 0, rows, window, mask, 0)
    encode_grid(w, 0, rows, window, table, 0, total, mask, fits_now, out, 0)


@compiled
def entries_on(w, job, node, place, seed):
    return place_led(w, 0, job, node, place, seed)


class GridCodec:
    """Observation: `nodes` x channels (see CHANNELS), then `window` x 8 (queue.FEATURES), flat;
    `split` parts them. `lends`: the cluster lends what services leave.

    Action i * nodes + n starts the i-th oldest waiting job on node n, the last one waits. A gang
    that does not fit on the node alone puts the rest where the `place` rule does; an array starts
    what fits there.
    """

    def __init__(
        self,
        nodes: int,
        resources: int = 1,
        window: int = 8,
        place: str = "best",
        seed: int = 0,
        lends: bool = False,
    ) -> None:
        if place not in PLACES:
            raise UnknownName(unknown("place", place, place, PLACES))
        self.nodes, self.resources, self.window = nodes, resources, window
        self.place, self.seed, self.lends = place, seed, lends
        self.channels = node_channels(resources, lends) + window
        self.actions = window * nodes + 1
        self.shape = (nodes * self.channels + window * WIDTH,)
        self._table = np.zeros((0, COLUMNS), np.float32)

    def spaces(self) -> tuple[Any, Any]:
        from gymnasium.spaces import Box, Discrete

        return Box(-1.0, 1.0, self.shape, np.float32), Discrete(self.actions)

    def split(self, flat: Array) -> tuple[Array, Array]:
        """(.., nodes, channels) and (.., window, 8) of flat observations, as views."""
        cut = self.nodes * self.channels
        lead = flat.shape[:-1]
        grid = flat[..., :cut].reshape(*lead, self.nodes, self.channels)
        return grid, flat[..., cut:].reshape(*lead, self.window, WIDTH)

    def encode(self, snapshot: Snapshot) -> Array:
        return self._look(snapshot)[0]

    def mask(self, snapshot: Snapshot) -> Array:
        return self._look(snapshot)[1]

    def decode(self, action: int, snapshot: Snapshot) -> list[Decision]:
        """The start that the action means; an action that means none waits."""
        row, node = divmod(int(action), self.nodes)
        if action < 0 or not row < min(self.window, len(snapshot.queue)):
            return [Wait()]
        job = int(snapshot.queue[row])
        world = world_of(snapshot, room=int(snapshot.state["left"][job]))
        placed = entries_on(world, job, node, PLACES[self.place], self.seed)
        return start_of(world, job, placed)

    def _look(self, snapshot: Snapshot) -> tuple[Array, Array]:
        if len(self._table) < len(snapshot.jobs):
            self._table = np.zeros((len(snapshot.jobs), COLUMNS), np.float32)
        if self.lends and not len(snapshot.limit):
            raise TraceError(
                "grid: made for a cluster that lends what services leave, and this one does not; "
                "use a model that was trained on one like it"
            )
        if not self.lends:  # what a cluster lends shows in what is free alone
            snapshot = snapshot._replace(limit=np.zeros(0))
        total = np.zeros(snapshot.capacity.shape[1])
        mask, fits_now = np.zeros((1, self.actions), np.int8), np.zeros((1, self.window), np.int8)
        out = np.zeros((1, *self.shape), np.float32)
        look(world_of(snapshot, 1), self.window, self._table, total, mask, fits_now, out)
        return out[0], mask[0]
