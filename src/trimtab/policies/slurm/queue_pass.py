"""Slurm's main scheduler: down the queue; what cannot start closes its partition to the rest."""

import numpy as np

from trimtab.arrays import Array
from trimtab.compiled import compiled, inner
from trimtab.policies.slurm.nodes import choose
from trimtab.policies.slurm.table import (
    Table,
    apart,
    could_run,
    count_slots,
    gate_of,
    needs,
    open_nodes,
    over_quota,
    waits_for_its_gate,
)
from trimtab.rules.fit import book_quotas, put_off
from trimtab.rules.nodes.choose import book_instance
from trimtab.rules.world import World


@compiled
def run_queue(
    w: World,
    t: Table,
    depth: int,
    part_depth: int,
    most_starts: int,
    limit_stop: bool,
    closes: Array,
    began: Array,
) -> int:
    """Start what may start, in order. Writes 1 + its entry to `began` (J,) of each job begun.

    `closes` (E,) is 0 for entries too young or too low to keep others back. Returns the starts,
    or -1 if the world has no room to write them down.
    """
    nodes, parts = w.nodes.shape[1], t.part_nodes.shape[0]
    usable = np.ones(nodes, np.bool_)
    failed, tried = np.zeros(parts, np.bool_), np.zeros(parts, np.int64)
    failed_gate = np.zeros(w.gate.shape[1] + 1, np.bool_)
    ok, slots = np.zeros(nodes, np.bool_), np.zeros(nodes, np.int64)
    now_s = w.head[0].now_s
    looked = starts = 0
    for e in range(t.job.shape[0]):
        job, part = t.job[e], t.part[e]
        while began[job] == 0:  # an array goes on, task by task
            if most_starts > 0 and starts >= most_starts:
                return starts
            tried[part] += 1
            if part_depth > 0 and tried[part] > part_depth:
                break
            looked += 1
            if depth > 0 and looked > depth + 1:
                return starts
            gate = gate_of(w, job)
            if failed_gate[gate] if gate >= 0 else failed[part]:
                break
            if waits_for_its_gate(w, job, now_s):
                break
            if over_quota(w, job):
                if limit_stop and closes[e] == 1:
                    close(t, part, failed, usable)
                break
            open_nodes(w, t, e, now_s, ok)
            alone = apart(w, t, job, part)
            if not could_run(w, t, e, alone, ok):
                break  # not here, or not while others hold the reservation: it blocks nobody
            for node in range(nodes):
                ok[node] &= usable[node]
            need = needs(w, job)
            if w.head[0].starts + need > w.entry.shape[1]:
                return -1
            if not start(w, t, e, alone, ok, slots, began):
                if gate >= 0:
                    failed_gate[gate] = True
                elif closes[e] == 1:
                    close(t, part, failed, usable)
                break
            starts += 1
    return starts


@inner
def close(t: Table, part: int, failed: Array, usable: Array) -> None:
    """No more jobs in this partition, nor on its nodes from others."""
    failed[part] = True
    for node in range(usable.shape[0]):
        usable[node] &= t.part_nodes[part, node] == 0


@inner
def start(w: World, t: Table, e: int, alone: bool, ok: Array, slots: Array, began: Array) -> bool:
    """Book the entry on free nodes, or by preempting; false if neither can be."""
    job = t.job[e]
    need = needs(w, job)
    if count_slots(w, job, alone, ok, w.free, w.gpu_free, w.gpu_mem, slots) < need:
        if not make_way(w, t, e, alone, ok, slots):
            return False
        count_slots(w, job, alone, ok, w.free, w.gpu_free, w.gpu_mem, slots)
    picked = np.empty(need, np.int64)
    if choose(w, t, job, alone, w.free, slots, picked) < need:
        return False
    book(w, t, e, picked, began)
    return True


@inner
def book(w: World, t: Table, e: int, picked: Array, began: Array) -> None:
    job = t.job[e]
    for i in range(picked.shape[0]):
        book_instance(w, 0, picked[i], job, 0, w.head[0].starts + i)
    book_quotas(w, 0, job, 0, picked.shape[0], 1)
    w.head[0].starts += picked.shape[0]
    if w.jobs[0, job].gang == 1 or begun(w, job) >= w.state[0, job].left:
        began[job] = 1 + e


@inner
def begun(w: World, job: int) -> int:
    """Instances of an array that this pass has started."""
    count = 0
    for i in range(w.head[0].starts):
        count += w.entry[0, i].job == job
    return count


@inner
def make_way(w: World, t: Table, e: int, alone: bool, ok: Array, slots: Array) -> bool:
    """Stop runs that the entry may preempt, in order, until it fits; only those in its way.

    When it fits, the last to be stopped goes first in a second try, as in Slurm, so that what was
    stopped in vain runs on.
    """
    if t.prey.shape[0] == 0:
        return False
    job, hunter = t.job[e], t.hunter[e]
    need, stops = needs(w, job), w.head[0].stops
    last = -1
    for i in range(t.turn.shape[0]):
        run = t.turn[i]
        if t.prey[hunter, run] == 1 and in_the_way(w, run, ok):
            stop(w, run)
            room = count_slots(w, job, alone, ok, w.free, w.gpu_free, w.gpu_mem, slots)
            if room >= need:
                last = run
                break
    undo(w, stops)
    if last < 0:
        return False
    stop(w, last)
    for i in range(t.turn.shape[0]):
        room = count_slots(w, job, alone, ok, w.free, w.gpu_free, w.gpu_mem, slots)
        if room >= need:
            break
        run = t.turn[i]
        if run != last and t.prey[hunter, run] == 1 and in_the_way(w, run, ok):
            stop(w, run)
    for i in range(stops, w.head[0].stops):
        t.prey[:, w.stop[0, i]] = 0
    return True


@inner
def in_the_way(w: World, run: int, ok: Array) -> bool:
    piece = w.runs[0, run].piece
    while piece >= 0:
        if ok[w.pieces[0, piece].node]:
            return True
        piece = w.pieces[0, piece].next
    return False


@inner
def stop(w: World, run: int) -> None:
    put_off(w, 0, run, 1)
    w.stop[0, w.head[0].stops] = run
    w.head[0].stops += 1


@inner
def undo(w: World, stops: int) -> None:
    while w.head[0].stops > stops:
        w.head[0].stops -= 1
        put_off(w, 0, w.stop[0, w.head[0].stops], -1)
