"""What one preparation is: its sources, its options and the folder in which it works.

Everything unfinished lives in `OUT/.work`. A step writes its file under a passing name and renames
it, so that a file that is there is whole, and a run that was killed goes on where it stopped.
"""

import json
import os
import shutil
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import duckdb

from trimtab.errors import TraceError
from trimtab.files import write_whole
from trimtab.traces import MADE_BY
from trimtab.traces.alibaba2018.source import TableFiles

SCHEMA_VERSION = 1
MOVING = "moving.json"  # in the work folder: the results that may stand beside it already
TARGET_ROWS = 4_000_000  # of the largest table in one period, if they were spread evenly
TRACE_S = 8 * 86_400
MOST_WINDOWS = 96  # of a period: their sums are held in memory at once


@dataclass(frozen=True)
class Options:
    """How to prepare; the defaults of the command line."""

    window_s: float = 300.0
    history: int = 12  # windows that a machine's recent features look back on
    segment_s: float = 3600.0
    train: float = 0.7  # share of the time; then validation, then test
    validation: float = 0.15
    machine_mem_gb: float = 512.0  # what the trace's memory size of 100 stands for
    services: str = "used"  # what a service takes from batch: used, reserved or none
    lenient: bool = False

    def __post_init__(self) -> None:
        for name, low, high in (
            ("window_s", 1.0, 86_400.0),
            ("history", 1, 10_000),
            ("segment_s", self.window_s, 31 * 86_400.0),
            ("train", 0.01, 0.98),
            ("validation", 0.01, 0.98),
            ("machine_mem_gb", 0.001, 1e6),
        ):
            value = getattr(self, name)
            if not low <= value <= high:
                raise TraceError(f"{name}={value}; give a number in {low:g}..{high:g}")
        if self.window_s != int(self.window_s):
            raise TraceError(f"window_s={self.window_s}; give whole seconds")
        if self.train + self.validation >= 1:
            raise TraceError(
                f"train={self.train} and validation={self.validation} leave nothing to test on; "
                f"give shares that add up to less than 1"
            )
        if self.services not in ("used", "reserved", "none"):
            raise TraceError(f"services={self.services!r}; use used, reserved or none")


@dataclass(frozen=True)
class Plan:
    """One preparation, as every step of it and every machine that helps sees it."""

    tables: dict[str, TableFiles]
    out: Path
    options: Options
    memory_bytes: int
    period_s: int  # rows are routed by it; a whole number of windows
    piece_bytes: int  # of text that is read at once
    hour: tuple[Path, ...] = ()  # the one-hour extract, as batch tables: no machines, no real ids
    notes: list[str] = field(default_factory=list)
    sources: dict[str, str] = field(default_factory=dict)  # table: where it came from, in words

    @property
    def work(self) -> Path:
        return self.out / ".work"

    @property
    def window_s(self) -> int:
        return int(self.options.window_s)

    @property
    def most_rows(self) -> int:
        """Rows of one table that a step holds at once."""
        return max(10_000, self.memory_bytes // 1300)

    def connect(self) -> duckdb.DuckDBPyConnection:
        """An engine with its share of the memory; what does not fit goes to the work folder."""
        db = duckdb.connect(
            config={
                "memory_limit": f"{max(self.memory_bytes * 30 // 100, 64 << 20)}B",
                "temp_directory": str(self.work / "spill"),
                "preserve_insertion_order": False,
                "threads": os.cpu_count() or 1,
            }
        )
        db.execute("SET enable_progress_bar = false")  # it would write between our lines
        return db


def period_of(tables: dict[str, TableFiles], window_s: int) -> int:
    """Seconds of a period: as many windows as leave each table a few million rows in it."""
    rows = max((_rows_about(found) for found in tables.values()), default=0)
    wanted_s = TRACE_S * TARGET_ROWS / max(rows, 1)
    return window_s * int(min(max(wanted_s // window_s, 1), MOST_WINDOWS))


def _rows_about(found: TableFiles) -> int:
    """Rows by the size of the files: a row of text has 60 to 100 bytes."""
    size = 0
    for path in found.paths:
        packed = path.suffix in (".gz", ".xz", ".bz2", ".tgz")
        size += path.stat().st_size * (6 if packed or path.suffix == ".parquet" else 1)
    return size // 80


def fingerprint(plan: Plan) -> dict[str, Any]:
    """What the result depends on: sources by name, size and age, and the options."""
    files = {table: found.paths for table, found in plan.tables.items()} | {"hour": plan.hour}
    sources = {
        table: [[str(p.absolute()), p.stat().st_size, p.stat().st_mtime_ns] for p in paths]
        for table, paths in files.items()
    }
    options: dict[str, Any] = asdict(plan.options) | {"period_s": plan.period_s}
    return {"schema_version": SCHEMA_VERSION, "sources": sources, "options": options}


def piece_of(memory_bytes: int) -> int:
    """Bytes of text that a step reads at once: with its columns, a twelfth of the memory."""
    return max(1 << 16, min(memory_bytes // 24, 128 << 20))


def claim(plan: Plan) -> Plan:
    """Make the work folder ours, or go on in it, in the pieces in which the same was begun.

    Where a file has changed since, the work begins anew. A run that stopped at a bad line may go on
    leniently: the pieces that it finished had none.
    """
    mine = fingerprint(plan)
    try:
        plan.work.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TraceError(
            f"{plan.out}: cannot be made ({error.strerror}); choose another --out"
        ) from None
    path = plan.work / "plan.json"
    if path.exists():
        begun = json.loads(path.read_text())
        piece_bytes = begun.pop("piece_bytes")
        begun["options"]["lenient"] |= mine["options"]["lenient"]
        if begun["options"] == mine["options"] and begun["sources"] != mine["sources"]:
            shutil.rmtree(plan.work)
            return claim(plan)
        if begun != mine:
            raise TraceError(
                f"{plan.out}: was begun with {difference(begun, mine)}; finish it with the same, "
                f"choose another --out, or delete {plan.work}"
            )
        return replace(plan, piece_bytes=piece_bytes)
    write_whole(path, json.dumps({**mine, "piece_bytes": plan.piece_bytes}, indent=1))
    return plan


def difference(begun: dict[str, Any], mine: dict[str, Any]) -> str:
    """The first option that differs between two fingerprints, or the first table."""
    old, new = begun.get("options", {}), mine["options"]
    for name in {**old, **new}:
        if old.get(name) != new.get(name):
            return f"{name}={old.get(name)}, now it is {new.get(name)}"
    for table in {**begun.get("sources", {}), **mine["sources"]}:
        if begun.get("sources", {}).get(table) != mine["sources"].get(table):
            return f"other files of {table}, or these have changed since"
    return "another version of trimtab"


def source_bytes(plan: Plan) -> dict[str, int]:
    """Size of each table that was found, to know another trace by."""
    files = {table: found.paths for table, found in plan.tables.items()} | {"hour": plan.hour}
    return {
        table: sum(path.stat().st_size for path in paths)
        for table, paths in files.items()
        if paths and plan.work not in paths[0].parents
    }


def finished(plan: Plan) -> dict[str, Any] | None:
    """The manifest of the same preparation, if it is complete; an error if it is of another."""
    if plan.out.exists() and not plan.out.is_dir():
        raise TraceError(f"{plan.out}: is not a folder; choose another --out")
    manifest, moving = _manifest(plan.out), plan.work / MOVING
    if manifest is None:
        ours = {".work", *(json.loads(moving.read_text()) if moving.exists() else ())}
        if plan.out.exists() and any(path.name not in ours for path in plan.out.iterdir()):
            raise TraceError(
                f"{plan.out}: holds something else; choose an --out that is empty or new"
            )
        return None
    mine: dict[str, Any] = json.loads(json.dumps(fingerprint(plan)))
    if manifest.get("options") != mine["options"]:
        made = f"with {difference(manifest, mine)}"
    elif manifest.get("source_bytes") != source_bytes(plan):
        made = "made from tables of other sizes in bytes"
    else:
        shutil.rmtree(plan.work, ignore_errors=True)  # of a run stopped at the very end
        return manifest
    raise TraceError(f"{plan.out}: is finished already, {made}; choose another --out")


def _manifest(out: Path) -> dict[str, Any] | None:
    """The manifest that a finished preparation wrote, if there is one."""
    try:
        manifest: Any = json.loads((out / "manifest.json").read_text())
    except (OSError, ValueError):
        return None
    ours = isinstance(manifest, dict) and manifest.get("made_by") == MADE_BY
    return manifest if ours else None
