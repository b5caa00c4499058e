import re

import pytest

from trimtab.report.colours import DARK_PALETTE, NAME_OF, PALETTE, THEME, themed, variables
from trimtab.report.markup import CSS

TEXT = [  # what is written, and on what
    *[(text, ground) for text in ("ink", "faint") for ground in ("paper", "soft", "best", "drain")],
    ("link", "paper"),
]


def luminance(colour):
    """Relative luminance of #rrggbb, as WCAG 2 defines it."""
    shares = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_contrast_is_that_of_the_standard():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005)


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize(("text", "ground"), TEXT)
def test_text_has_a_contrast_of_at_least_4_5_by_light_and_by_dark(text, ground, dark):
    assert contrast(THEME[text][dark], THEME[ground][dark]) >= 4.5


@pytest.mark.parametrize("colour", DARK_PALETTE)
def test_a_series_by_dark_has_a_contrast_of_at_least_4_5_with_the_page(colour):
    assert contrast(colour, THEME["paper"][True]) >= 4.5


@pytest.mark.parametrize("palette", [PALETTE, DARK_PALETTE])
def test_a_palette_has_ten_different_colours(palette):
    assert len(set(palette)) == 10


def test_no_two_names_share_a_colour_by_light():
    assert len(NAME_OF) == len(THEME)


def test_a_plot_on_a_page_follows_the_reader_and_falls_back_on_its_own_colours():
    drawn = '<path style="fill: #0072b2"/><path style="stroke: #24292f"/><path fill="#123456"/>'
    told = '<path style="fill: var(--c0,#0072b2)"/><path style="stroke: var(--ink,#24292f)"/>'
    assert themed(drawn) == told + '<path fill="#123456"/>'


def test_every_variable_of_the_page_has_a_colour_by_light_and_by_dark():
    used = set(re.findall(r"var\(--(\w+)", CSS))
    for dark in (False, True):
        assert used <= set(re.findall(r"--(\w+):#", variables(dark)))
    assert "prefers-color-scheme:dark" in CSS
