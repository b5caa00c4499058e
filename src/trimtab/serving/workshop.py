"""The inside of one live server: its queue, its workers and what they run.

Algorithm 1 decides (`executor.Executor`); here are the rows that wait, the threads that run them
and the tensors between segments. Answers leave through a function, so that this knows no socket.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from trimtab.core import Array
from trimtab.serving.executor import Action, Executor
from trimtab.serving.greedy import LOAD, WAIT, Knobs
from trimtab.serving.power import Meter, Model, Reading
from trimtab.serving.serve_profile import ServeProfile
from trimtab.serving.slim_form import SEGMENTS, WIDTHS
from trimtab.serving.wire import ANSWER, FAILED, POWER_SOURCES, UNRUN, Report, Work

ROWS_MAX = 4096  # in the executor's queue; more wait before it
BROKEN_S = 5.0  # a segment that failed to load is not tried again before this
Key = tuple[int, int, int]


class Runner(Protocol):
    """What runs segments: `segments.Segments`, `runners.Runners` or a stand-in.

    What `resident` made of an array stays where the device computes until it is `fetched`.
    """

    def run(self, segment: int, before: int, width: int, x: Any) -> Any: ...

    def load(self, segment: int, before: int, width: int) -> Any: ...

    def unload(self, segment: int, before: int, width: int) -> bool: ...

    def takes(self, segment: int, before: int) -> tuple[int, int, int]: ...

    def resident(self, x: Any) -> Any: ...

    def stack(self, rows: Sequence[Any]) -> Any: ...

    def fetched(self, x: Any) -> Array: ...


class Outcome(NamedTuple):
    """Rows that leave a server, and what it says of itself then."""

    kind: int  # ANSWER or FAILED
    report: Report
    runs: list[tuple[float, ...]]
    segment: int  # the next one to run
    ids: list[int]
    widths: list[tuple[int, ...]]
    tensor: Any  # of FAILED a sentence


class Row:
    """One image on its way through the segments."""

    __slots__ = ("at", "id", "tensor", "used", "widths")

    def __init__(self, id: int, widths: tuple[int, ...], tensor: Any, at: int) -> None:
        self.id, self.widths = id, widths
        self.tensor, self.at = tensor, at  # its row of what the next segment takes
        self.used = (UNRUN,) * SEGMENTS

    def ends(self, following: int) -> bool:
        """Whether its way ends before that segment."""
        return following == SEGMENTS or self.widths[following] == UNRUN


class Workshop:
    """Workers that run what is put in, until `close`.

    share < 1 emulates a slower machine: after every batch the worker waits, and burns no core.
    """

    def __init__(
        self,
        runner: Runner,
        profile: ServeProfile,
        send: Callable[[Outcome], None],
        *,
        workers: int = 1,
        share: float = 1.0,
        warm: Sequence[Key] = (),
        knobs: Knobs | None = None,
        meter: Meter | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.runner, self.send, self.share, self.clock = runner, send, share, clock
        self.outbox: list[Outcome] = []  # sent without the lock
        self.workers = workers
        self.meter: Meter = meter or Model(profile.idle_w, profile.busy_w)
        self.power, self.energy_j, self.metered_s = Reading(0.0, ""), 0.0, clock()
        self.executor = Executor(
            profile,
            knobs or Knobs(),
            workers=workers,
            requests=ROWS_MAX,
            instances=len(warm) * workers + 16,
        )
        self.rows: list[Row | None] = [None] * ROWS_MAX
        self.free = list(range(ROWS_MAX))
        self.overflow: deque[tuple[Row, int, int]] = deque()
        self.broken: dict[Key, tuple[float, str]] = {}  # until then not tried again, and why
        self.turn = threading.Condition()
        self.runs: list[tuple[float, ...]] = []
        self.received = self.batches = self.ran = 0
        self.ending = False
        self.threads = [
            threading.Thread(target=self.work, name=f"worker {at}", daemon=True)
            for at in range(workers)
        ]

    def warm_up(self, keys: Sequence[Key], beside: Callable[[], bool] = bool) -> None:
        """Load and run every key once; stops early where `beside` says so.

        One that fails is left out: it may load later, and a wider one stands in for it until then.
        """
        for key in keys:
            if beside():
                return
            try:
                self.runner.load(*key)
                x: Array = np.zeros((1, *self.runner.takes(*key[:2])), np.float32)
                self.runner.run(*key, x)
            except Exception as problem:
                self.breaks(key, problem)
                continue
            with self.turn:
                for _ in range(self.workers):
                    self.executor.warm(*key, self.clock())

    def start(self) -> None:
        """Begin to work."""
        practise(self.executor)
        for thread in self.threads:
            thread.start()

    def put(self, work: Work, tensor: Array) -> None:
        """Queue the rows of a batch."""
        with self.turn:
            self.received = work.sent
            rows = [Row(id, work.widths, tensor, at) for at, id in enumerate(work.ids)]
            self.queue(rows, work.segment, work.before)
            self.turn.notify(self.workers)
            self.post()

    def close(self, limit_s: float) -> bool:
        """Stop when nothing is left, or after a time; True where nothing was."""
        until_s = self.clock() + limit_s
        with self.turn:
            while self.busy() and self.clock() < until_s:
                self.turn.wait(0.02)
            done, self.ending = not self.busy(), True
            self.turn.notify_all()
        for thread in self.threads:
            if thread.is_alive():
                thread.join(max(until_s - self.clock(), 0.1))
        return done

    def busy(self) -> bool:
        return len(self.free) < ROWS_MAX or bool(self.overflow)

    def report(self) -> tuple[Report, list[tuple[float, ...]]]:
        """What is going on, power read anew, and the batches since the last call."""
        with self.turn:
            now_s, util = self.clock(), self.util()
            self.power = self.meter.read(util)
            self.energy_j += self.power.watts * (now_s - self.metered_s)
            self.metered_s = now_s
            return self.told()

    def util(self) -> float:
        """Share of workers busy, smoothed."""
        x = self.executor.arrays
        server, window_s = x.server[0], float(x.knobs[0]["util_window_s"])
        # as of the last change of `busy`, brought up to now
        faded = math.exp(min(float(server["util_s"]) - self.clock(), 0.0) / window_s)
        share = float(server["busy"]) / self.workers
        return share + (float(server["util"]) - share) * faded

    def told(self) -> tuple[Report, list[tuple[float, ...]]]:
        x, now_s = self.executor.arrays, self.clock()
        server = x.server[0]
        busy = int(server["busy"])
        waits = x.lines[0]["count"].reshape(SEGMENTS, -1).sum(axis=1).tolist()
        busy_s = float(server["busy_s"]) + busy * (now_s - float(server["util_s"]))
        runs, self.runs = self.runs, []
        return Report(
            received=self.received,
            busy=busy,
            waiting=int(server["waiting"]) + len(self.overflow),
            loaded=int((x.instance[0]["state"] != 0).sum()),
            workers=self.workers,
            waiting_0=waits[0],
            waiting_1=waits[1],
            waiting_2=waits[2],
            waiting_3=waits[3],
            batches=self.batches,
            rows=self.ran,
            memory_b=float(server["memory_b"]),
            util=self.util(),
            power_w=self.power.watts,
            energy_j=self.energy_j,
            busy_s=busy_s,
            power_source=POWER_SOURCES.index(self.power.source),
        ), runs

    def queue(self, rows: list[Row], segment: int, before: int) -> None:
        """Put rows into the executor's queue, each by the width asked for; under the lock."""
        by_width: dict[int, list[int]] = {}
        for row in rows:
            if not self.free:
                self.overflow.append((row, segment, before))
                continue
            number = self.free.pop()
            self.rows[number] = row
            by_width.setdefault(row.widths[segment], []).append(number)
        for width, numbers in by_width.items():
            self.queue_key(numbers, (segment, before if segment else 0, width))

    def queue_key(self, numbers: list[int], key: Key) -> None:
        until_s, reason = self.broken.get(key, (0.0, ""))
        if until_s > self.clock():
            self.instead(numbers, key, reason)
        else:
            self.executor.put_all(np.array(numbers, np.int64), *key)

    def instead(self, numbers: list[int], key: Key, reason: str) -> None:
        """Queue rows for a wider instance that is there, or give them back as failed."""
        segment, before, width = key
        wider = [w for w in self.executor.holds(segment, before) if w > width]
        if wider:
            self.executor.put_all(np.array(numbers, np.int64), segment, before, wider[0])
            return
        self.answer(FAILED, segment, self.taken(numbers), reason)

    def taken(self, numbers: Sequence[int]) -> list[Row]:
        """Rows that leave the executor; their numbers may be used again."""
        rows = [row for number in numbers if (row := self.rows[number]) is not None]
        for number in numbers:
            self.rows[number] = None
        self.free.extend(numbers)
        while self.overflow and self.free:
            row, segment, before = self.overflow.popleft()
            self.queue([row], segment, before)
        return rows

    def work(self) -> None:
        """What a worker does until the end."""
        with self.turn:
            while not self.ending:
                now_s = self.clock()
                action = self.executor.next(now_s)
                if action.what == WAIT:
                    self.drop_idle(now_s)
                    wait_s = action.until_s - now_s
                    self.turn.wait(max(wait_s, 1e-3) if wait_s < 3600 else None)
                elif action.what == LOAD:
                    self.load(action)
                else:
                    self.run(action)
                self.post()

    def answer(self, kind: int, segment: int, rows: list[Row], tensor: Any) -> None:
        ids, widths = [row.id for row in rows], [row.used for row in rows]
        self.outbox.append(Outcome(kind, *self.told(), segment, ids, widths, tensor))

    def post(self) -> None:
        """Send what has ended, without the lock that is held here."""
        if self.outbox:
            outbox, self.outbox = self.outbox, []
            self.turn.release()
            try:
                for outcome in outbox:
                    self.send(outcome)
            finally:
                self.turn.acquire()

    def drop_idle(self, now_s: float) -> None:
        for segment, before, width in self.executor.unload(now_s):
            if width not in self.executor.holds(segment, before):
                self.runner.unload(segment, before, width)

    def load(self, action: Action) -> None:
        """Load an instance without the lock; a failure is the key's, not the server's."""
        key = action.segment, action.before, action.width
        self.turn.release()
        problem = None
        try:
            self.runner.load(*key)
        except Exception as wrong:
            problem = wrong
        finally:
            self.turn.acquire()
        if problem is None:
            self.executor.ended(action.instance, self.clock())
            self.turn.notify_all()
            return
        self.executor.failed(action.instance, self.clock())
        reason = self.breaks(key, problem)
        self.instead(self.executor.give_back(*key), key, reason)

    def breaks(self, key: Key, problem: Exception) -> str:
        """Remember that a key does not load; the sentence that says so."""
        reason = f"segment {key[0]} at width {WIDTHS[key[2]]} does not load: {problem}"
        self.broken[key] = self.clock() + BROKEN_S, reason
        return reason

    def run(self, action: Action) -> None:
        """Run a batch without the lock, then send its rows on or back."""
        rows = [row for number in action.requests if (row := self.rows[number]) is not None]
        self.turn.release()
        problem, found = None, None
        began_s, began_cpu_s = self.clock(), time.thread_time()
        try:
            x = self.runner.resident(together(rows, self.runner))
            found = self.runner.run(action.segment, action.before, action.width, x)
            # one that goes home takes its batch along: batches of both kinds are rare
            if any(row.ends(action.segment + 1) for row in rows):
                found = self.runner.fetched(found)
        except Exception as wrong:
            problem = wrong
        finally:
            if self.share < 1:
                spent_s, cpu_s = self.clock() - began_s, time.thread_time() - began_cpu_s
                # by what it computed itself, so that a moment without a core counts once; by the
                # clock where others computed for it
                spent_s = cpu_s if cpu_s > spent_s / 2 else spent_s
                time.sleep(spent_s * (1 / self.share - 1))
            self.turn.acquire()
        now_s = self.clock()
        self.taken(action.requests)
        if found is None:
            self.executor.failed(action.instance, now_s)
            self.answer(FAILED, action.segment, rows, f"a batch failed: {problem}")
            return
        self.executor.ended(action.instance, now_s)
        self.batches += 1
        self.ran += len(rows)
        key = (action.segment, action.before, action.width)
        self.runs.append((*key, len(rows), now_s - began_s))
        self.pass_on(rows, action, found)

    def pass_on(self, rows: list[Row], action: Action, found: Any) -> None:
        """Queue rows for their next segment, or answer those whose way ends here."""
        following = action.segment + 1
        on: list[Row] = []
        home: list[Row] = []
        for at, row in enumerate(rows):
            row.tensor, row.at = found, at
            row.used = (*row.used[: action.segment], action.width, *row.used[following:])
            (home if row.ends(following) else on).append(row)
        if on:
            self.queue(on, following, action.width)
            self.turn.notify()
        if home:
            whole = found if len(home) == len(rows) else together(home, self.runner)
            self.answer(ANSWER, following, home, whole)


def practise(executor: Executor) -> None:
    """Go through all that an executor does, on a copy, so that it is compiled before it counts."""
    copy = Executor.__new__(Executor)
    copy.arrays = type(executor.arrays)(*(array.copy() for array in executor.arrays))
    copy.put_all(np.zeros(1, np.int64), 0, 0, 3)
    copy.ended(0, 0.0)
    action = copy.next(0.0)
    if action.what == LOAD:
        copy.ended(action.instance, 0.0)
        action = copy.next(0.0)
    copy.failed(max(action.instance, 0), 0.0)
    copy.warm(0, 0, 0, 0.0)
    copy.give_back(0, 0, 3)
    copy.unload(1e9)
    copy.next(0.0)


def together(rows: list[Row], runner: Runner) -> Any:
    """The rows' tensors as one batch, without a copy where they lie so already."""
    pieces: list[tuple[Any, int, int]] = []  # tensor, from, to
    for row in rows:
        if pieces and pieces[-1][0] is row.tensor and pieces[-1][2] == row.at:
            pieces[-1] = (*pieces[-1][:2], row.at + 1)
        else:
            pieces.append((row.tensor, row.at, row.at + 1))
    parts = [tensor[first:last] for tensor, first, last in pieces]
    if len(parts) == 1:
        return parts[0]
    if len({type(part) for part in parts}) > 1:  # some came just now, others are on the device
        parts = [runner.resident(part) for part in parts]
    return runner.stack(parts)
