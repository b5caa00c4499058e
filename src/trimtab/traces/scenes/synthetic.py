"""Workloads from stated distributions, reproducible from one seed.

generate("mixed-gpu", seed=1)                       3,000 jobs for 48 mixed nodes at load 0.9
generate("poisson-mmc", seed=1, servers=4, load=0.8)
like(read("log.swf"), rng=np.random.default_rng(1), jobs=10_000)
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.random import Generator

from trimtab.arrays import Array
from trimtab.build import workload
from trimtab.core import Cluster, Profile, Workload
from trimtab.errors import TraceError, UnknownName, suggestion
from trimtab.site import Labels
from trimtab.traces.scenes.adlro import adlro_jobs
from trimtab.traces.scenes.describe import busy_s
from trimtab.traces.scenes.presets import JOB_KINDS, RESOURCES, mixed_gpu_cluster, mixed_gpu_profile

DAY_S = 86400.0
MOST_JOBS = 10**9  # more are a slip: a thousand times what a machine holds
# Task starts by hour of day against their mean: Alibaba 2018, 14.3 million tasks.
BY_HOUR = (
    *(1.07, 0.89, 0.84, 1.60, 1.22, 1.50, 1.20, 1.26, 0.96, 1.01, 0.83, 0.84),
    *(0.70, 0.74, 0.84, 0.82, 0.83, 1.05, 0.94, 1.09, 1.16, 1.02, 0.84, 0.75),
)
DISPERSION = 4.4  # variance / mean of the jobs that arrive in a second: Alibaba 2018
# meta of an SWF log
OF_MACHINE = ("file", "machine", "max_nodes", "max_procs", "node_mem_gb", "nodes", "nodes_because")
PROCESSES = {  # name: (follows the hour of day, comes in batches)
    "poisson": (False, False),
    "diurnal": (True, False),
    "bursty": (False, True),
    "diurnal-bursty": (True, True),
}

# Alibaba PAI 2020: GPUs an instance asks for. The multi-GPU remainder is split by us.
GPU_ASK = (0.0, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
GPU_ASK_SHARE = (0.20, 0.06, 0.23, 0.125, 0.34, 0.02, 0.015, 0.01)
# PAI durations: p50 800 s, p90 17,896 s, p99 125,000 s. Sigma is the least-squares fit through the
# median of the logs of the other two, (1.2816 x 3.108 + 2.3263 x 5.051) / (1.2816^2 + 2.3263^2).
MEDIAN_S, SIGMA = 800.0, 2.23
# Job kinds (columns as JOB_KINDS) of jobs without, with a share of, with one and with several GPUs.
KIND_SHARE = np.array(
    [
        [0.00, 0.00, 0.00, 0.00, 0.70, 0.30],
        [0.20, 0.10, 0.10, 0.60, 0.00, 0.00],
        [0.45, 0.35, 0.10, 0.10, 0.00, 0.00],
        [0.40, 0.60, 0.00, 0.00, 0.00, 0.00],
    ]
)
KEEPS_PROGRESS = np.array([True, True, True, False, False, False])  # checkpoints as it goes


def arrival_times(
    jobs: int,
    rate_hz: float,
    *,
    rng: Generator,
    process: str = "poisson",
    by_hour: Sequence[float] = BY_HOUR,
    dispersion: float = DISPERSION,
    start_hour: float = 0.0,
) -> Array:
    """Submit times in seconds from 0, at a mean of `rate_hz` jobs a second.

    `by_hour` (24 relative rates) shapes the diurnal processes: Poisson with the rate of the hour.
    The bursty ones come in batches of geometric size with mean m, so that counts in any window
    have variance / mean 2 m - 1 = `dispersion`.
    """
    if process not in PROCESSES:
        raise UnknownName(f"arrivals {process!r} are unknown; {_nearest(process, PROCESSES)}")
    diurnal, bursty = PROCESSES[process]
    batch = (_positive("dispersion", dispersion, 1.0) + 1) / 2 if bursty else 1.0
    gap_s = rng.exponential(batch / _positive("rate_hz", rate_hz), jobs)
    even_s = np.cumsum(gap_s)
    if bursty:
        even_s = np.repeat(even_s, rng.geometric(1 / batch, jobs))[:jobs]
    if not diurnal:
        return even_s
    shape = np.asarray(by_hour, dtype=float)
    if shape.shape != (24,) or not (shape > 0).all():
        raise TraceError(f"by_hour={tuple(by_hour)}; give 24 positive relative rates, one an hour")
    # a unit-rate process read through the inverse of the cumulative rate is Poisson with that rate
    expected_s = np.concatenate(([0.0], np.cumsum(shape / shape.mean()))) * 3600.0
    clock_s = np.arange(25) * 3600.0
    begin_s = np.interp(start_hour * 3600.0, clock_s, expected_s)
    day, within_s = np.divmod(even_s + begin_s, DAY_S)
    return day * DAY_S + np.interp(within_s, expected_s, clock_s) - start_hour * 3600.0


def sizes(
    jobs: int,
    *,
    rng: Generator,
    law: str = "lognormal",
    mean_s: float = 1000.0,
    scv: float = 4.0,
) -> Array:
    """Run times by their mean and squared coefficient of variation (variance / mean^2).

    Laws: fixed (scv 0), exponential (scv 1), lognormal, hyperexponential (scv >= 1; two phases
    with balanced means).
    """
    _positive("mean_s", mean_s)
    if law == "fixed":
        return np.full(jobs, mean_s)
    if law == "exponential":
        return rng.exponential(mean_s, jobs)
    if law == "lognormal":
        sigma = np.sqrt(np.log1p(_positive("scv", scv)))
        return rng.lognormal(np.log(mean_s) - sigma**2 / 2, sigma, jobs)
    if law == "hyperexponential":
        _positive("scv", scv, 1.0)
        often = (1 + np.sqrt((scv - 1) / (scv + 1))) / 2  # the share of the short phase
        share = np.where(rng.random(jobs) < often, often, 1 - often)
        return rng.exponential(mean_s / (2 * share))
    laws = ("fixed", "exponential", "lognormal", "hyperexponential")
    raise UnknownName(f"sizes {law!r} are unknown; {_nearest(law, laws)}")


def requests(
    work_s: Array, *, rng: Generator, exact: float = 0.15, max_factor: float = 10.0
) -> Array:
    """Users' estimates: a share `exact` is right, the others ask for too much.

    Used / requested is even over (1 / max_factor, 1): the flat histogram that Mu'alem and Feitelson
    (2001) found in logs.
    """
    used = rng.uniform(1 / _positive("max_factor", max_factor, 1.0), 1.0, len(work_s))
    return np.where(rng.random(len(work_s)) < exact, work_s, work_s / used)


def like(
    source: Workload,
    *,
    rng: Generator,
    jobs: int | None = None,
    speedup: float = 1.0,
    arrivals: str = "poisson",
    jitter: float = 0.1,
    by_hour: Sequence[float] = BY_HOUR,
    dispersion: float = DISPERSION,
) -> Workload:
    """Jobs drawn from those of another workload, whole rows at a time, arriving anew.

    Run time and request of a row are scaled together by a log-normal factor with mean 1, whose log
    has standard deviation `jitter`. The mean arrival rate is `speedup` times the source's.
    Deadlines and cancellations keep their distance from the submit time; dependencies are not
    drawn. Of meta stays what names the machine of an SWF log.
    """
    jobs = len(source) if jobs is None else jobs
    span_s = float(source.jobs["submit_s"][-1] - source.jobs["submit_s"][0])
    if span_s <= 0:
        raise TraceError(f"{source.source}: all jobs arrive at once; a rate needs two submit times")
    rate_hz = (len(source) - 1) / span_s * _positive("speedup", speedup)
    drawn = rng.integers(len(source), size=jobs)
    scale = rng.lognormal(-(jitter**2) / 2, jitter, jobs)
    submit_s = arrival_times(
        jobs, rate_hz, rng=rng, process=arrivals, by_hour=by_hour, dispersion=dispersion
    )
    meta = {key: source.meta[key] for key in OF_MACHINE if key in source.meta}
    if "procs" in source.meta:
        meta["procs"] = source.meta["procs"][drawn]
    old, truth = source.jobs[drawn], source.truth[drawn].copy()
    rows = old.copy()
    rows["submit_s"] = submit_s
    rows["request_s"] *= scale
    truth["work_s"] *= scale
    rows["deadline_s"] += submit_s - old["submit_s"]
    truth["cancel_s"] += submit_s - old["submit_s"]
    return replace(
        source,
        jobs=rows,
        truth=truth,
        demand=source.demand[drawn],
        job_id=None,
        after_ptr=None,
        after_idx=None,
        labels={
            name: Labels(given.names, given.row[drawn]) for name, given in source.labels.items()
        },
        source=f"like {source.source}",
        meta=meta | {"jitter": jitter, "speedup": speedup, "arrivals": arrivals},
    )


def queue(
    *,
    rng: Generator,
    jobs: int = 10_000,
    servers: int = 4,
    load: float = 0.8,
    arrivals: str = "poisson",
    law: str = "lognormal",
    mean_s: float = 1.0,
    scv: float = 4.0,
    dispersion: float = DISPERSION,
) -> Workload:
    """One-core jobs for `servers` servers: rate = load x servers / mean_s. Requests are exact."""
    rate_hz = _positive("load", load) * servers / _positive("mean_s", mean_s)
    submit_s = arrival_times(jobs, rate_hz, rng=rng, process=arrivals, dispersion=dispersion)
    work_s = sizes(jobs, rng=rng, law=law, mean_s=mean_s, scv=scv)
    source = f"queue: {arrivals} arrivals, {law} sizes, {servers} servers, load {load:g}"
    return workload(submit_s, work_s, np.ones(jobs), source=source)


def poisson_mmc(
    *,
    rng: Generator,
    jobs: int = 10_000,
    servers: int = 4,
    load: float = 0.8,
    mean_s: float = 1.0,
) -> Workload:
    """The M/M/c queue: Poisson arrivals, exponential service."""
    return queue(rng=rng, jobs=jobs, servers=servers, load=load, mean_s=mean_s, law="exponential")


def mixed_gpu(
    *,
    rng: Generator,
    jobs: int = 3000,
    load: float = 0.9,
    arrivals: str = "diurnal",
    by_hour: Sequence[float] = BY_HOUR,
    dispersion: float = DISPERSION,
    start_hour: float = 0.0,
    median_s: float = MEDIAN_S,
    sigma: float = SIGMA,
    shortest_s: float = 10.0,
    longest_s: float = 2 * DAY_S,
    exact_requests: float = 0.15,
    max_factor: float = 10.0,
    gangs: float = 0.15,
    pinned: float = 0.1,
    deadlines: float = 0.2,
    slack: tuple[float, float] = (2.0, 10.0),
    use: tuple[float, float] = (0.35, 0.95),
    tenants: int = 8,
    cluster: Cluster | None = None,
    profile: Profile | None = None,
) -> Workload:
    """Jobs of a mixed GPU cluster, whose run times (`work_s`) are those on a V100 node.

    GPU asks and run times follow Alibaba PAI 2020 (run times cut off at `longest_s`, a wall limit).
    `gangs`, `pinned` (to one GPU model) and `deadlines` are shares of the jobs that could be; a
    deadline is submit + 600 s + run time x U(slack). Arrivals are as fast as makes the busiest
    resource's offered load `load` on `cluster` (see `describe.busy_s`). Training keeps its
    progress when stopped. Tenant t has a share of the jobs proportional to 1 / (t + 1).
    """
    machine = cluster or mixed_gpu_cluster()
    speeds = profile or mixed_gpu_profile()
    ask = rng.choice(np.array(GPU_ASK), jobs, p=GPU_ASK_SHARE)
    group = np.digitize(ask, [0.01, 0.99, 1.01])
    kind = (rng.random(jobs)[:, None] > np.cumsum(KIND_SHARE, axis=1)[group]).sum(axis=1)
    kind = np.minimum(kind, len(JOB_KINDS) - 1)
    work_s = rng.lognormal(np.log(_positive("median_s", median_s)), sigma, jobs)
    work_s = np.clip(work_s, shortest_s, longest_s)
    instances = _gang_sizes(kind, ask, gangs, rng)
    demand, gpu_mem_gb = _demands(kind, ask, rng)
    popularity = 1 / np.arange(1, tenants + 1)
    made = workload(
        np.zeros(jobs),
        work_s,
        demand,
        resources=RESOURCES,
        request_s=requests(work_s, rng=rng, exact=exact_requests, max_factor=max_factor),
        kinds=JOB_KINDS,
        kind=kind,
        gpus=np.ceil(ask),
        gpu_share=np.where((ask > 0) & (ask < 1), ask, 1.0),
        gpu_mem_gb=gpu_mem_gb,
        instances=instances,
        priority=rng.choice(3, jobs, p=(0.7, 0.2, 0.1)),
        checkpoint_s=np.where(KEEPS_PROGRESS[kind], 0.0, np.inf),
        node_kinds=_node_kinds(machine, demand, gpu_mem_gb, instances, pinned, rng),
        tenant=rng.choice(tenants, jobs, p=popularity / popularity.sum()),
        tenants=[f"team-{t}" for t in range(tenants)],
        use=rng.uniform(*use, jobs),
        source=f"mixed-gpu: {jobs} jobs at load {load:g}, {arrivals} arrivals",
    )
    rate_hz = _positive("load", load) * jobs / max(busy_s(made, machine, speeds).values())
    submit_s = arrival_times(
        jobs,
        rate_hz,
        rng=rng,
        process=arrivals,
        by_hour=by_hour,
        dispersion=dispersion,
        start_hour=start_hour,
    )
    due_s = submit_s + 600.0 + work_s * rng.uniform(*slack, jobs)
    made.jobs["submit_s"] = submit_s
    made.jobs["deadline_s"] = np.where(rng.random(jobs) < deadlines, due_s, np.inf)
    return made


def _gang_sizes(kind: Array, ask: Array, gangs: float, rng: Generator) -> Array:
    """Training on whole GPUs, and simulations, may be gangs of 2 to 8; of several GPUs, 2 or 4."""
    training = KEEPS_PROGRESS[kind] & (ask >= 1)
    may = training | (kind == JOB_KINDS.index("simulation"))
    size = rng.choice([2, 4, 8], len(kind), p=(0.5, 0.3, 0.2))
    size = np.where(ask > 1, np.minimum(size, 4), size)
    return np.where(may & (rng.random(len(kind)) < gangs), size, 1)


def _demands(kind: Array, ask: Array, rng: Generator) -> tuple[Array, Array]:
    """(J, 3) cpu, mem_gb and gpu of an instance, and the memory of each GPU it takes."""
    jobs = len(kind)
    shared = (ask > 0) & (ask < 1)
    cpu = rng.choice([4, 8, 12], jobs, p=(0.4, 0.4, 0.2)) * np.maximum(ask, 1)
    cpu = np.where(shared, rng.choice([1, 2, 4], jobs), cpu)
    cpu = np.where(ask == 0, rng.choice([2, 4, 8, 16], jobs, p=(0.3, 0.3, 0.25, 0.15)), cpu)
    mem_gb = cpu * rng.choice([2, 4], jobs)
    gpu_mem_gb = rng.choice([8.0, 14.0, 24.0, 30.0], jobs, p=(0.4, 0.3, 0.2, 0.1))
    gpu_mem_gb = np.where(shared, ask * 16.0, gpu_mem_gb) * (ask > 0)
    return np.stack((cpu, mem_gb, ask), axis=1), gpu_mem_gb


def _node_kinds(
    machine: Cluster,
    demand: Array,
    gpu_mem_gb: Array,
    instances: Array,
    pinned: float,
    rng: Generator,
) -> Array:
    """Bit masks of the node kinds that can hold an instance; for some jobs just one of the GPUs."""
    ask = demand[:, machine.resources.index("gpu")]
    masks = np.zeros(len(ask), np.uint64)
    for k in range(len(machine.kinds)):
        of_kind = machine.nodes["kind"] == k
        if of_kind.any():
            holds = machine.nodes["gpu_mem_gb"][of_kind].max() >= gpu_mem_gb
            holds &= (machine.capacity[of_kind].max(axis=0) >= demand).all(axis=1)
            masks |= holds.astype(np.uint64) << np.uint64(k)
    allowed = (masks[:, None] >> np.arange(len(machine.kinds), dtype=np.uint64)) & np.uint64(1)
    one = np.argmax(allowed * rng.random(allowed.shape), axis=1).astype(np.uint64)
    choosy = (masks > 0) & (instances == 1) & (rng.random(len(ask)) < pinned)
    masks = np.where(choosy, np.uint64(1) << one, masks)
    return np.where(ask > 0, masks, np.uint64(0xFFFFFFFFFFFFFFFF))


BY_NAME: dict[str, Callable[..., Workload]] = {
    "mixed-gpu": mixed_gpu,
    "queue": queue,
    "poisson-mmc": poisson_mmc,
    "adlro": adlro_jobs,
}


def generate(name: str = "mixed-gpu", *, seed: int = 0, **params: Any) -> Workload:
    """A workload of a named generator with its keyword arguments. The seed fixes it all."""
    if name not in BY_NAME:
        raise UnknownName(f"generator {name!r} is unknown; {_nearest(name, BY_NAME)}")
    make = BY_NAME[name]
    known = [parameter for parameter in inspect.signature(make).parameters if parameter != "rng"]
    for parameter, value in params.items():
        if parameter not in known:
            raise UnknownName(
                f"{name}: {parameter}={value!r} is unknown; {_nearest(parameter, known)}"
            )
    if isinstance(params.get("jobs"), int) and params["jobs"] > MOST_JOBS:
        raise TraceError(f"{name}: jobs={params['jobs']:,} is more than {MOST_JOBS:,}; give fewer")
    made = make(rng=np.random.default_rng(seed), **params)
    plain = {key: value for key, value in params.items() if key not in ("cluster", "profile")}
    return replace(made, meta={"generator": name, "seed": seed, "params": plain})


def _nearest(name: str, known: Any) -> str:
    return f"{suggestion(name, known)}known: {', '.join(known)}"


def _positive(name: str, value: float, least: float = 0.0) -> float:
    if not np.isfinite(value) or value < least or value <= 0:
        bound = f"at least {least:g}" if least else "above 0"
        raise TraceError(f"{name}={value!r}; give a finite number {bound}")
    return value
