"""The router of a live fleet: the simulated one's rules on arrays whose clock is the real one.

One compiled call a turn of the event loop takes what arrived, asks the rule until it holds back or
nothing waits, and says which rows to send where. Everything here is pure bookkeeping on arrays: no
clock, socket or thread, so that tests play any history.
"""

from __future__ import annotations

import numpy as np

from trimtab.compiled import compiled, inner
from trimtab.serving.net.serve_profile import batch_s
from trimtab.serving.nouns import SEGMENTS
from trimtab.serving.routing.fleet_sim import DROP, HOLD, count_arrival, end, head_line
from trimtab.serving.routing.fleet_state import ANSWERED, LINES
from trimtab.serving.routing.greedy import NONE, append, count_time, take
from trimtab.serving.routing.routers import choose, queue_s, shortest
from trimtab.serving.view import RATIO_EDGES

STALE, ON = -1, -2  # marks of rows that came back
LOSSES_MAX = 1  # lost once = sent again; lost twice = failed
REFUSALS_MAX = 2  # a server that says it cannot run a row has not been ended by it
STUCK, STUCK_S = 8.0, 1.0  # sent again when this many times its expected time, and so long, passed
PATIENCE_S = 0.25  # a rule that holds while every server is idle is overruled after this
SPEED_MEMORY_S = 2.0  # worker seconds that the measured speed looks back
SPEEDS = (0.02, 50.0)


@inner
def queue_up(f, x, slot, ahead):
    """Put a slot into its line behind the more urgent, and behind equals unless `ahead`."""
    row, rank = f.request[slot], x.slot[slot]["rank"]
    line = f.pending[0, row["segment"] * 4 + row["before"]]
    f.fleet[0]["pending"] += 1
    x.slot[slot]["queued"] = 1
    if line["count"] == 0 or (not ahead and x.slot[line["last"]]["rank"] <= rank):
        append(line, f.after, slot)
        return
    last, at = NONE, line["first"]
    while at != NONE:
        other = x.slot[at]["rank"]
        if other > rank or (ahead and other == rank):
            break
        last, at = at, f.after[at]
    f.after[slot] = at
    if last == NONE:
        line["first"] = slot
    else:
        f.after[last] = slot
    if at == NONE:
        line["last"] = slot
    line["count"] += 1


@inner
def leave_line(f, x, line):
    """The first slot of a line, out of it."""
    slot = take(line, f.after)
    f.fleet[0]["pending"] -= 1
    x.slot[slot]["queued"] = 0
    return slot


@inner
def came(f, x, k):
    """Open the slot of an arrival."""
    slot = x.new_slot[k]
    row, state = f.request[slot], x.slot[slot]
    # aim earlier than is due: a rule that spends all the slack is late half the time
    spare_s = x.tally[0]["margin"] * (x.new_due_s[k] - x.new_arrival_s[k])
    row["arrival_s"], row["deadline_s"] = x.new_arrival_s[k], x.new_due_s[k] - spare_s
    row["segment"], row["before"], row["widths"] = 0, 0, 0
    row["plan"], row["server"] = NONE, NONE
    state["open"], state["uid"], state["avoid"], state["losses"] = 1, NONE, NONE, 0
    state["hard_s"], state["due_s"] = x.new_hard_s[k], x.new_due_s[k]
    state["rank"] = x.new_rank[k]
    queue_up(f, x, slot, False)


@inner
def other_than(f, x, uid):
    """The shortest queue of the servers but one."""
    best = NONE
    for v in range(f.conf[0]["servers"]):
        if x.member[v]["uid"] != uid:
            if best == NONE or queue_s(f, 0, v) < queue_s(f, 0, best):
                best = v
    return best


@inner
def way_cost_s(f, segment, before, width, plan, count):
    """The profile's seconds of a batch for what is sent: the whole way, or one segment."""
    total_s = 0.0
    for s in range(segment, SEGMENTS if plan != NONE else segment + 1):
        asked = plan // 4 ** (SEGMENTS - 1 - s) % 4 if plan != NONE else width
        total_s += batch_s(f.time_s, f.buckets, s, before if s else 0, asked, count)
        before = asked
    return total_s


@inner
def send(f, x, v, width, group, plan):
    """Write a batch of the head's line into the out arrays, and count it to its server."""
    head, tally, now_s = f.fleet[0]["head"], x.tally[0], f.fleet[0]["now_s"]
    line, first, count = f.pending[0, head], tally["slots"], 0
    for _ in range(min(max(group, 1), line["count"])):
        slot = leave_line(f, x, line)
        if not x.slot[slot]["open"]:
            x.out_freed[tally["freed"]] = slot
            tally["freed"] += 1
        else:
            x.out_slot[first + count] = slot
            count += 1
    if count == 0:
        return
    member, server = x.member[v], f.server[v]
    segment, before = head // 4, head % 4
    cost_s = way_cost_s(f, segment, before, width, plan, count)
    member["backlog_s"] += cost_s
    expect_s = member["backlog_s"] / (server["speed"] * server["workers"])
    for k in range(first, first + count):
        row, state = f.request[x.out_slot[k]], x.slot[x.out_slot[k]]
        x.out_id[k] = state["generation"] * len(x.slot) + x.out_slot[k]
        row["asked"], row["plan"], row["server"] = width, plan, v
        state["uid"], state["sent_s"] = member["uid"], now_s
        state["cost_s"], state["expect_s"] = cost_s / count, expect_s
    count_time(f, v, now_s)
    if server["busy"] < server["workers"] and server["waiting"] + server["coming"] == 0:
        server["busy"] += 1  # begins as it comes
    else:
        server["coming"] += count
    member["sent"] += count
    batch = x.out_batch[tally["batches"]]
    batch["first"], batch["count"], batch["server"], batch["sent"] = first, count, v, member["sent"]
    batch["segment"], batch["before"], batch["width"], batch["plan"] = segment, before, width, plan
    tally["batches"] += 1
    tally["slots"] += count
    tally["away"] += count


@inner
def decided(f, x, rules):
    """What the rule says for the head, made safe: (server or HOLD or DROP, width, group, plan)."""
    fleet, servers, tally = f.fleet[0], f.conf[0]["servers"], x.tally[0]
    state = x.slot[f.pending[0, fleet["head"]]["first"]]
    server, width, group, plan = choose(f, 0, rules)
    # lost for the objective, but nobody asked to give it up: as cheap as can be, for those behind
    lost = server == DROP and state["hard_s"] == np.inf
    odd = server < DROP or server >= servers
    odd = odd or (server >= 0 and (width < 0 or width > 3 or plan < NONE or plan > 255))
    idle = tally["away"] == 0 and fleet["now_s"] - state["sent_s"] > PATIENCE_S
    if lost or odd or (server == HOLD and idle):
        plan, server = tally["slimmest"], shortest(f, 0)
        width, group = plan // 4 ** (3 - fleet["head"] // 4) % 4, f.knobs[0]["batch_max"]
    if server >= 0 and state["losses"] > 0 and servers > 1:
        if x.member[server]["uid"] == state["avoid"]:
            server = other_than(f, x, state["avoid"])
    return server, width, group, plan


@compiled
def pump(f, x, rules, arrivals, refused, now_s):
    """Take the arrivals of this turn, count those refused, and route until the rule holds back.

    Returns how many batches and rows to send, how many slots to clear, and 1 = the rule holds back.
    """
    fleet, tally = f.fleet[0], x.tally[0]
    fleet["now_s"] = max(now_s, fleet["now_s"])
    tally["batches"], tally["slots"], tally["late"], tally["freed"] = 0, 0, 0, 0
    tally["failed"], tally["held"] = 0, 0
    for _ in range(refused):
        count_arrival(f, 0)
    for k in range(arrivals):
        count_arrival(f, 0)
        came(f, x, k)
        x.slot[x.new_slot[k]]["sent_s"] = now_s
    while fleet["pending"] > 0 and f.conf[0]["servers"] > 0:
        head = head_line(f, 0)
        slot = f.pending[0, head]["first"]
        state = x.slot[slot]
        if not state["open"]:
            x.out_freed[tally["freed"]] = leave_line(f, x, f.pending[0, head])
            tally["freed"] += 1
            continue
        fleet["head"] = head
        server, width, group, plan = decided(f, x, rules)
        if server == HOLD:
            tally["held"] = 1
            break
        if server == DROP:
            x.out_late[tally["late"]] = leave_line(f, x, f.pending[0, head])
            tally["late"] += 1
            continue
        send(f, x, server, width, group, plan)
    return tally["batches"], tally["slots"], tally["freed"] + tally["late"], tally["held"]


@inner
def leave_server(f, x, slot):
    """Take a slot off the books of the server that has it."""
    state, servers = x.slot[slot], f.conf[0]["servers"]
    for v in range(servers):
        if x.member[v]["uid"] == state["uid"]:
            member = x.member[v]
            member["backlog_s"] = max(member["backlog_s"] - state["cost_s"], 0.0)
    state["uid"] = NONE
    x.tally[0]["away"] -= 1


@inner
def settle(f, x, ids, widths, segment, v, marks, now_s):
    """Book rows that came back."""
    slots, fleet = len(x.slot), f.fleet[0]
    fleet["now_s"] = max(now_s, fleet["now_s"])
    for k in range(len(ids)):
        slot = ids[k] % slots
        state, row = x.slot[slot], f.request[slot]
        marks[k] = STALE
        if ids[k] < 0 or state["generation"] != ids[k] // slots or state["uid"] == NONE:
            continue
        if segment <= row["segment"] or widths[k, row["segment"] : segment].max() > 3:
            continue  # nonsense: what is stuck is sent again
        leave_server(f, x, slot)
        for s in range(row["segment"], segment):
            row["widths"] = row["widths"] * 4 + widths[k, s]
            row["before"] = widths[k, s]
        row["segment"] = segment
        if segment == SEGMENTS:
            row["deadline_s"] = state["due_s"]
            end(f, 0, slot, ANSWERED)
            x.widths[row["widths"]] += 1
            state["open"] = 0
            marks[k] = row["widths"]
        else:
            # a plan that any rule can go on with, should another one take over meanwhile
            row["plan"], row["server"] = x.tally[0]["slimmest"], max(v, 0)
            queue_up(f, x, slot, False)
            marks[k] = ON


@inner
def report(f, x, v, received, busy, waiting, util, now_s):
    """Believe what a server says of itself; what it has not seen yet is still coming."""
    server = f.server[v]
    count_time(f, v, max(now_s, server["util_s"]))
    server["busy"], server["waiting"], server["util"] = busy, waiting, util
    server["coming"] = max(x.member[v]["sent"] - received, 0)


@inner
def learn(f, x, v, runs):
    """Compare the batches that a server ran with the profile: its speed, smoothed, and how far
    single ones are from what it was before.
    """
    member = x.member[v]
    for k in range(len(runs)):
        segment, before, width = int(runs[k, 0]), int(runs[k, 1]), int(runs[k, 2])
        sane = 0 <= segment < SEGMENTS and 0 <= before < 4 and 0 <= width < 4
        if not sane or not 0.0 < runs[k, 4] < 3600.0 or not 1.0 <= runs[k, 3] <= 1e6:
            continue
        plan_s = batch_s(f.time_s, f.buckets, segment, before, width, int(runs[k, 3]))
        if plan_s > 0:
            ratio = runs[k, 4] * f.server[v]["speed"] / plan_s
            x.ratios[np.searchsorted(RATIO_EDGES, ratio)] += 1
        keep = np.exp(-runs[k, 4] / SPEED_MEMORY_S)
        member["plan_s"] = keep * member["plan_s"] + plan_s
        member["real_s"] = keep * member["real_s"] + runs[k, 4]
    if member["real_s"] > 0:
        speed = member["plan_s"] / member["real_s"]
        f.server[v]["speed"] = min(max(speed, SPEEDS[0]), SPEEDS[1])


@compiled
def book(f, x, v, counts, util, runs, ids, widths, segment, marks, now_s):
    """Book what a server sent: (received, busy, waiting), its batches, and rows that came back.

    A mark is the tuple of a row answered, STALE = nobody waits for it, or ON = route it on.
    Returns how many rows wait at the front.
    """
    if v != NONE:
        report(f, x, v, counts[0], counts[1], counts[2], util, now_s)
        learn(f, x, v, runs)
    settle(f, x, ids, widths, segment, v, marks, now_s)
    return f.fleet[0]["pending"]


@compiled
def forget(f, x, slot):
    """Close a slot whose answer nobody wants; True where it is in no line and may be used again."""
    state = x.slot[slot]
    state["open"] = 0
    state["generation"] += 1
    if state["uid"] != NONE:
        leave_server(f, x, slot)
    return state["queued"] == 0


@inner
def lose(f, x, slot, most):
    """Put a slot that its server lost back to the front of its line, or count it as failed."""
    state, tally = x.slot[slot], x.tally[0]
    state["avoid"] = state["uid"]
    leave_server(f, x, slot)
    state["generation"] += 1  # an answer that still comes finds nobody
    state["losses"] += 1
    if not state["open"]:
        return
    if state["losses"] > most:
        x.out_failed[tally["failed"]] = slot
        tally["failed"] += 1
        return
    row = f.request[slot]
    row["plan"], row["server"] = tally["slimmest"], 0
    tally["resent"] += 1
    queue_up(f, x, slot, True)


@compiled
def lose_server(f, x, uid):
    """Take back all that a server has."""
    x.tally[0]["failed"] = 0
    for slot in range(len(x.slot) - 1, -1, -1):
        if x.slot[slot]["uid"] == uid:
            lose(f, x, slot, LOSSES_MAX)


@compiled
def lose_ids(f, x, ids):
    """Take back rows that a server says it cannot run."""
    x.tally[0]["failed"] = 0
    slots = len(x.slot)
    for k in range(len(ids)):
        slot = ids[k] % slots
        state = x.slot[slot]
        if ids[k] >= 0 and state["generation"] == ids[k] // slots and state["uid"] != NONE:
            lose(f, x, slot, REFUSALS_MAX)


@compiled
def lose_stuck(f, x, now_s):
    """Take back what waits far longer at a server than it should, where another could have it."""
    x.tally[0]["failed"] = 0
    if f.conf[0]["servers"] < 2:
        return
    for slot in range(len(x.slot)):
        state = x.slot[slot]
        if state["uid"] != NONE and state["losses"] < LOSSES_MAX:
            if now_s - state["sent_s"] > max(STUCK * state["expect_s"], STUCK_S):
                lose(f, x, slot, LOSSES_MAX)


@compiled
def sweep(f, x, now_s):
    """Find open slots whose hard deadline has passed, and unlink slots that nobody waits for."""
    tally = x.tally[0]
    tally["late"], tally["freed"], tally["next_s"] = 0, 0, np.inf
    for slot in range(len(x.slot)):
        state = x.slot[slot]
        if state["open"]:
            if state["hard_s"] <= now_s:
                x.out_late[tally["late"]] = slot
                tally["late"] += 1
            else:
                tally["next_s"] = min(tally["next_s"], state["hard_s"])
    for at in range(LINES):
        line = f.pending[0, at]
        for _ in range(line["count"]):
            slot = leave_line(f, x, line)
            if x.slot[slot]["open"]:
                append(line, f.after, slot)
                f.fleet[0]["pending"] += 1
                x.slot[slot]["queued"] = 1
            else:
                x.out_freed[tally["freed"]] = slot
                tally["freed"] += 1
