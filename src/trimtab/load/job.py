"""What a running job uses of this machine: its share of the CPU, and whose the GPUs' memory is.

job = Job("4711")                       # a process and all that it started, or a PID file
job.cpu_share(now_s)                    # since the call before
others_memory_b(job.processes())        # of others, on the worst GPU that the job is on
"""

import math
from collections.abc import Collection
from pathlib import Path
from typing import Any

import psutil
import pynvml

from trimtab.errors import TrimtabError


class Job:
    """A process and all that it started.

    A file that names the PID is read anew each time: a job that starts again has another one.
    """

    def __init__(self, named: str) -> None:
        self.named = named
        self._last: tuple[float, dict[int, float]] | None = None
        if not named.isdigit() and not Path(named).is_file():
            raise TrimtabError(
                f"job={named!r} is neither a PID nor a file that holds one; give one"
            )

    def pid(self) -> int:
        """The PID now; 0 while the file holds none."""
        if self.named.isdigit():
            return int(self.named)
        try:
            return int(Path(self.named).read_text().strip())
        except (OSError, ValueError):
            return 0

    def processes(self) -> dict[int, psutil.Process]:
        """All processes of the job by PID; none when it has ended."""
        try:
            first = psutil.Process(self.pid() or -1)
            return {one.pid: one for one in (first, *first.children(recursive=True))}
        except (psutil.Error, ValueError):
            return {}

    def cpu_share(self, now_s: float) -> float:
        """Share of the host's CPU since the last call; NaN at the first, and without the job."""
        spent_s = {}
        for pid, process in self.processes().items():
            try:
                times = process.cpu_times()
                spent_s[pid] = times.user + times.system
            except psutil.Error:  # ended meanwhile
                continue
        last, self._last = self._last, (now_s, spent_s)
        if last is None or now_s <= last[0] or not (spent_s and last[1]):
            return math.nan
        # one that began meanwhile has spent all of it since
        more_s = sum(max(s - last[1].get(pid, 0.0), 0.0) for pid, s in spent_s.items())
        return more_s / ((now_s - last[0]) * (psutil.cpu_count() or 1))


def others_memory_b(own: Collection[int]) -> float:
    """Bytes that others hold on the worst of the GPUs on which these processes are.

    NaN without a driver, and where NVML shows none of them, as inside of a container with PIDs of
    its own.
    """
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return math.nan
    try:
        held = [_others_b(index, own) for index in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError:
        return math.nan
    finally:
        pynvml.nvmlShutdown()
    known = [held_b for held_b in held if not math.isnan(held_b)]
    return max(known, default=math.nan)


def _others_b(index: int, own: Collection[int]) -> float:
    """Bytes of others on one GPU; NaN where the job is not, or a process does not say."""
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        listed: list[Any] = list(pynvml.nvmlDeviceGetComputeRunningProcesses(handle))
    except pynvml.NVMLError:
        return math.nan
    if not any(process.pid in own for process in listed):
        return math.nan
    others = [process.usedGpuMemory for process in listed if process.pid not in own]
    return math.nan if any(used is None for used in others) else float(sum(others))
