"""Several policies on one scene, seed by seed: the engine of `trimtab compare` and of reports."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from trimtab.arrays import Array
from trimtab.build import workload
from trimtab.columns import STATE, TOTALS
from trimtab.comparison import Question
from trimtab.core import Cluster, Policy, Status
from trimtab.errors import TraceError, UnknownName
from trimtab.metrics import Result, measure
from trimtab.play import check_suits, own_words, play
from trimtab.policies import check, named
from trimtab.policies.packer.lists import packer_of
from trimtab.policies.rollout import pivots
from trimtab.policies.rollout.policy import RolloutPolicy
from trimtab.recorded import as_recorded
from trimtab.rules.names import unknown
from trimtab.sim import packing, rlscheduler
from trimtab.sim.whole import ended_state, pool_arrived, pool_totals
from trimtab.sim.world import Models, hosted, outages
from trimtab.traces.openb.lists import drawn_pods, openb_nodes, published_mix
from trimtab.traces.openb.orders import PUBLISHED_LOAD, drawn_order
from trimtab.traces.readers import openb
from trimtab.traces.readers.bad_rows import tolerance
from trimtab.traces.scenes.scene import Scene, open_scene

PACKERS = packing.BY_NAME
BOTH = "packer"  # a packer that is a policy of clusters in time too
DRAWN, GENERATED = "drawn", "openb"  # an order, and a trace, made from the seed
Told = Callable[[str, int, int], None]  # policy, jobs ended, jobs in all


def answers(question: Question, told: Told | None = None) -> Iterator[Result]:
    """One result a (seed, policy), as soon as each is finished."""
    check_names(question)
    if packs(question):
        yield from packed(question)
        return
    ours = question.semantics != "rlscheduler"
    for seed in range(question.first_seed, question.first_seed + question.seeds):
        # made before the trace is read: what cannot be made ends it before anything has run
        made = [named(name, seed) for name in question.policies] if ours else []
        scene = open_scene(
            question.trace,
            question.cluster,
            seed=seed,
            start=question.start,
            jobs=question.jobs,
            estimate=question.estimate,
            lenient=tolerance(question.lenient, question.strict),
            load=question.load,
            gpu_jobs=question.gpu_jobs,
            nodes=question.nodes or (None if ours else "whole"),  # RLScheduler's own rule
            machine=question.machine,
        )
        if question.lenient:
            scene = scene._replace(workload=hosted(scene.workload, scene.cluster))
        for policy in made:
            check_suits(policy, scene)
        for number, name in enumerate(question.policies):
            if ours:
                yield by_engine(scene, name, seed, question, told, made[number])
            else:
                yield by_rlscheduler(scene, name, seed, question.estimate)
    recorded = as_recorded(scene.workload, scene.cluster, question.first_seed)
    if recorded is not None:  # the same for every seed; last, for it is no run
        yield recorded


def packs(question: Question) -> bool:
    """Whether pods are packed in an order and never leave, in place of a replay in time."""
    given = question.order is not None or question.trace == GENERATED
    return given or any(map(only_packs, question.policies))


def only_packs(name: str) -> bool:
    return name in PACKERS and name != BOTH


def check_names(question: Question) -> None:
    """Raise before anything runs: an unknown name, or names that do not go together."""
    if question.seeds < 1:
        raise TraceError(f"--seeds {question.seeds} leaves nothing to run; give 1 or more")
    if question.semantics == "rlscheduler":
        for name in question.policies:
            if not is_rollout(name):
                rlscheduler_rule(name)
            else:
                check(name)
        return
    if question.semantics != "easy":
        raise UnknownName(
            unknown("semantics", question.semantics, question.semantics, ["easy", "rlscheduler"])
        )
    if packs(question):
        for name in question.policies:
            if name.partition(":")[0] == BOTH:
                check(name)
            elif name not in PACKERS:
                raise UnknownName(unknown("packing policy", name, name, PACKERS))
        return
    for name in question.policies:
        check(name)


def by_engine(
    scene: Scene,
    name: str,
    seed: int,
    question: Question,
    told: Told | None,
    policy: Policy | None = None,
) -> Result:
    """One policy on the engine; `policy` is the one of that name, where it is made already."""
    jobs = len(scene.workload)

    def progress(ended: int) -> None:
        if told:
            told(name, ended, jobs)

    models = models_of(question, scene, seed)
    return play(
        policy or named(name, seed), scene, models, seed=seed, label=name, log=question.log,
        progress=progress,
    )  # fmt: skip


def models_of(question: Question, scene: Scene, seed: int) -> Models:
    """The engine's models for one seed; failures are drawn once, the same for every policy."""
    models = Models(
        startup_s=question.startup_s,
        move_s=question.move_s,
        live_migration=question.live_migration,
    )
    if question.mtbf_s is None:
        return models
    work = scene.workload
    horizon_s = 2 * float(work.jobs["submit_s"][-1] + work.truth["work_s"].max())
    rng = np.random.default_rng([seed, 1])
    drawn = outages(scene.cluster, horizon_s, rng, mtbf_s=question.mtbf_s, mttr_s=question.mttr_s)
    return replace(models, outages=drawn)


def is_rollout(name: str) -> bool:
    """Whether it is the one policy that can pick jobs under RLScheduler's semantics too."""
    return name.partition(":")[0] in ("rollout", "rollout+easy")


def rlscheduler_rule(name: str) -> tuple[int, bool]:
    """(policy code, backfill) of a name under RLScheduler's semantics."""
    base, *parts = name.split("+")
    if base not in rlscheduler.POLICIES:
        raise UnknownName(
            unknown("policy under rlscheduler semantics", name, base, rlscheduler.POLICIES)
        )
    for part in parts:
        if part not in ("easy", "none"):
            raise UnknownName(
                unknown("backfill under rlscheduler semantics", name, part, ["easy", "none"])
            )
    return rlscheduler.POLICIES[base], "easy" in parts


def by_rlscheduler(scene: Scene, name: str, seed: int, estimate: str) -> Result:
    """RLScheduler's own semantics: one job picked at a time, which blocks until it fits."""
    work, cluster = scene.workload, scene.cluster
    if len(cluster) != 1 or len(cluster.resources) != 1:
        raise TraceError(
            f"{scene.name}: rlscheduler semantics know one pool of processors, not "
            f"{len(cluster)} nodes with {', '.join(cluster.resources)}; "
            "use an SWF log or --semantics easy"
        )
    if work.quotas is not None or len(cluster.gates):
        raise TraceError(
            f"{scene.name}: rlscheduler semantics know no limits and reservations of a site; "
            "use --semantics easy"
        )
    width = (work.demand[:, 0] * work.jobs["instances"]).astype(np.int64)
    request_s = work.jobs["request_s"]
    if estimate == "requested":
        request_s = work.meta.get("request_logged_s", request_s)
    procs, capacity = work.meta.get("procs", width), int(cluster.capacity[0, 0])
    policy = named(name, seed) if is_rollout(name) else None
    began_s = time.perf_counter()
    if isinstance(policy, RolloutPolicy):
        start_s, order = pivots.schedule(work, capacity, policy, request_s)
    else:
        code, backfill = rlscheduler_rule(name)
        start_s, order = rlscheduler.schedule(
            work.jobs["submit_s"], work.truth["work_s"], request_s, procs, capacity, code, backfill,
            width,
        )  # fmt: skip
    wall_s = time.perf_counter() - began_s
    state = ended_state(work, start_s, start_s + work.truth["work_s"])
    totals = pool_totals(work, state, capacity)
    arrived, so_far = pool_arrived(work, state, capacity)
    return Result(
        name, seed, work, cluster, state, totals, None, wall_s, "rlscheduler", order,
        arrived=arrived, so_far=so_far, **({} if policy is None else own_words(policy)),
    )  # fmt: skip


def packed(question: Question) -> Iterator[Result]:
    """Fill an openb cluster pod by pod; pods never leave. In a given order, as listed, or in one
    drawn by the seed: of a list, or with the list.
    """
    listed = question.trace != GENERATED
    if listed and question.cluster is None:
        raise TraceError(f"{question.trace}: packing needs the nodes: give --cluster NODES.csv")
    if not listed and (question.cluster is not None or question.order is not None):
        option = "--order" if question.cluster is None else "--cluster"
        raise TraceError(f"{GENERATED}: its nodes and order are made; leave {option} out")
    if question.load is not None and listed and question.order != DRAWN:
        raise TraceError(
            f"--load {question.load:g}: a list in a given order asks for what it asks for; add "
            f"--order {DRAWN}, which adds pods or drops some until the load is met"
        )
    of = [(name, *packer_of(name)) for name in question.policies]
    for seed in range(question.first_seed, question.first_seed + question.seeds):
        nodes, pods, arrival, prefix = pods_of(question, seed)
        arrival = arrival[question.start :][: question.jobs]
        table, shapes = packing.columns(nodes, pods)
        rows = packing.by_prefix(nodes["sn"], nodes["gpu"], prefix)
        cluster = openb.cluster_of(nodes, str(question.cluster or GENERATED))
        for name, code, weights in of:
            began_s = time.perf_counter()
            rng = np.random.default_rng(seed)
            done = packing.pack(table, shapes, arrival, code, rows, rng, weights=weights)
            wall_s = time.perf_counter() - began_s
            yield packing_result(name, seed, pods, arrival, done, cluster, question, wall_s)


def pods_of(
    question: Question, seed: int
) -> tuple[dict[str, Array], dict[str, Array], Array, Array | None]:
    """Nodes, pods, order of arrival and what breaks ties."""
    load = PUBLISHED_LOAD if question.load is None else question.load
    if question.trace == GENERATED:
        nodes, rng = openb_nodes(), np.random.default_rng(seed)
        pods = drawn_pods(nodes, published_mix(), rng, load)
        return nodes, pods, np.arange(len(pods["name"])), rng.permutation(len(nodes["sn"]))
    assert question.cluster is not None
    nodes, pods = openb.read_nodes(question.cluster), openb.read_pods(question.trace)
    if question.order is None:
        return nodes, pods, np.arange(len(pods["name"])), None
    if question.order == DRAWN:
        given = drawn_order(nodes, pods, seed, load)
    else:
        given = openb.read_order(question.order)
    return nodes, pods, openb.order_rows(given, pods["name"]), given.node_prefix


def packing_result(
    name: str, seed: int, pods: dict[str, Array], arrival: Array, done: packing.Packing,
    cluster: Cluster, question: Question, wall_s: float,
) -> Result:  # fmt: skip
    """A packing as a result: arrival i happens at second i, and what is placed stays to the end."""
    count = len(arrival)
    gpus = pods["num_gpu"][arrival]
    share = np.where(gpus == 1, pods["gpu_milli"][arrival] / 1000, 1.0)
    demand = np.stack(
        (pods["cpu_milli"][arrival] / 1000, pods["memory_mib"][arrival] / 1024, gpus * share), 1
    )
    submit_s = np.arange(count, dtype=np.float64)
    work = workload(
        submit_s, count - submit_s, demand, resources=openb.RESOURCES, gpus=gpus, gpu_share=share,
        source=str(question.trace), meta={"packing": done, "order": question.order or "as listed"},
    )  # fmt: skip
    state = np.zeros(count, STATE)
    placed = done.node >= 0
    state["status"] = np.where(placed, Status.FINISHED, Status.REJECTED)
    state["start_s"] = np.where(placed, submit_s, np.nan)
    state["end_s"] = np.where(placed, float(count), submit_s)
    state["attained_s"] = np.where(placed, count - submit_s, 0.0)
    totals = np.zeros(1, TOTALS)
    totals["finished"], totals["rejected"] = placed.sum(), (~placed).sum()
    return Result(name, seed, work, cluster, state, totals[0], None, wall_s, "packing")


def metrics_of(result: Result) -> dict[str, float]:
    """The metrics of a result; a packing has its own few."""
    if result.semantics != "packing":
        return measure(result)
    done: packing.Packing = result.workload.meta["packing"]
    last = int(done.arrived_gpu_milli[-1]) if len(done.arrived_gpu_milli) else 0
    return {
        "gpu_allocation": done.gpu_allocation,
        "gpu_fragmented": float(done.frag_gpu_milli[-1]) / max(done.capacity_gpu_milli, 1),
        "gpu_arrived": last / max(done.capacity_gpu_milli, 1),
        "placed": float((done.node >= 0).sum()),
        "dropped": float((done.node < 0).sum()),
    }


def as_json(
    result: Result, trace: str, measured: Callable[[Result], Mapping[str, float]] = metrics_of
) -> dict[str, Any]:
    row = {
        "policy": result.policy,
        "trace": trace,
        "seed": result.seed,
        "metrics": measured(result),
    }
    return row | ({"counters": result.counters} if result.counters else {})
