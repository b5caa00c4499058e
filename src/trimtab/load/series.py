"""Windows in order, each turned into features with the ones just before it in mind."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.errors import TraceError
from trimtab.load.features import (
    CLUSTER,
    CLUSTER_AT,
    NODE,
    NODE_AT,
    REGION,
    contention,
    group_features,
    node_features,
)
from trimtab.load.sums import ASKED, QUEUE, QUEUE_AT, SUMS


class Frame(NamedTuple):
    """The features of one window, columns as `features.NODE`, `REGION` and `CLUSTER` name them."""

    window: int  # it covers [window, window + 1) x window_s
    node: Array  # (N, NODE) float32
    region: Array  # (G, REGION) float32
    cluster: Array  # (CLUSTER,) float32


def checked_capacity(capacity: Any) -> Array:
    """CPU and memory of each machine as (N, 2) floats above zero."""
    table = np.asarray(capacity, dtype=np.float64)
    if table.ndim != 2 or table.shape[1] != 2 or not len(table):
        raise TraceError(f"capacity has shape {table.shape}; give (machines, 2): CPU and memory")
    bad = np.flatnonzero(~(np.isfinite(table) & (table > 0)).all(axis=1))
    if len(bad):
        raise TraceError(f"capacity of machine {bad[0]} is {table[bad[0]]}; give numbers above 0")
    return table


def checked_region(region: Any, nodes: int) -> Array:
    """The region of each machine, (N,), numbered from 0."""
    given = np.asarray(region)
    table = given.astype(np.int64)
    if given.shape != (nodes,) or (table != given).any() or (table < 0).any():
        raise TraceError(
            f"region has shape {given.shape}; give one whole number from 0 up for each of"
            f" {nodes} machines"
        )
    return table


def whole_ms(name: str, seconds: float, least_ms: int) -> int:
    """Seconds as whole milliseconds."""
    if not np.isfinite(seconds) or round(seconds * 1000) < least_ms:
        raise TraceError(f"{name}={seconds} is too short; give at least {least_ms / 1000} s")
    return round(seconds * 1000)


class Series:
    """The features of window after window, from their sums. A jump in the number is a gap."""

    def __init__(
        self, capacity: Any, region: Any, *, window_s: float = 300.0, history: int = 12
    ) -> None:
        table = checked_capacity(capacity)
        self.nodes = len(table)
        self.region = checked_region(region, self.nodes)
        self.regions = int(self.region.max()) + 1
        self.window_ms = whole_ms("window_s", window_s, 1)
        if history < 1:
            raise TraceError(f"history={history} windows; give at least 1, this window itself")
        # a mean of equal numbers may differ from them in the last digit
        mean = table[0] if (table == table[0]).all() else table.mean(axis=0)
        self.weight = np.ones((self.nodes + 1, 3))  # CPU, memory, 1; the last row = mean machine
        self.weight[:-1, :2], self.weight[-1, :2] = table, mean
        self.unit = mean / self.weight[:, :2]  # (N + 1, 2) the mean machine as a share of this one
        self._recent = np.full((self.nodes + 1, history), np.nan)
        self._whole = np.zeros(self.nodes, np.int64)  # every machine in the one cluster
        self._last: int | None = None

    def step(self, window: int, sums: Array, queue: Array) -> Frame:
        """Turn the sums (N + 1, SUMS) and queue (QUEUE,) of the next window into its features."""
        self._check(window, sums, queue)
        self._skip_to(window)
        ms = self.window_ms
        node = np.zeros((self.nodes + 1, len(NODE)))
        region = np.zeros((self.regions, len(REGION)))
        cluster = np.zeros((1, len(CLUSTER)))
        node_features(node, self._recent, sums, window, ms)
        group_features(region, node, self.weight, self.region, -1)
        group_features(cluster, node, self.weight, self._whole, 0)
        cluster[0, CLUSTER_AT.runnable] = queue[QUEUE_AT.runnable]
        cluster[0, CLUSTER_AT.waiting] = queue[QUEUE_AT.waiting_ms] / ms
        cluster[0, CLUSTER_AT.waiting_cpu] = queue[QUEUE_AT.waiting_cpu_ms] / (ms * ASKED)
        cluster[0, CLUSTER_AT.waiting_mem] = queue[QUEUE_AT.waiting_mem_ms] / (ms * ASKED)
        contention(node, region, cluster, self.weight, self.region)
        return Frame(
            window,
            node[:-1].astype(np.float32),
            region.astype(np.float32),
            cluster[0].astype(np.float32),
        )

    def _check(self, window: int, sums: Array, queue: Array) -> None:
        want = (self.nodes + 1, len(SUMS))
        if sums.shape != want or queue.shape != (len(QUEUE),):
            raise TraceError(
                f"window {window}: sums {sums.shape} and queue {queue.shape}; give {want} and"
                f" ({len(QUEUE)},): a row for unknown machines comes last"
            )
        if self._last is not None and window <= self._last:
            raise TraceError(
                f"window {window} comes after window {self._last}; step through windows in order"
            )

    def _skip_to(self, window: int) -> None:
        history = self._recent.shape[1]
        if self._last is not None:
            for gone in range(max(self._last + 1, window - history + 1), window):
                self._recent[:, gone % history] = np.nan
        self._last = window


def sliding(values: Array, width: int) -> Array:
    """Every run of `width` windows, (T, N, ...) -> (T - width + 1, N, width, ...), without a copy.

    What comes back is a view that may not be written to.
    """
    if not 1 <= width <= len(values):
        raise TraceError(f"width={width} windows out of {len(values)}; give 1..{len(values)}")
    runs = np.lib.stride_tricks.sliding_window_view(values, width, axis=0)
    return np.moveaxis(runs, -1, 2)


def histories(frames: Sequence[Frame], width: int) -> tuple[Array, Array]:
    """Machines' features over `width` windows, (T - width + 1, N, width, NODE), and what was seen.

    The second, (T - width + 1, N, width), is False in a gap, where measured features are NaN.
    """
    if not frames:
        raise TraceError("no windows to look back on; give at least one frame")
    windows = [frame.window for frame in frames]
    if windows != list(range(windows[0], windows[0] + len(frames))):
        raise TraceError(f"windows {windows[0]}..{windows[-1]} have holes; step empty ones too")
    node = np.stack([frame.node for frame in frames])
    return sliding(node, width), sliding(node[:, :, NODE_AT.gap] == 0, width)
