"""Fit the laws of scale-up links, PCIe and network cards to measured collectives and messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.llm.cost.links import all_reduces_s, sends_s
from trimtab.llm.fit.figures import (
    GPUS,
    LINK_FIELDS,
    Figure,
    column,
    errors,
    figure,
    law_row,
    law_section,
    log_quantiles,
    rounded,
    search,
    table,
)
from trimtab.llm.spec import specs

SOURCE = "comm_microbench.csv.xz"
# name, where the search starts
Free = tuple[tuple[str, float], ...]
FREE: Free = (("link_share", 0.75), ("link_start_s", 2.5e-5), ("link_chunk_s", 4.0e-6))
PCIE_BPS = {"a100": 32e9, "h100": 64e9}
NDR_BPS = 50e9  # the card of the H100 servers; that of the A100 ones is not known
LARGE_B = 2.0**20

Laws = dict[str, dict[str, float]]  # of an architecture: constants by name


class Messages(NamedTuple):
    """Measured collectives or messages."""

    bytes_b: Array
    ranks: Array
    per_node: Array
    run_s: Array

    def of(self, chosen: Array) -> Messages:
        """The chosen rows."""
        return Messages(*(value[chosen] for value in self))

    def summed_s(self, law: Array, link_bps: float, node_link_bps: float = 1.0) -> Array:
        """Seconds of an all-reduce by a law."""
        links = (np.full(len(self.ranks), bps) for bps in (link_bps, node_link_bps))
        return all_reduces_s(self.bytes_b, self.ranks, self.per_node, *links, law)


def messages(rows: list[dict[str, str]], topology: str, op: str) -> Messages:
    """Rows of one topology and operation; the sizes are bytes.

    As elements of two bytes they would put 516 GB/s through an A100's link of 300.
    """
    mine = [row for row in rows if row["topology"] == topology and row["op"] == op]
    names = ("size_elems_or_bytes", "workers", "devices_per_node", "median_ms")
    size_b, workers, near, run_ms = (column(mine, name) for name in names)
    return Messages(size_b, workers, near, run_ms * 1e-3)


def fitted(data: Messages, link_bps: float, free: Free = FREE) -> dict[str, float]:
    """Share, start and chunk latency, or what is `free`, with the least mean relative error."""

    def named(values: Array) -> dict[str, float]:
        return {name: float(value) for (name, _), value in zip(free, values)}

    def loss(values: Array) -> float:
        return float(errors(data.summed_s(law_row(named(values)), link_bps), data.run_s).mean())

    return named(search(loss, [start for _, start in free]))


def held_out(data: Messages, link_bps: float, free: Free = FREE) -> Array:
    """Errors of every row by a law fitted on groups of other sizes."""
    found = np.empty(len(data.ranks))
    for ranks in np.unique(data.ranks):
        out = data.ranks == ranks
        law = law_row(fitted(data.of(~out), link_bps, free))
        found[out] = errors(data.of(out).summed_s(law, link_bps), data.run_s[out])
    return found


def fit_inside(rows: list[dict[str, str]], laws: Laws, spreads: dict[str, Any]) -> list[Figure]:
    """Add the scale-up links' constants to `laws`; two figures a GPU."""
    figures = []
    for name in GPUS:
        gpu = specs.gpu(GPUS[name])
        data = messages(rows, f"{name}_dgx", "all_reduce")
        data = data.of(data.ranks == data.per_node)
        values = fitted(data, gpu.link_bps)
        predicted_s = data.summed_s(law_row(values), gpu.link_bps)
        wrong, unseen = errors(predicted_s, data.run_s), held_out(data, gpu.link_bps)
        what = f"all-reduce in a node, {name}"
        figures.append(figure(SOURCE, what, wrong, len(FREE), unseen, "group size"))
        big = data.bytes_b >= LARGE_B
        what = f"{what}, 1 MiB and more"
        figures.append(figure(SOURCE, what, wrong[big], 0, unseen[big], "group size"))
        spreads[gpu.arch] = log_quantiles(predicted_s, data.run_s)
        laws[gpu.arch] = {field: rounded(value) for field, value in values.items()}
    return figures


def fit_pcie(rows: list[dict[str, str]], laws: Laws) -> list[Figure]:
    """Add PCIe's share to `laws`: where pairs are bridged, four ranks go over PCIe."""
    archs = {name: specs.gpu(GPUS[name]).arch for name in GPUS}

    def wrong(name: str, share: float) -> Array:
        data = messages(rows, f"{name}_pairwise_nvlink", "all_reduce")
        data = data.of(data.ranks == 4.0)
        law = law_row(laws[archs[name]] | {"pcie_share": share})
        return errors(data.summed_s(law, PCIE_BPS[name]), data.run_s)

    def best(name: str) -> float:
        return float(search(lambda values: float(wrong(name, values[0]).mean()), [0.75])[0])

    shares = {name: best(name) for name in GPUS}
    figures = []
    for name, other in (("a100", "h100"), ("h100", "a100")):
        what, unseen = f"all-reduce over PCIe, {name}", wrong(name, shares[other])
        figures.append(figure(SOURCE, what, wrong(name, shares[name]), 1, unseen, "the GPU"))
    for name in GPUS:
        laws[archs[name]]["pcie_share"] = rounded(shares[name])
    return figures


def fit_between(rows: list[dict[str, str]], laws: Laws) -> list[Figure]:
    """Add a card's share and a hop's latency to all `laws`.

    The share is that of the H100 servers' known card; the latency that of the A100 servers, whose
    card's speed is fitted beside it and not kept.
    """
    sent = messages(rows, "h100_dgx", "send_recv")
    sent = sent.of(sent.per_node == 1.0)
    two = messages(rows, "a100_dgx", "all_reduce")
    two = two.of((two.ranks == 2.0) & (two.per_node == 1.0))

    def sending(values: Array) -> Array:
        law = law_row(laws["Hopper"] | {"pcie_share": float(values[0])})
        return errors(sends_s(sent.bytes_b, NDR_BPS, law), sent.run_s)

    def summing(values: Array) -> Array:
        start_s, card_bps = (float(value) for value in values)
        law = law_row(laws["Ampere"] | {"node_share": 1.0, "node_start_s": start_s})
        return errors(two.summed_s(law, 1.0, card_bps), two.run_s)

    share = search(lambda values: float(sending(values).mean()), [0.75])
    hop = search(lambda values: float(summing(values).mean()), [2.0e-5, 6.0e9])
    for law in laws.values():
        law["node_share"], law["node_start_s"] = rounded(share[0]), rounded(hop[0])
    what = "all-reduce of 2 nodes, a100, with card's speed"
    return [
        figure(SOURCE, "send between nodes, h100", sending(share), 1),
        figure(SOURCE, what, summing(hop), 2),
    ]


def fit_links(folder: Path) -> tuple[dict[str, Any], list[Figure]]:
    """The section `links`, and figures of every kind of link."""
    rows = table(folder / SOURCE)
    laws: Laws = {}
    spreads: dict[str, Any] = {}
    figures = fit_inside(rows, laws, spreads)
    figures += fit_pcie(rows, laws)
    figures += fit_between(rows, laws)
    return law_section(laws, LINK_FIELDS, sorted(LINK_FIELDS), spreads, figures), figures
