"""Rows are the same whatever the pieces, and a piece knows its lines."""

import bz2
import gzip
import lzma

import pyarrow as pa
import pytest

from trimtab.errors import TraceError
from trimtab.traces.alibaba2018.rows import lines_before, pieces, text_rows
from trimtab.traces.alibaba2018.source import TableFiles
from trimtab.traces.alibaba2018.tables import TABLES

NAMES = ",".join(TABLES["machine_meta"].columns)
LINES = [f"m_{n},{n},{n % 3},{n % 2},96,100,USING" for n in range(500)]
TEXT = "\n".join(LINES) + "\n"
PACKERS = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress}


def read(path, piece_bytes, *, lenient=False):
    """(rows, lines left out) of all pieces of a file."""
    todo = list(pieces("machine_meta", TableFiles((path,)), piece_bytes, frozenset()))
    parts = [text_rows(piece, lenient) for piece in todo]
    return pa.concat_tables([rows for rows, _ in parts]), sum(narrow for _, narrow in parts)


@pytest.mark.parametrize("packing", PACKERS)
@pytest.mark.parametrize("piece_bytes", [13, 4096, 1 << 20])
@pytest.mark.parametrize("header", [False, True])
def test_pieces_hold_every_row_once(tmp_path, packing, piece_bytes, header):
    path = tmp_path / f"machine_meta.csv{packing}"
    text = f"{NAMES}\n{TEXT}" if header else TEXT
    path.write_bytes(PACKERS[packing](text.encode()))
    rows, narrow = read(path, piece_bytes)
    assert rows["machine_id"].to_pylist() == [f"m_{n}" for n in range(500)]
    assert rows["time_stamp"].to_pylist() == list(range(500))
    assert narrow == 0


@pytest.mark.parametrize("piece_bytes", [64, 1 << 20])
def test_a_header_names_the_columns_of_every_piece(tmp_path, piece_bytes):
    path = tmp_path / "machine_meta.csv"
    path.write_text("cpu_num,comment,machine_id\n" + "".join(f"{n},x,m_{n}\n" for n in range(99)))
    rows, _ = read(path, piece_bytes)
    assert rows.column_names == list(TABLES["machine_meta"].columns)
    assert rows["cpu_num"].to_pylist() == list(range(99))
    assert rows["machine_id"].to_pylist() == [f"m_{n}" for n in range(99)]
    assert rows["mem_size"].null_count == 99


@pytest.mark.parametrize(
    "text", [TEXT[:-1], TEXT.replace("\n", "\r\n"), TEXT + "\n\n\n", TEXT.replace("\n", "\n\n", 1)]
)
def test_line_ends_do_not_matter(tmp_path, text):
    path = tmp_path / "machine_meta.csv"
    path.write_bytes(text.encode())
    for piece_bytes in (50, 1 << 20):
        rows, _ = read(path, piece_bytes)
        assert rows["status"].to_pylist() == ["USING"] * 500


def test_one_line_without_its_end_is_whole(tmp_path):
    path = tmp_path / "machine_meta.csv"
    path.write_text(LINES[7])
    rows, _ = read(path, 1 << 20)
    assert rows.to_pylist()[0]["status"] == "USING"


@pytest.mark.parametrize("packing", ["", ".gz"])
def test_a_piece_knows_the_lines_above_it(tmp_path, packing):
    path = tmp_path / f"machine_meta.csv{packing}"
    path.write_bytes(PACKERS[packing](f"{NAMES}\n{TEXT}".encode()))
    above = 1
    for piece in pieces("machine_meta", TableFiles((path,)), 700, frozenset()):
        assert lines_before(piece) == above
        above += text_rows(piece, False)[0].num_rows
    assert above == 501


def test_what_is_done_is_not_given_out_again(tmp_path):
    path = tmp_path / "machine_meta.csv"
    path.write_text(TEXT)
    every = [piece.name for piece in pieces("machine_meta", TableFiles((path,)), 1000, frozenset())]
    left = pieces("machine_meta", TableFiles((path,)), 1000, frozenset(every[1:3]))
    assert [piece.name for piece in left] == [every[0], *every[3:]]


@pytest.mark.parametrize("piece_bytes", [100, 1 << 20])
@pytest.mark.parametrize("at", [0, 1, 250, 499])
def test_a_wide_line_is_named_or_dropped(tmp_path, piece_bytes, at):
    lines = [*LINES]
    lines[at] += ",more"
    path = tmp_path / "machine_meta.csv"
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(TraceError, match=rf"machine_meta\.csv:{at + 1}: has 8 columns"):
        read(path, piece_bytes)
    rows, narrow = read(path, piece_bytes, lenient=True)
    assert (rows.num_rows, narrow) == (499, 1)


def test_words_for_nothing_are_null_and_other_text_is_no_number(tmp_path):
    path = tmp_path / "machine_meta.csv"
    cells = ["", "NULL", "nan", "x", "1e2", " 7 ", "-3", "+4", ".5", "1.2.3"]
    path.write_text("".join(f"m_1,0,1,1,{cell},100,USING\n" for cell in cells))
    rows, _ = read(path, 1 << 20)
    assert rows["cpu_num"].to_pylist() == [None, None, None, None, 100, 7, -3, 4, 0.5, None]


def test_bytes_that_are_no_text_are_refused_by_file(tmp_path):
    path = tmp_path / "machine_meta.csv"
    path.write_bytes(TEXT.encode() + b"m_\xff\xfe,0,1,1,96,100,USING\n")
    with pytest.raises(TraceError, match=r"machine_meta\.csv.*download it again"):
        read(path, 1 << 20)


def test_one_of_several_parts_may_be_empty(tmp_path):
    for name, text in (("part-0.csv", ""), ("part-1.csv", TEXT)):
        (tmp_path / name).write_text(text)
    paths = (tmp_path / "part-0.csv", tmp_path / "part-1.csv")
    (only,) = pieces("machine_meta", TableFiles(paths), 1 << 20, frozenset())
    assert only.path == paths[1]
