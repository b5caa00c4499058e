"""The bytes of a file, unpacked when they say that they are packed."""

import bz2
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
