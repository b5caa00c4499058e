"""What is believed of a cluster, in the shape of a snapshot: jobs, runs, and what is booked where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trimtab.core import NODE_STATE, PIECE, RUN, STATE, TOTALS, Array, Snapshot, Status
from trimtab.rules.fit import allowed, amount, choose_devices, take
from trimtab.rules.world import World, compiled

MEASURED = ("load", "used", "draw", "power_w", "energy_j", "load_s", "window_s", "since_s")
COUNTED = ("energy_j", "work_s", "lost_s", "quality")


@dataclass(eq=False)
class Held:
    """A run that is believed to hold its places. `sure` once the cluster has said so."""

    job: int
    nodes: tuple[int, ...]
    devices: tuple[int, ...]  # a bit mask an instance, 0 = no GPU
    shape: int = 0
    start_s: float = np.nan  # when it was promised, until the cluster says when it began
    expected_end_s: float = np.inf
    sure: bool = False

    def is_like(self, nodes: Sequence[int], shape: int) -> bool:
        return self.shape == shape and sorted(self.nodes) == sorted(nodes)


class Mirror:
    """Booked amounts and the runs that hold them; measurements are kept beside them as they come.

    Amounts may go below zero: a fact that the cluster reports is booked even where a promise took its
    place, and nothing fits there until one of the two is gone.
    """

    def __init__(self, first: Snapshot, resources: Sequence[str] = ()) -> None:
        """An empty cluster with the nodes, profile and mix of `first`, a snapshot of any time."""
        self.first = first
        count = first.capacity.shape[1]
        self.resources = tuple(resources) or tuple(f"resource {r}" for r in range(count))
        self.now_s = first.now_s
        self.runs: list[Held] = []  # in the order they began
        self.scale = np.array([shape.scale for shape in first.profile.shapes])
        self.capacity = np.array(first.capacity)
        self.free = self.capacity.copy()
        gpus = first.nodes["gpus"]
        has = np.arange(first.gpu_free.shape[1]) < gpus[:, None]  # (N, D)
        self.gpu_free = has.astype(np.float64)
        self.gpu_mem_free = np.where(has, first.nodes["gpu_mem_gb"][:, None], 0.0)
        self.node_state = np.zeros(len(first.nodes), NODE_STATE)
        self.node_state["up"] = 1
        self.recent = np.zeros_like(first.recent)
        self.totals = np.zeros(1, TOTALS)
        self.is_measured = False
        self._room(len(first.jobs))

    def _room(self, rows: int) -> None:
        """Make the job columns at least `rows` long; what is in them stays."""
        old = getattr(self, "state", np.zeros(0, STATE))
        if len(old) >= rows and len(old):
            return
        rows = max(rows, 2 * len(old), 1)
        jobs, demand = (
            np.zeros(rows, self.first.jobs.dtype),
            np.zeros((rows, self.capacity.shape[1])),
        )
        state = np.zeros(rows, STATE)
        state["start_s"] = state["end_s"] = np.nan
        state["run"] = -1
        if len(old):
            jobs[: len(old)], demand[: len(old)], state[: len(old)] = self.jobs, self.demand, old
        self.jobs: Array = jobs  # (J,) JOB
        self.demand: Array = demand  # (J, R)
        self.state: Array = state  # (J,) STATE
        # rules.fit books here as it does in the simulator: what fits is decided by one copy of the code
        self._world: Any = World(
            jobs=self.jobs[None],
            demand=self.demand[None],
            nodes=np.array(self.first.nodes)[None],
            node_state=self.node_state[None],
            free=self.free[None],
            gpu_free=self.gpu_free[None],
            gpu_mem=self.gpu_mem_free[None],
            scale=self.scale,
            rate=np.ascontiguousarray(self.first.profile.rate),
            slow=np.ascontiguousarray(self.first.profile.slow),
            link=np.ascontiguousarray(self.first.link),
        )

    def know(self, job: int, row: Any, demand: Any) -> None:
        """Learn what a job asks for."""
        self._room(job + 1)
        if self.state[job]["status"] == Status.FUTURE:
            self.state[job]["left"] = row["instances"]
        self.jobs[job] = row
        self.demand[job] = demand

    def clock(self, now_s: float) -> None:
        """Move the clock and integrate the running totals; everything is constant in between."""
        dt = now_s - self.now_s
        if dt <= 0.0:
            return
        total, load = self.totals[0], self.node_state["load"]
        status = self.state["status"]
        waiting, active = (
            int((status == Status.QUEUED).sum()),
            int((status == Status.RUNNING).sum()),
        )
        total["time_s"] += dt
        total["waiting_s"] += waiting * dt
        total["system_s"] += (waiting + active) * dt
        total["busy_s"] += float(load.sum()) * dt
        total["imbalance_s"] += float(load.std()) * dt
        if waiting:
            busy = {node for run in self.runs for node in run.nodes}
            total["contended_s"] += dt
            total["idle_s"] += (int(self.node_state["up"].sum()) - len(busy)) * dt
        self.now_s = now_s

    def measure(self, node_state: Array, recent: Array, kept_s: Array, totals: Array) -> None:
        """Take over what is measured, not booked: load, power, progress saved, energy."""
        self.is_measured = True
        for name in MEASURED:
            self.node_state[name] = node_state[name]
        self.recent[...] = recent
        self.state["kept_s"][: len(kept_s)] = kept_s
        for name in COUNTED:
            self.totals[0][name] = totals[name]

    def lacks(self, job: int, node: int, shape: int, devices: int) -> str:
        """Why one instance does not fit on the node now (on these devices, 0 = any), or nothing."""
        if not 0 <= node < len(self.node_state):
            return f"node: there is no node {node}"
        if self.node_state[node]["up"] == 0:
            return f"node: {node} is down"
        if not may_host(self._world, node, job, shape):
            return f"node: {node} is of a kind or for a shape the job does not allow"
        r, wants = first_lack(self._world, node, job, shape)
        if r >= 0:
            return f"{self.resources[r]}: wants {wants:g}, free {self.free[node, r]:g}"
        row = self.jobs[job]
        gpus = int(row["gpus"] * self.scale[shape])
        if gpus == 0:
            return "gpu devices: wants 0, 0 fit" if devices else ""
        has = int(self.first.nodes["gpus"][node])
        if devices >> has:
            return f"gpu devices: wants {gpus}, 0 fit"
        bits = np.array([devices == 0 or devices >> d & 1 for d in range(has)], bool)
        fit = bits & (self.gpu_free[node, :has] >= row["gpu_share"])
        fit &= self.gpu_mem_free[node, :has] >= row["gpu_mem_gb"]
        if fit.sum() < gpus or (devices and bits.sum() != gpus):
            return f"gpu devices: wants {gpus}, {int(fit.sum())} fit"
        return ""

    def book(
        self, job: int, nodes: Sequence[int], shape: int, devices: Sequence[int]
    ) -> tuple[str, tuple[int, ...]]:
        """Book an instance a node. Returns why not (then nothing stays booked) or "", and the devices taken."""
        masks: list[int] = []
        for i, node in enumerate(nodes):
            asked = int(devices[i]) if devices else 0
            why = self.lacks(job, node, shape, asked)
            if why:
                self.take(job, nodes[:i], shape, masks, -1)
                return why, ()
            masks.append(asked or int(devices_for(self._world, node, job, shape)))
            self.take(job, [node], shape, masks[-1:], 1)
        return "", tuple(masks)

    def take(
        self, job: int, nodes: Sequence[int], shape: int, masks: Sequence[int], count: int
    ) -> None:
        """Book these instances (count 1) or give them back (count -1), whether they fit or not."""
        for node, mask in zip(nodes, masks):
            take_one(self._world, node, job, shape, count, np.uint64(mask))

    def add(self, run: Held, *, booked: bool = False) -> None:
        """Let a run begin: its job has so much less left to start."""
        if not booked:
            self.take(run.job, run.nodes, run.shape, run.devices, 1)
        state = self.state[run.job]
        if np.isnan(state["start_s"]):
            state["start_s"] = run.start_s
        run.expected_end_s = self.expected_end_s(run)
        self.runs.append(run)
        state["left"] = max(int(state["left"]) - len(run.nodes), 0)
        state["active"] += len(run.nodes)
        self.line(run.job)

    def drop(self, run: Held, end_s: float, *, done: bool) -> None:
        """Let a run end; unless it is done, its instances are to start again."""
        self.runs.remove(run)
        self.take(run.job, run.nodes, run.shape, run.devices, -1)
        state = self.state[run.job]
        state["active"] -= len(run.nodes)
        if run.sure:
            state["attained_s"] += max(end_s - run.start_s, 0.0) * len(run.nodes)
        if not done:
            state["left"] += len(run.nodes)
            self.line(run.job)

    def line(self, job: int) -> None:
        """Put a job that has something left to start into the queue, and take it out if it has not."""
        state = self.state[job]
        was, now = int(state["status"]), Status.QUEUED if state["left"] > 0 else Status.RUNNING
        if was not in (Status.QUEUED, Status.RUNNING) or was == now:
            return
        if now == Status.QUEUED:
            state["queued_s"] = self.now_s
        else:
            state["waited_s"] += self.now_s - state["queued_s"]
        state["status"] = now

    def runs_of(self, job: int) -> list[Held]:
        return [run for run in self.runs if run.job == job]

    def rate(self, run: Held) -> float:
        """Work seconds a second on these nodes, undisturbed: the slowest piece, the worst link."""
        nodes = list(run.nodes)
        kind = int(self.jobs[run.job]["kind"])
        slowest = float(
            self.first.profile.rate[kind, self.first.nodes["kind"][nodes], run.shape].min()
        )
        regions = np.unique(self.first.nodes["region"][nodes])
        link = self.first.link
        if len(regions) > 1 and len(link) > 1:
            apart = ~np.eye(len(regions), dtype=bool)
            among = link[np.ix_(regions, regions)]
            slowest *= float(np.minimum(among, among.T)[apart].min())
        return slowest

    def expected_end_s(self, run: Held) -> float:
        """When the run ends by what its job asks for."""
        asked_s = max(float(self.jobs[run.job]["request_s"] - self.state[run.job]["kept_s"]), 0.0)
        rate = self.rate(run)
        return run.start_s + (self.first.startup_s + asked_s / rate) if rate > 0 else np.inf

    def snapshot(self) -> Snapshot:
        runs, pieces = self._tables()
        used = runs["job"][: len(self.runs)]
        if not self.is_measured:
            driver = self.first.nodes["driver"]
            rows = np.arange(len(driver))
            cap = self.capacity[rows, driver]
            held = cap - self.free[rows, driver]
            self.node_state["load"] = np.divide(held, cap, out=np.zeros_like(cap), where=cap > 0)
        return self.first._replace(
            now_s=self.now_s,
            queue=frozen(np.flatnonzero(self.state["status"] == Status.QUEUED)),
            running=frozen(np.argsort(used, kind="stable")),
            jobs=frozen(self.jobs),
            demand=frozen(self.demand),
            state=frozen(self.state),
            capacity=frozen(self.capacity),
            free=frozen(self.free),
            gpu_free=frozen(self.gpu_free),
            gpu_mem_free=frozen(self.gpu_mem_free),
            node_state=frozen(self.node_state),
            recent=frozen(self.recent),
            runs=frozen(runs),
            pieces=frozen(pieces),
            totals=self.totals.copy()[0],
        )

    def _tables(self) -> tuple[Array, Array]:
        """Runs and pieces as a snapshot holds them, newest first in every list."""
        runs = np.zeros(len(self.runs) + 1, RUN)
        runs["job"] = runs["piece"] = runs["sibling"] = -1
        runs["end_s"] = runs["left_s"] = runs["updated_s"] = np.nan
        pieces = np.zeros(sum(len(run.nodes) for run in self.runs) + 1, PIECE)
        self.state["run"] = self.node_state["piece"] = -1
        self.node_state["pieces"] = 0
        first = [-1] * len(self.node_state)
        at = 0
        for slot, run in enumerate(self.runs):
            row = runs[slot]
            row["job"], row["shape"], row["instances"] = run.job, run.shape, len(run.nodes)
            row["start_s"], row["expected_end_s"] = run.start_s, run.expected_end_s
            row["resume_s"], row["rate"] = run.start_s + self.first.startup_s, 1.0
            row["sibling"] = self.state[run.job]["run"]
            self.state[run.job]["run"] = slot
            last = -1
            for node, count, mask in grouped(run):
                pieces[at] = (slot, node, count, mask, last, -1, first[node])
                if first[node] >= 0:
                    pieces[first[node]]["before"] = at
                first[node] = last = at
                self.node_state[node]["pieces"] += 1
                at += 1
            row["piece"] = last
        self.node_state["piece"] = first
        return runs, pieces


@compiled
def may_host(w, node, job, shape):  # type: ignore[no-untyped-def]
    return allowed(w, 0, node, job, shape)


@compiled
def first_lack(w, node, job, shape):  # type: ignore[no-untyped-def]
    """The first resource of which the node has too little for one instance (-1 = none), and the want."""
    for r in range(w.free.shape[2]):
        wants = amount(w.demand[0, job, r], w.scale[shape])
        if w.free[0, node, r] < wants:
            return r, wants
    return -1, 0.0


@compiled
def devices_for(w, node, job, shape):  # type: ignore[no-untyped-def]
    return choose_devices(w, 0, node, job, shape, w.gpu_free, w.gpu_mem)


@compiled
def take_one(w, node, job, shape, count, mask):  # type: ignore[no-untyped-def]
    take(w, 0, node, job, shape, count, mask, w.free, w.gpu_free, w.gpu_mem)


def grouped(run: Held) -> list[tuple[int, int, int]]:
    """(node, instances, devices): neighbouring instances on a node are one piece unless they hold devices."""
    out: list[tuple[int, int, int]] = []
    for node, mask in zip(run.nodes, run.devices):
        if out and out[-1][0] == node and mask == 0 and out[-1][2] == 0:
            out[-1] = (node, out[-1][1] + 1, 0)
        else:
            out.append((node, 1, mask))
    return out


def frozen(array: Array) -> Array:
    """The same numbers, read-only."""
    seen = array[...]
    seen.flags.writeable = False
    return seen
