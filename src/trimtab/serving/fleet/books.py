"""A live fleet's books: all that its parts share. They take these; none knows another's state."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from trimtab.errors import ServeError
from trimtab.serving.fleet.figures import Figures
from trimtab.serving.fleet.pins import Pins
from trimtab.serving.fleet.request import Slots, labels_of, metadata_of
from trimtab.serving.fleet.roster import Roster
from trimtab.serving.fleet.router import Router, slimmest_of
from trimtab.serving.fleet.state import live_arrays
from trimtab.serving.net.serve_profile import ServeProfile
from trimtab.serving.net.slim_weights import Weights
from trimtab.serving.nouns import WIDTHS
from trimtab.serving.routing.greedy import Knobs

SILENT_S = 2.0  # no word from a server for so long: no work for it
WAIT_S = 10.0  # how long requests wait where no server is left
LIVE_KNOBS = Knobs(scan=True, idle_unload_s=600.0)


class Books:
    """A fleet's arrays, servers, open requests, counts, clock and flags.

    objective_s: what a request without a deadline should take; it is answered also when late.
    margin: share of a request's time that the router may not plan with, to begin with; more or
    less is learned. queue_max: rows open at once; None = what the servers can answer within the
    objective. digest: of the network that servers must have, or "" = any.
    """

    def __init__(
        self,
        weights: Weights,
        profile: ServeProfile,
        router: Router,
        *,
        name: str = "slim",
        objective_s: float = 0.1,
        margin: float = 0.15,
        queue_max: int | None = None,
        rows_max: int = 64,
        slots: int = 8192,
        wait_s: float = WAIT_S,
        silent_s: float = SILENT_S,
        token: str = "",
        digest: str = "",
        knobs: Knobs = LIVE_KNOBS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not objective_s > 0 or not 0 <= margin < 1 or not 0 < rows_max <= slots:
            raise ServeError(
                f"objective_s={objective_s}, margin={margin}, rows_max={rows_max}: give seconds "
                "above 0, a share below 1, and 1 or more rows"
            )
        self.model, self.labels = metadata_of(weights, name), labels_of(weights)
        self.objective_s, self.rows_max, self.queue_max = objective_s, rows_max, queue_max
        self.wait_s, self.silent_s, self.clock = wait_s, silent_s, clock
        self.log = logging.getLogger("trimtab.serve")
        self.f, self.x = live_arrays(profile, slots, knobs)
        self.x.tally["margin"] = margin
        self.slots = Slots(self.x)
        self.pins = Pins(self.f, self.x)
        self.row_b = [[round(mb * 1e6) for mb in row] for row in profile.input_mb]
        self.row_b.append([4 * weights.form.classes] * len(WIDTHS))  # of a row, by segment, width
        self.x.row_b[:] = self.row_b
        self.roster = Roster(self.f, self.x, profile, knobs, objective_s, margin, token, digest)
        self.figures = Figures()
        self.open = self.open_rows = 0
        self.empty = asyncio.Event()  # no request is open
        self.leaving = False  # not ready any more; still answers
        self.closed = False
        self.epoch_s = clock()
        self.loop: asyncio.AbstractEventLoop | None = None
        self.use(router)

    @property
    def ready(self) -> bool:
        """Whether a request sent now would be served."""
        return bool(self.roster.seated) and not self.leaving

    @property
    def limit(self) -> int:
        """Rows that may be open at once."""
        return self.queue_max or self.roster.capacity.rows

    def now(self) -> float:
        """Seconds since the fleet began."""
        return self.clock() - self.epoch_s

    def use(self, router: Router) -> None:
        """Route by another rule from the next decision on."""
        self.router = router
        self.pins.use(router.rule)
        self.x.tally["slimmest"] = slimmest_of(router)
        self.roster.capacity.count(self.f, router)
        if router.problem:
            self.log.warning("router: %s; running %s", router.problem, router.name)
