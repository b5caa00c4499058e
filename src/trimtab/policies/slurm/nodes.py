"""Slurm's choice of nodes (select/cons_tres): lowest weight, then the tightest run of neighbours.

Nodes that stand beside each other, have room and are of one weight make a set. The set that
suffices with the fewest free CPUs is taken, else the largest, until the job is placed; a single
node is the one that suffices with the fewest free CPUs, the first of them by number.
"""

import numpy as np

from trimtab.arrays import Array
from trimtab.compiled import inner
from trimtab.policies.slurm.table import Table, needs
from trimtab.rules.world import World

SET = np.dtype([("first", "i8"), ("last", "i8"), ("cpus", "f8"), ("nodes", "i8"), ("level", "i8")])


@inner
def choose(
    w: World, t: Table, job: int, alone: bool, free: Array, slots: Array, picked: Array
) -> int:
    """Write the node of each instance; `slots` (N,) has room for them all. Returns how many."""
    nodes, need = w.nodes.shape[1], needs(w, job)
    cpus, sets = np.zeros(nodes), np.zeros(nodes, SET)
    levels = 0
    for node in range(nodes):
        levels = max(levels, t.level[node] + 1)
    for level in range(levels):  # the cheapest alone if they suffice
        room = 0
        for node in range(nodes):
            if t.level[node] <= level:
                room += slots[node]
        if room >= need:
            for node in range(nodes):
                cpus[node] = 0.0
                if slots[node] > 0 and t.level[node] <= level:
                    cpus[node] = free_cpus(w, job, node, free, slots)
            return fill_sets(w, t, job, alone, slots, cpus, sets, picked)
    return 0


@inner
def free_cpus(w: World, job: int, node: int, free: Array, slots: Array) -> float:
    """CPUs of the node in whole instances; a job that asks for none counts its instances."""
    each = w.demand[0, job, 0]
    if each <= 0.0:
        return float(slots[node])
    return np.floor(free[0, node, 0] / each) * each


@inner
def make_sets(t: Table, cpus: Array, sets: Array) -> int:
    """Neighbours with room and of one weight; returns how many sets."""
    count = -1
    before = -2
    for node in range(cpus.shape[0]):
        if cpus[node] <= 0.0:
            continue
        if before != node - 1 or sets[count].level != t.level[node]:
            count += 1
            sets[count].first, sets[count].level = node, t.level[node]
            sets[count].cpus, sets[count].nodes = 0.0, 0
        sets[count].last = node
        sets[count].cpus += cpus[node]
        sets[count].nodes += 1
        before = node
    return count + 1


@inner
def fill_sets(
    w: World, t: Table, job: int, alone: bool, slots: Array, cpus: Array, sets: Array, picked: Array
) -> int:
    need, count = needs(w, job), make_sets(t, cpus, sets)
    each = max(w.demand[0, job, 0], 0.0)
    if each == 0.0:
        each = 1.0
    done = 0
    while done < need:
        best = best_set(sets, count, (need - done) * each, need - done if alone else 1)
        if best < 0:
            return 0
        first, last = sets[best].first, sets[best].last
        if not alone or need - done == 1:
            single = tightest(cpus, first, last, (need - done) * each)
            if single >= 0 and slots[single] >= need - done:
                first = last = single
        for node in range(first, last + 1):
            while cpus[node] > 0.0 and slots[node] > 0 and done < need:
                picked[done] = node
                done += 1
                slots[node] -= 1
                if alone:
                    break
        sets[best].nodes = 0
    return done


@inner
def best_set(sets: Array, count: int, cpus: float, nodes: int) -> int:
    """The set to take from next, -1 = none is left."""
    best, enough = -1, False
    for i in range(count):
        if sets[i].nodes == 0:
            continue
        suffices = sets[i].cpus >= cpus and sets[i].nodes >= nodes
        better = best < 0 or sets[i].level < sets[best].level
        if not better and sets[i].level == sets[best].level:
            if suffices:
                better = not enough or sets[i].cpus < sets[best].cpus
            else:
                better = sets[i].cpus > sets[best].cpus
        if better:
            best, enough = i, suffices
    return best


@inner
def tightest(cpus: Array, first: int, last: int, wanted: float) -> int:
    """The node with the fewest free CPUs that are enough, -1 = none."""
    best = -1
    for node in range(first, last + 1):
        if cpus[node] >= wanted and (best < 0 or cpus[node] < cpus[best]):
            best = node
    return best
