"""What a scheduling pass walks: entries of the queue in Slurm's order, partitions, limits."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.compiled import inner
from trimtab.rules.fit import NEVER, ONE, slots_in, suits, within
from trimtab.rules.place import empty_slots
from trimtab.rules.world import World


class Table(NamedTuple):
    """Entries are jobs in one of their partitions: E of them, P partitions, N nodes, R resources.

    A job that names several partitions has an entry for each.
    """

    job: Array  # (E,)
    part: Array  # (E,)
    run_s: Array  # (E,) its time limit there
    now_only: Array  # (E,) 1 = backfill reserves nothing for it
    user: Array  # (E,)
    account: Array  # (E,)
    hunter: Array  # (E,) row of `prey`
    prey: Array  # (H, M) 1 = such an entry may preempt the run
    turn: Array  # (M,) runs in the order in which they are preempted
    part_nodes: Array  # (P, N) 1 = the node is in the partition
    level: Array  # (N,) the node's weight as a number from 0: lower ones are filled first
    apart: int  # 1 = the instances of a gang want a node each


@inner
def needs(w: World, job: int) -> int:
    """Instances that start together."""
    return w.state[0, job].left if w.jobs[0, job].gang == 1 else 1


@inner
def apart(w: World, t: Table, job: int, part: int) -> bool:
    """Whether each instance gets a node of its own: where as many nodes could host one."""
    need = needs(w, job)
    if t.apart == 0 or need == 1:
        return False
    count = 0
    for node in range(w.nodes.shape[1]):
        if t.part_nodes[part, node] == 1 and empty_slots(w, 0, node, job, 0) > 0:
            count += 1
    return count >= need


@inner
def gated(w: World, kind: int, job: int, from_s: float, to_s: float) -> bool:
    """Whether a reservation keeps the job from nodes of this kind at any time in the span."""
    for gate in range(w.gate.shape[1]):
        rec = w.gate[0, gate]
        if gate != w.reserved[0, job] and (rec.kinds >> kind) & ONE != NEVER:
            if from_s < rec.to_s and to_s > rec.from_s:
                return True
    return False


@inner
def open_nodes(w: World, t: Table, e: int, from_s: float, ok: Array) -> int:
    """Write which nodes the entry may use from then to its limit, busy or not; returns how many."""
    job, count = t.job[e], 0
    for node in range(w.nodes.shape[1]):
        ok[node] = (
            t.part_nodes[t.part[e], node] == 1
            and suits(w, 0, node, job, 0)
            and not gated(w, np.uint64(w.nodes[0, node].kind), job, from_s, from_s + t.run_s[e])
        )
        count += ok[node]
    return count


@inner
def gate_of(w: World, job: int) -> int:
    """The reservation that the job names, -1 = none."""
    return w.reserved[0, job] if w.gate.shape[1] > 0 else -1


@inner
def waits_for_its_gate(w: World, job: int, now_s: float) -> bool:
    """Whether the job's own reservation has not begun."""
    gate = gate_of(w, job)
    return gate >= 0 and now_s < w.gate[0, gate].from_s


@inner
def count_slots(
    w: World,
    job: int,
    alone: bool,
    ok: Array,
    free: Array,
    gpu_free: Array,
    gpu_mem: Array,
    slots: Array,
) -> int:
    """Write the instances that fit on each node; returns their sum."""
    room = 0
    for node in range(w.nodes.shape[1]):
        slots[node] = 0
        if ok[node]:
            slots[node] = node_slots(w, job, alone, node, free, gpu_free, gpu_mem)
        room += slots[node]
    return room


@inner
def node_slots(
    w: World, job: int, alone: bool, node: int, free: Array, gpu_free: Array, gpu_mem: Array
) -> int:
    return slots_in(
        w.jobs[0], w.demand[0], job, w.scale[0], w.nodes[0, node].gpus, free[0, node],
        gpu_free[0, node], gpu_mem[0, node], 1 if alone else needs(w, job), -1, 0.0,
    )  # fmt: skip


@inner
def could_run(w: World, t: Table, e: int, alone: bool, ok: Array) -> bool:
    """Whether the entry would fit if nothing else ran on the nodes it may use."""
    job, room = t.job[e], 0
    for node in range(w.nodes.shape[1]):
        if ok[node]:
            fit = empty_slots(w, 0, node, job, 0)
            room += min(fit, 1) if alone else fit
    return room >= needs(w, job)


@inner
def over_quota(w: World, job: int) -> bool:
    """Whether one more start of the job breaks a limit."""
    need = needs(w, job)
    return within(w, 0, job, 0, need) < need
