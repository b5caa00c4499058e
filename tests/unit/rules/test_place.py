"""Every choice of node on one small cluster, with the scores beside it."""

from dataclasses import replace

import numpy as np
import pytest
from tests.worlds import ruled

from trimtab.build import cluster, uniform_profile, workload
from trimtab.core import What
from trimtab.policies import named

#           cpu  mem_gb, and what a job pinned there uses of it
NODES = [((8, 32), (2, 8)), ((8, 32), (5, 8)), ((16, 32), None)]
PROBE = (2, 4)


def choose(place, *, nodes=NODES, rate=None, slow=None, seed=0):
    """The node on which the probe starts, with the pinned jobs in place."""
    pinned = [(node, used) for node, (_, used) in enumerate(nodes) if used]
    table = [used for _, used in pinned] + [PROBE]
    masks = [1 << node for node, _ in pinned] + [7]
    jobs = workload(
        [0.0] * len(pinned) + [1.0], 1000, table, resources=("cpu", "mem_gb"),
        node_kinds=masks, kind=[0] * len(pinned) + [1], kinds=("pinned", "probe"),
    )  # fmt: skip
    machine = cluster([cap for cap, _ in nodes], resources=("cpu", "mem_gb"), kind=[0, 1, 2])
    profile = uniform_profile(2, 3)
    if rate:
        profile.rate[1, :, 0] = rate
    if slow:
        profile.slow[1, 0] = slow
    done = ruled(jobs, machine, named(f"fcfs+{place}", seed=seed), profile=profile)
    return next(
        event.nodes[0]
        for event in done.seen
        if event.what == What.STARTED and event.job == len(pinned)
    )


# free now: (6, 24), (3, 24), (16, 32)
@pytest.mark.parametrize(
    "place, node",
    [
        ("first", 0),
        ("best", 1),  # left over: 4/8 + 20/32 = 1.125, 1/8 + 20/32 = 0.75, 14/16 + 28/32 = 1.75
        ("worst", 2),
        ("least-loaded", 2),
        # free . demand in shares: .75 x .25 + .75 x .125 = .281, .375 x .25 + .75 x .125 = .188,
        # .125 + .125 = .25
        ("dot", 0),
        # cosine - load / 2: .949 - .125 = .824, .8 - .3125 = .4875, 1 - 0 = 1
        ("cosine", 2),
    ],
)
def test_each_place_takes_the_node_with_the_best_score(place, node):
    assert choose(place) == node


def test_cosine_avoids_neighbours_that_would_slow_the_job():
    # node 0: demand (.25, .125), free (.875, 1): cosine .926, load .125: .86 with a quiet
    # neighbour. node 1: demand (.25, .0125), empty: .742. A neighbour that doubles the time costs
    # node 0 another .5
    nodes = [((8, 32), (1, 0)), ((8, 320), None), ((1, 1), None)]
    assert choose("cosine", nodes=nodes) == 0
    assert choose("cosine", nodes=nodes, slow=1.0) == 1


def test_fastest_takes_the_fullest_node_of_the_fastest_kind():
    assert choose("fastest", rate=[1.0, 1.0, 3.0]) == 2
    assert choose("fastest", rate=[1.0, 2.0, 2.0]) == 1  # as fast as node 2, and fuller


def test_fastest_leaves_out_what_cannot_run_the_job_at_all():
    assert choose("first", rate=[0.0, 0.0, 1.0]) == 2


def test_random_is_fixed_by_its_seed_and_reaches_every_node_that_fits():
    nodes = [choose("random", seed=seed) for seed in range(12)]
    assert nodes == [choose("random", seed=seed) for seed in range(12)]
    assert set(nodes) == {0, 1, 2}


def test_affinity_waits_for_its_own_kind_while_others_are_free():
    # the second job runs twice as fast on kind 1, which is taken until 50
    machine = cluster([1, 1], kind=[0, 1])
    profile = replace(uniform_profile(1, 2), rate=np.array([[[1.0], [2.0]]]))
    jobs = workload([0, 0], [100, 10], [1, 1])
    assert ruled(jobs, machine, named("fcfs+affinity"), profile=profile).starts() == [0.0, 50.0]
    assert ruled(jobs, machine, named("fcfs+fastest"), profile=profile).starts() == [0.0, 0.0]


def test_affinity_takes_the_fastest_kind_that_could_host_the_job():
    # kind 1 is faster but too small even when empty: kind 0 is the job's own
    machine = cluster([4, 1], kind=[0, 1])
    profile = replace(uniform_profile(1, 2), rate=np.array([[[1.0], [2.0]]]))
    assert ruled(
        workload([0], [10], [2]), machine, named("fcfs+affinity"), profile=profile
    ).ends() == [10.0]


def gpu_jobs(shares, submit_s, work_s=1000.0):
    table = [[1, share] for share in shares]
    return workload(submit_s, work_s, table, resources=("cpu", "gpu"), gpus=1, gpu_share=shares)


def test_frag_fills_the_device_that_whole_gpu_jobs_cannot_use():
    # half the expected jobs ask for a whole GPU, half for 0.5. Node 1 has a device half taken:
    # there a 0.5 removes a fragment of 0.5 x 0.5; on the empty node 0 it would make one
    machine = cluster([[8, 1], [8, 1]], resources=("cpu", "gpu"), kind=[0, 1])
    jobs = gpu_jobs([0.5, 0.5, 1.0, 1.0], [0, 1, 5000, 5000])
    jobs.jobs["node_kinds"][0] = 2
    done = ruled(jobs, machine, named("fcfs+frag"), profile=uniform_profile(1, 2))
    assert [event.nodes for event in done.seen if event.what == What.STARTED][:2] == [(1,), (1,)]


def test_a_gang_spreads_by_score_and_fits_whole():
    # free cores 6, 3, 16: worst puts a gang of 4 x 2 on node 2 until another node has more left 16:
    # 14/16, 12/16 = 6/8 equals node 0's 6/8 before: shares after one more: node 2 (10/16), node 0
    # (4/8)
    jobs = workload([0], [10], [2], instances=4)
    done = ruled(jobs, cluster([8, 3, 16]), named("fcfs+worst"))
    (start,) = [event.nodes for event in done.seen if event.what == What.STARTED]
    # leftovers: 6/8, 1/3, 14/16 -> 2; 12/16 = 6/8 tie -> 0; 4/8, 12/16 -> 2; 10/16 -> 2
    assert sorted(start) == [0, 2, 2, 2]
