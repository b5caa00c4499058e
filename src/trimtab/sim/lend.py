"""What services leave and batch jobs may book: readings of their use, and what is foreseen of it.

A node's free amount of its driving resource is, for batch jobs,

    limit x capacity - estimate of what services use - what batch jobs have booked

so that whatever asks what fits asks this too. The first part is laid out here, in whole quanta,
whenever a reading comes, a limit is set or a service comes or goes. `World.ahead` holds what an
estimate adds for jobs that run longer than the shortest horizon.
"""

import math

import numpy as np

from trimtab.arrays import Array
from trimtab.columns import QUANTUM
from trimtab.compiled import compiled, inner
from trimtab.rules import encoder
from trimtab.rules.fit import amount, free_up, touch
from trimtab.rules.forecast import FEATURES, describe
from trimtab.rules.names import ESTIMATES
from trimtab.rules.place import mixed
from trimtab.rules.world import World
from trimtab.sim.meter import watch_overload

NATIVE, NOW, DEVIATION, P95 = (ESTIMATES[name] for name in ("native", "now", "deviation", "p95"))
PEAK, TREND, ORACLE = (ESTIMATES[name] for name in ("peak", "trend", "oracle"))
FORECAST, ENCODER = ESTIMATES["forecast"], ESTIMATES["encoder"]
PART = 6  # the short window is this part of all readings
HIGH = 0.95
NEAR = 0.01  # of a node: a percentile seldom falls by more from one reading to the next


@inner
def read_use(w: World, c: int, node: int, step: int) -> None:
    """Take the node's reading of this step of use, unless it is not due or goes missing."""
    conf, state = w.conf[0], w.node_state[c, node]
    ring, kept = w.past.shape[2], w.reading.shape[2]
    w.past[c, node, step % ring] = state.service
    comes = step % conf.every == 0 and step >= conf.late
    if comes and (conf.missing <= 0.0 or mixed(conf.read_seed, step, node) >= conf.missing):
        state.read = w.past[c, node, (step - conf.late) % ring]
        w.reading[c, node, state.reads % kept] = state.read
        state.reads += 1
        state.read_step = step - conf.late
    if state.reads > 0 and step - state.read_step > conf.stale:
        state.read = -1.0


@inner
def back(w: World, c: int, node: int, i: int) -> float:
    """The i-th reading before the last."""
    return w.reading[c, node, (w.node_state[c, node].reads - 1 - i) % w.reading.shape[2]]


@inner
def mean_and_deviation(w: World, c: int, node: int, first: int, count: int) -> tuple[float, float]:
    """Of `count` readings, the last of which is the `first` before the newest."""
    mean = square = 0.0
    ring = w.reading.shape[2]
    newest = (w.node_state[c, node].reads - 1 - first) % ring
    at = newest
    for _ in range(count):
        mean += w.reading[c, node, at]
        at = at - 1 if at > 0 else ring - 1
    mean /= count
    at = newest
    for _ in range(count):
        square += (w.reading[c, node, at] - mean) ** 2
        at = at - 1 if at > 0 else ring - 1
    return mean, math.sqrt(square / count)


@inner
def percentile(w: World, c: int, node: int, count: int, near: float) -> float:
    """The 95th percentile of all readings kept, between two of them in proportion, as NumPy's.

    Readings below `near` are not looked at, unless it turns out to be too high.
    """
    place = HIGH * (count - 1)
    below = math.floor(place)
    most = count - below  # so many of the largest are needed
    top = np.full(most, -np.inf)  # largest last
    while top[0] == -np.inf:
        for i in range(count):  # in any order: the ring's own costs least
            value = w.reading[c, node, i]
            if value >= near and value > top[0]:
                k = 1
                while k < most and top[k] < value:
                    top[k - 1] = top[k]
                    k += 1
                top[k - 1] = value
        if top[0] == -np.inf:
            top[:] = near = -np.inf
    if most == 1:
        return top[0]
    return top[0] + (top[1] - top[0]) * (place - below)


@inner
def read_regions(w: World, c: int, step: int) -> None:
    """Keep the mean share of use in every region, of the nodes whose use is known."""
    ring, regions = w.shared.shape[2], w.shared.shape[1]
    known = np.zeros(regions)
    for g in range(regions):
        w.shared[c, g, step % ring] = 0.0
    for node in range(w.head[c].nodes):
        cap, read = w.capacity[c, node, w.nodes[c, node].driver], w.node_state[c, node].read
        if read >= 0.0 and cap > 0.0:
            g = w.nodes[c, node].region
            w.shared[c, g, step % ring] += read / cap
            known[g] += 1.0
    for g in range(regions):
        if known[g] > 0.0:
            w.shared[c, g, step % ring] /= known[g]
        else:
            w.shared[c, g, step % ring] = -1.0


@inner
def look_ahead(w: World, c: int, step: int) -> None:
    """Set what is usual in every region from this step on, where that is known."""
    if w.head[c].estimate == ENCODER and w.usual.shape[2] > 0:
        now_s = step * w.conf[0].pattern_step_s
        for g in range(w.usual.shape[1]):
            encoder.look_ahead(w.usual[c, g], w.conf[0].usual_step_s, now_s, w.outlook[c, g])


@inner
def foretell(w: World, c: int, node: int) -> None:
    """Set what a learned estimate says of a node until the next reading."""
    state, head, g = w.node_state[c, node], w.head[c], w.nodes[c, node].region
    cap = w.capacity[c, node, w.nodes[c, node].driver]
    learned = head.estimate == FORECAST or head.estimate == ENCODER
    if not learned or state.read < 0.0 or cap <= 0.0:
        return
    x = np.empty(encoder.FEATURES)
    count = min(state.reads, w.reading.shape[2])
    describe(
        w.reading[c, node], state.reads - 1, count, w.shared[c, g], head.step, state.reserved, cap,
        x[:FEATURES],
    )  # fmt: skip
    horizons = w.horizon.shape[0]
    if head.estimate == ENCODER:
        encoder.look_on(w.outlook[c, g], w.usual.shape[2] > 0, x)
        y = np.empty(2 * horizons)
        a = np.empty(w.net_first.shape[1])
        encoder.encode(w.net_first, w.net_middle, w.net_last, x, a, w.embedded[c, node], y)
    for h in range(horizons):
        if head.estimate == ENCODER:
            w.said[c, node, h], w.said[c, node, horizons + h] = y[h], y[horizons + h]
            wide = y[horizons + h] * w.learned[c, g, horizons + h]
            rise = y[h] + w.learned[c, g, h] + w.margin[c, g] * wide
        else:
            rise = w.margin[c, g] * w.cast[h, FEATURES]
            for f in range(FEATURES):
                rise += w.cast[h, f] * x[f]
        w.foretold[c, node, h] = min(state.read + max(rise, 0.0) * cap, state.reserved)


@inner
def estimate(w: World, c: int, node: int, h: int) -> float:
    """What services are foreseen to use of the node at most over horizon h."""
    state, kind = w.node_state[c, node], w.head[c].estimate
    if kind == ORACLE:
        nodes, steps = w.nodes.shape[1], w.foreseen.shape[1]
        return w.foreseen[c, w.head[c].step % steps, node + h * nodes]
    if kind == NATIVE or state.read < 0.0:
        return state.reserved
    count = min(state.reads, w.reading.shape[2])
    short = max(min(w.reading.shape[2] // PART, count), 1)
    if kind == NOW:
        return state.read
    if kind in (FORECAST, ENCODER):
        return w.foretold[c, node, h]
    if kind == P95:
        cap = w.capacity[c, node, w.nodes[c, node].driver]
        last = state.kept - (1.0 - w.limit[c, w.nodes[c, node].region]) * cap
        return percentile(w, c, node, count, last - NEAR * cap)
    if kind == PEAK:
        most = state.read
        for i in range(count):
            most = max(most, w.reading[c, node, i])
        return most
    mean, deviation = mean_and_deviation(w, c, node, 0, short)
    if kind == DEVIATION:
        return mean + deviation
    foreseen = max(mean, state.read) + deviation
    if count >= 2 * short:
        before, _ = mean_and_deviation(w, c, node, short, short)
        span_s = short * w.conf[0].every * w.conf[0].pattern_step_s
        foreseen += max(mean - before, 0.0) / span_s * min(w.horizon[h], 3.0 * span_s)
    return foreseen


@inner
def varies(kind: int) -> bool:
    """Whether the estimate hangs on how long a job runs."""
    return kind in (TREND, ORACLE, FORECAST, ENCODER)


@inner
def has_left(w: World, c: int, node: int, overstay: float, out: Array) -> None:
    """Write to `out` (H,) what batch jobs on the node book that will have left it when the part of
    a horizon begins that no shorter one covers.
    """
    driver, horizons = w.nodes[c, node].driver, w.horizon.shape[0]
    piece = w.node_state[c, node].piece
    while piece >= 0:
        rec = w.pieces[c, piece]
        run = w.runs[c, rec.run]
        ahead_s = run.start_s + (run.expected_end_s - run.start_s) * overstay - w.head[c].now_s
        # what is late already may stay for who knows how long
        if ahead_s > 0.0 and w.truth[c, run.job].service == 0:
            size = rec.count * amount(w.demand[c, run.job, driver], w.scale[run.shape])
            for h in range(1, horizons):
                if ahead_s <= w.horizon[h - 1]:
                    out[h] += size
        piece = rec.after


@inner
def lay_out(w: World, c: int, node: int) -> None:
    """Set anew what of a node is kept from batch jobs."""
    touch(w, c, node)
    state, driver = w.node_state[c, node], w.nodes[c, node].driver
    cap, region = w.capacity[c, node, driver], w.nodes[c, node].region
    share, overstay = w.limit[c, region], w.overstay[c, region]
    first = estimate(w, c, node, 0)
    kept = cap - math.floor((share * cap - first) / QUANTUM) * QUANTUM
    if kept < state.kept:
        free_up(w, c, node)
    w.free[c, node, driver] += state.kept - kept
    state.kept = kept
    left = np.zeros(w.horizon.shape[0])
    varies_now = w.head[c].varies == 1
    if varies_now and overstay > 0.0:
        has_left(w, c, node, overstay, left)
    ahead = taper = 0.0
    for h in range(w.horizon.shape[0]):
        if varies_now and h > 0:  # what takes longer meets no lower a peak
            ahead = max(estimate(w, c, node, h) - first - left[h], ahead)
            taper = w.taper[c, region] * h * cap
        if ahead + taper < w.ahead[c, node, h]:
            free_up(w, c, node)
        w.ahead[c, node, h] = ahead + taper


@compiled
def set_limit(w: World, c: int, region: int, share: float, kind: int) -> None:
    """Set the limit of a region (-1: of all) and, unless it is below 0, the estimate of all."""
    head = w.head[c]
    head.calm = 0
    if kind >= 0:
        head.estimate = kind
        head.varies = 1 if varies(kind) else 0
    for g in range(w.limit.shape[1]):
        if region < 0 or g == region:
            w.limit[c, g] = share
    look_ahead(w, c, head.step)
    for node in range(head.nodes):
        if kind >= 0:
            foretell(w, c, node)
        if kind >= 0 or region < 0 or w.nodes[c, node].region == region:
            lay_out(w, c, node)


@compiled
def set_care(
    w: World, c: int, region: int, margin: float, patience_s: float, overstay: float, taper: float
) -> None:
    """Set what a Limit of these names says for a region (-1: for all); NaN leaves any as it is."""
    head = w.head[c]
    head.calm = 0
    for g in range(w.limit.shape[1]):
        if region < 0 or g == region:
            w.margin[c, g] = w.margin[c, g] if math.isnan(margin) else margin
            w.patience_s[c, g] = w.patience_s[c, g] if math.isnan(patience_s) else patience_s
            w.overstay[c, g] = w.overstay[c, g] if math.isnan(overstay) else overstay
            w.taper[c, g] = w.taper[c, g] if math.isnan(taper) else taper
    for node in range(head.nodes):
        if region < 0 or w.nodes[c, node].region == region:
            if not math.isnan(margin):
                foretell(w, c, node)
            if not (math.isnan(margin) and math.isnan(overstay) and math.isnan(taper)):
                lay_out(w, c, node)
            if not math.isnan(patience_s):
                watch_overload(w, c, node)


@compiled
def set_learned(w: World, c: int, region: int, learned: Array) -> None:
    """Set what was learned of the encoder's errors in a region (-1: in all)."""
    w.head[c].calm = 0
    for g in range(w.learned.shape[1]):
        if region < 0 or g == region:
            w.learned[c, g] = learned
    for node in range(w.head[c].nodes):
        if region < 0 or w.nodes[c, node].region == region:
            foretell(w, c, node)
            lay_out(w, c, node)
