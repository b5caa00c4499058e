"""Limits of regions as actions, compiled: a rule places batch jobs until the next of them is due.

Every cluster is a World of its own, so that many can play scenes of unlike size in one call.
"""

import math

import numpy as np
from numba import prange

from trimtab.arrays import Array
from trimtab.compiled import compiled, inner
from trimtab.rules import bits
from trimtab.rules.names import BACKFILLS, MOST_LIMIT
from trimtab.rules.world import World, world_at
from trimtab.sim import kernel
from trimtab.sim.lend import PART, back, mean_and_deviation, set_limit
from trimtab.sim.lending import SAME
from trimtab.sim.loop import DONE, GROW, MORE, run_conservative, run_rule
from trimtab.sim.meter import settle_node

# What is seen of a region, in -1 .. 1; shares are of the capacity of its nodes.
FEATURES = {
    "load": "load of its nodes together, at most 1",
    "top": "half the largest load of one of its nodes",
    "crowded": "share of its nodes whose services are harmed",
    "use": "share that services use by the last readings; where none is known, that they reserve",
    "mean": "the same by the mean of the readings that an estimate looks back on",
    "most": "the same by the largest of them",
    "rise": "mean of the last sixth of them less that of the sixth before",
    "reserved": "share that services reserve",
    "booked": "share that batch jobs have booked",
    "left": "share that they may book yet",
    "limit": "half the limit that stands",
    "evicted": "e / (e + batch instances here), of e evicted since the last action",
    "harm": "h / (h + 1 %), of the share h of services' use that was harmed since the last action",
    "queue": "n / (n + 100), of n waiting jobs of the whole cluster",
    "work": "t / (t + 60 s), of t seconds that the whole cluster would take for what waits",
    "clock": "t / (t + an hour), of t seconds since the first job came",
}
WIDTH = len(FEATURES)
(LOAD, TOP, CROWDED, USE, MEAN, HIGHEST, RISE, RESERVED, BOOKED, LEFT, LIMIT, EVICTED, HARM, QUEUE,
 WORK, CLOCK) = range(WIDTH)  # fmt: skip
SOME_HARM, SOME_JOBS, SOME_S, HOUR_S = 0.01, 100.0, 60.0, 3600.0
CONSERVATIVE = BACKFILLS["conservative"]
CHUNK = 1_000_000  # instants of one call of a rule
IDLE, BEGIN, ACT, RESUME = 0, 1, 2, 3  # what is to be done with a cluster
RULE = np.dtype(
    [("every_s", "f8"), ("order", "i8"), ("backfill", "i8"), ("place", "i8"), ("seed", "i8")]
)
PLAY = np.dtype(
    [
        ("world", "i8"),  # address
        ("todo", "i8"),
        ("done", "i8"),
        ("steps", "i8"),
        ("seen_s", "f8"),  # when the last action was due
        ("score", "f8"),  # the sum of the episode's rewards
        ("reward", "f8"),  # of the last action
        ("a_wait_s", "f8"),  # what a second of a job's waiting costs
        ("a_harm_s", "f8"),  # what a core-second of harm costs
    ]
)


@inner
def due_after(now_s: float, every_s: float) -> float:
    """The next multiple, which rounding must not put at or before now."""
    following = math.floor(now_s / every_s) + 1.0
    return following * every_s if following * every_s > now_s else (following + 1.0) * every_s


@inner
def waiting_s(w: World) -> float:
    """Seconds that the whole cluster would take for what waits, by its requests."""
    need = total = 0.0
    for node in range(w.head[0].nodes):
        total += w.capacity[0, node, w.nodes[0, node].driver]
    driver = w.nodes[0, 0].driver
    rank = bits.next_from(w.words, w.heads, 0, 0)
    while rank >= 0:
        job = w.line[0, rank]
        need += w.state[0, job].left * w.demand[0, job, driver] * w.jobs[0, job].request_s
        rank = bits.next_from(w.words, w.heads, 0, rank + 1)
    return need / total if total > 0.0 else 0.0


@inner
def of_readings(w: World, node: int) -> tuple[float, float, float]:
    """Mean, largest and rise of the readings of a node; what it reserves where none is known."""
    state = w.node_state[0, node]
    if state.read < 0.0:
        return state.reserved, state.reserved, 0.0
    count = min(state.reads, w.reading.shape[2])
    mean, _ = mean_and_deviation(w, 0, node, 0, count)
    most = state.read
    for i in range(1, count):
        most = max(most, back(w, 0, node, i))
    short = max(w.reading.shape[2] // PART, 1)
    if count < 2 * short:
        return mean, most, 0.0
    late, _ = mean_and_deviation(w, 0, node, 0, short)
    early, _ = mean_and_deviation(w, 0, node, short, short)
    return mean, most, late - early


@inner
def observe(w: World, seen_s: float, before: Array, out: Array) -> None:
    """Write what is seen of every region; `before` (G, 2) is harm and evictions at the last look.

    The shares of nodes are summed over their amounts first.
    """
    head, regions = w.head[0], w.limit.shape[1]
    out[:, :] = 0.0
    total, nodes, batch = np.zeros(regions), np.zeros(regions), np.zeros(regions)
    now = np.zeros((regions, 2))
    for node in range(head.nodes):
        settle_node(w, 0, node)
        state, g, driver = w.node_state[0, node], w.nodes[0, node].region, w.nodes[0, node].driver
        cap = w.capacity[0, node, driver]
        mean, most, rise = of_readings(w, node)
        total[g] += cap
        nodes[g] += 1.0
        batch[g] += state.batch
        out[g, LOAD] += state.used
        out[g, TOP] = max(out[g, TOP], state.load)
        out[g, CROWDED] += state.load > w.conf[0].crowded
        out[g, USE] += state.read if state.read >= 0.0 else state.reserved
        out[g, MEAN] += mean
        out[g, HIGHEST] += most
        out[g, RISE] += rise
        out[g, RESERVED] += state.reserved
        out[g, BOOKED] += cap - state.kept - w.free[0, node, driver]
        out[g, LEFT] += max(w.free[0, node, driver], 0.0)
        now[g, 0] += state.harm_s
        now[g, 1] += state.evicted
    waits_s, since_s = waiting_s(w), max(head.now_s - head.first_s, 0.0)
    for g in range(regions):
        harmed = (now[g, 0] - before[g, 0]) / max((head.now_s - seen_s) * out[g, USE], 1e-9)
        evicted = now[g, 1] - before[g, 1]
        for k in range(WIDTH):
            if k not in (TOP, CROWDED) and total[g] > 0.0:
                out[g, k] /= total[g]
        out[g, TOP] *= 0.5
        out[g, CROWDED] /= max(nodes[g], 1.0)
        out[g, LIMIT] = w.limit[0, g] / MOST_LIMIT
        out[g, EVICTED] = evicted / max(evicted + batch[g], 1.0)
        out[g, HARM] = harmed / (harmed + SOME_HARM)
        out[g, QUEUE] = head.waiting / (head.waiting + SOME_JOBS)
        out[g, WORK] = waits_s / (waits_s + SOME_S)
        out[g, CLOCK] = since_s / (since_s + HOUR_S)
        for k in range(WIDTH):
            out[g, k] = min(max(out[g, k], -1.0), 1.0)
        before[g, 0], before[g, 1] = now[g, 0], now[g, 1]


@inner
def prepare(w: World, c: int, every_s: float, play: Array, limits: Array, before: Array) -> None:
    """Begin an episode, or set the limits, and say when the next action is due.

    Actions are due at multiples of their interval; the first at the last before any job comes.
    """
    if play[c].todo == BEGIN:
        kernel.reset(w, 0)
        w.head[0].alarm_s = math.floor(w.head[0].first_s / every_s) * every_s
        play[c].score = play[c].seen_s = 0.0
        play[c].steps = 0
        before[c, :, :] = 0.0
    elif play[c].todo == ACT:
        for g in range(limits.shape[1]):
            if w.limit[0, g] != limits[c, g]:
                set_limit(w, 0, g, limits[c, g], SAME)
        w.head[0].alarm_s = due_after(w.head[0].now_s, every_s)
        play[c].steps += 1


@inner
def go(rule: Array, c: int, play: Array, limits: Array, before: Array, out: Array) -> None:
    """Run cluster c to its next action or to its end; where it needs room first, RESUME later."""
    on, w = rule[0], world_at(play[c].world)
    prepare(w, c, on.every_s, play, limits, before)
    code = MORE
    while code == MORE:
        if on.backfill == CONSERVATIVE:
            code = run_conservative(w, 0, on.order, on.place, on.seed, CHUNK)
        else:
            code = run_rule(w, 0, on.order, on.backfill, on.place, on.seed, CHUNK)
    if code == GROW:
        play[c].todo = RESUME
        return
    total = w.totals[0]
    harm_s = total.harmed_s - total.own_harm_s
    score = -play[c].a_wait_s * total.waiting_s - play[c].a_harm_s * harm_s
    play[c].reward, play[c].score = score - play[c].score, score
    play[c].done = code == DONE
    play[c].todo = IDLE
    observe(w, play[c].seen_s, before[c], out[c])
    play[c].seen_s = w.head[0].now_s


@compiled
def play_one(rule: Array, play: Array, limits: Array, before: Array, out: Array) -> None:
    """Go on with cluster 0."""
    go(rule, 0, play, limits, before, out)


@compiled(parallel=True)
def play_all(rule: Array, play: Array, limits: Array, before: Array, out: Array) -> None:
    """Go on with every cluster that is not idle, in parallel."""
    for c in prange(play.shape[0]):
        if play[c].todo != IDLE:
            go(rule, c, play, limits, before, out)
