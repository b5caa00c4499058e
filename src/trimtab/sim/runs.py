"""Runs and their pieces on nodes: where work is done, how fast, and when it ends."""

import numpy as np

from trimtab.compiled import inner
from trimtab.rules.fit import NEVER, amount, book_quotas, free_up, link_rate, request_left, take
from trimtab.sim import heap
from trimtab.sim.lend import lay_out
from trimtab.sim.log import E_STARTED, note
from trimtab.sim.meter import SLACK, change_load, change_service, hold_share, piece_use


@inner
def add_piece(w, c, run, node, count, devices):
    """Put a piece of a run on a node: list, load and neighbours. The caller books the amounts."""
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
    occupy_node(w, c, node, job, shape, count, 1)


@inner
def occupy_node(w, c, node, job, shape, count, sign):
    """The load of instances that come to a node (sign 1) or leave it (sign -1)."""
    used, draw = piece_use(w, c, job, node, count, shape)
    if w.conf[0].lends == 1:
        state, driver = w.node_state[c, node], w.nodes[c, node].driver
        if w.truth[c, job].service == 1:
            # what services reserve is kept from batch jobs by the estimate of their use alone
            held = count * amount(w.demand[c, job, driver], w.scale[shape])
            state.reserved += sign * held
            w.free[c, node, driver] += sign * held
            change_service(w, c, node, sign * used)
            lay_out(w, c, node)
        else:
            state.batch += sign * count
            left = sign < 0 and w.overstay[c, w.nodes[c, node].region] > 0.0
            if left and w.head[c].varies == 1:  # its room counted as free later on
                lay_out(w, c, node)
    change_load(w, c, node, sign * used, sign * draw)


@inner
def add_pieces(w, c, run, at, count, reason):
    """Put entries at .. at + count on their nodes; neighbouring ones on a node share a piece."""
    rec = w.runs[c, run]
    i = at
    while i < at + count:
        node, mask = w.entry[c, i].node, w.entry[c, i].devices
        stop = i + 1
        while stop < at + count and w.entry[c, stop].node == node and mask == NEVER:
            stop += 1
        add_piece(w, c, run, node, stop - i, mask)
        note(w, c, E_STARTED, rec.job, node, stop - i, rec.shape, run, reason)
        i = stop


@inner
def disturb(w, c, run):
    """A run has got its places: slow its new neighbours."""
    if w.conf[0].interference == 1 or w.conf[0].curved == 1:
        piece = w.runs[c, run].piece
        while piece >= 0:
            retune(w, c, w.pieces[c, piece].node, run)
            piece = w.pieces[c, piece].next


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
        free_up(w, c, node)
        if rec.before >= 0:
            w.pieces[c, rec.before].after = rec.after
        else:
            w.node_state[c, node].piece = rec.after
        if rec.after >= 0:
            w.pieces[c, rec.after].before = rec.before
        w.node_state[c, node].pieces -= 1
        if w.node_state[c, node].pieces == 0 and w.node_state[c, node].up == 1:
            head.idle += 1
        occupy_node(w, c, node, job, shape, rec.count, -1)
        rec.next = head.free_piece
        head.free_piece = piece
        head.free_pieces += 1
        if w.conf[0].interference == 1 or w.conf[0].curved == 1:
            retune(w, c, node, run)
        piece = following
    w.runs[c, run].piece = -1


@inner
def speed(w, c, run, disturbed):
    """Work seconds a second of a run: slowest piece, worst link and, if `disturbed`, neighbours."""
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
            if w.conf[0].interference == 1:
                rate /= 1.0 + disturbance(w, c, node, run, kind)
            if w.conf[0].curved == 1:
                rate *= pace(w, c, node, kind)
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
    rec.rate = speed(w, c, run, w.conf[0].interference == 1 or w.conf[0].curved == 1)
    # what the request promises: known speeds and links, but not what neighbours do. Summed as a
    # plan
    # sums it, so that a job is expected to end at the same instant before and after it starts.
    promised = speed(w, c, run, False)
    rec.expected_end_s = head.now_s + (delay_s + asked_s / promised)
    set_end(w, c, run)


@inner
def disturbance(w, c, node, run, kind):
    """Extra time a second that the other instances on the node cost one of the run."""
    total = 0.0
    piece = w.node_state[c, node].piece
    while piece >= 0:
        other, count = w.pieces[c, piece].run, w.pieces[c, piece].count
        if other == run:
            total += w.slow[kind, kind] * (count - 1)
        else:
            total += w.slow[kind, w.jobs[c, w.runs[c, other].job].kind] * count
        piece = w.pieces[c, piece].after
    return total


@inner
def pace(w, c, node, kind):
    """Share of its speed that a kind of job has at the node's load: 1 up to the knee, a straight
    line from there to its floor at load 1; above, batch jobs share what services leave.
    """
    knee, floor = w.curve[kind, 0], w.curve[kind, 1]
    state = w.node_state[c, node]
    if state.load <= knee:
        return 1.0
    if state.load <= 1.0 + SLACK:
        over = min(state.load, 1.0) - knee
        return 1.0 - (1.0 - floor) * over / (1.0 - knee) if over > 0.0 else 1.0
    batch = state.used - state.service
    if batch <= 0.0:
        return floor
    left = w.capacity[c, node, w.nodes[c, node].driver] - state.service
    return floor * min(max(left, 0.0) / batch, 1.0)


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
    head, state = w.head[c], w.node_state[c, node]
    if w.conf[0].interference == 0:
        knee = w.conf[0].knee
        if state.load <= knee and state.tuned <= knee:
            return  # all run at full speed, as they did
        state.tuned = state.load
    piece = state.piece
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
def begin_run(w, c, job, shape, at, count, delay_s, reason):
    """A run of entries that start and end together; neighbouring ones on a node share a piece.

    It works from `delay_s` on.
    """
    head = w.head[c]
    head.moved_s = head.now_s
    run = head.free_run
    rec, state = w.runs[c, run], w.state[c, job]
    head.free_run = rec.sibling
    head.free_runs -= 1
    rec.job = job
    rec.shape = shape
    rec.instances = count
    rec.piece = -1
    rec.start_s = rec.updated_s = head.now_s
    rec.resume_s = head.now_s + delay_s
    rec.sibling = state.run
    state.run = run
    alone = w.jobs[c, job].gang == 1 or w.jobs[c, job].instances == 1
    rec.left_s = w.truth[c, job].work_s - (state.kept_s if alone else 0.0)
    if w.truth[c, job].pattern >= 0:
        head.services += 1
    add_pieces(w, c, run, at, count, reason)
    hold_share(w, c, job, shape, count)
    book_quotas(w, c, job, shape, count, 1)
    set_speed(w, c, run, delay_s, request_left(w, c, job))
    heap.push(w.heap, w.runs, c, run, head.heap)
    head.heap += 1
    disturb(w, c, run)


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
    book_quotas(w, c, job, rec.shape, rec.instances, -1)
    if w.truth[c, job].pattern >= 0:
        head.services -= 1
    rec.job = -1
    rec.sibling = head.free_run
    head.free_run = run
    head.free_runs += 1
