"""What a run was worth: counters and per-job columns to a flat table of numbers, never NaN.

HyperScore (ADLRO sec. 7) is how a policy stands to a named reference, as one number from 100 to
200. The paper gives the curve and leaves its argument V open: here V is the geometric mean of the
ratios to the reference on the same seed, each turned so that more is better; V = 1 is the
reference. The curve rises everywhere, so it cannot reorder policies by V; print both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trimtab.arrays import Array
from trimtab.core import IN_TIME, Cluster, Profile, Status, Workload
from trimtab.errors import TraceError, UnknownName

RECORDED = "as recorded"  # the policy of a Result that is the log's own starts, with no totals
BOUND_S = 10.0  # jobs shorter than this do not dominate the bounded slow-down
PARTS = ("p50", "p95", "p99")  # percentiles
BLOCK = 8192  # rows added up at a time: fixed, so that no printed digit depends on the machine
# Student's t, 97.5 %, by degrees of freedom 1 .. 30
T_975 = (
    *(12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281),
    *(2.2010, 2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860),
    *(2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484, 2.0452, 2.0423),
)
Z_975 = 1.959964
ABOUT = {
    "jct_mean_s": "seconds from submit to end, finished jobs",
    "wait_mean_s": "seconds from submit to first start",
    "bsld_mean": "bounded slow-down: max(1, (wait + run) / max(run, 10 s))",
    "makespan_s": "from the first submit to the last end",
    "utilization": "allocated share of the GPUs, or of the first resource, over the makespan",
    "span_s": "from the first submit to the last: what is called `arriving` is measured over it",
    "drain_s": "from the last submit to the last end",
    "arriving_utilization": "allocated share of the GPUs, or of the first resource",
    "arriving_useful_utilization": "the same less what slow nodes, start-ups and lost work take",
    "arriving_throughput_per_h": "jobs finished by the last submit, an hour",
    "throughput_per_h": "finished jobs an hour of the makespan",
    "useful_utilization": "finished work as it would run on each job's best node, over capacity",
    "energy_j": "of all nodes from the first submit to the last end, idle draw included",
    "uti": "allocated share of all resources while jobs wait and come, times its useful part",
    "awt_s": "seconds runnable and not running, mean over jobs",
    "ldi": "standard deviation of load between nodes, mean over the time in which jobs come",
    "tsr": f"share of jobs finished in time, never evicted (no deadline: {IN_TIME[0]:g} x request)",
    "harm": "share of what services used that they used on overloaded nodes, where a cluster lends",
    "harm_added": "the same, less what they do to themselves",
    "evictions": "evictions an instance of a batch job, where a cluster lends",
    "lost_work": "share of the work done that no checkpoint kept, where a cluster lends",
    "dag_jct_mean_s": "seconds from the submit of a job's first task to the end of its last",
    "gpu_allocation": "share of the GPUs allocated: time-mean, or at the end of a packing",
    "v": "geometric mean of the ratios to the reference policy; 1 = as good as it, more is better",
    "hyperscore": "100 [1 + (v^5 / (v^5 + 2))^2.1]: v on a scale of 100 to 200, in the same order",
}
HARM = "harm_added"
# what `cost` is made of; what is added keeps a metric near 0 from deciding alone
COSTS = {"awt_s": 1.0, "ldi": 0.0, "dag_jct_mean_s": 0.0, "late": 0.005}
BETA, GAMMA, KAPPA = 5.0, -math.log(2.0), 2.1  # the paper's
BETTER: dict[str, Callable[..., Any]] = {  # what V is made of, and which way it is better
    "jct_mean_s": min,
    "throughput_per_h": max,
    "useful_utilization": max,
    "energy_j": min,
}
Metrics = Mapping[str, Mapping[int, Mapping[str, float]]]  # policy: seed: metric: value


@dataclass(frozen=True)
class Result:
    """One policy on one workload: what happened to every job, and the running totals."""

    policy: str
    seed: int
    workload: Workload
    cluster: Cluster
    state: Array  # (J,) STATE
    totals: Array  # () TOTALS
    log: Array | None = None  # (L,) log rows of the engine, where it was asked to keep them
    decide_s: float = 0.0  # wall time of the run
    semantics: str = "easy"
    order: Array | None = None  # (J,) rows in order of start, where the semantics sum in it
    profile: Profile | None = None  # the speeds that were simulated; None = rate 1 everywhere
    arrived: Array | None = None  # () TOTALS when the last batch job was submitted; None = unknown
    so_far: Array | None = None  # (J,) SO_FAR of that instant
    counters: dict[str, float] = field(default_factory=dict)  # of the policy itself, by name
    footnote: str = ""  # what the policy says of them


def t_975(freedom: int) -> float:
    """Student's t at 97.5 %: tabled to 30 degrees of freedom, then Fisher's expansion around z."""
    if freedom <= len(T_975):
        return T_975[freedom - 1]
    z = Z_975
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return z + first / freedom + second / freedom**2


def interval(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean, and half the width of its 95 % interval; None for fewer than two values."""
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return mean, None
    variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return mean, t_975(len(values) - 1) * math.sqrt(variance / len(values))


def bounded_slowdown(result: Result) -> Array:
    """(J,); a job's run time is what led to its end, without work that was thrown away."""
    state, jobs = result.state, result.workload.jobs
    run_s = np.maximum(ran_s(result), 0.0)
    total_s = state["end_s"] - jobs["submit_s"]
    return np.maximum(1.0, total_s / np.maximum(run_s, BOUND_S))


def ran_s(result: Result) -> Array:
    """Wall seconds each job ran to some use: an instance's, without those thrown away."""
    if result.policy == RECORDED:
        return np.asarray(result.state["end_s"] - result.state["start_s"])
    used_s = result.state["attained_s"] - result.state["wasted_s"]
    return np.asarray(used_s / result.workload.jobs["instances"])


def mean_by_block(values: Array) -> float:
    """Mean summed in blocks of fixed size, in order."""
    blocks = (float(np.add.reduce(values[i : i + BLOCK])) for i in range(0, len(values), BLOCK))
    return sum(blocks) / max(len(values), 1)


def mean_in_order(values: Array, order: Array) -> float:
    """Mean as RLScheduler takes it: each value over the count of jobs, summed as they started."""
    return float(np.cumsum(values[order] / len(values))[-1])


def measure(result: Result) -> dict[str, float]:
    """The metrics by name; times in seconds, ratios 0..1. What cannot be told is left out."""
    state, jobs = result.state, result.workload.jobs
    batch = result.workload.truth["service"] == 0
    done = batch & (state["status"] == Status.FINISHED)
    begun = batch & ~np.isnan(state["start_s"])
    ended = ~np.isnan(state["end_s"]) & batch & begun
    whole = done & ~np.isnan(state["end_s"])  # a log may know of an end without its time
    slow = bounded_slowdown(result)
    slow = slow[whole & ~np.isnan(slow)] if result.order is None else slow[done]
    first_s = float(jobs["submit_s"].min(initial=np.inf))
    makespan_s = float(state["end_s"][ended].max(initial=first_s)) - first_s
    found = {
        **_spread("jct", (state["end_s"] - jobs["submit_s"])[whole], "_s"),
        **_spread("wait", (state["start_s"] - jobs["submit_s"])[begun], "_s"),
        **_spread("bsld", slow),
        **_of_dags(result, whole),
        "makespan_s": makespan_s,
        "throughput_per_h": 3600.0 * float(done.sum()) / makespan_s if makespan_s > 0 else 0.0,
        **_arriving(result, batch, whole),
        **_counts(result, batch),
    }
    if result.order is not None:
        found["bsld_mean"] = mean_in_order(slow, result.order)
    if result.policy != RECORDED:
        found |= {
            "utilization": utilization(result, makespan_s),
            "useful_utilization": useful_utilization(result, makespan_s, done),
            "energy_j": float(result.totals["energy_j"]),
            "gpu_allocation": allocation(result, makespan_s, "gpu"),
            "preemptions": float(state["stops"].sum()),
            "late": float(result.totals["late"]),
            **_papers(result, batch, done),
        }
    return {name: value if np.isfinite(value) else 0.0 for name, value in found.items()}


def _spread(name: str, values: Array, unit: str = "") -> dict[str, float]:
    """Mean, median, high percentiles and the largest."""
    if not len(values):
        return {f"{name}_{part}{unit}": 0.0 for part in ("mean", *PARTS, "max")}
    mean = float(np.mean(values)) if unit else mean_by_block(values)
    parts = dict(zip(PARTS, np.percentile(values, [int(part[1:]) for part in PARTS]).tolist()))
    spread = {"mean": mean, **parts, "max": float(values.max())}
    return {f"{name}_{part}{unit}": value for part, value in spread.items()}


def _of_dags(result: Result, done: Array) -> dict[str, float]:
    """The completion of jobs of several tasks, where a trace says which task is whose."""
    dag = result.workload.meta.get("dag")
    if dag is None:
        return {}
    rows = np.flatnonzero(done & (np.asarray(dag) >= 0))
    if not len(rows):
        return {}
    _, of = np.unique(np.asarray(dag)[rows], return_inverse=True)
    begin_s, end_s = np.full(of.max() + 1, np.inf), np.zeros(of.max() + 1)
    np.minimum.at(begin_s, of, result.workload.jobs["submit_s"][rows])
    np.maximum.at(end_s, of, result.state["end_s"][rows])
    return {"dag_jct_mean_s": _mean(end_s - begin_s)}


def _arriving(result: Result, batch: Array, done: Array) -> dict[str, float]:
    """What holds from the first to the last submit of batch jobs, and how long the rest takes."""
    submit_s, end_s = result.workload.jobs["submit_s"][batch], result.state["end_s"]
    ends_s = end_s[batch & ~np.isnan(end_s)]
    if not len(submit_s):
        return {}
    last_s = float(submit_s.max())
    span_s = last_s - float(submit_s.min())
    found = {
        "span_s": span_s,
        "drain_s": float(ends_s.max(initial=last_s)) - last_s,
    }
    if span_s > 0:
        by_then = float((done & (end_s <= last_s)).sum())
        found["arriving_throughput_per_h"] = 3600.0 * by_then / span_s
        if result.so_far is not None:
            raw, useful = _used(result, batch)
            found["arriving_utilization"] = raw / span_s
            found["arriving_useful_utilization"] = useful / span_s
    return found


def _used(result: Result, batch: Array) -> tuple[float, float]:
    """Seconds of the whole cluster that jobs held by the last submit, and that the work done and
    kept by then would take on each job's best nodes.
    """
    so_far, work = result.so_far, result.workload
    if so_far is None:
        return 0.0, 0.0
    r = result.cluster.resources.index(scarce(result.cluster))
    amount, total = work.demand[:, r], float(result.cluster.capacity[:, r].sum())
    if "procs" in work.meta:
        amount = work.meta["procs"] / work.jobs["instances"]
        total = float(work.meta["max_procs"])
    rate = best_rate(result, r)
    counted = batch & (rate > 0)
    held = float((so_far["held_s"] * amount)[batch].sum())
    done = float((so_far["done_s"] * amount)[counted] @ (1 / rate[counted]))
    return (held / total, done / total) if total > 0 else (0.0, 0.0)


def _counts(result: Result, batch: Array) -> dict[str, float]:
    """How many batch jobs ended in which way."""
    status = result.state["status"][batch]
    return {
        "finished": float((status == Status.FINISHED).sum()),
        "failed": float((status == Status.FAILED).sum()),
        "rejected": float((status == Status.REJECTED).sum()),
        "cancelled": float((status == Status.CANCELLED).sum()),
    }


def _papers(result: Result, batch: Array, done: Array) -> dict[str, float]:
    """UTI, AWT, LDI and TSR of the hierarchy paper, as docs/metrics.md defines them."""
    state, jobs, arrived = result.state, result.workload.jobs, result.arrived
    runnable_s = np.fmax(jobs["submit_s"], state["queued_s"])  # once its parents have finished
    plans, spare_s = result.workload.in_time
    limit_s = np.where(
        np.isfinite(jobs["deadline_s"]),
        jobs["deadline_s"],
        runnable_s + plans * jobs["request_s"] + spare_s,
    )
    in_time = done & (state["end_s"] <= limit_s) & (state["tries"] == 0) & (state["stops"] == 0)
    in_time &= state["evicted"] == 0
    found = {
        "awt_s": _mean(state["waited_s"][batch]),
        "tsr": float(in_time.sum()) / max(int(batch.sum()), 1),
    }
    if arrived is None or not arrived["time_s"] > 0:
        return found
    raw, useful = _used(result, batch)
    found["ldi"] = float(arrived["imbalance_s"]) / float(arrived["time_s"])
    if result.cluster.lending is not None:
        return found | _lent(result, batch, useful)
    share = float(arrived["held_s"]) / max(float(arrived["contended_s"]), 1e-300)
    return found | {"uti": share * (useful / raw if raw > 0 else 1.0)}


def _lent(result: Result, batch: Array, useful_s: float) -> dict[str, float]:
    """What lending gave and cost, over the span of arrivals; `useful_s` of the whole cluster."""
    arrived, work = result.arrived, result.workload
    if arrived is None:
        return {}
    r = result.cluster.resources.index(scarce(result.cluster))
    capacity_s = float(result.cluster.capacity[:, r].sum() * arrived["time_s"])
    served_s = max(float(arrived["service_s"]), 1e-300)
    worked_s = float(arrived["work_s"] + arrived["lost_s"])
    instances = max(int(work.jobs["instances"][batch].sum()), 1)
    return {
        "uti": float(arrived["service_s"]) / capacity_s + useful_s / float(arrived["time_s"]),
        "harm": float(arrived["harmed_s"]) / served_s,
        "harm_added": float(arrived["harmed_s"] - arrived["own_harm_s"]) / served_s,
        "evictions": float(result.state["evicted"][batch].sum()) / instances,
        "lost_work": float(arrived["lost_s"]) / worked_s if worked_s > 0 else 0.0,
    }


def allocation(result: Result, makespan_s: float, resource: str) -> float:
    """Time-mean allocated share of one resource, 0 where the cluster has none."""
    if resource not in result.cluster.resources or makespan_s <= 0:
        return 0.0
    r = result.cluster.resources.index(resource)
    held = float(np.sum(result.state["attained_s"] * result.workload.demand[:, r]))
    total = float(result.cluster.capacity[:, r].sum())
    return held / (makespan_s * total) if total > 0 else 0.0


def utilization(result: Result, makespan_s: float) -> float:
    """Allocated share over the makespan; logs of processors count processors, not whole nodes."""
    meta: dict[str, Any] = result.workload.meta
    if "procs" in meta and makespan_s > 0:
        run_s = result.state["attained_s"] / result.workload.jobs["instances"]
        used = float(np.sum(run_s * meta["procs"]))
        return used / (makespan_s * float(meta["max_procs"]))
    return allocation(result, makespan_s, scarce(result.cluster))


def scarce(cluster: Cluster) -> str:
    """The resource that stands for the cluster: its GPUs, or the first where it has none."""
    return "gpu" if "gpu" in cluster.resources else cluster.resources[0]


def useful_utilization(result: Result, makespan_s: float, done: Array) -> float:
    """Share of capacity x makespan that the jobs in `done` (J,) would take on their best nodes.

    A slow node adds nothing to it, which raw busy time does not say: only an earlier end or more
    finished jobs do.
    """
    meta: dict[str, Any] = result.workload.meta
    r = result.cluster.resources.index(scarce(result.cluster))
    amount = result.workload.demand[:, r] * result.workload.jobs["instances"]
    total = float(result.cluster.capacity[:, r].sum())
    if "procs" in meta:
        amount, total = np.asarray(meta["procs"]), float(meta["max_procs"])
    rate = best_rate(result, r)
    counted = done & (rate > 0)
    needed_s = result.workload.truth["work_s"][counted] * amount[counted] / rate[counted]
    return float(needed_s.sum()) / (makespan_s * total) if makespan_s * total > 0 else 0.0


def best_rate(result: Result, r: int) -> Array:
    """(J,) work seconds a second on the best node kind with resource `r` that each job may use.

    In its best shape, an amount of `r`: twice the rate on twice the GPUs gains nothing. 0 = none.
    """
    jobs, profile, cluster = result.workload.jobs, result.profile, result.cluster
    if profile is None or not len(jobs):
        return np.ones(len(jobs))
    _, first, like = np.unique(jobs["like"], return_index=True, return_inverse=True)
    asks = jobs[first]  # (L,)
    there = np.unique(cluster.nodes["kind"][cluster.capacity[:, r] > 0]).astype(np.uint64)
    shapes = np.arange(len(profile.shapes), dtype=np.uint64)
    one = np.uint64(1)
    on_kind = (asks["node_kinds"][:, None] >> there) & one == one  # (L, T)
    in_shape = (asks["shapes"][:, None] >> shapes) & one == one  # (L, S)
    scale = np.array([shape.scale for shape in profile.shapes])
    rate = profile.rate[asks["kind"]][:, there.astype(np.int64)] / scale  # (L, T, S)
    rate = np.where(on_kind[:, :, None] & in_shape[:, None, :], rate, 0.0)
    return np.asarray(rate.max(axis=(1, 2), initial=0.0)[like])


def _mean(values: Array) -> float:
    return float(np.mean(values)) if len(values) else 0.0


@dataclass(frozen=True)
class Scores:
    """V of every policy and seed that the reference ran too, over the same metrics throughout."""

    reference: str
    metrics: tuple[str, ...]  # that V is made of
    left_out: dict[str, str]  # metric: why V does without it
    v: dict[str, dict[int, float]]  # policy: seed: V; 0 where a policy got nothing done

    def of(self, policy: str, seed: int) -> dict[str, float]:
        """`v` and `hyperscore` as metrics; empty where the reference has no run of that seed."""
        v = self.v.get(policy, {}).get(seed)
        return {} if v is None else {"v": v, "hyperscore": hyperscore(v)}

    def sentence(self) -> str:
        """One sentence on what V is here."""
        out = "; ".join(f"{name} left out: {why}" for name, why in self.left_out.items())
        made = f"V: geometric mean of the ratios to {self.reference} in {', '.join(self.metrics)}"
        return f"{made}; {out}" if out else made


def cost(metrics: Mapping[str, float]) -> float:
    """Mean log of waiting, imbalance, completion time of jobs and tasks not in time."""
    whole_s = metrics.get("dag_jct_mean_s", metrics["jct_mean_s"])
    values = {**metrics, "late": 1.0 - metrics["tsr"], "dag_jct_mean_s": whole_s}
    logs = [math.log(max(values[name] + more, 1e-9)) for name, more in COSTS.items()]
    return math.fsum(logs) / len(logs)


def hyperscore(v: float) -> float:
    """100 [1 + sigmoid(5 ln v - ln 2)^2.1]: 100 at v = 0, 110 at 1, below 200 for any v."""
    if not v >= 0:
        raise ValueError(f"hyperscore: v={v} is not a number >= 0; v is a mean of ratios")
    if v == 0:
        return 100.0
    x = BETA * math.log(v) + GAMMA
    # each form where its exponential cannot overflow
    sigmoid = 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))
    return 100 * (1 + sigmoid**KAPPA)


def v_of(
    ours: Mapping[str, float], reference: Mapping[str, float], metrics: Sequence[str]
) -> float:
    """V: the geometric mean of our ratios to the reference, 0 where we got nothing done."""
    if any(ours[name] == 0 for name in metrics if BETTER[name] is max):
        return 0.0
    logs = [
        math.log(ours[name] / reference[name]) * (1 if BETTER[name] is max else -1)
        for name in metrics
    ]
    return math.exp(math.fsum(logs) / len(logs))


def scores(metrics: Metrics, reference: str) -> Scores:
    """V of every policy, seed by seed.

    Raises UnknownName where the reference has no result, TraceError where it got nothing done.
    """
    if not metrics.get(reference):
        raise UnknownName(
            f"hyperscore reference {reference!r} has no result; known: {', '.join(metrics)}"
        )
    base = metrics[reference]
    paired = {
        policy: {seed: ours for seed, ours in by_seed.items() if seed in base}
        for policy, by_seed in metrics.items()
    }
    rows = [(ours, base[seed]) for by_seed in paired.values() for seed, ours in by_seed.items()]
    reasons = {name: _unusable(name, rows) for name in BETTER}
    used = tuple(name for name in BETTER if not reasons[name])
    for seed, theirs in base.items():
        if not used or theirs.get("throughput_per_h", 1.0) == 0:
            raise TraceError(
                f"hyperscore reference {reference} finished no job with seed {seed}, "
                "so nothing can be a ratio to it; choose another reference"
            )
    return Scores(
        reference=reference,
        metrics=used,
        left_out={name: why for name, why in reasons.items() if why},
        v={
            policy: {seed: v_of(ours, base[seed], used) for seed, ours in by_seed.items()}
            for policy, by_seed in paired.items()
        },
    )


def _unusable(name: str, rows: Sequence[tuple[Mapping[str, float], Mapping[str, float]]]) -> str:
    """Why no ratio of this metric can be taken, "" where it can.

    One answer for all policies: two V over different metrics do not compare.
    """
    ours, theirs = [[side.get(name, 0.0) for side in sides] for sides in zip(*rows)]
    if not any(ours) and not any(theirs):
        return "zero or not measured"
    if not all(theirs):
        return "zero for the reference"
    # least is best of these, but 0 where nothing was done is not
    working = [mine for mine, (row, _) in zip(ours, rows) if row.get("throughput_per_h", 1.0) > 0]
    return "zero for a policy" if BETTER[name] is min and not all(working) else ""


def mean_v(values: Sequence[float]) -> tuple[float, float | None, float | None]:
    """Geometric mean of V over seeds, and the ends of its 95 % interval, which is one of ln V.

    None for the ends with one seed, or where some V is 0 and has no logarithm.
    """
    if min(values) == 0:
        return 0.0, None, None
    middle, half = interval([math.log(v) for v in values])
    if half is None:
        return math.exp(middle), None, None
    return math.exp(middle), math.exp(middle - half), _exp(middle + half)


def _exp(x: float) -> float:
    """exp, held below infinity: two seeds far apart have an interval of any width."""
    return math.exp(min(x, 700.0))
