"""Small networks inside compiled code: a flat array of weights, and the widths of the layers.

A layer of `a` inputs and `b` outputs takes a x b weights, an input after the other, and then b
biases.
"""

from __future__ import annotations

import math

import numpy as np

from trimtab.arrays import Array
from trimtab.compiled import compiled


def count(sizes: Array) -> int:
    """How many weights a network of these widths has."""
    return int(sum(a * b + b for a, b in zip(sizes[:-1], sizes[1:])))


def count_lstm(inputs: int, units: int) -> int:
    return (inputs + units + 1) * 4 * units


@compiled
def mlp(theta: Array, at: int, sizes: Array, x: Array) -> Array:
    """The outputs for the inputs x, rectified between layers; the weights begin at `at`."""
    here = x
    for layer in range(sizes.shape[0] - 1):
        inputs, outputs = sizes[layer], sizes[layer + 1]
        bias = at + inputs * outputs
        out = np.empty(outputs)
        for j in range(outputs):
            out[j] = theta[bias + j]
        for i in range(inputs):
            value = here[i]
            if value != 0.0:
                row = at + i * outputs
                for j in range(outputs):
                    out[j] += value * theta[row + j]
        if layer < sizes.shape[0] - 2:
            for j in range(outputs):
                out[j] = max(out[j], 0.0)
        here = out
        at = bias + outputs
    return here


@compiled
def lstm(theta: Array, at: int, units: int, steps: Array) -> Array:
    """The last state (units,) after the inputs `steps` (K, D), from nothing.

    Gates in the order input, forget, cell, output.
    """
    inputs, width = steps.shape[1], 4 * units
    h, cell, gate = np.zeros(units), np.zeros(units), np.empty(width)
    recurrent = at + inputs * width
    bias = recurrent + units * width
    for k in range(steps.shape[0]):
        for j in range(width):
            gate[j] = theta[bias + j]
        for i in range(inputs):
            for j in range(width):
                gate[j] += steps[k, i] * theta[at + i * width + j]
        for i in range(units):
            for j in range(width):
                gate[j] += h[i] * theta[recurrent + i * width + j]
        for j in range(units):
            cell[j] *= _squashed(gate[units + j])
            cell[j] += _squashed(gate[j]) * math.tanh(gate[2 * units + j])
            h[j] = _squashed(gate[3 * units + j]) * math.tanh(cell[j])
    return h


@compiled
def _squashed(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x))
