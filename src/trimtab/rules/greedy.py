"""Greedy backfilling, and what every pass over the queue is made of: try a job, undo the pass.

Nobody is reserved for. So what a pass left waiting can start later only on a node where room was
made since, and a pass at the end of one run looks at one node.
"""

import numpy as np

from trimtab.arrays import Array
from trimtab.compiled import inner
from trimtab.rules import bits
from trimtab.rules.easy import planned
from trimtab.rules.fit import (
    book_quotas,
    forget_freed,
    hopeless,
    is_refused,
    put_off,
    raise_most,
    refuse_like,
    take,
    within,
)
from trimtab.rules.nodes.choose import FEW, next_node, place_among
from trimtab.rules.order import DRF
from trimtab.rules.world import World


@inner
def sort_fresh(w: World, c: int, rank: Array) -> None:
    """Arrivals that still wait, in queue order, by insertion: there are few."""
    waiting = 0
    for i in range(w.head[c].fresh):
        if bits.has(w.words, c, rank[c, w.fresh[c, i]]):
            w.fresh[c, waiting] = w.fresh[c, i]
            waiting += 1
    w.head[c].fresh = waiting
    for i in range(1, waiting):
        job = w.fresh[c, i]
        j = i
        while j > 0 and rank[c, w.fresh[c, j - 1]] > rank[c, job]:
            w.fresh[c, j] = w.fresh[c, j - 1]
            j -= 1
        w.fresh[c, j] = job


@inner
def undo(w: World, c: int) -> None:
    """Give back what the pass booked: applying its decisions books it for good."""
    for i in range(w.head[c].starts - 1, -1, -1):
        job, node, mask = w.entry[c, i].job, w.entry[c, i].node, w.entry[c, i].devices
        take(w, c, node, job, 0, -1, mask, w.free, w.gpu_free, w.gpu_mem)
    if w.quota_cap.shape[1] > 0:
        let_go(w, c)
    for i in range(w.head[c].stops - 1, -1, -1):
        put_off(w, c, w.stop[c, i], -1)


@inner
def let_go(w: World, c: int) -> None:
    """Take the starts of a pass off the quotas again."""
    i = 0
    while i < w.head[c].starts:
        job = w.entry[c, i].job
        end = i + 1
        while end < w.head[c].starts and w.entry[c, end].job == job:
            end += 1
        book_quotas(w, c, job, 0, end - i, -1)
        i = end


@inner
def try_start(place: int, seed: int, w: World, c: int, job: int) -> bool:
    """Book as much of the job as may start now; False where the rest of it lacks room.

    What a quota holds back lacks none.
    """
    return try_among(False, place, seed, w, c, job)


@inner
def try_among(freed: bool, place: int, seed: int, w: World, c: int, job: int) -> bool:
    """The same, on the nodes alone where room was made since the last pass, if `freed`."""
    at = w.head[c].starts
    left = w.state[c, job].left
    i = at - 1
    while i >= 0 and w.entry[c, i].job == job:  # an array, booked in part before
        left -= 1
        i -= 1
    left = within(w, c, job, 0, left)
    placed = 0
    if left > 0 and not hopeless(w, c, job):
        partial = w.jobs[c, job].gang == 0
        placed = place_among(freed, place, w, c, job, 0, left, partial, seed, at)
    w.head[c].starts += placed
    book_quotas(w, c, job, 0, placed, 1)
    if placed < left:
        refuse_like(w, c, job)
    return placed == left


@inner
def fill_greedily(
    order: int,
    place: int,
    seed: int,
    w: World,
    c: int,
    line: Array,
    words: Array,
    heads: Array,
    head: int,
) -> None:
    """Start whatever fits behind a blocked head; note the least that jobs ask which do not."""
    for r in range(w.least.shape[1]):
        w.least[c, r] = np.inf
    # by DRF jobs have started past the head and some before it have not
    rank = head if head < 0 else bits.next_from(words, heads, c, 0 if order == DRF else head)
    while rank >= 0 and w.conf[0].halt == 0:
        job = line[c, rank]
        if rank == head or is_refused(w, c, job):
            lower_least(w, c, job)
        elif not (order == DRF and planned(w, c, job)):
            if not try_start(place, seed, w, c, job):
                lower_least(w, c, job)
        rank = bits.next_from(words, heads, c, rank + 1)
    forget_freed(w, c)
    # where gates come nearer or quotas are given back, more fits than where room was made
    w.head[c].settled = 1 if w.gate.shape[1] == 0 and w.quota_cap.shape[1] == 0 else 0


@inner
def lower_least(w: World, c: int, job: int) -> None:
    for r in range(w.least.shape[1]):
        w.least[c, r] = min(w.least[c, r], w.demand[c, job, r])


@inner
def plan_settled(
    place: int, seed: int, w: World, c: int, line: Array, rank: Array, words: Array, heads: Array
) -> bool:
    """A greedy pass that looks only where something has changed since the last; False where that
    is not known.

    What the last one left waiting fits on no node but those where room was made since; who has
    arrived since may fit anywhere.
    """
    head = w.head[c]
    if head.settled == 0:
        return False
    head.starts = head.stops = head.full = 0
    head.pass_no += 1
    sort_fresh(w, c, rank)
    if head.freed > 0 and find_most_freed(w, c):
        fill_freed(place, seed, w, c, line, rank, words, heads)
    else:
        for i in range(head.fresh):
            try_fresh(place, seed, w, c, w.fresh[c, i])
    undo(w, c)
    forget_freed(w, c)
    head.fresh = 0
    return True


@inner
def find_most_freed(w: World, c: int) -> bool:
    """The most that is free where room was made; False where every waiting job asks for more."""
    for r in range(w.most_freed.shape[1]):
        w.most_freed[c, r] = 0.0
    node = next_node(True, w, c, 0)
    while node >= 0:
        if w.node_state[c, node].up == 1:
            raise_most(w, c, node)
            for r in range(w.most_freed.shape[1]):
                w.most_freed[c, r] = max(w.most_freed[c, r], w.free[c, node, r])
        node = next_node(True, w, c, node + 1)
    for r in range(w.most_freed.shape[1]):
        if w.least[c, r] > w.most_freed[c, r]:
            return False
    return True


@inner
def fill_freed(
    place: int, seed: int, w: World, c: int, line: Array, rank: Array, words: Array, heads: Array
) -> None:
    """Walk the line: arrivals look everywhere, all others where room was made."""
    head = w.head[c]
    came = 0
    at = bits.next_from(words, heads, c, 0)
    while at >= 0 and w.conf[0].halt == 0:
        job = line[c, at]
        if came < head.fresh and w.fresh[c, came] == job:
            try_fresh(place, seed, w, c, job)
            came += 1
        elif fits_freed(w, c, job) and not is_refused(w, c, job):
            together = w.jobs[c, job].gang == 1 and w.state[c, job].left > 1
            starts = head.starts
            try_among(not together, place, seed, w, c, job)
            if head.starts > starts and head.freed <= FEW and not find_most_freed(w, c):
                break  # that room is gone: who waits asks for more
        at = bits.next_from(words, heads, c, at + 1)
    for i in range(came, head.fresh):
        try_fresh(place, seed, w, c, w.fresh[c, i])


@inner
def fits_freed(w: World, c: int, job: int) -> bool:
    """Whether there is enough of each thing where room was made, if not on one node."""
    for r in range(w.most_freed.shape[1]):
        if w.demand[c, job, r] > w.most_freed[c, r]:
            return False
    return True


@inner
def try_fresh(place: int, seed: int, w: World, c: int, job: int) -> None:
    if is_refused(w, c, job) or not try_start(place, seed, w, c, job):
        lower_least(w, c, job)
