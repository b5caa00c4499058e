"""A name is suggested where one is near, and none where none is."""

import pytest

from trimtab.errors import suggestion

RULES = ("fcfs", "sjf", "srtf", "easy", "fastest", "wfp3", "edf")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("fcsf", "fcfs"), ("srft", "srtf"), ("esy", "easy"), ("FCFS", "fcfs"), ("fast", "fastest"),
     ("wfp3-published", "wfp3")],
)  # fmt: skip
def test_a_near_name_is_suggested(typed, meant):
    assert suggestion(typed, RULES) == f"did you mean {meant!r}? "


@pytest.mark.parametrize("typed", ["xyzzy", "", "q", "kubernetes"])
def test_nothing_is_suggested_where_nothing_is_near(typed):
    assert suggestion(typed, RULES) == ""
