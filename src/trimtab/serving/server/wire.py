"""What a front and its servers say to each other: frames over a socket.

A frame is a fixed head, a meta part and a tensor part. Greetings carry JSON as meta; work and
answers carry packed numbers, because they are what the hot path is made of. Meta is padded to
8 bytes, so that numbers behind it lie where numpy can read them in place.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.errors import ServeError
from trimtab.serving.nouns import SEGMENTS, WIDTHS

MAGIC = 0x7454
# front to server: WELCOME, WORK, LEAVE, REFUSED; server to front: the rest
HELLO, WELCOME, REFUSED, READY, WORK, ANSWER, FAILED, BEAT, LEAVE, BYE = range(10)
HEAD = struct.Struct("<HBxIQ")  # magic, kind, bytes of meta, bytes of tensor
META_LIMIT_B, TENSOR_LIMIT_B = 1 << 22, 1 << 30
STRANGER_LIMIT_B = 1 << 16  # what may be sent before a HELLO was accepted
SCRATCH_B = 1 << 16
UNRUN = 255  # in place of a width: this segment has not run

WORK_HEAD = struct.Struct("<QIBB4B6x")  # rows sent so far, count, segment, before, widths
REPORT = struct.Struct("<Q4I4IQQ5dIB3x")
ANSWER_HEAD = struct.Struct("<II")  # count, next segment
RUN_COLUMNS = 5  # segment, before, width, count, seconds

Frame = tuple[int, memoryview, memoryview]


class Report(NamedTuple):
    """What a server says of itself with everything it sends."""

    received: int = 0  # rows, since it joined
    busy: int = 0
    waiting: int = 0
    loaded: int = 0
    workers: int = 1
    waiting_0: int = 0  # rows in the queue, a segment
    waiting_1: int = 0
    waiting_2: int = 0
    waiting_3: int = 0
    batches: int = 0
    rows: int = 0
    memory_b: float = 0.0
    util: float = 0.0
    power_w: float = 0.0
    energy_j: float = 0.0
    busy_s: float = 0.0  # worker seconds
    runs: int = 0  # rows of the table of runs behind this
    power_source: int = 0  # index into POWER_SOURCES


POWER_SOURCES = ("", "nvml", "rapl", "model")
# the same bytes as compiled code reads and writes them
REPORT_ROW = np.dtype(
    {
        "names": list(Report._fields),
        "formats": ["u8", *["u4"] * 8, *["u8"] * 2, *["f8"] * 5, "u4", "u1"],
        "offsets": [0, *range(8, 40, 4), *range(40, 97, 8), 100],
        "itemsize": REPORT.size,
    }
)


class Work(NamedTuple):
    """Rows for a server to run."""

    sent: int  # rows sent to this server so far, with these
    segment: int
    before: int
    widths: tuple[int, ...]  # a segment; UNRUN where it is not planned: come back before it
    ids: list[int]


class Answered(NamedTuple):
    """Rows that come back: from the last segment, from the last planned one, or failed."""

    report: Report
    runs: Array  # (n, RUN_COLUMNS) since the last report
    segment: int  # the next one to run
    ids: Array  # (count,) int64
    widths: Array  # (count, SEGMENTS) uint8 really used


def framed(kind: int, meta: bytes, *tensors: Any) -> bytes:
    """One frame as bytes; tensors are copied here, once."""
    meta += bytes(-len(meta) % 8)
    size = sum(map(len, tensors))
    return b"".join((HEAD.pack(MAGIC, kind, len(meta), size), meta, *tensors))


def said(what: int, **facts: Any) -> bytes:
    """A frame of JSON."""
    return framed(what, json.dumps(facts).encode())


def heard(meta: memoryview) -> dict[str, Any]:
    """The JSON of a frame."""
    try:
        meant = json.loads(bytes(meta).rstrip(b"\0"))
    except ValueError:
        raise ServeError("a greeting is not JSON; connect with `trimtab serve join`") from None
    if not isinstance(meant, dict):
        raise ServeError("a greeting is not a JSON object; connect with `trimtab serve join`")
    return meant


def work_frame(
    sent: int, segment: int, before: int, widths: tuple[int, ...], ids: Array, rows: list[Any]
) -> bytes:
    """A batch for a server. `rows` are the bytes of each row."""
    head = WORK_HEAD.pack(sent, len(ids), segment, before, *widths)
    return framed(WORK, head + ids.tobytes(), *rows)


def read_work(meta: memoryview) -> Work:
    """The meta part of WORK."""
    sent, count, segment, before, *widths = WORK_HEAD.unpack_from(meta)
    ids = np.frombuffer(meta, np.int64, count, WORK_HEAD.size).tolist()
    return Work(sent, segment, before, tuple(widths), ids)


def packed_answer(
    kind: int, report: bytes, runs: bytes, segment: int, ids: bytes, widths: bytes, tensor: Any
) -> bytes:
    """A server's ANSWER, FAILED (the tensor is then a sentence), BEAT, READY or BYE."""
    head = ANSWER_HEAD.pack(len(ids) // 8, segment)
    meta_b = len(report) + len(head) + len(runs) + len(ids) + len(widths)
    pad = bytes(-meta_b % 8)
    first = HEAD.pack(MAGIC, kind, meta_b + len(pad), len(tensor))
    return b"".join((first, report, head, runs, ids, widths, pad, tensor))


def answer_frame(
    kind: int,
    report: Report,
    runs: list[tuple[float, ...]],
    segment: int = 0,
    ids: list[int] | tuple[int, ...] = (),
    widths: list[tuple[int, ...]] | tuple[()] = (),
    tensor: Any = b"",
) -> bytes:
    """The same from plain values."""
    return packed_answer(
        kind,
        REPORT.pack(*report._replace(runs=len(runs))),
        np.array(runs, np.float64).tobytes(),
        segment,
        np.array(ids, np.int64).tobytes(),
        np.array(widths, np.uint8).tobytes(),
        tensor,
    )


def read_answer(meta: memoryview) -> Answered:
    """The meta part of what `answer_frame` made."""
    report = Report(*REPORT.unpack_from(meta))
    count, segment = ANSWER_HEAD.unpack_from(meta, REPORT.size)
    at = REPORT.size + ANSWER_HEAD.size
    runs: Array = np.frombuffer(meta, np.float64, report.runs * RUN_COLUMNS, at)
    at += runs.nbytes
    ids: Array = np.frombuffer(meta, np.int64, count, at)
    at += ids.nbytes
    widths: Array = np.frombuffer(meta, np.uint8, count * SEGMENTS, at)
    return Answered(
        report, runs.reshape(-1, RUN_COLUMNS), segment, ids, widths.reshape(-1, SEGMENTS)
    )


def check_answer(answer: Answered, tensor_b: int, row_b: list[list[int]], most: int) -> None:
    """Refuse an answer that does not fit together. row_b: of a row, by segment and width before."""
    last = answer.segment - 1
    if not 0 <= last < SEGMENTS or len(answer.ids) > most:
        raise ServeError(f"{len(answer.ids)} rows from segment {last} are more than there are")
    widths = set(answer.widths[:, last].tolist())
    width = widths.pop()
    if width >= len(WIDTHS) or widths:
        raise ServeError(f"rows came back from segment {last} at no width or at several")
    if tensor_b != len(answer.ids) * row_b[answer.segment][width]:
        raise ServeError(f"{tensor_b} bytes came back for {len(answer.ids)} rows")


class FrameReader:
    """Cuts a stream into frames: give it what `room` returned, filled, and take the frames.

    Small frames share one buffer; a large one gets a buffer of its own, into which the rest of it
    is received without another copy.
    """

    def __init__(self, trusted: bool = False) -> None:
        self.trusted = trusted  # greetings may be small only
        self.scratch = bytearray(SCRATCH_B)
        self.view = memoryview(self.scratch)
        self.filled = 0
        self.large: bytearray | None = None

    def room(self) -> memoryview:
        """Where the next bytes belong; never empty."""
        if self.large is not None:
            return memoryview(self.large)[self.filled :]
        return self.view[self.filled :]

    def fill(self, count: int) -> Iterator[Frame]:
        """Say that `count` bytes were put there; yields the frames that are now whole."""
        self.filled += count
        if self.large is not None:
            if self.filled == len(self.large):
                whole, self.large, self.filled = self.large, None, 0
                # read-only like the small ones: compiled code is made for one kind of array
                yield _cut(memoryview(whole).toreadonly())
            return
        at = 0
        while self.filled - at >= HEAD.size:
            size = self.size_at(at)
            if at + size > self.filled:
                break
            yield _cut(memoryview(bytes(self.view[at : at + size])))
            at += size
        self.keep(at)

    def keep(self, at: int) -> None:
        """Move what is left to the front, or into a buffer that holds its frame."""
        left = self.filled - at
        if left >= HEAD.size and (size := self.size_at(at)) > SCRATCH_B:
            self.large = bytearray(size)
            self.large[:left] = self.view[at : self.filled]
        elif at:
            self.scratch[:left] = self.scratch[at : self.filled]
        self.filled = left

    def size_at(self, at: int) -> int:
        """Bytes of the frame that begins there."""
        magic, kind, meta_b, tensor_b = HEAD.unpack_from(self.scratch, at)
        if magic != MAGIC or kind > BYE:
            raise ServeError("the bytes are not a frame; this port is for `trimtab serve join`")
        limit_b = TENSOR_LIMIT_B if self.trusted else 0
        meta_limit_b = META_LIMIT_B if self.trusted else STRANGER_LIMIT_B
        if meta_b > meta_limit_b or tensor_b > limit_b:
            raise ServeError(f"a frame has {meta_b} + {tensor_b} bytes; that is too large")
        return HEAD.size + int(meta_b) + int(tensor_b)


def _cut(whole: memoryview) -> Frame:
    _, kind, meta_b, _ = HEAD.unpack_from(whole)
    return kind, whole[HEAD.size : HEAD.size + meta_b], whole[HEAD.size + meta_b :]


def parsed(address: str) -> tuple[str, int] | str:
    """A fleet address: the path of `unix:PATH`, or (host, port)."""
    if address.startswith("unix:"):
        return address[5:]
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ServeError(f"address {address!r}: give HOST:PORT or unix:PATH")
    return host.strip("[]"), int(port)


def connected(address: str, limit_s: float = 10.0) -> socket.socket:
    """A socket to a front."""
    place = parsed(address)
    try:
        if isinstance(place, str):
            sock = socket.socket(socket.AF_UNIX)
            sock.settimeout(limit_s)
            sock.connect(place)
        else:
            sock = socket.create_connection(place, limit_s)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError as problem:
        raise ServeError(
            f"no fleet answers at {address}: {problem}; start one with `trimtab serve`"
        ) from None
    sock.settimeout(None)
    return sock
