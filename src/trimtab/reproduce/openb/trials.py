"""One policy on one list of pods in one order, as plain values."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np

from trimtab.errors import TraceError
from trimtab.policies.packer.lists import List, packer_of, with_gpus
from trimtab.sim import packing
from trimtab.traces.openb.lists import drawn_pods, openb_nodes, published_mix
from trimtab.traces.openb.orders import PUBLISHED_LOAD, drawn_order
from trimtab.traces.readers import openb

DRAWN = "drawn"  # the list that is made from the seed
NODES = "openb_node_list_gpu_node.csv"
PODS = "openb_pod_list_"
PACKED = ("", ".xz", ".gz")


def file_in(folder: str | Path, name: str) -> Path:
    """The file of that name, packed or not; TraceError where there is none."""
    for suffix in PACKED:
        if (Path(folder) / (name + suffix)).is_file():
            return Path(folder) / (name + suffix)
    raise TraceError(
        f"{folder}: holds no {name} (nor .xz or .gz of it); give the folder that has the files of "
        "alibaba/clusterdata, cluster-trace-gpu-v2023"
    )


def lists_in(folder: str | Path) -> list[str]:
    """Names of the pod lists in a folder: default, cpu050, ..."""
    names = [path.name.partition(".")[0] for path in Path(folder).glob(f"{PODS}*.csv*")]
    return sorted({name[len(PODS) :] for name in names})


def filled(
    policy: str, list_: str, seed: int, loads: list[float], folder: str = ""
) -> dict[str, float]:
    """GPU allocation in percent at each load, as the published tables give it."""
    todo = _list(list_, seed, folder)
    code, weights = packer_of(policy)
    done = todo.filled(code, weights, seed)
    return {f"{load:g}": packing.at_load(done, round(100 * load))[0] for load in loads}


@lru_cache(maxsize=4)
def _list(list_: str, seed: int, folder: str) -> List:
    if list_ == DRAWN:
        nodes, rng = openb_nodes(), np.random.default_rng(seed)
        pods = drawn_pods(nodes, published_mix(), rng, PUBLISHED_LOAD)
        arrival, rows = np.arange(len(pods["name"])), rng.permutation(len(nodes["sn"]))
    else:
        nodes = with_gpus(openb.read_nodes(file_in(folder, NODES)))
        pods = openb.read_pods(file_in(folder, f"{PODS}{list_}.csv"))
        order = drawn_order(nodes, pods, seed)
        arrival = openb.order_rows(order, pods["name"])
        rows = packing.by_prefix(nodes["sn"], nodes["gpu"], order.node_prefix)
    return List(*packing.columns(nodes, pods), arrival, rows)
