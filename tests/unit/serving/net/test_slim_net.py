"""The slimmable network: one set of weights, any width a segment, segment by segment or whole."""

import numpy as np
import pytest
import torch

from trimtab.errors import ServeError
from trimtab.serving.net.slim_form import Form, macs, parameters
from trimtab.serving.net.slim_net import SlimResNet, arrays_of, network, standardised

SMALL = Form(channels=(16, 16, 32, 32), group=4, classes=5, blocks=(2, 2, 2, 2), side=8)
MIXED = [(0, 0, 0, 0), (3, 3, 3, 3), (0, 3, 1, 2), (2, 1, 3, 0)]


def small(seed=0):
    """A network in which no normalisation is the identity."""
    torch.manual_seed(seed)
    net = SlimResNet(SMALL)
    with torch.no_grad():
        for name, value in net.named_parameters():
            if name.endswith(("gain", "shift")):
                value.add_(torch.randn_like(value) * 0.3)
    return net.eval()


def images(count=3, seed=1):
    return torch.rand(count, 3, 8, 8, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("widths", MIXED)
def test_the_whole_is_the_chain_of_its_segments_and_the_head(widths):
    net, x = small(), images()
    whole = net(x, widths)
    for segment, width in enumerate(widths):
        x = net.segment(segment, x, widths[max(segment - 1, 0)], width)
    assert whole.shape == (3, 5)
    assert torch.equal(net.classify(x), whole)


def test_a_narrow_network_reads_the_first_channels_only():
    net, x = small(), images()
    before = net(x, (1, 1, 1, 1)).detach()
    with torch.no_grad():
        for name, value in net.named_parameters():
            if name.startswith("convs."):
                value[value.shape[0] // 2 :] += 1.0
                if value.ndim == 4 and value.shape[1] > 3:
                    value[:, value.shape[1] // 2 :] -= 2.0
        net.head.weight[:, 16:] += 1.0
    assert torch.equal(net(x, (1, 1, 1, 1)), before)
    assert not torch.allclose(net(x, (2, 1, 1, 1)), net(x, (1, 1, 1, 1)))


def test_the_first_groups_are_normalised_alike_with_and_without_the_others():
    # the stem's input is the same at every width, so its first channels are too
    net, x = small(), images()
    stem = net.convs["stem"]
    assert torch.allclose(stem(x, 3)[:, :4], stem(x, 0), atol=1e-6)
    assert stem(x, 0).any()


def test_the_network_holds_as_many_numbers_as_counted():
    count = sum(value.numel() for value in small().parameters())
    assert count == parameters(SMALL, (3, 3, 3, 3))


def test_multiplications_counted_are_those_that_torch_runs():
    from torch.utils.flop_counter import FlopCounterMode

    net = small()
    for widths in MIXED:
        with FlopCounterMode(display=False) as counter:
            net(images(1), widths)
        assert counter.get_total_flops() == 2 * macs(SMALL, widths)


def test_standardised_filters_have_no_mean_and_length_one_at_any_slice():
    weight = torch.randn(6, 8, 3, 3) * 5 + 1
    for inputs in (2, 8):
        flat = standardised(weight[:, :inputs]).flatten(1)
        assert torch.allclose(flat.mean(1), torch.zeros(6), atol=1e-6)
        assert torch.allclose(flat.norm(dim=1), torch.ones(6), atol=1e-5)


def test_the_length_of_a_filter_has_no_meaning():
    net, x = small(), images()
    before = net(x, (2, 1, 3, 0)).detach()
    with torch.no_grad():
        for conv in net.convs.values():
            conv.weight.mul_(torch.rand(len(conv.weight), 1, 1, 1) * 3 + 0.5)
    assert torch.allclose(net(x, (2, 1, 3, 0)), before, atol=1e-4)


def test_every_weight_learns_at_full_width():
    net = small()
    net(images(), (3, 3, 3, 3)).square().sum().backward()
    assert all(value.grad is not None and value.grad.any() for value in net.parameters())


def test_arrays_make_the_same_network_again():
    net, x = small(), images()
    again = network(SMALL, arrays_of(net))
    assert torch.equal(again(x, (0, 2, 1, 3)), net(x, (0, 2, 1, 3)))


def test_arrays_of_another_form_are_refused():
    with pytest.raises(ServeError, match=r"head\.weight"):
        network(SMALL._replace(classes=7), arrays_of(small()))


def test_a_hand_over_of_the_wrong_width_is_refused():
    net = small()
    x = net.segment(0, images(), 1, 1)
    with pytest.raises(ServeError, match="takes 16 channels and was given 8"):
        net.segment(1, x, 3, 0)
    with pytest.raises(ServeError, match="segment=4"):
        net.segment(4, x, 1, 1)


def test_pixels_are_normalised_inside():
    torch.manual_seed(0)
    net = SlimResNet(SMALL, mean=(0.2, 0.4, 0.6), spread=(0.1, 0.2, 0.3))
    plain = network(SMALL, arrays_of(net) | {"mean": np.zeros(3), "spread": np.ones(3)})
    x = images()
    shifted = (x - net.mean) / net.spread
    assert torch.allclose(net(x, (3, 3, 3, 3)), plain(shifted, (3, 3, 3, 3)), atol=1e-5)
