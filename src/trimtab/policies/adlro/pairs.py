"""Pairs: what may be done with a job and a GPU now, a row of features a pair.

An action starts a waiting job on a node with room, puts it in the place of the one that runs there
(which goes back to the queue), or moves a running job to a faster node. Nodes of one kind that
have room alike are one row, and so are jobs that others of their kind go before in every way, so
that the rows do not grow with the cluster or the queue. The features are ratios: to the usual run
time, to the best speed of the job, to the size of the cluster. A network that scores one row at a
time therefore fits clusters of any size and mix.
"""

from __future__ import annotations

import math

import numpy as np

from trimtab.compiled import inner
from trimtab.rules.fit import allowed, expected_end, fits, slots
from trimtab.rules.place import leftover

FEATURES = {
    "start": "1 = a waiting job starts where there is room",
    "swap": "1 = it takes the place of a job that runs",
    "move": "1 = a running job goes to another node",
    "asked": "requested seconds, against the usual",
    "left": "requested seconds that are left",
    "share": "work done / requested, at most 4",
    "done": "work done",
    "age": "seconds since it was submitted",
    "priority": "p / (1 + |p|)",
    "keeps": "share of its progress that a stop keeps",
    "speed": "rate here / its best rate in the cluster",
    "edge": "rate here / its mean rate over the cluster",
    "finish": "seconds to finish here, with the start-up or what the move costs",
    "speed_now": "rate where it runs now / its best rate",
    "rank": "share of the waiting jobs that ask for less than it has left",
    "other_left": "of the job that would be stopped: the same",
    "other_share": "",
    "other_done": "",
    "other_age": "",
    "other_keeps": "",
    "other_speed": "",
    "other_lost": "work that its stop would throw away",
    "other_idle": "its best rate on a node that has room now / its best rate",
    "wanted": "mean speed of the waiting jobs on this kind of node, as shares of their best",
    "kind_idle": "share of the nodes of this kind that are idle",
    "kind_share": "share of the nodes that are of this kind",
    "kind_next": "seconds until the next end on this kind of node, by request",
    "better_next": "the same on kinds where this job is faster",
    "waiting": "log(1 + waiting jobs / nodes)",
    "idle": "idle share of the nodes",
    "backlog": "requested seconds that wait a node, against the usual",
    "startup": "seconds that a start costs, against the usual",
}
WIDTH = len(FEATURES)
START, SWAP, MOVE = range(3)
JOB_AT, OTHER_AT, KIND_AT, CLUSTER_AT = 3, 15, 23, 28
NODES, IDLE, NEXT, WANTED = range(4)  # columns of what is known of a kind of node
CELL = np.dtype([("how", "i8"), ("job", "i8"), ("node", "i8"), ("other", "i8")])
FINISH, SPEED, SPEED_NOW, OTHER_LEFT, OTHER_KEEPS, OTHER_LOST = (
    list(FEATURES).index(name)
    for name in ("finish", "speed", "speed_now", "other_left", "other_keeps", "other_lost")
)
MOST = 384  # pairs shown; the rest of a very mixed queue is not
PICKS = 5  # waiting jobs a kind: two shortest, two with least work done, the oldest
VICTIMS = 3  # running jobs a node kind: two with most left, the one with most done
USUAL = 64  # the last so many submitted jobs say what run time is usual
TINY = 0.02  # of the usual run time, added before a logarithm
FAR = 1000.0  # usual run times: what never ends is this far away
SAMPLED = 64  # waiting jobs that a rank is taken among
SPAN = 3.0  # features of time are logarithms over this


@inner
def usual_s(w, c):
    """The geometric mean of what the last submitted jobs asked for."""
    total, count = 0.0, 0
    job = w.head[c].submitted - 1
    while job >= 0 and count < USUAL:
        asked = w.jobs[c, job].request_s
        if 0.0 < asked < np.inf:
            total += math.log(asked)
            count += 1
        job -= 1
    return max(math.exp(total / count), 1.0) if count > 0 else 1.0


@inner
def scaled(seconds, unit_s):
    """A time as a feature: its logarithm against the usual, clipped."""
    return min(max(math.log(max(seconds, 0.0) / unit_s + TINY) / SPAN, -2.0), 2.0)


@inner
def done_s(w, c, job, run, now_s):
    """Work that a job has behind it, by what its request promised when it started."""
    kept = w.state[c, job].kept_s
    if run < 0:
        return kept
    rec = w.runs[c, run]
    ahead = (rec.expected_end_s - max(now_s, rec.resume_s)) * promised(w, c, run)
    return max(max(w.jobs[c, job].request_s, kept) - ahead, 0.0)


@inner
def promised(w, c, run):
    """The rate of a run of one piece, neighbours apart."""
    rec = w.runs[c, run]
    node = w.pieces[c, rec.piece].node
    return w.rate[w.jobs[c, rec.job].kind, w.nodes[c, node].kind, rec.shape]


@inner
def single(w, c, run):
    """Whether a run is all of its job, on one node, in the shape as asked, and no service."""
    rec = w.runs[c, run]
    piece = rec.piece
    return (
        rec.job >= 0
        and rec.instances == 1
        and rec.shape == 0
        and w.jobs[c, rec.job].instances == 1
        and w.pieces[c, piece].next < 0
        and w.jobs[c, rec.job].request_s < np.inf
    )


@inner
def rest_s(request_s, done):
    """Work that a job has left by its request; past that, as much again as it has had."""
    return request_s - done if done < request_s else done


@inner
def left_s(w, c, job, run, now_s):
    return rest_s(w.jobs[c, job].request_s, done_s(w, c, job, run, now_s))


@inner
def kept_by_stop(w, c, job, done):
    """Of the work done, what the job's checkpoints keep when it is stopped."""
    every_s = w.jobs[c, job].checkpoint_s
    if every_s == 0.0:
        return done
    kept = w.state[c, job].kept_s
    return kept if every_s == np.inf else max(math.floor(done / every_s) * every_s, kept)


@inner
def keeps(w, c, job, done):
    """The same as a share; of a job that has done nothing, what it would keep in the long run."""
    if w.jobs[c, job].checkpoint_s == np.inf:
        return 0.0
    return kept_by_stop(w, c, job, done) / done if done > 0.0 else 1.0


@inner
def lost_by_move(w, c, job, run, now_s):
    """Work that a running job has to do again if it moves."""
    if w.conf[0].live_migration == 1:
        return 0.0
    done = done_s(w, c, job, run, now_s)
    return max(done - kept_by_stop(w, c, job, done), 0.0)


@inner
def look_at_kinds(w, c, now_s, kinds):
    """Write the nodes, the idle ones, and the seconds to the next end of each kind of node."""
    kinds[:] = 0.0
    kinds[:, NEXT] = np.inf
    for node in range(w.head[c].nodes):
        if w.node_state[c, node].up == 1:
            kinds[w.nodes[c, node].kind, NODES] += 1.0
            kinds[w.nodes[c, node].kind, IDLE] += w.node_state[c, node].pieces == 0
        piece = w.node_state[c, node].piece
        while piece >= 0:
            end_s = expected_end(w, c, w.pieces[c, piece].run, now_s)
            k = w.nodes[c, node].kind
            kinds[k, NEXT] = min(kinds[k, NEXT], end_s - now_s)
            piece = w.pieces[c, piece].after


@inner
def look_at_speeds(w, c, kinds, best):
    """Write the best and the mean rate of each kind of job over the nodes that are up."""
    total = max(kinds[:, NODES].sum(), 1.0)
    for kind in range(best.shape[0]):
        best[kind, 0] = best[kind, 1] = 1e-9
        for k in range(kinds.shape[0]):
            if kinds[k, NODES] > 0.0:
                best[kind, 0] = max(best[kind, 0], w.rate[kind, k, 0])
                best[kind, 1] += kinds[k, NODES] / total * w.rate[kind, k, 0]


@inner
def pick(keys, chosen, at, most, key, job):
    """Keep the `most` smallest keys in places at .. at + most, smallest first; -1 is empty."""
    i = at + most - 1
    if chosen[i] >= 0 and key >= keys[i]:
        return
    while i > at and (chosen[i - 1] < 0 or key < keys[i - 1]):
        keys[i], chosen[i] = keys[i - 1], chosen[i - 1]
        i -= 1
    keys[i], chosen[i] = key, job


@inner
def look_at_queue(w, c, waiting, keys, picks, count):
    """Choose the waiting jobs to show, PICKS a kind of job; returns the requested seconds waiting.

    They are the two shortest, the two with the least work done (of equals the shorter), the oldest.
    """
    picks[:] = -1
    count[:] = 0
    backlog_s = 0.0
    for i in range(waiting):
        job = w.queue[c, i]
        kind = w.jobs[c, job].kind
        kept = w.state[c, job].kept_s
        left = rest_s(w.jobs[c, job].request_s, kept)
        backlog_s += min(left, 1e9)
        count[kind] += 1
        at = kind * PICKS
        pick(keys, picks, at, 2, left, job)
        pick(keys, picks, at + 2, 2, kept + 1e-6 * left, job)
        if picks[at + 4] < 0:  # the queue stands in order of submission
            picks[at + 4] = job
    return backlog_s


@inner
def look_at_runs(w, c, now_s, keys, victims):
    """Choose the running jobs that may have to give way, VICTIMS a kind of node: alone on it, and
    not started at this very instant, lest two jobs chase each other for ever.
    """
    victims[:] = -1
    for node in range(w.head[c].nodes):
        state = w.node_state[c, node]
        if state.pieces != 1 or state.up == 0:
            continue
        run = w.pieces[c, state.piece].run
        if not single(w, c, run) or w.runs[c, run].start_s >= now_s:
            continue
        job = w.runs[c, run].job
        done = done_s(w, c, job, run, now_s)
        at = w.nodes[c, node].kind * VICTIMS
        gone = rest_s(w.jobs[c, job].request_s, done) / promised(w, c, run)
        pick(keys, victims, at, 2, -gone, run)
        pick(keys, victims, at + 2, 1, -done, run)


@inner
def hosts_when_empty(w, c, node, job):
    """Whether one instance would fit on the node if nothing else were on it."""
    if not allowed(w, c, node, job, 0):
        return False
    for r in range(w.capacity.shape[2]):
        if w.capacity[c, node, r] < w.demand[c, job, r]:
            return False
    rec = w.jobs[c, job]
    if rec.gpus == 0:
        return True
    return w.nodes[c, node].gpus >= rec.gpus and w.nodes[c, node].gpu_mem_gb >= rec.gpu_mem_gb


@inner
def roomy(w, c, job, k):
    """The fullest node of a kind with room for the job, or -1."""
    found, least = -1, np.inf
    for node in range(w.head[c].nodes):
        if w.nodes[c, node].kind == k and fits(w, c, node, job, 0):
            rest = leftover(w, c, node, job)
            if rest < least:
                found, least = node, rest
    return found


@inner
def has_room(w, c, job):
    """Whether all of a gang, or any of an array, could start now."""
    left = w.state[c, job].left
    if left == 1 or w.jobs[c, job].gang == 0:
        return True  # a node with room for one will do
    room = 0
    for node in range(w.head[c].nodes):
        room += slots(w, c, node, job, 0, w.free, w.gpu_free, w.gpu_mem, left)
    return room >= left


@inner
def write_job(w, c, job, run, now_s, unit_s, best, row, at):
    """Write what is known of a job from row[at] on: left, share, done, age."""
    rec = w.jobs[c, job]
    done = done_s(w, c, job, run, now_s)
    row[at] = scaled(rest_s(rec.request_s, done), unit_s)
    row[at + 1] = min(done / max(rec.request_s, 1e-9), 4.0)
    row[at + 2] = scaled(done, unit_s)
    row[at + 3] = scaled(now_s - rec.submit_s, unit_s)


@inner
def finish_s(w, c, job, run, rate, now_s):
    """Seconds until the job is done if it starts, or moves from where it runs, to this rate."""
    left = left_s(w, c, job, run, now_s)
    if run < 0:
        return left / rate + w.conf[0].startup_s
    return (left + lost_by_move(w, c, job, run, now_s)) / rate + w.conf[0].move_s


@inner
def write_pair(w, c, how, job, run, node, now_s, unit_s, kinds, best, row):
    """Write the columns of the job, of its speed on the node and of the kind of node."""
    rec = w.jobs[c, job]
    k = w.nodes[c, node].kind
    top, mean = best[rec.kind, 0], best[rec.kind, 1]
    rate = w.rate[rec.kind, k, 0]
    row[:] = 0.0
    row[how] = 1.0
    row[JOB_AT] = scaled(rec.request_s, unit_s)
    write_job(w, c, job, run, now_s, unit_s, best, row, JOB_AT + 1)
    row[JOB_AT + 5] = rec.priority / (1.0 + abs(rec.priority))
    row[JOB_AT + 6] = keeps(w, c, job, done_s(w, c, job, run, now_s))
    row[JOB_AT + 7] = rate / top
    row[JOB_AT + 8] = min(rate / mean, 4.0)
    row[JOB_AT + 9] = scaled(finish_s(w, c, job, run, rate, now_s), unit_s)
    row[JOB_AT + 10] = promised(w, c, run) / top if run >= 0 else 0.0
    total = max(kinds[:, NODES].sum(), 1.0)
    row[KIND_AT] = kinds[k, WANTED]
    row[KIND_AT + 1] = kinds[k, IDLE] / max(kinds[k, NODES], 1.0)
    row[KIND_AT + 2] = kinds[k, NODES] / total
    row[KIND_AT + 3] = scaled(min(kinds[k, NEXT], FAR * unit_s), unit_s)
    soonest = np.inf
    for other in range(kinds.shape[0]):
        if kinds[other, NODES] > 0.0 and w.rate[rec.kind, other, 0] > rate:
            soonest = min(soonest, kinds[other, NEXT])
    row[KIND_AT + 4] = scaled(min(soonest, FAR * unit_s), unit_s)


@inner
def write_other(w, c, run, now_s, unit_s, kinds, best, row):
    """Write the columns of the job that would be stopped."""
    job = w.runs[c, run].job
    kind = w.jobs[c, job].kind
    write_job(w, c, job, run, now_s, unit_s, best, row, OTHER_AT)
    done = done_s(w, c, job, run, now_s)
    row[OTHER_AT + 4] = keeps(w, c, job, done)
    row[OTHER_AT + 5] = promised(w, c, run) / best[kind, 0]
    row[OTHER_AT + 6] = scaled(max(done - kept_by_stop(w, c, job, done), 0.0), unit_s)
    idle = 0.0
    for k in range(kinds.shape[0]):
        if kinds[k, IDLE] > 0.0:
            idle = max(idle, w.rate[kind, k, 0])
    row[OTHER_AT + 7] = idle / best[kind, 0]


@inner
def pairs(w, c, waiting, rows, cells):
    """Write a row of features and a cell for everything that may be done now; returns how many.

    World.queue holds the `waiting` jobs in order of submission.
    """
    now_s, unit_s = w.head[c].now_s, usual_s(w, c)
    job_kinds, node_kinds = w.rate.shape[0], w.rate.shape[1]
    kinds, best = np.empty((node_kinds, 4)), np.empty((job_kinds, 2))
    picks, victims = np.empty(job_kinds * PICKS, np.int64), np.empty(node_kinds * VICTIMS, np.int64)
    keys, count = np.empty(max(len(picks), len(victims))), np.empty(job_kinds)
    look_at_kinds(w, c, now_s, kinds)
    look_at_speeds(w, c, kinds, best)
    backlog_s = look_at_queue(w, c, waiting, keys, picks, count)
    look_at_runs(w, c, now_s, keys, victims)
    nodes = max(kinds[:, NODES].sum(), 1.0)
    for k in range(node_kinds):
        for kind in range(job_kinds):
            share = count[kind] / max(waiting, 1)
            kinds[k, WANTED] += share * w.rate[kind, k, 0] / best[kind, 0]
    n = 0
    for i in range(len(picks)):
        if picks[i] >= 0 and not seen_before(picks, i):
            n = job_pairs(w, c, picks[i], now_s, unit_s, kinds, best, victims, rows, cells, n)
    n = move_pairs(w, c, now_s, unit_s, kinds, best, rows, cells, n)
    stride = max(waiting // SAMPLED, 1)
    for i in range(n):
        left = left_s(w, c, cells[i].job, w.state[c, cells[i].job].run, now_s)
        less = total = 0
        for j in range(0, waiting, stride):
            other = w.queue[c, j]
            less += rest_s(w.jobs[c, other].request_s, w.state[c, other].kept_s) < left
            total += 1
        rows[i, JOB_AT + 11] = less / max(total, 1)
        rows[i, CLUSTER_AT] = math.log1p(waiting / nodes)
        rows[i, CLUSTER_AT + 1] = kinds[:, IDLE].sum() / nodes
        rows[i, CLUSTER_AT + 2] = scaled(backlog_s / nodes, unit_s)
        rows[i, CLUSTER_AT + 3] = scaled(w.conf[0].startup_s, unit_s)
    return n


@inner
def seen_before(picks, i):
    for j in range(i - i % PICKS, i):
        if picks[j] == picks[i]:
            return True
    return False


@inner
def job_pairs(w, c, job, now_s, unit_s, kinds, best, victims, rows, cells, n):
    """Starts of a waiting job where there is room, a node a kind, and swaps where there is none."""
    room = has_room(w, c, job)
    for k in range(kinds.shape[0]):
        if kinds[k, NODES] == 0.0 or n == len(cells):
            continue
        node = roomy(w, c, job, k) if room else -1
        if node >= 0:
            write_pair(w, c, START, job, -1, node, now_s, unit_s, kinds, best, rows[n])
            set_cell(cells[n], START, job, node, -1)
            n += 1
            continue
        if w.jobs[c, job].instances > 1:
            continue
        for i in range(k * VICTIMS, (k + 1) * VICTIMS):
            run = victims[i]
            if run < 0 or n == len(cells) or (i % VICTIMS == 2 and run in victims[i - 2 : i]):
                continue
            node = w.pieces[c, w.runs[c, run].piece].node
            if hosts_when_empty(w, c, node, job):
                write_pair(w, c, SWAP, job, -1, node, now_s, unit_s, kinds, best, rows[n])
                write_other(w, c, run, now_s, unit_s, kinds, best, rows[n])
                set_cell(cells[n], SWAP, job, node, w.runs[c, run].job)
                n += 1
    return n


@inner
def move_pairs(w, c, now_s, unit_s, kinds, best, rows, cells, n):
    """Moves of running jobs to a kind of node that has room and where they would end sooner, with
    what the move costs and what it loses.
    """
    for node in range(w.head[c].nodes):
        piece = w.node_state[c, node].piece
        while piece >= 0:
            run = w.pieces[c, piece].run
            piece = w.pieces[c, piece].after
            if not single(w, c, run) or w.runs[c, run].resume_s >= now_s:
                continue  # what starts up, or moved at this very instant, stays
            job, here = w.runs[c, run].job, promised(w, c, run)
            stays_s = left_s(w, c, job, run, now_s) / here
            for k in range(kinds.shape[0]):
                rate = w.rate[w.jobs[c, job].kind, k, 0]
                if rate <= here or kinds[k, NODES] == 0.0 or n == len(cells):
                    continue
                if finish_s(w, c, job, run, rate, now_s) >= stays_s:
                    continue
                there = roomy(w, c, job, k)
                if there >= 0:
                    write_pair(w, c, MOVE, job, run, there, now_s, unit_s, kinds, best, rows[n])
                    set_cell(cells[n], MOVE, job, there, -1)
                    n += 1
    return n


@inner
def set_cell(cell, how, job, node, other):
    cell.how = how
    cell.job = job
    cell.node = node
    cell.other = other
