"""A small network as compiled code runs it: two hidden layers of tanh, then plain numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from trimtab.arrays import Array
from trimtab.compiled import inner


@inner
def layer(weight: Array, x: Array, out: Array) -> None:
    """out = weight . (x, 1)."""
    inputs = len(x)
    for i in range(len(out)):
        total = weight[i, inputs]
        for j in range(inputs):
            total += weight[i, j] * x[j]
        out[i] = total


@inner
def forward(rules: Any, x: Array, out: Array) -> None:
    """Run a rule's network on what it sees; every matrix has the bias as its last column."""
    one, two = np.empty(rules.net0.shape[0]), np.empty(rules.net1.shape[0])
    layer(rules.net0, x, one)
    layer(rules.net1, np.tanh(one), two)
    layer(rules.net2, np.tanh(two), out)


def fresh_net(inputs: int, hidden: int, outputs: int, seed: int = 0) -> tuple[Array, Array, Array]:
    """A network whose outputs are 0 until it has learned."""
    rng = np.random.default_rng(seed)
    first = rng.normal(0, (inputs + 1) ** -0.5, (hidden, inputs + 1))
    second = rng.normal(0, (hidden + 1) ** -0.5, (hidden, hidden + 1))
    return first, second, np.zeros((outputs, hidden + 1))
