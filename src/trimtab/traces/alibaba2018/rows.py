"""Rows of a table as Arrow, a bounded piece at a time: CSV, packed CSV, tar archives, Parquet."""

import bz2
import gzip
import lzma
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq

from trimtab.errors import TraceError
from trimtab.traces.alibaba2018.source import TableFiles
from trimtab.traces.alibaba2018.tables import NUMBER, TABLES, looks_like

# What they open has read1, which IO[bytes] lacks.
OPENERS: dict[str, Callable[..., Any]] = {
    ".gz": gzip.open,
    ".xz": lzma.open,
    ".bz2": bz2.open,
}
READ_BYTES = 1 << 20  # at most at once, so that damage is found where it is
ROW_BYTES = 64  # of a row as text, about
LONGEST = 1 << 16  # bytes of a line that may be a header


class Piece(NamedTuple):
    """A part of a table that is read, cleaned and routed at once."""

    table: str
    path: Path
    number: int  # within the table
    first: int  # byte of a plain file, line of a stream, row of a Parquet file
    last: int  # one past it; -1 = as far as the text goes
    header: tuple[str, ...] = ()  # of the first line of its file, where that names the columns
    text: bytes | None = None  # of a stream, which cannot be entered in the middle

    @property
    def name(self) -> str:
        return f"{self.table}-{self.number:05d}"


def is_stream(path: Path) -> bool:
    return path.suffix in OPENERS or tarfile.is_tarfile(path)


def pieces(
    table: str, found: TableFiles, piece_bytes: int, done: frozenset[str]
) -> Iterator[Piece]:
    """The pieces of a table in order, without those already done.

    Pieces of plain files are named before anything is read, so that any machine may take any; those
    of a stream carry their text.
    """
    number = 0
    for path in found.paths:
        header: tuple[str, ...] = ()
        if path.suffix == ".parquet":
            parts = _row_ranges(path, piece_bytes)
        elif is_stream(path):
            lines = 0
            for text in _stream(path, found.member, piece_bytes):
                header = header if lines else header_of(table, text)
                piece = Piece(table, path, number, lines, -1, header, text)
                number, lines = number + 1, lines + text.count(b"\n")
                if piece.name not in done:
                    yield piece
            continue
        else:
            size = path.stat().st_size
            if not size and len(found.paths) == 1:  # of several parts some may be
                raise TraceError(f"{path}: is empty; download it again")
            parts = [(at, min(at + piece_bytes, size)) for at in range(0, size, piece_bytes)]
            with path.open("rb") as file:
                header = header_of(table, file.readline(LONGEST))
        for first, last in parts:
            piece = Piece(table, path, number, first, last, header)
            number += 1
            if piece.name not in done:
                yield piece


def fields_of(text: bytes) -> list[str]:
    """The cells of the first line."""
    return text.partition(b"\n")[0].decode("utf-8", "replace").rstrip("\r").split(",")


def header_of(table: str, text: bytes) -> tuple[str, ...]:
    """The names in the first line, or none where it is a row."""
    first = fields_of(text)
    names = tuple(name.strip().strip('"') for name in first)
    return names if set(names) & set(TABLES[table].columns) and not looks_like(first) else ()


def text_rows(piece: Piece, lenient: bool) -> tuple[pa.Table, int]:
    """The official columns of a piece of text, and how many lines of a wrong width it left out."""
    text = piece.text if piece.text is not None else _lines_between(piece)
    return parse(text, piece, lenient)


def parquet_rows(table: str, path: Path, first: int = 0, last: int | None = None) -> str:
    """SQL for the official columns of rows of a Parquet file, and their `number` in it."""
    columns = TABLES[table].columns
    with readable(path), pq.ParquetFile(path) as file:
        held = {field.name: field.type for field in file.schema_arrow}
    if not set(held) & set(columns):
        raise _no_columns(table, path, sorted(held))
    chosen = []
    for name, kind in columns.items():
        if kind == NUMBER and pa.types.is_temporal(held.get(name, pa.null())):
            raise TraceError(
                f"{path}: {name} has type {held[name]}, not a number; make it whole seconds from "
                f"the start of the trace"
            )
        sql_type = "DOUBLE" if kind == NUMBER else "VARCHAR"
        chosen.append(f"try_cast({name if name in held else 'NULL'} AS {sql_type}) AS {name}")
    where = "" if last is None else f"WHERE file_row_number >= {first} AND file_row_number < {last}"
    quoted = str(path).replace("'", "''")
    return (
        f"SELECT {', '.join(chosen)}, file_row_number AS number "
        f"FROM read_parquet('{quoted}', file_row_number = true) {where}"
    )


def parse(text: bytes, piece: Piece, lenient: bool) -> tuple[pa.Table, int]:
    """Columns of a block of whole lines."""
    columns = TABLES[piece.table].columns
    names = list(piece.header or columns)
    if piece.first == 0 and piece.header:  # of its file
        text = text.partition(b"\n")[2]
    elif piece.first == 0:
        _check_first(fields_of(text), piece, lenient)
    skipped = 0

    def skip(row: arrow_csv.InvalidRow) -> str:
        nonlocal skipped
        skipped += 1
        return "skip" if lenient else "error"

    if not text[:LONGEST].strip() and not text.strip():
        none = pa.table({name: pa.array([], pa.string()) for name in names})
        return _typed(none, columns, piece), 0
    read = arrow_csv.ReadOptions(column_names=names, block_size=8 << 20)
    how = arrow_csv.ParseOptions(invalid_row_handler=skip, quote_char=False)
    types = {n: pa.float64() if columns.get(n) == NUMBER else pa.string() for n in names}
    for wanted in (types, dict.fromkeys(types, pa.string())):  # text where a number is unreadable
        convert = arrow_csv.ConvertOptions(
            column_types=wanted, null_values=["", "NULL", "null", "nan", "NaN"],
            strings_can_be_null=True,
        )  # fmt: skip
        skipped = 0
        try:
            table = arrow_csv.read_csv(pa.BufferReader(text), read, how, convert)
            return _typed(table, columns, piece), skipped
        except pa.ArrowInvalid as error:
            if "Expected" in str(error) and "columns" in str(error):
                raise _wrong_width(text, len(names), piece) from None
            if wanted is not types:
                raise TraceError(f"{piece.path}: {error}; mend it, or download it again") from None
    raise AssertionError("unreachable: the second reading takes everything as text")


def _typed(table: pa.Table, columns: dict[str, str], piece: Piece) -> pa.Table:
    """Every official column, in order and of its type; absent ones are null."""
    if not set(table.column_names) & set(columns):
        raise _no_columns(piece.table, piece.path, table.column_names)
    made = {}
    for name, kind in columns.items():
        if name in table.column_names:
            column = table[name]
            made[name] = column if kind != NUMBER else _numbers(column)
        else:
            made[name] = pa.nulls(table.num_rows, pa.float64() if kind == NUMBER else pa.string())
    return pa.table(made)


def _numbers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Text that holds numbers as numbers; null where it holds none."""
    if not pa.types.is_string(column.type):
        return column
    number = pc.match_substring_regex(column, r"^\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*$")
    clean = pc.if_else(number, pc.utf8_trim_whitespace(column), pa.scalar(None, pa.string()))
    return pc.cast(clean, pa.float64())


def _no_columns(table: str, path: Path, held: list[str]) -> TraceError:
    return TraceError(
        f"{path}: none of the columns of {table} is there; it has {', '.join(held)}; name another "
        f"file with --table {table}=FILE"
    )


def _check_first(fields: list[str], piece: Piece, lenient: bool) -> None:
    """Refuse a file whose first line comes from another table."""
    fitting = looks_like(fields)
    if piece.table in fitting:
        return
    width = len(TABLES[piece.table].columns)
    if fitting:
        raise TraceError(
            f"{piece.path}:1: holds {' or '.join(fitting)}, not {piece.table}: first line "
            f"{','.join(fields)[:80]!r}; rename the file, or name the right one with "
            f"--table {piece.table}=FILE"
        )
    if len(fields) != width and any(fields) and not lenient:
        raise TraceError(
            f"{piece.path}:1: has {len(fields)} columns, {piece.table} has {width}; first line "
            f"{','.join(fields)[:80]!r}; download it again, name another file with --table, or "
            f"drop such lines with --lenient"
        )


def _wrong_width(text: bytes, width: int, piece: Piece) -> TraceError:
    for n, line in enumerate(text.split(b"\n")):
        if line.strip() and line.count(b",") != width - 1:
            where = n + 1 + lines_before(piece)
            shown = line[:80].decode("utf-8", "replace")
            return TraceError(
                f"{piece.path}:{where}: has {line.count(b',') + 1} columns, {piece.table} has "
                f"{width}: {shown!r}; mend the line, download the file again, or drop such lines "
                f"with --lenient"
            )
    return TraceError(f"{piece.path}: a line is not CSV; mend it or use --lenient")


def lines_before(piece: Piece) -> int:
    """Lines of the file above the rows of this piece."""
    if piece.first == 0:
        return 1 if piece.header else 0
    if piece.text is not None:
        return piece.first
    lines = 0
    with piece.path.open("rb") as file:
        left = _line_start(file, piece.first)
        file.seek(0)
        while left > 0:
            block = file.read(min(left, 16 << 20))
            lines += block.count(b"\n")
            left -= len(block)
    return lines


def _line_start(file: IO[bytes], at: int) -> int:
    """The first byte of the first line that starts at `at` or later."""
    if at == 0:
        return 0
    file.seek(at - 1)
    file.readline()
    return file.tell()


def _lines_between(piece: Piece) -> bytes:
    """Whole lines that start in the piece's bytes."""
    with piece.path.open("rb") as file:
        start, stop = _line_start(file, piece.first), _line_start(file, piece.last)
        file.seek(start)
        return file.read(max(stop - start, 0))


def _row_ranges(path: Path, piece_bytes: int) -> list[tuple[int, int]]:
    """Equal ranges of rows of a Parquet file, of about so many bytes as text."""
    with readable(path), pq.ParquetFile(path) as file:
        rows = file.metadata.num_rows
    step = max(piece_bytes // ROW_BYTES, 1)
    return [(first, min(first + step, rows)) for first in range(0, rows, step)]


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn what a reader says of a damaged file into an error that names it."""
    try:
        yield
    except (pa.ArrowException, OSError, duckdb.Error) as error:
        if isinstance(error, duckdb.OutOfMemoryException):
            raise TraceError(f"{path}: {error}; give more --memory") from None
        first = str(error).strip().splitlines()[0]
        raise TraceError(
            f"{path}: cannot be read ({first}); make it or download it again"
        ) from None


def _stream(path: Path, member: str, piece_bytes: int) -> Iterator[bytes]:
    """Blocks of whole lines of a packed file, in order."""
    rest, held, read, lines = b"", bytearray(), 0, 0
    try:
        with _unpacked(path, member) as file:
            while block := file.read1(READ_BYTES):
                read, lines = read + len(block), lines + block.count(b"\n")
                held += block
                cut = held.rfind(b"\n") + 1 if len(held) >= piece_bytes else 0
                if cut:
                    yield bytes(held[:cut])
                    del held[:cut]
            rest = bytes(held)
    except (EOFError, OSError, zlib.error, lzma.LZMAError, tarfile.TarError) as error:
        raise TraceError(
            f"{path}:{lines + 1}: is cut short or damaged here, after {read:,} bytes of text "
            f"({error}); download it again and check its sha256"
        ) from None
    if not read:
        raise TraceError(f"{path}: is empty; download it again")
    if rest:
        yield rest


@contextmanager
def _unpacked(path: Path, member: str) -> Iterator[Any]:
    if not member:
        with OPENERS[path.suffix](path, "rb") as file:
            yield file
        return
    with tarfile.open(path, "r|*") as archive:  # a stream: the archive is never held in memory
        for entry in archive:
            if Path(entry.name).name == member:
                inside = archive.extractfile(entry)
                if inside is not None:
                    yield inside
                    return
    raise TraceError(f"{path}: holds no {member}; download it again or name another with --table")
