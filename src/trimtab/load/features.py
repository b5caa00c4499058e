"""The features of one window, from its sums: of every machine, every region and the cluster.

Nothing here looks past the window's end. Sums over machines run in the order of the machines, so
that the same integers give the same features to the last bit.
"""

from collections import namedtuple
from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.compiled import compiled
from trimtab.load.sums import ASKED, AT, FIXED

HOT = 0.8  # CPU use above which a machine counts as hot
MS_PER_HOUR = 3_600_000.0

ALL = ("node", "region", "cluster")
NODE_ONLY = ("node",)
GROUPS = ("region", "cluster")
CLUSTER_ONLY = ("cluster",)


class Feature(NamedTuple):
    """One column. `over` says how machines make a region: the weight of a mean, or their sum."""

    name: str
    unit: str
    levels: tuple[str, ...]
    over: str  # cpu, mem = mean by that capacity; each = plain mean; sum; "" = as `what` says
    what: str


FEATURES = (
    Feature("machines", "machines", GROUPS, "", "with a sample in the window"),
    Feature("cpu", "share", ALL, "cpu", "CPU use, mean of the samples; NaN without one"),
    Feature("cpu_max", "share", NODE_ONLY, "", "largest sample of CPU use"),
    Feature("mem", "share", ALL, "mem", "memory use, mean of its own samples"),
    Feature("mem_max", "share", NODE_ONLY, "", "largest sample of memory use"),
    Feature("net_in", "share", ALL, "each", "network received, mean of its own samples"),
    Feature("net_out", "share", ALL, "each", "network sent, mean of its own samples"),
    Feature("disk", "share", ALL, "each", "disk use, mean of its own samples"),
    Feature("gpu", "share", ALL, "each", "GPU use, mean of its own samples"),
    Feature("load", "share", ALL, "", "load intensity: mean of cpu and mem, or cpu alone"),
    Feature("services", "services", ALL, "sum", "deployed, time mean"),
    Feature("density", "share", ALL, "cpu", "CPU that services reserve, time mean"),
    Feature("mem_density", "share", ALL, "mem", "memory that services reserve, time mean"),
    Feature("service_cpu", "share", ALL, "cpu", "CPU that services use; NaN if none was sampled"),
    Feature("service_mem", "share", ALL, "mem", "memory that services use; NaN likewise"),
    Feature("running", "instances", ALL, "sum", "running, time mean"),
    Feature("batch_cpu", "share", ALL, "cpu", "CPU planned for them, time mean"),
    Feature("batch_mem", "share", ALL, "mem", "memory planned for them, time mean"),
    Feature("started", "instances", ALL, "sum", "started in the window"),
    Feature("ended", "instances", ALL, "sum", "ended in the window"),
    Feature("start_wait_s", "s", ALL, "", "mean wait of those that started; 0 if none did"),
    Feature("cpu_recent", "share", ALL, "cpu", "mean of cpu over the recent windows with samples"),
    Feature("cpu_recent_sd", "share", NODE_ONLY, "", "standard deviation of the same"),
    Feature("cpu_trend", "share/h", ALL, "cpu", "least squares slope of the same; 0 for one"),
    Feature("imbalance", "share", NODE_ONLY, "", "cpu less the mean of the region"),
    Feature("cpu_sd", "share", GROUPS, "", "standard deviation of cpu between machines"),
    Feature("mem_sd", "share", GROUPS, "", "standard deviation of mem between machines"),
    Feature("hot", "share", GROUPS, "", "machines with cpu above 0.8, of those with samples"),
    Feature("competition", "share", ALL, "", "CPU asked / (CPU asked + free CPU elsewhere)"),
    Feature("gap", "share", ALL, "each", "1 = the window has no sample"),
    Feature("runnable", "instances", CLUSTER_ONLY, "", "became runnable in the window"),
    Feature("waiting", "instances", CLUSTER_ONLY, "", "waiting, time mean"),
    Feature("waiting_cpu", "machines", CLUSTER_ONLY, "", "CPU they ask for, in mean machines"),
    Feature("waiting_mem", "machines", CLUSTER_ONLY, "", "memory they ask for, in mean machines"),
)
NODE = tuple(f.name for f in FEATURES if "node" in f.levels)
REGION = tuple(f.name for f in FEATURES if "region" in f.levels)
# a region's columns come first, so that one function fills both
CLUSTER = (*REGION, *(f.name for f in FEATURES if f.levels == CLUSTER_ONLY))
NODE_AT: Any = namedtuple("NODE_AT", NODE)(*range(len(NODE)))
CLUSTER_AT: Any = namedtuple("CLUSTER_AT", CLUSTER)(*range(len(CLUSTER)))

WEIGHTS = ("cpu", "mem", "each")  # columns of `weight`
_MEANS = [f for f in FEATURES if f.over in WEIGHTS]
_SUMS = [f for f in FEATURES if f.over == "sum"]
MEAN_FROM = np.array([NODE.index(f.name) for f in _MEANS])
MEAN_TO = np.array([REGION.index(f.name) for f in _MEANS])
MEAN_BY = np.array([WEIGHTS.index(f.over) for f in _MEANS])
SUM_FROM = np.array([NODE.index(f.name) for f in _SUMS])
SUM_TO = np.array([REGION.index(f.name) for f in _SUMS])
# what instances and services on a machine that is not known take from the cluster
_TAKEN = [k for k, f in enumerate(_MEANS) if f.name in ("density", "batch_cpu")]
_TAKEN += [k for k, f in enumerate(_MEANS) if f.name in ("mem_density", "batch_mem")]
TAKEN = np.array(_TAKEN)  # rows of the MEAN tables


@compiled
def mean(total: int, count: int) -> float:
    """Mean of measured ratios; NaN where there is none."""
    return total / (count * float(FIXED)) if count > 0 else np.nan


@compiled
def recent_features(out: Array, recent: Array, window: int, window_ms: int) -> None:
    """Mean, deviation and slope an hour of the last windows; `recent` (H,) is a ring with NaN."""
    history = len(recent)
    count, total, hours = 0, 0.0, 0.0
    for back in range(history - 1, -1, -1):
        cpu = recent[(window - back) % history]
        if not np.isnan(cpu):
            count += 1
            total += cpu
            hours -= back * window_ms / MS_PER_HOUR
    out[NODE_AT.cpu_recent] = total / count if count > 0 else np.nan
    out[NODE_AT.cpu_recent_sd] = out[NODE_AT.cpu_trend] = out[NODE_AT.cpu_recent] * 0.0
    if count < 2:
        return
    square, both, length = 0.0, 0.0, 0.0
    for back in range(history - 1, -1, -1):
        cpu = recent[(window - back) % history]
        if not np.isnan(cpu):
            above = cpu - total / count
            later = -back * window_ms / MS_PER_HOUR - hours / count
            square += above * above
            both += above * later
            length += later * later
    out[NODE_AT.cpu_recent_sd] = np.sqrt(square / count)
    out[NODE_AT.cpu_trend] = both / length


@compiled
def intensity(cpu: float, mem: float) -> float:
    """Mean of both uses; of CPU alone where nobody measures memory."""
    return cpu if np.isnan(mem) else (cpu + mem) / 2


@compiled
def node_features(
    out: Array,  # (N + 1, NODE) float64, the last row of machines that are not known
    recent: Array,  # (N + 1, history) ring of mean CPU use, NaN = gap; this window is entered
    sums: Array,  # (N + 1, SUMS) of this window
    window: int,
    window_ms: int,
) -> None:
    """What can be said of a machine alone; `contention` adds what depends on the others."""
    share_ms = float(window_ms) * ASKED
    for n in range(len(sums)):
        row, to = sums[n], out[n]
        samples, started = row[AT.samples], row[AT.started]
        to[NODE_AT.cpu] = cpu = mean(row[AT.cpu_sum], samples)
        to[NODE_AT.cpu_max] = mean(row[AT.cpu_max], min(samples, 1))
        to[NODE_AT.mem] = mem = mean(row[AT.mem_sum], row[AT.mem_n])
        to[NODE_AT.mem_max] = mean(row[AT.mem_max], min(row[AT.mem_n], 1))
        to[NODE_AT.net_in] = mean(row[AT.net_in_sum], row[AT.net_in_n])
        to[NODE_AT.net_out] = mean(row[AT.net_out_sum], row[AT.net_out_n])
        to[NODE_AT.disk] = mean(row[AT.disk_sum], row[AT.disk_n])
        to[NODE_AT.gpu] = mean(row[AT.gpu_sum], row[AT.gpu_n])
        to[NODE_AT.load] = intensity(cpu, mem)
        to[NODE_AT.services] = row[AT.services_ms] / window_ms
        to[NODE_AT.density] = row[AT.service_cpu_ms] / share_ms
        to[NODE_AT.mem_density] = row[AT.service_mem_ms] / share_ms
        # a sum of means, so divided by 1 if any service was seen
        to[NODE_AT.service_cpu] = mean(row[AT.service_cpu], min(row[AT.service_seen], 1))
        to[NODE_AT.service_mem] = mean(row[AT.service_mem], min(row[AT.service_seen], 1))
        to[NODE_AT.running] = row[AT.running_ms] / window_ms
        to[NODE_AT.batch_cpu] = row[AT.batch_cpu_ms] / share_ms
        to[NODE_AT.batch_mem] = row[AT.batch_mem_ms] / share_ms
        to[NODE_AT.started] = started
        to[NODE_AT.ended] = row[AT.ended]
        wait_s = row[AT.start_wait_ms] / 1000.0
        to[NODE_AT.start_wait_s] = wait_s / started if started > 0 else 0.0
        to[NODE_AT.gap] = 1.0 if samples == 0 else 0.0
        recent[n, window % recent.shape[1]] = cpu
        recent_features(to, recent[n], window, window_ms)


@compiled
def group_features(
    out: Array,  # (G, REGION or CLUSTER) float64
    node: Array,  # (N + 1, NODE) float64
    weight: Array,  # (N + 1, WEIGHTS) capacities; the last row is the mean machine
    group: Array,  # (N,) the group each machine is in
    unknown: int,  # the group that also gets what happened on no known machine; -1 = none
) -> None:
    """Means, sums and deviations over the machines of each group; NaN where none has a sample."""
    out[:] = 0.0
    total = np.zeros_like(out)
    for n in range(len(group)):
        to, by = out[group[n]], total[group[n]]
        for k in range(len(MEAN_FROM)):
            value = node[n, MEAN_FROM[k]]
            if not np.isnan(value):
                to[MEAN_TO[k]] += weight[n, MEAN_BY[k]] * value
                by[MEAN_TO[k]] += weight[n, MEAN_BY[k]]
        for k in range(len(SUM_FROM)):
            to[SUM_TO[k]] += node[n, SUM_FROM[k]]
        to[CLUSTER_AT.start_wait_s] += node[n, NODE_AT.start_wait_s] * node[n, NODE_AT.started]
        to[CLUSTER_AT.machines] += 1.0 - node[n, NODE_AT.gap]
        to[CLUSTER_AT.hot] += node[n, NODE_AT.cpu] > HOT
    if unknown >= 0:
        to, last = out[unknown], node[len(group)]
        for k in range(len(SUM_FROM)):
            to[SUM_TO[k]] += last[SUM_FROM[k]]
        to[CLUSTER_AT.start_wait_s] += last[NODE_AT.start_wait_s] * last[NODE_AT.started]
        for k in TAKEN:
            to[MEAN_TO[k]] += weight[len(group), MEAN_BY[k]] * last[MEAN_FROM[k]]
    for g in range(len(out)):
        to = out[g]
        for column in MEAN_TO:
            to[column] /= total[g, column]
        to[CLUSTER_AT.load] = intensity(to[CLUSTER_AT.cpu], to[CLUSTER_AT.mem])
        to[CLUSTER_AT.hot] /= to[CLUSTER_AT.machines]
        if to[CLUSTER_AT.started] > 0:
            to[CLUSTER_AT.start_wait_s] /= to[CLUSTER_AT.started]
    for n in range(len(group)):
        if node[n, NODE_AT.gap] == 0.0:
            to = out[group[n]]
            above = node[n, NODE_AT.cpu] - to[CLUSTER_AT.cpu]
            to[CLUSTER_AT.cpu_sd] += weight[n, 0] * above * above
            above = node[n, NODE_AT.mem] - to[CLUSTER_AT.mem]
            to[CLUSTER_AT.mem_sd] += weight[n, 1] * above * above
    for g in range(len(out)):
        for column in (CLUSTER_AT.cpu_sd, CLUSTER_AT.mem_sd):
            by = CLUSTER_AT.cpu if column == CLUSTER_AT.cpu_sd else CLUSTER_AT.mem
            out[g, column] = np.sqrt(out[g, column] / total[g, by])


@compiled
def contention(
    node: Array,  # (N + 1, NODE) float64
    region: Array,  # (G, REGION) float64
    cluster: Array,  # (1, CLUSTER) float64
    weight: Array,  # (N + 1, WEIGHTS)
    region_of: Array,  # (N,)
) -> None:
    """Add imbalance, and competition: what waits against the free CPU of all the others.

    Both are in the unit of the capacities: machines may differ. Nothing waiting is 0.
    """
    free_in = np.zeros(len(region))
    free_of = np.zeros(len(region_of))
    for n in range(len(region_of)):
        if node[n, NODE_AT.gap] == 0.0:
            free_of[n] = weight[n, 0] * max(1.0 - node[n, NODE_AT.cpu], 0.0)
            free_in[region_of[n]] += free_of[n]
    free = free_in.sum()
    wanted = cluster[0, CLUSTER_AT.waiting_cpu] * weight[len(region_of), 0]
    for n in range(len(region_of)):
        regional = region[region_of[n], CLUSTER_AT.cpu]
        node[n, NODE_AT.imbalance] = node[n, NODE_AT.cpu] - regional
        node[n, NODE_AT.competition] = odds(wanted, free - free_of[n])
    for g in range(len(region)):
        region[g, CLUSTER_AT.competition] = odds(wanted, free - free_in[g])
    cluster[0, CLUSTER_AT.competition] = odds(wanted, free)


@compiled
def odds(wanted: float, free: float) -> float:
    """wanted / (wanted + free), 0 where nothing is wanted."""
    # a difference of sums may be a hair below zero
    return wanted / (wanted + max(free, 0.0)) if wanted > 0.0 else 0.0
