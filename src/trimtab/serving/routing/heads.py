"""The router of Slim Scheduler (eq. 1-7) as compiled code: three heads on one network.

It picks a server, a width and a group a segment at a time, from what `fleet_sim.observe` shows: the
paper's state, and the segment, width before and slack that the paper leaves out. `collect` runs
fleets with drawn actions and notes what a learner needs of every decision.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import prange

from trimtab.arrays import Array
from trimtab.compiled import compiled, inner
from trimtab.serving.nouns import SEGMENTS, WIDTHS
from trimtab.serving.routing.fleet_sim import SIGHTS, SIGHTS_SERVER, advance, observe, route
from trimtab.serving.routing.fleet_state import ANSWERED, Fleets, unit
from trimtab.serving.routing.greedy import NONE, util_at
from trimtab.serving.routing.router_net import forward

GROUPS = np.array([1, 2, 4, 8, 16])  # of micro-batches, as in the paper
RIGHT, LATENCY, ENERGY, IMBALANCE = range(4)  # parts of a reward
SLACK_MAX_S = 10.0  # what a network sees of an endless objective


class Trail(NamedTuple):
    """What happened at the decisions of C fleets, T at the most each."""

    seen: Array  # (C, T, I)
    action: Array  # (C, T, 3) server, width, group's place in GROUPS
    part: Array  # (C, T, 4) means over the requests of a block
    made_s: Array  # (C, T)
    size: Array  # (C, T) requests routed
    length: Array  # (C,) decisions
    last: Array  # (C * R,) the decision that a request was routed by
    spent_j: Array  # (C * R,) of a request before it
    prior: Array  # (segment, 256) accuracy expected of the widths so far


def inputs_of(servers: int) -> int:
    return SIGHTS + SIGHTS_SERVER * servers


def outputs_of(servers: int) -> int:
    return servers + len(WIDTHS) + len(GROUPS)


def trail(f: Fleets) -> Trail:
    """Room for all decisions of fleets in which none is held back or given up."""
    count, requests = f.heap.shape
    most, inputs = SEGMENTS * requests, inputs_of(int(f.conf[0]["servers"]))
    prior = np.zeros((SEGMENTS, 256))
    for segment in range(SEGMENTS):
        known = f.accuracy.reshape(4 ** (segment + 1), -1).mean(axis=1)
        prior[segment, : len(known)] = known
    return Trail(
        seen=np.zeros((count, most, inputs)),
        action=np.zeros((count, most, 3), np.int64),
        part=np.zeros((count, most, 4)),
        made_s=np.zeros((count, most)),
        size=np.zeros((count, most), np.int64),
        length=np.zeros(count, np.int64),
        last=np.full(count * requests, NONE, np.int64),
        spent_j=np.zeros(count * requests),
        prior=prior,
    )


@inner
def picked(fleet, logits, drawn):
    """The likeliest choice, or one drawn by the softmax of the logits."""
    if not drawn:
        return np.argmax(logits)
    share = np.exp(logits - logits.max())
    left = unit(fleet) * share.sum()
    for at in range(len(share) - 1):
        left -= share[at]
        if left < 0:
            return at
    return len(share) - 1


@inner
def act(f, c, rules, seen):
    """(server, width, place of the group) for the head; `seen` is filled in.

    A network made for another number of servers cannot be asked: then the first server with the
    shortest queue runs the head alone at full width.
    """
    fleet, servers = f.fleet[c], f.conf[0]["servers"]
    if rules.net2.shape[0] != servers + 9 or rules.net0.shape[1] != len(seen) + 1:
        best = c * servers
        for v in range(c * servers, (c + 1) * servers):
            if f.server[v]["waiting"] < f.server[best]["waiting"]:
                best = v
        return best - c * servers, 3, 0
    observe(f, c, seen)
    seen[4] = min(seen[4], SLACK_MAX_S)
    logits = np.empty(rules.net2.shape[0])
    forward(rules, seen, logits)
    drawn = rules.draws[0] > 0
    server = picked(fleet, logits[:servers], drawn)
    if drawn and unit(fleet) < rules.draws[1]:
        server = min(int(unit(fleet) * servers), servers - 1)
    width = picked(fleet, logits[servers : servers + 4], drawn)
    return server, width, picked(fleet, logits[servers + 4 :], drawn)


@inner
def settle(f, c, noted, request, until_s):
    """Give a decision what one of its requests came to."""
    at = noted.last[request]
    if at != NONE:
        size = noted.size[c, at]
        noted.part[c, at, LATENCY] += (until_s - noted.made_s[c, at]) / size
        spent_j = f.request[request]["energy_j"] - noted.spent_j[request]
        noted.part[c, at, ENERGY] += spent_j / size


@inner
def note(f, c, noted, server, width, place):
    """Write a decision down, before it is carried out."""
    fleet, servers, at = f.fleet[c], f.conf[0]["servers"], noted.length[c]
    noted.length[c] += 1
    noted.action[c, at, 0], noted.action[c, at, 1], noted.action[c, at, 2] = server, width, place
    line = f.pending[c, fleet["head"]]
    noted.made_s[c, at], noted.size[c, at] = fleet["now_s"], min(line["count"], GROUPS[place])
    total, square = 0.0, 0.0
    for v in range(c * servers, (c + 1) * servers):
        share = util_at(f.server[v], f.knobs[0]["util_window_s"], fleet["now_s"])
        total += share
        square += share * share
    noted.part[c, at, IMBALANCE] = max(square / servers - (total / servers) ** 2, 0.0)
    request = line["first"]
    for _ in range(noted.size[c, at]):
        row = f.request[request]
        settle(f, c, noted, request, fleet["now_s"])
        right = noted.prior[row["segment"], row["widths"] * 4 + width]
        noted.part[c, at, RIGHT] += right / noted.size[c, at]
        noted.last[request], noted.spent_j[request] = at, row["energy_j"]
        request = f.after[request]


@compiled(parallel=True)
def collect_all(f, rules, noted):
    requests = f.conf[0]["requests"]
    for c in prange(f.heap.shape[0]):
        while advance(f, c) != NONE:
            seen = noted.seen[c, noted.length[c]]
            server, width, place = act(f, c, rules, seen)
            note(f, c, noted, server, width, place)
            route(f, c, server, width, GROUPS[place], NONE)
        for request in range(c * requests, (c + 1) * requests):
            if f.request[request]["outcome"] == ANSWERED:
                settle(f, c, noted, request, f.request[request]["done_s"])
