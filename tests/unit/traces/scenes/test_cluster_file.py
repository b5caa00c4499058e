"""Cluster files: what they say, what they refuse, and that a saved one reads back the same."""

import numpy as np
import pytest

from trimtab.build import cluster
from trimtab.errors import TraceError
from trimtab.traces.scenes.cluster_file import profile_for, read_cluster, save_cluster
from trimtab.traces.scenes.presets import mixed_gpu_cluster

GOOD = """
nodes:
  - {kind: a100, count: 2, cpu: 128, mem_gb: 1024, gpu: 8, gpu_mem_gb: 80, peak_w: 6500}
  - {kind: cpu, cpu: 64, mem_gb: 256, region: west}
links: {all: {west: 0.6}}
profile:
  rates: {training: {a100: 2.1, cpu: 0.05}, other: {a100: 3}}
  slow: {training: {inference: 0.2}}
  source: our own
  measured: true
"""


@pytest.fixture
def file(tmp_path):
    def write(text: str):
        path = tmp_path / "cluster.yaml"
        path.write_text(text)
        return path

    return write


def test_groups_become_nodes(file):
    made, _ = read_cluster(file(GOOD))
    assert made.resources == ("cpu", "mem_gb", "gpu")
    assert made.capacity.tolist() == [[128, 1024, 8], [128, 1024, 8], [64, 256, 0]]
    assert [made.kinds[k] for k in made.nodes["kind"]] == ["a100", "a100", "cpu"]
    assert [made.regions[g] for g in made.nodes["region"]] == ["all", "all", "west"]
    assert made.nodes["gpus"].tolist() == [8, 8, 0]
    assert made.nodes["peak_w"].tolist() == [6500, 6500, 0]
    assert made.link.tolist() == [[1, 0.6], [0.6, 1]]


def test_a_file_says_whether_running_jobs_can_move(file, tmp_path):
    assert not read_cluster(file(GOOD))[0].live_migration
    made, _ = read_cluster(file(GOOD + "live_migration: true\n"))
    assert made.live_migration
    save_cluster(made, tmp_path / "again.yaml")
    assert read_cluster(tmp_path / "again.yaml")[0].live_migration
    with pytest.raises(TraceError, match="live_migration='maybe'; write true or false"):
        read_cluster(file(GOOD + "live_migration: maybe\n"))


def test_a_bare_list_of_groups_is_a_cluster(file):
    made, profile = read_cluster(file("- {kind: small, count: 3, cpu: 4}"))
    assert made.capacity[:, 0].tolist() == [4, 4, 4]
    assert profile == {}


def test_a_profile_fills_what_it_does_not_name(file):
    made, section = read_cluster(file(GOOD))
    profile = profile_for(section, ("inference", "training"), made.kinds)
    assert profile.rate[:, :, 0].tolist() == [[1, 1], [2.1, 0.05]]
    assert profile.slow.tolist() == [[0, 0], [0.2, 0]]
    assert profile.source == "our own"


def test_a_misspelt_job_kind_in_a_profile_is_refused_with_the_nearest(file):
    made, section = read_cluster(file(GOOD))
    with pytest.raises(TraceError, match=r"'training' .* did you mean 'trainings'"):
        profile_for(section, ("trainings",), made.kinds)


@pytest.mark.parametrize(
    "made",
    [
        mixed_gpu_cluster(regions=3),
        cluster([[4], [4], [8]], kind=[1, 1, 0], kinds=["big", "small"], source="two kinds"),
        cluster([[3.5]], resources=("node",), kinds=["pool"], names=["pool"]),
    ],
    ids=["mixed", "kinds out of order", "pool"],
)
def test_a_saved_cluster_reads_back_the_same(tmp_path, made):
    save_cluster(made, tmp_path / "c.yaml", {"rates": {"job": {made.kinds[0]: 2.0}}})
    back, profile = read_cluster(tmp_path / "c.yaml")
    assert (back.nodes == made.nodes).all()
    assert (back.capacity == made.capacity).all()
    assert (back.link == made.link).all()
    for name in ("resources", "kinds", "regions", "source"):
        assert getattr(back, name) == getattr(made, name)
    assert [back.name(n) for n in range(len(back))] == [made.name(n) for n in range(len(made))]
    assert profile == {"rates": {"job": {made.kinds[0]: 2.0}}}


def test_a_direction_given_wins_over_its_mirror_image(file):
    text = "nodes: [{kind: a, region: x}, {kind: a, region: y}]\nlinks: {x: {y: 0.5}, y: {x: 0.25}}"
    assert np.array_equal(read_cluster(file(text))[0].link, [[1, 0.5], [0.25, 1]])


def test_bandwidths_become_rates_by_the_share_of_exchange(file):
    text = "nodes: [{kind: a, region: x}, {kind: a, region: y}]\nlink_gb_s: {x: {x: 50, y: 12.5}}"
    between = 1 / (0.8 + 0.2 * 50 / 12.5)
    assert np.allclose(read_cluster(file(text))[0].link, [[1, between], [between, 1]])


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("- {kind: a, cpus: 4}", ["group 1 (a)", "'cpus'", "value 4", "did you mean 'cpu'?"]),
        ("- {kind: a}\n- {kind: b, cpu: -4}", ["group 2 (b)", "cpu=-4", "give a larger"]),
        ("- {kind: a, mem_gb: 64GB}", ["group 1 (a)", "mem_gb='64GB'", "without quotes or a unit"]),
        (f"- {{kind: a, cpu: 1{'0' * 310}}}", ["group 1 (a)", "cpu=1000", "is not a number"]),
        ("- {kind: a, count: 1.5}", ["count=1.5", "whole number in 1..1000000"]),
        ("- {kind: a, count: 0}", ["count=0", "give a larger"]),
        ("- {kind: a, gpu: 65}", ["gpu=65", "whole number in 0..64"]),
        ("- {kind: a, idle_w: 9, peak_w: 5}", ["peak_w=5 is below idle_w=9", "full load"]),
        ("- {cpu: 4}", ["group 1 (no kind)", "kind=None", "add kind"]),
        ("- four nodes", ["group 1", "'four nodes' is not a group", "write kind"]),
        ("- {kind: a, count: 2, names: [x]}", ["names=['x']", "list 2 names"]),
        ("- {kind: a, count: 2, names: [x, x]}", ["'x' stands 2 times", "give each its own"]),
        ("nodes: []", ["nodes=[]", "at least one group"]),
        ("node: []", ["'node'", "did you mean 'nodes'?"]),
        ("7", ["holds 7", "list of groups"]),
        ("- {kind: a\n- b", [":2: is not YAML", "mend that line"]),
        ("nodes: [{kind: a}]\nlinks: {all: {wst: 1}}", ["links", "region 'wst'", "known: all"]),
        ("nodes: [{kind: a}]\nlinks: {all: {all: 2}}", ["links: all: all=2", "(0, 1]"]),
        ("nodes: [{kind: a}]\nlink_gb_s: {all: {all: 0}}", ["link_gb_s: all: all=0", "above 0"]),
        (
            "nodes: [{kind: a}]\nlinks: {all: {all: 1}}\nlink_gb_s: {all: {all: 9}}",
            ["both links and link_gb_s"],
        ),
        ("nodes: [{kind: a}]\nprofile: {rate: {}}", ["profile", "did you mean 'rates'?"]),
        ("nodes: [{kind: a10}]\nprofile: {rates: {j: {a1: 2}}}", ["rates: j", "node kind 'a1'"]),
        ("nodes: [{kind: a}]\nprofile: {rates: {j: 2}}", ["rates={'j': 2}", "{one: {other"]),
        ("nodes: [{kind: a}]\nkinds: [b]", ["kind 'a'", "known: b"]),
    ],
)
def test_a_wrong_file_is_refused_by_file_group_field_value_and_remedy(file, text, parts):
    path = file(text)
    with pytest.raises(TraceError) as caught:
        read_cluster(path)
    for part in (str(path), *parts):
        assert part in str(caught.value)
