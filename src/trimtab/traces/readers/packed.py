"""The bytes of a file, unpacked when they say that they are packed, and texts as UTF-8."""

import bz2
import codecs
import gzip
import lzma
import zlib
from collections.abc import Callable
from pathlib import Path

from trimtab.errors import TraceError

UNPACK: dict[bytes, Callable[[bytes], bytes]] = {
    b"\x1f\x8b": gzip.decompress,
    b"\xfd7zXZ\x00": lzma.decompress,
    b"BZh": bz2.decompress,
}
# What texts of Windows begin with; a longer mark before the shorter one that it begins with
MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


def as_utf8(data: bytes) -> bytes:
    """A text that begins with a byte order mark as UTF-8 without one; all else as it is."""
    for mark, coding in MARKS.items():
        if data.startswith(mark):
            try:
                return data.decode(coding).encode()
            except UnicodeDecodeError:
                return data  # no text: it begins so by chance
    return data


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
                return as_utf8(unpack(data))
            except (OSError, EOFError, ValueError, lzma.LZMAError, zlib.error) as error:
                problem = f"cannot be unpacked ({error}); fetch the file again"
                raise TraceError(f"{path}: {problem}") from None
    return as_utf8(data)
