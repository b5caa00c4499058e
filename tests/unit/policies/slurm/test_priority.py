"""The multifactor priority, beside what sprio of a real Slurm 22.05 printed."""

import numpy as np
import pytest

from trimtab.policies.slurm.priority import Request, Whole, age, job_size, priority
from trimtab.policies.slurm.settings import settings_of

WEIGHTS = {
    "PriorityWeightAge": "1000",
    "PriorityWeightFairshare": "10000",
    "PriorityWeightJobSize": "1000",
    "PriorityWeightPartition": "3000",
    "PriorityWeightQOS": "2000",
    "PriorityWeightTRES": "cpu=500,gres/gpu=700",
    "PriorityMaxAge": "00:02:00",
}
# sprio -l on nodes of 8 + 4 + 4 CPUs, 4 GPUs; partitions batch (all, factor 10 of 40) and fast
# (8 CPUs, factor 40 of 40); QOS normal 25 and high 100
SPRIO = [  # age_s, fair share, cpus, nodes, gpus, qos, partition, nice; priority
    (39, 0.6, 4, 1, 0, 0.25, "batch", 0, 7991),
    (37, 0.8, 1, 1, 0, 1.00, "batch", 0, 11287),
    (37, 1.0, 8, 1, 0, 0.25, "batch", 0, 12225),
    (34, 0.4, 2, 1, 0, 0.25, "fast", 0, 8137),
    (34, 1.0, 1, 1, 2, 0.25, "batch", 0, 12112),
    (34, 0.6, 2, 2, 0, 0.25, "fast", 50, 10254),
    (34, 0.4, 1, 1, 0, 0.25, "batch", 0, 5762),
    (34, 0.4, 1, 1, 0, 0.25, "fast", 0, 8043),
]


def asked(rows):
    columns = list(zip(*rows))
    fast = np.array([name == "fast" for name in columns[6]])
    floats = [np.array(column, np.float64) for column in (*columns[:6], columns[7])]
    age_s, fair_share, cpus, nodes, gpus, qos, nice = floats
    ask = Request(
        age_s=age_s, fair_share=fair_share, cpus=cpus, nodes=nodes, mem_gb=np.zeros(len(rows)),
        gpus=gpus, limit_s=np.full(len(rows), 300.0), qos=qos,
        partition=np.where(fast, 1.0, 0.25), site=-nice,
    )  # fmt: skip
    none = np.zeros(len(rows))
    return ask, Whole(16.0, 3.0, np.where(fast, 8.0, 16.0), none, np.where(fast, 0.0, 4.0))


def test_priorities_are_those_of_sprio_to_the_last_digit():
    ask, whole = asked(SPRIO)
    told = priority(ask, whole, settings_of(WEIGHTS))
    assert told.tolist() == [row[-1] for row in SPRIO]


def test_age_counts_whole_seconds_up_to_the_greatest_age():
    assert age(np.array([-3.0, 30.9, 60.0, 500.0]), 120.0).tolist() == [0.0, 0.25, 0.5, 1.0]


def test_small_jobs_are_favoured_where_the_site_says_so():
    ask, whole = asked([(0, 0, 4, 1, 0, 0, "batch", 0, 0), (0, 0, 16, 3, 0, 0, "batch", 0, 0)])
    large = job_size(ask, whole, settings_of({}))
    assert large == pytest.approx([(1 / 3 + 4 / 16) / 2, 1.0])
    assert job_size(ask, whole, settings_of({"PriorityFavorSmall": "YES"})) == pytest.approx(
        1 - large
    )


def test_size_relative_to_time_is_cpus_a_minute_of_the_limit():
    ask, whole = asked([(0, 0, 4, 1, 0, 0, "batch", 0, 0)])
    settings = settings_of({"PriorityFlags": "SMALL_RELATIVE_TO_TIME"})
    # a node is 16 / 3 CPUs on average, more than the 4 asked; the limit is 5 minutes
    assert job_size(ask, whole, settings) == pytest.approx([16 / 3 / 5 / 16])


def test_a_priority_is_never_below_one():
    ask, whole = asked([(0, 0, 0, 0, 0, 0, "batch", 5000, 0)])
    assert priority(ask, whole, settings_of(WEIGHTS)).tolist() == [1.0]
