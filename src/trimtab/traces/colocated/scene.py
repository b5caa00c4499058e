"""The co-located scene: unlike machines in regions, services that reserve most of them and use
less, swinging with the day of their region, and batch DAGs that live on what is left.

colocated(load=0.9, regions=8)                        drawn
colocated(own="planetlab_7days.tar.xz", daily="cluster_usage.csv", work="prepared", split="train")

docs/colocation.md has every assumption and where it comes from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from trimtab.arrays import Array
from trimtab.build import cluster, workload
from trimtab.core import Cluster, Lending, Profile, Shape, Workload
from trimtab.errors import TraceError
from trimtab.traces.colocated.dags import KINDS, Dags, dags_of, taken
from trimtab.traces.colocated.series import DAY, Use, stretch_of, use_of, usual_day

RESOURCES = ("cpu", "mem_gb")
STEP_S = 5.0  # that services' use stands still
LOOK = 30  # recorded samples before the first job: readings to look back on
AFTER_S = 1200.0  # of recorded use after the last job
POD_CORES = 8.0  # of batch, at most
LEAST_USE, MOST_USE = 0.02, 1.0  # of what a service reserves
FLOOR_USE = 0.10  # of it, whatever the hour
GIFT = 0.98  # most of a machine that services reserve
LARGEST_JOB = 0.015  # of all work: larger DAGs are left out, or one decides a scene
PLAN_NOISE, RUN_NOISE = 0.05, 0.15  # log: tasks against their kind, what runs against its plan
KNEE, LEAST_SPEED = 0.7, 0.5  # load above which batch slows down, and its speed at load 1
IN_TIME = (2.0, 30.0)  # a task is in time within so many plans and seconds


class Machine(NamedTuple):
    """One kind of machine: speeds are of KINDS."""

    name: str
    cpu: float
    mem_gb: float
    speed: tuple[float, ...]
    share: float


# Alibaba's machines of 2018 are alike: 96 cores, and memory taken as 512 GB. The others are ours:
# newer with more memory, faster with little, older; so that classes of work suit some and not all.
MACHINES = (
    Machine("standard", 96.0, 512.0, (1.0, 1.0, 1.0, 1.0), 0.40),
    Machine("large", 128.0, 922.0, (1.0, 1.25, 1.25, 1.0), 0.25),
    Machine("lean", 64.0, 164.0, (1.15, 0.8, 0.8, 1.0), 0.20),
    Machine("old", 48.0, 328.0, (0.6, 0.6, 0.6, 0.6), 0.15),
)


def colocated(
    *,
    rng: Generator,
    load: float = 0.6,
    machines: int = 120,
    regions: int = 6,
    swing: float = 1.1,
    reserved: float = 0.9,
    phase: float = 1.0,
    uneven: float = 0.0,
    services: tuple[int, int] = (4, 8),
    noise: float = 0.3,
    surges: float = 0.0,
    odd: float = 0.0,
    sample_s: float = 15.0,
    span_s: float = 3600.0,
    stretch: float = 4.0,
    longest_s: float = 1200.0,
    unlike: int = 1,
    free_mem: float = 0.35,
    limit: float = 0.8,
    late: int = 0,
    missing: float = 0.0,
    split: str = "test",
    own: str = "",
    daily: str = "",
    work: str = "",
    forecast: str = "",
    encoder: str = "",
) -> tuple[Workload, Cluster, Profile]:
    """The scene of a seed.

    `load`: core-seconds of batch over what services leave on average. `swing`: of a service's use
    by its region's day; `phase`: part of a day over which regions are spread, 0 = all at once;
    `uneven`: regions swing by so much more or less; `services`: fewest and most a machine; `noise`:
    use that is a service's own; `surges` a region and 1,000 s; `odd`: how far a drawn day is from
    the published one. `sample_s`: seconds that recorded 300 s take, `stretch` of run times. `own`,
    `daily`, `work`: files; several with + between them. `forecast`, `encoder`: weights of the
    estimates of those names.
    """
    for name, count, least in (("machines", machines, regions), ("regions", regions, 1)):
        if count < least:
            raise TraceError(f"colocated: {name}={count}; give {least} or more")
    for name, value, low, high in (
        ("load", load, 1e-6, 100.0), ("reserved", reserved, 0.0, 1.0), ("swing", swing, 0.0, 10.0),
        ("sample_s", sample_s, STEP_S, 300.0), ("span_s", span_s, 60.0, 1e6),
        ("stretch", stretch, 1e-3, 1e3), ("free_mem", free_mem, 0.01, 0.9),
        ("unlike", unlike, 0, 1), ("uneven", uneven, 0.0, 1.0), ("phase", phase, 0.0, 1.0),
        ("odd", odd, 0.0, 1.0),
    ):  # fmt: skip
        if not low <= value <= high:
            raise TraceError(f"colocated: {name}={value} is not in {low:g}..{high:g}")
    nodes = _machines(machines, regions, bool(unlike), rng)
    samples = int((span_s + AFTER_S) / sample_s) + LOOK + 2
    use = use_of(own, daily, split, odd, rng, needs=samples)
    begins, shared = _regions(use.daily, regions, samples, phase, surges, sample_s, span_s, rng)
    fewest, most = (int(count) for count in services)
    if not 1 <= fewest <= most <= 100:
        raise TraceError(f"colocated: services={fewest}/{most}; give 1 to 100, the fewest first")
    usual = _usual(use, begins, samples, bool(daily) and split == "train")
    held, used, known = _services(
        nodes, (fewest, most), use, shared, usual, swing, uneven, noise, reserved, rng
    )
    patterns = _stepped(used, sample_s)
    left = float(nodes.capacity[:, 0].sum()) - float(held[:, 0] @ used.mean(1))
    jobs = _chosen(dags_of(work, split, rng), stretch, longest_s, load * left * span_s, rng)
    machine = replace(
        nodes,
        lending=Lending(
            limit=limit,
            estimate="p95",
            readings=max(round(24 * sample_s / STEP_S), 1),
            late=late,
            missing=missing,
            forecast=forecast,
            encoder=encoder,
            usual=known,
            usual_step_s=sample_s,
        ),
    )
    told = f"colocated: {machines} machines, load {load:g}; use {use.source}; work {jobs.source}"
    made = _workload(held, patterns, jobs, machine, free_mem, span_s, LOOK * sample_s, told, rng)
    return made, machine, _profile(bool(unlike))


def _machines(count: int, regions: int, unlike: bool, rng: Generator) -> Cluster:
    """Regions of like size, each with the same mix, in an order of its own."""
    region = np.sort(np.arange(count) % regions)
    kind = np.zeros(count, np.int64)
    for r in range(regions):
        rows = np.flatnonzero(region == r)
        ends = np.floor(np.cumsum([m.share for m in MACHINES]) * len(rows) + 0.5)
        of = np.searchsorted(ends, np.arange(len(rows)), side="right")
        kind[rows] = rng.permutation(np.minimum(of, len(MACHINES) - 1))
    if not unlike:
        kind[:] = 0
    table = np.array([[m.cpu, m.mem_gb] for m in MACHINES])
    return cluster(
        table[kind],
        resources=RESOURCES,
        kind=kind,
        kinds=[m.name for m in MACHINES],
        region=region,
        regions=[f"region-{r}" for r in range(regions)],
        idle_w=0.4 * 5.0 * table[kind, 0],
        peak_w=5.0 * table[kind, 0],  # 5 W a core, 40 % of it idle: modelled
        source=f"colocated: {count} machines in {regions} regions",
    )


def _regions(
    daily: Array, regions: int, samples: int, phase: float, surges: float, sample_s: float,
    span_s: float, rng: Generator,
) -> tuple[Array, Array]:  # fmt: skip
    """(G,) the sample of `daily` at which each region begins, and (G, T) how busy it is."""
    begin = int(rng.integers(0, DAY))
    begins, found = np.empty(regions, np.int64), np.empty((regions, samples))
    for r in range(regions):
        at = begin + round(r * DAY * phase / regions) + DAY * int(rng.integers(0, 3))
        begins[r] = at % len(daily)
        found[r] = daily[(at + np.arange(samples)) % len(daily)]
        for _ in range(rng.poisson(surges * span_s / 1000.0)):
            first = int(rng.integers(0, samples))
            length = int(rng.uniform(60.0, 180.0) / sample_s) + 1
            found[r, first : first + length] += rng.uniform(0.4, 0.8)
    return begins, found


def _usual(use: Use, begins: Array, samples: int, same: bool) -> Array:
    """(G, DAY) the mean of the past days of each region, from where it begins; of the `same` days
    that are played those that its stretch does not touch.
    """
    found = np.empty((len(begins), DAY))
    for r, at in enumerate(begins):
        days = np.arange(len(use.past))
        if same:
            touched = np.arange(at // DAY, (at + samples - 1) // DAY + 1) % len(use.past)
            others = np.setdiff1d(days, touched)
            days = others if len(others) else days
        found[r] = np.roll(usual_day(use.past[days]), -(int(at) % DAY))
    return found


def _services(
    nodes: Cluster, counts: tuple[int, int], use: Use, shared: Array, usual: Array, swing: float,
    uneven: float, noise: float, reserved: float, rng: Generator,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """(P, 2) cores that each service reserves and its node, (P, T) the share that it uses, and (G,
    DAY) the share of each region's cores that was usual on past days.
    """
    swings = swing * (1 + uneven * rng.uniform(-1, 1, len(shared)))
    own_mean = float(np.mean([one.mean() for one in use.own]))
    known, cores = np.zeros_like(usual), np.zeros(len(usual))
    held, used = [], []
    for node in range(len(nodes)):
        many = int(rng.integers(counts[0], counts[1] + 1))
        part = rng.dirichlet(np.full(many, 3.0)) * reserved * rng.uniform(0.85, 1.08)
        part *= min(1.0, GIFT / part.sum()) if part.sum() > 0 else 1.0
        g = int(nodes.nodes["region"][node])
        cores[g] += nodes.capacity[node, 0]
        for size, slope in zip(part, rng.uniform(0.6, 1.4, many)):
            mine = stretch_of(use.own[int(rng.integers(0, len(use.own)))], shared.shape[1], rng)
            share = FLOOR_USE + swings[g] * slope * shared[g] + noise * mine
            held.append((size * nodes.capacity[node, 0], node))
            used.append(np.clip(share, LEAST_USE, MOST_USE))
            past = FLOOR_USE + swings[g] * slope * usual[g] + noise * own_mean
            known[g] += held[-1][0] * np.clip(past, LEAST_USE, MOST_USE)
    return np.array(held), np.array(used), known / cores[:, None]


def _stepped(used: Array, sample_s: float) -> Array:
    """(P, T) the same at every step of use, on straight lines between the samples."""
    at = np.arange(0.0, (used.shape[1] - 1) * sample_s, STEP_S) / sample_s
    low = at.astype(np.int64)
    part = at - low
    return np.asarray(used[:, low] * (1 - part) + used[:, low + 1] * part)


def _chosen(dags: Dags, stretch: float, longest_s: float, wanted: float, rng: Generator) -> Dags:
    """Whole DAGs at random until they hold so many core-seconds."""
    longer = dags._replace(
        run_s=np.clip(dags.run_s * stretch, 0.5, longest_s),
        instances=np.minimum(dags.instances, 400),
    )
    size = longer.work()
    fit = np.flatnonzero(size <= max(LARGEST_JOB * wanted, np.percentile(size, 10)))
    picked: list[Array] = []
    total = 0.0
    while total < wanted:
        turn = rng.permutation(fit)  # all of them once, then anew
        ends = total + np.cumsum(size[turn])
        turn = turn[: int(np.searchsorted(ends, wanted)) + 1]
        picked.append(turn)
        total += float(size[turn].sum())
    return taken(longer, np.concatenate(picked))


def _workload(
    held: Array, patterns: Array, jobs: Dags, machine: Cluster, free_mem: float, span_s: float,
    from_s: float, source: str, rng: Generator,
) -> Workload:  # fmt: skip
    """Services first, each where it is pinned, then tasks by the arrival of their job."""
    services, tasks = len(held), len(jobs.cpu)
    size = np.diff(jobs.first)
    arrival_s = np.abs(jobs.arrival_s * span_s / 3600.0 + rng.normal(0, span_s / 4, len(size)))
    arrival_s = np.where(arrival_s > span_s, np.abs(2 * span_s - arrival_s), arrival_s) % span_s
    submit_s = np.repeat(arrival_s, size) + from_s
    order = np.argsort(submit_s, kind="stable")
    place = np.empty(tasks, np.int64)
    place[order] = np.arange(tasks)
    count = np.diff(jobs.parent_ptr)[order]
    ptr = np.concatenate((np.zeros(services + 1, np.int64), np.cumsum(count)))
    edge = np.repeat(jobs.parent_ptr[order] - ptr[services:-1], count) + np.arange(ptr[-1])
    node = held[:, 1].astype(np.int64)
    kept = machine.capacity[:, 1] * np.clip(rng.normal(1, 0.35, len(machine)) * free_mem, 0.08, 0.9)
    mem_gb = ((machine.capacity[:, 1] - kept) / np.bincount(node, minlength=len(machine)))[node]
    per_pod = np.maximum(1, (POD_CORES // np.maximum(jobs.cpu, 0.01)).astype(np.int64))
    pods = -(-jobs.instances // per_pod)
    each = jobs.instances / pods  # instances a pod: all alike, so that no core is lost or made
    demand = np.stack((jobs.cpu * each, jobs.mem_gb * each), axis=1)
    plan_s = jobs.run_s * np.exp(rng.normal(0, PLAN_NOISE, tasks))
    run_s = plan_s * np.exp(rng.normal(0, RUN_NOISE, tasks))
    column = partial(_column, services, order)
    return workload(
        column(0.0, submit_s),
        column(np.inf, run_s),
        np.vstack((np.stack((held[:, 0], mem_gb), axis=1), demand[order])),
        resources=RESOURCES,
        request_s=column(np.inf, plan_s),
        kinds=KINDS,
        kind=column(0, jobs.kind),
        instances=column(1, pods),
        gang=column(1, np.zeros(tasks)),
        checkpoint_s=np.inf,
        service=np.arange(services + tasks) < services,
        pinned=np.concatenate((1 + node, np.zeros(tasks))),
        pattern=np.concatenate((np.arange(services), np.full(tasks, -1))),
        patterns=patterns,
        pattern_step_s=STEP_S,
        after=(ptr, services + place[jobs.parent[edge]]),
        source=source,
        meta={
            "dag": column(-1, np.repeat(np.arange(len(size)), size)).astype(np.int64),
            "in_time": IN_TIME,
        },
    )


def _column(services: int, order: Array, of_service: float, of_tasks: Array) -> Array:
    return np.concatenate((np.full(services, of_service), of_tasks[order]))


def _profile(unlike: bool) -> Profile:
    speed = np.array([m.speed for m in MACHINES]).T if unlike else np.ones((4, len(MACHINES)))
    return Profile(
        rate=speed[:, :, None],
        slow=np.zeros((len(KINDS), len(KINDS))),
        draw=np.ones((len(KINDS), len(MACHINES))),
        quality=np.ones((len(KINDS), 1)),
        shapes=(Shape(),),
        source="modelled: classes of work by kind of machine, docs/colocation.md",
        curve=np.tile([KNEE, LEAST_SPEED], (len(KINDS), 1)),
    )


BY_NAME: dict[str, Callable[..., tuple[Workload, Cluster, Profile]]] = {
    "colocated": colocated,
    "colocated-calm": partial(colocated, swing=0.6),
    "colocated-spare": partial(colocated, reserved=0.6, swing=0.8),
}
