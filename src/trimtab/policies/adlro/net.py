"""A small network in compiled code: what a policy learned, for rollouts without Python.

Layers of ReLU, then one number a row. `flat` holds all weights in one array: of each layer its
matrix (inputs, outputs) row by row, then its biases; `sizes` holds inputs, widths and 1.
"""

from typing import NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.compiled import inner

WIDEST = 256


class Net(NamedTuple):
    """Weights as compiled code takes them; no sizes = no network, the guiding rule alone."""

    flat: Array  # (weights,) f4
    sizes: Array  # (layers + 1,) i8
    margin: float  # it overrules the rule where it expects to save this much more
    reach: float  # and where no more than so many jobs wait a node: what it was trained on


GUIDE = Net(np.zeros(0, np.float32), np.zeros(0, np.int64), 0.0, 0.0)


@inner
def value_of(row: Array, flat: Array, sizes: Array, here: Array, there: Array) -> float:
    """The network's number for one row; `here` and `there` are (WIDEST,) of room."""
    for i in range(sizes[0]):
        here[i] = row[i]
    at = 0
    layers = len(sizes) - 1
    for layer in range(layers):
        wide, out = sizes[layer], sizes[layer + 1]
        bias = at + wide * out
        for j in range(out):
            there[j] = flat[bias + j]
        for i in range(wide):
            x = here[i]
            if x != 0.0:  # half of what ReLU gives is nothing
                for j in range(out):
                    there[j] += x * flat[at + i * out + j]
        if layer < layers - 1:
            for j in range(out):
                here[j] = max(there[j], np.float32(0.0))
        at = bias + out
    return there[0]


@inner
def write_values(rows: Array, n: int, net: Net, here: Array, there: Array, values: Array) -> None:
    """Write the network's number for each of the first n rows."""
    for i in range(n):
        values[i] = value_of(rows[i], net.flat, net.sizes, here, there)


def net_of(layers: list[tuple[Array, Array]], margin: float, reach: float) -> Net:
    """A Net of layers (matrix (inputs, outputs), biases)."""
    flat = [part.ravel() for layer in layers for part in layer]
    sizes = [layers[0][0].shape[0], *(len(biases) for _, biases in layers)]
    return Net(
        np.concatenate(flat).astype(np.float32), np.array(sizes), float(margin), float(reach)
    )
