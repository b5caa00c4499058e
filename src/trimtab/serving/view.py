"""One plain picture of a live fleet: for metrics, a terminal, logs and tests."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from trimtab.arrays import Array
from trimtab.serving.nouns import SEGMENTS, TUPLES, WIDTHS, ServerState

# Upper edges of the latency bins, a fifth apart: 0.1 ms .. 12 s; one bin more holds what is above.
LATENCY_EDGES_S: Array = 1e-4 * 1.2 ** np.arange(65)
# Upper edges of the bins for batches, by their real over their expected time: 0.5 .. 10
RATIO_EDGES: Array = 0.5 * 1.05 ** np.arange(62)
RECENT_S = 10.0  # what "over the last seconds" means


@dataclass
class ServerView:
    """One server as the front knows it."""

    name: str
    kind: str = "local"  # local, ray, joined
    pid: int = 0
    address: str = ""
    state: ServerState = ServerState.STARTING
    busy: int = 0  # workers
    workers: int = 1
    waiting: int = 0  # rows in its queue
    coming: int = 0  # rows sent that it has not yet counted
    waiting_by_segment: tuple[int, ...] = (0,) * SEGMENTS
    memory_b: float = 0.0
    loaded: int = 0  # instances
    util: float = 0.0  # smoothed share of workers busy
    power_w: float = 0.0
    power_source: str = ""  # nvml, rapl, model or "" = unknown
    energy_j: float = 0.0
    speed: float = 1.0  # the profile's time over the real one
    batches: int = 0
    rows: int = 0  # of all batches; a row counts once a segment
    mean_batch: float = 0.0
    beat_age_s: float = 0.0
    restarts: int = 0


@dataclass
class FleetView:
    """Everything there is to know about a fleet at one moment. Totals count requests, queues rows
    (a request of N images has N rows).
    """

    model: str
    router: str
    router_problem: str = ""  # why the router asked for is not the one that runs
    ready: bool = False
    draining: bool = False
    uptime_s: float = 0.0
    margin: float = 0.0  # share of a request's time that the router may not plan with
    objective_s: float = 0.0
    queued: int = 0
    queued_by_segment: tuple[int, ...] = (0,) * SEGMENTS
    queue_max: int = 0  # rows open at once, beyond which requests are refused
    in_flight: int = 0  # rows at servers
    arrived: int = 0
    answered: int = 0
    in_time: int = 0
    refused: int = 0
    late: int = 0  # given up: the client's deadline passed or could not be met
    failed: int = 0
    invalid: int = 0
    unavailable: int = 0
    cancelled: int = 0
    resent: int = 0  # rows
    answered_rows: int = 0
    accuracy_sum: float = 0.0  # over the rows answered, by the table of the network
    good: float = 0.0  # the same over those in time
    latency_s_sum: float = 0.0  # over the requests answered
    latency_p50_s: float = 0.0  # of the last seconds
    latency_p95_s: float = 0.0
    latency_p99_s: float = 0.0
    latency_bins: Array = field(default_factory=lambda: np.zeros(len(LATENCY_EDGES_S) + 1, int))
    ratio_bins: Array = field(default_factory=lambda: np.zeros(len(RATIO_EDGES) + 1, int))
    come_hz: float = 0.0  # requests arrived a second, of the last seconds
    done_hz: float = 0.0
    width_counts: Array = field(default_factory=lambda: np.zeros(len(TUPLES), int))  # rows
    servers: list[ServerView] = field(default_factory=list)

    @property
    def width_shares(self) -> Array:
        """(segments, widths) share of answered rows at each width of each segment."""
        counts = np.asarray(self.width_counts, float).reshape((len(WIDTHS),) * SEGMENTS)
        axes = range(SEGMENTS)
        sums = [counts.sum(axis=tuple(a for a in axes if a != segment)) for segment in axes]
        return np.array(sums) / max(counts.sum(), 1.0)


def quantile_s(bins: Array, share: float) -> float:
    """The latency below which a share of the answers lies, from counts a bin; 0 where none is."""
    total = int(bins.sum())
    if total == 0:
        return 0.0
    upto = np.cumsum(bins)
    at = int(np.searchsorted(upto, share * total))
    edges_s = np.concatenate(([0.0], LATENCY_EDGES_S, LATENCY_EDGES_S[-1:] * 1.2))
    before = upto[at - 1] if at else 0
    part = (share * total - before) / max(int(bins[at]), 1)
    return float(edges_s[at] + part * (edges_s[at + 1] - edges_s[at]))


class Recent:
    """Totals of the last seconds, from running totals noted about once a second."""

    def __init__(self, window_s: float = RECENT_S) -> None:
        self.window_s = window_s
        self.notes: deque[tuple[float, Array]] = deque()

    def note(self, now_s: float, totals: Array) -> None:
        """Remember the running totals; notes older than the window go, but for one."""
        if not self.notes or now_s - self.notes[-1][0] >= self.window_s / 10:
            self.notes.append((now_s, totals.copy()))
        while len(self.notes) > 1 and now_s - self.notes[1][0] >= self.window_s:
            self.notes.popleft()

    def since(self, now_s: float, totals: Array) -> tuple[float, Array]:
        """(seconds, what was added in them)."""
        if not self.notes:
            return max(now_s, 1e-9), totals
        began_s, old = self.notes[0]
        return max(now_s - began_s, 1e-9), totals - old
