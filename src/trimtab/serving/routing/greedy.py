"""The greedy executor of one server: which batch runs next, on which instance, what to load.

Algorithm 1 of Slim Scheduler as compiled functions on arrays. The simulated fleet calls them for
many servers, a live server through `executor.Executor` for itself: one copy decides for both.

Differs from the paper: nothing spins, `quiet_until` says when to look again; an instance takes one
input width, because its weights are dense; the first instance of a key is loaded at once and the
queue's length only asks for more of them (else a short queue would wait for ever); batches run on
at most `workers` at a time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.compiled import compiled, inner
from trimtab.errors import ServeError
from trimtab.serving.net.serve_profile import ServeProfile
from trimtab.serving.nouns import SEGMENTS, WIDTHS

KEYS = SEGMENTS * len(WIDTHS) ** 2  # key = (segment * 4 + width before) * 4 + width
NONE = -1
EMPTY, LOADING, FREE, BUSY = range(4)  # states of an instance
WAIT, RUN, LOAD = range(3)  # what an executor does next
FAR = 1 << 62
EARLY = 1e-9  # a moment within this of its time has come: sums of floats differ in the last bits

LINE = np.dtype([("first", "i8"), ("last", "i8"), ("count", "i8")])
INSTANCE = np.dtype(
    [
        ("state", "i8"),
        ("segment", "i8"),
        ("before", "i8"),
        ("width", "i8"),
        ("first", "i8"),  # of the chain of requests it runs
        ("count", "i8"),
        ("until_s", "f8"),  # loading or busy until then
        ("last_s", "f8"),  # was last of use
    ]
)
SERVER = np.dtype(
    [
        ("workers", "i8"),  # batches that may run at once
        ("busy", "i8"),
        ("waiting", "i8"),
        ("coming", "i8"),  # requests on their way here
        ("loading", "i8"),
        ("turn", "i8"),  # numbers the requests in the order of their coming
        ("memory_b", "f8"),
        ("util", "f8"),  # smoothed share of workers busy, as of util_s
        ("util_s", "f8"),
        ("busy_s", "f8"),  # worker seconds until util_s
        ("speed", "f8"),  # against the profile
        ("idle_w", "f8"),
        ("busy_w", "f8"),
    ]
)


class Knobs(NamedTuple):
    """What an operator may turn; the paper's letters beside."""

    batch_max: int = 16  # B_max
    memory_max_b: float = 4e9  # M_max
    util_block: float = 0.95  # U_blk: no load at or above this share of workers busy
    idle_unload_s: float = 30.0  # t_idle
    queue_load: int = 8  # Q_th: more waiting of one key than this ask for another instance
    loading_max: int = 1  # N_new: instances loading at once
    scan: bool = False  # a head that cannot run lets other keys pass; False = strict FIFO
    util_window_s: float = 1.0  # time constant of the smoothed utilisation


KNOBS = np.dtype([(n, "i8" if isinstance(v, int) else "f8") for n, v in Knobs()._asdict().items()])


class Local(NamedTuple):
    """The executors of V servers, with room for Q requests and I instances each."""

    server: Array  # (V,) SERVER
    lines: Array  # (V, KEYS) LINE
    instance: Array  # (V, I) INSTANCE
    after: Array  # (Q,) the next request in the same chain, or NONE
    turn: Array  # (Q,) place in its server's FIFO
    knobs: Array  # (1,) KNOBS
    memory_b: Array  # (segment, before, width)


def knobs_row(knobs: Knobs, profile: ServeProfile) -> Array:
    """Knobs as compiled code reads them."""
    low = {"batch_max": 1, "loading_max": 1, "queue_load": 0, "idle_unload_s": 0.0}
    for name, least in low.items():
        if not getattr(knobs, name) >= least:
            raise ServeError(f"{name}={getattr(knobs, name)}: give {least} or more")
    if not min(knobs.util_block, knobs.util_window_s) > 0:
        raise ServeError(
            f"util_block={knobs.util_block}, util_window_s={knobs.util_window_s}: give above 0"
        )
    if not knobs.memory_max_b >= profile.memory_b.max():
        raise ServeError(
            f"memory_max_b={knobs.memory_max_b:g} does not hold the largest segment; "
            f"give {profile.memory_b.max():g} or more"
        )
    return np.array([tuple(knobs)], KNOBS)


def local(
    profile: ServeProfile,
    knobs: Knobs,
    *,
    servers: int = 1,
    workers: int = 1,
    requests: int = 1024,
    instances: int = 64,
) -> Local:
    """Executors with nothing loaded and nothing waiting."""
    if min(servers, workers, requests, instances) < 1:
        raise ServeError(
            f"{servers=}, {workers=}, {requests=}, {instances=}: give 1 or more of each"
        )
    made = Local(
        server=np.zeros(servers, SERVER),
        lines=np.zeros((servers, KEYS), LINE),
        instance=np.zeros((servers, instances), INSTANCE),
        after=np.full(requests, NONE, np.int64),
        turn=np.zeros(requests, np.int64),
        knobs=knobs_row(knobs, profile),
        memory_b=profile.memory_b,
    )
    made.server["workers"], made.server["speed"] = workers, 1.0
    made.server["idle_w"], made.server["busy_w"] = profile.idle_w, profile.busy_w
    made.lines["first"] = made.lines["last"] = NONE
    return made


@inner
def append(line, after, request):
    """Put a request behind a line."""
    after[request] = NONE
    if line["count"] == 0:
        line["first"] = request
    else:
        after[line["last"]] = request
    line["last"] = request
    line["count"] += 1


@inner
def take(line, after):
    """The first request of a line, removed from it."""
    request = line["first"]
    line["first"] = after[request]
    line["count"] -= 1
    return request


@compiled
def enqueue(x, v, request, segment, before, width):
    """Put a request into a server's FIFO."""
    server = x.server[v]
    x.turn[request] = server["turn"]
    server["turn"] += 1
    server["waiting"] += 1
    append(x.lines[v, (segment * 4 + before) * 4 + width], x.after, request)


@inner
def next_key(x, v, behind):
    """The key whose first request came earliest of those that came after turn `behind`."""
    best, best_turn = NONE, FAR
    for key in range(KEYS):
        line = x.lines[v, key]
        if line["count"] > 0:
            turn = x.turn[line["first"]]
            if behind < turn < best_turn:
                best, best_turn = key, turn
    return best


@compiled
def best_fit(x, v, segment, before, width):
    """The free instance with the least width that is enough, or NONE; the lowest slot of equals."""
    best, best_width = NONE, 4
    for i in range(x.instance.shape[1]):
        instance = x.instance[v, i]
        if instance["state"] == FREE and instance["segment"] == segment:
            fits = instance["before"] == before and width <= instance["width"]
            if fits and instance["width"] < best_width:
                best, best_width = i, instance["width"]
    return best


@inner
def is_served(x, v, segment, before, width):
    """Whether an instance exists, busy or loading too, that this key may use."""
    for i in range(x.instance.shape[1]):
        instance = x.instance[v, i]
        if instance["state"] != EMPTY and instance["segment"] == segment:
            if instance["before"] == before and instance["width"] >= width:
                return True
    return False


@inner
def util_at(server, window_s, now_s):
    """Smoothed share of workers busy: decays towards the present share."""
    present = server["busy"] / server["workers"]
    return present + (server["util"] - present) * np.exp((server["util_s"] - now_s) / window_s)


@inner
def count_time(x, v, now_s):
    """Bring a server's utilisation and busy seconds up to now, before `busy` changes."""
    server = x.server[v]
    server["util"] = util_at(server, x.knobs[0]["util_window_s"], now_s)
    server["busy_s"] += server["busy"] * (now_s - server["util_s"])
    server["util_s"] = now_s


@inner
def empty_slot(x, v):
    for i in range(x.instance.shape[1]):
        if x.instance[v, i]["state"] == EMPTY:
            return i
    return NONE


@compiled
def may_load(x, v, key, now_s):
    """Whether another instance of a key may be loaded now: queue, loading, memory, utilisation."""
    knobs, server = x.knobs[0], x.server[v]
    segment, before, width = key // 16, key // 4 % 4, key % 4
    short = x.lines[v, key]["count"] <= knobs["queue_load"]
    if short and is_served(x, v, segment, before, width):
        return False
    if server["loading"] >= knobs["loading_max"] or empty_slot(x, v) == NONE:
        return False
    if server["memory_b"] + x.memory_b[segment, before, width] > knobs["memory_max_b"]:
        return False
    return util_at(server, knobs["util_window_s"], now_s) < knobs["util_block"]


@compiled
def decide(x, v, now_s):
    """(RUN, key, instance), (LOAD, key, slot) or (WAIT, NONE, NONE); changes nothing."""
    server = x.server[v]
    key = next_key(x, v, -1)
    while key != NONE:
        i = best_fit(x, v, key // 16, key // 4 % 4, key % 4)
        if i != NONE:
            if server["busy"] < server["workers"]:
                return RUN, key, i
        elif may_load(x, v, key, now_s):
            return LOAD, key, empty_slot(x, v)
        if not x.knobs[0]["scan"]:
            break
        key = next_key(x, v, x.turn[x.lines[v, key]["first"]])
    return WAIT, NONE, NONE


@compiled
def run_batch(x, v, key, i, now_s, until_s):
    """Start up to batch_max requests of a key on a free instance; they hang on its chain."""
    count_time(x, v, now_s)
    server, line, instance = x.server[v], x.lines[v, key], x.instance[v, i]
    count = min(line["count"], x.knobs[0]["batch_max"])
    instance["first"], instance["count"] = line["first"], count
    last = NONE
    for _ in range(count):
        last = take(line, x.after)
    x.after[last] = NONE
    server["waiting"] -= count
    server["busy"] += 1
    instance["state"], instance["until_s"] = BUSY, until_s
    return count


@compiled
def load_instance(x, v, key, i, now_s, until_s):
    """Begin to load a key's own width into an empty slot; its memory is taken from now on."""
    instance, server = x.instance[v, i], x.server[v]
    segment, before, width = key // 16, key // 4 % 4, key % 4
    instance["segment"], instance["before"], instance["width"] = segment, before, width
    instance["state"], instance["until_s"], instance["last_s"] = LOADING, until_s, now_s
    server["loading"] += 1
    server["memory_b"] += x.memory_b[segment, before, width]


@compiled
def become_free(x, v, i, now_s):
    """A load or a batch has ended. The chain of a batch stays readable until the next one."""
    server, instance = x.server[v], x.instance[v, i]
    if instance["state"] == LOADING:
        server["loading"] -= 1
    elif instance["state"] == BUSY:
        count_time(x, v, now_s)
        server["busy"] -= 1
    instance["state"], instance["last_s"] = FREE, now_s


@compiled
def drop_instance(x, v, i):
    """Unload a free instance, or give up one that failed to load."""
    server, instance = x.server[v], x.instance[v, i]
    if instance["state"] == LOADING:
        server["loading"] -= 1
    server["memory_b"] -= x.memory_b[instance["segment"], instance["before"], instance["width"]]
    instance["state"] = EMPTY


@compiled
def idle_instance(x, v, now_s):
    """A free instance unused for idle_unload_s, or NONE."""
    limit_s = x.knobs[0]["idle_unload_s"]
    for i in range(x.instance.shape[1]):
        instance = x.instance[v, i]
        if instance["state"] == FREE and now_s >= instance["last_s"] + limit_s - EARLY:
            return i
    return NONE


@compiled
def quiet_until(x, v, now_s):
    """The time before which nothing changes unless a request comes, or a batch or load ends.

    Two things change by themselves: an idle instance comes of age, and the smoothed utilisation
    falls under the block while something waits.
    """
    knobs, server = x.knobs[0], x.server[v]
    found_s = np.inf
    for i in range(x.instance.shape[1]):
        if x.instance[v, i]["state"] == FREE:
            found_s = min(found_s, x.instance[v, i]["last_s"] + knobs["idle_unload_s"])
    util = util_at(server, knobs["util_window_s"], now_s)
    present = server["busy"] / server["workers"]
    if server["waiting"] > 0 and util >= knobs["util_block"] > present:
        ratio = (util - present) / (knobs["util_block"] - present)
        # a little later, so that rounding cannot leave it at the block for ever
        found_s = min(found_s, now_s + knobs["util_window_s"] * (np.log(ratio) + 1e-6))
    return max(found_s, now_s)


@compiled
def enqueue_all(x, requests, segment, before, width):
    """Put requests of one key into the FIFO of a server that is alone."""
    for request in requests:
        enqueue(x, 0, request, segment, before, width)


@compiled
def warm_instance(x, key, now_s):
    """Count an instance as loaded; its slot, or NONE where all are taken."""
    i = empty_slot(x, 0)
    if i != NONE:
        load_instance(x, 0, key, i, now_s, now_s)
        become_free(x, 0, i, now_s)
    return i


@compiled
def take_line(x, key, found):
    """Take every request of a key out of the queue; returns how many were written to `found`."""
    line, count = x.lines[0, key], 0
    while line["count"] > 0:
        found[count] = take(line, x.after)
        count += 1
    x.server[0]["waiting"] -= count
    return count
