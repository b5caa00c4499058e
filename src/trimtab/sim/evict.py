"""Services come back: batch instances leave overloaded nodes, back off, and queue anew."""

import math

import numpy as np

from trimtab.compiled import inner
from trimtab.rules import bits
from trimtab.rules.fit import NEVER, amount, book_quotas, free_up, take
from trimtab.rules.world import World
from trimtab.sim.life import kill_run
from trimtab.sim.log import E_STOPPED, EVICTED, QUEUED, RUNNING, note
from trimtab.sim.meter import hold_share, use_of
from trimtab.sim.runs import occupy_node, retune, settle_run

SPARE = 0.005  # of a node: a crowded one is relieved to so much below where it is crowded


@inner
def next_eviction(w: World, c: int, before_s: float) -> float:
    """When the next node is due, where that is before the given time, or inf."""
    head = w.head[c]
    if head.due_s > before_s:
        return np.inf
    head.due_s = np.inf  # it may speak of a node that has calmed down since
    for node in range(head.nodes):
        head.due_s = min(head.due_s, w.node_state[c, node].due_s)
    return head.due_s if head.due_s <= before_s else np.inf


@inner
def evict_due(w: World, c: int) -> None:
    """Clear every node that has been overloaded for the whole grace, and relieve crowded ones."""
    head = w.head[c]
    if head.due_s > head.now_s:
        return
    for node in range(head.nodes):
        if w.node_state[c, node].due_s <= head.now_s:
            look_at(w, c, node)
    next_eviction(w, c, np.inf)


@inner
def look_at(w: World, c: int, node: int) -> None:
    """Let batch instances leave a node that is due, and note when to look at it again."""
    state, now_s, grace_s = w.node_state[c, node], w.head[c].now_s, w.conf[0].grace_s
    patience_s = w.patience_s[c, w.nodes[c, node].region]
    cap = w.capacity[c, node, w.nodes[c, node].driver]
    over = state.over_s + grace_s <= now_s
    if patience_s >= 0.0 and (over or state.service <= w.conf[0].crowded * cap):
        bearable = w.conf[0].evict_to if over else w.conf[0].crowded - SPARE
        clear_node(w, c, node, bearable, True)
        if over or state.hot_s + patience_s <= now_s:
            clear_node(w, c, node, bearable, False)
    elif over:
        clear_node(w, c, node, w.conf[0].evict_to, False)
    if over:
        state.over_s = now_s if state.batch > 0 and state.load > 1.0 else np.inf
    state.due_s = state.over_s + grace_s
    if patience_s >= 0.0 and state.hot_s < np.inf:  # time is lost as it goes by
        state.due_s = min(state.due_s, now_s + max(w.conf[0].pattern_step_s, grace_s))


@inner
def clear_node(w: World, c: int, node: int, bearable: float, lost: bool) -> None:
    """Evict batch instances, the youngest first, until the node's load is bearable; of `lost` jobs
    alone those whose time is lost.
    """
    state, driver = w.node_state[c, node], w.nodes[c, node].driver
    cap = w.capacity[c, node, driver]
    piece = state.piece  # the last that came is the first of the list
    while piece >= 0 and state.load > bearable:
        rec = w.pieces[c, piece]
        run, following = rec.run, rec.after
        job = w.runs[c, run].job
        if w.truth[c, job].service == 0 and (not lost or is_lost(w, c, run)):
            each = amount(w.demand[c, job, driver], w.scale[w.runs[c, run].shape])
            each *= use_of(w, c, job)
            count = w.runs[c, run].instances
            split = w.jobs[c, job].gang == 0 and rec.next < 0 and rec.devices == NEVER
            if split and each > 0.0:
                over = (state.load - bearable) * cap / each
                count = min(max(math.ceil(over - 1e-9), 1), count)
            evict(w, c, run, node, count)
            # a gang may have had several pieces here
            piece = state.piece if not split else following
        else:
            piece = following


@inner
def is_lost(w: World, c: int, run: int) -> bool:
    """Whether the job of a run cannot be in time any more, whatever is done for it."""
    rec = w.runs[c, run]
    asks, state = w.jobs[c, rec.job], w.state[c, rec.job]
    if state.evicted > 0 or state.tries > 0 or state.stops > 0:
        return True
    latest_s = asks.deadline_s
    if latest_s == np.inf:
        runnable_s = max(asks.submit_s, state.queued_s)
        latest_s = runnable_s + w.conf[0].plans * asks.request_s + w.conf[0].spare_s
    return rec.expected_end_s > latest_s


@inner
def evict(w: World, c: int, run: int, node: int, count: int) -> None:
    """Take instances of a run off their node; they back off before they queue anew."""
    head, rec = w.head[c], w.runs[c, run]
    job = rec.job
    state = w.state[c, job]
    if state.status == RUNNING:  # it waits again, but nobody may start it yet
        head.active -= 1
        state.status = QUEUED
        state.queued_s = head.now_s
        head.waiting += 1
    note(w, c, E_STOPPED, job, node, count, rec.shape, run, EVICTED)
    if count == rec.instances:
        kill_run(w, c, run)
        state.left -= count
    else:
        shrink(w, c, run, count)
    w.totals[c].evicted += count
    w.node_state[c, node].evicted += count
    state.evicted += count
    if state.back == 0:
        state.back_s = head.now_s + w.conf[0].back_off_s
        state.back_next = -1
        if head.back_last >= 0:
            w.state[c, head.back_last].back_next = job
        else:
            head.back_first = job
        head.back_last = job
    state.back += count


@inner
def shrink(w: World, c: int, run: int, count: int) -> None:
    """Take some instances of an array off the one node of a run; the others go on."""
    head, rec = w.head[c], w.runs[c, run]
    settle_run(w, c, run)
    job, piece = rec.job, rec.piece
    node, state = w.pieces[c, piece].node, w.state[c, job]
    done_s = max(w.truth[c, job].work_s - rec.left_s, 0.0)
    ran_s = (head.now_s - rec.start_s) * count
    w.totals[c].lost_s += done_s * count
    state.attained_s += ran_s
    state.wasted_s += ran_s
    take(w, c, node, job, rec.shape, -count, NEVER, w.free, w.gpu_free, w.gpu_mem)
    free_up(w, c, node)
    w.pieces[c, piece].count -= count
    rec.instances -= count
    state.active -= count
    occupy_node(w, c, node, job, rec.shape, count, -1)
    hold_share(w, c, job, rec.shape, -count)
    book_quotas(w, c, job, rec.shape, count, -1)
    head.calm = 0
    if w.conf[0].interference == 1 or w.conf[0].curved == 1:
        retune(w, c, node, -1)


@inner
def come_back(w: World, c: int) -> None:
    """Queue anew what has backed off long enough."""
    head = w.head[c]
    while head.back_first >= 0 and w.state[c, head.back_first].back_s <= head.now_s:
        job = head.back_first
        state = w.state[c, job]
        head.back_first = state.back_next
        if head.back_first < 0:
            head.back_last = -1
        if state.status == QUEUED:
            state.left += state.back
            bits.put(w.words, w.heads, c, w.rank[c, job])
            head.calm = head.settled = 0
        state.back = 0
