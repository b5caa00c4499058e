"""The scene of the ADLRO paper: three kinds of job on 16 GPUs of three makes, one GPU a node.

preset("adlro")                                       8 Volta, 4 Turing, 4 Radeon
preset("adlro", volta=32, turing=16, radeon=16)       64 of them
generate("adlro", seed=1, jobs=2000, load=0.9, sizes="philly", estimate="noisy")

The paper names the GPUs' makes, the kinds of job, and that needs and priorities vary; all numbers
here are ours. A Volta is a V100, a Turing a T4, a Radeon a Radeon VII.
"""

from collections.abc import Callable, Sequence
from itertools import combinations
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator

from trimtab.arrays import Array
from trimtab.build import cluster, workload
from trimtab.core import Cluster, Profile, Shape, Workload
from trimtab.errors import TraceError, UnknownName

RESOURCES = ("cpu", "mem_gb", "gpu")
NODE_KINDS = ("volta", "turing", "radeon")
JOB_KINDS = ("simulation", "machine-learning", "data-processing")


class Gpu(NamedTuple):
    """A data sheet: peak TFLOP/s, GB/s of memory, GB of memory, watts."""

    half: float
    double: float
    gb_s: float
    mem_gb: float
    peak_w: float


# V100 SXM2 and T4: NVIDIA's data sheets; the T4's double precision is 1/32 of its single, 8.1.
# Radeon VII: AMD's, 3,840 lanes x 2 x 1.75 GHz = 13.44 single, twice that half, a quarter double.
GPU = {
    "volta": Gpu(125.0, 7.8, 900.0, 16.0, 300.0),
    "turing": Gpu(65.0, 8.1 / 32, 320.0, 16.0, 70.0),
    "radeon": Gpu(26.88, 3.36, 1024.0, 16.0, 300.0),
}
CPU, MEM_GB = 8.0, 64.0  # of the host, a GPU: modelled
HOST_W = 57.0  # an eighth of a 200 W host and 4 W a core: modelled
IDLE_SHARE = 0.3  # of peak draw, modelled
# of a simulation: stencils have up to 0.5, Fourier transforms up to 1.6 (Williams et al., 2009)
FLOP_A_BYTE = 1.0
PROFILE_SOURCE = (
    "all modelled from data sheets, against a V100: machine learning by the geometric mean of peak "
    "half-precision FLOP/s and memory bandwidth; simulation by a double-precision roofline at 1 "
    "FLOP a byte; data processing by memory bandwidth. None is measured: Gavel (OSDI 2020) has the "
    "V100 and Sia (SOSP 2023) the T4, neither has two of the three"
)


class JobKind(NamedTuple):
    """How jobs of a kind are drawn; all modelled."""

    share: float  # of all jobs
    median_s: float  # of the log-normal run time on a V100
    sigma: float  # of its logarithm
    gpu_mem_gb: tuple[float, ...]  # even odds
    cpu: tuple[float, ...]  # even odds
    priority: tuple[float, float]  # even between
    keeps_progress: bool  # checkpoints as it goes


DRAWN = {
    "simulation": JobKind(0.3, 1200.0, 0.8, (2.0, 4.0, 8.0), (2.0, 4.0), (0.2, 0.8), True),
    "machine-learning": JobKind(0.4, 600.0, 1.2, (4.0, 8.0, 14.0), (4.0, 8.0), (0.4, 1.0), True),
    "data-processing": JobKind(0.3, 150.0, 1.0, (1.0, 2.0, 12.0), (4.0, 8.0), (0.0, 0.6), False),
}
MEM_GB_A_CORE = 4.0
MIX = tuple(drawn.share for drawn in DRAWN.values())  # shares of JOB_KINDS
PERCENTILES = (0.1, 1, 5, 10, 25, 50, 75, 90, 95, 99, 99.9)
# Run times in seconds at PERCENTILES of the jobs that take one GPU or a share of one.
RUN_S = {
    # 69,294 jobs of Sep-Nov 2017: siasosp23/artifacts@aaf7a0d, from msr-fiddle/philly-traces
    "philly": (11, 31, 52, 62, 151, 1192, 2734, 8347, 16697, 123195, 929633),
    # 7,747 tasks of a conversion of 10,000: alibaba/clusterdata, cluster-trace-gpu-v2020
    "pai": (8.7, 20, 27, 40, 158, 775, 5130, 16077, 38766, 113295, 284212),
}
SIZES = ("synthetic", *RUN_S)
ESTIMATES = ("oracle", "noisy", "unknown")
PRIOR_S = 600.0  # what a job is taken to need before any of its kind has ended: ten minutes


def adlro_cluster(*, volta: int = 8, turing: int = 4, radeon: int = 4) -> Cluster:
    """Nodes of one GPU, 8 cores and 64 GB: so many a make. To start a job is to choose a GPU."""
    count = {"volta": volta, "turing": turing, "radeon": radeon}
    for name, nodes in count.items():
        if nodes < 0:
            raise TraceError(f"adlro: {name}={nodes} is negative; give 0 or more GPUs")
    kind = np.repeat(np.arange(len(NODE_KINDS)), [count[name] for name in NODE_KINDS])
    peak_w = np.array([GPU[name].peak_w + HOST_W for name in NODE_KINDS])[kind]
    return cluster(
        np.tile([CPU, MEM_GB, 1.0], (len(kind), 1)),
        resources=RESOURCES,
        kind=kind,
        kinds=NODE_KINDS,
        gpu_mem_gb=np.array([GPU[name].mem_gb for name in NODE_KINDS])[kind],
        idle_w=peak_w * IDLE_SHARE,
        peak_w=peak_w,
        names=[f"{name}-{n}" for name in NODE_KINDS for n in range(count[name])],
        source=f"adlro: {volta} Volta, {turing} Turing, {radeon} Radeon",
    )


def adlro_profile() -> Profile:
    """Rates against a V100, by data sheets alone.

    Software is taken to reach the same share of each peak, which flatters the Radeon.
    """
    of_kind: dict[str, Callable[[Gpu], float]] = {
        "simulation": lambda gpu: min(1e3 * gpu.double, FLOP_A_BYTE * gpu.gb_s),  # GFLOP/s
        "machine-learning": lambda gpu: (gpu.half * gpu.gb_s) ** 0.5,
        "data-processing": lambda gpu: gpu.gb_s,
    }
    speed = np.array([[of_kind[job](GPU[node]) for node in NODE_KINDS] for job in JOB_KINDS])
    return Profile(
        rate=(speed / speed[:, :1])[:, :, None],
        slow=np.zeros((len(JOB_KINDS), len(JOB_KINDS))),
        draw=np.ones((len(JOB_KINDS), len(NODE_KINDS))),
        quality=np.ones((len(JOB_KINDS), 1)),
        shapes=(Shape(),),
        source=PROFILE_SOURCE,
    )


def fluid_s(work_s: Array, gpus: Array, rate: Array) -> float:
    """The fewest seconds in which the GPUs do work that can be divided among them at will.

    `work_s` (K,) is the work of each job kind, `gpus` (G,) the GPUs of each make, `rate` (K, G).
    No schedule is faster, and arrivals at this pace saturate the cluster: load 1.

    By the dual of the linear programme: 1 / seconds is the least of sum_g gpus_g max_k rate_kg y_k
    over prices y >= 0 of a unit of work with work_s . y = 1. The least is at a vertex, where K - 1
    pairs of kinds tie for a make each; all are tried, which suits a few kinds: 36 for 3 x 3.
    """
    work_s, gpus, rate = (np.asarray(table, dtype=np.float64) for table in (work_s, gpus, rate))
    nowhere = (work_s > 0) & ((rate > 0) @ gpus <= 0)
    if nowhere.any():
        raise TraceError(f"job kind {int(np.argmax(nowhere))} runs on no GPU; add GPUs or a rate")
    work_s, rate = work_s[work_s > 0], rate[work_s > 0][:, gpus > 0]
    kinds, makes = rate.shape
    if not kinds:
        return 0.0
    pairs = combinations(range(kinds), 2)
    ties = [(j, k, g) for j, k in pairs for g in range(makes)]
    least = np.inf
    for chosen in combinations(ties, kinds - 1):
        table = np.zeros((kinds, kinds))
        for row, (j, k, g) in enumerate(chosen):
            table[row, j], table[row, k] = rate[j, g], -rate[k, g]
        table[-1] = work_s / work_s.max()
        if np.linalg.matrix_rank(table) < kinds:
            continue  # the ties form a circle, or say the same twice
        price = np.linalg.solve(table, np.eye(kinds)[-1])
        price[np.abs(price) < 1e-12 * np.abs(price).max()] = 0.0  # of a tie with rate 0
        if (price >= 0).all():
            paid = gpus[gpus > 0] @ (rate * price[:, None]).max(axis=0)
            least = min(least, paid / (work_s @ price))
    return float(1 / least)


def offered_load(work: Workload, machine: Cluster, profile: Profile) -> float:
    """The jobs' `fluid_s` over the span of their arrivals: above 1 no policy keeps up.

    For jobs of one GPU that may run on any node.
    """
    span_s = float(work.jobs["submit_s"][-1] - work.jobs["submit_s"][0])
    return _least_s(work, machine, profile) / span_s if span_s else 0.0


def _least_s(work: Workload, machine: Cluster, profile: Profile) -> float:
    of_kind_s = np.bincount(work.jobs["kind"], work.truth["work_s"], len(work.kinds))
    gpus = np.bincount(machine.nodes["kind"], machine.nodes["gpus"], len(machine.kinds))
    return fluid_s(of_kind_s, gpus, profile.rate[:, :, 0])


def adlro_jobs(
    *,
    rng: Generator,
    jobs: int = 2000,
    load: float = 0.9,
    sizes: str = "synthetic",
    estimate: str = "oracle",
    noise: float = 0.7,
    mix: Sequence[float] | Array | None = MIX,
    arrivals: str = "poisson",
    use: tuple[float, float] = (0.5, 1.0),
    cluster: Cluster | None = None,
    profile: Profile | None = None,
) -> Workload:
    """Jobs of one GPU each, whose run times (`work_s`) are those on a V100.

    `sizes`: synthetic (log-normal, a median and a sigma a kind: DRAWN), or the run times of philly
    or pai for all kinds alike. `estimate` is what `request_s` tells: oracle the run time; noisy
    that times a log-normal factor of median 1 whose logarithm has standard deviation `noise`;
    unknown `by_ended`. `mix` is in the proportions of the job kinds, None = MIX. Arrivals are so
    fast that the expected `offered_load` on `cluster` is `load`. One seed draws the same jobs,
    whatever their estimate.
    """
    kind = rng.choice(len(JOB_KINDS), jobs, p=_shares(MIX if mix is None else mix))
    work_s = run_times(sizes, kind, rng=rng)
    demand, columns = _needs(kind, rng)
    made = workload(
        np.zeros(jobs),
        work_s,
        demand,
        resources=RESOURCES,
        request_s=estimates(estimate, work_s, kind, rng=rng, noise=noise),
        kinds=JOB_KINDS,
        kind=kind,
        gpus=1,
        use=rng.uniform(*use, jobs),
        **columns,
        source=f"adlro: {jobs} jobs at load {load:g}, {sizes} sizes, {estimate} estimates",
    )
    least_s = _least_s(made, cluster or adlro_cluster(), profile or adlro_profile())
    made.jobs["submit_s"] = _submit_times(jobs, load, least_s, arrivals, rng)
    if estimate == "unknown":
        made.jobs["request_s"] = by_ended(made.jobs["submit_s"], work_s, kind)
    return made


def _shares(mix: Sequence[float] | Array) -> Array:
    """(K,) that add up to 1."""
    shares = np.asarray(mix, dtype=np.float64)
    if shares.shape != (len(JOB_KINDS),) or not (np.isfinite(shares) & (shares >= 0)).all():
        raise TraceError(f"mix={mix!r}; give a number of 0 or more for each of {JOB_KINDS}")
    if not shares.sum() > 0:
        raise TraceError(f"mix={mix!r} is all 0; give one of {JOB_KINDS} more")
    return shares / shares.sum()


def run_times(sizes: str, kind: Array, *, rng: Generator) -> Array:
    """(J,) seconds on a V100.

    Those of a trace follow its percentiles: between two of them the logarithm is linear in the
    normal score, and past the first and the last it is cut off.
    """
    score = rng.standard_normal(len(kind))
    if sizes == "synthetic":
        median_s = np.array([DRAWN[name].median_s for name in JOB_KINDS])
        sigma = np.array([DRAWN[name].sigma for name in JOB_KINDS])
        return np.asarray(median_s[kind] * np.exp(sigma[kind] * score))
    if sizes not in RUN_S:
        raise UnknownName(f"sizes {sizes!r} are unknown; known: {', '.join(SIZES)}")
    known = [NormalDist().inv_cdf(percent / 100) for percent in PERCENTILES]
    return np.exp(np.interp(score, known, np.log(RUN_S[sizes])))


def estimates(
    estimate: str, work_s: Array, kind: Array, *, rng: Generator, noise: float = 0.7
) -> Array:
    """(J,) seconds that a policy is told, those that arrivals do not matter to; see `adlro_jobs`.

    Nothing is known to begin with: `unknown` gives PRIOR_S until `by_ended` is asked.
    """
    if estimate not in ESTIMATES:
        raise UnknownName(f"estimate {estimate!r} is unknown; known: {', '.join(ESTIMATES)}")
    if not (np.isfinite(noise) and noise >= 0):
        raise TraceError(f"noise={noise!r}; give a finite number of 0 or more")
    # drawn for every estimate, so that the rows and arrivals after it are the same
    factor = np.exp(noise * rng.standard_normal(len(work_s)))
    if estimate == "oracle":
        return work_s
    if estimate == "noisy":
        return np.asarray(work_s * factor)
    return np.full(len(work_s), PRIOR_S)


def by_ended(submit_s: Array, work_s: Array, kind: Array) -> Array:
    """(J,) mean run time of the jobs of the same kind that may have ended when each is submitted:
    had they begun at once on a V100. PRIOR_S counts as one job more.

    Nothing of a job's own time, or of what is still to come, is in it.
    """
    found = np.empty(len(submit_s))
    end_s = submit_s + work_s
    for k in np.unique(kind):
        rows = np.flatnonzero(kind == k)
        turn = rows[np.argsort(end_s[rows], kind="stable")]
        ended = np.searchsorted(end_s[turn], submit_s[rows], side="right")  # of each row, how many
        sums = np.concatenate(([PRIOR_S], PRIOR_S + np.cumsum(work_s[turn])))
        found[rows] = sums[ended] / (ended + 1)
    return found


def _submit_times(jobs: int, load: float, least_s: float, arrivals: str, rng: Generator) -> Array:
    # here, not above: synthetic lists this generator, so each would wait for the other
    from trimtab.traces.scenes.synthetic import arrival_times

    if not (np.isfinite(load) and load > 0):
        raise TraceError(f"load={load!r}; give a finite number above 0")
    return arrival_times(jobs, load * jobs / least_s, rng=rng, process=arrivals)


def _needs(kind: Array, rng: Generator) -> tuple[Array, dict[str, Any]]:
    """(J, 3) cores, memory and GPUs of each job, and its other columns."""
    cpu, gpu_mem_gb, priority, checkpoint_s = (np.zeros(len(kind)) for _ in range(4))
    for k, name in enumerate(JOB_KINDS):
        rows, drawn = np.flatnonzero(kind == k), DRAWN[name]
        cpu[rows] = rng.choice(drawn.cpu, len(rows))
        gpu_mem_gb[rows] = rng.choice(drawn.gpu_mem_gb, len(rows))
        priority[rows] = rng.uniform(*drawn.priority, len(rows))
        checkpoint_s[rows] = 0.0 if drawn.keeps_progress else np.inf
    demand = np.stack((cpu, MEM_GB_A_CORE * cpu, np.ones(len(kind))), axis=1)
    columns = {"gpu_mem_gb": gpu_mem_gb, "priority": priority, "checkpoint_s": checkpoint_s}
    return demand, columns
