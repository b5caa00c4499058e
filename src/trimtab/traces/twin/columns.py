"""Columns of a chunk of rows before they become Arrow: numbers, and strings by number."""

from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from trimtab.compiled import compiled

LONGEST_NUMBER = 20  # digits of a 64-bit number
NORMALS = 4096
# Standard normals at the middles of equal shares: a draw is twelve random bits.
NORMAL = np.array([NormalDist().inv_cdf((k + 0.5) / NORMALS) for k in range(NORMALS)])


class Text(NamedTuple):
    """Strings of a small set."""

    place: np.ndarray  # (rows,) int32 into words; -1 is missing
    words: pa.Array  # distinct


class Numbered(NamedTuple):
    """Strings that are a prefix and a number, each its own."""

    prefix: str
    number: np.ndarray  # (rows,) int64, not negative


Column = np.ndarray | Text | Numbered
Chunk = dict[str, Column]

SCHEMAS = {  # the official names and types; a string column is stored as what it is
    "machine_meta": "machine_id:s time_stamp:i failure_domain_1:i failure_domain_2:s cpu_num:i"
    " mem_size:i status:s",
    "machine_usage": "machine_id:s time_stamp:f cpu_util_percent:i mem_util_percent:i mem_gps:f"
    " mkpi:i net_in:f net_out:f disk_io_percent:f",
    "container_meta": "container_id:s machine_id:s time_stamp:i app_du:s status:s cpu_request:i"
    " cpu_limit:i mem_size:f",
    "container_usage": "container_id:s machine_id:s time_stamp:f cpu_util_percent:i"
    " mem_util_percent:i cpi:f mem_gps:f mpki:i net_in:f net_out:f disk_io_percent:f",
    "batch_task": "task_name:s instance_num:i job_name:s task_type:s status:s start_time:i"
    " end_time:i plan_cpu:f plan_mem:f",
    "batch_instance": "instance_name:s task_name:s job_name:s task_type:s status:s start_time:i"
    " end_time:i machine_id:s seq_no:i total_seq_no:i cpu_avg:f cpu_max:f mem_avg:f mem_max:f",
}
TYPES = {"s": pa.dictionary(pa.int32(), pa.string()), "i": pa.int64(), "f": pa.float64()}


def schema_of(table: str) -> pa.Schema:
    """The columns of a table as they are handed to the writer."""
    fields = [field.split(":") for field in SCHEMAS[table].split()]
    # instance names are all different: a dictionary of them would only be written in vain
    plain = {"instance_name": pa.string()}
    return pa.schema([(name, plain.get(name, TYPES[kind])) for name, kind in fields])


def arrow(table: str, chunk: Chunk) -> pa.Table:
    """The chunk as Arrow, missing values as nulls."""
    schema = schema_of(table)
    return pa.table(
        [_arrow_column(chunk[field.name], field.type) for field in schema], schema=schema
    )


def _arrow_column(column: Column, kind: pa.DataType) -> pa.Array:
    if isinstance(column, Numbered):
        return numbered(column.prefix, column.number)
    if isinstance(column, Text):
        missing = column.place < 0
        index = pa.array(column.place, pa.int32(), mask=missing if missing.any() else None)
        return pa.DictionaryArray.from_arrays(index, column.words)
    if column.dtype.kind == "f":
        return pa.array(column, from_pandas=True).cast(kind)
    return pa.array(column, kind)


def taken(column: Column, rows: np.ndarray) -> Column:
    """Some rows of a column."""
    if isinstance(column, Text):
        return Text(column.place[rows], column.words)
    if isinstance(column, Numbered):
        return Numbered(column.prefix, column.number[rows])
    return column[rows]


def joined(above: Column, below: Column) -> Column:
    """Two columns of one set of words, one under the other."""
    if isinstance(above, Text) and isinstance(below, Text):
        return Text(np.concatenate((above.place, below.place)), above.words)
    if isinstance(above, Numbered) and isinstance(below, Numbered):
        return Numbered(above.prefix, np.concatenate((above.number, below.number)))
    return np.concatenate((plain(above), plain(below)))


def plain(column: Column) -> np.ndarray:
    """The numbers of a column that holds no strings."""
    if isinstance(column, np.ndarray):
        return column
    raise TypeError(f"a column of {type(column).__name__} holds strings; give one of numbers")


def text(column: Column) -> Text:
    """A column that holds strings of a small set."""
    if isinstance(column, Text):
        return column
    raise TypeError(f"a column of {type(column).__name__} is not Text; give one of few words")


def rows_of(chunk: Chunk) -> int:
    """How many rows the chunk has."""
    column = next(iter(chunk.values()))
    if isinstance(column, Numbered):
        return len(column.number)
    return len(column.place) if isinstance(column, Text) else len(column)


def same(word: str, rows: int, *others: str) -> Text:
    """A column that holds one word everywhere, and could hold the others."""
    return Text(np.zeros(rows, np.int32), pa.array([word, *others]))


def numbered(prefix: str, number: np.ndarray) -> pa.Array:
    """Prefix and number as strings, without a Python object for any of them."""
    head = np.frombuffer(prefix.encode(), np.uint8)
    letters = np.empty(len(number) * (len(head) + LONGEST_NUMBER), np.uint8)
    ends = np.zeros(len(number) + 1, np.int32)
    used = _spell(head, np.asarray(number, np.int64), letters, ends)
    return pa.StringArray.from_buffers(
        len(number), pa.py_buffer(ends), pa.py_buffer(letters[:used].tobytes())
    )


@compiled
def _spell(head: np.ndarray, number: np.ndarray, letters: np.ndarray, ends: np.ndarray) -> int:
    """Write each name behind the one before; the end of all."""
    at = 0
    for row in range(len(number)):
        for letter in head:
            letters[at] = letter
            at += 1
        left, digits = number[row], 1
        while left >= 10:
            left //= 10
            digits += 1
        left = number[row]
        for back in range(digits - 1, -1, -1):
            letters[at + back] = 48 + left % 10
            left //= 10
        at += digits
        ends[row + 1] = at
    return at


@compiled(inline="always")
def mixed(key: np.uint64) -> np.uint64:
    """64 random bits of a counter: the finaliser of splitmix64 (Steele, Lea, Flood 2014)."""
    bits = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))
