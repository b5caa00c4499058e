"""Orders of arrival on openb as the FGD paper's program draws them by a seed (ATC'23).

hkust-adsl/kubernetes-scheduler-simulator@8f3d641, pkg/simulator: the list by name is shuffled, pods
drawn from it are added until the GPU asked for reaches a share of the cluster's, and the nodes by
name get the numbers that break ties.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from trimtab.arrays import Array
from trimtab.traces.openb.go_rand import GoRand
from trimtab.traces.readers.openb import Order

PUBLISHED_SEEDS = range(42, 52)
PUBLISHED_LOAD = 1.3  # GPU asked for / GPU there is
STARTED = 10  # numbers that the program draws when it starts, before the nodes get theirs


def drawn_order(
    nodes: Mapping[str, Array],
    pods: Mapping[str, Array],
    seed: int,
    load: float = PUBLISHED_LOAD,
) -> Order:
    """The order of arrival of a seed: names of pods, `-tuned-k` behind the k-th that is added.

    nodes and pods are columns as the reader gives them; nodes without GPUs take no part, as in the
    published runs. A list that asks for more than `load` loses pods drawn at random.
    """
    rng = GoRand(seed)
    rng.int63()  # the program prints one
    rows = np.argsort(pods["name"], kind="stable")
    each = (pods["gpu_milli"] * pods["num_gpu"])[rows].tolist()
    one_milli = pods["gpu_milli"][rows].tolist()
    names = pods["name"][rows].tolist()
    order = rng.shuffled(len(rows)).tolist()
    with_gpus = int((nodes["gpu"] > 0).sum())
    most = load * 1000 * int(nodes["gpu"].sum())
    asked = sum(each)
    while asked > most:
        gone = order.pop(rng.intn(len(order)))
        asked -= each[gone]
    arrivals = [names[row] for row in order]
    if len(order) == len(rows):
        while True:
            row = rng.intn(len(rows))
            if asked + one_milli[row] > most:  # of one GPU: so does the program
                break
            asked += each[row]
            arrivals.append(f"{names[row]}-tuned-{len(arrivals) - len(rows)}")
    for _ in range(STARTED):
        rng.int63()
    return Order(arrivals, rng.perm(with_gpus))
