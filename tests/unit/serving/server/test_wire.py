"""Frames survive any cut of the stream, and what is no frame is refused."""

import struct

import numpy as np
import pytest

from trimtab.errors import ServeError
from trimtab.serving.server.wire import (
    ANSWER,
    HEAD,
    MAGIC,
    WORK,
    FrameReader,
    Report,
    answer_frame,
    connected,
    framed,
    heard,
    parsed,
    read_answer,
    read_work,
    said,
    work_frame,
)


def frames_of(stream: bytes, step: int) -> list[tuple[int, bytes, bytes]]:
    """What a reader cuts out of a stream that comes in steps."""
    reader, found, at = FrameReader(trusted=True), [], 0
    while at < len(stream):
        room = reader.room()
        part = stream[at : at + min(step, len(room))]
        room[: len(part)] = part
        found += [(kind, bytes(meta), bytes(rest)) for kind, meta, rest in reader.fill(len(part))]
        at += len(part)
    return found


@pytest.mark.parametrize("step", [1, 7, 16, 1000, 1 << 20])
def test_frames_come_out_as_they_went_in_however_they_are_cut(step):
    large = np.random.default_rng(0).bytes(200_000 if step > 1 else 70_000)
    sent = [(0, b"x" * 8, b""), (4, b"", large), (5, b"y" * 24, b"z" * 3), (7, b"", b"")]
    stream = b"".join(framed(*frame) for frame in sent)
    assert frames_of(stream, step) == sent


def test_work_keeps_ids_widths_and_rows():
    rows = [np.full(4, value, "f4").tobytes() for value in (1.0, 2.0)]
    frame = work_frame(17, 1, 3, (255, 2, 0, 255), np.array([5, 1 << 40]), rows)
    [(kind, meta, tensor)] = frames_of(frame, 1 << 16)
    work = read_work(memoryview(meta))
    assert (kind, work) == (WORK, (17, 1, 3, (255, 2, 0, 255), [5, 1 << 40]))
    assert np.frombuffer(tensor, "f4").tolist() == [1.0] * 4 + [2.0] * 4


def test_an_answer_keeps_its_report_runs_ids_widths_and_tensor():
    report = Report(received=9, busy=1, waiting=4, memory_b=1.5, util=0.25, power_source=3)
    runs = [(0, 0, 3, 2, 0.5), (1, 3, 2, 2, 0.25)]
    widths = [(3, 2, 255, 255), (1, 2, 255, 255)]
    frame = answer_frame(ANSWER, report, runs, 2, [7, 8], widths, b"abcd")
    [(_, meta, tensor)] = frames_of(frame, 1 << 16)
    found = read_answer(memoryview(meta))
    assert found.report == report._replace(runs=2)
    assert found.runs.tolist() == [list(run) for run in runs]
    assert (found.segment, found.ids.tolist()) == (2, [7, 8])
    assert found.widths.tolist() == [list(row) for row in widths]
    assert tensor == b"abcd"


def test_a_greeting_comes_back():
    [(_, meta, _)] = frames_of(said(0, name="a", kind="k", share=0.5), 3)
    assert heard(memoryview(meta)) == {"name": "a", "kind": "k", "share": 0.5}


@pytest.mark.parametrize("meta", [b"", b"[]", b"{", b"\xff\xfe"])
def test_a_greeting_that_is_no_object_is_refused(meta):
    with pytest.raises(ServeError, match="greeting"):
        heard(memoryview(meta))


@pytest.mark.parametrize(
    "head",
    [
        struct.pack("<HBxIQ", 1, 0, 0, 0),
        struct.pack("<HBxIQ", MAGIC, 99, 0, 0),
        struct.pack("<HBxIQ", MAGIC, 0, 1 << 30, 0),
        struct.pack("<HBxIQ", MAGIC, 4, 0, 1 << 50),
    ],
)
def test_what_is_no_frame_or_too_large_is_refused_before_it_is_held(head):
    assert len(head) == HEAD.size
    with pytest.raises(ServeError, match=r"frame|large"):
        frames_of(head, 16)


def test_a_stranger_may_send_a_small_greeting_only():
    reader = FrameReader()
    frame = framed(4, b"", b"x" * 64)
    reader.room()[: len(frame)] = frame
    with pytest.raises(ServeError, match="too large"):
        list(reader.fill(len(frame)))


def test_addresses_are_read():
    assert parsed("unix:/tmp/x") == "/tmp/x"
    assert parsed("host:80") == ("host", 80)
    assert parsed("[::1]:80") == ("::1", 80)


@pytest.mark.parametrize("address", ["", "host", "host:", ":80", "host:0", "host:99999", "host:x"])
def test_a_bad_address_says_how_to_write_one(address):
    with pytest.raises(ServeError, match="HOST:PORT"):
        parsed(address)


def test_a_fleet_that_is_not_there_is_one_sentence(tmp_path):
    with pytest.raises(ServeError, match="no fleet answers"):
        connected(f"unix:{tmp_path}/none", 1.0)
