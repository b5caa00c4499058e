"""The live window gives what whole columns give, to the last bit, and refuses what cannot be."""

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytest import approx

from trimtab.errors import TraceError
from trimtab.load.features import CLUSTER, NODE
from trimtab.load.samples import Samples
from trimtab.load.series import Series
from trimtab.load.steps import take
from trimtab.load.sums import (
    FOREVER_MS,
    add_running,
    add_samples,
    add_service_means,
    add_service_use,
    add_services,
    add_waiting,
    empty_queue,
    empty_sums,
    empty_use,
)
from trimtab.load.window import LoadWindow

WINDOW_MS = 1000
WINDOWS = 9
CAPACITY = np.array([[32.0, 64.0], [96.0, 100.0], [7.0, 13.0]])
REGION = np.array([0, 1, 0])
NAN = np.nan


class Past(NamedTuple):
    """What happened: columns of times in ms, as a batch sees them."""

    samples: list  # (time_ms, node, six ratios)
    jobs: list  # (runnable_ms, count left waiting, cpu, mem, [(start_ms, end_ms, node, count)])
    services: list  # (deploy_ms, remove_ms, node, cpu, mem)
    service_use: list  # (time_ms, service, cpu, mem)


def ratio(rng):
    return NAN if rng.random() < 0.2 else rng.random()


def later(rng, time_ms):
    """A time not before this one; one in four never comes."""
    return FOREVER_MS if rng.random() < 0.25 else time_ms + int(rng.integers(0, 4500))


def make_past(rng, samples, jobs, services):
    made = Past([], [], [], [])
    first_ms = int(rng.integers(0, 5000))  # the first sample may be late
    for _ in range(samples):
        time_ms = int(rng.integers(first_ms, WINDOWS * WINDOW_MS))
        made.samples.append((time_ms, rng.integers(-1, 3), *(ratio(rng) for _ in range(6))))
    for _ in range(jobs):
        ready_ms = int(rng.integers(-2500, 9500))
        parts = []
        for _ in range(rng.integers(0, 4)):
            start_ms = ready_ms + int(rng.integers(0, 2500))
            parts.append((start_ms, later(rng, start_ms), rng.integers(-1, 3), rng.integers(1, 5)))
        left = int(rng.integers(0 if parts else 1, 3))
        made.jobs.append((ready_ms, left, rng.random() / 9, rng.random() / 9, parts))
    for service in range(services):
        deploy_ms = int(rng.integers(-2500, 9000))
        shares = rng.random() / 5, rng.random() / 5
        made.services.append((deploy_ms, later(rng, deploy_ms), rng.integers(-1, 3), *shares))
        for _ in range(rng.integers(0, 5)):
            time_ms = int(rng.integers(max(deploy_ms, 0), WINDOWS * WINDOW_MS))
            made.service_use.append((time_ms, service, ratio(rng), ratio(rng)))
    return made


def columns(rows, width):
    return [np.array(column) for column in zip(*rows)] if rows else [np.zeros(0, int)] * width


def in_batch(past, block, series):
    """Frames from whole columns, a block of windows at a time."""
    time_ms, *sampled = columns(past.samples, 8)
    use_ms, *used = columns(past.service_use, 4)
    deployed = columns(past.services, 5)
    running, waiting = [], []
    for ready_ms, left, cpu, mem, parts in past.jobs:
        for start_ms, end_ms, node, count in parts:
            of_node = cpu * series.unit[node, 0], mem * series.unit[node, 1]
            running.append((start_ms, end_ms, node, count, *of_node, start_ms - ready_ms))
            waiting.append((ready_ms, start_ms, count, cpu, mem))
        if left:
            waiting.append((ready_ms, FOREVER_MS, left, cpu, mem))
    frames = []
    for first in range(0, WINDOWS, block):
        windows = min(block, WINDOWS - first)
        sums, queue, use = empty_sums(windows, 3), empty_queue(windows), empty_use(windows, 9)
        place = first, WINDOW_MS
        add_samples(sums, *place, time_ms / 1000, *sampled)
        add_running(sums, *place, *columns(running, 7))
        add_waiting(queue, *place, *columns(waiting, 5))
        add_services(sums, *place, *deployed)
        add_service_use(use, *place, use_ms / 1000, *used)
        add_service_means(sums, use, np.array([*deployed[2], *[-1] * 9][:9], dtype=int))
        frames += [series.step(first + k, sums[k], queue[k]) for k in range(windows)]
    return frames


def arrivals(past, rng, grace_ms):
    """(arrival in ms, method, arguments with the time in s first), each at most grace_ms late."""
    calls = []
    for row in past.samples:
        calls.append((row[0] + rng.integers(0, grace_ms + 1), "use", row))
    for time_ms, *rest in past.service_use:
        arrival = time_ms + rng.integers(0, grace_ms + 1)
        calls.append((arrival, "service_use", (time_ms / 1000, *rest)))
    for job, (ready_ms, left, cpu, mem, parts) in enumerate(past.jobs):
        delay = rng.integers(0, grace_ms + 1)
        count = left + sum(part[3] for part in parts)
        own = [(ready_ms, "runnable", (job, count, cpu, mem))]
        for start_ms, end_ms, node, count in parts:
            own += [(start_ms, "start", (job, node, count)), (end_ms, "end", (job, node, count))]
        own.sort(key=lambda call: call[0])
        calls += [(at + delay, name, (at / 1000, *rest)) for at, name, rest in own]
    for service, (deploy_ms, remove_ms, *rest) in enumerate(past.services):
        delay = rng.integers(0, grace_ms + 1)
        calls.append((deploy_ms + delay, "deploy", (deploy_ms / 1000, service, *rest)))
        calls.append((remove_ms + delay, "remove", (remove_ms / 1000, service)))
    return sorted((call for call in calls if call[0] < FOREVER_MS), key=lambda call: call[0])


def streamed(past, rng, grace_ms, most):
    """Frames from single events and short columns, closed now and then."""
    live = LoadWindow(
        CAPACITY, REGION, window_s=WINDOW_MS / 1000, history=4, grace_s=grace_ms / 1000
    )
    frames, held, kind = [], [], ""

    def flush():
        if held and kind == "use":
            time_ms, *rest = columns(held, 8)
            live.use(Samples(time_ms / 1000, *rest, names=("a", "b", "c")))
        elif held:
            getattr(live, kind)(*columns(held, 0))
        held.clear()

    for arrival_ms, name, row in arrivals(past, rng, grace_ms):
        if name != kind or len(held) >= rng.integers(1, most + 1):
            flush()
        if rng.random() < 0.1:
            flush()
            frames += live.close(min(arrival_ms / 1000, WINDOWS + grace_ms / 1000))
        kind = name
        held.append(row)
    flush()
    frames += live.close(WINDOWS + grace_ms / 1000)
    return frames, live


@settings(deadline=None, max_examples=150)
@given(
    seed=st.integers(0, 2**32),
    samples=st.integers(0, 40),
    jobs=st.integers(0, 8),
    services=st.integers(0, 9),
    block=st.integers(1, WINDOWS),
    grace_ms=st.integers(0, 3000),
    most=st.integers(1, 20),
)
def test_streaming_is_batch_to_the_last_bit(seed, samples, jobs, services, block, grace_ms, most):
    rng = np.random.default_rng(seed)
    past = make_past(rng, samples, jobs, services)
    series = Series(CAPACITY, REGION, window_s=WINDOW_MS / 1000, history=4)
    batch = in_batch(past, block, series)
    live, window = streamed(past, rng, grace_ms, most)
    assert window.late == 0
    assert [frame.window for frame in live] == [frame.window for frame in batch]
    for one, other in zip(live, batch):
        assert one.node.tobytes() == other.node.tobytes()
        assert one.region.tobytes() == other.region.tobytes()
        assert one.cluster.tobytes() == other.cluster.tobytes()


def live(**options):
    return LoadWindow([[4, 4], [4, 4]], [0, 0], **{"window_s": 10.0, **options})


def sample(time_s, node=0, cpu=0.5):
    time_s = np.atleast_1d(np.asarray(time_s, dtype=float))
    none = np.full(len(time_s), NAN)
    full = np.full(len(time_s), cpu)
    nodes = np.full(len(time_s), node)
    return Samples(time_s, nodes, full, full, none, none, none, none, names=("a", "b"))


def node(frame, name):
    return frame.node[:, NODE.index(name)].tolist()


def cluster(frame, name):
    return float(frame.cluster[CLUSTER.index(name)])


def test_a_window_is_closed_when_it_and_its_grace_are_over():
    window = live(grace_s=5.0)
    assert window.close(14.999) == []
    assert [frame.window for frame in window.close(15.0)] == [0]
    assert [frame.window for frame in window.close(40.0)] == [1, 2]


def test_a_sample_within_the_grace_counts_and_a_later_one_is_counted_as_late():
    window = live(grace_s=5.0)
    window.close(12.0)
    window.use(sample(9.0))
    (first,) = window.close(15.0)
    window.use(sample([9.5, 11.0]))
    assert window.late == 1
    (second,) = window.close(25.0)
    assert node(first, "cpu")[0] == node(second, "cpu")[0] == 0.5


def test_a_late_start_keeps_the_level_and_loses_the_count():
    window = live()
    window.runnable(1.0, 0, 1, 0.25, 0.5)
    window.close(10.0)
    window.start(2.0, 0, 1)
    (frame,) = window.close(20.0)
    assert window.late == 1
    assert node(frame, "running") == [0, 1] and node(frame, "started") == [0, 0]
    assert node(frame, "batch_cpu") == [0, 0.25]
    assert cluster(frame, "waiting") == 0


def test_what_was_there_before_the_start_is_not_late():
    window = live(start_s=100.0)
    window.deploy(-50.0, 0, 0, 0.5, 0.25)
    window.use(sample(3.0))
    (frame,) = window.close(110.0)
    assert (window.late, frame.window) == (0, 10)
    assert node(frame, "density") == [0.5, 0] and node(frame, "gap") == [1, 1]


def test_a_job_goes_from_the_queue_to_machines_and_ends():
    window = live()
    window.runnable(0.0, 7, 3, 0.25, 0.5)
    window.start(5.0, 7, [0, 1], [2, 1])
    window.end([10.0, 15.0], 7, [1, 0], [1, 2])
    first, second = window.close(20.0)
    assert cluster(first, "runnable") == 3
    assert cluster(first, "waiting") == 1.5  # 3 for half of the window
    assert cluster(first, "waiting_cpu") == 0.375
    assert node(first, "running") == [1, 0.5] and node(second, "running") == [1, 0]
    assert node(first, "start_wait_s") == [5, 5]
    assert node(second, "ended") == [2, 1]


def test_instances_that_are_withdrawn_stop_waiting():
    window = live()
    window.runnable(0.0, 0, 2, 0.25, 0.5)
    window.withdraw(5.0, 0, 2)
    first, second = window.close(20.0)
    assert (cluster(first, "waiting"), cluster(second, "waiting")) == (1, 0)
    window.runnable(21.0, 0, 1, 0.5, 0.5)  # the row is free again, for other shares


def test_a_job_asks_for_shares_of_the_mean_machine():
    window = LoadWindow([[30, 1], [10, 1]], [0, 0], window_s=10.0)
    window.runnable(0.0, 0, 2, 0.25, 0.5)
    window.start(0.0, 0, [0, 1])
    (frame,) = window.close(10.0)
    assert node(frame, "batch_cpu") == approx([5 / 30, 5 / 10], abs=1e-6)  # 0.25 x 20
    assert cluster(frame, "batch_cpu") == approx(10 / 40, abs=1e-6)


def test_services_use_and_reserve_where_they_are():
    window = live()
    window.deploy(0.0, [0, 1], [0, 1], 0.5, 0.25)
    window.service_use([1.0, 2.0, 3.0], [0, 0, 1], [0.25, 0.5, 0.125], 0.5)
    window.remove(5.0, 0)
    (frame,) = window.close(10.0)
    assert node(frame, "services") == [0.5, 1]
    assert node(frame, "density") == [0.25, 0.5] and node(frame, "mem_density") == [0.125, 0.25]
    assert node(frame, "service_cpu") == [0.375, 0.125]


def test_a_service_row_is_free_for_another_machine_once_its_window_is_closed():
    window = live()
    window.deploy(0.0, 0, 0, 0.5, 0.25)
    window.remove(5.0, 0)
    with pytest.raises(TraceError, match="left another machine in an open window"):
        window.deploy(6.0, 0, 1, 0.5, 0.25)
    window.close(10.0)
    window.deploy(11.0, 0, 1, 0.5, 0.25)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda w: w.use(sample(1.0, node=2)), "use: node=2 in row 0; give 0..1"),
        (lambda w: w.use(sample(NAN)), "use: time_s=nan in row 0"),
        (lambda w: w.use(sample(1.7e9)), "give seconds, set start_s"),
        (lambda w: w.close(1.7e9), "give seconds, set start_s"),
        (lambda w: w.runnable(0.0, -1, 1, 0.1, 0.1), "job=-1"),
        (lambda w: w.runnable(0.0, 1.5, 1, 0.1, 0.1), "give whole numbers"),
        (lambda w: w.runnable(0.0, 1, 0, 0.1, 0.1), "count=0"),
        (lambda w: w.runnable([0.0, 1.0], [1, 2, 3], 1, 0.1, 0.1), "give one length"),
        (lambda w: w.runnable(3.0, 0, 1, 0.3, 0.1), "asks for other shares"),
        (lambda w: w.start(2.0, 4, 0), "never was runnable"),
        (lambda w: w.start(0.5, 0, 0), "its runnable_ms is later"),
        (lambda w: w.start(2.0, 0, [0, 1], [2, 1]), "only 2 instances are waiting"),
        (lambda w: w.end(2.0, 0, 0), "its start_ms is later"),
        (lambda w: w.remove(2.0, 5), "deploy\\(\\) it first"),
        (lambda w: w.deploy(2.0, 0, 1, 0.1, 0.1), "service=0 in row 0"),
        (lambda w: w.remove(0.5, 0), "its deploy\\(\\) is later"),
        (lambda w: w.deploy(2.0, [3, 3], 1, 0.1, 0.1), "service=3 in row 1"),
    ],
)
def test_a_mistake_is_refused_and_changes_nothing(call, message):
    window, other = live(), live()
    for each in (window, other):
        each.runnable(1.0, 0, 2, 0.1, 0.1)
        each.deploy(1.0, 0, 0, 0.1, 0.1)
    with pytest.raises(TraceError, match=message):
        call(window)
    for one, two in zip(window.close(30.0), other.close(30.0), strict=True):
        assert one.node.tobytes() == two.node.tobytes()
        assert one.cluster.tobytes() == two.cluster.tobytes()


def test_nothing_is_fine():
    window = live()
    window.use(sample([]))
    window.start([], [], [])
    window.deploy([], [], [], [], [])
    assert len(window.close(10.0)) == 1


def test_taking_too_much_takes_nothing():
    have = np.array([3, 1])
    for function in (take, take.py_func):
        assert function(have, np.array([0, 1, 1]), np.array([1, 1, 1])) == 2
        assert have.tolist() == [3, 1]
