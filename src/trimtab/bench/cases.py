"""What is measured, one function a row of the table: the best of a few repetitions after a warm-up.

A rate counts what the engine was given, over the wall time from columns in memory to the start and
end of every job. `swf-*` but wfp3, `shared-*`, `long-queue-easy` and `dag` run in the pool kernel,
the rest in the general engine. Tasks of a DAG stage share a run time: those that start together are
one event.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from trimtab.bench import inputs, peers
from trimtab.core import Cluster, Snapshot, Workload
from trimtab.errors import TrimtabError
from trimtab.policies.rule import RulePolicy
from trimtab.rules.names import parse
from trimtab.sim import packing, pool
from trimtab.sim.backend import SimBackend
from trimtab.sim.whole import order_keys, queue_rank, simulate
from trimtab.traces.readers import openb
from trimtab.traces.scenes.presets import mixed_gpu_profile
from trimtab.traces.scenes.scene import open_scene

REPEATS = 5
HETERO_RULE = "sjf+easy+fastest"


class Setup(NamedTuple):
    """How much to measure, and the files to use instead of made inputs."""

    quick: bool = False
    swf: str | None = None
    pods: str | None = None
    nodes: str | None = None
    order: str | None = None

    def of(self, full: int, quick: int) -> int:
        return quick if self.quick else full


class Measured(NamedTuple):
    """A row: the value, its unit, and what each installed peer reached in the same unit."""

    value: float
    unit: str
    peers: dict[str, float] = {}


def best_s(call: Callable[[], object], repeats: int = REPEATS) -> float:
    """Shortest wall time of a few calls, after one that compiles and fills caches."""
    call()
    times_s = []
    gc.collect()
    for _ in range(repeats):
        began_s = time.perf_counter()
        call()
        times_s.append(time.perf_counter() - began_s)
    return min(times_s)


def output_of(code: str) -> str:
    """What a fresh Python prints; its error is ours."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    if done.returncode:
        why = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        raise TrimtabError(
            f"a fresh {sys.executable} failed: {why[0]}; leave the row out with --only"
        )
    return done.stdout.strip()


@cache
def log(setup: Setup) -> tuple[Workload, Cluster]:
    """The real log, or one like SDSC-SP2."""
    if setup.swf is not None:
        scene = open_scene(setup.swf)
        return scene.workload, scene.cluster
    return inputs.sdsc_like()


def pooled(work: Workload, machine: Cluster, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Start and end of every job by the pool kernel; the queue order is part of the work."""
    rule = parse(name)
    rank = queue_rank(order_keys(work, rule.order))
    none = np.zeros(len(work) + 1, np.int64)
    ptr = none if work.after_ptr is None else work.after_ptr
    idx = none[:0] if work.after_idx is None else work.after_idx
    jobs, run_s, width = work.jobs, work.truth["work_s"], work.demand[:, 0]
    capacity = int(machine.capacity[0, 0])
    return pool.run_pool(
        jobs["submit_s"], run_s, jobs["request_s"], width, rank, capacity, rule.backfill,
        jobs["instances"], ptr, idx,
    )  # fmt: skip


def swf(setup: Setup, name: str) -> Measured:
    work, machine = log(setup)
    found = {}
    if name == "fcfs" and peers.installed("simpy"):
        part = work.window(0, min(len(work), setup.of(10_000, 2_000)))
        columns = part.jobs["submit_s"], part.truth["work_s"], part.demand[:, 0].astype(np.int64)
        capacity = int(machine.capacity[0, 0])
        found["SimPy"] = len(part) / best_s(lambda: peers.simpy_fcfs(*columns, capacity), 2)
    return Measured(len(work) / best_s(lambda: pooled(work, machine, name)), "jobs/s", found)


def shared(setup: Setup, name: str) -> Measured:
    """A log whose jobs share nodes, beside one whose jobs take them whole."""
    rate = {}
    for kind, (work, machine) in (("shared", inputs.gaia_like()), ("whole", log(Setup()))):
        rate[kind] = len(work) / best_s(partial(pooled, work, machine, name))
    return Measured(rate["shared"], "jobs/s", {"whole nodes": rate["whole"]})


def shared_memory(setup: Setup) -> Measured:
    """Such jobs on nodes one by one, in the general engine: what a log with memory asks for."""
    work, machine = inputs.gaia_nodes(setup.of(10_000, 2_000))
    return Measured(len(work) / best_s(lambda: simulate(work, machine, "fcfs"), 2), "jobs/s")


def swf_wfp3_easy(setup: Setup) -> Measured:
    work, machine = log(setup)
    work = work.window(0, min(len(work), setup.of(len(work), 5_000)))
    took_s = best_s(lambda: simulate(work, machine, "wfp3+easy"), setup.of(3, 1))
    return Measured(len(work) / took_s, "jobs/s")


def long_queue_easy(setup: Setup) -> Measured:
    """At load 1.2 the queue grows to tens of thousands of jobs."""
    work, machine = inputs.sdsc_like(setup.of(447_784, 100_000), load=1.2)
    took_s = best_s(lambda: pooled(work, machine, "fcfs+easy"), setup.of(3, 1))
    return Measured(len(work) / took_s, "jobs/s")


def hetero_s(jobs: int, repeats: int, rule: str = HETERO_RULE, **made: Any) -> float:
    """Seconds a job of the mixed-gpu preset in the general engine; `made`: see inputs.mixed."""
    work, machine = inputs.mixed(jobs, **made)
    profile = mixed_gpu_profile()
    return best_s(lambda: simulate(work, machine, rule, profile=profile), repeats) / jobs


def hetero_rules(setup: Setup, rule: str) -> Measured:
    return Measured(1 / hetero_s(3_000, setup.of(5, 2), rule), "jobs/s")


def growth_pool(setup: Setup) -> Measured:
    """Cost of a job at 100 times the jobs where the queue grows with them: EASY at load 1.2."""
    few = setup.of(4_500, 1_000)

    def cost_s(jobs: int, repeats: int) -> float:
        work, machine = inputs.sdsc_like(jobs, load=1.2)
        return best_s(lambda: pooled(work, machine, "fcfs+easy"), repeats) / jobs

    return Measured(cost_s(100 * few, 2) / cost_s(few, 10), "x")


def growth_jobs(setup: Setup, load: float) -> Measured:
    """Cost of a job at 100 times the jobs.

    At load 0.5 hardly a job waits in either trace: what grows is the engine's cost alone. At load
    0.8 the longer trace also has the longer queue: under SJF the large gangs wait on and on.
    """
    few = setup.of(3_000, 200)
    many_s = hetero_s(100 * few, 1, short=True, load=load)
    return Measured(many_s / hetero_s(few, 10, short=True, load=load), "x")


def growth_nodes(setup: Setup) -> Measured:
    """Cost of a job at 10 times the nodes and 10 times the arrivals, without a queue in either."""
    few_s = hetero_s(30_000, setup.of(3, 2), short=True, load=0.5)
    return Measured(hetero_s(30_000, setup.of(3, 2), times=10, short=True, load=0.5) / few_s, "x")


def openb_fgd(setup: Setup) -> Measured:
    rows = order = None
    if setup.pods is None or setup.nodes is None:
        nodes, pods = inputs.openb_like()
    else:
        nodes, pods = openb.read_nodes(setup.nodes), openb.read_pods(setup.pods)
    if setup.order is not None:
        given = openb.read_order(setup.order)
        order, prefix = openb.order_rows(given, pods["name"]), given.node_prefix
        rows = packing.by_prefix(nodes["sn"], nodes["gpu"], prefix)
    arrival = np.arange(len(pods["name"])) if order is None else order
    table, asks = packing.columns(nodes, pods)
    took_s = best_s(lambda: packing.pack(table, asks, arrival, packing.FGD, rows))
    return Measured(len(arrival) / took_s, "pods/s")


def dag(setup: Setup) -> Measured:
    work, machine = inputs.dags()
    tasks = int(work.jobs["instances"].sum())
    return Measured(tasks / best_s(lambda: pooled(work, machine, "fcfs")), "tasks/s")


def busy_snapshot(policy: RulePolicy, waiting: int = 20) -> Snapshot:
    """A mixed-gpu cluster at the first instant at which so many jobs wait."""
    work, machine = inputs.mixed(3_000, load=1.5)
    backend = SimBackend(work, machine, mixed_gpu_profile())
    while backend.wait() is not None:
        for decision in policy.decide(backend.snapshot()):
            backend.apply(decision)
        if len(backend.snapshot().queue) >= waiting:
            break
    return backend.snapshot()


def decide(setup: Setup) -> Measured:
    policy = RulePolicy(HETERO_RULE)
    snapshot = busy_snapshot(policy)
    calls = setup.of(2_000, 300)

    def ask() -> None:
        for _ in range(calls):
            policy.decide(snapshot)

    return Measured(calls / best_s(ask, 3), "decisions/s")


def env_step(setup: Setup, made: dict[str, Any], peer: bool = False) -> Measured:
    """A Python call a step: 256-job episodes, 128 x 8 observation, the first legal action."""
    from trimtab.envs.single import ClusterEnv

    env = ClusterEnv(jobs=256, window=128, **made)
    steps = setup.of(50_000, 10_000)

    def play() -> None:
        _, told = env.reset(seed=0)
        for _ in range(steps):
            _, _, ended, cut, told = env.step(told["action_mask"].argmax())
            if ended or cut:
                _, told = env.reset()

    rate = steps / best_s(play, setup.of(3, 2))
    found = {}
    if peer and peers.installed("hpcsim"):
        found["hpcsim"] = 1024 / best_s(peers.hpcsim_play(1024), setup.of(3, 1))
    return Measured(rate, "steps/s", found)


def env_batched(setup: Setup, threads: int) -> Measured:
    """The same in a batch of 64 clusters on so many threads, choice of the actions included."""
    import numba

    from trimtab.envs.batched import BatchedEnv

    env = BatchedEnv(64, jobs=256, window=128, **log_made(setup))
    calls = setup.of(2_000, 400)

    def play() -> None:
        _, told = env.reset(seed=0)
        for _ in range(calls):
            _, _, _, _, told = env.step(told["action_mask"].argmax(1))

    before = numba.get_num_threads()
    numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))
    try:
        return Measured(64 * calls / best_s(play, 3), "steps/s")
    finally:
        numba.set_num_threads(before)


def log_made(setup: Setup) -> dict[str, Any]:
    """The log as an environment's arguments."""
    work, machine = log(setup)
    return {"workload": work, "cluster": machine}


def hetero_made() -> dict[str, Any]:
    """The mixed-gpu preset as an environment's arguments."""
    work, machine = inputs.mixed(3_000)
    return {"workload": work, "cluster": machine, "profile": mixed_gpu_profile()}


def fresh(jobs: int) -> str:
    """A program that simulates short mixed-gpu jobs and prints its peak resident memory in MB."""
    return f"""
import resource, sys
from trimtab.sim.whole import simulate
from trimtab.traces.scenes.presets import preset
from trimtab.traces.scenes.synthetic import generate

cluster, profile = preset("mixed-gpu")
work = generate("mixed-gpu", jobs={jobs}, load=0.5, median_s=300.0, sigma=0.8, pinned=0.0)
simulate(work, cluster, {HETERO_RULE!r}, profile=profile)
most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(most / 1e6 if sys.platform == "darwin" else most * 1024 / 1e6)  # macOS counts bytes
"""


def memory_1m_jobs(setup: Setup) -> Measured:
    """Peak resident memory of a fresh process in which the general engine runs a million jobs."""
    output_of(fresh(100))  # compiles, where the cache is empty: that takes memory of its own
    return Measured(float(output_of(fresh(1_000_000))), "MB")


def import_s(setup: Setup) -> Measured:
    code = "import time; t = time.perf_counter(); import trimtab; print(time.perf_counter() - t)"
    return Measured(min(float(output_of(code)) for _ in range(setup.of(5, 3))), "s")


def start_up(setup: Setup) -> Measured:
    """From the start of Python to the first result, out of the compiler's cache."""
    return Measured(best_s(lambda: output_of(fresh(100)), setup.of(3, 1)), "s")


BY_NAME: dict[str, Callable[[Setup], Measured]] = {
    "swf-fcfs": lambda setup: swf(setup, "fcfs"),
    "swf-sjf": lambda setup: swf(setup, "sjf"),
    "swf-fcfs-easy": lambda setup: swf(setup, "fcfs+easy"),
    "swf-sjf-easy": lambda setup: swf(setup, "sjf+easy"),
    "swf-wfp3-easy": swf_wfp3_easy,
    "shared-fcfs": lambda setup: shared(setup, "fcfs"),
    "shared-fcfs-easy": lambda setup: shared(setup, "fcfs+easy"),
    "shared-conservative": lambda setup: shared(setup, "fcfs+conservative"),
    "shared-memory": shared_memory,
    "long-queue-easy": long_queue_easy,
    "hetero-rules": lambda setup: hetero_rules(setup, "sjf+fastest"),
    "hetero-easy": lambda setup: hetero_rules(setup, HETERO_RULE),
    "growth-jobs-100x": growth_pool,
    "growth-hetero-100x": lambda setup: growth_jobs(setup, 0.5),
    "growth-hetero-queued": lambda setup: growth_jobs(setup, 0.8),
    "growth-nodes-10x": growth_nodes,
    "openb-fgd": openb_fgd,
    "dag": dag,
    "decide": decide,
    "env-step": lambda setup: env_step(setup, log_made(setup), peer=True),
    "env-step-hetero": lambda setup: env_step(setup, hetero_made()),
    "env-batched": lambda setup: env_batched(setup, 1),
    "env-batched-2-threads": lambda setup: env_batched(setup, 2),
    "memory-1m-jobs": memory_1m_jobs,
    "import": import_s,
    "start-up": start_up,
}
