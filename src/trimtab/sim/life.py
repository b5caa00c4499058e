"""The life of a job: queued, running, ended once, and what that means for who waits for it."""

import math

from trimtab.compiled import inner
from trimtab.rules import bits
from trimtab.rules.fit import NEVER, take
from trimtab.sim.log import (
    BLOCKED,
    CANCEL,
    CANCELLED,
    E_FAILED,
    E_FINISHED,
    E_REJECTED,
    E_STOPPED,
    E_SUBMITTED,
    FAILED,
    FINISHED,
    FUTURE,
    LIMIT,
    PARENT,
    PLAIN,
    QUEUED,
    REJECTED,
    RUNNING,
    note,
)
from trimtab.sim.runs import begin_run, settle_run, unlink_run


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
        head.calm = head.settled = 0
    bits.put(w.words, w.heads, c, w.rank[c, job])


@inner
def dequeue(w, c, job):
    state, head = w.state[c, job], w.head[c]
    state.waited_s += head.now_s - state.queued_s
    head.waiting -= 1
    bits.drop(w.words, w.heads, c, w.rank[c, job])


@inner
def submit(w, c, job):
    state = w.state[c, job]
    w.totals[c].submitted += 1
    note(w, c, E_SUBMITTED, job, -1, 0, 0, -1, PLAIN)
    if w.truth[c, job].pinned > 0:
        w.head[c].pinned -= 1
    if state.status != FUTURE:
        return  # withdrawn, or failed with a parent, before its time
    if w.truth[c, job].pinned > 0:
        settle_in(w, c, job)
        return
    state.status = BLOCKED
    if state.parents == 0:
        enqueue(w, c, job)


@inner
def settle_in(w, c, job):
    """Start a job of one instance where it is pinned, whatever else is there."""
    state, node = w.state[c, job], w.truth[c, job].pinned - 1
    w.entry[c, 0].job, w.entry[c, 0].node, w.entry[c, 0].devices = job, node, NEVER
    take(w, c, node, job, 0, 1, NEVER, w.free, w.gpu_free, w.gpu_mem)
    state.start_s = state.queued_s = w.head[c].now_s
    state.left, state.active = 0, 1
    state.status = RUNNING
    w.head[c].active += 1
    w.totals[c].started += 1
    begin_run(w, c, job, 0, 0, 1, 0.0, PLAIN)


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
    if state.active == 0 and state.left == 0 and state.back == 0:
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
    if w.conf[0].curved == 0:
        state.wasted_s += (done_s - save_s) / rec.rate * count
    elif done_s > kept_s:  # its rate was another all the time: the time goes as the work did
        share = (done_s - save_s) / (done_s - kept_s)
        state.wasted_s += share * (w.head[c].now_s - rec.start_s) * count
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
