"""Whole traces by a rule, compiled: the pool kernel where the case is simple, else the engine."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.build import uniform_profile
from trimtab.columns import SO_FAR, STATE, TOTALS
from trimtab.compiled import interruptible
from trimtab.core import Cluster, Profile, Status, Workload
from trimtab.errors import PolicyError, TraceError
from trimtab.rules.names import BACKFILLS, FEEDBACK, ORDERS, Rule, at_limit, parse
from trimtab.rules.nodes.index import indexed
from trimtab.rules.steer import Steering, Steers
from trimtab.rules.world import World
from trimtab.sim import kernel, loop, pool
from trimtab.sim.backend import recent_load
from trimtab.sim.lending import lending_of, lends, obey, set_lending
from trimtab.sim.world import Models, check_hostable, fitted, grown, make_world

FIRST_DYNAMIC = ORDERS["wfp3"]
CHUNK = 1_000_000  # instants of one call


class Whole(NamedTuple):
    """What the engine leaves behind: the job states, the running totals, the log, the wall time,
    and totals and jobs as they stood when the last job was submitted.
    """

    state: Array  # (J,) STATE
    totals: Array  # () TOTALS
    log: Array | None
    wall_s: float
    arrived: Array | None = None  # () TOTALS
    so_far: Array | None = None  # (J,) SO_FAR


def simulate(
    workload: Workload,
    cluster: Cluster,
    rule: str,
    *,
    profile: Profile | None = None,
    models: Models | None = None,
    seed: int = 0,
    log: bool = False,
    progress: Callable[[int], None] | None = None,
    packer: Array | None = None,
    worker: Array | None = None,
    steering: Steers | None = None,
) -> Whole:
    """Run the whole workload by a rule. `progress` is told the number of jobs that have ended,
    `packer` and `worker` are weights for the placements of those names, `steering` sets limits.
    """
    workload, cluster = fitted(workload, cluster)
    check_hostable(workload, cluster)
    found = parse(rule, seed)
    began_s = time.perf_counter()
    world = make_world(
        [workload], [cluster], profile, models, log=4096 if log else 0, packer=packer, worker=worker
    )
    loop.set_rank(world, 0, found.order)
    kernel.reset(world, 0)
    world = set_lending(world, workload, cluster, **lending_of(found))
    world = run_world(world, found, progress, steering or steering_of(world, found), profile)
    waiting = int(world.head[0]["waiting"])
    if waiting and lends(world):
        raise PolicyError(
            f"rule {rule} left {waiting} jobs waiting for room that services never leave for long "
            f"enough; choose a higher limit, such as {at_limit(rule, 1.0)}"
        )
    if waiting:
        raise PolicyError(
            f"rule {rule} left {waiting} jobs waiting while nothing runs and nothing will happen: "
            f"no node that is up can host them; check outages, node kinds and reservations"
        )
    rows = np.array(world.log[0, : int(world.head[0]["log"])]) if log else None
    return left_in(world, rows, time.perf_counter() - began_s)


def left_in(world: World, log: Array | None, wall_s: float) -> Whole:
    """What is left of the first cluster of a world."""
    totals, arrived = world.totals[0:1].copy()[0], world.arrived[0:1].copy()[0]
    state, so_far = np.array(world.state[0]), np.array(world.so_far[0])
    return Whole(state, totals, log, wall_s, arrived, so_far)


def steering_of(world: World, rule: Rule) -> Steering | None:
    """What sets the limits of regions anew, where a rule wants it."""
    if math.isnan(rule.target):
        return None
    if not lends(world):
        raise TraceError(
            f"{FEEDBACK} sets how much batch jobs may borrow of services, and this cluster lends "
            "nothing; leave it out, or run it on colocated"
        )
    return Steering(rule.target)


class View(NamedTuple):
    """What of a snapshot is looked at while compiled code runs: the world's own arrays."""

    now_s: float
    queue: Array
    running: Array
    jobs: Array
    demand: Array
    state: Array
    nodes: Array
    capacity: Array
    free: Array
    node_state: Array
    runs: Array
    pieces: Array
    profile: Profile
    link: Array
    limit: Array
    horizon_s: Array
    ahead: Array
    said: Array


def view_of(world: World, profile: Profile) -> View:
    """The first cluster of a world as it is now."""
    recent_load(world, 0, np.empty_like(world.recent[0]))  # settles what nodes count
    head = world.head[0]
    nodes = slice(int(head["nodes"]))
    runs = world.runs[0]
    return View(
        now_s=float(head["now_s"]), queue=world.queue[0, : loop.queue_of(world, 0)],
        running=np.flatnonzero(runs["job"] >= 0), jobs=world.jobs[0], demand=world.demand[0],
        state=world.state[0], nodes=world.nodes[0, nodes], capacity=world.capacity[0, nodes],
        free=world.free[0, nodes], node_state=world.node_state[0, nodes], runs=runs,
        pieces=world.pieces[0], profile=profile, link=world.link, limit=world.limit[0],
        horizon_s=world.horizon, ahead=world.ahead[0, nodes],
        said=world.said[0, nodes],
    )  # fmt: skip


def steer(world: World, steering: Steers, profile: Profile) -> None:
    """Set the limits that are due, and an alarm for the next."""
    for decision in steering.decisions(view_of(world, profile)) or ():
        obey(world, decision)
    if steering.worker is not None:
        world.worker[0] = steering.worker
        world.tree_seen[:] = -1  # other weights order nodes otherwise
    world.head[0]["alarm_s"] = steering.due_s


def run_world(
    world: World,
    rule: Rule,
    progress: Callable[[int], None] | None = None,
    steering: Steers | None = None,
    profile: Profile | None = None,
) -> World:
    """Drive a world of one cluster to its end, growing its pools on the way."""
    world = indexed(world, rule.place)
    conservative = rule.backfill == BACKFILLS["conservative"]
    run = loop.run_conservative if conservative else loop.run_rule
    how = (rule.order, rule.place) if conservative else (rule.order, rule.backfill, rule.place)
    return drive(world, run, (*how, rule.seed), progress, steering, profile)


def drive(
    world: World,
    run: Any,
    how: tuple[Any, ...],
    progress: Callable[[int], None] | None = None,
    steering: Steers | None = None,
    profile: Profile | None = None,
) -> World:
    """The same by any compiled run(world, cluster, *how, instants), as `loop.run_rule`."""
    jobs = int(world.head[0]["jobs"])

    def look() -> None:
        if progress:
            progress(jobs - int(world.head[0]["batch_left"]))

    seen = profile or uniform_profile(world.rate.shape[0], world.rate.shape[1])
    if steering is not None:
        steer(world, steering, seen)
    while True:
        code = interruptible(run, world, 0, *how, CHUNK, halt=world.halt, look=look)
        look()
        if code == loop.DONE:
            return world
        if code == loop.ALARM and steering is not None:
            steer(world, steering, seen)
        if code == loop.GROW:
            world = grown(
                world,
                runs=2 * world.runs.shape[1],
                pieces=2 * world.pieces.shape[1],
                log=max(2 * world.log.shape[1], 2 * loop.log_needs(world, 0))
                if world.log.shape[1]
                else 0,
            )


def is_pool(
    workload: Workload, cluster: Cluster, rule: Rule, profile: Profile | None, models: Models | None
) -> bool:
    """Whether the pool kernel models it all: identical units, static order, nothing goes wrong."""
    truth, plain = workload.truth, models or Models()
    demand = workload.demand[:, 0]
    return bool(
        rule.order < FIRST_DYNAMIC
        and rule.backfill != BACKFILLS["greedy"]
        # the engine also plans when a job arrives that still waits for its parents: where requests
        # are too short that may move a reservation
        and (workload.after_idx is None or rule.backfill != BACKFILLS["conservative"])
        and len(cluster) == 1
        and len(cluster.resources) == 1
        and not cluster.nodes["gpus"].any()
        and not cluster.nodes["peak_w"].any()
        and not cluster.nodes["idle_w"].any()
        and (profile is None or ((profile.rate == 1).all() and not profile.slow.any()))
        and (profile is None or (profile.quality == 1).all())
        and workload.quotas is None
        and cluster.lending is None
        and not len(cluster.gates)
        and not len(plain.outages)
        and plain.startup_s == 0
        and not plain.kill_at_request
        and not truth["service"].any()
        and not np.isfinite(truth["cancel_s"]).any()
        and (demand == np.floor(demand)).all()
        and (demand >= 1).all()
        and (truth["use"] == 1).all()
    )


def simulate_pool(
    workload: Workload,
    cluster: Cluster,
    rule: Rule,
    progress: Callable[[int], None] | None = None,
) -> Whole:
    """Do as `simulate` where `is_pool` holds, several times faster; tests prove them equal."""
    began_s = time.perf_counter()
    jobs = workload.jobs
    gang = (jobs["gang"] == 1) & (jobs["instances"] > 1)
    width = (workload.demand[:, 0] * np.where(gang, jobs["instances"], 1)).astype(np.int64)
    capacity = int(cluster.capacity[0, 0])
    if width.max() > capacity:
        check_hostable(workload, cluster)
        raise TraceError(f"{workload.source}: a job asks for {width.max()} of {capacity} units")
    rank = queue_rank(order_keys(workload, rule.order))
    none = np.zeros(len(rank) + 1, np.int64)
    start_s, end_s = pool.run_pool(
        jobs["submit_s"],
        workload.truth["work_s"],
        jobs["request_s"],
        width,
        rank,
        capacity,
        rule.backfill,
        np.where(gang, 1, jobs["instances"]),
        none if workload.after_ptr is None else workload.after_ptr,
        none[:0] if workload.after_idx is None else workload.after_idx,
        progress,
    )
    state = ended_state(workload, start_s, end_s)
    wall_s = time.perf_counter() - began_s
    return Whole(state, pool_totals(workload, state, capacity), None, wall_s,
                 *pool_arrived(workload, state, capacity))  # fmt: skip


def ended_state(workload: Workload, start_s: Array, end_s: Array) -> Array:
    """The state of jobs that all ran once, from start to end: what specialised kernels return."""
    state = np.zeros(len(workload), STATE)
    state["start_s"], state["end_s"] = start_s, end_s
    state["status"] = Status.FINISHED
    state["queued_s"] = workload.jobs["submit_s"]
    state["waited_s"] = start_s - workload.jobs["submit_s"]
    state["attained_s"] = workload.truth["work_s"] * workload.jobs["instances"]
    state["run"] = -1
    return state


def queue_rank(key: Array) -> Array:
    """The place of each row in ascending order of its key, ties by row."""
    rows = len(key)
    turn: Array
    whole = np.abs(key).max(initial=0.0) < 2.0**62 / max(rows, 1) and (key == np.floor(key)).all()
    if whole:  # key and row in one number sort several times faster than keys alone, stably
        turn = np.argsort(key.astype(np.int64) * rows + np.arange(rows))
    else:
        turn = np.argsort(key, kind="stable")
    rank = np.empty(rows, np.int64)
    rank[turn] = np.arange(rows)
    return rank


def order_keys(workload: Workload, order: int) -> Array:
    """Keys of a static order for every job, vectorised; compiled `static_key` gives the same."""
    jobs = workload.jobs
    size = workload.demand.max(1)
    size = np.where(jobs["gpus"] > 0, jobs["gpus"] * jobs["gpu_share"], size) * jobs["instances"]
    request_s, submit_s = jobs["request_s"], jobs["submit_s"]
    keys: dict[int, Callable[[], Array]] = {
        ORDERS["fcfs"]: lambda: submit_s,
        ORDERS["sjf"]: lambda: request_s,
        ORDERS["ljf"]: lambda: -request_s,
        ORDERS["smallest"]: lambda: size,
        ORDERS["smallest-area"]: lambda: size * request_s,
        ORDERS["f1"]: lambda: _log10(request_s) * size + 870.0 * _log10(submit_s),
        ORDERS["priority"]: lambda: -jobs["priority"],
        ORDERS["edf"]: lambda: jobs["deadline_s"],
    }
    return np.asarray(keys[order]())


def _log10(values: Array) -> Array:
    """By the same library call as compiled code: NumPy's vectors differ from it in the last bit."""
    return np.array([math.log10(v if v > 0 else 0.1) for v in values.tolist()])


def pool_totals(workload: Workload, state: Array, capacity: int, until_s: float = np.inf) -> Array:
    """The running totals of a pool run at its end, or at a time, from the starts and ends alone.

    An array's instances count as if they had run evenly from its first start to its last end.
    """
    total = np.zeros(1, TOTALS)
    submit_s = workload.jobs["submit_s"]
    start_s, end_s = np.minimum(state["start_s"], until_s), np.minimum(state["end_s"], until_s)
    held_s = _held_by(state, until_s)
    ended = state["end_s"] <= until_s
    total["time_s"] = end_s.max() - submit_s.min()
    total["waiting_s"] = (start_s - submit_s).sum()
    total["system_s"] = (end_s - submit_s).sum()
    total["busy_s"] = (held_s * workload.demand[:, 0]).sum() / capacity
    total["work_s"] = state["attained_s"][ended].sum()
    total["quality"] = workload.jobs["instances"][ended].sum()
    total["submitted"] = len(state)
    total["started"], total["finished"] = (state["start_s"] <= until_s).sum(), ended.sum()
    total["late"] = (ended & (end_s > workload.jobs["deadline_s"])).sum()
    contended_s, held = contention(workload, start_s, end_s, capacity)
    total["contended_s"], total["held_s"] = contended_s, held
    return total[0]


def _held_by(state: Array, until_s: float) -> Array:
    """(J,) instance-seconds that each job of a pool had run by then."""
    start_s, end_s = state["start_s"], state["end_s"]
    length_s = end_s - start_s
    part = np.clip(until_s - start_s, 0.0, length_s)
    share = np.divide(part, length_s, out=np.ones(len(state)), where=length_s > 0)
    return np.asarray(state["attained_s"] * share)


def pool_arrived(workload: Workload, state: Array, capacity: int) -> tuple[Array, Array]:
    """Totals and jobs of a pool run as they stood when the last job was submitted."""
    last_s = float(workload.jobs["submit_s"].max())
    so_far = np.zeros(len(state), SO_FAR)
    so_far["held_s"] = so_far["done_s"] = _held_by(state, last_s)
    return pool_totals(workload, state, capacity, last_s), so_far


def contention(
    workload: Workload, start_s: Array, end_s: Array, capacity: int
) -> tuple[float, float]:
    """Seconds during which jobs wait, and the integral of the allocated share over them."""
    submit_s = workload.jobs["submit_s"]
    share = workload.demand[:, 0] * workload.jobs["instances"] / capacity
    time_s = np.concatenate((submit_s, start_s, end_s))
    zero = np.zeros(len(share))
    waits = np.concatenate((zero + 1, zero - 1, zero))
    holds = np.concatenate((zero, share, -share))
    turn = np.argsort(time_s, kind="stable")
    dt = np.diff(time_s[turn])
    waiting = np.cumsum(waits[turn])[:-1] > 0
    return float(dt[waiting].sum()), float((dt * np.cumsum(holds[turn])[:-1])[waiting].sum())
