"""The event kernel: what happens to jobs, runs and nodes, and when. Compiled, exact, deterministic.

At an instant: first all ends, then repairs and failures, cancellations, changes of services' use,
then all arrivals; then the policy decides. Time jumps from instant to instant; nothing is stepped.
"""

import math

import numpy as np

from trimtab.core import Status, What
from trimtab.rules import bits
from trimtab.rules.fit import (
    NEVER,
    ONE,
    allowed,
    amount,
    choose_devices,
    link_rate,
    request_left,
    take,
)
from trimtab.rules.world import compiled, inner
from trimtab.sim import heap

FUTURE, BLOCKED, QUEUED, RUNNING = (
    int(Status.FUTURE),
    int(Status.BLOCKED),
    int(Status.QUEUED),
    int(Status.RUNNING),
)
FINISHED, FAILED, REJECTED, CANCELLED = (
    int(Status.FINISHED),
    int(Status.FAILED),
    int(Status.REJECTED),
    int(Status.CANCELLED),
)
E_SUBMITTED, E_STARTED, E_FINISHED = int(What.SUBMITTED), int(What.STARTED), int(What.FINISHED)
E_STOPPED, E_REJECTED, E_FAILED = int(What.STOPPED), int(What.REJECTED), int(What.FAILED)

# reasons in the log
(
    PLAIN,
    PREEMPTED,
    CANCEL,
    NODE_FAILED,
    RETRIES,
    PARENT,
    LIMIT,
    MOVED,
    RESIZED,
    NODE_DOWN,
    NODE_UP,
) = range(11)
REASONS = (
    "",
    "preempted",
    "cancelled",
    "node failed",
    "node failed and no retries are left",
    "a job it waits for did not finish",
    "ran past its requested time",
    "moved",
    "resized",
    "node down",
    "node up",
)
# refusals
OK, NO_JOB, NOT_QUEUED, NO_NODE, DOWN, KIND, SHAPE, COUNT, LACKS, DEVICES, NOT_RUNNING, NOT_ONE = (
    range(12)
)


@inner
def note(w, c, what, job, node, count, shape, run, reason):
    if w.conf[0].log == 0:
        return
    row = w.log[c, w.head[c].log]
    row.time_s = w.head[c].now_s
    row.what = what
    row.job = job
    row.node = node
    row.count = count
    row.shape = shape
    row.run = run
    row.reason = reason
    w.head[c].log += 1


@compiled
def reset(w, c):
    """Put cluster c at its beginning: nothing submitted, every node up and empty."""
    head = w.head[c]
    jobs, nodes = head.jobs, head.nodes
    head.now_s = 0.0
    head.alarm_s = np.inf
    head.pattern_s = w.conf[0].pattern_step_s if w.patterns.shape[0] > 0 else np.inf
    head.load_sum = head.load_square = head.power_w = head.held = 0.0
    head.submitted = head.outage = head.cancel = head.waiting = head.active = head.services = 0
    head.heap = head.log = head.calm = head.fresh = 0
    head.batch_left = 0
    head.idle = nodes
    for job in range(w.jobs.shape[1]):
        state = w.state[c, job]
        state.start_s = state.end_s = np.nan
        state.queued_s = state.waited_s = state.kept_s = 0.0
        state.attained_s = state.wasted_s = 0.0
        state.left = w.jobs[c, job].instances
        state.active = state.tries = state.stops = state.parents = 0
        state.run = -1
        state.status = FUTURE if job < jobs else CANCELLED
        if job < jobs and w.truth[c, job].service == 0:
            head.batch_left += 1
    for i in range(w.child_ptr[c, jobs]):
        w.state[c, w.child_idx[c, i]].parents += 1
    for like in range(w.prefer.shape[1]):
        w.prefer[c, like] = 0  # other jobs may have been laid here since
    for i in range(w.words.shape[1]):
        w.words[c, i] = bits.ZERO
    for i in range(w.heads.shape[1]):
        w.heads[c, i] = bits.ZERO
    for run in range(w.runs.shape[1]):
        w.runs[c, run].job = -1
        w.runs[c, run].sibling = run + 1
    w.runs[c, w.runs.shape[1] - 1].sibling = -1
    head.free_run, head.free_runs = 0, w.runs.shape[1]
    for piece in range(w.pieces.shape[1]):
        w.pieces[c, piece].next = piece + 1
    w.pieces[c, w.pieces.shape[1] - 1].next = -1
    head.free_piece, head.free_pieces = 0, w.pieces.shape[1]
    for node in range(w.nodes.shape[1]):
        reset_node(w, c, node, node < nodes)
    clear_totals(w, c)


@inner
def reset_node(w, c, node, up):
    state = w.node_state[c, node]
    state.load = state.used = state.draw = state.energy_j = state.load_s = state.window_s = (
        state.since_s
    ) = 0.0
    state.up = 1 if up else 0
    state.piece = -1
    state.pieces = 0
    state.power_w = w.nodes[c, node].idle_w if up and w.conf[0].power == 1 else 0.0
    w.head[c].power_w += state.power_w
    for r in range(w.free.shape[2]):
        w.free[c, node, r] = w.capacity[c, node, r]
    for d in range(w.gpu_free.shape[2]):
        has = d < w.nodes[c, node].gpus
        w.gpu_free[c, node, d] = 1.0 if has else 0.0
        w.gpu_mem[c, node, d] = w.nodes[c, node].gpu_mem_gb if has else 0.0
    for k in range(w.recent.shape[2]):
        w.recent[c, node, k] = 0.0


@inner
def clear_totals(w, c):
    total = w.totals[c]
    total.time_s = total.waiting_s = total.system_s = total.busy_s = total.idle_s = 0.0
    total.contended_s = total.held_s = total.imbalance_s = total.energy_j = total.work_s = (
        total.lost_s
    ) = total.quality = 0.0
    total.submitted = total.started = total.finished = total.stopped = 0
    total.failed = total.rejected = total.refused = total.late = 0


@inner
def tick(w, c, time_s):
    """Move the clock and integrate the running totals; everything is constant in between."""
    head = w.head[c]
    dt = time_s - head.now_s
    if dt > 0.0:
        total = w.totals[c]
        total.time_s += dt
        total.waiting_s += head.waiting * dt
        total.system_s += (head.waiting + head.active) * dt
        total.busy_s += head.load_sum * dt
        total.energy_j += head.power_w * dt
        if head.waiting > 0:
            total.idle_s += head.idle * dt
            total.contended_s += dt
            total.held_s += head.held * dt
        nodes = head.nodes
        if nodes > 1:
            mean = head.load_sum / nodes
            total.imbalance_s += math.sqrt(max(head.load_square / nodes - mean * mean, 0.0)) * dt
    head.now_s = time_s


@inner
def settle_node(w, c, node):
    """Bring a node's integrals of load and energy up to now, window by window."""
    state = w.node_state[c, node]
    now_s = w.head[c].now_s
    dt = now_s - state.since_s
    if dt <= 0.0:
        return
    state.energy_j += state.power_w * dt
    state.load_s += state.load * dt
    width, ring = w.conf[0].window_s, w.recent.shape[2]
    index = math.floor(state.since_s / width)
    last = math.floor(now_s / width)
    if last > index:
        end_s = (index + 1) * width
        w.recent[c, node, index % ring] = (
            state.window_s + state.load * (end_s - state.since_s)
        ) / width
        for k in range(max(index + 1, last - ring), last):
            w.recent[c, node, k % ring] = state.load
        state.window_s = state.load * (now_s - last * width)
    else:
        state.window_s += state.load * dt
    state.since_s = now_s


@inner
def use_of(w, c, job):
    """Used / demanded of a running job now: services follow their pattern."""
    truth = w.truth[c, job]
    if truth.pattern < 0:
        return truth.use
    # the step that ends at the next change, so that what ends as the step does is counted as it was
    step = int(w.head[c].pattern_s / w.conf[0].pattern_step_s + 0.5) - 1
    return truth.use * w.patterns[truth.pattern, step % w.patterns.shape[1]]


@inner
def change_load(w, c, node, used, draw):
    """Add to what is used of the node's driving resource; updates load, power and the cluster's
    sums.
    """
    settle_node(w, c, node)
    state, head = w.node_state[c, node], w.head[c]
    head.load_sum -= state.load
    head.load_square -= state.load * state.load
    head.power_w -= state.power_w
    state.used += used
    state.draw += draw
    if state.pieces == 0:
        state.used = state.draw = 0.0  # no residue of rounding on an empty node
    cap = w.capacity[c, node, w.nodes[c, node].driver]
    state.load = state.used / cap if cap > 0.0 else 0.0
    state.power_w = 0.0
    if w.conf[0].power == 1 and state.up == 1:
        rec = w.nodes[c, node]
        state.power_w = rec.idle_w + (rec.peak_w - rec.idle_w) * min(state.draw, 1.0)
    head.load_sum += state.load
    head.load_square += state.load * state.load
    head.power_w += state.power_w


@inner
def piece_use(w, c, job, node, count, shape):
    """(used, draw) that `count` instances add to a node."""
    driver = w.nodes[c, node].driver
    used = count * amount(w.demand[c, job, driver], w.scale[shape]) * use_of(w, c, job)
    cap = w.capacity[c, node, driver]
    draw = used / cap if cap > 0.0 else 0.0
    return used, draw * w.draw[w.jobs[c, job].kind, w.nodes[c, node].kind]


@inner
def add_piece(w, c, run, node, count, devices):
    """Put a piece of a run on a node: list, load and neighbours. The amounts are booked by the
    caller.
    """
    head = w.head[c]
    piece = head.free_piece
    head.free_piece = w.pieces[c, piece].next
    head.free_pieces -= 1
    rec, state = w.pieces[c, piece], w.node_state[c, node]
    rec.run = run
    rec.node = node
    rec.count = count
    rec.devices = devices
    rec.next = w.runs[c, run].piece
    rec.before = -1
    rec.after = state.piece
    if state.piece >= 0:
        w.pieces[c, state.piece].before = piece
    state.piece = piece
    if state.pieces == 0:
        head.idle -= 1
    state.pieces += 1
    w.runs[c, run].piece = piece
    job, shape = w.runs[c, run].job, w.runs[c, run].shape
    used, draw = piece_use(w, c, job, node, count, shape)
    change_load(w, c, node, used, draw)


@inner
def drop_pieces(w, c, run):
    """Take all pieces of a run off their nodes and give their amounts back."""
    head = w.head[c]
    job, shape = w.runs[c, run].job, w.runs[c, run].shape
    piece = w.runs[c, run].piece
    while piece >= 0:
        rec = w.pieces[c, piece]
        node, following = rec.node, rec.next
        take(w, c, node, job, shape, -rec.count, rec.devices, w.free, w.gpu_free, w.gpu_mem)
        if rec.before >= 0:
            w.pieces[c, rec.before].after = rec.after
        else:
            w.node_state[c, node].piece = rec.after
        if rec.after >= 0:
            w.pieces[c, rec.after].before = rec.before
        w.node_state[c, node].pieces -= 1
        if w.node_state[c, node].pieces == 0 and w.node_state[c, node].up == 1:
            head.idle += 1
        used, draw = piece_use(w, c, job, node, rec.count, shape)
        change_load(w, c, node, -used, -draw)
        rec.next = head.free_piece
        head.free_piece = piece
        head.free_pieces += 1
        if w.conf[0].interference == 1:
            retune(w, c, node, run)
        piece = following
    w.runs[c, run].piece = -1


@inner
def speed(w, c, run, disturbed):
    """Work seconds a second of a run: its slowest piece, the worst link and, if `disturbed`, its
    neighbours.
    """
    rec = w.runs[c, run]
    job = rec.job
    if w.truth[c, job].service == 1:
        return 1.0
    kind = w.jobs[c, job].kind
    slowest = np.inf
    link = 1.0
    piece = rec.piece
    while piece >= 0:
        node = w.pieces[c, piece].node
        rate = w.rate[kind, w.nodes[c, node].kind, rec.shape]
        if disturbed:
            rate /= 1.0 + disturbance(w, c, node, run, kind)
        slowest = min(slowest, rate)
        if w.link.shape[0] > 1:
            other = w.pieces[c, piece].next
            while other >= 0:
                a, b = w.nodes[c, node].region, w.nodes[c, w.pieces[c, other].node].region
                if a != b:
                    link = min(link, link_rate(w, c, a, b))
                other = w.pieces[c, other].next
        piece = w.pieces[c, piece].next
    return slowest * link


@inner
def set_speed(w, c, run, delay_s, asked_s):
    """Speed and ends of a run that has just got its places; its neighbours there are slowed too."""
    rec, head = w.runs[c, run], w.head[c]
    rec.rate = speed(w, c, run, w.conf[0].interference == 1)
    # what the request promises: known speeds and links, but not what neighbours do. Summed as a
    # plan
    # sums it, so that a job is expected to end at the same instant before and after it starts.
    promised = speed(w, c, run, False)
    rec.expected_end_s = head.now_s + (delay_s + asked_s / promised)
    set_end(w, c, run)


@inner
def disturbance(w, c, node, run, kind):
    """Extra time a second that the other runs on the node cost."""
    total = 0.0
    piece = w.node_state[c, node].piece
    while piece >= 0:
        other = w.pieces[c, piece].run
        if other != run:
            total += w.slow[kind, w.jobs[c, w.runs[c, other].job].kind]
        piece = w.pieces[c, piece].after
    return total


@inner
def settle_run(w, c, run):
    """Count the work done since the last change of speed."""
    rec = w.runs[c, run]
    now_s = w.head[c].now_s
    since_s = max(rec.updated_s, rec.resume_s)
    if now_s > since_s:
        rec.left_s = max(rec.left_s - (now_s - since_s) * rec.rate, 0.0)
    rec.updated_s = now_s


@inner
def set_end(w, c, run):
    rec = w.runs[c, run]
    begin_s = max(rec.updated_s, rec.resume_s)
    # a rate of 1 must not round: start + work is the same sum in every engine
    rec.end_s = begin_s + (rec.left_s if rec.rate == 1.0 else rec.left_s / rec.rate)
    if w.conf[0].kill_at_request == 1:
        rec.end_s = min(rec.end_s, rec.start_s + w.jobs[c, rec.job].request_s)


@inner
def retune(w, c, node, but):
    """Neighbours on a node changed: set the speed of every other run there anew."""
    head = w.head[c]
    piece = w.node_state[c, node].piece
    while piece >= 0:
        run = w.pieces[c, piece].run
        if run != but:
            rate = speed(w, c, run, True)
            if rate != w.runs[c, run].rate:
                settle_run(w, c, run)
                w.runs[c, run].rate = rate
                set_end(w, c, run)
                heap.moved(w.heap, w.runs, c, run, head.heap)
        piece = w.pieces[c, piece].after


@inner
def enqueue(w, c, job):
    state, head = w.state[c, job], w.head[c]
    state.status = QUEUED
    state.queued_s = head.now_s
    head.waiting += 1
    if head.fresh < w.fresh.shape[1]:
        w.fresh[c, head.fresh] = job
        head.fresh += 1
    else:
        head.calm = 0
    bits.put(w.words, w.heads, c, w.rank[c, job])


@inner
def dequeue(w, c, job):
    state, head = w.state[c, job], w.head[c]
    state.waited_s += head.now_s - state.queued_s
    head.waiting -= 1
    bits.drop(w.words, w.heads, c, w.rank[c, job])


@inner
def refuse(w, c, why, node, resource, wants, free):
    head = w.head[c]
    head.why = why
    head.why_node = node
    head.why_resource = resource
    head.why_wants = wants
    head.why_free = free
    w.totals[c].refused += 1
    return why


@inner
def check_node(w, c, job, shape, node, devices):
    """OK if one instance fits on the node now (on these devices, 0 = any), else why not."""
    if node < 0 or node >= w.head[c].nodes:
        return refuse(w, c, NO_NODE, node, -1, 0.0, 0.0)
    if w.node_state[c, node].up == 0:
        return refuse(w, c, DOWN, node, -1, 0.0, 0.0)
    if not allowed(w, c, node, job, shape):
        return refuse(w, c, KIND, node, -1, 0.0, 0.0)
    scale = w.scale[shape]
    for r in range(w.free.shape[2]):
        wants = amount(w.demand[c, job, r], scale)
        if w.free[c, node, r] < wants:
            return refuse(w, c, LACKS, node, r, wants, w.free[c, node, r])
    gpus = int(w.jobs[c, job].gpus * scale)
    has = w.nodes[c, node].gpus
    if has < 64 and devices >> np.uint64(has) != NEVER:
        return refuse(w, c, DEVICES, node, -1, float(gpus), 0.0)
    if gpus == 0:
        return OK if devices == NEVER else refuse(w, c, DEVICES, node, -1, 0.0, 0.0)
    room = 0
    named = 0
    for d in range(w.nodes[c, node].gpus):
        asked = devices == NEVER or (devices >> np.uint64(d)) & ONE != NEVER
        if asked:
            named += 1
        if (
            asked
            and w.gpu_free[c, node, d] >= w.jobs[c, job].gpu_share
            and w.gpu_mem[c, node, d] >= w.jobs[c, job].gpu_mem_gb
        ):
            room += 1
    if room < gpus or (devices != NEVER and named != gpus):
        return refuse(w, c, DEVICES, node, -1, float(gpus), float(room))
    return OK


@inner
def book_entries(w, c, job, shape, at, count):
    """Check and w entries at .. at + count of the scratch; on a refusal nothing stays booked."""
    for i in range(at, at + count):
        node = w.entry[c, i].node
        why = check_node(w, c, job, shape, node, w.entry[c, i].devices)
        if why != OK:
            for j in range(at, i):
                take(
                    w, c, w.entry[c, j].node, job, shape, -1, w.entry[c, j].devices,
                    w.free, w.gpu_free, w.gpu_mem,
                )  # fmt: skip
            return why
        if w.entry[c, i].devices == NEVER:
            w.entry[c, i].devices = choose_devices(w, c, node, job, shape, w.gpu_free, w.gpu_mem)
        take(
            w, c, node, job, shape, 1, w.entry[c, i].devices,
            w.free, w.gpu_free, w.gpu_mem,
        )  # fmt: skip
    return OK


@compiled
def start(w, c, job, shape, at, count):
    """Start `count` instances on the nodes in entries at .. at + count. OK, or why not."""
    head = w.head[c]
    if job < 0 or job >= head.jobs:
        return refuse(w, c, NO_JOB, -1, -1, 0.0, 0.0)
    state = w.state[c, job]
    if state.status != QUEUED:
        return refuse(w, c, NOT_QUEUED, -1, -1, 0.0, 0.0)
    if (
        shape < 0
        or shape >= w.scale.shape[0]
        or (w.jobs[c, job].shapes >> np.uint64(shape)) & ONE == NEVER
    ):
        return refuse(w, c, SHAPE, -1, -1, float(shape), 0.0)
    gang = w.jobs[c, job].gang == 1
    if count < 1 or count > state.left or (gang and count != state.left):
        return refuse(w, c, COUNT, -1, -1, float(count), float(state.left))
    why = book_entries(w, c, job, shape, at, count)
    if why != OK:
        return why
    if math.isnan(state.start_s):
        state.start_s = head.now_s
    state.left -= count
    state.active += count
    if gang:
        begin_run(w, c, job, shape, at, count)
    else:
        i = at
        while i < at + count:
            stop = i + 1
            while (
                stop < at + count
                and w.entry[c, stop].node == w.entry[c, i].node
                and w.entry[c, i].devices == NEVER
            ):
                stop += 1
            begin_run(w, c, job, shape, i, stop - i)
            i = stop
    if state.left == 0:
        dequeue(w, c, job)
        state.status = RUNNING
        head.active += 1
    w.totals[c].started += 1
    return OK


@inner
def begin_run(w, c, job, shape, at, count):
    """One run of entries that start and end together; neighbouring entries on a node share a
    piece.
    """
    head = w.head[c]
    run = head.free_run
    rec, state = w.runs[c, run], w.state[c, job]
    head.free_run = rec.sibling
    head.free_runs -= 1
    rec.job = job
    rec.shape = shape
    rec.instances = count
    rec.piece = -1
    rec.start_s = rec.updated_s = head.now_s
    rec.resume_s = head.now_s + w.conf[0].startup_s
    rec.sibling = state.run
    state.run = run
    alone = w.jobs[c, job].gang == 1 or w.jobs[c, job].instances == 1
    rec.left_s = w.truth[c, job].work_s - (state.kept_s if alone else 0.0)
    if w.truth[c, job].pattern >= 0:
        head.services += 1
    i = at
    while i < at + count:
        node, mask = w.entry[c, i].node, w.entry[c, i].devices
        stop = i + 1
        while stop < at + count and w.entry[c, stop].node == node and mask == NEVER:
            stop += 1
        add_piece(w, c, run, node, stop - i, mask)
        note(w, c, E_STARTED, job, node, stop - i, shape, run, PLAIN)
        i = stop
    hold_share(w, c, job, shape, count)
    set_speed(w, c, run, w.conf[0].startup_s, request_left(w, c, job))
    heap.push(w.heap, w.runs, c, run, head.heap)
    head.heap += 1
    if w.conf[0].interference == 1:
        piece = rec.piece
        while piece >= 0:
            retune(w, c, w.pieces[c, piece].node, run)
            piece = w.pieces[c, piece].next


@inner
def hold_share(w, c, job, shape, instances):
    """Count what a run holds of the whole cluster, as a mean over its resources."""
    share = 0.0
    resources = w.demand.shape[2]
    for r in range(resources):
        if w.capacity_sum[c, r] > 0.0:
            share += w.demand[c, job, r] * w.scale[shape] / w.capacity_sum[c, r]
    head = w.head[c]
    head.held += instances * share / resources
    if head.heap == 0 and instances < 0:
        head.held = 0.0  # no residue of rounding on an empty cluster


@inner
def unlink_run(w, c, run):
    """Free a run's slot and its places; its job keeps the rest of its runs."""
    head = w.head[c]
    rec = w.runs[c, run]
    job = rec.job
    heap.remove(w.heap, w.runs, c, run, head.heap)
    head.heap -= 1
    head.calm = 0
    drop_pieces(w, c, run)
    state = w.state[c, job]
    if state.run == run:
        state.run = rec.sibling
    else:
        other = state.run
        while w.runs[c, other].sibling != run:
            other = w.runs[c, other].sibling
        w.runs[c, other].sibling = rec.sibling
    state.active -= rec.instances
    state.attained_s += (head.now_s - rec.start_s) * rec.instances
    hold_share(w, c, job, rec.shape, -rec.instances)
    if w.truth[c, job].pattern >= 0:
        head.services -= 1
    rec.job = -1
    rec.sibling = head.free_run
    head.free_run = run
    head.free_runs += 1


@inner
def finish_run(w, c, run):
    """A run reached its end: by its work, or by its requested time where that kills."""
    rec = w.runs[c, run]
    job, count = rec.job, rec.instances
    by_work = max(rec.updated_s, rec.resume_s) + (
        rec.left_s if rec.rate == 1.0 else rec.left_s / rec.rate
    )
    cut = rec.end_s < by_work
    if cut:
        fail_job(w, c, job, LIMIT)
        return
    alone = w.jobs[c, job].gang == 1 or w.jobs[c, job].instances == 1
    work_s = w.truth[c, job].work_s - (w.state[c, job].kept_s if alone else 0.0)
    w.totals[c].work_s += work_s * count
    w.totals[c].quality += count * w.quality[w.jobs[c, job].kind, rec.shape]
    unlink_run(w, c, run)
    state = w.state[c, job]
    if state.active == 0 and state.left == 0:
        end_job(w, c, job, FINISHED, PLAIN)


@inner
def kill_run(w, c, run):
    """End a run before its work is done: keep what checkpoints saved, count the rest as lost."""
    settle_run(w, c, run)
    rec = w.runs[c, run]
    job, count = rec.job, rec.instances
    state = w.state[c, job]
    alone = w.jobs[c, job].gang == 1 or w.jobs[c, job].instances == 1
    kept_s = state.kept_s if alone else 0.0
    done_s = w.truth[c, job].work_s - rec.left_s
    if not math.isfinite(done_s):
        done_s = 0.0  # a service without end makes no progress that could be lost
    save_s = 0.0
    every_s = w.jobs[c, job].checkpoint_s
    if alone:
        if every_s == 0.0:
            save_s = done_s
        elif math.isfinite(every_s):
            save_s = max(min(math.floor(done_s / every_s) * every_s, done_s), kept_s)
        state.kept_s = save_s
    w.totals[c].work_s += (save_s - kept_s) * count
    w.totals[c].lost_s += (done_s - save_s) * count
    state.wasted_s += (done_s - save_s) / rec.rate * count
    unlink_run(w, c, run)
    state.left += count


@inner
def kill_all(w, c, job):
    """Stop every run of a job; it is left neither queued nor running."""
    state = w.state[c, job]
    if state.status == RUNNING:
        w.head[c].active -= 1
    elif state.status == QUEUED:
        dequeue(w, c, job)
    while state.run >= 0:
        kill_run(w, c, state.run)


@inner
def end_job(w, c, job, status, reason):
    """The one place where a job's life ends. Children are released, or fail with it."""
    head = w.head[c]
    state, total = w.state[c, job], w.totals[c]
    if state.status == RUNNING:
        head.active -= 1
    state.status = status
    state.end_s = head.now_s
    if w.truth[c, job].service == 0:
        head.batch_left -= 1
    if status == FINISHED:
        total.finished += 1
        if head.now_s > w.jobs[c, job].deadline_s:
            total.late += 1
        note(w, c, E_FINISHED, job, -1, 0, 0, -1, reason)
    elif status == REJECTED:
        total.rejected += 1
        note(w, c, E_REJECTED, job, -1, 0, 0, -1, reason)
    elif status == CANCELLED:
        total.stopped += 1
        note(w, c, E_STOPPED, job, -1, 0, 0, -1, reason)
    else:
        total.failed += 1
        note(w, c, E_FAILED, job, -1, 0, 0, -1, reason)
    for i in range(w.child_ptr[c, job], w.child_ptr[c, job + 1]):
        child = w.child_idx[c, i]
        other = w.state[c, child]
        other.parents -= 1
        if status == FINISHED:
            if other.parents == 0 and other.status == BLOCKED:
                enqueue(w, c, child)
        elif other.status == FUTURE or other.status == BLOCKED:
            orphan(w, c, child)


@inner
def orphan(w, c, job):
    """Fail a job whose parent did not finish, and all that wait for it.

    The rows to visit are chained through `run`, which a job that never started does not use.
    """
    w.state[c, job].run = -1
    while job >= 0:
        state = w.state[c, job]
        following = state.run
        state.run = -1
        state.status = FAILED
        state.end_s = w.head[c].now_s
        if w.truth[c, job].service == 0:
            w.head[c].batch_left -= 1
        w.totals[c].failed += 1
        note(w, c, E_FAILED, job, -1, 0, 0, -1, PARENT)
        for i in range(w.child_ptr[c, job], w.child_ptr[c, job + 1]):
            child = w.child_idx[c, i]
            if w.state[c, child].status < QUEUED and w.state[c, child].tries == 0:
                w.state[
                    c, child
                ].tries = 1  # visited: a child of two failed parents is chained once
                w.state[c, child].run = following
                following = child
        job = following


@inner
def fail_job(w, c, job, reason):
    kill_all(w, c, job)
    w.state[c, job].status = BLOCKED
    end_job(w, c, job, FAILED, reason)


@compiled
def stop(w, c, job):
    """Preempt: the job goes back to the queue."""
    if job < 0 or job >= w.head[c].jobs:
        return refuse(w, c, NO_JOB, -1, -1, 0.0, 0.0)
    if w.state[c, job].run < 0:
        return refuse(w, c, NOT_RUNNING, -1, -1, 0.0, 0.0)
    kill_all(w, c, job)
    enqueue(w, c, job)
    w.state[c, job].stops += 1
    w.totals[c].stopped += 1
    note(w, c, E_STOPPED, job, -1, 0, 0, -1, PREEMPTED)
    return OK


@compiled
def reject(w, c, job):
    if job < 0 or job >= w.head[c].jobs:
        return refuse(w, c, NO_JOB, -1, -1, 0.0, 0.0)
    if w.state[c, job].status != QUEUED or w.state[c, job].run >= 0:
        return refuse(w, c, NOT_QUEUED, -1, -1, 0.0, 0.0)
    dequeue(w, c, job)
    w.state[c, job].status = BLOCKED
    end_job(w, c, job, REJECTED, PLAIN)
    return OK


@compiled
def relocate(w, c, job, shape, at, count, reason):
    """Move a job that is one run to the nodes in entries at .. at + count, or to another shape
    there.
    """
    head = w.head[c]
    if job < 0 or job >= head.jobs:
        return refuse(w, c, NO_JOB, -1, -1, 0.0, 0.0)
    run = w.state[c, job].run
    if run < 0:
        return refuse(w, c, NOT_RUNNING, -1, -1, 0.0, 0.0)
    if w.runs[c, run].sibling >= 0:
        return refuse(w, c, NOT_ONE, -1, -1, 0.0, 0.0)
    if (
        shape < 0
        or shape >= w.scale.shape[0]
        or (w.jobs[c, job].shapes >> np.uint64(shape)) & ONE == NEVER
    ):
        return refuse(w, c, SHAPE, -1, -1, float(shape), 0.0)
    if count != w.runs[c, run].instances:
        return refuse(w, c, COUNT, -1, -1, float(count), float(w.runs[c, run].instances))
    give_back(w, c, run, 1)
    why = book_entries(w, c, job, shape, at, count)
    if why != OK:
        give_back(w, c, run, -1)
        return why
    give_back(w, c, run, -1)  # drop_pieces gives it back for good
    settle_run(w, c, run)
    drop_pieces(w, c, run)
    rec = w.runs[c, run]
    hold_share(w, c, job, rec.shape, -rec.instances)
    rec.shape = shape
    hold_share(w, c, job, shape, rec.instances)
    rec.resume_s = max(rec.resume_s, head.now_s + w.conf[0].move_s)
    i = at
    while i < at + count:
        node, mask = w.entry[c, i].node, w.entry[c, i].devices
        end = i + 1
        while end < at + count and w.entry[c, end].node == node and mask == NEVER:
            end += 1
        add_piece(w, c, run, node, end - i, mask)
        note(w, c, E_STARTED, job, node, end - i, shape, run, reason)
        i = end
    asked = max(w.jobs[c, job].request_s - (w.truth[c, job].work_s - rec.left_s), 0.0)
    if not math.isfinite(asked):
        asked = w.jobs[c, job].request_s
    set_speed(w, c, run, rec.resume_s - head.now_s, asked)
    heap.moved(w.heap, w.runs, c, run, head.heap)
    if w.conf[0].interference == 1:
        piece = rec.piece
        while piece >= 0:
            retune(w, c, w.pieces[c, piece].node, run)
            piece = w.pieces[c, piece].next
    return OK


@inner
def give_back(w, c, run, sign):
    piece = w.runs[c, run].piece
    job, shape = w.runs[c, run].job, w.runs[c, run].shape
    while piece >= 0:
        rec = w.pieces[c, piece]
        take(
            w,
            c,
            rec.node,
            job,
            shape,
            -sign * rec.count,
            rec.devices,
            w.free,
            w.gpu_free,
            w.gpu_mem,
        )
        piece = rec.next


@inner
def node_down(w, c, node):
    """A node fails: every run with a piece on it is lost, its job retried or failed."""
    state = w.node_state[c, node]
    if state.up == 0:
        return
    note(w, c, E_FAILED, -1, node, 0, 0, -1, NODE_DOWN)
    while state.piece >= 0:
        run = w.pieces[c, state.piece].run
        job = w.runs[c, run].job
        w.state[c, job].tries += 1
        if w.state[c, job].tries > w.conf[0].retries:
            fail_job(w, c, job, RETRIES)
            continue
        if w.state[c, job].status == RUNNING:
            w.head[c].active -= 1
            kill_run(w, c, run)
            enqueue(w, c, job)
        else:
            kill_run(w, c, run)
        note(w, c, E_STOPPED, job, node, 0, 0, run, NODE_FAILED)
    settle_node(w, c, node)
    w.head[c].idle -= 1
    w.head[c].calm = 0
    state.up = 0
    change_load(w, c, node, 0.0, 0.0)


@inner
def node_up(w, c, node):
    state = w.node_state[c, node]
    if state.up == 1:
        return
    settle_node(w, c, node)
    state.up = 1
    w.head[c].idle += 1
    w.head[c].calm = 0
    change_load(w, c, node, 0.0, 0.0)
    note(w, c, E_STARTED, -1, node, 0, 0, -1, NODE_UP)


@inner
def cancel(w, c, job):
    """The user withdraws a job, wherever it is in its life."""
    status = w.state[c, job].status
    if status >= FINISHED:
        return
    w.head[c].calm = 0
    if status in (QUEUED, RUNNING):
        kill_all(w, c, job)
    w.state[c, job].status = BLOCKED
    end_job(w, c, job, CANCELLED, CANCEL)


@inner
def change_use(w, c):
    """Services use more or less from now on: settle what they added and add it anew."""
    head = w.head[c]
    head.calm = 0
    for i in range(head.heap):
        run = w.heap[c, i]
        job = w.runs[c, run].job
        if w.truth[c, job].pattern < 0:
            continue
        step = int(head.now_s / w.conf[0].pattern_step_s + 0.5)
        row, width = w.truth[c, job].pattern, w.patterns.shape[1]
        change = w.patterns[row, step % width] - w.patterns[row, (step - 1) % width]
        piece = w.runs[c, run].piece
        while piece >= 0:
            rec = w.pieces[c, piece]
            node = rec.node
            driver = w.nodes[c, node].driver
            used = rec.count * amount(w.demand[c, job, driver], w.scale[w.runs[c, run].shape])
            used *= w.truth[c, job].use * change
            cap = w.capacity[c, node, driver]
            draw = used / cap if cap > 0.0 else 0.0
            change_load(w, c, node, used, draw * w.draw[w.jobs[c, job].kind, w.nodes[c, node].kind])
            piece = rec.next


@inner
def next_time(w, c):
    """When something happens next, or inf. Changes of use alone never keep a simulation going."""
    head = w.head[c]
    time_s = head.alarm_s
    if head.heap > 0:
        time_s = min(time_s, w.runs[c, w.heap[c, 0]].end_s)
    if head.submitted < head.jobs:
        time_s = min(time_s, w.jobs[c, head.submitted].submit_s)
    while head.cancel < w.cancel.shape[1] and w.cancel[c, head.cancel] >= 0:
        job = w.cancel[c, head.cancel]
        if w.state[c, job].status < FINISHED:
            time_s = min(time_s, w.truth[c, job].cancel_s)
            break
        head.cancel += 1
    if head.outage < w.outage.shape[1] and (head.waiting > 0 or time_s < np.inf):
        time_s = min(time_s, max(w.outage[c, head.outage].time_s, head.now_s))
    if time_s < np.inf and head.services > 0:
        time_s = min(time_s, head.pattern_s)
    return time_s


@compiled
def advance(w, c):
    """Jump to the next instant and let everything that is due there happen. False when nothing is
    left.
    """
    head = w.head[c]
    if head.batch_left == 0:
        return False
    time_s = next_time(w, c)
    if time_s == np.inf:
        return False
    tick(w, c, max(time_s, head.now_s))
    now_s = head.now_s
    while head.heap > 0 and w.runs[c, w.heap[c, 0]].end_s <= now_s:
        finish_run(w, c, w.heap[c, 0])
    while head.outage < w.outage.shape[1] and w.outage[c, head.outage].time_s <= now_s:
        rec = w.outage[c, head.outage]
        if rec.node < head.nodes:
            if rec.up == 1:
                node_up(w, c, rec.node)
            else:
                node_down(w, c, rec.node)
        head.outage += 1
    while head.cancel < w.cancel.shape[1] and w.cancel[c, head.cancel] >= 0:
        job = w.cancel[c, head.cancel]
        if w.truth[c, job].cancel_s > now_s:
            break
        cancel(w, c, job)
        head.cancel += 1
    if head.pattern_s <= now_s:
        if head.services > 0:
            change_use(w, c)
        step = w.conf[0].pattern_step_s
        following = math.floor(now_s / step) + 1
        # k x step / step may fall short of k, and a change that is not ahead stops the clock
        head.pattern_s = following * step if following * step > now_s else (following + 1) * step
    while head.submitted < head.jobs and w.jobs[c, head.submitted].submit_s <= now_s:
        head.submitted += 1
        submit(w, c, head.submitted - 1)
    if head.alarm_s <= now_s:
        head.alarm_s = np.inf
    return True


@inner
def submit(w, c, job):
    state = w.state[c, job]
    w.totals[c].submitted += 1
    note(w, c, E_SUBMITTED, job, -1, 0, 0, -1, PLAIN)
    if state.status != FUTURE:
        return  # withdrawn, or failed with a parent, before its time
    state.status = BLOCKED
    if state.parents == 0:
        enqueue(w, c, job)
