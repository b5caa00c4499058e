"""Statistics of small workloads, by hand."""

import json

import numpy as np
import pytest

from trimtab.build import cluster, uniform_profile, workload
from trimtab.errors import TraceError
from trimtab.traces.scenes.describe import busy_s, content_sha256, describe


def test_the_numbers_of_three_jobs():
    work = workload(
        [0, 10, 40], [10, 20, 30], [1, 2, 3], request_s=[20, 20, 90], instances=[1, 4, 1]
    )
    told = describe(work)
    assert (told["jobs"], told["instances_total"], told["gangs"]) == (3, 6, 1)
    assert (told["span_s"], told["interarrival_mean_s"]) == (40, 20)
    assert (told["work_s"]["p50"], told["work_s"]["mean"]) == (20, 20)
    assert told["request_to_work"]["p50"] == 2  # 20 / 10, 20 / 20, 90 / 30
    assert told["demand"]["cpu"]["max"] == 3


def test_variance_to_mean_counts_the_empty_windows():
    # seconds 0..4 hold 2, 0, 0, 0, 2 jobs: mean 0.8, variance 8 / 5 - 0.64 = 0.96, ratio 1.2
    told = describe(workload([0, 0.5, 4, 4.5], [1] * 4, [1] * 4))
    assert told["count_variance_to_mean"]["1"] == pytest.approx(1.2)


def test_graphs_are_counted_with_their_size_and_longest_chain():
    # 0 -> 1 -> 2 and 0 -> 2: three jobs, depth 3; 3 -> 4: two jobs, depth 2; 5 alone is no graph
    after = [[], [0], [0, 1], [], [3], []]
    told = describe(workload([0] * 6, [1] * 6, [1] * 6, after=after))["graphs"]
    assert (told["edges"], told["count"]) == (4, 2)
    assert (told["jobs"]["max"], told["jobs"]["mean"]) == (3, 2.5)
    assert (told["depth"]["max"], told["depth"]["mean"]) == (3, 2.5)


def test_offered_load_is_work_inside_the_span_of_arrivals_over_capacity():
    # (10 s x 1 + 20 of 60 s x 2 x 3 + 0 of 9 s x 4) core-seconds / (4 cores x 50 s) = 130 / 200
    work = workload([0, 30, 50], [10, 60, 9], [1, 2, 4], instances=[1, 3, 1])
    assert describe(work, cluster([4]))["offered_load"] == {"cpu": pytest.approx(0.65)}


def test_a_job_runs_at_the_mean_rate_of_the_nodes_it_may_use():
    # 3 cores at rate 1 and 1 at rate 2: mean 1.25; the second job may use only the fast node
    machine = cluster([[3], [1]], kind=[0, 1])
    profile = uniform_profile(1, 2)
    profile.rate[0, 1] = 2
    work = workload([0, 1], [100, 100], [1, 1], node_kinds=[3, 2])
    assert busy_s(work, machine, profile) == {"cpu": pytest.approx((100 / 1.25 + 100 / 2) / 4)}


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"node_kinds": 4}, "row 0.: kind 'job' runs on no node .* add such nodes"),
        ({"resources": ("disk",)}, "has no 'disk', which made by hand asks for; add it"),
    ],
)
def test_a_job_that_no_node_can_run_is_named(columns, problem):
    with pytest.raises(TraceError, match=problem):
        busy_s(workload([0], [1], [1], **columns), cluster([4]))


def test_it_is_json_without_nan_also_for_one_job_and_a_service():
    work = workload([5], [np.inf], [1], service=1, meta={"dropped": {"run time 0": 2}})
    told = describe(work, cluster([4]))
    assert json.loads(json.dumps(told, allow_nan=False))["dropped"] == {"run time 0": 2}


def test_the_sha_is_of_the_jobs_alone():
    made = [workload([0, 1], [1, 1], [1, d], source=s) for d, s in ((2, "a"), (2, "b"), (3, "a"))]
    sha = [content_sha256(work) for work in made]
    assert sha[0] == sha[1] != sha[2]
