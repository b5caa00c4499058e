"""The greedy executor as a live server uses it: what to begin now, and when to look again.

The server tells it what came and what ended; it never waits, sleeps or runs anything itself.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from trimtab.errors import ServeError
from trimtab.serving.greedy import (
    LOAD,
    NONE,
    RUN,
    WAIT,
    Knobs,
    become_free,
    decide,
    drop_instance,
    enqueue,
    idle_instance,
    load_instance,
    local,
    quiet_until,
    run_batch,
)
from trimtab.serving.serve_profile import ServeProfile
from trimtab.serving.slim_form import SEGMENTS, WIDTHS

KNOWN = set(range(len(WIDTHS)))


class Action(NamedTuple):
    """What a live server does next."""

    what: int  # WAIT, RUN or LOAD
    segment: int = NONE
    before: int = NONE
    width: int = NONE  # the width really used
    instance: int = NONE
    requests: tuple[int, ...] = ()
    until_s: float = np.inf  # of WAIT: look again then, or at the next event


class Executor:
    """One live server's queue and instances; not safe to share between threads without a lock."""

    def __init__(self, profile: ServeProfile, knobs: Knobs | None = None, **sizes: Any) -> None:
        self.arrays = local(profile, knobs or Knobs(), **sizes)

    def put(self, request: int, segment: int, before: int, width: int) -> None:
        """Queue a request by a number of yours, below `requests` and in no queue now."""
        if not 0 <= request < len(self.arrays.after):
            raise ServeError(f"request={request}: give 0..{len(self.arrays.after) - 1}")
        if segment not in range(SEGMENTS) or not {before if segment else 0, width} <= KNOWN:
            raise ServeError(
                f"segment={segment}, before={before}, width={width}: give a segment of "
                f"0..{SEGMENTS - 1} and widths of 0..{len(WIDTHS) - 1}"
            )
        enqueue(self.arrays, 0, request, segment, before if segment else 0, width)

    def next(self, now_s: float) -> Action:
        """Begin what can begin. Call again until it says WAIT."""
        x = self.arrays
        what, key, i = decide(x, 0, now_s)
        if what == WAIT:
            return Action(WAIT, until_s=float(quiet_until(x, 0, now_s)))
        if what == LOAD:
            load_instance(x, 0, key, i, now_s, np.inf)
        else:
            run_batch(x, 0, key, i, now_s, np.inf)
        chain = []
        request = int(x.instance[0, i]["first"]) if what == RUN else NONE
        while request != NONE:
            chain.append(request)
            request = int(x.after[request])
        return Action(what, *self._of(i), i, tuple(chain))

    def ended(self, instance: int, now_s: float) -> None:
        """Say that a load or a batch has ended."""
        become_free(self.arrays, 0, instance, now_s)

    def failed(self, instance: int, now_s: float) -> None:
        """Say that a load or a batch has failed: the instance is gone."""
        become_free(self.arrays, 0, instance, now_s)
        drop_instance(self.arrays, 0, instance)

    def unload(self, now_s: float) -> list[tuple[int, int, int]]:
        """Drop idle instances; returns their (segment, before, width)."""
        found = []
        while (i := int(idle_instance(self.arrays, 0, now_s))) != NONE:
            found.append(self._of(i))
            drop_instance(self.arrays, 0, i)
        return found

    def _of(self, i: int) -> tuple[int, int, int]:
        row = self.arrays.instance[0, i]
        return int(row["segment"]), int(row["before"]), int(row["width"])
