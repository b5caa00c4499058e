"""Lists to pack: drawn ones to learn on, and how full a cluster is after one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.errors import TraceError
from trimtab.policies.packer.policy import weights_at
from trimtab.rules.worth import SHIPPED
from trimtab.sim import packing
from trimtab.traces.openb.lists import (
    Mix,
    drawn_pods,
    mix_of,
    openb_nodes,
    published_mix,
    varied,
)
from trimtab.traces.readers import openb

VARIED_PICKY = 1 / 2  # share of the lists in which some pods accept some models alone
MOST_PICKY = 0.5  # of the pods for GPUs there


def packer_of(name: str) -> tuple[int, Array | None]:
    """The number of a packing policy, and the weights of one that has some: packer, packer:PATH."""
    base, _, path = name.partition(":")
    if base == "packer":
        return packing.PACKER, weights_at(path or SHIPPED)
    return packing.BY_NAME[name], None


class List(NamedTuple):
    """Pods in order of arrival on a cluster, and who wins a tie."""

    nodes: packing.Nodes
    pods: packing.Pods
    arrival: Array  # (A,) rows of pods
    rows: Array  # (N,) of nodes, the winner of a tie first

    def filled(self, policy: int, weights: Array | None = None, seed: int = 0) -> packing.Packing:
        rng = np.random.default_rng(seed)
        return packing.pack(
            self.nodes, self.pods, self.arrival, policy, self.rows, rng, weights=weights
        )


class Ground(NamedTuple):
    """What lists are drawn of."""

    nodes: dict[str, Array]
    mix: Mix
    load: float  # GPU asked for / GPU there is
    classes: float  # spread of the shares of the four classes of pods, as e^(classes N(0, 1))
    demands: float  # the same of each demand

    def drawn(self, rng: np.random.Generator) -> List:
        """A list of a mix that is varied more or less, in an order of its own."""
        picky = MOST_PICKY * rng.random() if rng.random() < VARIED_PICKY else 0.0
        spread = rng.random(2)
        mix = varied(
            self.mix, self.nodes, rng, picky=picky,
            classes=self.classes * spread[0], demands=self.demands * spread[1],
        )  # fmt: skip
        pods = drawn_pods(self.nodes, mix, rng, self.load)
        return List(
            *packing.columns(self.nodes, pods),
            np.arange(len(pods["name"])),
            rng.permutation(len(self.nodes["sn"])),
        )


def ground(
    trace: str, cluster: str | None, nodes: int, load: float, classes: float, demands: float
) -> Ground:
    """Of openb's published mix (`trace` "openb"), or of the mix of a pod list and its nodes."""
    if trace == "openb":
        if cluster is not None:
            raise TraceError(f"--cluster {cluster}: goes with a pod list; give one with --trace")
        return Ground(openb_nodes(nodes), published_mix(), load, classes, demands)
    if cluster is None:
        raise TraceError(f"{trace}: packing needs the nodes: give --cluster NODES.csv")
    return Ground(with_gpus(openb.read_nodes(cluster)), mix_of(openb.read_pods(trace)),
                  load, classes, demands)  # fmt: skip


def with_gpus(nodes: Mapping[str, Array]) -> dict[str, Array]:
    """The nodes that have GPUs: a cluster without any has nothing to share."""
    keep = nodes["gpu"] > 0
    if not keep.any():
        raise TraceError("no node of the list has a GPU; give a cluster with some")
    return {name: column[keep] for name, column in nodes.items()}
