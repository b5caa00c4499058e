"""Exported segments compute what the torch network does, at every width."""

import numpy as np
import pytest
import torch

from trimtab.errors import ServeError
from trimtab.serving.net.segments import Segments
from trimtab.serving.net.slim_form import Form
from trimtab.serving.net.slim_net import SlimResNet, arrays_of, network
from trimtab.serving.net.slim_weights import Weights, as_stored

SMALL = Form(channels=(16, 16, 32, 32), group=4, classes=5, blocks=(2, 2, 2, 2), side=8)


@pytest.fixture(scope="module")
def pair():
    """A network as it comes from a weight file, and its segments."""
    torch.manual_seed(0)
    net = SlimResNet(SMALL)
    with torch.no_grad():
        for name, value in net.named_parameters():
            if name.endswith(("gain", "shift")):
                value.add_(torch.randn_like(value) * 0.3)
    stored = as_stored(arrays_of(net))
    return network(SMALL, stored).eval(), Segments(Weights(SMALL, stored, {}))


def pixels(count, seed=0):
    return np.random.default_rng(seed).random((count, 3, 8, 8), dtype=np.float32)


@pytest.mark.parametrize("segment", range(4))
@pytest.mark.parametrize("before", range(4))
@pytest.mark.parametrize("width", range(4))
def test_a_segment_is_the_networks_at_any_batch(pair, segment, before, width):
    net, segments = pair
    for count in (1, 3):
        shape = segments.takes(segment, before)
        x = np.random.default_rng(count).random((count, *shape), dtype=np.float32)
        with torch.no_grad():
            theirs = net.segment(segment, torch.from_numpy(x), before, width)
            theirs = net.classify(theirs) if segment == 3 else theirs
        ours = segments.run(segment, before, width, x)
        assert ours.shape == tuple(theirs.shape)
        assert np.abs(ours - theirs.numpy()).max() < 1e-4


def test_the_chain_is_the_network(pair):
    net, segments = pair
    widths = (2, 0, 3, 1)
    given = x = pixels(5)
    for segment, width in enumerate(widths):
        x = segments.run(segment, widths[max(segment - 1, 0)], width, x)
    with torch.no_grad():
        assert np.abs(x - net(torch.from_numpy(given), widths).numpy()).max() < 1e-4


def test_a_segment_is_loaded_once_and_can_be_unloaded(pair):
    segments = Segments(pair[1].weights)
    first = segments.load(1, 2, 3)
    assert segments.load(1, 2, 3) is first
    assert segments.loaded == ((1, 2, 3),)
    assert segments.unload(1, 2, 3)
    assert not segments.unload(1, 2, 3)
    assert segments.loaded == ()


def test_the_first_segment_has_no_width_before(pair):
    segments = Segments(pair[1].weights)
    assert segments.load(0, 0, 2) is segments.load(0, 3, 2)


def test_memory_is_counted_by_the_weights(pair):
    # 8 channels of 16: stem 3 -> 8, four convolutions 8 -> 8, all 3x3, and two numbers a channel
    assert pair[1].bytes_of(0, 0, 1) == 4 * ((3 + 4 * 8) * 8 * 9 + 5 * 2 * 8)


@pytest.mark.parametrize(
    ("key", "named"), [((4, 0, 0), "segment=4"), ((1, 9, 0), "before=9"), ((1, 0, -1), "width=-1")]
)
def test_a_segment_that_does_not_exist_is_refused(pair, key, named):
    with pytest.raises(ServeError, match=named):
        pair[1].run(*key, pixels(1))


@pytest.mark.parametrize(
    "x",
    [np.zeros((1, 3, 9, 8), "f4"), np.zeros((1, 3, 8, 8)), np.zeros((3, 8, 8), "f4")],
    ids=["shape", "float64", "no batch"],
)
def test_a_wrong_input_says_what_to_give(pair, x):
    with pytest.raises(ServeError, match=r"give float32 of shape \(N, 3, 8, 8\)"):
        pair[1].run(0, 0, 0, x)


def test_threads_below_one_are_refused(pair):
    with pytest.raises(ServeError, match="threads=0"):
        Segments(pair[1].weights, threads=0)
