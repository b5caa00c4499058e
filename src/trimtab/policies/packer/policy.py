"""Where a pod goes on a cluster whose GPUs are shared: the node worth most by learned weights.

named("packer")              the shipped weights
named("packer:run")          what `trimtab train packer --out run` left there
"fcfs+easy+packer"           the shipped weights as a placement of any rule
"""

from __future__ import annotations

from pathlib import Path

from trimtab.arrays import Array
from trimtab.policies.networks import WRITTEN, file_at
from trimtab.policies.rule import RulePolicy
from trimtab.rules.worth import SHIPPED, read_weights

RULE = "fcfs+greedy+packer"  # as a scheduler of pods: whoever fits starts, nobody is reserved for
FILE = WRITTEN["packer"]


class PackerPolicy(RulePolicy):
    """The rule `fcfs+greedy+packer`, with the shipped weights or those of a file."""

    def __init__(self, path: str | Path = SHIPPED, seed: int = 0) -> None:
        super().__init__(RULE, seed, weights_at(path))
        self.name = "packer"


def weights_at(path: str | Path) -> Array:
    """The weights in a file, or in the folder that a training wrote."""
    return read_weights(file_at(path, "packer"))
