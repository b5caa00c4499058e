"""The load of any monitored machines, prepared as that of a trace: samples in, windows out."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from trimtab.core import Array
from trimtab.errors import TraceError
from trimtab.load import sums as load
from trimtab.load.samples import Samples
from trimtab.traces.prepare.join import Machines, paired, repeats, write_numbers
from trimtab.traces.prepare.levels import CODEC, cut, write_levels, write_segments
from trimtab.traces.prepare.plan import MADE_BY, SCHEMA_VERSION, Options, write_text

WINDOWS_A_BLOCK = 96


def prepare_samples(
    samples: Samples, out: str | Path, *, options: Options | None = None
) -> dict[str, Any]:
    """Clean and window the samples of machines of unknown capacity; returns the manifest."""
    options, out = options or Options(), Path(out)
    if out.exists() and any(out.iterdir()):
        raise TraceError(f"{out}: is not empty; choose an --out that is empty or new")
    kept, removed = cleaned(samples)
    if not len(kept):
        raise TraceError(
            f"{samples.source}: none of its {len(samples.time_s):,} samples is left after cleaning "
            f"({removed}); is it the right file?"
        )
    work = out / ".work"
    work.mkdir(parents=True)
    machines = Machines(
        list(samples.names), np.ones((len(samples.names), 2)),
        np.zeros(len(samples.names), np.int64), ["all"],
    )  # fmt: skip
    first, count, periods = _write_sums(samples, kept, work, options)
    segments = cut(first, count, options)
    write_levels(work, work, periods, WINDOWS_A_BLOCK, machines, options, segments, lambda _: None)
    nodes = np.arange(len(samples.names))
    columns = {
        "node": nodes,
        "machine_id": list(samples.names),
        "region_name": ["all"] * len(nodes),
    }
    pq.write_table(pa.table({**columns, "region": 0 * nodes}), work / "machines.parquet", **CODEC)
    write_segments(work / "segments.parquet", segments, options.window_s)
    manifest = {
        "made_by": MADE_BY,
        "schema_version": SCHEMA_VERSION,
        "options": {"window_s": options.window_s, "history": options.history},
        "sources": {"samples": samples.source},
        "notes": ["load only: no work was recorded with it"],
        "tables": {"samples": {"in": len(samples.time_s), "kept": len(kept), "removed": removed}},
        "windows": {"first": first, "count": count, "machines": len(samples.names)},
    }
    write_text(work / "manifest.json", json.dumps(manifest, indent=1) + "\n")
    made = [path for path in work.iterdir() if path.suffix in (".parquet", ".json")]
    for path in sorted(made, key=lambda path: path.name == "manifest.json"):
        os.replace(path, out / path.name)
    shutil.rmtree(work)
    return manifest


def cleaned(samples: Samples) -> tuple[Array, dict[str, int]]:
    """Rows to keep, and how many broke which rule. Only CPU must be measured."""
    measured = np.isfinite(samples.cpu)
    timed = np.isfinite(samples.time_s)
    within = (samples.cpu >= 0) & (samples.cpu <= 1)
    good = np.flatnonzero(measured & timed & within)
    time_ms = np.rint(samples.time_s[good] * 1000).astype(np.int64)
    again = repeats(paired(samples.node[good], time_ms))
    removed = {
        "no-value": int((~measured).sum()),
        "no-time": int((measured & ~timed).sum()),
        "over-capacity": int((measured & timed & ~within).sum()),
        "repeated": int(again.sum()),
    }
    return good[~again], removed


def _write_sums(
    samples: Samples, kept: Array, work: Path, options: Options
) -> tuple[int, int, range]:
    """Sums of every block of windows; returns the first window, their number and the blocks."""
    window_ms = int(options.window_s * 1000)
    window = np.rint(samples.time_s[kept] * 1000).astype(np.int64) // window_ms
    first, last = int(window.min()), int(window.max()) + 1
    blocks = range(first // WINDOWS_A_BLOCK, (last - 1) // WINDOWS_A_BLOCK + 1)
    order = np.argsort(window, kind="stable")
    edges = np.searchsorted(window[order], [b * WINDOWS_A_BLOCK for b in (*blocks, blocks.stop)])
    for n, block in enumerate(blocks):
        rows = kept[order[edges[n] : edges[n + 1]]]
        sums = load.empty_sums(WINDOWS_A_BLOCK, len(samples.names))
        load.add_samples(
            sums, block * WINDOWS_A_BLOCK, window_ms, samples.time_s[rows], samples.node[rows],
            samples.cpu[rows], samples.mem[rows], samples.net_in[rows], samples.net_out[rows],
            samples.disk[rows], samples.gpu[rows],
        )  # fmt: skip
        path = work / f"{block:06d}.node"
        write_numbers(path, load.SUMS, sums.reshape(-1, len(load.SUMS)))
    return first, last - first, blocks
