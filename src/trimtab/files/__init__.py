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
    path = Path(os.path.realpath(path))  # what a link names is replaced, not the link
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path.parent))
    place = part_of(path)
    try:
        yield place
        with place.open("rb") as written:
            os.fsync(written.fileno())
        place.replace(path)
    finally:
        place.unlink(missing_ok=True)


def part_of(path: Path) -> Path:
    """Where a file is written before it is whole."""
    # the thread in its name: two that write the same file at once do not meet
    return path.with_name(f".{path.name}.{threading.get_native_id()}.part")


# What the operating system refuses, and what to do about it
REFUSALS = {
    errno.ENOSPC: "the disk is full; make room or name a place on another one",
    errno.EDQUOT: "the disk quota is used up; make room or name a place on another disk",
    errno.EACCES: "is not allowed for this user; change its rights or name another place",
    errno.EPERM: "is not permitted; change its rights or name another place",
    errno.EROFS: "lies on a disk that can only be read; name a place on another one",
    errno.ENOENT: "is not there; check the name, or make the folder first",
    errno.ENOTDIR: "passes through a file as if it were a folder; name another place",
    errno.EISDIR: "is a folder; name a file",
    errno.ENAMETOOLONG: "has too long a name; give a shorter one",
    errno.ELOOP: "is a link that leads back to itself; name the file itself",
    errno.EMFILE: "cannot be opened: this program has too many files open; raise `ulimit -n`",
    errno.ENFILE: "cannot be opened: this machine has too many files open; close some programs",
    errno.EIO: "cannot be read or written: the disk reports an error; check it or copy the file",
    errno.EADDRINUSE: "the address is in use; stop what listens there or choose another port",
    errno.ECONNREFUSED: "nothing listens at the address; start it or give another",
}


def refusal(problem: OSError) -> str:
    """A sentence, with a remedy, for what the operating system refused."""
    text = REFUSALS.get(problem.errno or 0) or problem.strerror or str(problem)
    place = problem.filename2 or problem.filename
    return f"{os.fsdecode(place)}: {text}" if isinstance(place, str | bytes) else text
