"""Room to book in: what `fit` says in compiled code, said once more for policies in Python.

A policy that decides several things at once books each in a Room, so that the next one fits too:

    room = Room.of(snapshot)
    for job in snapshot.queue:
        nodes = room.pick(job, score)
        if nodes:
            decisions.append(room.start(job, nodes))
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from trimtab.arrays import Array
from trimtab.columns import quantised
from trimtab.core import Snapshot, Start
from trimtab.site import NO_GATES, Quotas


@dataclass
class Room:
    """The free amounts of every node, and what jobs ask of them. Booking changes no more."""

    jobs: Array  # (J,) as in Snapshot, and so are the others
    demand: Array  # (J, R)
    state: Array  # (J,)
    nodes: Array  # (N,)
    node_state: Array  # (N,)
    free: Array  # (N, R)
    gpu_free: Array  # (N, D)
    gpu_mem_free: Array  # (N, D)
    scale: Array  # (S,) of each shape
    resources: tuple[str, ...] = ()
    quotas: Quotas | None = None
    quota_used: Array = field(default_factory=lambda: np.zeros((0, 0)))  # (Q, R + 2)
    gates: Array = field(default_factory=NO_GATES.copy)  # (V,)
    reserved: Array | None = None  # (J,)
    rate: Array = field(default_factory=lambda: np.ones((1, 1, 1)))  # (K, kinds of node, S)
    worst_link: float = 1.0
    startup_s: float = 0.0
    move_s: float = 0.0
    now_s: float = 0.0

    @staticmethod
    def of(snapshot: Snapshot) -> Room:
        """A copy of the snapshot's free amounts to book in."""
        return Room(
            jobs=snapshot.jobs,
            demand=snapshot.demand,
            state=snapshot.state,
            nodes=snapshot.nodes,
            node_state=snapshot.node_state,
            free=snapshot.free.copy(),
            gpu_free=snapshot.gpu_free.copy(),
            gpu_mem_free=snapshot.gpu_mem_free.copy(),
            scale=np.array([shape.scale for shape in snapshot.profile.shapes]),
            quotas=snapshot.quotas,
            quota_used=snapshot.quota_used.copy(),
            gates=snapshot.gates,
            reserved=snapshot.reserved,
            rate=snapshot.profile.rate,
            worst_link=float(snapshot.link.min()),
            startup_s=snapshot.startup_s,
            move_s=snapshot.move_s,
            now_s=snapshot.now_s,
        )

    def slots(self, job: int, shape: int = 0) -> Array:
        """(N,) instances of the job that fit on each node now, at most those left to start."""
        ask = self.jobs[job]
        wants = self.demand[job] * self.scale[shape]
        count = np.full(len(self.nodes), max(int(self.state["left"][job]), 0))
        count[(self.free < wants).any(axis=1)] = 0  # also where reality has overbooked a node
        for r in np.flatnonzero(wants > 0):
            count = np.minimum(count, (self.free[:, r] / wants[r]).astype(np.int64))
        gpus = int(ask["gpus"] * self.scale[shape])
        if gpus:
            each = self._device_slots(ask)
            count = np.minimum(count, each.sum(axis=1) // gpus)
        count = np.minimum(count, self.within(job, shape, int(self.state["left"][job])))
        return np.where(self.allowed(job, shape), np.maximum(count, 0), 0)

    def _device_slots(self, ask: Array) -> Array:
        """(N, D) instances of one GPU each that fit on every device."""
        share, mem_gb = ask["gpu_share"], ask["gpu_mem_gb"]
        fit = (self.gpu_free / share).astype(np.int64)
        if mem_gb > 0:
            fit = np.minimum(fit, (self.gpu_mem_free / mem_gb).astype(np.int64))
        return np.maximum(fit, 0)

    def allowed(self, job: int, shape: int = 0) -> Array:
        """(N,) whether each node may host the job now: up, of a kind it allows, no gate shut."""
        if len(self.gates):
            return self._suits(job, shape) & ~self.closed(job, shape)
        return self._suits(job, shape)

    def _suits(self, job: int, shape: int) -> Array:
        kinds = int(self.jobs["node_kinds"][job])
        kind_ok = np.array([kinds >> k & 1 for k in range(int(self.nodes["kind"].max()) + 1)], bool)
        shape_ok = bool(int(self.jobs["shapes"][job]) >> shape & 1)
        return kind_ok[self.nodes["kind"]] & (self.node_state["up"] == 1) & shape_ok

    def pick(self, job: int, score: Array | None = None, shape: int = 0) -> tuple[int, ...]:
        """A node for every instance left to start, best score first; () where they do not all fit.

        An array, which need not start together, gets the nodes for as many as fit.
        """
        wanted = int(self.state["left"][job])
        left = self.within(job, shape, wanted)
        slots = self.slots(job, shape)
        score = np.zeros(len(slots)) if score is None else score
        best_first = np.argsort(-score, kind="stable")
        nodes = np.repeat(best_first, slots[best_first])[:left]
        if len(nodes) < wanted and self.jobs["gang"][job] == 1:
            return ()
        return tuple(nodes.tolist())

    def start(self, job: int, nodes: tuple[int, ...], shape: int = 0) -> Start:
        """Book the job there and say so. ValueError where it does not fit: ask `pick` first."""
        why, devices = self.book(job, nodes, shape)
        if why:
            raise ValueError(f"job {job} does not fit on nodes {nodes}: {why}")
        named = devices if any(devices) else ()
        return Start(int(job), tuple(int(node) for node in nodes), shape, named)

    def book(
        self, job: int, nodes: tuple[int, ...], shape: int = 0, devices: tuple[int, ...] = ()
    ) -> tuple[str, tuple[int, ...]]:
        """Book one instance a node: ("", the GPUs each takes); or nothing: (why not, ())."""
        masks: list[int] = []
        held = self.held_back(job, len(nodes), shape)
        if held:
            return held, ()
        for i, node in enumerate(nodes):
            asked = devices[i] if devices else 0
            why = self.lacks(job, node, shape, asked)
            if why:
                for j, mask in enumerate(masks):
                    self.take(job, nodes[j], shape, -1, mask)
                return why, ()
            mask = asked or self._choose(job, node, shape)
            self.take(job, node, shape, 1, mask)
            masks.append(mask)
        self.book_quotas(job, shape, len(nodes), 1)
        return "", tuple(masks)

    def lacks(self, job: int, node: int, shape: int = 0, devices: int = 0) -> str:
        """Why one instance does not fit on the node now, or "". `devices` is a mask, 0 = any."""
        if not 0 <= node < len(self.nodes):
            return f"node: there is no node {node}"
        if self.node_state["up"][node] == 0:
            return f"node: {node} is down"
        kind = int(self.nodes["kind"][node])
        ask = self.jobs[job]
        if not int(ask["node_kinds"]) >> kind & 1 or not int(ask["shapes"]) >> shape & 1:
            return f"node: {node} is of a kind or for a shape the job does not allow"
        if len(self.gates) and self.closed(job, shape)[node]:
            return f"node: {node} is kept for a reservation at a time that the job would need"
        wants = self.demand[job] * self.scale[shape]
        for r in np.flatnonzero(self.free[node] < wants)[:1]:
            name = self.resources[r] if self.resources else f"resource {r}"
            return f"{name}: wants {wants[r]:g}, free {self.free[node, r]:g}"
        gpus = int(ask["gpus"] * self.scale[shape])
        if gpus:
            fit = self._fitting(ask, node)
            room = [d for d in fit if not devices or devices >> d & 1]
            named = bin(devices & (1 << int(self.nodes["gpus"][node])) - 1).count("1")
            if len(room) < gpus or (devices and named != gpus):
                return f"gpu devices: wants {gpus}, {len(room)} fit"
        return ""

    def _fitting(self, ask: Array, node: int) -> list[int]:
        """Devices of the node with room for the share and the memory asked of each."""
        devices = slice(0, int(self.nodes["gpus"][node]))
        share = self.gpu_free[node, devices] >= ask["gpu_share"]
        memory = self.gpu_mem_free[node, devices] >= ask["gpu_mem_gb"]
        return np.flatnonzero(share & memory).tolist()

    def _choose(self, job: int, node: int, shape: int) -> int:
        """The devices an instance takes: the fullest that fits a fraction, else the first free."""
        gpus = int(self.jobs["gpus"][job] * self.scale[shape])
        if gpus == 0:
            return 0
        fit = self._fitting(self.jobs[job], node)
        if gpus == 1:
            return 1 << min(fit, key=lambda d: float(self.gpu_free[node, d]))
        return sum(1 << d for d in fit[:gpus])

    def take(self, job: int, node: int, shape: int, count: int, devices: int) -> None:
        """Book `count` instances (negative gives them back) on the node and these of its GPUs."""
        self.free[node] -= count * (self.demand[job] * self.scale[shape])
        if devices:
            mine = [d for d in range(int(self.nodes["gpus"][node])) if devices >> d & 1]
            self.gpu_free[node, mine] -= count * self.jobs["gpu_share"][job]
            self.gpu_mem_free[node, mine] -= count * self.jobs["gpu_mem_gb"][job]

    def closed(self, job: int, shape: int = 0) -> Array:
        """(N,) whether a gate keeps the job off each node: see `fit.closed`."""
        shut = np.zeros(len(self.nodes), bool)
        kinds = self.nodes["kind"].astype(np.uint64)
        end_s = self.now_s + self._span_s(job, shape)
        mine = -1 if self.reserved is None or job >= len(self.reserved) else int(self.reserved[job])
        for g, gate in enumerate(self.gates):
            on = (gate["kinds"] >> kinds) & np.uint64(1) == 1
            if g == mine:
                shut |= on & (self.now_s < gate["from_s"])
            elif self.now_s < gate["to_s"]:
                shut |= on & ((self.now_s >= gate["from_s"]) | (end_s > gate["from_s"]))
        return shut

    def _span_s(self, job: int, shape: int) -> Array:
        """(N,) seconds that a start on each node takes by the request: see `fit.span_s`."""
        ask, state = self.jobs[job], self.state[job]
        speeds = self.rate[ask["kind"], :, shape]
        rate = speeds[self.nodes["kind"]]
        if ask["gang"] == 1 and ask["instances"] > 1:
            mine = [int(ask["node_kinds"]) >> k & 1 and speeds[k] > 0 for k in range(len(speeds))]
            slowest = speeds[np.array(mine, bool)].min(initial=np.inf)
            rate = np.minimum(rate, slowest) * self.worst_link
        asks_s = max(float(ask["request_s"] - state["kept_s"]), 0.0)
        moves = state["left"] == 0 and state["run"] >= 0
        return (self.move_s if moves else self.startup_s) + np.divide(
            asks_s, rate, out=np.full(len(rate), np.inf), where=rate > 0
        )

    def _counts(self, job: int, shape: int, instances: int) -> Array:
        """(R + 2,) what so many instances count for in a quota: see `fit.counts`."""
        assert self.quotas is not None
        scale, gang = self.scale[shape], self.jobs["gang"][job] == 1
        each = self.demand[job] if scale == 1 else quantised(self.demand[job] * scale)
        alone = 1 if gang else instances
        return np.array([*(instances * each), alone, alone * self.quotas.nodes[job]])

    def _quotas_of(self, job: int) -> Array:
        if self.quotas is None or job + 1 >= len(self.quotas.ptr):
            return np.zeros(0, np.int64)
        return self.quotas.idx[self.quotas.ptr[job] : self.quotas.ptr[job + 1]]

    def within(self, job: int, shape: int, wanted: int) -> int:
        """How many of so many instances the quotas let start now: of a gang all or none."""
        for q in self._quotas_of(job):
            assert self.quotas is not None
            room = self.quotas.cap[q] - self.quota_used[q]
            each = self._counts(job, shape, 1)
            if (self._counts(job, shape, wanted) > room).any():
                if self.jobs["gang"][job] == 1:
                    return 0
                on = each > 0
                wanted = min(wanted, max(int((room[on] / each[on]).min()), 0))
        return wanted

    def held_back(self, job: int, count: int, shape: int = 0) -> str:
        """Which quota has no room for so many instances of the job, or ""."""
        for q in self._quotas_of(job):
            assert self.quotas is not None
            room = self.quotas.cap[q] - self.quota_used[q]
            wants = self._counts(job, shape, count)
            for r in np.flatnonzero(wants > room)[:1]:
                named = (*self.resources, "jobs", "nodes")
                what = named[r] if self.resources else f"of column {r}"
                return f"{self.quotas.names[q]}: wants {wants[r]:g} {what}, free {room[r]:g}"
        return ""

    def book_quotas(self, job: int, shape: int, instances: int, sign: int) -> None:
        """Count the instances against the job's quotas (sign 1), or no longer (sign -1)."""
        for q in self._quotas_of(job):
            self.quota_used[q] += sign * self._counts(job, shape, instances)
