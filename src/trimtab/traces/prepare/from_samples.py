"""The load of any monitored machines, prepared as that of a trace: samples in, windows out."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from trimtab.arrays import Array
from trimtab.errors import TraceError
from trimtab.files import write_whole
from trimtab.load import sums as load
from trimtab.load.samples import Samples
from trimtab.traces import MADE_BY
from trimtab.traces.prepare.join import Machines, paired, repeats, write_numbers
from trimtab.traces.prepare.levels import CODEC, cut, left_out, write_levels, write_segments
from trimtab.traces.prepare.plan import MOVING, SCHEMA_VERSION, Options

WINDOWS_A_BLOCK = 96
OPTIONS = ("window_s", "history", "segment_s", "train", "validation")  # that matter here
MOST_S = 10 * 365 * 86_400  # samples further apart than this come from a clock that was wrong


def prepare_samples(
    samples: Samples, out: str | Path, *, options: Options | None = None
) -> dict[str, Any]:
    """Clean and window the samples of machines of unknown capacity; returns the manifest.

    Run again after a stop, it starts over; finished, it returns what is there.
    """
    options, out = options or Options(), Path(out)
    kept, removed = cleaned(samples)
    if not len(kept):
        raise TraceError(
            f"{samples.source}: none of its {len(samples.time_s):,} samples is left after cleaning "
            f"({removed}); is it the right file?"
        )
    window = _milliseconds(samples, kept) // int(options.window_s * 1000)
    first, count = int(window.min()), int(window.max() - window.min()) + 1
    segments = cut(first, count, options)
    manifest = {
        "made_by": MADE_BY,
        "schema_version": SCHEMA_VERSION,
        "options": {name: getattr(options, name) for name in OPTIONS},
        "sources": {"samples": samples.source},
        "sums": _checksums(samples, kept),
        "notes": ["load only: no work was recorded with it", *left_out(segments)],
        "tables": {"samples": {"in": len(samples.time_s), "kept": len(kept), "removed": removed}},
        "windows": {"first": first, "count": count, "machines": len(samples.names)},
    }
    work = out / ".work"
    if _is_finished(out, manifest):
        shutil.rmtree(work, ignore_errors=True)  # of a run stopped at the very end
        return manifest
    _start_over(out, work)
    blocks = _write_sums(samples, kept, window, work, options)
    machines = _alike(samples.names)
    write_levels(work, work, blocks, WINDOWS_A_BLOCK, machines, options, segments, lambda _: None)
    write_segments(work / "segments.parquet", segments, options.window_s)
    _write_machines(work / "machines.parquet", machines)
    write_whole(work / "manifest.json", json.dumps(manifest, indent=1) + "\n")
    _move(work, out)
    return manifest


def _alike(names: tuple[str, ...]) -> Machines:
    """Machines of one size in one region: samples are shares of a capacity that is not told."""
    count = len(names)
    return Machines(list(names), np.ones((count, 2)), np.zeros(count, np.int64), ["all"])


def _milliseconds(samples: Samples, rows: Array) -> Array:
    return np.rint(samples.time_s[rows] * 1000).astype(np.int64)


def _checksums(samples: Samples, kept: Array) -> dict[str, int]:
    """Sums of what was measured, to know other samples by: whole, so that no order matters."""
    columns = zip(samples._fields[2:8], samples[2:8])
    whole = {name: np.rint(_masked(column[kept]) * load.FIXED) for name, column in columns}
    return {
        name: int(np.nan_to_num(column).astype(np.int64).sum()) for name, column in whole.items()
    }


def _is_finished(out: Path, manifest: dict[str, Any]) -> bool:
    """Whether the folder has the result of the same samples and options."""
    try:
        found: Any = json.loads((out / "manifest.json").read_text())
    except (OSError, ValueError):
        return False
    return bool(found == manifest)


def _start_over(out: Path, work: Path) -> None:
    """Make an empty work folder in one that is new, empty, or left by a stopped run like this."""
    if out.exists() and not out.is_dir():
        raise TraceError(f"{out}: is not a folder; choose another --out")
    if (work / "plan.json").exists():
        raise TraceError(
            f"{out}: holds a trace whose preparation was stopped; choose another --out, "
            f"or delete {work}"
        )
    moving = work / MOVING
    moved = json.loads(moving.read_text()) if moving.exists() else []
    if out.exists() and any(path.name not in (work.name, *moved) for path in out.iterdir()):
        raise TraceError(f"{out}: is not empty; choose an --out that is empty or new")
    for name in moved:  # first: the list of them goes with the work folder
        (out / name).unlink(missing_ok=True)
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)


def _move(work: Path, out: Path) -> None:
    """Move the results into place, the manifest last."""
    made = [path for path in work.iterdir() if path.suffix in (".parquet", ".json")]
    write_whole(work / MOVING, json.dumps(sorted(path.name for path in made)))
    for path in sorted(made, key=lambda path: path.name == "manifest.json"):
        os.replace(path, out / path.name)
    shutil.rmtree(work)


def _write_machines(path: Path, machines: Machines) -> None:
    count = len(machines.names)
    columns = {
        "node": np.arange(count),
        "machine_id": machines.names,
        "region_name": machines.regions * count,
        "region": machines.region,
    }
    pq.write_table(pa.table(columns), path, **CODEC)


def cleaned(samples: Samples) -> tuple[Array, dict[str, int]]:
    """Rows to keep, and how many broke which rule. Only CPU must be measured.

    Of several samples of a machine and millisecond the smallest is kept: no order matters.
    """
    measured = np.isfinite(samples.cpu)
    timed = np.abs(samples.time_s) < load.TOO_FAR_S  # not of NaN either
    within = (samples.cpu >= 0) & (samples.cpu <= 1)
    good = np.flatnonzero(measured & timed & within)
    time_ms = _milliseconds(samples, good)
    _refuse_far(samples.source, time_ms)
    values = [column[good] for column in samples[2:8]]
    since_ms = time_ms - (time_ms.min() if len(good) else 0)  # below 2**41
    again = repeats(paired(samples.node[good], since_ms), *values)
    removed = {
        "no-value": int((~measured).sum()),
        "no-time": int((measured & ~timed).sum()),
        "over-capacity": int((measured & timed & ~within).sum()),
        "repeated": int(again.sum()),
    }
    return good[~again], removed


def _refuse_far(source: str, time_ms: Array) -> None:
    if len(time_ms) and int(time_ms.max() - time_ms.min()) > MOST_S * 1000:
        first_s, last_s = time_ms.min() / 1000, time_ms.max() / 1000
        raise TraceError(
            f"{source}: time_s runs from {first_s:.0f} to {last_s:.0f}, more than 10 years; "
            f"drop the samples of the clock that was wrong"
        )


def _masked(ratio: Array) -> Array:
    """A sensor's readings, NaN where they are no share: the rest of the sample is good."""
    return np.where((ratio >= 0) & (ratio <= 1), ratio, np.nan)


def _write_sums(
    samples: Samples, kept: Array, window: Array, work: Path, options: Options
) -> range:
    """Write the sums of every block that has samples; returns the blocks from first to last."""
    order = np.argsort(window, kind="stable")
    block = window[order] // WINDOWS_A_BLOCK
    begins = np.flatnonzero(np.diff(block, prepend=block[0] - 1))
    for rows in np.split(order, begins[1:]):
        number, these = int(window[rows[0]] // WINDOWS_A_BLOCK), kept[rows]
        sums = load.empty_sums(WINDOWS_A_BLOCK, len(samples.names))
        load.add_samples(
            sums, number * WINDOWS_A_BLOCK, int(options.window_s * 1000), samples.time_s[these],
            samples.node[these], *(_masked(column[these]) for column in samples[2:8]),
        )  # fmt: skip
        write_numbers(work / f"{number:06d}.node", load.SUMS, sums.reshape(-1, len(load.SUMS)))
    return range(int(block[0]), int(block[-1]) + 1)
