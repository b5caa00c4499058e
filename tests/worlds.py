"""Small worlds for tests: scripted policies, the engine's own log, and books kept a second time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from trimtab.build import cluster, uniform_profile, workload
from trimtab.core import (
    Cluster,
    Decision,
    Event,
    Lending,
    Profile,
    Shape,
    Snapshot,
    Start,
    Status,
    Wait,
    What,
    Workload,
)
from trimtab.run import run
from trimtab.sim.backend import SimBackend
from trimtab.sim.world import Models


class Logged(SimBackend):
    """A simulated cluster that keeps the engine's log: the facts in order, without answers."""

    def __init__(self, *args: object, **more: object) -> None:
        super().__init__(*args, **more)
        self.seen: list[Event] = []
        self.instants = 0

    def wait(self) -> list[Event] | None:
        events = super().wait()
        self.seen += events or []
        self.instants += 1
        return events

    def ends(self) -> list[float]:
        return self.world.state[0]["end_s"].tolist()

    def starts(self) -> list[float]:
        return self.world.state[0]["start_s"].tolist()

    def statuses(self) -> list[Status]:
        return [Status(status) for status in self.world.state[0]["status"].tolist()]

    def total(self, name: str) -> float:
        return float(self.world.totals[0][name])

    def facts(self, what: What) -> list[tuple[float, int]]:
        return [(event.time_s, event.job) for event in self.seen if event.what == what]


@dataclass
class Script:
    """A policy that takes each decision at its time; between them it does nothing."""

    plan: Sequence[tuple[float, Decision]]
    done: int = 0
    name: str = "script"

    def decide(self, snapshot: Snapshot) -> list[Decision]:
        due: list[Decision] = []
        while self.done < len(self.plan) and self.plan[self.done][0] <= snapshot.now_s:
            due.append(self.plan[self.done][1])
            self.done += 1
        if self.done < len(self.plan):
            due.append(Wait(self.plan[self.done][0]))
        return due


@dataclass
class Answers:
    """A sink that keeps what apply() answered."""

    kept: list[Event] = field(default_factory=list)

    def __call__(self, event: Event, snapshot: Snapshot) -> None:
        if event.what in (What.PLACED, What.REFUSED):
            self.kept.append(event)

    def refusals(self) -> list[str]:
        return [event.reason for event in self.kept if event.what == What.REFUSED]


def played(
    jobs: Workload,
    machine: Cluster,
    plan: Sequence[tuple[float, Decision]],
    *,
    profile: Profile | None = None,
    **models: object,
) -> Logged:
    """The world after a script has been played to its end. `models` are fields of Models."""
    backend = Logged(jobs, machine, profile, Models(**models))
    run(backend, Script(plan))
    return backend


def ruled(
    jobs: Workload,
    machine: Cluster,
    policy: object,
    *,
    profile: Profile | None = None,
    **models: object,
) -> Logged:
    """The world after a policy has run it to its end."""
    backend = Logged(jobs, machine, profile, Models(**models))
    run(backend, policy)
    return backend


def at_once(count: int, *nodes: int) -> list[tuple[float, Decision]]:
    """Start job j on the j-th of these nodes at second 0."""
    return [(0.0, Start(job, (nodes[job],))) for job in range(count)]


def two(**columns: object) -> Workload:
    """Two jobs of one core with one column replaced in the second row."""
    named = {"submit_s": [0.0, 1.0], "work_s": [10.0, 10.0], "cpu": [1.0, 1.0]}
    named |= {key: value for key, value in columns.items() if key in named}
    more = {key: value for key, value in columns.items() if key not in named}
    return workload(
        named["submit_s"],
        named["work_s"],
        named["cpu"],
        source="log.csv",
        job_id=["a", "b"],
        **more,
    )


def one_kind(shapes: Sequence[Shape] = (Shape(),), **tables: object) -> Profile:
    """A profile of one job kind and one node kind; `tables` replace what is uniform."""
    made = uniform_profile(1, 1, shapes)
    return replace(made, **{name: np.asarray(table, float) for name, table in tables.items()})


def books(
    jobs: Workload, machine: Cluster, events: Iterable[Event], end_s: float
) -> dict[str, float]:
    """The running totals computed anew from the log alone, for gangs at shape 0 with steady use.

    Keeps what is where, and sums rectangles between one event and the next.
    """
    count = len(machine)
    driver = machine.nodes["driver"]
    cap = machine.capacity[np.arange(count), driver]
    where: dict[int, tuple[int, ...]] = {}
    waiting: set[int] = set()
    submitted: set[int] = set()
    ended: set[int] = set()
    unmet = dict(enumerate(map(set, parents_of(jobs))))
    up = np.ones(count, bool)
    total = dict.fromkeys(
        ("waiting_s", "system_s", "busy_s", "idle_s", "imbalance_s", "energy_j"), 0.0
    )
    now_s = float(jobs.jobs["submit_s"].min())
    for event in [*events, Event(end_s, What.PLACED, -1)]:
        dt = max(event.time_s - now_s, 0.0)
        load = np.zeros(count)
        pieces = np.zeros(count, int)
        for job, nodes in where.items():
            for node in nodes:
                load[node] += jobs.demand[job, driver[node]] * jobs.truth["use"][job] / cap[node]
                pieces[node] += 1
        watts = machine.nodes["idle_w"] + (
            machine.nodes["peak_w"] - machine.nodes["idle_w"]
        ) * np.minimum(load, 1)
        total["waiting_s"] += len(waiting) * dt
        total["system_s"] += (len(waiting) + len(where)) * dt
        total["busy_s"] += load.sum() * dt
        total["idle_s"] += ((pieces == 0) & up).sum() * dt if waiting else 0.0
        total["imbalance_s"] += load.std() * dt
        total["energy_j"] += watts[up].sum() * dt
        now_s = max(event.time_s, now_s)
        keep_books(event, where, waiting, submitted, ended, unmet, up)
    return total


def keep_books(event, where, waiting, submitted, ended, unmet, up) -> None:
    """Bring the books of `books` up to date with one event."""
    job = event.job
    if job < 0:
        for node in event.nodes:
            up[node] = event.what == What.STARTED
        return
    if event.what == What.SUBMITTED:
        submitted.add(job)
    elif event.what == What.STARTED:
        where[job] = event.nodes
    elif event.what in (What.FINISHED, What.REJECTED, What.FAILED) or event.reason == "cancelled":
        where.pop(job, None)
        ended.add(job)
        if event.what == What.FINISHED:
            for parents in unmet.values():
                parents.discard(job)
    elif event.what == What.STOPPED:
        where.pop(job, None)
    waiting.clear()
    waiting.update(j for j in submitted if j not in ended and j not in where and not unmet[j])


def parents_of(jobs: Workload) -> list[list[int]]:
    if jobs.after_ptr is None or jobs.after_idx is None:
        return [[] for _ in range(len(jobs))]
    return [part.tolist() for part in np.split(jobs.after_idx, jobs.after_ptr[1:-1])]


def random_cluster(rng: np.random.Generator, *, nodes: int = 5) -> Cluster:
    """Nodes of two kinds in two regions, some with GPUs of 16 GB, with cores, memory and power."""
    gpus = rng.choice([0, 1, 2, 4], nodes)
    gpus[0], gpus[1 % nodes] = 4, 2  # every GPU job of random_jobs fits on an empty cluster
    table = np.stack([rng.choice([8, 16], nodes), rng.choice([32, 64], nodes), gpus], axis=1)
    table[0] = 16, 64, 4
    return cluster(
        table,
        resources=("cpu", "mem_gb", "gpu"),
        kind=np.arange(nodes) % 2,
        kinds=("slow", "fast"),
        region=np.arange(nodes) // 2 % 2,
        regions=("a", "b"),
        gpu_mem_gb=np.where(gpus > 0, 16.0, 0.0),
        idle_w=rng.choice([50.0, 100.0], nodes),
        peak_w=rng.choice([200.0, 400.0], nodes),
        link=[[1.0, 0.5], [0.5, 1.0]],
    )


def random_profile() -> Profile:
    """Two job kinds: the second is twice as fast on fast nodes; both mind their neighbours."""
    made = uniform_profile(2, 2)
    return replace(
        made,
        rate=np.array([[[1.0], [1.0]], [[1.0], [2.0]]]),
        slow=np.array([[0.0, 0.25], [0.125, 0.0]]),
    )


def random_jobs(
    rng: np.random.Generator,
    *,
    count: int = 40,
    span_s: float = 400.0,
    wild: bool = True,
    exact: bool = False,
) -> Workload:
    """Single jobs, gangs and arrays over cores, memory, whole and shared GPUs, in whole seconds.

    `wild` adds dependencies, cancellations, deadlines, checkpoints and wrong requests.
    """
    gpus = rng.choice([0, 1, 1, 2], count, p=(0.5, 0.2, 0.2, 0.1))
    share = np.where(gpus == 1, rng.choice([0.25, 0.5, 1.0], count), 1.0)
    instances = np.where(rng.random(count) < 0.3, rng.integers(2, 4, count), 1)
    instances = np.where(gpus == 2, np.minimum(instances, 2), instances)
    work_s = rng.integers(1, 120, count).astype(float)
    submit_s = np.sort(rng.integers(0, int(span_s), count)).astype(float)
    request_s = work_s if exact else np.ceil(work_s * rng.choice([0.5, 1.0, 1.5, 3.0], count))
    demand = np.stack([rng.integers(1, 5, count), rng.integers(0, 9, count), gpus * share], axis=1)
    columns: dict[str, object] = {}
    if wild:
        cancelled = rng.random(count) < 0.1
        columns = {
            "cancel_s": np.where(cancelled, submit_s + rng.integers(0, 200, count), np.inf),
            "deadline_s": np.where(rng.random(count) < 0.5, submit_s + 2 * work_s, np.inf),
            "checkpoint_s": rng.choice([0.0, 10.0, np.inf], count),
            "after": [
                sorted(set(rng.integers(0, job, 2).tolist())) if job and rng.random() < 0.15 else []
                for job in range(count)
            ],
        }
    return workload(
        submit_s,
        work_s,
        demand,
        resources=("cpu", "mem_gb", "gpu"),
        request_s=request_s,
        gpus=gpus,
        gpu_share=share,
        gpu_mem_gb=np.where(gpus > 0, rng.choice([2.0, 4.0, 8.0], count), 0.0),
        instances=instances,
        gang=rng.integers(0, 2, count),
        kind=rng.integers(0, 2, count),
        kinds=("plain", "tuned"),
        tenant=rng.integers(0, 3, count),
        tenants=("a", "b", "c"),
        priority=rng.integers(0, 3, count),
        use=rng.choice([0.5, 1.0], count),
        **columns,
    )


def lending_scene(
    rng: np.random.Generator, *, count: int = 60
) -> tuple[Workload, Cluster, Profile]:
    """Six nodes in two regions that lend; two services a node whose use changes every 5 s; arrays,
    gangs and jobs that wait for others. The second kind of job slows down with load.
    """
    nodes, steps = 6, 120
    machine = cluster(
        np.tile([16.0, 64.0], (nodes, 1)),
        resources=("cpu", "mem_gb"),
        region=np.arange(nodes) // 3,
        regions=("a", "b"),
        idle_w=100.0,
        peak_w=300.0,
    )
    swing = 0.5 + 0.4 * np.sin(np.arange(steps) / 9 + rng.uniform(0, 6, (2 * nodes, 1)))
    use = np.round(np.clip(swing + rng.normal(0, 0.1, (2 * nodes, steps)), 0.05, 1.0), 3)
    batch = random_jobs(rng, count=count, span_s=300.0, exact=False)
    demand = np.vstack([np.tile([6.0, 8.0], (2 * nodes, 1)), batch.demand[:, :2]])
    services = 2 * nodes
    after = [*([[]] * services), *([j + services for j in part] for part in parents_of(batch))]
    jobs = batch.jobs
    made = workload(
        np.concatenate([np.zeros(services), jobs["submit_s"]]),
        np.concatenate([np.full(services, np.inf), batch.truth["work_s"]]),
        demand,
        resources=("cpu", "mem_gb"),
        request_s=np.concatenate([np.full(services, np.inf), jobs["request_s"]]),
        kinds=("plain", "tuned"),
        kind=np.concatenate([np.zeros(services), jobs["kind"]]),
        instances=np.concatenate([np.ones(services), jobs["instances"]]),
        gang=np.concatenate([np.ones(services), jobs["gang"]]),
        checkpoint_s=np.concatenate([np.full(services, np.inf), jobs["checkpoint_s"]]),
        service=np.arange(services + count) < services,
        pinned=np.concatenate([1 + np.arange(services) // 2, np.zeros(count)]),
        pattern=np.concatenate([np.arange(services), np.full(count, -1)]),
        after=after,
        patterns=use,
        pattern_step_s=5.0,
    )
    lending = Lending(limit=0.9, readings=12, late=1, missing=0.1, back_off_s=20.0)
    profile = replace(random_profile(), curve=np.array([[1.0, 1.0], [0.6, 0.5]]))
    return made, replace(machine, lending=lending), profile
