"""The choice among pairs: by the guiding rule, and by a network that may overrule it."""

from __future__ import annotations

import math

import numpy as np

from trimtab.arrays import Array
from trimtab.codecs.grid import place_led
from trimtab.codecs.queue import start_of
from trimtab.compiled import compiled, inner
from trimtab.core import Decision, Move, Snapshot, Start, Stop
from trimtab.policies.adlro.net import WIDEST, write_values
from trimtab.policies.adlro.pairs import (
    CLUSTER_AT,
    FINISH,
    MOST,
    MOVE,
    OTHER_KEEPS,
    OTHER_LEFT,
    OTHER_LOST,
    SPAN,
    SPEED,
    SPEED_NOW,
    START,
    SWAP,
    TINY,
    pairs,
)
from trimtab.rules.place import FASTEST
from trimtab.rules.seen import world_of

MARGIN = 0.5  # the rule stops a job that has 1.6 (e^0.5) times as much left
FASTER = 0.1  # and moves one that gains a tenth of its best speed


@inner
def guided(row):
    """The rule that learning sets out from: the shortest completion first, a stop for a job with
    half as much left, what the stop throws away counted against it, a move that gains enough of
    those that end a job sooner. Above 0 = better than to wait.
    """
    if row[START] > 0.0:
        return 10.0 - row[FINISH]
    if row[SWAP] > 0.0:
        if row[OTHER_KEEPS] == 0.0:
            return -1.0
        left = row[OTHER_LEFT] * SPAN
        if row[OTHER_KEEPS] < 1.0:
            rest = math.exp(left) - (math.exp(row[OTHER_LOST] * SPAN) - TINY)
            left = math.log(max(rest, TINY))
        return left - row[FINISH] * SPAN - MARGIN
    return row[SPEED] - row[SPEED_NOW] - FASTER


@inner
def chosen(rows, n, net, must, here, there, values):
    """The pair to take out of the first n, and the guiding rule's; -1 waits.

    The network overrules the rule where it expects to save more by the net's margin, in queues
    within its reach. `must` = to wait is no choice. Leaves in `values` what the choice was made by.
    """
    rule, most = -1, (-np.inf if must else 0.0)
    for i in range(n):
        values[i] = guided(rows[i])
        if values[i] > most:
            rule, most = i, values[i]
    if len(net.sizes) == 0 or (n > 0 and rows[0, CLUSTER_AT] > math.log1p(net.reach)):
        return rule, rule
    write_values(rows, n, net, here, there, values)
    best, most = -1, (-np.inf if must else 0.0)
    for i in range(n):
        if values[i] > most:
            best, most = i, values[i]
    by_rule = values[rule] if rule >= 0 else 0.0
    return (best if most > by_rule + net.margin else rule), rule


@compiled
def choose_seen(w, net, rows, cells):
    """The number of the pair to take in a world made from a snapshot; -1 waits."""
    here, there = np.empty(WIDEST, np.float32), np.empty(WIDEST, np.float32)
    n = pairs(w, 0, w.head[0].waiting, rows, cells)
    return chosen(rows, n, net, w.head[0].heap == 0, here, there, np.empty(MOST))[0]


@compiled
def entries_at(w, job, node):
    return place_led(w, 0, job, node, FASTEST, 0)


def decisions_of(snapshot: Snapshot, cell: Array) -> list[Decision]:
    """What a pair means."""
    job, node = int(cell["job"]), int(cell["node"])
    if cell["how"] == MOVE:
        return [Move(job, (node,))]
    if cell["how"] == SWAP:
        return [Stop(int(cell["other"])), Start(job, (node,))]
    world = world_of(snapshot, room=int(snapshot.state["left"][job]))
    return start_of(world, job, entries_at(world, job, node))
