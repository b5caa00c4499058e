"""Facts that a cluster reported, late or never, and our promises that it has not confirmed yet.

A real cluster hears a decision after a while and says so later still, in any order, sometimes not
at all. The ledger shows what will be true if every decision on its way is carried out, so that
nothing is booked twice. What it shows of a job is: the newest fact, then the unconfirmed promises.

A backend turns the cluster's answers into Reports and needs to know no more than this:

    answer = ledger.promise(decision, now_s)           # REFUSED, or it shows from now on
    for number, decision in ledger.outgoing(): ...     # send these, after promise and after absorb
    events = ledger.absorb(report, now_s)              # what the loop and the sinks should hear
    snapshot = ledger.snapshot(now_s)

A decision that counts on room which another one is yet to free (a Stop that is not confirmed) is
shown at once and sent when that room is free in fact.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from trimtab.core import (
    Cluster,
    Decision,
    Event,
    Move,
    Profile,
    Reject,
    Resize,
    Snapshot,
    Start,
    Status,
    Stop,
    What,
)
from trimtab.live.mirror import Held, Mirror
from trimtab.live.promise import Fact, Promise, Report, carried_out, confirmed, refused

ENDINGS = {
    Status.FINISHED: What.FINISHED,
    Status.FAILED: What.FAILED,
    Status.REJECTED: What.REJECTED,
    Status.CANCELLED: What.STOPPED,
}
# what the sinks have been told of a job's life; its submission is told apart
UNTOLD, WAITING, RUNNING, ENDED = range(4)


class Ledger:
    """The newest fact of every job, unconfirmed promises on top, and the Mirror that shows both."""

    def __init__(
        self, cluster: Cluster, profile: Profile, *, patience_s: float = 60.0, **mirror: Any
    ) -> None:
        """`patience_s` must exceed the longest time that a decision can be on its way."""
        self.mirror = Mirror(cluster, profile, **mirror)
        self.patience_s = patience_s
        self.promises: dict[int, list[Promise]] = {}  # by job, oldest first
        self.facts: dict[int, Fact] = {}
        self.news = False  # the last absorb changed what a policy sees
        self.withdrawn = 0  # promises that the cluster never kept
        self._number = 0
        self._unsent: list[tuple[int, int]] = []  # (job, number) in order
        self._ready: list[tuple[int, Decision]] = []
        self._version: dict[int, int] = {}  # of each job's fact
        self._told: dict[int, tuple[int, int]] = {}  # by job: (life told, version told)
        self._submitted: set[int] = set()
        self._read = -1  # version of the nodes' measurements
        self._now_s = -np.inf

    # what we promise

    def promise(self, decision: Decision, now_s: float) -> Event:
        """Check the decision against all we know and show it from now on, or answer REFUSED."""
        self.mirror.tick(now_s)
        job = int(getattr(decision, "job", -1))
        run = [Held((), (), 0, now_s), *self.mirror.held.get(job, ())][-1]
        stands = (
            run.nodes[::-1] if isinstance(decision, Resize) else ()
        )  # last first, as it is freed
        nodes = tuple(getattr(decision, "nodes", stands))
        shape = int(getattr(decision, "shape", run.shape if isinstance(decision, Move) else 0))
        why, sent, held = self._check(decision, now_s)
        if why:
            self.mirror.totals["refused"] += 1
            return Event(now_s, What.REFUSED, job, nodes, shape, why)
        self._number += 1
        count = len(nodes) if isinstance(decision, Start) else 0
        made = Promise(
            number=self._number,
            decision=sent,  # type: ignore[arg-type]
            made_s=now_s,
            held=held,
            left=int(self.mirror.state["left"][job]) - count,
            frees=() if isinstance(decision, Start) else self._stands(job),
        )
        self.promises.setdefault(job, []).append(made)
        self._show(job)
        self._unsent.append((job, made.number))
        self._release(now_s)
        what = {Stop: What.STOPPED, Reject: What.REJECTED}.get(type(decision), What.PLACED)
        return Event(now_s, what, job, nodes, shape)

    def outgoing(self) -> list[tuple[int, Decision]]:
        """(number, decision) to send to the cluster now, in this order; each is given out once.

        A Start names its GPUs, so that the cluster cannot choose others than we booked.
        """
        ready, self._ready = self._ready, []
        return ready

    def _stands(self, job: int) -> tuple[int, ...]:
        """The nodes that a job holds by all we know and promised."""
        return tuple({node for run in self.mirror.held.get(job, ()) for node in run.nodes})

    def _release(self, now_s: float) -> list[Event]:
        """Give out what need not wait any more. Refuses what waited for room that did not come."""
        events, unsent = [], self._unsent
        self._unsent = []
        for job, number in unsent:
            pending = self.promises.get(job, [])
            made = next((one for one in pending if one.number == number), None)
            if made is None:
                continue
            if self._waits(made, pending):
                self._unsent.append((job, number))
            elif made.made_s < now_s and self._overbooked(made):
                events += self._drop(job, number, now_s, "the room it counted on was not freed")
            else:
                pending[pending.index(made)] = replace(made, sent_s=now_s)
                self._ready.append((number, made.decision))
        return events

    def _waits(self, made: Promise, pending: list[Promise]) -> bool:
        """Whether an older decision must be sent, or must have freed its room, before this one."""
        for older in pending:
            if older.number < made.number and (older.sent_s == np.inf or older.frees):
                if older.sent_s == np.inf or not isinstance(made.decision, Stop):
                    return True
        wanted = {node for run in made.held for node in run.nodes}
        return any(
            older.number < made.number and not wanted.isdisjoint(older.frees)
            for others in self.promises.values()
            for older in others
            if older.frees
        )

    def _overbooked(self, made: Promise) -> bool:
        room = self.mirror.room
        nodes = [node for run in made.held for node in run.nodes]
        return any(
            (free[nodes] < 0).any() for free in (room.free, room.gpu_free, room.gpu_mem_free)
        )

    def _drop(self, job: int, number: int, now_s: float, why: str) -> list[Event]:
        """Withdraw a promise and those about the same job that were made on top of it."""
        pending = self.promises.get(job, [])
        void = [made for made in pending if made.number >= number]
        self.promises[job] = [made for made in pending if made.number < number]
        self._show(job)
        self.news |= bool(void)
        return [refused(made, now_s, why) for made in void]

    def _check(self, decision: Decision, now_s: float) -> tuple[str, Decision, tuple[Held, ...]]:
        """(why not, decision with its GPUs, runs it makes); the words are the simulator's."""
        job = int(getattr(decision, "job", -1))
        if not 0 <= job < len(self.mirror.state):
            return f"job: there is no row {job}", decision, ()
        if isinstance(decision, Start):
            return self._check_start(decision, now_s)
        if isinstance(decision, Reject):
            waits = self.mirror.state["status"][job] == Status.QUEUED
            return "" if waits and job not in self.mirror.held else "job: not waiting", decision, ()
        runs = self.mirror.held.get(job, ())
        if not runs:
            return "job: not running", decision, ()
        if isinstance(decision, Stop):
            return "", decision, ()
        if len(runs) > 1:
            return "job: runs in several places", decision, ()
        return self._check_change(decision, job, runs[0])

    def _check_start(self, start: Start, now_s: float) -> tuple[str, Decision, tuple[Held, ...]]:
        room, state = self.mirror.room, self.mirror.state[start.job]
        if state["status"] != Status.QUEUED:
            return "job: not waiting", start, ()
        count, left, ask = len(start.nodes), int(state["left"]), room.jobs[start.job]
        if not self._shape_allowed(start.job, start.shape):
            return f"shape: {start.shape} is not allowed", start, ()
        if not 1 <= count <= left or (ask["gang"] == 1 and count != left):
            return f"instances: {count} given, {left} to start", start, ()
        if start.devices and len(start.devices) != count:
            why = f"gpu devices: {start.devices} is not one bit mask for each of {count} nodes"
            return why, start, ()
        why, devices = room.book(start.job, start.nodes, start.shape, start.devices)
        if why:
            return why, start, ()
        for node, mask in zip(start.nodes, devices, strict=True):
            room.take(start.job, node, start.shape, -1, mask)  # the mirror books it for good
        room.book_quotas(start.job, start.shape, count, -1)
        sent = replace(start, devices=devices if any(devices) else ())
        ends = self._run_ends(start.nodes, devices, gang=bool(ask["gang"]))
        return (
            "",
            sent,
            tuple(
                self._run(start.job, start.nodes[a:b], devices[a:b], start.shape, now_s)
                for a, b in zip([0, *ends], ends)
            ),
        )

    @staticmethod
    def _run_ends(nodes: tuple[int, ...], devices: tuple[int, ...], *, gang: bool) -> list[int]:
        """Where runs end: a gang is one; of an array, neighbours on a node without GPUs are."""
        last = len(nodes)
        if gang:
            return [last]
        split = (nodes[i] != nodes[i - 1] or devices[i - 1] != 0 for i in range(1, last))
        return [i + 1 for i, ends in enumerate(split) if ends] + [last]

    def _check_change(
        self, decision: Move | Resize | Any, job: int, run: Held
    ) -> tuple[str, Decision, tuple[Held, ...]]:
        """A move or a resize of the one run a job has: it must fit once that run has let go."""
        room = self.mirror.room
        nodes = decision.nodes if isinstance(decision, Move) else run.nodes[::-1]
        shape = run.shape if isinstance(decision, Move) else decision.shape
        if not self._shape_allowed(job, shape):
            return f"shape: {shape} is not allowed", decision, ()
        if len(nodes) != len(run.nodes):
            return f"instances: {len(nodes)} given, {len(run.nodes)} to start", decision, ()
        old = list(zip(run.nodes, run.devices, strict=True))
        for node, mask in old:
            room.take(job, node, run.shape, -1, mask)
        room.book_quotas(job, run.shape, len(nodes), -1)
        why, devices = room.book(job, nodes, shape)
        for node, mask in zip(nodes, devices):
            room.take(job, node, shape, -1, mask)
        if not why:
            room.book_quotas(job, shape, len(nodes), -1)
        room.book_quotas(job, run.shape, len(nodes), 1)
        for node, mask in old:
            room.take(job, node, run.shape, 1, mask)
        return why, decision, (run._replace(nodes=nodes, devices=devices, shape=shape),)

    def _shape_allowed(self, job: int, shape: int) -> bool:
        known = 0 <= shape < len(self.mirror.room.scale)
        return known and bool(int(self.mirror.room.jobs["shapes"][job]) >> shape & 1)

    def _run(
        self, job: int, nodes: tuple[int, ...], devices: tuple[int, ...], shape: int, now_s: float
    ) -> Held:
        """A run that begins now: what its request and the profile's speeds let expect."""
        mirror, ask = self.mirror, self.mirror.room.jobs[job]
        kinds, regions = mirror.cluster.nodes["kind"], mirror.cluster.nodes["region"]
        rate = min(float(mirror.profile.rate[ask["kind"], kinds[n], shape]) for n in nodes)
        spans = sorted({int(regions[n]) for n in nodes})
        rate *= float(mirror.cluster.link[np.ix_(spans, spans)].min()) if len(spans) > 1 else 1.0
        resume_s = now_s + mirror.startup_s
        asked_s = max(float(ask["request_s"] - mirror.state["kept_s"][job]), 0.0)
        end_s = resume_s + (asked_s / rate if rate > 0 else np.inf)
        return Held(tuple(nodes), tuple(devices), shape, now_s, end_s, resume_s, rate)

    # what the cluster says

    def absorb(self, report: Report, now_s: float) -> list[Event]:
        """Take in what the cluster says; returns the events that are news, stamped with now.

        A job's own start and end, by the cluster's clock, are in its state. An event that is older
        than what has been told of the job is dropped; what must have happened before is told first.
        """
        now_s = self._now_s = max(now_s, self._now_s)  # a log never goes back
        self.mirror.tick(now_s)
        self.news = report.event is None and not report.facts  # bare word that something changed
        if report.nodes is not None and report.version >= self._read:
            self._read = report.version
            self.news |= self.mirror.read(report.nodes)
            if report.ahead is not None:
                self.mirror.lent |= {"ahead": report.ahead, "said": report.said}
        events: list[Event] = []
        for fact in report.facts:
            if report.version >= self._version.get(fact.job, -1):
                self._version[fact.job] = report.version
                self._learn(fact, now_s)
                if report.whole:
                    events += self._told_of(fact, report.version, now_s)
        if report.event is not None:
            events += self._tell(report, now_s)
        if report.whole:
            events += self._look_up(now_s)
        events += self._release(now_s)
        self._count(events)
        return events

    def _learn(self, fact: Fact, now_s: float) -> None:
        """Keep a fact, drop the promises that it confirms, and show what is left of them on top."""
        job = fact.job
        self.mirror.grow(job + 1)
        if fact.ask is not None and self.mirror.room.jobs["instances"][job] == 0:
            self.mirror.room.jobs[job], self.mirror.room.demand[job] = fact.ask
            self.news = True
        if job in self.facts:
            self._account(self.facts[job], fact, now_s)
        self.facts[job] = fact
        pending = self.promises.get(job, [])
        kept = confirmed(fact, pending)
        if kept:
            self.promises[job] = pending[kept:]
        self._show(job)

    def _account(self, old: Fact, new: Fact, now_s: float) -> None:
        """Add the work of runs that have gone to the totals: their time at the profile's speed."""
        total, kind = self.mirror.totals[0], int(self.mirror.room.jobs["kind"][new.job])
        killed = new.state["left"] > old.state["left"]
        still = {run.start_s for run in new.held}
        end_s = now_s if np.isnan(new.state["end_s"]) else float(new.state["end_s"])
        for run in old.held:
            if run.start_s in still:
                continue  # there yet, or moved
            count = len(run.nodes)
            done = count * run.rate * max(end_s - run.resume_s, 0.0)
            kept = count * float(new.state["kept_s"] - old.state["kept_s"]) if killed else done
            total["work_s"] += kept
            total["lost_s"] += max(done - kept, 0.0)
            if not killed:
                total["quality"] += count * self.mirror.profile.quality[kind, run.shape]

    def _show(self, job: int) -> None:
        pending = self.promises.get(job)
        if pending is not None and not pending:
            del self.promises[job]
        fact = self.facts.get(job)
        if fact is None:
            return
        state, held = fact.state.copy(), fact.held
        for made in pending or ():
            state, held = carried_out(made, state, held)
        self.news |= self.mirror.put(job, state, held)

    def _look_up(self, now_s: float) -> list[Event]:
        """Withdraw what is overdue after a listing: it does not show there, so it never came."""
        events = []
        for job, pending in list(self.promises.items()):
            late = [made.number for made in pending if now_s - made.sent_s > self.patience_s]
            if late:
                why = f"withdrawn: no word from the cluster in {self.patience_s:g} s"
                void = self._drop(job, late[0], now_s, why)
                self.withdrawn += len(void)
                events += void
        return events

    # what we tell

    def _tell(self, report: Report, now_s: float) -> list[Event]:
        """The report's event, if it is still news, after what must have happened before it."""
        assert report.event is not None
        event = replace(report.event, time_s=now_s)
        job = event.job
        if job < 0:
            self.news = True
            return [event]
        if event.what == What.REFUSED:
            return self._refuse(report.answers, event)
        if event.what == What.SUBMITTED:
            fresh = job not in self._submitted
            self._submitted.add(job)
            return [event] if fresh else []
        life, version = self._told.get(job, (UNTOLD, -1))
        if life == ENDED or report.version < version:
            return []
        fact = self.facts.get(job)
        ended = event.what in (What.FINISHED, What.FAILED, What.REJECTED)
        if event.what == What.STOPPED and fact is not None:
            ended = bool(fact.state["status"] >= Status.FINISHED)  # withdrawn by its user
        before = self._before(job, event.what, now_s, life)
        life = ENDED if ended else RUNNING if event.what == What.STARTED else WAITING
        self._told[job] = (life, report.version)
        return [*before, event]

    def _before(self, job: int, what: What, now_s: float, life: int) -> list[Event]:
        """What a start or a finish implies and has not been told."""
        events = []
        if job not in self._submitted and what in (What.STARTED, What.FINISHED):
            self._submitted.add(job)
            events.append(Event(now_s, What.SUBMITTED, job))
        if what == What.FINISHED and life != RUNNING:
            events.append(Event(now_s, What.STARTED, job, reason="known by its end"))
        return events

    def _told_of(self, fact: Fact, version: int, now_s: float) -> list[Event]:
        """What a listing shows of a job that has not been told: reports of it are late or lost."""
        job, status = fact.job, Status(int(fact.state["status"]))
        events = []
        if fact.ask is not None and job not in self._submitted:
            self._submitted.add(job)
            events.append(Event(now_s, What.SUBMITTED, job))
        life, _ = self._told.get(job, (UNTOLD, -1))
        if life == ENDED:
            return events
        seen = ENDED if status >= Status.FINISHED else RUNNING if fact.held else WAITING
        if seen == ENDED:
            events += self._before(job, ENDINGS[status], now_s, life)
            events.append(Event(now_s, ENDINGS[status], job, reason="seen in the listing"))
        elif seen == RUNNING and life != RUNNING:
            nodes = tuple(node for run in fact.held for node in run.nodes)
            shape = fact.held[0].shape
            events.append(Event(now_s, What.STARTED, job, nodes, shape, "seen in the listing"))
        elif seen == WAITING and life == RUNNING:
            events.append(Event(now_s, What.STOPPED, job, reason="seen in the listing"))
        self._told[job] = (seen, version)
        return events

    def _refuse(self, number: int, event: Event) -> list[Event]:
        """The cluster turned a decision down: the promise is void, and what it showed is undone."""
        if all(made.number != number for made in self.promises.get(event.job, ())):
            return []
        void = self._drop(
            event.job, number, event.time_s, "a decision that it was made on was refused"
        )
        return [event, *void[1:]]

    def _count(self, events: Iterable[Event]) -> None:
        total, jobs, state = self.mirror.totals[0], self.mirror.room.jobs, self.mirror.state
        names = {
            What.SUBMITTED: "submitted",
            What.STARTED: "started",
            What.FINISHED: "finished",
            What.STOPPED: "stopped",
            What.REJECTED: "rejected",
            What.REFUSED: "refused",
            What.FAILED: "failed",
        }
        for event in events:
            if event.job >= 0:
                total[names[event.what]] += 1
                if event.what == What.FINISHED:
                    total["late"] += state["end_s"][event.job] > jobs["deadline_s"][event.job]

    def snapshot(self, now_s: float) -> Snapshot:
        return self.mirror.snapshot(now_s)
