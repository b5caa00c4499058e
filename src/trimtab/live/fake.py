"""A pretend real cluster: it hears late, reports late, out of order or never, and can be listed.

Inside is a true cluster (any Backend; a simulator in practice) that nobody may look at: all we know
of it is what its reports say. With nothing late or lost it is the true cluster, event for event.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from trimtab.arrays import Array
from trimtab.core import Decision, Event, Limit, Snapshot, Wait, What
from trimtab.errors import TrimtabError
from trimtab.live.ledger import Ledger
from trimtab.live.mirror import LENT, Held
from trimtab.live.promise import UNKNOWN, Fact, Report
from trimtab.rules.steer import wrong_limit


class FakeBackend:
    """A cluster that answers like a real one.

    `true` is a Backend with a `cluster`, and honours Wait; its clock is the only clock. A decision
    arrives `lag_s` after it was sent (a share `dropped` never does). A share `late` of the reports
    comes after a random time with mean `late_s`, a share `lost` never; a listing every `list_s`
    tells what was lost. `numbered`: reports say which of our decisions the cluster took up last.
    A Limit is about no job, and is never dropped.
    """

    def __init__(
        self,
        true: Any,
        *,
        lag_s: float = 5.0,
        late: float = 0.1,
        late_s: float = 10.0,
        lost: float = 0.05,
        dropped: float = 0.0,
        list_s: float = 30.0,
        patience_s: float = 60.0,
        numbered: bool = True,
        window_s: float = 300.0,
        rng: np.random.Generator | None = None,
        ledger: Callable[..., Ledger] = Ledger,
    ) -> None:
        if patience_s <= lag_s:
            raise TrimtabError(
                f"patience_s={patience_s:g} is not above lag_s={lag_s:g}: a decision could arrive "
                f"after it was withdrawn; give patience_s more than the longest time on the way"
            )
        seen = true.snapshot()
        self.true, self.can = true, true.can
        self.lag_s, self.dropped = lag_s, dropped
        self.late, self.late_s, self.lost = late, late_s, lost
        self.list_s, self.numbered = list_s, numbered
        self.rng = rng or np.random.default_rng(0)
        self.ledger = ledger(
            true.cluster,
            seen.profile,
            patience_s=patience_s,
            jobs=len(seen.jobs),
            startup_s=seen.startup_s,
            move_s=seen.move_s,
            live_migration=seen.live_migration,
            mix=seen.mix,
            labels=seen.labels,
            quotas=seen.quotas,
            reserved=seen.reserved,
            window_s=window_s,
            windows=seen.recent.shape[1],
        )
        if len(seen.limit):
            self.ledger.mirror.lent = {name: np.copy(getattr(seen, name)) for name in LENT}
            self.ledger.mirror.lent["estimate"] = seen.estimate
        self.now_s = float(seen.now_s)
        self.refusals: list[Event] = []  # what the true cluster turned down
        self.lost_reports = self.lost_decisions = self.listings = 0
        self._outbox: deque[tuple[float, int, Decision]] = deque()  # (arrives, number, decision)
        self._inbox: list[tuple[float, int, Report]] = []  # heap of (arrives, version, report)
        self._version = 0
        self._heard: dict[int, int] = {}  # by job: our last decision that the true cluster took up
        self._known = seen.state.copy()  # the true state when it last was looked at
        self._load = seen.node_state["load"].copy()
        self._alarm_s = np.inf  # the policy's
        self._list_s = list_s  # when the next listing is due
        self._untold = False  # a report was lost since the last listing
        self._set: set[float] = set()  # alarms we set for ourselves
        self._held_back: list[Event] = []  # confirmations, told with the next news
        self._closed = False
        there = tuple(self._fact(seen, int(job)) for job in np.flatnonzero(seen.jobs["instances"]))
        self.ledger.absorb(Report(0, None, there, seen.node_state.copy()), self.now_s)

    # the protocol

    def wait(self) -> list[Event] | None:
        while True:
            woken = self._arrive()
            due = self._alarm_s <= self.now_s
            if due:
                self._alarm_s = np.inf
            if woken or due:
                return self._tell()
            if not self._step():
                return self._tell() if self._held_back else None

    def snapshot(self) -> Snapshot:
        return self.ledger.snapshot(self.now_s)

    def apply(self, decision: Decision) -> Event:
        if type(decision) not in self.can:
            job = int(getattr(decision, "job", -1))
            why = f"backend: cannot {type(decision).__name__}"
            return Event(self.now_s, What.REFUSED, job, reason=why)
        if isinstance(decision, Wait):
            return self._set_alarm(decision)
        if isinstance(decision, Limit):
            return self._set_limit(decision)
        answer = self.ledger.promise(decision, self.now_s)
        self._send()
        if self.lag_s == 0:
            self._arrive()  # a cluster without lag answers at once
        return answer

    def _set_alarm(self, decision: Wait) -> Event:
        if not decision.until_s > self.now_s:
            why = f"wait: until_s={decision.until_s!r} is not after second {self.now_s:g}"
            return Event(self.now_s, What.REFUSED, -1, reason=why)
        self._alarm_s = min(self._alarm_s, float(decision.until_s))
        return Event(self.now_s, What.PLACED, -1)

    def _set_limit(self, decision: Limit) -> Event:
        """Shown at once, heard after the lag; the room it makes shows when nodes report it."""
        mirror = self.ledger.mirror
        why = wrong_limit(decision, len(mirror.lent.get("limit", ())))
        if why:
            mirror.totals["refused"] += 1
            return Event(self.now_s, What.REFUSED, -1, reason=why)
        mirror.lend(decision)
        self._outbox.append((self.now_s + self.lag_s, 0, decision))
        self._deliver()
        if self.lag_s == 0:
            self._arrive()
        return Event(self.now_s, What.PLACED, -1)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.true.close()

    # time

    def _step(self) -> bool:
        """Let the true cluster run until it or we have something to do. False = never again."""
        ours_s = min(
            self._outbox[0][0] if self._outbox else np.inf,
            self._inbox[0][0] if self._inbox else np.inf,
            self._list_s if self._untold or self.ledger.promises else np.inf,
        )
        until_s = min(ours_s, self._alarm_s)
        if until_s < np.inf:
            self.true.apply(Wait(until_s))
            self._set = {one for one in self._set if one >= self.now_s} | {until_s}
        events = self.true.wait()
        if events is None:
            if ours_s == np.inf:
                return False
            self.now_s = max(self.now_s, ours_s)  # all is over there, but word of it is on its way
        else:
            self.now_s = max(self.now_s, float(self.true.snapshot().now_s))
            self._look(events)
        self._deliver()
        if self._list_s <= self.now_s:
            self._list()
        return True

    def _send(self) -> None:
        for number, decision in self.ledger.outgoing():
            if self.dropped and self.rng.random() < self.dropped:
                self.lost_decisions += 1
            else:
                self._outbox.append((self.now_s + self.lag_s, number, decision))
        self._deliver()

    def _deliver(self) -> None:
        """Hand over the decisions that have arrived, oldest first."""
        while self._outbox and self._outbox[0][0] <= self.now_s:
            _, number, decision = self._outbox.popleft()
            answer = self.true.apply(decision)
            self._heard[answer.job] = number
            if answer.what == What.REFUSED:
                self.refusals.append(answer)
                seen = self.true.snapshot()
                self._report(seen, answer, (self._fact(seen, answer.job),), answers=number)
            else:
                self._look((), acted=answer.job)

    def _arrive(self) -> bool:
        """Take in the reports that have arrived. True when one is news to a policy."""
        woken = False
        while self._inbox and self._inbox[0][0] <= self.now_s:
            came_s, _, report = heapq.heappop(self._inbox)
            self._held_back += self.ledger.absorb(report, came_s)
            woken |= self.ledger.news
            self._send()
        return woken

    def _tell(self) -> list[Event]:
        if self._alarm_s <= self.now_s:
            self._alarm_s = np.inf
        told, self._held_back = self._held_back, []
        return told

    # reports

    def _look(self, events: Sequence[Event], acted: int = -1) -> None:
        """Report what the true cluster says and what changed there without a word."""
        seen = self.true.snapshot()
        rows = seen.state.view(np.int64).reshape(len(seen.state), -1)
        before = self._known.view(np.int64).reshape(len(seen.state), -1)
        changed = set(np.flatnonzero((rows != before).any(axis=1)).tolist())
        self._known = seen.state.copy()
        quiet = np.array_equal(seen.node_state["load"], self._load)
        self._load = seen.node_state["load"].copy()
        old = [event for event in events if event.time_s < self.now_s]
        for event in old:  # how things stood then was said then
            self._report(None, event, ())
        for event in events[len(old) :]:
            facts = (self._fact(seen, event.job),) if event.job >= 0 else ()
            changed.discard(event.job)
            self._report(seen, event, facts)
        if acted >= 0:
            changed.add(acted)
        if changed:
            self._report(seen, None, tuple(self._fact(seen, job) for job in sorted(changed)))
        elif len(events) == len(old) and not (quiet and self.now_s in self._set):
            self._report(seen, None, ())  # it woke for some reason that we do not see

    def _report(
        self, seen: Snapshot | None, event: Event | None, facts: tuple[Fact, ...], answers: int = 0
    ) -> None:
        """Send word: now, later, or never."""
        self._version += 1
        if self.lost and self.rng.random() < self.lost:
            self.lost_reports += 1
            self._untold = True
            return
        delay_s = 0.0
        if self.late and self.rng.random() < self.late:
            delay_s = self.rng.exponential(self.late_s)
        nodes = None if seen is None else seen.node_state.copy()
        lent = foreseen(seen)
        report = Report(self._version, event, facts, nodes, *lent, answers=answers)
        sent_s = self.now_s if event is None else event.time_s
        heapq.heappush(self._inbox, (sent_s + delay_s, self._version, report))

    def _list(self) -> None:
        """The periodic listing: every job that has been submitted, and every node."""
        self._list_s = (self.now_s // self.list_s + 1) * self.list_s
        if not self._untold and not self.ledger.promises:
            return  # it could tell nothing new
        seen = self.true.snapshot()
        self._version += 1
        self.listings += 1
        jobs = [job for job in range(len(seen.jobs)) if seen.jobs["instances"][job] > 0]
        facts = tuple(self._fact(seen, job) for job in jobs)
        lent = foreseen(seen)
        report = Report(self._version, None, facts, seen.node_state.copy(), *lent, whole=True)
        heapq.heappush(self._inbox, (self.now_s, self._version, report))
        self._untold = False

    def _fact(self, seen: Snapshot, job: int) -> Fact:
        ask = None
        if seen.jobs["instances"][job] > 0:
            ask = (seen.jobs[job].copy(), seen.demand[job].copy())
        heard = self._heard.get(job, 0) if self.numbered else UNKNOWN
        return Fact(job, seen.state[job].copy(), held_by(seen, job), ask, heard)


def held_by(seen: Snapshot, job: int) -> tuple[Held, ...]:
    """The runs of a job in a snapshot, oldest first."""
    found = []
    run = int(seen.state["run"][job])
    while run >= 0:
        rec = seen.runs[run]
        places: list[tuple[int, int]] = []  # (node, devices) an instance, last first
        piece = int(rec["piece"])
        while piece >= 0:
            one: Array = seen.pieces[piece]
            places += [(int(one["node"]), int(one["devices"]))] * int(one["count"])
            piece = int(one["next"])
        nodes, devices = zip(*reversed(places), strict=True) if places else ((), ())
        times = (float(rec[name]) for name in ("start_s", "expected_end_s", "resume_s", "rate"))
        found.append(Held(nodes, devices, int(rec["shape"]), *times))
        run = int(rec["sibling"])
    return tuple(reversed(found))


def foreseen(seen: Snapshot | None) -> tuple[Array | None, Array | None]:
    """What a cluster that lends reports of services' use to come."""
    if seen is None or not len(seen.limit):
        return None, None
    return seen.ahead.copy(), seen.said.copy()
