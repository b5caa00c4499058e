"""The queue window: the first waiting jobs as rows of features; an action starts one, or waits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from trimtab.arrays import Array
from trimtab.compiled import compiled, inner
from trimtab.core import Decision, Snapshot, Start, Wait
from trimtab.errors import UnknownName
from trimtab.rules.fit import NEVER, ONE, fits, slots, take, within
from trimtab.rules.names import PLACES, unknown
from trimtab.rules.nodes.choose import place_job
from trimtab.rules.place import AFFINITY, prefers
from trimtab.rules.seen import world_of
from trimtab.rules.world import World

# The columns of a row. An empty row is all zeros; all numbers are in -1 .. 1.
FEATURES = {
    "waits": "1 = a job stands in this row",
    "waited": "seconds waited / (seconds waited + an hour)",
    "requested": "log(1 + requested seconds) / log(1 + 30 days), at most 1",
    "instances": "1 - 1 / instances",
    "share": "the largest share of the cluster that the job takes of any resource",
    "priority": "p / (1 + |p|)",
    "fits": "1 = it can start now",
    "free": "the smallest share of any resource of the cluster that is free",
}
WIDTH = len(FEATURES)
WAITS, WAITED, REQUESTED, INSTANCES, SHARE, PRIORITY, FITS, FREE = range(WIDTH)
# A table of what never changes while a job waits has a row a job: its features, and whether it is
# plain:
# one instance, no GPUs, on any kind of node, no quotas or gates, so that only amounts decide where
# it fits.
PLAIN = WIDTH
COLUMNS = WIDTH + 1
HOUR_S = 3600.0
LOG_LONGEST = math.log1p(30 * 24 * HOUR_S)


@inner
def add_capacity(w, c, total):
    """Write the cluster's amount of each resource, (R,)."""
    for r in range(w.capacity.shape[2]):
        total[r] = 0.0
        for node in range(w.capacity.shape[1]):
            total[r] += w.capacity[c, node, r]


@inner
def describe(w, c, job, total, table, row):
    """Write the features that never change while the job waits."""
    rec = w.jobs[c, job]
    share = 0.0
    for r in range(w.demand.shape[2]):
        if total[r] > 0.0:
            share = max(share, rec.instances * w.demand[c, job, r] / total[r])
    table[row, WAITS] = 1.0
    table[row, WAITED] = 0.0
    table[row, REQUESTED] = min(math.log1p(rec.request_s) / LOG_LONGEST, 1.0)
    table[row, INSTANCES] = 1.0 - 1.0 / rec.instances
    table[row, SHARE] = min(share, 1.0)
    table[row, PRIORITY] = rec.priority / (1.0 + abs(rec.priority))
    table[row, FITS] = 0.0
    table[row, FREE] = 0.0
    any_kind = ~rec.node_kinds == NEVER
    plain = rec.instances == 1 and rec.gpus == 0 and any_kind and rec.shapes & ONE != NEVER
    table[row, PLAIN] = plain and w.quota_cap.shape[1] == 0 and w.gate.shape[1] == 0


@compiled
def describe_all(w, total, table):
    """Fill `total` and the table of a whole workload, so that an encoding only copies."""
    add_capacity(w, 0, total)
    for job in range(table.shape[0]):
        describe(w, 0, job, total, table, job)


@inner
def free_share(w, c, total):
    """The smallest share of any resource that is free on nodes that are up."""
    least = 1.0
    for r in range(w.free.shape[2]):
        if total[r] > 0.0:
            free = 0.0
            for node in range(w.free.shape[1]):
                if w.node_state[c, node].up == 1:
                    free += max(w.free[c, node, r], 0.0)  # below 0 where a limit was lowered
            least = min(least, free / total[r])
    return least


@compiled(no_cpython_wrapper=True, no_cfunc_wrapper=True, forceinline=True)
def has_amounts(w, c, job):
    """Whether one node has the amounts of an instance: all there is to ask for a plain job."""
    for node in range(w.nodes.shape[1]):
        enough = w.node_state[c, node].up == 1
        for r in range(w.free.shape[2]):
            enough &= w.free[c, node, r] >= w.demand[c, job, r] * w.scale[0]
        if enough:
            return True
    return False


@inner
def can_start(place, w, c, job):
    """Whether the place rule would start the job now: all of a gang, any of an array."""
    left = w.state[c, job].left
    room = 0
    for node in range(w.nodes.shape[1]):
        if not fits(w, c, node, job, 0) or (place == AFFINITY and not prefers(w, c, node, job, 0)):
            continue
        if left == 1 or w.jobs[c, job].gang == 0:
            return True
        room += slots(w, c, node, job, 0, w.free, w.gpu_free, w.gpu_mem, left)
        if room >= left:
            return True
    return False


@inner
def may_wait(w, c, startable):
    """False where a job could start and nothing in sight would change: no run, no node down."""
    if startable == 0 or w.head[c].heap > 0:
        return True
    for node in range(w.head[c].nodes):
        if w.node_state[c, node].up == 0:
            return True
    return False


@inner
def mask_queue(w, c, rows, window, place, table, first, mask, skip, before):
    """Write and count which of World.queue's first `rows` jobs may start; write whether to wait.

    The first `skip` are known not to. Of the `before` rows written last time, those that are empty
    now are cleared.
    """
    startable = 0
    pool = w.nodes.shape[1] == 1 and w.free.shape[2] == 1
    free = w.free[c, 0, 0] if w.node_state[c, 0].up == 1 else -1.0
    for i in range(skip, rows):
        job = w.queue[c, i]
        if pool:  # one comparison instead of two loops
            ready = w.demand[c, job, 0] * w.scale[0] <= free
        else:
            ready = has_amounts(w, c, job)
        plain = table[first + job, PLAIN] != 0.0 and w.head[c].varies == 0
        if ready and (not plain or place == AFFINITY):
            ready = can_start(place, w, c, job)
        mask[c, i] = ready
        startable += ready
    for i in range(rows, before):
        mask[c, i] = 0
    mask[c, window] = may_wait(w, c, startable)
    return startable


@inner
def encode_rows(w, c, rows, table, first, total, fits_now, out, at, before):
    """Write a row for each of the first `rows` jobs of World.queue from out[c, at] on.

    `table[first + job]` has what does not change; of the `before` rows written last time, those
    that are empty now are cleared.
    """
    now_s = w.head[c].now_s
    free = free_share(w, c, total)
    for i in range(rows):
        job = w.queue[c, i]
        waited = w.state[c, job].waited_s + (now_s - w.state[c, job].queued_s)
        for k in range(WIDTH):
            out[c, at + k] = table[first + job, k]
        out[c, at + WAITED] = waited / (waited + HOUR_S)
        out[c, at + FITS] = fits_now[c, i]
        out[c, at + FREE] = free
        at += WIDTH
    for k in range((before - rows) * WIDTH):
        out[c, at + k] = 0.0


@inner
def place_now(w, c, job, place, seed):
    """Write to World.entry where the place rule puts the job now; books nothing.

    Returns how many instances.
    """
    left = w.state[c, job].left
    if left == 1 and w.nodes.shape[1] == 1 and w.jobs[c, job].gpus == 0:
        # no choice: what books the entry checks whether it fits
        w.entry[c, 0].node = 0
        w.entry[c, 0].devices = NEVER
        return 1
    left = within(w, c, job, 0, left)
    if left == 0:
        return 0
    placed = place_job(place, w, c, job, 0, left, w.jobs[c, job].gang == 0, seed, 0)
    give_back(w, c, job, placed)
    return placed


@inner
def give_back(w, c, job, placed):
    for i in range(placed - 1, -1, -1):
        node, devices = w.entry[c, i].node, w.entry[c, i].devices
        take(w, c, node, job, 0, -1, devices, w.free, w.gpu_free, w.gpu_mem)


@compiled
def look(w, window, place, table, total, mask, out):
    """Mask and observation of a world made from a snapshot."""
    rows = min(w.head[0].waiting, window)
    add_capacity(w, 0, total)
    for i in range(rows):
        describe(w, 0, w.queue[0, i], total, table, w.queue[0, i])
    mask_queue(w, 0, rows, window, place, table, 0, mask, 0, 0)
    encode_rows(w, 0, rows, table, 0, total, mask, out, 0, 0)


@compiled
def entries_for(w, job, place, seed):
    return place_now(w, 0, job, place, seed)


class QueueCodec:
    """Observation (window, 8) of the oldest waiting jobs, see FEATURES; action i starts the i-th,
    the last waits.

    `place` is the rule that chooses the nodes, `seed` its randomness. Starting is legal for what
    fits now. Waiting is not where a job could start while nothing runs and no node is down.
    """

    def __init__(self, window: int = 128, place: str = "best", seed: int = 0) -> None:
        if place not in PLACES:
            raise UnknownName(unknown("place", place, place, PLACES))
        self.window, self.place, self.seed = window, place, seed
        self.actions = window + 1
        self.shape = (window, WIDTH)
        self._table = np.zeros((0, COLUMNS), np.float32)

    def spaces(self) -> tuple[Any, Any]:
        from gymnasium.spaces import Box, Discrete

        return Box(-1.0, 1.0, self.shape, np.float32), Discrete(self.actions)

    def encode(self, snapshot: Snapshot) -> Array:
        return self._look(snapshot)[0]

    def mask(self, snapshot: Snapshot) -> Array:
        return self._look(snapshot)[1]

    def decode(self, action: int, snapshot: Snapshot) -> list[Decision]:
        """The start that the action means; an action that means none waits."""
        if not 0 <= action < min(self.window, len(snapshot.queue)):
            return [Wait()]
        job = int(snapshot.queue[action])
        world = world_of(snapshot, room=int(snapshot.state["left"][job]))
        placed = entries_for(world, job, PLACES[self.place], self.seed)
        return start_of(world, job, placed)

    def _look(self, snapshot: Snapshot) -> tuple[Array, Array]:
        if len(self._table) < len(snapshot.jobs):
            self._table = np.zeros((len(snapshot.jobs), COLUMNS), np.float32)
        total = np.zeros(snapshot.capacity.shape[1])
        mask, out = (
            np.zeros((1, self.actions), np.int8),
            np.zeros((1, self.window * WIDTH), np.float32),
        )
        look(world_of(snapshot, 1), self.window, PLACES[self.place], self._table, total, mask, out)
        return out.reshape(self.shape), mask[0]


def start_of(world: World, job: int, placed: int) -> list[Decision]:
    """The entries of a placement as a decision; nothing placed is a wait."""
    if placed == 0:
        return [Wait()]
    entry = world.entry[0, :placed]
    devices = entry["devices"].tolist()
    return [
        Start(job, tuple(entry["node"].tolist()), devices=tuple(devices) if any(devices) else ())
    ]
