"""Choosing nodes for a job and booking them: by a scan of all nodes, or by the index of them."""

import numpy as np

from trimtab.arrays import Array
from trimtab.compiled import inner
from trimtab.rules import bits
from trimtab.rules.fit import choose_devices, fits, has_amounts, link_rate, slots, take
from trimtab.rules.nodes.index import best_of, is_indexed
from trimtab.rules.place import FIRST, NOWHERE, eligible, score
from trimtab.rules.sort import heap_up, sift
from trimtab.rules.world import World

FEW = 64  # nodes where room was made: a scan of no more costs less than the index


@inner
def place_job(
    place: int,
    w: World,
    c: int,
    job: int,
    shape: int,
    wanted: int,
    partial: bool,
    seed: int,
    at: int,
) -> int:
    """Book up to `wanted` instances from scratch entry `at` on; all or none unless `partial`.

    Returns how many were booked.
    """
    return place_among(False, place, w, c, job, shape, wanted, partial, seed, at)


@inner
def next_node(freed: bool, w: World, c: int, node: int) -> int:
    """This node or the next, or -1; of those where room was made lately, if `freed`."""
    if freed:
        return bits.next_from(w.freed_words, w.freed_heads, c, node)
    return node if node < w.nodes.shape[1] else -1


@inner
def place_among(
    freed: bool,
    place: int,
    w: World,
    c: int,
    job: int,
    shape: int,
    wanted: int,
    partial: bool,
    seed: int,
    at: int,
) -> int:
    """The same on all nodes, or on those alone where room was made lately."""
    if at + wanted > w.entry.shape[1]:
        w.head[c].full = 1
        return 0
    indexed = is_indexed(place, w, c, job) and not (freed and w.head[c].freed <= FEW)
    if wanted == 1:
        if indexed:
            best = best_of(freed, True, place, w, c, job, shape, seed)
        else:
            best = best_node(freed, place, w, c, job, shape, seed)
        if best < 0:
            return 0
        book_instance(w, c, best, job, shape, at)
        return 1
    if indexed:
        booked = book_indexed(freed, place, w, c, job, shape, wanted, seed, at)
        return kept(w, c, job, shape, wanted, partial, at, booked)
    count = room = 0
    nodes = np.empty(w.nodes.shape[1], np.int64)
    node = next_node(freed, w, c, 0)
    while node >= 0:
        fit = 0
        if has_amounts(w, c, node, job, shape) and eligible(place, w, c, node, job, shape):
            fit = slots(w, c, node, job, shape, w.free, w.gpu_free, w.gpu_mem, wanted)
        if fit > 0:
            w.slots[c, node] = fit
            nodes[count] = node
            count += 1
            room += fit
        node = next_node(freed, w, c, node + 1)
    if room == 0 or (room < wanted and not partial):
        return 0
    wanted = min(room, wanted)
    if place == FIRST:
        book_in_turn(w, c, job, shape, wanted, at, nodes)
        return wanted
    booked = book_best(place, w, c, job, shape, wanted, seed, at, nodes, count)
    return kept(w, c, job, shape, wanted, partial, at, booked)


@inner
def kept(
    w: World, c: int, job: int, shape: int, wanted: int, partial: bool, at: int, booked: int
) -> int:
    """How many of those booked stay: none where not all were and that will not do."""
    if booked == wanted or partial:
        return booked
    for i in range(at, at + booked):
        mask = w.entry[c, i].devices
        take(w, c, w.entry[c, i].node, job, shape, -1, mask, w.free, w.gpu_free, w.gpu_mem)
    return 0


@inner
def best_node(freed: bool, place: int, w: World, c: int, job: int, shape: int, seed: int) -> int:
    """The best node for one instance, or -1."""
    best = -1
    best_score = NOWHERE
    node = next_node(freed, w, c, 0)
    while node >= 0:
        if fits(w, c, node, job, shape) and eligible(place, w, c, node, job, shape):
            if place == FIRST:
                return node
            value = score(place, w, c, node, job, shape, seed)
            if value > best_score:
                best, best_score = node, value
        node = next_node(freed, w, c, node + 1)
    return best


@inner
def book_in_turn(
    w: World, c: int, job: int, shape: int, wanted: int, at: int, nodes: Array
) -> None:
    """Fill one node after the other."""
    i = 0
    for k in range(wanted):
        while w.slots[c, nodes[i]] == 0:
            i += 1
        book_instance(w, c, nodes[i], job, shape, at + k)
        w.slots[c, nodes[i]] -= 1


@inner
def book_best(
    place: int,
    w: World,
    c: int,
    job: int,
    shape: int,
    wanted: int,
    seed: int,
    at: int,
    nodes: Array,
    count: int,
) -> int:
    """An instance at a time on the node that is best then: a heap, the lowest number first. Returns
    how many, which is less than wanted where the placement would rather have the rest wait.
    """
    keys, turn = np.empty(count), np.empty(count, np.int64)
    for i in range(count):  # of two with one score the heap has the higher number first
        keys[i] = score(place, w, c, nodes[count - 1 - i], job, shape, seed)
    heap_up(keys, turn, count)
    for k in range(wanted):
        if keys[turn[0]] == NOWHERE:
            return k
        node = nodes[count - 1 - turn[0]]
        book_instance(w, c, node, job, shape, at + k)
        w.slots[c, node] -= 1
        if w.slots[c, node] > 0:
            keys[turn[0]] = score(place, w, c, node, job, shape, seed)
        else:
            keys[turn[0]] = NOWHERE
        sift(keys, turn, 0, count)
    return wanted


@inner
def book_indexed(
    freed: bool, place: int, w: World, c: int, job: int, shape: int, wanted: int, seed: int, at: int
) -> int:
    """The same by the index."""
    for k in range(wanted):
        node = best_of(freed, False, place, w, c, job, shape, seed)
        if node < 0:
            return k
        book_instance(w, c, node, job, shape, at + k)
    return wanted


@inner
def book_instance(w: World, c: int, node: int, job: int, shape: int, at: int) -> None:
    mask = choose_devices(w, c, node, job, shape, w.gpu_free, w.gpu_mem)
    take(w, c, node, job, shape, 1, mask, w.free, w.gpu_free, w.gpu_mem)
    w.entry[c, at].job = job
    w.entry[c, at].node = node
    w.entry[c, at].devices = mask


@inner
def rate_on(w: World, c: int, job: int, shape: int, at: int, count: int) -> float:
    """A gang's speed on the nodes in entries at .. at + count: slowest piece, worst link."""
    slowest = np.inf
    for i in range(at, at + count):
        node = w.entry[c, i].node
        slowest = min(slowest, w.rate[w.jobs[c, job].kind, w.nodes[c, node].kind, shape])
    link = 1.0
    if count > 1 and w.link.shape[0] > 1:
        for i in range(at, at + count):
            for j in range(at, i):
                a = w.nodes[c, w.entry[c, i].node].region
                b = w.nodes[c, w.entry[c, j].node].region
                if a != b:
                    link = min(link, link_rate(w, c, a, b))
    return slowest * link
