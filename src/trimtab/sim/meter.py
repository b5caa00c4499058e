"""Load, power and energy of nodes and of the cluster, integrated exactly between changes."""

import math

import numpy as np

from trimtab.compiled import inner
from trimtab.core import Status
from trimtab.rules.fit import amount

FINISHED = int(Status.FINISHED)
SLACK = 1e-9  # of a load of 1, for residues of rounding: what is just full is not overloaded


@inner
def tick(w, c, time_s):
    """Move the clock and integrate the running totals; everything is constant in between.

    Nothing is counted before the first job comes, so that no total hangs on where a clock begins.
    """
    head = w.head[c]
    dt = time_s - max(head.now_s, head.first_s)
    if dt > 0.0:
        total = w.totals[c]
        total.time_s += dt
        total.waiting_s += head.waiting * dt
        total.system_s += (head.waiting + head.active) * dt
        total.busy_s += head.load_sum * dt
        total.service_s += head.service * dt
        total.harmed_s += head.harmed * dt
        total.own_harm_s += head.own_harm * dt
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
def keep_arrived(w, c):
    """Keep the totals, and what each job has held and done, as they stand now."""
    now_s = w.head[c].now_s
    w.arrived[c] = w.totals[c]
    for job in range(w.head[c].jobs):
        state, kept = w.state[c, job], w.so_far[c, job]
        work_s, instances = w.truth[c, job].work_s, w.jobs[c, job].instances
        alone = w.jobs[c, job].gang == 1 or instances == 1
        kept.held_s = state.attained_s
        kept.done_s = work_s * (instances - state.left - state.active)
        if alone and state.left > 0:
            kept.done_s = state.kept_s * instances
        run = state.run if state.active > 0 else -1
        while run >= 0:
            rec = w.runs[c, run]
            worked_s = max(now_s - max(rec.updated_s, rec.resume_s), 0.0) * rec.rate
            kept.done_s += (work_s - max(rec.left_s - worked_s, 0.0)) * rec.instances
            kept.held_s += (now_s - rec.start_s) * rec.instances
            run = rec.sibling
        if state.status > FINISHED or w.truth[c, job].service == 1:
            kept.done_s = 0.0  # nothing came of it, or nothing is done that ends


@inner
def settle_node(w, c, node):
    """Bring a node's integrals of load and energy up to now, window by window."""
    state = w.node_state[c, node]
    now_s = w.head[c].now_s
    dt = now_s - state.since_s
    if dt <= 0.0:
        return
    state.energy_j += state.power_w * max(now_s - max(state.since_s, w.head[c].first_s), 0.0)
    state.load_s += state.load * dt
    if w.conf[0].lends == 1 and state.load > w.conf[0].crowded:
        cap = w.capacity[c, node, w.nodes[c, node].driver]
        if state.service <= w.conf[0].crowded * cap:
            state.harm_s += state.service * max(now_s - max(state.since_s, w.head[c].first_s), 0.0)
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
def count_harm(w, c, node, sign):
    """Add what services use here to the cluster's sums (sign 1), or take it off them (sign -1)."""
    state, head = w.node_state[c, node], w.head[c]
    cap, crowded = w.capacity[c, node, w.nodes[c, node].driver], w.conf[0].crowded
    head.service += sign * state.service
    if state.load > crowded:
        head.harmed += sign * state.service
    if state.service > crowded * cap:
        head.own_harm += sign * state.service


@inner
def watch_overload(w, c, node):
    """Note since when batch jobs stand on an overloaded node, or on a crowded one that may be
    relieved, and when they may have to leave.
    """
    state, head, grace_s = w.node_state[c, node], w.head[c], w.conf[0].grace_s
    over = state.batch > 0 and state.load > 1.0 + SLACK
    hot = state.batch > 0 and state.load > w.conf[0].crowded
    hot &= w.patience_s[c, w.nodes[c, node].region] >= 0.0
    if over and state.over_s == np.inf:
        state.over_s = head.now_s
        state.due_s = min(state.due_s, head.now_s + grace_s)
    if hot and state.hot_s == np.inf:
        state.hot_s = head.now_s
        state.due_s = min(state.due_s, head.now_s + grace_s)
    state.over_s = state.over_s if over else np.inf
    state.hot_s = state.hot_s if hot else np.inf
    if not (over or hot):
        state.due_s = np.inf
    head.due_s = min(head.due_s, state.due_s)


@inner
def change_service(w, c, node, used):
    """Add to what services use of the node's driving resource; change_load follows."""
    settle_node(w, c, node)
    if w.conf[0].lends == 1:
        count_harm(w, c, node, -1)
        w.node_state[c, node].service += used
        count_harm(w, c, node, 1)


@inner
def change_load(w, c, node, used, draw):
    """Add to the use of the node's driving resource; updates load, power, the cluster's sums."""
    settle_node(w, c, node)
    state, head = w.node_state[c, node], w.head[c]
    if w.conf[0].lends == 1:
        count_harm(w, c, node, -1)
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
    if w.conf[0].lends == 1:
        count_harm(w, c, node, 1)
        watch_overload(w, c, node)


@inner
def piece_use(w, c, job, node, count, shape):
    """(used, draw) that `count` instances add to a node."""
    driver = w.nodes[c, node].driver
    used = count * amount(w.demand[c, job, driver], w.scale[shape]) * use_of(w, c, job)
    cap = w.capacity[c, node, driver]
    draw = used / cap if cap > 0.0 else 0.0
    return used, draw * w.draw[w.jobs[c, job].kind, w.nodes[c, node].kind]


@inner
def hold_share(w, c, job, shape, instances):
    """Count what a run holds of the whole cluster, as a mean over its resources."""
    share = 0.0
    resources = w.head[c].resources
    for r in range(resources):
        if w.capacity_sum[c, r] > 0.0:
            share += w.demand[c, job, r] * w.scale[shape] / w.capacity_sum[c, r]
    head = w.head[c]
    head.held += instances * share / resources
    if head.heap == 0 and instances < 0:
        head.held = 0.0  # no residue of rounding on an empty cluster
