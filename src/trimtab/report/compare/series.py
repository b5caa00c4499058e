"""Time series and distributions of a Result: from its log, or from its job states without one.

A run ends at the first log row after its start that ends its job, that stops the run, or that uses
its slot again. The log does not say when one run of an array ends while others go on: each is taken
to last the array's mean wall time an instance, which is exact where all run at one speed.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.core import Profile, Status, What
from trimtab.metrics import RECORDED, Result, bounded_slowdown
from trimtab.sim.log import MOVED, PREEMPTED, RESIZED
from trimtab.units import axis_unit

PIECES = np.dtype(
    [
        ("start_s", "f8"),
        ("end_s", "f8"),
        ("job", "i8"),
        ("node", "i8"),
        ("count", "i8"),  # instances
        ("shape", "i8"),
        ("end_row", "i8"),  # of the log; its length where no row ends it
    ]
)
DOWN = np.dtype([("start_s", "f8"), ("end_s", "f8"), ("node", "i8")])
LEAST_TAIL = 0.002  # of the span: a shorter drain is no wider than a line
ENDS = (What.FINISHED, What.STOPPED, What.REJECTED, What.FAILED)


class Steps(NamedTuple):
    """A step function: `value[i]` holds from `time_s[i]` to the next time, 0 before the first."""

    time_s: Array  # (T,) strictly rising
    value: Array  # (T,)


class Span(NamedTuple):
    """The time axis of a page: from the first submit past the last arrival to the last event."""

    first_s: float
    arrived_s: float
    last_s: float
    unit: tuple[float, str]  # seconds, name

    @property
    def drains(self) -> bool:
        """Whether jobs end after the last arrival, long enough for it to be seen.

        Jobs that all arrive at once have no time of arrivals that a drain could follow.
        """
        tail_s = self.last_s - self.arrived_s
        return self.arrived_s > self.first_s and tail_s > LEAST_TAIL * (self.last_s - self.first_s)


def span_of(results: Iterable[Result]) -> Span:
    """One span for all of them."""
    results = list(results)
    spans = [span_s(result) for result in results]
    first_s, last_s = min(first for first, _ in spans), max(last for _, last in spans)
    arrived_s = max(float(result.workload.jobs["submit_s"].max()) for result in results)
    return Span(first_s, arrived_s, last_s, axis_unit(last_s - first_s))


def steps(time_s: Array, change: Array) -> Steps:
    """The running sum of changes, in any order of time."""
    turn = np.argsort(time_s, kind="stable")
    time_s, value = time_s[turn], np.cumsum(change[turn])
    last = np.concatenate((np.diff(time_s) > 0, [True])) if len(time_s) else np.zeros(0, bool)
    return Steps(time_s[last], value[last])


def averaged(of: Steps, edges_s: Array) -> Array:
    """(B,) exact time means between neighbouring edges."""
    if not len(of.time_s):
        return np.zeros(len(edges_s) - 1)
    area = np.concatenate(([0.0], np.cumsum(of.value[:-1] * np.diff(of.time_s))))
    row = np.searchsorted(of.time_s, edges_s, side="right") - 1
    at = np.maximum(row, 0)
    beyond_s = np.where(row < 0, 0.0, edges_s - of.time_s[at])
    return np.diff(area[at] + of.value[at] * beyond_s) / np.diff(edges_s)


def span_s(result: Result) -> tuple[float, float]:
    """From the first submit to the last thing that happened."""
    first_s = float(result.workload.jobs["submit_s"].min())
    ends = result.state["end_s"]
    last_s = float(np.max(ends[np.isfinite(ends)], initial=first_s))
    if result.log is not None and len(result.log):
        last_s = max(last_s, float(result.log["time_s"][-1]))
    return first_s, last_s


def pieces(result: Result) -> Array:
    """(P,) PIECES: what ran where and from when until when, in order of start. Needs the log."""
    log = _log(result)
    rows = np.flatnonzero((log["what"] == What.STARTED) & (log["job"] >= 0))
    job, run = log["job"][rows], log["run"][rows]
    same = (np.diff(rows) == 1) & (np.diff(run) == 0) & (np.diff(job) == 0)
    same &= (np.diff(log["time_s"][rows]) == 0) & (np.diff(log["reason"][rows]) == 0)
    first = rows[np.concatenate(([True], ~same))] if len(rows) else rows
    closes = np.isin(log["what"], ENDS) & (log["job"] >= 0)
    of_job = np.flatnonzero(closes & (log["run"] < 0))
    of_run = np.sort(np.concatenate((np.flatnonzero(closes & (log["run"] >= 0)), first)))
    out = np.zeros(len(rows), PIECES)
    out["job"], out["node"], out["count"] = job, log["node"][rows], log["count"][rows]
    out["shape"], out["start_s"] = log["shape"][rows], log["time_s"][rows]
    out["end_row"] = np.minimum(
        _next_row(job, rows, log["job"][of_job], of_job, len(log)),
        _next_row(run, rows, log["run"][of_run], of_run, len(log)),
    )
    time_s = np.concatenate((log["time_s"], [span_s(result)[1]]))
    out["end_s"] = np.minimum(time_s[out["end_row"]], _array_end_s(result, out))
    return out


def _log(result: Result) -> Array:
    if result.log is None:
        raise ValueError(f"{result.policy}: the result has no log; simulate with log=True")
    return result.log


def _next_row(group: Array, row: Array, other_group: Array, other_row: Array, rows: int) -> Array:
    """For each (group, row) the first other row of the same group behind it, or `rows`."""
    key = np.sort(other_group * rows + other_row)
    at = np.searchsorted(key, group * rows + row, side="right")
    found = np.concatenate((key, [-1]))[at]
    return np.where((found >= 0) & (found // max(rows, 1) == group), found % max(rows, 1), rows)


def _array_end_s(result: Result, found: Array) -> Array:
    """The latest end of each piece by its array's mean run, inf for jobs that run as one."""
    jobs, state = result.workload.jobs, result.state
    one_by_one = (
        (jobs["gang"] == 0) & (jobs["instances"] > 1) & (state["status"] == Status.FINISHED)
    )
    run_s = np.where(one_by_one, state["attained_s"] / jobs["instances"], np.inf)
    return found["start_s"] + run_s[found["job"]]


def downtime(result: Result) -> Array:
    """(D,) DOWN: when nodes were down, from the log; none without one."""
    if result.log is None:
        return np.zeros(0, DOWN)
    log = result.log
    down = np.flatnonzero((log["what"] == What.FAILED) & (log["job"] < 0))
    up = np.flatnonzero((log["what"] == What.STARTED) & (log["job"] < 0))
    out = np.zeros(len(down), DOWN)
    out["node"], out["start_s"] = log["node"][down], log["time_s"][down]
    back = _next_row(log["node"][down], down, log["node"][up], up, len(log))
    out["end_s"] = np.concatenate((log["time_s"], [span_s(result)[1]]))[back]
    return out


def queue_length(result: Result) -> Steps:
    """Jobs that could run and do not; an array waits until its last instance has started."""
    ready_s, log = _ready_s(result), result.log
    if log is None:
        state = result.state
        until_s = np.where(np.isnan(state["start_s"]), state["end_s"], state["start_s"])
        until_s = np.where(np.isnan(until_s), span_s(result)[1], until_s)
        one = np.ones(len(ready_s))
        if (
            result.policy == RECORDED
        ):  # a log may leave out when a job started, which then tells nothing
            one = np.where(np.isnan(state["start_s"]), 0.0, 1.0)
        return steps(
            np.concatenate((np.minimum(ready_s, until_s), until_s)), np.concatenate((one, -one))
        )
    ran = pieces(result)
    start = (log["what"] == What.STARTED) & ~np.isin(log["reason"], (MOVED, RESIZED))
    left = np.where(start, -log["count"], 0)
    ended_by = log[np.minimum(ran["end_row"], len(log) - 1)]
    returned = (ran["end_row"] < len(log)) & (ended_by["what"] == What.STOPPED)
    returned &= (ended_by["run"] >= 0) | (ended_by["reason"] == PREEMPTED)
    returned &= ran["end_s"] == ended_by["time_s"]  # a run of an array may be over by then
    np.add.at(left, ran["end_row"][returned], ran["count"][returned])
    final = np.isin(log["what"], ENDS) & (log["run"] < 0) & (log["reason"] != PREEMPTED)
    rows = np.flatnonzero(log["job"] >= 0)
    rows = rows[np.argsort(log["job"][rows], kind="stable")]
    job, submitted = log["job"][rows], log["what"][rows] == What.SUBMITTED
    needs = result.workload.jobs["instances"][job] + _sum_by(job, left[rows])
    waits = (_sum_by(job, submitted) > 0) & (_sum_by(job, final[rows]) == 0) & (needs > 0)
    before = np.concatenate(([False], waits[:-1])) & np.concatenate(([False], np.diff(job) == 0))
    time_s = np.where(submitted, ready_s[job], log["time_s"][rows])
    return steps(time_s, waits.astype(np.int64) - before)


def _sum_by(job: Array, change: Array) -> Array:
    """Running sums that begin anew with every job; `job` is sorted."""
    total = np.cumsum(change)
    first = np.flatnonzero(np.concatenate(([True], np.diff(job) != 0))) if len(job) else job
    start = np.concatenate(([0], total))[first]
    return total - np.repeat(start, np.diff(np.concatenate((first, [len(job)]))))


def _ready_s(result: Result) -> Array:
    """(J,) when a job is submitted and the jobs it waits for have ended."""
    work, end_s = result.workload, result.state["end_s"]
    ready_s = work.jobs["submit_s"].copy()
    if work.after_ptr is not None and work.after_idx is not None and len(work.after_idx):
        child = np.repeat(np.arange(len(work)), np.diff(work.after_ptr))
        parent_s = end_s[work.after_idx]
        np.maximum.at(ready_s, child, np.where(np.isnan(parent_s), np.inf, parent_s))
    # withdrawn, or failed with a parent, before it could run: it never waits
    return np.fmin(np.fmin(ready_s, end_s), span_s(result)[1])


def measured_resource(result: Result) -> str:
    """What utilisation counts: processors of an SWF log, GPUs, or else the first resource."""
    if "procs" in result.workload.meta:
        return "processor"
    names = result.cluster.resources
    return "gpu" if "gpu" in names else names[0]


def amounts(result: Result) -> tuple[Array, Array]:
    """(J,) what an instance holds of the measured resource, and (N,) what each node has of it."""
    work, machine, name = result.workload, result.cluster, measured_resource(result)
    if name == "processor":
        capacity = machine.capacity[:, 0]
        return work.meta["procs"] / work.jobs["instances"], capacity * (
            work.meta["max_procs"] / capacity.sum()
        )
    capacity = machine.capacity[:, machine.resources.index(name)]
    if name not in work.resources:
        return np.zeros(len(work)), capacity
    return work.demand[:, work.resources.index(name)], capacity


def allocated(
    result: Result, node_kind: int | Sequence[int] | None = None, scale: Array | None = None
) -> Steps | None:
    """Allocated share of the measured resource, of all nodes or of one kind or some.

    `scale` is that of the profile's shapes, 1 where not given. Without a log a job holds its nodes
    from its first start to its end, and kinds are not told apart: None for one of several.
    """
    each, capacity = amounts(result)
    inside = (
        np.ones(len(capacity), bool)
        if node_kind is None
        else np.isin(result.cluster.nodes["kind"], node_kind)
    )
    total = float(capacity[inside].sum())
    if result.log is None:
        return _allocated_by_state(result, each, total) if inside.all() and total > 0 else None
    if total <= 0:
        return None
    ran = pieces(result)
    ran = ran[inside[ran["node"]]]
    amount = each[ran["job"]] * ran["count"] * _scale(scale, ran)
    return _share(ran["start_s"], ran["end_s"], amount, total)


def _share(start_s: Array, end_s: Array, amount: Array, total: float) -> Steps:
    """Divided last: sums of quantised amounts are exact, so an empty cluster is at 0."""
    found = steps(np.concatenate((start_s, end_s)), np.concatenate((amount, -amount)))
    return Steps(found.time_s, found.value / total)


def _allocated_by_state(result: Result, each: Array, total: float) -> Steps:
    state = result.state
    begun = ~np.isnan(state["start_s"])
    amount = (each * result.workload.jobs["instances"])[begun]
    end_s = np.where(np.isnan(state["end_s"]), span_s(result)[1], state["end_s"])[begun]
    return _share(state["start_s"][begun], end_s, amount, total)


def _scale(scale: Array | None, ran: Array) -> Array | float:
    return 1.0 if scale is None else np.asarray(scale)[ran["shape"]]


def power(result: Result, profile: Profile | None = None) -> Steps | None:
    """Watts of all nodes; None without a log or a power model.

    Without a profile every job draws by its use alone. Services are taken at their mean use, not by
    their pattern. The integral can be held against the totals: `power_error`.
    """
    nodes = result.cluster.nodes
    if result.log is None or not nodes["peak_w"].any():
        return None
    work, ran, down = result.workload, pieces(result), downtime(result)
    index = [
        work.resources.index(r) if r in work.resources else -1 for r in result.cluster.resources
    ]
    driver = np.array(index)[nodes["driver"][ran["node"]]]
    demand = np.where(driver >= 0, work.demand[ran["job"], driver], 0.0)
    capacity = result.cluster.capacity[ran["node"], nodes["driver"][ran["node"]]]
    used = demand * ran["count"] * work.truth["use"][ran["job"]]
    draw = np.divide(used, capacity, out=np.zeros(len(ran)), where=capacity > 0)
    if profile is not None:
        draw = draw * profile.draw[work.jobs["kind"][ran["job"]], nodes["kind"][ran["node"]]]
        draw = draw * _scale(np.array([shape.scale for shape in profile.shapes]), ran)
    zero, one, all_up = np.zeros(len(ran)), np.ones(len(down)), np.ones(len(nodes))
    start_s = np.full(len(nodes), min(0.0, span_s(result)[0]))
    time_s = np.concatenate((start_s, ran["start_s"], ran["end_s"], down["start_s"], down["end_s"]))
    node = np.concatenate(
        (np.arange(len(nodes)), ran["node"], ran["node"], down["node"], down["node"])
    )
    draws = np.concatenate((0 * all_up, draw, -draw, 0 * one, 0 * one))
    ups = np.concatenate((all_up, zero, zero, -one, one))
    turn = np.lexsort((time_s, node))
    node, time_s = node[turn], time_s[turn]
    level = np.clip(_sum_by(node, draws[turn]), 0.0, 1.0)
    idle_w, peak_w = nodes["idle_w"][node], nodes["peak_w"][node]
    watts = (_sum_by(node, ups[turn]) > 0) * (idle_w + (peak_w - idle_w) * level)
    before = np.concatenate(([0.0], watts[:-1])) * np.concatenate(([False], np.diff(node) == 0))
    return steps(time_s, watts - before)


def power_error(result: Result, of: Steps) -> float:
    """How far the integral of a power series is from the metered energy, as a share of that."""
    metered_j = float(result.totals["energy_j"])
    first_s = float(result.workload.jobs["submit_s"].min(initial=np.inf))
    edges_s = first_s + np.array([0.0, float(result.totals["time_s"])])
    if metered_j <= 0 or not edges_s[1] > edges_s[0]:
        return np.inf
    return abs(float(averaged(of, edges_s)[0] * np.diff(edges_s)[0]) / metered_j - 1.0)


def lanes(
    start_s: Array, end_s: Array, width: Array, capacity: float
) -> tuple[Array, Array, Array]:
    """Lay intervals of a width side by side in 0 .. capacity: (row, low, high) of each part.

    In order of start, each takes the lowest gap that holds it whole, or else the lowest gaps. What
    does not fit is left out; widths booked within the capacity all fit.
    """
    free = [(0.0, float(capacity))]
    ends: list[tuple[float, int, float, float]] = []
    told: list[tuple[int, float, float]] = []
    for row in np.lexsort((np.arange(len(start_s)), start_s)).tolist():
        now_s, need = float(start_s[row]), float(width[row])
        while ends and ends[0][0] <= now_s + 1e-9 * abs(now_s):  # ends of arrays carry rounding
            _, _, low, high = heapq.heappop(ends)
            free = _merged(free, low, high)
        whole = next((gap for gap in free if gap[1] - gap[0] >= need), None)
        for low, high in [whole] if whole else list(free):
            top = min(high, low + need)
            if need <= 0 or top <= low:
                break
            free.remove((low, high))
            if top < high:
                free = _merged(free, top, high)
            told.append((row, low, top))
            heapq.heappush(ends, (float(end_s[row]), row, low, top))
            need -= top - low
    table = np.array(told, dtype=np.float64).reshape(-1, 3)
    return table[:, 0].astype(np.int64), table[:, 1], table[:, 2]


def _merged(free: list[tuple[float, float]], low: float, high: float) -> list[tuple[float, float]]:
    """The gaps, lowest first, with one more that may touch its neighbours."""
    out: list[tuple[float, float]] = []
    for gap in sorted([*free, (low, high)]):
        if out and gap[0] <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], gap[1]))
        else:
            out.append(gap)
    return out


def waits_s(result: Result) -> Array:
    """Seconds from submit to first start, of the batch jobs that started."""
    wait_s = result.state["start_s"] - result.workload.jobs["submit_s"]
    return wait_s[(result.workload.truth["service"] == 0) & ~np.isnan(wait_s)]


def slowdowns(result: Result) -> Array:
    """Bounded slow-down of the batch jobs that finished."""
    done = (result.workload.truth["service"] == 0) & (result.state["status"] == Status.FINISHED)
    return bounded_slowdown(result)[done]


def ecdf(values: Array) -> tuple[Array, Array]:
    """Distinct values in rising order, and the share of all that is at most each."""
    found, count = np.unique(values, return_counts=True)
    return found, np.cumsum(count) / max(len(values), 1)
