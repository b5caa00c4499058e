"""How much memory this process may still take.

What parses and runs a network is compiled code that ends the process where memory ends: protobuf
does by a fault, before anything could be caught. So there must be room before it is called.
"""

from __future__ import annotations

import math
from pathlib import Path

SPARE_B = 128e6  # for the batches that run meanwhile
PROC, CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")


def check_room(need_b: float, proc: Path = PROC, cgroups: Path = CGROUPS) -> None:
    """Raise MemoryError where `need_b` more would leave too little."""
    left = left_b(proc, cgroups)
    if need_b + SPARE_B > left:
        raise MemoryError(
            f"needs {need_b / 1e6:.0f} MB and {SPARE_B / 1e6:.0f} MB to spare, {left / 1e6:.0f} MB"
            " are left; give the process more, or take a router that asks for fewer widths"
        )


def left_b(proc: Path = PROC, cgroups: Path = CGROUPS) -> float:
    """What is left by the limit of the process, of its group and of the machine; inf = unknown."""
    return min(by_process(proc), by_group(proc, cgroups), by_machine(proc))


def by_process(proc: Path = PROC) -> float:
    """What `ulimit -v` leaves."""
    try:
        import resource

        limit_b, _ = resource.getrlimit(resource.RLIMIT_AS)
        if limit_b == resource.RLIM_INFINITY:
            return math.inf
        pages = int((proc / "self" / "statm").read_text().split()[0])
        return limit_b - pages * resource.getpagesize()
    except (ImportError, OSError, ValueError, IndexError):  # another system
        return math.inf


def by_group(proc: Path = PROC, cgroups: Path = CGROUPS) -> float:
    """What the container's limit leaves; files in memory make room when they must."""
    try:
        lines = (proc / "self" / "cgroup").read_text().splitlines()
        path = next(line[3:] for line in lines if line.startswith("0::"))
        group, left = cgroups / path.strip("/"), math.inf
        while True:  # a group around it may be the tighter one
            left = min(left, _left_of(group))
            if group in (cgroups, group.parent):
                return left
            group = group.parent
    except (OSError, StopIteration):
        return math.inf


def _left_of(group: Path) -> float:
    try:
        limit = (group / "memory.max").read_text().strip()
        if limit == "max":
            return math.inf
        used_b = int((group / "memory.current").read_text())
        fields = (line.split() for line in (group / "memory.stat").read_text().splitlines())
        cached_b = next((int(value) for name, value in fields if name == "inactive_file"), 0)
        return int(limit) - used_b + cached_b
    except (OSError, ValueError):
        return math.inf  # the topmost group has no limit


def by_machine(proc: Path = PROC) -> float:
    """What the system says is available."""
    try:
        for line in (proc / "meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return math.inf
