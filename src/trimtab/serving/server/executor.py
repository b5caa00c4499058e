"""The greedy executor as a live server uses it: what to begin now, and when to look again.

The server tells it what came and what ended; it never waits, sleeps or runs anything itself.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.errors import ServeError
from trimtab.serving.net.serve_profile import ServeProfile
from trimtab.serving.nouns import SEGMENTS, WIDTHS
from trimtab.serving.routing.greedy import (
    EMPTY,
    LOAD,
    NONE,
    RUN,
    WAIT,
    Knobs,
    become_free,
    decide,
    drop_instance,
    enqueue,
    enqueue_all,
    idle_instance,
    load_instance,
    local,
    quiet_until,
    run_batch,
    take_line,
    warm_instance,
)

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

    def put_all(self, requests: Array, segment: int, before: int, width: int) -> None:
        """Queue requests of one key, as `put` does one; numbers are not checked."""
        enqueue_all(self.arrays, requests, segment, before if segment else 0, width)

    def warm(self, segment: int, before: int, width: int, now_s: float) -> None:
        """Say that an instance is loaded, without having been asked to."""
        key = (segment * 4 + (before if segment else 0)) * 4 + width
        if warm_instance(self.arrays, key, now_s) == NONE:
            raise ServeError("no slot is left for a warm instance; give more `instances`")

    def give_back(self, segment: int, before: int, width: int) -> list[int]:
        """Take every waiting request of one key out of the queue."""
        found = np.empty(len(self.arrays.after), np.int64)
        key = (segment * 4 + (before if segment else 0)) * 4 + width
        return [int(n) for n in found[: take_line(self.arrays, key, found)]]

    def holds(self, segment: int, before: int) -> list[int]:
        """Widths of the instances that take a segment's input, loading ones too, sorted."""
        rows = self.arrays.instance[0]
        mine = (rows["state"] != EMPTY) & (rows["segment"] == segment)
        mine &= rows["before"] == (before if segment else 0)
        return sorted(int(width) for width in rows["width"][mine])

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
