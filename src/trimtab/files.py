"""Write a file whole or not at all, also where the machine loses power meanwhile."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def write_whole(path: str | Path, content: str | bytes) -> None:
    """Replace the file by one with this content; its folder is made where there is none."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole(path) as place:
        place.write_bytes(content.encode() if isinstance(content, str) else content)


@contextmanager
def whole(path: str | Path) -> Iterator[Path]:
    """Yield a place beside `path` to write to, which becomes `path` where the block ends well.

    For libraries that write files themselves; the folder must be there. The place begins with a dot
    and ends in .part, whatever the suffix of `path` is: nobody takes it for a finished file.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path.parent))
    # the thread in its name: two that write the same file at once do not meet
    place = path.with_name(f".{path.name}.{threading.get_native_id()}.part")
    try:
        yield place
        with place.open("rb") as written:
            os.fsync(written.fileno())
        place.replace(path)
    finally:
        place.unlink(missing_ok=True)
