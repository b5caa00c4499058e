"""The tables of a reproduction say of each cell whose figure it is."""

import pytest

from trimtab.cli.reproduce.views import CELLS, VIEWS


@pytest.mark.parametrize(
    ("paper", "ours", "cell"),
    [(8.979, 7.5, "8.98 | 7.5"), (None, 7.5, "7.5"), (8.979, None, "8.98 | -"), (None, None, "-")],
)
def test_a_cell_that_the_paper_leaves_out_has_ours_alone(paper, ours, cell):
    assert CELLS["beside"]([{"paper": paper, "ours": ours}]) == cell


def test_the_title_says_what_a_single_figure_is():
    titles = [view.title for view in VIEWS if view.cell == "beside"]
    assert len(titles) == 4
    assert all(title.endswith("| ours, or ours alone") for title in titles)
