"""The co-located scene holds what its settings say."""

import numpy as np
import pytest

from trimtab.errors import TraceError
from trimtab.sim.lending import service_use
from trimtab.traces.colocated.scene import BY_NAME, IN_TIME, colocated
from trimtab.traces.scenes.scene import open_scene

SMALL = {"machines": 24, "regions": 3, "span_s": 600.0}


def made(seed=0, **settings):
    return colocated(rng=np.random.default_rng(seed), **SMALL | settings)


def test_the_same_seed_is_the_same_scene_and_another_is_not():
    work, again, other = made(1)[0], made(1)[0], made(2)[0]
    assert (work.jobs == again.jobs).all() and (work.patterns == again.patterns).all()
    assert len(work) != len(other) or (work.jobs["submit_s"] != other.jobs["submit_s"]).any()


def test_machines_stand_in_regions_of_one_mix():
    _, rack, _ = made()
    assert np.bincount(rack.nodes["region"]).tolist() == [8, 8, 8]
    kinds = [np.bincount(rack.nodes["kind"][rack.nodes["region"] == g], minlength=4).tolist()
             for g in range(3)]  # fmt: skip
    assert kinds[0] == kinds[1] == kinds[2] and min(kinds[0]) > 0


def test_services_reserve_what_is_said_and_use_less():
    work, rack, _ = made(reserved=0.8)
    service = work.truth["service"] == 1
    held = np.bincount(work.truth["pinned"][service] - 1, work.demand[service, 0], len(rack))
    share = held / rack.capacity[:, 0]
    assert share.min() >= 0.8 * 0.85 - 1e-9 and share.max() <= 0.8 * 1.08 + 1e-9
    used = service_use(work, rack)
    assert (used <= held + 1e-9).all() and used.mean() < 0.9 * held.mean()
    assert np.diff(used, axis=0).any()


@pytest.mark.parametrize("load", [0.3, 0.9])
def test_the_load_is_batch_work_over_what_services_leave(load):
    work, rack, _ = made(load=load)
    batch = work.truth["service"] == 0
    span_s = SMALL["span_s"]
    wanted = (work.demand[:, 0] * work.jobs["instances"] * work.jobs["request_s"])[batch].sum()
    left = rack.capacity[:, 0].sum() - service_use(work, rack).mean(0).sum()
    assert wanted / (left * span_s) == pytest.approx(load, rel=0.1)


def test_little_swing_swings_less():
    calm, wild = made(swing=0.2, noise=0.0)[0], made(swing=1.1, noise=0.0)[0]
    assert calm.patterns.std(1).mean() < 0.5 * wild.patterns.std(1).mean()


def test_splits_differ_and_tasks_wait_for_their_parents():
    work, other = made(split="test")[0], made(split="train")[0]
    assert len(work) > 100 and len(other) > 100
    child = np.repeat(np.arange(len(work)), np.diff(work.after_ptr))
    dag = work.meta["dag"]
    assert len(child) and (dag[child] == dag[work.after_idx]).all()
    assert (work.jobs["submit_s"][child] == work.jobs["submit_s"][work.after_idx]).all()
    assert work.meta["in_time"] == IN_TIME


def test_the_named_scenes_open_by_name_and_take_a_load():
    for name in BY_NAME:
        scene = open_scene(f"{name}:machines=12,regions=2,span_s=300", seed=3, load=0.4)
        assert scene.cluster.lending is not None and len(scene.cluster) == 12
    with pytest.raises(TraceError, match="makes its own machines"):
        open_scene("colocated", cluster="openb", seed=0)


@pytest.mark.parametrize(
    "settings, text",
    [
        ({"machines": 2}, "machines=2; give 3 or more"),
        ({"load": 0.0}, "load=0.0 is not in"),
        ({"phase": 2.0}, "phase=2.0 is not in 0..1"),
        ({"own": "nowhere.csv"}, "nowhere.csv"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings, text):
    with pytest.raises(TraceError, match=text):
        made(**settings)
