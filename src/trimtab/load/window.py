"""The load window of a live cluster: samples and events in as they come, features out in time.

The integers are those that the functions in `sums` make of whole columns, so both ways give the
same features to the last bit.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.errors import TraceError
from trimtab.load.samples import Samples
from trimtab.load.series import Frame, Series, whole_ms
from trimtab.load.steps import LEVELS, QUEUE_LEVELS, RUNNING, SERVICES, move, settle, take, tally
from trimtab.load.sums import (
    AT,
    FOREVER_MS,
    QUEUE,
    QUEUE_AT,
    SUMS,
    TOO_FAR_S,
    USE,
    add_samples,
    add_service_means,
    add_service_use,
)

AHEAD = 288  # windows that may be open at once: a day of five minutes each
FAR = 10_000  # windows that one close() may end: a time in other units would end millions
JOB_ROW = np.dtype(
    [
        ("runnable_ms", "i8"),  # of the instances that wait, the longest
        ("start_ms", "i8"),  # the first start
        ("waiting", "i8"),
        ("running", "i8"),
        ("cpu", "f8"),
        ("mem", "f8"),
    ]
)
SERVICE_ROW = np.dtype(
    [
        ("deploy_ms", "i8"),
        ("remove_ms", "i8"),  # FOREVER_MS = it is there
        ("node", "i8"),
        ("cpu", "f8"),
        ("mem", "f8"),
    ]
)
NO_SERVICE = np.array((-FOREVER_MS, -FOREVER_MS, -1, 0.0, 0.0), SERVICE_ROW)


class Open(NamedTuple):
    """The windows that are not over, first axis the window; the queue is a machine of its own."""

    sums: Array  # (W, N + 1, SUMS)
    change: Array  # (W, N + 1, LEVELS)
    queue: Array  # (W, 1, QUEUE)
    queue_change: Array  # (W, 1, QUEUE_LEVELS)
    use: Array  # (W, services, USE)


def longer(table: Array, rows: int, blank: Any = 0) -> Array:
    """The table with at least `rows` rows: twice as many as before, so that growth is rare."""
    if rows <= len(table):
        return table
    grown = np.zeros((max(rows, 2 * len(table)), *table.shape[1:]), table.dtype)
    grown[: len(table)], grown[len(table) :] = table, blank
    return grown


def in_columns(what: str, kinds: str, *values: Any) -> list[Array]:
    """Scalars and columns as columns of one length; `kinds` has f or i for each of them.

    One type a column: compiled code would compile again for another.
    """
    columns: Sequence[Array] = [np.atleast_1d(np.asarray(value)) for value in values]
    for kind, column in zip(kinds, columns):
        if kind == "i" and column.size and column.dtype.kind not in "iu":
            raise TraceError(f"{what}: {column[0]!r} is no row or count; give whole numbers")
    try:
        columns = np.broadcast_arrays(*columns)
    except ValueError:
        lengths = [column.shape for column in columns]
        raise TraceError(f"{what}: columns of shapes {lengths}; give one length") from None
    types = {"f": np.float64, "i": np.int64}
    return [np.ascontiguousarray(c, dtype=types[kind]) for kind, c in zip(kinds, columns)]


def first_of(rows: Array) -> Array:
    """True where a row is named for the first time."""
    first = np.zeros(len(rows), bool)
    first[np.unique(rows, return_index=True)[1]] = True
    return first


def in_ms(what: str, time_s: Any) -> Array:
    """Times as whole milliseconds."""
    times = np.asarray(time_s, dtype=np.float64)
    bad = np.flatnonzero(~(np.abs(times) < TOO_FAR_S))
    if len(bad):
        raise TraceError(f"{what}: time_s={times[bad[0]]} in row {bad[0]} is no time in seconds")
    return np.rint(times * 1000.0).astype(np.int64)


def check(what: str, name: str, values: Array, good: Array, remedy: str) -> None:
    """Raise for the first value that is not good."""
    bad = np.flatnonzero(~good)
    if len(bad):
        raise TraceError(f"{what}: {name}={values[bad[0]]} in row {bad[0]}; {remedy}")


class LoadWindow:
    """Features of fixed windows of a live cluster. Every event may be a scalar or a column.

    Jobs ask for shares of the mean machine; samples and services are in shares of their own
    machine. A job row may be used again when its instances have ended; a service row when the
    window of its removal is closed. What comes after its window was closed is counted in `late`:
    its counts are lost, the level it leaves behind is not.
    """

    def __init__(
        self,
        capacity: Any,  # (N, 2) CPU and memory in any unit
        region: Any,  # (N,)
        *,
        window_s: float = 300.0,
        history: int = 12,
        services: int = 0,
        grace_s: float = 0.0,
        start_s: float = 0.0,
    ) -> None:
        self.series = Series(capacity, region, window_s=window_s, history=history)
        self.late = 0
        self._ms = self.series.window_ms
        self._grace_ms = whole_ms("grace_s", grace_s, 0)
        self._begin = int(in_ms("start_s", [start_s])[0]) // self._ms
        self._first = self._begin  # the first window that is open
        self._used = 0  # windows from there that anything has been added to
        rows = self.series.nodes + 1
        self._level = np.zeros((rows, LEVELS), np.int64)
        self._queue_level = np.zeros((1, QUEUE_LEVELS), np.int64)
        self._jobs = np.zeros(0, JOB_ROW)
        self._services = np.full(services, NO_SERVICE)
        queue = (1, len(QUEUE)), (1, QUEUE_LEVELS)
        shapes = (rows, len(SUMS)), (rows, LEVELS), *queue, (services, len(USE))
        self._open = Open(*(np.zeros((2, *shape), np.int64) for shape in shapes))

    def use(self, samples: Samples) -> None:
        """Add what a monitor measured."""
        time_s, node, *ratios = in_columns("use", "fi" + "f" * 6, *samples[:8])
        self._check_nodes("use", node)
        self._admit("use", time_s)
        add_samples(self._open.sums, self._first, self._ms, time_s, node, *ratios)

    def service_use(self, time_s: Any, service: Any, cpu: Any, mem: Any) -> None:
        """Add what services were measured to use, as shares of their machine."""
        time_s, service, cpu, mem = in_columns("service_use", "fiff", time_s, service, cpu, mem)
        self._want_services("service_use", service)
        self._admit("service_use", time_s)
        add_service_use(self._open.use, self._first, self._ms, time_s, service, cpu, mem)

    def deploy(self, time_s: Any, service: Any, node: Any, cpu: Any, mem: Any) -> None:
        """Put services on machines, of which they reserve shares."""
        columns = in_columns("deploy", "fiiff", time_s, service, node, cpu, mem)
        time_s, service, node, cpu, mem = columns
        self._check_nodes("deploy", node)
        self._want_services("deploy", service)
        row = self._services[service]
        closed_ms = self._first * self._ms
        free = (row["remove_ms"] < closed_ms) | (
            (row["remove_ms"] < FOREVER_MS) & (row["node"] == node)
        )
        remedy = "it is there, or left another machine in an open window; use another row"
        check("deploy", "service", service, free & first_of(service), remedy)
        after = in_ms("deploy", time_s) >= row["remove_ms"]
        check("deploy", "time_s", time_s, after, "its remove() is later; look at the clocks")
        at_ms = self._admit("deploy", time_s)
        table = {"deploy_ms": at_ms, "remove_ms": FOREVER_MS, "node": node, "cpu": cpu, "mem": mem}
        for name, column in table.items():
            self._services[name][service] = column
        self._step(AT.services_ms, SERVICES, at_ms, node, np.ones_like(at_ms), cpu, mem)

    def remove(self, time_s: Any, service: Any) -> None:
        """Take services away."""
        time_s, service = in_columns("remove", "fi", time_s, service)
        self._want_services("remove", service)
        row = self._services[service]
        there = (row["remove_ms"] == FOREVER_MS) & first_of(service)
        check("remove", "service", service, there, "it is not there; deploy() it first")
        after = in_ms("remove", time_s) >= row["deploy_ms"]
        check("remove", "time_s", time_s, after, "its deploy() is later; look at the clocks")
        at_ms = self._admit("remove", time_s)
        self._services["remove_ms"][service] = at_ms
        gone = np.full(len(at_ms), -1)
        self._step(AT.services_ms, SERVICES, at_ms, row["node"], gone, row["cpu"], row["mem"])

    def runnable(self, time_s: Any, job: Any, count: Any, cpu: Any, mem: Any) -> None:
        """Let instances wait; each asks for shares of the mean machine.

        Instances of one job that become runnable at several times wait from the first of these
        for `start_wait_s`, as long as any of them waits.
        """
        time_s, job, count, cpu, mem = in_columns("runnable", "fiiff", time_s, job, count, cpu, mem)
        check("runnable", "job", job, job >= 0, "number jobs from 0")
        check("runnable", "count", count, count > 0, "give at least 1 instance")
        at_ms = self._admit("runnable", time_s)
        jobs = self._jobs = longer(self._jobs, int(job.max(initial=-1)) + 1)
        held = jobs["waiting"][job] + jobs["running"][job] > 0
        fresh = job[~held]
        before = jobs[job]
        jobs["cpu"][fresh], jobs["mem"][fresh] = cpu[~held], mem[~held]
        same = (jobs["cpu"][job] == cpu) & (jobs["mem"][job] == mem)
        if not same.all():
            jobs[job] = before
        check("runnable", "job", job, same, "it asks for other shares; use another row for it")
        jobs["start_ms"][fresh] = FOREVER_MS
        jobs["runnable_ms"][job[jobs["waiting"][job] == 0]] = FOREVER_MS
        np.minimum.at(jobs["runnable_ms"], job, at_ms)
        np.add.at(jobs["waiting"], job, count)
        self._queue_step(at_ms, count, cpu, mem)
        nothing = np.zeros_like(at_ms)
        tally(self._open.queue, QUEUE_AT.runnable, self._first, self._ms, at_ms, nothing, count)

    def start(self, time_s: Any, job: Any, node: Any, count: Any = 1) -> None:
        """Move waiting instances to machines; node -1 is a machine that is not known."""
        time_s, job, node, count = in_columns("start", "fiii", time_s, job, node, count)
        self._check_nodes("start", node)
        jobs, at_ms = self._leave_queue("start", time_s, job, count)
        np.add.at(self._jobs["running"], job, count)
        np.minimum.at(self._jobs["start_ms"], job, at_ms)
        self._run(at_ms, jobs, node, count)
        wait_ms = count * (at_ms - jobs["runnable_ms"])
        self._tally(AT.started, at_ms, node, count)
        self._tally(AT.start_wait_ms, at_ms, node, wait_ms)

    def withdraw(self, time_s: Any, job: Any, count: Any = 1) -> None:
        """Let waiting instances leave without a start."""
        time_s, job, count = in_columns("withdraw", "fii", time_s, job, count)
        self._leave_queue("withdraw", time_s, job, count)

    def end(self, time_s: Any, job: Any, node: Any, count: Any = 1) -> None:
        """End running instances on the machines they were started on."""
        time_s, job, node, count = in_columns("end", "fiii", time_s, job, node, count)
        self._check_nodes("end", node)
        jobs, at_ms = self._take("end", "running", "start_ms", time_s, job, count)
        self._run(at_ms, jobs, node, -count)
        self._tally(AT.ended, at_ms, node, count)

    def close(self, until_s: float) -> list[Frame]:
        """The features of the windows that have been over for `grace_s`, oldest first."""
        until = (int(in_ms("close", [until_s])[0]) - self._grace_ms) // self._ms
        if until - self._first > FAR:
            raise TraceError(
                f"close: until_s={until_s} is {until - self._first} windows after the last;"
                f" give seconds, set start_s, or close at most {FAR} windows at a time"
            )
        frames: list[Frame] = []
        while self._first < until:
            frames += self._close(min(until - self._first, len(self._open.sums)))
        return frames

    def _close(self, windows: int) -> list[Frame]:
        """Turn the first windows into features and move the others to the front."""
        sums, change, queue, queue_change, use = (table[:windows] for table in self._open)
        settle(sums, change, self._level, AT.running_ms, RUNNING, self._ms)
        settle(sums, change, self._level, AT.services_ms, SERVICES, self._ms)
        settle(queue, queue_change, self._queue_level, QUEUE_AT.waiting_ms, 0, self._ms)
        add_service_means(sums, use, self._services["node"])
        frames = [self.series.step(self._first + k, sums[k], queue[k, 0]) for k in range(windows)]
        left = max(self._used - windows, 0)
        for table in self._open:
            table[:left] = table[windows : windows + left]
            table[left : max(self._used, windows)] = 0
        self._used = left
        self._first += windows
        return frames

    def _admit(self, what: str, time_s: Array) -> Array:
        """Times in milliseconds, with their windows open and the late ones counted."""
        at_ms = in_ms(what, time_s)
        last = int(at_ms.max(initial=self._first * self._ms)) // self._ms - self._first
        if last >= AHEAD:
            raise TraceError(
                f"{what}: time_s={time_s.max()} is {last} windows after the first that is open;"
                f" give seconds, set start_s, or close() what is over first"
            )
        self._used = max(self._used, last + 1)
        self._open = Open(*(longer(table, last + 1) for table in self._open))
        window = at_ms // self._ms
        self.late += int(np.count_nonzero((window < self._first) & (window >= self._begin)))
        return at_ms

    def _check_nodes(self, what: str, node: Array) -> None:
        known = (node >= -1) & (node < self.series.nodes)
        check(what, "node", node, known, f"give 0..{self.series.nodes - 1}, or -1 for unknown")

    def _want_services(self, what: str, service: Array) -> None:
        """Make room for services up to the largest row."""
        check(what, "service", service, service >= 0, "number services from 0")
        rows = int(service.max(initial=-1)) + 1
        if rows > len(self._services):
            self._services = longer(self._services, rows, NO_SERVICE)
            use = np.zeros((len(self._open.use), len(self._services), len(USE)), np.int64)
            use[:, : self._open.use.shape[1]] = self._open.use
            self._open = self._open._replace(use=use)

    def _take(
        self, what: str, state: str, since: str, time_s: Array, job: Array, count: Array
    ) -> tuple[Array, Array]:
        """Take instances of jobs out of a state; their rows and the times in milliseconds."""
        known = (job >= 0) & (job < len(self._jobs))
        check(what, "job", job, known, "it never was runnable(); say so first")
        check(what, "count", count, count > 0, "give at least 1 instance")
        jobs = self._jobs[job]
        after = in_ms(what, time_s) >= jobs[since]
        check(what, "time_s", time_s, after, f"its {since} is later; look at the clocks")
        at_ms = self._admit(what, time_s)
        short = take(self._jobs[state], job, count)
        if short >= 0:
            raise TraceError(
                f"{what}: count={count[short]} in row {short}, but of job {job[short]} only"
                f" {jobs[state][short]} instances are {state}; say what came before"
            )
        return jobs, at_ms

    def _leave_queue(
        self, what: str, time_s: Array, job: Array, count: Array
    ) -> tuple[Array, Array]:
        jobs, at_ms = self._take(what, "waiting", "runnable_ms", time_s, job, count)
        self._queue_step(at_ms, -count, jobs["cpu"], jobs["mem"])
        return jobs, at_ms

    def _queue_step(self, at_ms: Array, count: Array, cpu: Array, mem: Array) -> None:
        table, change, column = self._open.queue, self._open.queue_change, QUEUE_AT.waiting_ms
        row = np.zeros_like(at_ms)
        cpu, mem = np.ascontiguousarray(cpu), np.ascontiguousarray(mem)
        place = self._first, self._ms
        move(table, change, self._queue_level, column, 0, *place, at_ms, row, count, cpu, mem)

    def _run(self, at_ms: Array, jobs: Array, node: Array, count: Array) -> None:
        unit = self.series.unit[node]  # node -1 reads the last row, the mean machine itself
        cpu, mem = jobs["cpu"] * unit[:, 0], jobs["mem"] * unit[:, 1]
        self._step(AT.running_ms, RUNNING, at_ms, node, count, cpu, mem)

    def _step(
        self, column: int, kind: int, at_ms: Array, node: Array, count: Array, cpu: Any, mem: Any
    ) -> None:
        row = np.where(node < 0, self.series.nodes, node)
        cpu, mem = np.ascontiguousarray(cpu), np.ascontiguousarray(mem)
        table, change, place = self._open.sums, self._open.change, (self._first, self._ms)
        move(table, change, self._level, column, kind, *place, at_ms, row, count, cpu, mem)

    def _tally(self, column: int, at_ms: Array, node: Array, amount: Array) -> None:
        row = np.where(node < 0, self.series.nodes, node)
        tally(self._open.sums, column, self._first, self._ms, at_ms, row, amount)
