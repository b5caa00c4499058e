"""Room fits, in Python, what the compiled engine accepts."""

import numpy as np
import pytest

from trimtab.core import Start, What
from trimtab.rules.room import Room
from trimtab.sim.backend import SimBackend
from trimtab.testing import small_cluster, small_workload


def half_full(seed):
    """A cluster on which some jobs run and others wait."""
    rng = np.random.default_rng(seed)
    backend = SimBackend(small_workload(40, gap_s=0.0, seed=seed), small_cluster())
    backend.wait()
    for job in rng.permutation(40)[:20]:
        backend.apply(Start(int(job), tuple(rng.integers(0, 4, rng.integers(1, 5)).tolist())))
    return backend


@pytest.mark.parametrize("seed", range(5))
def test_a_node_lacks_something_exactly_where_the_engine_refuses_and_in_its_words(seed):
    backend, rng = half_full(seed), np.random.default_rng(seed)
    answers = set()
    for _ in range(60):
        snapshot = backend.snapshot()
        room = Room.of(snapshot)
        room.resources = backend.cluster.resources
        job = int(rng.choice(snapshot.queue))
        left = int(snapshot.state["left"][job])
        nodes = tuple(rng.integers(0, 4, left).tolist())
        why, _ = room.book(job, nodes)
        answer = backend.apply(Start(job, nodes))
        assert (answer.what == What.REFUSED, answer.reason) == (bool(why), why)
        answers.add(answer.what)
        if not why:
            after = backend.snapshot()
            assert np.array_equal(room.free, after.free)
            assert np.array_equal(room.gpu_free, after.gpu_free)
            assert np.array_equal(room.gpu_mem_free, after.gpu_mem_free)
    assert What.REFUSED in answers


@pytest.mark.parametrize("seed", range(5))
def test_slots_are_as_many_as_can_be_booked_one_by_one(seed):
    snapshot = half_full(seed).snapshot()
    for job in snapshot.queue:
        slots = Room.of(snapshot).slots(job)
        for node in range(4):
            room, count = Room.of(snapshot), 0
            while count < snapshot.state["left"][job] and not room.book(job, (node,))[0]:
                count += 1
            assert slots[node] == count, f"job {job} on node {node}"


def test_pick_takes_the_best_node_first_and_a_gang_whole_or_not_at_all():
    snapshot = SimBackend(small_workload(6, gap_s=0.0), small_cluster())
    snapshot.wait()
    room = Room.of(snapshot.snapshot())
    # job 2 is a gang of three with 4 cores each: two fit on the 8 cores of node 1, the best
    assert room.pick(2, np.array([0.0, 2.0, 1.0, 0.0])) == (1, 1, 2)
    room.free[:, 0] = [4, 4, 0, 0]
    assert room.pick(2) == ()
    # job 3 is an array of four with 2 cores each
    assert room.pick(3) == (0, 0, 1, 1)
    room.free[:, 0] = [2, 0, 0, 0]
    assert room.pick(3) == (0,)


def test_a_booking_that_fails_half_way_leaves_nothing_booked():
    backend = SimBackend(small_workload(6, gap_s=0.0), small_cluster())
    backend.wait()
    room = Room.of(backend.snapshot())
    before = room.free.copy()
    why, devices = room.book(2, (0, 0, 0))
    assert (why, devices) == ("resource 0: wants 4, free 0", ())
    assert np.array_equal(room.free, before)
    with pytest.raises(ValueError, match="job 2 does not fit on nodes"):
        room.start(2, (0, 0, 0))
