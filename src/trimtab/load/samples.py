"""What a monitor saw of machines: the one form in which every source of load arrives."""

from typing import NamedTuple

from trimtab.arrays import Array


class Samples(NamedTuple):
    """Measurements as columns, in any order. Ratios are of the machine's capacity, 0..1.

    NaN = not measured: a dead sensor or a gap is a mask, never a zero.
    """

    time_s: Array  # (S,)
    node: Array  # (S,) row of `names`
    cpu: Array  # (S,)
    mem: Array  # (S,)
    net_in: Array  # (S,)
    net_out: Array  # (S,)
    disk: Array  # (S,)
    gpu: Array  # (S,) mean over the machine's GPUs
    names: tuple[str, ...]  # of the machines
    source: str = "made by hand"
