"""A pretend real cluster: decisions arrive after a lag, reports come late, out of order or never."""

from __future__ import annotations

import heapq
import math

import numpy as np

from trimtab.core import Backend, Decision, Event, Snapshot, Status, Wait, What
from trimtab.live.ledger import CANCELLED, READY, Ledger, Partial, listing_of, places_of

Places = tuple[tuple[int, ...], tuple[int, ...]]  # nodes, devices
Runs = dict[int, tuple[int, float, Places]]  # slot: (job, start_s, places)


class FakeBackend:
    """Another backend (the true cluster) seen through slow and lossy wires. The ledger makes up for it.

    A decision reaches the cluster `lag_s` after apply(), in order, or with chance `lost_decisions` never.
    A report travels up to `lag_s`; a share `late` of them takes another `late_s` on average, and a share
    `lost` never arrives. A full listing, every `listing_s` seconds in which something happened,
    repairs the rest: there a promise that is `patience_s` old is looked up. With lag_s = late = lost =
    0 it is the true backend.
    """

    def __init__(
        self,
        true: Backend,
        *,
        lag_s: float = 5.0,
        late: float = 0.1,
        lost: float = 0.05,
        lost_decisions: float = 0.0,
        late_s: float = 20.0,
        listing_s: float = 30.0,
        patience_s: float = 30.0,
        rng: np.random.Generator | None = None,
        ledger: type[Ledger] = Ledger,
    ) -> None:
        self.true, self.can = true, true.can
        self.lag_s, self.late, self.lost, self.late_s = lag_s, late, lost, late_s
        self.lost_decisions, self.listing_s = lost_decisions, listing_s
        self.rng = rng or np.random.default_rng(0)
        first = true.snapshot()
        resources = getattr(getattr(true, "cluster", None), "resources", ())
        self.ledger = ledger(first, tuple(resources), patience_s)
        self.refusals: list[str] = []  # what the true cluster answered to what arrived
        self.now_s = first.now_s
        self._alarm_s = self._list_at_s = math.inf
        self._sent: list[tuple[float, int, Decision]] = []  # heap: arrives at, number
        self._reports: list[tuple[float, int, Decision | None, tuple[Event | Partial, ...]]] = []
        self._number = 0
        self._status = np.array(first.state["status"])
        self._arrays: Runs = {}
        self._told: list[Event] = []  # heard of, but no reason to decide
        self._is_closed = False
        self._measure(first)

    def wait(self) -> list[Event] | None:
        while not self._is_closed:
            due_s = self._due_s()
            events = self._advance(due_s)
            if events is None and due_s == math.inf:
                told, self._told = self._told, []
                return told or None
            seen = self.true.snapshot()
            # a cluster with nothing left to do stands still; what is on its way still arrives
            self.now_s = max(self.now_s, due_s if events is None else seen.now_s)
            self.ledger.clock(self.now_s)
            # changes of use and the like happen without an event: decide again, as the cluster would
            silent = self.now_s < due_s and all(e.time_s < self.now_s for e in events or ())
            before, rang = self.ledger.changes, self._alarm_s <= self.now_s
            self._look(events or [], seen)
            if self._deliver():
                self._look(self._advance(math.nextafter(self.now_s, math.inf)) or [])
            self._hear()
            if self._list_at_s <= self.now_s:
                self._list()
            self._measure(self.true.snapshot())
            if rang:
                self._alarm_s = math.inf
            if rang or silent or self.ledger.changes != before:
                told, self._told = self._told, []
                return told
        return None

    def _advance(self, until_s: float) -> list[Event] | None:
        """Let the true cluster go on until something happens there, at the latest until this time."""
        now_s = self.true.snapshot().now_s
        if until_s <= now_s:
            return []
        if until_s < math.inf:
            self.true.apply(Wait(until_s))
        return self.true.wait()

    def snapshot(self) -> Snapshot:
        return self.ledger.snapshot()

    def apply(self, decision: Decision) -> Event:
        if isinstance(decision, Wait):
            return self._set_alarm(decision)
        if type(decision) not in self.can:
            name = type(decision).__name__
            return Event(
                self.now_s,
                What.REFUSED,
                decision.job,
                reason=f"{name}: this backend does not do that",
            )
        answer, sent = self.ledger.promise(decision)
        if sent is not None:
            self._happened()
            heapq.heappush(self._sent, (self.now_s + self.lag_s, self._next(), sent))
            if self._deliver():
                self._measure(self.true.snapshot())
        return answer

    def _set_alarm(self, decision: Wait) -> Event:
        if not decision.until_s > self.now_s:
            why = f"wait: until_s={decision.until_s!r} is not after second {self.now_s:g}"
            return Event(self.now_s, What.REFUSED, -1, reason=why)
        self._alarm_s = min(self._alarm_s, decision.until_s)
        return Event(self.now_s, What.PLACED, -1)

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self.true.close()

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _due_s(self) -> float:
        """When something of ours happens next: an arrival, a report, an alarm, a listing."""
        sent_s = self._sent[0][0] if self._sent else math.inf
        report_s = self._reports[0][0] if self._reports else math.inf
        return min(self._alarm_s, self._list_at_s, sent_s, report_s)

    def _deliver(self) -> bool:
        """Hand over the decisions that arrive now."""
        arrived = False
        while self._sent and self._sent[0][0] <= self.now_s:
            _, _, decision = heapq.heappop(self._sent)
            if self.rng.random() < self.lost_decisions:
                continue
            answer = self.true.apply(decision)
            arrived = True
            if answer.what == What.REFUSED:
                self.refusals.append(answer.reason)
                self._report((answer,), decision)
        if arrived:
            self._arrays = arrays_of(self.true.snapshot())
            self._happened()
        return arrived

    def _happened(self) -> None:
        if self._list_at_s == math.inf:
            self._list_at_s = (math.floor(self.now_s / self.listing_s) + 1) * self.listing_s

    def _report(self, events: tuple[Event | Partial, ...], decision: Decision | None = None) -> None:
        self._happened()
        if self.rng.random() < self.lost:
            return
        after_s = self.rng.random() * self.lag_s
        if self.rng.random() < self.late:
            after_s += self.rng.exponential(self.late_s)
        heapq.heappush(self._reports, (self.now_s + after_s, self._next(), decision, events))

    def _look(self, events: list[Event], seen: Snapshot | None = None) -> None:
        """Send out reports of what has happened, also of what has no event: see READY and Partial."""
        seen = seen or self.true.snapshot()
        status, arrays = seen.state["status"], arrays_of(seen)
        fresh = np.flatnonzero((status == Status.QUEUED) & (self._status < Status.QUEUED)).tolist()
        submitted = {event.job for event in events if event.what == What.SUBMITTED}
        for event in events:
            ready = event.what == What.SUBMITTED and event.job in fresh
            more = (Event(event.time_s, What.SUBMITTED, event.job, reason=READY),) if ready else ()
            self._report((event, *more))
        for job in fresh:
            if job not in submitted:
                self._report((Event(seen.now_s, What.SUBMITTED, job, reason=READY),))
        for slot, (job, start_s, places) in self._arrays.items():
            is_over = arrays.get(slot) != (job, start_s, places)
            if is_over and not any(told_of(event, job, places[0]) for event in events):
                self._report((Partial(seen.now_s, job, *places),))
        self._status, self._arrays = np.array(status), arrays

    def _hear(self) -> None:
        """Take what arrives now through the ledger."""
        seen = self.true.snapshot()
        while self._reports and self._reports[0][0] <= self.now_s:
            _, _, decision, events = heapq.heappop(self._reports)
            for event in events:
                if isinstance(event, Event) and event.what == What.SUBMITTED:
                    self.ledger.know(event.job, seen.jobs[event.job], seen.demand[event.job])
                if isinstance(event, Event) and decision is not None:
                    self._told += self.ledger.refuse(decision, event)
                else:
                    self._told += self.ledger.report(event)

    def _list(self) -> None:
        """Ask for everything, as `squeue` does."""
        self._list_at_s = math.inf
        seen = self.true.snapshot()
        listing = listing_of(seen)._replace(time_s=self.now_s)
        for job in np.flatnonzero(listing.status != Status.FUTURE).tolist():
            self.ledger.know(job, seen.jobs[job], seen.demand[job])
        self._told += self.ledger.relist(listing)
        if self.ledger.promises:
            self._happened()  # too young to be given up: look again

    def _measure(self, seen: Snapshot) -> None:
        """Load, power and progress are read where they are: they travel no slow wire."""
        self.ledger.mirror.measure(seen.node_state, seen.recent, seen.state["kept_s"], seen.totals)


def arrays_of(seen: Snapshot) -> Runs:
    """The runs of arrays, whose ends are no events."""
    job = seen.runs["job"][seen.running]
    is_array = (seen.jobs["gang"][job] == 0) & (seen.jobs["instances"][job] > 1)
    out: Runs = {}
    for slot in seen.running[is_array].tolist():
        run = seen.runs[slot]
        out[slot] = (int(run["job"]), float(run["start_s"]), places_of(seen, slot))
    return out


def told_of(event: Event, job: int, nodes: tuple[int, ...]) -> bool:
    """Whether this event already says that the run on these nodes is over."""
    if event.job != job:
        return False
    if event.what == What.STOPPED and event.reason != CANCELLED:
        return not event.nodes or event.nodes[0] in nodes
    return event.what in (What.FINISHED, What.FAILED, What.STOPPED, What.REJECTED)
