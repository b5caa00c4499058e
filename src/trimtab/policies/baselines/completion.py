"""Minimum completion time: each job goes where it is expected to finish first.

named("mct")            jobs in order of arrival, expectations by request_s

What is expected here (`done_s`, `left_s`, `node_rates`, `line_up`) also serves `fluid` and `gavel`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.compiled import compiled
from trimtab.core import Decision, Snapshot, Start
from trimtab.rules.room import Room

OVERRUN = 1.0  # a job past its request is expected to need as much again as it has had
LEAST_S = 1.0  # no job is expected to need less
MOST_INSTANCES = 64  # of one array that are lined up at once: the others follow later


class Line(NamedTuple):
    """When and where each of some jobs is expected to run, in the order they were lined up."""

    begin_s: Array  # (M,) inf where no node can ever host it
    finish_s: Array  # (M,)
    nodes: list[tuple[int, ...]]  # (M,) a node an instance


def done_s(snapshot: Snapshot, jobs: Array) -> Array:
    """(M,) work at rate 1 that each job has done: what checkpoints kept, and its present run."""
    state, runs = snapshot.state[jobs], snapshot.runs
    run = state["run"]
    now = np.maximum(snapshot.now_s - runs["resume_s"][run], 0.0) * runs["rate"][run]
    return np.asarray(state["kept_s"] + np.where(run >= 0, now, 0.0))


def left_s(snapshot: Snapshot, jobs: Array, overrun: float = OVERRUN) -> Array:
    """(M,) work at rate 1 that each job is expected to need still: its request less what is done,
    and `overrun` times what is done once that has passed the request.
    """
    done = done_s(snapshot, jobs)
    asked = snapshot.jobs["request_s"][jobs] - done
    return np.maximum(np.where(asked > 0, asked, overrun * done), LEAST_S)


def node_rates(snapshot: Snapshot, jobs: Array) -> Array:
    """(M, N) rate at which each job runs on each node, 0 where it may or can never run."""
    nodes, asks = snapshot.nodes, snapshot.jobs[jobs]
    kind = nodes["kind"]
    rate = snapshot.profile.rate[asks["kind"][:, None], kind[None, :], 0]
    fits = (snapshot.demand[jobs][:, None, :] <= snapshot.capacity[None]).all(axis=2)
    fits &= asks["gpus"][:, None] <= nodes["gpus"]
    fits &= (asks["gpus"][:, None] == 0) | (asks["gpu_mem_gb"][:, None] <= nodes["gpu_mem_gb"])
    fits &= (asks["node_kinds"][:, None] >> kind.astype(np.uint64) & np.uint64(1)) == 1
    fits &= (snapshot.node_state["up"] == 1)[None, :]
    return np.where(fits, rate, 0.0)


def places(room: Room, job: int, score: Array) -> tuple[int, ...]:
    """Nodes for what is left of the job, best score first, none of 0; () if a gang lacks room."""
    left = int(room.state["left"][job])
    slots = np.where(score > 0, room.slots(job), 0)
    best_first = np.argsort(-score, kind="stable")
    nodes = np.repeat(best_first, slots[best_first])[:left]
    gang = room.jobs["gang"][job] == 1
    return () if gang and len(nodes) < left else tuple(nodes.tolist())


def held(snapshot: Snapshot, left: Array) -> tuple[Array, Array, Array]:
    """(P,) node, (P,) expected end and (P, R) amounts of every piece that runs.

    `left` (M,) is the expected work of the jobs in `snapshot.running`.
    """
    at: list[int] = []
    end_s: list[float] = []
    wants: list[Array] = []
    for run, work_s in zip(snapshot.running.tolist(), left.tolist()):
        rec = snapshot.runs[run]
        begin_s = max(snapshot.now_s, float(rec["resume_s"]))
        piece = int(rec["piece"])
        while piece >= 0:
            part = snapshot.pieces[piece]
            at.append(int(part["node"]))
            end_s.append(begin_s + work_s / max(float(rec["rate"]), 1e-9))
            wants.append(snapshot.demand[rec["job"]] * part["count"])
            piece = int(part["next"])
    table = np.array(wants) if wants else np.zeros((0, snapshot.demand.shape[1]))
    return np.array(at, np.int64), np.array(end_s), table


def line_up(snapshot: Snapshot, jobs: Array, left: Array, rate: Array) -> Line:
    """Bind each job in turn to where it is expected to finish first, behind what runs and what was
    bound there before it. `left` (M,) is its work, `rate` (M, N) its speed, 0 = not there.
    """
    runs = left_s(snapshot, snapshot.runs["job"][snapshot.running])
    at, end_s, wants = held(snapshot, runs)
    asks = snapshot.jobs[jobs]
    count = np.where(asks["gang"] == 1, snapshot.state["left"][jobs], 1).astype(np.int64)
    begin_s, finish_s, nodes = bind(
        snapshot.now_s, snapshot.startup_s, left, rate, snapshot.demand[jobs], count,
        snapshot.free.copy(), at, end_s, wants,
    )  # fmt: skip
    stop = np.cumsum(count)
    where = [tuple(nodes[b - c : b].tolist()) for b, c in zip(stop.tolist(), count.tolist())]
    return Line(begin_s, finish_s, where)


@compiled
def bind(
    now_s: float, startup_s: float, left: Array, rate: Array, wants: Array, count: Array,
    free: Array, at: Array, end_s: Array, held_wants: Array,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """List scheduling by expected completion; see `line_up`. (M,) begin, (M,) finish, nodes.

    Amounts are summed over a node, so that which of its GPUs are free is not asked. Once no node
    has the least that anyone asks for, nobody can begin now: the rest is left at inf.
    """
    jobs, nodes, resources = len(left), free.shape[0], free.shape[1]
    pieces = len(at)
    room = pieces + count.sum()
    ends, taker, following = np.empty(room), np.empty(room, np.int64), np.empty(room, np.int64)
    first = np.full(nodes, -1)  # of each node's pieces, by the time they end
    table = np.concatenate((held_wants, wants))
    used = 0
    for piece in range(pieces):
        insert(first, following, ends, taker, at[piece], used, end_s[piece], piece)
        used += 1
    begin_s, finish_s = np.full(jobs, np.inf), np.full(jobs, np.inf)
    chosen = np.full(count.sum(), -1)
    least = np.full(resources, np.inf)
    for job in range(jobs):
        least = np.minimum(least, wants[job])
    slot = 0
    for job in range(jobs):
        if not anywhere(free, least):
            break
        start_s, slowest = now_s, np.inf
        for i in range(count[job]):
            best, best_s, best_start_s = -1, np.inf, np.inf
            for node in range(nodes):
                if rate[job, node] > 0.0:
                    ready_s = earliest(now_s, node, wants[job], free, first, following, ends,
                                       taker, table)  # fmt: skip
                    ready_s = max(ready_s, start_s)
                    done = ready_s + startup_s + left[job] / min(slowest, rate[job, node])
                    if done < best_s:
                        best, best_s, best_start_s = node, done, ready_s
            if best < 0:
                slowest = 0.0
                break
            chosen[slot + i] = best
            start_s, slowest = best_start_s, min(slowest, rate[job, best])
            free[best] -= wants[job]
        placed = 0
        while placed < count[job] and chosen[slot + placed] >= 0:
            placed += 1
        if placed == count[job] and slowest > 0.0:
            begin_s[job] = start_s
            finish_s[job] = start_s + startup_s + left[job] / slowest
            for i in range(placed):
                insert(first, following, ends, taker, chosen[slot + i], used, finish_s[job],
                       pieces + job)  # fmt: skip
                used += 1
        else:
            for i in range(placed):
                free[chosen[slot + i]] += wants[job]
                chosen[slot + i] = -1
        slot += count[job]
    return begin_s, finish_s, chosen


@compiled
def anywhere(free: Array, least: Array) -> bool:
    for node in range(free.shape[0]):
        if (free[node] >= least).all():
            return True
    return False


@compiled
def earliest(
    now_s: float, node: int, wants: Array, free: Array, first: Array, following: Array,
    ends: Array, taker: Array, table: Array,
) -> float:  # fmt: skip
    """When the node first has what is wanted, if all on it ends as expected; inf = never."""
    spare = free[node].copy()
    when_s = now_s
    piece = first[node]
    while not (spare >= wants).all():
        if piece < 0:
            return np.inf
        spare += table[taker[piece]]
        when_s = max(ends[piece], now_s)
        piece = following[piece]
    return when_s


@compiled
def insert(
    first: Array, following: Array, ends: Array, taker: Array, node: int, piece: int, end_s: float,
    who: int,
) -> None:  # fmt: skip
    """Put a piece into its node's list, which is sorted by end."""
    ends[piece], taker[piece] = end_s, who
    before, after = -1, first[node]
    while after >= 0 and ends[after] <= end_s:
        before, after = after, following[after]
    following[piece] = after
    if before < 0:
        first[node] = piece
    else:
        following[before] = piece


def expanded(snapshot: Snapshot, jobs: Array) -> Array:
    """The jobs, an array as often as instances of it are to start: they go where they like."""
    left = np.minimum(snapshot.state["left"][jobs], MOST_INSTANCES)
    return np.repeat(jobs, np.where(snapshot.jobs["gang"][jobs] == 1, 1, left))


def starts_now(snapshot: Snapshot, room: Room, jobs: Array, line: Line) -> list[Start]:
    """Those of the line that begin now and fit to the GPU, booked in the room."""
    where: dict[int, tuple[int, ...]] = {}
    for k in np.flatnonzero(line.begin_s <= snapshot.now_s).tolist():
        job = int(jobs[k])
        nodes = where.get(job, ()) + line.nodes[k]
        why, _ = room.book(job, line.nodes[k])
        if not why:
            where[job] = nodes
    return [Start(job, nodes) for job, nodes in where.items()]


class CompletionPolicy:
    """Minimum completion time, in order of arrival; a job that has not begun may be bound anew.

    The reading: at every event all waiting jobs are lined up afresh, oldest first, each where
    (expected rest of what runs there and of what was just bound there) + start-up + its own
    request / rate is least. Only those whose turn is now begin; a job may so let a slow GPU idle
    and wait for a fast one. Never stops a job.
    """

    name = "mct"

    def __init__(self, seed: int = 0) -> None:
        del seed  # nothing is drawn: ties go to the lower node number

    def decide(self, snapshot: Snapshot) -> list[Decision]:
        if not len(snapshot.queue):
            return []
        jobs = expanded(snapshot, snapshot.queue)
        line = line_up(snapshot, jobs, left_s(snapshot, jobs), node_rates(snapshot, jobs))
        return list(starts_now(snapshot, Room.of(snapshot), jobs, line))
