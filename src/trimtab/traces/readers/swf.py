"""Read logs in the Standard Workload Format of the Parallel Workloads Archive.

A job takes whole nodes, and all nodes of such a machine are alike: one pool of interchangeable
`node` units is exact, and a job is one instance that takes some of them.

The row rules are those of RLScheduler (SC 2020), so that results compare: rows in the order of
their job number; run time 0 dropped, negative becomes 10 s; processors = the larger of allocated
and requested; requested time -1 becomes the run time; nodes = processors / (MaxProcs / MaxNodes),
rounded up. Differs: a row that lacks both times asks for the 10 s it runs, not for -1 s.
"""

import bz2
import gzip
import lzma
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.build import cluster, workload
from trimtab.core import Cluster, Workload
from trimtab.errors import TraceError

FIELDS = (  # (name in meta["swf"], what the format calls it)
    ("job_number", "job number"),
    ("submit_s", "submit time"),
    ("wait_s", "wait time"),
    ("run_s", "run time"),
    ("procs_allocated", "allocated processors"),
    ("cpu_s", "average CPU time used"),
    ("mem_kb", "used memory"),
    ("procs_requested", "requested processors"),
    ("request_s", "requested time"),
    ("mem_requested_kb", "requested memory"),
    ("status", "status"),
    ("user", "user"),
    ("group", "group"),
    ("executable", "executable"),
    ("queue", "queue"),
    ("partition", "partition"),
    ("preceding_job", "preceding job"),
    ("think_s", "think time"),
)
WIDTH = len(FIELDS)
COLUMN = {name: column for column, (name, _) in enumerate(FIELDS)}
NUMBERS_OF = (
    "job_number",
    "status",
    "user",
    "group",
    "executable",
    "queue",
    "partition",
    "preceding_job",
)
SCHEDULED_BY = {"submit_s", "request_s"}  # columns of the workload itself; the rest goes to meta
UNKNOWN_RUN_S = 10.0  # stands in for a negative run time
PARTIAL = (2, 3, 4)  # status of the pieces of a job that was swapped out; one more line sums them
REMEDY = "mend or drop the line, or read with lenient=True (--lenient)"

UNPACK: dict[bytes, Callable[[bytes], bytes]] = {
    b"\x1f\x8b": gzip.decompress,
    b"\xfd7zXZ\x00": lzma.decompress,
    b"BZh": bz2.decompress,
}
LABEL = re.compile(r"([A-Z][A-Za-z0-9]*)\s*:(?!//)\s*(.*)")
NUMBER = re.compile(r"\s*(\d[\d,]*)")
NEWLINE, SPACE, COMMENT = 10, 32, ord(";")


class Machine(NamedTuple):
    nodes: int
    procs: int
    told: str  # where the two numbers come from


class Lines(NamedTuple):
    """Where the lines of a log lie in its bytes."""

    text: Array  # (bytes,) u1
    start: Array  # (L,) of each line
    end: Array  # (L,)
    token: Array  # (tokens,) where each word begins
    first: Array  # (L + 1,) a line's words are token[first[line]:first[line + 1]]
    rows: Array  # lines that hold a job
    comments: Array  # lines that begin with ;


def read_swf(path: str | Path, *, lenient: bool = False) -> Workload:
    """Jobs of a log (plain, .gz, .xz or .bz2) that ask for whole nodes of its machine.

    `meta` holds: `header` (label: text), `swf` (the columns that nothing is scheduled by), `procs`,
    `max_procs`, `max_nodes`, `machine` (where those come from) and `dropped` (reason: rows). A bad
    line raises TraceError; with `lenient` it is dropped and counted, and late rows are sorted.
    """
    path = Path(path)
    lines = _split(read_bytes(path))
    header = _header(lines)
    dropped: dict[str, int] = {}
    table, line = _numbers(lines, path, lenient, dropped)
    table, line = _kept(table, line, path, lenient, dropped)
    machine = _machine(header, _processors(table))
    table, line = _within(machine, table, line, path, lenient, dropped)
    table = table[_order(table, line, path, lenient, dropped)]
    return _workload(path, table, machine, header, dropped)


def swf_cluster(work: Workload) -> Cluster:
    """The machine of a workload that `read_swf` made, without reading the file again."""
    meta = work.meta
    if "max_nodes" not in meta:
        raise TraceError(
            f"{work.source}: meta lacks max_nodes; only a workload from read_swf names its machine"
        )
    machine = Machine(meta["max_nodes"], meta["max_procs"], meta["machine"])
    return _pool(machine, meta["file"])


def read_bytes(path: str | Path) -> bytes:
    """The content of a file, unpacked when its first bytes say gzip, xz or bzip2."""
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        problem = f"cannot be read ({error.strerror}); give the path of a trace file"
        raise TraceError(f"{path}: {problem}") from None
    for magic, unpack in UNPACK.items():
        if data.startswith(magic):
            try:
                return unpack(data)
            except (OSError, EOFError, ValueError, lzma.LZMAError, zlib.error) as error:
                problem = f"cannot be unpacked ({error}); fetch the file again"
                raise TraceError(f"{path}: {problem}") from None
    return data


def _split(data: bytes) -> Lines:
    text = np.frombuffer(data, np.uint8)
    end = np.flatnonzero(text == NEWLINE)
    if len(text) and (not len(end) or end[-1] != len(text) - 1):
        end = np.append(end, len(text))
    start = np.concatenate(([0], end[:-1] + 1)) if len(end) else end
    space = text <= SPACE
    begins = ~space
    begins[1:] &= space[:-1]
    token = np.flatnonzero(begins)
    first = np.searchsorted(token, np.append(start, len(text)))
    held = np.flatnonzero(np.diff(first) > 0)
    comment = text[token[first[held]]] == COMMENT
    return Lines(text, start, end, token, first, held[~comment], held[comment])


def _line(lines: Lines, number: int) -> str:
    return lines.text[lines.start[number] : lines.end[number]].tobytes().decode("latin-1")


def _header(lines: Lines) -> dict[str, str]:
    """Labels of the comments; a line without one continues the one above, a repeat adds a line."""
    header: dict[str, str] = {}
    label = ""
    for number in lines.comments:
        text = _line(lines, number).strip().lstrip(";").strip()
        found = LABEL.match(text)
        if found:
            label, text = found.groups()
        if label and (text or found):
            header[label] = f"{header[label]}\n{text}" if label in header else text
    return header


def _numbers(
    lines: Lines, path: Path, lenient: bool, dropped: dict[str, int]
) -> tuple[Array, Array]:
    """(rows, 18) numbers and the line, counted from 1, that each row stands on."""
    if not len(lines.rows):
        raise TraceError(f"{path}: the log holds no jobs; give a log with a line for each job")
    words = lines.first[lines.rows + 1] - lines.first[lines.rows]
    if (words >= WIDTH).all():
        try:
            flat = np.fromstring(_without_extras(lines, words), sep=" ")
        except ValueError:
            flat = np.zeros(0)
        if flat.size == len(lines.rows) * WIDTH and np.isfinite(flat).all():
            return flat.reshape(-1, WIDTH), lines.rows + 1
    return _numbers_line_by_line(lines, path, lenient, dropped)


def _without_extras(lines: Lines, words: Array) -> bytes:
    """The rows' text with comments among them, and words past the 18th, blanked."""
    long = lines.rows[words > WIDTH]
    begin = int(lines.start[lines.rows[0]])
    if not len(long) and (not len(lines.comments) or lines.comments[-1] < lines.rows[0]):
        return lines.text[begin:].tobytes()
    begins = np.concatenate((lines.start[lines.comments], lines.token[lines.first[long] + WIDTH]))
    ends = np.concatenate((lines.end[lines.comments], lines.end[long]))
    edge = np.zeros(len(lines.text) + 1, np.int8)
    edge[begins] += 1
    edge[ends] -= 1
    text = lines.text.copy()
    text[np.cumsum(edge[:-1], dtype=np.int8) > 0] = SPACE
    return text.tobytes()


def _numbers_line_by_line(
    lines: Lines, path: Path, lenient: bool, dropped: dict[str, int]
) -> tuple[Array, Array]:
    """As `_numbers`, slowly: it names the first bad line, or drops and counts the bad ones."""
    table = np.empty((len(lines.rows), WIDTH))
    kept: list[int] = []
    for number in lines.rows:
        words = _line(lines, number).split()
        values = [_number(word) for word in words[:WIDTH]]
        if len(words) < WIDTH:
            reason, column = "too few fields", len(words)
            problem = f"missing: the line has {len(words)} of {WIDTH} fields, {' '.join(words)!r}"
        elif None in values:
            reason, column = "not a number", values.index(None)
            problem = f"{words[column]!r} is not a finite number"
        else:
            table[len(kept)] = values
            kept.append(number + 1)
            continue
        if not lenient:
            raise TraceError(_message(path, number + 1, column, problem))
        dropped[reason] = dropped.get(reason, 0) + 1
    if not kept:
        raise TraceError(f"{path}: no line holds {WIDTH} numbers; give a log in the format SWF")
    return table[: len(kept)], np.array(kept)


def _number(word: str) -> float | None:
    try:
        value = float(word.replace("_", "x"))  # Python would take 1_000
    except ValueError:
        return None
    return value if np.isfinite(value) else None


def _kept(
    table: Array, line: Array, path: Path, lenient: bool, dropped: dict[str, int]
) -> tuple[Array, Array]:
    """Rows that can be scheduled. What the archive holds by custom is dropped also when strict."""

    def drop(bad: Array, reason: str) -> None:
        nonlocal table, line
        if bad.any():
            dropped[reason] = int(bad.sum())
            table, line = table[~bad], line[~bad]

    def refuse(bad: Array, reason: str, column: int, values: Array, problem: str) -> None:
        if bad.any() and not lenient:
            row = int(np.flatnonzero(bad)[0])
            raise TraceError(_message(path, line[row], column, f"{values[row]:.10g} {problem}"))
        drop(bad, reason)

    number = table[:, COLUMN["job_number"]]
    repeat = np.ones(len(table), bool)
    repeat[np.unique(number, return_index=True)[1]] = False
    if repeat.any():
        partial = repeat & np.isin(table[:, COLUMN["status"]], PARTIAL)
        repeat = repeat[~partial]
        drop(partial, "part of a job that was swapped out")
        refuse(repeat, "job number twice", 0, table[:, 0], "stands on an earlier line too")
    drop(table[:, COLUMN["run_s"]] == 0, "run time 0")
    submit = table[:, COLUMN["submit_s"]]
    refuse(submit < 0, "negative submit time", COLUMN["submit_s"], submit, "is negative")
    procs = _processors(table)
    column = COLUMN["procs_requested"]
    refuse(procs <= 0, "no processors", column, procs, "is not positive, nor are those allocated")
    if not len(table):
        raise TraceError(f"{path}: all jobs were dropped: {dropped}; give another log")
    return table, line


def _within(
    machine: Machine, table: Array, line: Array, path: Path, lenient: bool, dropped: dict[str, int]
) -> tuple[Array, Array]:
    """Rows that an empty machine can run."""
    procs = _processors(table)
    large = _nodes(procs, machine) > machine.nodes
    if large.any() and not lenient:
        row = int(np.flatnonzero(large)[0])
        asks = table[row, COLUMN["procs_requested"]] == procs[row]
        column = COLUMN["procs_requested" if asks else "procs_allocated"]
        problem = f"{procs[row]:g} is more than the machine's {machine.procs}"
        remedy = f"correct MaxNodes and MaxProcs in the header, {REMEDY}"
        raise TraceError(_message(path, line[row], column, problem, remedy))
    if large.any():
        dropped["asks more than the machine has"] = int(large.sum())
    if large.all():
        raise TraceError(f"{path}: all jobs were dropped: {dropped}; give another log")
    return table[~large], line[~large]


def _order(table: Array, line: Array, path: Path, lenient: bool, dropped: dict[str, int]) -> Array:
    order = np.argsort(table[:, COLUMN["job_number"]], kind="stable")
    submit = table[order, COLUMN["submit_s"]]
    late = np.flatnonzero(np.diff(submit) < 0)
    if not len(late):
        return order
    if not lenient:
        row = int(late[0]) + 1
        problem = f"{submit[row]:.10g} is before {submit[row - 1]:.10g} of the job number above it"
        raise TraceError(_message(path, line[order[row]], COLUMN["submit_s"], problem))
    dropped["submit time out of order (sorted, not dropped)"] = len(late)
    return order[np.argsort(submit, kind="stable")]


def _processors(table: Array) -> Array:
    return np.maximum(table[:, COLUMN["procs_allocated"]], table[:, COLUMN["procs_requested"]])


def _nodes(procs: Array, machine: Machine) -> Array:
    # one division of exact products: dividing by MaxProcs / MaxNodes could round a whole number up
    return np.ceil(procs * machine.nodes / machine.procs)


def _stated(header: dict[str, str], label: str) -> int:
    """The first number after a label, 0 when there is none: `338 (batch partition; 512 total)`."""
    found = NUMBER.match(header.get(label, ""))
    return int(found[1].replace(",", "")) if found else 0


def _machine(header: dict[str, str], procs: Array) -> Machine:
    nodes, most = _stated(header, "MaxNodes"), _stated(header, "MaxProcs")
    if nodes and most:
        return Machine(nodes, most, "MaxNodes and MaxProcs of the header")
    if nodes or most:
        told = "MaxNodes" if nodes else "MaxProcs"
        return Machine(nodes or most, nodes or most, f"{told} of the header, one processor a node")
    largest = int(np.ceil(procs.max()))
    told = f"the header has no MaxNodes or MaxProcs: {largest} is the most a job asks for"
    return Machine(largest, largest, told)


def _pool(machine: Machine, source: str) -> Cluster:
    return cluster(
        [[machine.nodes]],
        resources=("node",),
        kinds=("pool",),
        names=["pool"],
        source=f"{source}: {machine.nodes} nodes, {machine.procs} processors ({machine.told})",
    )


def _workload(
    path: Path,
    table: Array,
    machine: Machine,
    header: dict[str, str],
    dropped: dict[str, int],
) -> Workload:
    procs = _processors(table)
    run_s = table[:, COLUMN["run_s"]]
    work_s = np.where(run_s < 0, UNKNOWN_RUN_S, run_s)
    request_s = table[:, COLUMN["request_s"]]
    columns: dict[str, Any] = {
        name: table[:, column].astype(np.int64) if name in NUMBERS_OF else table[:, column].copy()
        for name, column in COLUMN.items()
        if name not in SCHEDULED_BY
    }
    users, tenant = np.unique(columns["user"], return_inverse=True)
    known = _stated(header, "MaxNodes") or _stated(header, "MaxProcs")
    return workload(
        table[:, COLUMN["submit_s"]],
        work_s,
        _nodes(procs, machine),
        resources=("node",),
        request_s=np.where(request_s < 0, work_s, request_s),
        tenant=tenant,
        tenants=[str(user) if user >= 0 else "unknown" for user in users],
        job_id=columns["job_number"].astype(str),
        source=path.name if known else f"{path.name} ({machine.told})",
        meta={
            "file": path.name,
            "header": header,
            "swf": columns,
            "procs": procs,
            # RLScheduler fills a missing request before it mends the run time, so -1 may stay
            "request_logged_s": np.where(request_s < 0, run_s, request_s),
            "max_procs": machine.procs,
            "max_nodes": machine.nodes,
            "machine": machine.told,
            "dropped": dropped,
        },
    )


def _message(path: Path, line: int, column: int, problem: str, remedy: str = REMEDY) -> str:
    return f"{path}:{line}: {FIELDS[column][1]} (field {column + 1}) = {problem}; {remedy}"
