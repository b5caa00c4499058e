"""A simulated fleet of servers that answers requests segment by segment: events, compiled.

Every request waits at the front until a router says which server runs its next segment, at which
width, and how many like requests go with it; the server's greedy executor does the rest. A router
is asked at arrivals, at segment boundaries and, if it held the head back, at every event. One
engine serves whole runs (`routers.run`) and a learner that steps many fleets at once (`step`).

Assumed: a batch takes the profile's time over the server's speed, times a ratio drawn from
`spread`; batches on other workers do not slow it down; loading takes no worker; moving between
machines costs hop_s and hand_over_s a megabyte; the answer's way back is free; power is linear in
the share of workers busy.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from trimtab.arrays import Array
from trimtab.compiled import compiled, inner
from trimtab.errors import ServeError
from trimtab.serving.net.serve_profile import batch_s
from trimtab.serving.nouns import SEGMENTS
from trimtab.serving.routing.fleet_state import (
    ANSWERED,
    LATE,
    LINES,
    REFUSED,
    Fleets,
    drawn,
    pop,
    push,
)
from trimtab.serving.routing.greedy import (
    BUSY,
    EARLY,
    KEYS,
    LOADING,
    NONE,
    RUN,
    WAIT,
    append,
    become_free,
    decide,
    drop_instance,
    enqueue,
    idle_instance,
    load_instance,
    quiet_until,
    run_batch,
    take,
    util_at,
)

HOLD, DROP = -1, -2  # for a server: ask again at the next event; give the head up
SIGHTS, SIGHTS_SERVER = 5, 3  # numbers a router sees of the fleet, and of each server
RATE_WINDOW_S = 1.0  # time constant of smoothed rates
FAST = 10.0  # the quick rate of arrivals forgets as many times sooner


@inner
def smoothed(rate_hz, since_s):
    """A smoothed rate after a time without events."""
    return rate_hz * np.exp(-since_s / RATE_WINDOW_S)


@inner
def end(f, c, request, outcome):
    """Close a request, once."""
    fleet, row = f.fleet[c], f.request[request]
    row["outcome"], row["done_s"] = outcome, fleet["now_s"]
    if outcome == REFUSED:
        fleet["refused"] += 1
    elif outcome == LATE:
        fleet["late"] += 1
    else:
        right = f.accuracy[row["widths"]]
        fleet["answered"] += 1
        fleet["latency_s"] += fleet["now_s"] - row["arrival_s"]
        fleet["accuracy"] += right
        if fleet["now_s"] <= row["deadline_s"] + EARLY:
            fleet["in_time"] += 1
            fleet["good"] += right
        since_s = fleet["now_s"] - fleet["done_s"]
        fleet["done_hz"] = smoothed(fleet["done_hz"], since_s) + 1 / RATE_WINDOW_S
        fleet["done_s"] = fleet["now_s"]


@inner
def too_late(f, c, request):
    passed = f.fleet[c]["now_s"] > f.request[request]["deadline_s"]
    return f.conf[0]["drop_late"] and passed


@inner
def wait_at_front(f, c, request):
    row = f.request[request]
    append(f.pending[c, row["segment"] * 4 + row["before"]], f.after, request)
    f.fleet[c]["pending"] += 1


@inner
def finish_batch(f, c, v, i):
    """Hand the requests of a batch back to the front, or answer them."""
    instance, server = f.instance[v, i], f.server[v]
    spent_s = instance["until_s"] - instance["last_s"]
    power_w = (server["busy_w"] - server["idle_w"]) / server["workers"]
    request = instance["first"]
    while request != NONE:
        following = f.after[request]
        row = f.request[request]
        row["widths"] = row["widths"] * 4 + instance["width"]
        row["before"] = instance["width"]
        row["energy_j"] += power_w * spent_s / instance["count"]
        row["segment"] += 1
        if row["segment"] == SEGMENTS:
            end(f, c, request, ANSWERED)
        else:
            wait_at_front(f, c, request)
        request = following


@inner
def serve(f, c, v):
    """Let a server begin what it can, and note when it changes by itself."""
    now_s, server = f.fleet[c]["now_s"], f.server[v]
    f.stale[v] = 0
    while True:
        what, key, i = decide(f, v, now_s)
        if what == WAIT:
            break
        line = f.lines[v, key]
        gone = 0
        while line["count"] > 0 and too_late(f, c, line["first"]):
            end(f, c, take(line, f.after), LATE)
            server["waiting"] -= 1
            gone += 1
        if gone:
            continue  # another key may be at the head now
        instance = f.instance[v, i]
        if what == RUN:
            count = min(line["count"], f.knobs[0]["batch_max"])
            before, width = instance["before"], instance["width"]
            spent_s = batch_s(f.time_s, f.buckets, instance["segment"], before, width, count)
            spent_s *= f.spread[drawn(f.fleet[c], len(f.spread)) if len(f.spread) > 1 else 0]
            instance["last_s"] = now_s
            run_batch(f, v, key, i, now_s, now_s + spent_s / server["speed"])
        else:
            wait_s = f.load_s[key // 16, key // 4 % 4, key % 4] / server["speed"]
            load_instance(f, v, key, i, now_s, now_s + wait_s)
    next_s = quiet_until(f, v, now_s)
    for i in range(f.instance.shape[1]):
        if f.instance[v, i]["state"] == BUSY or f.instance[v, i]["state"] == LOADING:
            next_s = min(next_s, f.instance[v, i]["until_s"])
    f.next_s[v] = next_s


@inner
def wake(f, c, v):
    """What has ended on a server by now."""
    now_s = f.fleet[c]["now_s"]
    for i in range(f.instance.shape[1]):
        instance = f.instance[v, i]
        busy = instance["state"] == BUSY
        if (busy or instance["state"] == LOADING) and instance["until_s"] <= now_s + EARLY:
            if busy:
                finish_batch(f, c, v, i)
            become_free(f, v, i, now_s)
    i = idle_instance(f, v, now_s)
    while i != NONE:
        drop_instance(f, v, i)
        i = idle_instance(f, v, now_s)
    f.stale[v] = 1


@inner
def pass_time(f, c, until_s):
    """Move the clock, and charge every server's power for the time once."""
    fleet, servers = f.fleet[c], f.conf[0]["servers"]
    spent_s = until_s - fleet["now_s"]
    total, square, power_w = 0.0, 0.0, 0.0
    for v in range(c * servers, (c + 1) * servers):
        server = f.server[v]
        share = server["busy"] / server["workers"]
        total += share
        square += share * share
        power_w += server["idle_w"] + share * (server["busy_w"] - server["idle_w"])
    fleet["energy_j"] += power_w * spent_s
    fleet["imbalance_s"] += max(square / servers - (total / servers) ** 2, 0.0) * spent_s
    fleet["now_s"] = until_s


@inner
def count_arrival(f, c):
    """Note that a request has come: the rates that rules read."""
    fleet = f.fleet[c]
    since_s = fleet["now_s"] - fleet["come_s"]
    fleet["come_hz"] = smoothed(fleet["come_hz"], since_s) + 1 / RATE_WINDOW_S
    fleet["fast_hz"] = smoothed(fleet["fast_hz"], FAST * since_s) + FAST / RATE_WINDOW_S
    fleet["come_s"] = fleet["now_s"]
    fleet["arrived"] += 1


@inner
def arrive(f, c, request):
    count_arrival(f, c)
    if f.fleet[c]["pending"] >= f.conf[0]["fifo_max"]:
        end(f, c, request, REFUSED)
    else:
        wait_at_front(f, c, request)


@inner
def head_line(f, c):
    """The line to route next: those furthest on first, as work is in them, then the oldest."""
    best, best_s = NONE, np.inf
    for line in range(LINES - 1, -1, -1):
        if best != NONE and line // 4 < best // 4:
            break
        if f.pending[c, line]["count"] > 0:
            came_s = f.request[f.pending[c, line]["first"]]["arrival_s"]
            if came_s < best_s:
                best, best_s = line, came_s
    return best


@inner
def next_moment(f, c):
    """When anything happens next in a fleet that still has open requests; inf = never."""
    fleet, servers, requests = f.fleet[c], f.conf[0]["servers"], f.conf[0]["requests"]
    closed = fleet["answered"] + fleet["refused"] + fleet["late"]
    if closed == requests:
        return np.inf
    found_s = np.inf
    if fleet["arrived"] < requests:
        found_s = f.request[c * requests + fleet["arrived"]]["arrival_s"]
    if fleet["moving"] > 0:
        found_s = min(found_s, f.request[f.heap[c, 0]]["ready_s"])
    for v in range(c * servers, (c + 1) * servers):
        found_s = min(found_s, f.next_s[v])
    return found_s


@inner
def happen(f, c):
    """Everything that happens at this very moment."""
    fleet, servers, requests = f.fleet[c], f.conf[0]["servers"], f.conf[0]["requests"]
    soon_s = fleet["now_s"] + EARLY
    for v in range(c * servers, (c + 1) * servers):
        if f.next_s[v] <= soon_s:
            wake(f, c, v)
    while fleet["moving"] > 0 and f.request[f.heap[c, 0]]["ready_s"] <= soon_s:
        request = pop(f, c)
        row = f.request[request]
        f.server[row["server"]]["coming"] -= 1
        enqueue(f, row["server"], request, row["segment"], row["before"], row["asked"])
        f.stale[row["server"]] = 1
    while fleet["arrived"] < requests:
        request = c * requests + fleet["arrived"]
        if f.request[request]["arrival_s"] > soon_s:
            break
        arrive(f, c, request)


@inner
def give_up(f, c):
    """Refuse what is open when nothing will happen any more: held back, or no room to load."""
    servers = f.conf[0]["servers"]
    for at in range(LINES):
        while f.pending[c, at]["count"] > 0:
            f.fleet[c]["pending"] -= 1
            end(f, c, take(f.pending[c, at], f.after), REFUSED)
    for v in range(c * servers, (c + 1) * servers):
        for key in range(KEYS):
            while f.lines[v, key]["count"] > 0:
                f.server[v]["waiting"] -= 1
                end(f, c, take(f.lines[v, key], f.after), REFUSED)


@inner
def advance(f, c):
    """Go on until a router is needed: the line to route, or NONE when every request is closed."""
    fleet, servers = f.fleet[c], f.conf[0]["servers"]
    while True:
        if fleet["pending"] > 0 and not fleet["held"]:
            head = head_line(f, c)
            request = f.pending[c, head]["first"]
            if not too_late(f, c, request):
                break
            fleet["pending"] -= 1
            end(f, c, take(f.pending[c, head], f.after), LATE)
            continue
        for v in range(c * servers, (c + 1) * servers):
            if f.stale[v]:
                serve(f, c, v)
        until_s = next_moment(f, c)
        fleet["held"] = 0
        if until_s == np.inf:
            give_up(f, c)
            head = NONE
            break
        pass_time(f, c, max(until_s, fleet["now_s"]))
        happen(f, c)
    fleet["head"] = head
    return head


@inner
def way_s(f, request, v):
    """Seconds that a request's tensor takes to a server."""
    row = f.request[request]
    if row["server"] == v:
        return 0.0
    conf = f.conf[0]
    return conf["hop_s"] + conf["hand_over_s"] * f.input_mb[row["segment"], row["before"]]


@inner
def route(f, c, server, width, group, plan):
    """Send up to `group` requests of the head's line to a server, or HOLD or DROP the head."""
    fleet, conf = f.fleet[c], f.conf[0]
    if server == HOLD:
        fleet["held"] = 1
        return
    line = f.pending[c, fleet["head"]]
    if server == DROP:
        fleet["pending"] -= 1
        end(f, c, take(line, f.after), LATE)
        return
    v = c * conf["servers"] + server
    for _ in range(min(group, line["count"])):
        request = take(line, f.after)
        row = f.request[request]
        fleet["pending"] -= 1
        if too_late(f, c, request):
            end(f, c, request, LATE)
            continue
        waits = f.server[v]["waiting"] + f.server[v]["coming"]
        # not further on: there work would be lost
        if row["segment"] == 0 and waits >= conf["queue_max"]:
            end(f, c, request, REFUSED)
            continue
        away_s = way_s(f, request, v)
        row["asked"], row["plan"], row["server"] = width, plan, v
        if away_s > 0:
            row["ready_s"] = fleet["now_s"] + away_s
            f.server[v]["coming"] += 1
            push(f, c, request)
        else:
            enqueue(f, v, request, row["segment"], row["before"], width)
            f.stale[v] = 1
    if f.stale[v]:  # now, not when all are routed: what is sent together runs together
        serve(f, c, v)


@inner
def observe(f, c, out):
    """What a learned router sees: log queue lengths, rates and power as shares, slack in s."""
    fleet, servers = f.fleet[c], f.conf[0]["servers"]
    now_s = fleet["now_s"]
    out[:] = 0.0
    out[0] = np.log1p(fleet["pending"])
    out[1] = smoothed(fleet["done_hz"], now_s - fleet["done_s"]) / f.conf[0]["scale_hz"]
    if fleet["head"] != NONE:
        out[2] = fleet["head"] // 4 / SEGMENTS
        out[3] = (fleet["head"] % 4 + 1) / 4 if fleet["head"] >= 4 else 0.0
        out[4] = f.request[f.pending[c, fleet["head"]]["first"]]["deadline_s"] - now_s
    for s in range(servers):
        server = f.server[c * servers + s]
        at = SIGHTS + SIGHTS_SERVER * s
        share = server["busy"] / server["workers"]
        idle = server["idle_w"] / server["busy_w"] if server["busy_w"] > 0 else 0.0
        out[at] = np.log1p(server["waiting"] + server["coming"])
        out[at + 1] = idle + share * (1 - idle)
        out[at + 2] = util_at(server, f.knobs[0]["util_window_s"], now_s)


@compiled(parallel=True)
def first_all(f, seen, done):
    for c in prange(seen.shape[0]):
        done[c] = advance(f, c) == NONE
        observe(f, c, seen[c])


@compiled(parallel=True)
def step_all(f, actions, seen, done):
    for c in prange(seen.shape[0]):
        if not done[c]:
            route(f, c, actions[c, 0], actions[c, 1], max(actions[c, 2], 1), NONE)
            done[c] = advance(f, c) == NONE
        observe(f, c, seen[c])


def first(f: Fleets) -> tuple[Array, Array]:
    """Go to every fleet's first decision: what is seen (C, SIGHTS + SIGHTS_SERVER * S), done."""
    count, servers = len(f.fleet), int(f.conf[0]["servers"])
    seen, done = np.zeros((count, SIGHTS + SIGHTS_SERVER * servers)), np.zeros(count, np.bool_)
    first_all(f, seen, done)
    return seen, done


def step(f: Fleets, actions: Array, seen: Array, done: Array) -> None:
    """Route the head of every fleet by (C, 3) server, width, group, and go on to the next decision.

    `seen` and `done` are overwritten. A reward is a change in the sums of `f.fleet`.
    """
    actions = np.ascontiguousarray(actions, np.int64)
    low, high = (DROP, 0, 1), (int(f.conf[0]["servers"]) - 1, 3, 1 << 40)
    if actions.shape != (len(f.fleet), 3) or (actions < low).any() or (actions > high).any():
        raise ServeError(
            f"actions of shape {actions.shape}: give ({len(f.fleet)}, 3) with server "
            f"{DROP}..{high[0]}, width 0..3, group 1 or more"
        )
    step_all(f, actions, seen, done)
