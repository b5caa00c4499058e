"""A cluster cut down to a stated load: how many nodes of a kind stay, which ones, and refusals."""

import re

import numpy as np
import pytest

from trimtab.build import cluster, uniform_profile, workload
from trimtab.errors import TraceError
from trimtab.traces.scenes.describe import offered_load
from trimtab.traces.scenes.load import at_load
from trimtab.traces.scenes.scene import open_scene


def offering(core_s, span_s=100.0):
    """Two jobs `span_s` apart: the first asks for so many core-seconds, the last has no time."""
    return workload([0.0, span_s], [span_s, 7.0], [core_s / span_s, 2], source="two jobs")


def nodes(count, kinds=1, region=None, cores=10.0):
    """Nodes of 10 cores, kinds in turn, each with its own name."""
    return cluster(
        np.full(count, cores),
        kind=np.arange(count) % kinds,
        kinds=[f"kind-{k}" for k in range(kinds)],
        region=0 if region is None else region,
        regions=None if region is None else [f"r{g}" for g in range(max(region) + 1)],
        names=[f"n{n}" for n in range(count)],
        source="a rack",
    )


def cut(work, machine, load):
    """The cluster that is left."""
    return cut_both(work, machine, load)[1]


def cut_both(work, machine, load):
    return at_load(work, machine, uniform_profile(len(work.kinds), len(machine.kinds)), load)


@pytest.mark.parametrize(
    ("core_s", "load", "kept"),
    [
        # 20 nodes x 10 cores x 100 s = 20,000 core-seconds; 4,500 of them are 0.225 of it
        (4500, 0.225, 20),
        (4500, 0.45, 10),
        (4500, 0.9, 5),
        (4500, 0.8, 6),  # 5.6
        (4500, 4.5, 1),
        (4500, 1000, 1),  # never none
    ],
)
def test_as_many_nodes_stay_as_the_load_needs(core_s, load, kept):
    assert len(cut(offering(core_s), nodes(20), load)) == kept


def test_the_cut_cluster_is_offered_the_load():
    work = offering(4500)
    left = cut(work, nodes(20), 0.9)
    assert offered_load(work, left)["cpu"] == pytest.approx(0.9)


def test_every_kind_keeps_its_share_and_at_least_one_node():
    kind = [0] * 12 + [1] * 6 + [2]
    machine = cluster(np.full(19, 10.0), kind=kind, kinds=["many", "some", "one"])
    left = cut(offering(19 * 10 * 100 / 6), machine, 0.5)  # a sixth offered at 0.5: a third stays
    assert np.bincount(left.nodes["kind"], minlength=3).tolist() == [4, 2, 1]
    assert left.kinds == machine.kinds


def test_a_kind_without_nodes_stays_without():
    machine = cluster(np.full(4, 10.0), kind=[0, 0, 2, 2], kinds=["a", "none", "c"])
    left = cut(offering(4 * 10 * 100 / 4), machine, 0.5)
    assert np.bincount(left.nodes["kind"], minlength=3).tolist() == [1, 0, 1]


def test_regions_keep_their_shares():
    region = np.tile([0, 1, 0, 2], 6)
    left = cut(offering(24 * 10 * 100 / 6), nodes(24, region=region), 0.5)
    assert np.bincount(left.nodes["region"]).tolist() == [4, 2, 2]  # a third of each


def test_names_and_capacities_follow_their_nodes():
    machine = cluster(
        np.stack((np.arange(1.0, 7.0), 64 - np.arange(6.0)), axis=1),
        resources=["cpu", "mem_gb"],
        names=["a", "b", "c", "d", "e", "f"],
        source="six",
    )
    work = workload(
        [0, 100], [100, 100], [[10.5, 0], [5.25, 0]], resources=["cpu", "mem_gb"]
    )  # 10.5 of 21 cores
    left = cut(work, machine, 1.0)
    # three of six stay, every second one
    assert left.names.tolist() == ["a", "c", "e"]
    assert left.capacity.tolist() == [[1, 64], [3, 62], [5, 60]]
    assert left.source == "3 of six, at load 1"


def test_nodes_without_names_stay_without():
    assert cut(offering(1000), cluster(np.full(10, 10.0)), 0.2).names is None


def test_the_scarcest_resource_decides():
    machine = cluster(np.full((8, 2), 10.0), resources=["cpu", "mem_gb"])
    work = workload([0, 100], [100, 100], [[2, 20], [1, 10]], resources=["cpu", "mem_gb"])
    assert len(cut(work, machine, 0.5)) == 4  # memory: 2,000 of 8,000 = 0.25; CPU: 0.025


def beside_services(count, cores=4.0):
    """Two jobs 100 s apart, 4,500 core-seconds between them, after so many services."""
    submit_s = [0.0] * count + [1000.0, 1100.0]
    return workload(
        submit_s,
        [np.inf] * count + [1125.0] * 2,  # 100 s of the first are inside the span
        [cores] * count + [45.0] * 2,
        service=[1] * count + [0] * 2,
        job_id=[f"s{n}" for n in range(count)] + ["first", "second"],
        source="two jobs beside services",
    )


@pytest.mark.parametrize(
    ("load", "nodes_left", "services_left"),
    [
        # 10 services take 40 of 200 cores: 0.225 of all is 0.225 / 0.8 = 0.28125 of the rest
        (0.28125, 20, 10),
        (0.5625, 10, 5),
        (1.40625, 4, 2),
    ],
)
def test_load_counts_against_what_services_leave_and_they_go_with_their_nodes(
    load, nodes_left, services_left
):
    work, left = cut_both(beside_services(10), nodes(20), load)
    assert len(left) == nodes_left
    assert work.truth["service"].sum() == services_left
    assert [work.name(job) for job in range(len(work))][-2:] == ["first", "second"]


def test_services_are_left_out_evenly():
    work, _ = cut_both(beside_services(10), nodes(20), 0.5625)
    names = [work.name(job) for job in range(len(work))]
    assert names == ["s0", "s2", "s4", "s6", "s8", "first", "second"]


def test_a_refusal_names_the_offer_against_what_services_leave():
    with pytest.raises(TraceError, match=r"offers 0\.281 to all of a rack"):
        cut_both(beside_services(10), nodes(20), 0.28)


@pytest.mark.parametrize("load", [0.0, -1.0, np.nan])
def test_a_load_that_is_not_above_0_is_refused(load):
    with pytest.raises(TraceError, match=r"--load \S+ is not above 0; give for example 0.9"):
        cut(offering(4500), nodes(20), load)


def test_a_load_below_what_is_offered_is_refused_with_the_offer():
    told = re.escape("--load 0.2: two jobs offers 0.225 to all of a rack; give a larger --load")
    with pytest.raises(TraceError, match=told):
        cut(offering(4500), nodes(20), 0.2)


def test_a_scene_at_a_load_keeps_its_jobs_and_loses_nodes():
    whole = open_scene("mixed-gpu", jobs=200)
    offered = max(offered_load(whole.workload, whole.cluster, whole.profile).values())
    half = open_scene("mixed-gpu", jobs=200, load=2 * offered)
    assert (half.workload.jobs == whole.workload.jobs).all()
    want = np.bincount(whole.cluster.nodes["kind"]) / 2
    assert np.abs(np.bincount(half.cluster.nodes["kind"]) - want).max() <= 0.5


def test_a_share_of_gpu_jobs_changes_the_work_before_the_cluster_is_cut():
    options = {"cluster": "openb:48", "jobs": 300, "gpu_jobs": 0.5}
    whole = open_scene("queue", **options)
    assert "mapped" in whole.workload.meta
    offered = max(offered_load(whole.workload, whole.cluster, whole.profile).values())
    third = open_scene("queue", **options, load=3 * offered)
    assert (third.workload.jobs == whole.workload.jobs).all()
    assert third.profile.rate.shape == whole.profile.rate.shape
    of_kind = np.bincount(whole.cluster.nodes["kind"])
    want = np.maximum(np.rint(of_kind / 3), of_kind > 0)
    assert np.bincount(third.cluster.nodes["kind"], minlength=len(want)).tolist() == want.tolist()
