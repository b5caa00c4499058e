"""Groups of machines, a region's of one kind: what a node chooser chooses among.

Its sums stand in an array (G, STATS), laid out at the start of a pass and kept while it books. The
machine within a group is the least loaded with room, as the place `calm` has it. A network sees a
row a group, so the same weights run on any number of regions, kinds and machines.
"""

from __future__ import annotations

import math

import numpy as np

from trimtab.arrays import Array
from trimtab.compiled import inner
from trimtab.rules.fit import fits, request_left
from trimtab.rules.place import CALM, score
from trimtab.rules.world import World

# sums over the machines of a group that are up; amounts are of the driving resource
MACHINES, CAP, FREE, BOOKED, READ, OTHER, LOAD, SQUARE, WATTS = range(9)
STATS = 9
LONG_S, MANY = 1200.0, 400.0  # what times and counts are measured by
CORES = 8.0


@inner
def count_groups(w: World) -> int:
    return w.link.shape[0] * w.rate.shape[1]


@inner
def group_of(w: World, c: int, node: int) -> int:
    return w.nodes[c, node].region * w.rate.shape[1] + w.nodes[c, node].kind


@inner
def booked_on(w: World, c: int, node: int) -> float:
    """What batch jobs hold of a machine's driving resource."""
    driver = w.nodes[c, node].driver
    return w.capacity[c, node, driver] - w.node_state[c, node].kept - w.free[c, node, driver]


@inner
def used_on(w: World, c: int, node: int) -> float:
    """What services use of it, by the last reading."""
    state = w.node_state[c, node]
    if w.limit.shape[1] == 0:
        return 0.0
    return state.reserved if state.read < 0.0 else state.read


@inner
def other_free(w: World, c: int, node: int) -> float:
    """The least share that is free of anything but the driving resource."""
    least = 1.0
    for r in range(w.free.shape[2]):
        if r != w.nodes[c, node].driver and w.capacity[c, node, r] > 0.0:
            least = min(least, w.free[c, node, r] / w.capacity[c, node, r])
    return max(least, 0.0)


@inner
def lay_groups(w: World, c: int, g: Array) -> None:
    """Sum up every group."""
    g[:] = 0.0
    for node in range(w.head[c].nodes):
        add_node(w, c, node, g, 1.0)


@inner
def add_node(w: World, c: int, node: int, g: Array, sign: float) -> None:
    """Count a machine in its group (sign 1), or take it out (sign -1) to count it anew."""
    driver = w.nodes[c, node].driver
    cap = w.capacity[c, node, driver]
    if w.node_state[c, node].up == 0 or cap <= 0.0:
        return
    i = group_of(w, c, node)
    booked, used = booked_on(w, c, node), used_on(w, c, node)
    load = (booked + used) / cap
    g[i, MACHINES] += sign
    g[i, CAP] += sign * cap
    g[i, FREE] += sign * max(w.free[c, node, driver], 0.0)
    g[i, BOOKED] += sign * booked
    g[i, READ] += sign * used
    g[i, OTHER] += sign * other_free(w, c, node)
    g[i, LOAD] += sign * load
    g[i, SQUARE] += sign * load * load
    g[i, WATTS] += sign * w.nodes[c, node].peak_w


@inner
def find_best(w: World, c: int, job: int, best: Array, value: Array) -> int:
    """Write to best (G,) the least loaded machine of each group that has room for an instance,
    -1 where none has, and to `value` what `calm` says of it. Returns how many groups have room.
    """
    best[:] = -1
    room = 0
    for node in range(w.head[c].nodes):
        if fits(w, c, node, job, 0):
            i, here = group_of(w, c, node), score(CALM, w, c, node, job, 0, 0)
            if best[i] < 0:
                room += 1
            if best[i] < 0 or here > value[i]:
                best[i], value[i] = node, here
    return room


@inner
def seek_in_group(w: World, c: int, job: int, i: int, best: Array, value: Array) -> bool:
    """The same for one group."""
    best[i] = -1
    for node in range(w.head[c].nodes):
        if group_of(w, c, node) == i and fits(w, c, node, job, 0):
            here = score(CALM, w, c, node, job, 0, 0)
            if best[i] < 0 or here > value[i]:
                best[i], value[i] = node, here
    return best[i] >= 0


@inner
def speed_on(w: World, c: int, job: int, i: int) -> float:
    """How fast the job runs on the kind of machine of group i."""
    return w.rate[w.jobs[c, job].kind, i % w.rate.shape[1], 0]


@inner
def fastest(w: World, c: int, job: int) -> float:
    most = 0.0
    for kind in range(w.rate.shape[1]):
        most = max(most, w.rate[w.jobs[c, job].kind, kind, 0])
    return most


@inner
def price_of(g: Array, i: int) -> float:
    """Watts a unit of the driving resource: what time there costs; 1 where power is not known."""
    return g[i, WATTS] / g[i, CAP] if g[i, WATTS] > 0.0 and g[i, CAP] > 0.0 else 1.0


@inner
def cost_on(w: World, c: int, job: int, g: Array, i: int) -> float:
    """What an instance costs there by its request, over what it costs at the least price and the
    best speed of all groups.
    """
    least = np.inf
    for k in range(g.shape[0]):
        speed = speed_on(w, c, job, k)
        if g[k, MACHINES] > 0.0 and speed > 0.0:
            least = min(least, price_of(g, k) / speed)
    speed = speed_on(w, c, job, i)
    return price_of(g, i) / speed / least if speed > 0.0 and least > 0.0 else 1.0


@inner
def mean_of(g: Array, i: int, stat: int) -> float:
    """A sum as a mean over the machines of the group."""
    return g[i, stat] / g[i, MACHINES] if g[i, MACHINES] > 0.0 else 0.0


@inner
def share_of(g: Array, i: int, stat: int) -> float:
    """An amount as a share of the group's capacity."""
    return g[i, stat] / g[i, CAP] if g[i, CAP] > 0.0 else 0.0


@inner
def cluster_load(g: Array) -> float:
    total = machines = 0.0
    for i in range(g.shape[0]):
        total += g[i, LOAD]
        machines += g[i, MACHINES]
    return total / machines if machines > 0.0 else 0.0


@inner
def imbalance(g: Array) -> float:
    """Standard deviation of load over machines."""
    total = square = machines = 0.0
    for i in range(g.shape[0]):
        total += g[i, LOAD]
        square += g[i, SQUARE]
        machines += g[i, MACHINES]
    if machines == 0.0:
        return 0.0
    return math.sqrt(max(square / machines - (total / machines) ** 2, 0.0))


@inner
def log_share(value: float, most: float) -> float:
    """0 to about 1, finer for what is small."""
    return math.log1p(max(value, 0.0)) / math.log1p(most)


@inner
def long_share(w: World, c: int, job: int) -> float:
    """The requested time, as a row has it."""
    return log_share(request_left(w, c, job), LONG_S)


@inner
def wait_share(w: World, c: int, job: int) -> float:
    """How long the job has been runnable."""
    return log_share(w.head[c].now_s - w.state[c, job].queued_s, LONG_S)


@inner
def cores_of(w: World, c: int, job: int, node: int) -> float:
    """An instance's demand of the driving resource, over eight."""
    return w.demand[c, job, w.nodes[c, node].driver] / CORES


@inner
def other_of(w: World, c: int, job: int, node: int) -> float:
    """The largest share of the machine that an instance asks of anything else."""
    most = 0.0
    for r in range(w.demand.shape[2]):
        if r != w.nodes[c, node].driver and w.capacity[c, node, r] > 0.0:
            most = max(most, w.demand[c, job, r] / w.capacity[c, node, r])
    return most


@inner
def free_units(w: World, c: int, job: int, g: Array, i: int, node: int) -> float:
    """Instances of the job that the group's free amounts would hold."""
    asks = w.demand[c, job, w.nodes[c, node].driver]
    return log_share(g[i, FREE] / asks, MANY) if asks > 0.0 else 1.0
