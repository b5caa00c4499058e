"""The layout of a world is part of its type, by which machine code is kept."""

import numpy as np
import pytest

from trimtab.rules.world import FIELDS, layout, world_type


def test_the_type_of_a_world_names_its_layout():
    assert layout(FIELDS) in world_type.name


@pytest.mark.parametrize(
    "changed",
    [
        {"new": (np.dtype("f8"), 1), **FIELDS},  # all others stand one place later
        dict(reversed(FIELDS.items())),
        FIELDS | {"free": (np.dtype("f8"), 2)},
        FIELDS | {"head": (np.dtype([*FIELDS["head"][0].descr, ("more", "i8")]), 1)},
    ],
    ids=["a field more", "another order", "fewer axes", "a longer record"],
)
def test_another_layout_is_another_type(changed):
    assert layout(changed) != layout(FIELDS)
