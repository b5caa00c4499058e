"""The form of the slimmable network: channels, parameters and multiplications, by hand."""

import pytest

from trimtab.errors import ServeError
from trimtab.serving.net.slim_form import (
    Form,
    channels_at,
    layers,
    macs,
    parameters,
    row_of,
    segment_macs,
    segment_parameters,
)
from trimtab.serving.nouns import TUPLES

SMALL = Form(channels=(16, 16, 32, 32), group=4, classes=5, blocks=(1, 1, 1, 1), side=8)


# A ResNet-18 for images of 32 x 32: its counts are published, and the prototype's were the same.
RESNET_18 = Form(channels=(64, 128, 256, 512), blocks=(2, 2, 2, 2))


@pytest.mark.parametrize(("width", "expected"), [(0, 34.8e6), (1, 139e6), (2, 312e6), (3, 555e6)])
def test_a_resnet_18_costs_what_the_prototype_counted(width, expected):
    assert macs(RESNET_18, (width,) * 4) == pytest.approx(expected, rel=0.02)


def test_a_resnet_18_has_eleven_million_parameters():
    assert parameters(RESNET_18, (3, 3, 3, 3)) == pytest.approx(11.22e6, rel=0.001)


def test_the_usual_form_fits_a_weight_file_of_twelve_megabytes_at_a_byte_a_number():
    assert parameters(Form(), (3, 3, 3, 3)) < 11.5e6


def test_the_stem_and_one_block_of_the_first_segment_by_hand():
    # width 1 of 4: 8 of 16 channels; stem 3 -> 8, two convolutions 8 -> 8, all 3x3 on 8x8 pixels
    assert segment_macs(SMALL, 0, 0, 1) == (3 * 8 + 8 * 8 + 8 * 8) * 9 * 64
    assert segment_parameters(SMALL, 0, 0, 1) == (3 * 8 + 8 * 8 + 8 * 8) * 9 + 3 * 2 * 8


def test_only_the_layers_that_enter_a_segment_feel_the_width_before():
    # 16 channels at width 1 of segment 1 on 4x4 pixels; before: 4 or 16; kernel 9 and shortcut 1
    wide, narrow = segment_macs(SMALL, 1, 3, 3), segment_macs(SMALL, 1, 0, 3)
    assert wide - narrow == (16 - 4) * 16 * (9 + 1) * 16


def test_the_last_segment_counts_the_head():
    body = (16 * 8 * 9 + 8 * 8 * 9 + 16 * 8) * 1  # 16 -> 8 channels on 1x1 pixels
    assert segment_macs(SMALL, 3, 1, 0) == body + 8 * 5


def test_segments_halve_the_image_after_the_first():
    sides = [layer.side for layer in layers(RESNET_18) if layer.name.endswith("_first")]
    assert sides == [32, 32, 16, 16, 8, 8, 4, 4]


def test_groups_have_the_same_channels_at_every_width():
    form = Form()
    assert all(
        channels_at(form, segment, width) % form.group == 0
        for segment in range(4)
        for width in range(4)
    )


def test_a_tuple_of_widths_has_a_row_of_its_own():
    assert [row_of(widths) for widths in TUPLES] == list(range(256))


@pytest.mark.parametrize(
    ("form", "named"),
    [
        (Form(channels=(64, 128, 256)), "channels"),
        (Form(channels=(60, 128, 256, 512)), "channels=60"),
        (Form(group=0), "group=0"),
        (Form(classes=0), "classes=0"),
    ],
)
def test_a_form_that_cannot_be_built_says_which_field(form, named):
    with pytest.raises(ServeError, match=named):
        form.check()


@pytest.mark.parametrize("widths", [(0, 0, 0), (0, 0, 0, 4), (0, 0, 0, 0.5), (-1, 0, 0, 0)])
def test_widths_that_do_not_exist_are_refused(widths):
    with pytest.raises(ServeError, match="widths="):
        macs(Form(), widths)
