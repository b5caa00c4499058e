"""Every branch of the greedy executor, by hand-made queues."""

import numpy as np
import pytest

from trimtab.errors import ServeError
from trimtab.serving.net.serve_profile import modelled
from trimtab.serving.routing import greedy
from trimtab.serving.routing.greedy import LOAD, RUN, WAIT, Knobs
from trimtab.serving.server.executor import Executor

PROFILE = modelled()


def executor(*loaded, workers=1, **knobs):
    """An executor with these (segment, before, width) loaded and free since 0 s."""
    made = Executor(PROFILE, Knobs(**knobs), workers=workers, requests=64)
    for slot, (segment, before, width) in enumerate(loaded):
        key = (segment * 4 + before) * 4 + width
        greedy.load_instance(made.arrays, 0, key, slot, 0.0, 0.0)
        made.ended(slot, 0.0)
    return made


def test_an_empty_queue_waits_for_ever():
    action = executor().next(0.0)
    assert (action.what, action.until_s) == (WAIT, np.inf)


def test_a_batch_holds_the_heads_key_in_fifo_order_also_from_behind_others():
    made = executor((0, 0, 1), (0, 0, 2), scan=True)
    for request, width in enumerate((1, 2, 1, 2, 1)):
        made.put(request, 0, 0, width)
    action = made.next(0.0)
    assert (action.what, action.requests, action.width) == (RUN, (0, 2, 4), 1)


def test_a_batch_stops_at_batch_max():
    made = executor((0, 0, 1), batch_max=2)
    for request in range(3):
        made.put(request, 0, 0, 1)
    assert made.next(0.0).requests == (0, 1)
    assert made.next(0.0).what == WAIT
    made.ended(0, 1.0)
    assert made.next(1.0).requests == (2,)


def test_the_smallest_width_that_is_enough_runs_and_is_recorded():
    made = executor((0, 0, 0), (0, 0, 3), (0, 0, 2))
    made.put(0, 0, 0, 1)
    action = made.next(0.0)
    assert (action.what, action.width, action.instance) == (RUN, 2, 2)


def test_an_instance_for_another_input_width_does_not_fit():
    made = executor((1, 3, 3))
    made.put(0, 1, 2, 1)
    action = made.next(0.0)
    assert (action.what, action.segment, action.before, action.width) == (LOAD, 1, 2, 1)


def test_the_first_instance_of_a_key_is_loaded_whatever_the_queue():
    made = executor(queue_load=8)
    made.put(0, 0, 0, 1)
    assert made.next(0.0).what == LOAD
    assert made.next(0.0).what == WAIT  # until it is loaded
    made.ended(0, 0.5)
    assert made.next(0.5).what == RUN


@pytest.mark.parametrize(("waiting", "what"), [(2, WAIT), (3, LOAD)])
def test_only_a_queue_past_the_trigger_loads_beside_a_busy_instance(waiting, what):
    made = executor((0, 0, 1), workers=2, batch_max=1, queue_load=2)
    for request in range(waiting + 1):
        made.put(request, 0, 0, 1)
    assert made.next(0.0).what == RUN
    assert made.next(0.0).what == what


def test_no_more_than_loading_max_load_at_once():
    made = executor(queue_load=0, loading_max=2)
    for request in range(4):
        made.put(request, 0, 0, 1)
    assert [made.next(0.0).what for _ in range(3)] == [LOAD, LOAD, WAIT]


def test_memory_bounds_what_is_loaded_until_an_idle_instance_goes():
    room = PROFILE.memory_b[3, 3, 3]
    made = executor((3, 3, 3), memory_max_b=room, idle_unload_s=2.0)
    made.put(0, 0, 0, 1)
    action = made.next(0.5)
    assert (action.what, action.until_s) == (WAIT, 2.0)
    assert made.unload(1.9) == []
    assert made.unload(2.0) == [(3, 3, 3)]
    assert made.arrays.server[0]["memory_b"] == 0
    assert made.next(2.0).what == LOAD


def test_a_high_utilisation_blocks_loading_and_the_wait_ends_when_it_has_fallen():
    made = executor(util_block=0.5, util_window_s=1.0)
    made.arrays.server[0]["util"] = 1.0  # busy until 0 s, idle since
    made.put(0, 0, 0, 1)
    action = made.next(0.0)
    assert action.what == WAIT
    assert action.until_s == pytest.approx(np.log(2), abs=1e-4)  # exp(-t) = 1 / 2
    assert made.next(action.until_s - 0.01).what == WAIT
    assert made.next(action.until_s).what == LOAD


def test_a_strict_head_blocks_others_and_a_scanned_one_does_not():
    for scan, what in ((False, WAIT), (True, RUN)):
        made = executor((0, 0, 1), util_block=0.5, scan=scan)
        made.arrays.server[0]["util"] = 1.0
        made.put(0, 1, 0, 1)  # nothing can run it, nothing may be loaded
        made.put(1, 0, 0, 1)
        assert made.next(0.0).what == what


def test_workers_bound_the_batches_that_run_at_once():
    made = executor((0, 0, 0), (0, 0, 1), workers=1, scan=True)
    made.put(0, 0, 0, 0)
    made.put(1, 0, 0, 1)
    assert made.next(0.0).requests == (0,)
    assert made.next(0.0).what == WAIT


def test_a_failed_load_frees_its_slot_and_memory():
    made = executor()
    made.put(0, 0, 0, 1)
    action = made.next(0.0)
    made.failed(action.instance, 0.1)
    assert made.arrays.server[0]["memory_b"] == 0
    assert made.arrays.server[0]["loading"] == 0
    assert made.next(0.1).what == LOAD


def test_busy_seconds_are_the_workers_and_counted_once():
    made = executor((0, 0, 0), (0, 0, 1), workers=2, scan=True)
    made.put(0, 0, 0, 0)
    made.put(1, 0, 0, 1)
    made.next(1.0)
    made.next(2.0)
    made.ended(0, 4.0)
    made.ended(1, 5.0)
    assert made.arrays.server[0]["busy_s"] == pytest.approx((4 - 1) + (5 - 2))


def test_python_decides_as_the_compiled_code_does():
    rng = np.random.default_rng(0)
    for _ in range(20):
        made = executor(*[(0, 0, int(w)) for w in rng.integers(0, 4, 2)], scan=True)
        for request, width in enumerate(rng.integers(0, 4, 3)):
            made.put(request, 0, 0, int(width))
        free = greedy.best_fit.py_func(made.arrays, 0, 0, 0, 1)
        assert free == greedy.best_fit(made.arrays, 0, 0, 0, 1)


@pytest.mark.parametrize(
    ("knobs", "named"),
    [
        ({"batch_max": 0}, "batch_max=0"),
        ({"memory_max_b": 10.0}, "memory_max_b=10"),
        ({"util_window_s": 0.0}, "util_window_s=0"),
        ({"loading_max": 0}, "loading_max=0"),
    ],
)
def test_a_bad_knob_is_named(knobs, named):
    with pytest.raises(ServeError, match=named):
        Executor(PROFILE, Knobs(**knobs))


@pytest.mark.parametrize("asked", [(4, 0, 0), (0, 0, 4), (1, -1, 0), (1, 4, 0)])
def test_an_unknown_segment_or_width_is_named(asked):
    with pytest.raises(ServeError, match=f"segment={asked[0]}, before={asked[1]}"):
        executor().put(0, *asked)
    with pytest.raises(ServeError, match="request=64"):
        executor().put(64, 0, 0, 0)
