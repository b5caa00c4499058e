"""Slurm's backfill: plans a start for each job in order, and starts what need not wait.

A job that must wait is planned where and when running jobs, by their time limits, leave it room;
jobs after it may use those nodes only before and after. Planned jobs take whole nodes.
"""

from typing import NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.compiled import compiled, inner
from trimtab.policies.slurm import slices as future
from trimtab.policies.slurm.nodes import choose
from trimtab.policies.slurm.queue_pass import book, make_way
from trimtab.policies.slurm.slices import Slices
from trimtab.policies.slurm.table import (
    Table,
    apart,
    count_slots,
    needs,
    node_slots,
    open_nodes,
    over_quota,
    waits_for_its_gate,
)
from trimtab.rules.fit import expected_end, take
from trimtab.rules.world import World

BUNCH_S = 30.0  # ends so close together are tried as one; each bunch is twice as long


class Most(NamedTuple):
    """SchedulerParameters of the backfill, 0 = no limit."""

    tests: int
    starts: int
    user: int
    part: int
    account: int
    user_part: int


class Ends(NamedTuple):
    """Expected ends, earliest first: of runs, and of what this pass starts."""

    end_s: Array  # (M,)
    run: Array  # (M,) or -1 - the first of its entries
    entries: Array  # (M,)
    size: Array  # (1,)


class Scratch(NamedTuple):
    ok: Array  # (N,) nodes that the entry may use then
    slots: Array  # (N,)
    base: Array  # (W,) the same as bits, before what is planned is taken out
    bits: Array  # (W,)


@compiled
def backfill(w: World, t: Table, window_s: float, step_s: float, most: Most, began: Array) -> int:
    """Plan and start. Writes 1 + its entry to `began` (J,) of each job begun; returns the starts,
    or -1 if the world has no room to write them down.
    """
    nodes, now_s = w.nodes.shape[1], w.head[0].now_s
    words = (nodes + 63) // 64
    entries = min(t.job.shape[0], most.tests if most.tests > 0 else t.job.shape[0])
    slices = future.make_slices(2 * entries + 4, words, now_s, window_s, step_s)
    scratch = Scratch(
        np.zeros(nodes, np.bool_), np.zeros(nodes, np.int64),
        np.zeros(words, np.uint64), np.zeros(words, np.uint64),
    )  # fmt: skip
    ends = find_ends(w, now_s, w.head[0].starts + t.job.shape[0])
    add_started(w, t, now_s, ends, began)
    parts = t.part_nodes.shape[0]
    users, accounts = 1, 1
    for e in range(t.job.shape[0]):
        users, accounts = max(users, t.user[e] + 1), max(accounts, t.account[e] + 1)
    by_user, by_account = np.zeros(users, np.int64), np.zeros(accounts, np.int64)
    by_part, by_user_part = np.zeros(parts, np.int64), np.zeros((users, parts), np.int64)
    tests = starts = 0
    for e in range(t.job.shape[0]):
        if most.tests > 0 and tests >= most.tests:
            break
        job, part = t.job[e], t.part[e]
        user, account = t.user[e], t.account[e]
        if began[job] > 0 or over_quota(w, job):
            continue
        if waits_for_its_gate(w, job, now_s):
            continue
        by_user[user] += 1
        by_account[account] += 1
        by_part[part] += 1
        by_user_part[user, part] += 1
        if (
            beyond(by_user[user], most.user)
            or beyond(by_account[account], most.account)
            or beyond(by_part[part], most.part)
            or beyond(by_user_part[user, part], most.user_part)
        ):
            continue
        tests += 1
        while began[job] == 0 and not over_quota(w, job):  # an array goes on, task by task
            if w.head[0].starts + needs(w, job) > w.entry.shape[1]:
                return -1
            at = w.head[0].starts
            if not place(w, t, e, slices, ends, scratch, window_s, step_s, began):
                break
            add_end(ends, now_s + t.run_s[e], -1 - at, w.head[0].starts - at)
            starts += 1
            if most.starts > 0 and starts >= most.starts:
                return starts
    return starts


@inner
def beyond(count: int, limit: int) -> bool:
    return limit > 0 and count > limit


@inner
def place(
    w: World,
    t: Table,
    e: int,
    slices: Slices,
    ends: Ends,
    scratch: Scratch,
    window_s: float,
    step_s: float,
    began: Array,
) -> bool:
    """Start the entry now (true), or plan it for later, or neither."""
    job, now_s = t.job[e], w.head[0].now_s
    need, alone = needs(w, job), apart(w, t, job, t.part[e])
    picked = np.empty(need, np.int64)
    ok, bits = scratch.ok, scratch.bits
    look_s = now_s
    while True:
        from_s = look_s
        open_nodes(w, t, e, from_s, ok)
        future.set_bits(ok, scratch.base)
        future.set_bits(ok, bits)
        look_s = future.narrow(slices, from_s, from_s + t.run_s[e], scratch.base, bits)
        look_s = min(look_s, gate_end(w, job, from_s, now_s + window_s))
        start_s = np.inf
        if future.keep_bits(ok, bits) >= (need if alone else 1):
            start_s = earliest(w, t, e, alone, ends, scratch, picked)
        start_s = max(start_s, from_s)
        if start_s <= now_s:
            book(w, t, e, picked, began)
            return True
        if t.now_only[e] == 1:
            return False
        if start_s == np.inf or start_s > look_s:
            if look_s == np.inf:
                return False  # it cannot start as far as anyone can see
            continue
        if start_s > now_s + window_s:
            return False
        for node in range(ok.shape[0]):
            ok[node] = False
        for i in range(need):
            ok[picked[i]] = True
        future.set_bits(ok, bits)
        begin_s = np.floor(start_s / step_s) * step_s
        end_s = np.floor((start_s + t.run_s[e]) / step_s) * step_s
        if future.overlaps(slices, bits, begin_s, end_s) and start_s > from_s:
            look_s = start_s  # into the plan of another, which the running jobs do not know of
            continue
        future.plan(slices, bits, begin_s, end_s, step_s)
        return False


@inner
def gate_end(w: World, job: int, from_s: float, before_s: float) -> float:
    """A second past the end of the first reservation that stands in the job's way, or inf."""
    least_s = np.inf
    for gate in range(w.gate.shape[1]):
        end_s = w.gate[0, gate].to_s + 1.0
        if gate != w.reserved[0, job] and from_s < end_s < before_s:
            least_s = min(least_s, end_s)
    return least_s


@inner
def earliest(
    w: World, t: Table, e: int, alone: bool, ends: Ends, scratch: Scratch, picked: Array
) -> float:
    """When the entry fits on `ok`, and where: now, or when runs end by their limits; inf = never.

    Ends are taken in bunches: all within BUNCH_S of the first, then twice as far, and so on; the
    start is the last end of a bunch, as Slurm has it.
    """
    job, ok, slots = t.job[e], scratch.ok, scratch.slots
    need = needs(w, job)
    room = count_slots(w, job, alone, ok, w.free, w.gpu_free, w.gpu_mem, slots)
    if room < need and make_way(w, t, e, alone, ok, slots):
        room = count_slots(w, job, alone, ok, w.free, w.gpu_free, w.gpu_mem, slots)
    if room >= need:
        choose(w, t, job, alone, w.free, slots, picked)
        return w.head[0].now_s
    if t.now_only[e] == 1:
        return np.inf
    copy_free(w)
    bunch_s, first_s, last_s = BUNCH_S, -1.0, -1.0
    size = ends.size[0]
    i = 0
    while i < size:
        last_s = -1.0
        while i < size:
            gained = end_one(w, t, job, alone, ends, i, ok, slots)
            if gained >= 0:
                if first_s < 0.0:
                    first_s = (np.floor(ends.end_s[i] / BUNCH_S) + 1.0) * BUNCH_S
                last_s = ends.end_s[i]
                room += gained
            i += 1
            if last_s >= 0.0 and i < size and ends.end_s[i] > first_s + bunch_s:
                break
        bunch_s *= 2
        while i < size and ends.end_s[i] > first_s + bunch_s:
            bunch_s *= 2
        if last_s >= 0.0 and room >= need:
            choose(w, t, job, alone, w.later_free, slots, picked)
            return max(last_s, w.head[0].now_s + 1.0)
    return np.inf


@inner
def copy_free(w: World) -> None:
    for node in range(w.nodes.shape[1]):
        for r in range(w.free.shape[2]):
            w.later_free[0, node, r] = w.free[0, node, r]
        for d in range(w.gpu_free.shape[2]):
            w.later_gpu_free[0, node, d] = w.gpu_free[0, node, d]
            w.later_gpu_mem[0, node, d] = w.gpu_mem[0, node, d]


@inner
def end_one(
    w: World, t: Table, job: int, alone: bool, ends: Ends, i: int, ok: Array, slots: Array
) -> int:
    """Free what ends there, if it holds any node of `ok`: instances gained, or -1 = none of it."""
    run, gained, touched = ends.run[i], 0, False
    if run < 0:
        for k in range(-1 - run, -1 - run + ends.entries[i]):
            touched |= ok[w.entry[0, k].node]
        for k in range(-1 - run, -1 - run + ends.entries[i]):
            if touched:
                rec = w.entry[0, k]
                gained += give_back(
                    w, t, job, alone, rec.job, rec.node, 1, rec.devices, 0, ok, slots
                )
        return gained if touched else -1
    if is_stopped(w, run):
        return -1
    piece = w.runs[0, run].piece
    while piece >= 0:
        touched |= ok[w.pieces[0, piece].node]
        piece = w.pieces[0, piece].next
    piece = w.runs[0, run].piece
    shape = w.runs[0, run].shape
    while touched and piece >= 0:
        held = w.pieces[0, piece]
        gained += give_back(
            w, t, job, alone, w.runs[0, run].job, held.node, held.count, held.devices, shape, ok,
            slots,
        )  # fmt: skip
        piece = held.next
    return gained if touched else -1


@inner
def give_back(
    w: World,
    t: Table,
    job: int,
    alone: bool,
    holder: int,
    node: int,
    count: int,
    devices: int,
    shape: int,
    ok: Array,
    slots: Array,
) -> int:
    take(
        w, 0, node, holder, shape, -count, devices, w.later_free, w.later_gpu_free, w.later_gpu_mem
    )
    if not ok[node]:
        return 0
    before = slots[node]
    slots[node] = node_slots(w, job, alone, node, w.later_free, w.later_gpu_free, w.later_gpu_mem)
    return slots[node] - before


@inner
def is_stopped(w: World, run: int) -> bool:
    for i in range(w.head[0].stops):
        if w.stop[0, i] == run:
            return True
    return False


@inner
def find_ends(w: World, now_s: float, more: int) -> Ends:
    """Expected ends of all runs, earliest first, with room for `more`."""
    count = 0
    for run in range(w.runs.shape[1]):
        count += w.runs[0, run].job >= 0
    room = count + more + w.entry.shape[1]
    ends = Ends(np.empty(room), np.empty(room, np.int64), np.zeros(room, np.int64),
                np.zeros(1, np.int64))  # fmt: skip
    end_s, run_of = np.empty(count), np.empty(count, np.int64)
    i = 0
    for run in range(w.runs.shape[1]):
        if w.runs[0, run].job >= 0:
            end_s[i], run_of[i] = expected_end(w, 0, run, now_s), run
            i += 1
    turn = np.argsort(end_s, kind="mergesort")
    for i in range(count):
        ends.end_s[i], ends.run[i] = end_s[turn[i]], run_of[turn[i]]
    ends.size[0] = count
    return ends


@inner
def add_started(w: World, t: Table, now_s: float, ends: Ends, began: Array) -> None:
    """The ends of what the main scheduler has started at this very moment."""
    i = 0
    while i < w.head[0].starts:
        job, first = w.entry[0, i].job, i
        while i < w.head[0].starts and w.entry[0, i].job == job:
            i += 1
        e = began[job] - 1 if began[job] > 0 else entry_of(t, job)
        add_end(ends, now_s + t.run_s[e], -1 - first, i - first)


@inner
def entry_of(t: Table, job: int) -> int:
    """The first entry of a job; an array that has more to start is not among those begun."""
    e = 0
    while t.job[e] != job:
        e += 1
    return e


@inner
def add_end(ends: Ends, end_s: float, run: int, count: int) -> None:
    i = ends.size[0]
    while i > 0 and ends.end_s[i - 1] > end_s:
        ends.end_s[i], ends.run[i] = ends.end_s[i - 1], ends.run[i - 1]
        ends.entries[i] = ends.entries[i - 1]
        i -= 1
    ends.end_s[i], ends.run[i], ends.entries[i] = end_s, run, count
    ends.size[0] += 1
