"""A window of the queue: eight numbers a waiting job, and the choice of one to start.

Placement is left to a rule. The compiled functions serve this codec on the snapshot of any backend
and the
environments on the simulator's own arrays, so that both see the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from gymnasium import spaces

from trimtab.core import Array, Decision, Snapshot, Wait
from trimtab.errors import UnknownName
from trimtab.rules.fit import fits, slots, take
from trimtab.rules.names import PLACES, unknown
from trimtab.rules.place import book_instance, eligible, place_job
from trimtab.rules.seen import decisions_of, world_of
from trimtab.rules.world import compiled, inner

FEATURES = (
    "waited",  # t / (t + 1 h), as are the next two
    "requested",
    "slack",  # to the deadline; 1 = none
    "size",  # largest share of a resource of the cluster it would hold
    "priority",  # p / (p + 1)
    "fits",  # 1 = may start now
    "free",  # share of the cluster's first resource that is free, the same in every row
    "present",  # 1 = a job, 0 = an empty row
)
HOUR_S = 3600.0


@inner
def can_start(w, c, job, place):
    """Whether the job, or one instance of an array, may start now where the rule would place it."""
    need = w.state[c, job].left if w.jobs[c, job].gang == 1 else 1
    room = 0
    for node in range(w.nodes.shape[1]):
        if need == 1:
            if fits(w, c, node, job, 0) and eligible(place, w, c, node, job, 0):
                return True
        elif eligible(place, w, c, node, job, 0):
            room += slots(w, c, node, job, 0, w.free, w.gpu_free, w.gpu_mem, need)
            if room >= need:
                return True
    return False


@inner
def size_share(w, c, job):
    """The largest share of any resource of the cluster that the whole job holds."""
    share = 0.0
    for r in range(w.demand.shape[2]):
        if w.capacity_sum[c, r] > 0.0:
            share = max(share, w.demand[c, job, r] / w.capacity_sum[c, r])
    return min(share * w.jobs[c, job].instances, 1.0)


@inner
def free_share(w, c):
    free = 0.0
    for node in range(w.nodes.shape[1]):
        free += w.free[c, node, 0]
    return free / w.capacity_sum[c, 0] if w.capacity_sum[c, 0] > 0.0 else 0.0


@inner
def write_rows(w, c, place, waiting, shown, rows, legal):
    """Write the first jobs of World.queue as rows of features and whether each may start.

    `shown` is how many rows were written before: those that are empty now are blanked. Returns how
    many are
    written, and whether any may start.
    """
    count = min(waiting, rows.shape[1])
    now_s = w.head[c].now_s
    free = free_share(w, c)
    some = False
    for i in range(count):
        job = w.queue[c, i]
        rec = w.jobs[c, job]
        wait_s = now_s - rec.submit_s
        may = can_start(w, c, job, place)
        some |= may
        rows[c, i, 0] = wait_s / (wait_s + HOUR_S)
        rows[c, i, 1] = rec.request_s / (rec.request_s + HOUR_S)
        slack_s = max(rec.deadline_s - now_s, 0.0)
        rows[c, i, 2] = slack_s / (slack_s + HOUR_S) if slack_s < np.inf else 1.0
        rows[c, i, 3] = size_share(w, c, job)
        rows[c, i, 4] = rec.priority / (abs(rec.priority) + 1.0)
        rows[c, i, 5] = 1.0 if may else 0.0
        rows[c, i, 6] = free
        rows[c, i, 7] = 1.0
        legal[c, i] = 1 if may else 0
    for i in range(count, min(shown, rows.shape[1])):
        for k in range(rows.shape[2]):
            rows[c, i, k] = 0.0
        legal[c, i] = 0
    return count, some


@inner
def place_choice(w, c, job, node, place, seed):
    """Write where the job would start to World.entry: on `node` first, -1 = by the rule. How many
    instances.

    The book is as before when it returns.
    """
    left = w.state[c, job].left
    gang = w.jobs[c, job].gang == 1
    at = 0
    if node >= 0:
        while at < left and at < w.entry.shape[1] and fits(w, c, node, job, 0):
            book_instance(w, c, node, job, 0, at)
            at += 1
        if at == 0:
            return 0
    if at < left:
        at += place_job(place, w, c, job, 0, left - at, not gang, seed, at)
    for i in range(at - 1, -1, -1):
        rec = w.entry[c, i]
        take(w, c, rec.node, job, 0, -1, rec.devices, w.free, w.gpu_free, w.gpu_mem)
    return 0 if gang and at < left else at


@compiled
def encode_queue(w, place, waiting, rows, legal):
    """Rows and legality of a world of one cluster."""
    write_rows(w, 0, place, waiting, 0, rows, legal)


@compiled
def choose_queue(w, job, node, place, seed):
    """Decide to start one job of a world of one cluster."""
    w.head[0].stops = 0
    w.head[0].starts = place_choice(w, 0, job, node, place, seed)


def place_code(place: str) -> int:
    if place not in PLACES:
        raise UnknownName(unknown("place", place, place, PLACES))
    return PLACES[place]


class QueueCodec:
    """Observation (window, 8); action i starts the i-th waiting job, action `window` waits."""

    def __init__(self, window: int = 128, place: str = "best", seed: int = 0) -> None:
        self.window, self.place, self.seed = window, place_code(place), seed

    def spaces(self) -> tuple[spaces.Space[Array], spaces.Space[np.int64]]:
        seen = spaces.Box(-1.0, 1.0, (self.window, len(FEATURES)), np.float32)
        return seen, spaces.Discrete(self.window + 1)

    def encode(self, snapshot: Snapshot) -> Array:
        return self._both(snapshot)[0]

    def mask(self, snapshot: Snapshot) -> Array:
        return self._both(snapshot)[1]

    def decode(self, action: int, snapshot: Snapshot) -> Sequence[Decision]:
        """The start it stands for; an action that stands for no job, or for one that does not fit,
        waits.
        """
        if not 0 <= action < min(self.window, len(snapshot.queue)):
            return [Wait()]
        job = int(snapshot.queue[action])
        world = world_of(snapshot, max(int(snapshot.state["left"][job]), 1))
        choose_queue(world, job, -1, self.place, self.seed)
        return decisions_of(world) or [Wait()]

    def _both(self, snapshot: Snapshot) -> tuple[Array, Array]:
        rows = np.zeros((1, self.window, len(FEATURES)), np.float32)
        legal = np.zeros((1, self.window + 1), np.int8)
        encode_queue(world_of(snapshot), self.place, len(snapshot.queue), rows, legal)
        legal[0, self.window] = 1
        return rows[0], legal[0]
