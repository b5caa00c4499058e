"""Features of a window, with the arithmetic shown."""

from pathlib import Path

import numpy as np
import pytest
from pytest import approx

from trimtab.load.features import CLUSTER, FEATURES, NODE, REGION
from trimtab.load.series import Series
from trimtab.load.sums import ASKED, AT, FIXED, QUEUE_AT, empty_queue, empty_sums

WINDOW_MS = 300_000
NAN = np.nan


def measured(cpu, mem=0.5, samples=2):
    """Sums of one window in which each machine has these means; NaN = no sample."""
    sums = empty_sums(1, len(cpu))[0]
    for node, (c, m) in enumerate(zip(cpu, np.broadcast_to(mem, len(cpu)))):
        if not np.isnan(c):
            sums[node, AT.samples] = sums[node, AT.mem_n] = samples
            sums[node, AT.cpu_sum] = samples * round(c * FIXED)
            sums[node, AT.mem_sum] = samples * round(m * FIXED)
            sums[node, AT.cpu_max] = round(c * FIXED)
    return sums


def waiting(cpu):
    """A queue in which so many machines' worth of CPU waits for the whole window."""
    queue = empty_queue(1)[0]
    queue[QUEUE_AT.waiting_cpu_ms] = round(cpu * ASKED) * WINDOW_MS
    return queue


def frame(sums, queue=None, capacity=None, region=None):
    nodes = len(sums) - 1
    capacity = np.ones((nodes, 2)) if capacity is None else capacity
    region = np.zeros(nodes, int) if region is None else region
    return Series(capacity, region).step(0, sums, waiting(0) if queue is None else queue)


def node(made, name):
    return made.node[:, NODE.index(name)].tolist()


def region(made, name):
    return made.region[:, REGION.index(name)].tolist()


def cluster(made, name):
    return float(made.cluster[CLUSTER.index(name)])


def test_every_feature_has_a_unit_a_level_and_a_meaning():
    assert len({f.name for f in FEATURES}) == len(FEATURES)
    assert all(f.unit and f.levels and f.what for f in FEATURES)
    assert CLUSTER[: len(REGION)] == REGION


def test_the_guide_lists_every_feature_with_its_unit():
    guide = (Path(__file__).parents[3] / "docs" / "load.md").read_text(encoding="utf-8")
    for feature in FEATURES:
        levels = " ".join(level[0].upper() for level in feature.levels)
        assert f"| `{feature.name}` | {feature.unit} | {levels} |" in guide


def test_means_are_of_the_samples_and_load_is_their_middle():
    made = frame(measured([0.25, 0.75], [0.5, 0.25]))
    assert node(made, "cpu") == [0.25, 0.75]
    assert node(made, "mem") == [0.5, 0.25]
    assert node(made, "cpu_max") == [0.25, 0.75]
    assert node(made, "load") == [0.375, 0.5]
    assert node(made, "gap") == [0, 0]


def test_a_gap_is_marked_and_not_filled():
    made = frame(measured([0.5, NAN]))
    for name in ("cpu", "cpu_max", "mem", "mem_max", "load", "imbalance", "cpu_recent"):
        assert np.isnan(node(made, name)[1]), name
    assert node(made, "gap") == [0, 1]
    assert node(made, "running") == [0, 0]
    assert region(made, "machines") == [1]
    assert region(made, "cpu") == [0.5]
    assert region(made, "gap") == [0.5]


def test_a_sensor_that_one_machine_lacks_is_averaged_over_the_others():
    sums = measured([0.5, 0.5])
    sums[1, [AT.gpu_n, AT.gpu_sum]] = 4, 3 * FIXED
    made = frame(sums)
    assert np.isnan(node(made, "gpu")[0]) and node(made, "gpu")[1] == 0.75
    assert cluster(made, "gpu") == 0.75
    assert np.isnan(cluster(made, "disk"))


def test_integrals_become_time_means():
    sums = measured([0.5])
    columns = AT.running_ms, AT.batch_cpu_ms, AT.services_ms, AT.service_cpu_ms
    sums[0, columns] = 2 * WINDOW_MS, ASKED * WINDOW_MS // 4, 3 * WINDOW_MS, ASKED * WINDOW_MS // 2
    made = frame(sums)
    names = ("running", "batch_cpu", "services", "density")
    assert [node(made, name)[0] for name in names] == [2, 0.25, 3, 0.5]


def test_the_wait_is_a_mean_over_those_that_started():
    sums = measured([0.5, 0.5, 0.5])
    sums[0, [AT.started, AT.start_wait_ms]] = 2, 6000
    sums[1, [AT.started, AT.start_wait_ms]] = 1, 9000
    made = frame(sums)
    assert node(made, "start_wait_s") == [3, 9, 0]
    assert cluster(made, "start_wait_s") == 5  # 15 s over 3 instances
    assert cluster(made, "started") == 3


def test_services_that_nobody_sampled_use_nan():
    sums = measured([0.5, 0.5])
    sums[0, [AT.service_seen, AT.service_cpu, AT.service_mem]] = 3, FIXED // 4, FIXED // 2
    made = frame(sums)
    assert node(made, "service_cpu")[0] == 0.25 and node(made, "service_mem")[0] == 0.5
    assert np.isnan(node(made, "service_cpu")[1])


def test_means_of_a_region_weigh_by_capacity():
    capacity = [[30, 10], [10, 10], [5, 5]]
    made = frame(measured([0.25, 0.75, 0.5], [0, 1, 1]), capacity=capacity, region=[0, 0, 1])
    assert region(made, "cpu") == [0.375, 0.5]  # (30 x 0.25 + 10 x 0.75) / 40
    assert region(made, "mem") == [0.5, 1]
    assert node(made, "imbalance") == [-0.125, 0.375, 0]
    # sqrt((30 x 0.125^2 + 10 x 0.375^2) / 40)
    assert region(made, "cpu_sd") == approx([np.sqrt(1.875 / 40), 0])
    assert region(made, "mem_sd") == [0.5, 0]


def test_a_machine_is_hot_above_four_fifths():
    made = frame(measured([0.81, 0.79, 0.9, NAN]))
    assert region(made, "hot") == approx([2 / 3])


def test_a_region_without_samples_is_nan_and_its_counts_are_not():
    sums = measured([0.5, NAN])
    sums[1, AT.ended] = 7
    made = frame(sums, region=[0, 1])
    assert np.isnan(region(made, "cpu")[1]) and np.isnan(region(made, "hot")[1])
    assert region(made, "ended") == [0, 7]
    assert region(made, "machines") == [1, 0]


def test_competition_is_what_waits_against_free_cpu_elsewhere():
    made = frame(measured([0.5, 0.25, 0.0, NAN]), waiting(1.0), region=[0, 0, 1, 1])
    # free 0.5 + 0.75 + 1 and none counted on the machine in a gap
    assert node(made, "competition") == approx([1 / 2.75, 1 / 2.5, 1 / 2.25, 1 / 3.25])
    assert region(made, "competition") == approx([1 / 2, 1 / 2.25])
    assert cluster(made, "competition") == approx(1 / 3.25)
    assert cluster(made, "waiting_cpu") == 1


def test_competition_of_unequal_machines_is_in_the_unit_of_their_capacity():
    made = frame(measured([0.5, 0.5]), waiting(0.5), capacity=[[30, 1], [10, 1]])
    # waiting: half of the mean machine of 20 = 10; free: 15 and 5
    assert node(made, "competition") == approx([10 / 15, 10 / 25])
    assert cluster(made, "competition") == approx(10 / 30)


@pytest.mark.parametrize(("wanted", "expected"), [(0.0, 0.0), (2.0, 1.0)])
def test_competition_with_no_free_cpu_is_all_or_nothing(wanted, expected):
    made = frame(measured([1.0, 1.02]), waiting(wanted))
    assert node(made, "competition") == [expected, expected]


def test_unknown_machines_count_in_the_cluster_only():
    sums = measured([0.5, 0.5])
    sums[2, [AT.started, AT.running_ms, AT.batch_cpu_ms]] = 4, WINDOW_MS, ASKED * WINDOW_MS
    made = frame(sums, capacity=[[30, 1], [10, 1]])
    assert region(made, "started") == [0] and cluster(made, "started") == 4
    assert cluster(made, "running") == 1
    assert cluster(made, "batch_cpu") == 0.5  # one mean machine of 20 out of 40
    assert cluster(made, "machines") == 2
