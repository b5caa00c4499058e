"""Branches: what if, at this decision, another pair had been taken?

Many clusters play episodes by a network or a guiding rule. At a decision every candidate is tried
on a copy of the cluster: the same jobs arrive at the same seconds, only the one decision differs,
and both play on by the same policy to the end. The difference of what the episode costs is the
worth of the candidate against waiting, without the noise of the arrivals.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numba import from_dtype, prange

from trimtab.arrays import Array
from trimtab.codecs.grid import place_led
from trimtab.compiled import compiled, inner, interruptible
from trimtab.core import Cluster, Profile, Workload
from trimtab.errors import PolicyError
from trimtab.policies.adlro.choice import chosen
from trimtab.policies.adlro.net import WIDEST, Net
from trimtab.policies.adlro.pairs import CELL, MOST, MOVE, SWAP, TINY, WIDTH, left_s, pairs, usual_s
from trimtab.rules.fit import NEVER
from trimtab.rules.place import FASTEST, mixed
from trimtab.rules.world import World
from trimtab.sim import kernel
from trimtab.sim.choice import OK, relocate, start, stop
from trimtab.sim.kernel import advance
from trimtab.sim.log import MOVED
from trimtab.sim.loop import queue_of
from trimtab.sim.whole import Whole, left_in
from trimtab.sim.world import Models, check_hostable, make_world

CELL_TYPE = from_dtype(CELL)
MOST_DECISIONS = 12  # a job, of a network that is judged


@inner
def look(w, c, net, room):
    """The pair that the policy takes now, or -1 to wait; the guiding rule's; how many there are."""
    n = pairs(w, c, queue_of(w, c), room.rows, room.cells)
    must = w.head[c].heap == 0
    best, rule = chosen(room.rows, n, net, must, room.here, room.there, room.values)
    return best, rule, n


@inner
def do(w, c, cell):
    """Carry out a pair. False if that was refused."""
    if cell.how == MOVE:
        w.entry[c, 0].node = cell.node
        w.entry[c, 0].devices = NEVER
        return relocate(w, c, cell.job, 0, 0, 1, MOVED) == OK
    if cell.how == SWAP:
        stop(w, c, cell.other)
    placed = place_led(w, c, cell.job, cell.node, FASTEST, 0)
    return placed > 0 and start(w, c, cell.job, 0, 0, placed) == OK


@inner
def go_on(w, c, net, room, explore, seed):
    """One decision by the policy, or by chance with odds `explore`; False at the end."""
    if w.conf[0].halt == 1:
        return False
    best, _, n = look(w, c, net, room)
    if explore > 0.0 and n > 0:
        number = w.totals[c].started + w.totals[c].stopped + w.totals[c].submitted
        if mixed(seed, number, 2 * c) < explore:
            best = int(mixed(seed, number, 2 * c + 1) * (n + (w.head[c].heap > 0)))
            best = -1 if best == n else best
    if best >= 0 and do(w, c, room.cells[best]):
        return True
    return advance(w, c)


class Room(NamedTuple):
    """What one thread needs to look at a decision."""

    rows: Array  # (MOST, WIDTH) f4
    cells: Array  # (MOST,) CELL
    values: Array  # (MOST,)
    here: Array  # (WIDEST,) f4
    there: Array


@inner
def make_room():
    return Room(
        np.empty((MOST, WIDTH), np.float32),
        np.empty(MOST, CELL_TYPE),
        np.empty(MOST),
        np.empty(WIDEST, np.float32),
        np.empty(WIDEST, np.float32),
    )


@inner
def copy_cluster(w, a, v, b):
    """Lay cluster a of one world over cluster b of another of the same shape."""
    v.head[b] = w.head[a]
    v.totals[b] = w.totals[a]
    for job in range(w.jobs.shape[1]):
        v.jobs[b, job] = w.jobs[a, job]
        v.truth[b, job] = w.truth[a, job]
        v.state[b, job] = w.state[a, job]
        v.rank[b, job] = w.rank[a, job]
        v.line[b, job] = w.line[a, job]
        v.child_ptr[b, job] = w.child_ptr[a, job]
    v.child_ptr[b, w.jobs.shape[1]] = w.child_ptr[a, w.jobs.shape[1]]
    v.demand[b] = w.demand[a]
    for node in range(w.nodes.shape[1]):
        v.nodes[b, node] = w.nodes[a, node]
        v.node_state[b, node] = w.node_state[a, node]
    v.capacity[b] = w.capacity[a]
    v.capacity_sum[b] = w.capacity_sum[a]
    v.free[b] = w.free[a]
    v.gpu_free[b] = w.gpu_free[a]
    v.gpu_mem[b] = w.gpu_mem[a]
    v.recent[b] = w.recent[a]
    for run in range(w.runs.shape[1]):
        v.runs[b, run] = w.runs[a, run]
        v.heap[b, run] = w.heap[a, run]
    for piece in range(w.pieces.shape[1]):
        v.pieces[b, piece] = w.pieces[a, piece]
    v.follow[b] = w.follow[a]
    v.words[b] = w.words[a]
    v.heads[b] = w.heads[a]
    v.prefer[b] = w.prefer[a]
    v.quota_cap[b] = w.quota_cap[a]
    v.quota_used[b] = w.quota_used[a]
    v.quota_ptr[b] = w.quota_ptr[a]
    v.quota_idx[b] = w.quota_idx[a]
    v.quota_nodes[b] = w.quota_nodes[a]
    v.reserved[b] = w.reserved[a]
    for g in range(w.gate.shape[1]):
        v.gate[b, g] = w.gate[a, g]
    v.fresh[b] = w.fresh[a]


@inner
def cut_off(w, c, horizon):
    """Let no more than `horizon` further jobs arrive."""
    head = w.head[c]
    last = min(head.submitted + horizon, head.jobs)
    for job in range(last, head.jobs):
        head.batch_left -= w.truth[c, job].service == 0
    head.jobs = last


@inner
def cost_of(w, c, weights):
    """What was paid so far: seconds of jobs in the system, and of idle nodes while jobs wait."""
    return weights[0] * w.totals[c].system_s + weights[1] * w.totals[c].idle_s


@inner
def to_the_end(w, c, net, room, weights):
    """Play on by the policy until all jobs have ended; returns what was paid in all."""
    while go_on(w, c, net, room, 0.0, 0):
        pass
    return cost_of(w, c, weights)


@inner
def candidates(n, values, picked, seed, number):
    """Choose which pairs to try: half the best by the present policy, half by chance."""
    most = min(len(picked), n)
    for i in range(most):
        best = -1
        if i >= len(picked) // 2:
            at = int(mixed(seed, number, i) * n)
            for step in range(n):
                if values[(at + step) % n] > -np.inf:
                    best = (at + step) % n
                    break
        else:
            for j in range(n):
                if values[j] > -np.inf and (best < 0 or values[j] > values[best]):
                    best = j
        picked[i] = best
        values[best] = -np.inf
    return most


@inner
def mean_left_s(w, c):
    """Requested seconds that the jobs in the system have left, the mean of them: the scale of what
    a decision can be worth, and known when it is taken.
    """
    now_s, total, count = w.head[c].now_s, 0.0, 0
    for i in range(queue_of(w, c)):
        total += left_s(w, c, w.queue[c, i], -1, now_s)
        count += 1
    for i in range(w.head[c].heap):
        run = w.heap[c, i]
        total += left_s(w, c, w.runs[c, run].job, run, now_s)
        count += 1
    return max(total / max(count, 1), TINY * usual_s(w, c))


@inner
def label_one(w, v, c, net, room, horizon, weights, seed, rows, worth):
    """Try the candidates of a decision of cluster c of w on copies in v; returns how many.

    `worth` is what each saves against waiting, over `mean_left_s`.
    """
    number = w.totals[c].started + w.totals[c].stopped + w.totals[c].submitted
    best, rule, n = look(w, c, net, room)
    if n == 0:
        return 0
    for i in (best, rule):  # what is done now and what the rule would do are always tried
        if i >= 0:
            room.values[i] = np.inf
    unit_s = mean_left_s(w, c)
    picked = np.empty(worth.shape[1], np.int64)
    most = candidates(n, room.values, picked, seed + c, number)
    cells = np.empty(most, CELL_TYPE)
    for i in range(most):
        cells[i] = room.cells[picked[i]]
        rows[c, i] = room.rows[picked[i]]
    copy_cluster(w, c, v, c)
    cut_off(v, c, horizon)
    if not advance(v, c):
        return 0
    waited = to_the_end(v, c, net, room, weights)
    for i in range(most):
        copy_cluster(w, c, v, c)
        cut_off(v, c, horizon)
        if not do(v, c, cells[i]):
            return 0
        worth[c, i] = (waited - to_the_end(v, c, net, room, weights)) / unit_s
    return most


@compiled(parallel=True)
def label_all(w, v, net, horizon, weights, seed, rows, worth, count):
    for c in prange(w.head.shape[0]):
        room = make_room()
        count[c] = 0
        if w.head[c].batch_left > 0:
            count[c] = label_one(w, v, c, net, room, horizon, weights, seed, rows, worth)


@compiled(parallel=True)
def play_all(w, net, steps, explore, seed):
    """Take so many decisions in every cluster, fewer where an episode ends."""
    for c in prange(w.head.shape[0]):
        room = make_room()
        for _ in range(steps[c]):
            if not go_on(w, c, net, room, explore, seed):
                break


@compiled(parallel=True)
def begin_all(w):
    for c in prange(w.head.shape[0]):
        kernel.reset(w, c)


class Branches:
    """Clusters that play one episode each, and the worth of what they might do instead.

    `idle_cost` is lambda of the ADLRO reward, R = -(completion time + lambda idle GPU time): the
    sum over an episode of what is paid here.
    """

    def __init__(
        self,
        workloads: Sequence[Workload],
        clusters: Sequence[Cluster],
        profile: Profile,
        models: Models | None = None,
        *,
        tries: int = 8,
        horizon: int = 64,
        idle_cost: float = 0.0,
    ) -> None:
        runs = max(runs_at_once(work, on) for work, on in zip(workloads, clusters))
        laid = (workloads, clusters, profile, models)
        self.world: World = make_world(*laid, runs=runs, pieces=runs)
        self.copies: World = make_world(*laid, runs=runs, pieces=runs)
        self.jobs = np.array([len(work) for work in workloads])
        self.horizon = horizon
        self.weights = np.array([1.0, idle_cost])
        count = len(workloads)
        self._rows = np.zeros((count, tries, WIDTH), np.float32)
        self._worth, self._count = np.zeros((count, tries)), np.zeros(count, np.int64)
        begin_all(self.world)

    def play(self, net: Net, steps: Array, explore: float = 0.0, seed: int = 0) -> None:
        """Take so many decisions (C,) in each cluster."""
        play_all(self.world, net, np.asarray(steps, np.int64), explore, seed)

    def label(self, net: Net, seed: int = 0) -> tuple[Array, Array, Array]:
        """(decisions, tries, WIDTH) features, (decisions, tries) worth and (decisions,) tries of
        the present decision of every cluster whose episode goes on.
        """
        label_all(
            self.world, self.copies, net, self.horizon, self.weights, seed,
            self._rows, self._worth, self._count,
        )  # fmt: skip
        keep = self._count > 0
        return self._rows[keep], self._worth[keep], self._count[keep]

    @property
    def over(self) -> Array:
        """(C,) whether each episode has ended."""
        return np.asarray(self.world.head["batch_left"] == 0)

    def finish(self, net: Net) -> Array:
        """Play all episodes to their ends; returns the mean completion time of each, in seconds."""
        return self._paid_s(net, np.full(len(self.jobs), np.iinfo(np.int64).max))

    def judge(self, net: Net) -> Array:
        """The same, but a network that thrashes is cut off: what it has paid by then tells."""
        return self._paid_s(net, MOST_DECISIONS * self.jobs)

    def _paid_s(self, net: Net, steps: Array) -> Array:
        steps = np.asarray(steps, np.int64)
        interruptible(play_all, self.world, net, steps, 0.0, 0, halt=self.world.halt)
        return np.asarray(self.world.totals["system_s"]) / self.jobs


def whole(
    workload: Workload, cluster: Cluster, profile: Profile, models: Models, net: Net
) -> Whole:
    """Run a whole trace in compiled code, as `run` does with AdlroPolicy on a SimBackend."""
    check_hostable(workload, cluster)
    began_s = time.perf_counter()
    played = Branches([workload], [cluster], profile, models, tries=1)
    played.finish(net)
    left = int(played.world.head["batch_left"][0])
    if left:
        raise PolicyError(f"{left} jobs can never run: their nodes failed for good")
    return left_in(played.world, None, time.perf_counter() - began_s)


def runs_at_once(work: Workload, cluster: Cluster) -> int:
    """At most so many pieces of runs are on the cluster together."""
    instances = int(work.jobs["instances"].sum())
    whole = (work.jobs["gpus"] > 0).all() and (work.jobs["gpu_share"] == 1).all()
    return min(instances, int(cluster.nodes["gpus"].sum())) if whole else instances
