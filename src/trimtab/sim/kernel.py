"""The event kernel: what happens to jobs, runs and nodes, and when. Compiled, exact, deterministic.

At an instant: first all ends, then repairs and failures, cancellations, changes of services' use,
then all arrivals; then the policy decides. Time jumps from instant to instant; nothing is stepped.
"""

import math

import numpy as np

from trimtab.compiled import compiled, inner
from trimtab.rules import bits
from trimtab.rules.fit import amount, forget_freed, next_edge, touch
from trimtab.sim.evict import come_back, evict_due, next_eviction
from trimtab.sim.lend import foretell, lay_out, look_ahead, read_regions, read_use, varies
from trimtab.sim.life import cancel, enqueue, fail_job, finish_run, kill_run, settle_in, submit
from trimtab.sim.log import (
    BLOCKED,
    CANCELLED,
    E_FAILED,
    E_STARTED,
    E_STOPPED,
    FINISHED,
    FUTURE,
    NODE_DOWN,
    NODE_FAILED,
    NODE_UP,
    RETRIES,
    RUNNING,
    note,
)
from trimtab.sim.meter import change_load, change_service, keep_arrived, settle_node, tick
from trimtab.sim.runs import retune


@compiled
def reset(w, c):
    """Put cluster c at its beginning: nothing submitted, every node up and empty."""
    head = w.head[c]
    jobs, nodes = head.jobs, head.nodes
    head.now_s = 0.0
    head.alarm_s = np.inf
    head.pattern_s = w.conf[0].pattern_step_s if w.patterns.shape[0] > 0 else np.inf
    head.load_sum = head.load_square = head.power_w = head.held = 0.0
    head.follows = 0
    head.submitted = head.outage = head.cancel = head.waiting = head.active = head.services = 0
    head.heap = head.log = head.calm = head.fresh = head.settled = 0
    head.later_s = 0.0
    w.quota_used[c] = 0.0
    head.batch_left = head.pinned = 0
    head.first_s, head.last = np.inf, -1
    head.service = head.harmed = head.own_harm = 0.0
    head.due_s, head.moved_s, head.step = np.inf, 0.0, 0
    head.back_first = head.back_last = -1
    head.idle = nodes
    for job in range(w.jobs.shape[1]):
        state = w.state[c, job]
        state.start_s = state.end_s = np.nan
        state.queued_s = state.waited_s = state.kept_s = 0.0
        state.attained_s = state.wasted_s = 0.0
        state.left = w.jobs[c, job].instances
        state.active = state.tries = state.stops = state.parents = 0
        state.run = state.back_next = -1
        state.evicted = state.back = 0
        state.back_s = 0.0
        state.status = FUTURE if job < jobs else CANCELLED
        w.so_far[c, job].held_s = w.so_far[c, job].done_s = 0.0
        if job < jobs and w.truth[c, job].pattern >= 0:
            w.follow[c, head.follows] = job
            head.follows += 1
        if job < jobs:
            head.pinned += w.truth[c, job].pinned > 0
            if w.conf[0].lends == 0 or w.truth[c, job].service == 0:
                head.first_s = min(head.first_s, w.jobs[c, job].submit_s)
        if job < jobs and w.truth[c, job].service == 0:
            head.batch_left += 1
            head.last = job
    for i in range(w.child_ptr[c, jobs]):
        w.state[c, w.child_idx[c, i]].parents += 1
    for like in range(w.prefer.shape[1]):
        w.prefer[c, like] = 0  # other jobs may have been laid here since
    for i in range(w.words.shape[1]):
        w.words[c, i] = bits.ZERO
    for i in range(w.heads.shape[1]):
        w.heads[c, i] = bits.ZERO
    forget_freed(w, c)
    for run in range(w.runs.shape[1]):
        w.runs[c, run].job = -1
        w.runs[c, run].sibling = run + 1
    w.runs[c, w.runs.shape[1] - 1].sibling = -1
    head.free_run, head.free_runs = 0, w.runs.shape[1]
    for piece in range(w.pieces.shape[1]):
        w.pieces[c, piece].next = piece + 1
    w.pieces[c, w.pieces.shape[1] - 1].next = -1
    head.free_piece, head.free_pieces = 0, w.pieces.shape[1]
    for h in range(w.tree_seen.shape[1]):
        w.tree_seen[c, h] = -1
    for node in range(w.nodes.shape[1]):
        reset_node(w, c, node, node < nodes)
    clear_totals(w.totals[c])
    clear_totals(w.arrived[c])
    if w.conf[0].lends == 1:
        for g in range(w.shared.shape[1]):
            for k in range(w.shared.shape[2]):
                w.shared[c, g, k] = -1.0
        head.varies = 1 if varies(head.estimate) else 0
        for node in range(nodes):
            lay_out(w, c, node)


@inner
def reset_node(w, c, node, up):
    state = w.node_state[c, node]
    state.load = state.used = state.draw = state.energy_j = state.load_s = state.window_s = (
        state.since_s
    ) = 0.0
    state.up = 1 if up else 0
    state.piece = -1
    state.pieces = state.batch = state.reads = state.read_step = state.evicted = 0
    state.service = state.reserved = state.kept = state.tuned = state.harm_s = 0.0
    state.read = -1.0
    state.over_s = state.hot_s = state.due_s = np.inf
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
def clear_totals(total):
    total.time_s = total.waiting_s = total.system_s = total.busy_s = total.idle_s = 0.0
    total.contended_s = total.held_s = total.imbalance_s = total.energy_j = total.work_s = (
        total.lost_s
    ) = total.quality = 0.0
    total.submitted = total.started = total.finished = total.stopped = 0
    total.failed = total.rejected = total.refused = total.late = total.evicted = 0
    total.service_s = total.harmed_s = total.own_harm_s = 0.0


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
        if w.truth[c, job].service == 1 and w.truth[c, job].pinned > 0:
            w.head[c].active -= 1
            kill_run(w, c, run)  # it comes back with its node
            w.state[c, job].status = BLOCKED
            w.head[c].pinned += 1
            note(w, c, E_STOPPED, job, node, 0, 0, run, NODE_FAILED)
            continue
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
            bits.put(w.words, w.heads, c, w.rank[c, job])  # where all else of it backed off
        note(w, c, E_STOPPED, job, node, 0, 0, run, NODE_FAILED)
    settle_node(w, c, node)
    w.head[c].idle -= 1
    w.head[c].calm = w.head[c].settled = 0
    state.up = 0
    touch(w, c, node)
    change_load(w, c, node, 0.0, 0.0)


@inner
def node_up(w, c, node):
    state = w.node_state[c, node]
    if state.up == 1:
        return
    settle_node(w, c, node)
    state.up = 1
    touch(w, c, node)
    w.head[c].idle += 1
    w.head[c].calm = w.head[c].settled = 0
    change_load(w, c, node, 0.0, 0.0)
    note(w, c, E_STARTED, -1, node, 0, 0, -1, NODE_UP)
    for job in range(w.head[c].submitted):
        own = w.truth[c, job].pinned == node + 1 and w.truth[c, job].service == 1
        if own and w.state[c, job].status == BLOCKED:
            w.head[c].pinned -= 1
            settle_in(w, c, job)


@inner
def change_use(w, c):
    """Services use more or less from now on."""
    head = w.head[c]
    head.calm = 0
    step = int(head.now_s / w.conf[0].pattern_step_s + 0.5)
    follow_patterns(w, c, step)
    if w.conf[0].lends == 1:
        head.step = step
        for node in range(head.nodes):
            read_use(w, c, node, step)
        read_regions(w, c, step)
        look_ahead(w, c, step)
        for node in range(head.nodes):
            foretell(w, c, node)
            lay_out(w, c, node)
            if w.conf[0].curved == 1:
                retune(w, c, node, -1)


@inner
def follow_patterns(w, c, step):
    """Add what services use more or less than a step ago: those that stand together in the trace
    and on one node at once.
    """
    width = w.patterns.shape[1]
    last, more, served, drawn = -1, 0.0, 0.0, 0.0
    for i in range(w.head[c].follows):
        job = w.follow[c, i]
        run = w.state[c, job].run if w.state[c, job].active > 0 else -1
        if run < 0:
            continue
        row, kind = w.truth[c, job].pattern, w.jobs[c, job].kind
        change = w.patterns[row, step % width] - w.patterns[row, (step - 1) % width]
        while run >= 0:
            piece = w.runs[c, run].piece
            while piece >= 0:
                rec = w.pieces[c, piece]
                node, driver = rec.node, w.nodes[c, rec.node].driver
                if node != last:
                    change_node(w, c, last, more, served, drawn)
                    last, more, served, drawn = node, 0.0, 0.0, 0.0
                used = rec.count * amount(w.demand[c, job, driver], w.scale[w.runs[c, run].shape])
                used *= w.truth[c, job].use * change
                cap = w.capacity[c, node, driver]
                draw = used / cap if cap > 0.0 else 0.0
                more += used
                served += used * w.truth[c, job].service
                drawn += draw * w.draw[kind, w.nodes[c, node].kind]
                piece = rec.next
            run = w.runs[c, run].sibling
    change_node(w, c, last, more, served, drawn)


@inner
def change_node(w, c, node, used, served, draw):
    """Add to the use of a node's driving resource, of which services add `served`."""
    if node >= 0:
        change_service(w, c, node, served)
        change_load(w, c, node, used, draw)


@inner
def goes_on(w, c):
    """Whether waiting jobs may yet find room as services use less: not once their use has gone
    round without a start.
    """
    head, round_s = w.head[c], w.patterns.shape[1] * w.conf[0].pattern_step_s
    return w.conf[0].lends == 1 and head.waiting > 0 and head.now_s - head.moved_s <= round_s


@inner
def next_time(w, c):
    """When something happens next, or inf. Changes of use alone keep a simulation going only where
    jobs wait for them, and so does an alarm where services' use changes.
    """
    head = w.head[c]
    time_s = head.alarm_s if w.conf[0].lends == 0 else np.inf
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
    if w.gate.shape[1] > 0 and head.waiting > 0:
        time_s = min(time_s, next_edge(w, c, head.now_s))
    if head.outage < w.outage.shape[1] and (head.waiting > 0 or time_s < np.inf):
        time_s = min(time_s, max(w.outage[c, head.outage].time_s, head.now_s))
    if head.back_first >= 0:
        time_s = min(time_s, w.state[c, head.back_first].back_s)
    if time_s < np.inf or goes_on(w, c):
        time_s = min(time_s, head.alarm_s)
        if head.services > 0:
            time_s = min(time_s, head.pattern_s)
    if head.due_s <= time_s:
        time_s = min(time_s, next_eviction(w, c, time_s))
    return time_s


@compiled
def advance(w, c):
    """Jump to the next instant and let all that is due there happen; False if nothing is left."""
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
    if w.conf[0].lends == 1:
        evict_due(w, c)
        come_back(w, c)
    while head.submitted < head.jobs and w.jobs[c, head.submitted].submit_s <= now_s:
        head.submitted += 1
        submit(w, c, head.submitted - 1)
        if head.submitted - 1 == head.last:
            keep_arrived(w, c)
    if head.alarm_s <= now_s:
        head.alarm_s = np.inf
    return True
