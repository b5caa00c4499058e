"""The margin that a goal must promise: the one under which validation scenes come out best."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import NamedTuple

from trimtab.policies.hierarchy.manager import Manager
from trimtab.policies.hierarchy.managers.priced import frontier, managed, mean_half
from trimtab.policies.hierarchy.managers.settings import JUDGE_SEED, Progress, Settings
from trimtab.policies.hierarchy.training import drawn
from trimtab.policies.hierarchy.weights import read_orders
from trimtab.training.spread import spread

MARGINS = (0.0, 0.02, 0.05, 0.1, 0.2)
NONE = 1e9  # a margin that no goal promises


class Chosen(NamedTuple):
    margin: float
    change: float
    half: float  # of its 95 % interval

    def of(self, progress: Progress) -> Progress:
        """The same progress, with this."""
        return progress._replace(margin=self.margin, change=self.change, change_half=self.half)


def chosen(manager: Manager, trace: str, on: Settings, seed: int) -> Chosen:
    """The margin that gains most there, and how much; none where that may be chance."""
    orders = read_orders(on.orders)
    with spread(on.on, lambda: ThreadPoolExecutor(on.workers or os.cpu_count() or 1)) as pool:
        first = JUDGE_SEED + 10_000 * seed
        scenes = drawn(pool, trace, "validation", first, [on.machines] * on.judges)
        beside, best = frontier(pool, scenes, orders), Chosen(NONE, 0.0, 0.0)
        for margin in MARGINS:
            played = managed(pool, scenes, orders, replace(manager, margin=margin))
            mean, half = mean_half(beside.gains(played))
            if mean + half < 0 and mean < best.change:
                best = Chosen(margin, mean, half)
    return best
