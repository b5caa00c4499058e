"""The universally slimmable residual network, in torch: one set of weights, 256 networks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trimtab.arrays import Array
from trimtab.errors import ServeError
from trimtab.serving.net.slim_form import COLOURS, Form, Layer, channels_at, checked_widths, layers
from trimtab.serving.nouns import SEGMENTS

FULL = 3  # the widest, which has every weight
# Keeps a filter of equal numbers from a division by zero; small beside any trained filter.
TINY = 1e-8


class SlimResNet(nn.Module):
    """A residual network for small images whose four segments each run at their own width.

    A width takes the first channels of every layer. Normalisation and rectifier come after the
    convolution: a segment then holds all that its own output needs, and what it hands over to
    another server is rectified and of one scale at every width. Takes pixels in 0..1.
    """

    def __init__(
        self,
        form: Form | None = None,
        mean: Sequence[float] = (0.5, 0.5, 0.5),
        spread: Sequence[float] = (0.25, 0.25, 0.25),
    ) -> None:
        super().__init__()
        self.form = (form or Form()).check()
        wide = [SlimConv(layer, self.form) for layer in layers(self.form)]
        self.convs = nn.ModuleDict({conv.layer.name: conv for conv in wide})
        for name, conv in self.convs.items():
            if name.endswith("_second"):
                # each block starts as its shortcut: the widest network trains as if shallow at
                # first, and the narrow ones inherit features instead of noise
                nn.init.zeros_(conv.get_parameter("gain"))
        self.head = nn.Linear(self.form.channels[-1], self.form.classes)
        self.mean: Tensor
        self.spread: Tensor
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32).view(1, COLOURS, 1, 1))
        self.register_buffer(
            "spread", torch.tensor(spread, dtype=torch.float32).view(1, COLOURS, 1, 1)
        )

    def forward(self, x: Tensor, widths: Sequence[int]) -> Tensor:
        """(N, 3, side, side) in 0..1 to (N, classes) logits."""
        chosen = checked_widths(widths)
        x = self.segment(0, x, chosen[0], chosen[0])
        for segment, (before, width) in enumerate(pairwise(chosen), start=1):
            x = self.segment(segment, x, before, width)
        return self.classify(x)

    def segment(self, segment: int, x: Tensor, before: int, width: int) -> Tensor:
        """One segment's output, (N, channels, side, side); the first one takes images and has no
        width before it.
        """
        if segment not in range(SEGMENTS):
            raise ServeError(f"segment={segment} is unknown; give 0..{SEGMENTS - 1}")
        wanted = COLOURS if segment == 0 else channels_at(self.form, segment - 1, before)
        if x.shape[1] != wanted:
            raise ServeError(
                f"segment={segment} after width {before} takes {wanted} channels and was given "
                f"{x.shape[1]}; give the output of segment {segment - 1} at that width"
            )
        if segment == 0:
            x = self.convs["stem"]((x - self.mean) / self.spread, width)
        for block in range(self.form.blocks[segment]):
            name = f"{segment}_{block}"
            inner = self.convs[f"{name}_first"](x, width)
            if f"{name}_skip" in self.convs:
                x = self.convs[f"{name}_skip"](x, width, rectify=False)
            x = self.convs[f"{name}_second"](inner, width, x)
        return x

    def classify(self, x: Tensor) -> Tensor:
        """The last segment's output to (N, classes) logits; the head takes what channels come."""
        # float32 whatever the rest runs in: logits are few, and a loss is a difference of them
        with torch.autocast(x.device.type, enabled=False):
            pooled = x.float().mean((2, 3))
            return F.linear(pooled, self.head.weight[:, : pooled.shape[1]], self.head.bias)


class SlimConv(nn.Module):
    """A convolution of standardised filters and its group normalisation, sliced to a width."""

    def __init__(self, layer: Layer, form: Form) -> None:
        super().__init__()
        self.layer, self.form = layer, form
        inputs = channels_at(form, layer.takes, FULL)
        outputs = channels_at(form, layer.segment, FULL)
        self.weight = nn.Parameter(torch.empty(outputs, inputs, layer.kernel, layer.kernel))
        nn.init.kaiming_normal_(self.weight, mode="fan_out", nonlinearity="relu")
        self.gain = nn.Parameter(torch.ones(outputs))
        self.shift = nn.Parameter(torch.zeros(outputs))
        self.finish: Callable[..., Tensor] = finished  # training may put a compiled one here

    def forward(
        self, x: Tensor, width: int, skip: Tensor | None = None, rectify: bool = True
    ) -> Tensor:
        outputs = channels_at(self.form, self.layer.segment, width)
        weight = standardised(self.weight[:outputs, : x.shape[1]])
        x = F.conv2d(x, weight, stride=self.layer.stride, padding=self.layer.kernel // 2)
        gain, shift = self.gain[:outputs], self.shift[:outputs]
        return self.finish(x, gain, shift, self.form.group, skip, rectify)


def standardised(weight: Tensor) -> Tensor:
    """Filters of mean 0 and length 1, each over the inputs that are there.

    Group normalisation alone trains worse than batch normalisation; with this it does not (weight
    standardisation, Qiao et al. 2019). It also gives every slice of a filter the same length, so
    that no width sees filters made for another's number of inputs.
    """
    spread, mean = torch.var_mean(weight, dim=(1, 2, 3), keepdim=True, correction=0)
    fan_in = weight[0].numel()
    return (weight - mean) * torch.rsqrt(spread * fan_in + TINY)


def finished(
    x: Tensor, gain: Tensor, shift: Tensor, group: int, skip: Tensor | None, rectify: bool
) -> Tensor:
    """Group normalisation in the type of `x`, the shortcut and the rectifier."""
    # autocast would widen x to float32 and so double what the GPU reads and writes; the kernel
    # sums in float32 in any case
    with torch.autocast(x.device.type, enabled=False):
        x = F.group_norm(x, x.shape[1] // group, gain.to(x.dtype), shift.to(x.dtype))
    if skip is not None:
        x = x + skip
    return F.relu(x) if rectify else x


def arrays_of(net: SlimResNet) -> dict[str, Array]:
    """Every number of the network, by name, as the weight file holds them."""
    found = {name: value.detach().float().cpu().numpy() for name, value in net.state_dict().items()}
    return {name.removeprefix("convs."): value for name, value in found.items()}


def network(form: Form, arrays: Mapping[str, Array]) -> SlimResNet:
    """The network with these numbers."""
    net = SlimResNet(form)
    state = {}
    for name, value in net.state_dict().items():
        array = arrays.get(name.removeprefix("convs."))
        if array is None or array.size != value.numel():
            raise ServeError(
                f"weights lack {name.removeprefix('convs.')} of shape {tuple(value.shape)}; "
                "give the form that they were trained with"
            )
        state[name] = torch.from_numpy(np.array(array, dtype=np.float32)).reshape(value.shape)
    net.load_state_dict(state)
    return net
