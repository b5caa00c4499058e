"""The compiled networks against the same sums in NumPy, and against those that are trained."""

import numpy as np
import torch

from trimtab.policies.peers import learning
from trimtab.policies.peers.kinds import BY_NAME
from trimtab.policies.peers.nets import count, count_lstm, lstm, mlp

SIZES = np.array([5, 4, 3, 2])


def test_a_network_has_a_weight_for_each_pair_and_a_bias_for_each_output():
    assert count(SIZES) == 5 * 4 + 4 + 4 * 3 + 3 + 3 * 2 + 2
    assert count_lstm(6, 16) == (6 + 16 + 1) * 64


def test_a_compiled_network_gives_what_numpy_and_torch_give():
    rng = np.random.default_rng(0)
    theta, x = rng.normal(size=3 + count(SIZES)), rng.normal(size=5)
    here, at = x, 3
    for layer, (a, b) in enumerate(zip(SIZES[:-1], SIZES[1:])):
        here = here @ theta[at : at + a * b].reshape(a, b) + theta[at + a * b : at + a * b + b]
        here = np.maximum(here, 0) if layer < 2 else here
        at += a * b + b
    assert np.allclose(mlp(theta, 3, SIZES, x), here, rtol=1e-12)
    trained = learning.mlp(torch.tensor(theta), 3, SIZES.tolist(), torch.tensor(x)[None])
    assert np.allclose(trained[0].numpy(), here, rtol=1e-12)


def test_a_compiled_memory_gives_what_torchs_own_gives():
    rng = np.random.default_rng(1)
    inputs, units = 3, 4
    theta, steps = rng.normal(size=count_lstm(inputs, units)), rng.normal(size=(7, inputs))
    theirs = torch.nn.LSTM(inputs, units, dtype=torch.float64)
    at, width = inputs * 4 * units, 4 * units
    with torch.no_grad():
        theirs.weight_ih_l0[:] = torch.tensor(theta[:at].reshape(inputs, width).T)
        theirs.weight_hh_l0[:] = torch.tensor(
            theta[at : at + units * width].reshape(units, width).T
        )
        theirs.bias_ih_l0[:] = torch.tensor(theta[-width:])
        theirs.bias_hh_l0[:] = 0
        last = theirs(torch.tensor(steps)[:, None])[0][-1, 0].numpy()
    assert np.allclose(lstm(theta, 0, units, steps), last, rtol=1e-9)
    ours = learning.lstm(torch.tensor(theta).float(), units, torch.tensor(steps[None]).float())
    assert np.allclose(ours[0].numpy(), last, atol=1e-5)


def test_first_weights_are_as_many_as_a_peer_has():
    for peer in BY_NAME.values():
        made = learning.first_weights(peer, np.random.default_rng(0))
        assert made.shape == (peer.weights,) and np.isfinite(made).all()
