"""Lists of pods like openb's, drawn from its published mix of demands, on its mix of nodes.

For training and for those who have no list: whoever has one draws from it in place of `DEMANDS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.errors import TraceError
from trimtab.traces.readers.openb import GPU_MILLI, KINDS
from trimtab.traces.scenes.presets import mix_cluster

Columns = dict[str, Array]
GPU_NODES = 1213  # of openb's 1,523 nodes; the others take no part, as in the published runs

# alibaba/clusterdata@7a6c496, cluster-trace-gpu-v2023, openb_pod_list_default.csv: the demands of
# eight pods or more (98 % of all), and those for 2, 4 and 8 GPUs that are rarer, each as one.
# GPUs, gpu_milli of each, cpu_milli, memory_mib, pods
DEMANDS = (
    (0, 0, 8000, 15_625, 11),
    (0, 0, 8000, 30_517, 163),
    (0, 0, 11_400, 57_344, 11),
    (0, 0, 12_500, 57_344, 364),
    (0, 0, 15_400, 51_200, 120),
    (0, 0, 16_000, 31_250, 8),
    (0, 0, 16_500, 51_200, 95),
    (0, 0, 32_000, 49_152, 284),
    (1, 110, 4000, 15_258, 8),
    (1, 110, 4000, 22_888, 9),
    (1, 160, 4000, 15_258, 53),
    (1, 160, 6000, 22_888, 20),
    (1, 220, 4000, 15_258, 24),
    (1, 220, 4000, 22_888, 11),
    (1, 220, 4000, 30_517, 8),
    (1, 220, 8000, 30_517, 19),
    (1, 230, 4000, 15_258, 12),
    (1, 230, 4000, 22_888, 26),
    (1, 230, 4000, 30_517, 84),
    (1, 230, 8000, 30_517, 18),
    (1, 320, 1000, 2048, 22),
    (1, 320, 4000, 15_258, 78),
    (1, 320, 4000, 22_888, 111),
    (1, 320, 4000, 30_517, 43),
    (1, 320, 8000, 30_517, 72),
    (1, 370, 4152, 10_600, 45),
    (1, 460, 6000, 6144, 51),
    (1, 460, 6000, 8192, 9),
    (1, 460, 6000, 12_288, 29),
    (1, 460, 6000, 18_432, 18),
    (1, 470, 8000, 30_517, 360),
    (1, 470, 11_908, 47_104, 388),
    (1, 480, 4000, 22_888, 18),
    (1, 550, 4152, 10_600, 72),
    (1, 590, 3152, 5600, 75),
    (1, 650, 8000, 30_517, 12),
    (1, 650, 11_908, 47_104, 237),
    (1, 810, 3152, 5600, 1047),
    (1, 810, 4152, 10_600, 31),
    (1, 1000, 1000, 6144, 15),
    (1, 1000, 3152, 5600, 470),
    (1, 1000, 4000, 16_384, 8),
    (1, 1000, 4000, 24_576, 104),
    (1, 1000, 4000, 31_250, 40),
    (1, 1000, 7000, 30_000, 11),
    (1, 1000, 8000, 16_384, 104),
    (1, 1000, 8000, 32_768, 55),
    (1, 1000, 8200, 33_792, 41),
    (1, 1000, 9810, 41_560, 195),
    (1, 1000, 11_300, 37_888, 16),
    (1, 1000, 11_300, 49_152, 857),
    (1, 1000, 11_400, 48_128, 534),
    (1, 1000, 11_400, 77_824, 65),
    (1, 1000, 11_900, 77_824, 51),
    (1, 1000, 11_908, 47_104, 153),
    (1, 1000, 12_000, 15_360, 44),
    (1, 1000, 12_000, 16_384, 99),
    (1, 1000, 12_000, 24_576, 158),
    (1, 1000, 12_000, 32_768, 8),
    (1, 1000, 12_000, 47_104, 8),
    (1, 1000, 14_200, 58_368, 93),
    (1, 1000, 14_900, 73_728, 8),
    (1, 1000, 15_200, 80_896, 36),
    (1, 1000, 15_400, 90_112, 9),
    (1, 1000, 15_700, 58_368, 158),
    (1, 1000, 16_000, 32_768, 108),
    (1, 1000, 16_000, 65_536, 33),
    (1, 1000, 16_400, 125_952, 27),
    (1, 1000, 18_708, 64_512, 255),
    (1, 1000, 24_200, 93_184, 84),
    (4, 1000, 32_200, 132_096, 9),
    (8, 1000, 64_200, 263_168, 18),
    (8, 1000, 88_000, 327_680, 18),
    (2, 1000, 16_200, 66_560, 16),
    (4, 1000, 60_200, 320_512, 6),
    (8, 1000, 120_000, 737_280, 5),
)


class Mix(NamedTuple):
    """Distinct demands with their shares of the pods."""

    num_gpu: Array  # (D,)
    gpu_milli: Array
    cpu_milli: Array
    memory_mib: Array
    gpu_spec: Array  # (D,) "" = any model
    share: Array  # (D,) sums to 1


def published_mix() -> Mix:
    num_gpu, gpu_milli, cpu_milli, memory_mib, pods = np.array(DEMANDS, np.int64).T
    any_model = np.full(len(pods), "", np.str_)
    return Mix(num_gpu, gpu_milli, cpu_milli, memory_mib, any_model, pods / pods.sum())


def mix_of(pods: Mapping[str, Array]) -> Mix:
    """The demands of a list with their shares."""
    names = ("num_gpu", "gpu_milli", "cpu_milli", "memory_mib")
    specs, spec = np.unique(pods["gpu_spec"], return_inverse=True)
    rows = np.stack([*(pods[name] for name in names), spec.reshape(-1)], axis=1)
    asks, count = np.unique(rows, axis=0, return_counts=True)
    num_gpu, gpu_milli, cpu_milli, memory_mib, spec = asks.T
    share = count / count.sum()
    return Mix(num_gpu, gpu_milli, cpu_milli, memory_mib, specs[spec], share)


def openb_nodes(nodes: int = GPU_NODES) -> Columns:
    """Columns of so many nodes with GPUs, in openb's proportions."""
    if nodes < 1:
        raise TraceError(f"nodes={nodes} leaves no cluster; give 1 or more")
    whole = mix_cluster("openb")
    kind = np.where(whole.nodes["gpus"] > 0, whole.nodes["kind"], -1)
    rows = np.flatnonzero(kind > 0)
    # every so-many-th of the nodes by kind and size keeps the proportions
    rows = rows[(np.arange(nodes) * len(rows) // nodes) % len(rows)] if nodes != len(rows) else rows
    return {
        "sn": np.array([f"node-{n:05d}" for n in range(len(rows))]),
        "cpu_milli": (whole.capacity[rows, 0] * 1000).astype(np.int64),
        "memory_mib": (whole.capacity[rows, 1] * 1024).astype(np.int64),
        "gpu": whole.nodes["gpus"][rows].astype(np.int64),
        "model": np.array([KINDS[k] for k in kind[rows]]),
    }


def drawn_pods(
    nodes: Mapping[str, Array], mix: Mix, rng: np.random.Generator, load: float = 1.3
) -> Columns:
    """Columns of pods in order of arrival, until they ask for `load` times the cluster's GPUs."""
    if not load > 0:
        raise TraceError(f"load={load} asks for nothing; give more than 0")
    most = load * GPU_MILLI * float(nodes["gpu"].sum())
    each = mix.gpu_milli * mix.num_gpu
    mean = float((each * mix.share).sum())
    if mean <= 0:
        raise TraceError("no pod of the mix asks for a GPU; give one in which some do")
    row = np.zeros(0, np.int64)
    while not len(row) or each[row].sum() < most:
        row = np.append(row, rng.choice(len(each), int(most / mean) + 100, p=mix.share))
    row = row[: int(np.searchsorted(np.cumsum(each[row]), most, side="right"))]
    drawn = {name: getattr(mix, name)[row] for name in Mix._fields if name != "share"}
    return {"name": np.array([f"pod-{p:06d}" for p in range(len(row))]), **drawn}


def varied(
    mix: Mix, nodes: Mapping[str, Array], rng: np.random.Generator, *,
    classes: float = 0.0, demands: float = 0.0, picky: float = 0.0,
) -> Mix:  # fmt: skip
    """The mix with other shares: pods without GPU, of a part, of one and of several by factors
    e^(classes N(0, 1)), each demand by e^(demands N(0, 1)). A share `picky` of the demands for GPUs
    is for some models alone.
    """
    row = np.minimum(mix.num_gpu, 2) + (mix.num_gpu > 0)
    row = np.where((mix.num_gpu == 1) & (mix.gpu_milli < GPU_MILLI), 1, row)
    share = mix.share * np.exp(classes * rng.standard_normal(4))[row]
    share = share * np.exp(demands * rng.standard_normal(len(share)))
    mix = mix._replace(share=share / share.sum())
    if picky <= 0:
        return mix
    models, count = np.unique(np.repeat(nodes["model"], nodes["gpu"]), return_counts=True)
    chance = np.sqrt(count) / np.sqrt(count).sum()
    for_some = []
    for wanted, spec in zip(mix.num_gpu, mix.gpu_spec):
        few = rng.choice(models, min(int(rng.integers(1, 4)), len(models)), False, chance)
        for_some.append("|".join(sorted(few)) if wanted > 0 and not spec else str(spec))
    chosen = mix._replace(gpu_spec=np.array(for_some), share=mix.share * picky)
    others = mix._replace(share=mix.share * (1 - picky))
    return Mix(*(np.concatenate(pair) for pair in zip(others, chosen)))
