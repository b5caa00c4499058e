"""Orders of the queue: a key a job, smaller first; ties by submit time, then row."""

import math

from trimtab.compiled import inner
from trimtab.rules.names import ORDERS

FCFS, SJF, LJF, SMALLEST = (ORDERS[name] for name in ("fcfs", "sjf", "ljf", "smallest"))
SMALLEST_AREA, F1, PRIORITY, EDF = (
    ORDERS[name] for name in ("smallest-area", "f1", "priority", "edf")
)
WFP3, UNICEP, SRTF, LAS, DRF = (ORDERS[name] for name in ("wfp3", "unicep", "srtf", "las", "drf"))
FIRST_DYNAMIC = WFP3  # keys of these move with time
# Tiresias-like queues: attained service (size x seconds) up to which a job stays in the first,
# second ..
LAS_LIMITS = (3_600.0, 36_000.0)
TINY = 1e-15


@inner
def size(w, c, job):
    """How much of the cluster the job holds, in units of its largest demand."""
    largest = 0.0
    for r in range(w.demand.shape[2]):
        largest = max(largest, w.demand[c, job, r])
    if w.jobs[c, job].gpus > 0:
        largest = w.jobs[c, job].gpus * w.jobs[c, job].gpu_share
    return largest * w.jobs[c, job].instances


@inner
def static_key(order, w, c, job):
    """Keys that never change while a job waits."""
    rec = w.jobs[c, job]
    if order == SJF:
        return rec.request_s
    if order == LJF:
        return -rec.request_s
    if order == SMALLEST:
        return size(w, c, job)
    if order == SMALLEST_AREA:
        return size(w, c, job) * rec.request_s
    if order == F1:
        request = rec.request_s if rec.request_s > 0.0 else 0.1
        submit = rec.submit_s if rec.submit_s > 0.0 else 0.1
        return math.log10(request) * size(w, c, job) + 870.0 * math.log10(submit)
    if order == PRIORITY:
        return -rec.priority
    if order == EDF:
        return rec.deadline_s
    return rec.submit_s


@inner
def attained(w, c, job, now_s):
    """Instance-seconds so far, those of present runs included."""
    total = w.state[c, job].attained_s
    run = w.state[c, job].run
    while run >= 0:
        total += (now_s - w.runs[c, run].start_s) * w.runs[c, run].instances
        run = w.runs[c, run].sibling
    return total


@inner
def dynamic_key(order, w, c, job, now_s):
    """Keys that depend on time, on service received, or on the tenant's share of the cluster."""
    rec = w.jobs[c, job]
    wait_s = now_s - rec.submit_s
    if order == WFP3:
        return -((wait_s / max(rec.request_s, TINY)) ** 3) * size(w, c, job)
    if order == UNICEP:
        return -(wait_s + TINY) / (math.log2(size(w, c, job) + TINY) * max(rec.request_s, TINY))
    if order == SRTF:
        left = rec.request_s - w.state[c, job].kept_s
        run = w.state[c, job].run
        if run >= 0:
            left = min(left, w.runs[c, run].expected_end_s - now_s)
        return max(left, 0.0)
    if order == LAS:
        service = attained(w, c, job, now_s) * size(w, c, job) / rec.instances
        level = 0.0
        for limit in LAS_LIMITS:
            if service >= limit:
                level += 1.0
        return level
    return w.share[c, rec.tenant]


@inner
def tenant_shares(w, c):
    """Write each tenant's dominant share of the cluster (DRF), from the runs that are on it."""
    for tenant in range(w.share.shape[1]):
        w.share[c, tenant] = 0.0
        for r in range(w.held.shape[2]):
            w.held[c, tenant, r] = 0.0
    for run in range(w.runs.shape[1]):
        job = w.runs[c, run].job
        if job >= 0:
            add_share(w, c, job, w.runs[c, run].instances)


@inner
def add_share(w, c, job, instances):
    tenant = w.jobs[c, job].tenant
    for r in range(w.held.shape[2]):
        w.held[c, tenant, r] += instances * w.demand[c, job, r]
        if w.capacity_sum[c, r] > 0.0:
            w.share[c, tenant] = max(
                w.share[c, tenant], w.held[c, tenant, r] / w.capacity_sum[c, r]
            )
