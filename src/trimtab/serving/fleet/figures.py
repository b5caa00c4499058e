"""What a live fleet counts."""

from __future__ import annotations

from bisect import bisect_left

import numpy as np

from trimtab.arrays import Array
from trimtab.serving.nouns import Why
from trimtab.serving.view import LATENCY_EDGES_S, Recent

EDGES_S = LATENCY_EDGES_S.tolist()
COUNT_OF = {
    Why.DONE: "answered",
    Why.BUSY: "refused",
    Why.LATE: "late",
    Why.FAILED: "failed",
    Why.INVALID: "invalid",
    Why.UNAVAILABLE: "unavailable",
    Why.CANCELLED: "cancelled",
}
COUNTS = ("arrived", "in_time", *COUNT_OF.values())


class Figures:
    """Requests by how they ended, and how long the answers took."""

    def __init__(self) -> None:
        self.count = dict.fromkeys(COUNTS, 0)
        self.latency_s_sum = 0.0
        self.bins: Array = np.zeros(len(LATENCY_EDGES_S) + 1, np.int64)
        self.recent = Recent()

    def ended(self, why: Why) -> None:
        """Count a request that ended without an answer."""
        self.count[COUNT_OF[why]] += 1

    def answered(self, latency_s: float, in_time: bool) -> None:
        """Count an answer."""
        self.count["answered"] += 1
        self.count["in_time"] += in_time
        self.latency_s_sum += latency_s
        self.bins[bisect_left(EDGES_S, latency_s)] += 1

    def totals(self) -> Array:
        """The running totals that `recent` is about."""
        return np.concatenate((self.bins, [self.count["arrived"], self.count["answered"]]))

    def note(self, now_s: float) -> None:
        """Remember the totals of this moment."""
        self.recent.note(now_s, self.totals())
