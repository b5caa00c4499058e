"""The score of packer by hand, and files of weights."""

import json

import numpy as np
import pytest

from trimtab.errors import PolicyError
from trimtab.rules.worth import (
    CLASSES,
    FEATURES,
    SHIPPED,
    class_of,
    read_weights,
    shipped,
    worth,
    write_weights,
)
from trimtab.sim.fragment import ANY_MODEL, Demand, Typical, packer_score, wanted_by

ROWS = list(CLASSES)
WHOLE_POD = Typical(  # one typical pod: a whole GPU and no CPU
    np.array([0]), np.array([1000]), np.array([1]), np.array([ANY_MODEL]), np.array([1.0])
)
MACHINE = np.array([8000, 16_384, 4, 0])


def one(feature: str) -> np.ndarray:
    """Weight 1 for one feature in every class, else 0."""
    return np.tile([float(name == feature) for name in FEATURES], (len(CLASSES), 1))


def features(row: str, **given: float) -> dict[str, float]:
    """Every feature of a placement, one weight at a time."""
    usual = dict(relief=0.0, gpu_left=2.5, whole=2, devices=4, left=0.5, tightest=0.25,
                 device_left=0.5, opened=False, fresh=False, wanted=0.125)  # fmt: skip
    at = ROWS.index(row)
    return {name: worth.py_func(one(name), at, **(usual | given)) for name in FEATURES}


def test_a_pods_class_is_by_its_gpus():
    asks = [(0, 0.0), (1, 0.5), (1, 1.0), (2, 1.0), (8, 1.0)]
    rows = [ROWS[class_of.py_func(gpus, share)] for gpus, share in asks]
    assert rows == ["cpu", "shared", "one", "several", "several"]


def test_every_feature_of_a_placement():
    found = features("shared", relief=0.75, opened=True, fresh=True)
    assert found == {
        "relief": 0.75,
        "gpu_left": 2.5 / 8,
        "gpu_share_left": 2.5 / 4,
        "left": 0.5,
        "tightest": 0.25,
        "gap": 2.5 / 4 - 0.25,
        "device_left": 0.5,
        "opened": 1.0,
        "whole": 2 / 8,
        "devices": 4 / 8,
        "spent": 0.0,
        "fresh": 1.0,
        "wanted": 1.25,
    }


def test_devices_that_a_part_is_taken_of_count_for_parts_alone():
    found = features("one", opened=True)
    assert (found["device_left"], found["opened"]) == (0.0, 0.0)


def test_a_node_without_gpus_is_spent():
    found = features("cpu", gpu_left=0.0, whole=0, devices=0)
    assert (found["spent"], found["gpu_share_left"], found["gap"]) == (1.0, 0.0, 0.25)


@pytest.mark.parametrize("call", [packer_score, packer_score.py_func])
def test_a_part_of_a_gpu_on_a_node_by_hand(call):
    free = np.array([1000, 600, 0, 1000])
    pod = Demand(2000, 4096, 500, 1, ANY_MODEL)
    # fragments before: the 600 that no whole pod fits; after: the 100 that is left of it
    before = 600.0
    scores = {
        name: call(one(name), before, MACHINE, 6000, 8192, free.copy(), pod, WHOLE_POD)
        for name in FEATURES
    }
    assert {devices for _, devices in scores.values()} == {0b0010}  # the tightest that suffices
    values = {name: value for name, (value, _) in scores.items()}
    assert values == pytest.approx({
        "relief": 0.5,
        "gpu_left": 2.1 / 8,
        "gpu_share_left": 2.1 / 4,
        "left": (4000 / 8000 + 4096 / 16_384) / 2,
        "tightest": 4096 / 16_384,
        "gap": 2.1 / 4 - 0.25,
        "device_left": 0.1,
        "opened": 0.0,
        "whole": 2 / 8,
        "devices": 4 / 8,
        "spent": 0.0,
        "fresh": 0.0,
        "wanted": 0.0,
    })  # fmt: skip


def test_an_empty_node_is_fresh_and_a_whole_device_is_opened():
    free = np.full(4, 1000)
    pod = Demand(2000, 4096, 500, 1, ANY_MODEL)
    for name in ("fresh", "opened"):
        assert packer_score(one(name), 0.0, MACHINE, 8000, 16_384, free, pod, WHOLE_POD)[0] == 1.0
    assert free.tolist() == [1000] * 4  # left as it was


def test_a_model_is_wanted_by_the_pods_that_accept_it_and_not_any():
    pods = Typical(*(np.array(column) for column in zip(
        (0, 1000, 1, ANY_MODEL, 0.5), (0, 1000, 1, 0b001, 0.25),
        (0, 1000, 1, 0b011, 0.125), (0, 1000, 1, 0b010, 0.125),
    )))  # fmt: skip
    pod = Demand(2000, 4096, 500, 1, ANY_MODEL)
    assert wanted_by(0, pod, pods) == 0.375
    assert wanted_by(-1, pod, pods) == 0.0  # a node without GPUs
    assert wanted_by(0, pod._replace(models=0b001), pods) == 0.0


def test_shipped_weights_are_of_this_versions_features():
    held = json.loads(SHIPPED.read_text())
    assert held["command"].startswith("trimtab train packer")
    assert shipped().shape == (len(CLASSES), len(FEATURES))
    assert np.isfinite(shipped()).all() and shipped().any(1).all()


def test_weights_that_were_written_are_read(tmp_path):
    weights = np.random.default_rng(1).normal(size=(len(CLASSES), len(FEATURES))).round(6)
    write_weights(tmp_path / "packer.json", weights, command="by hand")
    assert read_weights(tmp_path / "packer.json").tolist() == weights.tolist()


def changed(**parts):
    held = json.loads(SHIPPED.read_text())
    return json.dumps({**held, **parts})


BAD_ROW = {name: [0.0] * len(FEATURES) for name in CLASSES} | {"shared": [1.0]}
BAD_VALUE = {name: [0.0] * len(FEATURES) for name in CLASSES}
BAD_VALUE["one"] = ["x", *BAD_VALUE["one"][1:]]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "not JSON"),
        ("[]", "no weights of packer"),
        (changed(made_by="me"), "no weights of packer"),
        (changed(features=["relief"]), "made for other features than this version's"),
        (changed(weights={"cpu": []}), "weights are not of cpu, shared, one, several"),
        (changed(weights=BAD_ROW), "weights.shared are not 13 numbers"),
        (changed(weights=BAD_VALUE), "weights.one.relief='x' is no weight"),
        (changed(weights={**BAD_VALUE, "one": [float("nan")] * 13}), "relief=nan is no weight"),
    ],
)
def test_another_file_is_refused_by_name(tmp_path, text, told):
    path = tmp_path / "packer.json"
    path.write_text(text)
    with pytest.raises(PolicyError) as raised:
        read_weights(path)
    assert str(raised.value).startswith(f"{path}: ")
    assert told in str(raised.value) and "trimtab train packer --out DIR" in str(raised.value)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(PolicyError, match="No such file"):
        read_weights(tmp_path / "absent.json")
