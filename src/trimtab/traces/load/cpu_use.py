"""Read published traces of how busy machines were: PlanetLab, Bitbrains, Alibaba 2018.

A trace is a folder, or one file that packs it (.tar, .tar.gz, .tar.xz, .zip); single files may be
packed too (.gz, .xz, .bz2). What a trace did not measure is NaN, and a gap in it stays a gap.
"""

import re
import tarfile
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from trimtab.arrays import Array
from trimtab.errors import TraceError
from trimtab.load.samples import Samples
from trimtab.traces.readers.packed import read_bytes

MEASURES = ("cpu", "mem", "net_in", "net_out", "disk", "gpu")
STEP_S = 300.0  # between two measurements of PlanetLab and of Bitbrains
DAY_S = 86400.0
DAY_VALUES = int(DAY_S / STEP_S)
DAY = re.compile(r"\d{8}")  # 20110303
MONTH = re.compile(r"\d{4}-\d{1,2}")  # 2013-8
EARLIEST_MS = 1e11  # larger is in milliseconds: as seconds it would be past the year 5000

TASK_COLUMNS = ("id", "submission_time", "cpu_capacity")
FRAGMENT_COLUMNS = ("id", "duration", "cpu_usage")
BITBRAINS_COLUMNS = {  # in the original files, which put a tab after each semicolon
    "time": "Timestamp [ms]",
    "cpu_capacity": "CPU capacity provisioned [MHZ]",
    "cpu": "CPU usage [MHZ]",
    "mem_capacity": "Memory capacity provisioned [KB]",
    "mem": "Memory usage [KB]",
}
ALIBABA_COLUMNS = (
    "machine_id",
    "time_stamp",
    "cpu_util_percent",
    "mem_util_percent",
    "mem_gps",
    "mkpi",
    "net_in",
    "net_out",
    "disk_io_percent",
)
ALIBABA_MEASURES = {
    "cpu": "cpu_util_percent",
    "mem": "mem_util_percent",
    "net_in": "net_in",
    "net_out": "net_out",
    "disk": "disk_io_percent",
}


def read_planetlab(path: str | Path) -> Samples:
    """CPU of PlanetLab's virtual machines: a folder a day, a file a machine, 288 percents a file.

    Folders named by a date (20110303) give Unix time, other folders follow each other by name. A
    machine seen on several days is one machine, with a gap where days between are missing.
    """
    path = Path(path)
    files = [(_day_and_machine(name, path), name, data) for name, data in members(path)]
    if any(day for (day, _), _, _ in files):  # beside day folders lie only notes on the trace
        files = [file for file in files if file[0][0]]
    if not files:
        raise TraceError(f"{path}: holds no files; give a folder of days, each a file a machine")
    start_s = _day_starts({day for (day, _), _, _ in files})
    names = sorted({machine for (_, machine), _, _ in files})
    row = {name: node for node, name in enumerate(names)}
    cpu = np.stack([_percents(path, name, data) for _, name, data in files]) / 100
    begin_s = np.array([start_s[day] for (day, _), _, _ in files])
    return of_measures(
        (begin_s[:, None] + STEP_S * np.arange(DAY_VALUES)).ravel(),
        np.repeat([row[machine] for (_, machine), _, _ in files], DAY_VALUES),
        {"cpu": cpu.ravel()},
        names,
        f"PlanetLab: {path.name}",
    )


def read_bitbrains(path: str | Path) -> Samples:
    """Load of Bitbrains' virtual machines, in Unix time, as published or as OpenDC converts it.

    As published (GWA-T-12): a CSV file a machine, with CPU and memory. OpenDC: Parquet files
    `fragments` and `tasks` (give either, or their folder), CPU only. CPU above the capacity, which
    turbo clocks reach, counts as full.
    """
    path = Path(path)
    if path.is_dir() and sorted(path.glob("*fragments.parquet")):
        path = sorted(path.glob("*fragments.parquet"))[0]
    if path.suffix == ".parquet":
        return _read_opendc(path)
    by_machine: dict[str, list[tuple[str, bytes]]] = {}
    for name, data in members(path):
        if ".csv" in name:
            by_machine.setdefault(_machine_of_csv(name), []).append((name, data))
    if not by_machine:
        raise TraceError(f"{path}: holds no .csv files; give a folder with a file a machine")
    time_s, node, cpu, mem = [], [], [], []
    for row, files in enumerate(by_machine.values()):
        for name, data in files:
            table = _bitbrains_csv(data, path, name)
            time_s.append(np.where(table["time"] > EARLIEST_MS, 1e-3, 1.0) * table["time"])
            node.append(np.full(len(time_s[-1]), row))
            cpu.append(share(table["cpu"], table["cpu_capacity"]))
            mem.append(share(table["mem"], table["mem_capacity"]))
    return of_measures(
        np.concatenate(time_s),
        np.concatenate(node),
        {"cpu": np.concatenate(cpu), "mem": np.concatenate(mem)},
        list(by_machine),
        f"Bitbrains: {path.name}",
    )


def read_machine_usage(path: str | Path) -> Samples:
    """Load of Alibaba's machines (machine_usage of 2018), in seconds from the start of the trace.

    Percents outside 0..100 are the trace's marks for broken readings (-1 and 101) and become NaN.
    Rows without a machine or a time measure nothing; `source` says how many were dropped.
    """
    path = Path(path)
    data = next(members(path), ("", b""))[1]
    table = csv_table(
        data,
        f"{path}",
        ",",
        {"machine_id": pa.string()} | dict.fromkeys(ALIBABA_COLUMNS[1:], pa.float64()),
        column_names=ALIBABA_COLUMNS,
        skip_rows=int(data.startswith(b"machine_id")),  # some copies have a header
    )
    machine = table["machine_id"].combine_chunks().dictionary_encode()
    time_s = floats(table, "time_stamp")
    node = machine.indices.to_numpy()
    names = machine.dictionary.to_pylist()
    kept = np.isfinite(time_s) & ~np.isin(node, [row for row, name in enumerate(names) if not name])
    if not kept.any():
        raise TraceError(f"{path}: has no row with a machine_id and a time_stamp; give such rows")
    measured = {name: floats(table, column) for name, column in ALIBABA_MEASURES.items()}
    for percent in measured.values():
        percent[(percent < 0) | (percent > 100)] = np.nan
    used, node = np.unique(node[kept], return_inverse=True)
    dropped = len(kept) - int(kept.sum())
    return of_measures(
        time_s[kept],
        node,
        {name: percent[kept] / 100 for name, percent in measured.items()},
        [names[row] for row in used],
        f"Alibaba 2018: {path.name}"
        + (f" ({dropped} rows without machine or time dropped)" if dropped else ""),
    )


def of_measures(
    time_s: Array, node: Array, measured: dict[str, Array], names: list[str], source: str
) -> Samples:
    """Samples with NaN for what is not in `measured`."""
    columns = {
        name: measured[name] if name in measured else np.full(len(time_s), np.nan)
        for name in MEASURES
    }
    node = np.asarray(node, np.int64)
    return Samples(time_s, node, **columns, names=tuple(names), source=source)


def share(used: Array, capacity: Array) -> Array:
    """Used / capacity within 0..1; NaN where either is missing, negative, or the capacity is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where((capacity > 0) & (used >= 0), used / capacity, np.nan)
    return np.minimum(ratio, 1.0)


def members(path: Path) -> Iterator[tuple[str, bytes]]:
    """Name and unpacked content of each file: of a folder or archive by name, or the file itself.

    Hidden files, such as an editor's or a version control's, are left out.
    """
    if path.is_dir():
        for file in sorted(path.rglob("*")):
            name = file.relative_to(path).as_posix()
            if file.is_file() and not _hidden(name):
                yield name, read_bytes(file)
        return
    if not path.is_file():
        raise TraceError(f"{path}: is not there; give the path of a trace")
    try:
        if zipfile.is_zipfile(path):
            yield from _zip_members(path)
        elif tarfile.is_tarfile(path):
            yield from _tar_members(path)
        else:
            yield path.name, read_bytes(path)
    except (tarfile.TarError, zipfile.BadZipFile, OSError, EOFError) as error:
        problem = f"cannot be unpacked ({error})"
        raise TraceError(f"{path}: {problem}; fetch the file again") from None


def _zip_members(path: Path) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(path) as packed:
        for name in sorted(packed.namelist()):
            if not name.endswith("/") and not _hidden(name):
                yield name, packed.read(name)


def _tar_members(path: Path) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(path) as packed:
        for entry in packed:  # in the file's order: seeking back would unpack it again
            file = packed.extractfile(entry) if entry.isfile() else None
            name = entry.name.removeprefix("./")
            if file is not None and not _hidden(name):
                yield name, file.read()


def _hidden(name: str) -> bool:
    return any(part.startswith((".", "__MACOSX")) for part in name.split("/"))


def _day_and_machine(name: str, path: Path) -> tuple[str, str]:
    """Folder and file of a member; without a folder, the trace's own name where that is a date."""
    day, _, machine = name.rpartition("/")
    if not day and DAY.fullmatch(path.name):
        day = path.name
    return day.rpartition("/")[2], machine


def _day_starts(days: set[str]) -> dict[str, float]:
    try:
        return {
            day: datetime.strptime(day, "%Y%m%d").replace(tzinfo=UTC).timestamp() for day in days
        }
    except ValueError:
        return {day: DAY_S * number for number, day in enumerate(sorted(days))}


def _percents(path: Path, name: str, data: bytes) -> Array:
    """(288,) of one PlanetLab file."""
    words = data.split()
    where = path if name == path.name else path / name
    if len(words) != DAY_VALUES:
        raise TraceError(
            f"{where}: has {len(words)} values, not the {DAY_VALUES} of a day at {STEP_S:g} s; "
            f"take the file out of the folder or complete it"
        )
    try:
        percents = np.array(words, np.int64)
    except ValueError:
        percents = np.full(DAY_VALUES, -1)
    if percents.min() < 0 or percents.max() > 100:
        line = next(i for i, word in enumerate(words) if not _is_percent(word))
        value = words[line].decode("latin-1")
        raise TraceError(
            f"{where}:{line + 1}: {value!r} is not a whole percent, 0..100; correct it or take "
            f"the file out"
        )
    return percents


def _is_percent(word: bytes) -> bool:
    return word.isdigit() and int(word) <= 100


def _machine_of_csv(name: str) -> str:
    """fastStorage/2013-8/17.csv is machine fastStorage/17: months of one machine continue."""
    parts = [part for part in name.split("/") if not MONTH.fullmatch(part)]
    return "/".join(parts).partition(".csv")[0]


def _bitbrains_csv(data: bytes, path: Path, name: str) -> dict[str, Array]:
    where = f"{path}" if name == path.name else f"{path / name}"
    types = dict.fromkeys(BITBRAINS_COLUMNS.values(), pa.float64())
    # a quick way to strip: the tabs stand only beside the semicolons
    table = csv_table(data.replace(b"\t", b""), where, ";", types)
    for column in BITBRAINS_COLUMNS.values():
        if column not in table.column_names:
            raise TraceError(
                f"{where}:1: column {column!r} is missing; give the files of GWA-T-12 as published"
            )
    return {key: floats(table, column) for key, column in BITBRAINS_COLUMNS.items()}


def _read_opendc(path: Path) -> Samples:
    """A fragment is a run of like measurements, and each stands at the end of its 300 s.

    The conversion leaves gaps out and stores no times, so those after a gap are early by its
    length: by 2.4 hours at most after the 30 days of bitbrains-small.
    """
    tasks = _parquet(path, "tasks", TASK_COLUMNS)
    fragments = _parquet(path, "fragments", FRAGMENT_COLUMNS)
    vm, node = np.unique(_texts(fragments, "id"), return_inverse=True)
    task_id = _texts(tasks, "id")
    order = np.argsort(task_id, kind="stable")
    missing = vm[~np.isin(vm, task_id)]
    if len(missing):
        raise TraceError(
            f"{path}: id={missing[0]} has fragments and no task; give both files of one trace"
        )
    task = order[np.searchsorted(task_id, vm, sorter=order)][node]
    runs = np.argsort(node, kind="stable")  # by machine, each in the file's order
    node, task = node[runs], task[runs]
    duration_s = floats(fragments, "duration")[runs] / 1000
    elapsed_s = np.cumsum(duration_s) - duration_s
    first = np.flatnonzero(np.diff(node, prepend=-1))
    elapsed_s -= elapsed_s[first][node]
    begin_s = floats(tasks, "submission_time")[task] / 1000 + elapsed_s
    cpu = share(floats(fragments, "cpu_usage")[runs], floats(tasks, "cpu_capacity")[task])
    steps = np.maximum(1, np.rint(duration_s / STEP_S)).astype(np.int64)
    step = np.arange(steps.sum()) - np.repeat(np.cumsum(steps) - steps, steps)
    return of_measures(
        np.repeat(begin_s, steps) + (step + 1) * STEP_S,
        np.repeat(node, steps),
        {"cpu": np.repeat(cpu, steps)},
        vm.tolist(),
        f"Bitbrains: {path.name}",
    )


def _parquet(path: Path, role: str, needed: tuple[str, ...]) -> pa.Table:
    """The file of the pair that `path` is or stands beside."""
    other = {"tasks": "fragments", "fragments": "tasks"}[role]
    file = path.with_name(path.name.replace(other, role))
    try:
        table = pq.read_table(file)
    except (OSError, pa.ArrowException) as error:
        problem = f"cannot be read as Parquet ({error})"
        remedy = f"give OpenDC's pair, whose names differ in {other} and {role}"
        raise TraceError(f"{file}: {problem}; {remedy}") from None
    for name in needed:
        if name not in table.column_names:
            raise TraceError(
                f"{file}: column {name!r} is missing; {role} of OpenDC have {', '.join(needed)}"
            )
    return table


def csv_table(
    data: bytes, where: str, delimiter: str, types: dict[str, pa.DataType], **rows: Any
) -> pa.Table:
    try:
        return pa.csv.read_csv(
            pa.BufferReader(data),
            # one thread, so that a refusal names the row
            read_options=pa.csv.ReadOptions(use_threads=False, **rows),
            parse_options=pa.csv.ParseOptions(delimiter=delimiter),
            convert_options=pa.csv.ConvertOptions(column_types=types),
        )
    except pa.ArrowException as error:
        raise TraceError(f"{where}: {error}; correct or drop the row") from None


def floats(table: pa.Table, name: str) -> Array:
    """A column with NaN where it is empty."""
    return table[name].cast(pa.float64()).to_numpy().copy()


def _texts(table: pa.Table, name: str) -> Array:
    return table[name].cast(pa.string()).to_numpy().astype(np.str_)
