"""The load encoder: its outlook by hand, its network against NumPy, its files."""

import json

import numpy as np
import pytest

from trimtab.errors import PolicyError
from trimtab.rules import encoder
from trimtab.rules.encoder import BEFORE, FEATURES, HIGH_Z, NOW, OUTLOOK
from trimtab.rules.forecast import HORIZON_S


def test_the_outlook_is_how_far_the_usual_use_rises_within_each_horizon():
    usual = np.array([0.2, 0.4, 0.6, 0.5])  # every 100 s
    out = np.zeros(OUTLOOK)
    encoder.look_ahead(usual, 100.0, 100.0, out)
    assert out[NOW] == pytest.approx(0.4)
    assert out[BEFORE] == pytest.approx(0.4 - (0.5 + 0.2 * (0.2 - 0.5)))  # at -80 s, as at 320 s
    rises = dict(zip(HORIZON_S, out[2:]))
    assert rises[10.0] == pytest.approx(0.02) and rises[60.0] == pytest.approx(0.12)
    assert rises[480.0] == pytest.approx(0.2, abs=0.03)  # its top lies between two looks
    encoder.look_ahead(usual, 100.0, 200.0, out)
    assert (out[2:] >= 0).all() and out[2] == 0.0  # it falls


def test_the_network_is_what_numpy_makes_of_its_layers():
    rng = np.random.default_rng(0)
    shapes = ((FEATURES + 1, 8), (9, 8), (9, 2 * len(HORIZON_S)))
    first, middle, last = (rng.normal(size=shape) / 3 for shape in shapes)
    x = rng.normal(size=FEATURES)
    a, b, y = np.empty(8), np.empty(8), np.empty(2 * len(HORIZON_S))
    encoder.encode(first, middle, last, x, a, b, y)
    hidden = np.maximum(x @ first[:-1] + first[-1], 0)
    hidden = np.maximum(hidden @ middle[:-1] + middle[-1], 0)
    said = hidden @ last[:-1] + last[-1]
    half = len(HORIZON_S)
    assert y[:half] == pytest.approx(said[:half])
    assert y[half:] == pytest.approx(np.logaddexp(said[half:], 0) / HIGH_Z)
    assert b == pytest.approx(hidden)


def test_files_are_read_back_and_others_are_refused(tmp_path):
    layers = encoder.shipped()
    encoder.write_weights(tmp_path / "encoder.npz", layers, command="mine")
    for mine, other in zip(layers, encoder.weights_at(str(tmp_path))):
        assert mine == pytest.approx(other)
    (tmp_path / "other.npz").write_text("no")
    with pytest.raises(PolicyError, match="no weights of an encoder"):
        encoder.read_weights(tmp_path / "other.npz")
    encoder.write_weights(tmp_path / "small.npz", (layers[0][:5], layers[1], layers[2]))
    with pytest.raises(PolicyError, match="first is not"):
        encoder.read_weights(tmp_path / "small.npz")


def test_the_shipped_weights_say_which_command_made_them():
    with np.load(encoder.SHIPPED) as held:
        made = json.loads(str(held["made"]))
    assert made["command"].startswith("trimtab train encoder ")
    assert made["settings"]["trace"] in made["command"]
    assert "/" not in made["command"]  # no folder of the machine it was made on
