"""A router by linear programme: each kind of job is split over the node kinds as a fluid would be.

named("fluid")
FluidPolicy(preempt=False, steal=False, fill=0.0)       the bare router

The programme takes the arrival rate and the mean work of each kind of job as seen so far. Its
least largest utilisation is the offered load of `traces.adlro` for that mix: at 1 no router keeps
up.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import linprog

from trimtab.arrays import Array
from trimtab.core import Decision, Move, Snapshot, Start, Stop
from trimtab.policies.baselines.completion import left_s, line_up, node_rates, places
from trimtab.rules.room import Room

ANYWHERE = -1  # routed to no node kind: a gang that no one kind can hold
MOVED = 0.1  # of the largest utilisation: solve anew when one has moved by more
NEVER = 1e-12  # a rate to divide by where there is none
LONGER = 2.0  # a job is stopped for one that needs less than half its time: estimates are wrong
LEAST_GAIN_S = 1.0  # what a restart must save at least


class Waiting(NamedTuple):
    """The jobs that wait, shortest rest first."""

    jobs: Array  # (M,)
    left: Array  # (M,) expected work at rate 1
    rate: Array  # (M, N) 0 where it cannot run
    home: Array  # (M, N) whether it was routed there

    def only(self, keep: Array) -> Waiting:
        return Waiting(self.jobs[keep], self.left[keep], self.rate[keep], self.home[keep])


class Stand(NamedTuple):
    """A running job of one instance, and where."""

    job: int
    node: int
    devices: int


def split(load: Array, fill: float) -> tuple[Array, float]:
    """(K, G) share of each job kind that goes to each node kind, and the least utilisation z.

    `load` (K, G) is the utilisation of node kind g if all jobs of kind k went there, inf where they
    cannot run. First z, the least largest utilisation of any node kind; then, of the splits that
    keep every node kind below the larger of z and `fill`, the one with the least busy time: an idle
    cluster uses its fastest nodes, a loaded one spreads as far as it must.
    """
    kinds, makes = load.shape
    can = np.isfinite(load)
    cost = np.where(can, load, 0.0).ravel()
    one = np.repeat(np.eye(kinds), makes, axis=1)  # shares of a job kind sum to 1
    busy = np.tile(np.eye(makes), kinds) * cost
    bounds = [(0.0, 1.0 if ok else 0.0) for ok in can.ravel()]
    least = linprog(
        np.append(np.zeros(len(cost)), 1.0),
        A_ub=np.hstack((busy, -np.ones((makes, 1)))),
        b_ub=np.zeros(makes),
        A_eq=np.hstack((one, np.zeros((kinds, 1)))),
        b_eq=np.ones(kinds),
        bounds=[*bounds, (0.0, None)],
        method="highs",
    )
    z = float(least.x[-1])
    limit = np.full(makes, max(z * (1 + 1e-9), fill))
    cheap = linprog(
        cost, A_ub=busy, b_ub=limit, A_eq=one, b_eq=np.ones(kinds), bounds=bounds, method="highs"
    )
    shares = cheap.x if cheap.status == 0 else least.x[:-1]
    return shares.reshape(kinds, makes), z


class Router:
    """Sends each new job to the node kind that lags most behind the programme's split.

    Sums forget: `half` arrivals ago counts half.
    """

    def __init__(self, fill: float, half: float) -> None:
        self.fill, self.forget = fill, 0.5 ** (1 / half)
        self.route: dict[int, int] = {}
        # (job kind, node kinds it fits) -> row of the tables, in order of first arrival
        self.rows: dict[tuple[int, bytes], int] = {}
        self.asked_s = np.zeros((0, 0))  # (K, G) busy seconds if all had gone there
        self.given_s = np.zeros((0, 0))  # (K, G) request_s as routed
        self.span_s = 0.0  # of the arrivals that the sums stand for
        self.last_s = np.nan
        self.solved = np.zeros((0, 0))  # (K, G) the load that `share` was solved for
        self.share = np.zeros((0, 0))

    def routed(self, snapshot: Snapshot, job: int) -> int:
        """The node kind of a job, chosen when it is first seen."""
        if job not in self.route:
            busy = busy_s(snapshot, job)
            known = np.isfinite(busy).any()
            self.route[job] = self._choose(snapshot.jobs[job], busy) if known else ANYWHERE
        return self.route[job]

    def _choose(self, ask: Array, busy: Array) -> int:
        row = self._count(ask, busy)
        load = self.asked_s / (self.span_s or np.nanmin(self.asked_s[self.asked_s > 0]))
        if load.shape != self.solved.shape or moved(load, self.solved):
            self.solved = load
            self.share, _ = split(load, self.fill)
        given = self.given_s[row]
        behind = self.share[row] * (given.sum() + float(ask["request_s"])) - given
        kind = int(np.argmax(np.where(np.isfinite(busy), behind, -np.inf)))
        given[kind] += float(ask["request_s"])
        return kind

    def _count(self, ask: Array, busy: Array) -> int:
        sort, submit_s = (int(ask["kind"]), np.isfinite(busy).tobytes()), float(ask["submit_s"])
        if sort not in self.rows:
            self.rows[sort] = len(self.rows)
            grow = ((0, 1), (0, len(busy) - self.asked_s.shape[1]))
            self.asked_s, self.given_s = np.pad(self.asked_s, grow), np.pad(self.given_s, grow)
        gap_s = 0.0 if np.isnan(self.last_s) else max(submit_s - self.last_s, 0.0)
        self.last_s = submit_s
        self.span_s = self.span_s * self.forget + gap_s
        self.asked_s *= self.forget
        self.given_s *= self.forget
        self.asked_s[self.rows[sort]] += busy
        return self.rows[sort]


class FluidPolicy:
    """Fluid router, work-conserving; within a node kind the shortest rest comes first.

    `preempt`: a shorter job stops a longer one that keeps its progress, and a job on a slow node
    restarts on an idle faster one if that ends it sooner, or moves there if it can while it runs.
    `steal`: an idle node takes a job routed elsewhere that is expected to finish sooner here.
    `fill` is the utilisation up to which the fastest nodes are preferred.
    """

    name = "fluid"

    def __init__(
        self, seed: int = 0, *, preempt: bool = True, steal: bool = True, fill: float = 0.6,
        half: float = 500.0,
    ) -> None:  # fmt: skip
        del seed  # nothing is drawn
        self.preempt, self.steal, self.fill, self.half = preempt, steal, fill, half
        self._router = Router(fill, half)
        self._now_s = -np.inf

    def decide(self, snapshot: Snapshot) -> list[Decision]:
        if snapshot.now_s < self._now_s:
            self._router = Router(self.fill, self.half)  # another run has begun
        self._now_s = snapshot.now_s
        room, made = Room.of(snapshot), list[Decision]()
        if len(snapshot.queue):
            waiting = self._look(snapshot)
            made += go_home(snapshot, room, waiting, self.steal)
            waiting = still(waiting, made)
            if self.preempt and len(waiting.jobs):
                made += stop_longer(snapshot, room, waiting)
                waiting = still(waiting, made)
            if self.steal and len(waiting.jobs) and open_nodes(snapshot, room).any():
                made += steal(snapshot, room, waiting)
        if self.preempt and not made and open_nodes(snapshot, room).any():
            made += upgrade(snapshot, room)
        return made

    def _look(self, snapshot: Snapshot) -> Waiting:
        # routed in order of arrival, served shortest first
        route = np.array([self._router.routed(snapshot, job) for job in snapshot.queue.tolist()])
        left = left_s(snapshot, snapshot.queue)
        order = np.argsort(left, kind="stable")
        jobs, route = snapshot.queue[order], route[order, None]
        home = (route == ANYWHERE) | (route == snapshot.nodes["kind"])
        return Waiting(jobs, left[order], node_rates(snapshot, jobs), home)


def still(waiting: Waiting, made: list[Decision]) -> Waiting:
    """Those that none of the decisions starts."""
    begun = {decision.job for decision in made if isinstance(decision, Start)}
    return waiting.only(np.array([job not in begun for job in waiting.jobs.tolist()], bool))


def open_nodes(snapshot: Snapshot, room: Room) -> Array:
    """(N,) whether a node is up and has some left of everything it has at all."""
    some = (room.free > 0) | (snapshot.capacity <= 0)
    return np.asarray(some.all(axis=1) & (snapshot.node_state["up"] == 1))


def go_home(snapshot: Snapshot, room: Room, waiting: Waiting, spare: bool) -> list[Decision]:
    """Start what fits where it was routed or, if `spare`, on a faster node that nobody at home
    there waits for.
    """
    made: list[Decision] = []
    kind = snapshot.nodes["kind"]
    kinds = int(kind.max()) + 1
    wanted = np.array([waiting.home[:, kind == g].any(axis=1).sum() for g in range(kinds)])
    open_ = open_nodes(snapshot, room)
    for k, job in enumerate(waiting.jobs.tolist()):
        if not open_.any():
            break
        rate, home = waiting.rate[k], waiting.home[k]
        allowed = home
        if spare:
            unasked = np.bincount(kind[open_], minlength=kinds) > wanted
            allowed = home | (unasked[kind] & (rate > np.max(rate, where=home, initial=0.0)))
        if not (allowed & open_).any():
            continue
        nodes = places(room, job, np.where(allowed, rate, 0.0))
        if nodes:
            made.append(room.start(job, nodes))
            wanted[np.unique(kind[home])] -= 1
            open_ = open_nodes(snapshot, room)
    return made


def stop_longer(snapshot: Snapshot, room: Room, waiting: Waiting) -> list[Decision]:
    """Let waiting jobs of one instance, shortest first, replace at home what has most left: at
    least LONGER times what they need there with their start-up.
    """
    made: list[Decision] = []
    stands = standing(snapshot)
    if not stands:
        return made
    running, node = (np.array([stand[i] for stand in stands]) for i in (0, 1))
    speed = node_rates(snapshot, running)[np.arange(len(node)), node]
    rest_s = left_s(snapshot, running) / np.maximum(speed, NEVER)
    for k, job in enumerate(waiting.jobs.tolist()):
        if snapshot.jobs["instances"][job] != 1:
            continue
        rate = np.where(waiting.home[k], waiting.rate[k], 0.0)[node]
        mine_s = waiting.left[k] / np.maximum(rate, NEVER) + snapshot.startup_s
        for best in np.argsort(LONGER * mine_s - rest_s, kind="stable").tolist():
            if rest_s[best] <= LONGER * mine_s[best]:
                break
            stand = stands[best]
            room.take(stand.job, stand.node, 0, -1, stand.devices)
            if not room.lacks(job, stand.node):
                made += [Stop(stand.job), room.start(job, (stand.node,))]
                rest_s[best] = -np.inf
                break
            room.take(stand.job, stand.node, 0, 1, stand.devices)
    return made


def steal(snapshot: Snapshot, room: Room, waiting: Waiting) -> list[Decision]:
    """Start on idle nodes those that gain most over their turn at home."""
    made: list[Decision] = []
    line = line_up(snapshot, waiting.jobs, waiting.left, waiting.rate * waiting.home)
    rate = waiting.rate
    here_s = snapshot.startup_s + waiting.left[:, None] / np.maximum(rate, NEVER)
    gain_s = np.where(rate > 0, line.finish_s[:, None] - snapshot.now_s - here_s, -np.inf)
    gain_s[:, ~open_nodes(snapshot, room)] = -np.inf
    best_s = gain_s.max(axis=1)
    for k in np.argsort(-best_s, kind="stable")[: (best_s > 0).sum()].tolist():
        open_ = open_nodes(snapshot, room) & (gain_s[k] > 0)
        nodes = places(room, int(waiting.jobs[k]), np.where(open_, rate[k], 0.0))
        if nodes:
            made.append(room.start(int(waiting.jobs[k]), nodes))
    return made


def upgrade(snapshot: Snapshot, room: Room) -> list[Decision]:
    """Restart what runs on a slow node on an idle faster one, the largest gain first.

    With live migration it moves, also what would lose its progress when stopped.
    """
    made: list[Decision] = []
    live = snapshot.live_migration
    stands = standing(snapshot, all_jobs=live)
    if not stands:
        return made
    running, node = (np.array([stand[i] for stand in stands]) for i in (0, 1))
    left, rate = left_s(snapshot, running)[:, None], node_rates(snapshot, running)
    here_s = left / np.maximum(rate[np.arange(len(node)), node], NEVER)[:, None]
    cost_s = snapshot.move_s if live else snapshot.startup_s
    gain_s = here_s - left / np.maximum(rate, NEVER) - cost_s
    gain_s[:, ~open_nodes(snapshot, room)] = -np.inf
    best_s = gain_s.max(axis=1)
    for k in np.argsort(-best_s, kind="stable")[: (best_s > LEAST_GAIN_S).sum()].tolist():
        nodes = one_place(room, int(running[k]), np.where(gain_s[k] > LEAST_GAIN_S, rate[k], 0.0))
        if nodes:
            start = room.start(int(running[k]), nodes)
            made += [Move(start.job, nodes)] if live else [Stop(start.job), start]
    return made


def one_place(room: Room, job: int, score: Array) -> tuple[int, ...]:
    """The node of best score above 0 where one instance fits, also of a job that runs; else ()."""
    for node in np.argsort(-score, kind="stable")[: (score > 0).sum()].tolist():
        if not room.lacks(job, node):
            return (node,)
    return ()


def moved(load: Array, solved: Array) -> bool:
    """Whether a utilisation has changed by more than MOVED of the largest."""
    known = np.isfinite(solved)
    if (known != np.isfinite(load)).any():
        return True
    return bool(np.abs(load[known] - solved[known]).max() > MOVED * solved[known].max())


def busy_s(snapshot: Snapshot, job: int) -> Array:
    """(G,) seconds for which the job would keep a whole node kind busy; inf where it cannot run."""
    rate = node_rates(snapshot, np.array([job]))[0]
    kind = snapshot.nodes["kind"]
    made = np.full(snapshot.profile.rate.shape[1], np.inf)
    for g in np.unique(kind[rate > 0]).tolist():
        total = snapshot.capacity[kind == g].sum(axis=0)
        share = np.divide(snapshot.demand[job], total, where=total > 0, out=np.zeros(len(total)))
        used = float(share.max()) * int(snapshot.jobs["instances"][job])
        if used <= 1 or snapshot.jobs["gang"][job] == 0:
            fastest = float(rate[kind == g].max())
            made[g] = max(used * float(snapshot.jobs["request_s"][job]), NEVER) / fastest
    return made


def standing(snapshot: Snapshot, all_jobs: bool = False) -> list[Stand]:
    """What runs as one instance and keeps its progress when stopped, or all of one instance."""
    rows: list[Stand] = []
    for run in snapshot.running.tolist():
        rec = snapshot.runs[run]
        ask, piece = snapshot.jobs[rec["job"]], snapshot.pieces[rec["piece"]]
        if ask["instances"] == 1 and (all_jobs or np.isfinite(ask["checkpoint_s"])):
            rows.append(Stand(int(rec["job"]), int(piece["node"]), int(piece["devices"])))
    return rows
