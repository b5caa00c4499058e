"""What we believe of a cluster, in the shape of a Snapshot: a ledger writes, policies read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.columns import JOB, NODE_STATE, PIECE, RUN, STATE, TOTALS
from trimtab.core import Cluster, Limit, Mix, Profile, Snapshot, Status
from trimtab.rules.room import Room
from trimtab.site import WHOLE, Labels, Quotas

# fields of a Snapshot that only a cluster has which lends
CARE = ("margin", "patience_s", "overstay", "taper")  # of a region, called alike in a Limit
LENT = ("limit", *CARE, "estimate", "horizon_s", "ahead", "said")
NO_MIX = Mix(np.zeros(0, JOB), np.zeros((0, 0)), np.zeros(0))


class Held(NamedTuple):
    """One run of a job: what it holds, and since when."""

    nodes: tuple[int, ...]  # one an instance
    devices: tuple[int, ...]  # a mask of GPUs an instance; all 0 = none
    shape: int
    start_s: float
    expected_end_s: float = np.inf
    resume_s: float = np.nan
    rate: float = 1.0


class Mirror:
    """Jobs, runs and nodes as last believed. `put` says all there is to say about one job."""

    def __init__(
        self,
        cluster: Cluster,
        profile: Profile,
        *,
        jobs: int = 64,  # rows to begin with
        startup_s: float = 0.0,
        move_s: float | None = None,  # None = startup_s
        live_migration: bool = False,
        mix: Mix | None = None,
        labels: Mapping[str, Labels] | None = None,
        quotas: Quotas | None = None,
        reserved: Array | None = None,
        window_s: float = 300.0,
        windows: int = 8,
    ) -> None:
        self.cluster, self.profile, self.startup_s = cluster, profile, startup_s
        self.move_s = startup_s if move_s is None else move_s
        self.live_migration = live_migration
        self.mix = mix or NO_MIX._replace(demand=np.zeros((0, len(cluster.resources))))
        self.window_s, self.now_s = window_s, 0.0
        self.first_s = np.inf  # when the first job came: nothing is counted before
        nodes, devices = len(cluster), int(cluster.nodes["gpus"].max())
        has = np.arange(devices) < cluster.nodes["gpus"][:, None]  # (N, D)
        node_state = np.zeros(nodes, NODE_STATE)
        node_state["up"], node_state["piece"] = 1, -1
        node_state["power_w"] = cluster.nodes["idle_w"]
        self.room = Room(
            jobs=np.zeros(0, JOB),
            demand=np.zeros((0, len(cluster.resources))),
            state=np.zeros(0, STATE),
            nodes=cluster.nodes,
            node_state=node_state,
            free=cluster.capacity.copy(),
            gpu_free=has.astype(np.float64),
            gpu_mem_free=has * cluster.nodes["gpu_mem_gb"][:, None],
            scale=np.array([shape.scale for shape in profile.shapes]),
            resources=cluster.resources,
            quotas=quotas,
            quota_used=np.zeros((0, 0) if quotas is None else quotas.cap.shape),
            gates=cluster.gates,
            reserved=reserved,
            rate=profile.rate,
            worst_link=float(cluster.link.min()),
            startup_s=startup_s,
            move_s=startup_s if move_s is None else move_s,
        )
        self.labels = labels or {}
        self.node_state = node_state
        self.runs, self.pieces = np.zeros(0, RUN), np.zeros(0, PIECE)
        self._free_runs: list[int] = []
        self._free_pieces: list[int] = []
        self.held: dict[int, tuple[Held, ...]] = {}  # by job: what it has on the nodes
        self.lent: dict[str, Any] = {}  # LENT, where the cluster lends
        self.totals = np.zeros(1, TOTALS)
        self._recent = np.zeros((nodes, windows))  # a ring
        self._window = np.zeros(nodes)  # load seconds of the window that is not over yet
        self.grow(jobs)

    @property
    def state(self) -> Array:  # (J,) STATE
        return self.room.state

    def grow(self, jobs: int) -> None:
        """Make rows for at least so many jobs."""
        old = len(self.room.jobs)
        if jobs <= old:
            return
        rows = max(jobs, 2 * old)
        room = self.room
        for name in ("jobs", "demand", "state"):
            table = getattr(room, name)
            wider = np.zeros((rows, *table.shape[1:]), table.dtype)
            wider[:old] = table
            setattr(room, name, wider)
        room.state["run"][old:] = -1
        room.state["start_s"][old:] = room.state["end_s"][old:] = np.nan

    def put(self, job: int, state: Array, held: tuple[Held, ...]) -> bool:
        """The job is in this state and holds this. False where we believed so already."""
        old_state, old = self.state[job].copy(), self.held.get(job, ())
        if [one[:4] for one in old] != [one[:4] for one in held]:
            self._drop(job)
            for one in held:
                self._add(job, one)
        elif old != held:
            self._retime(job, held)
        run = self.state[job]["run"]
        self.state[job] = state
        self.state[job]["run"] = run
        self.held[job] = held
        if not held:
            del self.held[job]
        seen = [one[:5] for one in old] != [one[:5] for one in held]  # speed is not for policies
        return seen or old_state.tobytes() != self.state[job].tobytes()

    def _retime(self, job: int, held: tuple[Held, ...]) -> None:
        """The same places with better known times: the rows stay where they are."""
        run = int(self.state[job]["run"])
        for one in reversed(held):
            for name in ("expected_end_s", "resume_s", "rate"):
                self.runs[run][name] = getattr(one, name)
            run = int(self.runs[run]["sibling"])

    def _add(self, job: int, held: Held) -> None:
        """A new run, first of the job's list; neighbouring instances on a node share a piece."""
        if not self._free_runs:
            self.runs, self._free_runs = _longer(self.runs)
            self.runs["job"][self._free_runs] = -1
        run = self._free_runs.pop()
        rec, state = self.runs[run], self.state[job]
        rec["job"], rec["instances"], rec["shape"] = job, len(held.nodes), held.shape
        rec["start_s"], rec["expected_end_s"] = held.start_s, held.expected_end_s
        rec["resume_s"], rec["rate"] = held.resume_s, held.rate
        rec["end_s"] = rec["left_s"] = rec["updated_s"] = np.nan
        rec["piece"], rec["sibling"] = -1, state["run"]
        state["run"] = run
        i = 0
        while i < len(held.nodes):
            node, mask = held.nodes[i], held.devices[i] if held.devices else 0
            end = i + 1
            while end < len(held.nodes) and held.nodes[end] == node and mask == 0:
                end += 1
            self._add_piece(job, run, node, end - i, mask)
            i = end
        self.room.book_quotas(job, held.shape, len(held.nodes), 1)

    def _add_piece(self, job: int, run: int, node: int, count: int, devices: int) -> None:
        if not self._free_pieces:
            self.pieces, self._free_pieces = _longer(self.pieces)
        piece = self._free_pieces.pop()
        rec, state = self.pieces[piece], self.node_state[node]
        rec["run"], rec["node"], rec["count"], rec["devices"] = run, node, count, devices
        rec["next"], rec["before"], rec["after"] = self.runs[run]["piece"], -1, state["piece"]
        if state["piece"] >= 0:
            self.pieces[state["piece"]]["before"] = piece
        state["piece"] = self.runs[run]["piece"] = piece
        state["pieces"] += 1
        self._take(job, node, int(self.runs[run]["shape"]), count, devices)

    def _take(self, job: int, node: int, shape: int, count: int, devices: int) -> None:
        """Book on the node. What services reserve of what is lent is kept from others as `kept`."""
        self.room.take(job, node, shape, count, devices)
        if self.cluster.lending is not None and self.room.jobs["request_s"][job] == np.inf:
            driver = int(self.cluster.nodes["driver"][node])
            given = count * self.room.demand[job, driver] * self.room.scale[shape]
            self.room.free[node, driver] += given

    def _drop(self, job: int) -> None:
        """Take all runs of the job off the nodes."""
        state = self.state[job]
        while state["run"] >= 0:
            run = int(state["run"])
            piece = int(self.runs[run]["piece"])
            while piece >= 0:
                piece = self._drop_piece(job, piece)
            state["run"] = self.runs[run]["sibling"]
            rec = self.runs[run]
            self.room.book_quotas(job, int(rec["shape"]), int(rec["instances"]), -1)
            rec["job"] = -1
            self._free_runs.append(run)

    def _drop_piece(self, job: int, piece: int) -> int:
        rec = self.pieces[piece]
        node = int(rec["node"])
        shape = int(self.runs[rec["run"]]["shape"])
        self._take(job, node, shape, -int(rec["count"]), int(rec["devices"]))
        if rec["before"] >= 0:
            self.pieces[rec["before"]]["after"] = rec["after"]
        else:
            self.node_state[node]["piece"] = rec["after"]
        if rec["after"] >= 0:
            self.pieces[rec["after"]]["before"] = rec["before"]
        self.node_state[node]["pieces"] -= 1
        self._free_pieces.append(piece)
        return int(rec["next"])

    def read(self, nodes: Array) -> bool:
        """Take over (N,) NODE_STATE as measured at the nodes. True where one went up or down."""
        flipped = bool((self.node_state["up"] != nodes["up"]).any())
        every = np.arange(len(nodes))
        self.room.free[every, self.cluster.nodes["driver"]] -= (
            nodes["kept"] - self.node_state["kept"]
        )
        for name in nodes.dtype.names or ():
            if name not in ("piece", "pieces"):
                self.node_state[name] = nodes[name]
        return flipped

    def lend(self, decision: Limit) -> None:
        """Show what a region may borrow from now on, and what else the decision says."""
        regions = slice(None) if decision.region < 0 else decision.region
        said = {"limit": decision.share, **{name: getattr(decision, name) for name in CARE}}
        for name, value in said.items():
            if not math.isnan(value):
                self.lent[name] = self.lent[name].copy()
                self.lent[name][regions] = value
        self.lent["estimate"] = decision.estimate or self.lent["estimate"]

    def tick(self, now_s: float) -> None:
        """Move the clock and integrate the running totals, as the simulator does."""
        if now_s <= self.now_s:
            return
        if self.first_s == np.inf:
            known = self.room.jobs["instances"] > 0
            self.first_s = float(self.room.jobs["submit_s"][known].min(initial=np.inf))
        dt = now_s - max(self.now_s, self.first_s)
        if dt > 0:
            self._integrate(dt)
        self._roll(now_s)
        self.now_s = self.room.now_s = now_s

    def _integrate(self, dt: float) -> None:
        """Add so many seconds of the present state to the running totals."""
        total, nodes, load = self.totals[0], self.node_state, self.node_state["load"]
        waiting = int(np.count_nonzero(self.state["status"] == Status.QUEUED))
        active = int(np.count_nonzero(self.state["status"] == Status.RUNNING))
        total["time_s"] += dt
        total["waiting_s"] += waiting * dt
        total["system_s"] += (waiting + active) * dt
        total["busy_s"] += load.sum() * dt
        total["energy_j"] += nodes["power_w"].sum() * dt
        total["imbalance_s"] += load.std() * dt
        if waiting:
            total["idle_s"] += np.count_nonzero((nodes["pieces"] == 0) & (nodes["up"] == 1)) * dt
            total["contended_s"] += dt
            total["held_s"] += self._held_share() * dt

    def _held_share(self) -> float:
        """What is booked of the whole cluster, as a mean over its resources."""
        shown = [r for r, name in enumerate(self.cluster.resources) if name != WHOLE]
        has = self.cluster.capacity[:, shown].sum(axis=0)
        booked = (self.cluster.capacity - self.room.free)[:, shown].sum(axis=0)
        return float(np.divide(booked, has, out=np.zeros(len(has)), where=has > 0).mean())

    def _roll(self, now_s: float) -> None:
        """Bring the windows of recent load up to now."""
        width, ring, load = self.window_s, self._recent.shape[1], self.node_state["load"]
        index, last = math.floor(self.now_s / width), math.floor(now_s / width)
        if last == index:
            self._window += load * (now_s - self.now_s)
            return
        rest_s = (index + 1) * width - self.now_s
        self._recent[:, index % ring] = (self._window + load * rest_s) / width
        for k in range(max(index + 1, last - ring), last):
            self._recent[:, k % ring] = load
        self._window = load * (now_s - last * width)

    def snapshot(self, now_s: float) -> Snapshot:
        self.tick(now_s)
        room = self.room
        running = np.flatnonzero(self.runs["job"] >= 0)
        running = running[np.argsort(self.runs["job"][running], kind="stable")]
        last, ring = math.floor(now_s / self.window_s), self._recent.shape[1]
        past = np.arange(last - ring, last)
        return Snapshot(
            now_s=now_s,
            # what was evicted and backs off has nothing to start yet
            queue=_frozen(
                np.flatnonzero((room.state["status"] == Status.QUEUED) & (room.state["left"] > 0))
            ),
            running=_frozen(running),
            jobs=_frozen(room.jobs),
            demand=_frozen(room.demand),
            state=_frozen(room.state),
            nodes=_frozen(room.nodes),
            capacity=_frozen(self.cluster.capacity),
            free=_frozen(room.free),
            gpu_free=_frozen(room.gpu_free),
            gpu_mem_free=_frozen(room.gpu_mem_free),
            node_state=_frozen(self.node_state),
            recent=_frozen(np.where(past >= 0, self._recent[:, past % ring], 0.0)),
            runs=_frozen(self.runs),
            pieces=_frozen(self.pieces),
            profile=self.profile,
            link=_frozen(self.cluster.link),
            startup_s=self.startup_s,
            mix=self.mix,
            totals=self.totals.copy()[0],
            move_s=self.move_s,
            live_migration=self.live_migration,
            site=self.cluster.site,
            labels=self.labels,
            quotas=room.quotas,
            quota_used=_frozen(room.quota_used),
            gates=_frozen(room.gates),
            reserved=room.reserved,
            **self.lent,
        )


def _longer(table: Array) -> tuple[Array, list[int]]:
    """Twice as many rows, and the new ones, lowest last so that `pop` takes it first."""
    rows = max(64, 2 * len(table))
    wider = np.zeros(rows, table.dtype)
    wider[: len(table)] = table
    return wider, list(range(rows - 1, len(table) - 1, -1))


def _frozen(array: Array) -> Array:
    seen = array[...]
    seen.flags.writeable = False
    return seen
