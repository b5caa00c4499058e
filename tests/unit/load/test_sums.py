"""Sums are whole numbers that no order of the rows and no cut into blocks changes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.load.sums import (
    ASKED,
    AT,
    FIXED,
    FOREVER_MS,
    QUEUE_AT,
    SUMS,
    add_running,
    add_samples,
    add_service_means,
    add_service_use,
    add_services,
    add_waiting,
    empty_queue,
    empty_sums,
    empty_use,
    fixed_share,
)

NAN = np.nan
WINDOW_MS = 1000


def whole(*values):
    return np.array(values, dtype=np.int64)


def real(*values):
    return np.array(values, dtype=np.float64)


def samples(time_s, node, cpu, mem=0.5, net_in=NAN, net_out=NAN, disk=NAN, gpu=NAN):
    columns = np.broadcast_arrays(time_s, cpu, mem, net_in, net_out, disk, gpu)
    time_s, *ratios = [np.array(column, dtype=np.float64) for column in columns]
    return time_s, np.array(node), *ratios


def run(sums, first, start, end, node=0, count=1, cpu=0.25, mem=0.5, wait=0):
    add_running(
        sums,
        first,
        WINDOW_MS,
        whole(start),
        whole(end),
        whole(node),
        whole(count),
        real(cpu),
        real(mem),
        whole(wait),
    )


def test_a_sample_is_added_to_the_window_that_has_its_time():
    sums = empty_sums(2, 1)
    outside = add_samples(
        sums, 0, WINDOW_MS, *samples([0.999, 1.0, 2.0], [0, 0, 0], [0.5, 0.25, 1])
    )
    assert outside == 1  # 2.0 s is the third window
    assert sums[:, 0, AT.samples].tolist() == [1, 1]
    assert sums[:, 0, AT.cpu_sum].tolist() == [FIXED // 2, FIXED // 4]
    assert sums[:, 0, AT.cpu_max].tolist() == [FIXED // 2, FIXED // 4]


@pytest.mark.parametrize("bad", [NAN, np.inf])
def test_a_sensor_that_is_not_measured_does_not_hide_the_others(bad):
    sums = empty_sums(1, 1)
    add_samples(sums, 0, WINDOW_MS, *samples([0.1, 0.2], [0, 0], [bad, 0.5], [0.25, bad], disk=0.5))
    assert sums[0, 0, AT.samples] == sums[0, 0, AT.mem_n] == 1
    assert sums[0, 0, AT.cpu_sum] == sums[0, 0, AT.cpu_max] == FIXED // 2
    assert sums[0, 0, AT.mem_sum] == sums[0, 0, AT.mem_max] == FIXED // 4
    assert sums[0, 0, AT.disk_n] == 2


def test_a_sensor_that_is_dead_is_masked_and_not_zero():
    sums = empty_sums(1, 1)
    add_samples(sums, 0, WINDOW_MS, *samples([0.1, 0.2], [0, 0], 0.5, gpu=[NAN, 1.0]))
    assert sums[0, 0, AT.gpu_n] == 1
    assert sums[0, 0, AT.gpu_sum] == FIXED
    assert sums[0, 0, AT.net_in_n] == 0


def test_a_time_that_is_no_time_is_outside():
    sums = empty_sums(1, 1)
    assert add_samples(sums, 0, WINDOW_MS, *samples([NAN, np.inf, 1e300], [0, 0, 0], 0.5)) == 3
    assert not sums.any()


def test_machines_that_are_not_known_have_the_last_row():
    sums = empty_sums(1, 2)
    add_samples(sums, 0, WINDOW_MS, *samples([0.1, 0.2, 0.3], [-1, 2, 1], 0.5))
    run(sums, 0, 0, 500, node=-1)
    assert sums[0, :, AT.samples].tolist() == [0, 1, 2]
    assert sums[0, :, AT.running_ms].tolist() == [0, 0, 500]


def test_the_order_of_samples_changes_nothing():
    rng = np.random.default_rng(1)
    columns = samples(
        rng.uniform(0, 3, 500), rng.integers(-1, 4, 500), rng.random(500), rng.random(500)
    )
    one, other = empty_sums(3, 4), empty_sums(3, 4)
    add_samples(one, 0, WINDOW_MS, *columns)
    mixed = rng.permutation(500)
    add_samples(other, 0, WINDOW_MS, *(column[mixed] for column in columns))
    assert (one == other).all()


def test_an_interval_is_spread_over_its_windows():
    sums = empty_sums(4, 1)
    run(sums, 0, 700, 2200, count=3, cpu=0.25, mem=0.5, wait=40)
    assert sums[:, 0, AT.running_ms].tolist() == [900, 3000, 600, 0]  # 3 x (300, 1000, 200)
    assert sums[:, 0, AT.batch_cpu_ms].tolist() == [k * ASKED // 4 for k in (900, 3000, 600, 0)]
    assert sums[:, 0, AT.batch_mem_ms].tolist() == [k * ASKED // 2 for k in (900, 3000, 600, 0)]
    assert sums[:, 0, AT.started].tolist() == [3, 0, 0, 0]
    assert sums[:, 0, AT.start_wait_ms].tolist() == [120, 0, 0, 0]
    assert sums[:, 0, AT.ended].tolist() == [0, 0, 3, 0]


def test_an_end_on_the_edge_counts_in_the_later_window():
    sums = empty_sums(2, 1)
    run(sums, 0, 0, 1000)
    assert sums[:, 0, AT.running_ms].tolist() == [1000, 0]
    assert sums[:, 0, AT.ended].tolist() == [0, 1]


def test_what_begins_before_and_ends_after_the_block_is_cut_off():
    sums = empty_sums(2, 1)
    run(sums, 5, -3000, FOREVER_MS)
    assert sums[:, 0, AT.running_ms].tolist() == [1000, 1000]
    assert not sums[:, 0, [AT.started, AT.ended, AT.start_wait_ms]].any()


def test_an_instance_that_ends_as_it_starts_counts_and_takes_no_time():
    sums = empty_sums(1, 1)
    run(sums, 0, 300, 300)
    assert sums[0, 0, [AT.started, AT.ended, AT.running_ms]].tolist() == [1, 1, 0]


def test_a_plan_that_is_missing_asks_for_nothing():
    sums = empty_sums(1, 1)
    run(sums, 0, 0, 1000, cpu=NAN)
    assert sums[0, 0, [AT.running_ms, AT.batch_cpu_ms]].tolist() == [1000, 0]


def test_the_queue_is_the_integral_of_what_waits():
    queue = empty_queue(3)
    columns = (
        whole(500, 2500),
        whole(1500, FOREVER_MS),
        whole(2, 4),
        real(0.5, 1.0),
        real(0.25, 0.5),
    )
    add_waiting(queue, 0, WINDOW_MS, *columns)
    assert queue[:, QUEUE_AT.runnable].tolist() == [2, 0, 4]
    assert queue[:, QUEUE_AT.waiting_ms].tolist() == [1000, 1000, 2000]
    assert (queue[:, QUEUE_AT.waiting_cpu_ms] / ASKED).tolist() == [500, 500, 2000]
    assert (queue[:, QUEUE_AT.waiting_mem_ms] / ASKED).tolist() == [250, 250, 1000]


def test_services_reserve_while_they_are_deployed():
    sums = empty_sums(2, 1)
    columns = whole(-100, 1500), whole(250, FOREVER_MS), whole(0, -1), real(0.5, 1), real(0.25, 1)
    add_services(sums, 0, WINDOW_MS, *columns)
    assert sums[:, 0, AT.services_ms].tolist() == [250, 0]
    assert (sums[:, 0, AT.service_cpu_ms] / ASKED).tolist() == [125, 0]
    assert sums[:, 1, AT.services_ms].tolist() == [0, 500]


def test_the_use_of_services_is_the_sum_of_their_means():
    sums, use = empty_sums(1, 1), empty_use(1, 3)
    columns = (
        real(0.1, 0.2, 0.3, 0.4),
        whole(0, 0, 1, 2),
        real(0.5, 0.25, 0.125, NAN),
        real(1, 0, 1, 1),
    )
    outside = add_service_use(use, 0, WINDOW_MS, *columns)
    add_service_means(sums, use, whole(0, 0, 0))
    assert outside == 0
    assert sums[0, 0, AT.service_seen] == 2  # the third has no sample with both
    assert sums[0, 0, AT.service_cpu] / FIXED == 0.375 + 0.125
    assert sums[0, 0, AT.service_mem] / FIXED == 0.5 + 1


INTERVALS = st.lists(
    st.tuples(
        st.integers(-2000, 9000), st.integers(0, 5000), st.integers(-1, 2), st.integers(1, 3)
    ),
    max_size=8,
)


@settings(deadline=None, max_examples=60)
@given(rows=INTERVALS, cut=st.integers(1, 6))
def test_intervals_in_blocks_are_what_counting_every_millisecond_gives(rows, cut):
    counted = np.zeros((7, 4), np.int64)
    for start, length, node, count in rows:
        time_ms = np.arange(start, start + length)
        inside = time_ms[(time_ms >= 0) & (time_ms < 7 * WINDOW_MS)]
        counted[:, node] += count * np.bincount(inside // WINDOW_MS, minlength=7)
    blocks = [(0, empty_sums(cut, 3)), (cut, empty_sums(7 - cut, 3))]
    for first, sums in blocks:
        for start, length, node, count in rows:
            run(sums, first, start, start + length, node, count, cpu=0.3)
    sums = np.concatenate([sums for _, sums in blocks])
    assert (sums[:, :, AT.running_ms] == counted).all()
    assert (sums[:, :, AT.batch_cpu_ms] == counted * fixed_share(0.3)).all()


@pytest.mark.parametrize(("one", "machines"), [(FIXED, 28_600), (ASKED, 1_800_000)])
def test_a_window_of_five_minutes_has_room_for_so_many_machines(one, machines):
    assert 2**63 // (one * 300_000) // 100 * 100 == pytest.approx(machines, rel=0.02)


def test_the_same_numbers_come_out_without_a_compiler():
    one, other = empty_sums(2, 1), empty_sums(2, 1)
    columns = samples([0.1, 1.5], [0, -1], [0.3, 0.4], gpu=[0.1, NAN])
    add_samples(one, 0, WINDOW_MS, *columns)
    add_samples.py_func(other, 0, WINDOW_MS, *columns)
    assert (one == other).all()
    assert one.shape[2] == len(SUMS)
