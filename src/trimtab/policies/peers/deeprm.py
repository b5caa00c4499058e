"""Mao et al., "Resource management with deep reinforcement learning" (HotNets'16): DeepRM. An image
of what runs by time slot, ten slots of waiting jobs and a backlog; start a slot's job or move on;
policy gradient with the mean of several runs at the same time as its baseline.
"""

from __future__ import annotations

import numpy as np

from trimtab.arrays import Array
from trimtab.compiled import inner
from trimtab.policies.peers.groups import (
    LONG_S,
    MANY,
    cores_of,
    log_share,
    long_share,
    other_of,
    wait_share,
)
from trimtab.policies.peers.played import Played
from trimtab.rules.world import World

SLOTS, JOBS = 20, 10
SLOT_S = 20.0  # the first time slot; each is 1.15 times as long as the one before
LONGER = 1.15
PER_JOB = 6
IMAGE = 2 * SLOTS
FEATURES = IMAGE + JOBS * PER_JOB + 2
HIDDEN = 32
ACTIONS = JOBS + 1
MEMORY_S = 20.0  # what comes so much later counts 1 / e


@inner
def image(w: World, c: int, held: Array, lendable: Array) -> None:
    """Write what runs hold in each time slot to come, held (T, R), and the amounts that batch jobs
    hold or may take, lendable (R,).
    """
    held[:], lendable[:] = 0.0, 0.0
    for node in range(w.head[c].nodes):
        if w.node_state[c, node].up == 1:
            for r in range(w.free.shape[2]):
                lendable[r] += max(w.free[c, node, r], 0.0)
    for run in range(w.runs.shape[1]):
        rec = w.runs[c, run]
        if rec.job >= 0 and np.isfinite(w.jobs[c, rec.job].request_s):
            hold(w, c, rec.job, rec.instances, rec.expected_end_s - w.head[c].now_s, held)
            for r in range(w.free.shape[2]):
                lendable[r] += rec.instances * w.demand[c, rec.job, r]


@inner
def hold(w: World, c: int, job: int, instances: int, left_s: float, held: Array) -> None:
    """Add so many instances for so long to the image."""
    begin_s, slot_s = 0.0, SLOT_S
    for t in range(SLOTS):
        part = min((max(left_s, 1.0) - begin_s) / slot_s, 1.0)
        if part <= 0.0:
            break
        for r in range(w.demand.shape[2]):
            held[t, r] += part * instances * w.demand[c, job, r]
        begin_s += slot_s
        slot_s *= LONGER


@inner
def describe(
    w: World, c: int, jobs: Array, count: int, waiting: int, held: Array, lendable: Array,
    row: Array,
) -> None:  # fmt: skip
    """The image, the driving resource and then the most of anything else; the slots; the backlog;
    and which actions there are, the last of which is to move on.
    """
    driver = w.nodes[c, 0].driver
    for t in range(SLOTS):
        row[t], row[SLOTS + t] = 0.0, 0.0
        for r in range(w.free.shape[2]):
            share = held[t, r] / lendable[r] if lendable[r] > 0.0 else 0.0
            if r == driver:
                row[t] = share
            else:
                row[SLOTS + t] = max(row[SLOTS + t], share)
    at = IMAGE
    for slot in range(JOBS):
        for f in range(PER_JOB):
            row[at + f] = 0.0
        row[FEATURES + slot] = 1.0 if slot < count else 0.0
        if slot < count:
            job = jobs[slot]
            row[at] = 1.0
            row[at + 1] = cores_of(w, c, job, 0)
            row[at + 2] = other_of(w, c, job, 0)
            row[at + 3] = long_share(w, c, job)
            row[at + 4] = log_share(w.state[c, job].left, 50.0)
            row[at + 5] = wait_share(w, c, job)
        at += PER_JOB
    row[at] = log_share(waiting, MANY)
    row[at + 1] = log_share(w.head[c].nodes, LONG_S)


def returns(played: Played) -> Array:
    """Of each decision: minus the slow-down that waiting jobs gather from then on."""
    return played.slowdown_from_now("start_s", MEMORY_S)
