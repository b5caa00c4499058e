"""Unconfirmed promises: what was decided shows at once, also where the cluster reports late or not at all.

A live backend keeps one Ledger. It hands every decision to `promise`, every report of the cluster to
`report`, every full listing to `relist`, and answers `snapshot` from here. Reports may come late, out of
order, twice or never. Every method that learns something returns the events to tell, in a sane order:
a job is submitted, starts and ends once each, and times never run backwards.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from trimtab.core import (
    Array,
    Decision,
    Event,
    Move,
    Reject,
    Resize,
    Snapshot,
    Start,
    Status,
    Stop,
    What,
)
from trimtab.live.mirror import Held, Mirror

# reasons that tell two meanings of one What apart
READY = "ready"  # SUBMITTED: nothing it waits for is left
CANCELLED = "cancelled"  # STOPPED: for good
DOWN, UP = "node down", "node up"
MOVED, RESIZED = "moved", "resized"
END_OF = {
    What.FINISHED: Status.FINISHED,
    What.FAILED: Status.FAILED,
    What.REJECTED: Status.REJECTED,
    What.STOPPED: Status.CANCELLED,
}
EVENT_OF = {status: what for what, status in END_OF.items()}


@dataclass(eq=False)
class Promise:
    """A decision that was sent and not yet heard of."""

    decision: Start | Stop | Move | Resize | Reject
    made_s: float
    runs: list[Held] = field(default_factory=list)  # of a start: those still unsure
    before: Held | None = None  # of a move or resize: where the run was


class Partial(NamedTuple):
    """The end of some instances of an array; the job goes on, so this is no Event."""

    time_s: float
    job: int
    nodes: tuple[int, ...]
    devices: tuple[int, ...]


class Listing(NamedTuple):
    """Everything a cluster says when asked, as `squeue` and `sinfo` do: the truth at one time."""

    time_s: float
    status: Array  # (J,) Status; FUTURE = not submitted
    end_s: Array  # (J,) of those that have ended
    left: Array  # (J,) instances not yet started
    held: dict[int, list[Held]]  # by job
    up: Array  # (N,)


def listing_of(seen: Snapshot) -> Listing:
    """The listing that a cluster in this state gives."""
    held: dict[int, list[Held]] = {}
    for slot in seen.running.tolist():
        run = seen.runs[slot]
        nodes, masks = places_of(seen, slot)
        held.setdefault(int(run["job"]), []).append(
            Held(int(run["job"]), nodes, masks, int(run["shape"]), float(run["start_s"]), sure=True)
        )
    state = seen.state
    up = np.array(seen.node_state["up"])
    return Listing(
        seen.now_s,
        np.array(state["status"]),
        np.array(state["end_s"]),
        np.array(state["left"]),
        held,
        up,
    )


def places_of(seen: Snapshot, slot: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(node, devices) of every instance of a run."""
    nodes: list[int] = []
    masks: list[int] = []
    piece = int(seen.runs[slot]["piece"])
    while piece >= 0:
        row = seen.pieces[piece]
        nodes += [int(row["node"])] * int(row["count"])
        masks += [int(row["devices"])] * int(row["count"])
        piece = int(row["next"])
    return tuple(reversed(nodes)), tuple(reversed(masks))


class Ledger:
    """Reported facts and promises, together a snapshot.

    `first` is a snapshot of the cluster at any time, for its nodes and profile. A promise that was not
    confirmed within `patience_s` is looked up in the next listing and kept or withdrawn.
    """

    def __init__(
        self, first: Snapshot, resources: tuple[str, ...] = (), patience_s: float = 60.0
    ) -> None:
        self.mirror = Mirror(first, resources)
        self.patience_s = patience_s
        self.promises: dict[int, list[Promise]] = {}  # by job, oldest first
        self.changes = 0  # that are a reason to decide again
        self.withdrawn = 0
        self._since_s: dict[int, float] = {}  # by job, or -1 - node: the newest fact
        self._submitted: set[int] = set()
        self._told_s = -np.inf

    def clock(self, now_s: float) -> None:
        self.mirror.clock(now_s)

    def snapshot(self) -> Snapshot:
        return self.mirror.snapshot()

    def know(self, job: int, row: Any, demand: Any) -> None:
        """Learn what a job asks for: before anything is reported of it."""
        self.mirror.know(job, row, demand)

    def overdue_s(self) -> float:
        """When the oldest promise has to be looked up in a listing; inf = there is none."""
        made = [promise.made_s for promises in self.promises.values() for promise in promises]
        return min(made, default=np.inf) + self.patience_s

    # promises

    def promise(self, decision: Decision) -> tuple[Event, Decision | None]:
        """The answer to a decision, and what to send: the same with devices chosen, or None if refused."""
        sent: Decision = decision
        why, runs, before = "", list[Held](), None
        if isinstance(decision, Start):
            why, runs = self._start(decision)
            sent = (
                replace(decision, devices=sum((run.devices for run in runs), ()))
                if runs
                else decision
            )
        elif isinstance(decision, Stop):
            why = self._stop(decision.job)
        elif isinstance(decision, Move | Resize):
            why, before = self._relocate(decision)
        elif isinstance(decision, Reject):
            why = self._reject(decision.job)
        else:
            raise TypeError(f"{decision!r} is no promise: a backend keeps its own alarms")
        nodes, shape = getattr(decision, "nodes", ()), getattr(decision, "shape", 0)
        what = {Stop: What.STOPPED, Reject: What.REJECTED}.get(type(decision), What.PLACED)
        if why:
            self.mirror.totals[0]["refused"] += 1
            return self._tell(
                Event(self.mirror.now_s, What.REFUSED, decision.job, nodes, shape, why)
            ), None
        if isinstance(decision, Start):
            self.mirror.totals[0]["started"] += 1
        made = Promise(decision, self.mirror.now_s, runs, before)
        self.promises.setdefault(decision.job, []).append(made)
        if isinstance(decision, Move | Resize):
            nodes, shape = (
                self.mirror.runs_of(decision.job)[0].nodes,
                self.mirror.runs_of(decision.job)[0].shape,
            )
        return self._tell(Event(self.mirror.now_s, what, decision.job, nodes, shape)), sent

    def _start(self, decision: Start) -> tuple[str, list[Held]]:
        mirror, job, shape = self.mirror, decision.job, decision.shape
        if not 0 <= job < len(mirror.state):
            return f"job: there is no row {job}", []
        if mirror.state[job]["status"] != Status.QUEUED:
            return "job: not waiting", []
        if not self._may(job, shape):
            return f"shape: {shape} is not allowed", []
        left, gang = int(mirror.state[job]["left"]), mirror.jobs[job]["gang"] == 1
        count = len(decision.nodes)
        if not 1 <= count <= left or (gang and count != left):
            return f"instances: {count} given, {left} to start", []
        why, masks = mirror.book(job, decision.nodes, shape, decision.devices)
        if why:
            return why, []
        ends = [count] if gang else run_ends(decision.nodes, masks)
        runs, at = [], 0
        for end in ends:
            runs.append(Held(job, decision.nodes[at:end], masks[at:end], shape, mirror.now_s))
            mirror.add(runs[-1], booked=True)
            at = end
        return "", runs

    def _stop(self, job: int) -> str:
        if not 0 <= job < len(self.mirror.state):
            return f"job: there is no row {job}"
        runs = self.mirror.runs_of(job)
        if not runs:
            return "job: not running"
        for run in runs:
            self.mirror.drop(run, self.mirror.now_s, done=False)
        # decisions arrive in the order they were sent: what was promised to start will be stopped
        self.promises[job] = [
            p for p in self.promises.get(job, []) if not isinstance(p.decision, Start)
        ]
        self.mirror.state[job]["stops"] += 1
        return ""

    def _relocate(self, decision: Move | Resize) -> tuple[str, Held | None]:
        mirror, job = self.mirror, decision.job
        if not 0 <= job < len(mirror.state):
            return f"job: there is no row {job}", None
        runs = mirror.runs_of(job)
        if len(runs) != 1:
            return "job: runs in several places" if runs else "job: not running", None
        run = runs[0]
        nodes = decision.nodes if isinstance(decision, Move) else run.nodes
        shape = decision.shape if isinstance(decision, Resize) else run.shape
        if not self._may(job, shape):
            return f"shape: {shape} is not allowed", None
        if len(nodes) != len(run.nodes):
            return f"instances: {len(nodes)} given, {len(run.nodes)} to start", None
        before = replace(run)
        mirror.take(job, run.nodes, run.shape, run.devices, -1)
        why, masks = mirror.book(job, nodes, shape, ())
        if why:
            mirror.take(job, run.nodes, run.shape, run.devices, 1)
            return why, None
        self._place(run, nodes, shape, masks)
        return "", before

    def _place(self, run: Held, nodes: tuple[int, ...], shape: int, masks: tuple[int, ...]) -> None:
        """Put a run where it is now booked; what is left of its time passes at the new speed."""
        mirror = self.mirror
        left_s = (run.expected_end_s - mirror.now_s) * mirror.rate(run)
        run.nodes, run.shape, run.devices = nodes, shape, masks
        rate = mirror.rate(run)
        run.expected_end_s = mirror.now_s + left_s / rate if rate > 0 else np.inf

    def _reject(self, job: int) -> str:
        if not 0 <= job < len(self.mirror.state):
            return f"job: there is no row {job}"
        if self.mirror.state[job]["status"] != Status.QUEUED or self.mirror.runs_of(job):
            return "job: not waiting"
        self._leave_queue(job, Status.BLOCKED)
        return ""

    def _may(self, job: int, shape: int) -> bool:
        return 0 <= shape < len(self.mirror.scale) and bool(
            int(self.mirror.jobs[job]["shapes"]) >> shape & 1
        )

    def _leave_queue(self, job: int, status: Status) -> None:
        state = self.mirror.state[job]
        if state["status"] == Status.QUEUED:
            state["waited_s"] += self.mirror.now_s - state["queued_s"]
        state["status"] = status

    # what the cluster says

    def report(self, event: Event | Partial) -> list[Event]:
        """Take a report that may be late, out of order or a repetition. Returns what it adds."""
        if isinstance(event, Partial):
            return self._partial(event)
        if event.job < 0:
            return self._node(event)
        if event.what == What.SUBMITTED:
            return self._submit(event)
        if self._has_ended(event.job):
            return []
        if event.what == What.STARTED:
            return self._started(event)
        if event.what == What.STOPPED and event.reason != CANCELLED:
            return self._stopped(event)
        return self._ended(event) if event.what in END_OF else []

    def refuse(self, decision: Decision, event: Event) -> list[Event]:
        """The cluster refused a decision: its promise is withdrawn, the job waits or stays where it is."""
        job = event.job
        for promise in self.promises.get(job, []):
            if promise.decision == decision and promise.made_s <= event.time_s:
                self._withdraw(promise)
                break
        self.mirror.totals[0]["refused"] += 1
        return [self._tell(event)]

    def _withdraw(self, promise: Promise) -> None:
        """Undo what a promise booked, as far as the cluster has not said otherwise since."""
        job, mirror = promise.decision.job, self.mirror
        self._settle(promise)
        self.changes += 1
        self.withdrawn += 1
        for run in promise.runs:
            mirror.drop(run, mirror.now_s, done=False)
        if promise.runs:
            mirror.totals[0]["started"] -= 1
            if not mirror.runs_of(job) and not mirror.state[job]["attained_s"]:
                mirror.state[job]["start_s"] = np.nan
        now = mirror.runs_of(job)
        if promise.before is not None and len(now) == 1:
            old = promise.before
            mirror.take(job, now[0].nodes, now[0].shape, now[0].devices, -1)
            mirror.take(job, old.nodes, old.shape, old.devices, 1)
            self._place(now[0], old.nodes, old.shape, old.devices)
        if isinstance(promise.decision, Reject) and mirror.state[job]["status"] == Status.BLOCKED:
            self._enqueue(job)

    def _settle(self, promise: Promise) -> None:
        """Forget a promise: it is a fact now, or was withdrawn."""
        job = promise.decision.job
        kept = [other for other in self.promises.get(job, []) if other is not promise]
        if kept:
            self.promises[job] = kept
        else:
            self.promises.pop(job, None)

    def _enqueue(self, job: int) -> None:
        self.mirror.state[job]["status"] = Status.QUEUED
        self.mirror.state[job]["queued_s"] = self.mirror.now_s

    def _submit(self, event: Event) -> list[Event]:
        job, told = event.job, []
        if job not in self._submitted:
            self._submitted.add(job)
            self.mirror.totals[0]["submitted"] += 1
            told = [self._tell(replace(event, reason=""))]
            self.changes += 1
            if self.mirror.state[job]["status"] == Status.FUTURE:
                self.mirror.state[job]["status"] = Status.BLOCKED
        rejecting = any(isinstance(p.decision, Reject) for p in self.promises.get(job, []))
        if (
            event.reason == READY
            and self.mirror.state[job]["status"] == Status.BLOCKED
            and not rejecting
        ):
            self._enqueue(job)
            self.changes += 1
        return told

    def _started(self, event: Event) -> list[Event]:
        job, mirror = event.job, self.mirror
        if event.reason in (MOVED, RESIZED):
            return self._moved(event)
        for promise in self.promises.get(job, []):
            for run in promise.runs:
                if run.is_like(event.nodes, event.shape) and promise.made_s <= event.time_s:
                    return self._confirm(promise, run, event.time_s)
        if event.time_s < self._since_s.get(job, -np.inf):
            return []  # a run that is over
        if any(run.is_like(event.nodes, event.shape) for run in mirror.runs_of(job)):
            return []  # known already
        if any(isinstance(promise.decision, Stop) for promise in self.promises.get(job, [])):
            return []  # on its way out
        told = self._submit(Event(event.time_s, What.SUBMITTED, job, reason=READY))
        return told + [
            self._found(Held(job, event.nodes, (), event.shape, event.time_s, sure=True))
        ]

    def _found(self, run: Held) -> Event:
        """Book a run that nobody promised."""
        if len(run.devices) < len(run.nodes):
            # the report does not say which devices: take those we would have chosen
            why, masks = self.mirror.book(run.job, run.nodes, run.shape, ())
            run.devices = (0,) * len(run.nodes) if why else masks
            self.mirror.add(run, booked=not why)
        else:
            self.mirror.add(run)
        self._fact(run.job, run.start_s)
        return self._tell(Event(run.start_s, What.STARTED, run.job, run.nodes, run.shape))

    def _confirm(self, promise: Promise, run: Held, start_s: float) -> list[Event]:
        promise.runs.remove(run)
        if not promise.runs:
            self._settle(promise)
        state = self.mirror.state[run.job]
        if state["start_s"] == run.start_s:
            state["start_s"] = start_s
        run.sure, run.start_s = True, start_s
        run.expected_end_s = self.mirror.expected_end_s(run)
        self._hold(run.job, start_s)  # what was expected is no reason to decide again
        return [self._tell(Event(start_s, What.STARTED, run.job, run.nodes, run.shape))]

    def _moved(self, event: Event) -> list[Event]:
        mirror = self.mirror
        for promise in self.promises.get(event.job, []):
            if isinstance(promise.decision, Move | Resize) and promise.made_s <= event.time_s:
                self._settle(promise)
                self._fact(event.job, event.time_s)
                return [self._tell(event)]
        runs = mirror.runs_of(event.job)
        stale = event.time_s < self._since_s.get(event.job, -np.inf)
        if stale or len(runs) != 1 or runs[0].is_like(event.nodes, event.shape):
            return []
        run = runs[0]
        mirror.take(run.job, run.nodes, run.shape, run.devices, -1)
        why, masks = mirror.book(run.job, event.nodes, event.shape, ())
        if why:
            masks = (0,) * len(event.nodes)
            mirror.take(run.job, event.nodes, event.shape, masks, 1)
        self._place(run, event.nodes, event.shape, masks)
        self._fact(event.job, event.time_s)
        return [self._tell(event)]

    def _partial(self, part: Partial) -> list[Event]:
        for run in self._begun(part.job, part.time_s):
            if (run.nodes, run.devices) == (part.nodes, part.devices):
                told = self._was_started(run, part.time_s)
                self.mirror.drop(run, part.time_s, done=True)
                self._fact(part.job, part.time_s)
                return told
        return []

    def _stopped(self, event: Event) -> list[Event]:
        """Back to the queue: all runs, or the newest one on a node that failed."""
        job = event.job
        runs = self._begun(job, event.time_s)
        if event.nodes:
            runs = [run for run in runs if event.nodes[0] in run.nodes][-1:]
        stops = [p for p in self.promises.get(job, []) if isinstance(p.decision, Stop)]
        if stops and not event.nodes and stops[0].made_s <= event.time_s:
            self._settle(stops[0])
            runs = [run for run in runs if run.start_s < stops[0].made_s]
        elif not runs:
            return []
        elif event.nodes:
            self.mirror.state[job]["tries"] += 1
        told = []
        for run in runs:
            told += self._was_started(run, event.time_s)
            self.mirror.drop(run, event.time_s, done=False)
        self._fact(job, event.time_s)
        if not event.nodes:
            self.mirror.totals[0]["stopped"] += 1
        return [*told, self._tell(event)]

    def _begun(self, job: int, by_s: float) -> list[Held]:
        return [run for run in self.mirror.runs_of(job) if run.start_s <= by_s]

    def _was_started(self, run: Held, by_s: float) -> list[Event]:
        """A run that ends must have started, even if that was never reported."""
        for promise in self.promises.get(run.job, []):
            if run in promise.runs:
                return self._confirm(promise, run, min(run.start_s, by_s))
        return []

    def _ended(self, event: Event) -> list[Event]:
        job, mirror = event.job, self.mirror
        told = []
        if event.what == What.FINISHED:
            told += self._submit(Event(event.time_s, What.SUBMITTED, job))
        for run in mirror.runs_of(job):
            if event.what == What.FINISHED:
                told += self._was_started(run, event.time_s)
            mirror.drop(run, event.time_s, done=event.what == What.FINISHED)
        self.promises.pop(job, None)
        self._leave_queue(job, END_OF[event.what])
        state, total = mirror.state[job], mirror.totals[0]
        state["end_s"] = event.time_s
        if event.what == What.FINISHED:
            state["left"] = 0
            total["late"] += event.time_s > mirror.jobs[job]["deadline_s"]
        total[event.what.name.lower()] += 1
        self._fact(job, event.time_s)
        return [*told, self._tell(event)]

    def _has_ended(self, job: int) -> bool:
        return job < len(self.mirror.state) and bool(
            self.mirror.state[job]["status"] >= Status.FINISHED
        )

    def _node(self, event: Event) -> list[Event]:
        node = event.nodes[0]
        up = int(event.what == What.STARTED)
        state = self.mirror.node_state[node]
        if state["up"] == up or event.time_s < self._since_s.get(-1 - node, -np.inf):
            return []
        state["up"] = up
        self._fact(-1 - node, event.time_s)
        return [self._tell(event)]

    def _fact(self, key: int, time_s: float) -> None:
        self.changes += 1
        self._hold(key, time_s)

    def _hold(self, key: int, time_s: float) -> None:
        self._since_s[key] = max(time_s, self._since_s.get(key, -np.inf))

    def _tell(self, event: Event) -> Event:
        """Sinks see time run forwards: what is heard late is told when it is heard of."""
        self._told_s = max(self._told_s, event.time_s)
        return event if event.time_s == self._told_s else replace(event, time_s=self._told_s)

    # listings

    def relist(self, listing: Listing) -> list[Event]:
        """Repair what reports got wrong, and look up promises that are overdue."""
        told: list[Event] = []
        for node in np.flatnonzero(listing.up != self.mirror.node_state["up"]).tolist():
            what, why = (What.STARTED, UP) if listing.up[node] else (What.FAILED, DOWN)
            told += self._node(Event(listing.time_s, what, -1, (node,), 0, why))
        for job in np.flatnonzero(listing.status != Status.FUTURE).tolist():
            status = Status(int(listing.status[job]))
            if status >= Status.FINISHED:
                if not self._has_ended(job):
                    why = CANCELLED if status == Status.CANCELLED else ""
                    told += self._ended(
                        Event(float(listing.end_s[job]), EVENT_OF[status], job, (), 0, why)
                    )
                continue
            if job not in self._submitted or status >= Status.QUEUED:
                why = READY if status >= Status.QUEUED else ""
                told += self._submit(Event(listing.time_s, What.SUBMITTED, job, reason=why))
            if self._since_s.get(job, -np.inf) <= listing.time_s and status >= Status.QUEUED:
                told += self._relist_job(job, listing)
        return told

    def _relist_job(self, job: int, listing: Listing) -> list[Event]:
        told: list[Event] = []
        mirror, mine = self.mirror, self.mirror.runs_of(job)
        extra = []  # runs that are listed and not in the mirror
        for held in listing.held.get(job, []):
            same = [
                run
                for run in mine
                if run.is_like(held.nodes, held.shape) and run.start_s <= held.start_s
            ]
            if not same:
                extra.append(held)
                continue
            mine.remove(same[0])
            told += self._started(Event(held.start_s, What.STARTED, job, held.nodes, held.shape))
        promises = self.promises.get(job, [])
        overdue = [p for p in promises if p.made_s + self.patience_s <= listing.time_s]
        young = [p for p in promises if p not in overdue]
        for promise in overdue:
            self._withdraw(promise)
            why = f"{type(promise.decision).__name__.lower()}: not confirmed within {self.patience_s:g} s"
            if isinstance(promise.decision, Stop) and not extra:
                told.append(
                    self._tell(Event(listing.time_s, What.STOPPED, job, (), 0, "preempted"))
                )
                mirror.totals[0]["stopped"] += 1
            else:
                told.append(self._tell(Event(listing.time_s, What.REFUSED, job, (), 0, why)))
        gone = [run for run in mine if run.sure and run in mirror.runs]
        if not young:
            told += self._correct(job, listing, gone, extra)
        return told

    def _correct(
        self, job: int, listing: Listing, gone: list[Held], extra: list[Held]
    ) -> list[Event]:
        """Make the job's runs those that are listed; nothing of it is on its way."""
        told: list[Event] = []
        mirror, state = self.mirror, self.mirror.state[job]
        for run in gone:
            mirror.drop(run, listing.time_s, done=False)
        if gone and int(listing.left[job]) > int(state["left"]) - sum(
            len(run.nodes) for run in gone
        ):
            told.append(
                self._tell(Event(listing.time_s, What.STOPPED, job, (), 0, "found stopped"))
            )
        for held in extra:
            told.append(self._found(replace(held, sure=True)))
        if state["left"] != listing.left[job]:
            state["left"] = listing.left[job]
            mirror.line(job)
            self.changes += 1
        if gone:
            self._fact(job, listing.time_s)
        return told


def run_ends(nodes: tuple[int, ...], masks: tuple[int, ...]) -> list[int]:
    """Where the runs of an array end: neighbouring instances on a node that hold no devices run as one."""
    ends = []
    for i in range(1, len(nodes) + 1):
        if i == len(nodes) or nodes[i] != nodes[i - 1] or masks[i - 1] != 0:
            ends.append(i)
    return ends
