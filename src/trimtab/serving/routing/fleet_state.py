"""The arrays of simulated fleets: how a run begins, who is on the way, what it came to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.compiled import inner
from trimtab.errors import ServeError
from trimtab.serving.net.serve_profile import ServeProfile, tuple_s
from trimtab.serving.nouns import SEGMENTS, TUPLES
from trimtab.serving.routing.greedy import FREE, LINE, NONE, Knobs, Local, local

OPEN, ANSWERED, REFUSED, LATE = range(4)  # outcomes; LATE = given up: its deadline passed or near
LINES = 16  # (segment, width before)
SPARE = 8  # slots for instances beside the warm ones

REQUEST = np.dtype(
    [
        ("arrival_s", "f8"),
        ("deadline_s", "f8"),
        ("done_s", "f8"),  # answered, refused or given up
        ("ready_s", "f8"),  # on its way to a server until then
        ("energy_j", "f8"),  # its share of the batches it was in
        ("segment", "i8"),  # the next one to run
        ("before", "i8"),  # width of the segment before
        ("widths", "i8"),  # row of the tuple really used, so far
        ("asked", "i8"),  # width the router chose
        ("plan", "i8"),  # tuple a router means to use, or NONE
        ("server", "i8"),  # that ran it last, or is to run it; NONE at the front
        ("outcome", "i8"),
    ]
)
FLEET = np.dtype(
    [
        ("now_s", "f8"),
        ("latency_s", "f8"),  # sums over answered requests
        ("accuracy", "f8"),
        ("good", "f8"),  # accuracy of those in time
        ("energy_j", "f8"),
        ("imbalance_s", "f8"),  # variance over servers of the share busy, times seconds
        ("done_hz", "f8"),  # smoothed, as of done_s
        ("done_s", "f8"),
        ("come_hz", "f8"),
        ("come_s", "f8"),
        ("fast_hz", "f8"),  # arrivals, smoothed over a tenth of that time
        ("arrived", "i8"),
        ("pending", "i8"),  # at the front
        ("moving", "i8"),  # rows of the heap
        ("answered", "i8"),
        ("in_time", "i8"),
        ("refused", "i8"),
        ("late", "i8"),
        ("held", "i8"),  # 1 = the router waits for an event
        ("head", "i8"),  # line that a decision is asked for, or NONE at the end
        ("turn", "i8"),  # a router's own counter
        ("draw", "u8"),  # the state of its randomness
    ]
)
CONF = np.dtype(
    [
        ("servers", "i8"),
        ("requests", "i8"),
        ("queue_max", "i8"),
        ("fifo_max", "i8"),
        ("drop_late", "i8"),
        ("hop_s", "f8"),
        ("hand_over_s", "f8"),
        ("scale_hz", "f8"),  # what the fleet answers at full width
        ("halt", "i8"),  # 1 = break off: set from outside while compiled code runs
    ]
)


class Fleets(NamedTuple):
    """C fleets of S servers with R requests each; server v of all is fleet v // S."""

    fleet: Array  # (C,) FLEET
    request: Array  # (C * R,) REQUEST
    pending: Array  # (C, LINES) LINE
    heap: Array  # (C, R) requests on their way, the next to come first
    server: Array  # (C * S,) SERVER
    lines: Array  # (C * S, KEYS) LINE
    instance: Array  # (C * S, I) INSTANCE
    after: Array  # (C * R,)
    turn: Array  # (C * R,)
    next_s: Array  # (C * S,) when a server changes by itself
    free_s: Array  # (C * S,) when a router expects a server to have done all it was sent
    stale: Array  # (C * S,) 1 = look for a batch before time moves on
    knobs: Array  # (1,) KNOBS
    memory_b: Array  # (segment, before, width)
    time_s: Array  # (segment, before, width, bucket)
    load_s: Array  # (segment, before, width)
    buckets: Array  # (bucket,)
    input_mb: Array  # (segment, before)
    accuracy: Array  # (256,)
    spread: Array  # (N,) what a batch may take, over the expected time; one is drawn a batch
    conf: Array  # (1,) CONF
    server_new: Array  # (S,) SERVER as a run begins
    instance_new: Array  # (S, I) INSTANCE


def fleets(
    profile: ServeProfile,
    count: int = 1,
    requests: int = 1024,
    *,
    speeds: Sequence[float] = (1.0,),
    workers: int = 1,
    knobs: Knobs | None = None,
    warm: Sequence[int] = range(len(TUPLES)),
    hop_s: float = 0.0,
    queue_max: int = 1 << 40,
    fifo_max: int = 1 << 40,
    drop_late: bool = True,
    spread: Sequence[float] | Array = (1.0,),
) -> Fleets:
    """Fleets of like servers that differ in speed; `begin` gives them requests.

    warm: rows of tuples whose segments are loaded at the start, once a worker. queue_max bounds a
    server's queue and fifo_max the front's: beyond them new requests are refused. drop_late
    gives up requests whose deadline has passed before they run. spread: real over expected batch
    times, all equally likely.
    """
    if min(count, requests, queue_max, fifo_max) < 1 or not speeds or not min(speeds) > 0:
        raise ServeError(
            f"count={count}, requests={requests}, queue_max={queue_max}, fifo_max={fifo_max}, "
            f"speeds={tuple(speeds)}: give 1 or more of each, and speeds above 0"
        )
    if not 0 <= hop_s < np.inf:
        raise ServeError(f"hop_s={hop_s}: give seconds of 0 or more")
    if not len(spread) or not min(spread) > 0:
        raise ServeError(f"spread={tuple(spread)}: give one ratio or more, above 0")
    one = _warmed(profile, knobs or Knobs(), speeds, workers, warm)
    batch_max = int(one.knobs[0]["batch_max"])
    full_hz = workers * sum(speeds) * batch_max / tuple_s(profile, batch_max)[-1]
    bounds = (queue_max, fifo_max, drop_late, hop_s, profile.hand_over_s, full_hz, 0)
    conf = np.array([(len(speeds), requests, *bounds)], CONF)
    return _arrays(profile, one, conf, count, np.asarray(spread, np.float64))


def _warmed(
    profile: ServeProfile, knobs: Knobs, speeds: Sequence[float], workers: int, warm: Sequence[int]
) -> Local:
    """The servers of one fleet as a run begins."""
    keys = _keys_of(warm) * workers
    one = local(
        profile,
        knobs,
        servers=len(speeds),
        workers=workers,
        instances=len(keys) + SPARE,
        requests=1,
    )
    one.server["speed"] = speeds
    for i, (segment, before, width) in enumerate(keys):
        one.instance[:, i] = (FREE, segment, before, width, NONE, 0, 0.0, 0.0)
        one.server["memory_b"] += profile.memory_b[segment, before, width]
    if one.server["memory_b"][0] > knobs.memory_max_b:
        raise ServeError(
            f"memory_max_b={knobs.memory_max_b:g} does not hold the {len(keys)} warm instances; "
            f"give {one.server['memory_b'][0]:g} or name fewer tuples in warm"
        )
    return one


def _arrays(profile: ServeProfile, one: Local, conf: Array, count: int, spread: Array) -> Fleets:
    servers, requests = len(one.server), int(conf[0]["requests"])
    total = count * requests
    return Fleets(
        fleet=np.zeros(count, FLEET),
        request=np.zeros(total, REQUEST),
        pending=np.zeros((count, LINES), LINE),
        heap=np.zeros((count, requests), np.int64),
        server=np.tile(one.server, count),
        lines=np.tile(one.lines, (count, 1)),
        instance=np.tile(one.instance, (count, 1)),
        after=np.full(total, NONE, np.int64),
        turn=np.zeros(total, np.int64),
        next_s=np.full(count * servers, np.inf),
        free_s=np.zeros(count * servers),
        stale=np.zeros(count * servers, np.int64),
        knobs=one.knobs,
        memory_b=profile.memory_b,
        time_s=profile.time_s,
        load_s=profile.load_s,
        buckets=np.asarray(profile.buckets, np.int64),
        input_mb=profile.input_mb,
        accuracy=profile.accuracy,
        spread=spread,
        conf=conf,
        server_new=one.server,
        instance_new=one.instance,
    )


def _keys_of(rows: Sequence[int]) -> list[tuple[int, int, int]]:
    found = set()
    for row in rows:
        if row not in range(len(TUPLES)):
            raise ServeError(f"warm: tuple {row} is unknown; give rows of 0..{len(TUPLES) - 1}")
        widths = TUPLES[row]
        found |= {(s, widths[s - 1] if s else 0, widths[s]) for s in range(SEGMENTS)}
    return sorted(found)


def begin(f: Fleets, arrival_s: Array, objective_s: Any, seed: int = 0) -> None:
    """Start anew with arrivals, (R,) for all fleets or (C, R), each due objective_s later."""
    arrival_s = np.asarray(arrival_s, np.float64)
    count, requests = f.heap.shape
    if arrival_s.shape not in ((requests,), (count, requests)):
        raise ServeError(f"arrival_s has shape {arrival_s.shape}; give {(count, requests)}")
    if not np.isfinite(arrival_s).all() or (np.diff(arrival_s) < 0).any() or arrival_s.min() < 0:
        raise ServeError("arrival_s: give finite times from 0 on, sorted")
    if not np.all(np.asarray(objective_s) > 0):
        raise ServeError(f"objective_s={objective_s}: give seconds above 0")
    f.fleet[:] = 0
    f.fleet["draw"] = np.random.default_rng(seed).integers(1, 1 << 63, count)
    f.request[:] = 0
    every = np.broadcast_to(arrival_s, (count, requests))
    f.request["arrival_s"] = every.ravel()
    f.request["deadline_s"] = (every + objective_s).ravel()
    f.request["plan"] = f.request["server"] = NONE
    for lines in (f.pending, f.lines):
        lines["first"] = lines["last"] = NONE
        lines["count"] = 0
    f.server[:] = np.tile(f.server_new, count)
    f.instance[:] = np.tile(f.instance_new, (count, 1))
    f.next_s[:] = f.instance["last_s"].min() + f.knobs["idle_unload_s"][0]
    f.stale[:] = 0
    f.free_s[:] = 0.0


@inner
def drawn_bits(fleet: Any) -> np.uint64:
    """64 random bits (splitmix64 on the fleet's own state)."""
    fleet["draw"] += np.uint64(0x9E3779B97F4A7C15)
    z = np.uint64(fleet["draw"])
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@inner
def drawn(fleet: Any, count: int) -> np.int64:
    """A random number below count."""
    return np.int64(drawn_bits(fleet) % np.uint64(count))


@inner
def unit(fleet: Any) -> float:
    """A random number in 0..1."""
    return np.float64(drawn_bits(fleet) >> np.uint64(11)) * 2.0**-53


@inner
def push(f: Fleets, c: int, request: int) -> None:
    """Put a request on its way into the fleet's heap, by ready_s and then by number."""
    heap, at = f.heap[c], f.fleet[c]["moving"]
    f.fleet[c]["moving"] += 1
    ready_s = f.request[request]["ready_s"]
    while at > 0:
        up = heap[(at - 1) // 2]
        up_s = f.request[up]["ready_s"]
        if up_s < ready_s or (up_s == ready_s and up < request):
            break
        heap[at] = up
        at = (at - 1) // 2
    heap[at] = request


@inner
def pop(f: Fleets, c: int) -> int:
    """The request that reaches its server first."""
    heap = f.heap[c]
    found = heap[0]
    f.fleet[c]["moving"] -= 1
    size, at = f.fleet[c]["moving"], 0
    last = heap[size]
    last_s = f.request[last]["ready_s"]
    while 2 * at + 1 < size:
        low = 2 * at + 1
        low_s = f.request[heap[low]]["ready_s"]
        if low + 1 < size:
            other_s = f.request[heap[low + 1]]["ready_s"]
            if other_s < low_s or (other_s == low_s and heap[low + 1] < heap[low]):
                low, low_s = low + 1, other_s
        if last_s < low_s or (last_s == low_s and last < heap[low]):
            break
        heap[at] = heap[low]
        at = low
    heap[at] = last
    return found


class Totals(NamedTuple):
    """One fleet's run in numbers."""

    requests: int
    answered: int
    in_time: int
    refused: int
    late: int  # given up: the deadline had passed or could not be met
    accuracy: float  # mean of the answered
    good: float  # accuracy of those in time, over all requests
    latency_mean_s: float
    latency_p50_s: float
    latency_p99_s: float
    energy_j: float
    imbalance: float  # mean variance over servers of the share busy
    makespan_s: float


def totals(f: Fleets, c: int = 0) -> Totals:
    """Sum a fleet's run up. Every request's own row is in f.request."""
    fleet, requests = f.fleet[c], int(f.conf[0]["requests"])
    rows = f.request[c * requests : (c + 1) * requests]
    rows = rows[rows["outcome"] == ANSWERED]
    latency_s = rows["done_s"] - rows["arrival_s"] if len(rows) else np.zeros(1)
    return Totals(
        requests=requests,
        answered=int(fleet["answered"]),
        in_time=int(fleet["in_time"]),
        refused=int(fleet["refused"]),
        late=int(fleet["late"]),
        accuracy=float(fleet["accuracy"] / max(fleet["answered"], 1)),
        good=float(fleet["good"] / requests),
        latency_mean_s=float(latency_s.mean()),
        latency_p50_s=float(np.quantile(latency_s, 0.5)),
        latency_p99_s=float(np.quantile(latency_s, 0.99)),
        energy_j=float(fleet["energy_j"]),
        imbalance=float(fleet["imbalance_s"] / max(fleet["now_s"], 1e-12)),
        makespan_s=float(fleet["now_s"]),
    )
