"""Training on a Ray cluster comes to what it comes to on threads, to the last bit."""

import numpy as np
import pytest

from trimtab.errors import PolicyError, TraceError
from trimtab.learners import trainer

ray = pytest.importorskip("ray")
cluster_utils = pytest.importorskip("ray.cluster_utils")

TRACE = "colocated:span_s=900,regions=2"
SMALL = {"steps": 2, "held": 2, "machines": 9}
HIERARCHY = {**SMALL, "scenes": 3, "of": 2, "population": 3, "every": 1}
MANAGER = {**SMALL, "judges": 2, "rounds": 2}


@pytest.fixture(scope="module")
def address():
    """A cluster of two CPUs that runs already, ended whatever happens."""
    cluster = cluster_utils.Cluster()
    try:
        cluster.add_node(num_cpus=2, object_store_memory=80 << 20, include_dashboard=False)
        yield cluster.address
    finally:
        ray.shutdown()
        cluster.shutdown()


def last(learner, out, **settings):
    """The last row of a training but its time, and what it wrote."""
    *_, row = trainer(learner)(out, **settings)
    return np.array([value for name, value in row._asdict().items() if name != "wall_s"])


@pytest.mark.parametrize("learner, settings", [("hierarchy", HIERARCHY), ("manager", MANAGER)])
def test_the_loss_is_that_of_threads(address, tmp_path, learner, settings):
    settings = settings | {"trace": TRACE, "seed": 1}
    here = last(learner, tmp_path / "here", **settings, workers=1)
    there = last(learner, tmp_path / "there", **settings, on=f"ray:{address}")
    assert np.array_equal(here, there, equal_nan=True)
    assert np.isfinite(here).all()
    assert not ray.is_initialized()  # it let go of the cluster


def test_a_training_begun_on_threads_goes_on_on_a_cluster_that_it_starts_and_ends(tmp_path):
    settings = HIERARCHY | {"trace": TRACE, "seed": 1}
    whole = last("hierarchy", tmp_path / "whole", **settings)
    last("hierarchy", tmp_path / "part", **settings | {"steps": 1})
    on = last("hierarchy", tmp_path / "part", **settings, on="ray")
    assert np.array_equal(whole, on)
    assert not ray.is_initialized()


def test_a_mistake_in_a_scene_is_told_as_it_is(address, tmp_path):
    settings = HIERARCHY | {"trace": "colocated:own=none.tar.xz", "on": f"ray:{address}"}
    with pytest.raises(TraceError, match=r"none\.tar\.xz") as error:
        last("hierarchy", tmp_path, **settings)
    assert type(error.value) is TraceError


def test_no_cluster_at_an_address(tmp_path, monkeypatch):
    def unreachable(**_):
        raise ConnectionError("nobody answers")

    monkeypatch.setattr(ray, "init", unreachable)
    with pytest.raises(PolicyError, match=r"on=ray:10\.0\.0\.1:1: no Ray cluster there.*ray start"):
        last("hierarchy", tmp_path, **HIERARCHY, on="ray:10.0.0.1:1")
