"""The simulator as a Backend: the same loop that steers a real cluster steps it event by event."""

from __future__ import annotations

from dataclasses import replace
from operator import index
from typing import Any

import numpy as np

from trimtab.arrays import Array
from trimtab.build import uniform_profile
from trimtab.compiled import compiled
from trimtab.core import (
    Cluster,
    Decision,
    Event,
    Limit,
    Mix,
    Move,
    Profile,
    Reject,
    Resize,
    Snapshot,
    Start,
    Stop,
    Wait,
    What,
    Workload,
)
from trimtab.rules.names import ESTIMATES
from trimtab.rules.steer import wrong_limit
from trimtab.rules.world import World
from trimtab.sim import choice, kernel
from trimtab.sim.lending import foreseeing, lends, obey
from trimtab.sim.log import MOVED, REASONS, RESIZED
from trimtab.sim.loop import log_needs, queue_of
from trimtab.sim.meter import settle_node
from trimtab.sim.world import Models, check_hostable, fitted, grown, make_world
from trimtab.site import Labels, Quotas


class SimBackend:
    """A simulated cluster that runs a workload. Jumps its clock from event to event."""

    can = frozenset({Start, Stop, Move, Resize, Reject, Limit, Wait})

    def __init__(
        self,
        workload: Workload,
        cluster: Cluster,
        profile: Profile | None = None,
        models: Models | None = None,
        *,
        keep_log: bool = False,
    ) -> None:
        workload, cluster = fitted(workload, cluster)
        check_hostable(workload, cluster)
        self.workload, self.cluster = workload, cluster
        self.models = (models or Models()).on(cluster)
        self.profile = profile or uniform_profile(len(workload.kinds), len(cluster.kinds))
        self.world = make_world([workload], [cluster], self.profile, self.models, log=1)
        kernel.reset(self.world, 0)
        self._kept: list[Array] | None = [] if keep_log else None
        self._shown = 0
        self._jobs = np.zeros_like(workload.jobs)
        self._demand = np.zeros_like(workload.demand)
        self._labels = {name: given.unsaid() for name, given in workload.labels.items()}
        mix = self.world
        self._mix = Mix(mix.mix_jobs, mix.mix_demand, mix.mix_share)
        self._make_room(0)

    def wait(self) -> list[Event] | None:
        self._make_room(0)
        going = kernel.advance(self.world, 0)
        events = self._report()
        return events if going or events else None

    def snapshot(self) -> Snapshot:
        world = self.world
        submitted = int(world.head[0]["submitted"])
        fresh = slice(self._shown, submitted)
        self._jobs[fresh] = self.workload.jobs[fresh]
        self._demand[fresh] = self.workload.demand[fresh]
        for name, given in self.workload.labels.items():
            self._labels[name].row[fresh] = given.row[fresh]
        self._shown = submitted
        waiting = queue_of(world, 0)
        runs = np.array(world.runs[0])
        runs["end_s"] = runs["left_s"] = runs["updated_s"] = (
            np.nan
        )  # these tell the truth about run times
        running = np.flatnonzero(runs["job"] >= 0)
        recent = np.empty_like(world.recent[0])
        recent_load(world, 0, recent)
        return Snapshot(
            now_s=float(world.head[0]["now_s"]),
            queue=frozen(world.queue[0, :waiting].copy()),
            running=frozen(running[np.argsort(runs["job"][running], kind="stable")]),
            jobs=frozen(self._jobs),
            demand=frozen(self._demand),
            state=frozen(world.state[0]),
            nodes=frozen(world.nodes[0]),
            capacity=frozen(world.capacity[0]),
            free=frozen(world.free[0]),
            gpu_free=frozen(world.gpu_free[0]),
            gpu_mem_free=frozen(world.gpu_mem[0]),
            node_state=frozen(world.node_state[0]),
            recent=frozen(recent),
            runs=frozen(runs),
            pieces=frozen(world.pieces[0]),
            profile=self.profile,
            link=frozen(world.link),
            startup_s=self.models.startup_s,
            move_s=self.models.pause_s,
            live_migration=self.models.live_migration,
            mix=self._mix,
            totals=world.totals[0:1].copy()[0],
            site=self.cluster.site,
            labels={
                name: Labels(given.names, frozen(given.row)) for name, given in self._labels.items()
            },
            quotas=self.workload.quotas,
            quota_used=frozen(world.quota_used[0]),
            gates=self.cluster.gates,
            reserved=self.workload.reserved,
            names=self.cluster.names,
            limit=frozen(world.limit[0]),
            margin=frozen(world.margin[0]),
            overstay=frozen(world.overstay[0]),
            taper=frozen(world.taper[0]),
            patience_s=frozen(world.patience_s[0]),
            estimate=self._estimate() if lends(world) else "",
            horizon_s=frozen(world.horizon),
            ahead=frozen(world.ahead[0]),
            said=frozen(world.said[0]),
        )

    def apply(self, decision: Decision) -> Event:
        if isinstance(decision, Wait):
            return self._set_alarm(decision)
        if isinstance(decision, Limit):
            return self._set_limit(decision)
        decision = replace(decision, job=row(decision.job))
        nodes = self._nodes_of(decision)
        self._make_room(len(nodes))
        world = self.world
        world.entry[0, : len(nodes)]["node"] = nodes
        world.entry[0, : len(nodes)]["devices"] = 0
        if isinstance(decision, Start):
            shape = row(decision.shape)
            masks = rows(decision.devices, 2**64)
            if masks:
                if len(masks) != len(nodes) or min(masks) < 0:
                    want = f"one bit mask for each of {len(nodes)} nodes"
                    return self._refused(
                        decision.job, f"gpu devices: {decision.devices} is not {want}"
                    )
                world.entry[0, : len(nodes)]["devices"] = masks
            why = choice.start(world, 0, decision.job, shape, 0, len(nodes))
            return self._answer(why, decision, What.PLACED, tuple(nodes), shape)
        if isinstance(decision, Stop):
            return self._answer(choice.stop(world, 0, decision.job), decision, What.STOPPED)
        if isinstance(decision, Reject):
            return self._answer(choice.reject(world, 0, decision.job), decision, What.REJECTED)
        job, shape = decision.job, self._shape_of(decision)
        reason = MOVED if isinstance(decision, Move) else RESIZED
        why = choice.relocate(world, 0, job, shape, 0, len(nodes), reason)
        return self._answer(why, decision, What.PLACED, tuple(nodes), shape)

    def close(self) -> None:
        """Nothing to let go of: the arrays are freed with the object."""

    def _set_alarm(self, decision: Wait) -> Event:
        head = self.world.head[0]
        try:
            until_s = float(decision.until_s)
        except (TypeError, ValueError):
            until_s = np.nan
        if not until_s > head["now_s"]:
            late = f"until_s={decision.until_s!r} is not after second {head['now_s']:g}"
            return self._refused(-1, f"wait: {late}")
        head["alarm_s"] = min(head["alarm_s"], until_s)
        return self._event(What.PLACED, -1)

    def _estimate(self) -> str:
        return next(name for name, n in ESTIMATES.items() if n == self.world.head[0]["estimate"])

    def _set_limit(self, decision: Limit) -> Event:
        world = self.world
        why = wrong_limit(decision, world.limit.shape[1])
        if why:
            return self._refused(-1, why)
        if decision.estimate == "oracle" and not world.foreseen.shape[1]:
            self.world = foreseeing(world, self.workload, self.cluster)
        obey(self.world, replace(decision, region=int(decision.region)))
        return self._event(What.PLACED, -1)

    def _refused(self, job: int, reason: str) -> Event:
        self.world.totals[0]["refused"] += 1
        return self._event(What.REFUSED, job, reason=reason)

    def _nodes_of(self, decision: Decision) -> list[int]:
        """A node an instance: as decided, or where the job stands for a resize."""
        if isinstance(decision, Start | Move):
            return rows(decision.nodes)
        if isinstance(decision, Resize) and 0 <= decision.job < len(self.workload):
            run = int(self.world.state[0, decision.job]["run"])
            nodes: list[int] = []
            piece = int(self.world.runs[0, run]["piece"]) if run >= 0 else -1
            while piece >= 0:
                rec = self.world.pieces[0, piece]
                nodes += [int(rec["node"])] * int(rec["count"])
                piece = int(rec["next"])
            return nodes
        return []

    def _shape_of(self, decision: Decision) -> int:
        if isinstance(decision, Resize):
            return row(decision.shape)
        job = getattr(decision, "job", -1)
        run = int(self.world.state[0, job]["run"]) if 0 <= job < len(self.workload) else -1
        return int(self.world.runs[0, run]["shape"]) if run >= 0 else 0

    def _make_room(self, instances: int) -> None:
        """Grow the pools so that the next call into the kernel cannot run out."""
        world, head = self.world, self.world.head[0]
        instances += int(head["pinned"])
        runs, pieces = world.runs.shape[1], world.pieces.shape[1]
        while int(head["free_runs"]) + runs - world.runs.shape[1] <= instances:
            runs *= 2
        while min(int(head["free_pieces"]) + pieces - world.pieces.shape[1], pieces) <= instances:
            pieces *= 2
        log = world.log.shape[1]
        while log < log_needs(world, 0) + 2 * (instances + pieces):
            log = 2 * log + 64
        if (runs, pieces, log) != (world.runs.shape[1], world.pieces.shape[1], world.log.shape[1]):
            self.world = grown(world, runs=runs, pieces=pieces, log=log)

    def _report(self) -> list[Event]:
        """Events since the last report; the log starts anew."""
        head = self.world.head[0]
        rows = self.world.log[0, : int(head["log"])]
        head["log"] = 0
        if self._kept is not None:
            self._kept.append(np.array(rows))
        return events_of(rows)

    def kept_log(self) -> Array | None:
        """Every log row that was reported, where the backend was asked to keep them."""
        return None if self._kept is None else np.concatenate([self.world.log[0, :0], *self._kept])

    def _event(
        self, what: What, job: int, nodes: tuple[int, ...] = (), shape: int = 0, reason: str = ""
    ) -> Event:
        return Event(float(self.world.head[0]["now_s"]), what, job, nodes, shape, reason)

    def _answer(
        self, why: int, decision: Decision, what: What, nodes: tuple[int, ...] = (), shape: int = 0
    ) -> Event:
        job = int(getattr(decision, "job", -1))
        if why == choice.OK:
            return self._event(what, job, nodes, shape)
        return self._event(
            What.REFUSED, job, nodes, shape,
            refusal(why, self.world.head[0], job, self.cluster, self.workload.quotas),
        )  # fmt: skip


def row(number: Any, limit: int = 2**62) -> int:
    """A whole number as compiled code takes it; what is none, or too large, becomes -1."""
    try:
        whole = index(number)
    except TypeError:
        return -1
    return whole if 0 <= whole < limit else -1


def rows(numbers: Any, limit: int = 2**62) -> list[int]:
    try:
        return [row(number, limit) for number in numbers]
    except TypeError:
        return [-1]


def frozen(array: Array) -> Array:
    seen = array.view(np.ndarray)
    seen = seen[...] if seen is array else seen
    seen.flags.writeable = False
    return seen


@compiled
def recent_load(w: World, c: int, out: Array) -> None:
    """Mean load of the last windows of every node, oldest first, settled to now."""
    ring = w.recent.shape[2]
    for node in range(w.nodes.shape[1]):
        settle_node(w, c, node)
    last = int(np.floor(w.head[c].now_s / w.conf[0].window_s))
    for node in range(w.nodes.shape[1]):
        for k in range(ring):
            out[node, k] = (
                w.recent[c, node, (last - ring + k) % ring] if last - ring + k >= 0 else 0.0
            )


def same_start(row: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return all(row[k] == other[k] for k in (0, 1, 2, 5, 6, 7))  # all but the node and the count


def events_of(log: Array) -> list[Event]:
    """Log rows as events; the pieces of one start are one event with a node an instance."""
    events: list[Event] = []
    i = 0
    table = log.tolist()
    while i < len(table):
        time_s, what, job, node, count, shape, run, reason = table[i]
        nodes = (node,) * max(count, 1) if node >= 0 else ()
        i += 1
        # a slot is used again: only rows of one moment and job are pieces of one start
        begun = what == What.STARTED and run >= 0
        while begun and i < len(table) and same_start(table[i - 1], table[i]):
            nodes += (table[i][3],) * table[i][4]
            i += 1
        events.append(Event(time_s, What(what), job, nodes, shape, REASONS[reason]))
    return events


def refusal(why: int, head: Array, job: int, cluster: Cluster, quotas: Quotas | None) -> str:
    """Why a decision was refused, in words: `gpu: wants 4, free 2`."""
    node, wants, free = int(head["why_node"]), float(head["why_wants"]), float(head["why_free"])
    if why == choice.QUOTA and quotas is not None:
        counted = (*cluster.resources, "jobs", "nodes")[int(head["why_resource"])]
        return f"{quotas.names[node]}: wants {wants:g} {counted}, free {free:g}"
    if why == choice.LACKS:
        return f"{cluster.resources[int(head['why_resource'])]}: wants {wants:g}, free {free:g}"
    return {
        choice.NO_JOB: f"job: there is no row {job}",
        choice.NOT_QUEUED: "job: not waiting",
        choice.NO_NODE: f"node: there is no node {node}",
        choice.DOWN: f"node: {node} is down",
        choice.KIND: f"node: {node} is of a kind or for a shape the job does not allow",
        choice.GATE: f"node: {node} is kept for a reservation at a time that the job would need",
        choice.SHAPE: f"shape: {wants:g} is not allowed",
        choice.COUNT: f"instances: {wants:g} given, {free:g} to start",
        choice.DEVICES: f"gpu devices: wants {wants:g}, {free:g} fit",
        choice.NOT_RUNNING: "job: not running",
        choice.NOT_ONE: "job: runs in several places",
    }[why]
