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
from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.serving.net.runner import Pieces, Runner, pieces, together
from trimtab.serving.net.serve_profile import ServeProfile
from trimtab.serving.nouns import WIDTHS, nothing
from trimtab.serving.routing.greedy import LOAD, NONE, RUN, Knobs
from trimtab.serving.server.executor import Executor
from trimtab.serving.server.power import Meter, Model, Reading
from trimtab.serving.server.shelf import (
    BEFORE_QUEUE,
    FREE_NUMBERS,
    RECEIVED,
    Step,
    fail,
    give_up,
    pinned,
    put,
    shelf,
    step,
    tell,
)
from trimtab.serving.server.wire import ANSWER, FAILED, POWER_SOURCES, Report, Work

ROWS_MAX = 4096  # in the executor's queue; more wait before it
BROKEN_S = 5.0  # a segment that failed to load is not tried again before this
Key = tuple[int, int, int]
Between = Callable[[], None]


class Outcome(NamedTuple):
    """Rows that leave a server, and what it says of itself then."""

    kind: int  # ANSWER or FAILED
    report: bytes  # packed
    runs: Array  # (n, RUN_COLUMNS) batches since the last one
    segment: int  # the next one to run
    ids: Array  # (count,)
    widths: Array  # (count, SEGMENTS) uint8
    tensor: Any  # of FAILED a sentence


class Batch(NamedTuple):
    """A batch that ran."""

    instance: int
    began_s: float
    segment: int
    width: int
    rows: list[int]  # their numbers
    tensor: Any  # what the next segment takes


NO_BATCH = Batch(NONE, 0.0, NONE, NONE, [], None)


class Workshop:
    """Workers that run what is put in, until `close`.

    Workers are threads, where `start` is called; one alone may be whoever calls `work_off`.
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
        self.shelf = shelf(ROWS_MAX)
        self.pins = pinned(self.executor.arrays, self.shelf)
        self.at = self.pins[0].address, self.pins[1].address
        self.tensors: list[Any] = [None] * ROWS_MAX  # a row number: where its tensor is,
        self.places = [0] * ROWS_MAX  # and its row there
        self.fresh: tuple[list[int], Any] = [], None  # rows put last, and their tensor
        self.overflow: deque[tuple[Work, Any]] = deque()
        self.broken: dict[Key, tuple[float, str]] = {}  # until then not tried again, and why
        self.turn = threading.Condition()
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
        practise(self.executor)

    def start(self) -> None:
        """Begin to work, on threads."""
        for thread in self.threads:
            thread.start()

    def put(self, work: Work, tensor: Any) -> None:
        """Queue the rows of a batch."""
        with self.turn:
            self.shelf.counts[RECEIVED] = work.sent
            rows = 0 if self.overflow else self.queue(work, tensor)
            if rows < len(work.ids):
                self.overflow.append((work._replace(ids=work.ids[rows:]), tensor[rows:]))
                self.shelf.counts[BEFORE_QUEUE] += len(work.ids) - rows
            if self.threads[0].is_alive():
                self.turn.notify(self.workers)
            self.post()

    def queue(self, work: Work, tensor: Any) -> int:
        """Put as many rows as there is room for into the executor's queue; under the lock."""
        ids, before = np.array(work.ids, np.int64), work.before if work.segment else 0
        now_s, widths = self.clock(), work.widths
        rows, odd = put(*self.at, ids, widths, work.segment, before, NONE, now_s)
        numbers = self.shelf.out_row[:rows].tolist()
        for place, number in enumerate(numbers):
            self.tensors[number], self.places[number] = tensor, place
        self.fresh = numbers, tensor
        if odd:
            self.mend(odd, work.segment, before)
        return int(rows)

    def refill(self) -> None:
        """Queue what waits for room in the queue, in its order."""
        while self.overflow and self.shelf.counts[FREE_NUMBERS]:
            work, tensor = self.overflow.popleft()
            rows = self.queue(work, tensor)
            self.shelf.counts[BEFORE_QUEUE] -= rows
            if rows < len(work.ids):
                self.overflow.appendleft((work._replace(ids=work.ids[rows:]), tensor[rows:]))

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
        return bool(self.shelf.counts[FREE_NUMBERS] < ROWS_MAX or self.overflow)

    def report(self) -> tuple[Report, list[tuple[float, ...]]]:
        """What is going on, power read anew, and the batches since the last call."""
        with self.turn:
            told, now_s = self.shelf.report[0], self.clock()
            tell(*self.at, now_s)
            self.power = self.meter.read(float(told["util"]))
            self.energy_j += self.power.watts * (now_s - self.metered_s)
            self.metered_s = now_s
            told["power_w"], told["energy_j"] = self.power.watts, self.energy_j
            told["power_source"] = POWER_SOURCES.index(self.power.source)
            runs = [tuple(run) for run in self.untold().tolist()]
            return Report(*told.tolist())._replace(runs=0), runs

    def untold(self) -> Array:
        """The batches that no report told of yet."""
        count = self.shelf.report["runs"]
        runs = self.shelf.runs[: count[0]].copy()
        count[0] = 0
        return runs

    def mend(self, odd: int, segment: int, before: int) -> None:
        """Find another way for rows whose key does not load."""
        by_width: dict[int, list[int]] = {}
        for number in self.shelf.out_odd[:odd].tolist():
            by_width.setdefault(int(self.shelf.asked[number, segment]), []).append(number)
        for width, numbers in by_width.items():
            key = segment, before, width
            self.instead(numbers, key, self.broken[key][1])

    def instead(self, numbers: list[int], key: Key, reason: str) -> None:
        """Queue rows for a wider instance that is there, or give them back as failed."""
        segment, before, width = key
        wider = [w for w in self.executor.holds(segment, before) if w > width]
        rows = np.array(numbers, np.int64)
        if wider:
            self.executor.put_all(rows, segment, before, wider[0])
        elif numbers:
            give_up(self.at[1], rows)
            self.answer(FAILED, segment, len(rows), reason)

    def work(self) -> None:
        """What a worker thread does until the end."""
        with self.turn:
            while not self.ending:
                wait_s = self.work_off()
                self.drop_idle()
                if not self.ending:
                    self.turn.wait(max(wait_s, 1e-3) if wait_s < 3600 else None)

    def work_off(self, between: Between = nothing) -> float:
        """Run all that can run now, under the lock; returns for how long nothing will unless
        something comes. `between` is called after every batch, without the lock.
        """
        ran, count = NO_BATCH, self.shelf.counts
        while not self.ending:
            if self.overflow:
                self.refill()
            now_s = self.clock()
            todo = Step(*step(*self.at, ran.instance, ran.began_s, now_s))
            rows = self.shelf.out_row[: todo.rows].tolist()
            if ran.rows:
                self.pass_on(ran, todo, rows)
            if todo.odd:
                self.mend(todo.odd, ran.segment + 1, ran.width)
            if todo.what == RUN:
                batch = self.gathered(rows, ran)
            self.post()
            ran = NO_BATCH
            if todo.what == RUN:
                ran = self.run(todo, rows, batch, between)
            elif todo.what == LOAD:
                self.load(todo)
            elif not todo.odd and not (self.overflow and count[FREE_NUMBERS]):
                return todo.until_s - now_s
        return math.inf

    def answer(self, kind: int, segment: int, count: int, tensor: Any) -> None:
        """Note for sending that rows have left, as the last call wrote them."""
        tell(*self.at, self.clock())
        told, ids = self.shelf.report.tobytes(), self.shelf.out_id[:count].copy()
        widths = self.shelf.out_used[:count].copy()
        self.outbox.append(Outcome(kind, told, self.untold(), segment, ids, widths, tensor))

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

    def drop_idle(self) -> None:
        """Unload what nobody has used for long."""
        with self.turn:
            for segment, before, width in self.executor.unload(self.clock()):
                if width not in self.executor.holds(segment, before):
                    self.runner.unload(segment, before, width)

    def load(self, todo: Step) -> None:
        """Load an instance without the lock; a failure is the key's, not the server's."""
        key = todo.segment, todo.before, todo.width
        self.turn.release()
        problem = None
        try:
            self.runner.load(*key)
        except Exception as wrong:
            problem = wrong
        finally:
            self.turn.acquire()
        if problem is None:
            self.executor.ended(todo.instance, self.clock())
            self.turn.notify_all()
            return
        self.executor.failed(todo.instance, self.clock())
        reason = self.breaks(key, problem)
        self.instead(self.executor.give_back(*key), key, reason)

    def breaks(self, key: Key, problem: Exception) -> str:
        """Remember that a key does not load; the sentence that says so."""
        reason = f"segment {key[0]} at width {WIDTHS[key[2]]} does not load: {problem}"
        until_s = self.clock() + BROKEN_S
        self.broken[key] = until_s, reason
        self.shelf.broken_s[(key[0] * 4 + key[1]) * 4 + key[2]] = until_s
        return reason

    def gathered(self, rows: list[int], ran: Batch) -> Pieces:
        """Where the tensors of rows lie."""
        # most batches are those that ran or came just now, as they are
        if rows == ran.rows:
            return [(ran.tensor, 0, len(rows))]
        came, tensor = self.fresh
        if rows == came and self.tensors[rows[0]] is tensor:
            return [(tensor, 0, len(rows))]
        return pieces([(self.tensors[number], self.places[number]) for number in rows])

    def run(self, todo: Step, rows: list[int], parts: Pieces, between: Between) -> Batch:
        """Run a batch without the lock; where that fails its rows go back."""
        self.turn.release()
        problem, found = None, None
        began_s, began_cpu_s = self.clock(), time.thread_time() if self.share < 1 else 0.0
        try:
            batch = self.runner.resident(together(parts, self.runner))
            found = self.runner.run(todo.segment, todo.before, todo.width, batch)
            # one that goes home takes its batch along: batches of both kinds are rare
            if todo.ends:
                found = self.runner.fetched(found)
        except Exception as wrong:
            problem = wrong
        finally:
            if self.share < 1:
                self.dawdle(began_s, began_cpu_s)
            try:
                between()
            finally:
                self.turn.acquire()
        if problem is None:
            return Batch(todo.instance, began_s, todo.segment, todo.width, rows, found)
        count = fail(*self.at, todo.instance, self.clock())
        self.answer(FAILED, todo.segment, count, f"a batch failed: {problem}")
        return NO_BATCH

    def dawdle(self, began_s: float, began_cpu_s: float) -> None:
        """Take as long as a slower machine would."""
        spent_s, cpu_s = self.clock() - began_s, time.thread_time() - began_cpu_s
        # by what it computed itself, so that a moment without a core counts once; by the clock
        # where others computed for it
        spent_s = cpu_s if cpu_s > spent_s / 2 else spent_s
        time.sleep(spent_s * (1 / self.share - 1))

    def pass_on(self, ran: Batch, todo: Step, following: list[int]) -> None:
        """Keep a batch's tensor for the rows that go on, unless they are all that is `following`,
        and answer those whose way has ended.
        """
        home, found = todo.home, ran.tensor
        if home < len(ran.rows):
            for place, number in enumerate(ran.rows if following != ran.rows else ()):
                self.tensors[number], self.places[number] = found, place
            if self.workers > 1:
                self.turn.notify()
        else:
            for number in ran.rows:
                self.tensors[number] = None
        if home:
            whole = found if home == len(ran.rows) else found[self.shelf.out_place[:home]]
            self.answer(ANSWER, ran.segment + 1, home, whole)


def practise(executor: Executor) -> None:
    """Go through all that an executor does, on a copy, so that it is compiled before it counts."""
    copy = Executor.__new__(Executor)
    copy.arrays = type(executor.arrays)(*(array.copy() for array in executor.arrays))
    pins = pinned(copy.arrays, shelf(len(copy.arrays.after)))
    at = pins[0].address, pins[1].address
    put(*at, np.zeros(1, np.int64), (0, 0, 0, 0), 0, 0, NONE, 0.0)
    todo = Step(*step(*at, NONE, 0.0, 0.0))
    if todo.what != LOAD:
        step(*at, todo.instance, 0.0, 0.0)
    fail(*at, 0, 0.0)
    give_up(at[1], np.zeros(0, np.int64))
    tell(*at, 0.0)
    copy.put_all(np.zeros(1, np.int64), 0, 0, 3)
    copy.warm(0, 0, 0, 0.0)
    copy.ended(0, 0.0)
    copy.failed(0, 0.0)
    copy.give_back(0, 0, 3)
    copy.unload(1e9)
