"""The load of the prepared trace at three levels, cut into decision segments that do not leak."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from trimtab.arrays import Array
from trimtab.load import sums as load
from trimtab.load.features import CLUSTER, NODE, REGION
from trimtab.load.series import Frame, Series
from trimtab.traces.prepare.join import Machines, read_numbers
from trimtab.traces.prepare.plan import SCHEMA_VERSION, Options

SPLITS = ("train", "validation", "test")
PURGED = "purged"  # between two splits: what comes after still looks back on these windows
BLOCK = 48  # windows that are written at once
CODEC = {"compression": "zstd"}
REPEATED = ["window", "time_s", "node", "region", "segment", "split"]  # worth a dictionary


class Segments(NamedTuple):
    """Consecutive stretches of windows in which decisions are taken, none across two splits."""

    first: Array  # (S,) window
    windows: Array  # (S,)
    split: Array  # (S,) row of SPLITS, -1 = purged

    def of(self, window: int) -> tuple[int, str]:
        """(segment, split) that a window belongs to."""
        segment = int(np.searchsorted(self.first, window, "right")) - 1
        return segment, split_name(int(self.split[segment]))


def split_name(split: int) -> str:
    return PURGED if split < 0 else SPLITS[split]


def cut(first: int, windows: int, options: Options) -> Segments:
    """Train, then validation, then test, by time, with `history` windows left out between them.

    A split that is no longer than that is left out whole: it would look back on the one before.
    """
    ends = np.rint(np.array([options.train, options.train + options.validation, 1]) * windows)
    length = max(int(options.segment_s // options.window_s), 1)
    found: list[tuple[int, int, int]] = []
    at = 0
    for split, end in enumerate(ends.astype(int)):
        gap = min(options.history, end - at) if at else 0
        if gap:
            found.append((at, gap, -1))
        for start in range(at + gap, end, length):
            found.append((start, min(length, end - start), split))
        at = end
    table = np.array(found, np.int64).reshape(-1, 3)
    return Segments(first + table[:, 0], table[:, 1], table[:, 2])


def left_out(segments: Segments) -> list[str]:
    """A sentence for each split that has no windows."""
    empty = [name for n, name in enumerate(SPLITS) if not (segments.split == n).any()]
    return [f"{name} has no windows: the trace is too short to keep it apart" for name in empty]


class Writers:
    """One Parquet file a level, written a block of windows at a time."""

    def __init__(self, folder: Path, options: Options, segments: Segments) -> None:
        self.options, self.segments = options, segments
        self.frames: list[Frame] = []
        about = {b"trimtab": f'{{"schema_version": {SCHEMA_VERSION}}}'.encode()}
        head = [("window", pa.int32()), ("time_s", pa.float64())]
        tail = [("segment", pa.int32()), ("split", pa.dictionary(pa.int8(), pa.string()))]
        self.schema, self.writer = {}, {}
        for level, names in (("node", NODE), ("region", REGION), ("cluster", CLUSTER)):
            own = [] if level == "cluster" else [(level, pa.int32())]
            fields = [*head, *own, *((name, pa.float32()) for name in names), *tail]
            self.schema[level] = pa.schema(fields, metadata=about)
            self.writer[level] = pq.ParquetWriter(
                folder / f"{level}.parquet", self.schema[level], use_dictionary=REPEATED, **CODEC
            )

    def add(self, frame: Frame) -> None:
        """The next window. Blocks are of one length, whatever the periods: bytes stay the same."""
        self.frames.append(frame)
        if len(self.frames) == BLOCK:
            self.flush()

    def flush(self) -> None:
        if self.frames:
            windows = np.array([frame.window for frame in self.frames])
            self.write("node", windows, np.stack([frame.node for frame in self.frames]))
            self.write("region", windows, np.stack([frame.region for frame in self.frames]))
            cluster = np.stack([frame.cluster for frame in self.frames])
            self.write("cluster", windows, cluster[:, None])
        self.frames = []

    def write(self, level: str, windows: Array, values: Array) -> None:
        """Rows of (windows, members, features); NaN becomes null: a gap is marked, not filled."""
        count, members, features = values.shape
        window = np.repeat(windows, members)
        where = [self.segments.of(int(w)) for w in windows]
        split = [SPLITS.index(s) if s in SPLITS else len(SPLITS) for _, s in where]
        columns: list[Any] = [
            pa.array(window, pa.int32()),
            pa.array(window * self.options.window_s),
        ]
        if level != "cluster":
            columns.append(pa.array(np.tile(np.arange(members, dtype=np.int32), count)))
        flat = np.ascontiguousarray(values.reshape(-1, features).T)
        columns += [pa.array(column, mask=np.isnan(column)) for column in flat]
        columns.append(pa.array(np.repeat([s for s, _ in where], members), pa.int32()))
        codes = pa.array(np.repeat(split, members), pa.int8())
        columns.append(pa.DictionaryArray.from_arrays(codes, pa.array([*SPLITS, PURGED])))
        self.writer[level].write_table(pa.Table.from_arrays(columns, schema=self.schema[level]))

    def close(self) -> None:
        for writer in self.writer.values():
            writer.close()


def write_levels(
    folder: Path, sums: Path, periods: range, windows_a_period: int, machines: Machines,
    options: Options, segments: Segments, finished: Callable[[str], None],
) -> None:  # fmt: skip
    """Turn the sums of all periods, in order, into node, region and cluster files."""
    series = Series(
        machines.capacity, machines.region, window_s=options.window_s, history=options.history
    )
    queue = all_waits(sums, periods, windows_a_period)
    writers = Writers(folder, options, segments)
    rows = len(machines.names) + 1
    first, last = int(segments.first[0]), int(segments.first[-1] + segments.windows[-1])
    try:
        for period in periods:
            path = sums / f"{period:06d}.node"
            empty = np.zeros((rows * windows_a_period, len(load.SUMS)), np.int64)
            held = (read_numbers(path) if path.exists() else empty).reshape(
                -1, rows, len(load.SUMS)
            )
            begin = period * windows_a_period
            windows = [w for w in range(begin, begin + windows_a_period) if first <= w < last]
            for w in windows:
                waits = queue[w - periods[0] * windows_a_period]
                writers.add(series.step(w, held[w - begin], waits))
            finished(f"period {period}")
        writers.flush()
    finally:
        writers.close()


def all_waits(sums: Path, periods: range, windows_a_period: int) -> Array:
    """(windows, QUEUE) of the whole trace: a wait may begin periods before its start."""
    low = periods[0] * windows_a_period
    queue = load.empty_queue(len(periods) * windows_a_period)
    for period in periods:
        path = sums / f"{period:06d}.queue"
        if path.exists():
            waits = read_numbers(path)
            inside = waits[(waits[:, 0] >= low) & (waits[:, 0] < low + len(queue))]
            np.add.at(queue, inside[:, 0] - low, inside[:, 1:])
    return queue


def write_segments(path: Path, segments: Segments, window_s: float) -> None:
    first_s = segments.first * window_s
    table = pa.table(
        {
            "segment": pa.array(np.arange(len(first_s)), pa.int32()),
            "split": pa.array([split_name(int(s)) for s in segments.split]),
            "start_s": first_s,
            "end_s": first_s + segments.windows * window_s,
            "first_window": pa.array(segments.first, pa.int32()),
            "windows": pa.array(segments.windows, pa.int32()),
        }
    )
    pq.write_table(table, path, **CODEC)
