"""What fits where, and booking it: compiled, exact, one copy for every engine and backend.

Room is not all: quotas bound what groups of jobs hold at once, and a gate keeps nodes for the jobs
of one reservation. An ordinary job may not start there while it lasts, nor before where its request
and start-up reach into it.
"""

import math

import numpy as np

from trimtab.columns import QUANTUM
from trimtab.compiled import inner
from trimtab.rules import bits

NEVER = np.uint64(0)
ONE = np.uint64(1)
GRACE_S = 1.0  # a job past its request is expected to end this much later


@inner
def amount(demand, scale):
    """Demand in a shape, in whole quanta like every amount, so that booking stays exact."""
    return demand if scale == 1.0 else math.floor(demand * scale / QUANTUM) * QUANTUM


@inner
def allowed(w, c, node, job, shape):
    """Whether the node may host the job now, or at the later time that is looked at."""
    if w.gate.shape[1] > 0 and closed(w, c, node, job, shape):
        return False
    return suits(w, c, node, job, shape)


@inner
def suits(w, c, node, job, shape):
    """Whether the node is alive, of a kind and in a shape that the job allows and runs in."""
    return w.node_state[c, node].up == 1 and runs_on(w, c, node, job, shape)


@inner
def runs_on(w, c, node, job, shape):
    """Whether the job allows the node's kind and this shape, and runs there."""
    kind = np.uint64(w.nodes[c, node].kind)
    return (
        (w.jobs[c, job].node_kinds >> kind) & ONE != NEVER
        and (w.jobs[c, job].shapes >> np.uint64(shape)) & ONE != NEVER
        and w.rate[w.jobs[c, job].kind, w.nodes[c, node].kind, shape] > 0.0
    )


@inner
def held_ahead(w, c, node, job):
    """What services may yet take of the node's driving resource while the job runs, beyond what
    its free amount leaves out already.
    """
    return kept_ahead(w, c, node, horizon_now(w, c, job))


@inner
def kept_ahead(w, c, node, h):
    """The same for a job of horizon h."""
    return w.ahead[c, node, h] if w.head[c].varies == 1 else 0.0


@inner
def horizon_now(w, c, job):
    """The job's horizon, or the first where no estimate hangs on it."""
    return horizon_of(w, c, job) if w.head[c].varies == 1 else 0


@inner
def horizon_of(w, c, job):
    """The shortest of the horizons that the job's request does not exceed, or the last."""
    run_s, h = request_left(w, c, job), 0
    while h < w.horizon.shape[0] - 1 and w.horizon[h] < run_s:
        h += 1
    return h


@inner
def slots_in(jobs, demand, job, scale, devices, free, gpu_free, gpu_mem, limit, driver, held):
    """How many instances of a request fit into these amounts of one node, at most `limit`.

    `held` of the resource `driver` is kept from it.
    """
    count = limit
    for r in range(free.shape[0]):
        wants = amount(demand[job, r], scale)
        if wants > 0.0:
            room = free[r] - held if r == driver else free[r]
            if room < wants:
                return 0
            if limit > 1:
                count = min(count, int(room / wants))
    gpus = int(jobs[job].gpus * scale)
    if gpus == 0 or count == 0:
        return count
    share = jobs[job].gpu_share
    mem = jobs[job].gpu_mem_gb
    room = 0
    for d in range(devices):
        if gpu_free[d] >= share and gpu_mem[d] >= mem:
            if share == 1.0 or limit == 1 or gpus > 1:
                room += 1  # an instance takes each device once
            else:
                fit = int(gpu_free[d] / share)
                if mem > 0.0:
                    fit = min(fit, int(gpu_mem[d] / mem))
                room += fit
    return min(count, room // gpus)


@inner
def has_amounts(w, c, node, job, shape):
    """Whether the node has enough free of every resource for one instance: most lack that."""
    for r in range(w.free.shape[2]):
        wants = amount(w.demand[c, job, r], w.scale[shape])
        if w.free[c, node, r] < wants and wants > 0.0:
            return False
    return True


@inner
def fits(w, c, node, job, shape):
    """Whether one instance fits on the node now."""
    for r in range(w.free.shape[2]):
        if w.free[c, node, r] < amount(w.demand[c, job, r], w.scale[shape]):
            return False
    if not allowed(w, c, node, job, shape):
        return False
    if w.quota_cap.shape[1] > 0 and not may_begin(w, c, job, shape):
        return False
    if w.head[c].varies == 1:
        driver = w.nodes[c, node].driver
        wants = amount(w.demand[c, job, driver], w.scale[shape])
        if w.free[c, node, driver] - held_ahead(w, c, node, job) < wants and wants > 0.0:
            return False
    gpus = int(w.jobs[c, job].gpus * w.scale[shape])
    if gpus == 0:
        return True
    share = w.jobs[c, job].gpu_share
    mem = w.jobs[c, job].gpu_mem_gb
    room = 0
    for d in range(w.nodes[c, node].gpus):
        if w.gpu_free[c, node, d] >= share and w.gpu_mem[c, node, d] >= mem:
            room += 1
    return room >= gpus


@inner
def slots(w, c, node, job, shape, free, gpu_free, gpu_mem, limit):
    """How many instances fit on the node in the given amounts (C, N, ..), at most `limit`."""
    if not allowed(w, c, node, job, shape):
        return 0
    return slots_in(
        w.jobs[c],
        w.demand[c],
        job,
        w.scale[shape],
        w.nodes[c, node].gpus,
        free[c, node],
        gpu_free[c, node],
        gpu_mem[c, node],
        limit,
        w.nodes[c, node].driver,
        held_ahead(w, c, node, job),
    )


@inner
def choose_devices(w, c, node, job, shape, gpu_free, gpu_mem):
    """The devices an instance takes: the fullest that fits a fraction, else the first free ones."""
    gpus = int(w.jobs[c, job].gpus * w.scale[shape])
    mask = NEVER
    if gpus == 0:
        return mask
    share = w.jobs[c, job].gpu_share
    mem = w.jobs[c, job].gpu_mem_gb
    if gpus == 1:
        best = -1
        for d in range(w.nodes[c, node].gpus):
            if gpu_free[c, node, d] >= share and gpu_mem[c, node, d] >= mem:
                if best < 0 or gpu_free[c, node, d] < gpu_free[c, node, best]:
                    best = d
        return ONE << np.uint64(best)
    for d in range(w.nodes[c, node].gpus):
        if gpus > 0 and gpu_free[c, node, d] >= share and gpu_mem[c, node, d] >= mem:
            mask |= ONE << np.uint64(d)
            gpus -= 1
    return mask


@inner
def touch(w, c, node):
    """Note for an index that something has changed on the node."""
    if w.touched.shape[1] > 0:
        w.touched[c, w.head[c].touches % w.touched.shape[1]] = node
        w.head[c].touches += 1


@inner
def take(w, c, node, job, shape, count, mask, free, gpu_free, gpu_mem):
    """Book `count` instances (negative gives them back) of the job in the given amounts."""
    touch(w, c, node)
    scale = w.scale[shape]
    for r in range(free.shape[2]):
        free[c, node, r] -= count * amount(w.demand[c, job, r], scale)
    if mask != NEVER:
        share = w.jobs[c, job].gpu_share
        mem = w.jobs[c, job].gpu_mem_gb
        for d in range(w.nodes[c, node].gpus):
            if (mask >> np.uint64(d)) & ONE != NEVER:
                gpu_free[c, node, d] -= count * share
                gpu_mem[c, node, d] -= count * mem


@inner
def request_left(w, c, job):
    """Seconds at rate 1 that the job still asks for, after what its checkpoints kept."""
    return max(w.jobs[c, job].request_s - w.state[c, job].kept_s, 0.0)


@inner
def link_rate(w, c, region, other):
    """How fast a gang that spans both regions may run, as a share of its speed inside one."""
    return min(w.link[region, other], w.link[other, region])


@inner
def closed(w, c, node, job, shape):
    """Whether a gate keeps the job off the node: its own before it opens, another's until it ends.

    The time is now, or the later one that is looked at.
    """
    now_s = max(w.head[c].now_s, w.head[c].later_s)
    kind = np.uint64(w.nodes[c, node].kind)
    for g in range(w.gate.shape[1]):
        rec = w.gate[c, g]
        if (rec.kinds >> kind) & ONE == NEVER:
            continue
        if g == w.reserved[c, job]:
            if now_s < rec.from_s:
                return True
        elif now_s < rec.to_s:
            if now_s >= rec.from_s or now_s + span_s(w, c, node, job, shape) > rec.from_s:
                return True
    return False


@inner
def span_s(w, c, node, job, shape):
    """Seconds that a start on the node takes by the request.

    A gang is taken to be as slow as on the slowest kind and over the worst link that it may get,
    for where its other instances go is not known yet; one that moves, to keep no more than before.
    """
    rec, state = w.jobs[c, job], w.state[c, job]
    moves = state.left == 0 and state.run >= 0
    rate = w.rate[rec.kind, w.nodes[c, node].kind, shape]
    if rec.gang == 1 and rec.instances > 1:
        for kind in range(w.rate.shape[1]):
            speed = w.rate[rec.kind, kind, shape]
            if speed > 0.0 and (rec.node_kinds >> np.uint64(kind)) & ONE != NEVER:
                rate = min(rate, speed)
        worst = 1.0
        for a in range(w.link.shape[0]):
            for b in range(w.link.shape[1]):
                worst = min(worst, w.link[a, b])
        rate *= worst
    pause_s = w.conf[0].move_s if moves else w.conf[0].startup_s
    return pause_s + request_left(w, c, job) / rate


@inner
def next_edge(w, c, after_s):
    """When the next gate opens or ends after this time, or inf."""
    edge_s = np.inf
    for g in range(w.gate.shape[1]):
        if after_s < w.gate[c, g].from_s:
            edge_s = min(edge_s, w.gate[c, g].from_s)
        if after_s < w.gate[c, g].to_s:
            edge_s = min(edge_s, w.gate[c, g].to_s)
    return edge_s


@inner
def counts(w, c, job, r, shape, instances):
    """What so many instances count for in column r of a quota: the resources, then jobs, nodes."""
    resources = w.demand.shape[2]
    if r < resources:
        return instances * amount(w.demand[c, job, r], w.scale[shape])
    each = 1.0 if r == resources else w.quota_nodes[c, job]
    return each if w.jobs[c, job].gang == 1 else instances * each


@inner
def within(w, c, job, shape, wanted):
    """How many of `wanted` instances the quotas let start now: of a gang all or none."""
    if w.quota_cap.shape[1] == 0:
        return wanted
    for i in range(w.quota_ptr[c, job], w.quota_ptr[c, job + 1]):
        q = w.quota_idx[c, i]
        for r in range(w.quota_cap.shape[2]):
            room = w.quota_cap[c, q, r] - w.quota_used[c, q, r]
            if counts(w, c, job, r, shape, wanted) > room:
                if w.jobs[c, job].gang == 1:
                    return 0
                wanted = max(int(room / counts(w, c, job, r, shape, 1)), 0)
    return wanted


@inner
def may_begin(w, c, job, shape):
    """Whether the quotas let all of a gang start now, or one instance of an array."""
    left = w.state[c, job].left
    if left > 1 and w.jobs[c, job].gang == 0:
        left = 1
    return within(w, c, job, shape, left) == left


@inner
def book_quotas(w, c, job, shape, instances, sign):
    """Count the instances against the job's quotas (sign 1), or no longer (sign -1)."""
    if w.quota_cap.shape[1] == 0 or instances == 0:
        return
    for i in range(w.quota_ptr[c, job], w.quota_ptr[c, job + 1]):
        q = w.quota_idx[c, i]
        for r in range(w.quota_cap.shape[2]):
            w.quota_used[c, q, r] += sign * counts(w, c, job, r, shape, instances)


@inner
def expected_end(w, c, run, now_s):
    """When a run ends if its request is right, or a moment from now if it was too short."""
    return max(w.runs[c, run].expected_end_s, now_s + GRACE_S)


@inner
def find_most(w, c):
    """The most that any node has free of anything: who asks for more need not ask node by node.

    Starts only lower it, so it holds for the rest of a pass; whatever frees places must find it
    anew.
    """
    head = w.head[c]
    for r in range(w.free.shape[2]):
        w.most[c, r] = 0.0
    head.most_whole, head.most_share = 0, 0.0
    for node in range(w.nodes.shape[1]):
        if w.node_state[c, node].up == 1:
            raise_most(w, c, node)


@inner
def raise_most(w, c, node):
    """The node may have more free of something than any other."""
    head = w.head[c]
    for r in range(w.free.shape[2]):
        w.most[c, r] = max(w.most[c, r], w.free[c, node, r])
    whole = 0
    for d in range(w.nodes[c, node].gpus):
        head.most_share = max(head.most_share, w.gpu_free[c, node, d])
        if w.gpu_free[c, node, d] == 1.0:
            whole += 1
    head.most_whole = max(head.most_whole, whole)


@inner
def refuse_like(w, c, job):
    """Note that such a request fits nowhere in this pass, nor one like it that runs longer."""
    if w.gate.shape[1] > 0:
        return  # there it matters more closely how long it runs
    like = w.jobs[c, job].like
    w.refused[c, like] = max(w.refused[c, like], refusal(w, c, job))


@inner
def is_refused(w, c, job):
    """Whether such a request, as long or shorter, fits nowhere in this pass."""
    return w.refused[c, w.jobs[c, job].like] >= refusal(w, c, job)


@inner
def refusal(w, c, job):
    """A number that grows from pass to pass, and within one as jobs are shorter."""
    last = max(w.horizon.shape[0] - 1, 0)
    shorter = last - horizon_of(w, c, job) if w.head[c].varies == 1 else last
    return w.head[c].pass_no * (last + 1) + shorter


@inner
def hopeless(w, c, job):
    """Whether no node has enough free of some one thing for an instance."""
    rec, head = w.jobs[c, job], w.head[c]
    for r in range(w.most.shape[1]):
        if w.demand[c, job, r] > w.most[c, r]:
            return True
    if rec.gpus == 0:
        return False
    return rec.gpu_share > head.most_share or (rec.gpu_share == 1.0 and rec.gpus > head.most_whole)


@inner
def free_up(w, c, node):
    """Note that the node has more room than the last pass saw."""
    if not bits.has(w.freed_words, c, node):
        bits.put(w.freed_words, w.freed_heads, c, node)
        w.head[c].freed += 1


@inner
def forget_freed(w, c):
    w.head[c].freed = 0
    for i in range(w.freed_words.shape[1]):
        w.freed_words[c, i] = bits.ZERO
    for i in range(w.freed_heads.shape[1]):
        w.freed_heads[c, i] = bits.ZERO


@inner
def release(w, c, run, sign, free, gpu_free, gpu_mem):
    """Give a run's places back to the given amounts (sign 1), or take them again (sign -1)."""
    piece = w.runs[c, run].piece
    job, shape = w.runs[c, run].job, w.runs[c, run].shape
    while piece >= 0:
        rec = w.pieces[c, piece]
        take(w, c, rec.node, job, shape, -sign * rec.count, rec.devices, free, gpu_free, gpu_mem)
        piece = rec.next


@inner
def put_off(w, c, run, sign):
    """Take a run off its nodes and quotas (sign 1), or put it back there (sign -1)."""
    release(w, c, run, sign, w.free, w.gpu_free, w.gpu_mem)
    book_quotas(w, c, w.runs[c, run].job, w.runs[c, run].shape, w.runs[c, run].instances, -sign)
