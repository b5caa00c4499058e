"""Generators and presets by name with settings, as `--trace` and `--cluster` take them."""

import numpy as np
import pytest

from trimtab.errors import TraceError
from trimtab.traces.scenes import synthetic
from trimtab.traces.scenes.adlro import JOB_KINDS, MIX, offered_load
from trimtab.traces.scenes.describe import content_sha256
from trimtab.traces.scenes.scene import open_scene, settings
from trimtab.traces.scenes.synthetic import generate


def test_settings_have_the_types_of_their_defaults():
    text = "adlro:load=0.7,estimate=noisy,sizes=philly,jobs=1000,mix=0.2/0.3/0.5"
    name, found = settings(text, synthetic.BY_NAME)
    assert name == "adlro"
    assert found == {
        "load": 0.7,
        "estimate": "noisy",
        "sizes": "philly",
        "jobs": 1000,
        "mix": (0.2, 0.3, 0.5),
    }
    assert [type(value) for value in found.values()] == [float, str, str, int, tuple]


def test_a_scene_with_settings_is_what_the_generator_makes_of_them():
    scene = open_scene("adlro:load=0.7,estimate=noisy,jobs=60", seed=4)
    made = generate("adlro", seed=4, load=0.7, estimate="noisy", jobs=60)
    assert content_sha256(scene.workload) == content_sha256(made)
    assert scene.name == "adlro:load=0.7,estimate=noisy,jobs=60"


def test_the_option_for_jobs_goes_before_the_setting():
    assert len(open_scene("adlro:jobs=60", jobs=30).workload) == 30


def test_a_preset_with_settings_has_that_many_nodes():
    scene = open_scene("adlro:jobs=20", "adlro:volta=3,turing=1,radeon=0")
    assert np.bincount(scene.cluster.nodes["kind"], minlength=3).tolist() == [3, 1, 0]


@pytest.mark.parametrize(
    "cluster", ["adlro:volta=32,turing=16,radeon=16", "adlro:volta=2,radeon=1"]
)
def test_the_load_is_relative_to_the_cluster_in_use(cluster):
    scene = open_scene("adlro:load=0.8,jobs=5000", cluster)
    # the span of 5,000 Poisson arrivals has a standard deviation of 1.4 %
    offered = offered_load(scene.workload, scene.cluster, scene.profile)
    assert offered == pytest.approx(0.8, rel=0.05)


def test_a_setting_that_generator_and_preset_share_is_given_to_both():
    scene = open_scene("queue:servers=7,jobs=10")
    assert len(scene.cluster) == 7


def test_the_mix_sets_the_shares_of_the_job_kinds():
    work = open_scene("adlro:jobs=20000,mix=1/0/3").workload
    share = np.bincount(work.jobs["kind"], minlength=len(JOB_KINDS)) / len(work)
    assert share == pytest.approx([0.25, 0.0, 0.75], abs=0.01)


def test_without_a_mix_the_jobs_are_those_of_the_default():
    made = [
        generate("adlro", seed=3, jobs=50, **more) for more in ({}, {"mix": MIX}, {"mix": None})
    ]
    assert len({content_sha256(work) for work in made}) == 1


@pytest.mark.parametrize(
    ("trace", "cluster", "words"),
    [
        ("adlro:lod=0.7", None, ["'lod=0.7'", "load=0.9", "mix=0.3/0.4/0.3", "jobs=2000"]),
        ("adlro:load=much", None, ["'load=much'", "load=0.9"]),
        ("adlro:jobs=1.5", None, ["'jobs=1.5'", "jobs=2000"]),
        ("adlro:mix=1/2", None, ["'mix=1/2'", "mix=0.3/0.4/0.3"]),
        ("adlro:", None, ["'' is no setting", "load=0.9"]),
        ("adlro:cluster=x", None, ["'cluster=x'"]),
        ("adlro:mix=0/0/0", None, ["mix=(0.0, 0.0, 0.0)", "simulation"]),
        ("adlro:mix=-1/1/1", None, ["mix=(-1.0", "0 or more"]),
        ("adlro:jobs=0", None, ["jobs=0", "1 or more"]),
        ("adlro:sizes=phily", None, ["adlro:sizes=phily", "'phily'", "philly"]),
        ("adlro:load=0", None, ["load=0.0", "above 0"]),
        ("mixed-gpu:tenants=0", None, ["mixed-gpu:tenants=0"]),
        ("adlro", "adlro:volt=3", ["'volt=3'", "volta=8, turing=4, radeon=4"]),
        ("adlro", "adlro:volta=-3", ["volta=-3"]),
    ],
)
def test_a_wrong_setting_is_a_mistake_that_lists_the_known_ones(trace, cluster, words):
    with pytest.raises(TraceError) as caught:
        open_scene(trace, cluster, jobs=None)
    assert all(word in str(caught.value) for word in words), str(caught.value)
