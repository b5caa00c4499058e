"""Decisions carried out, or refused with a reason: start, stop, reject, move and resize."""

import math

import numpy as np

from trimtab.compiled import compiled, inner
from trimtab.rules import bits
from trimtab.rules.fit import (
    NEVER,
    ONE,
    allowed,
    amount,
    book_quotas,
    choose_devices,
    counts,
    held_ahead,
    release,
    suits,
    take,
    within,
)
from trimtab.sim import heap
from trimtab.sim.life import dequeue, end_job, enqueue, kill_all, kill_run
from trimtab.sim.log import (
    BLOCKED,
    E_STOPPED,
    PLAIN,
    PREEMPTED,
    QUEUED,
    REJECTED,
    RUNNING,
    note,
)
from trimtab.sim.meter import hold_share
from trimtab.sim.runs import add_pieces, begin_run, disturb, drop_pieces, set_speed, settle_run

# refusals
OK, NO_JOB, NOT_QUEUED, NO_NODE, DOWN, KIND, SHAPE, COUNT, LACKS, DEVICES, NOT_RUNNING, NOT_ONE = (
    range(12)
)
GATE, QUOTA = 12, 13


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
        why = GATE if suits(w, c, node, job, shape) else KIND
        return refuse(w, c, why, node, -1, 0.0, 0.0)
    scale = w.scale[shape]
    held, driver = held_ahead(w, c, node, job), w.nodes[c, node].driver
    for r in range(w.free.shape[2]):
        wants = amount(w.demand[c, job, r], scale)
        free = w.free[c, node, r] - held if r == driver else w.free[c, node, r]
        if free < wants and wants > 0.0:
            return refuse(w, c, LACKS, node, r, wants, free)
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
def over_quota(w, c, job, shape, count):
    """Refuse what the first of the job's quotas has no room for."""
    for i in range(w.quota_ptr[c, job], w.quota_ptr[c, job + 1]):
        q = w.quota_idx[c, i]
        for r in range(w.quota_cap.shape[2]):
            wants = counts(w, c, job, r, shape, count)
            room = w.quota_cap[c, q, r] - w.quota_used[c, q, r]
            if wants > room:
                return refuse(w, c, QUOTA, q, r, wants, room)
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
    if within(w, c, job, shape, count) < count:
        return over_quota(w, c, job, shape, count)
    why = book_entries(w, c, job, shape, at, count)
    if why != OK:
        return why
    if math.isnan(state.start_s):
        state.start_s = head.now_s
    state.left -= count
    state.active += count
    startup_s = w.conf[0].startup_s
    if gang:
        begin_run(w, c, job, shape, at, count, startup_s, PLAIN)
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
            begin_run(w, c, job, shape, i, stop - i, startup_s, PLAIN)
            i = stop
    if state.left == 0 and state.back > 0:
        bits.drop(w.words, w.heads, c, w.rank[c, job])  # it waits on for what backs off
    elif state.left == 0:
        dequeue(w, c, job)
        state.status = RUNNING
        head.active += 1
    w.totals[c].started += 1
    return OK


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
    """Move a job of one run to the nodes in entries at .. at + count, or to another shape there.

    Without live migration that is a stop and a start in one decision.
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
    if shape != w.runs[c, run].shape:
        book_quotas(w, c, job, w.runs[c, run].shape, count, -1)
        fit = within(w, c, job, shape, count)
        why = OK if fit == count else over_quota(w, c, job, shape, count)
        book_quotas(w, c, job, w.runs[c, run].shape, count, 1)
        if why != OK:
            return why
    release(w, c, run, 1, w.free, w.gpu_free, w.gpu_mem)
    why = book_entries(w, c, job, shape, at, count)
    if why != OK:
        release(w, c, run, -1, w.free, w.gpu_free, w.gpu_mem)
        return why
    release(w, c, run, -1, w.free, w.gpu_free, w.gpu_mem)  # drop_pieces gives it back for good
    if w.conf[0].live_migration == 1:
        carry_over(w, c, run, shape, at, count, reason)
    else:
        restart(w, c, run, shape, at, count, reason)
    return OK


@inner
def restart(w, c, run, shape, at, count, reason):
    """Stop a run and start it in other places at once: it keeps what its checkpoints kept."""
    job = w.runs[c, run].job
    state = w.state[c, job]
    kill_run(w, c, run)
    if state.status == RUNNING:
        state.queued_s = w.head[c].now_s
    state.stops += 1
    state.left -= count
    state.active += count
    w.totals[c].stopped += 1
    w.totals[c].started += 1
    begin_run(w, c, job, shape, at, count, w.conf[0].move_s, reason)


@inner
def carry_over(w, c, run, shape, at, count, reason):
    """Let a run go on in other places with all that it has done."""
    head, rec = w.head[c], w.runs[c, run]
    job = rec.job
    settle_run(w, c, run)
    drop_pieces(w, c, run)
    hold_share(w, c, job, rec.shape, -rec.instances)
    book_quotas(w, c, job, rec.shape, rec.instances, -1)
    rec.shape = shape
    hold_share(w, c, job, shape, rec.instances)
    book_quotas(w, c, job, shape, rec.instances, 1)
    rec.resume_s = max(rec.resume_s, head.now_s + w.conf[0].move_s)
    add_pieces(w, c, run, at, count, reason)
    asked = max(w.jobs[c, job].request_s - (w.truth[c, job].work_s - rec.left_s), 0.0)
    if not math.isfinite(asked):
        asked = w.jobs[c, job].request_s
    set_speed(w, c, run, rec.resume_s - head.now_s, asked)
    heap.moved(w.heap, w.runs, c, run, head.heap)
    disturb(w, c, run)
