"""The tables of a reproduction say of each cell whose figure it is."""

import pytest

from trimtab.cli.reproduce.cells import CELLS
from trimtab.cli.reproduce.views import VIEWS


@pytest.mark.parametrize(
    ("paper", "ours", "cell"),
    [(8.979, 7.5, "8.98 | 7.5"), (None, 7.5, "7.5"), (8.979, None, "8.98 | -"), (None, None, "-")],
)
def test_a_cell_that_the_paper_leaves_out_has_ours_alone(paper, ours, cell):
    assert CELLS["beside"]([{"paper": paper, "ours": ours}]) == cell


def test_the_title_says_what_a_single_figure_is():
    titles = [view.title for view in VIEWS if view.cell == "beside"]
    assert len(titles) == 5
    assert all(title.endswith("| ours, or ours alone") for title in titles)


@pytest.mark.parametrize(
    ("ours", "low", "high", "cell"),
    [
        (3627.4, 2627.4, 4627.4, "3,627 ± 1,000"),
        (3627.4, 0.0, 11906.6, "3,627 [0, 11,907]"),
        (2.5e6, 0.0, 7.5e6, "2.50 [0, 7.50] M"),
        (2.5e6, 1.5e6, 3.5e6, "2.50 ± 1.00 M"),
        (72.7, None, None, "72.7"),
        (0.0, 0.0, 0.0, "0"),
    ],
)
def test_an_interval_that_is_cut_off_at_zero_is_shown_by_its_ends(ours, low, high, cell):
    assert CELLS["plain"]([{"ours": ours, "low": low, "high": high}]) == cell
