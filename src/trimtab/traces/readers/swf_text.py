"""The text of a log in the Standard Workload Format: lines, header, table of numbers."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.errors import TraceError
from trimtab.traces.readers.bad_rows import BadRows

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
LABEL = re.compile(r"([A-Z][A-Za-z0-9]*)\s*:(?!//)\s*(.*)")
NUMBER = re.compile(r"\s*(\d[\d,]*)")
NAMED = re.compile(r"\s*(\d+)[\s:.-]+(\[?\w[^\s]*)")  # of a queue or partition: `1  default`
NEWLINE, SPACE, COMMENT = 10, 32, ord(";")


class Lines(NamedTuple):
    """Where the lines of a log lie in its bytes."""

    text: Array  # (bytes,) u1
    start: Array  # (L,) of each line
    end: Array  # (L,)
    token: Array  # (tokens,) where each word begins
    first: Array  # (L + 1,) a line's words are token[first[line]:first[line + 1]]
    rows: Array  # lines that hold a job
    comments: Array  # lines that begin with ;


class Log(NamedTuple):
    """What a log says, row by row as it stands in the file."""

    header: dict[str, str]
    table: Array  # (rows, 18)
    line: Array  # (rows,) counted from 1


def read_log(path: Path, data: bytes, lenient: bool | None) -> tuple[Log, BadRows]:
    """The header and all rows that hold 18 numbers."""
    lines = _split(data)
    bad = BadRows(path, len(lines.rows), lenient)
    table, line = _numbers(lines, path, bad)
    return Log(_header(lines), table, line), bad


def stated(header: Mapping[str, str], label: str) -> int:
    """The first number after a label, 0 when there is none: `338 (batch partition; 512 total)`."""
    found = NUMBER.match(header.get(label, ""))
    return int(found[1].replace(",", "")) if found else 0


def names_of(header: Mapping[str, str], label: str) -> dict[int, str]:
    """Number: name, of the lines `Queue: 1 express` or `Partition: 2 ALL`; the last line counts."""
    found = [NAMED.match(line) for line in header.get(label, "").split("\n")]
    return {int(match[1]): match[2].strip("[]") for match in found if match}


def message(path: Path, line: int, column: int, problem: str) -> str:
    """Where something is wrong, and what."""
    return f"{path}:{line}: {FIELDS[column][1]} (field {column + 1}) = {problem}"


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


def _numbers(lines: Lines, path: Path, bad: BadRows) -> tuple[Array, Array]:
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
    return _numbers_line_by_line(lines, path, bad)


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


def _numbers_line_by_line(lines: Lines, path: Path, bad: BadRows) -> tuple[Array, Array]:
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
        bad.refuse(1, reason, message(path, number + 1, column, problem))
    if not kept:
        raise TraceError(f"{path}: no line holds {WIDTH} numbers; give a log in the format SWF")
    return table[: len(kept)], np.array(kept)


def _number(word: str) -> float | None:
    try:
        value = float(word.replace("_", "x"))  # Python would take 1_000
    except ValueError:
        return None
    return value if np.isfinite(value) else None
