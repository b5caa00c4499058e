"""A router that looks ahead: it tries prices for the fleet's time on a copy of the queue.

The best plan in the long run pays one price for every second of a worker: each batch takes the
tuple that maximises accuracy less price times time. Which price, depends on who waits, until when,
what servers do and who will come. So every price of a short list is played to the end of a short
horizon, with the requests that wait and those expected at the rate of arrivals, and the one that
answers the most wins. Its first batch is sent; everything else is played anew at the next decision.

Measured and left out, as they gained nothing: other widths at a segment boundary for a batch under
way, and holding a batch back for more requests.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.compiled import inner
from trimtab.serving.net.serve_profile import ServeProfile, tuple_s
from trimtab.serving.routing.fleet_sim import DROP, FAST, HOLD, RATE_WINDOW_S, smoothed, way_s
from trimtab.serving.routing.greedy import NONE
from trimtab.serving.routing.router_net import forward

PRICES = 11  # tried: none, and others evenly in their logarithm
CAPS = np.array([1, 2, 4, 8, 16, 32, 64])  # of a batch, tried
ITEMS = 4096  # requests looked at: waiting up to half, and expected
SPAN_MAX_S = 1.0  # of an objective, for what is expected in it
ROUNDING = 1e-6  # of sums of accuracies that are compared
SIGHTS, STEERED = 8, 3  # numbers that a network sees, and that it moves

GAIN, SHARE, MARGIN, HORIZON, END, SACRIFICE, HASTE = range(7)
KNOBS = {
    "gain": 1.0,  # of the rate of arrivals
    "share": 0.8,  # of the quick rate in it; the rest is the slow one
    "margin": 0.01,  # kept before a deadline, in objectives
    "horizon": 1.0,  # in objectives
    "end": 1.0,  # times the long-run price, for time that runs on past the horizon
    "sacrifice": 1.0,  # answers that giving up the head must win, beside its own
    "haste": 1e-3,  # accuracy that an answer one objective sooner is worth
}


class Ahead(NamedTuple):
    """Tables of the lookahead."""

    whole_s: Array  # (256, N + 1) of a batch of n through all segments
    chosen: Array  # (PRICES, N + 1) the tuple that a price asks for
    least_s: Array  # (N + 1,) of the fastest tuple
    budget_s: Array  # (H,) worker time a request, rising
    value: Array  # (H,) price of time where a request gets less than that budget
    knob: Array  # (7,) KNOBS


def ahead(profile: ServeProfile, rows: Array, batch_max: int, knob: Array | None = None) -> Ahead:
    """Tables for the tuples of `rows`."""
    whole_s = np.zeros((256, batch_max + 1))
    for count in range(1, batch_max + 1):
        whole_s[:, count] = tuple_s(profile, count)
    right = profile.accuracy[rows]
    cost_s = (whole_s[rows, 1:] / np.arange(1, batch_max + 1)).min(axis=1)
    budget_s, value = hull(cost_s, right)
    steep = value[1:] if len(value) > 1 else value  # the first is the price of no answer at all
    price = np.append(0.0, np.geomspace(steep.min() / 4, steep.max() * 2, PRICES - 1))
    gain = np.arange(batch_max + 1) * right[:, None] - price[:, None, None] * whole_s[rows]
    return Ahead(
        whole_s=whole_s,
        chosen=np.ascontiguousarray(rows[gain.argmax(axis=1)]),
        least_s=whole_s[rows].min(axis=0),
        budget_s=budget_s,
        value=value,
        knob=np.array(list(KNOBS.values()) if knob is None else knob, np.float64),
    )


def hull(cost_s: Array, right: Array) -> tuple[Array, Array]:
    """The concave hull of accuracy over cost, from nothing on: its corners' costs, and the slope
    that leads to each.
    """
    at_s, at, costs, slopes = 0.0, 0.0, [], []
    while True:
        further = (cost_s > at_s) & (right > at)
        if not further.any():
            break
        slope = np.where(further, (right - at) / np.where(further, cost_s - at_s, 1.0), -np.inf)
        best = int(np.lexsort((-cost_s, -slope))[0])
        at_s, at = float(cost_s[best]), float(right[best])
        costs.append(at_s)
        slopes.append(float(slope[best]))
    return np.array(costs), np.array(slopes)


@inner
def rates(f, c):
    """(quick, slow) smoothed arrivals a second, as of now."""
    fleet = f.fleet[c]
    since_s, age_s = fleet["now_s"] - fleet["come_s"], max(fleet["now_s"], 1e-3)
    # a young average has not seen its whole window yet
    slow = smoothed(fleet["come_hz"], since_s) / max(1 - np.exp(-age_s / RATE_WINDOW_S), 0.05)
    quick = smoothed(fleet["fast_hz"], FAST * since_s)
    return quick / max(1 - np.exp(-FAST * age_s / RATE_WINDOW_S), 0.2), slow


@inner
def price_of(rules, budget_s):
    """What a second of a worker is worth when every request gets so many."""
    for at in range(len(rules.budget_s)):
        if budget_s < rules.budget_s[at]:
            return rules.value[at]
    return 0.0


@inner
def fitting(rules, fit_s, level, group, slack_s):
    """The tuple that a price asks for, or the most accurate that fits; NONE where none does."""
    row = rules.chosen[level, group]
    if rules.whole_s[row, group] <= slack_s:
        return row
    low, high = 0, len(rules.tuples)  # fits at `low` - 1, if anywhere; does not at `high`
    while low < high:
        middle = (low + high) // 2
        if fit_s[middle, group] <= slack_s:
            low = middle + 1
        else:
            high = middle
    return rules.tuples[low - 1] if low > 0 else NONE


@inner
def weigh(f, rules, price, fit_s, most_right):
    """Fill in, for each group, the least time of a tuple and all more accurate ones, and the most
    accuracy a request less the price of its time that batches of up to so many can have.
    """
    groups = fit_s.shape[1]
    most_right[:] = 0.0
    for at in range(len(rules.tuples) - 1, -1, -1):
        row = rules.tuples[at]
        right = f.accuracy[row]
        for group in range(1, groups):
            time_s = rules.whole_s[row, group]
            gain = right - price * (time_s / group)
            most_right[group] = max(most_right[group], gain)
            if at + 1 < len(rules.tuples):
                time_s = min(time_s, fit_s[at + 1, group])
            fit_s[at, group] = time_s
    for group in range(2, groups):
        most_right[group] = max(most_right[group], most_right[group - 1])


@inner
def when_free(f, c, free_s, speed):
    """Fill in when each server has done what it was sent; returns the fleet's power."""
    servers, now_s, power = f.conf[0]["servers"], f.fleet[c]["now_s"], 0.0
    for s in range(servers):
        server = f.server[c * servers + s]
        idle = server["busy"] < server["workers"] and server["waiting"] + server["coming"] == 0
        free_s[s] = now_s if idle else max(f.free_s[c * servers + s], now_s)
        speed[s] = server["speed"]
        power += server["speed"] * server["workers"]
    return power


@inner
def foresee(f, c, knob, rate_hz, came_s, due_s):
    """Fill in who waits and who is expected: how many wait, how many there are, their objective."""
    now_s, line = f.fleet[c]["now_s"], f.pending[c, 0]
    waiting, span_s = min(line["count"], ITEMS // 2), SPAN_MAX_S
    request = line["first"]
    for i in range(waiting):
        row = f.request[request]
        came_s[i], due_s[i] = now_s, row["deadline_s"]
        span_s = min(row["deadline_s"] - row["arrival_s"], SPAN_MAX_S)
        request = f.after[request]
    count = waiting + min(int(rate_hz * knob[HORIZON] * span_s), ITEMS - waiting)
    for i in range(waiting, count):
        came_s[i] = now_s + (i - waiting + 0.5) / rate_hz
        due_s[i] = came_s[i] + span_s
    return waiting, count, span_s


@inner
def steer(f, c, rules, knob):
    """Let a network move the knobs; returns the rate to plan for."""
    quick_hz, slow_hz = rates(f, c)
    knob[:] = rules.knob
    if rules.net2.shape[0] == STEERED:
        seen, out, head = np.empty(SIGHTS), np.empty(STEERED), f.pending[c, 0]
        scale_hz, now_s, servers = f.conf[0]["scale_hz"], f.fleet[c]["now_s"], f.conf[0]["servers"]
        row = f.request[head["first"]]
        span_s = min(row["deadline_s"] - row["arrival_s"], SPAN_MAX_S)
        busy_s = 0.0
        for v in range(c * servers, (c + 1) * servers):
            busy_s += max(f.free_s[v] - now_s, 0.0)
        seen[0] = np.log1p(head["count"]) - 1.0
        seen[1] = np.log(max(quick_hz / scale_hz, 1e-2))
        seen[2] = np.log(max(slow_hz / scale_hz, 1e-2))
        seen[3] = seen[1] - seen[2]
        seen[4] = 1.0 - (row["deadline_s"] - now_s) / span_s
        seen[5] = busy_s / (servers * span_s)
        seen[6] = np.log(max(scale_hz * span_s, 1e-2)) - 2.0
        seen[7] = f.server[c * servers + servers - 1]["speed"]
        forward(rules, seen, out)
        knob[GAIN] *= np.exp(0.5 * np.tanh(out[0]))
        knob[END] *= np.exp(np.tanh(out[1]))
        knob[SHARE] = min(max(knob[SHARE] + 0.5 * np.tanh(out[2]), 0.0), 1.0)
    return knob[GAIN] * (knob[SHARE] * quick_hz + (1 - knob[SHARE]) * slow_hz)


@inner
def play(f, rules, fit_s, level, most, came_s, due_s, at, count, free_s, speed, end_s, price,
         margin_s, haste, each, pace_hz, enough):  # fmt: skip
    """(accuracy answered in time from request `at` on, less the price of what runs on past the
    end; the largest batch). `free_s` is overwritten.

    Gives up with -inf when it cannot come to `enough` any more: as time past the end has its price,
    n requests bring no more than the price of the time until then and n times `each`; answered
    at `pace_hz` at most, they are so much too soon.
    """
    total, widest, servers, top = 0.0, 0, len(free_s), speed.max()
    left_s, ready, least_s = 0.0, at, rules.least_s[1]
    for s in range(servers):
        left_s += max(end_s - free_s[s], 0.0) * speed[s]
    while at < count:
        v = 0
        for s in range(1, servers):
            if free_s[s] < free_s[v]:
                v = s
        soon_s = max(end_s - free_s[v], 0.0)
        spare = haste * soon_s * min(float(count - at), pace_hz * soon_s / 2)
        if total + left_s * price + (count - at) * each + spare < enough:
            return -np.inf, widest
        now_s = max(free_s[v], came_s[at])
        if now_s == np.inf:
            break
        for s in range(servers):
            if free_s[s] <= now_s and speed[s] > speed[v]:
                v = s
        slack_s = due_s[at] - now_s - margin_s
        if slack_s * top < least_s:
            at += 1
            while at < count and came_s[at] <= now_s:
                if (due_s[at] - now_s - margin_s) * top >= least_s:
                    break
                at += 1
            continue
        slack_s *= speed[v]
        left_s -= max(end_s - free_s[v], 0.0) * speed[v]
        if slack_s < least_s:
            free_s[v] = np.inf  # too slow for this one, and so for those behind it
            continue
        ready = max(ready, at + 1)  # time only goes on: who has come stays so
        while ready < count and ready < at + most and came_s[ready] <= now_s:
            ready += 1
        group = min(ready - at, most)
        while rules.least_s[group] > slack_s:
            group -= 1
        row = fitting(rules, fit_s, level, group, slack_s)
        free_s[v] = now_s + rules.whole_s[row, group] / speed[v]
        total += group * (f.accuracy[row] - haste * (free_s[v] - end_s))
        total -= price * max(free_s[v] - max(now_s, end_s), 0.0) * speed[v]
        left_s += max(end_s - free_s[v], 0.0) * speed[v]
        widest = max(widest, group)
        at += group
    return total, widest


@inner
def hopeless(f, c, rules, server, due_s, waiting, free_s, speed):
    """What becomes of a head that this server cannot answer in time: kept for another that can,
    given up, or answered late together with others as late.
    """
    for s in range(len(speed)):
        if s != server and (due_s[0] - free_s[s]) * speed[s] >= rules.least_s[1]:
            return HOLD, NONE, 0
    if f.conf[0]["drop_late"]:
        return DROP, NONE, 1
    group, most = 1, min(waiting, len(rules.least_s) - 1)
    while group < most and (due_s[group] - free_s[server]) * speed[server] < rules.least_s[1]:
        group += 1
    f.free_s[c * len(speed) + server] = free_s[server] + rules.least_s[group] / speed[server]
    return server, rules.tuples[0], group


@inner
def same_before(rules, level, most):
    """How many group sizes, from 1 on, get the same tuple from a price and from the one below."""
    count = 0
    if level > 0:
        while count < most and rules.chosen[level, count + 1] == rules.chosen[level - 1, count + 1]:
            count += 1
    return count


@inner
def top_pace_hz(rules, speed):
    """Requests a second that the fleet answers at most."""
    best = 0.0
    for group in range(1, len(rules.least_s)):
        best = max(best, group / rules.least_s[group])
    return best * speed.sum()


@inner
def worth_trying(rules, waiting, slack_s):
    """How many of CAPS give the head a batch that can be answered in time."""
    most, caps = len(rules.least_s) - 1, 0
    while caps < len(CAPS) and rules.least_s[min(waiting, CAPS[caps], most)] <= slack_s:
        caps += 1
        if CAPS[caps - 1] >= most:
            break
    return caps


@inner
def look_ahead(f, c, rules, server):
    """(server, tuple, group) for the head, at a server that is idle; DROP gives the head up."""
    servers, now_s = f.conf[0]["servers"], f.fleet[c]["now_s"]
    knob, came_s, due_s = np.empty(len(rules.knob)), np.empty(ITEMS), np.empty(ITEMS)
    free_s, speed, copy_s = np.empty(servers), np.empty(servers), np.empty(servers)
    rate_hz = steer(f, c, rules, knob)
    waiting, count, span_s = foresee(f, c, knob, rate_hz, came_s, due_s)
    power = when_free(f, c, free_s, speed)
    price = knob[END] * price_of(rules, power / max(rate_hz, 1e-9))
    end_s, margin_s = now_s + knob[HORIZON] * span_s, knob[MARGIN] * span_s
    haste = knob[HASTE] / span_s
    v, most = c * servers + server, len(rules.least_s) - 1
    away_s = way_s(f, f.pending[c, 0]["first"], v)
    slack_s = (due_s[0] - now_s - away_s - margin_s) * speed[server]
    caps = worth_trying(rules, waiting, slack_s)
    if caps == 0:
        return hopeless(f, c, rules, server, due_s, waiting, free_s, speed)
    fit_s, most_right = np.empty((len(rules.tuples), most + 1)), np.empty(most + 1)
    weigh(f, rules, price, fit_s, most_right)
    widest, pace_hz = np.full(PRICES, ITEMS), top_pace_hz(rules, speed)
    # what a play can still bring is known where time costs and haste pays, not the other way round
    unsure = ROUNDING if min(price, haste) >= 0 else np.inf
    best, best_row, best_group = -np.inf, rules.tuples[0], 1
    # from the last to the first, as large batches win most often and end the others early; of
    # equals the first is taken
    for at in range(caps - 1, -1, -1):
        cap = min(CAPS[at], most)
        group = min(waiting, cap)
        for level in range(PRICES - 1, -1, -1):
            if same_before(rules, level, cap) == cap or max(waiting, widest[level]) <= cap:
                continue  # would play out as one that was or will be played
            row = fitting(rules, fit_s, level, group, slack_s)
            copy_s[:] = free_s
            copy_s[server] = now_s + away_s + rules.whole_s[row, group] / speed[server]
            total = group * (f.accuracy[row] - haste * (copy_s[server] - end_s))
            total -= price * max(copy_s[server] - end_s, 0.0) * speed[server]
            more, widest[level] = play(
                f, rules, fit_s, level, cap, came_s, due_s, group, count, copy_s, speed, end_s,
                price, margin_s, haste, most_right[cap], pace_hz,
                best - total - unsure)  # fmt: skip
            total += more
            if more == -np.inf:
                widest[level] = ITEMS
            elif total >= best:
                best, best_row, best_group = total, row, group
    # where the head's slack makes batches small, all behind it may be lost for its sake
    if f.conf[0]["drop_late"] and rules.least_s[min(waiting, most)] > slack_s:
        skip, enough = 1, best + knob[SACRIFICE]
        while skip < waiting:
            for level in range(PRICES - 3, PRICES):
                copy_s[:] = free_s
                total, _ = play(
                    f, rules, fit_s, level, most, came_s, due_s, skip, count, copy_s, speed, end_s,
                    price, margin_s, haste, most_right[most], pace_hz, enough - unsure)  # fmt: skip
                if total > enough:
                    return DROP, NONE, 1
            skip *= 2
    f.free_s[v] = now_s + away_s + rules.whole_s[best_row, best_group] / speed[server]
    return server, best_row, best_group
