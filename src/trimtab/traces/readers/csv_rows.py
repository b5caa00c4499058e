"""Rows of CSV traces: columns by name, and every row known by its line in the file.

Public traces are dirty. A row that cannot be used is dropped and counted by reason, or refused by
an error that names its line: see `bad_rows.py`.
"""

import csv
import io
import tarfile
from pathlib import Path

import numpy as np

from trimtab.arrays import Array
from trimtab.errors import TraceError
from trimtab.traces.readers.bad_rows import BadRows
from trimtab.traces.readers.packed import as_utf8, read_bytes

TAR_MAGIC, TAR_MAGIC_AT = b"ustar", 257


class Rows:
    """The rows of a table that are still kept; refusing some shortens every column."""

    def __init__(self, path: Path, columns: dict[str, Array], line: Array, lenient: bool | None):
        self.path = path
        self.columns = columns  # (J,) each: text until `parse` makes numbers of it
        self.line = line  # (J,) counted from 1
        self.lenient = lenient
        self.bad = BadRows(path, len(line), lenient)

    @property
    def dropped(self) -> dict[str, int]:
        """Reason: rows that were left out."""
        return self.bad.dropped

    @dropped.setter
    def dropped(self, counts: dict[str, int]) -> None:
        self.bad.dropped = counts

    def __len__(self) -> int:
        return len(self.line)

    def __getitem__(self, name: str) -> Array:
        return self.columns[name]

    def parse(self, *names: str, empty: float | None = None) -> None:
        """Make numbers of columns. An empty field is refused, or becomes `empty` where given."""
        for name in names:
            if empty is None:
                self.refuse(self.columns[name] == "", name, "is missing")
            values = np.array([_number(text, empty) for text in self.columns[name]])
            bad = ~np.isfinite(values)
            self.refuse(bad, name, "is not a finite number")
            self.columns[name] = values[~bad]

    def parse_time(self, name: str) -> None:
        """Make seconds from the earliest row of a column such as `2017-10-09 07:01:33.25`."""
        at = _instants(self.columns[name])
        self.refuse(np.isnat(at), name, "is not a date and time")
        at_ns = at[~np.isnat(at)].astype(np.int64)
        self.columns[name] = (at_ns - at_ns.min()) / 1e9

    def refuse(self, bad: Array, name: str, problem: str) -> None:
        """Drop and count the bad rows, or raise an error that names the first of them."""
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            first = f"{self.path}:{self.line[row]}: {name}={self.columns[name][row]} {problem}"
            self.bad.refuse(int(bad.sum()), f"{name} {problem}", first)
            self._without(bad)

    def pass_over(self, bad: Array, name: str, problem: str) -> None:
        """Drop and count rows that the published log has by custom; a strict read refuses them."""
        if self.bad.strict:
            self.refuse(bad, name, problem)
        elif bad.any():
            self.bad.usual(int(bad.sum()), f"{name} {problem}")
            self._without(bad)

    def _without(self, bad: Array) -> None:
        self.keep(np.flatnonzero(~bad))
        if not len(self):
            raise TraceError(f"{self.path}: all rows were dropped: {self.dropped}; give another")

    def keep(self, rows: Array) -> None:
        """Keep these rows, in this order."""
        self.columns = {name: column[rows] for name, column in self.columns.items()}
        self.line = self.line[rows]


def read_rows(
    path: str | Path,
    names: tuple[str, ...],
    *,
    lenient: bool | None = False,
    header: bool | None = None,
) -> Rows:
    """The rows of a CSV file, packed or alone in a tar, that has these columns in this order.

    With `header` the first line names the columns in any order; without, there is none; None takes
    a first line that begins as `names` do for a header.
    """
    path = Path(path)
    reader = csv.reader(io.StringIO(read_text(path)))
    try:
        table = [(reader.line_num, row) for row in reader if row]
    except csv.Error as error:
        raise TraceError(f"{path}:{reader.line_num}: {error}; fetch the file again") from None
    if not table:
        raise TraceError(f"{path}: the file is empty; give one with a row for each job")
    first = tuple(field.strip() for field in table[0][1])
    if header or (header is None and first[: len(names)] == names):
        for name in names:
            if name not in first:
                raise TraceError(f"{path}:1: column {name} is missing; the file has {first}")
        names, table = first, table[1:]
    if not table:
        raise TraceError(f"{path}: the file has a header and no rows; give at least one")
    return _checked(path, names, table, lenient)


def _checked(
    path: Path, names: tuple[str, ...], table: list[tuple[int, list[str]]], lenient: bool | None
) -> Rows:
    width = len(names)
    short = np.array([len(row) != width for _, row in table], bool)
    line = np.array([number for number, _ in table], np.int64)
    whole = Rows(path, {}, line, lenient)
    if short.any():
        whole.columns["row"] = np.array([",".join(row) for _, row in table], object)
        whole.refuse(short, "row", f"does not have {width} fields")
    fields = zip(*(row for _, row in table if len(row) == width))
    columns = {
        name: np.array([text.strip() for text in column], object)
        for name, column in zip(names, fields)
    }
    made = Rows(path, columns, whole.line, lenient)
    made.bad = whole.bad
    return made


def read_text(path: str | Path) -> str:
    """The content of a file as text."""
    try:
        return as_utf8(content(path)).decode()
    except UnicodeDecodeError as error:
        problem = f"byte {error.start} is not UTF-8"
        raise TraceError(f"{path}: {problem}; give a text file") from None


def content(path: str | Path) -> bytes:
    """The bytes of a file, unpacked, and taken out of the tar that holds it alone."""
    data = read_bytes(path)
    if data[TAR_MAGIC_AT : TAR_MAGIC_AT + len(TAR_MAGIC)] == TAR_MAGIC:
        return _member(data, Path(path))
    return data


def _member(data: bytes, path: Path) -> bytes:
    try:
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            files = [member for member in tar if member.isfile()]
            if len(files) != 1:
                held = ", ".join(member.name for member in files)
                raise TraceError(f"{path}: the tar holds {held or 'nothing'}; give one file in it")
            found = tar.extractfile(files[0])
            return found.read() if found else b""
    except (tarfile.TarError, EOFError) as error:
        raise TraceError(f"{path}: cannot be unpacked ({error}); fetch the file again") from None


def numbered(texts: Array) -> tuple[tuple[str, ...], Array]:
    """The distinct texts in the order of their first row, and each row's number among them."""
    number: dict[str, int] = {}
    rows = np.array([number.setdefault(text, len(number)) for text in texts], np.int64)
    return tuple(number), rows


def _number(text: str, empty: float | None) -> float:
    if text == "" and empty is not None:
        return empty
    try:
        return float(text.replace("_", "x"))  # Python would take 1_000
    except ValueError:
        return np.nan


def _instants(texts: Array) -> Array:
    """(J,) datetime64[ns] of times in UTC or in no named zone; NaT where the text is none."""
    bare = [text.removesuffix("Z").removesuffix("+00:00") for text in texts]
    try:
        return np.array(bare, "datetime64[ns]")
    except ValueError:
        return np.array([_instant(text) for text in bare], "datetime64[ns]")


def _instant(text: str) -> np.datetime64:
    try:
        return np.datetime64(text, "ns")
    except ValueError:
        return np.datetime64("NaT", "ns")
