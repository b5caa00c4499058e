"""What collectives and messages take, by the link's own speed and the share of it that is reached.

`per_node` is how many ranks of the group share a node, `link_bps` and `node_link_bps` are one
direction of one GPU's scale-up link and of its part of the network cards. A group that spans nodes
runs as many rings as it has ranks in a node: every rank's card carries its part while the scale-up
links carry the whole, and the slower of the two sets the pace.
"""

from __future__ import annotations

import math

import numpy as np

from trimtab.arrays import Array
from trimtab.compiled import compiled, inner
from trimtab.llm.cost.kernels import (
    LINK_CHUNK_S,
    LINK_SHARE,
    LINK_START_S,
    NODE_SHARE,
    NODE_START_S,
    PCIE_SHARE,
)

# bytes a second: above PCIe5 x16 (64e9), below the slowest NVLink (80e9)
PCIE_MOST_BPS = 70e9


@inner
def _inside_s(moved_b: float, link_bps: float, law: Array) -> float:
    """Seconds in which every rank of a collective moves `moved_b` inside the node.

    Fast links are fed in chunks, each with its latency: with the best number of chunks this costs
    twice the root of latency x time. PCIe is too slow for that to show.
    """
    if link_bps <= PCIE_MOST_BPS:
        return moved_b / (law[PCIE_SHARE] * link_bps)
    moved_s = moved_b / (law[LINK_SHARE] * link_bps)
    return moved_s + 2.0 * math.sqrt(law[LINK_CHUNK_S] * moved_s)


@inner
def _ring_s(
    rounds: float,
    bytes_b: float,
    ranks: float,
    per_node: float,
    link_bps: float,
    node_link_bps: float,
    law: Array,
) -> float:
    """Seconds of a ring that passes the whole `bytes_b` round `rounds` times."""
    if ranks <= 1.0 or bytes_b <= 0.0:
        return 0.0
    local = min(ranks, max(per_node, 1.0))
    nodes = ranks / local
    moved_b = rounds * bytes_b * (ranks - 1.0) / ranks
    moved_s = _inside_s(moved_b, link_bps, law) if local > 1.0 else 0.0
    start_s = law[LINK_START_S]
    if nodes > 1.0:
        moved_s = max(moved_s, moved_b / local / (law[NODE_SHARE] * node_link_bps))
        # trees carry short messages: their depth grows with the logarithm
        start_s += rounds * law[NODE_START_S] * math.log2(nodes)
    return start_s + moved_s


@inner
def all_reduce_s(
    bytes_b: float, ranks: float, per_node: float, link_bps: float, node_link_bps: float, law: Array
) -> float:
    """Seconds until every rank holds the sum of `bytes_b`."""
    return _ring_s(2.0, bytes_b, ranks, per_node, link_bps, node_link_bps, law)


@inner
def all_gather_s(
    bytes_b: float, ranks: float, per_node: float, link_bps: float, node_link_bps: float, law: Array
) -> float:
    """Seconds until every rank holds all `bytes_b`, of which each brought an equal part."""
    return _ring_s(1.0, bytes_b, ranks, per_node, link_bps, node_link_bps, law)


@inner
def reduce_scatter_s(
    bytes_b: float, ranks: float, per_node: float, link_bps: float, node_link_bps: float, law: Array
) -> float:
    """Seconds until every rank holds its part of the sum of `bytes_b`."""
    return _ring_s(1.0, bytes_b, ranks, per_node, link_bps, node_link_bps, law)


@inner
def all_to_all_s(
    bytes_b: float, ranks: float, per_node: float, link_bps: float, node_link_bps: float, law: Array
) -> float:
    """Seconds in which every rank sends its own `bytes_b` in equal parts to all ranks."""
    if ranks <= 1.0 or bytes_b <= 0.0:
        return 0.0
    local = min(ranks, max(per_node, 1.0))
    moved_s = 0.0
    if local > 1.0:
        moved_s = _inside_s(bytes_b * (local - 1.0) / ranks, link_bps, law)
    start_s = law[LINK_START_S]
    if ranks > local:
        away_b = bytes_b * (ranks - local) / ranks
        moved_s = max(moved_s, away_b / (law[NODE_SHARE] * node_link_bps))
        start_s += law[NODE_START_S]
    return start_s + moved_s


@inner
def send_s(bytes_b: float, bps: float, law: Array) -> float:
    """Seconds of one message between two ranks over a link or a card of `bps`."""
    if bytes_b <= 0.0:
        return 0.0
    # the cards measured reach the same share as PCIe
    share = law[PCIE_SHARE] if bps <= PCIE_MOST_BPS else law[LINK_SHARE]
    return bytes_b / (share * bps) + law[LINK_START_S]


@compiled
def all_reduces_s(
    bytes_b: Array,
    ranks: Array,
    per_node: Array,
    link_bps: Array,
    node_link_bps: Array,
    law: Array,
) -> Array:
    """`all_reduce_s` for columns of groups under one law: (rows,)."""
    out = np.empty(len(bytes_b))
    for i in range(len(bytes_b)):
        out[i] = all_reduce_s(bytes_b[i], ranks[i], per_node[i], link_bps[i], node_link_bps[i], law)
    return out


@compiled
def sends_s(bytes_b: Array, bps: float, law: Array) -> Array:
    """`send_s` for a column of messages over one link: (rows,)."""
    out = np.empty(len(bytes_b))
    for i in range(len(bytes_b)):
        out[i] = send_s(bytes_b[i], bps, law)
    return out
