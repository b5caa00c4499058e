"""Running mean and variance of channels, so that what a network sees stays in a small range.

normal = Normal(CHANNELS)
normal.update(view.value)                 # NaN = not measured: left out
z, mask = normal.scaled(view.value)       # 0 and mask 0 where it was left out
normal.save("normal.json")                # beside the network that was trained with it
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trimtab.arrays import Array
from trimtab.errors import TraceError
from trimtab.files import whole

VERSION = 1
CLIP = 5.0  # standard deviations


class Normal:
    """Count, mean and squared deviations of each channel, whatever the batches they came in.

    Batches are joined by the formula of Chan, Golub and LeVeque (1979), so that the mean and the
    variance are those of all numbers at once, and two of them may be added up. What is not finite
    is left out.
    """

    def __init__(self, channels: Sequence[str]) -> None:
        self.channels = tuple(channels)
        self.count = np.zeros(len(self.channels), np.int64)  # (C,)
        self.mean = np.zeros(len(self.channels))  # (C,)
        self.squares = np.zeros(len(self.channels))  # (C,) sum of squared deviations from the mean

    def update(self, values: Any) -> None:
        """Add numbers (..., C)."""
        rows = self._table(values).reshape(-1, len(self.channels))
        good = np.isfinite(rows)
        count = good.sum(axis=0)
        mean = np.where(good, rows, 0.0).sum(axis=0) / np.maximum(count, 1)
        squares = np.where(good, (np.where(good, rows, 0.0) - mean) ** 2, 0.0).sum(axis=0)
        self._join(count, mean, squares)

    def merge(self, other: "Normal") -> None:
        """Add what another of the same channels has counted."""
        if other.channels != self.channels:
            raise TraceError(
                f"channels {', '.join(other.channels)} are merged into {', '.join(self.channels)}; "
                f"merge statistics of the same channels"
            )
        self._join(other.count, other.mean, other.squares)

    @property
    def scale(self) -> Array:
        """(C,) standard deviation over all numbers; 1 where they do not tell one from the other."""
        spread = np.sqrt(self.squares / np.maximum(self.count, 1))
        # the rounding error of a constant channel is no spread
        told = spread > 1e-12 * np.abs(self.mean)
        return np.where(told, spread, 1.0)

    def scaled(self, values: Any, clip: float = CLIP) -> tuple[Array, Array]:
        """Deviations from the mean in standard deviations within -clip..clip, and their mask.

        A channel without numbers has mean 0 and deviation 1: its values come back as they are.
        """
        table = self._table(values)
        mask = np.isfinite(table)
        z = (np.where(mask, table, self.mean) - self.mean) / self.scale
        return np.clip(z, -clip, clip), mask.astype(np.float64)

    def save(self, path: str | Path) -> None:
        """Write the statistics; the file appears under its name only when it is complete."""
        path = Path(path)
        kept = {"version": VERSION, "channels": self.channels}
        kept |= {name: getattr(self, name).tolist() for name in ("count", "mean", "squares")}
        try:
            with whole(path) as place:
                place.write_text(json.dumps(kept))
        except OSError as error:
            problem = f"cannot be written ({error.strerror})"
            raise TraceError(f"{path}: {problem}; choose a folder that exists") from None

    def _join(self, count: Array, mean: Array, squares: Array) -> None:
        total = self.count + count
        share = count / np.maximum(total, 1)
        apart = np.where(count > 0, mean - self.mean, 0.0)
        self.squares += squares + apart**2 * self.count * share
        self.mean += apart * share
        self.count = total

    def _table(self, values: Any) -> Array:
        table = np.asarray(values, np.float64)
        if table.ndim == 0 or table.shape[-1] != len(self.channels):
            raise TraceError(
                f"values of shape {table.shape}; give {len(self.channels)} columns, one each of "
                f"{', '.join(self.channels)}"
            )
        return table


def load_normal(path: str | Path, channels: Sequence[str] | None = None) -> Normal:
    """The statistics in a file, refused if they are not of these channels in this order."""
    path = Path(path)
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        if kept["version"] != VERSION:
            problem = f"version={kept['version']!r}, and this trimtab reads {VERSION}"
            raise TraceError(f"{path}: {problem}; save() anew or upgrade trimtab")
        made = Normal(kept["channels"])
        made.count = np.array(kept["count"], np.int64)
        made.mean, made.squares = (np.array(kept[name], float) for name in ("mean", "squares"))
        _check(made)
    except OSError as error:
        raise TraceError(f"{path}: cannot be read ({error.strerror}); save() it first") from None
    except (ValueError, KeyError, TypeError) as error:
        problem = f"holds no statistics of channels ({error})"
        raise TraceError(f"{path}: {problem}; save() anew") from None
    if channels is not None and made.channels != tuple(channels):
        raise TraceError(
            f"{path}: channels={', '.join(made.channels)}, want {', '.join(channels)}; give the "
            f"statistics that were saved with this network"
        )
    return made


def _check(made: Normal) -> None:
    if any(len(c) != len(made.channels) for c in (made.count, made.mean, made.squares)):
        raise ValueError("a column is too short or too long")
    if not np.isfinite([made.mean, made.squares]).all() or (made.squares < 0).any():
        raise ValueError("a number is negative or not finite")
    if (made.count < 0).any():
        raise ValueError("a count is negative")
