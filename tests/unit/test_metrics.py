"""The metrics that need arithmetic shown: intervals, throughput, useful utilisation."""

import math
from dataclasses import replace

import numpy as np
import pytest
from tests.unit.report.made import pool

from trimtab.build import cluster, workload
from trimtab.core import Profile, Shape, Status
from trimtab.metrics import Result, best_rate, interval, measure, t_975
from trimtab.sim.whole import simulate


def test_the_interval_of_three_values_uses_students_t_with_two_degrees_of_freedom():
    mean, half = interval([1.0, 2.0, 3.0])
    assert mean == 2.0
    assert half == pytest.approx(4.3027 * 1.0 / math.sqrt(3))  # 2.484


def test_one_value_has_no_interval():
    assert interval([7.0]) == (7.0, None)


@pytest.mark.parametrize(
    ("freedom", "tabled"),
    [
        (1, 12.7062),
        (2, 4.3027),
        (9, 2.2622),
        (30, 2.0423),
        (40, 2.0211),
        (60, 2.0003),
        (120, 1.9799),
    ],
)
def test_t_is_that_of_the_tables(freedom, tabled):
    assert t_975(freedom) == pytest.approx(tabled, abs=1e-4)


def test_t_does_not_jump_where_the_table_ends():
    assert t_975(31) == pytest.approx(2.0395, abs=1e-4)


def speeds(rate, *shapes):
    """A profile of (K, kinds of node[, S]) rates without interference."""
    table = np.asarray(rate, dtype=np.float64)
    table = table[..., None] if table.ndim == 2 else table
    kinds, node_kinds, _ = table.shape
    shapes = shapes or (Shape(),)
    return Profile(
        rate=table,
        slow=np.zeros((kinds, kinds)),
        draw=np.ones((kinds, node_kinds)),
        quality=np.ones((kinds, len(shapes))),
        shapes=shapes,
    )


def two_gpus():
    """A fast and a slow node of one GPU each."""
    return cluster([[1], [1]], resources=["gpu"], kind=[0, 1], kinds=["fast", "slow"])


def ran(rule, work, machine, profile):
    whole = simulate(work, machine, rule, profile=profile)
    return Result(rule, 0, work, machine, whole.state, whole.totals, profile=profile)


def test_throughput_counts_finished_jobs_an_hour_of_the_makespan():
    result = pool()  # three jobs end by 25 s
    assert measure(result)["throughput_per_h"] == pytest.approx(3 * 3600 / 25)
    result.state["status"][2] = Status.FAILED
    assert measure(result)["throughput_per_h"] == pytest.approx(2 * 3600 / 25)


def test_useful_utilisation_is_the_raw_one_where_every_node_is_alike():
    found = measure(pool())
    # 2 x 10 + 2 x 20 + 4 x 5 units of 4 x 25
    assert found["useful_utilization"] == pytest.approx(0.8)
    assert found["utilization"] == pytest.approx(0.8)


def test_useful_utilisation_tells_a_slow_gpu_from_a_fast_one_and_the_raw_one_does_not():
    profile = speeds([[2.0, 0.5]])
    slow_only = workload([0], [10], [[1]], resources=["gpu"], gpus=1, node_kinds=0b10)
    both = replace(slow_only, jobs=slow_only.jobs.copy())
    both.jobs["node_kinds"] = 0b11
    slow, fast = (ran("fcfs+fastest", work, two_gpus(), profile) for work in (slow_only, both))
    # the slow GPU takes 20 s and the fast one 5 s; the other stands idle
    assert measure(slow)["makespan_s"] == pytest.approx(20.0)
    assert measure(fast)["makespan_s"] == pytest.approx(5.0)
    assert measure(slow)["utilization"] == measure(fast)["utilization"] == pytest.approx(0.5)
    # the same job where it may run on the fast one needed 5 of 2 x 20 s
    free = replace(slow, workload=both)
    assert measure(free)["useful_utilization"] == pytest.approx(0.125)
    assert measure(fast)["useful_utilization"] == pytest.approx(0.5)


def test_the_best_rate_is_of_the_node_kinds_that_a_job_may_use_and_that_are_there():
    profile = speeds([[2.0, 0.5, 9.0], [1.0, 3.0, 9.0]])  # none is of the third kind of node
    work = workload(
        [0, 0, 0, 0], [1, 1, 1, 1], [[1]] * 4, resources=["gpu"], gpus=1,
        kind=[0, 0, 1, 0], kinds=["a", "b"], node_kinds=[0b111, 0b110, 0b111, 0b100],
    )  # fmt: skip
    machine = cluster([[1], [1]], resources=["gpu"], kind=[0, 1], kinds=["fast", "slow", "none"])
    result = replace(pool(), workload=work, cluster=machine, profile=profile)
    assert best_rate(result, 0).tolist() == [2.0, 0.5, 3.0, 0.0]


def test_three_times_the_rate_on_four_times_the_gpus_is_no_better_rate():
    profile = speeds([[[1.0, 3.0]]], Shape(), Shape("wide", scale=4.0))
    work = workload([0, 0], [1, 1], [[1]] * 2, resources=["gpu"], gpus=1, shapes=[0b11, 0b10])
    result = replace(
        pool(), workload=work, cluster=cluster([[4]], resources=["gpu"]), profile=profile
    )
    assert best_rate(result, 0).tolist() == [1.0, 0.75]


def test_a_log_of_processors_counts_processors():
    result = pool()
    work = replace(result.workload, meta={"procs": np.array([1, 2, 3]), "max_procs": 4})
    # 1 x 10 + 2 x 20 + 3 x 5 of 4 x 25
    found = measure(replace(result, workload=work))
    assert found["useful_utilization"] == found["utilization"] == pytest.approx(0.65)


def test_a_run_in_which_nothing_finished_has_zeros_and_no_nan():
    result = pool()
    result.state["status"], result.state["end_s"] = Status.REJECTED, np.nan
    result.state["start_s"] = np.nan
    found = measure(replace(result, profile=speeds([[0.0]])))
    assert found["throughput_per_h"] == found["useful_utilization"] == 0.0
    assert all(math.isfinite(value) for value in found.values())
