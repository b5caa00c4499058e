"""Scores of a node, larger is better, ties to the lower number."""

import math

import numpy as np

from trimtab.compiled import inner
from trimtab.rules.compat import compatibility, worker_bonus, worker_ease, worker_rest
from trimtab.rules.fit import (
    NEVER,
    ONE,
    allowed,
    amount,
    choose_devices,
    horizon_now,
    kept_ahead,
    take,
)
from trimtab.rules.names import PLACES
from trimtab.rules.worth import class_of, worth

FIRST, BEST, WORST, RANDOM, DOT = (
    PLACES[name] for name in ("first", "best", "worst", "random", "dot")
)
COSINE, FRAG, FASTEST, AFFINITY, CALM, SWIFT, PACKER, WORKER = (
    PLACES[name]
    for name in ("cosine", "frag", "fastest", "affinity", "calm", "swift", "packer", "worker")
)
PRESSURE = 0.5  # lambda_1 of the compatibility score: weight of load
INTERFERENCE = 0.5  # lambda_2: weight of the slow-down expected from neighbours
SPEED = 0.5  # what a speed of 1 weighs beside the load in `swift`
NOWHERE = -np.inf
ANY_KIND = np.uint64(0xFFFFFFFFFFFFFFFF)  # every bit set: the job runs on any kind of node


@inner
def mixed(seed, job, node):
    """A uniform number in [0, 1) of these three integers: the same whoever asks, in any order."""
    x = np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15)
    x ^= np.uint64(job + 1) * np.uint64(0xBF58476D1CE4E5B9)
    x ^= np.uint64(node + 1) * np.uint64(0x94D049BB133111EB)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return float(x >> np.uint64(11)) * 2.0**-53


@inner
def leftover(w, c, node, job):
    """Share of the node that stays free after one instance, summed over resources."""
    total = 0.0
    for r in range(w.free.shape[2]):
        if w.capacity[c, node, r] > 0.0:
            total += (w.free[c, node, r] - w.demand[c, job, r]) / w.capacity[c, node, r]
    return total


@inner
def dot(w, c, node, job):
    total = 0.0
    for r in range(w.free.shape[2]):
        if w.capacity[c, node, r] > 0.0:
            cap = w.capacity[c, node, r]
            total += (w.free[c, node, r] / cap) * (w.demand[c, job, r] / cap)
    return total


@inner
def expected_slowdown(w, c, node, job):
    """Extra time a second that the instances now on the node would cost one of the job."""
    total = 0.0
    piece = w.node_state[c, node].piece
    kind = w.jobs[c, job].kind
    while piece >= 0:
        other = w.jobs[c, w.runs[c, w.pieces[c, piece].run].job].kind
        total += w.slow[kind, other] * w.pieces[c, piece].count
        piece = w.pieces[c, piece].after
    return total


@inner
def ease(place, w, c, node, h):
    """The part of a score that hangs on the node alone, and on a job's horizon h: of `calm` and
    `swift` minus the load, half of it as it is foreseen at its peak, half as it is now.
    """
    if place == WORKER:
        return worker_ease(w, c, node, h)
    driver = w.nodes[c, node].driver
    cap = w.capacity[c, node, driver]
    if cap <= 0.0:
        return 0.0
    state = w.node_state[c, node]
    # not by `used`: of what this very pass books, only the free amounts tell
    booked = cap - state.kept - w.free[c, node, driver]
    foreseen = now = 0.0
    if w.limit.shape[1] > 0:
        share = w.limit[c, w.nodes[c, node].region]
        foreseen = state.kept - (1.0 - share) * cap + kept_ahead(w, c, node, h)
        now = state.reserved if state.read < 0.0 else state.read
    return -(booked + 0.5 * foreseen + 0.5 * now) / cap


@inner
def bonus(place, w, c, node, job, shape):
    """The part that hangs on the job: alike for nodes of one kind and capacity in a region."""
    if place == WORKER:
        return worker_bonus(w, c, node, job, shape)
    driver = w.nodes[c, node].driver
    cap = w.capacity[c, node, driver]
    more = -w.demand[c, job, driver] / cap if cap > 0.0 else 0.0
    if place == SWIFT:
        more += SPEED * w.rate[w.jobs[c, job].kind, w.nodes[c, node].kind, shape]
    return more


@inner
def rest(place, w, c, node):
    """The most that is in a score beside the two, on nodes of one region."""
    return worker_rest(w, c, node) if place == WORKER else 0.0


@inner
def compatible(w, c, node, job):
    """Cosine of demand and free room, less load and expected interference (hierarchy-hmarl, eq. 6).

    Both vectors in shares of the node's capacity: a unit of memory does not outweigh a core.
    """
    product = wants = has = 0.0
    for r in range(w.free.shape[2]):
        cap = w.capacity[c, node, r]
        if cap > 0.0:
            d = w.demand[c, job, r] / cap
            f = w.free[c, node, r] / cap
            product += d * f
            wants += d * d
            has += f * f
    cosine = product / math.sqrt(wants * has) if wants * has > 0.0 else 0.0
    load = w.node_state[c, node].load
    return cosine - PRESSURE * load - INTERFERENCE * expected_slowdown(w, c, node, job)


@inner
def fragment(w, c, node):
    """Free amount of the node's driving resource that the expected mix cannot use (FGD, ATC'23)."""
    driver = w.nodes[c, node].driver
    free = w.free[c, node, driver]
    if free <= 0.0:
        return 0.0
    total = 0.0
    kind = np.uint64(w.nodes[c, node].kind)
    for t in range(w.mix_jobs.shape[0]):
        lost = free
        rec = w.mix_jobs[t]
        if (rec.node_kinds >> kind) & ONE != NEVER and w.mix_demand[t, driver] > 0.0:
            room = True
            for r in range(w.free.shape[2]):
                room &= w.free[c, node, r] >= w.mix_demand[t, r]
            if room and w.nodes[c, node].gpus > 0:
                whole = 0
                lost = 0.0
                for d in range(w.nodes[c, node].gpus):
                    usable = w.gpu_mem[c, node, d] >= rec.gpu_mem_gb
                    if usable and w.gpu_free[c, node, d] >= rec.gpu_share:
                        whole += 1
                    else:
                        lost += w.gpu_free[c, node, d]
                if whole < rec.gpus:
                    lost = free
            elif room:
                lost = free % w.mix_demand[t, driver]
        total += w.mix_share[t] * lost
    return total


@inner
def frag_gain(w, c, node, job, shape):
    """How much fragmentation an instance removes from the node (negative: adds)."""
    before = fragment(w, c, node)
    mask = choose_devices(w, c, node, job, shape, w.gpu_free, w.gpu_mem)
    take(w, c, node, job, shape, 1, mask, w.free, w.gpu_free, w.gpu_mem)
    after = fragment(w, c, node)
    take(w, c, node, job, shape, -1, mask, w.free, w.gpu_free, w.gpu_mem)
    return before - after


@inner
def wanted_by(w, c, node, job):
    """Share of the expected mix that accepts some kinds of node alone, this one among them; 0 for a
    job that is picky itself.
    """
    share = 0.0
    kind = np.uint64(w.nodes[c, node].kind)
    if w.jobs[c, job].node_kinds == ANY_KIND:
        for t in range(w.mix_jobs.shape[0]):
            kinds = w.mix_jobs[t].node_kinds
            if kinds != ANY_KIND and (kinds >> kind) & ONE != NEVER:
                share += w.mix_share[t]
    return share


@inner
def packed(w, c, node, job, shape):
    """What the node is worth to an instance by the weights of the policy `packer`."""
    devices, driver = w.nodes[c, node].gpus, w.nodes[c, node].driver
    fresh, opened, device_left, gpu_left, whole = True, False, 0.0, 0.0, 0
    for r in range(w.free.shape[2]):
        fresh &= w.free[c, node, r] >= w.capacity[c, node, r]
    mask = choose_devices(w, c, node, job, shape, w.gpu_free, w.gpu_mem)
    before = fragment(w, c, node) if devices > 0 else 0.0
    take(w, c, node, job, shape, 1, mask, w.free, w.gpu_free, w.gpu_mem)
    relief = before - fragment(w, c, node) if devices > 0 else 0.0
    share = w.jobs[c, job].gpu_share
    for d in range(devices):
        free = w.gpu_free[c, node, d]
        gpu_left += free
        whole += free == 1.0
        if (mask >> np.uint64(d)) & ONE != NEVER:
            device_left, opened = free, free + share == 1.0
    left, tightest, others = 0.0, 1.0, 0
    for r in range(w.free.shape[2]):
        cap = w.capacity[c, node, r]
        if cap > 0.0 and (devices == 0 or r != driver):
            left += w.free[c, node, r] / cap
            tightest = min(tightest, w.free[c, node, r] / cap)
            others += 1
    take(w, c, node, job, shape, -1, mask, w.free, w.gpu_free, w.gpu_mem)
    row = class_of(int(w.jobs[c, job].gpus * w.scale[shape]), share)
    left = left / others if others > 0 else 1.0
    return worth(
        w.packer, row, relief, gpu_left, whole, devices, left, tightest, device_left, opened, fresh,
        wanted_by(w, c, node, job),
    )  # fmt: skip


@inner
def prefers(w, c, node, job, shape):
    """Whether the node is of the kind fixed for this job: the fastest that could host all of it."""
    like = w.jobs[c, job].like
    if w.prefer[c, like] == 0:
        best = -1.0
        for kind in range(w.rate.shape[1]):
            speed = w.rate[w.jobs[c, job].kind, kind, shape]
            if speed > best and room_of_kind(w, c, job, shape, kind) >= need_of(w, c, job):
                best = speed
                w.prefer[c, like] = 1 + kind
        if w.prefer[c, like] == 0:
            w.prefer[c, like] = -1  # no single kind can: any will do
    return w.prefer[c, like] == -1 or w.prefer[c, like] == 1 + w.nodes[c, node].kind


@inner
def need_of(w, c, job):
    return w.jobs[c, job].instances if w.jobs[c, job].gang == 1 else 1


@inner
def room_of_kind(w, c, job, shape, kind):
    """Instances of the job that the empty nodes of one kind could host together."""
    room = 0
    for node in range(w.head[c].nodes):
        if w.nodes[c, node].kind == kind:
            room += empty_slots(w, c, node, job, shape)
    return room


@inner
def empty_slots(w, c, node, job, shape):
    """Instances that the node could host if it were empty and alive."""
    kind = np.uint64(w.nodes[c, node].kind)
    scale = w.scale[shape]
    if (w.jobs[c, job].node_kinds >> kind) & ONE == NEVER:
        return 0
    if w.rate[w.jobs[c, job].kind, w.nodes[c, node].kind, shape] <= 0.0:
        return 0
    if (w.jobs[c, job].shapes >> np.uint64(shape)) & ONE == NEVER:
        return 0
    room = w.jobs[c, job].instances
    for r in range(w.free.shape[2]):
        wants = amount(w.demand[c, job, r], scale)
        if wants > 0.0:
            room = min(room, int(w.capacity[c, node, r] / wants))
    gpus = int(w.jobs[c, job].gpus * scale)
    if gpus > 0:
        each = int(1.0 / w.jobs[c, job].gpu_share)
        if w.jobs[c, job].gpu_mem_gb > 0.0:
            each = min(each, int(w.nodes[c, node].gpu_mem_gb / w.jobs[c, job].gpu_mem_gb))
        room = min(room, w.nodes[c, node].gpus * each // gpus)
    return room


@inner
def score(place, w, c, node, job, shape, seed):
    """How good the node is for one instance that fits there."""
    if place == FIRST:
        return 0.0
    if place == BEST:
        return -leftover(w, c, node, job)
    if place == WORST:
        return leftover(w, c, node, job)
    if place == RANDOM:
        return mixed(seed, job, node)
    if place == DOT:
        return dot(w, c, node, job)
    if place == COSINE:
        return compatible(w, c, node, job)
    if place == FRAG:
        return frag_gain(w, c, node, job, shape)
    if place == PACKER:
        return packed(w, c, node, job, shape)
    if place in (CALM, SWIFT):
        alone = ease(place, w, c, node, horizon_now(w, c, job))
        return alone + bonus(place, w, c, node, job, shape)
    if place == WORKER:
        return compatibility(w, c, node, job, shape)
    # the fastest kind first, and within it the fullest node
    speed = w.rate[w.jobs[c, job].kind, w.nodes[c, node].kind, shape]
    return speed - 1e-6 * leftover(w, c, node, job)


@inner
def eligible(place, w, c, node, job, shape):
    """Whether the placement ever chooses the node: static affinity waits for the job's own kind."""
    if not allowed(w, c, node, job, shape):
        return False
    return place != AFFINITY or prefers(w, c, node, job, shape)
