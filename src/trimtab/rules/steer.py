"""A limit for every region that follows the harm measured there: no learning, and no forecast.

A region's limit rises in proportion to the target and falls in proportion to the share of its
services' use that was harmed. Over a long time both come to the same, so that the mean harm comes
to the target whatever the services do: the tracking of a quantile, as adaptive conformal prediction
does it (Gibbs and Candes, NeurIPS 2021).
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np

from trimtab.arrays import Array
from trimtab.core import Limit
from trimtab.rules.forecast import HORIZON_S
from trimtab.rules.names import ESTIMATES, MOST_LIMIT

EVERY_S = 15.0
GAIN = 0.1  # of a node, for a share of 1 in EVERY_S
DROP = 0.1  # the most in EVERY_S
LEAST, MOST = 0.3, 1.2
CROWDED = 0.95  # load above which services are harmed


def wrong_limit(limit: Limit, regions: int) -> str:
    """Why a cluster of so many regions that lend cannot have the limit, "" = it can."""
    if not regions:
        return "limit: the cluster lends nothing of what services reserve"
    if not (isinstance(limit.region, int | np.integer) and -1 <= limit.region < regions):
        return f"limit: there is no region {limit.region}"
    if limit.estimate not in ("", *ESTIMATES):
        return f"limit: there is no estimate {limit.estimate!r}"
    if not 0.0 <= limit.share <= MOST_LIMIT:
        return f"limit: {limit.share} is not a share of a node, 0 to {MOST_LIMIT:g}"
    care = (limit.margin, limit.overstay, limit.taper)
    if any(map(math.isinf, care)) or limit.patience_s == math.inf:
        return "limit: margin, patience_s, overstay and taper are not finite numbers"
    wanted = 2 * len(HORIZON_S)
    if len(limit.learned) not in (0, wanted) or not np.isfinite(limit.learned).all():
        return f"limit: learned are not {wanted} finite numbers"
    return ""


class Steers(Protocol):
    """What sets regions' limits while a rule places, by looks at a snapshot."""

    due_s: float  # of the next look
    worker: Array | None  # (G, weights) of the placement `worker` from the last look on

    def began(self, now_s: float) -> bool: ...

    def decisions(self, view: Any) -> list[Limit] | None: ...


class Steering:
    """The limits of one run; `target` is the share of services' use that may be harmed."""

    def __init__(self, target: float) -> None:
        self.target = target
        self.due_s = -math.inf

    worker: Array | None = None  # it changes nothing of what workers weigh

    def decisions(self, view: Any) -> list[Limit] | None:
        """The limits of regions from now on, by a snapshot; None where it is not time yet."""
        now_s, limit = float(view.now_s), np.asarray(view.limit)
        if self.began(now_s) and now_s < self.due_s:
            return None
        first = not self.began(now_s)
        self.due_s = (math.floor(now_s / EVERY_S) + 1) * EVERY_S
        if not first:
            step = self._step(view.nodes, view.node_state, len(limit))
            limit = np.clip(limit + step, LEAST, MOST)
        return [Limit(float(share), region) for region, share in enumerate(limit)]

    def began(self, now_s: float) -> bool:
        """Whether it has looked at this run before: a clock that went back is another's."""
        return now_s >= self.due_s - EVERY_S > -math.inf

    def _step(self, nodes: Array, state: Array, regions: int) -> Array:
        """(G,) up or down; 0 where nothing is read of services."""
        used = np.where(state["read"] < 0, state["reserved"], state["read"])
        # what services do to themselves no limit can mend
        harmed = (state["load"] > CROWDED) & (state["batch"] > 0)
        total = np.bincount(nodes["region"], used, regions)
        share = np.bincount(nodes["region"], used * harmed, regions) / np.maximum(total, 1e-12)
        return np.where(total > 0, np.maximum(GAIN * (self.target - share), -DROP), 0.0)
