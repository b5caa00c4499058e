"""Where and in what order a real slurmctld starts jobs, beside the policy `slurm` on the same."""

import numpy as np
import pytest
from tests.live.slurm_scene import Job, ran, simulated
from tests.slurm_daemon import Node, running, why_not

from trimtab.site import Partition, Site

NODES = [
    Node("a1", 8, gpu_kind="a100", gpus=4, features="nvlink", weight=20),
    Node("v1", 8, gpu_kind="v100", gpus=2, weight=10),
    Node("v2", 8, gpu_kind="v100", gpus=2, weight=10),
    Node("c1", 4),
    Node("c2", 4, features="ib"),
    Node("c3", 4, features="ib"),
]
PARTITIONS = [
    "gpu Nodes=a1,v1,v2 MaxTime=60 State=UP",
    "cpu Nodes=c1,c2,c3 Default=YES MaxTime=60 State=UP",
    "all Nodes=ALL MaxTime=60 State=UP PriorityTier=5",
]
SITE = Site(
    partitions=(
        Partition("gpu", ("a1", "v1", "v2"), max_s=3600),
        Partition("cpu", ("c1", "c2", "c3"), default=True, max_s=3600),
        Partition("all", ("a1", "v1", "v2", "c1", "c2", "c3"), max_s=3600, tier=5),
    ),
    weight=(20, 10, 10, 1, 1, 1),
)
SETTINGS = {
    "PriorityType": "priority/multifactor",
    "PriorityWeightJobSize": "1000",
    "SchedulerParameters": "bf_interval=2,bf_resolution=1,sched_min_interval=1000,"
    "batch_sched_delay=0",
}


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    if why_not():
        pytest.skip(why_not())
    with running(tmp_path_factory.mktemp("slurm"), NODES, PARTITIONS, SETTINGS) as made:
        yield made


def same(slurm, jobs, first, settings=SETTINGS, site=SITE, quotas=None, apart_s=3.0):
    """Every job on the nodes where Slurm had it, at its time but for Slurm's own delays."""
    seen = ran(slurm, jobs, first)
    ours = simulated(NODES, site, jobs, seen, settings, quotas)
    names = [job.name for job in jobs]
    told = "\n".join(
        f"{name}: Slurm {seen.start_s[i]:g} s on {seen.nodes[i]}, "
        f"ours {ours.start_s[i]:g} s on {ours.nodes[i]}"
        for i, name in enumerate(names)
    )
    assert dict(zip(names, ours.nodes)) == dict(zip(names, seen.nodes)), told
    late = [i for i in range(len(jobs)) if abs(ours.start_s[i] - seen.start_s[i]) > apart_s]
    assert not late, told
    behind = np.subtract.outer(seen.start_s, seen.start_s)
    turned = (behind > apart_s) & (np.subtract.outer(ours.start_s, ours.start_s) < 0)
    assert not turned.any(), told


FILL = [
    Job("fill-c", 6, 1, "cpu", cpus=4, nodes=3),
    Job("fill-v", 10, 1, "gpu", cpus=8, nodes=2, constraint="", gpus=2, gpu_kind="v100"),
    Job("fill-a", 14, 1, "gpu", cpus=8, gpus=4, gpu_kind="a100"),
]


def test_jobs_start_in_slurms_order_on_slurms_nodes(slurm):
    jobs = [
        *FILL,
        Job("one", 8, 5, "cpu", cpus=1),
        Job("two", 9, 5, "cpu", cpus=2),
        Job("three", 20, 5, "cpu", cpus=3),
        Job("ib", 13, 5, "cpu", cpus=2, constraint="ib"),
        Job("pair", 11, 3, "cpu", cpus=3, nodes=2),
        Job("v100", 7, 4, "gpu", cpus=2, gpus=1, gpu_kind="v100"),
        Job("any-gpu", 12, 4, "gpu", cpus=2, gpus=2),
        Job("a100", 9, 4, "gpu", cpus=4, gpus=3, gpu_kind="a100"),
        Job("nvlink", 6, 4, "gpu", cpus=1, constraint="nvlink"),
        Job("no-gpu", 5, 2, "gpu", cpus=4),
    ]
    same(slurm, jobs, len(FILL))


def test_short_jobs_are_backfilled_as_in_slurm(slurm):
    jobs = [
        Job("long", 16, 3, "cpu", cpus=4),
        Job("brief", 7, 1, "cpu", cpus=4),
        Job("wide", 6, 2, "cpu", cpus=4, nodes=3),
        Job("fits", 5, 1, "cpu", cpus=2),
        Job("too-long", 5, 9, "cpu", cpus=2),
        Job("fits-too", 6, 2, "cpu", cpus=1),
        Job("later", 5, 1, "cpu", cpus=4, nodes=2),
    ]
    same(slurm, jobs, 2)


def test_a_higher_tier_goes_first_and_keeps_its_nodes_from_others(slurm):
    jobs = [
        *FILL,
        Job("low", 6, 2, "cpu", cpus=4),
        Job("low-gpu", 6, 2, "gpu", cpus=2, gpus=1),
        Job("high", 7, 2, "all", cpus=4, nodes=4),
        Job("high-one", 9, 2, "all", cpus=1),
        Job("low-whole", 6, 2, "cpu", cpus=1, exclusive=True),
    ]
    same(slurm, jobs, len(FILL))
