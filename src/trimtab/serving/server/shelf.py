"""The rows on their way through one live server, compiled: one call a batch.

Algorithm 1 (`greedy`) decides; here its queue meets the rows' plans. `step` books a batch that has
ended, sends its rows on or home, and begins the next one, so that a worker comes back from compiled
code only with something to run. Tensors stay with the caller, by the numbers of their rows.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.compiled import compiled, inner
from trimtab.serving.net.serve_profile import modelled
from trimtab.serving.nouns import SEGMENTS
from trimtab.serving.routing.greedy import (
    EMPTY,
    KEYS,
    LOAD,
    NONE,
    RUN,
    WAIT,
    Knobs,
    Local,
    become_free,
    decide,
    drop_instance,
    enqueue,
    load_instance,
    local,
    quiet_until,
    run_batch,
    util_at,
)
from trimtab.serving.routing.pinned import Pinned, likeness, opener
from trimtab.serving.server.wire import REPORT_ROW, RUN_COLUMNS, UNRUN

RUNS_MAX = 256  # batches told of with one answer; what is beyond them is not told


class Shelf(NamedTuple):
    """Q rows beside the executor's arrays. Out arrays are read after each call."""

    id: Array  # (Q,) the front's
    asked: Array  # (Q, SEGMENTS) widths, or UNRUN
    used: Array  # (Q, SEGMENTS) uint8, UNRUN until it ran
    free: Array  # (Q,) numbers of no row, the first `counts[0]` of them
    counts: Array  # (3,) numbers free, rows received, rows that wait before this queue
    broken_s: Array  # (KEYS,) until then a key is not tried: it does not load
    runs: Array  # (RUNS_MAX, RUN_COLUMNS) batches not told of yet
    report: Array  # (1,) REPORT_ROW
    out_row: Array  # (Q,) of the batch to run, or just queued
    out_odd: Array  # (Q,) rows whose key is broken
    out_id: Array  # (Q,) of rows that leave
    out_used: Array  # (Q, SEGMENTS) uint8 of rows that leave
    out_place: Array  # (Q,) of rows that leave, in their batch


class Step(NamedTuple):
    """What a worker does next, and what left or could not go on when its last batch ended."""

    what: int  # WAIT, RUN or LOAD
    segment: int
    before: int
    width: int  # the width really used
    instance: int
    rows: int  # in out_row
    ends: int  # 1 = the way of a row of this batch ends with it
    until_s: float  # of WAIT: look again then, or when something comes
    home: int  # rows that left: in out_id and out_used
    odd: int  # in out_odd


FREE_NUMBERS, RECEIVED, BEFORE_QUEUE = range(3)


def shelf(rows: int) -> Shelf:
    """An empty shelf."""
    return Shelf(
        id=np.zeros(rows, np.int64),
        asked=np.full((rows, SEGMENTS), UNRUN, np.int64),
        used=np.full((rows, SEGMENTS), UNRUN, np.uint8),
        free=np.arange(rows, dtype=np.int64),
        counts=np.array([rows, 0, 0], np.int64),
        broken_s=np.zeros(KEYS),
        runs=np.zeros((RUNS_MAX, RUN_COLUMNS)),
        report=np.zeros(1, REPORT_ROW),
        out_row=np.zeros(rows, np.int64),
        out_odd=np.zeros(rows, np.int64),
        out_id=np.zeros(rows, np.int64),
        out_used=np.zeros((rows, SEGMENTS), np.uint8),
        out_place=np.zeros(rows, np.int64),
    )


@cache
def likenesses() -> tuple[Any, Any]:
    """The compiled types of Local and Shelf."""
    executor = local(modelled(), Knobs(), requests=1, instances=1)
    return likeness(executor), likeness(shelf(1))


def pinned(executor: Local, rows: Shelf) -> tuple[Pinned, Pinned]:
    """Both where compiled code finds them."""
    like = likenesses()
    return Pinned(executor, like[0]), Pinned(rows, like[1])


local_at = opener(lambda: likenesses()[0])
shelf_at = opener(lambda: likenesses()[1])


@inner
def queued(x, s, number, segment, before, now_s, odd):
    """Queue a row for its next segment, or count it among the odd; how many odd there are."""
    width = s.asked[number, segment]
    if s.broken_s[(segment * 4 + before) * 4 + width] > now_s:
        s.out_odd[odd] = number
        return odd + 1
    enqueue(x, 0, number, segment, before, width)
    return odd


@inner
def leave(s, number, home):
    """Write a row out and free its number."""
    s.out_id[home] = s.id[number]
    s.out_used[home, :] = s.used[number, :]
    s.free[s.counts[FREE_NUMBERS]] = number
    s.counts[FREE_NUMBERS] += 1


@compiled
def put(local, shelf, ids, widths, segment, before, sent, now_s):
    """Queue as many rows as there are numbers for: (rows, of these odd). They are in out_row.

    sent: what the front has sent so far, or NONE where that was noted before.
    """
    x, s = local_at(local), shelf_at(shelf)
    rows, odd = min(len(ids), s.counts[FREE_NUMBERS]), 0
    if sent != NONE:
        s.counts[RECEIVED] = sent
    for k in range(rows):
        s.counts[FREE_NUMBERS] -= 1
        number = s.free[s.counts[FREE_NUMBERS]]
        s.out_row[k], s.id[number] = number, ids[k]
        for at in range(SEGMENTS):
            s.asked[number, at], s.used[number, at] = widths[at], UNRUN
        odd = queued(x, s, number, segment, before, now_s, odd)
    return rows, odd


@inner
def passed_on(x, s, i, now_s):
    """Send the rows of a batch on or home: (home, odd)."""
    instance = x.instance[0, i]
    segment, width = instance["segment"], instance["width"]
    following, home, odd = segment + 1, 0, 0
    number, place = instance["first"], 0
    while number != NONE:
        after = x.after[number]
        s.used[number, segment] = width
        if following == SEGMENTS or s.asked[number, following] == UNRUN:
            leave(s, number, home)
            s.out_place[home] = place
            home += 1
        else:
            odd = queued(x, s, number, following, width, now_s, odd)
        number, place = after, place + 1
    return home, odd


@inner
def note_run(x, s, i, rows, spent_s):
    """Note a batch for the next report."""
    report, instance = s.report[0], x.instance[0, i]
    report["batches"] += np.uint64(1)
    report["rows"] += np.uint64(rows)
    at = np.int64(report["runs"])
    if at < RUNS_MAX:
        s.runs[at, 0], s.runs[at, 1] = instance["segment"], instance["before"]
        s.runs[at, 2], s.runs[at, 3], s.runs[at, 4] = instance["width"], rows, spent_s
        report["runs"] = at + 1


@compiled
def step(local, shelf, ended, began_s, now_s):
    """Book the batch of the instance `ended`, or NONE, and begin what can begin: a Step's fields.

    Where rows are odd nothing begins: the caller mends them first.
    """
    x, s = local_at(local), shelf_at(shelf)
    home, odd = 0, 0
    if ended != NONE:
        become_free(x, 0, ended, now_s)
        note_run(x, s, ended, x.instance[0, ended]["count"], now_s - began_s)
        home, odd = passed_on(x, s, ended, now_s)
    what, key, i = WAIT, NONE, NONE
    if odd == 0:
        what, key, i = decide(x, 0, now_s)
    if what == WAIT:
        until_s = quiet_until(x, 0, now_s) if odd == 0 else now_s
        return WAIT, NONE, NONE, NONE, NONE, 0, 0, until_s, home, odd
    if what == LOAD:
        load_instance(x, 0, key, i, now_s, np.inf)
    else:
        run_batch(x, 0, key, i, now_s, np.inf)
    instance = x.instance[0, i]
    segment, rows, ends = instance["segment"], 0, 0
    number = instance["first"] if what == RUN else NONE
    while number != NONE:
        s.out_row[rows] = number
        rows += 1
        if segment + 1 == SEGMENTS or s.asked[number, segment + 1] == UNRUN:
            ends = 1
        number = x.after[number]
    width, before = instance["width"], instance["before"]
    return what, segment, before, width, i, rows, ends, np.inf, home, odd


@compiled
def fail(local, shelf, i, now_s):
    """Take the rows of a batch that failed; the instance is gone. Returns how many left."""
    x, s = local_at(local), shelf_at(shelf)
    number, home = x.instance[0, i]["first"], 0
    become_free(x, 0, i, now_s)
    drop_instance(x, 0, i)
    while number != NONE:
        leave(s, number, home)
        home += 1
        number = x.after[number]
    return home


@compiled
def give_up(shelf, numbers):
    """Take rows that are in no queue."""
    s = shelf_at(shelf)
    for home in range(len(numbers)):
        leave(s, numbers[home], home)


@compiled
def tell(local, shelf, now_s):
    """Bring the report up to now."""
    x, s = local_at(local), shelf_at(shelf)
    server, report = x.server[0], s.report[0]
    loaded, waits = 0, np.zeros(SEGMENTS, np.int64)
    for i in range(x.instance.shape[1]):
        loaded += x.instance[0, i]["state"] != EMPTY
    for key in range(KEYS):
        waits[key // 16] += x.lines[0, key]["count"]
    report["received"], report["busy"] = s.counts[RECEIVED], server["busy"]
    report["waiting"] = server["waiting"] + s.counts[BEFORE_QUEUE]
    report["loaded"], report["workers"] = loaded, server["workers"]
    report["waiting_0"], report["waiting_1"] = waits[0], waits[1]
    report["waiting_2"], report["waiting_3"] = waits[2], waits[3]
    report["memory_b"] = server["memory_b"]
    report["util"] = util_at(server, x.knobs[0]["util_window_s"], max(now_s, server["util_s"]))
    report["busy_s"] = server["busy_s"] + server["busy"] * max(now_s - server["util_s"], 0.0)
