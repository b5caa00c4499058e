"""Rules that route requests in a fleet, compiled.

Rules see what a live router could: queues, rates, the head's slack and the profile. All but
`random` choose a tuple of widths for a request's whole way when it comes and keep it on one server.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import prange

from trimtab.arrays import Array
from trimtab.compiled import compiled, inner, interruptible
from trimtab.errors import ServeError, UnknownName
from trimtab.serving.net.serve_profile import ServeProfile, front, tuple_s
from trimtab.serving.routing.fleet_sim import (
    DROP,
    HOLD,
    RATE_WINDOW_S,
    SIGHTS,
    SIGHTS_SERVER,
    advance,
    route,
    way_s,
)
from trimtab.serving.routing.fleet_state import Fleets, drawn
from trimtab.serving.routing.greedy import NONE
from trimtab.serving.routing.heads import GROUPS, act
from trimtab.serving.routing.lookahead import ahead, look_ahead

RANDOM, ROUND, JSQ, TWO, ACCURATE, BATCH, SLACK, RATE, SLIMMEST, FIXED, PRICED, HEADS = range(12)
BY_NAME = {
    "random": RANDOM,  # server, width and group uniform: the paper's baseline
    "round_robin": ROUND,
    "shortest_queue": JSQ,
    "two_choices": TWO,  # the shorter of two queues drawn at random
    "max_accuracy": ACCURATE,  # the most accurate tuple that fits the slack alone, then its batch
    "max_batch": BATCH,  # the largest batch that fits the slack, then the most accurate tuple
    "slack_fit": SLACK,
    "rate": RATE,  # the most accurate tuple whose cost keeps up with the arrivals
    "slimmest": SLIMMEST,
    "priced": PRICED,  # looks ahead: see `lookahead`
    "fixed": FIXED,  # max_batch with a single tuple
}
STEPS = 8  # of latency, for slack_fit
HEADROOM = 0.9  # share of the capacity that `rate` plans to use


class Rule(NamedTuple):
    """A router as compiled code reads it."""

    router: Array  # (1,) one of the numbers above
    fixed: Array  # (1,) row of the tuple for routers that do not choose
    tuples: Array  # (K,) rows to choose from, fastest first: accuracy rises with time
    batch: Array  # (B,) batch sizes
    time_s: Array  # (K, B) of a batch through all segments
    cost_s: Array  # (K,) a request, in the best batch
    # tables of `lookahead.Ahead`
    whole_s: Array  # (256, N + 1)
    chosen: Array  # (PRICES, N + 1)
    least_s: Array  # (N + 1,)
    budget_s: Array  # (H,)
    value: Array  # (H,)
    knob: Array  # (6,)
    # a network, see `router_net`; (1, 1) where there is none
    net0: Array
    net1: Array
    net2: Array
    draws: Array  # (2,) 1 = actions are drawn, not the likeliest; share of servers at random


def rule(
    profile: ServeProfile,
    name: str,
    *,
    fixed: int = 255,
    batch_max: int = 16,
    mixed: bool = True,
    knob: Array | None = None,
) -> Rule:
    """A router by name. `fixed` is the tuple of routers that do not choose; mixed=False lets the
    others choose uniform widths only; `knob` are constants of `priced`, as in `lookahead.KNOBS`.
    """
    if name not in BY_NAME:
        raise UnknownName(f"router {name!r} is unknown; give one of {', '.join(BY_NAME)}")
    if fixed not in range(256):
        raise ServeError(f"fixed={fixed}: give the row of a tuple, 0..255")
    batch = np.unique(np.append([b for b in profile.buckets if b <= batch_max], batch_max))
    time_s = np.array([tuple_s(profile, int(count)) for count in batch]).T  # (256, B)
    rows = front(profile, batch_max) if mixed else np.array([0, 85, 170, 255])
    rows = np.array([fixed]) if name == "fixed" else rows
    chosen = int(rows[0]) if name == "slimmest" else fixed
    return Rule(
        router=np.array([BY_NAME[name]]),
        fixed=np.array([chosen]),
        tuples=rows,
        batch=batch.astype(np.int64),
        time_s=np.ascontiguousarray(time_s[rows]),
        cost_s=(time_s[rows] / batch).min(axis=1),
        **ahead(profile, rows, batch_max, knob)._asdict(),
        net0=np.zeros((1, 1)),
        net1=np.zeros((1, 1)),
        net2=np.zeros((1, 1)),
        draws=np.zeros(2),
    )


def with_net(made: Rule, router: int, net: tuple[Array, Array, Array]) -> Rule:
    """The rule that a network steers (PRICED), or that it is all of (HEADS)."""
    one, two, three = (np.ascontiguousarray(weight, np.float64) for weight in net)
    return made._replace(router=np.array([router]), net0=one, net1=two, net2=three)


@inner
def queue_s(f, c, s):
    """How long a server's queue is, a worker, in its own time."""
    server = f.server[c * f.conf[0]["servers"] + s]
    waits = server["waiting"] + server["coming"] + server["busy"]
    return waits / (server["speed"] * server["workers"])


@inner
def shortest(f, c):
    """The server with the shortest queue for its speed; the fastest of equals."""
    best = 0
    for s in range(1, f.conf[0]["servers"]):
        if queue_s(f, c, s) < queue_s(f, c, best):
            best = s
        elif queue_s(f, c, s) == queue_s(f, c, best):
            base = c * f.conf[0]["servers"]
            if f.server[base + s]["speed"] > f.server[base + best]["speed"]:
                best = s
    return best


@inner
def fastest_idle(f, c):
    """The fastest server with a worker free and nothing waiting, or HOLD."""
    best, best_speed = HOLD, 0.0
    for s in range(f.conf[0]["servers"]):
        server = f.server[c * f.conf[0]["servers"] + s]
        idle = server["busy"] < server["workers"] and server["waiting"] + server["coming"] == 0
        if idle and server["speed"] > best_speed:
            best, best_speed = s, server["speed"]
    return best


@inner
def top_speed(f):
    best = 0.0
    for s in range(f.server_new.shape[0]):
        best = max(best, f.server_new[s]["speed"])
    return best


@inner
def max_accuracy(rules, slack_s, count):
    """(choice, batch): SuperServe's MaxAcc. The slimmest tuple where nothing fits."""
    choice = 0
    for k in range(len(rules.tuples)):
        if rules.time_s[k, 0] <= slack_s:
            choice = k
    group = 1
    for b in range(len(rules.batch)):
        if rules.time_s[choice, b] <= slack_s:
            group = rules.batch[b]
    return choice, min(group, count)


@inner
def max_batch(rules, slack_s, count):
    """(choice, batch): SuperServe's MaxBatch."""
    at = 0
    for b in range(len(rules.batch)):
        wanted = b == 0 or rules.batch[b - 1] < count
        if wanted and rules.time_s[0, b] <= slack_s:
            at = b
    choice = 0
    for k in range(len(rules.tuples)):
        if rules.time_s[k, at] <= slack_s:
            choice = k
    return choice, min(rules.batch[at], count)


@inner
def slack_fit(rules, slack_s, count):
    """(choice, batch): the highest step of latency under the slack, there the largest batch.

    SlackFit of SuperServe (Khare et al., NSDI 2025): latencies fall into even steps; a step stands
    for its largest batch, of equals the most accurate tuple. Long slack so buys accuracy, short
    slack throughput. Differs: no batch is planned beyond what waits.
    """
    least_s, most_s = rules.time_s[0, 0], rules.time_s[-1, -1]
    best_step, best_b, choice = -1, 0, 0
    for k in range(len(rules.tuples)):
        for b in range(len(rules.batch)):
            time_s = rules.time_s[k, b]
            wanted = b == 0 or rules.batch[b - 1] < count
            if wanted and time_s <= slack_s:
                part = (time_s - least_s) / max(most_s - least_s, 1e-12)
                step = min(int(part * STEPS), STEPS - 1)
                if step > best_step or (step == best_step and b >= best_b):
                    best_step, best_b, choice = step, b, k
    return choice, min(rules.batch[best_b], count)


@inner
def keeps_up(f, c, rules):
    """The most accurate tuple whose cost the fleet can pay at the present rate of arrivals."""
    fleet, servers = f.fleet[c], f.conf[0]["servers"]
    rate_hz = fleet["come_hz"] / max(1 - np.exp(-fleet["now_s"] / RATE_WINDOW_S), 0.1)
    power = 0.0  # seconds of the profile a second
    for v in range(c * servers, (c + 1) * servers):
        power += f.server[v]["speed"] * f.server[v]["workers"]
    choice = 0
    for k in range(len(rules.tuples)):
        if rules.cost_s[k] * rate_hz <= HEADROOM * power:
            choice = k
    return choice


@inner
def choose_new(f, c, rules):
    """(server, tuple, group) for requests at the first segment."""
    router, fleet, servers = rules.router[0], f.fleet[c], f.conf[0]["servers"]
    line = f.pending[c, fleet["head"]]
    if router == ROUND:
        fleet["turn"] += 1
        return (fleet["turn"] - 1) % servers, rules.fixed[0], 1
    if router == TWO:
        one, two = drawn(fleet, servers), drawn(fleet, servers)
        chosen = two if queue_s(f, c, two) < queue_s(f, c, one) else one
        return chosen, rules.fixed[0], 1
    if router in (JSQ, SLIMMEST):
        return shortest(f, c), rules.fixed[0], 1
    if router == RATE:
        return shortest(f, c), rules.tuples[keeps_up(f, c, rules)], 1
    server = fastest_idle(f, c)
    if server == HOLD:
        return HOLD, NONE, 0
    v = c * servers + server
    left_s = f.request[line["first"]]["deadline_s"] - fleet["now_s"] - way_s(f, line["first"], v)
    # what is lost even alone and at its slimmest only delays the others
    if f.conf[0]["drop_late"] and left_s * top_speed(f) < rules.time_s[0, 0]:
        return DROP, NONE, 1
    if router == PRICED:
        return look_ahead(f, c, rules, server)
    slack_s = left_s * f.server[v]["speed"]  # in the profile's time
    if router == ACCURATE:
        choice, group = max_accuracy(rules, slack_s, line["count"])
    elif router in (BATCH, FIXED):
        choice, group = max_batch(rules, slack_s, line["count"])
    else:
        choice, group = slack_fit(rules, slack_s, line["count"])
    return server, rules.tuples[choice], group


@inner
def alike(f, c):
    """How many, from the head on, came from one server with one plan: a batch that ended."""
    request = f.pending[c, f.fleet[c]["head"]]["first"]
    server, plan = f.request[request]["server"], f.request[request]["plan"]
    count = 0
    while request != NONE:
        if f.request[request]["server"] != server or f.request[request]["plan"] != plan:
            break
        count += 1
        request = f.after[request]
    return count


@inner
def choose(f, c, rules):
    """(server, width, group, plan) for the head of a fleet."""
    fleet, servers = f.fleet[c], f.conf[0]["servers"]
    if rules.router[0] == RANDOM:
        server, width = drawn(fleet, servers), drawn(fleet, 4)
        return server, width, GROUPS[drawn(fleet, len(GROUPS))], NONE
    if rules.router[0] == HEADS:
        server, width, place = act(f, c, rules, np.empty(SIGHTS + SIGHTS_SERVER * servers))
        return server, width, GROUPS[place], NONE
    segment = fleet["head"] // 4
    if segment > 0:
        row = f.request[f.pending[c, fleet["head"]]["first"]]
        width = row["plan"] // 4 ** (3 - segment) % 4
        return row["server"] - c * servers, width, alike(f, c), row["plan"]
    server, plan, group = choose_new(f, c, rules)
    return server, plan // 64, group, plan


@compiled(parallel=True)
def run_all(f, rules):
    for c in prange(f.heap.shape[0]):
        while f.conf[0]["halt"] == 0 and advance(f, c) != NONE:
            server, width, group, plan = choose(f, c, rules)
            route(f, c, server, width, group, plan)


def run(f: Fleets, rules: Rule) -> None:
    """Run every fleet to its end, in parallel; read the sums with `fleet_state.totals`."""
    if (f.fleet["now_s"] > 0).any():
        raise ServeError("the fleets have run already; call begin first")
    interruptible(run_all, f, rules, halt=lambda: f.conf["halt"].fill(1))
