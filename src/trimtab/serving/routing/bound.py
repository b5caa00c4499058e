"""The most that any router can reach in a fleet, were it to know all arrivals beforehand."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.errors import ServeError
from trimtab.serving.net.serve_profile import ServeProfile, batch_s
from trimtab.serving.nouns import SEGMENTS, WIDTHS
from trimtab.serving.routing.fleet_state import Fleets
from trimtab.serving.routing.lookahead import hull

SLIP_S = 1e-6  # the engine's clock may be off by less
FOREVER_S = 1e9  # an endless objective, as a number a solver can take
STEPS = 256  # of latency, rounded down
SLOTS_EACH = 6  # in an objective
SLOTS_MOST = 4000


class Groups(NamedTuple):
    """Requests cut by arrival into the slots of one clock."""

    edge_s: Array  # (T + 1,) ends of the slots
    size: Array  # (G,)
    first_s: Array  # (G,) earliest arrival
    last_s: Array  # (G,) latest deadline
    near: Array  # (G,) requests that a batch of its members can hold at the most


def bound(
    f: Fleets,
    profile: ServeProfile,
    c: int = 0,
    windows: int | None = None,
    worth: Array | None = None,
) -> float:
    """The most that any router, knowing all arrivals, can reach of `Totals.good` in a fleet.

    `worth` (256,) stands for the accuracy: ones bound the share in time. `windows` is how many
    slots time is cut into.

    Proof. Cut the requests by arrival into groups, and let some schedule answer y[g, k] requests
    of group g in time with tuple k. (1) Charge every member of a batch its even share of the
    batch's worker time, in seconds of the profile. A request that meets batches of n_s at its
    segments s is charged the sum of t_s(n_s) / n_s. Its batches follow one another, so the sum of
    t_s(n_s), at the greatest speed and after the first way from the front, is within its objective
    if it is in time. Let only those in time count as members of a batch, and t_s(n) be the least
    time of a batch of n or more, which it then takes at least. All members are there when it
    begins and due after it has ended, and each spends in all segments no less than the fastest
    tuple does, so their arrivals lie within a span of the longest objective less that: n_s is at
    most the most arrivals within such a span around one of the group. cost[g, k] is the least
    charge under these two limits, latencies rounded down. (2) Charges fall into the slots of time
    in which the batches ran, for a request in time between its arrival and its deadline. Servers
    give a slot no more than its length x the sum of workers x speed, and a group no more than that
    of the part of the slot between its first arrival and its last deadline. (3) A group answers no
    more requests than it has. The linear programme maximises the sum of worth[k] y[g, k] under (1)
    to (3) alone, over real numbers; a tuple under the concave hull of nothing and the others
    cannot raise it. Every schedule is a point of it, so none is worth more. It ignores that a
    worker runs one batch at a time, loading, memory and hops.
    """
    size = int(f.conf[0]["requests"])
    rows = f.request[c * size : (c + 1) * size]
    worth = profile.accuracy if worth is None else np.asarray(worth, np.float64)
    objective_s = float((rows["deadline_s"] - rows["arrival_s"]).max()) + SLIP_S
    first_way_s = f.conf[0]["hop_s"] + f.conf[0]["hand_over_s"] * f.input_mb[0].min()
    given_s = (objective_s - first_way_s) * f.server_new["speed"].max()
    most = int(f.knobs[0]["batch_max"])
    least_s = charges(profile, 1, np.inf, latency=True, batch_max=most).min()
    least_s /= f.server_new["speed"].max()
    span_s = max(objective_s - first_way_s - least_s, 0.0)
    groups = cut(rows, windows, objective_s, most, span_s)
    hulls = {
        near: corners(charges(profile, near, given_s, batch_max=most), worth)
        for near in set(groups.near.tolist())
    }
    power = float((f.server_new["speed"] * f.server_new["workers"]).sum())
    return solved(groups, [hulls[int(near)] for near in groups.near], power) / size


def charges(
    profile: ServeProfile,
    most: int,
    given_s: float,
    *,
    latency: bool = False,
    batch_max: int = 16,
) -> Array:
    """(256,) least charge of a request in batches of up to `most` whose times sum to given_s at
    the most; inf where none is fast enough. latency=True: the least sum of times itself.
    """
    if given_s < 0:
        return np.full(256, np.inf)
    step_s = given_s / STEPS if np.isfinite(given_s) else np.inf
    times_s = least_times(profile, max(most, batch_max))
    # best[row of the prefix, latency in steps]
    best = np.full((1, STEPS + 1), np.inf)
    best[0, 0] = 0.0
    for segment in range(SEGMENTS):
        then = np.full((len(best) * len(WIDTHS), STEPS + 1), np.inf)
        for row in range(len(best)):
            before = row % 4 if segment else 0
            for width in range(len(WIDTHS)):
                into = then[row * 4 + width]
                for count in range(1, most + 1):
                    time_s = times_s[segment, before, width, count - 1]
                    late = int(time_s / step_s)
                    if late > STEPS:
                        continue
                    each = time_s if latency else time_s / count
                    moved = best[row, : STEPS + 1 - late] + each
                    np.minimum(into[late:], moved, out=into[late:])
        best = then
    return np.asarray(best.min(axis=1))


def least_times(profile: ServeProfile, batch_max: int) -> Array:
    """(segment, before, width, n - 1) seconds of the fastest batch of n or more."""
    buckets, keys = np.asarray(profile.buckets, np.int64), profile.time_s.shape[:3]
    found = np.empty((*keys, batch_max))
    for place in np.ndindex(*found.shape):
        found[place] = batch_s(profile.time_s, buckets, *place[:3], place[3] + 1)
    return np.minimum.accumulate(found[..., ::-1], axis=-1)[..., ::-1]


def cut(rows: Array, windows: int | None, objective_s: float, most: int, span_s: float) -> Groups:
    """Groups of requests and the slots of time."""
    arrival_s, deadline_s = rows["arrival_s"], rows["deadline_s"]
    begin_s, end_s = float(arrival_s[0]), float(deadline_s.max()) + SLIP_S
    endless = not np.isfinite(end_s)
    slots_end_s = float(arrival_s[-1]) + SLIP_S if endless else end_s
    if windows is None:
        each_s = objective_s / SLOTS_EACH
        windows = int(np.clip((slots_end_s - begin_s) / each_s, 1, SLOTS_MOST))
    edge_s = np.linspace(begin_s, slots_end_s, windows + 1)
    if endless:
        edge_s = np.append(edge_s, slots_end_s + FOREVER_S)
    at = np.clip(np.searchsorted(edge_s, arrival_s, side="right") - 1, 0, len(edge_s) - 2)
    starts = np.flatnonzero(np.diff(at, prepend=-1))
    stops = np.append(starts[1:], len(at))
    # arrivals within a span that begins at request i
    counts = np.searchsorted(arrival_s, arrival_s + span_s + SLIP_S, side="right")
    counts = counts - np.arange(len(arrival_s))
    near = []
    for start, stop in zip(starts, stops):
        low = np.searchsorted(arrival_s, arrival_s[start] - span_s - SLIP_S)
        near.append(min(int(counts[low:stop].max()), most))
    return Groups(
        edge_s,
        stops - starts,
        arrival_s[starts],
        np.array([min(deadline_s[i:j].max() + SLIP_S, edge_s[-1]) for i, j in zip(starts, stops)]),
        np.array(near),
    )


def corners(cost_s: Array, worth: Array) -> tuple[Array, Array]:
    """Cost and worth at the corners of the concave hull of all tuples and nothing."""
    possible = np.isfinite(cost_s)
    if not possible.any():
        return np.zeros(0), np.zeros(0)
    at_s, slope = hull(cost_s[possible], worth[possible])
    return at_s, np.cumsum(slope * np.diff(at_s, prepend=0.0))


def solved(groups: Groups, hulls: list[tuple[Array, Array]], power: float) -> float:
    """The optimum of the linear programme: variables are answers by corner, then time by slot."""
    from scipy.optimize import linprog
    from scipy.sparse import coo_array

    edge_s, many = groups.edge_s, len(groups.size)
    answers = [(g, cost, value) for g in range(many) for cost, value in zip(*hulls[g])]
    spent = []  # (group, slot, most that it can take there)
    for g in range(many):
        low = int(np.searchsorted(edge_s, groups.first_s[g], side="right")) - 1
        high = int(np.searchsorted(edge_s, groups.last_s[g], side="left"))
        for slot in range(max(low, 0), min(high, len(edge_s) - 1)):
            inside_s = min(edge_s[slot + 1], groups.last_s[g]) - max(
                edge_s[slot], groups.first_s[g]
            )
            spent.append((g, slot, power * max(inside_s, 0.0)))
    if not answers:
        return 0.0
    slots = len(edge_s) - 1
    at, row, value = [], [], []
    for i, (g, cost, _) in enumerate(answers):
        at += [i, i]
        row += [g, many + g]
        value += [1.0, cost]
    for i, (g, slot, _) in enumerate(spent, len(answers)):
        at += [i, i]
        row += [many + g, 2 * many + slot]
        value += [-1.0, 1.0]
    limit = np.concatenate((groups.size, np.zeros(many), power * np.diff(edge_s)))
    shape = (2 * many + slots, len(answers) + len(spent))
    found = linprog(
        -np.array([value for _, _, value in answers] + [0.0] * len(spent)),
        A_ub=coo_array((value, (row, at)), shape=shape).tocsr(),
        b_ub=limit,
        bounds=[(0, None)] * len(answers) + [(0, most) for _, _, most in spent],
        method="highs",
    )
    if found.status != 0:
        raise ServeError(f"the bound was not found: {found.message}; try windows=1")
    return float(-found.fun)
