"""The form of the slimmable network: its layers, channels, parameters and multiplications.

Four segments in a row, each at one of four widths. A segment's input has the width of the segment
before it, so a segment is known by three numbers: which one, the width before it, and its own.
Everything that must agree on the layers (training, weight file, exported segments) reads them here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from trimtab.errors import ServeError
from trimtab.serving.nouns import SEGMENTS, WIDTHS

IMAGE = -1  # the "segment" that the stem takes its input from
COLOURS = 3


class Form(NamedTuple):
    """What makes one slimmable network differ from another."""

    channels: tuple[int, ...] = (64, 128, 256, 448)  # a segment, at width 1
    # Channels, not groups, are fixed: the first channels then stand in the same groups at every
    # width, so that a group's statistics mean the same whether or not the others are there.
    group: int = 16
    classes: int = 100
    # Deeper than a ResNet-18: what the slimmest network lacks in channels it has in layers, and the
    # last segment, whose channels hold most of the weights, can spare some for it.
    blocks: tuple[int, ...] = (3, 3, 3, 2)  # a segment
    side: int = 32  # pixels of an image

    def check(self) -> Form:
        if len(self.channels) != SEGMENTS or min(self.channels) < 1:
            raise ServeError(f"channels={self.channels!r}: give {SEGMENTS} counts, one a segment")
        part = len(WIDTHS) * self.group
        for count in self.channels:
            if self.group < 1 or count % part:
                raise ServeError(
                    f"channels={count} do not split into groups of group={self.group} at width "
                    f"{WIDTHS[0]}; give a multiple of {part}"
                )
        if len(self.blocks) != SEGMENTS or min(self.classes, *self.blocks) < 1 or self.side < 8:
            raise ServeError(
                f"classes={self.classes}, blocks={self.blocks}, side={self.side}: give at least "
                "one class, one block a segment and 8 pixels"
            )
        return self


class Layer(NamedTuple):
    """A convolution with the normalisation of its output."""

    name: str
    segment: int  # whose width its output has
    takes: int  # the segment whose width its input has, or IMAGE
    kernel: int
    stride: int
    side: int  # pixels of its output


def layers(form: Form) -> tuple[Layer, ...]:
    """Every convolution, in the order in which they run."""
    found = [Layer("stem", 0, IMAGE, 3, 1, form.side)]
    side = form.side
    for segment in range(SEGMENTS):
        for block in range(form.blocks[segment]):
            enters = block == 0 and segment > 0
            stride = 2 if enters else 1
            side = (side + stride - 1) // stride
            takes = segment - 1 if enters else segment
            name = f"{segment}_{block}"
            found.append(Layer(f"{name}_first", segment, takes, 3, stride, side))
            found.append(Layer(f"{name}_second", segment, segment, 3, 1, side))
            if enters:
                found.append(Layer(f"{name}_skip", segment, takes, 1, stride, side))
    return tuple(found)


def channels_at(form: Form, segment: int, width: int) -> int:
    """Channels of a segment's output; of the image for IMAGE."""
    if segment == IMAGE:
        return COLOURS
    return form.channels[segment] * (width + 1) // len(WIDTHS)


def checked_widths(widths: Sequence[int]) -> tuple[int, ...]:
    """A width for every segment."""
    given = tuple(widths)
    if len(given) != SEGMENTS or any(width not in range(len(WIDTHS)) for width in given):
        raise ServeError(
            f"widths={given!r}: give {SEGMENTS} numbers of 0..{len(WIDTHS) - 1}, one a segment"
        )
    return given


def row_of(widths: Sequence[int]) -> int:
    """The row of a tuple of widths in a table of all 256."""
    first, second, third, fourth = checked_widths(widths)
    return ((first * 4 + second) * 4 + third) * 4 + fourth


def segment_macs(form: Form, segment: int, before: int, width: int) -> int:
    """One image's multiplications in a segment; the first counts the stem, the last the head."""
    total = 0
    for layer in layers(form):
        if layer.segment == segment:
            inputs = channels_at(form, layer.takes, width if layer.takes == segment else before)
            outputs = channels_at(form, segment, width)
            total += inputs * outputs * layer.kernel**2 * layer.side**2
    if segment == SEGMENTS - 1:
        total += channels_at(form, segment, width) * form.classes
    return total


def segment_parameters(form: Form, segment: int, before: int, width: int) -> int:
    """Numbers that a segment at these widths holds."""
    total = 0
    for layer in layers(form):
        if layer.segment == segment:
            inputs = channels_at(form, layer.takes, width if layer.takes == segment else before)
            outputs = channels_at(form, segment, width)
            total += outputs * (inputs * layer.kernel**2 + 2)
    if segment == SEGMENTS - 1:
        total += (channels_at(form, segment, width) + 1) * form.classes
    return total


def macs(form: Form, widths: Sequence[int]) -> int:
    """Multiplications of one image through the whole network."""
    chosen = checked_widths(widths)
    return sum(
        segment_macs(form, segment, chosen[max(segment - 1, 0)], width)
        for segment, width in enumerate(chosen)
    )


def parameters(form: Form, widths: Sequence[int]) -> int:
    """Numbers that the network at these widths holds."""
    chosen = checked_widths(widths)
    return sum(
        segment_parameters(form, segment, chosen[max(segment - 1, 0)], width)
        for segment, width in enumerate(chosen)
    )
