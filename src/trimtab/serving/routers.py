"""Rules that route requests in a fleet, compiled, and the bound that none of them can pass.

Rules see what a live router could: queues, rates, the head's slack and the profile. All but
`random` choose a tuple of widths for a request's whole way when it comes and keep it on one server.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import prange

from trimtab.core import Array
from trimtab.errors import ServeError, UnknownName
from trimtab.rules.world import compiled, inner
from trimtab.serving.fleet_sim import DROP, HOLD, RATE_WINDOW_S, advance, route, way_s
from trimtab.serving.fleet_state import Fleets
from trimtab.serving.greedy import NONE
from trimtab.serving.serve_profile import ServeProfile, batch_s, front, tuple_s
from trimtab.serving.slim_form import TUPLES

RANDOM, ROUND, JSQ, TWO, ACCURATE, BATCH, SLACK, RATE, SLIMMEST, FIXED = range(10)
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
    "fixed": FIXED,  # max_batch with a single tuple
}
GROUPS = np.array([1, 2, 4, 8, 16, 32])
STEPS = 8  # of latency, for slack_fit
SLIP_S = 1e-6  # the engine's clock may be off by less
FOREVER_S = 1e9  # an endless objective, as a number a solver can take
HEADROOM = 0.9  # share of the capacity that `rate` plans to use


class Rule(NamedTuple):
    """A router as compiled code reads it."""

    router: Array  # (1,) one of the numbers above
    fixed: Array  # (1,) row of the tuple for routers that do not choose
    tuples: Array  # (K,) rows to choose from, fastest first: accuracy rises with time
    batch: Array  # (B,) batch sizes
    time_s: Array  # (K, B) of a batch through all segments
    cost_s: Array  # (K,) a request, in the best batch


def rule(
    profile: ServeProfile, name: str, *, fixed: int = 255, batch_max: int = 16, mixed: bool = True
) -> Rule:
    """A router by name. `fixed` is the tuple of routers that do not choose; mixed=False lets the
    others choose uniform widths only.
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
    )


@inner
def drawn(fleet, count):
    """A number below count (splitmix64 on the fleet's own state)."""
    fleet["draw"] += np.uint64(0x9E3779B97F4A7C15)
    z = np.uint64(fleet["draw"])
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.int64((z ^ (z >> np.uint64(31))) % np.uint64(count))


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
        while advance(f, c) != NONE:
            server, width, group, plan = choose(f, c, rules)
            route(f, c, server, width, group, plan)


def run(f: Fleets, rules: Rule) -> None:
    """Run every fleet to its end, in parallel; read the sums with `fleet_state.totals`."""
    if (f.fleet["now_s"] > 0).any():
        raise ServeError("the fleets have run already; call begin first")
    run_all(f, rules)


def least_s(profile: ServeProfile, batch_max: int, each: bool) -> Array:
    """(256,) seconds below which no batch goes through a tuple's segments; each = a request of it.

    Every segment is taken at the batch size that is best for it alone.
    """
    counts, buckets = range(1, batch_max + 1), np.asarray(profile.buckets, np.int64)
    table = np.empty(profile.time_s.shape[:3])
    for place in np.ndindex(*table.shape):
        taken_s = [batch_s(profile.time_s, buckets, *place, n) for n in counts]
        table[place] = min(t / n for t, n in zip(taken_s, counts)) if each else min(taken_s)
    return np.array(
        [
            sum(table[s, widths[s - 1] if s else 0, w] for s, w in enumerate(widths))
            for widths in TUPLES
        ]
    )


def bound(f: Fleets, profile: ServeProfile, c: int = 0, windows: int = 24) -> float:
    """The most that any router, knowing all arrivals, can reach of `Totals.good` in a fleet.

    Proof. Let requests be cut by arrival into groups, and let some schedule answer y[g, k] requests
    of group g in time with tuple k. (1) Charge every member of a batch its even share of the
    batch's worker time. A batch of n takes t(n) seconds of the profile, n <= batch_max, so a member
    is charged t(n) / n, and over its segments at least cost[k], the sum of each segment's least
    t(n) / n. (2) A request that is in time runs between its arrival and its deadline, so all that
    groups i..j are charged lies between the first arrival and the last deadline of theirs. Servers
    give no more in that span than its length x the sum of workers x speed. (3) A group answers no
    more requests than it has, and none by a tuple whose least latency, at the greatest speed and
    with the first way from the front, passes the group's longest objective. The linear programme
    below maximises the sum of accuracy[k] y[g, k] under (1) to (3) alone, over real numbers: every
    schedule is a point of it, so none is worth more. It ignores queues, loading, memory and hops.
    """
    from scipy.optimize import linprog

    size = int(f.conf[0]["requests"])
    rows = f.request[c * size : (c + 1) * size]
    parts = np.array_split(rows, min(windows, size))
    cost_s, latency_s, right = _useful(profile, int(f.knobs[0]["batch_max"]))
    first_way_s = f.conf[0]["hop_s"] + f.conf[0]["hand_over_s"] * f.input_mb[0].min()
    fastest_s = latency_s / f.server_new["speed"].max() + first_way_s
    most: list[int] = []
    for part in parts:
        longest_s = (part["deadline_s"] - part["arrival_s"]).max() + SLIP_S
        most += [len(part) if least <= longest_s else 0 for least in fastest_s]
    charged, given_s = _spans(
        parts, cost_s, (f.server_new["speed"] * f.server_new["workers"]).sum()
    )
    counted = np.kron(np.eye(len(parts)), np.ones(len(cost_s)))
    found = linprog(
        -np.tile(right, len(parts)),
        A_ub=np.vstack((charged, counted)),
        b_ub=np.append(given_s, [len(part) for part in parts]),
        bounds=[(0, limit) for limit in most],
    )
    if found.status != 0:
        raise ServeError(f"the bound was not found: {found.message}; try windows=1")
    return float(-found.fun / size)


def _useful(profile: ServeProfile, batch_max: int) -> tuple[Array, Array, Array]:
    """(cost_s, latency_s, accuracy) of the tuples that no other beats in all three."""
    cost_s, latency_s = least_s(profile, batch_max, True), least_s(profile, batch_max, False)
    kept: list[int] = []
    for k in np.lexsort((-profile.accuracy, latency_s, cost_s)):
        better = (profile.accuracy[kept] >= profile.accuracy[k]) & (latency_s[kept] <= latency_s[k])
        if not better.any():
            kept.append(int(k))
    return cost_s[kept], latency_s[kept], profile.accuracy[kept]


def _spans(parts: list[Array], cost_s: Array, power: float) -> tuple[Array, Array]:
    """A row for every run of groups i..j: what they are charged, and what servers give them."""
    charged, given_s = [], []
    for i in range(len(parts)):
        last_s = -np.inf
        for j in range(i, len(parts)):
            last_s = max(last_s, parts[j]["deadline_s"].max())
            span_s = min(last_s - parts[i]["arrival_s"].min() + SLIP_S, FOREVER_S)
            row = np.zeros((len(parts), len(cost_s)))
            row[i : j + 1] = cost_s
            charged.append(row.ravel())
            given_s.append(power * span_s)
    return np.array(charged), np.array(given_s)
