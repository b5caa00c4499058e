"""Heterogeneity-aware allocation in rounds, after Gavel (Narayanan et al., OSDI 2020).

named("gavel")
GavelPolicy(objective="fair", round_s=360.0)

A linear programme gives every active job a share of the coming time on every node kind; each round
the jobs that lag most behind their shares get the nodes. Differs from Gavel: the rates come from
the profile and are not measured on the way; two jobs never share a GPU; nodes that fall idle
within a round are filled at once; a job that would lose its progress is not stopped; with live
migration a job that changes its node kind moves.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array, hstack, vstack

from trimtab.arrays import Array
from trimtab.core import Decision, Move, Snapshot, Start, Stop, Wait
from trimtab.errors import PolicyError, UnknownName
from trimtab.policies.baselines.completion import left_s, node_rates, places
from trimtab.policies.baselines.fluid import Stand, one_place, open_nodes, standing
from trimtab.rules.room import Room

OBJECTIVES = ("shortest", "fair")
MOST_FAIR = 256  # jobs, oldest first, that are shared out at once: the others wait for their turn
NEVER = 1e-12
Lag = tuple[float, int, int]  # priority, row of Active, node kind


class Active(NamedTuple):
    """Jobs that an allocation is made for."""

    jobs: Array  # (M,)
    left: Array  # (M,) expected work at rate 1
    rate: Array  # (M, G) on the best node of each kind, 0 where it cannot run
    share: Array  # (M, G) of each kind's nodes that it takes
    kind: Array  # (M,) node kind it runs on now, -1 = it waits
    job_kind: Array  # (M,)

    def only(self, keep: Array) -> Active:
        return Active(*(column[keep] for column in self))


def active_jobs(snapshot: Snapshot, jobs: Array, kind: Array) -> Active:
    """The jobs as the programme sees them: rates and shares a node kind."""
    nodes, rate = snapshot.nodes["kind"], node_rates(snapshot, jobs)
    kinds = snapshot.profile.rate.shape[1]
    best, share = np.zeros((len(jobs), kinds)), np.zeros((len(jobs), kinds))
    for g in np.unique(nodes).tolist():
        best[:, g] = rate[:, nodes == g].max(axis=1)
        total = snapshot.capacity[nodes == g].sum(axis=0)
        part = snapshot.demand[jobs][:, total > 0] / total[total > 0]
        share[:, g] = part.max(axis=1, initial=0.0) * snapshot.jobs["instances"][jobs]
    best[share > 1] = 0.0  # a gang that no one kind can hold
    left = left_s(snapshot, jobs)
    return Active(jobs, left, best, share, kind, snapshot.jobs["kind"][jobs])


def allocate(
    objective: str, active: Active, spare: Array, startup_s: float, move_s: float | None = None
) -> Array:
    """(M, G) share of the coming time that each job spends on each node kind.

    `spare` (G,) is the part of each node kind to be given away. `shortest` maximises the sum of
    rate / (work left), so that short jobs on fast nodes come first; `fair` maximises the least of
    (rate received) / (rate on an even share of the whole cluster). A job that runs pays `move_s`
    to change its node kind.
    """
    rows, cols = np.nonzero((active.rate > 0) & (spare > 0))
    if not len(rows):
        return np.zeros(active.rate.shape)
    if objective == "shortest":
        moves_s = startup_s if move_s is None else move_s
        best = _shortest(active, rows, cols, spare, startup_s, moves_s)
    else:
        best = _fair(active, rows, cols, spare)
    shares = np.zeros(active.rate.shape)
    shares[rows, cols] = np.clip(best, 0.0, 1.0)
    return shares


def _limits(active: Active, rows: Array, cols: Array) -> coo_array:
    """A job has one time, a node kind has its nodes: (M + G, variables)."""
    jobs, kinds = active.rate.shape
    each = np.arange(len(rows))
    time = coo_array((np.ones(len(rows)), (rows, each)), shape=(jobs, len(rows)))
    held = coo_array((active.share[rows, cols], (cols, each)), shape=(kinds, len(rows)))
    return vstack((time, held))


def _shortest(
    active: Active, rows: Array, cols: Array, spare: Array, startup_s: float, move_s: float
) -> Array:
    stays = active.kind[rows] == cols
    rate = active.rate[rows, cols]
    begins_s = np.where(active.kind[rows] >= 0, move_s, startup_s)
    run_s = active.left[rows] / rate + np.where(stays, 0.0, begins_s)
    limit = np.concatenate((np.ones(len(active.jobs)), spare))
    solved = linprog(
        -1.0 / run_s, A_ub=_limits(active, rows, cols), b_ub=limit, bounds=(0, 1), method="highs"
    )
    return np.asarray(solved.x)


def _fair(active: Active, rows: Array, cols: Array, spare: Array) -> Array:
    jobs = len(active.jobs)
    rate = active.rate[rows, cols]
    even = np.maximum(active.rate.mean(axis=1), NEVER)
    got = coo_array((-rate / even[rows], (rows, np.arange(len(rows)))), shape=(jobs, len(rows)))
    got = got[np.unique(rows)]  # who can run nowhere cannot be the least
    table = vstack((
        hstack((_limits(active, rows, cols), np.zeros((jobs + len(spare), 1)))),
        hstack((got, np.ones((got.shape[0], 1)))),
    ))  # fmt: skip
    limit = np.concatenate((np.ones(jobs), spare, np.zeros(got.shape[0])))
    # a little for the sum, or what the least cannot use stays idle
    worth = np.append(-1e-3 * rate / even[rows] / jobs, -1.0)
    bounds = [(0, 1)] * len(rows) + [(0, None)]
    return np.asarray(linprog(worth, table, limit, bounds=bounds, method="highs").x[:-1])


def promising(objective: str, active: Active, spare: Array) -> Active:
    """Few enough jobs to solve for. To `shortest` matter those that run and, of each kind of job,
    only as many of the shortest that wait as could run at once; `fair` takes the oldest.
    """
    if objective == "fair":
        return active.only(np.sort(np.argsort(active.jobs, kind="stable")[:MOST_FAIR]))
    keep = active.kind >= 0
    for kind in np.unique(active.job_kind):
        rows = np.flatnonzero((active.job_kind == kind) & (active.kind < 0))
        rows = rows[np.argsort(active.left[rows], kind="stable")]
        can = (active.rate[rows] > 0) & (spare > 0)
        rows = rows[can.any(axis=1)]
        share = np.min(active.share[rows], axis=1, where=can[can.any(axis=1)], initial=np.inf)
        keep[rows[np.cumsum(share) - share <= spare.sum()]] = True
    return active.only(keep)


class GavelPolicy:
    """Shares by linear programme, kept in rounds of `round_s`; see `allocate` for `objective`."""

    name = "gavel"

    def __init__(
        self, seed: int = 0, *, objective: str = "shortest", round_s: float = 360.0
    ) -> None:
        del seed  # nothing is drawn
        if objective not in OBJECTIVES:
            raise UnknownName(f"objective {objective!r} is unknown; known: {', '.join(OBJECTIVES)}")
        if not (np.isfinite(round_s) and round_s > 0):
            raise PolicyError(f"gavel: round_s={round_s:g}; give a finite number above 0")
        self.objective, self.round_s = objective, round_s
        self._begin(-np.inf)

    def _begin(self, now_s: float) -> None:
        self._now_s, self._next_s = now_s, -np.inf
        self._had_s: dict[tuple[int, int], float] = {}  # (job, node kind) -> seconds received
        self._last: list[tuple[int, int]] = []  # the same pairs, as they ran after the last look

    def decide(self, snapshot: Snapshot) -> list[Decision]:
        if snapshot.now_s < self._now_s:
            self._begin(snapshot.now_s)  # another run has begun
        stands = standing(snapshot)
        self._credit(snapshot, stands)
        if not len(snapshot.queue) and not stands:
            return []
        room, made = Room.of(snapshot), list[Decision]()
        if snapshot.now_s >= self._next_s:
            self._next_s = (np.floor(snapshot.now_s / self.round_s) + 1) * self.round_s
            made += self._round(snapshot, room, stands)
        elif len(snapshot.queue) and open_nodes(snapshot, room).any():
            made += self._fill(snapshot, room)
        return [*made, Wait(self._next_s)]

    def _credit(self, snapshot: Snapshot, stands: list[Stand]) -> None:
        """Note the time that jobs have received on each node kind since the last look."""
        past_s = max(snapshot.now_s - self._now_s, 0.0) if np.isfinite(self._now_s) else 0.0
        for pair in self._last:
            self._had_s[pair] = self._had_s.get(pair, 0.0) + past_s
        kind = snapshot.nodes["kind"]
        self._last = [(stand.job, int(kind[stand.node])) for stand in stands]
        self._now_s = snapshot.now_s

    def _lag(self, snapshot: Snapshot, active: Active, shares: Array) -> list[Lag]:
        """(priority, row, node kind), first the pair that has had least of its share."""
        made = []
        for row, kind in zip(*(part.tolist() for part in np.nonzero(shares > 1e-6))):
            job = int(active.jobs[row])
            since_s = max(snapshot.now_s - float(snapshot.jobs["submit_s"][job]), self.round_s)
            had = self._had_s.get((job, kind), 0.0) / since_s
            made.append((float(shares[row, kind]) / max(had, 1e-3), row, kind))
        return sorted(made, key=lambda entry: (-entry[0], entry[1], entry[2]))

    def _fill(self, snapshot: Snapshot, room: Room) -> list[Decision]:
        """Share what is idle among those that wait."""
        active = active_jobs(snapshot, snapshot.queue, np.full(len(snapshot.queue), -1))
        spare = idle_share(snapshot, room)
        active = promising(self.objective, active, spare)
        shares = allocate(self.objective, active, spare, snapshot.startup_s)
        made = begun(snapshot, room, active, self._lag(snapshot, active, shares), {})
        return made + leftovers(snapshot, room, made)

    def _round(self, snapshot: Snapshot, room: Room, stands: list[Stand]) -> list[Decision]:
        """Share everything out anew: who keeps its node kind stays, others stop and start."""
        of = {stand.job: stand for stand in stands}
        jobs = np.concatenate((np.array(list(of), np.int64), snapshot.queue))
        kind = np.full(len(jobs), -1)
        kind[: len(of)] = [snapshot.nodes["kind"][stand.node] for stand in stands]
        for stand in stands:
            room.take(stand.job, stand.node, 0, -1, stand.devices)
        spare = idle_share(snapshot, room)
        active = promising(self.objective, active_jobs(snapshot, jobs, kind), spare)
        move_s = snapshot.move_s if snapshot.live_migration else None
        shares = allocate(self.objective, active, spare, snapshot.startup_s, move_s)
        chosen = winners(active, self._lag(snapshot, active, shares), spare)
        stay = {int(active.jobs[row]) for _, row, g in chosen if active.kind[row] == g}
        for job in stay:
            room.take(job, of[job].node, 0, 1, of[job].devices)
        go = [entry for entry in chosen if int(active.jobs[entry[1]]) not in stay]
        starts = begun(snapshot, room, active, go, of)
        stops = displaced(room, [stand for stand in stands if stand.job not in stay], starts)
        made = [*stops, *starts]
        made += leftovers(snapshot, room, made)
        return migrated(snapshot, of, made) if snapshot.live_migration else made


def migrated(snapshot: Snapshot, of: dict[int, Stand], made: list[Decision]) -> list[Decision]:
    """The same with a move for every stop and start of a job whose new place is free by then."""
    room = Room.of(snapshot)
    stopped = {decision.job for decision in made if isinstance(decision, Stop)}
    starts = [decision for decision in made if isinstance(decision, Start)]
    going = {start.job: start.nodes for start in starts if start.job in stopped}
    for job in stopped - going.keys():
        room.take(job, of[job].node, 0, -1, of[job].devices)
    moves: list[Decision] = []
    waits = list(going)
    while waits:
        left = [job for job in waits if not _moves(room, of[job], going[job])]
        moves += [Move(job, going[job]) for job in waits if job not in left]
        if len(left) == len(waits):
            break  # they wait for each other's places
        waits = left
    moved = {move.job for move in moves if isinstance(move, Move)}
    # the devices were chosen for another order: the backend chooses
    later: list[Decision] = [replace(s, devices=()) for s in starts if s.job not in moved]
    return [*(Stop(job) for job in sorted(stopped - moved - going.keys())), *moves,
            *(Stop(job) for job in waits), *later]  # fmt: skip


def _moves(room: Room, stand: Stand, nodes: tuple[int, ...]) -> bool:
    """Book a job in its new place and out of its old one; False where that is not free."""
    if room.book(stand.job, nodes)[0]:
        return False
    room.take(stand.job, stand.node, 0, -1, stand.devices)
    return True


def winners(active: Active, lag: list[Lag], spare: Array) -> list[Lag]:
    """The pairs that get this round: in order, each job once, while the node kind has a share."""
    left, seen, chosen = spare.copy(), set[int](), list[Lag]()
    for entry in lag:
        _, row, kind = entry
        if row not in seen and active.share[row, kind] <= left[kind] + 1e-9:
            left[kind] -= active.share[row, kind]
            seen.add(row)
            chosen.append(entry)
    return chosen


def begun(
    snapshot: Snapshot, room: Room, active: Active, lag: list[Lag], of: dict[int, Stand]
) -> list[Decision]:
    """Start the pairs in order where they fit, each job once; those in `of` ran until now."""
    made: list[Decision] = []
    seen: set[int] = set()
    rate = node_rates(snapshot, active.jobs)
    for _, row, kind in lag:
        job = int(active.jobs[row])
        score = np.where(snapshot.nodes["kind"] == kind, rate[row], 0.0)
        if job not in seen:
            nodes = one_place(room, job, score) if job in of else places(room, job, score)
            if nodes:
                made.append(room.start(job, nodes))
                seen.add(job)
    return made


def displaced(room: Room, stands: list[Stand], starts: list[Decision]) -> list[Decision]:
    """Stop what starts elsewhere and what has lost its place; the rest takes its place again."""
    again = {start.job for start in starts if isinstance(start, Start)}
    stops: list[Decision] = []
    for stand in stands:
        if stand.job in again or room.lacks(stand.job, stand.node, 0, stand.devices):
            stops.append(Stop(stand.job))
        else:
            room.take(stand.job, stand.node, 0, 1, stand.devices)
    return stops


def idle_share(snapshot: Snapshot, room: Room) -> Array:
    """(G,) part of each node kind that is free: of its scarcest resource."""
    kind, kinds = snapshot.nodes["kind"], snapshot.profile.rate.shape[1]
    spare = np.zeros(kinds)
    up = snapshot.node_state["up"] == 1
    for g in np.unique(kind).tolist():
        total = snapshot.capacity[kind == g].sum(axis=0)
        free = room.free[(kind == g) & up].sum(axis=0)
        spare[g] = (free[total > 0] / total[total > 0]).min(initial=1.0)
    return np.maximum(spare, 0.0)


def leftovers(snapshot: Snapshot, room: Room, made: list[Decision]) -> list[Decision]:
    """Start what still fits, oldest first: gangs that no one kind holds, and what rounding left."""
    seen = {decision.job for decision in made if isinstance(decision, Start)}
    more: list[Decision] = []
    for job in snapshot.queue.tolist():
        if not open_nodes(snapshot, room).any():
            break
        if job not in seen:
            nodes = places(room, job, node_rates(snapshot, np.array([job]))[0])
            if nodes:
                more.append(room.start(job, nodes))
    return more
