"""What a measurement is given, and the rows that it hands over for the tables of `laws.COLUMNS`."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from trimtab.llm.calibrate.devices import Device

Row = tuple[str, list[float]]  # key of COLUMNS, values in their order
RowStream = Generator[Row, None, None]


class Turn(NamedTuple):
    """One kind's turn on the device."""

    device: Device
    seconds: float  # that it should take
    flops: float  # about, of a large product: to judge what there is time for
    rng: np.random.Generator


class Unmeasured(Exception):
    """This machine cannot measure a kind: one GPU has no links. The words become a note."""
