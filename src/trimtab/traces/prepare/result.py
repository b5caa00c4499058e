"""What `trimtab trace prepare` wrote, read back: columns, and load before and after cleaning.

Series lie on an even grid of times on which a gap is NaN.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from trimtab.arrays import Array
from trimtab.errors import TraceError
from trimtab.traces import MADE_BY, MANIFEST, is_prepared
from trimtab.traces.prepare.route import BEFORE_S
from trimtab.units import unit


class Line(NamedTuple):
    """A series on an even grid of times."""

    name: str
    first_s: float
    step_s: float
    value: Array  # (T,) NaN = gap


def line(name: str, time_s: Array, value: Array, step_s: float) -> Line:
    """Values at some of the times of a grid; the times that are left out become gaps."""
    if not len(time_s):
        return Line(name, 0.0, step_s, np.zeros(0))
    at = np.rint(time_s / step_s).astype(np.int64)
    grid = np.full(int(at.max() - at.min()) + 1, np.nan)
    grid[at - at.min()] = value
    return Line(name, float(at.min()) * step_s, step_s, grid)


def manifest_of(folder: Path) -> dict[str, Any]:
    """What was prepared and how; an error where nothing was."""
    if not is_prepared(folder):
        raise TraceError(
            f"{folder / MANIFEST}: is not there or not of a prepared trace; give the folder that "
            f"`{MADE_BY}` wrote, after it has finished"
        )
    manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text())
    return manifest


def opened(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path)
    except pa.ArrowInvalid as error:
        raise TraceError(
            f"{path}: is no whole Parquet file ({error}); delete its folder and prepare it again"
        ) from None


def numbers(path: Path, name: str) -> Array:
    """One column, null = NaN; nothing of a file that is not there."""
    if not path.exists():
        return np.zeros(0)
    with opened(path) as file:
        return file.read([name])[name].to_numpy()


def roughness(values: Array, apart: int = 1) -> float:
    """Standard deviation of differences between values `apart` places from each other."""
    change = values[apart:] - values[:-apart]
    change = change[np.isfinite(change)]
    return float(change.std()) if len(change) else np.nan


def before_and_after(folder: Path) -> dict[str, list[Line]]:
    """Four series by title, as they were recorded, where they were, and as they are now; none where
    no machines were given.
    """
    found = {
        name: numbers(folder / "cluster.parquet", name)
        for name in ("time_s", "cpu", "mem", "start_wait_s", "started", "cpu_sd")
    }
    if not len(found["time_s"]):
        return {}
    manifest = manifest_of(folder)
    within_s, window_s = span_s(manifest), manifest["options"]["window_s"]
    wait_s = np.where(found["started"] > 0, found["start_wait_s"], np.nan)
    size_s, named = unit("time", wait_s[np.isfinite(wait_s)].tolist())
    after = {"CPU use (%)": 100 * found["cpu"], "Memory use (%)": 100 * found["mem"]}
    after[f"Mean wait of batch instances that start ({named})"] = wait_s / size_s
    after["CPU use: standard deviation between machines (%)"] = 100 * found["cpu_sd"]
    columns = (("cpu", 100), ("mem", 100), ("wait_s", 1 / size_s), ("cpu_sd", 100))
    return {
        name: [
            *_recorded(folder, column, scale, within_s),
            line("after", found["time_s"], values, window_s),
        ]
        for (name, values), (column, scale) in zip(after.items(), columns)
    }


def _recorded(folder: Path, name: str, scale: float, within_s: tuple[float, float]) -> list[Line]:
    """The raw series of that name inside the windows, if there is one."""
    time_s = numbers(folder / "raw.parquet", "time_s")
    inside = (time_s >= within_s[0]) & (time_s < within_s[1])
    value = scale * numbers(folder / "raw.parquet", name)[inside]
    if not np.isfinite(value).any():
        return []
    return [line("before", time_s[inside], value, BEFORE_S)]


def span_s(manifest: Mapping[str, Any]) -> tuple[float, float]:
    """The first second of the windows and the one after their last."""
    windows, window_s = manifest["windows"], manifest["options"]["window_s"]
    return windows["first"] * window_s, (windows["first"] + windows["count"]) * window_s
