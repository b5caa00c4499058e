"""The learned estimate: features by hand, in the engine as in training, and files refused."""

import json

import numpy as np
import pytest

from trimtab.core import Limit
from trimtab.errors import PolicyError
from trimtab.policies.forecast.training import examples
from trimtab.rules import forecast
from trimtab.rules.forecast import FEATURES, HORIZON_S, LONG, MARGIN, describe, shipped
from trimtab.rules.names import foretells, learned
from trimtab.sim.backend import SimBackend
from trimtab.traces.scenes.scene import open_scene

SMALL = "colocated:machines=12,regions=2,span_s=600,load=0.3"


def described(own, region, reserved=8.0, cap=10.0):
    """Features after these readings, the newest last."""
    x = np.empty(FEATURES)
    ring = np.zeros(LONG)
    ring[: len(own)] = own
    shared = np.full(LONG, -1.0)
    shared[: len(region)] = region
    describe.py_func(ring, len(own) - 1, len(own), shared, len(region) - 1, reserved, cap, x)
    return x


def test_features_by_hand():
    x = described([2.0, 4.0], [0.25, 0.5])
    lags = len(forecast.OWN_LAGS)
    assert x[0] == 0.4 and (x[1:lags] == 0.2).all()  # what is before the first is the first
    for window in (x[lags : lags + 3], x[lags + 3 : lags + 6]):
        assert window == pytest.approx([0.3, 0.1, 0.4])
    region = x[lags + 6 : lags + 6 + len(forecast.REGION_LAGS)]
    assert (region == 0.5).all()  # lags of 3 and more are not known yet: as it is now
    assert x[-6:] == pytest.approx([0.0, 0.0, 0.8, 0.4, 0.4, 1.0])


def test_a_region_that_rises_lifts_a_node_by_its_own_use():
    own, region = np.full(LONG, 3.0), np.linspace(0.2, 0.6, LONG)
    x = described(own, region)
    lag = forecast.REGION_LAGS[5]
    assert x[-6] == pytest.approx((0.6 - region[LONG - 1 - lag]) * 0.3 / 0.6)
    assert x[-5] == pytest.approx((0.6 - 0.2) * 0.3 / 0.6)


def test_the_engine_foretells_what_training_would():
    """Readings, regions and features of a run are those that the examples are made of."""
    scene = open_scene(SMALL, seed=3)
    backend = SimBackend(scene.workload, scene.cluster, scene.profile)
    backend.wait()
    backend.apply(Limit(0.9, estimate="forecast"))
    while backend.snapshot().now_s < 600.0:
        backend.wait()
    step = int(backend.world.head[0]["step"])
    x, _, _ = examples(scene, 1)
    x = x.reshape(-1, len(scene.cluster), FEATURES)[step - LONG]
    cap = scene.cluster.capacity[:, 0]
    state = backend.world.node_state[0]
    table = shipped()
    rise = np.maximum(x @ table[:, :-1].T + MARGIN * table[:, -1], 0.0)  # (N, H)
    wanted = np.minimum(state["read"][:, None] + rise * cap[:, None], state["reserved"][:, None])
    np.testing.assert_allclose(backend.world.foretold[0], wanted, rtol=1e-9)
    assert (np.diff(shipped()[:, -1]) != 0).any() and len(HORIZON_S) == wanted.shape[1]


def test_it_is_learned_and_told_nothing():
    assert learned("sjf+swift+forecast@0.9") and not foretells("sjf+swift+forecast@0.9")
    assert not learned("sjf+swift+p95")


@pytest.mark.parametrize(
    "change, why",
    [
        ({"made_by": "somebody"}, "made_by is not"),
        ({"horizon_s": [1.0]}, "made for other horizons"),
        ({"weights": [[1.0]]}, "are not 6 rows of"),
        ({"deviation": [float("nan")] * 6}, "are not 6 rows of"),
        ({"deviation": None}, "are not 6 rows of"),
    ],
)
def test_a_file_that_is_none_is_refused(tmp_path, change, why):
    path = tmp_path / "forecast.json"
    path.write_text(json.dumps(json.loads(forecast.SHIPPED.read_text()) | change))
    with pytest.raises(PolicyError, match=why):
        forecast.read_weights(path)


def test_a_folder_a_file_and_nothing_are_taken(tmp_path):
    (tmp_path / "forecast.json").write_text(forecast.SHIPPED.read_text())
    for place in (str(tmp_path), str(tmp_path / "forecast.json"), ""):
        assert (forecast.weights_at(place) == shipped()).all()
    with pytest.raises(PolicyError, match="none: No such file or directory; train some with"):
        forecast.weights_at(str(tmp_path / "none"))


def test_a_scene_takes_weights_of_ones_own(tmp_path):
    table = shipped().copy()
    table[:] = 0.0
    forecast.write_weights(tmp_path / "forecast.json", table)
    scene = open_scene(f"{SMALL},forecast={tmp_path}", seed=0)
    backend = SimBackend(scene.workload, scene.cluster, scene.profile)
    backend.wait()
    backend.apply(Limit(0.9, estimate="forecast"))
    for _ in range(40):
        backend.wait()
    read = backend.world.node_state[0]["read"]
    assert (backend.world.foretold[0] == read[:, None]).all()  # no rise is ever foretold
