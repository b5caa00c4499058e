"""All-reduce among the GPUs of this machine: a process each, started and ended here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO

from trimtab.llm.calibrate.devices import used_by_others
from trimtab.llm.calibrate.host import apart, end
from trimtab.llm.calibrate.rows import RowStream, Turn, Unmeasured

START_S = 60.0  # in which every rank has loaded torch and found the others
PROGRAM = "trimtab.llm.calibrate.rank"


def sums(turn: Turn) -> RowStream:
    """All-reduces of 4 KiB to 1 GiB among all GPUs, then among fewer of them."""
    device = turn.device
    if device.ranks < 2:
        raise Unmeasured("links: one GPU has none to measure, so they stay the architecture's")
    if device.kind == "cuda":
        for index in range(1, device.ranks):
            if others := used_by_others(index):
                raise Unmeasured(f"links: GPU {index} is busy ({others})")
    sizes = group_sizes(device.ranks)
    for ranks in sizes:
        yield from group(device.kind, ranks, turn.seconds / len(sizes))


def group_sizes(most: int) -> list[int]:
    """All ranks first, then the powers of two below: the time may not last for every one."""
    powers = [2**step for step in range(1, most.bit_length())]
    return list(dict.fromkeys([most, *(size for size in powers if size < most)]))


def group(kind: str, ranks: int, seconds: float) -> RowStream:
    """All-reduces of one group, rows as the first rank writes them."""
    with tempfile.TemporaryDirectory() as folder:
        started: list[subprocess.Popen[bytes]] = []
        said = Path(folder) / "said"
        try:
            with said.open("wb") as log:
                for rank in range(ranks):
                    started.append(_started(kind, rank, ranks, folder, seconds, log))
            first = started[0].stdout
            assert first is not None
            for line in first:
                size_b, run_s = json.loads(line)
                yield "sums", [size_b, float(ranks), run_s]
            if started[0].wait() != 0:
                raise Unmeasured(f"links: {ranks} ranks failed ({_last_line(said)})")
        finally:
            end(started)


def _started(
    kind: str, rank: int, ranks: int, folder: str, seconds: float, log: IO[bytes]
) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", PROGRAM, kind, rank, ranks, folder, seconds, START_S]
    environment = dict(os.environ)
    if kind == "cpu":
        environment["OMP_NUM_THREADS"] = "1"
        if sys.platform == "linux":
            environment.setdefault("GLOO_SOCKET_IFNAME", "lo")  # host names may not resolve
    out = subprocess.PIPE if rank == 0 else subprocess.DEVNULL
    return apart([str(word) for word in words], out, log, environment)


def _last_line(said: Path) -> str:
    lines = said.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1][:200] if lines else "no word; it may have run out of time"
