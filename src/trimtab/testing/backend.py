"""Whether a backend keeps the protocol."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np

from trimtab.core import (
    Backend,
    Cluster,
    Decision,
    Event,
    Limit,
    Move,
    Reject,
    Resize,
    Snapshot,
    Start,
    Status,
    Stop,
    Wait,
    What,
    Workload,
)
from trimtab.policies import named
from trimtab.run import KINDS
from trimtab.testing.cases import MOST_INSTANTS, small_cluster, small_workload
from trimtab.testing.look import TABLES, copied, difference

AT_ONCE = 12  # jobs, where the check decides by itself


def check_backend(make_backend: Callable[[Workload, Cluster], Backend]) -> None:
    """Drive a backend, made anew for each part, through the protocol.

    Rules: an accepted decision shows in the very next snapshot; a refused one is a REFUSED event
    with a reason and changes nothing; what is not in `can` is refused; snapshots are read-only;
    times of events never go back; every job ends exactly once; close may be called twice.
    """
    _check_refusals(make_backend(small_workload(AT_ONCE, gap_s=0.0), small_cluster()))
    _check_changes(make_backend(small_workload(AT_ONCE, gap_s=0.0), small_cluster()))
    for jobs, gap_s in ((24, 30.0), (36, 0.0)):
        _check_life(make_backend(small_workload(jobs, gap_s), small_cluster()), jobs)


def _first_queue(backend: Backend) -> Snapshot:
    """Wait until all jobs wait: they were submitted together, but word of some may be late."""
    for _ in range(MOST_INSTANTS):
        assert backend.wait() is not None, "wait() returned None while jobs had yet to be submitted"
        if len(backend.snapshot().queue) == AT_ONCE:
            return backend.snapshot()
    raise AssertionError(
        f"{AT_ONCE} jobs were submitted together, but do not wait together after "
        f"{MOST_INSTANTS} calls of wait()"
    )


def _check_refusals(backend: Backend) -> None:
    snapshot = _first_queue(backend)
    _check_read_only(backend)
    job, nodes = int(snapshot.queue[0]), len(snapshot.nodes)
    wide = next(int(j) for j in snapshot.queue if snapshot.demand[j, 0] > 4)
    small = int(np.argmin(snapshot.capacity[:, 0]))
    impossible: list[Decision] = [
        Start(len(snapshot.jobs) + 7, (0,)),
        Start(-1, (0,)),
        Start(job, (nodes + 7,)),
        Start(job, (-1,)),
        Start(job, ()),
        Start(job, (0,) * 1000),
        Start(wide, (small,), shape=99),
        Stop(job),
        Move(job, (0,)),
        Resize(job, 0),
        Reject(len(snapshot.jobs) + 7),
        Limit(-1.0),
    ]
    for decision in impossible:
        _refused(backend, decision, f"{decision} is impossible and must be refused")
    for kind in (set(KINDS) - set(backend.can)) - {type(d) for d in impossible}:
        _refused(backend, kind(), f"{kind.__name__} is not in `can` and must be refused")
    first = _apply(backend, Start(wide, (small,)))
    assert first.what == What.PLACED, f"Start({wide}, ({small},)) on an empty node: {first}"
    _refused(backend, Start(wide, (small,)), f"job {wide} was started and must not start twice")
    full = next((int(j) for j in backend.snapshot().queue if snapshot.demand[j, 0] > 4), -1)
    if full >= 0:
        _refused(backend, Start(full, (small,)), f"node {small} is full and must refuse job {full}")
    backend.close()
    backend.close()


def _refused(backend: Backend, decision: Decision, rule: str) -> None:
    before = copied(backend.snapshot())
    try:
        answer = backend.apply(decision)
    except Exception as problem:
        raise AssertionError(
            f"{rule}: apply raised {type(problem).__name__} ({problem}); "
            f"a refusal is a REFUSED event"
        ) from problem
    assert answer.what == What.REFUSED, f"{rule}: apply answered {answer}"
    assert answer.reason, f"{rule}: the REFUSED event gives no reason"
    changed = difference(before, backend.snapshot())
    assert not changed, f"{rule}: a refused decision changed the snapshot ({changed})"


def _apply(backend: Backend, decision: Decision) -> Event:
    """Apply and check that the very next snapshot shows what was accepted."""
    before = copied(backend.snapshot())
    answer = backend.apply(decision)
    if answer.what == What.REFUSED or isinstance(decision, Wait):
        return answer
    after = backend.snapshot()
    rule = f"{decision} was accepted but the very next snapshot does not show it"
    if isinstance(decision, Limit):
        regions = slice(None) if decision.region < 0 else decision.region
        assert (after.limit[regions] == decision.share).all(), f"{rule}: limit {after.limit}"
        return answer
    job = decision.job
    mine = after.runs["job"][after.running] == job
    if isinstance(decision, Start):
        left = int(before.state["left"][job]) - len(decision.nodes)
        assert (job in after.queue) == (left > 0), f"{rule}: queue {after.queue.tolist()}"
        assert mine.any(), f"{rule}: the job has no run in `running`"
        wants = np.zeros_like(before.free)
        scale = after.profile.shapes[decision.shape].scale
        np.add.at(wants, list(decision.nodes), before.demand[job] * scale)
        assert np.allclose(after.free, before.free - wants), (
            f"{rule}: `free` is not less by its demand"
        )
    elif isinstance(decision, Stop):
        assert job in after.queue and not mine.any(), f"{rule}: a stopped job waits and has no run"
    elif isinstance(decision, Reject):
        assert job not in after.queue, f"{rule}: a rejected job must not wait"
    elif isinstance(decision, Move):
        held = sorted(node for run in after.running[mine] for node in _nodes_of(after, int(run)))
        assert held == sorted(decision.nodes), f"{rule}: it stands on nodes {held}"
    else:
        shapes = after.runs["shape"][after.running[mine]]
        assert (shapes == decision.shape).all(), f"{rule}: its shape is {shapes.tolist()}"
    return answer


def _nodes_of(snapshot: Snapshot, run: int) -> Iterator[int]:
    piece = int(snapshot.runs["piece"][run])
    while piece >= 0:
        yield from [int(snapshot.pieces["node"][piece])] * int(snapshot.pieces["count"][piece])
        piece = int(snapshot.pieces["next"][piece])


def _check_changes(backend: Backend) -> None:
    """Start, move, stop and reject, whatever of it the backend can."""
    snapshot = _first_queue(backend)
    job = next(int(j) for j in snapshot.queue if snapshot.jobs["instances"][j] == 1)
    large = int(np.argmax(snapshot.capacity[:, 0]))
    answer = _apply(backend, Start(job, (large,)))
    assert answer.what == What.PLACED, f"Start({job}, ({large},)) on an empty node: {answer}"
    assert answer.job == job and answer.nodes == (large,), (
        f"PLACED must name job and nodes: {answer}"
    )
    if Move in backend.can:
        other = int(np.argsort(-snapshot.capacity[:, 0], kind="stable")[1])
        moved = _apply(backend, Move(job, (other,)))
        assert moved.what == What.PLACED, f"Move is in `can`, but a move to an empty node: {moved}"
    if Stop in backend.can:
        stopped = _apply(backend, Stop(job))
        assert stopped.what == What.STOPPED, f"Stop is in `can`, but of a running job: {stopped}"
    if Reject in backend.can:
        waiting = int(backend.snapshot().queue[-1])
        rejected = _apply(backend, Reject(waiting))
        assert rejected.what == What.REJECTED, f"Reject is in `can`, but: {rejected}"
    if Wait in backend.can:
        until_s = backend.snapshot().now_s + 1.0
        answer = backend.apply(Wait(until_s))
        assert answer.what == What.PLACED, f"Wait is in `can`, but: {answer}"
        assert backend.wait() is not None, (
            f"Wait({until_s:g}) was accepted; wait() must return then"
        )
    backend.close()


def _check_life(backend: Backend, jobs: int) -> None:
    """Run all jobs and look at the events: times never go back, every job ends once."""
    ends: Counter[int] = Counter()
    submitted: Counter[int] = Counter()
    last_s, policy = -np.inf, named("fcfs+easy+best")
    for _ in range(MOST_INSTANTS):
        events = backend.wait()
        if events is None:
            break
        snapshot = backend.snapshot()
        for event in events:
            assert last_s <= event.time_s <= snapshot.now_s, (
                f"times of events never go back: {event} after second {last_s:g}, "
                f"now {snapshot.now_s:g}"
            )
            last_s = event.time_s
            if event.what == What.SUBMITTED:
                submitted[event.job] += 1
            over = event.job >= 0 and snapshot.state["status"][event.job] >= Status.FINISHED
            if over and event.what in (What.FINISHED, What.FAILED, What.REJECTED, What.STOPPED):
                ends[event.job] += 1
        _check_read_only(backend)
        for decision in policy.decide(snapshot):
            _apply(backend, decision)
    else:
        raise AssertionError(
            f"{jobs} small jobs are not over after {MOST_INSTANTS} calls of wait()"
        )
    assert backend.wait() is None, "wait() returned None, and then something else"
    for word, seen in (("is submitted", submitted), ("ends", ends)):
        wrong = {job: seen[job] for job in range(jobs) if seen[job] != 1}
        assert not wrong, f"every job {word} exactly once in wait()'s events; times by job: {wrong}"
    final = backend.snapshot()
    assert not len(final.queue) and not len(final.running), "all is over, but jobs wait or run"
    assert np.array_equal(final.free, final.capacity), "all is over, but not all capacity is free"
    backend.close()
    backend.close()


def _check_read_only(backend: Backend) -> None:
    snapshot = backend.snapshot()
    for name in TABLES:
        table = getattr(snapshot, name)
        assert not table.flags.writeable, f"snapshots are read-only, but `{name}` can be written to"
