"""Public logs and reference results from the data folder; without one the tests are skipped."""

import hashlib
import json
import lzma
import re
from typing import NamedTuple

import numpy as np
from tests.data import found

from trimtab.sim.rlscheduler import schedule

BLOCK = 8192  # rows that NumPy adds up at a time where it has to buffer them


class Log(NamedTuple):
    submit_s: np.ndarray  # (J,)
    run_s: np.ndarray  # (J,)
    request_s: np.ndarray  # (J,)
    procs: np.ndarray  # (J,)
    nodes: int
    procs_of_all: int

    def rows(self, start: int, jobs: int) -> "Log":
        part = slice(start, start + jobs)
        return Log(*(column[part] for column in self[:4]), self.nodes, self.procs_of_all)

    def width(self) -> np.ndarray:
        """Whole nodes of each job, (J,)."""
        return -(-self.procs * self.nodes // self.procs_of_all)


def expected(name: str) -> list[dict]:
    """Rows of a reference result, with the data folder known to be there."""
    return json.loads(found("reference", "scheduling", name).read_text())


def read_log(name: str) -> Log:
    """A log in the standard workload format, in job-id order, with the repairs of the reference.

    Jobs that ran 0 s are dropped and a negative run time becomes 10 s. A requested time of -1
    becomes the run time as logged, so that it stays -1 where both are unknown: two cells of
    RLScheduler's table (SDSC-SP2 without backfilling, WFP3 and UNI) depend on that.
    """
    size, rows = {}, []
    with lzma.open(found("data", "swf", name + ".xz"), "rt", errors="replace") as lines:
        for line in lines:
            if header := re.match(r"; *Max(Nodes|Procs): *(\d+)", line):
                size[header[1]] = int(header[2])
            elif not line.startswith(";") and line.strip():
                rows.append([float(field) for field in line.split()[:9]])
    rows = sorted(row for row in rows if row[3] != 0)
    _, submit_s, _, run_s, allocated, _, _, wanted, request_s = np.array(rows).T
    request_s = np.where(request_s == -1, run_s, request_s)
    run_s, procs = np.where(run_s < 0, 10, run_s), np.maximum(allocated, wanted).astype(np.int64)
    return Log(submit_s, run_s, request_s, procs, size["Nodes"], size.get("Procs", size["Nodes"]))


def fingerprint(start_s) -> str:
    """First 16 digits of the hash of the start times, whole seconds in row order."""
    return hashlib.sha256(",".join(f"{s:.0f}" for s in start_s).encode()).hexdigest()[:16]


def bounded_slowdown(log: Log, start_s) -> np.ndarray:
    """(wait + run) / max(run, 10 s), at least 1, (J,)."""
    return np.maximum(1, (start_s - log.submit_s + log.run_s) / np.maximum(log.run_s, 10))


def mean_by_block(values) -> float:
    """Mean of NumPy's sums over blocks of rows; a sum over all differs in the last digit."""
    total = 0.0
    for first in range(0, len(values), BLOCK):
        total += values[first : first + BLOCK].sum()
    return total / len(values)


def run_rlscheduler(*columns_and_pool) -> np.ndarray:
    """Start of every job, (J,) in seconds; see `schedule`."""
    return schedule(*columns_and_pool)[0]
